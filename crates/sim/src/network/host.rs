//! A host of the network, and its ends of connections.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeBounds;

use contract::{Buf, CloseReason, ConnId, ListenerId, NetEvent};

use super::conn::{Conn, FillTarget, Phase};
use super::pipe::Pipe;
use crate::noticed_ends::ClientEnd;

/// The sizes of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSizes {
    /// The most connections at the same time.
    pub(crate) connections_max: usize,
    /// The most frames that wait to be sent, over all connections.
    pub(crate) frames_max: usize,
}

/// A host of the network: a worker's sockets, or a client's.
pub(super) struct Host {
    pub(super) address: SocketAddr,
    pub(super) sizes: HostSizes,
    pub(super) conns: Vec<Conn>,
    /// The indices in `conns` that no connection uses.
    pub(super) free: Vec<u32>,
    /// The number of frames queued on all connections.
    pub(super) frames: usize,
    /// The receive buffers that are not lent to the host's user; `buffers_max` counts all.
    pub(super) buffers: Vec<Buf>,
    pub(super) buffers_max: usize,
    pub(super) events: VecDeque<NetEvent>,
    /// The other ends of connections whose end was not polled yet.
    pub(super) parting: HashMap<ConnId, ClientEnd>,
    pub(super) listening: bool,
    /// The listener that the host dials.
    pub(super) dials: ListenerId,
    pub(super) failed_dials: u32,
    /// The server of its last dial.
    pub(super) last_server: Option<usize>,
}

impl Host {
    pub(super) fn new(
        address: SocketAddr,
        sizes: HostSizes,
        buffers: Vec<Buf>,
        listening: bool,
    ) -> Self {
        Host {
            address,
            sizes,
            conns: Vec::new(),
            free: Vec::new(),
            frames: 0,
            buffers_max: buffers.len(),
            buffers,
            events: VecDeque::new(),
            parting: HashMap::new(),
            listening,
            dials: ListenerId(0),
            failed_dials: 0,
            last_server: None,
        }
    }

    /// Returns the identifier of the connection at an index of `conns`.
    pub(super) fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.conns[index as usize].generation }
    }

    /// Returns the connection with this identifier; `None` if it has ended.
    pub(super) fn find(&mut self, id: ConnId) -> Option<&mut Conn> {
        let conn = self.conns.get_mut(id.index as usize)?;
        (conn.generation == id.generation && conn.phase != Phase::Vacant).then_some(conn)
    }

    /// Puts an end of a connection at a free index of `conns` and returns the index; `None` if the
    /// host has the maximum number of connections.
    pub(super) fn place(&mut self, phase: Phase, window: usize) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.conns.len() < self.sizes.connections_max => {
                self.conns.push(Conn::vacant());
                self.conns.len() as u32 - 1
            }
            None => return None,
        };
        let conn = &mut self.conns[index as usize];
        conn.phase = phase;
        conn.inbound = Pipe::new(window);
        Some(index)
    }

    /// Makes the next place to be used one whose last connection's end was polled. Places of
    /// accepted connections need not be such, since their events are polled in order.
    pub(super) fn prefer_seen_places(&mut self) {
        let ends = |event: &NetEvent, place| matches!(event, NetEvent::Closed { conn, .. } if conn.index == place);
        let is_seen = |&place: &u32| !self.events.iter().any(|event| ends(event, place));
        match self.free.iter().rposition(is_seen) {
            Some(n) => {
                let last = self.free.len() - 1;
                self.free.swap(n, last);
            }
            None if !self.free.is_empty() => {
                self.conns.push(Conn::vacant());
                self.free.push(self.conns.len() as u32 - 1);
            }
            None => {}
        }
    }

    /// Removes frames from the queue of a connection, the first or the last ones, and returns their
    /// bodies.
    pub(super) fn return_frames(&mut self, index: u32, which: impl RangeBounds<usize>) {
        let id = self.id(index);
        for frame in self.conns[index as usize].queue.drain(which) {
            self.frames -= 1;
            if let Some(buf) = frame.body {
                self.events.push_back(NetEvent::Sent { conn: id, buf });
            }
        }
    }

    /// Ends the send in flight, and returns the bodies of its frames.
    pub(super) fn complete_send(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        let sending = conn.sending.take().expect("a send was in flight");
        conn.unsent -= sending.bytes.len();
        self.return_frames(index, ..sending.frames);
    }

    /// Receives up to `most` bytes into their destination. Returns `true` if they filled it.
    pub(super) fn fill(&mut self, index: u32, target: FillTarget, most: usize) -> bool {
        let conn = self.id(index);
        let FillTarget { mut buf, at, until } = target;
        let len = most.min(until - at);
        self.conns[index as usize].inbound.read(&mut buf.prefix_mut(until)[at..at + len]);
        self.events.push_back(NetEvent::Filled { conn, buf, at, len });
        at + len == until
    }

    /// Gives back the buffer into which a connection was to receive, by an event without bytes.
    /// Returns `true` if there was one.
    pub(super) fn release_target(&mut self, index: u32) -> bool {
        let conn = self.id(index);
        let target = self.conns[index as usize].target.take();
        let had = target.is_some();
        self.events.extend(target.map(|FillTarget { buf, at, .. }| NetEvent::Filled {
            conn,
            buf,
            at,
            len: 0,
        }));
        had
    }

    /// Closes a connection that has nothing in flight any more.
    pub(super) fn let_go(&mut self, index: u32, reason: CloseReason) {
        let id = self.id(index);
        if self.conns[index as usize].sending.is_some() {
            self.complete_send(index);
        }
        let conn = &mut self.conns[index as usize];
        assert!(conn.queue.is_empty(), "frames of a closed connection are returned");
        self.parting.extend(conn.peer.map(|near| (id, near)));
        conn.vacate();
        self.free.push(index);
        self.events.push_back(NetEvent::Closed { conn: id, reason });
    }

    /// Drops received bytes that were not polled.
    pub(super) fn drop_received(&mut self) {
        for event in std::mem::take(&mut self.events) {
            match event {
                NetEvent::Received { buf, .. } => self.buffers.push(buf),
                event => self.events.push_back(event),
            }
        }
    }

    /// Returns the number of the host's connections, including those that are dialling or closing.
    pub(super) fn connections(&self) -> usize {
        self.conns.iter().filter(|conn| conn.phase != Phase::Vacant).count()
    }

    /// Returns `true` if every receive buffer is back, no frame is queued and no event waits.
    pub(super) fn is_at_rest(&self) -> bool {
        self.buffers.len() == self.buffers_max && self.frames == 0 && self.events.is_empty()
    }

    /// Describes why the host is not at rest, for a failure's message.
    pub(super) fn describe(&self) -> String {
        let mut text = format!(
            "{}: {} of {} receive buffers, {} frames, {} events",
            self.address,
            self.buffers.len(),
            self.buffers_max,
            self.frames,
            self.events.len()
        );
        for (index, conn) in self.conns.iter().enumerate() {
            if conn.phase != Phase::Vacant {
                text += &format!(
                    "\n  conn {index}.{}: {:?}{}{} peer {:?}, {} queued, {} unsent, in {}",
                    conn.generation,
                    conn.phase,
                    if conn.paused { " paused" } else { "" },
                    if conn.inbound.dark { " dark" } else { "" },
                    conn.peer,
                    conn.queue.len(),
                    conn.unsent,
                    conn.inbound.describe()
                );
            }
        }
        text
    }
}
