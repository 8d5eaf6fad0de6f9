//! The server's end of a connection: the negotiation, then requests and their replies (the
//! specification's "Transmission").

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, Command, CompletedPrelude, ExpectedPayload, FrameHead, Instant, IoKind,
    MigratableSession, NamespaceId, Protocol, ProtocolError, Range, Reply, Request,
    RestorableSession, RevocablePermissions, Session, SessionEvent, Slot, Status, Tag,
    UnsolicitedOutput,
};
use wire::nbd::{
    CHUNK_DONE, CHUNK_MAGIC, ChunkHead, ChunkKind, CommandKind, DataChunk, ErrorChunk,
    REQUEST_MAGIC, RequestHead, SIMPLE_REPLY_MAGIC, SimpleReply, StatusChunk, command_flag,
};
use zerocopy::{FromBytes, IntoBytes};

use super::cut::{RemainingPieces, RequestOperation, SplitRequest, SplitRequests};
use super::errno;
use super::handshake::Handshake;
use super::limits::{ALLOCATION, PAYLOAD_BYTES_MAX, PIECE_BLOCKS_MAX};
use crate::carry::PartialMessage;

/// The stream of the barriers that stand for `NBD_CMD_CACHE`. It has no other requests, so that
/// they end at once.
const ANNOUNCEMENTS: u8 = 7;

/// The zeroes that are written where a client wants zeroes in blocks that stay allocated.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The server's end of NBD on one connection.
#[derive(Debug)]
pub struct NbdSession {
    /// The negotiation; `None` once its last message was sent.
    pub(super) handshake: Option<Box<Handshake>>,
    /// The chosen export; zeroes before one was chosen.
    pub(super) export: Export,
    /// The first bytes of the next request's head, while it has not come whole. Empty while a
    /// payload passes.
    pub(super) carry: PartialMessage<{ size_of::<RequestHead>() }>,
    /// The number of bytes of the last request's payload that have not been passed on.
    pub(super) payload: u32,
    /// The source of the payload's bytes.
    pub(super) source: PayloadSource,
    /// The tag of the request to which the payload belongs.
    pub(super) paying: Tag,
    /// The refusal of a write, which is sent after the client has sent the data.
    pub(super) late: WriteRefusal,
    /// The reply to a block status that has to be sent: the request's cookie and its length in
    /// bytes.
    pub(super) extent: Option<(Tag, u32)>,
    /// The request that is being cut into pieces, and its blocks that have not been passed on.
    pub(super) rest: Option<RemainingPieces>,
    pub(super) cuts: SplitRequests,
    /// The number of requests and pieces that were passed on and have not ended.
    pub(super) running: u32,
    /// `true` if the client has announced that no more requests come.
    pub(super) is_closing: bool,
}

/// The source of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadSource {
    /// The client sends the payload.
    Client,
    /// The session fills a range with zeroes.
    Zeroes,
}

/// The refusal of a write whose data has not arrived: the request's cookie and the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteRefusal {
    /// No refused write waits for its reply.
    None,
    /// The refusal waits, since the write's data is still arriving.
    Held(Tag, u32),
    /// The refused write's data has arrived, and the reply has to be sent.
    Due(Tag, u32),
}

/// A chosen export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) namespace: NamespaceId,
    /// The export's size as reported to the client, in blocks of 512 bytes.
    pub(super) blocks: u64,
    /// `true` if replies to reads are structured.
    pub(super) structured: bool,
    /// `true` if the client may ask for the status of blocks.
    pub(super) mapped: bool,
}

impl Default for NbdSession {
    fn default() -> Self {
        NbdSession::new()
    }
}

impl NbdSession {
    /// Creates the session of a new connection. The session has its greeting [to
    /// send](UnsolicitedOutput::unsaid).
    pub fn new() -> Self {
        NbdSession {
            handshake: Some(Box::new(Handshake::new())),
            export: Export {
                namespace: NamespaceId(0),
                blocks: 0,
                structured: false,
                mapped: false,
            },
            carry: PartialMessage::new(),
            payload: 0,
            source: PayloadSource::Client,
            paying: 0,
            late: WriteRefusal::None,
            extent: None,
            rest: None,
            cuts: SplitRequests::default(),
            running: 0,
            is_closing: false,
        }
    }

    /// Creates a session of a connection whose negotiation a [prelude](super::ServerPrelude) has
    /// begun.
    pub fn after(opening: &CompletedPrelude) -> Self {
        NbdSession { handshake: Some(Box::new(Handshake::after(opening))), ..NbdSession::new() }
    }

    /// Does the next part of the negotiation. Requests that follow wait until its last message was
    /// sent.
    fn negotiate<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        let Some(handshake) = &mut self.handshake else { return Ok(None) };
        if handshake.has_news() {
            return Ok(Some(SessionEvent::Own));
        }
        let question = handshake.take(input)?;
        match question {
            Some(question) => Ok(Some(SessionEvent::Control(Box::new(question)))),
            None if handshake.has_news() => Ok(Some(SessionEvent::Own)),
            None => Ok(None),
        }
    }

    /// Returns the next piece of the payload, from `input` or of zeroes; `None` if `input` is
    /// empty.
    fn next_payload<'a>(&mut self, input: &mut &'a [u8]) -> Option<SessionEvent<'a>> {
        let left = self.payload as usize;
        let bytes: &'a [u8] = match self.source {
            PayloadSource::Zeroes => &ZEROES[..left.min(ZEROES.len())],
            PayloadSource::Client if input.is_empty() => return None,
            PayloadSource::Client => {
                let (piece, rest) = input.split_at(left.min(input.len()));
                *input = rest;
                piece
            }
        };
        self.payload -= bytes.len() as u32;
        let end = (self.payload == 0).then_some(Status::Ok);
        if end.is_some() {
            self.source = PayloadSource::Client;
        }
        Some(SessionEvent::Payload { bytes, end })
    }

    /// Returns the next piece of the request that is being cut; `None` if no request is being cut,
    /// or the piece has to wait.
    fn next_piece(&mut self) -> Option<Request> {
        let rest = self.rest.as_mut()?;
        if rest.in_order && self.running > 0 {
            return None;
        }
        // What goes in order stays until the reply to its last piece was given.
        let command = rest.next()?;
        let (tag, work) = (rest.tag, rest.work);
        if rest.range.blocks == 0 && !rest.in_order {
            self.rest = None;
        }
        Some(self.pass_on(tag, command, work))
    }

    /// Returns the event that passes a client's command on to the worker. The command's payload
    /// follows if it has one.
    fn pass_on(&mut self, tag: Tag, command: Command, work: RequestOperation) -> Request {
        let payload_bytes = command.payload_bytes();
        self.payload = payload_bytes as u32;
        self.paying = tag;
        if matches!(work, RequestOperation::Fill { .. }) {
            self.source = PayloadSource::Zeroes;
        }
        self.request(tag, 0, command, payload_bytes, Status::Ok)
    }

    fn request(
        &mut self,
        tag: Tag,
        stream: u8,
        command: Command,
        payload_bytes: usize,
        verdict: Status,
    ) -> Request {
        self.running += 1;
        let namespace = Some(self.export.namespace);
        Request { tag, stream, namespace, tenant: 0, command, payload_bytes, verdict }
    }

    /// Decodes the next request off the front of `input`; `None` if its head is incomplete, or if
    /// [`begin`](NbdSession::begin) returns none.
    fn next_request(&mut self, input: &mut &[u8]) -> Result<Option<Request>, ProtocolError> {
        if self.carry.is_empty()
            && let Ok((head, rest)) = RequestHead::ref_from_prefix(input)
        {
            *input = rest;
            return self.begin(head);
        }
        let Some(bytes) = self.carry.gather(input, size_of::<RequestHead>()) else {
            return Ok(None);
        };
        let head = RequestHead::read_from_bytes(bytes).expect("gathered to its size");
        self.carry.clear();
        self.begin(&head)
    }

    /// Begins a request. Returns the request for the worker; `None` if there is none, or none yet:
    /// for a disconnect, a block status, or pieces that have to wait.
    fn begin(&mut self, head: &RequestHead) -> Result<Option<Request>, ProtocolError> {
        if head.magic.get() != REQUEST_MAGIC {
            return Err(ProtocolError::BadMagic(head.magic.get() as u16));
        }
        let (tag, flags, bytes) = (head.cookie.get(), head.flags.get(), head.bytes.get());
        // Pieces are told by the cookie of their request.
        if !self.cuts.is_empty() && self.cuts.has(tag) {
            return Err(ProtocolError::UnknownTag(tag));
        }
        let fua = flags & command_flag::FUA != 0;
        let kind = CommandKind(head.command.get());
        let (work, allowed) = match kind {
            // Most requests are reads; for them this is all.
            CommandKind::READ if self.export.structured => {
                (RequestOperation::Read, command_flag::DF)
            }
            CommandKind::READ => (RequestOperation::Read, 0),
            CommandKind::WRITE => (RequestOperation::Write { fua }, 0),
            CommandKind::TRIM if fua => (RequestOperation::WriteZeroes { fua }, 0),
            CommandKind::TRIM => (RequestOperation::Discard, 0),
            CommandKind::WRITE_ZEROES => {
                let work = match flags & command_flag::NO_HOLE {
                    0 => RequestOperation::WriteZeroes { fua },
                    _ => RequestOperation::Fill { fua },
                };
                (work, command_flag::NO_HOLE | command_flag::FAST_ZERO)
            }
            CommandKind::DISC => {
                self.is_closing = true;
                return Ok(None);
            }
            CommandKind::BLOCK_STATUS if self.has_status(head) => {
                self.extent = Some((tag, bytes));
                return Ok(None);
            }
            _ => return Ok(Some(self.begin_other(kind, head))),
        };
        let payload = if kind == CommandKind::WRITE { bytes } else { 0 };
        let range = blocks_of(head);
        let verdict = match range {
            _ if flags & !(allowed | command_flag::FUA) != 0 => Status::Invalid,
            // No device tells whether it is faster at zeroes than at data.
            _ if flags & command_flag::FAST_ZERO != 0 => Status::Unsupported,
            _ if bytes > PAYLOAD_BYTES_MAX && work == RequestOperation::Read => Status::Invalid,
            _ if payload > PAYLOAD_BYTES_MAX => Status::Invalid,
            None => Status::Invalid,
            Some(range) if range.blocks <= PIECE_BLOCKS_MAX => {
                return Ok(Some(self.pass_on(tag, work.command(range), work)));
            }
            Some(_) if flags & command_flag::DF != 0 => Status::BadLength,
            Some(range) => {
                let in_order = work == RequestOperation::Read && !self.export.structured;
                let rest = RemainingPieces { tag, work, range, in_order };
                self.cuts.add(&rest);
                self.rest = Some(rest);
                return Ok(self.next_piece_now());
            }
        };
        self.payload = payload;
        self.paying = tag;
        let refused = work.command(Range::new(0, 1));
        Ok(Some(self.request(tag, 0, refused, payload as usize, verdict)))
    }

    /// Returns the first piece of a cut request; `None` if the client has to send data first or
    /// other requests have to end.
    fn next_piece_now(&mut self) -> Option<Request> {
        self.needs_no_bytes().then(|| self.next_piece()).flatten()
    }

    /// Returns the worker's request for a flush, a cache or an unknown command.
    fn begin_other(&mut self, kind: CommandKind, head: &RequestHead) -> Request {
        let tag = head.cookie.get();
        let is_plain = head.flags.get() & !command_flag::FUA == 0;
        match kind {
            CommandKind::FLUSH if is_plain && head.bytes.get() == 0 && head.offset.get() == 0 => {
                self.request(tag, 0, Command::Flush, 0, Status::Ok)
            }
            // Nothing is read ahead, which is as good an answer as any.
            CommandKind::CACHE if is_plain => {
                let fits = blocks_of(head).is_some_and(|range| range.fits(self.export.blocks));
                let verdict = if fits { Status::Ok } else { Status::Invalid };
                self.request(tag, ANNOUNCEMENTS, Command::Barrier, 0, verdict)
            }
            _ => self.request(tag, 0, Command::Flush, 0, Status::Invalid),
        }
    }

    /// Returns `true` if this query of the status of blocks can be answered: its whole range is
    /// allocated, since devices do not report holes.
    fn has_status(&self, head: &RequestHead) -> bool {
        const ALLOWED: u16 = command_flag::REQ_ONE | command_flag::FUA;
        let fits = blocks_of(head).is_some_and(|range| range.fits(self.export.blocks));
        self.export.mapped && fits && head.flags.get() & !ALLOWED == 0
    }

    /// Returns `true` if the rest of a request continues without bytes of the client.
    fn needs_no_bytes(&self) -> bool {
        self.rest.is_some_and(|rest| !matches!(rest.work, RequestOperation::Write { .. }))
    }

    /// Encodes the messages that follow from the end of a request, or of a piece of a request.
    fn done(
        &mut self,
        tag: Tag,
        command: Command,
        status: Status,
        body: &[u8],
    ) -> Result<FrameHead, ProtocolError> {
        if self.cuts.is_empty() {
            return Ok(self.whole(tag, command, status, body));
        }
        let blocks = command.range().map_or(0, |range| range.blocks);
        match self.cuts.end(tag, blocks, status) {
            Some(cut) => self.piece(&cut, command, status, body),
            None => Ok(self.whole(tag, command, status, body)),
        }
    }

    /// Encodes the reply to a request that was not cut.
    #[inline]
    fn whole(&self, tag: Tag, command: Command, status: Status, body: &[u8]) -> FrameHead {
        match command {
            Command::Read(range) if self.export.structured => match status {
                Status::Ok => FrameHead::new(data_chunk(tag, range, body, CHUNK_DONE).as_bytes()),
                _ => FrameHead::new(error_chunk(tag, errno::of(status, IoKind::Read)).as_bytes()),
            },
            _ => FrameHead::new(simple(tag, errno::of(status, command.kind())).as_bytes()),
        }
    }

    /// Encodes the messages that follow from the end of a piece of a cut request.
    fn piece(
        &mut self,
        cut: &SplitRequest,
        command: Command,
        status: Status,
        body: &[u8],
    ) -> Result<FrameHead, ProtocolError> {
        let (tag, is_last) = (cut.tag, cut.left == 0);
        let nothing = FrameHead::new(&[]);
        let Command::Read(range) = command else {
            let error = errno::of(cut.status, command.kind());
            return Ok(if is_last {
                FrameHead::new(simple(tag, error).as_bytes())
            } else {
                nothing
            });
        };
        if cut.in_order {
            if is_last || !status.is_ok() {
                self.rest = None;
            }
            return match (status, cut.has_begun) {
                (Status::Ok, true) => Ok(FrameHead::of_body()),
                (status, false) => {
                    Ok(FrameHead::new(simple(tag, errno::of(status, IoKind::Read)).as_bytes()))
                }
                // The client has been told that the read succeeded.
                (status, true) => Err(ProtocolError::Unanswerable(status)),
            };
        }
        let failure = error_chunk(tag, errno::of(cut.status, IoKind::Read));
        Ok(match (status.is_ok(), is_last, cut.status.is_ok()) {
            (true, false, _) => FrameHead::new(data_chunk(tag, range, body, 0).as_bytes()),
            (true, true, true) => {
                FrameHead::new(data_chunk(tag, range, body, CHUNK_DONE).as_bytes())
            }
            (true, true, false) => {
                FrameHead::with_tail(data_chunk(tag, range, body, 0).as_bytes(), failure.as_bytes())
            }
            (false, true, _) => FrameHead::new(failure.as_bytes()),
            (false, false, _) => nothing,
        })
    }
}

impl Session for NbdSession {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        if self.payload > 0 {
            return Ok(self.next_payload(input));
        }
        if self.handshake.is_some() {
            return self.negotiate(input);
        }
        match self.late {
            WriteRefusal::None => {}
            WriteRefusal::Held(tag, error) => {
                self.late = WriteRefusal::Due(tag, error);
                return Ok(Some(SessionEvent::Own));
            }
            WriteRefusal::Due(..) => return Ok(None),
        }
        if self.extent.is_some() {
            return Ok(None);
        }
        loop {
            if self.is_closing {
                // The end waits for the requests that came before.
                return Ok((self.running == 0).then_some(SessionEvent::Own));
            }
            if self.rest.is_some() {
                if input.is_empty() && !self.needs_no_bytes() {
                    return Ok(None);
                }
                return Ok(self.next_piece().map(SessionEvent::Request));
            }
            if self.cuts.is_full() {
                return Ok(None);
            }
            let before = input.len();
            match self.next_request(input)? {
                Some(request) => return Ok(Some(SessionEvent::Request(request))),
                None if self.extent.is_some() => return Ok(Some(SessionEvent::Own)),
                None if input.len() == before || (self.rest.is_none() && !self.is_closing) => {
                    return Ok(None);
                }
                None => {}
            }
        }
    }

    fn has_more(&self) -> bool {
        match &self.handshake {
            Some(handshake) => handshake.has_more(),
            None => {
                let fills = self.payload > 0 && self.source == PayloadSource::Zeroes;
                let is_late = self.payload == 0 && matches!(self.late, WriteRefusal::Held(..));
                fills || is_late || self.is_closing || self.payload == 0 && self.needs_no_bytes()
            }
        }
    }

    fn expects(&self) -> Option<ExpectedPayload> {
        let comes = self.payload > 0 && self.source == PayloadSource::Client;
        comes.then_some(ExpectedPayload { place: None, bytes: self.payload as usize })
    }

    fn invite(&mut self, tag: Tag, slot: Slot, _: &mut [u8]) -> FrameHead {
        unreachable!("payloads follow their requests: {tag:#x} of {slot:?} was not awaited")
    }

    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, ProtocolError> {
        let (tag, command, status) = match reply {
            Reply::Done { tag, command, status } => (*tag, *command, *status),
            Reply::Info { info, .. } => {
                let handshake = self.handshake.as_mut().ok_or(ProtocolError::OutOfOrder)?;
                if let Some(chosen) = handshake.answer_info(*info)? {
                    self.export = Export {
                        namespace: chosen.info.namespace,
                        blocks: chosen.info.blocks,
                        structured: chosen.structured,
                        mapped: chosen.mapped,
                    };
                }
                return Ok(FrameHead::new(&[]));
            }
            Reply::List { names, .. } => {
                let handshake = self.handshake.as_mut().ok_or(ProtocolError::OutOfOrder)?;
                handshake.answer_list(names)?;
                return Ok(FrameHead::new(&[]));
            }
            _ => return Err(ProtocolError::OutOfOrder),
        };
        self.running -= 1;
        let head = self.done(tag, command, status, body)?;
        let is_early = self.payload > 0 && self.paying == tag && !head.is_empty();
        if is_early && command.kind() == IoKind::Write {
            self.late = WriteRefusal::Held(tag, errno::of(status, IoKind::Write));
            return Ok(FrameHead::new(&[]));
        }
        Ok(head)
    }

    fn protocol(&self) -> Protocol {
        Protocol::Nbd
    }

    fn is_mid_message(&self) -> bool {
        let owes_data =
            self.rest.is_some_and(|rest| matches!(rest.work, RequestOperation::Write { .. }));
        self.expects().is_some() || owes_data || !self.carry.is_empty()
    }

    fn takes_notices(&self) -> bool {
        false
    }
}

/// Rights of admitted requests are never withdrawn in this protocol.
impl RevocablePermissions for NbdSession {
    fn allowed_as_of(&self, _: Tag) -> u32 {
        0
    }

    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        unreachable!("nothing takes rights away from request {tag:#x}")
    }
}

impl UnsolicitedOutput for NbdSession {
    fn attend(&mut self, now: Instant) -> Result<(), ProtocolError> {
        match &mut self.handshake {
            Some(handshake) => handshake.attend(now),
            None if self.is_closing && self.running == 0 => Err(ProtocolError::Ended(0)),
            None => Ok(()),
        }
    }

    fn unsaid(&self) -> usize {
        match (&self.handshake, self.late) {
            (Some(handshake), _) => handshake.unsaid(),
            (None, WriteRefusal::Due(..)) => size_of::<SimpleReply>(),
            (None, _) if self.extent.is_some() => size_of::<StatusChunk>(),
            (None, _) => 0,
        }
    }

    fn speak(&mut self, to: &mut [u8]) -> usize {
        if let WriteRefusal::Due(tag, error) = self.late {
            let reply = simple(tag, error);
            to[..size_of::<SimpleReply>()].copy_from_slice(reply.as_bytes());
            self.late = WriteRefusal::None;
            return size_of::<SimpleReply>();
        }
        if let Some((tag, bytes)) = self.extent.take() {
            to[..size_of::<StatusChunk>()].copy_from_slice(allocated(tag, bytes).as_bytes());
            return size_of::<StatusChunk>();
        }
        let Some(handshake) = &mut self.handshake else { return 0 };
        let said = handshake.speak(to);
        if handshake.is_over() {
            self.handshake = None;
        }
        said
    }
}

impl MigratableSession for NbdSession {
    /// A negotiation lasts only seconds, so a connection does not move to another worker during
    /// one.
    fn moves_to(&self, _: u16) -> bool {
        self.handshake.is_none()
    }

    fn is_settled(&self) -> bool {
        let says_all = self.handshake.is_none()
            && self.extent.is_none()
            && !matches!(self.late, WriteRefusal::Due(..));
        says_all && (self.payload == 0 || self.source == PayloadSource::Client)
    }

    fn pack(&mut self) -> Option<Vec<u8>> {
        Some(self.to_bytes())
    }
}

impl RestorableSession for NbdSession {
    fn unpack(packed: &[u8]) -> Option<Self> {
        NbdSession::from_bytes(packed)
    }
}

/// Returns the blocks of a request; `None` if it is empty, or begins or ends within a block.
fn blocks_of(head: &RequestHead) -> Option<Range> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let (offset, bytes) = (head.offset.get(), u64::from(head.bytes.get()));
    let is_whole = offset % BLOCK == 0 && bytes % BLOCK == 0 && bytes > 0;
    is_whole.then(|| Range::new(offset / BLOCK, (bytes / BLOCK) as u32))
}

fn simple(tag: Tag, error: u32) -> SimpleReply {
    SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: tag.into() }
}

fn chunk(tag: Tag, kind: ChunkKind, flags: u16, bytes: usize) -> ChunkHead {
    ChunkHead {
        magic: CHUNK_MAGIC.into(),
        flags: flags.into(),
        kind: kind.0.into(),
        cookie: tag.into(),
        bytes: (bytes as u32).into(),
    }
}

fn data_chunk(tag: Tag, range: Range, body: &[u8], flags: u16) -> DataChunk {
    let bytes = size_of::<u64>() + body.len();
    let offset = range.lba * BLOCK_BYTES as u64;
    DataChunk { head: chunk(tag, ChunkKind::OFFSET_DATA, flags, bytes), offset: offset.into() }
}

/// Returns the reply that a range of this length is allocated.
fn allocated(tag: Tag, bytes: u32) -> StatusChunk {
    let length = size_of::<StatusChunk>() - size_of::<ChunkHead>();
    let head = chunk(tag, ChunkKind::BLOCK_STATUS, CHUNK_DONE, length);
    StatusChunk { head, context: ALLOCATION.into(), bytes: bytes.into(), status: 0.into() }
}

/// Returns the last chunk of a reply that failed.
fn error_chunk(tag: Tag, error: u32) -> ErrorChunk {
    let bytes = size_of::<ErrorChunk>() - size_of::<ChunkHead>();
    let head = chunk(tag, ChunkKind::ERROR, CHUNK_DONE, bytes);
    ErrorChunk { head, error: error.into(), message_bytes: 0.into() }
}
