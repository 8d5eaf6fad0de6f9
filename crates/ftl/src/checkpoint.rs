//! Checkpoints of a volume's map, heat and segments, which are written while the volume serves.
//!
//! A checkpoint begins when no page is being moved. Its horizon is the lowest stamp in flight then.
//! Pages are written in their state at that time: changes since the horizon are in the log, which
//! recovery replays. After a flush the superblock names the checkpoint: copy A, a flush, copy B, a
//! flush.

use alloc::boxed::Box;
use alloc::vec;

use contract::Status;

use crate::command::{CommandToken, MemberOperation};
use crate::field_codec::FieldCodec;
use crate::geometry::{CHUNK_PAGES, Geometry, MEMBERS_MAX, SLAB_RECORD_BYTES};
use crate::layout::{
    CHECKPOINT_BYTES, CheckpointPage, CheckpointRecord, MAGIC, PAGE_BYTES, SegmentRecord,
    SizesRecord, Superblock, ThinRecord,
};
use crate::map::Map;
use crate::segment::{Segments, State};
use crate::store::Store;
use zerocopy::IntoBytes;

/// Maximum number of pages of one write of a checkpoint.
pub(crate) const PIECE_PAGES: u32 = 16;

/// The size of the log after which a checkpoint is written, as a multiple of the checkpoint's size.
const LOG_FACTOR: u64 = 64;

/// A step of the checkpointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No checkpoint is in progress. The state ends when enough log was written.
    Idle,
    /// The checkpoint waits until no page is being moved.
    Wanted,
    /// The checkpoint's pages are being written. The state ends with the last.
    Writing,
    /// The checkpoint waits for the round of flushes with this number. Then copy 0 or 1 of the
    /// superblock is written, or, with 2, the checkpoint ends.
    Flushing(u64, u8),
    /// A copy of the superblock is being written to all members. The state ends with the last.
    Superblock(u8),
}

/// The state of garbage collection that a checkpoint records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionState {
    /// No victim is under collection, and no page is being moved.
    Idle,
    /// A victim is under collection, but none of its pages is being moved at the moment.
    Between,
    /// Garbage collection is moving pages from one place to another.
    Moving,
}

/// The head of a checkpoint, and the part of the log that the checkpoint includes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckpointMark {
    /// The superblock's generation that made the checkpoint valid.
    pub(crate) identity: u64,
    pub(crate) area: u8,
    /// The lowest stamp of batches that may be missing in the checkpoint.
    pub(crate) horizon: u64,
    /// The next stamp when the checkpoint began.
    pub(crate) begun: u64,
    /// Numbers of slabs (`slabs`) and of pages (`used`) in use in a thin volume when the checkpoint
    /// began.
    pub(crate) slabs: u32,
    pub(crate) used: u32,
}

impl CheckpointMark {
    /// Returns the description of the checkpoint that a superblock names.
    pub(crate) fn of(block: &Superblock) -> CheckpointMark {
        let named = block.checkpoint;
        CheckpointMark {
            identity: named.identity.get(),
            area: named.area,
            horizon: named.horizon.get(),
            begun: named.begun.get(),
            slabs: block.thin.slabs.get(),
            used: block.thin.used.get(),
        }
    }
}

/// The state of checkpointing.
pub(crate) struct Checkpointer {
    phase: Phase,
    /// Number of pages that were written to the log when the last checkpoint began.
    log_pages_then: u64,
    valid: CheckpointMark,
    /// The checkpoint in progress, without its identity and area.
    next: CheckpointMark,
    /// Records with lower stamps are in a checkpoint that both copies of the superblock name.
    records_below: u64,
    generation: u64,
    /// Number of pages of the checkpoint in progress, and index of the next one to write:
    /// `next_page ≤ pages`.
    pages: u32,
    next_page: u32,
    /// Number of pages of the write in flight.
    piece_pages: u32,
    outstanding: u16,
    closing: bool,
    closed: bool,
    /// `true` while no checkpoint is begun and none is continued.
    is_held: bool,
    piece: Box<[u8]>,
    blocks: Box<[u8]>,
}

impl Checkpointer {
    /// Returns the checkpointer of a volume whose valid checkpoint is `valid`.
    pub(crate) fn new(valid: CheckpointMark, generation: u64) -> Checkpointer {
        Checkpointer {
            phase: Phase::Idle,
            log_pages_then: 0,
            valid,
            next: CheckpointMark::default(),
            records_below: 0,
            generation,
            pages: 0,
            next_page: 0,
            piece_pages: 0,
            outstanding: 0,
            closing: false,
            closed: false,
            is_held: false,
            piece: vec![0; PIECE_PAGES as usize * PAGE_BYTES].into(),
            blocks: vec![0; MEMBERS_MAX * PAGE_BYTES].into(),
        }
    }

    /// Returns the description of the valid checkpoint.
    pub(crate) fn valid(&self) -> CheckpointMark {
        self.valid
    }

    /// Counts a change of the superblock that makes `next` the valid checkpoint, in the area that
    /// the old one does not use.
    pub(crate) fn make_valid(&mut self, next: CheckpointMark) {
        self.generation += 1;
        let (identity, area) = (self.generation, 1 - self.valid.area);
        self.valid = CheckpointMark { identity, area, ..next };
    }

    /// Counts a change of the superblock that keeps the valid checkpoint.
    pub(crate) fn keep_valid(&mut self) {
        self.generation += 1;
    }

    /// Notes that both copies of the superblock name the valid checkpoint.
    pub(crate) fn trust_records(&mut self) {
        self.records_below = self.valid.horizon;
    }

    pub(crate) fn records_below(&self) -> u64 {
        self.records_below
    }

    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn want(&mut self) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Wanted;
        }
    }

    /// Returns `true` if no checkpoint is in progress, and none waits to begin.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.phase == Phase::Wanted
    }

    /// Returns `true` if a checkpoint waits until all pages that are being moved have arrived.
    pub(crate) fn waits_for_moves(&self) -> bool {
        self.is_wanted() || self.closing
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.piece[..self.piece_pages as usize * PAGE_BYTES]
    }

    pub(crate) fn superblock_bytes(&self, member: u16) -> &[u8] {
        &self.blocks[usize::from(member) * PAGE_BYTES..][..PAGE_BYTES]
    }
}

/// Encodes page `index` of the checkpoint with the identity `checkpoint` into `page`.
pub(crate) fn encode_page(
    geometry: &Geometry,
    map: &Map,
    segments: &Segments,
    (checkpoint, index): (u64, u32),
    page: &mut [u8],
) {
    let content = &mut page[..CHECKPOINT_BYTES];
    let index_pages = geometry.index_pages(map.frozen());
    let left = if index < index_pages && geometry.thin {
        encode_slabs(map, index, content)
    } else if index < index_pages {
        encode_index(geometry, map, index, content)
    } else {
        let size = size_of::<SegmentRecord>();
        let at = index - index_pages;
        let begin = at as usize * (CHECKPOINT_BYTES / size);
        let rest = segments.all().get(begin..).unwrap_or(&[]);
        let left = CHECKPOINT_BYTES - CHECKPOINT_BYTES.min(rest.len() * size) / size * size;
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
        left
    };
    content[CHECKPOINT_BYTES - left..].fill(0);
    CheckpointPage::seal(page, checkpoint, index);
}

/// Encodes a checkpoint page of a whole map: first come the entries of all pages, then their heats.
/// Returns the number of bytes that are left at the end.
fn encode_index(geometry: &Geometry, map: &Map, index: u32, content: &mut [u8]) -> usize {
    let (unit, index) = match index.checked_sub(geometry.map_pages()) {
        None => (4, index),
        Some(index) => (1, index),
    };
    let mut page = index * (CHECKPOINT_BYTES / unit) as u32;
    let mut rest = content;
    while page < geometry.pages && !rest.is_empty() {
        let (complements, heats) = map.rest_of_chunk(page);
        let left = (geometry.pages - page) as usize;
        let count = heats.len().min(left).min(rest.len() / unit);
        let (part, behind) = rest.split_at_mut(count * unit);
        if unit == 1 {
            part.copy_from_slice(&heats[..count]);
        } else {
            for (to, complement) in part.chunks_exact_mut(4).zip(complements) {
                to.copy_from_slice(&(!complement).to_le_bytes());
            }
        }
        (page, rest) = (page + count as u32, behind);
    }
    rest.len()
}

/// Encodes a checkpoint page of a thin volume's slabs, which follow each other across pages.
/// Returns the number of bytes that are left at the end.
fn encode_slabs(map: &Map, index: u32, content: &mut [u8]) -> usize {
    const WORDS: usize = SLAB_RECORD_BYTES / 4;
    const CHUNK: usize = CHUNK_PAGES as usize;
    let mut word = index as usize * (CHECKPOINT_BYTES / 4);
    let mut rest = content;
    while !rest.is_empty() && word / WORDS < map.frozen() as usize {
        let (chunk, complements, heats) = map.frozen_slab(word / WORDS);
        let at = word % WORDS;
        let end = if at == 0 {
            1
        } else if at <= CHUNK {
            1 + CHUNK
        } else {
            WORDS
        };
        let words = (end - at).min(rest.len() / 4);
        let (part, behind) = rest.split_at_mut(words * 4);
        match at {
            0 => part.copy_from_slice(&chunk.to_le_bytes()),
            1..=CHUNK => {
                for (to, complement) in part.chunks_exact_mut(4).zip(&complements[at - 1..]) {
                    to.copy_from_slice(&(!complement).to_le_bytes());
                }
            }
            _ => part.copy_from_slice(&heats[(at - 1 - CHUNK) * 4..][..words * 4]),
        }
        (word, rest) = (word + words, behind);
    }
    rest.len()
}

impl Checkpointer {
    /// Does the next step of checkpointing if it is possible now; `motion` is the collector's
    /// state.
    pub(crate) fn advance(&mut self, store: &mut Store, motion: CollectionState) {
        match self.phase {
            Phase::Idle if self.closed => {}
            Phase::Idle
                if self.closing && !(store.is_quiet() && motion == CollectionState::Idle) => {}
            Phase::Idle if self.closing => {
                (0..store.logs.len()).for_each(|log| store.seal(log));
                self.begin(store);
            }
            Phase::Idle if self.is_due(store) => self.want(),
            Phase::Idle => {}
            Phase::Wanted if motion != CollectionState::Moving => self.begin(store),
            Phase::Flushing(round, 2) if store.flusher.is_done(round) => {
                self.end_superblocks(store)
            }
            Phase::Flushing(round, copy) if store.flusher.is_done(round) => {
                self.write_superblocks(store, copy);
            }
            _ => {}
        }
    }

    /// Returns `true` if so much was written to the log that a checkpoint is to be written.
    fn is_due(&self, store: &Store) -> bool {
        let log_pages = self.log_pages(store);
        // A bound without a division: a page of a checkpoint has the places of fewer than 1 024
        // pages.
        let least = match store.geometry.thin {
            true => store.settings.flush_pages,
            false => store.geometry.pages / 1024 * LOG_FACTOR as u32,
        };
        if log_pages < u64::from(least) {
            return false;
        }
        let pages = store.geometry.checkpoint_pages_with(store.map.slabs());
        let mut due = LOG_FACTOR * u64::from(pages);
        if store.geometry.thin {
            // A thin volume that is nearly empty has few pages to write, and flushes all the same.
            due = due.max(u64::from(store.settings.flush_pages));
        }
        log_pages >= due
    }

    /// Returns the number of pages that were written to the log since the last checkpoint began.
    fn log_pages(&self, store: &Store) -> u64 {
        store.report.log_pages.wrapping_sub(self.log_pages_then)
    }

    /// Begins no checkpoint and continues none before its superblock, until
    /// [`release`](Checkpointer::release). Returns `true` once no write is in progress.
    pub(crate) fn hold(&mut self, store: &mut Store) -> bool {
        self.is_held = true;
        if matches!(self.phase, Phase::Flushing(_, 0)) {
            self.abandon(store);
        }
        !self.closing && matches!(self.phase, Phase::Idle | Phase::Wanted | Phase::Flushing(..))
    }

    /// Ends the effect of [`hold`](Checkpointer::hold).
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }

    /// Gives a checkpoint up that no superblock names. Another one is wanted instead.
    fn abandon(&mut self, store: &mut Store) {
        store.map.thaw();
        store.settle();
        self.phase = Phase::Wanted;
    }

    /// Writes or reads the state of checkpointing, beside what a superblock says. No write is in
    /// progress.
    pub(crate) fn hand_over(&mut self, store: &Store, scribe: &mut FieldCodec<'_>) {
        let (mut kind, mut round, mut copy) = match self.phase {
            Phase::Wanted => (1, 0, 0),
            Phase::Flushing(round, copy) => (2, round, copy),
            _ => (0, 0, 0),
        };
        scribe.u8(&mut kind);
        scribe.u64(&mut round);
        scribe.u8(&mut copy);
        scribe.check(kind < 3 && copy < 3);
        let mut log_pages = self.log_pages(store);
        scribe.u64(&mut log_pages);
        scribe.u64(&mut self.records_below);
        let blocks = usize::from(store.geometry.members) * PAGE_BYTES;
        scribe.bytes(&mut self.blocks[..blocks]);
        if scribe.reads() {
            self.log_pages_then = store.report.log_pages.wrapping_sub(log_pages);
            self.phase = match kind {
                0 => Phase::Idle,
                1 => Phase::Wanted,
                _ => Phase::Flushing(round, copy),
            };
        }
    }

    fn begin(&mut self, store: &mut Store) {
        let first = store.logs.iter().filter(|log| log.is_flying).map(|log| log.flying.first);
        self.next.horizon = first.min().unwrap_or(store.clock.next_stamp);
        self.next.begun = store.clock.next_stamp;
        if store.geometry.thin {
            store.map.freeze();
            (self.next.slabs, self.next.used) = (store.map.frozen(), store.map.mapped());
        }
        self.pages = store.geometry.checkpoint_pages_with(self.next.slabs);
        self.next_page = 0;
        self.log_pages_then = store.report.log_pages;
        self.phase = Phase::Writing;
        self.write_piece(store);
    }

    /// Writes the next pages of the checkpoint to the area that the valid one does not use. After
    /// the last page, asks for a round of flushes.
    fn write_piece(&mut self, store: &mut Store) {
        if self.is_held {
            return self.abandon(store);
        }
        let left = self.pages - self.next_page;
        if left == 0 {
            store.map.thaw();
            store.settle();
            self.phase = Phase::Flushing(store.flusher.ask(), 0);
            return;
        }
        let pages = left.min(PIECE_PAGES);
        let identity = self.generation + 1;
        for (index, page) in self.piece.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let index = self.next_page + index as u32;
            if index < self.pages {
                let (map, segments) = (&store.map, &store.segments);
                encode_page(&store.geometry, map, segments, (identity, index), page);
            }
        }
        let (member, begin) = store.geometry.area(u64::from(1 - self.valid.area));
        let at = begin + u64::from(self.next_page);
        self.next_page += pages;
        self.piece_pages = pages;
        store.report.checkpoint_pages += u64::from(pages);
        let op = MemberOperation::Write { at, pages };
        store.send(CommandToken::Checkpoint, member, op);
    }

    /// Returns the present superblock; `clean` says that the volume is closed in order.
    pub(crate) fn superblock(&self, store: &Store, clean: bool) -> Superblock {
        Superblock {
            magic: MAGIC,
            version: store.geometry.version().into(),
            member: 0.into(),
            members: store.geometry.members.into(),
            streams: store.geometry.streams,
            clean: u8::from(clean),
            uuid: store.geometry.uuid,
            generation: self.generation.into(),
            session: store.clock.session.into(),
            sizes: SizesRecord {
                member_pages: store.geometry.member_pages.into(),
                pages: store.geometry.pages.into(),
                segment_pages: store.geometry.segment_pages.into(),
            },
            checkpoint: CheckpointRecord {
                identity: self.valid.identity.into(),
                horizon: self.valid.horizon.into(),
                begun: self.valid.begun.into(),
                area: self.valid.area,
            },
            next_stamp: store.clock.next_stamp.into(),
            written: store.clock.written.into(),
            thin: ThinRecord {
                capacity: if store.geometry.thin { store.geometry.capacity } else { 0 }.into(),
                slabs: self.valid.slabs.into(),
                used: self.valid.used.into(),
            },
            reserved: [0; 3975],
            crc: 0.into(),
        }
    }

    fn write_superblocks(&mut self, store: &mut Store, copy: u8) {
        if copy == 0 {
            self.make_valid(self.next);
            let block = self.superblock(store, self.closing && self.is_complete(store));
            let pages = self.blocks.chunks_exact_mut(PAGE_BYTES);
            for (member, page) in (0..store.geometry.members).zip(pages) {
                Superblock { member: member.into(), ..block }.encode(page);
            }
        }
        self.phase = Phase::Superblock(copy);
        self.outstanding = store.geometry.members;
        for member in 0..store.geometry.members {
            let op = MemberOperation::Write { at: u64::from(copy), pages: 1 };
            let token = CommandToken::Superblock(member);
            store.report.checkpoint_pages += 1;
            store.send(token, member, op);
        }
    }

    /// Returns `true` if the checkpoint has everything that the log has.
    fn is_complete(&self, store: &Store) -> bool {
        self.next.horizon == store.clock.next_stamp
    }

    fn end_superblocks(&mut self, store: &mut Store) {
        store.report.checkpoints += 1;
        self.trust_records();
        self.phase = Phase::Idle;
        self.closed = self.closing && self.is_complete(store);
    }

    /// Takes the completion of a write of checkpointing. A failing member makes the volume
    /// read-only.
    pub(crate) fn end(&mut self, store: &mut Store, status: Status) {
        if !status.is_ok() {
            store.end_writes();
            return;
        }
        match self.phase {
            Phase::Writing => self.write_piece(store),
            Phase::Superblock(copy) => {
                self.outstanding -= 1;
                if self.outstanding == 0 {
                    self.phase = Phase::Flushing(store.flusher.ask(), copy + 1);
                }
            }
            other => panic!("the checkpointer writes nothing in {other:?}"),
        }
    }
}
