//! The devices that tenants share, by place and by name.
//!
//! Workers, schedulers and counters know a device by its place. A removed device keeps its place,
//! but cannot be found by name any more. Once no worker has it, another device may get the place.

use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Promise, Share, TenantId, Tokens};
use qos::{
    Admission, AnyScheduler, CORRECTION_NANOS, DeviceModel, Holding, QueueLimits, Shared, Totals,
    UndoCopy, Usage, admission,
};

use super::device::{DeviceEntry, DeviceSetup};
use crate::info::{DeviceInfo, Refusal};

/// The devices of a server. Every device knows every tenant.
#[derive(Debug)]
pub struct Devices {
    all: Vec<DeviceEntry>,
    /// The usage of removed devices whose place was reused, by tenant's number; empty if there are
    /// none.
    past: Vec<Usage>,
    tenants_max: usize,
    observed_at: Instant,
}

impl Devices {
    /// Returns devices without tenants, each for at most `tenants_max`.
    pub(super) fn new(setups: Vec<DeviceSetup>, tenants_max: usize) -> Devices {
        let all = setups.into_iter().map(|setup| DeviceEntry::new(setup, tenants_max)).collect();
        Devices { all, past: Vec::new(), tenants_max, observed_at: Instant::ZERO }
    }

    /// Returns the device at an index, which may be removed.
    pub(super) fn at(&self, place: usize) -> &DeviceEntry {
        &self.all[place]
    }

    /// Returns the device at an index, which may be removed, for changes.
    pub(super) fn at_mut(&mut self, place: usize) -> &mut DeviceEntry {
        &mut self.all[place]
    }

    /// Returns the number of device indices, including those of removed devices.
    pub(super) fn places(&self) -> usize {
        self.all.len()
    }

    /// Returns the devices that exist, with their indices.
    pub(super) fn there(&self) -> impl Iterator<Item = (usize, &DeviceEntry)> {
        self.all.iter().enumerate().filter(|(_, device)| !device.is_gone)
    }

    /// Returns the index of a device; by default, of the first device.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub(super) fn find(&self, name: Option<&str>) -> Result<usize, Refusal> {
        let is_it = |device: &DeviceEntry| name.is_none_or(|name| device.name == name);
        let found = self.there().find(|(_, device)| is_it(device)).map(|(place, _)| place);
        match name {
            None => Ok(found.expect("the last stays")),
            Some(name) => found.ok_or_else(|| self.no_device(name)),
        }
    }

    fn named(&self, name: &str) -> Result<&DeviceEntry, Refusal> {
        Ok(&self.all[self.find(Some(name))?])
    }

    /// Builds the "unknown device" refusal, with the existing names.
    pub(super) fn no_device(&self, name: &str) -> Refusal {
        let known = self.there().map(|(_, device)| device.name.clone()).collect();
        Refusal::NoDevice { name: name.to_owned(), known }
    }

    /// Returns the descriptions of the devices that exist, in the order of their indices.
    pub fn infos(&self) -> Vec<DeviceInfo> {
        self.there().map(|(_, device)| device.info()).collect()
    }

    /// Returns the model of a device.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model.
    pub fn model(&self, name: &str) -> Result<&DeviceModel, Refusal> {
        self.named(name)?.model()
    }

    /// Returns the configured model of a device.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model.
    pub fn configured_model(&self, name: &str) -> Result<&DeviceModel, Refusal> {
        let device = self.named(name)?;
        let none = || Refusal::NoModel { device: device.name.clone() };
        device.configured.as_ref().ok_or_else(none)
    }

    /// Returns the devices that use another model than the configured one, each with the model in
    /// use.
    pub fn remodelled(&self) -> Vec<(String, DeviceModel)> {
        let devices = self.all.iter().filter(|device| device.is_remodelled());
        devices.map(|device| (device.name.clone(), device.registry.model().clone())).collect()
    }

    /// Returns the index of a device, and the state that its workers share.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn shared(&self, name: &str) -> Result<(usize, Arc<Shared>), Refusal> {
        let place = self.find(Some(name))?;
        Ok((place, self.all[place].registry.shared().clone()))
    }

    /// Returns the strictest latency bound of a device, in microseconds at p95; `None` if the
    /// device has no SLO.
    pub fn strictest_us(&self, place: usize) -> Option<u32> {
        self.all[place].strictest_us()
    }

    /// Returns the token scheduler of a worker's queue to a device.
    pub(crate) fn scheduler(
        &self,
        place: usize,
        worker: usize,
        limits: QueueLimits,
    ) -> AnyScheduler {
        AnyScheduler::Tokens(self.all[place].registry.scheduler(worker, limits))
    }

    /// Returns the token totals of a device's registry, and the nano-units in its tenants' balances
    /// and its bucket. Together with the totals of its schedulers they balance.
    pub fn tokens(&self, place: usize) -> (Totals, i128) {
        let registry = &self.all[place].registry;
        (registry.totals(), registry.shared().held())
    }

    /// Returns the token flows of the devices' registries since the start, by device index.
    pub(super) fn made(&self) -> Vec<Tokens> {
        self.all.iter().map(DeviceEntry::made).collect()
    }

    /// Returns a tenant's usage, summed over the schedulers of all devices, gone ones included.
    pub(super) fn usage(&self, tenant: TenantId) -> Usage {
        let past = self.past.get(tenant.0 as usize).copied().unwrap_or_default();
        let each = self.all.iter().map(|device| device.registry.shared().usage(tenant));
        each.fold(past, sum)
    }

    /// Registers a tenant with a promise on one device, and as best effort on all others.
    ///
    /// # Errors
    /// Fails if the device does not admit the promise; then nothing has changed.
    pub(super) fn register(
        &mut self,
        tenant: TenantId,
        promise: Promise,
        place: usize,
        now: Instant,
    ) -> Result<Admission, admission::Refusal> {
        let admission = self.all[place].registry.register_as(tenant, promise.slo(), now)?;
        for (n, other) in self.all.iter_mut().enumerate().filter(|(n, _)| *n != place) {
            let best_effort = other.registry.register_as(tenant, None, now);
            assert!(best_effort.is_ok(), "best effort is never refused on device {n}");
        }
        if promise.share() != Share::default() {
            self.put_share(tenant, promise.share(), now);
        }
        Ok(admission)
    }

    /// Changes a tenant's promise to `to`, which is `promise` with the share that the tenant has.
    /// The tenant moves from the device with the index `from` to that with the index `place`, where
    /// it was best effort, or stays.
    ///
    /// # Errors
    /// Fails if the device does not take the promise (`Ok`), or does not admit it; then nothing has
    /// changed.
    pub(super) fn change(
        &mut self,
        tenant: TenantId,
        (to, promise): (Promise<Option<Share>>, Promise),
        (from, place): (usize, usize),
        now: Instant,
    ) -> Result<Admission, Result<Refusal, admission::Refusal>> {
        let device = &mut self.all[place];
        if to != Promise::BestEffort(None) {
            device.check_promise(promise).map_err(Ok::<Refusal, admission::Refusal>)?;
        }
        let changed = device.registry.change(tenant, promise.slo(), now);
        let admission = changed.map_err(Err::<Refusal, admission::Refusal>)?;
        if place != from {
            let left = self.all[from].registry.change(tenant, None, now);
            assert!(left.is_ok(), "best effort is never refused");
        }
        if let Promise::BestEffort(Some(share)) = to {
            self.put_share(tenant, share, now);
        }
        Ok(admission)
    }

    /// Sets the share of a tenant on each device that has a model. The share was checked.
    pub(super) fn put_share(&mut self, tenant: TenantId, share: Share, now: Instant) {
        self.all.iter_mut().for_each(|device| device.put_share(tenant, share, now));
    }

    /// Unregisters a tenant on all devices.
    pub(super) fn unregister(&mut self, tenant: TenantId, now: Instant) {
        for device in &mut self.all {
            let left = device.registry.unregister(tenant, now);
            assert!(left.is_ok(), "a tenant is known to every device");
        }
    }

    /// Forgets a tenant that has left. Returns `true` once no device knows the tenant.
    pub(super) fn forget(&mut self, tenant: TenantId, now: Instant) -> bool {
        // A number that is already free on one device stays bound by its entry.
        self.all
            .iter_mut()
            .all(|device| device.registry.is_vacant(tenant) || device.registry.remove(tenant, now))
    }

    /// Begins a series of changes of tenants. The rates of the other tenants are updated once, at
    /// the end of the series.
    pub(super) fn begin_row(&mut self) {
        self.all.iter_mut().for_each(|device| device.registry.begin_row());
    }

    /// Ends a [series](Devices::begin_row) of changes.
    pub(super) fn end_row(&mut self, now: Instant) {
        self.all.iter_mut().for_each(|device| device.registry.end_row(now));
    }

    /// Returns the state of a tenant on each device.
    pub(super) fn lots_of(&self, tenant: TenantId) -> Vec<UndoCopy> {
        self.all.iter().map(|device| device.registry.lot_of(tenant)).collect()
    }

    /// Restores the state of a tenant on each device, even if it would not be admitted today.
    pub(super) fn put_back(&mut self, tenant: TenantId, lots: Vec<UndoCopy>, now: Instant) {
        for (device, lot) in self.all.iter_mut().zip(lots) {
            device.registry.put_back(tenant, lot, now);
        }
    }

    /// Adds a device without tenants, at the next index or that of a removed device.
    ///
    /// # Errors
    /// Fails if there is a device of this name.
    ///
    /// # Panics
    /// Panics if the place is another device's, or beyond the next one.
    pub(super) fn add(&mut self, setup: DeviceSetup, place: usize) -> Result<(), Refusal> {
        if self.named(&setup.name).is_ok() {
            return Err(Refusal::Taken(setup.name));
        }
        let mut entry = DeviceEntry::new(setup, self.tenants_max);
        let Some(before) = self.all.get_mut(place) else {
            assert_eq!(place, self.all.len(), "places have no gaps");
            self.all.push(entry);
            return Ok(());
        };
        assert!(before.is_gone, "the place is another device's");
        entry.made_before = before.made();
        let before = std::mem::replace(before, entry);
        self.past.resize(self.tenants_max, Usage::default());
        for (number, past) in (0..).zip(&mut self.past) {
            *past = sum(*past, before.registry.shared().usage(TenantId(number)));
        }
        Ok(())
    }

    /// Removes a device, or restores one that was removed, without any checks.
    pub(super) fn set_gone(&mut self, place: usize, is_gone: bool) {
        self.all[place].is_gone = is_gone;
    }

    /// Returns `true` if at least [`CORRECTION_NANOS`] have passed since the devices were last
    /// observed.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.since(self.observed_at) >= Duration::from_nanos(CORRECTION_NANOS)
    }

    /// Observes all devices. `waited` is the longest time since the last call for which a worker
    /// waited for a processor. Returns the indices of the devices whose prices have changed.
    pub(super) fn observe(&mut self, waited: Duration, now: Instant) -> Vec<usize> {
        self.observed_at = now;
        let there = self.all.iter_mut().enumerate().filter(|(_, device)| !device.is_gone);
        there.filter_map(|(place, device)| device.observe(waited, now).then_some(place)).collect()
    }

    /// Charges the tenants for the background work that the devices have done since the last call.
    pub(super) fn charge_chores(&mut self, now: Instant) {
        self.all.iter_mut().for_each(|device| device.charge_chores(now));
    }

    /// Takes the tokens that tenants hold, by device index, and returns them together with the
    /// tenants' debts ([`qos::Registry::bequeath`]).
    pub(super) fn bequeath(&mut self, now: Instant) -> Vec<(usize, Vec<(TenantId, Holding)>)> {
        let devices = self.all.iter_mut().enumerate();
        devices.map(|(place, device)| (place, device.registry.bequeath(now))).collect()
    }
}

/// Adds a tenant's usage at two devices.
fn sum(one: Usage, other: Usage) -> Usage {
    Usage {
        spent: one.spent + other.spent,
        reads: one.reads + other.reads,
        writes: one.writes + other.writes,
        deficits: one.deficits + other.deficits,
        throttled_nanos: one.throttled_nanos + other.throttled_nanos,
        donated: one.donated.wrapping_add(other.donated),
        borrowed: one.borrowed.wrapping_add(other.borrowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Switches;

    fn setup(name: &str) -> DeviceSetup {
        DeviceSetup { name: name.to_owned(), model: None, switches: Switches::default() }
    }

    #[test]
    fn a_removed_device_keeps_its_place() {
        let mut devices = Devices::new(vec![setup("a"), setup("b")], 4);
        assert_eq!(devices.add(setup("b"), 2), Err(Refusal::Taken("b".to_owned())));
        devices.set_gone(0, true);
        assert_eq!((devices.find(None), devices.find(Some("b"))), (Ok(1), Ok(1)));
        let known = vec!["b".to_owned()];
        assert_eq!(devices.find(Some("a")), Err(Refusal::NoDevice { name: "a".to_owned(), known }));
        assert_eq!(devices.add(setup("a"), 2), Ok(()));
        assert_eq!((devices.places(), devices.infos().len()), (3, 2));
    }

    #[test]
    fn a_tenant_is_known_to_every_device_until_all_have_forgotten_it() {
        let mut devices = Devices::new(vec![setup("a"), setup("b")], 4);
        let (tenant, now) = (TenantId(1), Instant::ZERO);
        devices.register(tenant, Promise::default(), 1, now).unwrap();
        let is_known =
            |devices: &Devices| [0, 1].map(|place| !devices.at(place).registry.is_vacant(tenant));
        assert_eq!(is_known(&devices), [true; 2]);
        devices.unregister(tenant, now);
        assert!(devices.forget(tenant, now));
        assert_eq!(is_known(&devices), [false; 2]);
    }
}
