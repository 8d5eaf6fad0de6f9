//! The three parts of the demonstration.

use figures::four::{B_SENDS_LESS, Drive, TENANTS};

use crate::four::TenantResult;

/// A part of the demonstration: the drive, with or without the scheduler, and the rates that A and
/// B send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) title: &'static str,
    pub(super) is_scheduled: bool,
    pub(super) drive: Drive,
    /// The share of its usual rate that B sends: less than 1 in the third part only.
    pub(super) b_share: f64,
    /// The share of their promised rates that A and B send, before `b_share`.
    pub(super) sent: f64,
}

impl Part {
    /// Returns the share of its promised rate that the tenant `name` sends.
    pub(super) fn share(&self, name: &str) -> f64 {
        self.sent * if name == "B" { self.b_share } else { 1.0 }
    }

    /// Returns `true` if every tenant with a promise got its rate and latency; `got` is in the
    /// order of `TENANTS`.
    pub(super) fn is_kept(&self, got: &[TenantResult]) -> bool {
        TENANTS.iter().zip(got).all(|(tenant, got)| {
            tenant.slo(self.drive).is_none_or(|slo| got.meets(slo, self.share(tenant.name)))
        })
    }
}

/// Returns the three parts on a drive, in which A and B send the share `sent` of their promised
/// rates.
pub(super) fn parts(drive: Drive, sent: f64) -> [Part; 3] {
    let part = |title, is_scheduled, b_share| Part { title, is_scheduled, drive, b_share, sent };
    [
        part("Scheduler off: everybody for themselves", false, 1.0),
        part("Scheduler on: promises come first", true, 1.0),
        part("B sends less than it may: C and D get what it leaves", true, B_SENDS_LESS),
    ]
}
