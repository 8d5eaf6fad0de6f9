//! A worker's line to the control plane.

use std::sync::Arc;

use contract::{Meters, NoMailbox};

use crate::Watch;

/// A worker's line to the control plane.
#[derive(Debug)]
pub struct Line<M> {
    /// The worker's mailbox.
    pub mailbox: M,
    /// The worker's counters, which the control plane reads.
    pub meters: Arc<Meters>,
    /// The worker's number.
    pub worker: u16,
    /// The clock and the traces with which the worker measures its time; `None` without measuring.
    pub watch: Option<Watch>,
}

impl Line<NoMailbox> {
    /// Makes a line to nobody: tenants below this number exist, and nobody can register.
    pub fn none(tenants_max: usize) -> Self {
        let meters = Arc::new(Meters::new(tenants_max));
        Line { mailbox: NoMailbox, meters, worker: 0, watch: None }
    }
}
