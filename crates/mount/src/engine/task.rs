//! Device commands by their purpose, and waiting requests, as the parts of the engine refer to
//! them.

use contigfs::{Chore, Ino};
use contract::{BLOCK_BYTES, Range, Slot};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;

/// The purpose of a command at the device.
#[derive(Debug)]
pub(super) enum Task {
    /// Reads a part of the range that a read request asks for.
    Read(Slot, usize),
    /// Reads a page of which a write changes a part.
    Edge(Slot, EdgePage),
    /// Writes the data of a write request.
    Write(Slot),
    /// Flushes all writes up to one of them for a sync that has nothing to commit.
    Fsync { unique: u64, at: Ino, written: u64 },
    /// Carries out a commit, a chore or a move of the file system itself.
    Upkeep(UpkeepCommand),
}

/// The page at an end of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EdgePage {
    /// The page in which the write begins.
    Head,
    /// The page in which the write ends.
    Tail,
    /// The page in which the write begins and ends.
    Both,
}

/// The purpose of a device command that serves the file system itself.
#[derive(Debug)]
pub(super) enum UpkeepCommand {
    /// Writes the pages of the commit with this number. All writes up to `written` have ended
    /// before, and are durable with it.
    Commit { number: u64, written: u64 },
    /// Discards a part of the range that a chore discards.
    Discard(u64),
    /// Reads the page in which a chore writes zeroes.
    Zero(Chore),
    /// Writes the page in which a chore has written zeroes.
    Zeroed(u64),
    /// Flushes the discards and zeroes of chores, all writes up to `written`.
    Cover { written: u64 },
    /// Reads a part of a file that moves.
    Copy,
    /// Writes a part of a file that moves.
    Copied,
    /// Flushes a file that has moved.
    Move,
    /// Flushes the device for the last time before the volume is closed.
    Last,
}

/// A request, or a step of one, that waits for an event or for other requests of the same file.
#[derive(Debug)]
pub(super) enum WaitingRequest {
    /// A request that is carried out again from its message.
    Request(Box<[u8]>),
    /// A read request that waits for its turn.
    Read(Slot),
    /// A write request that waits for its turn.
    Write(Slot),
    /// A sync of a file: a commit of its attributes, or a flush.
    Fsync { unique: u64, at: Ino },
    /// A move of a file's data.
    Move,
}

/// Returns the blocks of whole pages from a byte of the device on.
pub(super) fn pages(at: u64, bytes: usize) -> Range {
    debug_assert!(at.is_multiple_of(PAGE_BYTES as u64) && bytes.is_multiple_of(PAGE_BYTES));
    Range::new(at / BLOCK_BYTES as u64, (bytes / BLOCK_BYTES) as u32)
}
