//! The client's end of a connection: it chooses an export, then sends requests of a device's size
//! and takes their replies, simple or structured.
//!
//! Deliberately not here: listing exports, meta contexts, and requests larger than a command.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use contract::{BLOCK_BYTES, Command, FrameHead, HEAD_BYTES_MAX, Range, Status};
use wire::nbd::{
    BlockSizeInfo, CHUNK_DONE, CHUNK_MAGIC, ChunkHead, ChunkKind, CommandKind, DataChunk,
    ErrorChunk, ExportInfo, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, Greeting,
    InfoKind, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHead, OptionKind, OptionReply,
    OptionReplyHead, REPLY_IS_ERROR, REQUEST_MAGIC, RequestHead, SIMPLE_REPLY_MAGIC, SimpleReply,
    command_flag, export_flag,
};
use zerocopy::{FromBytes, IntoBytes};

use super::errno;
use super::handshake::FLAGS_BYTES;
use super::limits::PAYLOAD_BYTES_MAX;
use crate::carry::PartialMessage;

/// The most bytes of data in a reply to an option that the client accepts.
const REPLY_BYTES_MAX: usize = 8 << 10;

/// The size in bytes of the longest head: that of a chunk which stands for a hole.
const HEAD_MOST: usize = size_of::<ChunkHead>() + HOLE_BYTES;

/// The size in bytes of a hole's offset and length.
const HOLE_BYTES: usize = 12;

/// The client's end of NBD on one connection.
#[derive(Debug)]
pub struct NbdClient {
    export: Box<[u8]>,
    stage: NegotiationStep,
    /// The first bytes of a message of the negotiation, until it has come whole.
    gathered: Vec<u8>,
    /// Messages of the negotiation that have not been sent.
    outbox: Vec<u8>,
    found: Found,
    carry: PartialMessage<HEAD_MOST>,
    /// The part of the server's reply that comes next.
    body: ReplyPart,
    /// Requests that have not been answered, by their cookies.
    pending: Box<[Option<PendingRequest>]>,
}

/// The step of the negotiation that the server's next message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NegotiationStep {
    Greeting,
    Structured,
    Go,
    Up,
}

/// The properties of the export, as the server has reported them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The size of the export in bytes.
    pub bytes: u64,
    /// `true` if the export accepts writes.
    pub is_writable: bool,
    /// Offsets and lengths are multiples of this number of bytes.
    pub block_bytes: u32,
    /// The most bytes of data that a request may have.
    pub request_bytes_max: u32,
    /// `true` if replies to reads are structured.
    is_structured: bool,
}

/// A request that was sent and has not been answered to its end.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    range: Range,
    /// The number of bytes of a read's data that have not been announced yet.
    left: usize,
    is_read: bool,
    status: Status,
}

/// The part of a reply that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyPart {
    /// The head of the next reply.
    None,
    /// Data of a read, which comes next.
    Data { cookie: u64, at: usize, left: usize, is_last: bool },
    /// The text of an error, which is skipped.
    Text { cookie: u64, left: usize, is_last: bool },
    /// No more bytes of this reply: the reply to the request with this cookie is complete.
    End { cookie: u64 },
}

/// An event that a server's bytes cause at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// The export was chosen, and requests may be sent.
    Up,
    /// A piece of the data of a read.
    Data {
        /// The request's cookie.
        cookie: u64,
        /// The offset in the read's data, in bytes.
        at: usize,
        /// The bytes of the piece.
        bytes: &'a [u8],
    },
    /// A hole in the data of a read, which stands for zeroes.
    Hole {
        /// The request's cookie.
        cookie: u64,
        /// The offset in the read's data, in bytes.
        at: usize,
        /// The number of zero bytes.
        bytes: usize,
    },
    /// A request has ended.
    Ended {
        /// The request's cookie.
        cookie: u64,
        /// The status of the request.
        status: Status,
    },
}

/// The reason that a connection is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdRefusal {
    /// The server refused the export with this reply.
    Export(OptionReply),
    /// The server violated the NBD protocol, or is no NBD server, as the text describes.
    Protocol(&'static str),
}

impl NbdRefusal {
    /// Returns `true` if the server serves clients over TLS only.
    pub fn wants_tls(self) -> bool {
        self == NbdRefusal::Export(OptionReply::TLS_REQUIRED)
    }
}

impl fmt::Display for NbdRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdRefusal::Export(OptionReply::UNKNOWN) => f.write_str("there is no such export"),
            NbdRefusal::Export(OptionReply::POLICY) => f.write_str("the export is closed to us"),
            NbdRefusal::Export(OptionReply::SHUTDOWN) => f.write_str("the server is shutting down"),
            NbdRefusal::Export(OptionReply::UNSUPPORTED) => {
                f.write_str("the server is too old: it does not know NBD_OPT_GO")
            }
            NbdRefusal::Export(OptionReply::TLS_REQUIRED) => f.write_str("the server wants TLS"),
            NbdRefusal::Export(reply) => write!(f, "the server refused with reply {:#x}", reply.0),
            NbdRefusal::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
        }
    }
}

impl NbdClient {
    /// Creates a session that chooses this export, and then has up to `depth` requests in flight.
    pub fn new(export: &str, depth: usize) -> Self {
        NbdClient {
            export: export.as_bytes().into(),
            stage: NegotiationStep::Greeting,
            gathered: Vec::new(),
            outbox: Vec::new(),
            found: Found {
                bytes: 0,
                is_writable: false,
                block_bytes: 1,
                request_bytes_max: PAYLOAD_BYTES_MAX,
                is_structured: false,
            },
            carry: PartialMessage::new(),
            body: ReplyPart::None,
            pending: (0..depth).map(|_| None).collect(),
        }
    }

    /// Creates a session that chooses this export, like [`new`](NbdClient::new), on a connection
    /// over TLS. The greeting and the flags were [exchanged before TLS](super::ClientPrelude).
    pub fn secured(export: &str, depth: usize) -> Self {
        let mut client =
            NbdClient { stage: NegotiationStep::Structured, ..NbdClient::new(export, depth) };
        client.option(OptionKind::STRUCTURED_REPLY, &[]);
        client
    }

    /// Returns `true` if requests may be sent.
    pub fn is_up(&self) -> bool {
        self.stage == NegotiationStep::Up
    }

    /// Returns the properties of the export; complete once requests may be sent.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Takes the messages that the session sends on its own.
    pub fn speech(&mut self) -> impl Iterator<Item = FrameHead> + use<> {
        let words = core::mem::take(&mut self.outbox);
        let count = words.len().div_ceil(HEAD_BYTES_MAX);
        (0..count).map(move |n| {
            let rest = &words[n * HEAD_BYTES_MAX..];
            FrameHead::new(&rest[..rest.len().min(HEAD_BYTES_MAX)])
        })
    }

    /// Encodes a request; a write's data follows its head.
    ///
    /// # Errors
    /// Returns `Unsupported` if NBD has no such request.
    ///
    /// # Panics
    /// Panics if a request of this cookie is in flight, or the cookie is not below the depth.
    pub fn request(&mut self, cookie: u64, command: Command) -> Result<FrameHead, Status> {
        let (kind, is_forced) = match command {
            Command::Read(_) => (CommandKind::READ, false),
            Command::Write { fua, .. } => (CommandKind::WRITE, fua),
            Command::Discard(_) => (CommandKind::TRIM, false),
            Command::WriteZeroes { fua, .. } => (CommandKind::WRITE_ZEROES, fua),
            Command::Flush => (CommandKind::FLUSH, false),
            _ => return Err(Status::Unsupported),
        };
        let range = command.range().unwrap_or(Range::new(0, 0));
        let place = &mut self.pending[cookie as usize];
        assert!(place.is_none(), "{cookie} is in flight");
        let left = command.reply_bytes();
        let is_read = kind == CommandKind::READ;
        *place = Some(PendingRequest { range, left, is_read, status: Status::Ok });
        let head = RequestHead {
            magic: REQUEST_MAGIC.into(),
            flags: if is_forced { command_flag::FUA } else { 0 }.into(),
            command: kind.0.into(),
            cookie: cookie.into(),
            offset: (range.lba * BLOCK_BYTES as u64).into(),
            bytes: (range.bytes() as u32).into(),
        };
        Ok(FrameHead::new(head.as_bytes()))
    }

    /// Takes the next event off the front of `input`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns the reason why the connection is unusable.
    pub fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<ClientEvent<'a>>, NbdRefusal> {
        while self.stage != NegotiationStep::Up {
            if !self.negotiate(input)? {
                return Ok(None);
            }
            if self.stage == NegotiationStep::Up {
                return Ok(Some(ClientEvent::Up));
            }
        }
        loop {
            match self.body {
                ReplyPart::None => match self.take_head(input)? {
                    Some(Some(event)) => return Ok(Some(event)),
                    Some(None) => {}
                    None => return Ok(None),
                },
                ReplyPart::Data { cookie, left: 0, is_last, .. }
                | ReplyPart::Text { cookie, left: 0, is_last } => {
                    self.body = if is_last { ReplyPart::End { cookie } } else { ReplyPart::None };
                }
                ReplyPart::End { cookie } => {
                    self.body = ReplyPart::None;
                    return self.end(cookie).map(Some);
                }
                ReplyPart::Data { .. } | ReplyPart::Text { .. } if input.is_empty() => {
                    return Ok(None);
                }
                ReplyPart::Data { cookie, at, left, is_last } => {
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    let (next, left) = (at + bytes.len(), left - bytes.len());
                    self.body = ReplyPart::Data { cookie, at: next, left, is_last };
                    return Ok(Some(ClientEvent::Data { cookie, at, bytes }));
                }
                ReplyPart::Text { cookie, left, is_last } => {
                    let skipped = left.min(input.len());
                    *input = &input[skipped..];
                    self.body = ReplyPart::Text { cookie, left: left - skipped, is_last };
                }
            }
        }
    }

    /// Processes the head of a reply. Returns `None` if the head is incomplete, and otherwise its
    /// event, if it has one.
    fn take_head<'a>(
        &mut self,
        input: &mut &[u8],
    ) -> Result<Option<Option<ClientEvent<'a>>>, NbdRefusal> {
        const SIMPLE: usize = size_of::<SimpleReply>();
        const CHUNK: usize = size_of::<ChunkHead>();
        let Some(bytes) = self.carry.gather(input, SIMPLE) else { return Ok(None) };
        let reply = SimpleReply::read_from_bytes(&bytes[..SIMPLE]).expect("gathered to its size");
        if reply.magic.get() == SIMPLE_REPLY_MAGIC {
            self.carry.clear();
            return self.simple(&reply).map(|()| Some(None));
        }
        if reply.magic.get() != CHUNK_MAGIC {
            return Err(NbdRefusal::Protocol("what comes is no reply"));
        }
        let Some(bytes) = self.carry.gather(input, CHUNK) else { return Ok(None) };
        let head = ChunkHead::read_from_bytes(&bytes[..CHUNK]).expect("gathered to its size");
        let (kind, length) = (ChunkKind(head.kind.get()), head.bytes.get() as usize);
        let inner = match kind {
            ChunkKind::NONE if length == 0 => 0,
            ChunkKind::OFFSET_DATA if length >= 8 => 8,
            ChunkKind::OFFSET_HOLE if length == HOLE_BYTES => HOLE_BYTES,
            kind if kind.is_error() && length >= 6 => 6,
            _ => return Err(NbdRefusal::Protocol("a chunk of an unknown form")),
        };
        let Some(bytes) = self.carry.gather(input, CHUNK + inner) else { return Ok(None) };
        let mut whole = [0; HEAD_MOST];
        whole[..CHUNK + inner].copy_from_slice(&bytes[..CHUNK + inner]);
        self.carry.clear();
        self.chunk(&head, kind, &whole).map(Some)
    }

    /// Begins to process a simple reply, whose data follows if the reply is to a successful read.
    fn simple(&mut self, reply: &SimpleReply) -> Result<(), NbdRefusal> {
        let (cookie, error) = (reply.cookie.get(), reply.error.get());
        let is_structured = self.found.is_structured;
        let pending = self.pending(cookie)?;
        if error != 0 {
            pending.status = errno::meaning(error);
        }
        self.body = match (pending.is_read && error == 0, is_structured) {
            (true, true) => return Err(NbdRefusal::Protocol("a read has a simple reply")),
            (true, false) => {
                let left = core::mem::take(&mut pending.left);
                ReplyPart::Data { cookie, at: 0, left, is_last: true }
            }
            (false, _) => ReplyPart::End { cookie },
        };
        Ok(())
    }

    /// Begins to read a chunk of a structured reply, whose head is in `whole`. Returns the event of
    /// a hole; other chunks have none yet.
    fn chunk<'a>(
        &mut self,
        head: &ChunkHead,
        kind: ChunkKind,
        whole: &[u8; HEAD_MOST],
    ) -> Result<Option<ClientEvent<'a>>, NbdRefusal> {
        const CHUNK: usize = size_of::<ChunkHead>();
        let (cookie, length) = (head.cookie.get(), head.bytes.get() as usize);
        let is_last = head.flags.get() & CHUNK_DONE != 0;
        let pending = self.pending(cookie)?;
        let after = if is_last { ReplyPart::End { cookie } } else { ReplyPart::None };
        if kind == ChunkKind::NONE {
            self.body = after;
            return Ok(None);
        }
        if kind.is_error() {
            let (error, _) = ErrorChunk::read_from_prefix(whole).expect("it is shorter");
            pending.status = errno::meaning(error.error.get());
            self.body = ReplyPart::Text { cookie, left: length - 6, is_last };
            return Ok(None);
        }
        let (data, _) = DataChunk::read_from_prefix(whole).expect("it is shorter");
        let bytes = match kind {
            ChunkKind::OFFSET_DATA => length - 8,
            _ => {
                let bytes = whole[CHUNK + 8..].try_into().expect("four bytes");
                u32::from_be_bytes(bytes) as usize
            }
        };
        let at = pending.place(data.offset.get(), bytes)?;
        if kind == ChunkKind::OFFSET_DATA {
            self.body = ReplyPart::Data { cookie, at, left: bytes, is_last };
            return Ok(None);
        }
        self.body = after;
        Ok(Some(ClientEvent::Hole { cookie, at, bytes }))
    }

    fn pending(&mut self, cookie: u64) -> Result<&mut PendingRequest, NbdRefusal> {
        let place = usize::try_from(cookie).ok().and_then(|place| self.pending.get_mut(place));
        place.and_then(Option::as_mut).ok_or(NbdRefusal::Protocol("nobody asked for a reply"))
    }

    /// Removes a request that has ended, and returns its event.
    fn end<'a>(&mut self, cookie: u64) -> Result<ClientEvent<'a>, NbdRefusal> {
        let PendingRequest { left, status, .. } = *self.pending(cookie)?;
        if status.is_ok() && left > 0 {
            return Err(NbdRefusal::Protocol("a read has ended before its data"));
        }
        self.pending[cookie as usize] = None;
        Ok(ClientEvent::Ended { cookie, status })
    }

    /// Does a step of the negotiation. Returns `false` if the server's next message is incomplete.
    fn negotiate(&mut self, input: &mut &[u8]) -> Result<bool, NbdRefusal> {
        if self.stage == NegotiationStep::Greeting {
            let Some(bytes) = self.gather(input, size_of::<Greeting>()) else { return Ok(false) };
            let greeting = Greeting::read_from_bytes(bytes).expect("gathered to its size");
            self.gathered.clear();
            let refusal = NbdRefusal::Protocol("its greeting is not that of fixed newstyle NBD");
            self.outbox.extend(flags_for(&greeting).ok_or(refusal)?);
            self.option(OptionKind::STRUCTURED_REPLY, &[]);
            self.stage = NegotiationStep::Structured;
            return Ok(true);
        }
        const HEAD: usize = size_of::<OptionReplyHead>();
        let Some(bytes) = self.gather(input, HEAD) else { return Ok(false) };
        let head = OptionReplyHead::read_from_bytes(&bytes[..HEAD]).expect("gathered to its size");
        let data = head.bytes.get() as usize;
        if head.magic.get() != OPTION_REPLY_MAGIC || data > REPLY_BYTES_MAX {
            return Err(NbdRefusal::Protocol("what comes is no reply to an option"));
        }
        if self.gather(input, HEAD + data).is_none() {
            return Ok(false);
        }
        let message = core::mem::take(&mut self.gathered);
        self.answered(OptionReply(head.reply.get()), &message[HEAD..])?;
        Ok(true)
    }

    /// Processes a reply to the last option.
    fn answered(&mut self, reply: OptionReply, data: &[u8]) -> Result<(), NbdRefusal> {
        let is_error = reply.0 & REPLY_IS_ERROR != 0;
        match (self.stage, reply) {
            // The only answer to whoever has not begun with TLS.
            (NegotiationStep::Structured, OptionReply::TLS_REQUIRED) => {
                return Err(NbdRefusal::Export(reply));
            }
            (NegotiationStep::Structured, _) if is_error || reply == OptionReply::ACK => {
                self.found.is_structured = !is_error;
                let mut wish = Vec::from((self.export.len() as u32).to_be_bytes());
                wish.extend_from_slice(&self.export);
                wish.extend([0, 1]);
                wish.extend(InfoKind::BLOCK_SIZE.0.to_be_bytes());
                self.option(OptionKind::GO, &wish);
                self.stage = NegotiationStep::Go;
            }
            (NegotiationStep::Go, OptionReply::ACK) if self.found.bytes > 0 => {
                self.stage = NegotiationStep::Up
            }
            (NegotiationStep::Go, OptionReply::ACK) => {
                return Err(NbdRefusal::Protocol("the export has no size"));
            }
            (NegotiationStep::Go, OptionReply::INFO) => self.learn(data),
            (NegotiationStep::Go, reply) if is_error => return Err(NbdRefusal::Export(reply)),
            _ => return Err(NbdRefusal::Protocol("an unexpected reply to an option")),
        }
        Ok(())
    }

    /// Processes an information item about the export: its size and flags, or its block sizes.
    /// Other items are skipped.
    fn learn(&mut self, data: &[u8]) {
        let kind = data.first_chunk().map(|kind| InfoKind(u16::from_be_bytes(*kind)));
        match kind {
            Some(InfoKind::EXPORT) => {
                if let Ok(info) = ExportInfo::read_from_bytes(data) {
                    self.found.bytes = info.size.get();
                    self.found.is_writable = info.flags.get() & export_flag::READ_ONLY == 0;
                }
            }
            Some(InfoKind::BLOCK_SIZE) => {
                if let Ok(sizes) = BlockSizeInfo::read_from_bytes(data) {
                    self.found.block_bytes = sizes.minimum.get().max(1);
                    self.found.request_bytes_max = sizes.maximum.get().min(PAYLOAD_BYTES_MAX);
                }
            }
            _ => {}
        }
    }

    fn option(&mut self, kind: OptionKind, data: &[u8]) {
        self.outbox.extend_from_slice(option_head(kind, data.len()).as_bytes());
        self.outbox.extend_from_slice(data);
    }

    /// Takes bytes off the front of `input` until `need` bytes are gathered. Returns these bytes
    /// once they have all come, and `None` before.
    fn gather(&mut self, input: &mut &[u8], need: usize) -> Option<&[u8]> {
        let taken = need.saturating_sub(self.gathered.len()).min(input.len());
        let (piece, rest) = input.split_at(taken);
        self.gathered.extend_from_slice(piece);
        *input = rest;
        self.gathered.get(..need)
    }
}

/// Returns the flags with which a client answers a greeting; `None` if the greeting is not that of
/// fixed newstyle.
pub(super) fn flags_for(greeting: &Greeting) -> Option<[u8; FLAGS_BYTES]> {
    let is_newstyle = greeting.magic.get() == GREETING_MAGIC
        && greeting.option_magic.get() == OPTION_MAGIC
        && greeting.flags.get() & FLAG_FIXED_NEWSTYLE != 0;
    let flags = greeting.flags.get() & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    is_newstyle.then_some(u32::from(flags).to_be_bytes())
}

/// Returns the head of an option with `bytes` bytes of data.
pub(super) fn option_head(kind: OptionKind, bytes: usize) -> OptionHead {
    OptionHead { magic: OPTION_MAGIC.into(), option: kind.0.into(), bytes: (bytes as u32).into() }
}

impl PendingRequest {
    /// Returns the offset in the read's data of `bytes` bytes at `offset` of the export, and counts
    /// them as arrived.
    fn place(&mut self, offset: u64, bytes: usize) -> Result<usize, NbdRefusal> {
        let at = offset.checked_sub(self.range.lba * BLOCK_BYTES as u64);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let fits = at.filter(|at| {
            at.checked_add(bytes).is_some_and(|end| end <= self.range.bytes())
                && bytes <= self.left
                && self.is_read
        });
        self.left -= fits.map_or(0, |_| bytes);
        fits.ok_or(NbdRefusal::Protocol("data that nobody asked for"))
    }
}
