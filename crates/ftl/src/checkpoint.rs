//! Checkpoints: map, heat and segments, written while the volume serves.
//!
//! A checkpoint begins when no page is on its way from one place to another. Its horizon is the
//! lowest stamp in flight then. Pages are written as they are when their turn comes: what changed
//! since the horizon is in the log, and recovery replays it. After a flush the superblock names the
//! checkpoint: copy A, a flush, copy B, a flush.

use alloc::boxed::Box;
use alloc::vec;

use contract::Status;

use crate::geometry::{Geometry, MEMBERS_MAX};
use crate::layout::{
    CHECKPOINT_BYTES, CheckpointPage, MAGIC, PAGE_BYTES, SegmentRecord, Superblock, VERSION,
};
use crate::map::Map;
use crate::segment::{Segments, State};
use crate::volume::{Command, Op, Token, Volume};
use zerocopy::IntoBytes;

/// Pages of one write of a checkpoint.
pub(crate) const PIECE_PAGES: u32 = 16;

/// A checkpoint follows after as many times its own size of log.
const LOG_FACTOR: u64 = 64;

/// What the checkpointer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing. Ends when enough log was written.
    Idle,
    /// Waits until no page is being moved.
    Wanted,
    /// Writes pages. Ends with the last.
    Writing,
    /// Waits for a round of flushes, then writes copy 0 or 1 of the superblock, or ends (2).
    Flushing(u64, u8),
    /// Writes a copy of the superblock to all members. Ends with the last.
    Superblock(u8),
}

/// The checkpointer's state.
pub(crate) struct Checkpointer {
    phase: Phase,
    /// Pages of the log since the last checkpoint.
    pub(crate) log_pages: u64,
    /// Stamps from here on may be missing in the valid checkpoint.
    pub(crate) horizon: u64,
    next_horizon: u64,
    /// The next stamp when the valid checkpoint began.
    pub(crate) begun: u64,
    next_begun: u64,
    /// Records with lower stamps are in a checkpoint that both copies of the superblock name.
    pub(crate) records_below: u64,
    pub(crate) generation: u64,
    /// The valid checkpoint's identity.
    pub(crate) valid: u64,
    pub(crate) area: u8,
    next_page: u32,
    /// Pages of the write in flight.
    piece_pages: u32,
    outstanding: u16,
    pub(crate) closing: bool,
    pub(crate) closed: bool,
    piece: Box<[u8]>,
    blocks: Box<[u8]>,
}

impl Checkpointer {
    pub(crate) fn new() -> Checkpointer {
        Checkpointer {
            phase: Phase::Idle,
            log_pages: 0,
            horizon: 0,
            next_horizon: 0,
            begun: 0,
            next_begun: 0,
            records_below: 0,
            generation: 0,
            valid: 0,
            area: 0,
            next_page: 0,
            piece_pages: 0,
            outstanding: 0,
            closing: false,
            closed: false,
            piece: vec![0; PIECE_PAGES as usize * PAGE_BYTES].into(),
            blocks: vec![0; MEMBERS_MAX * PAGE_BYTES].into(),
        }
    }

    pub(crate) fn want(&mut self) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Wanted;
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.phase == Phase::Wanted
    }

    /// Returns `true` if moved pages have to land for the checkpoint to begin.
    pub(crate) fn waits_for_moves(&self) -> bool {
        self.is_wanted() || self.closing
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.piece[..self.piece_pages as usize * PAGE_BYTES]
    }

    pub(crate) fn superblock(&self, member: u16) -> &[u8] {
        &self.blocks[usize::from(member) * PAGE_BYTES..][..PAGE_BYTES]
    }
}

/// Writes page `index` of a checkpoint into `page`.
pub(crate) fn encode_page(
    geometry: &Geometry,
    map: &Map,
    segments: &Segments,
    (checkpoint, index): (u64, u32),
    page: &mut [u8],
) {
    let content = &mut page[..CHECKPOINT_BYTES];
    content.fill(0);
    if index < geometry.map_pages() {
        let begin = index as usize * (CHECKPOINT_BYTES / 4);
        for (place, to) in map.places()[begin..].iter().zip(content.chunks_exact_mut(4)) {
            to.copy_from_slice(&place.to_le_bytes());
        }
    } else if index < geometry.map_pages() + geometry.heat_pages() {
        let begin = (index - geometry.map_pages()) as usize * CHECKPOINT_BYTES;
        let heats = &map.heats()[begin..];
        let count = heats.len().min(CHECKPOINT_BYTES);
        content[..count].copy_from_slice(&heats[..count]);
    } else {
        let size = size_of::<SegmentRecord>();
        let at = index - geometry.map_pages() - geometry.heat_pages();
        let begin = at as usize * (CHECKPOINT_BYTES / size);
        let rest = segments.all().get(begin..).unwrap_or(&[]);
        for (segment, to) in rest.iter().zip(content.chunks_exact_mut(size)) {
            let record = SegmentRecord {
                life: segment.life.into(),
                closed_at: segment.closed_at.into(),
                last: segment.last.into(),
                wear: segment.wear.into(),
                stream: segment.stream,
                open: u8::from(segment.state == State::Open),
                fill: (segment.fill as u16).into(),
            };
            to.copy_from_slice(record.as_bytes());
        }
    }
    CheckpointPage::seal(page, checkpoint, index);
}

impl Volume {
    /// Begins to end the volume's service in order: no more requests are to come. Commands go on
    /// until [`is_closed`](Volume::is_closed).
    pub fn close(&mut self) {
        self.checkpointer.closing = true;
    }

    /// Returns `true` if the volume is closed and its members say so.
    pub fn is_closed(&self) -> bool {
        self.checkpointer.closed
    }

    /// Does the checkpointer's next step if nothing stands in its way.
    pub(crate) fn advance_checkpoint(&mut self) {
        let due = LOG_FACTOR * u64::from(self.geometry.checkpoint_pages());
        match self.checkpointer.phase {
            Phase::Idle if self.checkpointer.closed => {}
            Phase::Idle if self.checkpointer.closing => {
                let quiet = self.logs.iter().all(|l| !l.is_flying && l.filling.is_empty());
                let idle = self.discards.is_empty() && self.collector.is_idle();
                if quiet && idle {
                    (0..self.logs.len()).for_each(|log| self.seal(log));
                    self.begin_checkpoint();
                }
            }
            Phase::Idle if self.checkpointer.log_pages >= due => self.checkpointer.want(),
            Phase::Idle => {}
            Phase::Wanted if self.collector.is_between() => self.begin_checkpoint(),
            Phase::Flushing(round, 2) if self.flusher.is_done(round) => self.end_superblocks(),
            Phase::Flushing(round, copy) if self.flusher.is_done(round) => {
                self.write_superblocks(copy);
            }
            _ => {}
        }
    }

    fn begin_checkpoint(&mut self) {
        let first = self.logs.iter().filter(|log| log.is_flying).map(|log| log.flying.first);
        self.checkpointer.next_horizon = first.min().unwrap_or(self.clock.next_stamp);
        self.checkpointer.next_begun = self.clock.next_stamp;
        self.checkpointer.next_page = 0;
        self.checkpointer.log_pages = 0;
        self.checkpointer.phase = Phase::Writing;
        self.write_piece();
    }

    /// Writes the next pages of the checkpoint to the area that the valid one does not use.
    fn write_piece(&mut self) {
        let checkpointer = &mut self.checkpointer;
        let left = self.geometry.checkpoint_pages() - checkpointer.next_page;
        if left == 0 {
            checkpointer.phase = Phase::Flushing(self.flusher.ask(), 0);
            return;
        }
        let pages = left.min(PIECE_PAGES);
        let identity = checkpointer.generation + 1;
        for (index, page) in checkpointer.piece.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let index = checkpointer.next_page + index as u32;
            if index < self.geometry.checkpoint_pages() {
                let (map, segments) = (&self.map, &self.segments);
                encode_page(&self.geometry, map, segments, (identity, index), page);
            }
        }
        let (member, begin) = self.geometry.area(u64::from(1 - checkpointer.area));
        let at = begin + u64::from(checkpointer.next_page);
        checkpointer.next_page += pages;
        checkpointer.piece_pages = pages;
        self.report.checkpoint_pages += u64::from(pages);
        let op = Op::Write { at, pages };
        self.out.commands.push_back(Command { token: Token::Checkpoint, member, op });
    }

    /// Returns the superblock as it is now; `clean` if the volume is closed in order.
    pub(crate) fn superblock(&self, clean: bool) -> Superblock {
        let checkpointer = &self.checkpointer;
        Superblock {
            magic: MAGIC,
            version: VERSION.into(),
            member: 0.into(),
            members: self.geometry.members.into(),
            streams: self.geometry.streams,
            clean: u8::from(clean),
            uuid: self.geometry.uuid,
            generation: checkpointer.generation.into(),
            session: self.clock.session.into(),
            member_pages: self.geometry.member_pages.into(),
            pages: self.geometry.pages.into(),
            segment_pages: self.geometry.segment_pages.into(),
            checkpoint: checkpointer.valid.into(),
            horizon: checkpointer.horizon.into(),
            next_stamp: self.clock.next_stamp.into(),
            written: self.clock.written.into(),
            area: checkpointer.area,
            begun: checkpointer.begun.into(),
            reserved: [0; 3987],
            crc: 0.into(),
        }
    }

    fn write_superblocks(&mut self, copy: u8) {
        if copy == 0 {
            let checkpointer = &mut self.checkpointer;
            checkpointer.generation += 1;
            checkpointer.valid = checkpointer.generation;
            checkpointer.area = 1 - checkpointer.area;
            checkpointer.horizon = checkpointer.next_horizon;
            checkpointer.begun = checkpointer.next_begun;
            let block = self.superblock(self.checkpointer.closing && self.is_quiet());
            let pages = self.checkpointer.blocks.chunks_exact_mut(PAGE_BYTES);
            for (member, page) in (0..self.geometry.members).zip(pages) {
                Superblock { member: member.into(), ..block }.encode(page);
            }
        }
        self.checkpointer.phase = Phase::Superblock(copy);
        self.checkpointer.outstanding = self.geometry.members;
        for member in 0..self.geometry.members {
            let op = Op::Write { at: u64::from(copy), pages: 1 };
            let token = Token::Superblock(member);
            self.report.checkpoint_pages += 1;
            self.out.commands.push_back(Command { token, member, op });
        }
    }

    /// Returns `true` if the log has nothing that the checkpoint does not have.
    fn is_quiet(&self) -> bool {
        self.checkpointer.next_horizon == self.clock.next_stamp
    }

    fn end_superblocks(&mut self) {
        self.report.checkpoints += 1;
        self.checkpointer.records_below = self.checkpointer.horizon;
        self.checkpointer.phase = Phase::Idle;
        self.checkpointer.closed = self.checkpointer.closing && self.is_quiet();
    }

    /// Ends a write of the checkpointer. A member that fails makes the volume read-only.
    pub(crate) fn end_checkpoint(&mut self, status: Status) {
        if !status.is_ok() {
            self.read_only = true;
            return;
        }
        match self.checkpointer.phase {
            Phase::Writing => self.write_piece(),
            Phase::Superblock(copy) => {
                self.checkpointer.outstanding -= 1;
                if self.checkpointer.outstanding == 0 {
                    self.checkpointer.phase = Phase::Flushing(self.flusher.ask(), copy + 1);
                }
            }
            other => panic!("the checkpointer writes nothing in {other:?}"),
        }
    }
}
