//! A network in memory. Its simulated peers send the next request when they have received a reply.

use std::net::SocketAddr;

use contract::{
    Buf, ConnId, Frame, Instant, ListenerId, Migrate, NetEvent, Peer, Streams, Ticket, Transport,
};

use crate::{BATCH, HEAD_BYTES, address, hello, requests};

/// A transport in memory, with one connection of a simulated peer for each tenant.
#[derive(Debug)]
pub(crate) struct Memory {
    conns: Vec<Conn>,
    /// Indices of connections whose peers may send requests, in the order in which they became
    /// ready.
    ready: Vec<usize>,
    events: Vec<NetEvent>,
    pub(crate) answered: u64,
}

#[derive(Debug)]
struct Conn {
    /// The buffer with the heads of as many requests as may be in flight; `None` while the worker
    /// has it.
    requests: Option<Buf>,
    /// Number of requests that the peer may send now: the depth less the requests in flight.
    credit: usize,
    is_ready: bool,
}

impl Memory {
    pub(crate) fn new(conns: usize, depth: usize) -> Memory {
        let open = |index| {
            NetEvent::opened(
                ConnId { index, generation: 0 },
                Peer::Internet(SocketAddr::new(address(index), 1)),
                Some(ListenerId(0)),
            )
        };
        let mut events: Vec<NetEvent> = (0..conns as u32).map(open).collect();
        for index in 0..conns as u32 {
            let hello = Buf::new(Box::leak(hello().into()), u32::MAX);
            let conn = ConnId { index, generation: 0 };
            events.push(NetEvent::Received { conn, buf: hello, len: 48 });
        }
        let conn = |index| Conn {
            requests: Some(Buf::new(Box::leak(requests(depth).into()), index as u32)),
            credit: depth,
            is_ready: true,
        };
        let conns: Vec<Conn> = (0..conns).map(conn).collect();
        Memory { ready: (0..conns.len()).collect(), conns, events, answered: 0 }
    }
}

impl Streams for Memory {
    fn poll(&mut self, _: Instant, events: &mut Vec<NetEvent>, _: usize) {
        events.append(&mut self.events);
        let mut wanted = BATCH;
        let mut seen = 0;
        while seen < self.ready.len() && wanted > 0 {
            let index = self.ready[seen];
            let conn = &mut self.conns[index];
            let Some(buf) = conn.requests.take() else { break };
            let count = conn.credit.min(wanted);
            conn.credit -= count;
            conn.is_ready = false;
            wanted -= count;
            seen += 1;
            let conn = ConnId { index: index as u32, generation: 0 };
            events.push(NetEvent::Received { conn, buf, len: count * HEAD_BYTES });
        }
        self.ready.drain(..seen);
    }

    fn give(&mut self, buf: Buf) {
        // The hello's buffer is nobody's.
        if let Some(conn) = self.conns.get_mut(buf.index() as usize) {
            conn.requests = Some(buf);
            if conn.credit > 0 && !conn.is_ready {
                // More than the batch took.
                conn.is_ready = true;
                self.ready.push(buf_owner(conn));
            }
        }
    }

    fn room(&self) -> usize {
        usize::MAX / 2
    }

    fn send(&mut self, _: Instant, id: ConnId, frame: Frame) {
        let Some(buf) = frame.body else { return };
        assert!(frame.body_len == 4096, "a read was refused");
        self.answered += 1;
        self.events.push(NetEvent::Sent { conn: id, buf });
        let conn = &mut self.conns[id.index as usize];
        conn.credit += 1;
        if !conn.is_ready && conn.requests.is_some() {
            conn.is_ready = true;
            self.ready.push(id.index as usize);
        }
    }

    fn kick(&mut self, _: Instant) {}
    fn close(&mut self, conn: ConnId) {
        panic!("the worker closed {conn:?}");
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

crate::takes_all_at_once!(Memory);

fn buf_owner(conn: &Conn) -> usize {
    conn.requests.as_ref().expect("it was just given back").index() as usize
}
