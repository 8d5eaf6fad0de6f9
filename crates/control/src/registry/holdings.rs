//! The tokens that tenants hold, by name, for a hand-over to another process
//! (docs/adr/0009-upgrade.md).

use contract::{Instant, TenantId};
use qos::Holding;

use super::{TenantRegistry, TenantTable};

/// The tokens that a tenant holds at a device, or owes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTokens {
    /// Name of the tenant.
    pub tenant: String,
    /// The index of the device.
    pub device: usize,
    /// The tenant's tokens or debt at the device.
    pub holding: Holding,
}

impl TenantRegistry {
    /// Takes the tokens that tenants hold at all devices, and returns them together with the
    /// tenants' debts ([`qos::Registry::bequeath`]).
    pub fn bequeath(&mut self, now: Instant) -> Vec<HeldTokens> {
        let told = self.devices.bequeath(now);
        with_names(&self.tenants, told)
    }

    /// Gives the holdings that [`bequeath`](TenantRegistry::bequeath) returned back to the tenants.
    pub fn keep(&mut self, told: &[HeldTokens]) {
        for place in 0..self.devices.places() {
            let told = with_numbers(&self.tenants, place, told);
            self.devices.at_mut(place).registry.keep(&told);
        }
    }

    /// Returns the growth of the tenants' debts since the holdings were returned.
    pub fn spent_since(&self, told: &[HeldTokens], now: Instant) -> Vec<HeldTokens> {
        let since = (0..self.devices.places()).map(|place| {
            let told = with_numbers(&self.tenants, place, told);
            (place, self.devices.at(place).registry.spent_since(&told, now))
        });
        with_names(&self.tenants, since)
    }

    /// Adds a holding to its tenant. Returns `false`, and drops the holding, if there is no such
    /// tenant or device.
    pub fn inherit(&mut self, held: &HeldTokens, now: Instant) -> bool {
        let Some(tenant) = self.find(&held.tenant) else { return false };
        let is_there = held.device < self.devices.places();
        is_there && self.devices.at_mut(held.device).registry.inherit(tenant, held.holding, now)
    }
}

/// Returns the holdings at one device, with the numbers of their tenants.
fn with_numbers(
    tenants: &TenantTable,
    device: usize,
    told: &[HeldTokens],
) -> Vec<(TenantId, Holding)> {
    let there = told.iter().filter(|held| held.device == device);
    there.filter_map(|held| Some((tenants.find(&held.tenant)?, held.holding))).collect()
}

/// Returns the holdings of several devices, with the names of their tenants.
fn with_names(
    tenants: &TenantTable,
    told: impl IntoIterator<Item = (usize, Vec<(TenantId, Holding)>)>,
) -> Vec<HeldTokens> {
    let each = told.into_iter().flat_map(|(device, told)| {
        told.into_iter().filter_map(move |(tenant, holding)| {
            let tenant = tenants.get(tenant)?.name.clone();
            Some(HeldTokens { tenant, device, holding })
        })
    });
    each.collect()
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
        let debt = |tenant: &str, device, balance| HeldTokens {
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
