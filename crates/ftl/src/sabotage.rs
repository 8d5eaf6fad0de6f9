//! Faults that tests put into a volume, to prove that they would be found.

/// A fault that a test puts into a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Segments are reused before the copies of their pages are durable.
    EarlyReuse,
    /// Segments are reused while they are read.
    UnpinnedReads,
    /// Segments are reused while pages that were moved from them are in flight, and pages are moved
    /// before they are durable.
    UnpinnedMoves,
    /// Moved pages take new stamps.
    NewStamps,
    /// The map takes moved pages although a host wrote them meanwhile.
    BlindMoves,
    /// Recovery believes data without its checksum.
    UnprovenPages,
    /// Recovery forgets discards.
    ForgottenDiscards,
    /// Recovery applies the pages of an atomic write that are whole, though others are torn.
    SinglePages,
    /// Batches of plain writes have no mark, so that a torn one leaves the pages that are whole.
    UnmarkedWrites,
    /// Members answer flushes without flushing.
    #[cfg(test)]
    LyingFlush,
}
