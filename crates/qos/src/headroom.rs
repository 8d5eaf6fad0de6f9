//! The headroom of admission: the part of a device's rate that is not used, so that an SLO holds
//! in windows of time and not only on average.
//!
//! At the rate at which a percentile is just the promised latency on average, half of all short
//! windows break it. The headroom follows from the device's model and the window alone: no part of
//! it is measured in an experiment (docs/explanation/scheduler.md, "Headroom"). This module
//! deliberately leaves out who is admitted (`admission.rs`).

use contract::Slo;

use crate::device_model::{DeviceModel, Percentile, RatePoint};
use crate::units::TOKEN;

/// The quantile of the standard normal distribution for 99.9 %, the part of the windows that is to
/// keep an SLO.
const DEVIATIONS: f64 = 3.09;

/// The highest utilisation for which the time that a queue takes to settle is computed. A model
/// whose rate does not rise between two latencies says nothing about it.
const UTILISATION_MAX: f64 = 0.95;

/// The number of reads in a window of a promise of the 95th percentile.
pub const WINDOW_READS: u32 = 1_000;

/// The length of a window of a promise of the 99th percentile, in seconds.
pub const WINDOW_SECONDS: u32 = 10;

/// The work ahead of a read, in tokens, if all requests are reads of 4 KiB of one token.
const READ_WORK: f64 = 1.0;

/// Returns the number of an SLO's reads in a window.
fn reads_of_window(slo: &Slo, percentile: Percentile) -> f64 {
    match percentile {
        Percentile::P95 => f64::from(WINDOW_READS),
        Percentile::P99 => (reads_a_second(slo) * f64::from(WINDOW_SECONDS)).max(1.0),
    }
}

fn reads_a_second(slo: &Slo) -> f64 {
    f64::from(slo.iops) * f64::from(slo.read_percent) / 100.0
}

/// The curve of a device model about one latency: `latency = wait / (1 − rate / most)`.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// The rate in units a second at which the latency has no bound.
    most: f64,
    /// A row on the curve.
    row: RatePoint,
}

impl Curve {
    /// Returns the curve through the rows on both sides of a latency; the first or the last two
    /// rows for a latency beyond them. A single row is joined with the device's highest rate.
    fn about(model: &DeviceModel, percentile: Percentile, latency_us: u32) -> Option<Curve> {
        let points = model.points_at(percentile);
        let (row, last) = (*points.first()?, points.len() - 1);
        if last == 0 {
            return Some(Curve { most: model.rate_max() as f64, row });
        }
        let behind = points.partition_point(|point| point.latency_us <= latency_us);
        let low = behind.saturating_sub(1).min(last - 1);
        let (row, next) = (points[low], points[low + 1]);
        let area = |point: RatePoint| f64::from(point.latency_us) * point.mixed as f64;
        let run = f64::from(next.latency_us - row.latency_us);
        Some(Curve { most: (area(next) - area(row)) / run, row })
    }

    /// Returns the units a second at a latency.
    fn rate(&self, latency_us: f64) -> f64 {
        let idle = self.most - self.row.mixed as f64;
        self.most - idle * f64::from(self.row.latency_us) / latency_us
    }
}

/// The latency at which a device is to be run, so that windows keep an SLO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatencyTarget {
    /// The tail latency on average, in microseconds.
    pub latency_us: f64,
    /// The number of reads in a window.
    pub reads: f64,
    /// The variance of the number of late reads in a window, divided by that of independent reads.
    pub dispersion: f64,
    /// The part of the reads that may be late on average.
    pub late: f64,
}

impl LatencyTarget {
    /// Returns the aim for an SLO whose device would serve `rate` units a second at its latency.
    /// `work` is the mean work ahead of a read, in tokens.
    fn of(slo: &Slo, percentile: Percentile, rate: u64, curve: Curve, work: f64) -> LatencyTarget {
        let reads = reads_of_window(slo, percentile);
        let utilisation = (rate as f64 / curve.most).clamp(0.0, UTILISATION_MAX);
        // A queue forgets its state in work / (1 − √utilisation)² services of a token, in which so
        // many reads of the tenant meet the same queue.
        let settling = work / libm::pow(1.0 - libm::sqrt(utilisation), 2.0);
        let together = 100.0 * reads_a_second(slo) / curve.most * settling;
        let dispersion = (1.0 + 2.0 * together).min(reads);
        // late + DEVIATIONS · √(dispersion · late / reads) = allowed, solved for √late.
        let allowed = 1.0 - f64::from(percentile.tenths()) / 1e3;
        let spread = DEVIATIONS * libm::sqrt(dispersion / reads);
        let root = (libm::sqrt(spread * spread + 4.0 * allowed) - spread) / 2.0;
        let late = root * root;
        // Waits of a queue are exponential far out.
        let part = libm::log(allowed) / libm::log(late);
        LatencyTarget { latency_us: f64::from(slo.latency_us) * part, reads, dispersion, late }
    }
}

/// The units a second of a device while one SLO is the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowRates {
    /// The rate at which the device keeps the SLO on average.
    pub(crate) most: u64,
    /// The rate up to which SLOs are promised.
    pub(crate) promised: u64,
    /// The rate up to which best effort fills the device; at most `promised`.
    pub(crate) filled: u64,
}

impl WindowRates {
    /// Returns the limits with which the SLO holds in windows. `most` is the rate at which the
    /// device keeps the SLO on average.
    ///
    /// Promised requests are taken to be reads. Best effort fills the device to the last token that
    /// it gets, and may do so with writes alone: a write is as much work as its price says, and a
    /// queue of requests of equal work forgets its state in half of the time of one whose work
    /// varies.
    pub(crate) fn in_windows(
        model: &DeviceModel,
        slo: &Slo,
        percentile: Percentile,
        most: u64,
    ) -> WindowRates {
        let write_work = f64::from(model.cost().write()) / f64::from(TOKEN) / 2.0;
        let reduced = |work| reduced(model, slo, percentile, most, work).map(|(rate, _)| rate);
        let promised = reduced(READ_WORK).unwrap_or(most);
        let filled = reduced(write_work.max(READ_WORK)).unwrap_or(most);
        WindowRates { most, promised, filled }
    }
}

/// Returns the units a second at which an SLO holds in windows, with the latency that was aimed at;
/// `None` for an SLO without reads, and for a model without a curve. `most` is what the model has
/// at the SLO's latency, and `work` the mean work ahead of a read, in tokens.
fn reduced(
    model: &DeviceModel,
    slo: &Slo,
    percentile: Percentile,
    most: u64,
    work: f64,
) -> Option<(u64, LatencyTarget)> {
    if reads_a_second(slo) == 0.0 {
        return None;
    }
    let curve = Curve::about(model, percentile, slo.latency_us)?;
    let aim = LatencyTarget::of(slo, percentile, most, curve, work);
    let first = model.points_at(percentile).first()?.latency_us;
    let lower = match aim.latency_us as u32 {
        within if within >= first => model.limit(percentile, within)?,
        _ => Curve::about(model, percentile, first)?.rate(aim.latency_us).max(1.0) as u64,
    };
    Some((lower.min(most), aim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CostModel;
    use alloc::vec;

    fn of(model: &DeviceModel, slo: Slo) -> (u64, LatencyTarget) {
        let percentile = Percentile::from_tenths(slo.percentile_tenths).unwrap();
        let most = model.limit(percentile, slo.latency_us).unwrap();
        reduced(model, &slo, percentile, most, READ_WORK).unwrap()
    }

    /// Checks the headroom against numbers that were computed by hand.
    #[test]
    fn the_headroom_of_device_a() {
        let model = DeviceModel::device_a();
        let a = |iops| of(&model, Slo::new(500, iops, 100));
        let (rate, aim) = a(20_000);
        assert!((aim.dispersion - 4.1).abs() < 0.05, "{aim:?}");
        assert!((aim.late - 0.0212).abs() < 0.0003, "{aim:?}");
        assert!((aim.latency_us - 389.0).abs() < 2.0, "{aim:?}");
        assert!((37_200_000..37_500_000).contains(&rate), "{rate}");
        // Fewer reads a second meet the same queue less often.
        assert!((39_400_000..39_700_000).contains(&a(1_000).0), "{}", a(1_000).0);
    }

    /// Checks the rate of best effort against a number that was computed by hand: requests of ten
    /// tokens each, 1 550 tokens/s ÷ 58 300 × 5 reads that meet the same queue.
    #[test]
    fn best_effort_fills_device_a_to_less_than_is_promised() {
        let model = DeviceModel::device_a();
        let limits = |iops| {
            WindowRates::in_windows(&model, &Slo::new(500, iops, 100), Percentile::P95, 42_000_000)
        };
        let WindowRates { most, promised, filled } = limits(20_000);
        assert_eq!(most, 42_000_000);
        assert!((37_200_000..37_500_000).contains(&promised), "{promised}");
        assert!((33_000_000..33_700_000).contains(&filled), "{filled}");
        assert!(limits(1_000).filled > 37_000_000, "{:?}", limits(1_000));
    }

    #[test]
    fn longer_windows_need_less() {
        let model = DeviceModel::device_a();
        let model = model
            .with_p99(vec![
                RatePoint { latency_us: 750, mixed: 40_000_000, read_only: 80_000_000 },
                RatePoint { latency_us: 1_000, mixed: 45_000_000, read_only: 80_000_000 },
            ])
            .unwrap();
        let share = |iops| {
            let slo = Slo { percentile_tenths: 990, ..Slo::new(750, iops, 100) };
            of(&model, slo).0
        };
        // More reads in 10 s, but no more of them meet the same queue than wait less for it.
        assert!(share(100) < share(10_000), "{} {}", share(100), share(10_000));
        assert!(share(10_000) > 39_000_000, "{}", share(10_000));
    }

    #[test]
    fn every_model_and_percentile_has_a_headroom() {
        let row = |latency_us, mixed| RatePoint { latency_us, mixed, read_only: mixed };
        let cost = CostModel::linear(1_000, 50).unwrap();
        let flat = DeviceModel::new(cost.clone(), vec![row(500, 90), row(600, 90)], 100).unwrap();
        let single = DeviceModel::new(cost, vec![row(500, 9_000_000)], 10_000_000).unwrap();
        let p99 = DeviceModel::device_a()
            .with_p99(vec![row(750, 40_000_000), row(1_000, 45_000_000)])
            .unwrap();
        let strict = Slo { percentile_tenths: 990, ..Slo::new(750, 10_000, 100) };
        for (model, slo) in [
            (flat, Slo::new(500, 10_000, 100)),
            (single, Slo::new(500, 10_000, 100)),
            (DeviceModel::cloud(), Slo::new(500, 10_000, 100)),
            (p99, strict),
        ] {
            let percentile = Percentile::from_tenths(slo.percentile_tenths).unwrap();
            let most = model.limit(percentile, slo.latency_us).unwrap();
            let (rate, aim) = of(&model, slo);
            assert!((1..=most).contains(&rate), "{rate} of {most}: {aim:?}");
            assert!(aim.latency_us < f64::from(slo.latency_us), "{aim:?}");
            let limits = WindowRates::in_windows(&model, &slo, percentile, most);
            assert!(limits.filled <= limits.promised && limits.promised <= most, "{limits:?}");
        }
        let writes = Slo::new(500, 10_000, 0);
        let limits =
            WindowRates::in_windows(&DeviceModel::device_a(), &writes, Percentile::P95, 42);
        assert_eq!(limits, WindowRates { most: 42, promised: 42, filled: 42 });
    }
}
