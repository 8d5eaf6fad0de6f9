//! The loan: tokens that latency-critical tenants have spent in advance of their generation, at the
//! cost of best-effort tenants.
//!
//! The loan has an upper bound. Best-effort tenants pay it back out of their shares
//! (docs/explanation/scheduler.md, "Arrears").

use crate::sync::{AcqRel, Acquire, AtomicI64};

/// The nano-units of the loan, never below zero. Shared by the workers of a device.
#[derive(Debug)]
pub struct Loan {
    owed: AtomicI64,
}

impl Loan {
    /// Creates a loan of zero.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        Loan { owed: AtomicI64::new(0) }
    }

    /// Returns the nano-units that are to be paid back.
    pub fn owed(&self) -> i64 {
        self.owed.load(Acquire)
    }

    /// Lends as much of `wanted` as keeps the loan within `most`, and returns the amount.
    pub fn lend(&self, wanted: i64, most: i64) -> i64 {
        let mut owed = self.owed.load(Acquire);
        loop {
            let lent = wanted.min(most.saturating_sub(owed)).max(0);
            match self.owed.compare_exchange_weak(owed, owed + lent, AcqRel, Acquire) {
                Ok(_) => return lent,
                Err(now) => owed = now,
            }
        }
    }

    /// Pays back as much of the loan as `offered` allows, and returns the amount.
    pub fn repay(&self, offered: i64) -> i64 {
        let mut owed = self.owed.load(Acquire);
        loop {
            let repaid = offered.min(owed).max(0);
            match self.owed.compare_exchange_weak(owed, owed - repaid, AcqRel, Acquire) {
                Ok(_) => return repaid,
                Err(now) => owed = now,
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn lends_up_to_its_bound_and_takes_no_more_back() {
        let loan = Loan::new();
        assert_eq!(
            [loan.lend(7, 10), loan.lend(7, 10), loan.lend(1, 10), loan.owed()],
            [7, 3, 0, 10]
        );
        assert_eq!(
            [loan.lend(1, 4), loan.lend(-5, 20), loan.repay(-5), loan.owed()],
            [0, 0, 0, 10]
        );
        assert_eq!([loan.repay(4), loan.repay(9), loan.repay(9), loan.owed()], [4, 6, 0, 0]);
    }
}
