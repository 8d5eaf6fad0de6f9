//! The client's end of a connection of protocol `reflex`: splits the server's bytes into messages,
//! and encodes requests.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{
    Command, ControlRequest, FrameHead, Hello, HelloReply, NamespaceId, NamespaceInfo, Notice,
    ProtocolError, REQUEST_BYTES_MAX, Status, Tag, TenantReply,
};
use wire::reflex_v1::MessageHead;
use wire::reflex_v2::{HelloBody, ReplyHead, ReplyOpcode, TENANT_BYTES_MAX, TOKEN_BYTES_MAX};
use zerocopy::FromBytes;

use super::passage::PayloadProgress;
use super::{REQUEST_BLOCKS_MAX, STREAMS_MAX, client_v2, v1};
use crate::carry::PartialMessage;

/// The size in bytes of the longest message that is gathered before it is decoded: a head and the
/// largest fixed body.
const GATHERED_BYTES_MAX: usize = contract::HEAD_BYTES_MAX;

const _: () = assert!(size_of::<ReplyHead>() + size_of::<HelloBody>() <= GATHERED_BYTES_MAX);

/// A message of the server, or a piece of a reply's data.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// A command has ended; its data, if any, follows as [`ClientEvent::Body`].
    Reply {
        /// The request's tag. The caller checks that there is such a request.
        tag: Tag,
        /// The command's status.
        status: Status,
        /// The number of bytes that follow, at most the largest request; zero unless the status is
        /// `Ok`. The caller checks that it has asked for this number.
        body_bytes: usize,
    },
    /// The next piece of the last reply's data, never empty.
    Body {
        /// The bytes of the piece, lent for this call.
        bytes: &'a [u8],
        /// The data's status, with the last piece: `Ok`, or why the data must not be used.
        end: Option<Status>,
    },
    /// The answer to the hello. If it is `Ok`, requests may be sent from here on.
    Hello {
        /// The hello's tag.
        tag: Tag,
        /// `Ok`, or why the connection is refused.
        status: Status,
        /// The limits of the connection, and the features that both ends use.
        reply: HelloReply,
    },
    /// The answer to an info request.
    Info {
        /// The request's tag.
        tag: Tag,
        /// The namespace's properties, or why the server refuses them.
        info: Result<NamespaceInfo, Status>,
    },
    /// The answer to a register, renegotiate or unregister request.
    Tenant {
        /// The request's tag.
        tag: Tag,
        /// `Ok`, or why the request was refused.
        status: Status,
        /// The tenant's handle, and the tokens that its promise needs and that are free.
        reply: TenantReply,
    },
    /// The answer to a ping.
    Pong {
        /// The request's tag.
        tag: Tag,
    },
    /// A notice that the server sends by itself.
    Notice(Notice),
}

/// The client's end of protocol `reflex` on one connection.
#[derive(Debug)]
pub struct ClientSession {
    phase: Phase,
    /// `true` if checksums were asked for and, after the hello's answer, agreed on.
    checksums: bool,
    /// The handle of the tenant that requests are charged to.
    charged: u16,
    /// The hello to send; `None` in version 1.
    hello: Option<Box<Hello>>,
    /// The unread part of the last reply's data, which is passed to the caller as it arrives.
    body: PayloadProgress,
    /// The first bytes of the next message, while it has not come whole. Empty while data passes.
    carry: PartialMessage<GATHERED_BYTES_MAX>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Version 1, to the end of the connection.
    V1,
    /// Version 2 before the hello's answer, which ends this phase.
    Unanswered,
    /// Requests may be sent, to the end of the connection.
    Open,
    /// The server refused the hello; nothing more may come.
    Refused,
}

impl ClientSession {
    /// Creates a session of version 1.
    pub fn v1() -> Self {
        ClientSession::new(Phase::V1, None)
    }

    /// Creates a session of version 2 that introduces itself with `hello`.
    ///
    /// # Panics
    /// Panics if the token is longer than [`TOKEN_BYTES_MAX`], or the tenant's name than
    /// [`TENANT_BYTES_MAX`].
    pub fn v2(hello: Hello) -> Self {
        assert!(hello.token.len() <= TOKEN_BYTES_MAX, "a token longer than {TOKEN_BYTES_MAX}");
        assert!(hello.tenant.len() <= TENANT_BYTES_MAX, "a name longer than {TENANT_BYTES_MAX}");
        ClientSession::new(Phase::Unanswered, Some(Box::new(hello)))
    }

    fn new(phase: Phase, hello: Option<Box<Hello>>) -> Self {
        ClientSession {
            phase,
            checksums: hello.as_ref().is_some_and(|hello| hello.checksums),
            charged: 0,
            hello,
            body: PayloadProgress::new(),
            carry: PartialMessage::new(),
        }
    }

    /// Returns the protocol version of this end.
    pub fn version(&self) -> u8 {
        if self.phase == Phase::V1 { 1 } else { 2 }
    }

    /// Returns `true` if payloads carry checksums in both directions, as the hello's answer says.
    pub fn checksums(&self) -> bool {
        self.phase == Phase::Open && self.checksums
    }

    /// Returns `true` if a message from the server has begun and not ended.
    pub fn is_mid_message(&self) -> bool {
        self.body.is_open() || !self.carry.is_empty()
    }

    /// Returns the first heads to send, in this order; none for version 1. In version 2, nothing
    /// else may be sent before [`ClientEvent::Hello`].
    pub fn greeting(&mut self) -> Vec<FrameHead> {
        self.hello.as_ref().map_or_else(Vec::new, |hello| client_v2::greeting(hello))
    }

    /// Charges the following requests to the tenant with this handle, which a register on this
    /// connection returned. Zero, the initial value, charges the connection's own tenant. Version 1
    /// ignores it.
    pub fn charge(&mut self, handle: u16) {
        self.charged = handle;
    }

    /// Returns the handle of the tenant that requests are charged to.
    pub fn charged(&self) -> u16 {
        self.charged
    }

    /// Encodes the head of a request. Its payload, all of which must be given here, follows it.
    ///
    /// # Errors
    /// Encodes nothing, and returns `BadLength` if the range is empty or too large, or if the
    /// payload does not match it. Returns `Invalid` for a stream that does not exist or, in version
    /// 1, the tag `u64::MAX`. Returns `Unsupported` for requests that the version does not have,
    /// and `Retry` before the hello's answer.
    pub fn request(
        &mut self,
        tag: Tag,
        stream: u8,
        namespace: Option<NamespaceId>,
        command: Command,
        payload: &[u8],
    ) -> Result<FrameHead, Status> {
        let blocks = command.range().map_or(1, |range| range.blocks);
        let most = match command {
            Command::Discard(_) | Command::WriteZeroes { .. } => u32::MAX,
            _ => REQUEST_BLOCKS_MAX,
        };
        if !(1..=most).contains(&blocks) || command.payload_bytes() != payload.len() {
            return Err(Status::BadLength);
        }
        if stream >= STREAMS_MAX {
            return Err(Status::Invalid);
        }
        match self.phase {
            Phase::Open => {
                let (crc, tenant) = (self.checksums, self.charged);
                client_v2::request(tag, stream, namespace, tenant, command, payload, crc)
            }
            Phase::V1 if namespace.is_some() => Err(Status::Unsupported),
            Phase::V1 => v1::encode_request(tag, command),
            Phase::Unanswered | Phase::Refused => Err(Status::Retry),
        }
    }

    /// Encodes a request about the connection, as heads to send in this order.
    ///
    /// # Errors
    /// Encodes nothing, and returns `Unsupported` in version 1, `BadLength` for a name that is too
    /// long, `Invalid` for a hello (which is the greeting's), and `Retry` before the hello's
    /// answer.
    pub fn control(&mut self, control: &ControlRequest) -> Result<Vec<FrameHead>, Status> {
        match self.phase {
            Phase::Open => client_v2::control(control),
            Phase::V1 => Err(Status::Unsupported),
            Phase::Unanswered | Phase::Refused => Err(Status::Retry),
        }
    }

    /// Returns the number of next bytes that belong to the last reply's body; zero if something
    /// else follows. A caller may receive them in place and pass that slice to
    /// [`next_event`](ClientSession::next_event).
    pub fn expects(&self) -> usize {
        self.body.left()
    }

    /// Takes the next event off the front of `input`. Returns `None` when all of `input` was taken
    /// and more bytes are needed.
    ///
    /// # Errors
    /// Returns an error if the server broke the protocol. The connection must end, and the session
    /// must not be used again.
    pub fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<ClientEvent<'a>>, ProtocolError> {
        if self.body.is_open() {
            let piece = self.body.next(input);
            return Ok(piece.map(|(bytes, end)| ClientEvent::Body { bytes, end }));
        }
        match self.phase {
            Phase::V1 => self.next_v1(input),
            _ => self.next_v2(input),
        }
    }

    fn next_v1<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<ClientEvent<'a>>, ProtocolError> {
        let (tag, body_bytes) = if self.carry.is_empty()
            && let Ok((head, rest)) = MessageHead::ref_from_prefix(input)
        {
            *input = rest;
            v1::decode_reply(head)?
        } else {
            let Some(bytes) = self.carry.gather(input, size_of::<MessageHead>()) else {
                return Ok(None);
            };
            let head = MessageHead::ref_from_bytes(bytes).expect("gathered to its size");
            let decoded = v1::decode_reply(head)?;
            self.carry.clear();
            decoded
        };
        self.body.begin(body_bytes as u32, None);
        Ok(Some(ClientEvent::Reply { tag, status: Status::Ok, body_bytes }))
    }

    /// Decodes the next message. A command's end whose head lies whole in the input is decoded in
    /// place; everything else is gathered.
    fn next_v2<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<ClientEvent<'a>>, ProtocolError> {
        if self.carry.is_empty()
            && let Ok((head, rest)) = ReplyHead::ref_from_prefix(input)
            && head.opcode == ReplyOpcode::DONE
        {
            *input = rest;
            return self.begin(head).map(Some);
        }
        loop {
            let Some(bytes) = self.carry.gather(input, size_of::<ReplyHead>()) else {
                return Ok(None);
            };
            let head = ReplyHead::read_from_bytes(bytes).expect("gathered to its size");
            if head.opcode == ReplyOpcode::DONE {
                self.carry.clear();
                return self.begin(&head).map(Some);
            }
            let whole = size_of::<ReplyHead>() + client_v2::fixed_body_bytes(&head)?;
            let Some(bytes) = self.carry.gather(input, whole) else { return Ok(None) };
            let event = client_v2::event(&head, &bytes[size_of::<ReplyHead>()..])?;
            self.carry.clear();
            self.check_order(event.as_ref())?;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Processes the head of a reply that ends a command. Its data follows.
    fn begin<'a>(&mut self, head: &ReplyHead) -> Result<ClientEvent<'a>, ProtocolError> {
        if self.phase != Phase::Open {
            return Err(ProtocolError::OutOfOrder);
        }
        let status = client_v2::status(head);
        let body_bytes = head.body_bytes.get();
        let body_bytes_max = if status.is_ok() { REQUEST_BYTES_MAX } else { 0 };
        if body_bytes as usize > body_bytes_max {
            return Err(ProtocolError::BadLength(u64::from(body_bytes)));
        }
        self.body.begin(body_bytes, self.checksums.then(|| head.body_crc32c.get()));
        Ok(ClientEvent::Reply { tag: head.tag.get(), status, body_bytes: body_bytes as usize })
    }

    /// Checks that the hello's answer comes first and once.
    fn check_order(&mut self, event: Option<&ClientEvent<'_>>) -> Result<(), ProtocolError> {
        match (self.phase, event) {
            (Phase::Unanswered, Some(ClientEvent::Hello { status, reply, .. })) => {
                self.checksums &= reply.checksums;
                self.phase = if status.is_ok() { Phase::Open } else { Phase::Refused };
                Ok(())
            }
            (Phase::Open, Some(ClientEvent::Hello { .. })) => Err(ProtocolError::OutOfOrder),
            (Phase::Open, _) => Ok(()),
            _ => Err(ProtocolError::OutOfOrder),
        }
    }
}
