//! A flash translation layer without I/O: volumes of 4 KiB pages over member devices that like to
//! be written in long runs.
//!
//! [`create`] makes a volume, [`open`](fn@open) opens one after a clean or an unclean stop. A
//! [`Volume`] takes [`Request`]s and completions as values, and yields [`Command`]s for its members
//! and [`Reply`]s. An acknowledged write survives the process; a flushed one survives power
//! (docs/explanation/flash-translation.md).
//!
//! [`Queue`] is a volume as a device over the devices of its members. It has one owner, whose calls
//! decide when its commands are carried out.
//!
//! This crate deliberately leaves out threads, schedulers and what devices are made of.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod amplification;
mod check;
mod checkpoint;
mod chores;
mod collect;
mod command;
mod discards;
mod error;
mod field_codec;
mod flight;
mod flush;
mod geometry;
mod hand_over;
pub mod layout;
mod log;
mod map;
mod media;
mod open;
mod pace;
mod policy;
mod queue;
mod reads;
mod report;
mod sabotage;
mod segment;
mod store;
mod table;
mod trend;
#[cfg(test)]
mod trial;
mod volume;

pub use check::{CheckReport, ReadOnlyMedia, check};
pub use command::{
    Command, CommandToken, MemberOperation, REQUESTS_MAX, ReadDestination, Reply, Request,
    Settings, VolumeBusy,
};
pub use error::Error;
pub use geometry::{BATCH_PAGES_MAX, Geometry, MEMBERS_MAX, SEGMENT_PAGES, Shape};
pub use hand_over::{AwaitedVolume, FORMAT, RestProgress};
pub use media::{DeviceMedia, close, read};
pub use open::{Media, OpeningReport, VolumeParameters, create, describe, open};
pub use policy::{Placement, Policy, VictimRule};
pub use queue::Queue;
pub use report::{Report, Wear};
pub use table::{LentMemory, MapMemory};
pub use volume::Volume;
