//! The connection table of one worker: places, identifiers, queued frames and events.
//!
//! Every kernel interface uses this table. Besides the common state, each place has the interface's
//! state of the connection ([`ConnState`]). This module deliberately leaves out system calls.

use std::ops::{Index, IndexMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use contract::{Buf, CloseReason, ConnId, Frame, Instant, NetEvent, TenantId};

use crate::tls::{ClientHandshakes, RecordBuffers, TlsState};
use crate::{ConnectionBalancer, Endpoint};

/// Stands for no frame where an index in a [`FrameStore`] is expected.
const NONE: u32 = u32::MAX;

/// The phase of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// The kernel connects. The result of the connect ends the state.
    Dialling,
    /// Another thread does the TLS handshake. The end of the handshake ends the state.
    Greeting,
    /// The connection sends and receives.
    Open,
    /// Queued frames are sent, then the sending side is shut. The peer's close or the deadline ends
    /// the state.
    Finishing,
    /// The connection has ended, but operations are in flight. The last completion ends the state.
    Closing(CloseReason),
}

/// The flow of a connection's incoming bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveFlow {
    /// Bytes are received as soon as they arrive.
    Reading,
    /// Back-pressure: no bytes are received, but the connection's end is noticed.
    Paused,
    /// The connection is about to change workers: the kernel does nothing for it.
    Stilled,
}

/// The kernel interface's state of one connection. The default value is that of a vacant place.
pub trait ConnState: Default {
    /// Clears the connection's state; the place stays in the lists that it is in.
    fn vacate(&mut self);

    /// Returns whether an operation of the connection is in flight in the kernel.
    fn is_busy(&self) -> bool;

    /// Returns the number of queued frames, the first ones, that a send in flight refers to.
    fn carried(&self) -> usize;

    /// Returns whether the kernel accepts a send now.
    fn may_send(&self) -> bool;

    /// Returns whether neither a receive nor a watch of the connection is in flight.
    fn is_idle(&self) -> bool;
}

/// A place in the table of connections, vacant or with a connection.
pub struct Conn<P> {
    /// Number of connections that used the place before.
    pub(crate) generation: u32,
    /// The socket; `None` in a vacant place.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) phase: ConnectionPhase,
    pub(crate) flow: ReceiveFlow,
    /// `true` if this process opened the connection, which therefore is not included in the number
    /// of accepted connections.
    pub(crate) is_dialled: bool,
    /// `true` if the place is in the table's list `ready` of connections to send on.
    pub(crate) is_ready: bool,
    pub(crate) queue: FrameQueue,
    /// Bytes of the queued frames that the kernel has not taken.
    pub(crate) unsent: usize,
    /// Number of queued frames.
    frames: u32,
    /// The number of the account to which the frames are charged.
    account: u32,
    /// The keys of a TLS connection; `None` without TLS.
    pub(crate) secured: Option<Box<TlsState>>,
    /// The state that the kernel interface keeps.
    pub(crate) kernel: P,
}

impl<P: ConnState> Conn<P> {
    fn vacant() -> Conn<P> {
        Conn {
            generation: 0,
            socket: None,
            phase: ConnectionPhase::Closing(CloseReason::Local),
            flow: ReceiveFlow::Reading,
            is_dialled: false,
            is_ready: false,
            queue: FrameQueue::EMPTY,
            unsent: 0,
            frames: 0,
            account: 0,
            secured: None,
            kernel: P::default(),
        }
    }

    /// Returns whether frames may be sent and bytes received.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Open | ConnectionPhase::Finishing)
    }

    /// Returns whether to receive: the connection is live and not paused.
    pub(crate) fn is_read(&self) -> bool {
        self.is_live() && self.flow == ReceiveFlow::Reading
    }

    /// Returns whether a send is possible now: the connection is live, frames are queued and the
    /// kernel accepts them.
    pub(crate) fn wants_send(&self) -> bool {
        self.is_live() && !self.queue.is_empty() && self.kernel.may_send()
    }

    /// Returns the socket of an occupied place.
    pub(crate) fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("an occupied place has a socket")
    }

    /// Frees the place in the table for a next connection, whose identifier has the next
    /// generation.
    fn vacate(&mut self) {
        debug_assert!(self.secured.is_none(), "its keys have been taken");
        assert!(self.queue.is_empty(), "frames of a closed connection are returned");
        self.kernel.vacate();
        self.generation = self.generation.wrapping_add(1);
        self.socket = None;
        self.phase = ConnectionPhase::Closing(CloseReason::Local);
        self.flow = ReceiveFlow::Reading;
        self.is_dialled = false;
        (self.unsent, self.account) = (0, 0);
    }
}

/// The connections of one worker, their queued frames, and the events for the worker.
pub struct ConnTable<P> {
    conns: Vec<Conn<P>>,
    /// Indices of the vacant places of `conns`.
    free: Vec<u32>,
    connections_max: usize,
    pub(crate) frames: FrameStore,
    /// Number of queued frames of each account, by the account's number.
    accounts: Vec<u32>,
    pub(crate) events: Vec<NetEvent>,
    /// Indices of connections with frames that the kernel may accept.
    pub(crate) ready: Vec<u32>,
    /// The distribution of connections over workers, and this worker's number in it; `None` if
    /// there is no other worker.
    pub(crate) spread: Option<(Arc<ConnectionBalancer>, usize)>,
    /// The server to dial; `None` before `dial_to`. The greeter, if dials use TLS, does their
    /// handshakes.
    pub(crate) server: Option<Endpoint>,
    pub(crate) greeter: Option<ClientHandshakes>,
    /// Buffers for TLS records that arrive in pieces.
    pub(crate) spares: RecordBuffers,
    pub(crate) now: Instant,
}

impl<P: ConnState> ConnTable<P> {
    /// Returns an empty table for at most `connections_max` connections and `frames_max` frames,
    /// with room for `events` events, which may be exceeded.
    pub(crate) fn new(connections_max: usize, frames_max: usize, events: usize) -> ConnTable<P> {
        ConnTable {
            conns: Vec::new(),
            free: Vec::new(),
            connections_max,
            frames: FrameStore::new(frames_max),
            accounts: vec![0],
            events: Vec::with_capacity(events),
            ready: Vec::with_capacity(1024),
            spread: None,
            server: None,
            greeter: None,
            spares: RecordBuffers::default(),
            now: Instant::ZERO,
        }
    }

    /// Returns whether every place is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.conns.len() == self.connections_max
    }

    /// Takes a vacant place and returns its index; `None` if there is none. The caller must put a
    /// connection into the place or call `give_back`.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.conns.len() == self.connections_max {
            return None;
        }
        self.conns.push(Conn::vacant());
        Some(self.conns.len() as u32 - 1)
    }

    /// Makes a place vacant again that was reserved but not used.
    pub(crate) fn give_back(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Puts a socket into a reserved place.
    pub(crate) fn occupy(&mut self, index: u32, socket: OwnedFd, phase: ConnectionPhase) {
        let conn = &mut self[index];
        assert!(conn.socket.is_none(), "the place was free");
        conn.socket = Some(socket);
        conn.phase = phase;
    }

    /// Frees the place of a closed connection for another one.
    pub(crate) fn vacate(&mut self, index: u32) {
        if let Some(mut secured) = self[index].secured.take()
            && let Some(carry) = secured.drop_carry()
        {
            self.spares.put(carry);
        }
        self[index].vacate();
        self.free.push(index);
    }

    /// Subtracts an accepted connection, which has ended, from the count of this worker.
    pub(crate) fn uncount(&self) {
        if let Some((spread, me)) = &self.spread {
            spread.gone(*me);
        }
    }

    /// Returns the identifier of the connection at `index`.
    pub(crate) fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self[index].generation }
    }

    /// Returns the connection with this identifier; `None` if it was closed.
    pub(crate) fn find(&self, id: ConnId) -> Option<&Conn<P>> {
        let found = self.conns.get(id.index as usize)?;
        (found.generation == id.generation && found.socket.is_some()).then_some(found)
    }

    /// Returns the connection with this identifier for changes; `None` if it was closed.
    pub(crate) fn find_mut(&mut self, id: ConnId) -> Option<&mut Conn<P>> {
        let found = self.conns.get_mut(id.index as usize)?;
        (found.generation == id.generation && found.socket.is_some()).then_some(found)
    }

    /// Queues a frame. If the connection is gone, the frame's body returns at once.
    pub(crate) fn send(&mut self, id: ConnId, frame: Frame) {
        let bytes = frame.wire_bytes();
        match self.conns.get_mut(id.index as usize) {
            Some(found) if found.generation == id.generation && found.is_live() => {
                found.unsent += bytes;
                found.frames += 1;
                self.accounts[found.account as usize] += 1;
                self.frames.push(&mut found.queue, frame);
                self.mark_ready(id.index);
            }
            _ => self.sent(id, frame.body),
        }
    }

    /// Adds a connection that may send to the list of connections to send on.
    pub(crate) fn mark_ready(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if conn.wants_send() && !std::mem::replace(&mut conn.is_ready, true) {
            self.ready.push(index);
        }
    }

    /// Removes the connection's `count` oldest frames, which were sent, and returns their bodies to
    /// the sender by events.
    pub(crate) fn pop_sent(&mut self, index: u32, count: usize) {
        let found = &mut self.conns[index as usize];
        let conn = ConnId { index, generation: found.generation };
        for _ in 0..count {
            if let Some(buf) = self.frames.pop_body(&mut found.queue) {
                self.events.push(NetEvent::Sent { conn, buf });
            }
        }
        found.frames -= count as u32;
        self.accounts[found.account as usize] -= count as u32;
    }

    /// Charges the frames of a connection to another account.
    pub(crate) fn charge(&mut self, id: ConnId, account: TenantId) {
        let to = account.0 as usize;
        if to >= self.accounts.len() {
            self.accounts.resize(to + 1, 0);
        }
        let Some(conn) = self.conns.get_mut(id.index as usize) else { return };
        if conn.generation == id.generation {
            self.accounts[conn.account as usize] -= conn.frames;
            self.accounts[to] += conn.frames;
            conn.account = account.0;
        }
    }

    /// Returns how many frames are queued for an account.
    #[inline]
    pub(crate) fn queued(&self, account: TenantId) -> usize {
        self.accounts.get(account.0 as usize).map_or(0, |frames| *frames as usize)
    }

    /// Removes the connection's queued frames to which no send in flight refers, and returns their
    /// bodies by events.
    pub(crate) fn drop_frames(&mut self, index: u32) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        let carried = conn.kernel.carried();
        let mut kept = FrameQueue::EMPTY;
        let mut waiting = std::mem::replace(&mut conn.queue, FrameQueue::EMPTY);
        for n in 0.. {
            let Some(frame) = self.frames.pop(&mut waiting) else { break };
            if n < carried {
                // A send in flight points to the frame's body, which stays where it is.
                self.frames.push(&mut kept, frame);
            } else {
                let conn = &mut self.conns[index as usize];
                conn.frames -= 1;
                self.accounts[conn.account as usize] -= 1;
                self.sent(id, frame.body);
            }
        }
        self[index].queue = kept;
    }

    fn sent(&mut self, conn: ConnId, body: Option<Buf>) {
        if let Some(buf) = body {
            self.events.push(NetEvent::Sent { conn, buf });
        }
    }

    /// Adds events for received bytes, decrypted first on a TLS connection. Returns the receive
    /// buffer if it has no bytes for the session, and the reason if the connection has ended.
    pub(crate) fn received(
        &mut self,
        index: u32,
        buf: Buf,
        len: usize,
    ) -> (Option<Buf>, Option<CloseReason>) {
        if self[index].secured.is_some() {
            return self.open(index, buf, len);
        }
        let conn = self.id(index);
        self.events.push(NetEvent::Received { conn, buf, len });
        (None, None)
    }

    /// Decrypts received bytes of a TLS connection and adds events for the data, as
    /// [`received`](ConnTable::received) does.
    fn open(&mut self, index: u32, buf: Buf, len: usize) -> (Option<Buf>, Option<CloseReason>) {
        let conn = self.id(index);
        let secured = self.conns[index as usize].secured.as_mut().expect("the caller looked");
        match secured.take(&mut self.spares, buf, len) {
            Ok(taken) => {
                for (buf, len) in taken.joined.into_iter().chain(taken.opened) {
                    self.events.push(NetEvent::Received { conn, buf, len });
                }
                (taken.spent, taken.is_closed.then_some(CloseReason::Peer))
            }
            Err((buf, why)) => (Some(buf), Some(CloseReason::Insecure(why))),
        }
    }

    /// Returns whether received bytes of the connection wait among the events.
    pub(crate) fn has_received(&self, id: ConnId) -> bool {
        let is_its =
            |event: &NetEvent| matches!(event, NetEvent::Received { conn, .. } if *conn == id);
        self.events.iter().any(is_its)
    }
}

impl<P> Index<u32> for ConnTable<P> {
    type Output = Conn<P>;

    fn index(&self, index: u32) -> &Conn<P> {
        &self.conns[index as usize]
    }
}

impl<P> IndexMut<u32> for ConnTable<P> {
    fn index_mut(&mut self, index: u32) -> &mut Conn<P> {
        &mut self.conns[index as usize]
    }
}

/// A buffer whose bytes from `at` to `until` are received next.
#[derive(Debug)]
pub struct ReceiveTarget {
    pub(crate) buf: Buf,
    pub(crate) at: usize,
    pub(crate) until: usize,
    /// Number of bytes that have arrived through another receive, which was in flight.
    pub(crate) came: usize,
}

impl ReceiveTarget {
    /// Makes the event that returns the buffer to the caller, with `len` received bytes from `at`
    /// on.
    pub(crate) fn filled(self, conn: ConnId, len: usize) -> NetEvent {
        NetEvent::Filled { conn, buf: self.buf, at: self.at, len }
    }
}

/// A connection's frames, oldest first: a linked list through a [`FrameStore`].
#[derive(Debug)]
pub(crate) struct FrameQueue {
    head: u32,
    tail: u32,
}

impl FrameQueue {
    pub(crate) const EMPTY: FrameQueue = FrameQueue { head: NONE, tail: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// Memory for a fixed number of frames. A frame does not move until it is popped, so a send in
/// flight may refer to it.
#[derive(Debug)]
pub(crate) struct FrameStore {
    places: Box<[FrameEntry]>,
    /// Index of the first free place; the free places are linked through `next`.
    free: u32,
    room: usize,
}

#[derive(Debug)]
struct FrameEntry {
    frame: Option<Frame>,
    next: u32,
}

impl FrameStore {
    pub(crate) fn new(capacity: usize) -> Self {
        let places = (0..capacity as u32)
            .map(|n| FrameEntry {
                frame: None,
                next: if n + 1 < capacity as u32 { n + 1 } else { NONE },
            })
            .collect();
        FrameStore { places, free: if capacity == 0 { NONE } else { 0 }, room: capacity }
    }

    pub(crate) fn room(&self) -> usize {
        self.room
    }

    pub(crate) fn push(&mut self, queue: &mut FrameQueue, frame: Frame) {
        let n = self.free;
        assert!(n != NONE, "send() was called without asking for room()");
        let place = &mut self.places[n as usize];
        self.free = place.next;
        place.frame = Some(frame);
        place.next = NONE;
        match queue.tail {
            NONE => queue.head = n,
            tail => self.places[tail as usize].next = n,
        }
        queue.tail = n;
        self.room -= 1;
    }

    pub(crate) fn pop(&mut self, queue: &mut FrameQueue) -> Option<Frame> {
        if queue.head == NONE {
            return None;
        }
        let n = queue.head;
        let place = &mut self.places[n as usize];
        let frame = place.frame.take().expect("a queued place holds a frame");
        queue.head = place.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        place.next = self.free;
        self.free = n;
        self.room += 1;
        Some(frame)
    }

    /// Removes the oldest frame of `queue`, and returns its body; `None` if the frame has none.
    ///
    /// # Panics
    /// Panics if the queue is empty.
    #[inline]
    pub(crate) fn pop_body(&mut self, queue: &mut FrameQueue) -> Option<Buf> {
        let n = queue.head;
        let place = &mut self.places[n as usize];
        let body = place.frame.as_mut().expect("a queued place holds a frame").body.take();
        place.frame = None;
        queue.head = std::mem::replace(&mut place.next, self.free);
        if queue.head == NONE {
            queue.tail = NONE;
        }
        self.free = n;
        self.room += 1;
        body
    }

    /// Returns the oldest frame of `queue`; `None` if the queue is empty.
    pub(crate) fn front(&self, queue: &FrameQueue) -> Option<&Frame> {
        self.places.get(queue.head as usize)?.frame.as_ref()
    }

    /// Returns the frames of `queue`, oldest first.
    pub(crate) fn iter<'a>(&'a self, queue: &FrameQueue) -> impl Iterator<Item = &'a Frame> {
        let mut at = queue.head;
        std::iter::from_fn(move || {
            let place = self.places.get(at as usize)?;
            at = place.next;
            place.frame.as_ref()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::FrameHead;

    #[test]
    fn queues_share_the_store_and_keep_their_order() {
        let mut store = FrameStore::new(3);
        let (mut a, mut b) = (FrameQueue::EMPTY, FrameQueue::EMPTY);
        let frame = |n: u8| Frame::bare(FrameHead::new(&[n]));
        store.push(&mut a, frame(1));
        store.push(&mut b, frame(2));
        store.push(&mut a, frame(3));
        assert_eq!(store.room(), 0);
        let heads: Vec<u8> = store.iter(&a).map(|f| f.head.bytes()[0]).collect();
        assert_eq!(heads, [1, 3]);
        assert_eq!(store.front(&a).unwrap().head.bytes(), [1]);
        assert_eq!(store.pop(&mut a).unwrap().head.bytes(), [1]);
        store.push(&mut b, frame(4));
        let rest: Vec<u8> =
            std::iter::from_fn(|| store.pop(&mut b)).map(|f| f.head.bytes()[0]).collect();
        assert_eq!(rest, [2, 4]);
        assert_eq!(store.pop(&mut a).unwrap().head.bytes(), [3]);
        assert!(a.is_empty() && b.is_empty());
        assert!(store.front(&a).is_none());
        assert_eq!(store.room(), 3);
    }
}
