//! Devices that come and go while the server runs.
//!
//! A device's place is what workers, schedulers and counters know it by, so one that is gone keeps its
//! place, and nobody finds it by a name any more.

use contract::{Instant, Slo, TenantId};

use super::{Book, Device, DeviceSetup, Switches};
use crate::flows::DeviceFlow;
use crate::words::{DeviceInfo, Refusal, State};

impl Book {
    /// The place of a device; the first unless it is named.
    pub(crate) fn device(&self, name: Option<&str>) -> Result<usize, Refusal> {
        let first = self.devices.iter().position(|device| !device.is_gone);
        let Some(name) = name else { return Ok(first.expect("the last stays")) };
        let is_it = |device: &Device| device.name == name && !device.is_gone;
        self.devices.iter().position(is_it).ok_or_else(|| self.no_device(name))
    }

    /// That there is no device of a name, and those that there are.
    pub(super) fn no_device(&self, name: &str) -> Refusal {
        let there = self.devices.iter().filter(|device| !device.is_gone);
        let known = there.map(|device| device.name.clone()).collect();
        Refusal::NoDevice { name: name.to_owned(), known }
    }

    /// Tokens a second that nobody was promised on the device of a place; `None` without a model.
    pub(crate) fn tokens_left(&self, place: usize) -> Option<u64> {
        let device = &self.devices[place];
        device.has_model.then(|| device.registry.left() / super::TOKEN)
    }

    /// One more device, on which all tenants are best effort, with the shares that they have elsewhere.
    /// Its place.
    ///
    /// # Errors
    /// Another process takes over, or there is one of this name.
    pub fn add_device(&mut self, setup: DeviceSetup, now: Instant) -> Result<usize, Refusal> {
        self.check_thawed()?;
        if self.device(Some(&setup.name)).is_ok() {
            return Err(Refusal::Taken(setup.name));
        }
        let mut device = Device::new(setup, self.entries.len());
        // One that leaves has nothing there.
        let there = |entry: &super::Entry| entry.state == State::Active;
        let entries = self.entries.iter().enumerate();
        for (n, entry) in entries.filter_map(|(n, entry)| Some((n, entry.as_ref()?))) {
            if !there(entry) {
                continue;
            }
            let tenant = TenantId(n as u32);
            let best_effort = device.registry.register_as(tenant, &Slo::default(), now);
            assert!(best_effort.is_ok(), "best effort is never refused");
            let known = &self.devices[entry.device];
            if device.has_model && known.has_model {
                let portion = known.registry.portion(tenant);
                let set = device.registry.set_portion(tenant, portion, now);
                assert!(set.is_ok(), "the tenant was just registered");
            }
        }
        self.devices.push(device);
        self.flows.add_device();
        Ok(self.devices.len() - 1)
    }

    /// Whether a tenant that was on a device is leaving still, which is soon over.
    pub fn is_being_left(&self, name: &str) -> bool {
        let Ok(n) = self.device(Some(name)) else { return false };
        let is_leaving = |entry: &super::Entry| entry.device == n && entry.state == State::Leaving;
        self.entries.iter().flatten().any(is_leaving)
    }

    /// Whether a device may go: no tenant is on it.
    ///
    /// # Errors
    /// There is no such device, a tenant is on it, or another process takes over.
    pub fn check_device_end(&self, name: &str) -> Result<usize, Refusal> {
        self.check_thawed()?;
        let n = self.device(Some(name))?;
        match self.entries.iter().flatten().find(|entry| entry.device == n) {
            None => Ok(n),
            Some(entry) => {
                let by = match entry.state {
                    State::Active => format!("tenant {:?}", entry.name),
                    State::Leaving => "a tenant that is leaving".to_owned(),
                };
                Err(Refusal::DeviceInUse { name: name.to_owned(), by })
            }
        }
    }

    /// Has a device do other things beyond the paper's than `before`. What stays on goes on as it is.
    ///
    /// # Errors
    /// There is no such device, or it has no model, which all of them need.
    pub fn set_switches(
        &mut self,
        name: &str,
        before: Switches,
        after: Switches,
        now: Instant,
    ) -> Result<(), Refusal> {
        let n = self.device(Some(name))?;
        let device = &mut self.devices[n];
        if !device.has_model && after.any().is_some() {
            return Err(Refusal::NoModel { device: name.to_owned() });
        }
        if after.correct_online != before.correct_online {
            device.registry.correct_online(after.correct_online, now);
        }
        if after.bound_depth != before.bound_depth {
            device.registry.bound_depth(after.bound_depth, now);
        }
        device.registry.fail_fast(after.fail_fast);
        // What a correction had made of the price of writes is over with it.
        self.price_tenants(n);
        Ok(())
    }

    /// A device is gone.
    ///
    /// # Errors
    /// See [`check_device_end`](Book::check_device_end).
    pub fn remove_device(&mut self, name: &str) -> Result<(), Refusal> {
        let n = self.check_device_end(name)?;
        self.devices[n].is_gone = true;
        Ok(())
    }

    /// A device that was being added is gone, whatever stands in the way of removing one.
    pub fn drop_device(&mut self, place: usize) {
        self.devices[place].is_gone = true;
    }

    /// A device that was [removed](Book::remove_device) is there again.
    pub fn restore_device(&mut self, place: usize) {
        self.devices[place].is_gone = false;
    }

    /// The devices with what they do, in the order of their places.
    pub fn device_flows(&self) -> Vec<(DeviceInfo, DeviceFlow)> {
        let flows = self.flows.devices();
        let there = self.devices.iter().zip(flows).filter(|(device, _)| !device.is_gone);
        self.device_infos().into_iter().zip(there.map(|(_, flow)| flow)).collect()
    }
}
