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

/// The magic number that a server sends first: the letters `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");

/// The magic number before a newstyle server's flags, and before each option: the letters
/// `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");

/// The magic number that begins a server's reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The magic number before each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;

/// The magic number before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// The magic number before each chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of both ends: fixed newstyle negotiation.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;

/// Handshake flag of both ends: no zeroes follow the answer to an export's name.
pub const FLAG_NO_ZEROES: u16 = 2;

/// Number of zero bytes behind an [`ExportNameReply`], unless both ends set [`FLAG_NO_ZEROES`].
pub const EXPORT_NAME_ZEROES: usize = 124;

/// The bit that is set in the type ([`OptionReply`]) of every reply to an option that failed.
pub const REPLY_IS_ERROR: u32 = 1 << 31;

/// The bit that is set in the [`ChunkKind`] of every chunk that reports an error.
pub const CHUNK_IS_ERROR: u16 = 1 << 15;

/// Flag of a chunk of a structured reply: no further chunk of this reply follows.
pub const CHUNK_DONE: u16 = 1;

/// Name of the meta context that says which parts of an export are allocated ("`base:` metadata
/// contexts").
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Flags of an export ("Transmission flags").
pub mod export_flag {
    /// Set in the flags of every export.
    pub const HAS_FLAGS: u16 = 1;
    /// The export may only be read: writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flushes are served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Force unit access ([`command_flag::FUA`](super::command_flag::FUA)) is served.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trims are served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Writes of zeroes are served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Requests for reads in one chunk ([`command_flag::DF`](super::command_flag::DF)) are served.
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see each other's writes, and a flush on one covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Announcements of reads ([`CommandKind::CACHE`](super::CommandKind::CACHE)) are served.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Writes of zeroes that must be fast are carried out fast, or refused at once.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request ("Command flags").
pub mod command_flag {
    /// The data is durable before the reply (force unit access).
    pub const FUA: u16 = 1;
    /// The range stays allocated when zeroes are written to it.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data of a read comes in one chunk.
    pub const DF: u16 = 1 << 2;
    /// The reply to a block status describes one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeroes are written faster than data, or the request fails at once.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The error numbers of a reply ("Error values"), which are those of Linux.
pub mod errno {
    /// The operation is not permitted.
    pub const EPERM: u32 = 1;
    /// Input or output failed.
    pub const EIO: u32 = 5;
    /// Not enough memory is free.
    pub const ENOMEM: u32 = 12;
    /// An argument is invalid.
    pub const EINVAL: u32 = 22;
    /// No space is left.
    pub const ENOSPC: u32 = 28;
    /// The request is too large for the server, such as a read that must come in one chunk.
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
        /// Ends the connection without choosing an export.
        ABORT = 2,
        /// Asks for the names of all exports.
        LIST = 3,
        /// Asks that the connection continue over TLS.
        STARTTLS = 5,
        /// Asks for the properties of an export, without choosing it.
        INFO = 6,
        /// Chooses an export and ends the negotiation.
        GO = 7,
        /// Asks that replies to requests may be structured.
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
        /// The name of an export, as a reply to [`OptionKind::LIST`].
        SERVER = 2,
        /// A property of an export, of an [`InfoKind`].
        INFO = 3,
        /// A meta context: its number and its name.
        META_CONTEXT = 4,
        /// The server does not know the option.
        UNSUPPORTED = REPLY_IS_ERROR | 1,
        /// The server's operator does not allow the option.
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
    /// The kind of a property of an export that the server tells ("Option types", `NBD_OPT_GO`).
    pub struct InfoKind(u16) {
        /// Size of the export in bytes, and its flags.
        EXPORT = 0,
        /// The export's canonical name.
        NAME = 1,
        /// Alignment, preferred size and maximum size of requests.
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
        /// Ends the connection once the earlier requests have been answered. There is no reply.
        DISC = 2,
        /// Makes acknowledged writes durable.
        FLUSH = 3,
        /// Discards a range.
        TRIM = 4,
        /// Announces that a range will be read.
        CACHE = 5,
        /// Writes zeroes to a range.
        WRITE_ZEROES = 6,
        /// Asks which parts of a range are allocated.
        BLOCK_STATUS = 7,
    }
}

open_number! {
    /// The kind of a chunk of a structured reply ("Structured reply types").
    pub struct ChunkKind(u16) {
        /// No data: the chunk ends its reply.
        NONE = 0,
        /// Data of a read, behind its offset.
        OFFSET_DATA = 1,
        /// Zeroes of a read: their offset and their number of bytes.
        OFFSET_HOLE = 2,
        /// The number of a meta context, and the extents of a range with their status.
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
        /// Number of bytes of data that follow.
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
        /// Number of bytes of data that follow.
        [16] bytes: U32,
    }
}

layout! {
    /// The answer to [`OptionKind::EXPORT_NAME`], which ends the negotiation.
    pub struct ExportNameReply: 10 {
        /// Size of the export in bytes.
        [0] size: U64,
        /// The export's flags, of [`export_flag`].
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
        /// The export's flags, of [`export_flag`].
        [10] flags: U16,
    }
}

layout! {
    /// Constraints on the offsets and lengths of requests ([`InfoKind::BLOCK_SIZE`], "Block size
    /// constraints").
    pub struct BlockSizeInfo: 14 {
        /// The [`InfoKind`].
        [0] info: U16,
        /// Offsets and lengths are multiples of this number of bytes.
        [2] minimum: U32,
        /// Requests with multiples of this number of bytes perform best.
        [6] preferred: U32,
        /// Maximum length of the data of a request in bytes.
        [10] maximum: U32,
    }
}

layout! {
    /// The head of a request ("Request message"); a write's data follows.
    pub struct RequestHead: 28 {
        /// [`REQUEST_MAGIC`].
        [0] magic: U32,
        /// The request's flags, of [`command_flag`].
        [4] flags: U16,
        /// The [`CommandKind`].
        [6] command: U16,
        /// The client's identifier of the request, returned unchanged in the reply.
        [8] cookie: U64,
        /// Offset in the export in bytes.
        [16] offset: U64,
        /// Length of the range in bytes.
        [24] bytes: U32,
    }
}

layout! {
    /// The head of a simple reply ("Simple reply message"); a read's data follows.
    pub struct SimpleReply: 16 {
        /// [`SIMPLE_REPLY_MAGIC`].
        [0] magic: U32,
        /// Zero, or an error number of [`errno`].
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
        /// The chunk's flags: [`CHUNK_DONE`] or zero.
        [4] flags: U16,
        /// The [`ChunkKind`].
        [6] kind: U16,
        /// The request's cookie.
        [8] cookie: U64,
        /// Number of bytes that follow the head.
        [16] bytes: U32,
    }
}

layout! {
    /// The beginning of a chunk with data ([`ChunkKind::OFFSET_DATA`]); the data follows.
    pub struct DataChunk: 28 {
        /// The head of the chunk.
        [0] head: ChunkHead,
        /// Offset of the data in the export in bytes.
        [20] offset: U64,
    }
}

layout! {
    /// A chunk that describes one extent ([`ChunkKind::BLOCK_STATUS`]).
    pub struct StatusChunk: 32 {
        /// The head of the chunk.
        [0] head: ChunkHead,
        /// The number of the meta context.
        [20] context: U32,
        /// Length of the extent in bytes.
        [24] bytes: U32,
        /// The status of the extent. In the context `base:allocation`, zero means that it is
        /// allocated and may hold any data.
        [28] status: U32,
    }
}

layout! {
    /// A chunk that reports an error without a message ([`ChunkKind::ERROR`]).
    pub struct ErrorChunk: 26 {
        /// The head of the chunk.
        [0] head: ChunkHead,
        /// The error number, of [`errno`].
        [20] error: U32,
        /// Length of the error message in bytes.
        [24] message_bytes: U16,
    }
}
