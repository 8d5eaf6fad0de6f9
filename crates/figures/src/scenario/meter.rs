//! Measurements of a load: latencies, counts of requests, and windows of reads that are judged one
//! by one.

use hdrhistogram::Histogram;

/// Returns an empty histogram of nanoseconds up to 100 s, with a resolution of a thousandth.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("sound bounds")
}

/// The number of reads in a window.
pub const WINDOW_READS: usize = 1_000;

/// A window of 1 000 consecutive reads of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The virtual time of the last answer in the window, in nanoseconds.
    pub ended: u64,
    /// The 95th percentile of the latencies of the window's reads, in nanoseconds.
    pub p95: u64,
    /// `true` if the tenant was never further ahead of its rate than its burst, from the arrival of
    /// the window's first read on.
    pub kept: bool,
}

/// The measurements of a load since they were last cleared. A latency counts from the time at which
/// the request was meant to be sent to the end of the turn that sent its reply, stalls of the
/// client included.
#[derive(Clone, Debug)]
pub struct Meter {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    /// The number of requests that arrived.
    pub arrived: u64,
    /// The number of replies with the status `Retry`, after which a request is sent again or
    /// dropped.
    pub retried: u64,
    /// The judged windows; `None` if windows are not judged. The fields below belong to them.
    windows: Option<Vec<Window>>,
    window: Vec<u64>,
    window_kept: bool,
    rate: Option<Rate>,
}

/// The rate that a tenant keeps to, as a bucket: each request adds its units, and the rate drains
/// them.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The rate, in units a second.
    units: u64,
    /// The units by which the tenant may be ahead of its rate and still count as keeping to the
    /// rate.
    burst: u64,
    /// The nano-units by which the tenant is ahead of its rate now.
    level: u64,
    at: u64,
    /// The last virtual time, in nanoseconds, at which the tenant was ahead by more than its burst;
    /// `None` if never.
    broken: Option<u64>,
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            reads: histogram(),
            writes: histogram(),
            arrived: 0,
            retried: 0,
            windows: None,
            window: Vec::new(),
            window_kept: true,
            rate: None,
        }
    }
}

impl Meter {
    /// Clears latencies and counts, but not the windows.
    pub fn clear(&mut self) {
        self.reads.reset();
        self.writes.reset();
        (self.arrived, self.retried) = (0, 0);
    }

    /// Starts to judge windows of reads at the time `now`. A window counts as kept while the tenant
    /// spends at most `units` units a second, ahead of that by at most `burst` units.
    pub fn judge(&mut self, units: u64, burst: u64, now: u64) {
        self.windows.get_or_insert_default();
        self.window.clear();
        self.window_kept = true;
        self.rate = Some(Rate { units, burst, level: 0, at: now, broken: None });
    }

    /// Returns the complete windows of reads so far, also those in which the tenant broke its rate;
    /// none if windows are not judged.
    pub fn windows(&self) -> &[Window] {
        self.windows.as_deref().unwrap_or_default()
    }

    pub(crate) fn arrive(&mut self, now: u64, units: u64) {
        self.arrived += 1;
        if let Some(rate) = &mut self.rate {
            let passed = now - rate.at;
            rate.at = now;
            rate.level = rate.level.saturating_sub(rate.units * passed) + units * 1_000_000_000;
            if rate.level > rate.burst * 1_000_000_000 {
                rate.broken = Some(now);
            }
        }
    }

    pub(crate) fn end(&mut self, is_read: bool, arrived: u64, ended: u64) {
        let latency = ended - arrived;
        if !is_read {
            self.writes.saturating_record(latency);
            return;
        }
        self.reads.saturating_record(latency);
        let Some(windows) = &mut self.windows else { return };
        // A queue of the tenant's own making delays it for as long as it is ahead. So the window in
        // which it exceeded its rate, and the next one, do not count.
        let broken = self.rate.and_then(|rate| rate.broken);
        self.window_kept &= broken.is_none_or(|broken| broken < arrived);
        self.window.push(latency);
        if self.window.len() == WINDOW_READS {
            let rank = (WINDOW_READS * 95).div_ceil(100) - 1;
            let p95 = *self.window.select_nth_unstable(rank).1;
            windows.push(Window { ended, p95, kept: self.window_kept });
            self.window.clear();
            self.window_kept = true;
        }
    }

    /// Returns the number of reads and writes that were answered.
    pub fn count(&self) -> u64 {
        self.reads.len() + self.writes.len()
    }

    /// Returns a percentile (0 to 100) of the latencies of reads, in microseconds; zero if there
    /// were no reads.
    pub fn read_us(&self, percentile: f64) -> f64 {
        self.reads.value_at_percentile(percentile) as f64 / 1e3
    }

    /// Adds the latencies and counts of another load to those of this one, but not its windows.
    pub fn add(&mut self, other: &Meter) {
        self.reads.add(&other.reads).expect("the same bounds");
        self.writes.add(&other.writes).expect("the same bounds");
        self.arrived += other.arrived;
        self.retried += other.retried;
    }
}
