//! A request from its submission to [`ExclusiveQueue`](super::ExclusiveQueue) until its completion.

use contract::{
    BLOCK_BYTES, Buf, COMMIT_PAGE_BYTES, Command, REQUEST_BYTES_MAX, Range, Slot, Status,
};

use crate::locks::{Claim, Mode, RangeLocks};

/// A request at an exclusive queue: its locks, its buffers and its current step.
#[derive(Debug)]
pub(super) struct Op {
    /// The slot of the request outside this queue.
    pub(super) slot: Slot,
    pub(super) command: Command,
    /// The request's stripes, held from the first step to the last.
    pub(super) claim: Claim,
    /// The request's buffer; `None` while the device below has the buffer.
    pub(super) buf: Option<Buf>,
    pub(super) step: OpStep,
    /// The range of the steps after the current one. Only discards and zeroing have several steps.
    rest: Range,
    /// The write after this one in a frame.
    pub(super) next: Option<Slot>,
    /// The status of a write in a frame, if its page is written.
    pub(super) status: Status,
}

/// The step that a request waits for, or that the inner device carries out.
#[derive(Clone, Copy, Debug)]
pub(super) enum OpStep {
    /// The command is passed to the device unchanged. The device's completion ends the step.
    Whole(Command),
    /// A read of the granules around this part into a scratch buffer. A read, a failed comparison
    /// or a request without data to write ends here. Every other request goes on to write the
    /// granules back.
    Patch(Range),
    /// A write of the changed granules. Its completion ends the step.
    WriteBack,
    /// A small write that waits for a frame, or is in one.
    Framed,
}

impl Op {
    pub(super) fn new(
        slot: Slot,
        command: Command,
        buf: Option<Buf>,
        RequestSizes { granule, blocks, reads_max }: RequestSizes,
        locks: &RangeLocks,
    ) -> Self {
        let claim = match (command, command.range()) {
            (_, Some(range)) => {
                locks.claim(range, mode(command, range, (granule, reads_max), locks.plain_writes))
            }
            (Command::Commit { pages }, None) => {
                let payload = buf.as_ref().map_or(&[][..], |buf| buf.bytes());
                locks.claim_between(commit_span(payload, pages, blocks), locks.plain_writes)
            }
            (_, None) => Claim::NOTHING,
        };
        let rest = command.range().unwrap_or(Range::new(0, 0));
        let step = OpStep::Whole(command);
        let mut op = Op { slot, command, claim, buf, step, rest, next: None, status: Status::Ok };
        if command.range().is_some() {
            op.next_step(granule);
        }
        op
    }

    /// Returns a small write, which holds no stripes: its frame does.
    pub(super) fn framed(slot: Slot, command: Command, buf: Option<Buf>) -> Self {
        let (claim, step, rest) = (Claim::NOTHING, OpStep::Framed, Range::new(0, 0));
        Op { slot, command, claim, buf, step, rest, next: None, status: Status::Ok }
    }

    /// Moves on to the next step; returns `false` if there is none.
    pub(super) fn next_step(&mut self, granule: u64) -> bool {
        if self.rest.blocks == 0 {
            return false;
        }
        let part = match self.command {
            Command::Discard(_) | Command::WriteZeroes { .. } => first_part(self.rest, granule),
            _ => self.rest,
        };
        self.rest = Range::new(part.lba + u64::from(part.blocks), self.rest.blocks - part.blocks);
        let compares = matches!(self.command, Command::Compare(_) | Command::CompareAndWrite(_));
        self.step = if compares || !is_whole(part, granule) {
            assert!(part.bytes() <= REQUEST_BYTES_MAX, "a request of {part:?} is too large");
            OpStep::Patch(part)
        } else {
            OpStep::Whole(match self.command {
                Command::Discard(_) => Command::Discard(part),
                Command::WriteZeroes { fua, .. } => Command::WriteZeroes { range: part, fua },
                command => command,
            })
        };
        true
    }

    /// Serves the request from the granules in `scratch`, or changes the granules. Returns the
    /// command that writes them back, if they changed. An error ends the request.
    pub(super) fn patch(
        &mut self,
        part: Range,
        granule: u64,
        scratch: &mut Buf,
    ) -> Result<Option<Command>, Status> {
        let cover = cover(part, granule);
        let start = (part.lba - cover.lba) as usize * BLOCK_BYTES;
        let inside = start..start + part.bytes();
        let old = &mut scratch.prefix_mut(cover.bytes())[inside];
        let bytes = part.bytes();
        let write = |fua| Ok(Some(Command::Write { range: cover, fua }));
        match (self.command, &mut self.buf) {
            (Command::Read(_), Some(buf)) => {
                buf.prefix_mut(bytes).copy_from_slice(old);
                Ok(None)
            }
            (Command::Write { fua, .. }, Some(buf)) => {
                old.copy_from_slice(&buf.bytes()[..bytes]);
                write(fua)
            }
            (Command::WriteAtomic(_), Some(buf)) => {
                old.copy_from_slice(&buf.bytes()[..bytes]);
                Ok(Some(Command::WriteAtomic(cover)))
            }
            (Command::Compare(_), Some(buf)) => match old == &buf.bytes()[..bytes] {
                true => Ok(None),
                false => Err(Status::CompareFailed),
            },
            (Command::CompareAndWrite(_), Some(buf)) => {
                let (expected, new) = buf.bytes()[..2 * bytes].split_at(bytes);
                if old != expected {
                    return Err(Status::CompareFailed);
                }
                old.copy_from_slice(new);
                write(false)
            }
            (Command::Discard(_), _) => {
                old.fill(0);
                write(false)
            }
            (Command::WriteZeroes { fua, .. }, _) => {
                old.fill(0);
                write(fua)
            }
            (Command::Flush | Command::Barrier | Command::Commit { .. }, _) | (_, None) => {
                unreachable!("{:?} has no data to patch", self.command)
            }
        }
    }
}

/// The sizes, in blocks, by which a device takes requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestSizes {
    /// Blocks of a granule.
    pub(super) granule: u64,
    /// Blocks of the device.
    pub(super) blocks: u64,
    /// The longest read that sees plain writes whole without holding its stripes alone.
    pub(super) reads_max: u64,
}

fn mode(
    command: Command,
    range: Range,
    (granule, reads_max): (u64, u64),
    plain_writes: Mode,
) -> Mode {
    match command {
        Command::Read(_) | Command::Compare(_) => {
            match u64::from(cover(range, granule).blocks) > reads_max {
                true => Mode::Alone,
                false => Mode::Shared,
            }
        }
        Command::WriteAtomic(_) | Command::CompareAndWrite(_) => Mode::Alone,
        _ if is_whole(range, granule) => plain_writes,
        _ => Mode::Alone,
    }
}

/// Returns the first and the last block of the pages that a commit's payload names. A page beyond
/// the device's `blocks` counts as the last page, since the device refuses such a commit.
fn commit_span(payload: &[u8], pages: u16, blocks: u64) -> (u64, u64) {
    const PAGE_BLOCKS: u64 = (COMMIT_PAGE_BYTES / BLOCK_BYTES) as u64;
    let last_page = (blocks / PAGE_BLOCKS).saturating_sub(1);
    let numbers = payload.chunks_exact(8).take(usize::from(pages));
    let page = |number: &[u8]| number.try_into().map_or(0, u64::from_le_bytes).min(last_page);
    let numbers = numbers.map(page);
    let (first, last) = (numbers.clone().min().unwrap_or(0), numbers.max().unwrap_or(0));
    (first * PAGE_BLOCKS, last * PAGE_BLOCKS + PAGE_BLOCKS - 1)
}

/// Returns `true` if the command locks its range exclusively, so that no other request runs in the
/// range.
pub(super) fn is_alone(command: Command, grain: RequestSizes, locks: &RangeLocks) -> bool {
    let mode = |range| mode(command, range, (grain.granule, grain.reads_max), locks.plain_writes);
    command.range().is_some_and(|range| mode(range) == Mode::Alone)
}

/// Returns `true` if the range consists of whole granules.
pub(super) fn is_whole(range: Range, granule: u64) -> bool {
    (range.lba | u64::from(range.blocks)).is_multiple_of(granule)
}

/// Returns the range of all granules that the range touches, in blocks.
pub(super) fn cover(range: Range, granule: u64) -> Range {
    let first = range.lba / granule * granule;
    let end = (range.lba + u64::from(range.blocks)).next_multiple_of(granule);
    Range::new(first, (end - first) as u32)
}

/// Returns the first blocks of the range that are either whole granules or lie within a single
/// granule.
fn first_part(range: Range, granule: u64) -> Range {
    let into = range.lba % granule;
    let blocks = u64::from(range.blocks);
    let part = match blocks / granule * granule {
        whole if into == 0 && whole > 0 => whole,
        _ => blocks.min(granule - into),
    };
    Range::new(range.lba, part as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_or_within_a_granule() {
        let parts = |mut range: Range| {
            let mut parts = alloc::vec::Vec::new();
            while range.blocks > 0 {
                let part = first_part(range, 8);
                parts.push((part.lba, part.blocks));
                range = Range::new(range.lba + u64::from(part.blocks), range.blocks - part.blocks);
            }
            parts
        };
        assert_eq!(parts(Range::new(0, 16)), [(0, 16)]);
        assert_eq!(parts(Range::new(3, 2)), [(3, 2)]);
        assert_eq!(parts(Range::new(3, 30)), [(3, 5), (8, 24), (32, 1)]);
        assert_eq!(parts(Range::new(8, 5)), [(8, 5)]);
        assert_eq!(parts(Range::new(7, 2)), [(7, 1), (8, 1)]);
        assert_eq!(cover(Range::new(7, 2), 8), Range::new(0, 16));
    }

    #[test]
    fn a_read_that_the_device_may_carry_out_in_parts_is_alone() {
        let mode = |range| mode(Command::Read(range), range, (8, 16), Mode::Shared);
        assert_eq!(mode(Range::new(0, 16)), Mode::Shared);
        assert_eq!(mode(Range::new(1, 15)), Mode::Shared);
        assert_eq!(mode(Range::new(1, 16)), Mode::Alone, "it is within 24 blocks");
    }
}
