//! The port to storage.

use alloc::vec::Vec;

use crate::{Buf, Command, Instant, Slot, Status};

/// The properties of a device that requests can observe. Fixed for the life of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of logical blocks of [`BLOCK_BYTES`](crate::BLOCK_BYTES).
    pub blocks: u64,
    /// The device's granularity in bytes (a power of two, at least 512). Requests that are not
    /// multiples of it are served, but slower.
    pub physical_block_bytes: u32,
    /// Maximum number of blocks of a [`Command::WriteAtomic`]; zero if unsupported.
    pub atomic_blocks_max: u32,
    /// Maximum number of pages of a [`Command::Commit`]; zero if unsupported.
    pub commit_pages_max: u16,
    /// `true` if a plain write of at most `atomic_blocks_max` blocks is whole as well: a read beside
    /// it, and a crash, sees all of it or nothing. Unlike an atomic write, it need not be durable.
    pub writes_whole: bool,
    /// `true` if a power failure may lose acknowledged writes that no flush followed.
    pub volatile_cache: bool,
    /// `true` if writes are refused.
    pub read_only: bool,
}

impl Geometry {
    /// Creates the geometry of a device without atomic writes, commits and a volatile cache, that
    /// can be written.
    pub const fn new(blocks: u64, physical_block_bytes: u32) -> Geometry {
        Geometry {
            blocks,
            physical_block_bytes,
            atomic_blocks_max: 0,
            commit_pages_max: 0,
            writes_whole: false,
            volatile_cache: false,
            read_only: false,
        }
    }
}

/// A command for the device. Its range counts blocks from the start of the device, not of a
/// namespace.
#[derive(Debug)]
pub struct Submission {
    /// The request's slot, which its [`Completion`] returns.
    pub slot: Slot,
    /// The command to carry out.
    pub command: Command,
    /// The payload, or room for the reply: at least [`Command::buffer_bytes`]. `None` if the
    /// command needs no buffer.
    pub buf: Option<Buf>,
}

/// The end of a command.
#[derive(Debug)]
pub struct Completion {
    /// The slot of the submission that has ended.
    pub slot: Slot,
    /// The status of the command.
    pub status: Status,
    /// The submission's buffer, on errors too. After a successful read, its first
    /// [`Command::reply_bytes`] bytes are the data.
    pub buf: Option<Buf>,
}

/// A worker's queue to a device. Several queues, each with its worker, may lead to the same
/// storage. Each queue sees the acknowledged writes of all queues.
///
/// Contract: a submission is answered by exactly one completion. Ranges were checked to lie within
/// [`Geometry::blocks`]. `submit` is called at most [`room`](Device::room) times before the next
/// `poll`. Requests in flight at the same time may be carried out in any order.
pub trait Device {
    /// Returns the properties of the device.
    fn geometry(&self) -> Geometry;

    /// Returns the number of submissions that the queue accepts now.
    fn room(&self) -> usize;

    /// Returns `true` if the device runs the command alone in its range of blocks, and delays all
    /// other requests to the range until the command has ended.
    fn excludes(&self, command: Command) -> bool {
        matches!(command, Command::WriteAtomic(_) | Command::CompareAndWrite(_))
    }

    /// Queues a command for the device. Never blocks, never completes the command inside the call.
    fn submit(&mut self, now: Instant, submission: Submission);

    /// Starts all commands submitted since the last call, once per turn of the worker.
    fn kick(&mut self, now: Instant);

    /// Appends the ended commands to `done`.
    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>);

    /// Returns the time of the next poll if the ring has no event before: `None` for never, an
    /// instant not after `now` for at once.
    fn wake_at(&self) -> Option<Instant>;
}

/// Implements the methods of [`Device`] for a type with a device inside.
/// `each!(self, device => expression)` is a macro that evaluates an expression on that device.
#[macro_export]
macro_rules! device_by {
    ($each:ident) => {
        fn geometry(&self) -> $crate::Geometry {
            $each!(self, device => device.geometry())
        }

        fn room(&self) -> usize {
            $each!(self, device => device.room())
        }

        fn excludes(&self, command: $crate::Command) -> bool {
            $each!(self, device => device.excludes(command))
        }

        fn submit(&mut self, now: $crate::Instant, submission: $crate::Submission) {
            $each!(self, device => device.submit(now, submission));
        }

        fn kick(&mut self, now: $crate::Instant) {
            $each!(self, device => device.kick(now));
        }

        fn poll(&mut self, now: $crate::Instant, done: &mut Vec<$crate::Completion>) {
            $each!(self, device => device.poll(now, done));
        }

        fn wake_at(&self) -> Option<$crate::Instant> {
            $each!(self, device => device.wake_at())
        }
    };
}
