//! NVMe over TCP (docs/reference/protocols/nvme-tcp.md; NVM Express TCP Transport Specification
//! 1.0a): the transport of capsules and their data. Each connection is one queue of a controller.
//!
//! [`ControllerSession`] is the controller's end, on top of a [`Queue`](crate::nvme::Queue) of the
//! [`Fabric`](crate::nvme::Fabric). [`HostSession`] is the host's end. [`HostQueue`], on top of it,
//! adds what a host needs for reading and writing. No session keeps a lent buffer: it copies an
//! incomplete header, and passes data through as it came.
//!
//! Deliberately left out: the meaning of commands, which [`nvme`](crate::nvme) has, and TLS, of
//! which a session learns the [identity](ControllerSession::after) alone.

mod controller;
mod encode;
mod framer;
mod host;
mod host_queue;
mod limits;
mod worker_fabric;

pub use controller::ControllerSession;
pub use framer::Digests;
pub use host::{HostEvent, HostSession, ReadyToTransfer, TransferSizes};
pub use host_queue::{EncodedRequest, Found, HostOptions, HostQueue, QueueEvent, Refusal};
pub use limits::{CAPSULE_DATA_BYTES_MAX, DATA_BYTES_MAX, DATA_OFFSET_SERVED_MAX};
pub use worker_fabric::WorkerFabric;
