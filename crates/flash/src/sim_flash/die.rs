//! A flash die: its current operation, and the program and erase work that it owes.

use alloc::collections::VecDeque;

/// A die serves one operation at a time. Reads go before owed work, but never interrupt a slice of
/// work.
///
/// `done ≤ started ≤ owed`; `releases` ascends.
#[derive(Debug)]
pub(super) struct Die {
    /// Time in nanoseconds at which the die has finished its current operation, and all reads that
    /// wait for that operation.
    pub(super) busy_until: u64,
    /// Sum of the durations of all programs and erases that the die was given, in nanoseconds.
    owed: u64,
    /// Total work that has begun, in ns.
    started: u64,
    /// Total work that has ended, in ns.
    done: u64,
    /// `true` if a timer is set for the time at which the die becomes free.
    pub(super) is_armed: bool,
    /// Pages to program until the next erase of a block.
    pub(super) pages_to_erase: f64,
    /// Values of `done` at which a program's pages leave the write buffer.
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

    /// Returns the work that has not begun, in ns.
    pub(super) fn debt(&self) -> u64 {
        self.owed - self.started
    }

    /// Adds the duration `program` of programming buffered pages, and the duration `garbage` of the
    /// garbage collection that the program causes, both in nanoseconds.
    pub(super) fn owe(&mut self, program: u64, garbage: u64) {
        self.releases.push_back(self.owed + program);
        self.owed += program + garbage;
    }

    /// Begins `slice` ns of owed work, at `now` or when the die is free; returns the end of the
    /// slice.
    pub(super) fn begin(&mut self, now: u64, slice: u64) -> u64 {
        assert!(slice <= self.debt(), "a die works on what it owes");
        self.started += slice;
        self.busy_until = self.busy_until.max(now) + slice;
        self.busy_until
    }

    /// Ends `slice` ns of work; returns the number of programs that ended with it.
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
