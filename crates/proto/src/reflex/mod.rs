//! The protocol `reflex`. Version 1 is the wire format of the original server, byte for byte
//! (docs/reference/protocols/reflex-v1.md). Version 2 adds what version 1 could not express
//! (docs/reference/protocols/reflex-v2.md). Both share a port and are distinguished by their first
//! bytes.
//!
//! No end keeps a lent buffer: the session copies an incomplete head, decodes a complete one in
//! place, and passes payloads through as they came.

mod client;
mod client_v2;
mod limits;
mod packed;
mod passage;
mod server;
mod server_v2;
mod v1;

pub use client::{ClientEvent, ClientSession};
pub use limits::{PAYLOAD_BYTES_MAX, REQUEST_BLOCKS_MAX, STREAMS_MAX};
pub use server::ServerSession;
pub use wire::reflex_v2::{TENANT_BYTES_MAX, TOKEN_BYTES_MAX};
