//! The measurements of a load: counts and latencies.

use std::time::Duration;

use contract::IoKind;
use hdrhistogram::Histogram;

/// Maximum recorded latency: an hour, in nanoseconds. Longer latencies count as this one.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;

/// The count and the latencies of one kind of request.
#[derive(Clone, Debug)]
pub struct Side {
    /// Number of requests that succeeded within the measured time.
    pub count: u64,
    /// Latencies of successful requests in nanoseconds, to three digits. Includes requests that
    /// were sent within the measured time and ended after it.
    pub latency: Histogram<u64>,
}

impl Side {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3);
        Side { count: 0, latency: latency.expect("the bounds are sound") }
    }

    pub(super) fn record(&mut self, latency: Duration, within: bool) {
        self.count += u64::from(within);
        self.latency.saturating_record(latency.as_nanos() as u64);
    }

    fn add(&mut self, other: &Side) {
        self.count += other.count;
        self.latency.add(&other.latency).expect("the bounds are the same");
    }

    fn reset(&mut self) {
        self.count = 0;
        self.latency.reset();
    }
}

/// The measurements of one or several generators over some time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Count and latencies of reads, without the probe's.
    pub read: Side,
    /// Count and latencies of writes.
    pub write: Side,
    /// Count and latencies of the reads of the unloaded probe.
    pub probe: Side,
    /// Number of failed requests.
    pub errors: u64,
    /// Number of sectors with wrong contents.
    pub verify_failures: u64,
}

impl Tally {
    /// Returns measurements without any request.
    pub fn new() -> Self {
        let (read, write, probe) = (Side::new(), Side::new(), Side::new());
        Tally { read, write, probe, errors: 0, verify_failures: 0 }
    }

    pub(super) fn side(&mut self, kind: IoKind) -> &mut Side {
        match kind {
            IoKind::Read => &mut self.read,
            IoKind::Write | IoKind::Exchange | IoKind::Other => &mut self.write,
        }
    }

    /// Adds the measurements of `other`.
    pub fn add(&mut self, other: &Tally) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.probe.add(&other.probe);
        self.errors += other.errors;
        self.verify_failures += other.verify_failures;
    }

    /// Resets all counts and latencies to zero.
    pub fn reset(&mut self) {
        for side in [&mut self.read, &mut self.write, &mut self.probe] {
            side.reset();
        }
        self.errors = 0;
        self.verify_failures = 0;
    }

    /// Returns the number of requests that succeeded within the measured time, without the probe's.
    pub fn count(&self) -> u64 {
        self.read.count + self.write.count
    }
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new()
    }
}
