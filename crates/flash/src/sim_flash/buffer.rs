//! The write buffer: pages on their way to the dies, and the writes that wait for room.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A write that waits for room in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockedWrite {
    /// Time at which the controller has processed the write, in ns.
    pub(super) at: u64,
    pub(super) pages: u32,
    pub(super) owner: usize,
    pub(super) ticket: u32,
}

/// The pages in a device's write buffer: `open ≤ held ≤ capacity`.
#[derive(Debug)]
pub(super) struct WriteBuffer {
    /// Capacity of the write buffer, in pages.
    capacity: usize,
    /// Pages in the buffer: open ones, and those that were handed to dies and are not programmed
    /// yet.
    held: usize,
    /// Pages in the buffer that were not handed to a die yet.
    open: usize,
    last_write: u64,
    blocked: VecDeque<BlockedWrite>,
    /// Blocked writes that were admitted: the time of acknowledgement in ns and the ticket, by
    /// owner.
    admitted: Vec<Vec<(u64, u32)>>,
}

impl WriteBuffer {
    pub(super) fn new(capacity: usize) -> Self {
        WriteBuffer {
            capacity,
            held: 0,
            open: 0,
            last_write: 0,
            blocked: VecDeque::new(),
            admitted: Vec::new(),
        }
    }

    /// Adds an owner, which is a queue of at most `depth` requests; returns the owner's number.
    pub(super) fn add_owner(&mut self, depth: usize) -> usize {
        self.admitted.push(Vec::with_capacity(depth));
        self.blocked.reserve(self.admitted.len() * depth);
        self.admitted.len() - 1
    }

    /// Offers a write at `now`. Returns `false` if the write is blocked, behind earlier ones.
    pub(super) fn offer(&mut self, now: u64, write: BlockedWrite) -> bool {
        self.last_write = now;
        let fits = self.blocked.is_empty() && self.has_room(write);
        if !fits {
            self.blocked.push_back(write);
        }
        fits
    }

    fn has_room(&self, write: BlockedWrite) -> bool {
        self.held + write.pages as usize <= self.capacity
    }

    /// Puts pages into the buffer, which has room.
    pub(super) fn put(&mut self, pages: u32) {
        self.held += pages as usize;
        self.open += pages as usize;
    }

    /// Hands `pages` open pages to a die. The pages are padded to a program of `program` pages,
    /// which leaves the buffer like a full one.
    pub(super) fn hand_over(&mut self, pages: usize, program: usize) {
        self.open -= pages;
        self.held += program - pages;
    }

    /// Removes this many pages, which were programmed.
    pub(super) fn free(&mut self, pages: usize) {
        self.held -= pages;
    }

    /// Removes and returns the first blocked write, if the write buffer has room for it.
    pub(super) fn unblock(&mut self) -> Option<BlockedWrite> {
        let first = *self.blocked.front()?;
        if !self.has_room(first) {
            return None;
        }
        self.blocked.pop_front()
    }

    /// Records that a blocked write of `owner` is acknowledged at `at`, in ns.
    pub(super) fn acknowledge(&mut self, owner: usize, at: u64, ticket: u32) {
        self.admitted[owner].push((at, ticket));
    }

    /// Takes the blocked writes of this owner that were admitted: the time of acknowledgement and
    /// the ticket of each.
    pub(super) fn take_admitted(&mut self, owner: usize) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.admitted[owner].drain(..)
    }

    /// Returns the earliest acknowledgement of an admitted write of this owner, in ns; `None` if
    /// there is no such write.
    pub(super) fn next_admitted(&self, owner: usize) -> Option<u64> {
        self.admitted[owner].iter().map(|&(at, _)| at).min()
    }

    /// Returns the number of pages that were not handed to a die yet.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns `true` if more than this share of the buffer is in use.
    pub(super) fn is_above(&self, share: f64) -> bool {
        self.held as f64 > share * self.capacity as f64
    }

    /// Returns the time at which open pages have waited for `idle` without a further write, in ns;
    /// `None` if there are none.
    pub(super) fn flush_at(&self, idle: u64) -> Option<u64> {
        (self.open > 0).then(|| self.last_write + idle)
    }
}
