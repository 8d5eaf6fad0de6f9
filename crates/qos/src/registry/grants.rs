//! The time at which the rates of all tenants are recomputed.
//!
//! On a device that makes less than it promised, each tenant has a proportional part, so a change
//! of one tenant changes the rates of all. A series of changes recomputes the rates once, with its
//! last change.

/// The state of recomputing the tenants' rates: when it happens, and whether it is due.
#[derive(Debug, Default)]
pub(super) struct RateUpdates {
    when: RecomputeTime,
    /// The number of times that the rates were recomputed.
    #[cfg(test)]
    pub(super) rounds: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecomputeTime {
    /// Rates are recomputed with each change, outside of a series.
    #[default]
    AtOnce,
    /// A series of changes is in progress, and none of them has required to recompute the rates.
    Later,
    /// Rates are recomputed at the end of the series, because one of its changes requires that.
    Owed,
}

impl RateUpdates {
    /// Delays the recomputation of the rates to the end of the series. Returns `false` outside of a
    /// series.
    pub(super) fn put_off(&mut self) -> bool {
        if self.when != RecomputeTime::AtOnce {
            self.when = RecomputeTime::Owed;
        }
        self.when == RecomputeTime::Owed
    }

    /// Begins a series of changes, during which recomputations of the rates are put off.
    pub(super) fn begin_row(&mut self) {
        self.when = RecomputeTime::Later;
    }

    /// Ends a series of changes. Returns `true` if the rates are to be recomputed now.
    pub(super) fn end_row(&mut self) -> bool {
        core::mem::take(&mut self.when) == RecomputeTime::Owed
    }

    /// Counts a recomputation of the rates.
    pub(super) fn count(&mut self) {
        #[cfg(test)]
        {
            self.rounds += 1;
        }
    }
}
