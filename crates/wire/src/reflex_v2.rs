//! Protocol `reflex` version 2 (docs/reference/protocols/reflex-v2.md): little-endian, every field
//! naturally aligned within its message.
//!
//! A connection begins with a [`HelloHead`]. From then on, the client sends [`RequestHead`]s and
//! the server sends [`ReplyHead`]s. Each head says how many bytes follow.

use core::mem::{align_of, offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// Bit of [`InfoBody::flags`]: acknowledged writes become durable with a flush.
pub const INFO_VOLATILE_CACHE: u8 = 1;

/// The operation of a request. Opcodes below [`Opcode::CONTROL_FIRST`] are commands on data.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Reads blocks.
    pub const READ: Opcode = Opcode(0x01);
    /// Writes blocks; the data follows.
    pub const WRITE: Opcode = Opcode(0x02);
    /// Makes acknowledged writes durable.
    pub const FLUSH: Opcode = Opcode(0x03);
    /// Discards the contents of a range.
    pub const DISCARD: Opcode = Opcode(0x04);
    /// Writes zeroes.
    pub const WRITE_ZEROES: Opcode = Opcode(0x05);
    /// Compares with the first half of the payload, then writes the second half.
    pub const COMPARE_AND_WRITE: Opcode = Opcode(0x06);
    /// Writes all blocks or none; the data follows.
    pub const WRITE_ATOMIC: Opcode = Opcode(0x07);
    /// Orders the requests of a stream.
    pub const BARRIER: Opcode = Opcode(0x08);
    /// The first opcode that concerns the connection rather than data.
    pub const CONTROL_FIRST: Opcode = Opcode(0x40);
    /// Checks that the connection is alive.
    pub const PING: Opcode = Opcode(0x40);
    /// Asks for the properties of a namespace.
    pub const INFO: Opcode = Opcode(0x41);
    /// Registers a tenant; an [`SloBody`] and the name follow.
    pub const REGISTER: Opcode = Opcode(0x42);
    /// Changes a tenant's SLO; an [`SloBody`] and the name follow.
    pub const RENEGOTIATE: Opcode = Opcode(0x43);
    /// Unregisters a tenant.
    pub const UNREGISTER: Opcode = Opcode(0x44);
    /// The first byte of [`MAGIC`]: a hello, valid only as the first message.
    pub const HELLO: Opcode = Opcode(MAGIC[0]);
    /// The last opcode that concerns the connection.
    pub const CONTROL_LAST: Opcode = Opcode(0x4f);
}

/// The kind of a server's message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct ReplyOpcode(pub u8);

impl ReplyOpcode {
    /// A command has ended; its data, if any, follows.
    pub const DONE: ReplyOpcode = ReplyOpcode(0x80);
    /// Reply to a ping.
    pub const PONG: ReplyOpcode = ReplyOpcode(0xc0);
    /// Reply to an info; an [`InfoBody`] follows.
    pub const INFO: ReplyOpcode = ReplyOpcode(0xc1);
    /// Reply to a register, renegotiate or unregister; a [`TenantBody`] follows.
    pub const TENANT: ReplyOpcode = ReplyOpcode(0xc2);
    /// Reply to a hello; a [`HelloBody`] follows.
    pub const HELLO: ReplyOpcode = ReplyOpcode(0xce);
    /// Notice: the server stops soon.
    pub const NOTICE_DRAINING: ReplyOpcode = ReplyOpcode(0xf0);
    /// Notice: a tenant exceeds its SLO; a [`RenegotiateBody`] follows.
    pub const NOTICE_RENEGOTIATE: ReplyOpcode = ReplyOpcode(0xf1);

    /// Returns `true` for a notice, known or unknown. Clients may skip notices.
    pub const fn is_notice(self) -> bool {
        self.0 >= 0xf0
    }
}

/// The first message of a connection, followed by the token and the tenant's name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct HelloHead {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// Oldest version that the client supports.
    pub version_min: U16,
    /// Newest version that the client supports.
    pub version_max: U16,
    /// The client's identifier of this message; returned unchanged.
    pub tag: U64,
    /// The client's identifier for its lifetime; zero for none.
    pub client: U128,
    /// Number of this connection among the client's connections.
    pub connection: U32,
    /// Number of requests that the client wants in flight.
    pub queue_depth: U32,
    /// Features that the client requests: [`FEATURE_CHECKSUMS`]. Unknown bits are ignored.
    pub features: U32,
    /// Length of the token that follows, in bytes.
    pub token_bytes: u8,
    /// Length of the tenant's name that follows the token, in bytes.
    pub tenant_bytes: u8,
    /// Zero when sent, ignored when received.
    pub reserved: U16,
}

/// The head of every message of a client after its hello.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RequestHead {
    /// The operation.
    pub opcode: Opcode,
    /// Flags: [`FLAG_FUA`].
    pub flags: u8,
    /// The stream that barriers order.
    pub stream: u8,
    /// Zero.
    pub reserved: u8,
    /// Length of the payload that follows, in bytes.
    pub payload_bytes: U32,
    /// The client's identifier of the request; returned unchanged.
    pub tag: U64,
    /// First block (512 bytes each).
    pub lba: U64,
    /// Number of blocks.
    pub blocks: U32,
    /// The namespace of the blocks; zero for the connection's default.
    pub namespace: U16,
    /// The tenant that is charged; zero for the connection's own.
    pub tenant: U16,
    /// CRC-32C of the payload, if [`FEATURE_CHECKSUMS`] was agreed.
    pub payload_crc32c: U32,
    /// Zero.
    pub reserved_tail: U32,
}

/// The head of every message of a server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReplyHead {
    /// The kind of the message.
    pub opcode: ReplyOpcode,
    /// Zero.
    pub flags: u8,
    /// The status of the request.
    pub status: U16,
    /// Length of the body that follows, in bytes.
    pub body_bytes: U32,
    /// The tag of the request; zero in notices.
    pub tag: U64,
    /// CRC-32C of the body, if [`FEATURE_CHECKSUMS`] was agreed.
    pub body_crc32c: U32,
    /// Zero.
    pub reserved: U32,
}

/// The body of the reply to a hello.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct HelloBody {
    /// The version that the connection uses from here on.
    pub version: U16,
    /// Number of namespaces that the server has.
    pub namespaces: U16,
    /// The default namespace of requests that name none.
    pub namespace: U16,
    /// Zero.
    pub reserved: U16,
    /// Number of requests that the server accepts in flight before it stops reading.
    pub queue_depth: U32,
    /// Maximum data of one request in bytes.
    pub request_bytes_max: U32,
    /// The agreed features: [`FEATURE_CHECKSUMS`].
    pub features: U32,
    /// Zero.
    pub reserved_tail: U32,
}

/// The body of the reply to an info.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InfoBody {
    /// Size in blocks of 512 bytes.
    pub blocks: U64,
    /// Granularity of the device in bytes.
    pub physical_block_bytes: U32,
    /// Maximum atomic write in blocks; zero for none.
    pub atomic_blocks_max: U32,
    /// Number of the namespace.
    pub namespace: U16,
    /// Rights of the client: [`RIGHT_READ`], [`RIGHT_WRITE`].
    pub rights: u8,
    /// Flags: [`INFO_VOLATILE_CACHE`].
    pub flags: u8,
    /// Zero.
    pub reserved: U32,
}

/// The fixed part of the payload of register and renegotiate; the name follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SloBody {
    /// Tail read latency in microseconds; zero for best effort.
    pub latency_us: U32,
    /// Requests per second.
    pub iops: U32,
    /// Size of a typical request in bytes; zero means 4 096.
    pub request_bytes: U32,
    /// The percentile that the latency bounds, in tenths of a percent; zero means 950.
    pub percentile_tenths: U16,
    /// Share of reads in percent, 0 to 100.
    pub read_percent: u8,
    /// Length of the name that follows, in bytes.
    pub name_bytes: u8,
}

/// The body of the reply to register, renegotiate and unregister.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TenantBody {
    /// Tokens per second that the SLO needs.
    pub tokens_needed: U64,
    /// Tokens per second that are free.
    pub tokens_free: U64,
    /// The tenant's handle on this connection.
    pub tenant: U16,
    /// The handle of the tenant whose latency bound set the insufficient rate. 0xffff stands for
    /// the requested SLO, 0xfffe for a tenant without a handle on this connection, zero for nobody.
    pub limited_by: U16,
    /// The latency bound of `limited_by` in microseconds.
    pub limit_latency_us: U32,
}

/// The body of the notice to renegotiate.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RenegotiateBody {
    /// Measured requests per second.
    pub iops: U32,
    /// The tenant's handle on this connection.
    pub tenant: U16,
    /// Measured share of reads in percent, 0 to 100.
    pub read_percent: u8,
    /// Zero.
    pub reserved: u8,
}

/// Asserts the offset of each field, and its alignment as an integer of the same size.
macro_rules! assert_places {
    ($layout:ty, $size:literal: $($field:ident $int:ty = $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$layout>() == $size);
            $(
                assert!(offset_of!($layout, $field) == $offset);
                assert!($offset % align_of::<$int>() == 0);
            )+
        };
    };
}

assert_places!(HelloHead, 48: magic u32 = 0, version_min u16 = 4, version_max u16 = 6, tag u64 = 8,
    client u128 = 16, connection u32 = 32, queue_depth u32 = 36, features u32 = 40,
    token_bytes u8 = 44, tenant_bytes u8 = 45, reserved u16 = 46);
assert_places!(RequestHead, 40: opcode u8 = 0, flags u8 = 1, stream u8 = 2, reserved u8 = 3,
    payload_bytes u32 = 4, tag u64 = 8, lba u64 = 16, blocks u32 = 24, namespace u16 = 28,
    tenant u16 = 30, payload_crc32c u32 = 32, reserved_tail u32 = 36);
assert_places!(ReplyHead, 24: opcode u8 = 0, flags u8 = 1, status u16 = 2, body_bytes u32 = 4,
    tag u64 = 8, body_crc32c u32 = 16, reserved u32 = 20);
assert_places!(HelloBody, 24: version u16 = 0, namespaces u16 = 2, namespace u16 = 4,
    reserved u16 = 6, queue_depth u32 = 8, request_bytes_max u32 = 12, features u32 = 16,
    reserved_tail u32 = 20);
assert_places!(InfoBody, 24: blocks u64 = 0, physical_block_bytes u32 = 8,
    atomic_blocks_max u32 = 12, namespace u16 = 16, rights u8 = 18, flags u8 = 19,
    reserved u32 = 20);
assert_places!(SloBody, 16: latency_us u32 = 0, iops u32 = 4, request_bytes u32 = 8,
    percentile_tenths u16 = 12, read_percent u8 = 14, name_bytes u8 = 15);
assert_places!(TenantBody, 24: tokens_needed u64 = 0, tokens_free u64 = 8, tenant u16 = 16,
    limited_by u16 = 18, limit_latency_us u32 = 20);
assert_places!(RenegotiateBody, 8: iops u32 = 0, tenant u16 = 4, read_percent u8 = 6,
    reserved u8 = 7);
