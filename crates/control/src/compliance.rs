//! Compliance with an SLO, over the last second and the last minute.
//!
//! Each second is judged by itself. Over the minute, the shares of reads are summed, since the
//! worst of sixty seconds says little about the tenant's experience. This module deliberately
//! leaves out the reasons for a missed SLO.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of windows per minute.
const MINUTE: usize = 60;

/// Factor of the promised tokens above which the demand is a burst, not noise. During a burst, the
/// latency bound does not hold.
pub const BURST: f64 = 1.05;

/// The verdict on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There were no reads to judge.
    Idle,
    /// The bound held at its percentile.
    Kept,
    /// The bound did not hold.
    Missed,
    /// The tenant demanded more than its SLO, so its latency bound did not hold.
    Exceeded,
}

/// The measurements of a tenant in one window that decide whether its SLO was kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowMeasurements {
    /// Reads of the tenant that were answered in the window.
    pub(crate) reads: u64,
    /// Reads whose latency was within the bound, interpolated within a histogram bucket.
    pub(crate) within: f64,
    /// Tokens spent, and tokens promised, per second.
    pub(crate) tokens: f64,
    pub(crate) promised: f64,
    /// Share of reads that must be within the bound, 0 to 1.
    pub(crate) wanted: f64,
}

impl WindowMeasurements {
    fn verdict(&self) -> Verdict {
        match self.reads {
            0 => Verdict::Idle,
            _ if self.tokens > self.promised * BURST => Verdict::Exceeded,
            reads if self.within < self.wanted * reads as f64 => Verdict::Missed,
            _ => Verdict::Kept,
        }
    }
}

/// The compliance with a tenant's SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compliance {
    /// Share of the reads of the last second within the bound, 0 to 1; `null` without reads or SLO.
    pub second: Option<f64>,
    /// Share of the reads of the last minute within the bound, 0 to 1; `null` without reads or SLO.
    pub minute: Option<f64>,
    /// Share of seconds of the last minute in which the bound held at its percentile. Only seconds
    /// count that had reads, and in which the tenant spent at most 1.05 times its promised tokens.
    pub kept: Option<f64>,
}

/// The last [`MINUTE`] windows of an SLO.
#[derive(Debug, Default)]
pub(crate) struct ComplianceMinute {
    /// Reads, reads within the bound, verdict; the oldest first, at most [`MINUTE`].
    windows: VecDeque<(u32, f32, Verdict)>,
}

impl ComplianceMinute {
    /// Appends an ended window, and returns the compliance in this window and in the last minute.
    pub(crate) fn end(&mut self, seen: &WindowMeasurements) -> Compliance {
        if self.windows.len() == MINUTE {
            self.windows.pop_front();
        }
        let reads = u32::try_from(seen.reads).unwrap_or(u32::MAX);
        self.windows.push_back((reads, seen.within as f32, seen.verdict()));
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| (part / whole).min(1.0));
        let reads = self.windows.iter().map(|window| f64::from(window.0)).sum();
        let within = self.windows.iter().map(|window| f64::from(window.1)).sum();
        let count = |wanted| self.windows.iter().filter(|window| window.2 == wanted).count() as f64;
        let (kept, missed) = (count(Verdict::Kept), count(Verdict::Missed));
        Compliance {
            second: share(seen.within, seen.reads as f64),
            minute: share(within, reads),
            kept: share(kept, kept + missed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(reads: u64, within: f64, tokens: f64) -> WindowMeasurements {
        WindowMeasurements { reads, within, tokens, promised: 1_000.0, wanted: 0.95 }
    }

    #[test]
    fn a_minute_is_sixty_windows() {
        let mut minute = ComplianceMinute::default();
        let first = minute.end(&seen(100, 90.0, 1_000.0));
        let all = Compliance { second: Some(0.9), minute: Some(0.9), kept: Some(0.0) };
        assert_eq!(first, all);
        let second = minute.end(&seen(300, 300.0, 1_000.0));
        let all = Compliance { second: Some(1.0), minute: Some(0.975), kept: Some(0.5) };
        assert_eq!(second, all);
        for _ in 0..58 {
            minute.end(&seen(0, 0.0, 0.0));
        }
        let last = minute.end(&seen(0, 0.0, 0.0));
        assert_eq!(last, Compliance { second: None, minute: Some(1.0), kept: Some(1.0) });
        assert_eq!(minute.end(&seen(0, 0.0, 0.0)), Compliance::default());
    }

    #[test]
    fn who_asks_for_too_much_is_not_judged() {
        let mut minute = ComplianceMinute::default();
        let compliance = minute.end(&seen(100, 10.0, 1_051.0));
        assert_eq!((compliance.second, compliance.kept), (Some(0.1), None));
    }
}
