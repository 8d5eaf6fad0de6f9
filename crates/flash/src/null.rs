//! A device that stores no data, used to measure the overhead of the software above a device.

use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, Command, Completion, Device, Geometry, Instant, REQUEST_BYTES_MAX, Status,
    Submission,
};

use crate::inbox::{Inbox, assert_valid};

/// A queue to a device that keeps nothing: reads return zeroes, writes vanish, and every request
/// succeeds at the next poll, except compares and commits, which are unsupported. Each queue is a
/// device of its own, since there is nothing to share.
///
/// A read zeroes the part of its buffer that may hold a tenant's data. So a reused buffer never
/// shows one tenant's data to another, and writes need no wiping.
#[derive(Debug)]
pub struct Null {
    blocks: u64,
    inbox: Inbox,
}

impl Null {
    /// The default number of requests in flight.
    pub const DEPTH: usize = 1024;

    /// Returns a queue of [`Null::DEPTH`] requests to a device of `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        Self::with_depth(blocks, Self::DEPTH)
    }

    /// Returns a queue of `depth` requests to a device of `blocks` blocks.
    pub fn with_depth(blocks: u64, depth: usize) -> Self {
        Null { blocks, inbox: Inbox::new(depth) }
    }
}

impl Device for Null {
    fn geometry(&self) -> Geometry {
        Geometry {
            atomic_blocks_max: (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32,
            ..Geometry::new(self.blocks, BLOCK_BYTES as u32)
        }
    }

    fn room(&self) -> usize {
        self.inbox.room()
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        assert_valid(&submission, self.blocks);
        self.inbox.push(submission);
    }

    fn kick(&mut self, _now: Instant) {
        self.inbox.kick();
    }

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        while let Some(Submission { slot, command, mut buf }) = self.inbox.pop() {
            if let Some(buf) = &mut buf {
                buf.zero_prefix(command.reply_bytes());
            }
            let status = match command {
                Command::Compare(_) | Command::CompareAndWrite(_) | Command::Commit { .. } => {
                    Status::Unsupported
                }
                Command::Barrier => unreachable!("a barrier never reaches a device"),
                _ => Status::Ok,
            };
            done.push(Completion { slot, status, buf });
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.inbox.has_started().then_some(Instant::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, HeapBench};
    use contract::{Range, SlotTable};

    #[test]
    fn conforms() {
        let mut heap = HeapBench::new(|blocks| [Null::new(blocks), Null::new(blocks)]);
        heap.keeps_data = false;
        conformance::run(&mut heap);
    }

    #[test]
    fn a_read_sees_nothing_of_what_was_written_with_its_buffer() {
        let mut slots = SlotTable::new(2);
        let mut null = Null::new(8);
        let mut buf = conformance::leak_buf(4096, 0);
        buf.bytes_mut().fill(7);
        let write = Command::Write { range: Range::new(0, 8), fua: false };
        let short = Command::Read(Range::new(0, 2));
        for command in [write, short, Command::Read(Range::new(0, 8))] {
            let slot = slots.insert(()).unwrap();
            null.submit(Instant::ZERO, Submission { slot, command, buf: Some(buf) });
            null.kick(Instant::ZERO);
            let mut done = Vec::new();
            null.poll(Instant::ZERO, &mut done);
            slots.remove(slot);
            buf = done.pop().unwrap().buf.unwrap();
            let told = &buf.bytes()[..command.reply_bytes()];
            assert!(told.iter().all(|&byte| byte == 0), "{command:?}");
        }
    }

    #[test]
    #[should_panic(expected = "does not lie within")]
    fn a_range_that_nobody_checked_is_caught() {
        let slot = SlotTable::new(1).insert(()).unwrap();
        let command = Command::Discard(Range::new(8, 1));
        Null::new(8).submit(Instant::ZERO, Submission { slot, command, buf: None });
    }
}
