//! Scenarios: real workers with their real schedulers and sessions over simulated flash, in virtual
//! time from a seed, with the tenants of a figure.
//!
//! [`sim::World`] searches for faults; a [`Scenario`] measures speed and latency. On a stage
//! nothing fails, memory is reused, and a worker's turns take the processor time that the bench
//! measured (`costs.rs`). A turn sees the requests that have arrived when it begins. Its
//! submissions reach the device, and its replies leave, when it ends. Threads may be stalled
//! (`stalls.rs`). The network adds no delay: latencies are those of the server.
//!
//! Deliberately left out: figures (`figures/`), faults, real time.

mod costs;
mod disk;
mod memory;
mod meter;
mod source;
mod stage;
mod stalls;
mod wire;
mod worker;

pub use disk::Translation;
pub use meter::{Meter, Rate, Window, WindowExtent};
pub use source::{Load, SendingRule};
pub use stage::{Scenario, Setup, SourceId};
pub use stalls::StallPattern;
