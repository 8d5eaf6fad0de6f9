//! The data types of a recalibration: its plan, its steps, and their measurements.

use alloc::vec::Vec;
use core::time::Duration;

use crate::drift::ServedLoad;
use crate::{DelayWindow, DeviceModel};

/// The share of the strictest promised latency that the tail of all reads may reach.
const CEILING: f64 = 0.92;

/// The plan of a recalibration: its measurements, and the length of its steps.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The model that is doubted.
    pub model: DeviceModel,
    /// The strictest latency that is promised on the device, in microseconds; `None` without
    /// promises.
    pub bound_us: Option<u32>,
    /// `true` if probes may write. Otherwise the price of writes stays the model's.
    pub writes: bool,
    /// The shortest and the longest duration of a step.
    pub step: (Duration, Duration),
    /// The number of reads that a step should measure.
    pub reads: f64,
}

impl Plan {
    /// Returns the latencies to find rates for, in ascending µs: the model's rows up to the
    /// strictest promise, and that promise.
    pub(super) fn goals_us(&self) -> Vec<u32> {
        let rows = self.model.points().iter().map(|row| row.latency_us);
        let within = |us: &u32| self.bound_us.is_none_or(|bound| *us <= bound);
        let mut goals: Vec<u32> = rows.filter(within).collect();
        goals.extend(self.bound_us);
        // A promise at p99 may be below all rows.
        goals.retain(|us| *us >= self.model.latency_us_min());
        goals.sort_unstable();
        goals.dedup();
        goals
    }

    /// Returns the tail, in microseconds, at which a curve ends.
    pub(super) fn ceiling_us(&self) -> f64 {
        let last = self.model.points().last().expect("a model has a row").latency_us;
        match self.bound_us {
            Some(bound) => CEILING * f64::from(bound),
            None => f64::from(last),
        }
    }
}

/// Probes to offer beside the tenants' load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Share of reads among the probes, 0 to 100.
    pub read_percent: u8,
    /// Probes of 4 KiB a second, at random times; zero to measure the tenants alone.
    pub iops: f64,
    /// The duration of the step.
    pub length: Duration,
}

/// The load and the tail of the device during a step, of tenants and probes together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReading {
    /// Rate of reads, in requests per second.
    pub reads: f64,
    /// Rate of writes, in requests per second.
    pub writes: f64,
    /// 95th percentile of the reads' time at the device, in microseconds.
    pub p95_us: f64,
    /// The number of reads that ended during the step.
    pub ended: u64,
    /// The price of the requests, divided by the price of as many reads and writes of one page.
    pub size: f64,
}

impl StepReading {
    /// Sums up a window of this length, in which a 4 KiB write was priced at `write` units.
    pub fn of(
        model: &DeviceModel,
        since: &DelayWindow,
        write: u32,
        length: Duration,
    ) -> StepReading {
        let seconds = length.as_secs_f64().max(1e-9);
        StepReading {
            reads: since.reads as f64 / seconds,
            writes: since.writes as f64 / seconds,
            p95_us: since.tail_nanos(950) as f64 / 1e3,
            ended: since.ended(),
            size: ServedLoad::of(model, since, write).size,
        }
    }
}
