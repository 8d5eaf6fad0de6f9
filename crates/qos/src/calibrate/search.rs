//! A curve of latency against load, and the loads at which it crosses the goals.
//!
//! Short runs at increasing loads find the region of each goal; long runs within it halve the
//! interval (on a logarithmic scale, where the curve is nearly straight). Short runs are
//! optimistic, since a long queue takes time to grow. So a load counts as meeting a goal only after
//! a long run; a load that misses the goal may have been measured by any run.

use alloc::vec::Vec;

use super::{LatencyGoal, LoadResult, Mix, OfferedLoad};
use crate::cost_model::PAGE_BYTES;
use crate::search::{Bracket, insert_by};

/// The ratio between a load that meets a goal and one that misses it at which the search ends.
const CLOSE: f64 = 1.02;

/// The ratio at which the search ends earlier, if the latency less than doubles between the load
/// that meets a goal and the one that misses it: there a line between the two is a good guess.
const CLOSE_ON_A_LINE: f64 = 1.06;

/// Maximum of long runs for each goal, on average. Intervals close long before that.
const LONG_RUNS_MAX: usize = 12;

/// The first load, in requests of 4 KiB a second: almost none.
const FIRST_IOPS: f64 = 500.0;

/// The highest load that is offered, in requests a second.
const IOPS_MAX: f64 = 50e6;

/// The length of a calibration's runs in requests and seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunLengths {
    /// The requests that a short run makes, counted in pages of 4 KiB.
    pub short_requests: f64,
    /// The requests that a long run makes for a goal of 500 µs, counted in pages of 4 KiB. Longer
    /// latencies get more, since their queues take longer to settle.
    pub long_requests: f64,
    /// Maximum seconds of a short run.
    pub short_seconds_max: f64,
    /// Maximum seconds of a long run.
    pub long_seconds_max: f64,
}

impl RunLengths {
    /// The lengths of runs in virtual time, where the effort grows with the requests and not with
    /// the seconds.
    pub const VIRTUAL: RunLengths = RunLengths {
        short_requests: 20_000.0,
        long_requests: 250_000.0,
        short_seconds_max: 20.0,
        long_seconds_max: 120.0,
    };

    /// The lengths of runs on a real device.
    pub const REAL: RunLengths = RunLengths {
        short_requests: 100_000.0,
        long_requests: 500_000.0,
        short_seconds_max: 10.0 / 6.0,
        long_seconds_max: 10.0,
    };

    /// Returns the requests of a long run for this goal: in proportion to the latency, since a
    /// queue with waits of `L` settles over many times `L`; at most four times those for 500 µs.
    fn long_requests_for(&self, goal: LatencyGoal) -> f64 {
        self.long_requests * (f64::from(goal.latency_us) / 500.0).clamp(1.0, 4.0)
    }
}

/// A load and its measured result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLoad {
    /// The load that was offered to the device in this run.
    pub offer: OfferedLoad,
    /// The result of the load.
    pub outcome: LoadResult,
}

/// The search for the highest load that meets each latency goal, on one mix of reads and writes.
#[derive(Clone, Debug)]
pub struct Search {
    mix: Mix,
    goals: Vec<LatencyGoal>,
    effort: RunLengths,
    /// The load of the first step after the unloaded measurement, in requests per second.
    start: f64,
    /// The ratio of one step's load to the previous one.
    step: f64,
    /// Reads of 4 KiB a second that probe the load from beside, if it is probed.
    probe_iops: f64,
    /// The points that were measured, by ascending load.
    points: Vec<MeasuredLoad>,
}

/// The place on the curve where the latency reaches a goal, as far as it is known.
enum CrossingEstimate {
    /// Between the highest load that meets the goal in a long run, and the lowest one that misses
    /// it; `None` while no such load was measured.
    Between(Option<MeasuredLoad>, Option<MeasuredLoad>),
    /// At no load: even an unloaded device misses the latency.
    Nowhere,
}

impl Search {
    /// Begins a search for these goals. `hint` is a load, in requests a second, near which the
    /// device is expected to be overloaded. A probed load has `probe_iops` additional reads of 4
    /// KiB a second.
    pub fn new(
        mix: Mix,
        goals: &[LatencyGoal],
        effort: RunLengths,
        hint: Option<f64>,
        probe_iops: f64,
    ) -> Search {
        let (start, step) = match hint {
            Some(iops) => (iops / 10.0, 1.5),
            None => (4.0 * FIRST_IOPS, 2.0),
        };
        // The tightest first, as an anchor; then from the longest on, whose runs are long enough
        // for all others, too.
        let mut goals = goals.to_vec();
        goals.sort_by_key(|goal| (core::cmp::Reverse(goal.latency_us), goal.percentile));
        goals.rotate_right(1);
        Search { mix, goals, effort, start, step, probe_iops, points: Vec::new() }
    }

    /// Returns the kind of load of the curve.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// Returns the goals of the search, in the order in which long runs find them.
    pub fn goals(&self) -> &[LatencyGoal] {
        &self.goals
    }

    /// Returns all measured points, by ascending load.
    pub fn points(&self) -> &[MeasuredLoad] {
        &self.points
    }

    /// Returns the next load to offer; `None` when all goals are found.
    pub fn next_offer(&self) -> Option<OfferedLoad> {
        let Some(last) = self.points.last() else {
            return Some(self.short(FIRST_IOPS / self.pages()));
        };
        let is_open =
            |goal: &&LatencyGoal| !matches!(self.place(**goal), CrossingEstimate::Nowhere);
        let goals = || self.goals.iter().filter(is_open);
        let missed =
            |goal: &LatencyGoal| last.outcome.at(goal.percentile) > f64::from(goal.latency_us);
        if !goals().all(missed) && last.offer.iops < IOPS_MAX {
            let iops = (last.offer.iops * self.step).max(self.start).min(IOPS_MAX);
            return Some(self.short(iops));
        }
        goals().find_map(|goal| self.refine(*goal))
    }

    /// Takes the result of the last requested load.
    pub fn take(&mut self, offer: OfferedLoad, outcome: LoadResult) {
        // Of two runs of one load the later one counts, which is the longer.
        self.points.retain(|point| point.offer.iops != offer.iops);
        insert_by(&mut self.points, MeasuredLoad { offer, outcome }, |point| point.offer.iops);
    }

    /// Returns the load, in requests a second, at which the goal is just met. Returns `None` if no
    /// load or every measured load meets the goal, or too little was measured.
    pub fn crossing(&self, goal: LatencyGoal) -> Option<f64> {
        match self.place(goal) {
            CrossingEstimate::Between(Some(low), Some(high))
                if low.offer.iops < high.offer.iops =>
            {
                Some(between(goal, low, high))
            }
            CrossingEstimate::Between(Some(low), Some(high)) => Some(bracket(&low, &high).middle()),
            CrossingEstimate::Between(..) | CrossingEstimate::Nowhere => None,
        }
    }

    /// Returns the estimated number of remaining runs.
    pub fn runs_left(&self) -> usize {
        let goals = self.goals.iter();
        let open = goals.filter(|goal| match self.place(**goal) {
            CrossingEstimate::Between(Some(low), Some(high)) => !is_close(**goal, &low, &high),
            CrossingEstimate::Between(..) => true,
            CrossingEstimate::Nowhere => false,
        });
        2 * open.count()
    }

    fn short(&self, iops: f64) -> OfferedLoad {
        let RunLengths { short_requests, short_seconds_max, .. } = self.effort;
        self.offer(iops, short_requests, short_seconds_max, false)
    }

    fn long(&self, goal: LatencyGoal, iops: f64) -> OfferedLoad {
        let requests = self.effort.long_requests_for(goal);
        self.offer(iops, requests, self.effort.long_seconds_max, true)
    }

    /// Returns an offer of `iops` that lasts as long as it takes to request `requests` pages of 4
    /// KiB, but at most `seconds_max`.
    fn offer(&self, iops: f64, requests: f64, seconds_max: f64, is_long: bool) -> OfferedLoad {
        let probe_iops = self.probe_iops;
        let seconds = requests / (iops * self.pages() + probe_iops);
        OfferedLoad { mix: self.mix, iops, probe_iops, seconds: seconds.min(seconds_max), is_long }
    }

    fn pages(&self) -> f64 {
        (self.mix.bytes / PAGE_BYTES) as f64
    }

    /// Returns `true` if the run was long enough for this goal.
    fn is_long_enough(&self, goal: LatencyGoal, point: &MeasuredLoad) -> bool {
        let wanted = self.long(goal, point.offer.iops).seconds;
        point.offer.is_long && point.offer.seconds > 0.99 * wanted
    }

    fn place(&self, goal: LatencyGoal) -> CrossingEstimate {
        let latency = f64::from(goal.latency_us);
        let meets = |point: &&MeasuredLoad| point.outcome.at(goal.percentile) <= latency;
        match self.points.first() {
            None => return CrossingEstimate::Between(None, None),
            Some(first) if !meets(&first) => return CrossingEstimate::Nowhere,
            Some(_) => {}
        }
        let sure = |point: &&MeasuredLoad| self.is_long_enough(goal, point);
        let low = self.points.iter().rev().filter(sure).find(meets).copied();
        // A short run that misses counts unless a long one of a higher load meets the goal.
        let least = low.map_or(0.0, |low| low.offer.iops);
        let high = self
            .points
            .iter()
            .filter(|point| !meets(point))
            .find(|point| point.offer.iops > least || self.is_long_enough(goal, point));
        CrossingEstimate::Between(low, high.copied())
    }

    /// Returns the next long run for this goal; `None` if the goal needs none.
    fn refine(&self, goal: LatencyGoal) -> Option<OfferedLoad> {
        let CrossingEstimate::Between(low, high) = self.place(goal) else { return None };
        let long_runs = self.points.iter().filter(|point| point.offer.is_long).count();
        if long_runs >= LONG_RUNS_MAX * self.goals.len() {
            return None;
        }
        let iops = match (low, high) {
            (Some(low), Some(high)) => {
                let (from, to) = (low.offer.iops, high.offer.iops);
                if is_close(goal, &low, &high) {
                    // Noise of a short run may not decide.
                    let is_sure = high.offer.is_long || to <= from;
                    return (!is_sure).then(|| self.long(goal, to));
                }
                bracket(&low, &high).keep_inside(between(goal, low, high), 0.15)
            }
            (Some(low), None) if low.offer.iops < IOPS_MAX => low.offer.iops * 1.1,
            (None, Some(high)) if high.offer.is_long => {
                let missed = |point: &&MeasuredLoad| point.offer.is_long && is_near(goal, point);
                let missed = self.points.iter().filter(missed).count().max(1) as f64;
                // An easier goal's long run is a safe anchor; without one, go down in growing
                // steps.
                match self.below(goal, high).filter(|below| below.offer.is_long) {
                    Some(below) => between(goal, below, high).min(high.offer.iops / CLOSE),
                    None => high.offer.iops / libm::pow(2.0 * CLOSE - 1.0, missed),
                }
            }
            // Only short runs so far, and they flatter: a little to the safe side.
            (None, Some(high)) => between(goal, self.below(goal, high)?, high) * 0.98,
            _ => return None,
        };
        Some(self.long(goal, iops.min(IOPS_MAX)))
    }

    /// Returns the measurement of the highest load below `high` that seems to meet the goal; `None`
    /// if there is none. If `high` is of a long run, other long runs take precedence over short
    /// ones.
    fn below(&self, goal: LatencyGoal, high: MeasuredLoad) -> Option<MeasuredLoad> {
        let meets = |point: &&MeasuredLoad| {
            point.offer.iops < high.offer.iops
                && point.outcome.at(goal.percentile) <= f64::from(goal.latency_us)
        };
        let mut found = self.points.iter().rev().filter(meets);
        let best = found.clone().next();
        let long = found.find(|point| point.offer.is_long && high.offer.is_long);
        long.or(best).copied()
    }
}

fn bracket(low: &MeasuredLoad, high: &MeasuredLoad) -> Bracket {
    Bracket { low: low.offer.iops, high: high.offer.iops }
}

/// Returns `true` if the crossing between two loads is known well enough.
fn is_close(goal: LatencyGoal, low: &MeasuredLoad, high: &MeasuredLoad) -> bool {
    let is_line = high.outcome.at(goal.percentile) < 2.0 * low.outcome.at(goal.percentile);
    bracket(low, high).is_within(if is_line { CLOSE_ON_A_LINE } else { CLOSE })
}

/// Returns `true` if the latency of a run is at least the goal's, but less than twice the goal's.
fn is_near(goal: LatencyGoal, point: &MeasuredLoad) -> bool {
    let ratio = point.outcome.at(goal.percentile) / f64::from(goal.latency_us);
    (1.0..2.0).contains(&ratio)
}

/// Returns the load at which the straight line through two points, on a logarithmic scale, crosses
/// the goal. Far above the goal the curve is too steep for a line: then the result is near the
/// middle.
fn between(goal: LatencyGoal, low: MeasuredLoad, high: MeasuredLoad) -> f64 {
    let latency = |point: MeasuredLoad| libm::log(point.outcome.at(goal.percentile).max(0.001));
    let (y0, y1) = (latency(low), latency(high));
    let y = libm::log(f64::from(goal.latency_us));
    let is_wall = y1 - y > core::f64::consts::LN_2;
    let along = match (y1 > y0, is_wall) {
        (true, false) => ((y - y0) / (y1 - y0)).clamp(0.0, 1.0),
        _ => 0.5,
    };
    bracket(&low, &high).along(along)
}
