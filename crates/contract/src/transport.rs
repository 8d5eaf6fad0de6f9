//! The port to the network.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use crate::{Buf, FrameHead, Instant};

/// Names a connection of one worker. The generation tells it from earlier ones of the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Place in the transport's table: small, reused.
    pub index: u32,
    /// How often the place was used before.
    pub generation: u32,
}

/// Names a listener, in the order in which they were configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u16);

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A host on the network.
    Internet(SocketAddr),
    /// A process of this machine, through a Unix socket.
    Local {
        /// Its user.
        uid: u32,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Internet(address) => address.fmt(f),
            Peer::Local { uid } => write!(f, "local uid {uid}"),
        }
    }
}

/// Names a socket on its way from one worker to another, in the rack that their transports share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer closed in order.
    Peer,
    /// The peer reset, or the network failed (the number is the system's error).
    Reset(i32),
    /// [`Streams::close`] was called.
    Local,
    /// A dial did not succeed (the number is the system's error).
    Unreachable(i32),
}

/// What happened on the network.
#[derive(Debug)]
pub enum NetEvent {
    /// A connection is there: accepted (with the listener it came by) or dialled.
    Opened {
        /// Its name from now on.
        conn: ConnId,
        /// The other end.
        peer: Peer,
        /// The listener it was accepted by; `None` for a dialled connection.
        listener: Option<ListenerId>,
    },
    /// Bytes arrived. `buf` is lent: whoever takes the event gives it back with
    /// [`Streams::give`] when the bytes have been taken.
    Received {
        /// From where.
        conn: ConnId,
        /// The bytes are its first `len`.
        buf: Buf,
        /// How many.
        len: usize,
    },
    /// What a [`Streams::receive_into`] came to: its buffer, with bytes or without. `len` is below
    /// what was asked for where no more had arrived, and zero where the connection was paused, is
    /// told to be still or ends.
    Filled {
        /// From where.
        conn: ConnId,
        /// The buffer that was lent.
        buf: Buf,
        /// Where in it the bytes begin: what was asked for.
        at: usize,
        /// How many.
        len: usize,
    },
    /// The body of a frame has left for good; its buffer returns to the pool it came from.
    Sent {
        /// To where.
        conn: ConnId,
        /// The frame's body.
        buf: Buf,
    },
    /// The connection is gone; nothing more comes from it, and all its frames' buffers have come
    /// back in `Sent`, the one that was received into in `Filled`. Its index may be used again. A peer that shuts its sending direction has
    /// ended the connection, even if it would still read: there are no half-closed ones.
    Closed {
        /// Which.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
}

/// A message on its way out: a head, a body of `body_len` bytes that is lent to the transport until
/// [`NetEvent::Sent`], and the head's tail.
#[derive(Debug)]
pub struct Frame {
    /// The first bytes, and the last.
    pub head: FrameHead,
    /// What is between them, if there is more.
    pub body: Option<Buf>,
    /// How many bytes of `body` to send.
    pub body_len: usize,
}

impl Frame {
    /// A message without a body.
    pub fn bare(head: FrameHead) -> Frame {
        Frame { head, body: None, body_len: 0 }
    }

    /// The bytes of the body that are sent.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref().map_or(&[][..], |body| &body.bytes()[..self.body_len])
    }

    /// How many bytes it is on the network.
    pub fn wire_bytes(&self) -> usize {
        self.head.bytes().len() + self.body_len + self.head.tail().len()
    }
}

/// From so many bytes on it is worth while to receive them where they belong
/// ([`Streams::receive_into`]) rather than to copy them there.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;

/// The connections of one thread: bytes in, bytes out, and the end of a connection. Servers and
/// initiators need this port; [`Transport`] and [`Dial`] add what only one of them needs.
///
/// The methods only queue work or drain inboxes. The outer loop alone enters the kernel, once a
/// turn.
///
/// One send is in flight a connection; whatever became ready meanwhile leaves together with the
/// next one.
pub trait Streams {
    /// Moves at most `max` of the events that have happened to the end of `events`, in order.
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize);

    /// Returns the lent buffer of a `Received` event.
    fn give(&mut self, buf: Buf);

    /// Receives the connection's next bytes straight into `buf[at..until]`: one receive, at most one
    /// at a time for a connection. [`NetEvent::Filled`] brings the buffer back, before any other
    /// event of the connection. A caller that expects more bytes asks again before the next
    /// [`kick`](Streams::kick): then no other receive comes in between.
    ///
    /// # Errors
    /// The buffer comes back at once where that cannot be done now: the bytes come as `Received`.
    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        let _received_otherwise = (conn, at, until);
        Err(buf)
    }

    /// Returns how many more frames `send` takes now, over all connections.
    fn room(&self) -> usize;

    /// Queues a frame. A frame to a connection that is gone is dropped; the frame's body comes back
    /// as `Sent` all the same.
    fn send(&mut self, now: Instant, conn: ConnId, frame: Frame);

    /// Starts to send what was queued, and to receive again where nobody asked for bytes in a place
    /// of their own.
    fn kick(&mut self, now: Instant);

    /// Ends the connection at once; queued frames are dropped, `Closed` follows.
    fn close(&mut self, conn: ConnId);

    /// Returns when the port is to be polled next without an event of the kernel; `None` for never.
    fn wake_at(&self) -> Option<Instant>;
}

/// A worker's end of the network: [`Streams`] with back-pressure, orderly ends, no more arrivals,
/// and connections that [change workers](Migrate).
pub trait Transport: Streams + Migrate {
    /// Stops receiving from `conn` (back-pressure). Bytes that the kernel had delivered already
    /// still come as `Received`. The end of the connection is noticed all the same. Bytes that the
    /// peer had sent before that end and that were not received are dropped.
    fn pause(&mut self, conn: ConnId);

    /// Receives from `conn` again.
    fn resume(&mut self, conn: ConnId);

    /// Returns the bytes of frames that are queued on `conn` and not yet taken by the network.
    fn unsent(&self, conn: ConnId) -> usize;

    /// Says that no more frames follow: after the queued frames the sending direction is shut, the
    /// peer's close is awaited for a bounded time, then `Closed` comes.
    fn finish(&mut self, conn: ConnId);

    /// Accepts no more connections.
    fn stop_listening(&mut self);
}

/// Connections that change workers (docs/adr/0007-moving-connections.md): a connection is told to be
/// still, leaves one worker as a [`Ticket`], and is attached to another.
pub trait Migrate {
    /// Stops receiving from a connection that is to be detached, and noticing the connection's end:
    /// soon the connection [`is_still`](Migrate::is_still). [`pause`](Transport::pause) and
    /// [`resume`](Transport::resume) end this.
    fn still(&mut self, conn: ConnId);

    /// Tells whether nothing more comes of a connection that was told to be
    /// [`still`](Migrate::still). Returns `false` also where connections cannot be detached.
    fn is_still(&self, conn: ConnId) -> bool;

    /// Takes the socket of a connection out for the worker `to`. The connection
    /// [`is_still`](Migrate::is_still), and all of its frames have left. Nothing more comes of the
    /// connection, no `Closed` either; its index may be used again.
    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket;

    /// Makes a detached socket a paused connection of this worker. Returns `None` where there is no
    /// place for the connection; the ticket is still good then.
    fn attach(&mut self, ticket: Ticket) -> Option<ConnId>;
}

/// An initiator's end of the network: [`Streams`], and connections that it opens itself.
pub trait Dial: Streams {
    /// Starts a connection to the server that this transport was made for. `Opened` follows when
    /// it is there, or `Closed` when it could not be made.
    fn dial(&mut self, now: Instant) -> ConnId;
}

/// What one turn of a worker or initiator came to: the outer loop spins, parks or (in the simulated
/// world) jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something was done, so the next turn may find more.
    pub progressed: bool,
    /// When the next turn is worth while without an event; `None` for never.
    pub wake_at: Option<Instant>,
}
