//! Protocol `reflex` version 1: the wire format of the original ReFlex server
//! (docs/protocol/reflex-v1.md).
//!
//! One head for requests and replies alike, little-endian, packed.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first field of every message: the size of the head.
pub const MAGIC: u16 = 24;

/// What a message asks or answers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct Opcode(pub U16);

impl Opcode {
    /// Read.
    pub const GET: Opcode = Opcode(U16::new(0));
    /// Write; the payload follows the head of the request.
    pub const SET: Opcode = Opcode(U16::new(1));
    /// Write without acknowledgement: the original names it and never serves it.
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
    /// The client's name for the request; returned unchanged.
    pub handle: U64,
    /// First sector of 512 bytes.
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
