//! Where things lie in the simulated volume.

use contract::Range;

/// Blocks of the good clients' namespace, which is the volume's beginning.
pub(crate) const BLOCKS: u64 = 8192;
/// Blocks of the hostile clients' namespace, behind it.
pub(crate) const HOSTILE_BLOCKS: u64 = 1024;
/// Blocks of the volume.
pub(crate) const VOLUME_BLOCKS: u64 = BLOCKS + HOSTILE_BLOCKS;

/// Plain requests.
pub(crate) const HOT: Range = Range::new(0, 96);
/// Blocks that only compare-and-writes change.
pub(crate) const COMPARED: Range = Range::new(104, 4);
/// Ranges that only atomic writes of all of it change: within a granule or two, and across two lock
/// regions of 1 MiB and several pieces of memory.
pub(crate) const ATOMIC: [Range; 2] = [Range::new(117, 11), Range::new(6144 - 80, 160)];
/// Requests of up to 1 MiB.
pub(crate) const HUGE: Range = Range::new(1024, 4096);
