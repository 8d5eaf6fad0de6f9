//! The initiator core and the load generator core.
//!
//! [`Initiator`] keeps connections to one server, and requests in flight on them. [`load`] makes
//! requests, measures and verifies them, against a server or a local device alike. [`nvme`] and
//! [`nbd`] are the counterparts of [`Initiator`] for servers of NVMe over TCP and of NBD. [`block`]
//! serves the requests of a block device.
//!
//! All of them are computations over the ports of `contract`. Time is an argument, chance comes from
//! a seed, and bytes come through a transport that the caller provides.
//!
//! This crate deliberately leaves out sockets, threads, clocks and printing.
#![forbid(unsafe_code)]

mod address;
mod durability;
mod initiator;
mod random;

pub mod block;
pub mod load;
pub mod nbd;
pub mod nvme;

pub use address::{Address, AddressError, Trust};
pub use durability::Durability;
pub use initiator::{Done, Initiator, Loss, Op, Options, QueueFull, Report, Ticket, Version};
pub use random::Random;
