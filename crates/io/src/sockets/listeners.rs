//! The listeners of one worker, and the sockets that it has accepted.

use std::sync::Arc;

use contract::{Instant, ListenerId};

use crate::spread::AcceptedConnection;
use crate::{Listener, ServerTls};

/// An entry of a worker's table of listeners.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) id: ListenerId,
    /// The listener; `None` once it was closed. The entry is free when `is_active` is `false`, too.
    pub(crate) listener: Option<Listener>,
    /// `true` if accepts may be pending: over io_uring an accept is in flight; over epoll
    /// connections may wait, until an accept finds none.
    pub(crate) is_active: bool,
    /// `true` if new connections of the listener are refused.
    pub(crate) refuses: bool,
}

/// The listeners of one worker.
#[derive(Debug, Default)]
pub struct Listeners {
    pub(crate) all: Vec<ListeningSocket>,
    /// The time of the next attempt to accept, after an accept failed or the kernel ended a
    /// multishot accept; `None` if accepting goes on.
    pub(crate) again: Option<Instant>,
    /// `true` while the worker accepts no connections.
    pub(crate) is_held: bool,
    /// Accepted sockets that are not assigned to a worker yet.
    pub(crate) accepted: Vec<AcceptedConnection>,
}

impl Listeners {
    /// Puts a listener into a free entry of the table and returns the entry's index.
    pub(crate) fn add(&mut self, id: ListenerId, listener: Listener) -> usize {
        let listening =
            ListeningSocket { id, listener: Some(listener), is_active: false, refuses: false };
        let vacant = self.all.iter().position(|own| own.listener.is_none() && !own.is_active);
        match vacant {
            Some(n) => self.all[n] = listening,
            None => self.all.push(listening),
        }
        vacant.unwrap_or(self.all.len() - 1)
    }

    /// Returns the TLS settings of a listener's connections; `None` without TLS, or if it is
    /// closed.
    pub(crate) fn tls_of(&self, id: ListenerId) -> Option<Arc<ServerTls>> {
        let open = self.all.iter().filter(|listening| listening.id == id);
        open.filter_map(|listening| listening.listener.as_ref()).find_map(|own| own.tls.clone())
    }

    /// Sets whether a listener refuses new connections, including those whose handshake has begun.
    pub(crate) fn refuse(&mut self, id: ListenerId, refuses: bool) {
        for listening in self.all.iter_mut().filter(|listening| listening.id == id) {
            listening.refuses = refuses;
            if let Some(tls) = listening.listener.as_ref().and_then(|own| own.tls.as_ref()) {
                tls.shut(refuses);
            }
        }
    }
}
