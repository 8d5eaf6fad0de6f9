//! The initiator core and the load generator core.
//!
//! [`Initiator`] keeps connections to one server and requests in flight on them; [`load`] makes
//! requests, measures and verifies them, against a server or a local device alike; [`nvme`] is the
//! same for servers that speak NVMe over TCP. All are
//! arithmetic on values over the ports of `contract`: time comes in as an argument, chance from a
//! seed, and bytes through a transport that somebody else made.
//!
//! What is deliberately not here: sockets, threads, clocks, printing.
#![forbid(unsafe_code)]

mod address;
mod initiator;
mod random;

pub mod load;
pub mod nvme;

pub use address::{Address, AddressError, Place};
pub use initiator::{Done, Initiator, Loss, Op, Options, QueueFull, Report, Ticket, Version};
pub use random::Random;
