//! Many changes of tenants at once: all of them are made, or none is.

use std::collections::HashSet;

use contract::{Instant, Slo};

use super::{Book, Origin};
use crate::words::{Refusal, Share};

/// One change of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantChange {
    /// An operator's tenant is registered.
    Add {
        /// Its name.
        name: String,
        /// What it is promised.
        slo: Slo,
        /// What it gets of the rest, for best effort.
        share: Option<Share>,
        /// The device of the promise; the first unless it is named.
        device: Option<String>,
    },
    /// A tenant is promised something else.
    Set {
        /// Its name.
        name: String,
        /// What it is promised from now on.
        slo: Slo,
        /// What it gets of the rest from now on, unless that is to stay.
        share: Option<Share>,
    },
    /// A tenant ends.
    Remove {
        /// Its name.
        name: String,
    },
}

impl TenantChange {
    /// The tenant that it is about.
    pub fn name(&self) -> &str {
        match self {
            TenantChange::Add { name, .. }
            | TenantChange::Set { name, .. }
            | TenantChange::Remove { name } => name,
        }
    }
}

/// What a tenant was promised before a batch.
type Promised = (Slo, Option<Share>);

/// What undoes the part of a batch that is made: the tenants that it changed, and those that it made.
#[derive(Debug)]
#[must_use]
pub struct Undo(Vec<(String, Option<Promised>)>);

impl Book {
    /// Registers and changes the tenants of a batch, in its order, and looks whether those can end that
    /// are to: they do so with [`end_batch`](Book::end_batch), as that cannot be undone. So what they
    /// free is for the next batch.
    ///
    /// # Errors
    /// Which change is refused, counted from zero, and why; then nothing is another. A tenant that has
    /// two changes is refused, too.
    pub fn begin_batch(
        &mut self,
        changes: &[TenantChange],
        now: Instant,
    ) -> Result<Undo, (usize, Refusal)> {
        let (mut undo, mut names) = (Undo(Vec::new()), HashSet::new());
        for (n, change) in changes.iter().enumerate() {
            let made = match names.insert(change.name()) {
                true => self.begin_one(change, now, &mut undo),
                false => Err(Refusal::Invalid("a batch has one change of a tenant".to_owned())),
            };
            if let Err(refusal) = made {
                self.undo_batch(undo, now);
                return Err((n, refusal));
            }
        }
        Ok(undo)
    }

    fn begin_one(
        &mut self,
        change: &TenantChange,
        now: Instant,
        undo: &mut Undo,
    ) -> Result<(), Refusal> {
        match change {
            TenantChange::Add { name, slo, share, device } => {
                let (origin, device) = (Origin::Operator, device.as_deref());
                self.register_sharing(name, slo, *share, device, origin, now)?;
                undo.0.push((name.clone(), None));
            }
            TenantChange::Set { name, slo, share } => {
                let before = self.info(self.known(name)?);
                self.change_sharing(name, slo, *share, now)?;
                let own = (before.slo.latency_us == 0 && share.is_some()).then_some(before.share);
                undo.0.push((name.clone(), Some((before.slo, own))));
            }
            TenantChange::Remove { name } => drop(self.check_end(name)?),
        }
        Ok(())
    }

    /// Nothing of a batch has been made.
    pub fn undo_batch(&mut self, undo: Undo, now: Instant) {
        for (name, before) in undo.0.into_iter().rev() {
            let done = match before {
                None => self.unregister(&name, now),
                Some((slo, share)) => self.change_sharing(&name, &slo, share, now).map(drop),
            };
            if let Err(refusal) = done {
                tracing::error!(%refusal, name, "a tenant cannot be put back");
            }
        }
    }

    /// Ends the tenants that a batch removes.
    pub fn end_batch(&mut self, changes: &[TenantChange], now: Instant) {
        for change in changes {
            let TenantChange::Remove { name } = change else { continue };
            if let Err(refusal) = self.unregister(name, now) {
                tracing::error!(%refusal, name, "a tenant does not end");
            }
        }
    }
}
