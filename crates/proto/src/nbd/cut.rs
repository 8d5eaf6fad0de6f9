//! Requests larger than a device command, which are cut into several commands.

use alloc::vec::Vec;

use contract::{Command, Range, Status, Tag};

use super::limits::{CUTS_MAX, PIECE_BLOCKS_MAX};

/// The operation of a request, without its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOperation {
    /// Reads blocks of the export.
    Read,
    /// Writes data that the client sends.
    Write {
        /// `true` if the written range must be durable before the reply.
        fua: bool,
    },
    /// Writes zeroes like data, so that the range stays allocated.
    Fill {
        /// `true` if the written range must be durable before the reply.
        fua: bool,
    },
    /// Discards blocks of the export.
    Discard,
    /// Writes zeroes, and may deallocate the range.
    WriteZeroes {
        /// `true` if the written range must be durable before the reply.
        fua: bool,
    },
}

impl RequestOperation {
    /// Returns the command that does this operation on `range`.
    pub(super) fn command(self, range: Range) -> Command {
        match self {
            RequestOperation::Read => Command::Read(range),
            RequestOperation::Write { fua } | RequestOperation::Fill { fua } => {
                Command::Write { range, fua }
            }
            RequestOperation::Discard => Command::Discard(range),
            RequestOperation::WriteZeroes { fua } => Command::WriteZeroes { range, fua },
        }
    }
}

/// The blocks of a request that have not been passed on as pieces yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemainingPieces {
    pub(super) tag: Tag,
    pub(super) work: RequestOperation,
    pub(super) range: Range,
    /// `true` if each piece must wait for the previous one, and all other replies for the last: a
    /// simple reply carries its data in order, without other replies in between.
    pub(super) in_order: bool,
}

impl RemainingPieces {
    /// Takes the next piece off the front of the range, as a command; `None` if no block is left.
    pub(super) fn next(&mut self) -> Option<Command> {
        let blocks = self.range.blocks.min(PIECE_BLOCKS_MAX);
        if blocks == 0 {
            return None;
        }
        let piece = Range::new(self.range.lba, blocks);
        self.range = Range::new(self.range.lba + u64::from(blocks), self.range.blocks - blocks);
        Some(self.work.command(piece))
    }
}

/// A request that was cut and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitRequest {
    pub(super) tag: Tag,
    /// The number of blocks of the pieces that have not ended.
    pub(super) left: u32,
    /// `Ok`, or the first failure of a piece.
    pub(super) status: Status,
    pub(super) in_order: bool,
    /// `true` once the first piece has ended, so that the reply to a request in order has begun.
    pub(super) has_begun: bool,
}

/// The requests of a connection that were cut and are not answered.
#[derive(Debug, Default)]
pub(super) struct SplitRequests {
    /// The cut requests, at most [`CUTS_MAX`]; allocated for the first.
    list: Vec<SplitRequest>,
}

impl SplitRequests {
    /// Restores the cuts of a moved session; `None` if they are too many.
    pub(super) fn of(list: Vec<SplitRequest>) -> Option<Self> {
        (list.len() <= CUTS_MAX).then_some(SplitRequests { list })
    }

    pub(super) fn list(&self) -> &[SplitRequest] {
        &self.list
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns `true` if no more requests can be cut now.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= CUTS_MAX
    }

    /// Returns `true` if a request with this tag was cut.
    pub(super) fn has(&self, tag: Tag) -> bool {
        self.list.iter().any(|cut| cut.tag == tag)
    }

    pub(super) fn add(&mut self, rest: &RemainingPieces) {
        assert!(!self.is_full(), "the caller has looked");
        self.list.reserve_exact(CUTS_MAX - self.list.len());
        self.list.push(SplitRequest {
            tag: rest.tag,
            left: rest.range.blocks,
            status: Status::Ok,
            in_order: rest.in_order,
            has_begun: false,
        });
    }

    /// Notes the end of a piece of `blocks` blocks. Returns the request's new state, except for
    /// `has_begun`, which is still that before this piece; `None` if no request with this tag was
    /// cut. The last piece removes the request, and so does a failure if the pieces go in order.
    pub(super) fn end(&mut self, tag: Tag, blocks: u32, status: Status) -> Option<SplitRequest> {
        let place = self.list.iter().position(|cut| cut.tag == tag)?;
        let cut = &mut self.list[place];
        cut.left = cut.left.saturating_sub(blocks);
        if cut.status.is_ok() {
            cut.status = status;
        }
        let (before, failed) = (*cut, !cut.status.is_ok());
        cut.has_begun = true;
        if before.left == 0 || before.in_order && failed {
            self.list.swap_remove(place);
        }
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(blocks: u32) -> RemainingPieces {
        let range = Range::new(5, blocks);
        RemainingPieces { tag: 7, work: RequestOperation::Discard, range, in_order: false }
    }

    #[test]
    fn pieces_make_the_whole() {
        for blocks in [1, PIECE_BLOCKS_MAX, PIECE_BLOCKS_MAX + 1, 5 * PIECE_BLOCKS_MAX - 1] {
            let (mut rest, mut at) = (rest(blocks), 5);
            while let Some(piece) = rest.next() {
                let range = piece.range().unwrap();
                assert_eq!(range.lba, at);
                assert!((1..=PIECE_BLOCKS_MAX).contains(&range.blocks));
                at = range.end().unwrap();
            }
            assert_eq!(at, 5 + u64::from(blocks));
        }
    }

    #[test]
    fn the_first_failure_counts_and_the_last_piece_ends_it() {
        let mut cuts = SplitRequests::default();
        cuts.add(&rest(3));
        assert_eq!(cuts.end(8, 1, Status::Ok), None);
        assert_eq!(cuts.end(7, 1, Status::MediaError).unwrap().left, 2);
        assert_eq!(cuts.end(7, 1, Status::NoSpace).unwrap().left, 1);
        let last = cuts.end(7, 1, Status::Ok).unwrap();
        assert_eq!((last.left, last.status), (0, Status::MediaError));
        assert!(cuts.is_empty() && cuts.end(7, 1, Status::Ok).is_none());
    }
}
