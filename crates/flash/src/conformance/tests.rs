//! Tests that the suite catches devices that break the contract.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::vec::Vec;

use contract::{Command, Completion, Device, Geometry, Instant, Status, Submission};

use super::*;
use crate::{MemQueue, MemVolume};

/// A way in which a device breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation {
    None,
    /// Ignores discards.
    KeepsDiscarded,
    /// Zeroes one block too many.
    ZeroesTooMuch,
    /// Writes a single block to the start of its group of eight blocks.
    SpoilsNeighbours,
    /// Leaves out the last block of a large write.
    WritesShort,
    /// Leaves the last block of a large read's buffer unchanged.
    LeavesGarbage,
    /// Keeps the buffers of all requests.
    KeepsBuffers,
    /// Completes every request twice.
    RepeatsItself,
    /// Never completes a request without a buffer, such as a flush.
    ForgetsFlushes,
    /// Fails every request without a buffer, such as a flush.
    RefusesFlushes,
    /// Always reports as much room as an idle queue has.
    AlwaysHasRoom,
    /// Carries out a compare-and-write as a plain write.
    ComparesNothing,
}

const VIOLATIONS: [Violation; 11] = [
    Violation::KeepsDiscarded,
    Violation::ZeroesTooMuch,
    Violation::SpoilsNeighbours,
    Violation::WritesShort,
    Violation::LeavesGarbage,
    Violation::KeepsBuffers,
    Violation::RepeatsItself,
    Violation::ForgetsFlushes,
    Violation::RefusesFlushes,
    Violation::AlwaysHasRoom,
    Violation::ComparesNothing,
];

struct Violator {
    inner: MemQueue,
    violation: Violation,
    depth: usize,
}

impl Device for Violator {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn room(&self) -> usize {
        if self.violation == Violation::AlwaysHasRoom { self.depth } else { self.inner.room() }
    }

    fn submit(&mut self, now: Instant, mut submission: Submission) {
        let command = &mut submission.command;
        match (self.violation, &mut *command) {
            (Violation::KeepsDiscarded, Command::Discard(_)) => *command = Command::Flush,
            (Violation::ZeroesTooMuch, Command::WriteZeroes { range, .. })
                if range.lba + u64::from(range.blocks) < BLOCKS =>
            {
                range.blocks += 1;
            }
            (Violation::SpoilsNeighbours, Command::Write { range, .. }) if range.blocks == 1 => {
                range.lba = range.lba / 8 * 8;
            }
            (Violation::WritesShort, Command::Write { range, .. }) if range.blocks > 1000 => {
                range.blocks -= 1;
            }
            (Violation::LeavesGarbage, Command::Read(range)) if range.blocks > 1000 => {
                range.blocks -= 1;
            }
            (Violation::ComparesNothing, Command::CompareAndWrite(range)) => {
                *command = Command::Write { range: *range, fua: false };
            }
            _ => {}
        }
        self.inner.submit(now, submission);
    }

    fn kick(&mut self, now: Instant) {
        self.inner.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let mut honest = Vec::new();
        self.inner.poll(now, &mut honest);
        for mut completion in honest {
            let is_flush = completion.buf.is_none();
            match self.violation {
                Violation::KeepsBuffers => completion.buf = None,
                Violation::ForgetsFlushes if is_flush => continue,
                Violation::RefusesFlushes if is_flush => completion.status = Status::Internal,
                Violation::RepeatsItself => {
                    let Completion { slot, status, .. } = completion;
                    done.push(completion);
                    completion = Completion { slot, status, buf: None };
                }
                _ => {}
            }
            done.push(completion);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
}

/// Returns the suite's complaint about a device that breaks the contract in this way; `None` if the
/// suite does not notice.
fn complaint(violation: Violation) -> Option<String> {
    let mut heap = HeapBench::new(|blocks| {
        let volume = MemVolume::new(blocks);
        [0, 1].map(|_| {
            let inner = volume.open_queue_of(64);
            Violator { inner, violation, depth: 64 }
        })
    });
    let result = catch_unwind(AssertUnwindSafe(|| run(&mut heap)));
    let payload = result.err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| payload.downcast_ref::<&str>().copied().unwrap_or("?").into()))
}

#[test]
fn the_honest_device_passes() {
    assert_eq!(complaint(Violation::None), None);
}

#[test]
fn every_lie_is_caught() {
    for violation in VIOLATIONS {
        assert!(complaint(violation).is_some(), "{violation:?} was not caught");
    }
}
