//! The port to a protocol: bytes to events, replies to bytes.
//!
//! A session belongs to one connection, does no I/O and knows no clock. What a peer sends becomes
//! an [`Event`] in the vocabulary of this crate or a [`Fatal`] reason to end the connection; past a
//! session there are no opcodes and no unchecked lengths.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::{Command, ConnId, Fence, Instant, NamespaceId, Protocol, Slot, Status, TenantId};

/// The peer's name for its request; opaque, returned unchanged.
pub type Tag = u64;

/// What a connection may do with a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// May read.
    pub read: bool,
    /// May write, discard and write zeroes.
    pub write: bool,
}

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights { read: false, write: false };
    /// Everything.
    pub const ALL: Rights = Rights { read: true, write: true };
}

/// A request, parsed. Its length, flags and shape are those of the protocol; whether the range and
/// the right are good is the worker's to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Returned unchanged in the reply.
    pub tag: Tag,
    /// The stream of the connection that barriers order, below the session's bound of 8.
    pub stream: u8,
    /// The namespace whose blocks the command names; `None` for the connection's default.
    pub namespace: Option<NamespaceId>,
    /// The tenant handle of the connection that it is charged to; zero for the connection's own.
    pub tenant: u16,
    /// What to do.
    pub command: Command,
    /// Bytes of payload that follow as [`Event::Payload`], also when the request is refused.
    pub payload_bytes: usize,
    /// Not `Ok` when the session refuses it already: answer with this status and skip the payload.
    pub verdict: Status,
}

/// What a peer sent.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request; its payload, if any, follows.
    Request(Request),
    /// The next piece of the payload of the last request. `end` comes with the last piece: `Ok`, or
    /// why the payload must not be used.
    Payload {
        /// The bytes, lent for this call; empty at most where only the end is told.
        bytes: &'a [u8],
        /// Set with the last piece.
        end: Option<Status>,
    },
    /// A request whose payload comes when it is asked for, by [`Session::invite`], as
    /// [`Event::Piece`]s between other events. Its verdict is good.
    Awaited(Request),
    /// A piece of the payload of an awaited request. Those of several may alternate.
    Piece {
        /// What [`Session::invite`] was told.
        slot: Slot,
        /// Where it belongs in the payload.
        offset: usize,
        /// The bytes, lent for this call; empty where only the end is told.
        bytes: &'a [u8],
        /// Set with the last piece, when the payload is whole: `Ok`, or why it must not be used.
        end: Option<Status>,
    },
    /// The session has work of its own to do: [`Session::attend`] does it. Rare.
    Own,
    /// The session knows whose requests follow: from now on they are charged to this tenant; `None`: to
    /// the one that the connection belongs to by itself.
    Attached(Option<TenantId>),
    /// The session knows whose connection it is: requests that change data are counted in this fence
    /// from now on, and held while it says so.
    Fenced(Arc<Fence>),
    /// Something about the connection rather than the data. Rare, so boxed.
    Control(Box<Control>),
}

/// Payload that comes next, and nothing else before it has all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Of an awaited request ([`Event::Piece`]): which, and where in its payload it belongs. `None`:
    /// of the last request ([`Event::Payload`]), behind what has come.
    pub place: Option<(Slot, usize)>,
    /// How many bytes; not zero.
    pub bytes: usize,
}

/// Requests about the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The connection introduces itself.
    Hello(Hello),
    /// Asks what a namespace is.
    Info {
        /// Returned unchanged.
        tag: Tag,
        /// Which.
        namespace: Option<NamespaceId>,
    },
    /// Registers a tenant (paper Table 1, `register`).
    Register(Register),
    /// Changes a tenant's SLO: the answer to a renegotiation notice.
    Renegotiate(Register),
    /// Unregisters a tenant by its handle.
    Unregister {
        /// Returned unchanged.
        tag: Tag,
        /// The tenant's handle on this connection.
        tenant: u16,
    },
    /// The peer asks whether the connection lives.
    Ping {
        /// Returned unchanged.
        tag: Tag,
    },
}

/// The first message of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Returned unchanged.
    pub tag: Tag,
    /// Names the client for its lifetime, so that a new connection of it waits for the requests of
    /// the old one (docs/adr/0003-fences.md). Zero: none.
    pub client: u128,
    /// Which of the client's connections this is.
    pub connection: u32,
    /// Requests that the client wants in flight.
    pub queue_depth: u32,
    /// The client wants checksums of payloads.
    pub checksums: bool,
    /// Credentials; empty for none.
    pub token: Box<[u8]>,
    /// The tenant it wants to belong to; empty for the listener's or rule's.
    pub tenant: Box<str>,
}

/// The answer to a [`Hello`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelloReply {
    /// Requests of this connection that the server takes in flight before it stops reading.
    pub queue_depth: u32,
    /// Largest data of one request in bytes.
    pub request_bytes_max: u32,
    /// Payloads carry checksums.
    pub checksums: bool,
    /// Number of namespaces that the server has.
    pub namespaces: u16,
    /// The namespace that requests mean when they name none.
    pub namespace: u16,
}

/// A tenant's service-level objective (paper §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    /// Tail read latency in microseconds; zero: best effort.
    pub latency_us: u32,
    /// The percentile that `latency_us` bounds, in tenths of a percent (950: p95); zero means p95.
    pub percentile_tenths: u16,
    /// Requests a second that the tenant may issue and count on.
    pub iops: u32,
    /// Share of reads among them, 0 to 100.
    pub read_percent: u8,
    /// Bytes of a typical request; zero means 4 096.
    pub request_bytes: u32,
}

/// Registers or changes a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Returned unchanged (the paper's cookie).
    pub tag: Tag,
    /// The tenant's handle, when it is changed; zero when it is registered.
    pub tenant: u16,
    /// Its name; connections that register the same name share the tenant.
    pub name: Box<str>,
    /// What it wants.
    pub slo: Slo,
}

/// The answer to a register or renegotiate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantReply {
    /// The tenant's handle on this connection.
    pub tenant: u16,
    /// Tokens a second that the SLO needs.
    pub tokens_needed: u64,
    /// Tokens a second that were free for it.
    pub tokens_free: u64,
    /// Whose latency bound set the rate that did not suffice; zero where that was not the reason.
    pub limited_by: u16,
    /// That bound in microseconds.
    pub limit_latency_us: u32,
}

impl TenantReply {
    /// [`limited_by`](TenantReply::limited_by): the bound of the SLO that was asked for.
    pub const LIMITED_BY_THIS: u16 = 0xffff;
    /// [`limited_by`](TenantReply::limited_by): the bound of a tenant on which the connection has
    /// no handle. Every other number is a handle.
    pub const LIMITED_BY_OTHER: u16 = 0xfffe;
}

/// What a namespace is, as the peer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its name.
    pub namespace: NamespaceId,
    /// Logical blocks of 512 bytes.
    pub blocks: u64,
    /// Bytes of the granularity at which the device works best.
    pub physical_block_bytes: u32,
    /// Largest atomic write in blocks; zero for none.
    pub atomic_blocks_max: u32,
    /// What this connection may do.
    pub rights: Rights,
    /// Whether acknowledged writes need a flush to be durable.
    pub volatile_cache: bool,
}

/// What the server says unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The server stops soon: send no more requests on this connection.
    Draining,
    /// The tenant exceeds its SLO (paper §4.3); its measured rate and mix are given.
    Renegotiate {
        /// The tenant's handle on this connection.
        tenant: u16,
        /// Measured requests a second.
        iops: u32,
        /// Measured share of reads.
        read_percent: u8,
    },
}

/// What the server answers.
#[derive(Debug)]
pub enum Reply {
    /// To a [`Request`]: its command in the peer's terms, how it ended, and how many bytes follow.
    Done {
        /// The request's.
        tag: Tag,
        /// The request's, with the range the peer named.
        command: Command,
        /// How it ended.
        status: Status,
    },
    /// To a hello.
    Hello {
        /// The request's.
        tag: Tag,
        /// `Ok`, or why the connection is refused.
        status: Status,
        /// The limits.
        reply: HelloReply,
    },
    /// To an info.
    Info {
        /// The request's.
        tag: Tag,
        /// What it is, or why it is not told.
        info: Result<NamespaceInfo, Status>,
    },
    /// To a register, renegotiate or unregister.
    Tenant {
        /// The request's.
        tag: Tag,
        /// How it ended.
        status: Status,
        /// The handle and the figures.
        reply: TenantReply,
    },
    /// To a ping.
    Pong {
        /// The request's.
        tag: Tag,
    },
    /// To nobody: a notice.
    Notice(Notice),
}

/// Bytes of the largest message that a session says by itself.
pub const SPEECH_BYTES_MAX: usize = 32 << 10;

/// Bytes of the largest message head, with what follows the body.
pub const HEAD_BYTES_MAX: usize = 64;

/// The encoded head of a message, and what follows its body, if anything does.
#[derive(Clone, Copy)]
pub struct FrameHead {
    /// The head, then the tail.
    bytes: [u8; HEAD_BYTES_MAX],
    /// `len ≤ whole ≤ HEAD_BYTES_MAX`: bytes of the head, and of both.
    len: u8,
    whole: u8,
    /// The body, if the reply has one, is not sent.
    leaves_body: bool,
}

impl FrameHead {
    /// A head of these bytes, at most [`HEAD_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Self {
        let len = bytes.len() as u8;
        let mut head =
            FrameHead { bytes: [0; HEAD_BYTES_MAX], len, whole: len, leaves_body: false };
        head.bytes[..bytes.len()].copy_from_slice(bytes);
        head
    }

    /// A head, and what follows the body: together at most [`HEAD_BYTES_MAX`] bytes.
    pub fn with_tail(head: &[u8], tail: &[u8]) -> Self {
        let mut both = FrameHead::new(head);
        let whole = head.len() + tail.len();
        both.bytes[head.len()..whole].copy_from_slice(tail);
        both.whole = whole as u8;
        both
    }

    /// The same, but the reply's body is not sent: the peer wants to know only how it ended.
    pub fn without_body(self) -> Self {
        FrameHead { leaves_body: true, ..self }
    }

    /// Whether the reply's body is not sent.
    pub fn leaves_body(&self) -> bool {
        self.leaves_body
    }

    /// The bytes before the body.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bytes behind the body.
    pub fn tail(&self) -> &[u8] {
        &self.bytes[usize::from(self.len)..usize::from(self.whole)]
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.whole == 0
    }
}

impl fmt::Debug for FrameHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameHead").field(&self.bytes()).field(&self.tail()).finish()
    }
}

/// Why a connection must end: the peer broke the protocol in a way that a status cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fatal {
    /// The first bytes are of no protocol that is spoken here.
    BadMagic(u16),
    /// An opcode that this version does not have.
    BadOpcode(u16),
    /// A length that no message can have.
    BadLength(u64),
    /// A version that is not spoken here.
    BadVersion(u16),
    /// A message that may not come now (a request before the hello, a second hello).
    OutOfOrder,
    /// Version 1 has no status field: a request that cannot be served ends the connection.
    Unanswerable(Status),
    /// A reply that answers no request (seen by initiators).
    UnknownTag(Tag),
    /// A field of a message, at this offset, has a value that it cannot have.
    BadField(u16),
    /// A header does not match its checksum.
    BadHeader,
    /// A message that carries more data than was agreed.
    TooMuch,
    /// Data outside of what a request or an invitation is about.
    OutOfRange,
    /// The protocol's own end, agreed or announced by the peer (the number is the protocol's).
    Ended(u32),
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::BadMagic(magic) => write!(f, "bad magic {magic:#06x}"),
            Fatal::BadOpcode(opcode) => write!(f, "unknown opcode {opcode}"),
            Fatal::BadLength(length) => write!(f, "impossible length {length}"),
            Fatal::BadVersion(version) => write!(f, "version {version} is not spoken here"),
            Fatal::OutOfOrder => f.write_str("a message that may not come now"),
            Fatal::Unanswerable(status) => write!(f, "{status} (this version has no status field)"),
            Fatal::UnknownTag(tag) => write!(f, "a reply to no request ({tag:#x})"),
            Fatal::BadField(offset) => write!(f, "an impossible value at byte {offset}"),
            Fatal::BadHeader => f.write_str("a header does not match its checksum"),
            Fatal::TooMuch => f.write_str("more data in a message than was agreed"),
            Fatal::OutOfRange => f.write_str("data that nobody asked for"),
            Fatal::Ended(why) => write!(f, "the peer, or its time, ended it ({why:#x})"),
        }
    }
}

/// The server's end of a protocol on one connection.
pub trait Session {
    /// Takes the next event off the front of `input`. `None`: all of `input` was taken and more
    /// bytes are needed.
    ///
    /// # Errors
    /// A [`Fatal`] reason to end the connection; the session must not be used again.
    fn next_event<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fatal>;

    /// The payload that the next bytes are, if they are. Whoever has those bytes where they belong
    /// shows them to [`next_event`](Session::next_event) there, which takes them like any others: the
    /// event's bytes are they. `None`: something else follows. Without a default, for whoever passes
    /// a session on and forgets this costs large payloads a copy that nothing else tells of.
    fn expects(&self) -> Option<Expected>;

    /// Encodes the head of a reply whose body is `body` (empty unless data is returned). A head
    /// without bytes means that there is nothing to send (yet).
    ///
    /// # Errors
    /// The version has no way to say this, so the connection must end instead.
    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, Fatal>;

    /// Whether [`next_event`](Session::next_event) has an event that needs no more bytes.
    fn has_more(&self) -> bool {
        false
    }

    /// Asks for the payload of an awaited request, whose pieces shall name `slot`: there is `room`
    /// for it now, into which what has come already is copied. Returns the message that asks; an
    /// empty one says that all of it has been copied.
    fn invite(&mut self, tag: Tag, slot: Slot, _room: &mut [u8]) -> FrameHead {
        unreachable!("request {tag:#x} of {slot:?} was not awaited")
    }

    /// The epoch of the connection's fence as of which a request that changes data was found to be
    /// allowed.
    fn allowed_as_of(&self, _tag: Tag) -> u32 {
        0
    }

    /// Looks again whether a request may change data, which was allowed as of another epoch than the fence
    /// is at; as of which it is.
    ///
    /// # Errors
    /// What it ends with: it is not allowed any more.
    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        unreachable!("nothing takes rights away from request {tag:#x}")
    }

    /// Does the session's own work: after [`Event::Own`], and once a second. Takes no bytes.
    ///
    /// # Errors
    /// A [`Fatal`] reason to end the connection; what it says then are its last words.
    fn attend(&mut self, _now: Instant) -> Result<(), Fatal> {
        Ok(())
    }

    /// Bytes of messages that the session has to say by itself: grows in `attend` and with a
    /// [`Fatal`] error only.
    fn unsaid(&self) -> usize {
        0
    }

    /// Moves such messages to the front of `to`, as many as fit as a whole; how many bytes. One fits
    /// always where there is room for [`SPEECH_BYTES_MAX`].
    fn speak(&mut self, _to: &mut [u8]) -> usize {
        0
    }

    /// The connection ends, whoever wants it: nothing more is taken from it, and nothing but what is
    /// [`unsaid`](Session::unsaid) is said. Whatever the connection stands for elsewhere is gone from
    /// now on, though its peer may take a while to let go of it.
    fn leave(&mut self) {}

    /// Whether it could move to that worker, which may be a door to another process
    /// (docs/adr/0007-moving-connections.md).
    fn moves_to(&self, _worker: u16) -> bool {
        false
    }

    /// Whether nothing of it is under way now that only this worker can end.
    fn is_settled(&self) -> bool {
        true
    }

    /// The session as bytes, from which [`unpack`](Session::unpack) makes it again for another
    /// worker: it is used no more. Only of one that [moves](Session::moves_to) and
    /// [is settled](Session::is_settled).
    fn pack(&mut self) -> Vec<u8> {
        unreachable!("{:?} does not move", self.protocol())
    }

    /// The session that these bytes were made from; `None` if no session of this version was.
    fn unpack(packed: &[u8]) -> Option<Self>
    where
        Self: Sized,
    {
        let _foreign = packed;
        None
    }

    /// It has been unpacked and has a connection, of this name; the fence that counts its requests, if
    /// the session [gave](Event::Fenced) one.
    fn landed(&mut self, _conn: ConnId) -> Option<Arc<Fence>> {
        None
    }

    /// What it speaks.
    fn protocol(&self) -> Protocol {
        Protocol::Reflex
    }

    /// Whether a message has begun and not ended: the peer owes us bytes.
    fn is_mid_message(&self) -> bool;

    /// Whether the peer can be told things unasked.
    fn takes_notices(&self) -> bool;
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
        assert!(FrameHead::new(&[]).is_empty() && !FrameHead::with_tail(&[], &[1]).is_empty());
    }
}
