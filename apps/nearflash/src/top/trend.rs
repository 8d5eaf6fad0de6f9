//! The recent tail latencies of tenants, as a line of small bars.

use std::collections::{HashMap, VecDeque};

use control::admin::TenantStatus;

/// Number of looks at the server that a line of bars shows.
pub(super) const LOOKS: usize = 8;

/// Bars of rising height. A look without reads is a dot.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const NOTHING: char = '·';

/// The tail latencies of each tenant at the last looks, in microseconds, the latest last; `None`
/// for a look without reads.
#[derive(Debug, Default)]
pub(super) struct Trends(HashMap<String, VecDeque<Option<f64>>>);

impl Trends {
    /// Adds the tail latencies that the server has just reported. Tenants that are gone are
    /// forgotten.
    pub(super) fn note(&mut self, tenants: &[TenantStatus]) {
        let mut before = std::mem::take(&mut self.0);
        for tenant in tenants {
            let mut past = before.remove(&tenant.name).unwrap_or_default();
            past.push_back(tail(tenant));
            while past.len() > LOOKS {
                past.pop_front();
            }
            self.0.insert(tenant.name.clone(), past);
        }
    }

    /// Returns the bars of a tenant. A full bar is the bound of its SLO, or more; without an SLO,
    /// the largest latency that is shown.
    pub(super) fn bars(&self, tenant: &TenantStatus) -> String {
        let past = self.0.get(&tenant.name);
        let past = || past.into_iter().flatten().copied();
        let largest = past().flatten().fold(0.0, f64::max);
        let full = tenant.slo.as_ref().map_or(largest, |slo| slo.latency_us.into());
        let bar = |us: Option<f64>| {
            us.map_or(NOTHING, |us| {
                let eighths = (us / full.max(f64::MIN_POSITIVE) * 8.0).ceil();
                BARS[(eighths as usize).clamp(1, 8) - 1]
            })
        };
        past().map(bar).collect()
    }
}

/// Returns the tail latency of a tenant's reads in microseconds: at its SLO's percentile, or else
/// p95.
pub(super) fn tail(tenant: &TenantStatus) -> Option<f64> {
    let measured = &tenant.measured;
    tenant.slo.as_ref().map_or(measured.p95_us, |_| measured.slo_percentile_us)
}
