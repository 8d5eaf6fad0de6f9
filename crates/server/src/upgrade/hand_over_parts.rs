//! The parts of a server that take part in a hand-over.

use std::sync::{Arc, Mutex};

use contract::ListenerId;
use control::admin::EndpointHandle;
use control::{Tenants, WorkerCommands};
use dataplane::{DeviceTable, WorkerOrders};
use io::{Clock, ConnectionBalancer, Listener, Waker};
use worker::SharedState;

use super::socket::Socket;
use crate::live::LiveConfig;

/// The parts of a server that are handed over, or that taken-over connections are added to.
pub(crate) struct HandOverParts {
    pub(crate) tenants: Tenants,
    pub(crate) commands: WorkerCommands,
    pub(crate) spread: Arc<ConnectionBalancer>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) places: Arc<DeviceTable>,
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) clock: Clock,
    pub(crate) orders: Arc<WorkerOrders>,
    pub(crate) wakers: Vec<Waker>,
    /// The sockets of the admin API, of metrics and of upgrades. The listeners for clients are kept
    /// apart, since they change.
    pub(crate) sockets: Vec<Arc<Socket>>,
    /// The APIs behind these sockets, which can pause.
    pub(crate) apis: Vec<EndpointHandle>,
    /// The number of connections that all workers have room for.
    pub(crate) connections_max: usize,
    /// The listeners for clients of a process that takes over. Its workers get them once it serves.
    pub(crate) listeners: Mutex<Vec<(ListenerId, Listener)>>,
}

impl HandOverParts {
    /// Returns all listening sockets.
    pub(super) fn all_sockets(&self) -> Vec<Arc<Socket>> {
        let (mut all, _) = self.live.open_sockets();
        all.extend(self.sockets.iter().cloned());
        all
    }

    /// Marks the files of Unix sockets as owned by the other process (`true`), or by this one again
    /// (`false`). The owner removes them when it ends.
    pub(super) fn give_away(&self, is_given: bool) {
        self.all_sockets().iter().for_each(|socket| socket.kept.give_away(is_given));
    }

    /// Makes the APIs pause (`true`), or accept connections again (`false`).
    pub(super) fn hold_apis(&self, is_held: bool) {
        self.apis.iter().for_each(|api| api.hold(is_held));
    }
}
