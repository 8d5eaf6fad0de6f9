//! Sockets change hands: out of one worker's table into the rack, and from there into another's.

use std::os::fd::AsRawFd;

use contract::{ConnId, Ticket};

use super::Sockets;
use super::conn::{Operation, Phase, Receiving};

impl Sockets {
    /// Cancels what the kernel does for a connection without being asked again.
    pub(super) fn quieten(&mut self, id: ConnId) {
        let Some(conn) = self.find(id) else { return };
        let was_paused = std::mem::replace(&mut conn.paused, true);
        conn.is_stilled = true;
        let receives = conn.receiving != Receiving::Idle && !was_paused;
        let is_watched = conn.is_watched;
        if receives {
            self.cancel(id.index, Operation::Receive);
        }
        if is_watched {
            self.cancel(id.index, Operation::Watch);
        }
    }

    /// Whether the kernel has nothing of the connection but what we send.
    pub(super) fn is_quiet(&self, id: ConnId) -> bool {
        let conn = self.conns.get(id.index as usize).filter(|c| c.generation == id.generation);
        let receives_not = conn.is_some_and(|conn| {
            let idle = conn.receiving == Receiving::Idle && !conn.is_watched;
            conn.phase == Phase::Open && conn.paused && idle
        });
        receives_not && self.events.is_empty() && self.spread.is_some()
    }

    pub(super) fn put_into_rack(&mut self, id: ConnId, to: u16) -> Ticket {
        assert!(self.is_quiet(id), "only what is still is detached");
        let conn = &mut self.conns[id.index as usize];
        let sends = conn.sending.is_some() || !conn.queue.is_empty();
        assert!(!sends, "all frames of what is detached have left");
        let socket = conn.socket.take().expect("an open connection has a socket");
        // Fails only for a place outside the table, which `place` would have refused.
        let _ = self.ring.with_submitter(|s| s.register_files_update(id.index, &[-1]));
        conn.vacate();
        self.free.push(id.index);
        tracing::trace!(fd = socket.as_raw_fd(), to, "detached");
        let (spread, me) = self.spread.as_ref().expect("is_quiet() looked");
        spread.shelve(socket, *me, usize::from(to))
    }

    pub(super) fn take_from_rack(&mut self, ticket: Ticket) -> Option<ConnId> {
        if self.free.is_empty() && self.conns.len() == self.config.connections_max {
            return None;
        }
        let (spread, me) = self.spread.clone().expect("tickets are for those who have a rack");
        let mut shelved = spread.fetch(ticket, me);
        match self.place(shelved.socket, Phase::Open) {
            Ok(index) => {
                let conn = &mut self.conns[index as usize];
                (conn.paused, conn.is_stilled) = (true, true);
                Some(self.id(index))
            }
            Err(socket) => {
                shelved.socket = socket;
                spread.shelve_again(ticket, shelved);
                None
            }
        }
    }
}
