//! Protocol `reflex` version 2 (docs/protocol/reflex-v2.md): little-endian, every field naturally
//! aligned within its message.
//!
//! A connection begins with a [`HelloHead`]; from then on the client sends [`RequestHead`]s and the
//! server [`ReplyHead`]s, each followed by as many bytes as it says.

use core::mem::{align_of, offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a connection.
pub const MAGIC: [u8; 4] = *b"NFR2";

/// The version that this module describes.
pub const VERSION: u16 = 2;

/// Longest credentials in a hello.
pub const TOKEN_BYTES_MAX: usize = 64;

/// Longest name of a tenant in a hello or a register.
pub const TENANT_BYTES_MAX: usize = 64;

/// Feature bit of a hello and its reply: payloads carry CRC-32C.
pub const FEATURE_CHECKSUMS: u32 = 1;

/// Flag of a request: the data is durable before the reply (force unit access).
pub const FLAG_FUA: u8 = 1;

/// Bit of [`InfoBody::rights`]: may read.
pub const RIGHT_READ: u8 = 1;

/// Bit of [`InfoBody::rights`]: may write.
pub const RIGHT_WRITE: u8 = 2;

/// Bit of [`InfoBody::flags`]: acknowledged writes need a flush to be durable.
pub const INFO_VOLATILE_CACHE: u8 = 1;

/// What a request asks. Below [`Opcode::CONTROL_FIRST`] are the commands on data.
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
    /// Read.
    pub const READ: Opcode = Opcode(0x01);
    /// Write; the data follows.
    pub const WRITE: Opcode = Opcode(0x02);
    /// Make acknowledged writes durable.
    pub const FLUSH: Opcode = Opcode(0x03);
    /// Give up the contents of a range.
    pub const DISCARD: Opcode = Opcode(0x04);
    /// Write zeroes.
    pub const WRITE_ZEROES: Opcode = Opcode(0x05);
    /// Compare with the first half of the payload, write the second.
    pub const COMPARE_AND_WRITE: Opcode = Opcode(0x06);
    /// Write all or nothing; the data follows.
    pub const WRITE_ATOMIC: Opcode = Opcode(0x07);
    /// Order within the stream.
    pub const BARRIER: Opcode = Opcode(0x08);
    /// The first opcode that is about the connection rather than about data.
    pub const CONTROL_FIRST: Opcode = Opcode(0x40);
    /// Ask whether the connection lives.
    pub const PING: Opcode = Opcode(0x40);
    /// Ask what a namespace is.
    pub const INFO: Opcode = Opcode(0x41);
    /// Register a tenant; an [`SloBody`] and the name follow.
    pub const REGISTER: Opcode = Opcode(0x42);
    /// Change a tenant's SLO; an [`SloBody`] and the name follow.
    pub const RENEGOTIATE: Opcode = Opcode(0x43);
    /// Unregister a tenant.
    pub const UNREGISTER: Opcode = Opcode(0x44);
    /// The first byte of [`MAGIC`]: a hello, which may come only once.
    pub const HELLO: Opcode = Opcode(MAGIC[0]);
    /// The last opcode that is about the connection.
    pub const CONTROL_LAST: Opcode = Opcode(0x4f);
}

/// What the server says.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct ReplyOpcode(pub u8);

impl ReplyOpcode {
    /// A command ended; its data, if any, follows.
    pub const DONE: ReplyOpcode = ReplyOpcode(0x80);
    /// To a ping.
    pub const PONG: ReplyOpcode = ReplyOpcode(0xc0);
    /// To an info; an [`InfoBody`] follows.
    pub const INFO: ReplyOpcode = ReplyOpcode(0xc1);
    /// To a register, renegotiate or unregister; a [`TenantBody`] follows.
    pub const TENANT: ReplyOpcode = ReplyOpcode(0xc2);
    /// To a hello; a [`HelloBody`] follows.
    pub const HELLO: ReplyOpcode = ReplyOpcode(0xce);
    /// Unasked: the server stops soon.
    pub const NOTICE_DRAINING: ReplyOpcode = ReplyOpcode(0xf0);
    /// Unasked: a tenant exceeds its SLO; a [`RenegotiateBody`] follows.
    pub const NOTICE_RENEGOTIATE: ReplyOpcode = ReplyOpcode(0xf1);

    /// Whether it is a notice, known or not: these may be skipped.
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
    /// Oldest version that the client speaks.
    pub version_min: U16,
    /// Newest version that the client speaks.
    pub version_max: U16,
    /// The client's name for this message; returned unchanged.
    pub tag: U64,
    /// Names the client for its lifetime; zero for none.
    pub client: U128,
    /// Which of the client's connections this is.
    pub connection: U32,
    /// Requests that the client wants in flight.
    pub queue_depth: U32,
    /// What the client wants: [`FEATURE_CHECKSUMS`]. Unknown bits are ignored.
    pub features: U32,
    /// Length of the token that follows.
    pub token_bytes: u8,
    /// Length of the tenant's name that follows the token.
    pub tenant_bytes: u8,
    /// Sent as zero, ignored.
    pub reserved: U16,
}

/// The head of every message of a client after its hello.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RequestHead {
    /// What to do.
    pub opcode: Opcode,
    /// [`FLAG_FUA`].
    pub flags: u8,
    /// The stream that barriers order.
    pub stream: u8,
    /// Zero.
    pub reserved: u8,
    /// Bytes that follow.
    pub payload_bytes: U32,
    /// The client's name for the request; returned unchanged.
    pub tag: U64,
    /// First block of 512 bytes.
    pub lba: U64,
    /// Number of blocks.
    pub blocks: U32,
    /// Whose blocks; zero for the connection's default.
    pub namespace: U16,
    /// Which tenant is charged; zero for the connection's own.
    pub tenant: U16,
    /// CRC-32C of the payload, where agreed.
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
    /// What is answered.
    pub opcode: ReplyOpcode,
    /// Zero.
    pub flags: u8,
    /// How it ended.
    pub status: U16,
    /// Bytes that follow.
    pub body_bytes: U32,
    /// The request's; zero in notices.
    pub tag: U64,
    /// CRC-32C of the data that follows, where agreed.
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
    /// The version that is spoken from here on.
    pub version: U16,
    /// Number of namespaces that the server has.
    pub namespaces: U16,
    /// The namespace that requests mean when they name none.
    pub namespace: U16,
    /// Zero.
    pub reserved: U16,
    /// Requests that the server takes in flight before it stops reading.
    pub queue_depth: U32,
    /// Largest data of one request in bytes.
    pub request_bytes_max: U32,
    /// What was agreed: [`FEATURE_CHECKSUMS`].
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
    /// Bytes of the device's own granularity.
    pub physical_block_bytes: U32,
    /// Largest atomic write in blocks; zero for none.
    pub atomic_blocks_max: U32,
    /// Its number.
    pub namespace: U16,
    /// [`RIGHT_READ`], [`RIGHT_WRITE`].
    pub rights: u8,
    /// [`INFO_VOLATILE_CACHE`].
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
    /// Requests a second.
    pub iops: U32,
    /// Bytes of a typical request; zero means 4 096.
    pub request_bytes: U32,
    /// The percentile that the latency bounds, in tenths of a percent; zero means 950.
    pub percentile_tenths: U16,
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Length of the name that follows.
    pub name_bytes: u8,
}

/// The body of the reply to register, renegotiate and unregister.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TenantBody {
    /// Tokens a second that the SLO needs.
    pub tokens_needed: U64,
    /// Tokens a second that are free.
    pub tokens_free: U64,
    /// The tenant's handle on this connection.
    pub tenant: U16,
    /// The handle of the tenant whose latency bound set the rate that did not suffice; 0xffff for
    /// the SLO that was asked for, 0xfffe for a tenant without a handle here, zero for nobody.
    pub limited_by: U16,
    /// That bound in microseconds.
    pub limit_latency_us: U32,
}

/// The body of the notice to renegotiate.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RenegotiateBody {
    /// Measured requests a second.
    pub iops: U32,
    /// The tenant's handle on this connection.
    pub tenant: U16,
    /// Measured share of reads, 0 to 100.
    pub read_percent: u8,
    /// Zero.
    pub reserved: u8,
}

/// A field's place, and that it is aligned as the integer of its size would be.
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
