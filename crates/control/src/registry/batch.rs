//! Batches of tenant changes: all of them are made, or none.

use std::collections::HashSet;

use contract::{Instant, Promise, Share, TenantId};
use qos::UndoCopy;
use spec::Tenant;

use super::TenantRegistry;
use crate::info::{Origin, Refusal};

/// A change of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantChange {
    /// Registers a tenant.
    Add(Tenant),
    /// Changes the promise, its device and the note of a tenant.
    Set {
        /// Name of the tenant.
        name: String,
        /// The new promise. Without a share, a best-effort tenant keeps its share.
        to: Promise<Option<Share>>,
        /// The new note; an empty text removes it, and `None` leaves it as it is.
        note: Option<String>,
        /// The device of the promise; `None` leaves it as it is.
        device: Option<String>,
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

/// A tenant's state before a batch: its promise and the index of its device, the tokens that it
/// needs, its note, and its state in the registry of each device.
#[derive(Debug)]
struct TenantSnapshot {
    promise: Promise,
    device: usize,
    tokens_needed: u64,
    note: Option<String>,
    lots: Vec<UndoCopy>,
}

/// Changes of tenants that have begun: they can be undone, or ended. Registrations and changes are
/// made when they begin. Removals are made at the [end](Batch::end), since they cannot be undone.
#[derive(Debug, Default)]
#[must_use]
pub struct Batch {
    /// Name and number of each added or changed tenant, with its state before the batch; `None` for
    /// added tenants.
    begun: Vec<(String, TenantId, Option<TenantSnapshot>)>,
    /// The names of the tenants that the batch removes at its end.
    removals: Vec<String>,
}

impl Batch {
    /// Begins all changes of a batch, in order. The tokens and names that removals free are for the
    /// next batch.
    ///
    /// # Errors
    /// Fails with the refused change, counted from zero, and the reason; then nothing has changed.
    /// A second change of one tenant is refused, too.
    pub fn begin(
        registry: &mut TenantRegistry,
        changes: &[TenantChange],
        now: Instant,
    ) -> Result<Batch, (usize, Refusal)> {
        let (mut batch, mut names) = (Batch::default(), HashSet::new());
        let begun = registry.in_a_row(now, |registry| {
            for (n, change) in changes.iter().enumerate() {
                let made = match names.insert(change.name()) {
                    true => batch.add(registry, change, Origin::Operator, now),
                    false => Err(Refusal::Invalid("a batch has one change of a tenant".to_owned())),
                };
                made.map_err(|refusal| (n, refusal))?;
            }
            Ok(())
        });
        match begun {
            Ok(()) => Ok(batch),
            Err(refused) => {
                batch.undo(registry, now);
                Err(refused)
            }
        }
    }

    /// Begins one more change. A new tenant gets this origin.
    ///
    /// # Errors
    /// Fails with the reason for a refusal; then nothing has changed.
    pub fn add(
        &mut self,
        registry: &mut TenantRegistry,
        change: &TenantChange,
        origin: Origin,
        now: Instant,
    ) -> Result<(), Refusal> {
        match change {
            TenantChange::Add(Tenant { name, promise, device, note, .. }) => {
                let added = registry.register(name, *promise, device.as_deref(), origin, now)?;
                registry.tenants.entry_mut(added.tenant).note.clone_from(note);
                self.begun.push((name.clone(), added.tenant, None));
            }
            TenantChange::Set { name, to, note, device } => {
                let tenant = registry.tenants.known(name)?;
                let there = device.as_ref().map(|name| registry.devices.find(Some(name)));
                let (before, place) = (TenantSnapshot::of(registry, tenant), there.transpose()?);
                let same = to.over(before.promise.share()) == before.promise;
                match note.is_some() && same && place.is_none_or(|place| place == before.device) {
                    // The promise is not to be admitted again for a note.
                    true => registry.check_thawed()?,
                    false => registry.change_of(tenant, *to, place, now).map(drop)?,
                }
                if let Some(note) = note {
                    let is_any = !note.is_empty();
                    registry.tenants.entry_mut(tenant).note = is_any.then(|| note.clone());
                }
                self.begun.push((name.clone(), tenant, Some(before)));
            }
            TenantChange::Remove { name } => {
                registry.check_end(name)?;
                self.removals.push(name.clone());
            }
        }
        Ok(())
    }

    /// Undoes the changes. Tenants get their former state back, even if it would not be admitted
    /// today, and even if the registry is frozen by now. Tenants that have ended meanwhile stay
    /// ended.
    pub fn undo(self, registry: &mut TenantRegistry, now: Instant) {
        registry.in_a_row(now, |registry| {
            for (name, tenant, before) in self.begun.into_iter().rev() {
                if registry.find(&name) != Some(tenant) {
                    continue;
                }
                let Some(TenantSnapshot { promise, device, tokens_needed, note, lots }) = before
                else {
                    registry.dismiss(tenant, now);
                    continue;
                };
                registry.devices.put_back(tenant, lots, now);
                let entry = registry.tenants.entry_mut(tenant);
                (entry.promise, entry.tokens_needed, entry.note) = (promise, tokens_needed, note);
                entry.device = device;
            }
        });
    }

    /// Unregisters the tenants that the batch removes, even if the registry is frozen by now.
    pub fn end(self, registry: &mut TenantRegistry, now: Instant) {
        registry.in_a_row(now, |registry| {
            for name in &self.removals {
                // The tenant may have ended by itself.
                if let Some(tenant) = registry.find(name) {
                    registry.dismiss(tenant, now);
                }
            }
        });
    }
}

impl TenantSnapshot {
    fn of(registry: &TenantRegistry, tenant: TenantId) -> TenantSnapshot {
        let entry = registry.tenants.entry(tenant);
        TenantSnapshot {
            promise: entry.promise,
            device: entry.device,
            tokens_needed: entry.tokens_needed,
            note: entry.note.clone(),
            lots: registry.devices.lots_of(tenant),
        }
    }
}
