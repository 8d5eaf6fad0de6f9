//! The idle pools: the summed rates of tenants without demand generate tokens for the bucket
//! without a visit to each tenant. So a round costs only the active tenants, and the rate of
//! tenants whose worker is parked is lent: any running worker settles the pool for all.
//!
//! The rate and the time of the last settlement share one word, so every nanosecond of every rate
//! is turned into tokens by exactly one worker.

use crate::sync::{AcqRel, Acquire, AtomicU64};
use crate::units::{RATE_MAX, ROUND_NANOS_MAX, generated};

/// The number of bits of the word that hold the time, in nanoseconds modulo 1.07 s.
const TIME_BITS: u32 = 30;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The nanoseconds by which a worker's clock may lie behind another's. A larger difference is a
/// leap forward.
const BACK_MAX: u64 = 100_000_000;

/// The nanoseconds without settlement after which the word's time is ambiguous.
const STALE: u64 = 1 << (TIME_BITS - 1);

/// The sum of idle rates. High 34 bits: the rate in units a second, signed, because one worker may
/// subtract a tenant's rate before another has added it. Low 30 bits: the time of the last
/// settlement.
#[derive(Debug)]
pub struct IdlePool {
    word: AtomicU64,
    /// The time of the last settlement in nanoseconds, in full but up to an eighth of [`STALE`] too
    /// early.
    seen: AtomicU64,
}

impl IdlePool {
    /// Creates an empty pool.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        const { assert!(RATE_MAX < 1 << 33) };
        IdlePool { word: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }

    /// Returns the tokens, in nano-units, that the pool has made since it was last settled, for at
    /// most [`ROUND_NANOS_MAX`]. `now` is in nanoseconds.
    pub fn settle(&self, now: u64) -> i64 {
        self.refresh(now);
        let mut word = self.word.load(Acquire);
        loop {
            let Some(elapsed) = elapsed(word, now) else { return 0 };
            let next = pack(rate(word), now);
            match self.word.compare_exchange_weak(word, next, AcqRel, Acquire) {
                Ok(_) => {
                    let rate = u64::try_from(rate(word)).unwrap_or(0);
                    return generated(rate, elapsed.min(ROUND_NANOS_MAX));
                }
                Err(other) => word = other,
            }
        }
    }

    /// Adds `rate_by` units a second to the rate, or subtracts them if negative. Returns the time
    /// of the last settlement in nanoseconds, from which on the change counts.
    pub fn change(&self, rate_by: i64, now: u64) -> u64 {
        self.refresh(now);
        let mut word = self.word.load(Acquire);
        loop {
            let next = pack(rate(word) + rate_by, word);
            match self.word.compare_exchange_weak(word, next, AcqRel, Acquire) {
                Ok(_) => return settled(word, now),
                Err(other) => word = other,
            }
        }
    }

    /// Sets the word's time, after a long silence, to [`ROUND_NANOS_MAX`] before `now`: tokens are
    /// made up for no longer time. Two workers that wake at once may both do so; then
    /// [`ROUND_NANOS_MAX`] is generated twice at worst.
    fn refresh(&self, now: u64) {
        let silent = now.saturating_sub(self.seen.load(Acquire));
        if silent < STALE / 8 {
            return;
        }
        if silent >= STALE {
            let mut word = self.word.load(Acquire);
            loop {
                let next = pack(rate(word), now - ROUND_NANOS_MAX);
                match self.word.compare_exchange_weak(word, next, AcqRel, Acquire) {
                    Ok(_) => break,
                    Err(other) => word = other,
                }
            }
        }
        self.seen.fetch_max(now, AcqRel);
    }

    /// Returns the sum of the idle rates, in units a second; zero if it is negative for a moment.
    pub fn rate(&self) -> u64 {
        u64::try_from(rate(self.word.load(Acquire))).unwrap_or(0)
    }
}

fn pack(rate: i64, time: u64) -> u64 {
    assert!(rate.unsigned_abs() < 1 << 33, "the idle tenants' rates exceed any device");
    (rate as u64) << TIME_BITS | time & TIME_MASK
}

fn rate(word: u64) -> i64 {
    word as i64 >> TIME_BITS
}

/// Returns the nanoseconds from the settled time to `now`; `None` if `now` is not later. A large
/// step back is a leap forward that the modulus hides.
fn elapsed(word: u64, now: u64) -> Option<u64> {
    let ahead = now.wrapping_sub(word) & TIME_MASK;
    (ahead != 0 && ahead <= TIME_MASK - BACK_MAX).then_some(ahead)
}

/// Returns the time of the last settlement in nanoseconds, in full, but at most [`ROUND_NANOS_MAX`]
/// before `now`.
fn settled(word: u64, now: u64) -> u64 {
    match elapsed(word, now) {
        Some(elapsed) => now.saturating_sub(elapsed.min(ROUND_NANOS_MAX)),
        None => now + (word.wrapping_sub(now) & TIME_MASK),
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn every_nanosecond_counts_once() {
        let pool = IdlePool::new();
        assert_eq!(pool.settle(1_000), 0);
        assert_eq!(pool.change(42_000_000, 1_000), 1_000);
        assert_eq!(pool.settle(1_001), 42_000_000);
        assert_eq!([pool.settle(1_001), pool.settle(900)], [0, 0]);
        assert_eq!(pool.change(-42_000_000, 1_500), 1_001);
        assert_eq!(pool.settle(2_000), 0);
        assert_eq!(pool.rate(), 0);
    }

    #[test]
    fn who_leaves_early_takes_its_time_along() {
        let pool = IdlePool::new();
        pool.change(5, 0);
        pool.change(7, 0);
        pool.settle(100);
        // It gets what it makes from 100 on itself; the pool goes on with the other.
        assert_eq!(pool.change(-7, 160), 100);
        assert_eq!(pool.settle(160), 300);
        // A worker whose clock is behind.
        assert_eq!(pool.change(-5, 150), 160);
    }

    #[test]
    fn leaps_are_clamped() {
        let pool = IdlePool::new();
        pool.change(3, 0);
        let most = generated(3, ROUND_NANOS_MAX);
        assert_eq!(pool.settle(500_000_000), most);
        assert_eq!(pool.settle(500_000_000 + 3_600_000_000_000), most);
        assert_eq!(pool.settle(500_000_001 + 3_600_000_000_000), 3);
    }

    #[test]
    fn no_silence_looks_like_a_step_back() {
        for silence in (1..3_000_000_000).step_by(7_654_321) {
            let pool = IdlePool::new();
            pool.change(3, 1);
            pool.settle(5_000_000_000);
            let now = 5_000_000_000 + silence;
            let from = now - silence.min(ROUND_NANOS_MAX);
            assert_eq!(pool.change(2, now), from, "after {silence} ns");
            assert_eq!(pool.settle(now), generated(5, now - from));
        }
    }

    #[test]
    fn a_debt_makes_nothing() {
        let pool = IdlePool::new();
        pool.change(-8, 0);
        assert_eq!(pool.settle(10), 0);
        pool.change(8, 10);
        assert_eq!(pool.settle(20), 0);
    }
}
