//! Sockets change hands: out of one worker's table into the rack, and from there into another's.

use contract::{ConnId, Ticket};

use super::EpollSockets;
use super::conn::Phase;

impl EpollSockets {
    /// Whether nothing comes of the connection any more.
    pub(super) fn is_quiet(&self, id: ConnId) -> bool {
        let conn = self.conns.get(id.index as usize).filter(|c| c.generation == id.generation);
        let open = conn.is_some_and(|conn| conn.phase == Phase::Open && conn.paused);
        open && self.events.is_empty() && self.spread.is_some()
    }

    pub(super) fn put_into_rack(&mut self, id: ConnId, to: u16) -> Ticket {
        assert!(self.is_quiet(id), "only what is still is detached");
        let conn = &mut self.conns[id.index as usize];
        assert!(conn.queue.is_empty(), "all frames of what is detached have left");
        let socket = conn.socket.take().expect("an open connection has a socket");
        self.reactor.forget(&socket);
        conn.vacate();
        self.free.push(id.index);
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
                self.conns[index as usize].paused = true;
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
