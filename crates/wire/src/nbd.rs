//! The NBD protocol (the specification is `doc/proto.md` of the project `nbd`, cited here by its
//! sections): fixed newstyle negotiation, and the transmission phase with simple and structured
//! replies.
//!
//! All structures are big-endian. In each structure, the number before a field is its byte offset,
//! which is asserted.
//!
//! This module deliberately leaves out oldstyle negotiation, meta contexts other than
//! `base:allocation` and extended headers, and which values a server accepts.

use zerocopy::big_endian::{U16, U32, U64};

/// The first number that a server sends: the letters `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");

/// The number before a newstyle server's flags, and before each option: the letters `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");

/// The magic number that begins a server's reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The number before each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;

/// The number before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// The number before each chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of both ends: fixed newstyle negotiation.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;

/// Handshake flag of both ends: no zeroes follow the answer to an export's name.
pub const FLAG_NO_ZEROES: u16 = 2;

/// The zeroes behind an [`ExportNameReply`], unless both ends leave them out.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Set in the kind of every reply to an option that failed.
pub const REPLY_IS_ERROR: u32 = 1 << 31;

/// Set in the kind of every chunk that reports an error.
pub const CHUNK_IS_ERROR: u16 = 1 << 15;

/// Flag of a chunk: the last of its reply.
pub const CHUNK_DONE: u16 = 1;

/// The meta context of which parts of an export are allocated ("`base:` metadata contexts").
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Flags of an export ("Transmission flags").
pub mod export_flag {
    /// Set in every set of flags.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flushes are served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Force unit access is served.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trims are served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Writes of zeroes are served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Reads in one piece are served.
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see each other's writes, and a flush on one covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Announcements of reads are served.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Fast writes of zeroes are served, or refused at once.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request ("Command flags").
pub mod command_flag {
    /// The data is durable before the reply (force unit access).
    pub const FUA: u16 = 1;
    /// The range stays allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply is one chunk.
    pub const DF: u16 = 1 << 2;
    /// A block status has one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeroes are written faster than data, or not at all.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Errors of a reply ("Error values"): the numbers of Linux.
pub mod errno {
    /// The operation is not permitted.
    pub const EPERM: u32 = 1;
    /// Input or output failed.
    pub const EIO: u32 = 5;
    /// Memory is short.
    pub const ENOMEM: u32 = 12;
    /// An argument is invalid.
    pub const EINVAL: u32 = 22;
    /// No space is left.
    pub const ENOSPC: u32 = 28;
    /// A value is too large.
    pub const EOVERFLOW: u32 = 75;
    /// The operation is not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const ESHUTDOWN: u32 = 108;
}

open_number! {
    /// The kind of an option ("Option types").
    pub struct OptionKind(u32) {
        /// Chooses an export and ends the negotiation; a failure ends the connection.
        EXPORT_NAME = 1,
        /// Ends the connection.
        ABORT = 2,
        /// Asks for the names of all exports.
        LIST = 3,
        /// Asks for TLS.
        STARTTLS = 5,
        /// Asks for the properties of an export.
        INFO = 6,
        /// Chooses an export and ends the negotiation.
        GO = 7,
        /// Asks for structured replies.
        STRUCTURED_REPLY = 8,
        /// Asks for the meta contexts of an export.
        LIST_META_CONTEXT = 9,
        /// Chooses meta contexts of an export.
        SET_META_CONTEXT = 10,
    }
}

open_number! {
    /// The kind of a reply to an option ("Option reply types").
    pub struct OptionReply(u32) {
        /// The option succeeded; no more replies to it follow.
        ACK = 1,
        /// A name of an export.
        SERVER = 2,
        /// A property of an export.
        INFO = 3,
        /// A meta context: its number and its name.
        META_CONTEXT = 4,
        /// The server does not know the option.
        UNSUPPORTED = REPLY_IS_ERROR | 1,
        /// The server's operator does not allow it.
        POLICY = REPLY_IS_ERROR | 2,
        /// The option is malformed.
        INVALID = REPLY_IS_ERROR | 3,
        /// TLS has to begin first.
        TLS_REQUIRED = REPLY_IS_ERROR | 5,
        /// There is no such export.
        UNKNOWN = REPLY_IS_ERROR | 6,
        /// The server is shutting down.
        SHUTDOWN = REPLY_IS_ERROR | 7,
        /// The option is too large.
        TOO_BIG = REPLY_IS_ERROR | 9,
    }
}

open_number! {
    /// The kind of a property of an export ("Option types", `NBD_OPT_GO`).
    pub struct InfoKind(u16) {
        /// Size and flags.
        EXPORT = 0,
        /// The export's name.
        NAME = 1,
        /// Sizes of requests.
        BLOCK_SIZE = 3,
    }
}

open_number! {
    /// The operation of a request ("Request types").
    pub struct CommandKind(u16) {
        /// Reads a range.
        READ = 0,
        /// Writes a range; the data follows.
        WRITE = 1,
        /// Ends the connection once all requests have been answered. There is no reply.
        DISC = 2,
        /// Makes acknowledged writes durable.
        FLUSH = 3,
        /// Discards a range.
        TRIM = 4,
        /// Announces reads of a range.
        CACHE = 5,
        /// Writes zeroes.
        WRITE_ZEROES = 6,
        /// Asks which parts of a range are allocated.
        BLOCK_STATUS = 7,
    }
}

open_number! {
    /// The kind of a chunk of a structured reply ("Structured reply types").
    pub struct ChunkKind(u16) {
        /// Nothing: the end of a reply.
        NONE = 0,
        /// Data, behind its offset.
        OFFSET_DATA = 1,
        /// Zeroes: their offset and their number.
        OFFSET_HOLE = 2,
        /// A meta context's number, and extents.
        BLOCK_STATUS = 5,
        /// The request failed.
        ERROR = CHUNK_IS_ERROR | 1,
        /// The request failed at an offset, which follows the message.
        ERROR_OFFSET = CHUNK_IS_ERROR | 2,
    }
}

impl ChunkKind {
    /// Returns `true` if a chunk of this kind reports an error.
    pub const fn is_error(self) -> bool {
        self.0 & CHUNK_IS_ERROR != 0
    }
}

layout! {
    /// The first message of a server ("Newstyle negotiation"). The client's flags answer it, as
    /// four bytes.
    pub struct Greeting: 18 {
        /// [`GREETING_MAGIC`].
        [0] magic: U64,
        /// [`OPTION_MAGIC`].
        [8] option_magic: U64,
        /// The server's handshake flags.
        [16] flags: U16,
    }
}

layout! {
    /// The head of an option; its data follows.
    pub struct OptionHead: 16 {
        /// [`OPTION_MAGIC`].
        [0] magic: U64,
        /// The [`OptionKind`].
        [8] option: U32,
        /// Number of bytes of data.
        [12] bytes: U32,
    }
}

layout! {
    /// The head of a reply to an option; its data follows.
    pub struct OptionReplyHead: 20 {
        /// [`OPTION_REPLY_MAGIC`].
        [0] magic: U64,
        /// The [`OptionKind`] that is answered.
        [8] option: U32,
        /// The [`OptionReply`].
        [12] reply: U32,
        /// Number of bytes of data.
        [16] bytes: U32,
    }
}

layout! {
    /// The answer to [`OptionKind::EXPORT_NAME`]: the end of the negotiation.
    pub struct ExportNameReply: 10 {
        /// Size of the export in bytes.
        [0] size: U64,
        /// The export's flags.
        [8] flags: U16,
    }
}

layout! {
    /// Size and flags of an export ([`InfoKind::EXPORT`]).
    pub struct ExportInfo: 12 {
        /// The [`InfoKind`].
        [0] info: U16,
        /// Size of the export in bytes.
        [2] size: U64,
        /// The export's flags.
        [10] flags: U16,
    }
}

layout! {
    /// Sizes of requests ([`InfoKind::BLOCK_SIZE`], "Block size constraints").
    pub struct BlockSizeInfo: 14 {
        /// The [`InfoKind`].
        [0] info: U16,
        /// Offsets and lengths are multiples of this number of bytes.
        [2] minimum: U32,
        /// Multiples of this number of bytes are served best.
        [6] preferred: U32,
        /// Maximum data of a request in bytes.
        [10] maximum: U32,
    }
}

layout! {
    /// The head of a request ("Request message"); a write's data follows.
    pub struct RequestHead: 28 {
        /// [`REQUEST_MAGIC`].
        [0] magic: U32,
        /// The request's flags.
        [4] flags: U16,
        /// The [`CommandKind`].
        [6] command: U16,
        /// Returned unchanged in the reply.
        [8] cookie: U64,
        /// Offset in the export in bytes.
        [16] offset: U64,
        /// Length in bytes.
        [24] bytes: U32,
    }
}

layout! {
    /// The head of a simple reply ("Simple reply message"); a read's data follows.
    pub struct SimpleReply: 16 {
        /// [`SIMPLE_REPLY_MAGIC`].
        [0] magic: U32,
        /// Zero, or the error.
        [4] error: U32,
        /// The request's cookie.
        [8] cookie: U64,
    }
}

layout! {
    /// The head of a chunk ("Structured reply chunk message").
    pub struct ChunkHead: 20 {
        /// [`CHUNK_MAGIC`].
        [0] magic: U32,
        /// The chunk's flags.
        [4] flags: U16,
        /// The [`ChunkKind`].
        [6] kind: U16,
        /// The request's cookie.
        [8] cookie: U64,
        /// Number of bytes that follow.
        [16] bytes: U32,
    }
}

layout! {
    /// A chunk of data up to the data ([`ChunkKind::OFFSET_DATA`]).
    pub struct DataChunk: 28 {
        /// The head.
        [0] head: ChunkHead,
        /// Offset in the export in bytes.
        [20] offset: U64,
    }
}

layout! {
    /// A chunk of one extent ([`ChunkKind::BLOCK_STATUS`]).
    pub struct StatusChunk: 32 {
        /// The head.
        [0] head: ChunkHead,
        /// The number of the meta context.
        [20] context: U32,
        /// Length of the extent in bytes.
        [24] bytes: U32,
        /// The extent's status: of `base:allocation`, zero means allocated, with any data.
        [28] status: U32,
    }
}

layout! {
    /// A chunk of an error without a message ([`ChunkKind::ERROR`]).
    pub struct ErrorChunk: 26 {
        /// The head.
        [0] head: ChunkHead,
        /// The error.
        [20] error: U32,
        /// Number of bytes of the message.
        [24] message_bytes: U16,
    }
}

layout! {
    /// A chunk of an error at an offset, without a message ([`ChunkKind::ERROR_OFFSET`]).
    pub struct ErrorOffsetChunk: 34 {
        /// The head.
        [0] head: ChunkHead,
        /// The error.
        [20] error: U32,
        /// Number of bytes of the message.
        [24] message_bytes: U16,
        /// Offset in the export in bytes.
        [26] offset: U64,
    }
}
