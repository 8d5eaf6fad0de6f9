//! A flash translation layer without I/O: volumes of 4 KiB pages over member devices that like to
//! be written in long runs.
//!
//! [`create`] makes a volume, [`open`] opens one after a clean or an unclean stop. A [`Volume`]
//! takes [`Request`]s and completions as values, and yields [`Command`]s for its members and
//! [`Reply`]s. An acknowledged write survives the process; a flushed one survives power
//! (docs/explanation/flash-translation.md).
//!
//! This crate deliberately leaves out devices, threads and schedulers: one owner calls a volume, and
//! decides when its commands are carried out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod amplification;
mod checkpoint;
mod collect;
mod command;
mod discards;
mod error;
mod flight;
mod flush;
mod geometry;
pub mod layout;
mod log;
mod map;
mod open;
mod policy;
mod reads;
mod report;
mod sabotage;
mod segment;
mod store;
#[cfg(test)]
mod trial;
mod volume;

pub use command::{Busy, Command, Into, Op, REQUESTS_MAX, Reply, Request, Settings, Token};
pub use error::Error;
pub use geometry::{BATCH_PAGES_MAX, Geometry, MEMBERS_MAX, SEGMENT_PAGES, Shape};
pub use open::{Media, Opened, create, open};
pub use policy::{Placement, Policy, Victims};
pub use report::{Report, Wear};
pub use volume::Volume;
