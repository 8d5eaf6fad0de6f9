//! The global token bucket: what one tenant does not need and another may take (paper, Algorithm 1,
//! lines 11, 17, 20 and 23).

use crate::sync::{AcqRel, Acquire, AtomicI64, Relaxed};

/// Tokens that nobody owns, in nano-units. Shared by the workers of a device. Never negative.
#[derive(Debug)]
pub struct Bucket {
    tokens: AtomicI64,
}

impl Bucket {
    /// An empty bucket.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        Bucket { tokens: AtomicI64::new(0) }
    }

    /// Puts tokens in.
    pub fn give(&self, tokens: i64) {
        assert!(tokens >= 0, "a bucket is given tokens, not debts");
        if tokens > 0 {
            self.tokens.fetch_add(tokens, AcqRel);
        }
    }

    /// Takes as much of `wanted` as there is.
    pub fn take(&self, wanted: i64) -> i64 {
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

    /// Empties it; says what expired.
    pub fn reset(&self) -> i64 {
        if self.tokens.load(Relaxed) == 0 { 0 } else { self.tokens.swap(0, AcqRel) }
    }

    /// What is in it.
    pub fn held(&self) -> i64 {
        self.tokens.load(Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn gives_what_it_has() {
        let bucket = Bucket::new();
        bucket.give(10);
        assert_eq!([bucket.take(4), bucket.take(-1), bucket.take(9), bucket.take(1)], [4, 0, 6, 0]);
        bucket.give(3);
        assert_eq!([bucket.held(), bucket.reset(), bucket.reset()], [3, 3, 0]);
    }
}
