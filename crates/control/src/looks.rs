//! What pages and scrapes look at in the book: some tenants at a time, so that it is never locked for
//! long.

use std::sync::Arc;

use contract::{NamespaceId, TenantId, Traces};
use qos::DeviceModel;

use crate::Book;
use crate::book::Entry;
use crate::flows::{DeviceFlow, NamespaceFlow, WorkerFlow};
use crate::history::History;
use crate::metrics::Detail;
use crate::tally::Tally;
use crate::words::{Refusal, TenantInfo};

impl Book {
    /// The last minutes.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// What was counted under so many numbers from `from` on, and the number after those, if there
    /// are more.
    pub(crate) fn detailed(&self, from: usize, count: usize) -> (Vec<Detail>, Option<usize>) {
        let end = self.entries.len().min(from + count);
        let each = (from..end).map(|number| {
            let of =
                |entry: &Entry| (self.info(TenantId(number as u32)), entry.window.tally.clone());
            let tenant = self.entries[number].as_ref().map(of);
            Detail { number, tenant, departed: self.departed[number].as_deref().cloned() }
        });
        let known = each.filter(|of| of.tenant.is_some() || of.departed.is_some());
        (known.collect(), Some(end).filter(|end| *end < self.entries.len()))
    }

    /// The tenants of so many numbers from `from` on, and the number after those, if there are more.
    pub(crate) fn listed(&self, from: usize, count: usize) -> (Vec<TenantInfo>, Option<usize>) {
        let end = self.entries.len().min(from + count);
        let numbers = (from..end).filter(|n| self.entries[*n].is_some());
        let infos = numbers.map(|n| self.info(TenantId(n as u32))).collect();
        (infos, Some(end).filter(|end| *end < self.entries.len()))
    }

    /// The model of a device.
    ///
    /// # Errors
    /// When there is no such device, or it has no model.
    pub fn model(&self, device: &str) -> Result<&DeviceModel, Refusal> {
        let device = &self.devices[self.device(Some(device))?];
        match device.has_model {
            true => Ok(device.registry.model()),
            false => Err(Refusal::NoModel { device: device.name.clone() }),
        }
    }

    /// What was counted of a tenant.
    pub(crate) fn tally(&self, tenant: TenantId) -> &Tally {
        &self.entry(tenant).window.tally
    }

    /// The traces of all workers.
    pub(crate) fn all_traces(&self) -> Vec<Arc<Traces>> {
        self.traces.clone()
    }

    /// What devices, workers and namespaces do.
    pub fn flows(&self) -> (Vec<DeviceFlow>, Vec<WorkerFlow>, Vec<(NamespaceId, NamespaceFlow)>) {
        (self.flows.devices(), self.flows.workers(), self.flows.namespaces())
    }
}
