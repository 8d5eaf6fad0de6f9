//! Counts of reads and writes, for the health log.

use core::sync::atomic::{AtomicU64, Ordering};

/// The counts of a queue. One worker adds to them, and any thread may read them.
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

    /// Counts a failure of the device.
    pub(super) fn add_media_error(&self) {
        add(&self.media_errors, 1);
    }

    /// Creates counts that start at `sum`.
    pub(super) fn of(sum: Sum) -> Counts {
        Counts {
            reads: AtomicU64::new(sum.reads),
            writes: AtomicU64::new(sum.writes),
            blocks_read: AtomicU64::new(sum.blocks_read),
            blocks_written: AtomicU64::new(sum.blocks_written),
            media_errors: AtomicU64::new(sum.media_errors),
        }
    }

    pub(super) fn sum(&self) -> Sum {
        Sum {
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
pub struct Sum {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Blocks of 512 bytes read.
    pub blocks_read: u64,
    /// Blocks of 512 bytes written.
    pub blocks_written: u64,
    /// Commands that the device failed.
    pub media_errors: u64,
}

impl Sum {
    /// Adds other counts to these.
    pub(super) fn add(&mut self, other: Sum) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.blocks_read += other.blocks_read;
        self.blocks_written += other.blocks_written;
        self.media_errors += other.media_errors;
    }
}
