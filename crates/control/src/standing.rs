//! How a tenant stands beside its promise, in a word.

use contract::Slo;

use crate::compliance::BURST;
use crate::measured::Measured;
use crate::words::{State, TenantInfo};

/// How a tenant stood in the last second; from what an operator wants to see first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its reads took longer than promised.
    Late,
    /// It asked for more than it was promised, so its latency was not promised.
    Over,
    /// Its promise was kept.
    Kept,
    /// It has no promise, and did something.
    BestEffort,
    /// It did nothing.
    Idle,
    /// It was removed.
    Leaving,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 6] = [
        Standing::Late,
        Standing::Over,
        Standing::Kept,
        Standing::BestEffort,
        Standing::Idle,
        Standing::Leaving,
    ];

    /// How this tenant stands.
    pub fn of(info: &TenantInfo) -> Standing {
        Standing::with(info.state, &info.slo, info.tokens_needed, &info.measured)
    }

    /// How a tenant in this state stands that was promised so much, for so many tokens a second, and
    /// was seen to get so much.
    pub(crate) fn with(
        state: State,
        slo: &Slo,
        tokens_needed: u64,
        measured: &Measured,
    ) -> Standing {
        match measured.slo_percentile_us {
            _ if state == State::Leaving => Standing::Leaving,
            _ if measured.iops == 0.0 => Standing::Idle,
            _ if slo.latency_us == 0 => Standing::BestEffort,
            _ if measured.tokens > tokens_needed as f64 * BURST => Standing::Over,
            Some(us) if us > slo.latency_us.into() => Standing::Late,
            _ => Standing::Kept,
        }
    }
}

/// The measured tail as a share of its bound: 1 is all of it. `None` without reads or promise.
pub fn tail_share(info: &TenantInfo) -> Option<f64> {
    let us = info.measured.slo_percentile_us?;
    (info.slo.latency_us > 0).then(|| us / f64::from(info.slo.latency_us))
}
