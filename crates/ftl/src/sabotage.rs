//! Faults that tests put into a volume, to prove that they would be found.

/// A fault of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Segments are reused before the copies of their pages are durable.
    EarlyReuse,
    /// Segments are reused while they are read.
    UnpinnedReads,
    /// Segments are reused while pages that were moved from them are on their way, and pages are
    /// moved before they are durable.
    UnpinnedMoves,
    /// Moved pages take new stamps.
    NewStamps,
    /// Moved pages are installed although a host wrote meanwhile.
    BlindMoves,
    /// Recovery believes data without its checksum.
    UnprovenPages,
    /// Recovery forgets discards.
    ForgottenDiscards,
    /// Recovery takes the pages of atomic writes one by one.
    SinglePages,
    /// Members answer flushes without flushing.
    #[cfg(test)]
    LyingFlush,
}
