//! Additions to counters with a single writer, which need no atomic read-modify-write.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Adds `by` to a counter that only one thread writes. The counter wraps.
pub(crate) fn bump(counter: &AtomicU32, by: u32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Adds `by` to a counter that only one thread writes. The counter wraps.
pub(crate) fn bump_u64(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}
