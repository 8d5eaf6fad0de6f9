//! Formats of numbers in tables, and labels and SLOs that figures share.

use contract::Slo;

/// Formats a number in thousands, without a fraction.
pub(crate) fn kilo(value: f64) -> String {
    format!("{:.0}", value / 1e3)
}

/// Formats a number in thousands, with one decimal place.
pub(crate) fn kilo_fine(value: f64) -> String {
    format!("{:.1}", value / 1e3)
}

/// Formats microseconds, without a fraction.
pub(crate) fn micros(value: f64) -> String {
    format!("{value:.0}")
}

/// Formats a share from 0 to 1 as a percentage with one decimal place.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats a relative difference as a percentage with its sign: `+4.2 %`.
pub(crate) fn off(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

/// Returns an axis label that names the values 1, 2 and so on: `title (1 = first, 2 = second)`.
pub(crate) fn categories(title: &str, names: impl Iterator<Item = String>) -> String {
    let named = (1..).zip(names).map(|(n, name): (u32, String)| format!("{n} = {name}"));
    format!("{title} ({})", named.collect::<Vec<_>>().join(", "))
}

/// Returns an SLO over requests of 4 KiB: a p95 of `latency_us` µs at `iops` requests a second.
pub(crate) fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
    Slo::new(latency_us, iops, read_percent)
}

/// The missing SLO of a best-effort tenant.
pub(crate) const BEST_EFFORT: Option<Slo> = None;

/// Returns Jain's index of fairness: 1 if all values are equal, 1/n if one of n values is all of
/// the sum.
pub(crate) fn jain(values: &[f64]) -> f64 {
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
