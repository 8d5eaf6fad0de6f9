//! The operation that a request asks for, parsed by a session.

/// Size of a logical block in bytes. Every range of the contract counts logical blocks. A device
/// with a larger granularity reports it in [`Geometry`](crate::Geometry), and serves finer requests
/// as well.
pub const BLOCK_BYTES: usize = 512;

/// Maximum data of a single request: 1 MiB, the maximum of the original (256 pages of 4 KiB).
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A request with more data than this is *large*: beside promises, the large requests of best
/// effort that are at a device at the same time are bounded.
pub const LARGE_REQUEST_BYTES: usize = 32 << 10;

/// Size in bytes of a page of a [`Command::Commit`].
pub const COMMIT_PAGE_BYTES: usize = 4096;

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// Address of the first logical block of the range.
    pub lba: u64,
    /// Number of logical blocks; never zero after parsing.
    pub blocks: u32,
}

impl Range {
    /// Returns the range of `blocks` logical blocks from `lba`.
    pub const fn new(lba: u64, blocks: u32) -> Self {
        Range { lba, blocks }
    }

    /// Returns the size of the range in bytes.
    pub const fn bytes(self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// Returns the first block after the range, or `None` on overflow.
    pub const fn end(self) -> Option<u64> {
        self.lba.checked_add(self.blocks as u64)
    }

    /// Returns the range's first `most` blocks, and the range of the remaining blocks, if there are
    /// any.
    pub const fn split(self, most: u32) -> (Range, Option<Range>) {
        match self.blocks.checked_sub(most) {
            None | Some(0) => (self, None),
            Some(left) => {
                (Range::new(self.lba, most), Some(Range::new(self.lba + most as u64, left)))
            }
        }
    }

    /// Returns `true` if the range ends within the first `blocks` blocks of a namespace or device.
    pub fn fits(self, blocks: u64) -> bool {
        self.end().is_some_and(|end| end <= blocks)
    }

    /// Returns `true` if the two ranges share a block.
    pub fn overlaps(self, other: Range) -> bool {
        let end = |range: Range| u128::from(range.lba) + u128::from(range.blocks);
        u128::from(self.lba) < end(other) && u128::from(other.lba) < end(self)
    }
}

/// The operation of a request. Ranges are in the namespace until the worker has translated them,
/// then on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Reads the blocks of the range.
    Read(Range),
    /// Writes the range; with `fua`, the data is durable before the reply.
    Write {
        /// The blocks to write.
        range: Range,
        /// Force unit access: durable before the reply.
        fua: bool,
    },
    /// Writes the range atomically: a reader, and a restart after a crash, sees all of the new data
    /// or none. The data is durable before the reply.
    WriteAtomic(Range),
    /// Compares the blocks of the range with the payload. Changes nothing.
    Compare(Range),
    /// Compares the blocks of the range with the first half of the payload. If they are equal,
    /// writes the second half to the range.
    CompareAndWrite(Range),
    /// Makes every previously acknowledged write durable.
    Flush,
    /// Discards the range's contents; reads of the range return zeroes.
    Discard(Range),
    /// Writes zeroes; with `fua`, durable before the reply.
    WriteZeroes {
        /// The blocks to zero.
        range: Range,
        /// Force unit access: durable before the reply.
        fua: bool,
    },
    /// Writes pages of [`COMMIT_PAGE_BYTES`] that lie anywhere on the device: a crash leaves all of
    /// them or none. Durable before the reply, and with it all that was acknowledged before the
    /// request: writes, discards and zeroes. Another request sees each page old or new.
    ///
    /// The payload is one page that begins with the numbers of the pages, each a little-endian
    /// `u64`, followed by the pages' data in the same order. Nothing is written if the count is
    /// zero ([`BadLength`](crate::Status::BadLength)) or above
    /// [`commit_pages_max`](crate::Geometry::commit_pages_max)
    /// ([`AtomicTooLarge`](crate::Status::AtomicTooLarge)), a page is not on the device
    /// ([`OutOfRange`](crate::Status::OutOfRange)), or two numbers are equal
    /// ([`Invalid`](crate::Status::Invalid)). No protocol carries it.
    ///
    /// A commit that has succeeded is durable, and so is all that had ended before it was
    /// submitted: it is a flush as well.
    Commit {
        /// Number of pages, at most 255.
        pages: u16,
    },
    /// Orders a stream: all earlier requests of the stream end before any later one starts. Never
    /// reaches a device.
    Barrier,
}

/// The kind of a command, without its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Returns or compares data.
    Read,
    /// The request changes data.
    Write,
    /// Reads, then may write data: the cost of a compare-and-write for a device.
    Exchange,
    /// A command that neither reads nor changes data.
    Other,
}

impl Command {
    /// Returns the kind of the command: read, write or other. A compare-and-write is a write.
    pub const fn kind(self) -> IoKind {
        match self {
            Command::Read(_) | Command::Compare(_) => IoKind::Read,
            Command::Flush | Command::Barrier => IoKind::Other,
            Command::Write { .. }
            | Command::WriteAtomic(_)
            | Command::CompareAndWrite(_)
            | Command::Discard(_)
            | Command::WriteZeroes { .. }
            | Command::Commit { .. } => IoKind::Write,
        }
    }

    /// Returns the kind of work for a device. Differs from [`kind`](Command::kind) for a
    /// compare-and-write, which both reads and writes.
    pub const fn work(self) -> IoKind {
        match self {
            Command::CompareAndWrite(_) => IoKind::Exchange,
            other => other.kind(),
        }
    }

    /// Returns the number of bytes that the device's work covers.
    pub fn work_bytes(self) -> usize {
        match self {
            Command::Commit { pages } => usize::from(pages) * COMMIT_PAGE_BYTES,
            _ => self.range().map_or(0, |range| range.bytes()),
        }
    }

    /// Returns the command's range; `None` for a flush, a barrier and a commit, whose pages are
    /// named in its payload.
    pub const fn range(self) -> Option<Range> {
        match self {
            Command::Read(range)
            | Command::Write { range, .. }
            | Command::WriteAtomic(range)
            | Command::Compare(range)
            | Command::CompareAndWrite(range)
            | Command::Discard(range)
            | Command::WriteZeroes { range, .. } => Some(range),
            Command::Flush | Command::Barrier | Command::Commit { .. } => None,
        }
    }

    /// Returns the same command with another first block. For example, translates a range of a
    /// namespace into a range of the device.
    pub fn with_lba(self, lba: u64) -> Command {
        let mut moved = self;
        match &mut moved {
            Command::Read(range)
            | Command::Write { range, .. }
            | Command::WriteAtomic(range)
            | Command::Compare(range)
            | Command::CompareAndWrite(range)
            | Command::Discard(range)
            | Command::WriteZeroes { range, .. } => range.lba = lba,
            Command::Flush | Command::Barrier | Command::Commit { .. } => {}
        }
        moved
    }

    /// Returns the command on the first `most` blocks of its range, and the command on the others,
    /// if there are any. To be called for discards and writes of zeroes, which have no payload to
    /// share; other commands stay whole.
    pub const fn split(self, most: u32) -> (Command, Option<Command>) {
        match self {
            Command::Discard(range) => match range.split(most) {
                (first, Some(rest)) => (Command::Discard(first), Some(Command::Discard(rest))),
                (_, None) => (self, None),
            },
            Command::WriteZeroes { range, fua } => match range.split(most) {
                (range, Some(rest)) => (
                    Command::WriteZeroes { range, fua },
                    Some(Command::WriteZeroes { range: rest, fua }),
                ),
                (_, None) => (self, None),
            },
            _ => (self, None),
        }
    }

    /// Returns the size of the request's payload in bytes.
    pub const fn payload_bytes(self) -> usize {
        match self {
            Command::Write { range, .. }
            | Command::WriteAtomic(range)
            | Command::Compare(range) => range.bytes(),
            Command::CompareAndWrite(range) => 2 * range.bytes(),
            Command::Commit { pages } => (1 + pages as usize) * COMMIT_PAGE_BYTES,
            _ => 0,
        }
    }

    /// Returns the size of the reply's body in bytes if the command succeeds.
    pub const fn reply_bytes(self) -> usize {
        match self {
            Command::Read(range) => range.bytes(),
            _ => 0,
        }
    }

    /// Returns the size of the buffer that the command needs in flight: its payload, or room for
    /// its reply.
    pub const fn buffer_bytes(self) -> usize {
        self.payload_bytes() + self.reply_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_at_the_edge_of_the_address_space() {
        assert!(Range::new(6, 2).fits(8));
        assert!(!Range::new(7, 2).fits(8));
        assert!(!Range::new(u64::MAX, 1).fits(u64::MAX));
        assert_eq!(Range::new(u64::MAX, 1).end(), None);
        assert!(Range::new(0, 4).overlaps(Range::new(3, 1)));
        assert!(!Range::new(0, 4).overlaps(Range::new(4, 1)));
        assert!(Range::new(u64::MAX, 2).overlaps(Range::new(u64::MAX - 1, 2)));
    }

    #[test]
    fn buffers_hold_payload_or_reply() {
        let range = Range::new(0, 8);
        assert_eq!(Command::Read(range).buffer_bytes(), 4096);
        assert_eq!(Command::Write { range, fua: false }.buffer_bytes(), 4096);
        assert_eq!(Command::CompareAndWrite(range).buffer_bytes(), 8192);
        assert_eq!(Command::Discard(range).buffer_bytes(), 0);
        assert_eq!(Command::Commit { pages: 255 }.buffer_bytes(), REQUEST_BYTES_MAX);
        assert_eq!(Command::Commit { pages: 2 }.work_bytes(), 2 * 4096);
        assert_eq!(Command::Flush.with_lba(9), Command::Flush);
        assert_eq!(Command::Read(range).with_lba(9), Command::Read(Range::new(9, 8)));
    }

    #[test]
    fn commands_without_payload_are_split() {
        let zeroes =
            |lba, blocks| Command::WriteZeroes { range: Range::new(lba, blocks), fua: true };
        assert_eq!(zeroes(5, 7).split(3), (zeroes(5, 3), Some(zeroes(8, 4))));
        assert_eq!(zeroes(5, 3).split(3), (zeroes(5, 3), None));
        let discard = |lba, blocks| Command::Discard(Range::new(lba, blocks));
        assert_eq!(discard(0, u32::MAX).split(1), (discard(0, 1), Some(discard(1, u32::MAX - 1))));
        let write = Command::Write { range: Range::new(0, 8), fua: false };
        assert_eq!(write.split(1), (write, None));
    }
}
