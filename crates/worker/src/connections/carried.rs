//! Bytes that are kept for stalled connections, counted by tenant, so that no tenant's bytes cause
//! another tenant's connections to be ended.

use contract::TenantId;

/// Limit of a tenant's kept bytes, as a multiple of the bytes that are still free. A connection
/// that would exceed the limit is ended, so the factor is larger than the one for mere waiting.
const SHARE: usize = 8;

/// The count of the bytes that a worker keeps for its stalled connections, by tenant.
#[derive(Debug)]
pub(crate) struct CarriedBytes {
    limit: usize,
    total: usize,
    /// The number of kept bytes of each tenant, by the tenant's number.
    held: Vec<usize>,
}

impl CarriedBytes {
    /// Creates an empty count for a worker that may keep `limit` bytes.
    pub(crate) fn new(limit: usize) -> CarriedBytes {
        CarriedBytes { limit, total: 0, held: Vec::new() }
    }

    /// Returns the bytes that are kept for all tenants.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns whether so many more bytes may be kept for a tenant.
    pub(crate) fn allows(&self, tenant: TenantId, bytes: usize) -> bool {
        let free = self.limit.saturating_sub(self.total);
        let held = self.held.get(tenant.0 as usize).copied().unwrap_or(0);
        bytes <= free && (held == 0 || held + bytes <= SHARE * free)
    }

    /// Counts bytes that are kept for a tenant.
    pub(crate) fn add(&mut self, tenant: TenantId, bytes: usize) {
        let index = tenant.0 as usize;
        if self.held.len() <= index {
            self.held.resize(index + 1, 0);
        }
        self.held[index] += bytes;
        self.total += bytes;
    }

    /// Counts bytes that are no longer kept for a tenant.
    pub(crate) fn remove(&mut self, tenant: TenantId, bytes: usize) {
        if bytes > 0 {
            self.held[tenant.0 as usize] -= bytes;
            self.total -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_keeps_all_it_may_leaves_a_ninth() {
        let mut carried = CarriedBytes::new(900);
        let [first, second] = [TenantId(0), TenantId(7)];
        while carried.allows(first, 1) {
            carried.add(first, 1);
        }
        assert_eq!(carried.total(), 800);
        assert!(carried.allows(second, 100) && !carried.allows(second, 101));
        carried.add(second, 10);
        assert!(!carried.allows(first, 1), "first it has to come down to its part");
        carried.remove(first, 800);
        carried.remove(second, 10);
        assert_eq!(carried.total(), 0);
    }
}
