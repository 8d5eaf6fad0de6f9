//! Remote flash at close to local speed: the client library.
//!
//! [`Client`] reads and writes the blocks of a `nearflash serve` (or of a server of the original
//! ReFlex protocol) over TCP, TLS, packets or a Unix socket, asynchronously and under any executor.
//! [`blocking::Client`] has the same methods without futures. Both stand on [`Queue`], for programs
//! that drive their own requests: it polls, uses the caller's memory and has no thread.
//!
//! ```no_run
//! use nearflash::{Options, blocking::Client};
//!
//! # fn main() -> Result<(), nearflash::Error> {
//! let client = Client::connect("reflex://127.0.0.1:7420", Options::default())?;
//! client.write_durable(0, &[7; 4096])?; // block 0, eight blocks of 512 bytes
//! assert_eq!(client.read(0, 4096)?, [7; 4096]);
//! # Ok(()) }
//! ```
//!
//! This crate deliberately leaves out the protocol, reconnecting and repeating (see
//! `nearflash-client`, a core without I/O), and the system calls (see `nearflash-io`).
#![forbid(unsafe_code)]

mod answer;
pub mod blocking;
mod client;
mod engine;
mod error;
mod info;
mod line;
mod options;
mod queue;
mod slo;
mod tenancy;
mod thread;

pub use self::client::{Client, Stream};
pub use ::client::{Done, Op, Ticket};
pub use contract::{Buf, BufPool, Command, Range, SizeClass, Status};
pub use engine::{Event, Full, Wait};
pub use error::Error;
pub use info::Info;
pub use io::Waker;
pub use options::Options;
pub use queue::{Queue, memory};
pub use slo::{Refused, Registered, Slo};
pub use tenancy::Notice;
