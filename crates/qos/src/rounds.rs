//! The round set: it finds out when every worker has had a round since the bucket was last emptied
//! (paper, Algorithm 1, line 22, and section 4.1).
//!
//! Members and marks share one word, so exactly one worker completes each cycle. A worker leaves
//! the set before it parks, so that others do not wait for it.

use crate::sync::{AcqRel, Acquire, AtomicU64};

/// The maximum number of workers that share a device.
pub const WORKERS_MAX: usize = 32;

/// The state of the cycle of all workers' rounds after one worker has marked its round as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleState {
    /// Some workers have not had their round yet.
    Running,
    /// All workers have finished their round of the cycle. Only the worker that finishes last gets
    /// this value.
    Over,
    /// No other worker takes part in rounds.
    Alone,
}

/// The round set of a device: members in the low half of the word, members that had their round in
/// the high half.
///
/// Invariant: the marked workers are members, and never all of them.
#[derive(Debug)]
pub struct Rounds {
    word: AtomicU64,
}

impl Rounds {
    /// Creates a set without members.
    #[allow(clippy::new_without_default, reason = "atomics of the model checker have no default")]
    pub fn new() -> Self {
        Rounds { word: AtomicU64::new(0) }
    }

    /// Returns the number of workers in the set.
    pub fn members(&self) -> u32 {
        (self.word.load(Acquire) as u32).count_ones()
    }

    /// Adds a worker to the set.
    pub fn join(&self, worker: usize) {
        self.update(|members, marked| (members | bit(worker), marked));
    }

    /// Marks a worker's round as done. Marks of a worker outside the set have no effect.
    pub fn mark(&self, worker: usize) -> CycleState {
        self.update(|members, marked| (members, marked | (bit(worker) & members)))
    }

    /// Removes a worker, which may complete the cycle for the others. Returns [`CycleState::Alone`]
    /// if it was the last member, or if only one member remains, which had its round.
    pub fn leave(&self, worker: usize) -> CycleState {
        self.update(|members, marked| (members & !bit(worker), marked & !bit(worker)))
    }

    /// Applies a change to the members and the marks. Clears the marks if all members have one.
    fn update(&self, change: impl Fn(u32, u32) -> (u32, u32)) -> CycleState {
        let mut word = self.word.load(Acquire);
        loop {
            let (members, marked) = change(word as u32, (word >> 32) as u32);
            let turn = match members.count_ones() {
                _ if marked != members || word == 0 => CycleState::Running,
                0 | 1 => CycleState::Alone,
                _ => CycleState::Over,
            };
            let marked = if turn == CycleState::Running { marked } else { 0 };
            let next = u64::from(marked) << 32 | u64::from(members);
            if next == word {
                return turn;
            }
            match self.word.compare_exchange_weak(word, next, AcqRel, Acquire) {
                Ok(_) => return turn,
                Err(now) => word = now,
            }
        }
    }
}

fn bit(worker: usize) -> u32 {
    assert!(worker < WORKERS_MAX, "worker {worker} of at most {WORKERS_MAX}");
    1 << worker
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_completes_the_turn() {
        use CycleState::{Alone, Over, Running};
        let rounds = Rounds::new();
        rounds.join(0);
        assert_eq!([rounds.mark(0), rounds.mark(0)], [Alone, Alone]);
        rounds.join(31);
        assert_eq!([rounds.mark(0), rounds.mark(0), rounds.mark(31)], [Running, Running, Over]);
        assert_eq!([rounds.mark(31), rounds.mark(0)], [Running, Over]);
    }

    #[test]
    fn who_parks_holds_nobody_up() {
        use CycleState::{Alone, Running};
        let rounds = Rounds::new();
        assert_eq!([rounds.mark(3), rounds.leave(3)], [Running, Running]);
        rounds.join(0);
        rounds.join(1);
        assert_eq!([rounds.mark(0), rounds.leave(1)], [Running, Alone]);
        assert_eq!([rounds.mark(1), rounds.mark(0)], [Running, Alone]);
        assert_eq!([rounds.leave(0), rounds.leave(0)], [Alone, Running]);
    }
}
