//! The port to a protocol: bytes to events, replies to bytes.
//!
//! A session belongs to one connection, does no I/O and knows no clock. Bytes of the peer become an
//! [`SessionEvent`] in the nouns of this crate, or a [`ProtocolError`] reason to end the
//! connection. Past a session there are no opcodes and no unchecked lengths.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::{
    Command, ConnId, Fence, FrameHead, Instant, NamespaceId, Protocol, Slo, Slot, Status, TenantId,
};

/// The peer's identifier of its request; opaque, returned unchanged.
pub type Tag = u64;

/// The rights of a connection to a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// `true` if the connection may read.
    pub read: bool,
    /// Right to write, discard and write zeroes.
    pub write: bool,
}

impl Rights {
    /// The right neither to read nor to write.
    pub const NONE: Rights = Rights { read: false, write: false };
    /// The rights to read and to write.
    pub const ALL: Rights = Rights { read: true, write: true };
}

/// A parsed request. Its length, flags and shape conform to the protocol. The worker checks the
/// range and the rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The peer's identifier of the request, returned unchanged in the reply.
    pub tag: Tag,
    /// The stream of the connection in which barriers order the request, below the session's bound
    /// of 8.
    pub stream: u8,
    /// The namespace of the command; `None` for the connection's default.
    pub namespace: Option<NamespaceId>,
    /// The connection's handle on the tenant that is charged; zero for the connection's own tenant.
    pub tenant: u16,
    /// The command, with its range in the namespace.
    pub command: Command,
    /// Bytes of payload that follow as [`SessionEvent::Payload`], also if the request is refused.
    pub payload_bytes: usize,
    /// Not `Ok` if the session refuses the request: answer with this status and skip the payload.
    pub verdict: Status,
}

impl Request {
    /// Returns a request that is carried out: of the connection's default namespace, own tenant and
    /// first stream, with the payload that its command has.
    #[inline]
    pub fn plain(tag: Tag, command: Command) -> Request {
        Request {
            tag,
            stream: 0,
            namespace: None,
            tenant: 0,
            command,
            payload_bytes: command.payload_bytes(),
            verdict: Status::Ok,
        }
    }
}

/// An event of a session: a message of the peer, or a part of it.
#[derive(Debug)]
pub enum SessionEvent<'a> {
    /// A request; its payload, if any, follows.
    Request(Request),
    /// The next piece of the last request's payload. The last piece has an `end`: `Ok`, or the
    /// reason that the payload must not be used.
    Payload {
        /// The bytes, lent for this call. Empty at most in an event that only has an `end`.
        bytes: &'a [u8],
        /// Set with the last piece.
        end: Option<Status>,
    },
    /// A request whose payload comes on invitation ([`Session::invite`]), as
    /// [`SessionEvent::Piece`]s between other events. Its verdict is `Ok`.
    Awaited(Request),
    /// A piece of an awaited request's payload. Pieces of several requests may alternate.
    Piece {
        /// The slot that was passed to [`Session::invite`].
        slot: Slot,
        /// Offset in the payload in bytes.
        offset: usize,
        /// The bytes, lent for this call. Empty in an event that only has an `end`.
        bytes: &'a [u8],
        /// Set with the last piece, when the payload is whole: `Ok`, or the reason that the payload
        /// must not be used.
        end: Option<Status>,
    },
    /// The session has internal work to do, by a call of [`UnsolicitedOutput::attend`]. Rare.
    Own,
    /// The session has identified the tenant of further requests: from now on they are charged to
    /// it. With `None`, they are charged to the connection's own tenant.
    Attached(Option<TenantId>),
    /// The session has identified the connection: this fence counts its requests that change data
    /// from now on, and may hold them.
    Fenced(Arc<Fence>),
    /// A request about the connection rather than about data. Rare, so boxed.
    Control(Box<ControlRequest>),
}

/// The bytes of a payload that come next on the connection, before any other message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedPayload {
    /// The slot of an awaited request ([`SessionEvent::Piece`]), and the offset in its payload.
    /// `None` for the last request ([`SessionEvent::Payload`]), after the bytes received so far.
    pub place: Option<(Slot, usize)>,
    /// Number of bytes; not zero.
    pub bytes: usize,
}

/// A request of a peer about its connection, its tenant or namespaces rather than about data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Introduces the client and asks for the settings of the connection.
    Hello(Hello),
    /// Asks for the properties of a namespace by its name or number. The answer is an info.
    Find {
        /// The peer's identifier of the request, returned unchanged.
        tag: Tag,
        /// Name or number of the namespace; empty for the connection's default namespace.
        name: Box<str>,
    },
    /// Asks for the names of all namespaces to which the connection has a right.
    List {
        /// The peer's identifier of the request, returned unchanged.
        tag: Tag,
    },
    /// Asks for the properties of a namespace.
    Info {
        /// The peer's identifier of the request, returned unchanged.
        tag: Tag,
        /// The namespace; `None` for the connection's default.
        namespace: Option<NamespaceId>,
    },
    /// Registers a tenant (paper Table 1, `register`).
    Register(TenantRegistration),
    /// Changes a tenant's SLO: the response to a renegotiation notice.
    Renegotiate(TenantRegistration),
    /// Unregisters a tenant by its handle.
    Unregister {
        /// The peer's identifier of the request, returned unchanged.
        tag: Tag,
        /// The tenant's handle on this connection.
        tenant: u16,
    },
    /// Checks that the connection is alive.
    Ping {
        /// The peer's identifier of the request, returned unchanged.
        tag: Tag,
    },
}

/// The first message of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The peer's identifier of the request, returned unchanged.
    pub tag: Tag,
    /// The client's identifier for its lifetime, so that a new connection of the client waits for
    /// the requests of the old one (docs/adr/0003-fences.md). Zero: none.
    pub client: u128,
    /// Number of this connection among the client's connections.
    pub connection: u32,
    /// Number of requests that the client wants in flight.
    pub queue_depth: u32,
    /// `true` if the client wants checksums of payloads.
    pub checksums: bool,
    /// Credentials; empty for none.
    pub token: Box<[u8]>,
    /// The requested tenant; empty for the tenant of the listener or the access rule.
    pub tenant: Box<str>,
}

/// The answer to a [`Hello`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelloReply {
    /// Maximum number of requests of this connection in flight before the server stops reading.
    pub queue_depth: u32,
    /// Maximum data of one request in bytes.
    pub request_bytes_max: u32,
    /// `true` if payloads carry checksums.
    pub checksums: bool,
    /// Number of namespaces that the server has.
    pub namespaces: u16,
    /// The default namespace of requests that name none.
    pub namespace: u16,
    /// The storage epoch, with which acknowledged changes that were not flushed may be lost; zero
    /// if the server has none.
    pub storage_epoch: u32,
}

/// A request to register or to change a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRegistration {
    /// The peer's identifier of the request, returned unchanged (the paper's cookie).
    pub tag: Tag,
    /// The tenant's handle for a change; zero for a registration.
    pub tenant: u16,
    /// The tenant's name; connections that register the same name share the tenant.
    pub name: Box<str>,
    /// The requested SLO; `None` for best effort.
    pub slo: Option<Slo>,
}

/// The answer to a register or renegotiate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantReply {
    /// The tenant's handle on this connection.
    pub tenant: u16,
    /// Tokens per second that the requested SLO needs.
    pub tokens_needed: u64,
    /// On success, tokens per second that the device has left beside the SLO; on refusal, those
    /// that were free for it.
    pub tokens_free: u64,
    /// The handle of the tenant whose latency bound set the insufficient rate; zero for other
    /// reasons.
    pub limited_by: u16,
    /// The latency bound of `limited_by` in microseconds.
    pub limit_latency_us: u32,
}

impl TenantReply {
    /// Value of [`limited_by`](TenantReply::limited_by) for the bound of the requested SLO.
    pub const LIMITED_BY_THIS: u16 = 0xffff;
    /// Value of [`limited_by`](TenantReply::limited_by) for a tenant on which the connection has no
    /// handle. Every other number is a handle.
    pub const LIMITED_BY_OTHER: u16 = 0xfffe;
}

/// The properties of a namespace, as the peer sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// The namespace's number.
    pub namespace: NamespaceId,
    /// Number of logical blocks of 512 bytes.
    pub blocks: u64,
    /// Granularity in bytes at which the device works best.
    pub physical_block_bytes: u32,
    /// Maximum atomic write in blocks; zero for none.
    pub atomic_blocks_max: u32,
    /// The rights of this connection.
    pub rights: Rights,
    /// `true` if acknowledged writes become durable only with a flush.
    pub volatile_cache: bool,
}

/// A message of the server without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The server stops soon: send no more requests on this connection.
    Draining,
    /// The tenant exceeds its SLO (paper §4.3). The notice has its measured rate and mix.
    Renegotiate {
        /// The tenant's handle on this connection.
        tenant: u16,
        /// The tenant's measured rate in requests per second.
        iops: u32,
        /// Measured share of reads in percent.
        read_percent: u8,
    },
}

/// A reply of the server.
#[derive(Debug)]
pub enum Reply {
    /// The reply to a [`Request`]: its command in the peer's terms, its status, and the body.
    Done {
        /// The request's tag.
        tag: Tag,
        /// The request's command, with the range that the peer named.
        command: Command,
        /// The status of the request.
        status: Status,
    },
    /// The reply to a hello.
    Hello {
        /// The request's tag.
        tag: Tag,
        /// `Ok`, or the reason that the connection is refused.
        status: Status,
        /// The limits of the connection, and properties of the server.
        reply: HelloReply,
    },
    /// The reply to an info or a find.
    Info {
        /// The request's tag.
        tag: Tag,
        /// The properties, or the reason that they are not shown.
        info: Result<NamespaceInfo, Status>,
    },
    /// The reply to a list.
    List {
        /// The request's tag.
        tag: Tag,
        /// The names in the order of numbers, or the reason that none are shown.
        names: Result<Vec<Arc<str>>, Status>,
    },
    /// The reply to a register, renegotiate or unregister.
    Tenant {
        /// The request's tag.
        tag: Tag,
        /// The status of the request.
        status: Status,
        /// The handle and the figures.
        reply: TenantReply,
    },
    /// The reply to a ping.
    Pong {
        /// The request's tag.
        tag: Tag,
    },
    /// A notice, which answers no request.
    Notice(Notice),
}

/// Maximum size in bytes of a message that a session sends by itself.
pub const SPEECH_BYTES_MAX: usize = 32 << 10;

/// The reason to end a connection: the peer broke the protocol in a way that a status cannot
/// report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The first bytes belong to no supported protocol.
    BadMagic(u16),
    /// The opcode does not exist in this version.
    BadOpcode(u16),
    /// The length is impossible for any message.
    BadLength(u64),
    /// The version is not supported.
    BadVersion(u16),
    /// The message is not expected at this point (a request before the hello, a second hello).
    OutOfOrder,
    /// Version 1 has no status field: a request that cannot be served ends the connection.
    Unanswerable(Status),
    /// A reply matches no request (seen by initiators).
    UnknownTag(Tag),
    /// The field at this offset has an invalid value.
    BadField(u16),
    /// A header does not match its checksum.
    BadHeader,
    /// The message carries more data than agreed.
    TooMuch,
    /// The data lies outside the range of its request or invitation.
    OutOfRange,
    /// The protocol ended the connection, as agreed or announced by the peer (the number is the
    /// protocol's).
    Ended(u32),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The first bytes of a TLS handshake, in either order.
            ProtocolError::BadMagic(0x0316 | 0x1603) => {
                f.write_str("a TLS handshake, but this listener has no TLS (reflex:// is without)")
            }
            ProtocolError::BadMagic(magic) => write!(f, "bad magic {magic:#06x}"),
            ProtocolError::BadOpcode(opcode) => write!(f, "unknown opcode {opcode}"),
            ProtocolError::BadLength(length) => write!(f, "impossible length {length}"),
            ProtocolError::BadVersion(version) => write!(f, "version {version} is not spoken here"),
            ProtocolError::OutOfOrder => f.write_str("a message that may not come now"),
            ProtocolError::Unanswerable(status) => {
                write!(f, "{status} (this version has no status field)")
            }
            ProtocolError::UnknownTag(tag) => write!(f, "a reply to no request ({tag:#x})"),
            ProtocolError::BadField(offset) => write!(f, "an impossible value at byte {offset}"),
            ProtocolError::BadHeader => f.write_str("a header does not match its checksum"),
            ProtocolError::TooMuch => f.write_str("more data in a message than was agreed"),
            ProtocolError::OutOfRange => f.write_str("data that nobody asked for"),
            ProtocolError::Ended(why) => write!(f, "the peer, or its time, ended it ({why:#x})"),
        }
    }
}

/// The server's end of a protocol on one connection: bytes to events, replies to bytes.
pub trait Session: RevocablePermissions + MigratableSession + UnsolicitedOutput {
    /// Takes the next event from the front of `input`. Returns `None` if all of `input` is
    /// consumed, or if the session has to wait before it can take more bytes. In that case the
    /// worker is notified when the session can continue.
    ///
    /// # Errors
    /// A [`ProtocolError`] reason to end the connection; the session must not be used again.
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError>;

    /// Returns `true` if [`next_event`](Session::next_event) has an event that needs no more bytes,
    /// now or when a request of the connection has ended.
    fn has_more(&self) -> bool {
        false
    }

    /// Returns the payload that the next bytes belong to; `None` if something else follows.
    ///
    /// If the bytes were received in place, pass that slice to [`next_event`](Session::next_event);
    /// the event borrows the slice. The method has no default: a wrapper that forgot it would
    /// silently cost large payloads a copy.
    fn expects(&self) -> Option<ExpectedPayload>;

    /// Asks for the payload of an [awaited](SessionEvent::Awaited) request, whose pieces will name
    /// `slot`. `room` is the payload's buffer; bytes that have arrived already are copied into it.
    /// Returns the message that asks. An empty message means that the whole payload has been
    /// copied.
    fn invite(&mut self, tag: Tag, slot: Slot, room: &mut [u8]) -> FrameHead;

    /// Encodes the head of a reply whose body is `body` (empty unless data is returned). An empty
    /// head means that there is nothing to send (yet).
    ///
    /// # Errors
    /// The version cannot express the reply, so the connection must end instead.
    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, ProtocolError>;

    /// Returns the protocol of the session.
    fn protocol(&self) -> Protocol {
        Protocol::Reflex
    }

    /// Returns `true` if a message has begun and not ended: the peer still owes bytes.
    fn is_mid_message(&self) -> bool;

    /// Returns `true` if the peer accepts notices.
    fn takes_notices(&self) -> bool;
}

/// Permissions of requests that change data, which a session may lose while they wait.
pub trait RevocablePermissions {
    /// Returns the epoch of the connection's fence as of which a request that changes data was
    /// found to be allowed.
    fn allowed_as_of(&self, tag: Tag) -> u32;

    /// Checks again whether a request may change data, if it was allowed as of an earlier epoch of
    /// the fence. Returns the current epoch.
    ///
    /// # Errors
    /// The status of the request, which is no longer allowed.
    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status>;
}

/// Messages that a session sends on its own, and its own work. A session without any uses the
/// defaults.
pub trait UnsolicitedOutput {
    /// Does the session's own work: after [`SessionEvent::Own`], and once a second. Takes no bytes.
    ///
    /// # Errors
    /// A [`ProtocolError`] reason to end the connection, after the remaining messages.
    fn attend(&mut self, _now: Instant) -> Result<(), ProtocolError> {
        Ok(())
    }

    /// Returns the number of bytes of messages that the session has to send on its own. Grows only
    /// in `attend`, with a [`ProtocolError`] error, and before [`SessionEvent::Own`]. A new session
    /// may have some.
    fn unsaid(&self) -> usize {
        0
    }

    /// Moves the session's own messages to the front of `to`, as many as fit completely; returns
    /// the number of bytes. In [`SPEECH_BYTES_MAX`] bytes, at least one message fits.
    fn speak(&mut self, _to: &mut [u8]) -> usize {
        0
    }

    /// Ends the session with its connection. No more bytes are taken, and only the
    /// [`unsaid`](UnsolicitedOutput::unsaid) messages are sent. Whatever the connection owned
    /// elsewhere is released now, though its peer may take a while to close.
    fn leave(&mut self) {}
}

/// Moves of a session to another worker, which may stand for another process
/// (docs/adr/0007-moving-connections.md).
pub trait MigratableSession {
    /// Returns `true` if the session can move to that worker.
    fn moves_to(&self, worker: u16) -> bool;

    /// Returns `true` if no operation of the session is in progress that only this worker can end.
    fn is_settled(&self) -> bool {
        true
    }

    /// Packs the session into bytes from which another worker restores it. The session is not used
    /// any more. Only for a session that [moves](MigratableSession::moves_to) and [is
    /// settled](MigratableSession::is_settled). Returns `None`, without a change, if a later turn
    /// must try again.
    fn pack(&mut self) -> Option<Vec<u8>>;

    /// Records the identifier of the unpacked session's connection. Returns the fence that counts
    /// its requests, if the session [gave](SessionEvent::Fenced) one.
    fn landed(&mut self, _conn: ConnId) -> Option<Arc<Fence>> {
        None
    }
}

/// Implements methods of [`Session`], or the methods of another of its traits, for a type with a
/// session inside. `each!(self, session => expression)` is a macro that evaluates an expression on
/// that session. Left out are [`Session::next_event`], [`Session::protocol`] and
/// [`MigratableSession::landed`].
#[macro_export]
macro_rules! session_by {
    (Session, $each:ident) => {
        fn has_more(&self) -> bool {
            $each!(self, session => session.has_more())
        }

        fn expects(&self) -> Option<$crate::ExpectedPayload> {
            $each!(self, session => session.expects())
        }

        fn reply(
            &mut self,
            reply: &$crate::Reply,
            body: &[u8],
        ) -> Result<$crate::FrameHead, $crate::ProtocolError> {
            $each!(self, session => session.reply(reply, body))
        }

        fn invite(
            &mut self,
            tag: $crate::Tag,
            slot: $crate::Slot,
            room: &mut [u8],
        ) -> $crate::FrameHead {
            $each!(self, session => session.invite(tag, slot, room))
        }

        fn is_mid_message(&self) -> bool {
            $each!(self, session => session.is_mid_message())
        }

        fn takes_notices(&self) -> bool {
            $each!(self, session => session.takes_notices())
        }
    };
    (RevocablePermissions, $each:ident) => {
        fn allowed_as_of(&self, tag: $crate::Tag) -> u32 {
            $each!(self, session => session.allowed_as_of(tag))
        }

        fn allow_again(&mut self, tag: $crate::Tag) -> Result<u32, $crate::Status> {
            $each!(self, session => session.allow_again(tag))
        }
    };
    (UnsolicitedOutput, $each:ident) => {
        fn attend(&mut self, now: $crate::Instant) -> Result<(), $crate::ProtocolError> {
            $each!(self, session => session.attend(now))
        }

        fn unsaid(&self) -> usize {
            $each!(self, session => session.unsaid())
        }

        fn speak(&mut self, to: &mut [u8]) -> usize {
            $each!(self, session => session.speak(to))
        }

        fn leave(&mut self) {
            $each!(self, session => session.leave())
        }
    };
    (MigratableSession, $each:ident) => {
        fn moves_to(&self, worker: u16) -> bool {
            $each!(self, session => session.moves_to(worker))
        }

        fn is_settled(&self) -> bool {
            $each!(self, session => session.is_settled())
        }

        fn pack(&mut self) -> Option<Vec<u8>> {
            $each!(self, session => session.pack())
        }
    };
}

/// Sessions that are restored from their bytes alone.
pub trait RestorableSession: Sized {
    /// Restores a [packed](MigratableSession::pack) session; `None` if the bytes are not from a
    /// session of this version.
    fn unpack(packed: &[u8]) -> Option<Self>;
}
