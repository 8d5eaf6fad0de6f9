//! The judgement of changes that are not made: each is judged as if those before it had been made.

use alloc::collections::BTreeMap;

use contract::{Slo, TenantId};

use super::table::Entry;
use super::{Registry, judge};
use crate::admission::{AdmittedPromises, PricedSlo, Refusal};

/// The promises of a device as they would be after some changes.
#[derive(Debug)]
pub struct ProposedPromises<'a> {
    registry: &'a Registry,
    standing: AdmittedPromises,
    /// The changed promises; `None` for best effort.
    changed: BTreeMap<TenantId, Option<PricedSlo>>,
}

impl ProposedPromises<'_> {
    /// Begins a judgement of changes with the present promises of a device.
    pub fn of(registry: &Registry) -> ProposedPromises<'_> {
        let standing = registry.table.standing().clone();
        ProposedPromises { registry, standing, changed: BTreeMap::new() }
    }

    /// Judges the SLO of a tenant, which may be a new one, beside the others, and supposes it from
    /// now on.
    ///
    /// # Errors
    /// Fails if the SLO would be refused; then the tenant's former promise stays.
    pub fn suppose(&mut self, tenant: TenantId, slo: Option<Slo>) -> Result<(), Refusal> {
        let Registry { model, promised_cost, adjustment, .. } = self.registry;
        let before = self.promise_of(tenant);
        if let Some(before) = before {
            self.standing.remove(tenant, before);
        }
        let judged = judge(slo, &self.standing, (model, promised_cost), adjustment.rate_permille);
        let after = match judged {
            Ok(Entry::Critical(_, claim)) => Some(claim),
            Ok(_) => None,
            Err(_) => before,
        };
        if let Some(after) = after {
            self.standing.insert(tenant, after);
        }
        self.changed.insert(tenant, after);
        judged.map(drop)
    }

    fn promise_of(&self, tenant: TenantId) -> Option<PricedSlo> {
        let present = || match self.registry.table.entry(tenant.0 as usize) {
            Entry::Critical(_, claim) => Some(claim),
            _ => None,
        };
        self.changed.get(&tenant).copied().unwrap_or_else(present)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::DeviceModel;
    use contract::Instant;

    #[test]
    fn changes_are_judged_one_after_the_other_and_none_is_made() {
        let mut registry = Registry::new(DeviceModel::device_a(), 4);
        let slo = |iops| Some(Slo::new(500, iops, 100));
        let now = Instant::ZERO;
        let present = registry.register(slo(200_000), now).unwrap().tenant;
        let promised = registry.promised();
        let mut foresight = ProposedPromises::of(&registry);
        let (new, other) = (TenantId(77), TenantId(78));
        // 420 K tokens a second at 500 µs.
        assert_eq!(foresight.suppose(new, slo(200_000)), Ok(()));
        assert!(foresight.suppose(other, slo(30_000)).is_err());
        assert!(foresight.suppose(present, slo(230_000)).is_err(), "its former promise stays");
        assert_eq!(foresight.suppose(present, slo(100_000)), Ok(()));
        assert_eq!(foresight.suppose(other, slo(120_000)), Ok(()));
        assert!(foresight.suppose(new, slo(200_001)).is_err());
        assert_eq!(foresight.suppose(new, None), Ok(()));
        assert_eq!(foresight.suppose(present, slo(300_000)), Ok(()));
        assert_eq!(registry.promised(), promised);
        assert!(registry.change(present, slo(420_000), now).is_ok(), "the rest is free");
    }
}
