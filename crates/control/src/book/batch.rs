//! Many changes of tenants at once: all of them are made, or none is. What undoes a change.

use std::collections::HashSet;

use contract::{Instant, Slo, TenantId};
use qos::Lot;

use super::{Book, Origin};
use crate::words::{Admission, Refusal, Share};

/// One change of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantChange {
    /// A tenant is registered.
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

/// What a tenant was before a batch: its promise, the tokens that needs, and its lot on each device.
#[derive(Debug)]
struct Before {
    slo: Slo,
    tokens_needed: u64,
    lots: Vec<Lot>,
}

/// What undoes changes that were begun: by name, the tenants that these changed, and those that they made.
#[derive(Debug, Default)]
#[must_use]
pub struct Undo(Vec<(String, TenantId, Option<Before>)>);

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
        let (mut undo, mut names) = (Undo::default(), HashSet::new());
        let begun = self.in_a_row(now, |book| {
            for (n, change) in changes.iter().enumerate() {
                let made = match names.insert(change.name()) {
                    true => book.begin_change(change, Origin::Operator, now, &mut undo),
                    false => Err(Refusal::Invalid("a batch has one change of a tenant".to_owned())),
                };
                made.map_err(|refusal| (n, refusal))?;
            }
            Ok(())
        });
        match begun {
            Ok(()) => Ok(undo),
            Err(refused) => {
                self.undo_batch(undo, now);
                Err(refused)
            }
        }
    }

    /// Makes many changes. On a device that was promised more than it makes each would cost what all
    /// tenants do.
    fn in_a_row<R>(&mut self, now: Instant, make: impl FnOnce(&mut Book) -> R) -> R {
        self.devices.iter_mut().for_each(|device| device.registry.begin_row());
        let made = make(self);
        self.devices.iter_mut().for_each(|device| device.registry.end_row(now));
        made
    }

    /// Makes one change as [`begin_batch`](Book::begin_batch) does, of a tenant of this origin if it makes
    /// one, and says in `undo` what was before.
    ///
    /// # Errors
    /// Why it is refused; then nothing is another.
    pub fn begin_change(
        &mut self,
        change: &TenantChange,
        origin: Origin,
        now: Instant,
        undo: &mut Undo,
    ) -> Result<(), Refusal> {
        match change {
            TenantChange::Add { name, slo, share, device } => {
                self.register_sharing(name, slo, *share, device.as_deref(), origin, now)?;
                undo.0.push((name.clone(), self.known(name)?, None));
            }
            TenantChange::Set { name, slo, share } => {
                let tenant = self.known(name)?;
                let before = self.before(tenant);
                self.change_sharing(name, slo, *share, now)?;
                undo.0.push((name.clone(), tenant, Some(before)));
            }
            TenantChange::Remove { name } => drop(self.check_end(name)?),
        }
        Ok(())
    }

    fn before(&self, tenant: TenantId) -> Before {
        let entry = self.entry(tenant);
        let lots = self.devices.iter().map(|device| device.registry.lot_of(tenant));
        Before { slo: entry.slo, tokens_needed: entry.tokens_needed, lots: lots.collect() }
    }

    /// What a tenant was admitted with, and what its device has left now.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn admission_of(&self, name: &str) -> Result<Admission, Refusal> {
        Ok(self.admission(self.known(name)?))
    }

    /// Nothing of what was begun has been made. What tenants had is theirs again, whether or not they would
    /// be admitted with it today, and though all is frozen by now. Those that have ended meanwhile stay so.
    pub fn undo_batch(&mut self, undo: Undo, now: Instant) {
        self.in_a_row(now, |book| {
            for (name, tenant, before) in undo.0.into_iter().rev() {
                if book.find(&name) != Some(tenant) {
                    continue;
                }
                let Some(before) = before else {
                    book.unregister_of(tenant, now);
                    continue;
                };
                for (device, lot) in book.devices.iter_mut().zip(before.lots) {
                    device.registry.put_back(tenant, lot, now);
                }
                let entry = book.entry_mut(tenant);
                (entry.slo, entry.tokens_needed) = (before.slo, before.tokens_needed);
            }
        });
    }

    /// Ends the tenants that a batch removes, though all is frozen by now: it was begun before.
    pub fn end_batch(&mut self, changes: &[TenantChange], now: Instant) {
        self.in_a_row(now, |book| {
            for change in changes {
                let TenantChange::Remove { name } = change else { continue };
                // Or it has ended by itself.
                if let Ok(tenant) = book.known(name) {
                    book.unregister_of(tenant, now);
                }
            }
        });
    }
}
