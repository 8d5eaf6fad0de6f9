//! The tenants of a simulated world, with promises that may fit its device.

use contract::Slo;
use flash::Rng;

/// The number of tenants, so small that numbers are reused and the table gets full.
pub(crate) const TENANTS: usize = 6;

/// The tenant that hostile clients belong to.
pub(crate) const HOSTILE: &str = "hostile";

/// Returns a random SLO for a device with this many tokens a second; `None` for best effort.
pub(crate) fn slo(chance: &mut Rng, tokens: u64) -> Option<Slo> {
    let latency_us = [0, 0, 500, 2_000, 100][chance.within(0..=4) as usize];
    let iops = chance.within(tokens / 100..=tokens / 4) as u32;
    let read_percent = [100, 90, 50][chance.within(0..=2) as usize];
    (latency_us > 0).then(|| Slo::new(latency_us, iops, read_percent))
}
