//! The nouns of a calibration: loads, what came of them, and the latencies that are searched for.

use crate::Percentile;

/// A latency that a curve is searched for: the load at which a percentile of read latency reaches
/// this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Goal {
    /// The percentile of the reads' latency.
    pub percentile: Percentile,
    /// Microseconds.
    pub latency_us: u32,
}

/// A kind of load: random requests of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mix {
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Bytes of a request.
    pub bytes: usize,
    /// The latency of sparse 4 KiB reads beside the load is measured, and not the load's own: what
    /// the load does to others.
    pub is_probed: bool,
}

/// A load to be offered: requests at random times (Poisson), whether or not they are answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// The kind of load.
    pub mix: Mix,
    /// Requests a second.
    pub iops: f64,
    /// Reads of 4 KiB a second beside it, if it is probed.
    pub probe_iops: f64,
    /// For how long.
    pub seconds: f64,
    /// The run is long enough to be held against a goal; shorter runs only show where to look.
    pub is_long: bool,
}

/// The result of an offered load. An overloaded device has infinite latencies. If the load is
/// probed, latencies are the probes'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Requests that were answered a second, the probes aside.
    pub iops: f64,
    /// Mean latency of reads in microseconds.
    pub mean_us: f64,
    /// 95th percentile of it.
    pub p95_us: f64,
    /// 99th percentile of it.
    pub p99_us: f64,
}

impl Outcome {
    /// Returns the latency at a percentile, in microseconds.
    pub fn at(&self, percentile: Percentile) -> f64 {
        match percentile {
            Percentile::P95 => self.p95_us,
            Percentile::P99 => self.p99_us,
        }
    }
}
