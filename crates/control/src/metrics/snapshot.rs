//! What a scrape shows, taken from the book.

use contract::{NamespaceId, Slo};
use qos::Class;

use crate::flows::{DeviceFlow, NamespaceFlow, WorkerFlow};
use crate::tally::Tally;
use crate::words::{DeviceInfo, TenantInfo};
use crate::{Measured, Tenants};

/// Tenants that are looked at while the book is locked.
const CHUNK: usize = 128;

/// A tenant, as metrics show it.
#[derive(Clone, Debug)]
pub(super) struct OfTenant {
    pub(super) name: String,
    pub(super) device: String,
    pub(super) class: Class,
    pub(super) slo: Slo,
    pub(super) tokens_needed: u64,
    pub(super) connections: u32,
    pub(super) in_flight: u32,
    /// Tokens that it has spent, and seconds in which it waited for tokens.
    pub(super) spent: f64,
    pub(super) throttled: f64,
    pub(super) measured: Measured,
    pub(super) tally: Tally,
}

/// What a scrape shows.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(super) tenants: Vec<OfTenant>,
    /// The others, added up; `None` without any.
    pub(super) rest: Option<OfTenant>,
    /// Tenants by class: latency-critical, best effort, leaving; and connections that belong to them.
    pub(super) classes: [(u64, u64); 3],
    pub(super) left_out: usize,
    pub(super) devices: Vec<(DeviceInfo, DeviceFlow)>,
    pub(super) namespaces: Vec<(NamespaceId, NamespaceFlow)>,
    pub(super) workers: Vec<WorkerFlow>,
}

/// The name of what is said of all tenants that have no series of their own. No tenant has it: names
/// are free of quotes.
pub(super) const REST: &str = "\"rest\"";

impl Snapshot {
    /// What there is to tell now; of the first so many tenants one by one, of the others together.
    pub fn take(tenants: &Tenants, tenants_max: usize) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut next = Some(0);
        while let Some(from) = next {
            let book = tenants.book();
            let (chunk, then) = book.detailed(from, CHUNK);
            drop(book);
            chunk.into_iter().for_each(|of| snapshot.add(of, tenants_max));
            next = then;
        }
        let book = tenants.book();
        let (devices, workers, namespaces) = book.flows();
        snapshot.devices = book.device_infos().into_iter().zip(devices).collect();
        snapshot.workers = workers;
        snapshot.namespaces = namespaces;
        snapshot
    }

    fn add(&mut self, (info, detail): (TenantInfo, Detail), tenants_max: usize) {
        let class = match info.class {
            Class::LatencyCritical => 0,
            Class::BestEffort => 1,
            Class::Leaving | Class::Vacant => 2,
        };
        self.classes[class].0 += 1;
        self.classes[class].1 += u64::from(info.connections);
        let of = OfTenant {
            name: info.name,
            device: info.device,
            class: info.class,
            slo: info.slo,
            tokens_needed: info.tokens_needed,
            connections: info.connections,
            in_flight: info.in_flight,
            spent: detail.spent,
            throttled: detail.throttled,
            measured: info.measured,
            tally: detail.tally,
        };
        if self.tenants.len() < tenants_max {
            return self.tenants.push(of);
        }
        self.left_out += 1;
        match &mut self.rest {
            None => {
                let slo = Slo::default();
                self.rest = Some(OfTenant { name: REST.to_owned(), slo, tokens_needed: 0, ..of });
            }
            Some(rest) => {
                rest.connections += of.connections;
                rest.in_flight += of.in_flight;
                rest.spent += of.spent;
                rest.throttled += of.throttled;
                rest.measured.deficits += of.measured.deficits;
                rest.tally.add_tally(&of.tally);
            }
        }
    }

    /// Those with series of their own, and the sum of the others.
    pub(super) fn all(&self) -> impl Iterator<Item = &OfTenant> {
        self.tenants.iter().chain(&self.rest)
    }
}

/// What a snapshot needs of a tenant beside what everybody is told.
#[derive(Debug)]
pub(crate) struct Detail {
    /// Tokens.
    pub(crate) spent: f64,
    /// Seconds.
    pub(crate) throttled: f64,
    pub(crate) tally: Tally,
}
