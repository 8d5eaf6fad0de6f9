//! The server's end of a connection of protocol `reflex`: detects the version, frames messages, and
//! decodes them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{
    ControlRequest, ExpectedPayload, FrameHead, MigratableSession, ProtocolError, Reply, Request,
    RestorableSession, RevocablePermissions, Session, SessionEvent, Slot, Status, Tag,
    UnsolicitedOutput,
};
use wire::reflex_v1::{self, MessageHead};
use wire::reflex_v2::{
    HelloHead, MAGIC, Opcode, RequestHead, SloBody, TENANT_BYTES_MAX, TOKEN_BYTES_MAX,
};
use zerocopy::FromBytes;

use super::passage::PayloadProgress;
use super::{PAYLOAD_BYTES_MAX, server_v2, v1};
use crate::carry::PartialMessage;

/// The size in bytes of the longest message that is gathered before it is decoded: a hello with the
/// longest token and name.
const GATHERED_BYTES_MAX: usize = size_of::<HelloHead>() + TOKEN_BYTES_MAX + TENANT_BYTES_MAX;

/// The size in bytes of the payload of a register or renegotiate with the longest name.
const REGISTER_BYTES_MAX: usize = size_of::<SloBody>() + TENANT_BYTES_MAX;

const _: () = assert!(GATHERED_BYTES_MAX <= 192);
const _: () = assert!(size_of::<RequestHead>() + REGISTER_BYTES_MAX <= GATHERED_BYTES_MAX);

/// The server's end of protocol `reflex` on one connection, in the client's version.
#[derive(Debug)]
pub struct ServerSession {
    pub(super) phase: Phase,
    /// `true` if the client asked for checksums and, after the hello's reply, both ends agreed.
    pub(super) checksums: bool,
    /// The unread part of the last request's payload, which is passed to the worker as it arrives.
    pub(super) payload: PayloadProgress,
    /// The first bytes of the next message, while it has not come whole. Empty while a payload
    /// passes.
    pub(super) carry: PartialMessage<GATHERED_BYTES_MAX>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The version is unknown; the client's first bytes end this phase.
    Undetected,
    /// Version 1, to the end of the connection.
    V1,
    /// Version 2 before the end of the hello, which ends this phase.
    Hello,
    /// The hello was passed on; the reply to it ends this phase.
    Unanswered,
    /// Requests may come, to the end of the connection.
    Open,
    /// The hello was refused; nothing more may come.
    Refused,
}

impl Default for ServerSession {
    fn default() -> Self {
        ServerSession::new()
    }
}

impl ServerSession {
    /// Creates a session of a connection that has sent nothing yet.
    pub fn new() -> Self {
        ServerSession {
            phase: Phase::Undetected,
            checksums: false,
            payload: PayloadProgress::new(),
            carry: PartialMessage::new(),
        }
    }

    /// Returns the protocol version of the client; `None` before the client's first bytes have
    /// come.
    pub fn version(&self) -> Option<u8> {
        match self.phase {
            Phase::Undetected => None,
            Phase::V1 => Some(1),
            Phase::Hello | Phase::Unanswered | Phase::Open | Phase::Refused => Some(2),
        }
    }

    /// Detects the version by the first two bytes, and checks the magic of version 2, which has
    /// four.
    fn detect(&mut self, input: &mut &[u8]) -> Result<(), ProtocolError> {
        let word = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let Some(first) = self.carry.gather(input, 2).map(word) else { return Ok(()) };
        if first == reflex_v1::MAGIC {
            self.phase = Phase::V1;
        } else if first != word(&MAGIC) {
            return Err(ProtocolError::BadMagic(first));
        } else if let Some(bytes) = self.carry.gather(input, 4) {
            if bytes != MAGIC {
                return Err(ProtocolError::BadMagic(word(&bytes[2..])));
            }
            self.phase = Phase::Hello;
        }
        Ok(())
    }

    fn next_v1(&mut self, input: &mut &[u8]) -> Result<Option<Request>, ProtocolError> {
        let request = if self.carry.is_empty()
            && let Ok((head, rest)) = MessageHead::ref_from_prefix(input)
        {
            *input = rest;
            v1::request(head)?
        } else {
            let Some(bytes) = self.carry.gather(input, size_of::<MessageHead>()) else {
                return Ok(None);
            };
            let head = MessageHead::ref_from_bytes(bytes).expect("gathered to its size");
            let request = v1::request(head)?;
            self.carry.clear();
            request
        };
        self.payload.begin(request.payload_bytes as u32, None);
        Ok(Some(request))
    }

    fn next_hello(&mut self, input: &mut &[u8]) -> Result<Option<ControlRequest>, ProtocolError> {
        let Some(bytes) = self.carry.gather(input, size_of::<HelloHead>()) else {
            return Ok(None);
        };
        let head = HelloHead::read_from_bytes(bytes).expect("gathered to its size");
        let words = server_v2::check_hello(&head)?;
        let Some(bytes) = self.carry.gather(input, size_of::<HelloHead>() + words) else {
            return Ok(None);
        };
        let hello = server_v2::hello(&head, &bytes[size_of::<HelloHead>()..]);
        self.checksums = hello.checksums;
        self.carry.clear();
        self.phase = Phase::Unanswered;
        Ok(Some(ControlRequest::Hello(hello)))
    }

    /// Decodes the next message. A command whose head lies whole in the input is decoded in place;
    /// everything else is gathered.
    fn next_v2<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        if self.carry.is_empty()
            && let Ok((head, rest)) = RequestHead::ref_from_prefix(input)
            && head.opcode < Opcode::CONTROL_FIRST
        {
            *input = rest;
            return self.begin(head).map(Some);
        }
        let Some(bytes) = self.carry.gather(input, size_of::<RequestHead>()) else {
            return Ok(None);
        };
        let head = RequestHead::read_from_bytes(bytes).expect("gathered to its size");
        match head.opcode {
            Opcode::HELLO => Err(ProtocolError::OutOfOrder),
            Opcode::REGISTER | Opcode::RENEGOTIATE => self.next_register(&head, input),
            _ => {
                self.carry.clear();
                match server_v2::control(&head) {
                    Some(control) => Ok(Some(SessionEvent::Control(Box::new(control)))),
                    None => self.begin(&head).map(Some),
                }
            }
        }
    }

    /// Decodes a register or renegotiate whose head has been gathered. A malformed one is refused
    /// like a command.
    fn next_register<'a>(
        &mut self,
        head: &RequestHead,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        let payload_bytes = head.payload_bytes.get() as usize;
        if !(size_of::<SloBody>()..=REGISTER_BYTES_MAX).contains(&payload_bytes) {
            self.carry.clear();
            return self.begin(head).map(Some);
        }
        let Some(bytes) = self.carry.gather(input, size_of::<RequestHead>() + payload_bytes) else {
            return Ok(None);
        };
        let event = match server_v2::register(head, &bytes[size_of::<RequestHead>()..]) {
            Ok(control) => SessionEvent::Control(Box::new(control)),
            Err(verdict) => SessionEvent::Request(server_v2::refusal(head, 0, verdict)),
        };
        self.carry.clear();
        Ok(Some(event))
    }

    /// Decodes the head of a command, or of a message that is refused like one. Its payload
    /// follows.
    fn begin<'a>(&mut self, head: &RequestHead) -> Result<SessionEvent<'a>, ProtocolError> {
        let payload_bytes = head.payload_bytes.get();
        if payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(ProtocolError::BadLength(u64::from(payload_bytes)));
        }
        let request = server_v2::request(head);
        let checked = self.checksums && request.verdict.is_ok();
        self.payload.begin(payload_bytes, checked.then(|| head.payload_crc32c.get()));
        Ok(SessionEvent::Request(request))
    }
}

impl Session for ServerSession {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        if self.payload.is_open() {
            let piece = self.payload.next(input);
            return Ok(piece.map(|(bytes, end)| SessionEvent::Payload { bytes, end }));
        }
        if self.phase == Phase::Undetected {
            self.detect(input)?;
        }
        match self.phase {
            Phase::Open => self.next_v2(input),
            Phase::V1 => Ok(self.next_v1(input)?.map(SessionEvent::Request)),
            Phase::Undetected => Ok(None),
            Phase::Hello => Ok(self.next_hello(input)?.map(|c| SessionEvent::Control(Box::new(c)))),
            Phase::Unanswered | Phase::Refused if input.is_empty() => Ok(None),
            Phase::Unanswered | Phase::Refused => Err(ProtocolError::OutOfOrder),
        }
    }

    fn expects(&self) -> Option<ExpectedPayload> {
        let bytes = self.payload.left();
        (bytes > 0).then_some(ExpectedPayload { place: None, bytes })
    }

    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, ProtocolError> {
        match self.phase {
            Phase::V1 => v1::reply(reply, body),
            Phase::Undetected | Phase::Hello | Phase::Refused => Err(ProtocolError::OutOfOrder),
            Phase::Open => Ok(server_v2::reply(reply, body, self.checksums)),
            Phase::Unanswered => {
                let Reply::Hello { status, reply: limits, .. } = reply else {
                    return Err(ProtocolError::OutOfOrder);
                };
                self.checksums &= limits.checksums;
                self.phase = if status.is_ok() { Phase::Open } else { Phase::Refused };
                Ok(server_v2::reply(reply, body, self.checksums))
            }
        }
    }

    fn invite(&mut self, tag: Tag, slot: Slot, _: &mut [u8]) -> FrameHead {
        unreachable!("payloads follow their requests: {tag:#x} of {slot:?} was not awaited")
    }

    fn is_mid_message(&self) -> bool {
        self.payload.is_open() || !self.carry.is_empty()
    }

    fn takes_notices(&self) -> bool {
        self.phase == Phase::Open
    }
}

/// Rights of admitted requests are never withdrawn in this protocol.
impl RevocablePermissions for ServerSession {
    fn allowed_as_of(&self, _: Tag) -> u32 {
        0
    }

    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        unreachable!("nothing takes rights away from request {tag:#x}")
    }
}

/// A session of `reflex` sends only replies, and no messages of its own.
impl UnsolicitedOutput for ServerSession {}

impl MigratableSession for ServerSession {
    fn moves_to(&self, _: u16) -> bool {
        true
    }

    fn pack(&mut self) -> Option<Vec<u8>> {
        Some(self.to_bytes())
    }
}

impl RestorableSession for ServerSession {
    fn unpack(packed: &[u8]) -> Option<Self> {
        ServerSession::from_bytes(packed)
    }
}
