//! Scenarios: real workers with their real schedulers, sessions and simulated flash, in virtual time
//! from a seed, with tenants that do what a figure needs.
//!
//! Unlike [`sim::World`], which is after faults, a [`Stage`] is after speed and latency: nothing
//! goes wrong, memory is used again, and a worker's turns take the processor time that the bench
//! measured (`costs.rs`). A turn sees what has arrived when it begins; what it submits reaches the
//! device, and what it answers leaves, when it ends. Threads may be stalled (`stalls.rs`). The network adds nothing: latencies are those of
//! the server.
//!
//! What is deliberately not here: figures (`figures/`), faults, real time.

mod costs;
mod memory;
mod meter;
mod source;
mod stage;
mod stalls;
mod station;
mod wire;

pub use meter::{Meter, WINDOW_READS, Window};
pub use source::{Load, Loop};
pub use stage::{Setup, SourceId, Stage};
pub use stalls::Stalling;
