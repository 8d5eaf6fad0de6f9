//! A host of NVMe over TCP: one controller of one server, one namespace, and the load generator's
//! path to the namespace.
//!
//! [`Host`] is a core without I/O, like the initiator: it uses a transport and is driven by turns.
//! The host connects the admin queue and then the I/O queues, and sends keep-alives. When any
//! connection is lost, the host gives the controller up, as other hosts do, and makes a new one.
//!
//! This module deliberately leaves out the repetition of requests in flight. NVMe over fabrics has
//! no fence between the old connections' writes and the new ones'. So such requests end as
//! [`ConnectionLost`](contract::Status::ConnectionLost) and may still be carried out.

mod address;
mod connection;
mod host;
mod report;

pub use address::{NvmeAddress, NvmeAddressError};
pub use host::Host;
pub use proto::nvme::auth::{Secret, SecretError};
pub use proto::nvme::psk::{TlsIdentity, TlsKey, TlsKeyError};
pub use proto::nvme_tcp::{Digests, Found, HostOptions, Refusal};
pub use report::{HostLoss, HostReport, Patience};
