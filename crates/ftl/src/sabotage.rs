//! Faults that tests put into a volume, to prove that they would be found.

use crate::volume::Volume;

/// A fault of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Segments are reused before the copies of their pages are durable.
    EarlyReuse,
    /// Segments are reused while they are read.
    UnpinnedReads,
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
    /// A flush is answered by members although they flushed nothing.
    #[cfg(test)]
    LyingFlush,
}

impl Volume {
    /// Returns `true` if tests put this fault in.
    #[cfg(test)]
    pub(crate) fn is_sabotaged(&self, fault: Sabotage) -> bool {
        self.sabotage == Some(fault)
    }

    /// Returns `false`: there are faults in tests only.
    #[cfg(not(test))]
    pub(crate) fn is_sabotaged(&self, _fault: Sabotage) -> bool {
        false
    }
}
