//! The port to the network.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use crate::{Buf, CompletedPrelude, Instant, Mac, TenantId, TlsFailure};

/// The identifier of a connection of one worker. The generation distinguishes successive
/// connections of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Index in the transport's table: small, reused.
    pub index: u32,
    /// Number of times that the index was used before.
    pub generation: u32,
}

/// The identifier of a listener for workers: its place in the low 16 bits, and above them the
/// number of listeners that had the place before. At the start a listener's place is its position
/// in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

impl ListenerId {
    /// Returns the identifier of a place's listener that had `generation` predecessors there.
    pub fn new(place: u16, generation: u16) -> ListenerId {
        ListenerId(u32::from(generation) << 16 | u32::from(place))
    }

    /// Returns the listener's place: small, given again when the listener is gone.
    pub fn place(self) -> u16 {
        self.0 as u16
    }

    /// Returns the number of listeners that had the place before.
    pub fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A host on the network.
    Internet(SocketAddr),
    /// A host on the network, in packets instead of a stream.
    Packets(SocketAddr),
    /// A process of this machine, through a Unix socket.
    Local {
        /// The user identifier of the process.
        uid: u32,
    },
    /// A process behind a network card of the local segment, in packets.
    Ethernet {
        /// The address of the card, which anybody in the segment may forge.
        mac: Mac,
        /// The port of the process.
        port: u16,
    },
}

impl Peer {
    /// Returns the peer's IP address and port; `None` for a peer at a Unix socket or network card.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Peer::Internet(address) | Peer::Packets(address) => Some(*address),
            Peer::Local { .. } | Peer::Ethernet { .. } => None,
        }
    }

    /// Returns the name of the transport by which the peer came.
    pub fn transport(&self) -> &'static str {
        match self {
            Peer::Internet(_) => "tcp",
            Peer::Packets(_) => "udp",
            Peer::Local { .. } => "unix",
            Peer::Ethernet { .. } => "eth",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Internet(address) | Peer::Packets(address) => address.fmt(f),
            Peer::Local { uid } => write!(f, "local uid {uid}"),
            Peer::Ethernet { mac, port } => write!(f, "ethernet {mac} port {port}"),
        }
    }
}

/// The identifier of a socket that is moving from one worker to another, in the table of moving
/// sockets that their transports share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// The reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer closed the connection.
    Peer,
    /// The peer reset the connection, or the network failed (the number is the system's error).
    Reset(i32),
    /// The local end closed the connection by [`Streams::close`].
    Local,
    /// A dial failed (the number is the system's error).
    Unreachable(i32),
    /// TLS failed, during the handshake or later.
    Insecure(TlsFailure),
}

/// An event of the network.
#[derive(Debug)]
pub enum NetEvent {
    /// A connection is open: accepted or dialled.
    Opened {
        /// The connection's identifier from now on.
        conn: ConnId,
        /// The address of the peer that the connection leads to.
        peer: Peer,
        /// The listener that accepted the connection; `None` for a dialled connection.
        listener: Option<ListenerId>,
        /// The negotiation in the clear that a [`Prelude`](crate::Prelude) ended before the session
        /// begins; `None` if there was none.
        opening: Option<Box<CompletedPrelude>>,
    },
    /// Bytes arrived. `buf` is lent: the receiver of the event returns it with [`Streams::give`]
    /// after processing the bytes.
    Received {
        /// The connection that the bytes arrived on.
        conn: ConnId,
        /// The buffer, whose first `len` bytes have arrived.
        buf: Buf,
        /// Number of bytes that have arrived in the buffer.
        len: usize,
    },
    /// A [`Streams::receive_into`] has ended: its buffer, with bytes or without. `len` is smaller
    /// than requested if no more bytes had arrived. `len` is zero if the connection was paused, was
    /// asked to stop receiving, or ends.
    Filled {
        /// The connection whose bytes were to be received.
        conn: ConnId,
        /// The buffer that was lent.
        buf: Buf,
        /// Offset of the bytes in the buffer, as requested.
        at: usize,
        /// Number of bytes that were received into the buffer.
        len: usize,
    },
    /// The body of a frame has left; its buffer returns to the pool that it came from.
    Sent {
        /// The connection on which the frame was sent.
        conn: ConnId,
        /// The buffer with the frame's body.
        buf: Buf,
    },
    /// The connection is gone, and no further event of it follows. All buffers of its frames have
    /// come back in `Sent`, and a buffer to receive into in `Filled`. Its index may be reused.
    ///
    /// A peer that shuts its sending direction has ended the connection, even if it would still
    /// read: there are no half-closed connections.
    Closed {
        /// The connection that is gone.
        conn: ConnId,
        /// The reason for the end.
        reason: CloseReason,
    },
}

impl NetEvent {
    /// Returns the event of a new connection on which no messages have been exchanged yet.
    pub fn opened(conn: ConnId, peer: Peer, listener: Option<ListenerId>) -> NetEvent {
        NetEvent::Opened { conn, peer, listener, opening: None }
    }
}

/// Maximum size in bytes of a message head, including its tail.
pub const HEAD_BYTES_MAX: usize = 64;

/// The encoded head of a message, and the tail after its body, if there is one.
#[derive(Clone, Copy)]
pub struct FrameHead {
    /// The head, then the tail.
    bytes: [u8; HEAD_BYTES_MAX],
    /// `len ≤ whole ≤ HEAD_BYTES_MAX`: bytes of the head, and of head and tail.
    len: u8,
    whole: u8,
    /// `true` if the body of the reply is not sent.
    leaves_body: bool,
    /// `true` if the message consists of body bytes alone, because its head was sent before.
    is_of_body: bool,
}

impl FrameHead {
    /// A head without bytes.
    pub const EMPTY: FrameHead = FrameHead {
        bytes: [0; HEAD_BYTES_MAX],
        len: 0,
        whole: 0,
        leaves_body: false,
        is_of_body: false,
    };

    /// Returns a head of these bytes, at most [`HEAD_BYTES_MAX`].
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        let mut head = FrameHead::EMPTY;
        head.push(bytes);
        head
    }

    /// Appends bytes to a head without a tail: together at most [`HEAD_BYTES_MAX`] bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let end = usize::from(self.whole) + bytes.len();
        self.bytes[usize::from(self.whole)..end].copy_from_slice(bytes);
        (self.len, self.whole) = (end as u8, end as u8);
    }

    /// Makes all bytes of a head from the first `len` on its tail.
    #[inline]
    pub fn cut(self, len: usize) -> Self {
        assert!(len <= usize::from(self.whole), "a head is cut within its bytes");
        FrameHead { len: len as u8, ..self }
    }

    /// Returns a head and the tail after the body: together at most [`HEAD_BYTES_MAX`] bytes.
    pub fn with_tail(head: &[u8], tail: &[u8]) -> Self {
        let mut both = FrameHead::new(head);
        both.push(tail);
        both.cut(head.len())
    }

    /// Returns the head of a reply whose body is not sent: the peer only wants the status.
    pub fn without_body(self) -> Self {
        FrameHead { leaves_body: true, ..self }
    }

    /// Returns the head of a reply that consists of its body alone.
    pub fn of_body() -> Self {
        FrameHead { is_of_body: true, ..FrameHead::EMPTY }
    }

    /// Returns `true` if only the head of the reply is sent, and not its body.
    #[inline]
    pub fn leaves_body(&self) -> bool {
        self.leaves_body
    }

    /// Returns the bytes before the body.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the bytes after the body.
    #[inline]
    pub fn tail(&self) -> &[u8] {
        &self.bytes[usize::from(self.len)..usize::from(self.whole)]
    }

    /// Returns the number of bytes before and after the body.
    #[inline]
    pub fn wire_bytes(&self) -> usize {
        usize::from(self.whole)
    }

    /// Returns `true` if there is nothing to send: head and tail are empty, and the body is not
    /// [sent alone](FrameHead::of_body).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.whole == 0 && !self.is_of_body
    }
}

impl fmt::Debug for FrameHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameHead").field(&self.bytes()).field(&self.tail()).finish()
    }
}

/// An outgoing message: a head, a body of `body_len` bytes, and the head's tail. The body is lent
/// to the transport until [`NetEvent::Sent`].
#[derive(Debug)]
pub struct Frame {
    /// The bytes before and after the body.
    pub head: FrameHead,
    /// The buffer of the body, if there is one.
    pub body: Option<Buf>,
    /// Number of bytes of `body` to send.
    pub body_len: usize,
}

impl Frame {
    /// Returns a message without a body.
    pub fn bare(head: FrameHead) -> Frame {
        Frame { head, body: None, body_len: 0 }
    }

    /// Returns the bytes of the body to send.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref().map_or(&[][..], |body| &body.bytes()[..self.body_len])
    }

    /// Returns the size of the message on the network in bytes.
    pub fn wire_bytes(&self) -> usize {
        self.head.wire_bytes() + self.body_len
    }
}

/// Minimum number of bytes for which receiving them in place ([`Streams::receive_into`]) is better
/// than copying them.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;

/// The connections of one thread: bytes in, bytes out, and the end of a connection. Servers and
/// initiators need this port; [`Transport`] and [`Dial`] add the methods that only one of them
/// needs.
///
/// The methods only queue work or drain inboxes. Only the outer loop enters the kernel, once per
/// turn.
///
/// Each connection has one send in flight. Frames that become ready meanwhile leave together with
/// the next send.
pub trait Streams {
    /// Moves at most `max` events to the end of `events`, in order.
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize);

    /// Returns the lent buffer of a `Received` event.
    fn give(&mut self, buf: Buf);

    /// Receives the connection's next bytes directly into `buf[at..until]`: one receive, at most
    /// one at a time for a connection. [`NetEvent::Filled`] brings the buffer back, before any
    /// other event of the connection. A caller that expects more bytes asks again before the next
    /// [`kick`](Streams::kick): then no other receive comes in between.
    ///
    /// # Errors
    /// The buffer comes back at once if that is impossible now: the bytes come as `Received`.
    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        let _received_otherwise = (conn, at, until);
        Err(buf)
    }

    /// Returns the number of frames that `send` accepts now, over all connections.
    fn room(&self) -> usize;

    /// Queues a frame. A frame to a connection that is gone is dropped; the frame's body still
    /// comes back as `Sent`.
    fn send(&mut self, now: Instant, conn: ConnId, frame: Frame);

    /// Starts to send the queued frames. Also starts to receive again on connections without a
    /// [`receive_into`](Streams::receive_into).
    fn kick(&mut self, now: Instant);

    /// Closes the connection at once; queued frames are dropped, `Closed` follows.
    fn close(&mut self, conn: ConnId);

    /// Returns the time of the next poll if no event of the kernel comes before; `None` for never.
    fn wake_at(&self) -> Option<Instant>;
}

/// A worker's end of the network: [`Streams`] with back-pressure, orderly ends, a stop of new
/// connections, and connections that [change workers](Migrate).
pub trait Transport: Streams + Migrate {
    /// Stops receiving from `conn` (back-pressure). Bytes that the kernel had delivered already
    /// still come as `Received`. The end of the connection is still noticed. Bytes that the peer
    /// had sent before that end and that were not received are dropped.
    fn pause(&mut self, conn: ConnId);

    /// Resumes receiving from `conn` after [`pause`](Transport::pause).
    fn resume(&mut self, conn: ConnId);

    /// Returns the number of bytes of frames that are queued on `conn` and not yet taken by the
    /// network.
    fn unsent(&self, conn: ConnId) -> usize;

    /// Charges the frames of `conn` to `account`, including those that are queued. A connection
    /// without a charge counts for account 0.
    fn charge(&mut self, conn: ConnId, account: TenantId) {
        let _frames_leave_at_once = (conn, account);
    }

    /// Returns the number of frames that are queued on all connections of `account`.
    fn queued(&self, account: TenantId) -> usize {
        let _frames_leave_at_once = account;
        0
    }

    /// Ends the sending direction after the queued frames. The peer's close is awaited for a
    /// bounded time, then `Closed` comes.
    fn finish(&mut self, conn: ConnId);

    /// Stops accepting connections at all listeners of this worker.
    fn stop_listening(&mut self);
}

/// Connections that change workers (docs/adr/0007-moving-connections.md). A connection stops
/// receiving ([`still`](Migrate::still)), leaves one worker as a [`Ticket`], and is attached to
/// another.
pub trait Migrate {
    /// Returns `true` if `conn` can go to the worker `to`. A number of no worker means another
    /// process.
    fn moves_to(&self, conn: ConnId, to: u16) -> bool {
        let _any_can = (conn, to);
        true
    }

    /// Stops receiving from a connection that is to be detached, and noticing its end. Soon the
    /// connection [`is_still`](Migrate::is_still). [`pause`](Transport::pause) and
    /// [`resume`](Transport::resume) end this state.
    fn still(&mut self, conn: ConnId);

    /// Returns `true` if a connection that was made [`still`](Migrate::still) has no further event.
    /// Returns `false` also if connections cannot be detached.
    fn is_still(&self, conn: ConnId) -> bool;

    /// Takes the socket of a connection out for the worker `to`. The connection must be
    /// [still](Migrate::is_still), and all of its frames must have left. No further event of the
    /// connection comes, not even `Closed`; its index may be reused.
    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket;

    /// Makes a detached socket a paused connection of this worker. Returns `None` if there is no
    /// place for the connection; the ticket is still valid then.
    fn attach(&mut self, ticket: Ticket) -> Option<ConnId>;
}

/// An initiator's end of the network: [`Streams`], and connections that it opens itself.
pub trait Dial: Streams {
    /// Starts a connection to the server that this transport was made for. `Opened` follows once it
    /// is open, or `Closed` if it could not be made.
    fn dial(&mut self, now: Instant) -> ConnId;
}

/// The outcome of one turn of a worker or initiator: the outer loop spins, parks or (in the
/// simulated world) jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnOutcome {
    /// `true` if the turn did any work, so that another turn may find more.
    pub progressed: bool,
    /// Time of the next turn if no event comes before; `None` for never.
    pub wake_at: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_its_bytes() {
        assert_eq!(FrameHead::new(&[1, 2, 3]).bytes(), [1, 2, 3]);
        assert_eq!(FrameHead::new(&[9; HEAD_BYTES_MAX]).bytes(), [9; HEAD_BYTES_MAX]);
        assert_eq!(FrameHead::new(&[1]).tail(), [0; 0]);
    }

    #[test]
    fn a_tail_is_told_from_the_head() {
        let head = FrameHead::with_tail(&[1; 32], &[2; 32]);
        assert_eq!((head.bytes(), head.tail()), (&[1; 32][..], &[2; 32][..]));
        let mut pushed = FrameHead::new(&[1; 32]);
        pushed.push(&[2; 32]);
        assert_eq!((pushed.bytes().len(), pushed.tail().len()), (64, 0));
        let head = pushed.cut(32);
        assert_eq!((head.bytes(), head.tail()), (&[1; 32][..], &[2; 32][..]));
        assert!(FrameHead::new(&[]).is_empty() && !FrameHead::with_tail(&[], &[1]).is_empty());
    }
}
