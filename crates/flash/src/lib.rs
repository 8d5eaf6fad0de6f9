//! Devices in memory, decorators for any device, and the conformance suite for devices.
//!
//! [`Spec`] parses the strings that name devices (docs/reference/devices.md). [`Null`] keeps
//! nothing and measures software. [`MemVolume`] keeps its data in memory. [`sim_flash`] simulates
//! the latencies of flash. [`ExclusiveQueue`] gives any device compare-and-write, isolated atomic
//! writes and requests finer than its granularity. [`FaultyDevice`], [`DelayedDevice`] and
//! [`Recorder`] wrap any device for tests. [`conformance`] is the suite that every device must
//! pass.
//!
//! This crate deliberately leaves out files and system calls (see crate `io`), clocks and
//! randomness. Time is an argument, and chance comes from a seed.
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

pub use chance::Rng;
pub use decorated::DecoratedDevice;
pub use delayed::DelayedDevice;
pub use exclusive::{ExclusiveQueue, SmallWriteCounters};
pub use faulty::{FaultSwitch, Faults, FaultyDevice, Stall};
pub use locks::RangeLocks;
pub use mem::{MemQueue, MemVolume};
pub use null::Null;
pub use recorder::{Record, Recorder, Recording};
pub use spec::{
    Decorations, Delay, FtlOptions, SizeError, Source, Spec, SpecError, parse_size, size_text,
};
