//! Protocol `reflex` version 1: the wire format of the original ReFlex server
//! (docs/reference/protocols/reflex-v1.md).
//!
//! Requests and replies share one head, little-endian and packed.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first field of every message: the size of the head.
pub const MAGIC: u16 = 24;

/// The operation of a request and of its reply.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct Opcode(pub U16);

impl Opcode {
    /// Reads sectors.
    pub const GET: Opcode = Opcode(U16::new(0));
    /// Writes sectors; the payload follows the head of the request.
    pub const SET: Opcode = Opcode(U16::new(1));
    /// Writes without acknowledgement. The original server names this operation and never serves
    /// it.
    pub const SET_NO_ACK: Opcode = Opcode(U16::new(2));
}

/// The head of every message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MessageHead {
    /// [`MAGIC`].
    pub magic: U16,
    /// GET or SET.
    pub opcode: Opcode,
    /// The client's identifier of the request; returned unchanged.
    pub handle: U64,
    /// First sector (512 bytes each).
    pub lba: U64,
    /// Number of sectors; zero in the reply to a SET.
    pub lba_count: U32,
}

const _: () = {
    assert!(size_of::<MessageHead>() == MAGIC as usize);
    assert!(offset_of!(MessageHead, opcode) == 2);
    assert!(offset_of!(MessageHead, handle) == 4);
    assert!(offset_of!(MessageHead, lba) == 12);
    assert!(offset_of!(MessageHead, lba_count) == 20);
};
