//! Whether every worker has had a round since the bucket was last emptied (paper, Algorithm 1, line
//! 22, and section 4.1).
//!
//! Members and marks share one word, so exactly one worker completes a turn of all. A worker that
//! parks leaves the set first: those who sleep hold nobody up.

use crate::sync::{AcqRel, Acquire, AtomicU64};

/// The most workers that share a device.
pub const WORKERS_MAX: usize = 32;

/// The round set of a device: low half members, high half those who had a round.
///
/// Invariant: the marked are members, and never all of them.
#[derive(Debug)]
pub struct Rounds {
    word: AtomicU64,
}

impl Rounds {
    /// A set without members.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        Rounds { word: AtomicU64::new(0) }
    }

    /// The worker takes part from now on.
    pub fn join(&self, worker: usize) {
        self.update(|members, marked| (members | bit(worker), marked));
    }

    /// The worker has had a round. `true`: it was the last one, so the bucket is to be emptied.
    /// Marks of a worker that is not a member count for nothing.
    pub fn mark(&self, worker: usize) -> bool {
        self.update(|members, marked| (members, marked | (bit(worker) & members)))
    }

    /// The worker takes part no more. `true`: the others had all had a round, so the bucket is to
    /// be emptied.
    pub fn leave(&self, worker: usize) -> bool {
        self.update(|members, marked| (members & !bit(worker), marked & !bit(worker)))
    }

    /// Applies a change; clears the marks and says `true` when it makes them complete.
    fn update(&self, change: impl Fn(u32, u32) -> (u32, u32)) -> bool {
        let mut word = self.word.load(Acquire);
        loop {
            let (members, marked) = change(word as u32, (word >> 32) as u32);
            let complete = marked != 0 && marked == members;
            let marked = if complete { 0 } else { marked };
            let next = u64::from(marked) << 32 | u64::from(members);
            if next == word && !complete {
                return false;
            }
            match self.word.compare_exchange_weak(word, next, AcqRel, Acquire) {
                Ok(_) => return complete,
                Err(now) => word = now,
            }
        }
    }
}

fn bit(worker: usize) -> u32 {
    assert!(worker < WORKERS_MAX, "worker {worker} of at most {WORKERS_MAX}");
    1 << worker
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_resets() {
        let rounds = Rounds::new();
        rounds.join(0);
        assert!(rounds.mark(0) && rounds.mark(0));
        rounds.join(31);
        assert_eq!([rounds.mark(0), rounds.mark(0), rounds.mark(31)], [false, false, true]);
        assert_eq!([rounds.mark(31), rounds.mark(0)], [false, true]);
    }

    #[test]
    fn who_parks_holds_nobody_up() {
        let rounds = Rounds::new();
        rounds.join(0);
        rounds.join(1);
        assert!(!rounds.mark(0));
        assert!(rounds.leave(1));
        assert!(!rounds.mark(1));
        assert!(rounds.mark(0));
        assert!(!rounds.leave(0));
    }
}
