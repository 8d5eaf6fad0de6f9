//! What a request asks for, once a session has parsed it.

/// Bytes of a logical block. Every range of the contract counts in these; a device whose own
/// granularity is larger says so in [`Geometry`](crate::Geometry) and serves finer requests all
/// the same.
pub const BLOCK_BYTES: usize = 512;

/// The largest data a single request may carry: 1 MiB, the largest of the original (256 pages of
/// 4 KiB).
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks; never zero past a session.
    pub blocks: u32,
}

impl Range {
    /// `blocks` logical blocks from `lba`.
    pub const fn new(lba: u64, blocks: u32) -> Self {
        Range { lba, blocks }
    }

    /// Bytes in the range.
    pub const fn bytes(self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// The first block behind the range, or `None` where that would overflow.
    pub const fn end(self) -> Option<u64> {
        self.lba.checked_add(self.blocks as u64)
    }

    /// Whether the range lies within the first `blocks` blocks.
    pub fn fits(self, blocks: u64) -> bool {
        self.end().is_some_and(|end| end <= blocks)
    }

    /// Whether the two ranges share a block.
    pub fn overlaps(self, other: Range) -> bool {
        let end = |range: Range| u128::from(range.lba) + u128::from(range.blocks);
        u128::from(self.lba) < end(other) && u128::from(other.lba) < end(self)
    }
}

/// What a request asks for. Ranges are of the namespace until the worker has translated them, then
/// of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Read the range.
    Read(Range),
    /// Write the range; with `fua` the data is durable before the reply.
    Write {
        /// Where.
        range: Range,
        /// Force unit access: durable before the reply.
        fua: bool,
    },
    /// Write the range so that a reader, and a crash, sees all of it or nothing. Durable before the
    /// reply.
    WriteAtomic(Range),
    /// Compare the range with the payload.
    Compare(Range),
    /// Compare the range with the first half of the payload; if equal, write the second half.
    CompareAndWrite(Range),
    /// Make every write that was acknowledged before durable.
    Flush,
    /// The range's contents are no longer needed; reads of it return zeroes.
    Discard(Range),
    /// Write zeroes; with `fua` durable before the reply.
    WriteZeroes {
        /// Where.
        range: Range,
        /// Force unit access: durable before the reply.
        fua: bool,
    },
    /// Order: everything of the stream before it ends before anything behind it starts. Never
    /// reaches a device.
    Barrier,
}

/// What a command is, without its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Returns data, or looks at it.
    Read,
    /// Changes data.
    Write,
    /// Reads, and then may change data: what a compare-and-write costs a device.
    Exchange,
    /// Neither.
    Other,
}

impl Command {
    /// Read, write or neither.
    pub const fn kind(self) -> Kind {
        match self {
            Command::Read(_) | Command::Compare(_) => Kind::Read,
            Command::Flush | Command::Barrier => Kind::Other,
            Command::Write { .. }
            | Command::WriteAtomic(_)
            | Command::CompareAndWrite(_)
            | Command::Discard(_)
            | Command::WriteZeroes { .. } => Kind::Write,
        }
    }

    /// What it makes a device do: as [`kind`](Command::kind), but a compare-and-write both reads and
    /// writes.
    pub const fn work(self) -> Kind {
        match self {
            Command::CompareAndWrite(_) => Kind::Exchange,
            other => other.kind(),
        }
    }

    /// Bytes of the range that it does that to.
    pub fn work_bytes(self) -> usize {
        self.range().map_or(0, |range| range.bytes())
    }

    /// The range it touches, if it touches one.
    pub const fn range(self) -> Option<Range> {
        match self {
            Command::Read(range)
            | Command::Write { range, .. }
            | Command::WriteAtomic(range)
            | Command::Compare(range)
            | Command::CompareAndWrite(range)
            | Command::Discard(range)
            | Command::WriteZeroes { range, .. } => Some(range),
            Command::Flush | Command::Barrier => None,
        }
    }

    /// The same command at another address (a namespace's range translated into its device's).
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
            Command::Flush | Command::Barrier => {}
        }
        moved
    }

    /// Bytes of payload that come with the request.
    pub const fn payload_bytes(self) -> usize {
        match self {
            Command::Write { range, .. }
            | Command::WriteAtomic(range)
            | Command::Compare(range) => range.bytes(),
            Command::CompareAndWrite(range) => 2 * range.bytes(),
            _ => 0,
        }
    }

    /// Bytes of the reply's body when the command succeeds.
    pub const fn reply_bytes(self) -> usize {
        match self {
            Command::Read(range) => range.bytes(),
            _ => 0,
        }
    }

    /// Bytes of the buffer that the command needs in flight: its payload, or room for its reply.
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
        assert_eq!(Command::Flush.with_lba(9), Command::Flush);
        assert_eq!(Command::Read(range).with_lba(9), Command::Read(Range::new(9, 8)));
    }
}
