//! Stalls of threads: times in which other programs, the kernel, or the host of a virtual machine
//! keep a thread from running.
//!
//! Deliberately left out: the work of a thread (`worker.rs`, `stage.rs`).

use flash::Rng;

use super::source::unit;

/// The frequency and the length of the stalls of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallPattern {
    /// The mean number of stalls a second, at random and independent of each other.
    pub a_second: f64,
    /// The shortest stall, in nanoseconds; all lengths up to the longest are equally likely.
    pub shortest: u64,
    /// The longest stall, in nanoseconds.
    pub longest: u64,
}

impl StallPattern {
    /// The stalls of a thread that always runs.
    pub const NEVER: StallPattern = StallPattern { a_second: 0.0, shortest: 0, longest: 0 };
}

/// The stalls of one thread. Times are asked for in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    how: StallPattern,
    chance: Rng,
    /// The beginning and the end of the present or next stall, in nanoseconds: `from < until`.
    from: u64,
    until: u64,
}

impl Stalls {
    pub(crate) fn new(how: StallPattern, seed: u64) -> Stalls {
        let mut stalls = Stalls { how, chance: Rng::new(seed), from: 0, until: 0 };
        stalls.draw();
        stalls
    }

    fn draw(&mut self) {
        let StallPattern { a_second, shortest, longest } = self.how;
        if a_second <= 0.0 {
            (self.from, self.until) = (u64::MAX - 1, u64::MAX);
            return;
        }
        let gap = -libm::log(1.0 - unit(&mut self.chance)) * 1e9 / a_second;
        self.from = self.until + gap as u64;
        self.until = self.from + self.chance.within(shortest..=longest).max(1);
    }

    /// Returns the time, in nanoseconds, at which a thread runs that becomes runnable at `now`: the
    /// end of a stall, or `now`.
    pub(crate) fn resume(&mut self, now: u64) -> u64 {
        while self.until <= now {
            self.draw();
        }
        self.delayed(now)
    }

    /// Returns the time, in nanoseconds, at which a thread runs that becomes runnable at `at`, as
    /// the present or next stall decides. Later stalls are not looked at.
    pub(crate) fn delayed(&self, at: u64) -> u64 {
        if (self.from..self.until).contains(&at) { self.until } else { at }
    }

    /// Returns the time, in nanoseconds, at which work ends that begins at `now` and takes `took`
    /// nanoseconds of running time, stalls included.
    pub(crate) fn done(&mut self, now: u64, took: u64) -> u64 {
        let mut done = self.resume(now) + took;
        while self.from < done {
            done += self.until - self.from;
            self.draw();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFTEN: StallPattern =
        StallPattern { a_second: 100.0, shortest: 1_000_000, longest: 3_000_000 };

    #[test]
    fn stalls_are_as_often_and_as_long_as_asked_for() {
        let mut stalls = Stalls::new(OFTEN, 5);
        let (mut count, mut stalled, mut now) = (0, 0, 0);
        while now < 100_000_000_000 {
            now = stalls.from;
            let resumed = stalls.resume(now);
            assert!((1_000_000..=3_000_000).contains(&(resumed - now)));
            assert_eq!(stalls.delayed(resumed - 1), resumed);
            (count, stalled, now) = (count + 1, stalled + resumed - now, resumed);
            assert_eq!(stalls.resume(now), stalls.delayed(now));
        }
        // The gaps are 10 ms on average, from the end of a stall to the begin of the next one.
        assert!((8_000..8_700).contains(&count), "{count}");
        assert!((1_950_000..2_050_000).contains(&(stalled / count)), "{stalled} of {count}");
    }

    #[test]
    fn work_that_is_interrupted_ends_later() {
        let mut stalls = Stalls::new(OFTEN, 5);
        let (from, until) = (stalls.from, stalls.until);
        assert_eq!(stalls.done(from - 20, 10), from - 10);
        assert_eq!(stalls.done(from - 10, 11), until + 1);
        assert!(stalls.from > until);
        let mut never = Stalls::new(StallPattern::NEVER, 5);
        assert_eq!([never.resume(7), never.done(7, 1_000), never.delayed(9)], [7, 1_007, 9]);
    }
}
