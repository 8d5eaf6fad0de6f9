//! The fabric of a server: one subsystem with one namespace, and the hosts that may connect to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::{Geometry, Instant, ListenerId, NamespaceId, REQUEST_BYTES_MAX, TenantId};
use proto::nvme::{
    Config, Environment, Fabric, Host, Hosts, Identifiers, Limits, Namespace, Nqn, Port, PortId,
    Subsystem,
};

use crate::layout::BLOCKS;

/// The listener that hosts dial.
pub(crate) const LISTENER: ListenerId = ListenerId(1);
/// The listener's port at the fabric.
pub(crate) const PORT: PortId = PortId(1);
/// The name of the subsystem that hosts connect to.
pub(super) const SUBSYSTEM: &str = "nqn.2026-01.io.nearflash:world";
/// The identifier of the subsystem's only namespace, which is the good clients'.
pub(super) const NSID: u32 = 1;
/// The most entries of a queue.
pub(super) const QUEUE_ENTRIES_MAX: u16 = 64;

/// Returns a host's name.
pub(super) fn host_nqn(number: usize) -> Nqn {
    Nqn::new(&format!("nqn.2026-01.io.nearflash:host{number}")).expect("a good name")
}

/// An environment that notifies the world when a worker has actions to fetch.
#[derive(Debug, Default)]
struct NotifyingEnvironment {
    woken: Arc<AtomicBool>,
}

impl Environment for NotifyingEnvironment {
    fn wake(&self, _: u16) {
        self.woken.store(true, Ordering::Relaxed);
    }

    fn random(&self, _: &mut [u8]) {
        unreachable!("nobody authenticates");
    }

    fn compute(&self) {
        unreachable!("nobody authenticates");
    }
}

/// The fabric of a server.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    pub(crate) fabric: Arc<Fabric>,
    woken: Arc<AtomicBool>,
}

impl Controllers {
    /// Creates a fabric for this many workers. Every second host belongs to `other`.
    pub(crate) fn new(workers: usize, other: TenantId, now: Instant) -> Controllers {
        let namespace = Namespace {
            nsid: NSID,
            id: NamespaceId(1),
            geometry: Geometry {
                atomic_blocks_max: (REQUEST_BYTES_MAX / 512) as u32,
                volatile_cache: true,
                ..Geometry::new(BLOCKS, 512)
            },
            block_bytes: 512,
            identifiers: Identifiers { uuid: [7; 16], ..Identifiers::default() },
            ana_group: 1,
            hosts: Hosts::Any,
            tenant: None,
        };
        let nqn = Nqn::new(SUBSYSTEM).expect("a good name");
        let subsystem = Subsystem::open_to_all(nqn, "world", vec![namespace]);
        let port = Port::plain(PORT, "10.1.0.0");
        let belongs = |n: usize| Host {
            nqn: host_nqn(n),
            tenant: (n % 2 == 1).then_some(other),
            key: None,
            former_key: None,
            controller_key: None,
            methods: None,
            tls_key: None,
            former_tls_key: None,
        };
        let config = Config {
            workers: workers as u16,
            limits: Limits { queue_entries_max: QUEUE_ENTRIES_MAX, ..Limits::default() },
            ports: vec![port],
            subsystems: vec![subsystem],
            hosts: (0..8).map(belongs).collect(),
            ..Config::default()
        };
        let around = NotifyingEnvironment::default();
        let woken = around.woken.clone();
        let fabric = Fabric::new(&config, now, Box::new(around)).expect("a good configuration");
        Controllers { fabric, woken }
    }

    /// Returns `true` if some worker has got actions since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Relaxed)
    }
}
