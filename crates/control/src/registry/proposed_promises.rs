//! The refusals that changes of tenants would meet, without making any of the changes.

use std::collections::{BTreeMap, HashMap};

use contract::{Promise, TenantId};
use qos::{ProposedPromises, admission};
use spec::Tenant;

use super::batch::TenantChange;
use super::device::{DeviceEntry, DeviceSetup};
use super::verdicts::named;
use super::{TenantRegistry, table};
use crate::info::Refusal;

/// Returns the changes that would be refused, counted from zero, each with its reason. The changes
/// are judged in order: a refused one counts for nothing, and a removal frees nothing. `new` are
/// devices that would be added before.
pub fn foresee(
    registry: &TenantRegistry,
    new: &[DeviceSetup],
    changes: &[TenantChange],
) -> Vec<(usize, Refusal)> {
    let new: Vec<DeviceEntry> =
        new.iter().map(|setup| DeviceEntry::new(setup.clone(), 1)).collect();
    let mut supposed =
        ProposedRegistry { registry, new: &new, devices: BTreeMap::new(), tenants: HashMap::new() };
    let judged = changes.iter().enumerate();
    judged.filter_map(|(n, change)| Some((n, supposed.change(change).err()?))).collect()
}

/// A registry as it would be after some changes.
struct ProposedRegistry<'a> {
    registry: &'a TenantRegistry,
    /// Devices that do not exist yet; their indices follow those of the existing devices.
    new: &'a [DeviceEntry],
    /// The promises of devices that have changes, by device index.
    devices: BTreeMap<usize, ProposedPromises<'a>>,
    /// The new tenants by name, each with a number that no tenant has.
    tenants: HashMap<&'a str, TenantId>,
}

impl<'a> ProposedRegistry<'a> {
    fn change(&mut self, change: &'a TenantChange) -> Result<(), Refusal> {
        match change {
            TenantChange::Add(tenant) => self.add(tenant),
            TenantChange::Set { name, to, device, .. } => {
                let tenant = self.registry.tenants.known(name)?;
                let before = self.registry.tenants.entry(tenant).device;
                let place = match device.as_deref() {
                    None => before,
                    there => self.place(there)?,
                };
                let promise = to.over(self.device(before).share_of(tenant));
                if *to != Promise::BestEffort(None) {
                    self.device(place).check_promise(promise)?;
                }
                self.suppose(place, tenant, promise)?;
                match place == before {
                    true => Ok(()),
                    false => self.suppose(before, tenant, Promise::default()),
                }
            }
            TenantChange::Remove { name } => self.registry.check_end(name).map(drop),
        }
    }

    fn add(&mut self, tenant: &'a Tenant) -> Result<(), Refusal> {
        let table = &self.registry.tenants;
        table.check_new(&tenant.name)?;
        let place = self.place(tenant.device.as_deref())?;
        self.device(place).check_promise(tenant.promise)?;
        let is_default = tenant.name == table::DEFAULT;
        if !is_default && self.tenants.len() >= table.vacancies() {
            return Err(Refusal::TableFull { tenants_max: table.tenants_max() });
        }
        let number = TenantId(u32::MAX - self.tenants.len() as u32);
        self.tenants.insert(&tenant.name, number);
        let supposed = self.suppose(place, number, tenant.promise);
        if supposed.is_err() {
            self.tenants.remove(tenant.name.as_str());
        }
        supposed
    }

    fn place(&self, name: Option<&str>) -> Result<usize, Refusal> {
        let devices = &self.registry.devices;
        let place = self.new.iter().position(|device| Some(device.name.as_str()) == name);
        place.map_or_else(|| devices.find(name), |place| Ok(devices.places() + place))
    }

    fn device(&self, place: usize) -> &'a DeviceEntry {
        let devices = &self.registry.devices;
        match place.checked_sub(devices.places()) {
            Some(new) => &self.new[new],
            None => devices.at(place),
        }
    }

    fn suppose(&mut self, place: usize, tenant: TenantId, promise: Promise) -> Result<(), Refusal> {
        let registry = &self.device(place).registry;
        let device = self.devices.entry(place).or_insert_with(|| ProposedPromises::of(registry));
        device.suppose(tenant, promise.slo()).map_err(|refusal| self.named(refusal))
    }

    /// Converts a device's refusal to names and tokens. The tenant that limits the rate may be one
    /// that the supposed changes add.
    fn named(&self, refusal: admission::Refusal) -> Refusal {
        let admission::Refusal::TooMuch(mut shortage) = refusal else {
            return named(&self.registry.tenants, refusal);
        };
        let new = self.tenants.iter().find(|(_, number)| Some(**number) == shortage.limited_by);
        let new = new.map(|(name, _)| (*name).to_owned());
        if new.is_some() {
            shortage.limited_by = None;
        }
        let mut refusal = named(&self.registry.tenants, admission::Refusal::TooMuch(shortage));
        if let Refusal::TooMuch { limited_by, .. } = &mut refusal {
            *limited_by = new.or(limited_by.take());
        }
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Instant, Slo};
    use qos::DeviceModel;
    use spec::Switches;

    use crate::Origin;

    fn setup(name: &str) -> DeviceSetup {
        let model = Some(DeviceModel::device_a());
        DeviceSetup { name: name.to_owned(), model, switches: Switches::default() }
    }

    fn add(name: &str, iops: u32, device: &str) -> TenantChange {
        let promise = Promise::LatencyCritical(Slo::new(500, iops, 100));
        TenantChange::Add(Tenant { promise, ..Tenant::new(name).on(Some(device)) })
    }

    #[test]
    fn what_would_be_refused_is_told_and_nothing_is_changed() {
        let now = Instant::ZERO;
        let mut registry = TenantRegistry::new(vec![setup("a")], 1, 5);
        let gold = Promise::LatencyCritical(Slo::new(500, 200_000, 100));
        registry.register("gold", gold, None, Origin::Operator, now).unwrap();
        let before = registry.devices().infos();
        let less = Promise::LatencyCritical(Slo::new(500, 100_000, 100));
        let changes = [
            add("tin", 200_000, "a"),
            add("zinc", 100_000, "a"),
            TenantChange::Set { name: "gold".to_owned(), to: less, note: None, device: None },
            add("iron", 100_000, "a"),
            add("lead", 400_000, "b"),
            add("gold", 1, "b"),
            add("mercury", 1, "c"),
            add("one too many", 1, "a"),
            TenantChange::Remove { name: "gone".to_owned() },
        ];
        let refused = foresee(&registry, &[setup("b")], &changes);
        let numbers: Vec<usize> = refused.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [1, 5, 6, 7, 8], "{refused:?}");
        let Refusal::TooMuch { tokens_available, limited_by, .. } = &refused[0].1 else {
            panic!("{refused:?}");
        };
        assert_eq!((*tokens_available, limited_by.as_deref()), (20_000, Some("gold")));
        assert!(matches!(&refused[3].1, Refusal::TableFull { tenants_max: 5 }), "{refused:?}");
        assert_eq!(registry.devices().infos(), before);
        // A new tenant may be the strictest.
        let changes = [
            TenantChange::Set {
                name: "gold".to_owned(),
                to: Promise::BestEffort(None),
                note: None,
                device: None,
            },
            add("tin", 400_000, "a"),
            add("zinc", 30_000, "a"),
        ];
        let refused = foresee(&registry, &[], &changes);
        let [(2, Refusal::TooMuch { limited_by, .. })] = &refused[..] else {
            panic!("{refused:?}");
        };
        assert_eq!(limited_by.as_deref(), Some("tin"));
    }

    #[test]
    fn a_promise_that_moves_frees_its_device() {
        let mut registry = TenantRegistry::new(vec![setup("a")], 1, 5);
        let strict = Promise::LatencyCritical(Slo::new(500, 100_000, 100));
        let (origin, now) = (Origin::Operator, Instant::ZERO);
        registry.register("gold", strict, None, origin, now).unwrap();
        let changes = [
            TenantChange::Set {
                name: "gold".to_owned(),
                to: Some(Slo::new(500, 100_000, 100)).into(),
                note: None,
                device: Some("b".to_owned()),
            },
            add("large", 400_000, "a"),
            add("more", 400_000, "b"),
        ];
        let refused = foresee(&registry, &[setup("b")], &changes);
        let numbers: Vec<usize> = refused.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [2], "{refused:?}");
    }
}
