//! The migration of connections between hosts: sockets of one worker become another worker's.

use contract::{ConnId, NetEvent, Ticket};

use super::conn::{Conn, Phase};
use super::{Network, TABLE};
use crate::marks::Mark;

impl Network {
    /// Returns `true` if the host's connection is open and paused, and no event of it is unpolled.
    pub(super) fn is_still(&mut self, host: usize, id: ConnId) -> bool {
        let waits = |event: &NetEvent| {
            matches!(event, NetEvent::Received { conn, .. } | NetEvent::Filled { conn, .. }
                | NetEvent::Sent { conn, .. } if *conn == id)
        };
        let unread = self.hosts[host].events.iter().any(waits);
        self.find(host, id).is_some_and(|conn| conn.phase == Phase::Open && conn.paused && !unread)
    }

    /// Takes an end of a connection out of its host. Returns the ticket for `attach`.
    pub(super) fn detach(&mut self, host: usize, id: ConnId) -> Ticket {
        let conn = self.find(host, id).expect("only an open connection is detached");
        assert!(conn.phase == Phase::Open && conn.paused, "it is still");
        assert!(conn.queue.is_empty() && conn.sending.is_none(), "all its frames have left");
        let generation = conn.generation.wrapping_add(1);
        let moved = std::mem::replace(conn, Conn { generation, ..Conn::vacant() });
        self.hosts[host].free.push(id.index);
        let there = self.place(TABLE, Phase::Open).expect("the socket table is large");
        self.settle_at(TABLE, there, moved);
        self.marks.hit(Mark::Detached);
        let ConnId { index, generation } = self.id(TABLE, there);
        let ticket = Ticket(u64::from(generation) << 32 | u64::from(index));
        self.say(host, id, &format_args!("is detached: {ticket:?}"));
        ticket
    }

    /// Makes a detached end a connection of this host; `None` if there is no free place.
    pub(super) fn attach(&mut self, host: usize, ticket: Ticket) -> Option<ConnId> {
        let there = ConnId { index: ticket.0 as u32, generation: (ticket.0 >> 32) as u32 };
        assert!(self.find(TABLE, there).is_some(), "a ticket is used once");
        self.hosts[host].prefer_seen_places();
        let index = self.place(host, Phase::Open)?;
        let in_table = &mut self.hosts[TABLE].conns[there.index as usize];
        let generation = in_table.generation.wrapping_add(1);
        let moved = std::mem::replace(in_table, Conn { generation, ..Conn::vacant() });
        self.hosts[TABLE].free.push(there.index);
        self.settle_at(host, index, moved);
        let id = self.id(host, index);
        self.say(host, id, &format_args!("is attached: {ticket:?}"));
        Some(id)
    }

    /// Puts a moved end of a connection at a new index of the host, and tells the other end.
    fn settle_at(&mut self, host: usize, index: u32, moved: Conn) {
        let generation = self.hosts[host].conns[index as usize].generation;
        let peer = moved.peer;
        self.hosts[host].conns[index as usize] = Conn { generation, ..moved };
        if let Some((far, id)) = peer {
            let near = self.id(host, index);
            if let Some(other) = self.find(far, id) {
                other.peer = Some((host, near));
            }
        }
    }
}
