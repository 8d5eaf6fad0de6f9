//! Devices on files: regular files and block devices, through the ring or through threads.
//!
//! A [`FileVolume`] is opened once; each worker opens a queue to it. Queues take whole granules
//! only ([`FileVolume::granularity_bytes`]). `flash::ExclusiveQueue` around them serves finer
//! requests, and keeps blocks whole where the medium does not ([`FileVolume::tears_blocks`]).

mod align;
mod blocking;
mod disk;
mod file;
mod flight;
mod foresee;
mod journal;
mod medium;
mod missing;
mod queue;
mod resize;
mod threads;

pub use blocking::BlockingVolume;
pub use disk::disk_identity;
pub use file::{FileOptions, FileVolume};
pub use queue::FileQueue;
pub use threads::ThreadedQueue;
