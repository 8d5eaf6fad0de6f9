//! The models of devices while a server runs: whether each still fits, and another in its place.

use std::time::Duration;

use contract::{Instant, TenantId};
use qos::{DeviceModel, Drift, Percentile, RatePoint};

use super::{Book, Device, tokens_up};
use crate::words::Refusal;

/// Between two lines of the log about one device's drift at least.
const TOLD_PERIOD: Duration = Duration::from_secs(30);

/// What was told of a device's drift.
#[derive(Debug, Default)]
pub(crate) struct DriftTold {
    kind: Kind,
    at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    Fits,
    Slower,
    Faster,
}

impl Kind {
    fn of(drift: Drift) -> Kind {
        match drift {
            Drift::Unknown(_) => Kind::Unknown,
            Drift::Fits { .. } => Kind::Fits,
            Drift::Drifted { ratio, .. } if ratio < 1.0 => Kind::Slower,
            Drift::Drifted { .. } => Kind::Faster,
        }
    }
}

impl Device {
    /// Says in the log when the device has begun to differ from its model, and when that is over.
    pub(super) fn tell_drift(&mut self, now: Instant) {
        let Some(drift) = self.registry.drift() else { return };
        let kind = Kind::of(drift);
        let is_recent = self.told.at.is_some_and(|at| now.since(at) < TOLD_PERIOD);
        if kind == self.told.kind || is_recent {
            return;
        }
        let before = std::mem::replace(&mut self.told.kind, kind);
        let device = self.name.as_str();
        match drift {
            Drift::Drifted { ratio, .. } => tracing::warn!(
                device,
                percent_of_model = (ratio * 100.0).round(),
                "the device has drifted from its model: at the latency that its reads have it \
                 serves another rate (docs/recalibration.md)"
            ),
            Drift::Fits { .. } if matches!(before, Kind::Slower | Kind::Faster) => {
                tracing::info!(device, "the device fits its model again");
            }
            _ => return,
        }
        self.told.at = Some(now);
    }
}

impl Book {
    /// The model that the configuration gives a device.
    ///
    /// # Errors
    /// When there is no such device, or it has no model.
    pub fn configured_model(&self, device: &str) -> Result<&DeviceModel, Refusal> {
        let device = &self.devices[self.device(Some(device))?];
        let none = || Refusal::NoModel { device: device.name.clone() };
        device.configured.as_ref().ok_or_else(none)
    }

    /// The tenants that would have to go for what the others are promised to fit into another model
    /// of a device; nobody where all fits.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn displaced(&self, device: &str, model: &DeviceModel) -> Result<Vec<String>, Refusal> {
        let device = &self.devices[self.device(Some(device))?];
        let displaced = device.registry.displaced(model);
        Ok(displaced.into_iter().map(|tenant| self.name(tenant)).collect())
    }

    /// Has a device trust another model from now on. What tenants were promised stays; where that
    /// no longer fits, each of them gets its part and best effort nothing.
    ///
    /// # Errors
    /// When there is no such device, or the model knows no rate for what a tenant was promised.
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

    /// The same for a model that the configuration gives it from now on.
    ///
    /// # Errors
    /// As [`set_model`](Book::set_model), and when the device has had no model.
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

    /// The devices that have another model than the configuration gives them, and that.
    pub fn remodelled(&self) -> Vec<(String, DeviceModel)> {
        let devices = self.devices.iter().filter(|device| Book::is_remodelled(device));
        devices.map(|device| (device.name.clone(), device.registry.model().clone())).collect()
    }

    /// Whether a device has another model than the configuration gives it.
    pub(crate) fn is_remodelled(device: &Device) -> bool {
        let other =
            device.configured.as_ref().is_some_and(|model| model != device.registry.model());
        other && !device.is_gone
    }

    /// What is needed for what tenants were promised on a device, by its prices as they are now.
    pub(super) fn price_tenants(&mut self, n: usize) {
        for (tenant, promise) in self.devices[n].registry.promises() {
            let entry = self.entries[tenant.0 as usize].as_mut();
            if let Some(entry) = entry.filter(|entry| entry.device == n) {
                entry.tokens_needed = tokens_up(promise.rate);
            }
        }
    }

    /// Has the workers measure a device for whoever reads [`qos::Shared::delays`], or no more.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn probe(&mut self, device: &str, on: bool) -> Result<(), Refusal> {
        let n = self.device(Some(device))?;
        self.devices[n].registry.probe(on);
        Ok(())
    }

    /// What the workers of a device share, and the place of the device.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn shared(&self, device: &str) -> Result<(usize, std::sync::Arc<qos::Shared>), Refusal> {
        let n = self.device(Some(device))?;
        Ok((n, self.devices[n].registry.shared().clone()))
    }

    /// The strictest latency that is promised on a device, in microseconds at p95: for a promise at p99
    /// that at which the model has the device make no more than this promise lets it.
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

    /// Ends a tenant that a part of the server made for itself, pinned or not.
    pub fn dismiss(&mut self, tenant: TenantId, now: Instant) {
        self.unregister_of(tenant, now);
    }
}
