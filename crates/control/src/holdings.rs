//! The tokens that tenants hold, by name, for a hand-over to another process
//! (docs/adr/0009-upgrade.md).

use contract::{Instant, TenantId};
use qos::Holding;

use crate::TenantRegistry;

/// A tenant's holding at a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the tenant.
    pub tenant: String,
    /// The device's place in the order of configuration.
    pub device: usize,
    /// The holding.
    pub holding: Holding,
}

impl TenantRegistry {
    /// Takes the tokens that tenants hold at all devices, and returns them together with the
    /// tenants' debts ([`qos::Registry::bequeath`]).
    pub fn bequeath(&mut self, now: Instant) -> Vec<Held> {
        let devices = self.devices.iter_mut().enumerate();
        let told = devices.map(|(n, device)| (n, device.registry.bequeath(now)));
        let told: Vec<_> = told.collect();
        self.with_names(told)
    }

    /// Takes back the returned holdings, which stay with this process.
    pub fn keep(&mut self, told: &[Held]) {
        for n in 0..self.devices.len() {
            let told = self.with_numbers(n, told);
            self.devices[n].registry.keep(&told);
        }
    }

    /// Returns the growth of the tenants' debts since the holdings were returned.
    pub fn spent_since(&self, told: &[Held], now: Instant) -> Vec<Held> {
        let devices = self.devices.iter().enumerate();
        let since = devices
            .map(|(n, device)| (n, device.registry.spent_since(&self.with_numbers(n, told), now)));
        self.with_names(since)
    }

    /// Adds a holding to its tenant. Returns `false`, and drops the holding, if there is no such
    /// tenant or device.
    pub fn inherit(&mut self, held: &Held, now: Instant) -> bool {
        let tenant = self.find(&held.tenant);
        let device = self.devices.get_mut(held.device);
        tenant
            .zip(device)
            .is_some_and(|(tenant, device)| device.registry.inherit(tenant, held.holding, now))
    }

    fn with_numbers(&self, device: usize, told: &[Held]) -> Vec<(TenantId, Holding)> {
        let there = told.iter().filter(|held| held.device == device);
        there.filter_map(|held| Some((self.find(&held.tenant)?, held.holding))).collect()
    }

    fn with_names(
        &self,
        told: impl IntoIterator<Item = (usize, Vec<(TenantId, Holding)>)>,
    ) -> Vec<Held> {
        let mut all = Vec::new();
        for (device, told) in told {
            let name = |tenant: TenantId| self.entries[tenant.0 as usize].as_ref();
            all.extend(told.into_iter().filter_map(|(tenant, holding)| {
                Some(Held { tenant: name(tenant)?.name.clone(), device, holding })
            }));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceSetup, Origin, Switches};
    use contract::Promise;

    fn registry(devices: usize) -> TenantRegistry {
        let setup = |n| DeviceSetup {
            name: format!("d{n}"),
            model: Some(qos::DeviceModel::device_a()),
            switches: Switches::default(),
        };
        let mut registry = TenantRegistry::new((0..devices).map(setup).collect(), 1, 8);
        for name in ["one", "other"] {
            let promise = Promise::default();
            registry.register(name, promise, None, Origin::Configured, Instant::ZERO).unwrap();
        }
        registry
    }

    #[test]
    fn tenants_hold_by_name_and_device() {
        let now = Instant::from_nanos(9);
        let (mut old, mut new) = (registry(2), registry(1));
        let debt = |tenant: &str, device, balance| Held {
            tenant: tenant.to_owned(),
            device,
            holding: Holding { balance, allowance: 0 },
        };
        let all = [debt("one", 0, -5), debt("other", 1, 7), debt("other", 0, 3)];
        assert!(all.iter().all(|held| old.inherit(held, now)));
        assert!(!old.inherit(&debt("nobody", 0, 1), now) && !old.inherit(&debt("one", 2, 1), now));
        let told = old.bequeath(now);
        assert_eq!(told, [debt("one", 0, -5), debt("other", 0, 3), debt("other", 1, 7)]);
        assert_eq!(old.bequeath(now), [debt("one", 0, -5)], "what they had is taken");
        assert!(old.inherit(&debt("one", 0, -2), now) && old.inherit(&debt("other", 1, -4), now));
        let since = [debt("one", 0, -2), debt("other", 1, -4)];
        assert_eq!(old.spent_since(&told, now), since);
        assert_eq!(told.iter().filter(|held| new.inherit(held, now)).count(), 2);
        old.keep(&told);
        let left = [debt("one", 0, -7), debt("other", 0, 3), debt("other", 1, 3)];
        assert_eq!(old.bequeath(now), left);
        assert_eq!(new.bequeath(now), told[..2]);
    }
}
