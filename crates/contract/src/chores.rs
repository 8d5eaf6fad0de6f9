//! The port to the work that a device does of its own accord, such as collecting garbage.

use core::fmt::Debug;

/// The work of a device since it was opened, in pages of 4 KiB, and its present space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chored {
    /// Pages that hosts wrote.
    pub host_pages: u64,
    /// Pages that the device read of its own accord.
    pub read_pages: u64,
    /// Pages that the device wrote beside the pages of hosts.
    pub written_pages: u64,
    /// The share of the device's space that is free to write to, in thousandths.
    pub free_permille: u32,
    /// `true` while writes wait in the device because it has no space for them yet.
    pub is_short: bool,
}

/// The pages that a device reads and writes of its own accord for each page that hosts write, in
/// thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoreRate {
    /// Pages that the device reads of its own accord, per thousand pages that hosts write.
    pub read_permille: u32,
    /// Pages that the device writes beside those of hosts, per thousand pages that hosts write.
    pub written_permille: u32,
}

/// The background work of a device, read by another thread than the device's worker.
pub trait Chores: Debug + Send + Sync {
    /// Returns the device's background work since it was opened, and its present space.
    fn done(&self) -> Chored;

    /// Returns the device's work for each page that hosts write, while they write every page
    /// equally often, one page at a time. Promises are priced with it.
    fn uniform(&self) -> ChoreRate;

    /// Returns the capacity of the device for hosts, in pages of 4 KiB.
    fn pages(&self) -> u64;

    /// Returns the number of pages without data that hosts can still write, for 4 KiB each. Pages
    /// that were discarded count, though a write may have to wait for a flush to take them.
    fn room(&self) -> u64;
}
