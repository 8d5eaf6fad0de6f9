//! NVMe over TCP (docs/reference/protocols/nvme-tcp.md; NVM Express TCP Transport Specification
//! 1.0a): how capsules and their data travel on one connection, which is one queue of a controller.
//!
//! [`TargetSession`] is the controller's end, over a [`Queue`](crate::nvme::Queue) of the
//! [`Fabric`](crate::nvme::Fabric); [`HostSession`] is the host's, and [`HostQueue`] over it what a host that
//! only wants to read and write needs. Neither keeps a lent buffer: a
//! header that is cut goes into a small carry, data is passed through as it came.
//!
//! What is deliberately not here: what commands mean (that is [`nvme`](crate::nvme)'s), TLS.

mod controller;
mod desk;
mod encode;
mod framer;
mod host;
mod host_queue;

pub use controller::TargetSession;
pub use desk::Desk;
pub use framer::Digests;
pub use host::{Carried, HostEvent, HostSession, Ready};
pub use host_queue::{Encoded, Found, HostOptions, HostQueue, QueueEvent, Refusal};

/// The most data of one H2CData that a target takes (MAXH2CDATA): the largest request.
pub const DATA_BYTES_MAX: u32 = contract::REQUEST_BYTES_MAX as u32;

/// The most data in the capsule of a command: what hosts may send there on an admin queue
/// (section 3.3.1), and what we let them send on the others.
pub const CAPSULE_DATA_BYTES_MAX: u32 = 8192;

/// The largest offset of data in a PDU that is served; a host that asks for an alignment which needs
/// more (HPDA) is refused.
pub const DATA_OFFSET_SERVED_MAX: usize = 32;
