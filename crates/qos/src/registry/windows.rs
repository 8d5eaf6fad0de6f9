//! Promises that hold in windows: the part of a device's rate that is kept back for them.

use contract::Instant;

use super::Registry;
use crate::admission::scaled;

/// Access to the windows in which a registry's promises hold.
#[derive(Debug)]
pub struct Windows<'a>(&'a mut Registry);

impl Windows<'_> {
    /// Gives access to a registry's windows.
    pub fn of(registry: &mut Registry) -> Windows<'_> {
        Windows(registry)
    }

    /// Has promised percentiles hold in windows from now on, or on average (`false`, the default).
    /// Present promises stay; if they leave no headroom, each tenant gets a proportional part, as
    /// when the model is [corrected](Registry::adjust).
    pub fn promise(self, on: bool, now: Instant) {
        self.0.model = self.0.model.clone().with_windows(on);
        self.0.adjust(self.0.adjustment, now);
    }

    /// Returns the units a second that the device makes at the strictest of its promises and that
    /// are kept back, so that the promises hold in windows.
    pub fn headroom(registry: &Registry) -> u64 {
        let strictest = registry.table.standing().strictest();
        let kept = strictest.map_or(0, |(_, promise)| promise.headroom);
        scaled(kept, registry.adjustment.rate_permille)
    }
}
