//! Connections to an export of an NBD server, and the load generator's path to the export.
//!
//! [`Attachment`] is a core without I/O, like the initiator: it uses a transport and is driven by
//! turns. When a connection is lost, all are given up, and made anew after a pause.
//!
//! This module deliberately leaves out the repetition of requests in flight. NBD has no fence
//! between the old connections' writes and the new ones'. So such requests end as
//! [`ConnectionLost`](contract::Status::ConnectionLost) and may still be carried out.

mod address;
mod attachment;
mod report;

pub use address::{NbdAddress, NbdAddressError};
pub use attachment::{Attachment, AttachmentOptions};
pub use proto::nbd::{Found, NbdRefusal};
pub use report::{NbdLoss, NbdReport};

/// Returns the client's side of the NBD negotiation that precedes a TLS handshake.
pub fn prelude() -> Box<dyn contract::Prelude> {
    Box::new(proto::nbd::ClientPrelude::default())
}
