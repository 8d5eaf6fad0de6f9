//! The handle on the registry for operators' tools and the configuration.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use contract::{Instant, Meters, Promise, Share, Slo, TenantId, Traces};
use qos::{AnyScheduler, QueueLimits};

use crate::info::{Admission, DeviceInfo, Origin, Refusal, TenantInfo, Verdict};
use crate::registry::{Batch, DeviceSetup, TenantChange, TenantRegistry};

/// A function that returns the time, from the clock that the workers use as well.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The tenants of a server, by name. Cheap to clone; all clones share one registry. Workers never
/// wait for its lock.
#[derive(Clone)]
pub struct Tenants {
    registry: Arc<Mutex<TenantRegistry>>,
    clock: Clock,
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Tenants {
    /// Returns the tenants of these devices, served by `workers` workers; at most `tenants_max`.
    pub fn new(
        devices: Vec<DeviceSetup>,
        workers: usize,
        tenants_max: usize,
        clock: Clock,
    ) -> Tenants {
        let registry = TenantRegistry::new(devices, workers, tenants_max);
        Tenants { registry: Arc::new(Mutex::new(registry)), clock }
    }

    /// Locks the registry of tenants and returns the guard.
    pub fn registry(&self) -> MutexGuard<'_, TenantRegistry> {
        self.registry.lock().expect("no holder of this lock panics")
    }

    /// Returns the present time on the clock that the workers use as well.
    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Registers a tenant for an operator, with a promise on a device (the first device by
    /// default).
    ///
    /// # Errors
    /// Fails if the name or promise is invalid, or with the reason that it cannot be promised.
    pub fn register(
        &self,
        name: &str,
        promise: Promise,
        device: Option<&str>,
    ) -> Result<Admission, Refusal> {
        let now = self.now();
        self.registry().register(name, promise, device, Origin::Operator, now)
    }

    /// Changes a tenant's promise, also from and to best effort. The device stays.
    ///
    /// # Errors
    /// Fails if the promise is invalid, or with the reason that it cannot be promised. Then the old
    /// one stands.
    pub fn change(&self, name: &str, to: Promise<Option<Share>>) -> Result<Admission, Refusal> {
        let now = self.now();
        self.registry().change(name, to, now)
    }

    /// Unregisters a tenant. Its rate and its name are free at once. The tenant is listed as
    /// leaving until the last of its requests has ended.
    ///
    /// # Errors
    /// Fails if there is no such tenant, or the configuration names it.
    pub fn unregister(&self, name: &str) -> Result<(), Refusal> {
        let now = self.now();
        self.registry().unregister(name, now)
    }

    /// Applies all changes of a batch, or none of them if one is refused.
    ///
    /// # Errors
    /// Fails with the refused change, counted from zero, and the reason.
    pub fn apply(&self, changes: &[TenantChange]) -> Result<(), (usize, Refusal)> {
        let (now, mut registry) = (self.now(), self.registry());
        Batch::begin(&mut registry, changes, now)?.end(&mut registry, now);
        Ok(())
    }

    /// Returns all tenants, by number, with their measurements of the last second.
    pub fn list(&self) -> Vec<TenantInfo> {
        self.registry().list()
    }

    /// Returns one tenant; `None` if there is none of this name that is not leaving.
    pub fn get(&self, name: &str) -> Option<TenantInfo> {
        let registry = self.registry();
        Some(registry.info(registry.find(name)?))
    }

    /// Returns the descriptions of the devices, in the order of their indices.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.registry().devices().infos()
    }

    /// Checks whether an SLO would be admitted on a device (the first device by default), and
    /// returns remedies if not.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn check(&self, slo: Slo, device: Option<&str>) -> Result<Verdict, Refusal> {
        self.registry().check(slo, None, device)
    }

    /// Checks whether a tenant's SLO could become this one, on `device` or by default on the
    /// tenant's present device, and returns remedies if not.
    ///
    /// # Errors
    /// Fails if there is no such tenant or device.
    pub fn check_change(
        &self,
        name: &str,
        slo: Slo,
        device: Option<&str>,
    ) -> Result<Verdict, Refusal> {
        self.registry().check(slo, Some(name), device)
    }

    /// Returns the number of a tenant; `None` if there is none of this name that is not leaving.
    pub fn find(&self, name: &str) -> Option<TenantId> {
        self.registry().find(name)
    }

    /// Returns the scheduler of a worker's queue to a device.
    pub fn scheduler(&self, device: usize, worker: usize, limits: QueueLimits) -> AnyScheduler {
        self.registry().devices().scheduler(device, worker, limits)
    }

    /// Returns the traces of a worker.
    pub fn traces(&self, worker: usize) -> Arc<Traces> {
        self.registry().traces(worker)
    }

    /// Returns the counters of a worker.
    pub fn meters(&self, worker: usize) -> Arc<Meters> {
        self.registry().meters(worker)
    }
}
