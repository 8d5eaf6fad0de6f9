//! The registry's views for pages and scrapes. A view returns a limited number of tenants at a
//! time, so that the registry is never locked for long.

use std::sync::Arc;

use contract::{NamespaceId, TenantId, Traces};
use qos::DeviceModel;

use crate::TenantRegistry;
use crate::flows::{DeviceFlow, NamespaceFlow, WorkerFlow};
use crate::history::History;
use crate::info::{Refusal, TenantInfo};
use crate::metrics::Detail;
use crate::registry::Entry;
use crate::totals::TenantTotals;

impl TenantRegistry {
    /// Returns the history of the last minutes.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the sums of `count` numbers from `from` on, and the next number if there are more.
    pub(crate) fn detailed(&self, from: usize, count: usize) -> (Vec<Detail>, Option<usize>) {
        let end = self.entries.len().min(from + count);
        let each = (from..end).map(|number| {
            let of =
                |entry: &Entry| (self.info(TenantId(number as u32)), entry.window.totals.clone());
            let tenant = self.entries[number].as_ref().map(of);
            Detail { number, tenant, departed: self.departed[number].as_deref().cloned() }
        });
        let known = each.filter(|of| of.tenant.is_some() || of.departed.is_some());
        (known.collect(), Some(end).filter(|end| *end < self.entries.len()))
    }

    /// Returns the tenants of `count` numbers from `from` on, and the next number if there are
    /// more.
    pub(crate) fn listed(&self, from: usize, count: usize) -> (Vec<TenantInfo>, Option<usize>) {
        let end = self.entries.len().min(from + count);
        let numbers = (from..end).filter(|n| self.entries[*n].is_some());
        let infos = numbers.map(|n| self.info(TenantId(n as u32))).collect();
        (infos, Some(end).filter(|end| *end < self.entries.len()))
    }

    /// Returns the model of a device.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model.
    pub fn model(&self, device: &str) -> Result<&DeviceModel, Refusal> {
        let device = &self.devices[self.device(Some(device))?];
        match device.has_model {
            true => Ok(device.registry.model()),
            false => Err(Refusal::NoModel { device: device.name.clone() }),
        }
    }

    /// Returns the sums of a tenant.
    pub(crate) fn totals(&self, tenant: TenantId) -> &TenantTotals {
        &self.entry(tenant).window.totals
    }

    /// Returns the traces of all workers.
    pub(crate) fn all_traces(&self) -> Vec<Arc<Traces>> {
        self.traces.clone()
    }

    /// Returns the activity of devices, workers and namespaces.
    pub fn flows(&self) -> (Vec<DeviceFlow>, Vec<WorkerFlow>, Vec<(NamespaceId, NamespaceFlow)>) {
        (self.flows.devices(), self.flows.workers(), self.flows.namespaces())
    }
}
