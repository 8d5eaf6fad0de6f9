//! The model from curves beside tenants: measured values replace the old model's, and the other
//! values are scaled down with them, never up.

use alloc::vec::Vec;
use core::fmt;

use super::{Curve, Plan};
use crate::calibrate::{self, CalibrationPlan, Crossing, FitError, Percentile};
use crate::drift::SIZE_MAX;
use crate::units::{RATE_MAX, TOKEN};
use crate::{DeviceModel, Load, ModelFile, RatePoint};

/// The share of writes up to which a load is one of reads alone (docs/explanation/scheduler.md,
/// "The device's read ratio").
const WRITES_MAX: f64 = 0.001;

/// The number of fits, one after the other, in which the price of writes and the rounded
/// percentages of the mixes, which depend on each other, settle.
const ROUNDS: usize = 4;

/// The reason that measurements give no model.
#[derive(Clone, Debug, PartialEq)]
pub enum RecalibrationError {
    /// The tenants' own load brings the tail latency to its bound, so that probes have no room.
    NoRoom {
        /// The 95th percentile of all reads' time at the device without probes, in microseconds.
        p95_us: f64,
    },
    /// The tokens of the old model were used up long before the latency was reached: the device
    /// serves at least those.
    OutOfReach {
        /// The highest load that was measured, in tokens a second at the old model's prices.
        tokens: f64,
        /// The 95th percentile of all reads' time at the device at that load, in microseconds.
        p95_us: f64,
    },
    /// Requests of many pages were so large a part of the load that its cost is unknown.
    LargeRequests,
    /// The curves do not coincide.
    FitError(FitError),
    /// The numbers are outside of a model's range.
    Senseless,
}

impl fmt::Display for RecalibrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecalibrationError::NoRoom { p95_us } => write!(
                f,
                "there is no room to measure in: with the tenants alone, 95 % of the reads are at \
                 the device for up to {p95_us:.0} µs, which is near the strictest promise or above"
            ),
            RecalibrationError::OutOfReach { tokens, p95_us } => write!(
                f,
                "the tokens of the present model ended at {tokens:.0} a second with a p95 of \
                 {p95_us:.0} µs: the device serves at least that, and how much more cannot be seen \
                 while promises bound its tokens"
            ),
            RecalibrationError::LargeRequests => f.write_str(
                "requests of many pages are a large part of the load, and rates are of requests of \
                 one page",
            ),
            RecalibrationError::FitError(misfit) => misfit.fmt(f),
            RecalibrationError::Senseless => f.write_str("the rates that were found make no model"),
        }
    }
}

/// A row of the model, before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The latency in microseconds.
    pub latency_us: u32,
    /// The row in the old model.
    pub before: RatePoint,
    /// The row in the new model.
    pub after: RatePoint,
    /// `true` if the row was measured; otherwise it was scaled with the nearest measured row.
    pub is_measured: bool,
}

/// The results of a recalibration.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// The model that results from the recalibration.
    pub model: DeviceModel,
    /// Tokens of a 4 KiB write, if that was measured; otherwise the price stays.
    pub write_cost: Option<f64>,
    /// The rows for the 95th percentile, in the old and in the new model.
    pub rows: Vec<Row>,
    /// `true` if the rates of mixes were measured; otherwise only those of reads were, and the
    /// rates of mixes are lowered along with them.
    pub has_mixed: bool,
    /// The largest distance of a measured point from the fitted curve, as a share of the value;
    /// zero without a fit.
    pub off_max: f64,
}

/// The measured values at one latency, divided by the old model's.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    latency_us: u32,
    mixed: Option<f64>,
    read_only: Option<f64>,
}

impl Ratio {
    /// Returns the factor, at most 1, by which values that were not measured are scaled.
    fn down(self) -> f64 {
        self.mixed.or(self.read_only).map_or(1.0, |ratio| ratio.min(1.0))
    }
}

pub(super) fn find(
    plan: &Plan,
    curves: &[Curve],
    size: f64,
) -> Result<Findings, RecalibrationError> {
    if size > SIZE_MAX {
        return Err(RecalibrationError::LargeRequests);
    }
    let goals = plan.goals_us();
    if let Some(alone) = curves.iter().find(|curve| curve.is_hopeless()) {
        let p95_us = alone.points().first().map_or(0.0, |point| point.reading.p95_us);
        return Err(RecalibrationError::NoRoom { p95_us });
    }
    let (ratios, write_cost, off_max) = match plan.writes {
        true => fitted(plan, curves, &goals)?,
        false => (by_old_prices(plan, &curves[0], &goals), None, 0.0),
    };
    if ratios.is_empty() {
        return Err(out_of_reach(curves));
    }
    let (model, rows) = rebuild(plan, &ratios, write_cost).ok_or(RecalibrationError::Senseless)?;
    let has_mixed = ratios.iter().any(|ratio| ratio.mixed.is_some());
    Ok(Findings { model, write_cost, rows, has_mixed, off_max })
}

fn out_of_reach(curves: &[Curve]) -> RecalibrationError {
    let last = |curve: &Curve| {
        let reading = curve.points().last()?.reading;
        Some((curve.tokens(&reading), reading.p95_us))
    };
    let (tokens, p95_us) = curves.iter().find_map(last).unwrap_or_default();
    RecalibrationError::OutOfReach { tokens, p95_us }
}

fn is_of_reads(reads: f64, writes: f64) -> bool {
    writes <= WRITES_MAX * (reads + writes)
}

fn says(plan: &Plan, latency_us: u32, load: Load) -> f64 {
    let rate = plan.model.rate(latency_us, load).expect("a goal is a row or lies above one");
    rate as f64 / f64::from(TOKEN)
}

/// Returns the ratios of a curve's rates to the old ones, if the price of writes stays. The curve
/// gives the rates of its own kind of load only: of mixes, or of reads alone.
fn by_old_prices(plan: &Plan, curve: &Curve, goals: &[u32]) -> Vec<Ratio> {
    let write = f64::from(plan.model.cost().write()) / f64::from(TOKEN);
    let of = |&latency_us: &u32| {
        let super::curve::Crossing { reads, writes } = curve.crossing(latency_us)?;
        let (mixed, read_only) = match is_of_reads(reads, writes) {
            true => (None, Some(reads / says(plan, latency_us, Load::ReadOnly))),
            false => (Some((reads + write * writes) / says(plan, latency_us, Load::Mixed)), None),
        };
        Some(Ratio { latency_us, mixed, read_only })
    };
    goals.iter().filter_map(of).collect()
}

/// Returns the ratios of the rates, the price of a write in tokens at which the curves of several
/// mixes coincide, and the worst distance of a point from the fitted curve, a share.
fn fitted(
    plan: &Plan,
    curves: &[Curve],
    goals: &[u32],
) -> Result<(Vec<Ratio>, Option<f64>, f64), RecalibrationError> {
    let found: Vec<(u32, super::curve::Crossing)> = goals
        .iter()
        .flat_map(|&us| curves.iter().filter_map(move |curve| Some((us, curve.crossing(us)?))))
        .collect();
    if found.is_empty() {
        return Err(out_of_reach(curves));
    }
    let pure = |us: u32| {
        let of_reads =
            |(at, c): &&(u32, super::curve::Crossing)| *at == us && is_of_reads(c.reads, c.writes);
        found.iter().find(of_reads).map(|(_, crossing)| crossing.reads)
    };
    let tight_us = goals.last().map_or(500, |&last| last.min(500));
    let mut cost = f64::from(plan.model.cost().write()) / f64::from(TOKEN);
    let mut fit = None;
    for _ in 0..ROUNDS {
        let mut crossings: Vec<Crossing> = found
            .iter()
            .filter(|(_, crossing)| !is_of_reads(crossing.reads, crossing.writes))
            .map(|&(latency_us, crossing)| whole(latency_us, crossing, cost))
            .collect();
        crossings.extend(goals.iter().map(|&latency_us| Crossing {
            read_percent: 100,
            percentile: Percentile::P95,
            latency_us,
            // What was not measured is what it was.
            iops: pure(latency_us).unwrap_or_else(|| says(plan, latency_us, Load::ReadOnly)),
        }));
        let found = calibrate::fit(&crossings, CalibrationPlan::LIMIT, tight_us)
            .map_err(RecalibrationError::FitError)?;
        cost = found.write_cost;
        fit = Some(found);
    }
    let fit = fit.expect("there is a round");
    let off_max = fit.points.iter().map(|point| point.off.abs()).fold(0.0, f64::max);
    let ratio = |row: &RatePoint| {
        let mixed = row.mixed as f64 / f64::from(TOKEN) / says(plan, row.latency_us, Load::Mixed);
        let read_only = pure(row.latency_us);
        let read_only = read_only.map(|iops| iops / says(plan, row.latency_us, Load::ReadOnly));
        Ratio { latency_us: row.latency_us, mixed: Some(mixed), read_only }
    };
    Ok((fit.p95.iter().map(ratio).collect(), Some(cost), off_max))
}

/// Rounds the mix of a crossing to whole percents. The rounded crossing is worth as many tokens, if
/// a write costs `cost` tokens.
fn whole(latency_us: u32, crossing: super::curve::Crossing, cost: f64) -> Crossing {
    let super::curve::Crossing { reads, writes } = crossing;
    let read_percent = libm::round(100.0 * reads / (reads + writes)).clamp(0.0, 99.0);
    let weight = read_percent / 100.0 + cost * (1.0 - read_percent / 100.0);
    let iops = (reads + cost * writes) / weight;
    Crossing { read_percent: read_percent as u8, percentile: Percentile::P95, latency_us, iops }
}

/// Returns the old model multiplied by these ratios, with the new price of writes if there is one,
/// and the rows before and after; `None` if that is no valid model.
fn rebuild(
    plan: &Plan,
    ratios: &[Ratio],
    write_cost: Option<f64>,
) -> Option<(DeviceModel, Vec<Row>)> {
    let old = &plan.model;
    let mut file = ModelFile::of("", "", old);
    let last = ratios.last()?;
    let near =
        |us: u32| ratios.iter().rev().find(|ratio| ratio.latency_us <= us).unwrap_or(&ratios[0]);
    let times = |rate: u64, ratio: f64| {
        (libm::round(rate as f64 * ratio) as u64).clamp(u64::from(TOKEN), RATE_MAX)
    };
    let mut rows = Vec::new();
    let mut floor = (0, 0);
    for (before, after) in old.points().iter().zip(&mut file.p95) {
        let ratio = near(before.latency_us);
        let is_measured = ratio.latency_us == before.latency_us;
        let of = |measured: Option<f64>| measured.filter(|_| is_measured).unwrap_or(ratio.down());
        // A device is at least as fast with more time.
        after.mixed = times(before.mixed, of(ratio.mixed)).max(floor.0);
        after.read_only = times(before.read_only, of(ratio.read_only)).max(floor.1);
        floor = (after.mixed, after.read_only);
        let (before, after) = (*before, *after);
        rows.push(Row { latency_us: before.latency_us, before, after, is_measured });
    }
    let mut floor = (0, 0);
    for row in &mut file.p99 {
        let ratio = near(row.latency_us).down();
        row.mixed = times(row.mixed, ratio).max(floor.0);
        row.read_only = times(row.read_only, ratio).max(floor.1);
        floor = (row.mixed, row.read_only);
    }
    let highest = file.p95.last()?.mixed.max(floor.0);
    file.rate_max = times(old.rate_max(), last.down()).max(highest);
    if let Some(cost) = write_cost {
        file.write = libm::round(cost * f64::from(TOKEN)).max(1.0) as u32;
    }
    if let Some(price) = read_only_price(&file.p95, ratios) {
        file.read_only_read = price;
    }
    Some((file.model().ok()?, rows))
}

/// Returns the price of a read of a read-only load, if such a load was measured: by the row nearest
/// to the paper's 500 µs, as in a calibration.
fn read_only_price(rows: &[RatePoint], ratios: &[Ratio]) -> Option<u32> {
    let is_known = |row: &&RatePoint| {
        let of_row = ratios.iter().find(|ratio| ratio.latency_us == row.latency_us);
        of_row.is_some_and(|ratio| ratio.read_only.is_some())
    };
    let known = || rows.iter().filter(is_known);
    let row = known().find(|row| row.latency_us >= 500).or(known().next_back())?;
    let price = row.mixed as f64 / row.read_only as f64 * f64::from(TOKEN);
    Some((libm::round(price) as u32).max(1))
}
