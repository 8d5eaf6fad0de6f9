//! The course of a calibration: one curve after the other.

use alloc::vec::Vec;

use super::fit::weight;
use super::search::{MeasuredLoad, RunLengths};
use super::{
    Crossing, Fit, FitError, LatencyGoal, LoadResult, Mix, OfferedLoad, Percentile, Search, fit,
};
use crate::cost_model::{PAGE_BYTES, SizePoint, WEIGHT_MAX};
use crate::search::Curves;

/// The 95th percentile of read latency at which request sizes are compared, in microseconds, if the
/// course measures it: the paper's value. It is tight, because large requests disturb most where
/// little waiting is allowed.
const REFERENCE_LATENCY_US: u32 = 500;

/// The percentage of reads of the mix in which request sizes are compared; the next lower measured
/// one if this was not measured.
const SIZE_READ_PERCENT: u8 = 90;

/// The rate of probing reads, as a share of the device's rate for reads alone: too small to count
/// as load.
const PROBE_SHARE: f64 = 0.02;

/// The measurements that a calibration makes.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationPlan {
    /// Latencies for which rates are wanted, in microseconds. Latencies below 500 µs are optional:
    /// they get a rate if the device meets them and the curves coincide there.
    pub latencies_us: Vec<u32>,
    /// `true` if rates for the 99th percentile are measured, too.
    pub p99: bool,
    /// Shares of reads of the mixes, below 100; reads alone are always measured, and first.
    pub read_percents: Vec<u8>,
    /// Sizes whose cost is wanted, in bytes: ascending multiples of 4 KiB above it.
    pub sizes: Vec<usize>,
    /// The lengths of the calibration's runs.
    pub effort: RunLengths,
    /// The share by which a point may be off the fitted curve: 0.15 allows 15 %.
    pub limit: f64,
}

impl CalibrationPlan {
    /// The latencies of the paper's device model, and two tighter ones, in microseconds.
    pub const LATENCIES_US: [u32; 8] = [200, 300, 500, 1_000, 1_500, 2_000, 2_500, 3_000];

    /// The mixes of the paper's Figure 1, reads alone aside.
    pub const READ_PERCENTS: [u8; 5] = [99, 95, 90, 75, 50];

    /// The default sizes of requests, in bytes.
    pub const SIZES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];

    /// The default share by which a point may be off the fitted curve: 15 %.
    pub const LIMIT: f64 = 0.15;
}

/// A calibration in progress.
#[derive(Clone, Debug)]
pub struct Calibration {
    course: CalibrationPlan,
    /// The curves so far; the last one is being measured.
    curves: Curves<Search>,
}

impl Calibration {
    /// Creates a calibration, which begins with the curve of reads alone.
    pub fn new(course: CalibrationPlan) -> Calibration {
        let first = course.load(100, &[]);
        Calibration { curves: Curves::new(first), course }
    }

    /// Returns the next load to offer; `None` when everything is measured.
    pub fn next_offer(&mut self) -> Option<OfferedLoad> {
        let course = &self.course;
        self.curves.next_step(Search::next_offer, |curves| course.begin(curves))
    }

    /// Takes the result of the last requested load.
    pub fn take(&mut self, offer: OfferedLoad, outcome: LoadResult) {
        self.curves.last_mut().take(offer, outcome);
    }

    /// Returns the number of measured curves, and of all curves to measure.
    pub fn curves_done(&self) -> (usize, usize) {
        let sizes = self.course.sizes.len();
        let probed = if sizes > 0 { 1 + sizes } else { 0 };
        (self.curves().len() - 1, 1 + self.course.read_percents.len() + probed)
    }

    /// Returns the estimated progress, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let last = self.curves.last();
        self.curves.progress(self.curves_done().1, last.points().len(), last.runs_left())
    }

    /// Returns the measured points, curve by curve.
    pub fn curves(&self) -> &[Search] {
        self.curves.all()
    }

    /// Returns the loads of 4 KiB requests at which the measured curves cross the goals.
    pub fn crossings(&self) -> Vec<Crossing> {
        let goals = self.course.goals();
        let of = |curve: &Search| {
            let crossing = |goal: &LatencyGoal| {
                Some(Crossing {
                    read_percent: curve.mix().read_percent,
                    percentile: goal.percentile,
                    latency_us: goal.latency_us,
                    iops: curve.crossing(*goal)?,
                })
            };
            goals.iter().filter_map(crossing).collect::<Vec<_>>()
        };
        loads(self.curves()).flat_map(of).collect()
    }

    /// Returns the prices of larger requests, from the rate of each size at which 4 KiB reads
    /// beside it reach the reference latency; empty if that was not measured. Prices never fall as
    /// sizes grow, and no request costs less than one of 4 KiB.
    pub fn sizes(&self) -> Vec<SizePoint> {
        let goal = self.course.size_goal();
        let mut probed = self.curves().iter().filter(|curve| curve.mix().is_probed);
        let Some(base) = probed.next().and_then(|curve| curve.crossing(goal)) else {
            return Vec::new();
        };
        let mut points = alloc::vec![SizePoint { bytes: PAGE_BYTES, weight: 100 }];
        for curve in probed {
            let Some(iops) = curve.crossing(goal) else { continue };
            let least = points.last().map_or(100, |point| point.weight);
            let weight = libm::round(100.0 * base / iops).clamp(0.0, f64::from(WEIGHT_MAX));
            points.push(SizePoint { bytes: curve.mix().bytes, weight: (weight as u32).max(least) });
        }
        points
    }

    /// Returns prices and rates, when everything is measured.
    ///
    /// # Errors
    /// The points do not fit one curve.
    pub fn findings(&self) -> Result<Fit, FitError> {
        fit(&self.crossings(), self.course.limit, REFERENCE_LATENCY_US)
    }

    /// Returns the highest rate, in tokens a second at these prices, that a load reached without
    /// overloading the device.
    pub fn tokens_max(&self, fit: &Fit) -> f64 {
        let tokens = |curve: &Search, point: &MeasuredLoad| match curve.mix().read_percent {
            100 => point.outcome.iops * fit.read_only_cost,
            percent => point.outcome.iops * weight(percent, fit.write_cost),
        };
        let all = loads(self.curves()).flat_map(|curve| {
            let steady = |p: &&MeasuredLoad| p.offer.is_long && p.outcome.p95_us.is_finite();
            curve.points().iter().filter(steady).map(move |p| tokens(curve, p))
        });
        all.fold(0.0, f64::max)
    }
}

impl CalibrationPlan {
    /// Returns the latencies, at each measured percentile, for which rates are wanted.
    fn goals(&self) -> Vec<LatencyGoal> {
        let goals = |percentile| {
            self.latencies_us.iter().map(move |&latency_us| LatencyGoal { percentile, latency_us })
        };
        let p99 = goals(Percentile::P99).filter(|_| self.p99);
        goals(Percentile::P95).chain(p99).collect()
    }

    /// Returns the latency at which sizes are compared: the paper's 500 µs, or the next longer one
    /// of the course, or else its longest.
    fn size_goal(&self) -> LatencyGoal {
        let latencies = || self.latencies_us.iter().copied();
        let wanted = latencies().filter(|&us| us >= REFERENCE_LATENCY_US).min();
        let latency_us = wanted.or(latencies().max()).unwrap_or(REFERENCE_LATENCY_US);
        LatencyGoal { percentile: Percentile::P95, latency_us }
    }

    /// Begins the curve of a mix of 4 KiB requests. The highest load of the previous curve is the
    /// estimate of where the device is overloaded.
    fn load(&self, read_percent: u8, curves: &[Search]) -> Search {
        let mix = Mix { read_percent, bytes: PAGE_BYTES, is_probed: false };
        let hint = curves.last().and_then(|curve| Some(curve.points().last()?.offer.iops));
        Search::new(mix, &self.goals(), self.effort, hint, 0.0)
    }

    /// Begins the curve that follows the measured ones. Returns `None` after the last one, or if no
    /// size can be compared, because the reference latency was not reached.
    fn begin(&self, curves: &[Search]) -> Option<Search> {
        let (n, percents) = (curves.len(), &self.read_percents);
        if n <= percents.len() {
            return Some(self.load(percents[n - 1], curves));
        }
        let bytes = match n - percents.len() - 1 {
            0 if !self.sizes.is_empty() => PAGE_BYTES,
            size if size > 0 && size <= self.sizes.len() => self.sizes[size - 1],
            _ => return None,
        };
        let goal = self.size_goal();
        let near = |curve: &&Search| curve.mix().read_percent <= SIZE_READ_PERCENT;
        let like = loads(curves).find(near).unwrap_or(&curves[0]);
        let iops = like.crossing(goal)?;
        let probe_iops = PROBE_SHARE * curves[0].crossing(goal).unwrap_or(iops);
        let mix = Mix { read_percent: like.mix().read_percent, bytes, is_probed: true };
        let hint = 1.5 * iops * PAGE_BYTES as f64 / bytes as f64;
        Some(Search::new(mix, &[goal], self.effort, Some(hint), probe_iops))
    }
}

/// Returns the measured curves of 4 KiB requests (the paper's Figure 1), without the probed ones.
fn loads(curves: &[Search]) -> impl Iterator<Item = &Search> {
    curves.iter().filter(|curve| !curve.mix().is_probed)
}
