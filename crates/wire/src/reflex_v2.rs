//! Protocol `reflex` version 2 (docs/reference/protocols/reflex-v2.md): little-endian, every field
//! naturally aligned within its message.
//!
//! A connection begins with a [`HelloHead`]. From then on, the client sends [`RequestHead`]s and
//! the server sends [`ReplyHead`]s. Each head says how many bytes follow.

use zerocopy::little_endian::{U16, U32, U64, U128};

/// The first bytes of a connection.
pub const MAGIC: [u8; 4] = *b"NFR2";

/// The version that this module describes.
pub const VERSION: u16 = 2;

/// Maximum length of the credentials in a hello, in bytes.
pub const TOKEN_BYTES_MAX: usize = 64;

/// Maximum length of a tenant's name in a hello or a register, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;

/// Feature bit of a hello and its reply: payloads carry CRC-32C.
pub const FEATURE_CHECKSUMS: u32 = 1;

/// Flag of a request: the data must be durable before the reply (force unit access).
pub const FLAG_FUA: u8 = 1;

/// Bit of [`InfoBody::rights`]: the client may read.
pub const RIGHT_READ: u8 = 1;

/// Bit of [`InfoBody::rights`]: the client may write.
pub const RIGHT_WRITE: u8 = 2;

/// Bit of [`InfoBody::flags`]: the device has a volatile cache, so acknowledged writes are durable
/// only after a flush, or if they had [`FLAG_FUA`].
pub const INFO_VOLATILE_CACHE: u8 = 1;

open_enum! {
    /// The operation of a request. Opcodes below [`Opcode::CONTROL_FIRST`] are commands on data.
    pub struct Opcode {
        /// Reads blocks.
        READ = 0x01,
        /// Writes blocks; the data follows.
        WRITE = 0x02,
        /// Makes acknowledged writes durable.
        FLUSH = 0x03,
        /// Discards the contents of a range; reads return zeroes afterwards.
        DISCARD = 0x04,
        /// Writes zeroes to a range.
        WRITE_ZEROES = 0x05,
        /// Compares the blocks with the first half of the payload, and writes the second half if
        /// they are equal.
        COMPARE_AND_WRITE = 0x06,
        /// Writes all blocks or none; the data follows.
        WRITE_ATOMIC = 0x07,
        /// Orders the requests of a stream: the later ones start when the earlier ones have ended.
        BARRIER = 0x08,
        /// The first opcode that concerns the connection rather than data.
        CONTROL_FIRST = 0x40,
        /// Checks that the connection is alive.
        PING = 0x40,
        /// Asks for the properties of a namespace.
        INFO = 0x41,
        /// Registers a tenant; an [`SloBody`] and the name follow.
        REGISTER = 0x42,
        /// Changes a tenant's SLO; an [`SloBody`] and the name follow.
        RENEGOTIATE = 0x43,
        /// Gives up the handle of a tenant. A tenant of clients ends with its last handle.
        UNREGISTER = 0x44,
        /// The first byte of [`MAGIC`]: a hello, valid only as the first message.
        HELLO = MAGIC[0],
        /// The last opcode that concerns the connection.
        CONTROL_LAST = 0x4f,
    }
}

open_enum! {
    /// The kind of a server's message.
    pub struct ReplyOpcode {
        /// A command has ended; its data, if any, follows.
        DONE = 0x80,
        /// Reply to a ping.
        PONG = 0xc0,
        /// Reply to an info; an [`InfoBody`] follows.
        INFO = 0xc1,
        /// Reply to a register, renegotiate or unregister; a [`TenantBody`] follows.
        TENANT = 0xc2,
        /// Reply to a hello; a [`HelloBody`] follows.
        HELLO = 0xce,
        /// Notice: this connection ends soon, because the server stops or an operator drains it.
        NOTICE_DRAINING = 0xf0,
        /// Notice: a tenant exceeds its SLO; a [`RenegotiateBody`] follows.
        NOTICE_RENEGOTIATE = 0xf1,
    }
}

impl ReplyOpcode {
    /// Returns `true` for a notice, known or unknown. Clients may skip notices.
    pub const fn is_notice(self) -> bool {
        self.0 >= 0xf0
    }
}

layout! {
    /// The first message of a connection, followed by the token and the tenant's name.
    pub struct HelloHead: 48 {
        /// [`MAGIC`].
        [0] magic: [u8; 4],
        /// Oldest version that the client supports.
        [4] version_min: U16,
        /// Newest version that the client supports.
        [6] version_max: U16,
        /// The client's identifier of this message; returned unchanged.
        [8] tag: U64,
        /// The client's identifier for its lifetime; zero for none.
        [16] client: U128,
        /// Number of this connection among the client's connections.
        [32] connection: U32,
        /// Number of requests that the client wants in flight.
        [36] queue_depth: U32,
        /// Features that the client requests: [`FEATURE_CHECKSUMS`]. Unknown bits are ignored.
        [40] features: U32,
        /// Length of the token that follows, in bytes.
        [44] token_bytes: u8,
        /// Length of the tenant's name that follows the token, in bytes.
        [45] tenant_bytes: u8,
        /// Zero when sent, ignored when received.
        [46] reserved: U16,
    }
}

layout! {
    /// The head of every message of a client after its hello.
    pub struct RequestHead: 40 {
        /// The operation of the request.
        [0] opcode: Opcode,
        /// Flags: [`FLAG_FUA`].
        [1] flags: u8,
        /// The number of the stream to which the request belongs; a barrier orders the requests of
        /// its stream.
        [2] stream: u8,
        /// Reserved bytes, which are zero.
        [3] reserved: u8,
        /// Length of the payload that follows, in bytes.
        [4] payload_bytes: U32,
        /// The client's identifier of the request; returned unchanged.
        [8] tag: U64,
        /// First block (512 bytes each).
        [16] lba: U64,
        /// Number of blocks.
        [24] blocks: U32,
        /// The number of the namespace of the blocks; zero for the connection's default.
        [28] namespace: U16,
        /// The handle of the tenant that is charged; zero for the connection's own tenant.
        [30] tenant: U16,
        /// CRC-32C of the payload, if [`FEATURE_CHECKSUMS`] was agreed.
        [32] payload_crc32c: U32,
        /// Reserved bytes, which are zero.
        [36] reserved_tail: U32,
    }
}

layout! {
    /// The head of every message of a server.
    pub struct ReplyHead: 24 {
        /// The kind of the message.
        [0] opcode: ReplyOpcode,
        /// Zero.
        [1] flags: u8,
        /// The status of the request.
        [2] status: U16,
        /// Length of the body that follows, in bytes.
        [4] body_bytes: U32,
        /// The tag of the request; zero in notices.
        [8] tag: U64,
        /// CRC-32C of the body, if [`FEATURE_CHECKSUMS`] was agreed.
        [16] body_crc32c: U32,
        /// Reserved bytes, which are zero.
        [20] reserved: U32,
    }
}

layout! {
    /// The body of the reply to a hello.
    pub struct HelloBody: 24 {
        /// The version that the connection uses from here on.
        [0] version: U16,
        /// Number of namespaces that the server has.
        [2] namespaces: U16,
        /// The number of the namespace that requests mean when they name none.
        [4] namespace: U16,
        /// Reserved bytes, which are zero.
        [6] reserved: U16,
        /// Number of requests that the server accepts in flight before it stops reading.
        [8] queue_depth: U32,
        /// Maximum length of the data of one request, in bytes.
        [12] request_bytes_max: U32,
        /// The agreed features: [`FEATURE_CHECKSUMS`].
        [16] features: U32,
        /// A number that changes when acknowledged writes that were not flushed may have been lost;
        /// zero if the server never loses such writes.
        [20] storage_epoch: U32,
    }
}

layout! {
    /// The body of the reply to an info.
    pub struct InfoBody: 24 {
        /// Size of the namespace in blocks of 512 bytes.
        [0] blocks: U64,
        /// Smallest range in bytes that the device writes as a whole.
        [8] physical_block_bytes: U32,
        /// Maximum length of an atomic write in blocks; zero if there are none.
        [12] atomic_blocks_max: U32,
        /// Number of the namespace.
        [16] namespace: U16,
        /// Rights of the client: [`RIGHT_READ`], [`RIGHT_WRITE`].
        [18] rights: u8,
        /// Flags: [`INFO_VOLATILE_CACHE`].
        [19] flags: u8,
        /// Reserved bytes, which are zero.
        [20] reserved: U32,
    }
}

layout! {
    /// The fixed part of the payload of register and renegotiate; the name follows.
    pub struct SloBody: 16 {
        /// Bound of the tail latency of reads in microseconds; zero for a best-effort tenant.
        [0] latency_us: U32,
        /// Requests per second that the tenant reserves.
        [4] iops: U32,
        /// Size of a typical request in bytes; zero means 4 096.
        [8] request_bytes: U32,
        /// The percentile that the latency bound is for, in tenths of a percent; zero means 950.
        [12] percentile_tenths: U16,
        /// Share of reads in the requests in percent, 0 to 100.
        [14] read_percent: u8,
        /// Length of the tenant's name that follows, in bytes.
        [15] name_bytes: u8,
    }
}

layout! {
    /// The body of the reply to register, renegotiate and unregister.
    pub struct TenantBody: 24 {
        /// Tokens per second that the SLO needs.
        [0] tokens_needed: U64,
        /// Tokens per second that the SLO had to fit into if it was refused, otherwise those that
        /// are left.
        [8] tokens_free: U64,
        /// The tenant's handle on this connection.
        [16] tenant: U16,
        /// The handle of the tenant whose latency bound limits the tokens, if an SLO was refused
        /// for want of tokens; otherwise zero. 0xffff stands for the requested SLO, 0xfffe for a
        /// tenant without a handle on this connection.
        [18] limited_by: U16,
        /// The latency bound of the tenant in `limited_by`, in microseconds; zero if there is none.
        [20] limit_latency_us: U32,
    }
}

layout! {
    /// The body of the notice to renegotiate.
    pub struct RenegotiateBody: 8 {
        /// Measured requests per second.
        [0] iops: U32,
        /// The tenant's handle on this connection.
        [4] tenant: U16,
        /// Measured share of reads in percent, 0 to 100.
        [6] read_percent: u8,
        /// Reserved bytes, which are zero.
        [7] reserved: u8,
    }
}
