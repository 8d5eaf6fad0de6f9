//! Connections that move between workers: from one worker's table through the socket table into
//! another's.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use contract::{ConnId, Migrate, Ticket};

use crate::ConnectionBalancer;

use super::{ConnState, ConnectionLifecycle, ConnectionPhase, Kernel, ReceiveFlow, SocketsOver};

impl<K: Kernel> SocketsOver<K> {
    /// Stops receiving from a connection and sets its flow to `flow`.
    pub(super) fn stop_reading(&mut self, id: ConnId, flow: ReceiveFlow) {
        let Some(found) = self.table.find_mut(id) else { return };
        let was = std::mem::replace(&mut found.flow, flow);
        self.kernel.stop(&mut self.table, id.index, was == ReceiveFlow::Reading);
    }
}

impl<K: Kernel> Migrate for SocketsOver<K> {
    /// Returns whether a connection can move to worker `to`. One with TLS cannot if `to` stands for
    /// the hand-over to another process, as its keys cannot be passed.
    fn moves_to(&self, conn: ConnId, to: u16) -> bool {
        let is_secured = self.table.find(conn).is_some_and(|found| found.secured.is_some());
        let stays_here = |(spread, _): &(Arc<ConnectionBalancer>, usize)| {
            usize::from(to) < spread.hand_over_number()
        };
        !is_secured || self.table.spread.as_ref().is_some_and(stays_here)
    }

    fn still(&mut self, conn: ConnId) {
        self.stop_reading(conn, ReceiveFlow::Stilled);
    }

    fn is_still(&self, conn: ConnId) -> bool {
        let nothing_comes = self.table.find(conn).is_some_and(|found| {
            let is_held_back =
                found.phase == ConnectionPhase::Open && found.flow != ReceiveFlow::Reading;
            is_held_back && found.kernel.is_idle()
        });
        nothing_comes && self.table.events.is_empty() && self.table.spread.is_some()
    }

    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket {
        assert!(self.is_still(conn), "only what is still is detached");
        let found = &mut self.table[conn.index];
        let sends = found.kernel.is_busy() || !found.queue.is_empty();
        assert!(!sends, "all frames of what is detached have left");
        let socket = found.socket.take().expect("an open connection has a socket");
        let secured = found.secured.take();
        self.kernel.unregister(conn.index, &socket);
        self.table.vacate(conn.index);
        tracing::trace!(fd = socket.as_raw_fd(), to, "detached");
        let (spread, me) = self.table.spread.as_ref().expect("is_still() looked");
        spread.shelve(socket, secured, *me, usize::from(to))
    }

    fn attach(&mut self, ticket: Ticket) -> Option<ConnId> {
        if self.table.is_full() {
            return None;
        }
        let (spread, me) = self.table.spread.clone().expect("tickets are for workers of a spread");
        let mut shelved = spread.fetch(ticket, me);
        match self.kernel.place(&mut self.table, shelved.socket, ConnectionPhase::Open) {
            Ok(index) => {
                self.table[index].secured = shelved.secured;
                self.table[index].flow = ReceiveFlow::Stilled;
                Some(self.table.id(index))
            }
            Err(socket) => {
                shelved.socket = socket;
                spread.shelve_again(ticket, shelved);
                None
            }
        }
    }
}
