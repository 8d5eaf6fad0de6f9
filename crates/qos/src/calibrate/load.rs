//! The data types of a calibration: loads, their results, and the latencies that are its goals.

use crate::Percentile;

/// A point that is searched for on a curve: the load at which a percentile of the read latency
/// reaches a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LatencyGoal {
    /// The percentile of the reads' latency.
    pub percentile: Percentile,
    /// The latency in microseconds.
    pub latency_us: u32,
}

/// A kind of load: random requests of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mix {
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Bytes of a request.
    pub bytes: usize,
    /// `true` if the latency of sparse 4 KiB reads beside the load is measured instead of the
    /// load's own: the effect of the load on others.
    pub is_probed: bool,
}

/// A load to be offered: requests at random times (Poisson), whether or not they are answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedLoad {
    /// The kind of load.
    pub mix: Mix,
    /// Rate of the load in requests per second.
    pub iops: f64,
    /// Additional reads of 4 KiB a second, if the load is probed.
    pub probe_iops: f64,
    /// The duration of the load in seconds.
    pub seconds: f64,
    /// `true` if the run is long enough to be compared with a goal; shorter runs only narrow the
    /// search.
    pub is_long: bool,
}

/// The result of an offered load. An overloaded device has infinite latencies. If the load is
/// probed, latencies are the probes'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadResult {
    /// Answered requests a second, without the probes.
    pub iops: f64,
    /// Mean latency of reads in microseconds.
    pub mean_us: f64,
    /// The 95th percentile of the read latency, in microseconds.
    pub p95_us: f64,
    /// The 99th percentile of the read latency, in microseconds.
    pub p99_us: f64,
}

impl LoadResult {
    /// Returns this percentile of the read latency, in microseconds.
    pub fn at(&self, percentile: Percentile) -> f64 {
        match percentile {
            Percentile::P95 => self.p95_us,
            Percentile::P99 => self.p99_us,
        }
    }
}
