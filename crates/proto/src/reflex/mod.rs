//! The protocol `reflex`. Version 1 is the wire format of the original server, byte for byte
//! (docs/reference/protocols/reflex-v1.md). Version 2 adds what version 1 could not express
//! (docs/reference/protocols/reflex-v2.md). Both share a port and are distinguished by their first
//! bytes.
//!
//! No end keeps a lent buffer: the session copies an incomplete head, decodes a complete one in
//! place, and passes payloads through as they came.

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

/// The number of streams of a connection; stream numbers are below.
pub const STREAMS_MAX: u8 = 8;

/// The most blocks of a range.
pub const REQUEST_BLOCKS_MAX: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32;

/// The longest payload: that of the largest compare-and-write.
pub const PAYLOAD_BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX;
