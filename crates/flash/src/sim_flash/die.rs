//! One die: what it is doing, and the program and erase work that it owes.

use alloc::collections::VecDeque;

/// A die serves one thing at a time. Reads go before owed work, but not into the middle of a slice
/// of it.
///
/// `done ≤ started ≤ owed`; `releases` ascends.
#[derive(Debug)]
pub(super) struct Die {
    /// When what it is doing, and every read that waits for it, will have ended, in ns.
    pub(super) busy_until: u64,
    /// Work that was ever given to it, in ns of its time.
    owed: u64,
    /// Work that ever began.
    started: u64,
    /// Work that ever ended.
    done: u64,
    /// Whether a timer will look at it when it is free.
    pub(super) is_armed: bool,
    /// Pages to program until the next block must be erased.
    pub(super) pages_to_erase: f64,
    /// Points of `done` at which one program's pages leave the write buffer.
    releases: VecDeque<u64>,
}

impl Die {
    pub(super) fn new(programs_max: usize, pages_to_erase: f64) -> Self {
        Die {
            busy_until: 0,
            owed: 0,
            started: 0,
            done: 0,
            is_armed: false,
            pages_to_erase,
            releases: VecDeque::with_capacity(programs_max),
        }
    }

    /// Work that has not begun, in ns.
    pub(super) fn debt(&self) -> u64 {
        self.owed - self.started
    }

    /// Takes a program of buffered pages and the `garbage` work that it causes, in ns.
    pub(super) fn owe(&mut self, program: u64, garbage: u64) {
        self.releases.push_back(self.owed + program);
        self.owed += program + garbage;
    }

    /// Begins `slice` ns of what it owes, at `now` or when it is free; says when that ends.
    pub(super) fn begin(&mut self, now: u64, slice: u64) -> u64 {
        assert!(slice <= self.debt(), "a die works on what it owes");
        self.started += slice;
        self.busy_until = self.busy_until.max(now) + slice;
        self.busy_until
    }

    /// Ends `slice` ns of work; says how many programs ended with it.
    pub(super) fn end(&mut self, slice: u64) -> usize {
        self.done += slice;
        assert!(self.done <= self.started, "what ends has begun");
        let mut programs = 0;
        while self.releases.front().is_some_and(|&at| at <= self.done) {
            self.releases.pop_front();
            programs += 1;
        }
        programs
    }
}
