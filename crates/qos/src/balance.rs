//! A tenant's tokens, shared by all workers that serve it, without a lock: the worker that advances
//! the time of the last generation gets the time in between, and spending is one conditional
//! exchange.

use crate::sync::{AcqRel, Acquire, AtomicI64, AtomicU64};

/// Tokens in nano-units, and the time up to which they were generated.
#[derive(Debug)]
pub struct Balance {
    tokens: AtomicI64,
    generated_to: AtomicU64,
}

impl Balance {
    /// Creates an empty balance, generated up to the clock's origin.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        Balance { tokens: AtomicI64::new(0), generated_to: AtomicU64::new(0) }
    }

    /// Returns the balance in nano-units; negative for a debt.
    pub fn tokens(&self) -> i64 {
        self.tokens.load(Acquire)
    }

    /// Claims the nanoseconds up to the time `now` that no worker has claimed yet, to generate
    /// tokens for them, and returns their number. Two workers never get the same nanosecond.
    pub fn claim_time(&self, now: u64) -> u64 {
        let mut from = self.generated_to.load(Acquire);
        while from < now {
            match self.generated_to.compare_exchange_weak(from, now, AcqRel, Acquire) {
                Ok(_) => return now - from,
                Err(other) => from = other,
            }
        }
        0
    }

    /// Skips the time up to `time` (nanoseconds), for which the tokens were generated elsewhere.
    pub fn skip_to(&self, time: u64) {
        self.claim_time(time);
    }

    /// Adds nano-units to the balance.
    pub fn add(&self, tokens: i64) {
        if tokens != 0 {
            self.tokens.fetch_add(tokens, AcqRel);
        }
    }

    /// Adds `tokens` nano-units, or only as many as raise the balance to `most`. Does nothing if
    /// the balance is at or above `most`. The balance must never be a debt.
    pub fn fill(&self, tokens: i64, most: i64) {
        self.update(|held| (tokens > 0 && held < most).then(|| held + tokens.min(most - held)));
    }

    /// Adds `tokens` nano-units to the balance, or subtracts them if negative, as far as the result
    /// stays between `least` and `most`. A balance outside of these bounds does not move further
    /// away. Returns the change.
    pub fn adopt(&self, tokens: i64, least: i64, most: i64) -> i64 {
        let mut change = 0;
        self.update(|held| {
            let sum = held.saturating_add(tokens);
            let next = if tokens < 0 { sum.max(least).min(held) } else { sum.min(most).max(held) };
            change = next - held;
            Some(next)
        });
        change
    }

    /// Spends `cost` if the balance is above `limit`; the balance may fall below it (Algorithm 1,
    /// lines 8, 9). Afterwards the balance is above `limit - cost`, however many workers spend at
    /// the same time. Returns `false` if nothing is spent.
    pub fn overdraw(&self, cost: i64, limit: i64) -> bool {
        self.update(|tokens| (tokens > limit).then(|| tokens - cost))
    }

    /// Spends `cost` if the balance is not below `limit` afterwards (Algorithm 1, line 18, with a
    /// limit of zero). Returns `false` if nothing is spent.
    pub fn spend(&self, cost: i64, limit: i64) -> bool {
        self.update(|tokens| {
            let left = tokens.saturating_sub(cost);
            (left >= limit).then_some(left)
        })
    }

    /// Takes the nano-units that `part` computes from the balance, and returns their number. Takes
    /// nothing if `part` returns zero or less.
    pub fn take(&self, part: impl Fn(i64) -> i64) -> i64 {
        let mut taken = 0;
        self.update(|tokens| {
            taken = part(tokens);
            (taken > 0).then(|| tokens - taken)
        });
        taken.max(0)
    }

    /// Takes all tokens, and returns them. A debt is negative.
    pub fn empty(&self) -> i64 {
        let tokens = self.tokens();
        self.add(-tokens);
        tokens
    }

    fn update(&self, mut change: impl FnMut(i64) -> Option<i64>) -> bool {
        let mut tokens = self.tokens.load(Acquire);
        loop {
            let Some(next) = change(tokens) else { return false };
            match self.tokens.compare_exchange_weak(tokens, next, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(other) => tokens = other,
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn spends_within_its_bounds() {
        let balance = Balance::new();
        assert!(!balance.spend(1, 0));
        assert!(balance.overdraw(10, -5));
        assert!(!balance.overdraw(1, -5));
        balance.add(14);
        assert!(balance.spend(4, 0));
        assert_eq!(balance.tokens(), 0);
        balance.add(7);
        assert_eq!(balance.take(|tokens| tokens - 2), 5);
        assert_eq!(balance.take(|tokens| tokens - 2), 0);
        balance.fill(5, 6);
        assert_eq!(balance.tokens(), 6);
        balance.fill(5, 4);
        balance.fill(-5, 9);
        assert_eq!(balance.tokens(), 6);
        let adopt = |tokens, least, most| (balance.adopt(tokens, least, most), balance.tokens());
        assert_eq!([adopt(3, 0, 8), adopt(3, 0, 5), adopt(-3, 9, 9)], [(2, 8), (0, 8), (0, 8)]);
        assert_eq!([adopt(-10, -5, 9), adopt(i64::MIN, -5, 9)], [(-10, -2), (-3, -5)]);
        assert_eq!([adopt(i64::MAX, -5, 0), adopt(0, 1, 1)], [(5, 0), (0, 0)]);
    }

    #[test]
    fn time_is_claimed_once() {
        let balance = Balance::new();
        balance.skip_to(100);
        assert_eq!([balance.claim_time(130), balance.claim_time(130)], [30, 0]);
        assert_eq!([balance.claim_time(10), balance.claim_time(131)], [0, 1]);
    }
}
