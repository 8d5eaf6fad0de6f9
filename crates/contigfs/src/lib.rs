//! A file system without I/O whose files are contiguous in the virtual space of a volume that is
//! much larger than its flash.
//!
//! [`create`] makes a file system, [`mount()`] reads one, [`check`] looks for faults. All of its
//! metadata is in memory afterwards. A [`FileSystem`] applies [`Operation`]s at once, in memory,
//! and collects the pages that they changed. The caller carries them out:
//!
//! 1. [`FileSystem::apply`] gives a [`Reply`]: an answer, and the [event](AwaitedEvent) until which
//!    it is not durable.
//! 2. [`FileSystem::take_commit`] gives the pages to be written all or none. One commit is under
//!    way at a time; [`FileSystem::commit_ended`] tells its end. What is applied meanwhile gathers
//!    for the next.
//! 3. [`FileSystem::take_chore`] gives discards and zeroes to be written once their commit is
//!    durable; [`FileSystem::chore_ended`] tells that each is
//!    durable. A commit may free the space that it cleaned.
//! 4. [`FileSystem::outcome`] tells whether an event has come, and how it ended.
//!
//! Data passes by: [`FileSystem::place_read`] and [`FileSystem::place_write`] give the virtual
//! place of bytes, two additions away, and [`FileSystem::wrote`] ends a write. Sizes and times that
//! writes change are committed by fsync, by the last release, and by
//! [`FileSystem::flush_attributes`], which the caller calls every second.
//!
//! [`FileSystem::extent`] gives the range of virtual space that a whole file has, so that the file
//! can be exported as a device while nobody changes the file system.
//!
//! There is no journal, and nothing to repair after a crash (docs/explanation/contiguous-files.md).
//! This crate deliberately leaves out clocks, permissions (the kernel's `default_permissions`
//! checks them), caches of data, and the device.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod buddy;
mod chores;
mod entries;
mod errno;
mod error;
mod extent;
pub mod layout;
mod ledger;
mod load;
mod media;
mod mount;
mod names;
mod operations;
mod pool;
mod state;
mod system;
mod table;
mod words;

pub use errno::Errno;
pub use error::Error;
pub use extent::{Extent, NoExtent, parts};
pub use load::{Faults, is_superblock};
pub use media::Pages;
pub use mount::{CheckReport, Settings, Shape, check, create, mount, settle};
pub use system::FileSystem;
pub use words::*;
