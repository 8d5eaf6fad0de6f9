//! Protocol `reflex` version 1: the wire format of the original ReFlex server
//! (docs/reference/protocols/reflex-v1.md).
//!
//! Requests and replies share one head, little-endian and packed.

use zerocopy::little_endian::{U16, U32, U64};

/// The value of the first field of every message: the size of the head in bytes.
pub const MAGIC: u16 = 24;

open_enum! {
    /// The operation of a request and of its reply.
    pub struct Opcode(U16) {
        /// Reads sectors.
        GET = U16::new(0),
        /// Writes sectors; the payload follows the head of the request.
        SET = U16::new(1),
        /// Writes without acknowledgement. The original server names this operation and never
        /// serves it.
        SET_NO_ACK = U16::new(2),
    }
}

layout! {
    /// The head of every message.
    pub struct MessageHead: 24 {
        /// [`MAGIC`].
        [0] magic: U16,
        /// The operation: [`Opcode::GET`] or [`Opcode::SET`].
        [2] opcode: Opcode,
        /// The client's identifier of the request; returned unchanged.
        [4] handle: U64,
        /// First sector (512 bytes each).
        [12] lba: U64,
        /// Number of sectors; zero in the reply to a SET.
        [20] lba_count: U32,
    }
}
