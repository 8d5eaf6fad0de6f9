//! `nearflash attach`: volumes of a server as block devices of this machine, through the kernel's
//! driver `ublk_drv` (docs/adr/0034-attach.md).
//!
//! A process serves a device, with a thread, a ring and a connection for each queue. The device
//! outlives the process: requests wait for a successor, which repeats what was in flight under the
//! identity of its predecessor.
//!
//! `nearflash connect` attaches NVMe subsystems by the kernel's own host ([`connect`]).
//!
//! This crate deliberately leaves out the engine of a queue and the translation of requests
//! (`client::block`), and the commands of the kernel's driver (`io::ublk`).
#![forbid(unsafe_code)]

mod command;
pub mod connect;
mod daemon;
mod device_threads;
mod devices;
mod kernel;
mod notify;
mod options;
mod record;
mod survey;
mod usage;

pub use command::{Args, run};
