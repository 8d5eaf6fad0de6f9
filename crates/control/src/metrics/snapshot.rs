//! The figures of a scrape, taken from the registry.

use contract::{NamespaceId, Protocol, Slo};
use qos::Class;

use crate::flows::{DeviceFlow, NamespaceFlow, WorkerFlow};
use crate::info::DeviceInfo;
use crate::registry::class_index;
use crate::totals::TenantTotals;
use crate::views::{self, TenantDetail};
use crate::work::Work;
use crate::{Measured, Tenants};

/// Maximum number of tenants that are read under one lock of the registry.
const CHUNK: usize = 128;

/// The metrics of one tenant, or the sum of the metrics of all tenants that have no series of their
/// own.
#[derive(Clone, Debug)]
pub(super) struct TenantMetrics {
    pub(super) name: String,
    pub(super) device: String,
    pub(super) class: Class,
    pub(super) slo: Option<Slo>,
    pub(super) tokens_needed: u64,
    pub(super) connections: u32,
    pub(super) in_flight: u32,
    pub(super) measured: Measured,
    pub(super) totals: TenantTotals,
}

impl TenantMetrics {
    /// Returns the empty sum of tenants without series of their own.
    fn rest() -> TenantMetrics {
        TenantMetrics {
            name: REST.to_owned(),
            device: String::new(),
            class: Class::BestEffort,
            slo: None,
            tokens_needed: 0,
            connections: 0,
            in_flight: 0,
            measured: Measured::default(),
            totals: TenantTotals::default(),
        }
    }
}

/// The figures that one scrape of the metrics writes, copied out of the registry.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub(super) tenants: Vec<TenantMetrics>,
    /// The sum of all other tenants, including those that are gone, so that this sum never falls.
    /// `None` without such tenants.
    pub(super) rest: Option<TenantMetrics>,
    /// Tenants by class (latency-critical, best effort, leaving), and their connections.
    pub(super) classes: [(u64, u64); 3],
    /// The work of tenants, by class.
    pub(super) by_class: [Work; 3],
    pub(super) left_out: usize,
    pub(super) devices: Vec<(DeviceInfo, DeviceFlow)>,
    pub(super) namespaces: Vec<(NamespaceId, NamespaceFlow)>,
    pub(super) workers: Vec<WorkerFlow>,
    /// The work on connections, by protocol.
    pub(super) by_protocol: [Work; Protocol::ALL.len()],
}

/// The name of the sum of tenants without series of their own. No tenant has this name, since names
/// contain no quotes.
pub(super) const REST: &str = "\"rest\"";

impl Snapshot {
    /// Takes the current figures. Tenants whose numbers are below `tenants_max` are separate; the
    /// others are summed. A tenant keeps its number, so it always stays on the same side.
    pub fn take(tenants: &Tenants, tenants_max: usize) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut next = Some(0);
        while let Some(from) = next {
            let registry = tenants.registry();
            let (chunk, then) = views::detailed(&registry, from, CHUNK);
            drop(registry);
            chunk.into_iter().for_each(|of| snapshot.add(of, tenants_max));
            next = then;
        }
        let registry = tenants.registry();
        let activity = registry.activity();
        let (_, workers, namespaces) = activity.flows();
        snapshot.devices = registry.device_flows();
        snapshot.workers = workers;
        snapshot.namespaces = namespaces;
        (snapshot.by_class, snapshot.by_protocol) = (activity.classes(), activity.protocols());
        snapshot
    }

    fn add(&mut self, of: TenantDetail, tenants_max: usize) {
        let is_own = of.number < tenants_max;
        if let Some(departed) = of.departed.filter(|_| !is_own) {
            self.rest.get_or_insert_with(TenantMetrics::rest).totals.add_totals(&departed);
        }
        let Some((info, totals)) = of.tenant else { return };
        let class = class_index(info.class);
        self.classes[class].0 += 1;
        self.classes[class].1 += u64::from(info.connections);
        let of = TenantMetrics {
            name: info.name,
            device: info.device,
            class: info.class,
            slo: info.promise.slo(),
            tokens_needed: info.tokens_needed,
            connections: info.connections,
            in_flight: info.in_flight,
            measured: info.measured,
            totals,
        };
        if is_own {
            return self.tenants.push(of);
        }
        self.left_out += 1;
        let rest = self.rest.get_or_insert_with(TenantMetrics::rest);
        rest.connections += of.connections;
        rest.in_flight += of.in_flight;
        rest.totals.add_totals(&of.totals);
    }

    /// Returns the tenants that have metric series of their own, and last the sum of all others.
    pub(super) fn all(&self) -> impl Iterator<Item = &TenantMetrics> {
        self.tenants.iter().chain(&self.rest)
    }
}
