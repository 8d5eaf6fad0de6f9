//! The load generator: requests at a pace, their latencies, and whether what was read is right.
//!
//! A [`Generator`] drives one [`Path`]: a server ([`Remote`]) or a device of this process
//! ([`Local`]), so that both are measured by the same code. In an open loop, latency counts from
//! when a request was *meant* to be sent; a stall of the target delays the requests behind it, and
//! they say so (no coordinated omission).

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
