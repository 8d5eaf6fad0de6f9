//! The interface to a device's background work, such as garbage collection.

use core::fmt::Debug;

/// Counters of a device's background work since the device was opened, in pages of 4 KiB, and the
/// device's free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoreCounters {
    /// Pages that hosts wrote.
    pub host_pages: u64,
    /// Number of pages that the device has read for its background work.
    pub read_pages: u64,
    /// Pages that the device wrote beside the pages of hosts.
    pub written_pages: u64,
    /// The share of the device's space that is free to write to, in thousandths.
    pub free_permille: u32,
    /// Number of writes of less than a page that pages were written with.
    pub small_writes: u64,
    /// Pages that were written for them.
    pub small_write_pages: u64,
    /// `true` while writes wait in the device for garbage collection to free space.
    pub is_short: bool,
}

/// The number of pages that a device's background work reads and writes for each page that hosts
/// write, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoreRate {
    /// Pages that background work reads, per thousand pages that hosts write.
    pub read_permille: u32,
    /// Pages that background work writes, per thousand pages that hosts write.
    pub written_permille: u32,
}

/// The background work of a device, read by another thread than the device's worker.
pub trait Chores: Debug + Send + Sync {
    /// Returns the device's background work since it was opened, and its present space.
    fn done(&self) -> ChoreCounters;

    /// Returns the background work per page written by hosts, if hosts write all pages equally
    /// often in single-page writes. The prices of promises are computed with this ratio.
    fn uniform(&self) -> ChoreRate;

    /// Returns the capacity of the device for hosts, in pages of 4 KiB.
    fn pages(&self) -> u64;

    /// Returns the number of pages without data that hosts can still write, for 4 KiB each. Pages
    /// that were discarded count, though a write may have to wait for a flush to take them.
    fn room(&self) -> u64;
}
