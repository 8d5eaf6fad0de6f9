//! NVMe over TCP (docs/reference/protocols/nvme-tcp.md; NVM Express TCP Transport Specification
//! 1.0a): the transport of capsules and their data. Each connection is one queue of a controller.
//!
//! [`ControllerSession`] is the controller's end, on top of a [`Queue`](crate::nvme::Queue) of the
//! [`Fabric`](crate::nvme::Fabric). [`HostSession`] is the host's end. [`HostQueue`], on top of it,
//! has what a host needs for reading and writing. No end keeps a lent buffer: the session copies an
//! incomplete header, and passes data through as it came.
//!
//! Deliberately left out: the meaning of commands, which [`nvme`](crate::nvme) has, and TLS.

mod controller;
mod encode;
mod framer;
mod host;
mod host_queue;
mod worker_fabric;

pub use controller::ControllerSession;
pub use framer::Digests;
pub use host::{Carried, HostEvent, HostSession, Ready};
pub use host_queue::{Encoded, Found, HostOptions, HostQueue, QueueEvent, Refusal};
pub use worker_fabric::WorkerFabric;

/// The most data of one H2CData that a controller accepts (MAXH2CDATA): the largest request.
pub const DATA_BYTES_MAX: u32 = contract::REQUEST_BYTES_MAX as u32;

/// The most data in the capsule of a command. Hosts may send this much on an admin queue (section
/// 3.3.1), and here on the others too.
pub const CAPSULE_DATA_BYTES_MAX: u32 = 8192;

/// The largest supported offset of data in a PDU. A host whose alignment (HPDA) needs more is
/// refused.
pub const DATA_OFFSET_SERVED_MAX: usize = 32;
