//! Jobs: one call each, cut into the requests that a server accepts.

use nearflash::{Command, Range, Status};

use crate::failure::Failure;
use crate::memory::Memory;

/// Size of a block in bytes.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// The largest request with data, in blocks.
const DATA_BLOCKS_MAX: u64 = (1 << 20) / BLOCK_BYTES;

/// The largest request without data, in blocks.
const RANGE_BLOCKS_MAX: u64 = (1 << 30) / BLOCK_BYTES;

/// Requests without data of one job that are in flight. A server that has few tokens for them
/// answers one before long.
const RANGES_MAX: usize = 4;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write { durable: bool },
    WriteAtomic,
    CompareAndWrite,
    Flush,
    Discard,
    WriteZeroes { durable: bool },
}

impl Action {
    /// Returns the command of one request.
    fn command(self, range: Range) -> Command {
        match self {
            Action::Read => Command::Read(range),
            Action::Write { durable } => Command::Write { range, fua: durable },
            Action::WriteAtomic => Command::WriteAtomic(range),
            Action::CompareAndWrite => Command::CompareAndWrite(range),
            Action::Flush => Command::Flush,
            Action::Discard => Command::Discard(range),
            Action::WriteZeroes { durable } => Command::WriteZeroes { range, fua: durable },
        }
    }

    fn blocks_max(self) -> u64 {
        match self {
            Action::Discard | Action::WriteZeroes { .. } => RANGE_BLOCKS_MAX,
            _ => DATA_BLOCKS_MAX,
        }
    }

    fn in_flight_max(self) -> usize {
        match self {
            Action::Discard | Action::WriteZeroes { .. } => RANGES_MAX,
            _ => usize::MAX,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Action::WriteAtomic | Action::CompareAndWrite)
    }
}

/// A range of a job, with its memory.
pub(crate) struct Segment {
    lba: u64,
    blocks: u64,
    pub(crate) memory: Option<Memory>,
}

impl Segment {
    /// Returns a range whose blocks fill `memory`. For a compare-and-write the memory has both
    /// texts.
    pub(crate) fn of(action: Action, lba: u64, memory: Memory) -> Result<Segment, Failure> {
        let bytes = match action {
            Action::CompareAndWrite => memory.bytes() / 2,
            _ => memory.bytes(),
        } as u64;
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            let text = format!("{bytes} bytes are not a whole number of 512-byte blocks");
            return Err(Failure::new("LengthError", text));
        }
        let segment = Segment { lba, blocks: bytes / BLOCK_BYTES, memory: Some(memory) };
        if action.is_whole() && segment.blocks > DATA_BLOCKS_MAX {
            return Err(Failure::new("TooLarge", "larger than one request can be (1 MiB)"));
        }
        segment.checked()
    }

    /// Returns a range without memory.
    pub(crate) fn bare(lba: u64, blocks: u64) -> Result<Segment, Failure> {
        if blocks == 0 {
            return Err(Failure::new("LengthError", "a range of no blocks"));
        }
        Segment { lba, blocks, memory: None }.checked()
    }

    fn checked(self) -> Result<Segment, Failure> {
        match self.lba.checked_add(self.blocks) {
            Some(_) => Ok(self),
            None => Err(Status::OutOfRange.into()),
        }
    }
}

/// A request of a job.
pub(crate) struct Piece {
    pub(crate) command: Command,
    /// The range's index in the job.
    pub(crate) segment: usize,
    /// The first byte of its memory.
    pub(crate) from: usize,
}

/// The work of a call. It has ended when no request is in flight and none is left to send.
pub(crate) struct Job {
    action: Action,
    pub(crate) segments: Vec<Segment>,
    /// The next range to send, and the number of its blocks already sent.
    next: (usize, u64),
    in_flight: usize,
    /// The first range that failed, with its status.
    failed: Option<(usize, Status)>,
    /// `true` if no caller waits for it any more.
    pub(crate) is_abandoned: bool,
}

impl Job {
    pub(crate) fn new(action: Action, segments: Vec<Segment>) -> Job {
        Job { action, segments, next: (0, 0), in_flight: 0, failed: None, is_abandoned: false }
    }

    /// Returns a flush.
    pub(crate) fn flush() -> Job {
        let range = Segment { lba: 0, blocks: 1, memory: None };
        Job::new(Action::Flush, vec![range])
    }

    /// Returns the next request to send; `None` if there is none, or none before another request
    /// has ended.
    pub(crate) fn piece(&mut self) -> Option<Piece> {
        let (segment, sent) = self.next;
        if self.failed.is_some() || self.in_flight >= self.action.in_flight_max() {
            return None;
        }
        let Segment { lba, blocks, .. } = *self.segments.get(segment)?;
        let count = (blocks - sent).min(self.action.blocks_max());
        self.next = match sent + count {
            all if all == blocks => (segment + 1, 0),
            some => (segment, some),
        };
        self.in_flight += 1;
        let command = self.action.command(Range::new(lba + sent, count as u32));
        Some(Piece { command, segment, from: (sent * BLOCK_BYTES) as usize })
    }

    /// Drops the requests that were not sent yet.
    pub(crate) fn stop(&mut self) {
        self.next = (self.segments.len(), 0);
    }

    /// Processes the end of one of the job's requests. Returns `true` if the job may have another
    /// one to send.
    pub(crate) fn end(&mut self, segment: usize, status: Status) -> bool {
        self.in_flight -= 1;
        if !status.is_ok() && self.failed.is_none() {
            self.failed = Some((segment, status));
        }
        self.has_more()
    }

    fn has_more(&self) -> bool {
        self.failed.is_none() && self.next.0 < self.segments.len()
    }

    /// Returns `true` if the job has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight == 0 && !self.has_more()
    }

    /// Returns the failure of a job that has ended.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let (segment, status) = self.failed?;
        Some(Failure::from(status).among(segment, self.segments.len()))
    }
}
