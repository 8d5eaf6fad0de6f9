//! Counts of reads and writes, for the health log.

use core::sync::atomic::{AtomicU64, Ordering};

/// The counts of a queue's reads, writes and failures since its start. One worker adds to them, and
/// any thread may read them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    blocks_read: AtomicU64,
    blocks_written: AtomicU64,
    media_errors: AtomicU64,
}

impl Counts {
    /// Counts a successful read of this many blocks of 512 bytes.
    pub(super) fn add_read(&self, blocks: u32) {
        add(&self.reads, 1);
        add(&self.blocks_read, u64::from(blocks));
    }

    /// Counts a successful write of this many blocks of 512 bytes.
    pub(super) fn add_write(&self, blocks: u32) {
        add(&self.writes, 1);
        add(&self.blocks_written, u64::from(blocks));
    }

    /// Counts a command that the device has failed.
    pub(super) fn add_media_error(&self) {
        add(&self.media_errors, 1);
    }

    /// Creates counts that start at `sum`.
    pub(super) fn of(sum: QueueCounts) -> Counts {
        Counts {
            reads: AtomicU64::new(sum.reads),
            writes: AtomicU64::new(sum.writes),
            blocks_read: AtomicU64::new(sum.blocks_read),
            blocks_written: AtomicU64::new(sum.blocks_written),
            media_errors: AtomicU64::new(sum.media_errors),
        }
    }

    pub(super) fn sum(&self) -> QueueCounts {
        QueueCounts {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            blocks_read: self.blocks_read.load(Ordering::Relaxed),
            blocks_written: self.blocks_written.load(Ordering::Relaxed),
            media_errors: self.media_errors.load(Ordering::Relaxed),
        }
    }
}

/// Adds `more` to a counter without a locked instruction, since only one worker writes the counts
/// of a queue.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counts of one or several queues at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The number of reads that succeeded.
    pub reads: u64,
    /// The number of writes that succeeded.
    pub writes: u64,
    /// The number of blocks of 512 bytes that were read.
    pub blocks_read: u64,
    /// The number of blocks of 512 bytes that were written.
    pub blocks_written: u64,
    /// The number of commands that the device has failed.
    pub media_errors: u64,
}

impl QueueCounts {
    /// Adds each count of `other` to the count of this sum.
    pub(super) fn add(&mut self, other: QueueCounts) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.blocks_read += other.blocks_read;
        self.blocks_written += other.blocks_written;
        self.media_errors += other.media_errors;
    }
}
