//! Measurements of a load: latencies, counts of requests, and windows of reads that are judged one
//! by one.

use hdrhistogram::Histogram;
use qos::Percentile;

/// Returns an empty histogram of nanoseconds up to 100 s, with a resolution of a thousandth.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("sound bounds")
}

/// The extent of a window of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowExtent {
    /// So many consecutive reads.
    Reads(usize),
    /// The reads that are answered within so many nanoseconds.
    Nanos(u64),
}

/// A window of consecutive reads of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The virtual time of the last answer in the window, in nanoseconds.
    pub ended: u64,
    /// The judged percentile of the latencies of the window's reads, in nanoseconds.
    pub tail: u64,
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
    /// The judged windows, by extent; none if windows are not judged.
    frames: Vec<ExtentWindows>,
    rate: Option<Rate>,
}

/// The judged windows of one extent.
#[derive(Clone, Debug)]
struct ExtentWindows {
    span: WindowExtent,
    /// The judged percentile of latencies.
    percentile: Percentile,
    windows: Vec<Window>,
    /// The latencies of the present window's reads, in nanoseconds.
    reads: Vec<u64>,
    /// The virtual time in nanoseconds at which the present window began.
    began: u64,
    kept: bool,
}

impl ExtentWindows {
    fn new(span: WindowExtent, percentile: Percentile, now: u64) -> ExtentWindows {
        let (windows, reads) = (Vec::new(), Vec::new());
        ExtentWindows { span, percentile, windows, reads, began: now, kept: true }
    }

    /// Adds a read that ended at `ended`. `is_kept` is `true` if the tenant was within its rate.
    fn add(&mut self, latency: u64, ended: u64, is_kept: bool) {
        match self.span {
            WindowExtent::Reads(reads) => {
                self.kept &= is_kept;
                self.reads.push(latency);
                if self.reads.len() == reads {
                    self.close(ended);
                }
            }
            WindowExtent::Nanos(nanos) => {
                while ended >= self.began + nanos {
                    self.close(self.began + nanos);
                }
                self.kept &= is_kept;
                self.reads.push(latency);
            }
        }
    }

    /// Judges the present window, and begins the next one at `at`. A window without reads does not
    /// count.
    fn close(&mut self, at: u64) {
        if !self.reads.is_empty() {
            let tenths = usize::from(self.percentile.tenths());
            let rank = (self.reads.len() * tenths).div_ceil(1_000) - 1;
            let tail = *self.reads.select_nth_unstable(rank).1;
            self.windows.push(Window { ended: at, tail, kept: self.kept });
        }
        self.reads.clear();
        (self.began, self.kept) = (at, true);
    }
}

/// The rate that a tenant keeps to, as a bucket: each request adds its units, and the rate drains
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
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

impl Rate {
    /// Creates the rate of `units` units a second from the time `now` on, ahead of which a tenant
    /// may be by at most `burst` units.
    pub fn new(units: u64, burst: u64, now: u64) -> Rate {
        Rate { units, burst, level: 0, at: now, broken: None }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            reads: histogram(),
            writes: histogram(),
            arrived: 0,
            retried: 0,
            frames: Vec::new(),
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

    /// Starts to judge windows of reads of each extent at the time `now`, by a percentile of their
    /// latencies. A window counts as kept while the tenant keeps to `rate`.
    pub fn judge(&mut self, spans: &[WindowExtent], percentile: Percentile, rate: Rate) {
        let frame = |span: &WindowExtent| ExtentWindows::new(*span, percentile, rate.at);
        self.frames = spans.iter().map(frame).collect();
        self.rate = Some(rate);
    }

    /// Returns the complete windows of the `n`th judged extent so far, also those in which the
    /// tenant broke its rate.
    pub fn windows(&self, n: usize) -> &[Window] {
        &self.frames[n].windows
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
        // A queue of the tenant's own making delays it for as long as it is ahead. So the window in
        // which it exceeded its rate, and the next one, do not count.
        let broken = self.rate.and_then(|rate| rate.broken);
        let is_kept = broken.is_none_or(|broken| broken < arrived);
        self.frames.iter_mut().for_each(|frame| frame.add(latency, ended, is_kept));
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
