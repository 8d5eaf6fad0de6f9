//! The load generator: sends requests at a given pace, measures latencies and verifies the data.
//!
//! A [`Generator`] drives one [`Path`]: a server ([`Remote`]) or a device of this process
//! ([`Local`]), so that the same code measures both. In an open loop, latency counts from the
//! *intended* send time. A stall of the target delays the requests behind it, and their latencies
//! show the delay (no coordinated omission).

mod arrivals;
mod generator;
mod path;
mod pattern;
mod tally;
mod verify;

pub use arrivals::{Arrival, Arrivals};
pub use generator::{Generator, Pace, Shape};
pub use path::{Ended, Local, Path, Remote};
pub use pattern::{Pattern, Places};
pub use tally::{Side, Tally};
pub use verify::{Failure, Found, SpanTooLarge, VERIFY_UNITS_MAX, Verifier, unit_bytes};
