//! Series of changes of tenants, and the restoring of a tenant's former state.

use contract::{Instant, TenantId};

use super::table::Entry;
use super::{FairShare, Registry};

/// The state of a tenant before a change: its promise, and its portion as best effort.
#[derive(Clone, Copy, Debug)]
pub struct UndoCopy(Entry, FairShare);

impl Registry {
    /// Begins a series of changes: the rates of other tenants are updated in
    /// [`end_row`](Registry::end_row). Until then the rates may add up to more than the device
    /// makes, if the promises do.
    pub fn begin_row(&mut self) {
        self.grants.begin_row();
    }

    /// Ends a series of changes. Recomputes the rates of all tenants once, if a change of the
    /// series requires that.
    pub fn end_row(&mut self, now: Instant) {
        if !self.grants.end_row() {
            return;
        }
        self.settle(now.as_nanos());
        let share = self.lower_share(now.as_nanos());
        self.grant_all(now);
        self.raise_share(share, now.as_nanos());
    }

    /// Returns a tenant's present state, to be [restored](Registry::put_back).
    pub fn lot_of(&self, tenant: TenantId) -> UndoCopy {
        UndoCopy(self.table.entry(tenant.0 as usize), self.portion(tenant))
    }

    /// Restores a tenant's former state. The promise is not checked anew, since a device that has
    /// become slower would refuse it.
    pub fn put_back(&mut self, tenant: TenantId, UndoCopy(entry, portion): UndoCopy, now: Instant) {
        if let Ok(n) = self.table.registered(tenant) {
            self.shared.tenant(tenant.0).set_cap(portion.cap);
            self.put(n, entry, portion.weight, now);
        }
    }
}
