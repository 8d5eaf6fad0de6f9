//! The estimate whether a device serves only reads at present: the `r` of the paper's cost model.
//!
//! Each device has one estimate, which its workers share through atomics. Submitted requests are
//! counted in windows. A device becomes read-only slowly (after several quiet windows) and stops
//! being so at the first significant writes, because a read sold too cheaply breaks an SLO and a
//! read sold too dearly only wastes a token. The derivation is in docs/explanation/scheduler.md,
//! "The device's read ratio".

use contract::Instant;

use crate::Load;
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicU32, AtomicU64, Relaxed, Release};

/// The length of a window in which submitted reads and writes are counted, in nanoseconds.
pub const WINDOW_NANOS: u64 = 10_000_000;

/// Windows in a row that must be quiet before the load counts as read-only.
pub const QUIET_WINDOWS: u32 = 4;

/// A window is quiet with at most one write among this many requests: 0.1 %.
const ENTER: u64 = 1_000;

/// A window ends the read-only load with more than one write among this many requests: 0.5 %.
const LEAVE: u64 = 200;

/// The estimate whether a device serves only reads. Starts as [`Load::Mixed`].
#[derive(Debug)]
pub struct ReadRatio {
    window_start: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    /// The number of requests in the last full window that had any.
    last: AtomicU64,
    quiet: AtomicU32,
    read_only: AtomicBool,
}

impl ReadRatio {
    /// Creates an estimate without any count.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        ReadRatio {
            window_start: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            last: AtomicU64::new(0),
            quiet: AtomicU32::new(0),
            read_only: AtomicBool::new(false),
        }
    }

    /// Returns the estimated load of the device: reads alone, or mixed.
    pub fn load(&self) -> Load {
        if self.read_only.load(Acquire) { Load::ReadOnly } else { Load::Mixed }
    }

    /// Counts the requests that a worker submitted in a round, and judges the window when it is
    /// over.
    pub fn record(&self, now: Instant, reads: u64, writes: u64) {
        if reads > 0 {
            self.reads.fetch_add(reads, Relaxed);
        }
        if writes > 0 {
            let writes = self.writes.fetch_add(writes, Relaxed) + writes;
            let requests = writes + self.reads.load(Relaxed);
            if writes * LEAVE > requests.max(self.last.load(Relaxed)) {
                self.read_only.store(false, Release);
                self.quiet.store(0, Relaxed);
            }
        }
        let now = now.as_nanos();
        let start = self.window_start.load(Relaxed);
        let over = now.saturating_sub(start) >= WINDOW_NANOS;
        if over && self.window_start.compare_exchange(start, now, AcqRel, Relaxed).is_ok() {
            self.judge();
        }
    }

    /// Judges a window that is over. Only the worker that advanced the window's start calls this.
    fn judge(&self) {
        let (reads, writes) = (self.reads.swap(0, Relaxed), self.writes.swap(0, Relaxed));
        let requests = reads + writes;
        if requests == 0 {
            return;
        }
        self.last.store(requests, Relaxed);
        if writes * ENTER > requests {
            self.quiet.store(0, Relaxed);
            if writes * LEAVE > requests {
                self.read_only.store(false, Release);
            }
        } else if self.quiet.fetch_add(1, Relaxed) + 1 >= QUIET_WINDOWS {
            self.read_only.store(true, Release);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// Records windows of (reads, writes) and returns the load after each.
    fn loads(ratio: &ReadRatio, from: u64, windows: &[(u64, u64)]) -> alloc::vec::Vec<Load> {
        let mut at = from * WINDOW_NANOS;
        let mut step = |(reads, writes): &(u64, u64)| {
            at += WINDOW_NANOS;
            ratio.record(Instant::from_nanos(at), *reads, *writes);
            ratio.load()
        };
        windows.iter().map(&mut step).collect()
    }

    #[test]
    fn becomes_read_only_slowly_and_mixed_at_once() {
        use Load::{Mixed, ReadOnly};
        let ratio = ReadRatio::new();
        assert_eq!(loads(&ratio, 0, &[(5_000, 0); 4]), [Mixed, Mixed, Mixed, ReadOnly]);
        // Three writes in a thousand: no longer quiet, not yet mixed.
        assert_eq!(loads(&ratio, 4, &[(5_000, 15); 2]), [ReadOnly, ReadOnly]);
        // Within a window, as soon as the writes are too many for a window like the last.
        ratio.record(Instant::from_nanos(6 * WINDOW_NANOS + 1), 0, 25);
        assert_eq!(ratio.load(), ReadOnly);
        ratio.record(Instant::from_nanos(6 * WINDOW_NANOS + 2), 0, 1);
        assert_eq!(ratio.load(), Mixed);
    }

    #[test]
    fn silence_changes_nothing_and_time_may_jump() {
        let ratio = ReadRatio::new();
        loads(&ratio, 0, &[(5_000, 0); 4]);
        assert_eq!(loads(&ratio, 1_000_000, &[(0, 0); 9]), [Load::ReadOnly; 9]);
        ratio.record(Instant::ZERO, 7, 0);
        assert_eq!(ratio.load(), Load::ReadOnly);
    }
}
