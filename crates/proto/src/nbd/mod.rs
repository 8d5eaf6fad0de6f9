//! The NBD protocol (docs/reference/protocols/nbd.md): fixed newstyle negotiation (`handshake`),
//! then requests with simple or structured replies (`server`). Requests that are larger than a
//! command of a device are cut (`cut`). The client's end is `client`. Where a listener has TLS, the
//! messages before TLS are exchanged before there is a session (`prelude`).
//!
//! An export is a namespace. NBD has no credentials and no name of a client, so a connection has
//! the rights and the tenant that its listener and the access rules give.

mod client;
mod cut;
mod errno;
mod handshake;
mod limits;
mod packed;
mod prelude;
mod server;

pub use client::{ClientEvent, Found, NbdClient, NbdRefusal};
pub use limits::{HANDSHAKE_TIME, NAME_BYTES_MAX, OPTIONS_BYTES_MAX, PAYLOAD_BYTES_MAX};
pub use prelude::{ClientPrelude, ServerPrelude};
pub use server::NbdSession;
