//! The global token bucket: tokens that one tenant does not need and another may take (paper,
//! Algorithm 1, lines 11, 17, 20 and 23).
//!
//! In the paper, the last thread of a cycle empties the bucket, so the donations of its own tenants
//! are lost at once. Here tokens expire at the end of the second cycle after their donation, or,
//! with a single worker, at the end of the first.

use crate::sync::{AcqRel, Acquire, AtomicI64, Relaxed};

/// Donated tokens in nano-units, shared by the workers of a device. A negative number is a debt:
/// tokens spent ahead of the rates that flow into the bucket.
#[derive(Debug)]
pub struct Bucket {
    tokens: AtomicI64,
    /// Tokens that were in the bucket at the end of the last cycle.
    carried: AtomicI64,
    /// Tokens taken since the end of the last cycle; the oldest tokens go first.
    taken: AtomicI64,
}

impl Bucket {
    /// Creates an empty bucket.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        Bucket { tokens: AtomicI64::new(0), carried: AtomicI64::new(0), taken: AtomicI64::new(0) }
    }

    /// Adds donated tokens, in nano-units, to the bucket.
    pub fn give(&self, tokens: i64) {
        assert!(tokens >= 0, "a bucket is given tokens, not debts");
        if tokens > 0 {
            self.tokens.fetch_add(tokens, AcqRel);
        }
    }

    /// Subtracts tokens that were spent already. The bucket may become negative for a while.
    pub fn charge(&self, tokens: i64) {
        assert!(tokens >= 0, "a bucket is charged tokens, not debts");
        self.tokens.fetch_sub(tokens, AcqRel);
        self.taken.fetch_add(tokens, Relaxed);
    }

    /// Takes as much of `wanted` as the bucket has, and returns the amount.
    pub fn take(&self, wanted: i64) -> i64 {
        let taken = self.remove(wanted);
        if taken > 0 {
            self.taken.fetch_add(taken, Relaxed);
        }
        taken
    }

    fn remove(&self, wanted: i64) -> i64 {
        let mut held = self.tokens.load(Acquire);
        loop {
            let taken = held.min(wanted);
            if taken <= 0 {
                return 0;
            }
            match self.tokens.compare_exchange_weak(held, held - taken, AcqRel, Acquire) {
                Ok(_) => return taken,
                Err(now) => held = now,
            }
        }
    }

    /// Ends a cycle of several workers: tokens that were in the bucket before the cycle began, and
    /// were not taken in it, expire. Returns the expired nano-units.
    pub fn age(&self) -> i64 {
        let taken = self.taken.swap(0, AcqRel);
        let old = self.carried.swap(0, AcqRel) - taken;
        let expired = self.remove(old);
        self.carried.store(self.held(), Relaxed);
        expired
    }

    /// Empties the bucket after the only worker's round; a debt stays. Returns the expired
    /// nano-units.
    pub fn empty(&self) -> i64 {
        self.remove(i64::MAX)
    }

    /// Returns the nano-units in the bucket; negative for a debt.
    pub fn held(&self) -> i64 {
        self.tokens.load(Acquire)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn gives_what_it_has() {
        let bucket = Bucket::new();
        bucket.give(10);
        assert_eq!([bucket.take(4), bucket.take(-1), bucket.take(9), bucket.take(1)], [4, 0, 6, 0]);
        bucket.give(3);
        assert_eq!([bucket.held(), bucket.empty(), bucket.empty()], [3, 3, 0]);
    }

    #[test]
    fn what_was_spent_ahead_is_made_up_for() {
        let bucket = Bucket::new();
        bucket.give(3);
        bucket.charge(10);
        assert_eq!([bucket.held(), bucket.take(1), bucket.empty(), bucket.age()], [-7, 0, 0, 0]);
        bucket.give(9);
        assert_eq!([bucket.take(5), bucket.empty(), bucket.held()], [2, 0, 0]);
    }

    #[test]
    fn tokens_live_through_one_full_turn() {
        let bucket = Bucket::new();
        bucket.give(10);
        assert_eq!(bucket.age(), 0);
        bucket.give(5);
        bucket.take(4);
        assert_eq!(bucket.age(), 6);
        assert_eq!(bucket.held(), 5);
        bucket.take(5);
        bucket.give(1);
        assert_eq!([bucket.age(), bucket.age(), bucket.held()], [0, 1, 0]);
    }
}
