//! Numbers as tables show them, and the words that figures share.

use contract::Slo;

/// Thousands, without a fraction.
pub(super) fn kilo(value: f64) -> String {
    format!("{:.0}", value / 1e3)
}

/// Thousands, with one digit behind the point.
pub(super) fn kilo_fine(value: f64) -> String {
    format!("{:.1}", value / 1e3)
}

/// Microseconds, without a fraction.
pub(super) fn micros(value: f64) -> String {
    format!("{value:.0}")
}

/// A share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A percentage with its sign.
pub(super) fn off(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

/// An SLO over requests of 4 KiB.
pub(super) fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
    Slo { latency_us, iops, read_percent, ..Slo::default() }
}

/// No SLO: best effort.
pub(super) const BEST_EFFORT: Slo =
    Slo { latency_us: 0, percentile_tenths: 0, iops: 0, read_percent: 0, request_bytes: 0 };

/// Jain's index of fairness: 1 when all have the same, 1/n when one has everything.
pub(super) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_has_its_limits() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
