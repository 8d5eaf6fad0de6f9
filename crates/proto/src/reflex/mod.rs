//! Protocol `reflex`: version 1 is the wire format of the original server, byte for byte
//! (docs/reference/protocols/reflex-v1.md); version 2 adds what that could not say
//! (docs/reference/protocols/reflex-v2.md). Both share a port and are told apart by their first
//! bytes.
//!
//! Neither end keeps a lent buffer: a head that is cut goes into a small carry, a head that is whole
//! is parsed where it lies, and payloads are passed through as they came.

mod client;
mod client_v2;
mod packed;
mod passage;
mod server;
mod server_v2;
mod v1;

pub use client::{ClientEvent, ClientSession};
pub use server::ServerSession;
pub use wire::reflex_v2::{TENANT_BYTES_MAX, TOKEN_BYTES_MAX};

use contract::{BLOCK_BYTES, REQUEST_BYTES_MAX};

/// Streams of a connection; a stream's number is below.
pub const STREAMS_MAX: u8 = 8;

/// The most blocks that a range may have.
pub const REQUEST_BLOCKS_MAX: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32;

/// The longest payload: that of the largest compare-and-write.
pub const PAYLOAD_BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX;
