//! The fit of crossings to prices and rates: the write cost for which the curves of all mixes
//! coincide (the paper's Figure 3), and the rate for each latency.

use alloc::vec::Vec;
use core::fmt;

use super::Percentile;
use crate::units::{RATE_MAX, TOKEN};
use crate::{ModelFile, RatePoint, Residual, SizePoint};

/// The load at which a mix of 4 KiB requests reaches a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// The percentile of the reads' latency.
    pub percentile: Percentile,
    /// The latency in microseconds.
    pub latency_us: u32,
    /// Requests of 4 KiB a second, reads and writes together.
    pub iops: f64,
}

/// A crossing, compared with the fitted curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The crossing as it was measured.
    pub crossing: Crossing,
    /// The crossing in tokens a second.
    pub tokens: f64,
    /// The share by which the tokens exceed the fitted curve's; negative for less.
    pub off: f64,
}

/// Prices and rates that describe a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The price of a 4 KiB write in tokens.
    pub write_cost: f64,
    /// The price of a 4 KiB read in tokens while only reads are served.
    pub read_only_cost: f64,
    /// Rates by the 95th percentile. `mixed` is valid for every measured mix: it is the lowest of
    /// their rates, not the mean.
    pub p95: Vec<RatePoint>,
    /// Rates by the 99th percentile.
    pub p99: Vec<RatePoint>,
    /// The mixed crossings at p95, each with its distance from the curve.
    pub points: Vec<Point>,
    /// Tight latencies that were measured and have no row, since the curves do not coincide there:
    /// the latency, and the share by which the worst point is off.
    pub left_out: Vec<(u32, f64)>,
    /// Rows at which loads of reads only, priced at `read_only_cost`, would exceed the device's
    /// rate: the latency, and by which share.
    pub read_only_excess: Vec<(u32, f64)>,
}

/// The reason that no curve was fitted.
#[derive(Clone, Debug, PartialEq)]
pub enum FitError {
    /// There are too few measurements for a fit: at least one latency must be reached by reads
    /// alone and by two mixes.
    TooLittle,
    /// Points are further from the curve than the limit, a share.
    Scattered {
        /// The points beyond the limit, the worst first.
        points: Vec<Point>,
        /// The write cost of the best fit.
        write_cost: f64,
        /// The share by which a point may be off the fitted curve.
        limit: f64,
    },
    /// The best write cost, in tokens, is outside of a model's range.
    WriteCost(f64),
    /// A rate, in tokens a second, is above a model's range.
    Rate(f64),
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FitError::TooLittle => f.write_str(
                "too little to fit: some latency must be reached by reads alone and by three mixes \
                 of reads and writes, or two latencies by two mixes",
            ),
            FitError::Scattered { points, write_cost, limit } => {
                write!(
                    f,
                    "the curves do not fall together: with the best write cost ({write_cost:.1} \
                     tokens) {} points are more than {:.0} % from the curve",
                    points.len(),
                    limit * 100.0
                )?;
                for point in points {
                    let Crossing { read_percent, latency_us, iops, .. } = point.crossing;
                    write!(
                        f,
                        "\n  p95 {latency_us} µs at {read_percent} % reads: {iops:.0} IOPS, {:+.0} %",
                        point.off * 100.0
                    )?;
                }
                Ok(())
            }
            FitError::WriteCost(cost) => {
                write!(f, "the best write cost, {cost} tokens, is outside of 0.01 to 1000")
            }
            FitError::Rate(rate) => {
                write!(f, "{rate:.0} tokens a second are more than a device model can hold")
            }
        }
    }
}

/// The cheapest and the dearest price of a 4 KiB write that the fit considers, in tokens.
const WRITE_COSTS: (f64, f64) = (0.05, 1_000.0);

/// The latency, in microseconds, at which the price of reads of a read-only load is computed: the
/// paper's. If it was not measured, the next longer one counts, or else the longest.
const READ_ONLY_LATENCY_US: u32 = 500;

/// Fits a model to crossings of 4 KiB requests. Fails when a point is off by more than `limit`, a
/// share. Latencies below `tight_us` are optional: they do not influence the write cost, and have
/// no row if they do not fit.
///
/// # Errors
/// The points do not fit one curve; the error has the points and their deviation.
pub fn fit(crossings: &[Crossing], limit: f64, tight_us: u32) -> Result<Fit, FitError> {
    let mixed = |c: &&Crossing| c.read_percent < 100 && c.percentile == Percentile::P95;
    let mixed: Vec<Crossing> = crossings.iter().filter(mixed).copied().collect();
    let (tight, wanted): (Vec<u32>, Vec<u32>) =
        latencies(crossings, Percentile::P95).into_iter().partition(|&us| us < tight_us);
    // One rate for each latency and one write cost must not explain everything there is: then they
    // would fit any device.
    let known = mixed.iter().filter(|c| wanted.contains(&c.latency_us)).count();
    if wanted.is_empty() || known < wanted.len() + 2 {
        return Err(FitError::TooLittle);
    }
    let write_cost = best_write_cost(&mixed, &wanted);
    if !(0.01..=999.0).contains(&write_cost) {
        return Err(FitError::WriteCost(write_cost));
    }
    let mut points = beside(&mixed, &wanted, write_cost);
    let is_far = |point: &&Point| point.off.abs() > limit;
    let mut far: Vec<Point> = points.iter().filter(is_far).copied().collect();
    if !far.is_empty() {
        far.sort_by(|a, b| b.off.abs().total_cmp(&a.off.abs()));
        return Err(FitError::Scattered { points: far, write_cost, limit });
    }
    let mut left_out = Vec::new();
    for latency_us in tight {
        let extra = beside(&mixed, &[latency_us], write_cost);
        match extra.iter().map(|point| point.off.abs()).fold(0.0, f64::max) {
            worst if worst > limit => left_out.push((latency_us, worst)),
            _ => points.extend(extra),
        }
    }
    let is_in = |c: &&Crossing| !left_out.iter().any(|&(latency_us, _)| latency_us == c.latency_us);
    let crossings: Vec<Crossing> = crossings.iter().filter(is_in).copied().collect();
    let p95 = rows(&crossings, Percentile::P95, write_cost)?;
    let mut p99 = rows(&crossings, Percentile::P99, write_cost)?;
    for row in &mut p99 {
        // What meets a latency for 99 of 100 reads meets it for 95; more is noise.
        if let Some(same) = p95.iter().find(|other| other.latency_us == row.latency_us) {
            row.mixed = row.mixed.min(same.mixed);
            row.read_only = row.read_only.min(same.read_only);
        }
    }
    let at = p95.iter().find(|row| row.latency_us >= READ_ONLY_LATENCY_US);
    let at = at.or(p95.last()).ok_or(FitError::TooLittle)?;
    let read_only_cost = at.mixed as f64 / at.read_only as f64;
    let excess = |row: &RatePoint| {
        let sold = row.mixed as f64 / read_only_cost / row.read_only as f64 - 1.0;
        (sold > 0.1).then_some((row.latency_us, sold))
    };
    let read_only_excess = p95.iter().filter_map(excess).collect();
    points.sort_by_key(|point| point.crossing.latency_us);
    Ok(Fit { write_cost, read_only_cost, p95, p99, points, left_out, read_only_excess })
}

impl Fit {
    /// Returns the model file of the device. `tokens_max` is the highest rate that was measured, in
    /// tokens a second.
    pub fn to_file(
        &self,
        device: &str,
        measured: &str,
        sizes: Vec<SizePoint>,
        tokens_max: f64,
    ) -> ModelFile {
        let units = |tokens: f64| libm::round(tokens * f64::from(TOKEN)).max(1.0) as u32;
        let residual = |point: &Point| {
            let Crossing { latency_us, read_percent, iops, .. } = point.crossing;
            let row = self.p95.iter().find(|row| row.latency_us == latency_us)?;
            let granted = row.mixed as f64 / f64::from(TOKEN);
            let off_percent = libm::round((point.tokens / granted - 1.0) * 1_000.0) / 10.0;
            Some(Residual { latency_us, read_percent, iops: iops as u64, off_percent })
        };
        let lasts = self.p95.last().into_iter().chain(self.p99.last());
        let last = lasts.map(|row| row.mixed).max().unwrap_or(0);
        ModelFile {
            device: device.into(),
            measured: measured.into(),
            write: units(self.write_cost),
            read_only_read: units(self.read_only_cost),
            sizes,
            rate_max: (tokens_max as u64 * u64::from(TOKEN)).clamp(last, RATE_MAX),
            p95: self.p95.clone(),
            p99: self.p99.clone(),
            residuals: self.points.iter().filter_map(residual).collect(),
        }
    }
}

/// Returns the price in tokens of an average 4 KiB request of a mix with this percentage of reads.
pub(super) fn weight(read_percent: u8, write_cost: f64) -> f64 {
    let reads = f64::from(read_percent) / 100.0;
    reads + write_cost * (1.0 - reads)
}

/// Returns the latencies that reads alone and at least two mixes reach, ascending.
fn latencies(crossings: &[Crossing], percentile: Percentile) -> Vec<u32> {
    let of = |latency_us, read_only: bool| {
        let is_one = |c: &&Crossing| {
            c.latency_us == latency_us
                && c.percentile == percentile
                && (c.read_percent == 100) == read_only
        };
        crossings.iter().filter(is_one).count()
    };
    let mut latencies: Vec<u32> = crossings
        .iter()
        .map(|c| c.latency_us)
        .filter(|&latency_us| of(latency_us, true) > 0 && of(latency_us, false) >= 2)
        .collect();
    latencies.sort_unstable();
    latencies.dedup();
    latencies
}

/// Returns the write cost with the least sum of squared logarithmic distances from the means of
/// each latency, by a grid search and a ternary search.
fn best_write_cost(mixed: &[Crossing], latencies: &[u32]) -> f64 {
    let scatter = |log_cost: f64| -> f64 {
        let points = beside(mixed, latencies, libm::exp(log_cost));
        points.iter().map(|point| libm::pow(libm::log(1.0 + point.off), 2.0)).sum()
    };
    let (low, high) = (libm::log(WRITE_COSTS.0), libm::log(WRITE_COSTS.1));
    let step = (high - low) / 128.0;
    let grid = (0..=128).map(|n| low + step * f64::from(n));
    let best = grid.min_by(|a, b| scatter(*a).total_cmp(&scatter(*b))).unwrap_or(low);
    let (mut from, mut to) = (best - step, best + step);
    while to - from > 1e-5 {
        let third = (to - from) / 3.0;
        if scatter(from + third) < scatter(to - third) {
            to -= third;
        } else {
            from += third;
        }
    }
    libm::exp((from + to) / 2.0)
}

/// Returns the mixed crossings at these latencies. Each is compared with the geometric mean of the
/// crossings at its latency, at this write cost.
fn beside(mixed: &[Crossing], latencies: &[u32], write_cost: f64) -> Vec<Point> {
    let mut points = Vec::new();
    for &latency_us in latencies {
        let row = || mixed.iter().filter(move |c| c.latency_us == latency_us);
        let tokens = |c: &Crossing| c.iops * weight(c.read_percent, write_cost);
        let logs: f64 = row().map(|c| libm::log(tokens(c))).sum();
        let mean = libm::exp(logs / row().count() as f64);
        points.extend(row().map(|&crossing| {
            let tokens = tokens(&crossing);
            Point { crossing, tokens, off: tokens / mean - 1.0 }
        }));
    }
    points
}

/// Returns the rates for each latency: of mixes (their minimum), and of reads alone. Rates never
/// fall.
fn rows(
    crossings: &[Crossing],
    percentile: Percentile,
    write_cost: f64,
) -> Result<Vec<RatePoint>, FitError> {
    let mut rows: Vec<RatePoint> = Vec::new();
    for latency_us in latencies(crossings, percentile) {
        let row = |c: &&Crossing| c.latency_us == latency_us && c.percentile == percentile;
        let (mut mixed, mut read_only) = (f64::INFINITY, f64::INFINITY);
        for c in crossings.iter().filter(row) {
            match c.read_percent {
                100 => read_only = read_only.min(c.iops),
                _ => mixed = mixed.min(c.iops * weight(c.read_percent, write_cost)),
            }
        }
        let units = |tokens: f64| -> Result<u64, FitError> {
            let tokens = libm::floor(tokens).max(1.0);
            if tokens * f64::from(TOKEN) > RATE_MAX as f64 {
                return Err(FitError::Rate(tokens));
            }
            Ok(tokens as u64 * u64::from(TOKEN))
        };
        let (mut mixed, mut read_only) = (units(mixed)?, units(read_only)?);
        if let Some(before) = rows.last() {
            // A device is at least as fast with more time; what says otherwise is noise.
            mixed = mixed.max(before.mixed);
            read_only = read_only.max(before.read_only);
        }
        rows.push(RatePoint { latency_us, mixed, read_only });
    }
    Ok(rows)
}
