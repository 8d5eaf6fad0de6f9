//! A curve beside tenants: the tail of all reads against the total load, as probes of one mix are
//! added to the tenants' load.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Plan, Step, StepReading};
use crate::search::{Bracket, insert_by};
use crate::units::TOKEN;

/// The maximum number of steps of a curve.
const STEPS_MAX: usize = 18;

/// The largest growth of the rate of probes from one step to the next: by 150 % far from the
/// ceiling, and by less in proportion near it. `NEAR` is the smallest ratio of the two rates.
const FAR: f64 = 1.5;
const NEAR: f64 = 1.05;

/// The part of the distance between the tail and the ceiling that one step covers.
const APPROACH: f64 = 0.5;

/// The share of the ceiling from which on a tail is near enough to end the curve.
const ENOUGH: f64 = 0.93;

/// The ratio at which a curve ends: between the lowest rate of probes whose tail is above the
/// ceiling, and the highest rate below that.
const CLOSE: f64 = 1.04;

/// The share of the offered probes' tokens that the load must grow by. If it grows by less, the
/// probes have waited for tokens or for the prober.
const GOT_MIN: f64 = 0.85;

/// The share of a latency from which on a tail is near enough to determine the load at that
/// latency.
const REACH: f64 = 0.6;

/// The minimum number of points to fit a line to.
const LINE_MIN: usize = 3;

/// The factor by which a line may be extrapolated beyond the highest measured load.
const BEYOND: f64 = 1.25;

/// The share of the spare tokens that the first probes take, far from the ceiling.
const FIRST: f64 = 0.05;

/// A step of the recalibration: the rate of probes and the measured latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The probes that were offered.
    pub step: Step,
    /// The load and the tail that were measured.
    pub reading: StepReading,
    /// `true` if the step was ended early, because the tail was too long.
    pub is_cut: bool,
}

/// Reads and writes a second at which a latency is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crossing {
    pub(super) reads: f64,
    pub(super) writes: f64,
}

/// The measured curve of latency over load for one mix of reads and writes.
#[derive(Clone, Debug)]
pub struct Curve {
    read_percent: u8,
    /// Tokens of a write, by the model that is doubted.
    write_cost: f64,
    /// Tokens of a probe, by the model that is doubted.
    probe_cost: f64,
    ceiling_us: f64,
    /// The points that were seen, by ascending load.
    points: Vec<Point>,
    /// `true` if a step has shown that more probes bring no more load.
    is_capped: bool,
}

impl Curve {
    pub(super) fn new(read_percent: u8, plan: &Plan) -> Curve {
        let write_cost = f64::from(plan.model.cost().write()) / f64::from(TOKEN);
        let reads = f64::from(read_percent) / 100.0;
        Curve {
            read_percent,
            write_cost,
            probe_cost: reads + write_cost * (1.0 - reads),
            ceiling_us: plan.ceiling_us(),
            points: Vec::new(),
            is_capped: false,
        }
    }

    /// Lowers the tail at which the curve ends, in microseconds.
    pub(super) fn lower(&mut self, ceiling_us: f64) {
        self.ceiling_us = self.ceiling_us.min(ceiling_us);
    }

    /// Returns the share of reads among the probes, 0 to 100.
    pub fn read_percent(&self) -> u8 {
        self.read_percent
    }

    /// Returns all measured points, by ascending load.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns `true` if the tokens of the old model were used up before the tail reached its
    /// ceiling.
    pub fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// Returns `true` if the tail is too long even without probes.
    pub(super) fn is_hopeless(&self) -> bool {
        self.alone().is_some_and(|alone| self.is_high(alone))
    }

    fn alone(&self) -> Option<&Point> {
        self.points.iter().find(|point| point.step.iops == 0.0)
    }

    /// Returns the tokens per second of a load by the model under test, with reads at their price
    /// in a mix.
    pub(super) fn tokens(&self, reading: &StepReading) -> f64 {
        reading.reads + self.write_cost * reading.writes
    }

    fn is_high(&self, point: &Point) -> bool {
        point.reading.p95_us > self.ceiling_us
    }

    pub(super) fn next_step(&self, plan: &Plan) -> Option<Step> {
        let Some(alone) = self.alone() else { return Some(self.step(plan, 0.0)) };
        if self.points.len() >= STEPS_MAX || self.is_hopeless() {
            return None;
        }
        let offered = |point: &&Point| point.step.iops;
        let by_offer = |a: &&Point, b: &&Point| offered(a).total_cmp(&offered(b));
        let high = self.points.iter().filter(|point| self.is_high(point)).min_by(by_offer);
        let most = high.map_or(f64::INFINITY, |high| high.step.iops);
        let bracket = |low: f64| Bracket { low, high: most };
        let mut lows: Vec<&Point> =
            self.points.iter().filter(|point| point.step.iops < most).collect();
        lows.sort_by(by_offer);
        let low = lows.last()?;
        if low.reading.p95_us >= ENOUGH * self.ceiling_us || bracket(low.step.iops).is_within(CLOSE)
        {
            return None;
        }
        let iops = match (high, &lows[..]) {
            (None, _) if self.is_capped => return None,
            (None, [_]) => {
                let spare = plan.model.rate_max() as f64 / f64::from(TOKEN);
                let spare = (spare - self.tokens(&alone.reading)).max(0.05 * spare);
                FIRST * self.headroom(alone) * spare / self.probe_cost
            }
            (None, [.., before, low]) => self.farther(before, low),
            // The tenants alone are no load of which a middle can be taken.
            (Some(_), _) => bracket(low.step.iops.max(most / 4.0)).middle(),
            (None, []) => return None,
        };
        Some(self.step(plan, iops.max(1.0)))
    }

    /// Returns the next rate of probes in requests a second, which brings the tail closer to the
    /// ceiling but not above it. As in a queue, the inverse of the tail falls about linearly with
    /// the load, whatever requests truly cost.
    fn farther(&self, before: &Point, low: &Point) -> f64 {
        let inverse = |us: f64| 1.0 / us.max(1e-3);
        let iops = low.step.iops;
        let (from, to) = (before.reading.p95_us, low.reading.p95_us);
        let fall = (inverse(from) - inverse(to)) / (iops - before.step.iops);
        let target = to + APPROACH * (self.ceiling_us - to);
        let more = match fall > 0.0 {
            true => (inverse(to) - inverse(target)) / fall,
            false => f64::INFINITY,
        };
        let most = (1.0 + FAR * self.headroom(low)).max(NEAR);
        (iops + more).clamp(NEAR * iops, most * iops)
    }

    /// Returns the distance of a point's tail below the ceiling, as a share of the ceiling.
    fn headroom(&self, point: &Point) -> f64 {
        (1.0 - point.reading.p95_us / self.ceiling_us).clamp(0.0, 1.0)
    }

    fn step(&self, plan: &Plan, iops: f64) -> Step {
        let of_tenants = self.alone().map_or(0.0, |alone| alone.reading.reads);
        let reads = of_tenants + iops * f64::from(self.read_percent) / 100.0;
        let (least, most) = plan.step;
        let wanted = Duration::from_secs_f64((plan.reads / reads.max(1.0)).min(3_600.0));
        Step { read_percent: self.read_percent, iops, length: wanted.clamp(least, most) }
    }

    pub(super) fn take(&mut self, plan: &Plan, step: Step, reading: StepReading, is_cut: bool) {
        let tokens = self.tokens(&reading);
        if let Some(alone) = self.alone() {
            let brought = tokens - self.tokens(&alone.reading);
            let is_high = reading.p95_us > self.ceiling_us;
            self.is_capped |=
                !is_cut && !is_high && brought < GOT_MIN * step.iops * self.probe_cost;
        }
        let mut reading = reading;
        if is_cut {
            // It was looked at for a moment only, but it was too late in that.
            let bound = plan.bound_us.map_or(self.ceiling_us, f64::from);
            reading.p95_us = reading.p95_us.max(bound);
        }
        let mut points = core::mem::take(&mut self.points);
        let point = Point { step, reading, is_cut };
        insert_by(&mut points, point, |point| self.tokens(&point.reading));
        self.points = points;
    }

    /// Returns the load at which the tail reaches a latency in microseconds: by a line through the
    /// points near it if there are at least three, else between the two points around it, else by a
    /// line through the highest three points. Returns `None` if no point came near the latency, or
    /// no line falls through the points.
    pub(super) fn crossing(&self, latency_us: u32) -> Option<Crossing> {
        let latency = f64::from(latency_us);
        let reached = self.points.iter().map(|point| point.reading.p95_us).fold(0.0, f64::max);
        if reached < REACH * latency {
            return None;
        }
        let is_near = |point: &&Point| {
            let share = point.reading.p95_us / latency;
            !point.is_cut && (REACH..=1.0 / REACH).contains(&share)
        };
        let near: Vec<&Point> = self.points.iter().filter(is_near).collect();
        if near.len() >= LINE_MIN {
            return self.line(&near, latency);
        }
        self.beside(latency).or_else(|| {
            let whole: Vec<&Point> = self.points.iter().filter(|point| !point.is_cut).collect();
            let last = whole.len().checked_sub(LINE_MIN)?;
            self.line(&whole[last..], latency)
        })
    }

    /// Returns the crossing by a line through points of the inverse tail, which falls about
    /// linearly with the load, as in a queue.
    fn line(&self, points: &[&Point], latency: f64) -> Option<Crossing> {
        let of = |value: fn(&StepReading) -> f64| {
            let pair = |point: &&Point| (self.tokens(&point.reading), value(&point.reading));
            Line::through(points.iter().map(pair))
        };
        let inverse = of(|seen| 1.0 / seen.p95_us.max(1e-3))?;
        if inverse.slope >= 0.0 {
            return None;
        }
        let tokens = (1.0 / latency - inverse.at_zero) / inverse.slope;
        // Never far beyond what was seen.
        let most = self.points.last().map_or(0.0, |point| self.tokens(&point.reading));
        let tokens = tokens.min(BEYOND * most);
        let at = |line: Line| (line.at_zero + line.slope * tokens).max(0.0);
        Some(Crossing { reads: at(of(|seen| seen.reads)?), writes: at(of(|seen| seen.writes)?) })
    }

    /// Returns the load at which the curve crosses a latency, between the last point below and the
    /// first point above it; `None` without such points.
    fn beside(&self, latency: f64) -> Option<Crossing> {
        let above = self.points.iter().position(|point| point.reading.p95_us > latency)?;
        let (from, to) = (&self.points[above.checked_sub(1)?], &self.points[above]);
        let inverse = |us: f64| 1.0 / us.max(1e-3);
        let (low, high) = (inverse(from.reading.p95_us), inverse(to.reading.p95_us));
        let along = ((low - inverse(latency)) / (low - high)).clamp(0.0, 1.0);
        let between = |of: fn(&StepReading) -> f64| {
            let (from, to) = (of(&from.reading), of(&to.reading));
            (from + along * (to - from)).max(0.0)
        };
        Some(Crossing { reads: between(|seen| seen.reads), writes: between(|seen| seen.writes) })
    }
}

/// A straight line: its value at zero and its slope.
#[derive(Clone, Copy, Debug)]
struct Line {
    at_zero: f64,
    slope: f64,
}

impl Line {
    /// Returns the least-squares line through these points; `None` if they define none.
    fn through(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Line> {
        let count = points.clone().count() as f64;
        let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let along: f64 = points.clone().map(|point| (point.0 - x) * (point.0 - x)).sum();
        let up: f64 = points.clone().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = up / along;
        slope.is_finite().then_some(Line { at_zero: y - slope * x, slope })
    }
}
