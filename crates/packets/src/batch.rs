//! The time at which requests leave: Tyche's adaptive batching as its paper states it, and our
//! rule.
//!
//! González-Férez and Bilas ("Reducing CPU and network overhead for small I/O requests in network
//! storage protocols over raw Ethernet", MSST 2015, section VI) collect small requests into one
//! message. The *batch level* says how many, and follows the throughput. [`Batch::Turn`] is our
//! rule: the requests that a turn has made ready leave at the end of the turn. The rule has no
//! delay and no parameter.

use core::time::Duration;

use contract::Instant;

/// The interval at whose ends Tyche compares throughputs.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The longest that Tyche holds back the first request of a batch.
pub const DELAY_MAX: Duration = Duration::from_millis(5);

/// Tyche's largest batch level.
pub const LEVEL_MAX: u32 = 64;

/// The number of intervals without a change of level after which Tyche tries the neighbouring
/// levels.
const STABLE_INTERVALS: u32 = 10;

/// The rule that says when requests leave.
#[derive(Clone, Debug)]
pub enum Batch {
    /// Each request leaves at once, alone.
    Never,
    /// Requests leave together at the end of the turn that made them ready.
    Turn,
    /// A batch leaves when it has this many requests, or when its first request is [`DELAY_MAX`]
    /// old.
    Static(u32),
    /// As [`Batch::Static`], but the number of requests follows the throughput.
    Adaptive(Adaptive),
}

impl Batch {
    /// Returns `true` if a batch of `requests` requests leaves now. `first` is the time at which
    /// its first request was queued; `turn_ends` says that a turn ends now.
    pub fn leaves(&self, now: Instant, requests: u32, first: Instant, turn_ends: bool) -> bool {
        let is_old = now - first >= DELAY_MAX;
        match self {
            _ if requests == 0 => false,
            Batch::Never => true,
            Batch::Turn => turn_ends,
            Batch::Static(level) => requests >= *level || is_old,
            Batch::Adaptive(adaptive) => requests >= adaptive.level() || is_old,
        }
    }

    /// Returns when a batch whose first request was queued at `first` leaves at the latest; `None`
    /// if it does not wait for a time.
    pub fn leaves_by(&self, first: Instant) -> Option<Instant> {
        match self {
            Batch::Never | Batch::Turn => None,
            Batch::Static(_) | Batch::Adaptive(_) => Some(first + DELAY_MAX),
        }
    }
}

/// The state of the search for a better level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// The level follows the throughput. The number counts the intervals without a change of level.
    Following(u32),
    /// The level is one below `level`, with which an interval completed `bytes` bytes.
    TryingLess { level: u32, bytes: u64 },
    /// The level is one above `level`, with which an interval completed `bytes` bytes.
    TryingMore { level: u32, bytes: u64 },
}

/// Tyche's batch level: how many requests leave together, adapted to the throughput.
#[derive(Clone, Debug)]
pub struct Adaptive {
    /// The number of requests with which a batch leaves: `1 ≤ level ≤ LEVEL_MAX`.
    level: u32,
    search: Search,
    /// Bytes of the requests that completed in the previous interval.
    before: u64,
    /// The time at which this interval ends.
    ends: Instant,
    /// Bytes of the requests that completed in this interval so far.
    bytes: u64,
    /// Sum of the samples of the number of outstanding requests in this interval.
    outstanding: u64,
    /// Number of samples in `outstanding`.
    samples: u64,
}

impl Adaptive {
    /// Creates the state with a level of one and a first interval that begins at `now`.
    pub fn new(now: Instant) -> Adaptive {
        Adaptive {
            level: 1,
            search: Search::Following(0),
            before: 0,
            ends: now + INTERVAL,
            bytes: 0,
            outstanding: 0,
            samples: 0,
        }
    }

    /// Returns the number of requests with which a batch leaves.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Notes a request that joins a batch, with the number of requests that are outstanding then.
    pub fn queued(&mut self, outstanding: u32) {
        self.outstanding += u64::from(outstanding);
        self.samples += 1;
    }

    /// Notes a completed request of `bytes` bytes.
    pub fn completed(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
    }

    /// Ends the interval if it is over by `now`. However long it has lasted, it counts as one.
    pub fn advance(&mut self, now: Instant) {
        if now < self.ends {
            return;
        }
        let mean = self.outstanding.checked_div(self.samples).unwrap_or(0);
        self.step(self.bytes, mean as u32);
        (self.bytes, self.outstanding, self.samples) = (0, 0, 0);
        self.ends = now + INTERVAL;
    }

    /// Processes an interval in which `bytes` bytes completed, with a mean of `outstanding`
    /// outstanding requests.
    fn step(&mut self, bytes: u64, outstanding: u32) {
        let level = self.level;
        match self.search {
            Search::Following(stable) => {
                let (new, old) = (100 * u128::from(bytes), u128::from(self.before));
                self.level = if new > 103 * old {
                    level.midpoint(outstanding.min(LEVEL_MAX))
                } else if new < 97 * old {
                    1u32.midpoint(outstanding.min(level))
                } else {
                    level
                }
                .max(1);
                let stable = if self.level == level { stable + 1 } else { 0 };
                self.search = Search::Following(stable);
                if stable == STABLE_INTERVALS {
                    self.try_neighbours(bytes);
                }
            }
            Search::TryingLess { level: from, bytes: old } if !is_better(bytes, old) => {
                self.try_more(from, old);
            }
            Search::TryingMore { level: from, bytes: old } if !is_better(bytes, old) => {
                (self.level, self.search) = (from, Search::Following(0));
            }
            // A neighbour is better: the level goes on from there.
            Search::TryingLess { .. } | Search::TryingMore { .. } => {
                self.search = Search::Following(0);
            }
        }
        self.before = bytes;
    }

    fn try_neighbours(&mut self, bytes: u64) {
        if self.level > 1 {
            self.search = Search::TryingLess { level: self.level, bytes };
            self.level -= 1;
        } else {
            self.try_more(self.level, bytes);
        }
    }

    fn try_more(&mut self, from: u32, bytes: u64) {
        if from < LEVEL_MAX {
            self.search = Search::TryingMore { level: from, bytes };
            self.level = from + 1;
        } else {
            (self.level, self.search) = (from, Search::Following(0));
        }
    }
}

/// Returns `true` if a level that completed `new` bytes is better than one that completed `old`: by
/// at least 3 %.
fn is_better(new: u64, old: u64) -> bool {
    new > old && 100 * u128::from(new) >= 103 * u128::from(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps through intervals and asserts the levels. An entry is the bytes completed, the mean
    /// number of outstanding requests, and the level afterwards.
    fn follow(adaptive: &mut Adaptive, table: &[(u64, u32, u32)]) {
        for (n, (bytes, outstanding, level)) in table.iter().enumerate() {
            adaptive.step(*bytes, *outstanding);
            assert_eq!(adaptive.level(), *level, "interval {n}");
        }
    }

    #[test]
    fn the_level_follows_the_throughput() {
        let mut adaptive = Adaptive::new(Instant::ZERO);
        follow(
            &mut adaptive,
            &[
                (1000, 40, 20),  // better: (1 + 40) / 2
                (2000, 200, 42), // better: (20 + 64) / 2
                (2060, 200, 42), // 3 % is no change
                (2061, 200, 42),
                (1990, 10, 5),  // worse: (1 + 10) / 2
                (1000, 200, 3), // worse: (1 + 5) / 2
                (10, 0, 1),     // never below one
            ],
        );
    }

    #[test]
    fn after_ten_stable_intervals_the_neighbours_are_tried() {
        let mut adaptive = Adaptive::new(Instant::ZERO);
        follow(&mut adaptive, &[(1000, 7, 4)]);
        follow(&mut adaptive, &[(1000, 7, 4); 9]);
        follow(
            &mut adaptive,
            &[
                (1000, 7, 3), // the tenth: try less
                (1020, 7, 5), // not 3 % better: try more
                (1029, 7, 4), // nor that: back
            ],
        );
        follow(&mut adaptive, &[(1030, 7, 4); 9]);
        follow(
            &mut adaptive,
            &[
                (1030, 7, 3),
                (1100, 7, 3), // better: go on from here
                (1200, 7, 5), // and follow again
            ],
        );
    }

    #[test]
    fn the_ends_have_one_neighbour() {
        let mut adaptive = Adaptive::new(Instant::ZERO);
        follow(&mut adaptive, &[(0, 1, 1); 9]);
        follow(&mut adaptive, &[(0, 1, 2), (0, 1, 1)]);
        adaptive.level = LEVEL_MAX;
        follow(&mut adaptive, &[(0, 1, LEVEL_MAX); 9]);
        follow(&mut adaptive, &[(0, 1, LEVEL_MAX - 1), (0, 1, LEVEL_MAX)]);
    }

    #[test]
    fn intervals_last_a_second_and_mean_what_was_queued() {
        let mut adaptive = Adaptive::new(Instant::ZERO);
        for outstanding in [10, 20, 30] {
            adaptive.queued(outstanding);
            adaptive.completed(4096);
        }
        adaptive.advance(Instant::ZERO + Duration::from_millis(999));
        assert_eq!(adaptive.level(), 1);
        adaptive.advance(Instant::ZERO + INTERVAL);
        assert_eq!(adaptive.level(), 10, "(1 + 20) / 2");
    }

    #[test]
    fn batches_leave_by_number_by_age_or_with_the_turn() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let adaptive = Batch::Adaptive(Adaptive { level: 4, ..Adaptive::new(at(0)) });
        // (rule, requests, age in ms, end of a turn) → leaves
        let table = [
            (&Batch::Never, 1, 0, false, true),
            (&Batch::Turn, 9, 9, false, false),
            (&Batch::Turn, 1, 0, true, true),
            (&Batch::Turn, 0, 0, true, false),
            (&Batch::Static(8), 7, 4, true, false),
            (&Batch::Static(8), 8, 0, false, true),
            (&Batch::Static(8), 1, 5, false, true),
            (&adaptive, 3, 4, true, false),
            (&adaptive, 4, 0, false, true),
        ];
        for (batch, requests, age, turn_ends, leaves) in table {
            assert_eq!(batch.leaves(at(age), requests, at(0), turn_ends), leaves, "{batch:?}");
        }
        assert_eq!(Batch::Static(8).leaves_by(at(1)), Some(at(6)));
        assert_eq!(Batch::Turn.leaves_by(at(1)), None);
    }
}
