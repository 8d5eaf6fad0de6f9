//! The standing of a tenant: a comparison of its demand and latency with its SLO.

use contract::Slo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compliance::BURST;
use crate::info::{State, TenantInfo};
use crate::measured::Measured;

/// The standing of a tenant: a comparison of its demand and latency with its SLO.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Reads exceeded the latency bound.
    Late,
    /// The tenant demanded more than its SLO, so the latency bound did not hold.
    Over,
    /// The SLO was met.
    Kept,
    /// The tenant has no SLO, and was active.
    BestEffort,
    /// The tenant was inactive.
    Idle,
    /// The tenant was removed.
    Leaving,
}

impl Standing {
    /// All standings, the one that needs an operator's attention most first.
    pub const ALL: [Standing; 6] = [
        Standing::Late,
        Standing::Over,
        Standing::Kept,
        Standing::BestEffort,
        Standing::Idle,
        Standing::Leaving,
    ];

    /// Returns the standing of a tenant.
    pub fn of(info: &TenantInfo) -> Standing {
        Standing::with(info.state, info.promise.slo(), info.tokens_needed, &info.measured)
    }

    /// Returns the standing of a tenant in this state, with this SLO of `tokens_needed` tokens per
    /// second, and these measurements.
    pub(crate) fn with(
        state: State,
        slo: Option<Slo>,
        tokens_needed: u64,
        measured: &Measured,
    ) -> Standing {
        match (measured.slo_percentile_us, slo) {
            _ if state == State::Leaving => Standing::Leaving,
            _ if measured.iops == 0.0 => Standing::Idle,
            (_, None) => Standing::BestEffort,
            _ if measured.tokens > tokens_needed as f64 * BURST => Standing::Over,
            (Some(us), Some(slo)) if us > slo.latency_us.into() => Standing::Late,
            _ => Standing::Kept,
        }
    }
}

/// Returns the measured tail latency relative to its bound: 1 is exactly the bound. Returns `None`
/// without reads or SLO.
pub fn tail_share(info: &TenantInfo) -> Option<f64> {
    let us = info.measured.slo_percentile_us?;
    info.promise.slo().map(|slo| us / f64::from(slo.latency_us))
}
