//! The layout of the simulated volume.

use contract::Range;
use flash::Rng;

/// The blocks of the good clients' namespace, at the volume's beginning.
pub(crate) const BLOCKS: u64 = 8192;
/// The blocks of the hostile clients' namespace, behind the good clients'.
pub(crate) const HOSTILE_BLOCKS: u64 = 1024;
/// The blocks of the volume.
pub(crate) const VOLUME_BLOCKS: u64 = BLOCKS + HOSTILE_BLOCKS;

/// The blocks that ordinary requests read and write; few, so that requests often overlap.
pub(crate) const HOT: Range = Range::new(0, 96);
/// The blocks that only compare-and-writes change.
pub(crate) const COMPARED: Range = Range::new(104, 4);
/// Ranges that only atomic writes of a whole range change: one within a granule or two, and one
/// across two lock regions of 1 MiB and several pieces of memory.
pub(crate) const ATOMIC: [Range; 2] = [Range::new(117, 11), Range::new(6144 - 80, 160)];
/// The range of requests of up to 1 MiB.
pub(crate) const HUGE: Range = Range::new(1024, 4096);

/// Returns a random block of [`COMPARED`].
pub(crate) fn compared(chance: &mut Rng) -> Range {
    Range::new(COMPARED.lba + chance.within(0..=u64::from(COMPARED.blocks) - 1), 1)
}
