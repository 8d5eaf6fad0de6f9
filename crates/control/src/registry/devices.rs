//! Devices that are added and removed while the server runs.
//!
//! Workers, schedulers and counters know a device by its place. So a removed device keeps its
//! place, but cannot be found by name any more.

use contract::{Instant, TenantId};

use super::{Device, DeviceSetup, TenantRegistry};
use crate::Switches;
use crate::flows::DeviceFlow;
use crate::info::{DeviceInfo, Refusal, State};

impl TenantRegistry {
    /// Returns the place of a device; the first device by default.
    pub(crate) fn device(&self, name: Option<&str>) -> Result<usize, Refusal> {
        let first = self.devices.iter().position(|device| !device.is_gone);
        let Some(name) = name else { return Ok(first.expect("the last stays")) };
        let is_it = |device: &Device| device.name == name && !device.is_gone;
        self.devices.iter().position(is_it).ok_or_else(|| self.no_device(name))
    }

    /// Builds the "unknown device" refusal, with the existing names.
    pub(super) fn no_device(&self, name: &str) -> Refusal {
        let there = self.devices.iter().filter(|device| !device.is_gone);
        let known = there.map(|device| device.name.clone()).collect();
        Refusal::NoDevice { name: name.to_owned(), known }
    }

    /// Returns the tokens per second that are not promised on a device; `None` without a model.
    pub(crate) fn tokens_left(&self, place: usize) -> Option<u64> {
        let device = &self.devices[place];
        device.has_model.then(|| device.registry.left() / crate::totals::TOKEN)
    }

    /// Adds a device, on which all tenants are best effort, with the shares that they have
    /// elsewhere. Returns its place.
    ///
    /// # Errors
    /// Fails if another process takes over, or there is a device of this name.
    pub fn add_device(&mut self, setup: DeviceSetup, now: Instant) -> Result<usize, Refusal> {
        self.check_thawed()?;
        if self.device(Some(&setup.name)).is_ok() {
            return Err(Refusal::Taken(setup.name));
        }
        let mut device = Device::new(setup, self.entries.len());
        // A leaving tenant has nothing on the new device.
        let there = |entry: &super::Entry| entry.state == State::Active;
        let entries = self.entries.iter().enumerate();
        for (n, entry) in entries.filter_map(|(n, entry)| Some((n, entry.as_ref()?))) {
            if !there(entry) {
                continue;
            }
            let tenant = TenantId(n as u32);
            let best_effort = device.registry.register_as(tenant, None, now);
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

    /// Returns `true` if a tenant of the device is still leaving, which ends soon.
    pub fn is_being_left(&self, name: &str) -> bool {
        let Ok(n) = self.device(Some(name)) else { return false };
        let is_leaving = |entry: &super::Entry| entry.device == n && entry.state == State::Leaving;
        self.entries.iter().flatten().any(is_leaving)
    }

    /// Checks whether a device may be removed: it must have no tenant. Returns its place.
    ///
    /// # Errors
    /// Fails if there is no such device, a tenant is on it, or another process takes over.
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

    /// Changes the features of a device from `before` to `after`. Features that stay on go on
    /// undisturbed.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model, which all features need.
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
        // Switching the correction off also ends its effect on the price of writes.
        self.price_tenants(n);
        Ok(())
    }

    /// Removes a device.
    ///
    /// # Errors
    /// Fails as [`check_device_end`](TenantRegistry::check_device_end) does.
    pub fn remove_device(&mut self, name: &str) -> Result<(), Refusal> {
        let n = self.check_device_end(name)?;
        self.devices[n].is_gone = true;
        Ok(())
    }

    /// Removes a device whose addition failed, without any checks.
    pub fn drop_device(&mut self, place: usize) {
        self.devices[place].is_gone = true;
    }

    /// Restores a device that was [removed](TenantRegistry::remove_device).
    pub fn restore_device(&mut self, place: usize) {
        self.devices[place].is_gone = false;
    }

    /// Returns the devices with their activity, in the order of their places.
    pub fn device_flows(&self) -> Vec<(DeviceInfo, DeviceFlow)> {
        let flows = self.flows.devices();
        let there = self.devices.iter().zip(flows).filter(|(device, _)| !device.is_gone);
        self.device_infos().into_iter().zip(there.map(|(_, flow)| flow)).collect()
    }
}
