//! Changes of devices and of device models at run time, with their effects on the tenants on the
//! devices.

use std::sync::Arc;

use contract::{Chores, Instant, TenantId};
use qos::DeviceModel;
use spec::Switches;

use super::{DeviceSetup, TenantRegistry, named};
use crate::info::{Refusal, State};

impl TenantRegistry {
    /// Adds a device, on which all tenants are best effort, with the shares that they have
    /// elsewhere. `place` is its index: the next, or that of a removed device that no worker has.
    ///
    /// # Errors
    /// Fails if another process takes over, or there is a device of this name.
    ///
    /// # Panics
    /// Panics if the place is another device's, or beyond the next one.
    pub fn add_device(
        &mut self,
        setup: DeviceSetup,
        place: usize,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.check_thawed()?;
        self.devices.add(setup, place)?;
        // A leaving tenant has nothing on the new device.
        for (tenant, entry) in self.tenants.iter().filter(|(_, entry)| entry.is_active()) {
            let known = self.devices.at(entry.device);
            let portion = known.has_model.then(|| known.registry.portion(tenant));
            let device = self.devices.at_mut(place);
            device.registry.register_as(tenant, None, now).expect("best effort is never refused");
            if let Some(portion) = portion.filter(|_| device.has_model) {
                device.registry.set_portion(tenant, portion, now).expect("it was just registered");
            }
        }
        self.activity.add_device(place);
        Ok(())
    }

    /// Returns `true` if a tenant of the device is still leaving, which ends soon.
    pub fn is_being_left(&self, name: &str) -> bool {
        let Ok(place) = self.devices.find(Some(name)) else { return false };
        let mut tenants = self.tenants.iter().map(|(_, entry)| entry);
        tenants.any(|entry| entry.device == place && entry.state == State::Leaving)
    }

    /// Checks whether a device may be removed: it must have no tenant. Returns the device's index.
    ///
    /// # Errors
    /// Fails if there is no such device, a tenant is on it, or another process takes over.
    pub fn check_device_end(&self, name: &str) -> Result<usize, Refusal> {
        self.check_thawed()?;
        let place = self.devices.find(Some(name))?;
        match self.tenants.iter().map(|(_, entry)| entry).find(|entry| entry.device == place) {
            None => Ok(place),
            Some(entry) => {
                let by = match entry.state {
                    State::Active => format!("tenant {:?}", entry.name),
                    State::Leaving => "a tenant that is leaving".to_owned(),
                };
                Err(Refusal::DeviceInUse { name: name.to_owned(), by })
            }
        }
    }

    /// Removes a device.
    ///
    /// # Errors
    /// Fails as [`check_device_end`](TenantRegistry::check_device_end) does.
    pub fn remove_device(&mut self, name: &str) -> Result<(), Refusal> {
        let place = self.check_device_end(name)?;
        self.devices.set_gone(place, true);
        Ok(())
    }

    /// Removes a device whose addition failed, without any checks.
    pub fn drop_device(&mut self, place: usize) {
        self.devices.set_gone(place, true);
    }

    /// Restores a device that was [removed](TenantRegistry::remove_device).
    pub fn restore_device(&mut self, place: usize) {
        self.devices.set_gone(place, false);
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
        let place = self.devices.find(Some(name))?;
        self.devices.at_mut(place).switch(before, after, now)?;
        // Switching the correction off also ends its effect on the price of writes.
        self.price_tenants(place);
        Ok(())
    }

    /// Returns the tenants whose removal would make the other SLOs fit into another model of a
    /// device. Returns no tenant if all SLOs fit.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn displaced(&self, device: &str, model: &DeviceModel) -> Result<Vec<String>, Refusal> {
        let device = self.devices.at(self.devices.find(Some(device))?);
        let displaced: Vec<TenantId> = device.registry.displaced(model);
        Ok(displaced.into_iter().map(|tenant| self.tenants.name(tenant)).collect())
    }

    /// Replaces the model of a device. SLOs stay. If they no longer fit, each tenant with an SLO
    /// gets its part of the device's rate, and best-effort tenants get nothing.
    ///
    /// # Errors
    /// Fails if there is no such device, or the model has no rate for a tenant's SLO.
    pub fn set_model(
        &mut self,
        device: &str,
        model: DeviceModel,
        now: Instant,
    ) -> Result<(), Refusal> {
        let place = self.devices.find(Some(device))?;
        let set = self.devices.at_mut(place).registry.set_model(model, now);
        set.map_err(|refusal| named(&self.tenants, refusal))?;
        self.price_tenants(place);
        Ok(())
    }

    /// Replaces the model of a device, like [`set_model`](TenantRegistry::set_model), and makes it
    /// the configured model.
    ///
    /// # Errors
    /// Fails as [`set_model`](TenantRegistry::set_model) does, and if the device has no model.
    pub fn configure_model(
        &mut self,
        device: &str,
        model: DeviceModel,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.devices.configured_model(device)?;
        self.set_model(device, model.clone(), now)?;
        let place = self.devices.find(Some(device))?;
        self.devices.at_mut(place).configured = Some(model);
        Ok(())
    }

    /// Makes workers measure a device's delays ([`qos::Shared::delays`]) if `on`; else stops that.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn probe(&mut self, device: &str, on: bool) -> Result<(), Refusal> {
        let place = self.devices.find(Some(device))?;
        self.devices.at_mut(place).registry.probe(on);
        Ok(())
    }

    /// Watches the chores of the device at index `place`. With a model, they are a tax on writes.
    pub fn expect_chores(&mut self, place: usize, chores: Arc<dyn Chores>, now: Instant) {
        self.devices.at_mut(place).expect_chores(chores, now);
        self.price_tenants(place);
    }
}
