//! The parts of a running server that never change, which its changes use.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::Tenants;
use dataplane::DeviceTable;
use io::{Clock, TcpOptions};
use proto::nvme::Fabric;
use worker::SharedState;

use crate::fabric::Wakers;

/// The parts of a running server that never change.
pub(crate) struct FixedParts {
    pub(crate) places: Arc<DeviceTable>,
    /// The tables that all workers share: of namespaces, access rules, listeners and fences.
    pub(crate) shared: Arc<SharedState>,
    /// The NVMe fabric, created once a listener speaks NVMe.
    pub(crate) fabric: Arc<OnceLock<Arc<Fabric>>>,
    pub(crate) wakers: Wakers,
    pub(crate) workers: usize,
    pub(crate) clock: Clock,
    pub(crate) tenants: Tenants,
    pub(crate) tcp: TcpOptions,
    /// `true` if the operator allows access to everybody from everywhere.
    pub(crate) insecure: bool,
    /// The default time limit of a drain.
    pub(crate) drain_limit: Duration,
}
