//! The delays of reads at a device: a histogram for each worker, which only that worker writes, and
//! a reader that takes the differences since its last look.

use alloc::boxed::Box;

use core::time::Duration;

use crate::rounds::WORKERS_MAX;
use crate::sync::{AtomicU32, AtomicU64, Relaxed};

/// The binary logarithm of the number of classes between two powers of two: a class is at most 1/32
/// of its delay wide.
const FINE_BITS: u32 = 5;
const FINE: usize = 1 << FINE_BITS;
/// Nanoseconds of the smallest class, as a power of two: about a microsecond.
const SMALLEST_BITS: u32 = 10;
/// The number of times that delays may double beyond the first [`FINE`] classes: up to 34 s.
const POWERS: usize = 20;
const CLASSES: usize = FINE * (1 + POWERS);

/// The counts of all workers at one device: ended reads by their time at the device, submitted
/// requests, and spent units.
#[derive(Debug)]
pub struct Delays {
    workers: Box<[Counters]>,
}

#[derive(Debug)]
struct Counters {
    classes: Box<[AtomicU32]>,
    /// Reads submitted so far. `writes` counts the other requests, and `spent` the units paid for
    /// both.
    reads: AtomicU64,
    writes: AtomicU64,
    spent: AtomicU64,
}

impl Delays {
    pub(crate) fn new() -> Delays {
        let counters = || Counters {
            classes: (0..CLASSES).map(|_| AtomicU32::new(0)).collect(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            spent: AtomicU64::new(0),
        };
        Delays { workers: (0..WORKERS_MAX).map(|_| counters()).collect() }
    }

    /// Counts a read of a worker that has ended, by its time at the device.
    pub(crate) fn record(&self, worker: usize, delay: Duration) {
        let count = &self.workers[worker].classes[class(delay)];
        // Nobody else writes it.
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts the requests that a worker has submitted.
    pub(crate) fn count(&self, worker: usize, reads: u64, writes: u64, spent: u64) {
        let counters = &self.workers[worker];
        let pairs =
            [(&counters.reads, reads), (&counters.writes, writes), (&counters.spent, spent)];
        for (counter, by) in pairs {
            counter.store(counter.load(Relaxed) + by, Relaxed);
        }
    }
}

/// The counts that a reader of [`Delays`] has read before.
#[derive(Clone, Debug)]
pub struct DelaysCursor {
    classes: Box<[u32]>,
    reads: u64,
    writes: u64,
    spent: u64,
}

/// The reads that ended, by delay, and the requests submitted, since a reader last looked.
#[derive(Clone, Debug)]
pub struct DelayWindow {
    /// Reads that ended, by class.
    classes: Box<[u32]>,
    /// Number of reads submitted to the device.
    pub reads: u64,
    /// Writes, flushes and the like submitted.
    pub writes: u64,
    /// Units of tokens spent on submitted requests.
    pub spent: u64,
}

impl Default for DelaysCursor {
    fn default() -> Self {
        DelaysCursor::nothing()
    }
}

impl DelaysCursor {
    /// Returns the counts of a reader that has read nothing.
    pub fn nothing() -> DelaysCursor {
        DelaysCursor { classes: alloc::vec![0; CLASSES].into(), reads: 0, writes: 0, spent: 0 }
    }

    /// Returns the counts of all workers since the last call.
    pub fn look(&mut self, delays: &Delays) -> DelayWindow {
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            delays.workers.iter().map(|counters| of(counters).load(Relaxed)).sum::<u64>()
        };
        let (reads, writes) = (sum(|c| &c.reads), sum(|c| &c.writes));
        let spent = sum(|c| &c.spent);
        let mut since = DelayWindow {
            classes: self.classes.clone(),
            reads: reads - self.reads,
            writes: writes - self.writes,
            spent: spent - self.spent,
        };
        (self.reads, self.writes, self.spent) = (reads, writes, spent);
        for (n, count) in since.classes.iter_mut().enumerate() {
            let all = delays
                .workers
                .iter()
                .fold(0u32, |sum, counters| sum.wrapping_add(counters.classes[n].load(Relaxed)));
            *count = all.wrapping_sub(self.classes[n]);
            self.classes[n] = all;
        }
        since
    }
}

impl DelayWindow {
    /// Returns the number of reads that ended.
    pub fn ended(&self) -> u64 {
        self.classes.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the delay in nanoseconds that so many tenths of a percent of the reads did not
    /// exceed, interpolated within its class; zero without reads.
    pub fn tail_nanos(&self, percentile_tenths: u16) -> u64 {
        let within = (self.ended() * u64::from(percentile_tenths)).div_ceil(1_000);
        let mut before = 0;
        for (n, count) in self.classes.iter().enumerate() {
            let count = u64::from(*count);
            if count > 0 && before + count >= within {
                let (from, to) = (edge(n), edge(n + 1));
                return from + (to - from) * (within - before) / count;
            }
            before += count;
        }
        0
    }
}

fn class(delay: Duration) -> usize {
    let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    let steps = nanos >> SMALLEST_BITS;
    if steps < FINE as u64 {
        return steps as usize;
    }
    let power = steps.ilog2() - FINE_BITS;
    let fine = (steps >> power) as usize - FINE;
    (FINE * (1 + power as usize) + fine).min(CLASSES - 1)
}

/// Returns the nanoseconds at which a class begins.
fn edge(class: usize) -> u64 {
    let (power, fine) = (class / FINE, (class % FINE) as u64);
    match power {
        0 => fine << SMALLEST_BITS,
        _ => (FINE as u64 + fine) << (power as u32 - 1) << SMALLEST_BITS,
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn classes_are_narrow_and_join() {
        for class in 0..CLASSES {
            assert_eq!(super::class(Duration::from_nanos(edge(class))), class);
            assert_eq!(super::class(Duration::from_nanos(edge(class + 1) - 1)), class);
        }
        assert_eq!(super::class(Duration::from_secs(1 << 40)), CLASSES - 1);
        assert_eq!(super::class(Duration::ZERO), 0);
    }

    #[test]
    fn a_look_shows_what_is_new() {
        let delays = Delays::new();
        let mut seen = DelaysCursor::nothing();
        for micros in 1..=100 {
            delays.record(micros % 2, Duration::from_micros(micros as u64 * 10));
        }
        delays.count(0, 60, 3, 9_000);
        delays.count(1, 40, 1, 5_000);
        let since = seen.look(&delays);
        assert_eq!((since.ended(), since.reads, since.writes, since.spent), (100, 100, 4, 14_000));
        let near = |tenths, micros: u64| {
            let tail = since.tail_nanos(tenths);
            assert!(tail.abs_diff(micros * 1_000) <= micros * 35, "{tail} is not {micros} µs");
        };
        near(950, 950);
        near(990, 990);
        near(500, 500);
        assert_eq!((seen.look(&delays).ended(), seen.look(&delays).tail_nanos(950)), (0, 0));
        delays.record(0, Duration::from_micros(7));
        assert_eq!(seen.look(&delays).ended(), 1);
    }
}
