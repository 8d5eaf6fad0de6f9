//! A host of NVMe over TCP: one controller of one server, one namespace, and the load generator's way
//! to it.
//!
//! [`Host`] is a core without I/O, as the initiator is: it speaks to a transport and is driven by
//! turns. It connects the admin queue and then the I/O queues, says that it lives, and when any of its
//! connections is lost it gives the controller up, as other hosts do, and makes a new one.
//!
//! What is deliberately not here: sending again what was in flight. NVMe over fabrics has no fence
//! between the old connections' writes and the new ones', so such requests end as
//! [`ConnectionLost`](contract::Status::ConnectionLost) and may still be carried out.

mod address;
mod host;
mod line;
mod words;

pub use address::{NvmeAddress, NvmeAddressError};
pub use host::Host;
pub use proto::nvme::auth::{Secret, SecretError};
pub use proto::nvme_tcp::{Digests, Found, HostOptions, Refusal};
pub use words::{HostLoss, HostReport, Patience};
