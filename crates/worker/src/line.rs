//! A worker's connection to the control plane.

use std::sync::Arc;

use contract::{Meters, NoMailbox};

use crate::TraceClock;

/// A worker's connection to the control plane: its mailbox, number and clock.
#[derive(Debug)]
pub struct ControlPlaneLink<M> {
    /// The mailbox for messages to and from the worker.
    pub mailbox: M,
    /// The worker's counters, which the control plane reads.
    pub meters: Arc<Meters>,
    /// The worker's number among the workers of the server, from 0.
    pub worker: u16,
    /// The clock and the traces with which the worker measures its time; `None` without
    /// measurement.
    pub watch: Option<TraceClock>,
}

impl ControlPlaneLink<NoMailbox> {
    /// Returns a line without a control plane: tenants below this number exist, and none can be
    /// registered.
    pub fn none(tenants_max: usize) -> Self {
        let meters = Arc::new(Meters::new(tenants_max));
        ControlPlaneLink { mailbox: NoMailbox, meters, worker: 0, watch: None }
    }
}
