//! The bounds on what one device has to do at a time: the number of requests, and the work of large
//! requests of best effort.
//!
//! A request that waits in the scheduler can be overtaken; one at the device cannot. Tokens bound
//! the work of a second, and a large request brings the work of many pages at once: a promised read
//! behind it waits for all of them. So best effort's large requests are at the device one after the
//! other, or several as long as they are less than half of what the device does within the
//! strictest latency (docs/explanation/scheduler.md, "Large requests").

use contract::{IoKind, LARGE_REQUEST_BYTES, REQUEST_BYTES_MAX};

use crate::cost_model::PAGE_BYTES;
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Release};
use crate::units::TOKEN;

/// The bounds of one device, and the work of best effort's large requests there, in units. Shared
/// by the workers of the device.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Maximum number of requests at the device, over all workers; the largest number for no bound.
    depth_max: AtomicU32,
    /// Maximum work of several large requests; the largest number for no bound.
    large_max: AtomicU64,
    /// The work of the large requests at the device, over all workers.
    large: AtomicU64,
}

impl Backlog {
    /// Creates the state of an idle device without bounds.
    pub(crate) fn new() -> Backlog {
        Backlog {
            depth_max: AtomicU32::new(u32::MAX),
            large_max: AtomicU64::new(u64::MAX),
            large: AtomicU64::new(0),
        }
    }

    /// Returns the maximum number of requests at the device; `None` without a bound.
    pub(crate) fn depth_max(&self) -> Option<u32> {
        Some(self.depth_max.load(Acquire)).filter(|depth| *depth < u32::MAX)
    }

    pub(crate) fn set_depth_max(&self, depth: Option<u32>) {
        self.depth_max.store(depth.unwrap_or(u32::MAX), Release);
    }

    /// Returns the maximum work of several large requests of best effort, in units; the largest
    /// number without a bound.
    #[inline]
    pub(crate) fn large_max(&self) -> u64 {
        self.large_max.load(Acquire)
    }

    pub(crate) fn set_large_max(&self, units: Option<u64>) {
        self.large_max.store(units.unwrap_or(u64::MAX), Release);
    }

    /// Returns `true` if the device has large requests of best effort, and `units` more would
    /// exceed `most`.
    #[inline]
    pub(crate) fn is_full(&self, units: u64, most: u64) -> bool {
        let large = self.large.load(Acquire);
        large > 0 && large.saturating_add(units) > most
    }

    fn add(&self, units: u64) {
        self.large.fetch_add(units, AcqRel);
    }

    fn subtract(&self, units: u64) {
        self.large.fetch_sub(units, AcqRel);
    }
}

/// The count of the large requests that one worker has at the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeRequestCount {
    /// Units of a written page. Not corrected, so that a request ends with the work with which it
    /// began.
    write: u64,
    units: u64,
}

impl LargeRequestCount {
    /// Creates the count of a worker without large requests; a written page is `write` units.
    pub(crate) fn new(write: u32) -> LargeRequestCount {
        LargeRequestCount { write: u64::from(write), units: 0 }
    }

    /// Returns the work of a large request in units; zero if the request is not large.
    pub(crate) fn work(&self, kind: IoKind, bytes: usize) -> u64 {
        if bytes <= LARGE_REQUEST_BYTES {
            return 0;
        }
        let page = if kind == IoKind::Read { u64::from(TOKEN) } else { self.write };
        bytes.min(REQUEST_BYTES_MAX).div_ceil(PAGE_BYTES) as u64 * page
    }

    /// Notes that a large request went to the device.
    pub(crate) fn begin(&mut self, backlog: &Backlog, kind: IoKind, bytes: usize) {
        let work = self.work(kind, bytes);
        self.units += work;
        backlog.add(work);
    }

    /// Notes that a large request has ended at the device.
    pub(crate) fn end(&mut self, backlog: &Backlog, kind: IoKind, bytes: usize) {
        let work = self.work(kind, bytes);
        self.units -= work;
        backlog.subtract(work);
    }

    /// Takes the worker's requests out of the device's count, because the worker stops.
    pub(crate) fn leave(&mut self, backlog: &Backlog) {
        backlog.subtract(core::mem::take(&mut self.units));
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn large_requests_are_alone_or_within_the_bound() {
        let backlog = Backlog::new();
        let [mut one, mut other] = [LargeRequestCount::new(1_000), LargeRequestCount::new(1_000)];
        assert_eq!(one.work(IoKind::Read, LARGE_REQUEST_BYTES), 0);
        assert_eq!(one.work(IoKind::Read, LARGE_REQUEST_BYTES + 1), 900);
        assert_eq!(one.work(IoKind::Write, 1 << 20), 256_000);
        // Whatever its size, one request may go.
        assert!(!backlog.is_full(256_000, 20_000));
        one.begin(&backlog, IoKind::Read, 64 << 10);
        other.begin(&backlog, IoKind::Read, 64 << 10);
        assert!(!backlog.is_full(16_800, 20_000));
        assert!(backlog.is_full(16_801, 20_000));
        other.end(&backlog, IoKind::Read, 64 << 10);
        assert!(!backlog.is_full(18_400, 20_000));
        one.leave(&backlog);
        assert!(!backlog.is_full(256_000, 20_000));
    }

    #[test]
    fn a_device_without_bounds_is_never_full() {
        let backlog = Backlog::new();
        LargeRequestCount::new(1_000).begin(&backlog, IoKind::Write, 1 << 20);
        assert!(!backlog.is_full(u64::MAX, backlog.large_max()));
        backlog.set_large_max(Some(500));
        assert!(backlog.is_full(1, backlog.large_max()));
        backlog.set_large_max(None);
        assert!(!backlog.is_full(1, backlog.large_max()));
    }
}
