//! Devices made of arithmetic, decorators for any device, and the suite that every device passes.
//!
//! [`Spec`] reads the strings that name devices (docs/devices.md). [`Null`] keeps nothing and
//! measures software; [`MemVolume`] keeps its data in memory; [`sim_flash`] takes the time of flash. [`Exclusive`] gives any device
//! compare-and-write, isolated atomic writes and requests finer than its granularity. [`Faulty`],
//! [`Delayed`] and [`Recorder`] wrap any device for tests. [`conformance`] is what a device must
//! pass.
//!
//! What is deliberately not here: files and system calls (they are `io`'s), clocks and randomness
//! (time is an argument, chance comes from a seed).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod chance;
pub mod conformance;
mod decorated;
mod delayed;
mod exclusive;
mod faulty;
mod inbox;
mod locks;
mod mem;
mod null;
mod recorder;
pub mod sim_flash;
mod spec;

pub use chance::Chance;
pub use decorated::Decorated;
pub use delayed::Delayed;
pub use exclusive::Exclusive;
pub use faulty::{FaultSwitch, Faults, Faulty, Stall};
pub use locks::RangeLocks;
pub use mem::{MemQueue, MemVolume};
pub use null::Null;
pub use recorder::{Record, Recorder, Recording};
pub use spec::{Decorations, Delay, SizeError, Source, Spec, SpecError, parse_size};
