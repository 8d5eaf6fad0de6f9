//! The port to storage.

use alloc::vec::Vec;

use crate::{Buf, Command, Instant, Slot, Status};

/// What a device is, as far as requests can tell. Fixed for the life of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical blocks of [`BLOCK_BYTES`](crate::BLOCK_BYTES).
    pub blocks: u64,
    /// The device's own granularity in bytes (a power of two, at least 512): requests that are not
    /// multiples of it are served, but slower.
    pub physical_block_bytes: u32,
    /// The most blocks that [`Command::WriteAtomic`] may carry; zero when it serves none.
    pub atomic_blocks_max: u32,
    /// Whether acknowledged writes may be lost in a power failure until a flush.
    pub volatile_cache: bool,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// A command on its way to the device. The range is the device's own.
#[derive(Debug)]
pub struct Submission {
    /// The request's name; comes back in its [`Completion`].
    pub slot: Slot,
    /// What to do.
    pub command: Command,
    /// The payload, or room for the reply: at least [`Command::buffer_bytes`]; `None` when the
    /// command needs none.
    pub buf: Option<Buf>,
}

/// A command that has ended, one way or another.
#[derive(Debug)]
pub struct Completion {
    /// The request's name.
    pub slot: Slot,
    /// How it ended.
    pub status: Status,
    /// The submission's buffer, on errors too. After a successful read its first
    /// [`Command::reply_bytes`] bytes are the data.
    pub buf: Option<Buf>,
}

/// One worker's queue to a device. Several queues, each on its worker, may lead to the same
/// storage; they see each other's acknowledged writes.
///
/// Contract: a submission is answered by exactly one completion. Ranges were checked to lie within
/// [`Geometry::blocks`]; `submit` is called at most [`room`](Device::room) times before the next
/// `poll`. Requests in flight at the same time may be carried out in any order.
pub trait Device {
    /// What the device is.
    fn geometry(&self) -> Geometry;

    /// How many submissions it takes now.
    fn room(&self) -> usize;

    /// Whether it keeps everybody else off the command's range while it carries it out: with locks
    /// that are this process's.
    fn excludes(&self, command: Command) -> bool {
        matches!(command, Command::WriteAtomic(_) | Command::CompareAndWrite(_))
    }

    /// Takes a command. Never blocks, never completes inside the call.
    fn submit(&mut self, now: Instant, submission: Submission);

    /// Starts what was submitted: one doorbell a turn.
    fn kick(&mut self, now: Instant);

    /// Appends what has ended to `done`.
    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>);

    /// When it wants to be polled next without an event of the ring: `None` for never, an instant
    /// not after `now` for at once.
    fn wake_at(&self) -> Option<Instant>;
}
