//! The activity of all tenants together: by class, by device, by worker, and over time.

use std::time::Duration;

use contract::{Instant, NamespaceId, Protocol, TenantId, TenantReading};
use qos::Class;

use super::devices::Devices;
use super::meters::WorkerMeters;
use super::table::Entry;
use crate::flows::{DeviceFlow, Flows, NamespaceFlow, WorkerFlow};
use crate::history::{self, History};
use crate::info::DeviceInfo;
use crate::starvation::Starvation;
use crate::violations::{LateTenant, Violations};
use crate::work::Work;

/// The activity of all tenants together: sums since the start, and the last windows.
#[derive(Debug)]
pub struct Activity {
    /// Work of tenants while they were latency-critical, best effort, and leaving.
    classes: [Work; 3],
    flows: Flows,
    history: History,
    violations: Violations,
    /// The end of the last window.
    measured_at: Instant,
}

impl Activity {
    /// Returns the empty activity of a server with this many devices and workers.
    pub(super) fn new(devices: usize, workers: usize) -> Activity {
        Activity {
            classes: Default::default(),
            flows: Flows::new(devices, workers),
            history: History::default(),
            violations: Violations::default(),
            measured_at: Instant::ZERO,
        }
    }

    /// Adds the device with the index `place`, which has no activity yet.
    pub(super) fn add_device(&mut self, place: usize) {
        self.flows.add_device(place);
    }

    /// Adds the activity of a tenant of this class between two readings.
    pub(super) fn count(&mut self, class: Class, between: &TenantReading) {
        self.classes[class_index(class)].add(&between.into());
    }

    /// Records that a tenant was late in the window that ends `now`.
    pub(super) fn add_late(&mut self, tenant: TenantId, entry: &Entry, device: &str, now: Instant) {
        let slo = entry.promise.slo();
        if let (Some(slo), Some(us)) = (slo, entry.window.measured.slo_percentile_us) {
            self.violations.add(tenant, LateTenant { tenant: &entry.name, device, slo, us }, now);
        }
    }

    /// Ends a window. `all` has the figures of the tenants in it.
    pub(super) fn end(
        &mut self,
        mut all: history::Window,
        meters: &WorkerMeters,
        devices: &Devices,
    ) {
        self.measured_at = all.ended_at;
        self.flows.end(meters.all(), &devices.made(), all.ended_at);
        let flows = self.device_flows(devices);
        all.devices =
            flows.iter().map(|(info, flow)| history::SecondOfDevice::new(info, flow)).collect();
        self.history.push(all);
        self.violations.end_window(self.starvation().is_some(), self.measured_at);
    }

    /// Returns the time since the current measurement window began.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.since(self.measured_at)
    }

    /// Returns the descriptions of the devices that exist with their activity, in the order of
    /// their indices.
    pub(super) fn device_flows(&self, devices: &Devices) -> Vec<(DeviceInfo, DeviceFlow)> {
        let flows = self.flows.devices();
        let there = devices.there().map(|(place, device)| (device.info(), flows[place]));
        there.collect()
    }

    /// Returns the activity of devices, workers and namespaces.
    pub(crate) fn flows(
        &self,
    ) -> (Vec<DeviceFlow>, Vec<WorkerFlow>, Vec<(NamespaceId, NamespaceFlow)>) {
        (self.flows.devices(), self.flows.workers(), self.flows.namespaces())
    }

    /// Returns the worker that waited for a processor for too much of the last window; `None` if
    /// there is none.
    pub fn starvation(&self) -> Option<Starvation> {
        Starvation::of(&self.flows.workers())
    }

    /// Returns the work of all connections by protocol.
    pub(crate) fn protocols(&self) -> [Work; Protocol::ALL.len()] {
        self.flows.protocols()
    }

    /// Returns the work of tenants while they were latency-critical, best effort, and leaving.
    pub(crate) fn classes(&self) -> [Work; 3] {
        self.classes
    }

    /// Returns the history of the last minutes and of the last day.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the violations of promises.
    pub(crate) fn violations(&self) -> &Violations {
        &self.violations
    }
}

/// Returns the index of a class in arrays by class.
pub(crate) fn class_index(class: Class) -> usize {
    match class {
        Class::LatencyCritical => 0,
        Class::BestEffort => 1,
        Class::Leaving | Class::Vacant => 2,
    }
}
