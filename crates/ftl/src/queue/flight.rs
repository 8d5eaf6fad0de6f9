//! A request on its way through a [`Queue`](super::Queue): pieces of pages, then a flush if it is
//! needed.

use contract::{Buf, Command, Slot, Status};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::whole_pages;
use crate::layout::PAGE_BYTES;

/// The next step of a request at the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestStep {
    /// Reads a piece: some of the request's pages.
    Read,
    /// Writes a piece: some of the request's pages.
    Write {
        /// `true` if the piece must be durable before the volume replies.
        fua: bool,
        /// `true` if a crash leaves all of the piece or none.
        atomic: bool,
    },
    /// Writes the pages of a commit.
    Commit,
    /// Discards all pages of the request.
    Discard,
    /// Makes all acknowledged writes durable.
    Flush,
}

impl RequestStep {
    /// Returns `true` for steps that wait in line with writes.
    pub(super) fn is_write(self) -> bool {
        matches!(self, RequestStep::Write { .. } | RequestStep::Commit | RequestStep::Discard)
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct RequestInFlight {
    /// The slot that identifies the request to the caller that submitted it.
    pub(super) slot: Slot,
    command: Command,
    /// The request's buffer, except while a member has it.
    pub(super) buf: Option<Buf>,
    /// First logical page of the request; zero for a commit, whose pages are in its buffer.
    page: u32,
    /// Number of logical pages of the request.
    pages: u32,
    /// Number of pages that are completed: `done ≤ pages`.
    done: u32,
    pub(super) status: Status,
}

impl RequestInFlight {
    pub(super) fn new(slot: Slot, command: Command, buf: Option<Buf>) -> RequestInFlight {
        let listed = if let Command::Commit { pages } = command { pages.into() } else { 0 };
        let (page, pages) = command.range().map_or((0, listed), whole_pages);
        RequestInFlight { slot, command, buf, page, pages, done: 0, status: Status::Ok }
    }

    fn left(&self) -> u32 {
        self.pages - self.done
    }

    /// Returns the first page and the number of pages of the next piece, of at most `most` pages. A
    /// discard or a commit is a single piece.
    pub(super) fn piece(&self, most: u32) -> (u32, u32) {
        let is_whole = matches!(
            self.command,
            Command::Discard(_) | Command::WriteZeroes { .. } | Command::Commit { .. }
        );
        let most = if is_whole { u32::MAX } else { most };
        (self.page + self.done, self.left().min(most))
    }

    pub(super) fn step(&self) -> RequestStep {
        match self.command {
            Command::Read(_) => RequestStep::Read,
            Command::Write { fua, .. } => RequestStep::Write { fua, atomic: false },
            Command::WriteAtomic(_) => RequestStep::Write { fua: true, atomic: true },
            Command::Commit { .. } => RequestStep::Commit,
            Command::Discard(_) | Command::WriteZeroes { .. } if self.left() > 0 => {
                RequestStep::Discard
            }
            Command::WriteZeroes { .. } | Command::Flush => RequestStep::Flush,
            other => unreachable!("{other:?} does not come this far"),
        }
    }

    /// Ends the present step with the volume's status; returns `true` if the request has another
    /// step.
    pub(super) fn advance(&mut self, most: u32, status: Status) -> bool {
        self.status = status;
        if self.left() <= most && !matches!(self.command, Command::WriteZeroes { .. }) {
            self.done = self.pages;
            return false;
        }
        let step = self.step();
        self.done += self.piece(most).1;
        let forced = matches!(self.command, Command::WriteZeroes { fua: true, .. });
        let goes_on = self.left() > 0 || (forced && step == RequestStep::Discard);
        status.is_ok() && goes_on
    }

    /// Returns the data of the present piece.
    pub(super) fn data(&self, pages: u32) -> &[u8] {
        let buf = self.buf.as_ref().expect("a write has a buffer");
        &buf.bytes()[self.done as usize * PAGE_BYTES..][..pages as usize * PAGE_BYTES]
    }

    /// Returns the page numbers and the data of a commit.
    pub(super) fn commit(&self) -> (&[U64], &[u8]) {
        let buf = self.buf.as_ref().expect("a commit has a buffer");
        let (list, data) = buf.bytes().split_at(PAGE_BYTES);
        let pages = self.pages as usize;
        let numbers = <[U64]>::ref_from_bytes(&list[..pages * size_of::<U64>()]);
        (numbers.expect("any bytes are numbers"), &data[..pages * PAGE_BYTES])
    }

    /// Takes the request's buffer if the request reads exactly `pages` pages; returns `None`
    /// otherwise.
    pub(super) fn lend(&mut self, pages: u32) -> Option<Buf> {
        (pages == self.pages).then(|| self.buf.take().expect("a buffer is lent once"))
    }

    /// Copies data into pages of the present piece, from its page `first` on.
    pub(super) fn fill(&mut self, first: usize, data: &[u8]) {
        self.part(first, data.len()).copy_from_slice(data);
    }

    /// Zeroes pages of the present piece, from its page `first` on.
    pub(super) fn zero(&mut self, first: usize, pages: usize) {
        if first == 0 && self.done == 0 {
            let buf = self.buf.as_mut().expect("a read has a buffer");
            return buf.zero_prefix(pages * PAGE_BYTES);
        }
        self.part(first, pages * PAGE_BYTES).fill(0);
    }

    fn part(&mut self, first: usize, bytes: usize) -> &mut [u8] {
        let at = (self.done as usize + first) * PAGE_BYTES;
        let buf = self.buf.as_mut().expect("a read has a buffer");
        &mut buf.prefix_mut(at + bytes)[at..]
    }
}
