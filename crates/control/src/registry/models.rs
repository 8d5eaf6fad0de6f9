//! The models of devices while a server runs, and their replacement.

use contract::{Instant, TenantId};
use qos::{DeviceModel, Percentile, RatePoint};

use super::{Device, TenantRegistry, tokens_up};
use crate::info::Refusal;

impl TenantRegistry {
    /// Returns the configured model of a device.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model.
    pub fn configured_model(&self, device: &str) -> Result<&DeviceModel, Refusal> {
        let device = &self.devices[self.device(Some(device))?];
        let none = || Refusal::NoModel { device: device.name.clone() };
        device.configured.as_ref().ok_or_else(none)
    }

    /// Returns the tenants whose removal would make the other SLOs fit into another model of a
    /// device. Returns no tenant if all SLOs fit.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn displaced(&self, device: &str, model: &DeviceModel) -> Result<Vec<String>, Refusal> {
        let device = &self.devices[self.device(Some(device))?];
        let displaced = device.registry.displaced(model);
        Ok(displaced.into_iter().map(|tenant| self.name(tenant)).collect())
    }

    /// Replaces the model of a device. SLOs stay. If they no longer fit, each tenant gets its part,
    /// and best-effort tenants get nothing.
    ///
    /// # Errors
    /// Fails if there is no such device, or the model has no rate for a tenant's SLO.
    pub fn set_model(
        &mut self,
        device: &str,
        model: DeviceModel,
        now: Instant,
    ) -> Result<(), Refusal> {
        let n = self.device(Some(device))?;
        let set = self.devices[n].registry.set_model(model, now);
        set.map_err(|refusal| self.named(refusal))?;
        self.price_tenants(n);
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
        self.configured_model(device)?;
        self.set_model(device, model.clone(), now)?;
        let n = self.device(Some(device))?;
        self.devices[n].configured = Some(model);
        Ok(())
    }

    /// Returns the devices whose model is not the configured one, with their model.
    pub fn remodelled(&self) -> Vec<(String, DeviceModel)> {
        let devices = self.devices.iter().filter(|device| TenantRegistry::is_remodelled(device));
        devices.map(|device| (device.name.clone(), device.registry.model().clone())).collect()
    }

    /// Returns `true` if a device's model is not the configured one.
    pub(crate) fn is_remodelled(device: &Device) -> bool {
        let other =
            device.configured.as_ref().is_some_and(|model| model != device.registry.model());
        other && !device.is_gone
    }

    /// Recomputes the tokens that the SLOs of a device need, with its current prices.
    pub(super) fn price_tenants(&mut self, n: usize) {
        for (tenant, promise) in self.devices[n].registry.promises() {
            let entry = self.entries[tenant.0 as usize].as_mut();
            if let Some(entry) = entry.filter(|entry| entry.device == n) {
                entry.tokens_needed = tokens_up(promise.rate);
            }
        }
    }

    /// Makes workers measure a device for readers of [`qos::Shared::delays`], or stops that.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn probe(&mut self, device: &str, on: bool) -> Result<(), Refusal> {
        let n = self.device(Some(device))?;
        self.devices[n].registry.probe(on);
        Ok(())
    }

    /// Returns the place of a device, and the state that its workers share.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn shared(&self, device: &str) -> Result<(usize, std::sync::Arc<qos::Shared>), Refusal> {
        let n = self.device(Some(device))?;
        Ok((n, self.devices[n].registry.shared().clone()))
    }

    /// Returns the strictest latency bound of a device, in microseconds at p95. For an SLO at p99,
    /// that is the p95 latency at which the model delivers no more than the SLO permits.
    pub fn strictest_us(&self, device: usize) -> Option<u32> {
        let registry = &self.devices[device].registry;
        let model = registry.model();
        let at_p95 = registry.promises().map(|(_, promise)| match promise.percentile {
            Percentile::P95 => promise.latency_us,
            Percentile::P99 => {
                let slower = |row: &&RatePoint| row.mixed <= promise.limit;
                let row = model.points().iter().rev().find(slower);
                row.map_or(model.latency_us_min(), |row| row.latency_us).min(promise.latency_us)
            }
        });
        at_p95.min()
    }

    /// Unregisters a tenant that a part of the server made for itself, even if the configuration
    /// names it.
    pub fn dismiss(&mut self, tenant: TenantId, now: Instant) {
        self.unregister_of(tenant, now);
    }
}
