//! Batches of tenant changes: all of them are made, or none. Also the reversal of changes.

use std::collections::HashSet;

use contract::{Instant, Promise, Share, TenantId};
use qos::Lot;
use spec::Tenant;

use super::TenantRegistry;
use crate::info::{Admission, Origin, Refusal};

/// A change of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantChange {
    /// Registers a tenant.
    Add(Tenant),
    /// Changes the promise of a tenant.
    Set {
        /// Name of the tenant.
        name: String,
        /// The new promise.
        to: Promise<Option<Share>>,
    },
    /// Unregisters a tenant.
    Remove {
        /// Name of the tenant.
        name: String,
    },
}

impl TenantChange {
    /// Returns the name of the tenant.
    pub fn name(&self) -> &str {
        match self {
            TenantChange::Add(tenant) => &tenant.name,
            TenantChange::Set { name, .. } | TenantChange::Remove { name } => name,
        }
    }
}

/// A tenant's state before a batch: its promise, the tokens that it needs, and its lot on each
/// device.
#[derive(Debug)]
struct Before {
    promise: Promise,
    tokens_needed: u64,
    lots: Vec<Lot>,
}

/// The reversal of begun changes: the changed tenants with their former state, and the added
/// tenants.
#[derive(Debug, Default)]
#[must_use]
pub struct Undo(Vec<(String, TenantId, Option<Before>)>);

impl TenantRegistry {
    /// Registers and changes the tenants of a batch, in order, and checks its removals.
    /// [`end_batch`](TenantRegistry::end_batch) makes the removals, since they cannot be undone. So
    /// the tokens and names that they free are for the next batch.
    ///
    /// # Errors
    /// Fails with the refused change, counted from zero, and the reason; then nothing has changed. A
    /// second change of one tenant is refused, too.
    pub fn begin_batch(
        &mut self,
        changes: &[TenantChange],
        now: Instant,
    ) -> Result<Undo, (usize, Refusal)> {
        let (mut undo, mut names) = (Undo::default(), HashSet::new());
        let begun = self.in_a_row(now, |registry| {
            for (n, change) in changes.iter().enumerate() {
                let made = match names.insert(change.name()) {
                    true => registry.begin_change(change, Origin::Operator, now, &mut undo),
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

    /// Makes many changes, and updates other tenants' rates once. On a device that promised more
    /// than it delivers, each single change would cost time for all tenants.
    fn in_a_row<R>(&mut self, now: Instant, make: impl FnOnce(&mut TenantRegistry) -> R) -> R {
        self.devices.iter_mut().for_each(|device| device.registry.begin_row());
        let made = make(self);
        self.devices.iter_mut().for_each(|device| device.registry.end_row(now));
        made
    }

    /// Makes one change as [`begin_batch`](TenantRegistry::begin_batch) does. A new tenant gets
    /// this origin. Records the former state in `undo`.
    ///
    /// # Errors
    /// Fails with the reason for a refusal; then nothing has changed.
    pub fn begin_change(
        &mut self,
        change: &TenantChange,
        origin: Origin,
        now: Instant,
        undo: &mut Undo,
    ) -> Result<(), Refusal> {
        match change {
            TenantChange::Add(Tenant { name, promise, device, .. }) => {
                self.register(name, *promise, device.as_deref(), origin, now)?;
                undo.0.push((name.clone(), self.known(name)?, None));
            }
            TenantChange::Set { name, to } => {
                let tenant = self.known(name)?;
                let before = self.before(tenant);
                self.change_of(tenant, *to, now)?;
                undo.0.push((name.clone(), tenant, Some(before)));
            }
            TenantChange::Remove { name } => drop(self.check_end(name)?),
        }
        Ok(())
    }

    fn before(&self, tenant: TenantId) -> Before {
        let entry = self.entry(tenant);
        let lots = self.devices.iter().map(|device| device.registry.lot_of(tenant));
        Before { promise: entry.promise, tokens_needed: entry.tokens_needed, lots: lots.collect() }
    }

    /// Returns a tenant's admission, with the tokens that its device has left now.
    ///
    /// # Errors
    /// Fails if there is no such tenant.
    pub fn admission_of(&self, name: &str) -> Result<Admission, Refusal> {
        Ok(self.admission(self.known(name)?))
    }

    /// Undoes begun changes. Tenants get their former state back, even if it would not be admitted
    /// today, and even if the registry is frozen by now. Tenants that have ended meanwhile stay
    /// ended.
    pub fn undo_batch(&mut self, undo: Undo, now: Instant) {
        self.in_a_row(now, |registry| {
            for (name, tenant, before) in undo.0.into_iter().rev() {
                if registry.find(&name) != Some(tenant) {
                    continue;
                }
                let Some(before) = before else {
                    registry.unregister_of(tenant, now);
                    continue;
                };
                for (device, lot) in registry.devices.iter_mut().zip(before.lots) {
                    device.registry.put_back(tenant, lot, now);
                }
                let entry = registry.entry_mut(tenant);
                (entry.promise, entry.tokens_needed) = (before.promise, before.tokens_needed);
            }
        });
    }

    /// Unregisters the tenants that a batch removes, even if the registry is frozen by now: the
    /// batch was begun before.
    pub fn end_batch(&mut self, changes: &[TenantChange], now: Instant) {
        self.in_a_row(now, |registry| {
            for change in changes {
                let TenantChange::Remove { name } = change else { continue };
                // The tenant may have ended by itself.
                if let Ok(tenant) = registry.known(name) {
                    registry.unregister_of(tenant, now);
                }
            }
        });
    }
}
