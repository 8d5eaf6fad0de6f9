//! What a tenant was before a change that is undone.

use contract::{Instant, TenantId};

use super::{Entry, Portion, Registry};

/// What a tenant is promised, and gets while it is best effort.
#[derive(Clone, Copy, Debug)]
pub struct Lot(Entry, Portion);

impl Registry {
    /// What a tenant is now, to be [put back](Registry::put_back).
    pub fn lot_of(&self, tenant: TenantId) -> Lot {
        Lot(self.entries[tenant.0 as usize], self.portion(tenant))
    }

    /// A tenant is again what it was. Nothing is judged anew: on a device that has become slower since it
    /// was admitted it would be refused.
    pub fn put_back(&mut self, tenant: TenantId, Lot(entry, portion): Lot, now: Instant) {
        let n = tenant.0 as usize;
        if self.registered(tenant).is_ok() {
            self.shared.tenant(n as u32).set_cap(portion.cap);
            self.put(n, entry, portion.weight, now);
        }
    }
}
