//! The collector: moves the live pages of a victim to the ends of the logs.
//!
//! A victim's batch headers, read from the member, say what its pages were; the map says which of
//! them are live. A moved page keeps its stamp, and counts only if the map still names the old
//! place. So a host's write always wins. A page whose checksum is wrong becomes poisoned.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use contract::Status;

use crate::checkpoint::{Checkpointer, CollectionState};
use crate::command::{CommandToken, MemberOperation, ReadDestination};
use crate::field_codec::FieldCodec;
use crate::layout::{BatchHead, ENTRIES_MAX, Entry, Kind, PAGE_BYTES, page_sum};
use crate::log::Item;
use crate::pace::Pace;
use crate::sabotage::Sabotage;
use crate::segment::State;
use crate::store::Store;

/// Maximum number of pages of one read: 128 KiB.
const RUN_PAGES_MAX: usize = 32;

/// Maximum number of pages of a batch header.
const HEADER_PAGES: u32 = 2;

/// Maximum number of segments that are victims at a time.
const VICTIMS_MAX: u32 = 4;

/// A step of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No victim is under collection. The state ends when free segments are few.
    Idle,
    /// The next batch header must be read.
    Header,
    /// A header is being read. The state ends with the read.
    ReadingHeader,
    /// The next live pages of the batch must be read.
    Pages,
    /// Live pages are being read. The state ends with the read.
    ReadingPages,
    /// The pages that were read must be staged. The state ends when the logs have room.
    Staging,
}

/// A live page of the batch under collection.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    place: u32,
    entry: Entry,
}

/// The collector of a volume and its state.
pub(crate) struct Collector {
    phase: Phase,
    victim: u32,
    /// Offset in the victim, in pages, where the next batch header begins.
    offset: u32,
    /// Offset of the header of the batch under collection.
    batch_at: u32,
    /// Number of pages that are read from a header on: more where batches of lone writes lie close
    /// together.
    ahead: u32,
    candidates: Vec<Candidate>,
    /// The run of candidates that is read or staged: `begin ≤ end ≤ candidates.len()`.
    begin: usize,
    end: usize,
    /// Place of the first page in the buffer (`start`), and number of pages there (`held`), which
    /// is zero before the first read.
    start: u32,
    held: u32,
    /// `true` if the run's pages could not be read.
    unreadable: bool,
    buffer: Box<[u8]>,
    /// `true` if the logs' batches must be closed although no request waits for them.
    hurries: bool,
    pub(crate) pace: Pace,
}

impl Collector {
    pub(crate) fn new(batch_pages: usize) -> Collector {
        Collector {
            phase: Phase::Idle,
            victim: 0,
            offset: 0,
            batch_at: 0,
            ahead: HEADER_PAGES,
            candidates: Vec::with_capacity(batch_pages.max(ENTRIES_MAX)),
            begin: 0,
            end: 0,
            start: 0,
            held: 0,
            unreadable: false,
            buffer: vec![0; RUN_PAGES_MAX * PAGE_BYTES].into(),
            hurries: false,
            pace: Pace::default(),
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.held as usize * PAGE_BYTES]
    }

    /// Returns `true` while garbage collection reads the header of a segment, and not yet its data.
    pub(crate) fn reads_header(&self) -> bool {
        self.phase == Phase::ReadingHeader
    }

    /// Returns the number of pages in the buffer from a place on; zero if the place is not there.
    fn held_from(&self, place: u32) -> u32 {
        let begins = self.start <= place;
        if begins { (self.start + self.held).saturating_sub(place) } else { 0 }
    }

    fn run_pages(&self) -> usize {
        let (first, last) = (self.candidates[self.begin], self.candidates[self.end - 1]);
        (last.place - first.place) as usize + 1
    }

    /// Returns `true` if no victim is under collection.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Returns `true` if the logs' batches must be closed although no request waits for them.
    pub(crate) fn hurries(&self) -> bool {
        self.hurries
    }

    /// Returns the state of garbage collection that a checkpoint records.
    pub(crate) fn motion(&self, store: &Store) -> CollectionState {
        match self.phase {
            Phase::ReadingPages | Phase::Staging => CollectionState::Moving,
            _ if store.moves > 0 => CollectionState::Moving,
            Phase::Idle => CollectionState::Idle,
            _ => CollectionState::Between,
        }
    }

    /// Does the collector's next steps, up to one that waits for a completion, room or the pace.
    pub(crate) fn advance(&mut self, store: &mut Store, gate: &mut Checkpointer) {
        // Small batches spend on headers what collection gains: only what waits for nothing but
        // their end closes them.
        self.hurries = false;
        loop {
            let before = (self.phase, self.victim, self.offset);
            match self.phase {
                Phase::Idle => self.choose_victim(store, gate),
                Phase::Header => self.read_header(store),
                Phase::Pages => self.read_pages(store, gate),
                Phase::Staging => self.stage(store),
                Phase::ReadingHeader | Phase::ReadingPages => return,
            }
            if before == (self.phase, self.victim, self.offset) {
                return;
            }
        }
    }

    fn choose_victim(&mut self, store: &mut Store, gate: &mut Checkpointer) {
        let enough = store.segments.free() > store.reserve() + 1;
        if enough {
            self.pace.rest();
        }
        if enough || gate.waits_for_moves() {
            return;
        }
        if store.segments.victims() >= VICTIMS_MAX {
            self.hurries = true;
            return;
        }
        let (written, horizon) = (store.clock.written, gate.records_below());
        let victims = store.settings.policy.victims(store.trend.is_even());
        let early = store.is_sabotaged(Sabotage::UnpinnedMoves);
        let durable_below = if early { u64::MAX } else { store.flusher.durable_below };
        let bounds = (horizon, durable_below);
        let Some(victim) = store.segments.victim(victims, written, bounds) else {
            // The only segments with space may be those that no flush covers, or whose records no
            // checkpoint has. A flush costs less, so a checkpoint is wanted only after it.
            if store.segments.waits_for_flush(durable_below) {
                store.flusher.ask();
            } else {
                self.hurries = true;
                gate.want();
            }
            return;
        };
        store.report.victims += 1;
        store.segments.take(victim, State::Victim);
        let (live, is_lone) = (store.segments.at(victim).valid, store.is_lone(victim));
        if !is_lone {
            store.trend.note_victim(live, store.geometry.segment_pages);
        }
        if live == 0 {
            return store.empty(victim);
        }
        store.segments.at_mut(victim).reads += 1;
        self.ahead = if is_lone { RUN_PAGES_MAX as u32 } else { HEADER_PAGES };
        (self.victim, self.offset, self.held) = (victim, 0, 0);
        self.phase = Phase::Header;
    }

    fn read_header(&mut self, store: &mut Store) {
        let (victim, offset) = (self.victim, self.offset);
        let segment = *store.segments.at(victim);
        if offset >= segment.fill || segment.valid == 0 {
            return self.leave_victim(store);
        }
        let (place, left) = (store.geometry.place(victim, offset), segment.fill - offset);
        let least = HEADER_PAGES.min(store.geometry.segment_pages - offset);
        if self.held_from(place) >= HEADER_PAGES {
            return self.take_header(store, Status::Ok);
        }
        let pages = self.ahead.min(left).max(least);
        if self.may_read(store, pages) {
            self.phase = Phase::ReadingHeader;
            self.send_read(store, place, pages);
        }
    }

    /// Returns `true` if garbage collection may read `pages` more pages now, and counts these pages
    /// in its rate limit.
    fn may_read(&mut self, store: &Store, pages: u32) -> bool {
        let is_short = store.segments.free() < store.reserve();
        self.pace.spend(pages, is_short || store.settings.policy.is_baseline())
    }

    /// Sends a read of `pages` pages from a place on into the buffer.
    fn send_read(&mut self, store: &mut Store, place: u32, pages: u32) {
        (self.start, self.held) = (place, pages);
        let (member, at) = store.locate(place);
        store.report.collect_read_pages += u64::from(pages);
        let op = MemberOperation::Read { at, pages, into: ReadDestination::Volume };
        store.send(CommandToken::Collect, member, op);
    }

    /// Returns `true` while a read of the collector is in progress.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::ReadingHeader | Phase::ReadingPages)
    }

    /// Goes back to the header of the batch under collection: pages that were moved are not live
    /// there any more. No read is in progress.
    pub(crate) fn rewind(&mut self) {
        if matches!(self.phase, Phase::Pages | Phase::Staging) {
            (self.offset, self.phase) = (self.batch_at, Phase::Header);
        }
        self.candidates.clear();
        (self.begin, self.end, self.held) = (0, 0, 0);
    }

    /// Writes or reads the state of a collector that has [gone back](Collector::rewind).
    pub(crate) fn hand_over(&mut self, store: &Store, scribe: &mut FieldCodec<'_>) {
        let mut collects = self.phase == Phase::Header;
        scribe.bool(&mut collects);
        for field in [&mut self.victim, &mut self.offset, &mut self.ahead] {
            scribe.u32(field);
        }
        scribe.check(self.victim < store.geometry.segments());
        scribe.check(self.offset <= store.geometry.segment_pages);
        scribe.check((HEADER_PAGES..=RUN_PAGES_MAX as u32).contains(&self.ahead));
        self.pace.hand_over(scribe);
        self.phase = if collects { Phase::Header } else { Phase::Idle };
    }

    fn leave_victim(&mut self, store: &mut Store) {
        store.segments.at_mut(self.victim).reads -= 1;
        self.phase = Phase::Idle;
    }

    /// Takes the completion of a read of the collector.
    pub(crate) fn end(&mut self, store: &mut Store, status: Status) {
        match self.phase {
            Phase::ReadingHeader => self.take_header(store, status),
            Phase::ReadingPages => {
                self.unreadable = !status.is_ok();
                self.phase = Phase::Staging;
            }
            other => panic!("the collector reads nothing in {other:?}"),
        }
    }

    fn take_header(&mut self, store: &mut Store, status: Status) {
        let (victim, offset) = (self.victim, self.offset);
        let segment = *store.segments.at(victim);
        self.candidates.clear();
        (self.begin, self.end) = (0, 0);
        if !status.is_ok() && self.ahead > HEADER_PAGES {
            // One of the pages behind may be the one that fails.
            (self.ahead, self.held, self.phase) = (HEADER_PAGES, 0, Phase::Header);
            return;
        }
        let at = (store.geometry.place(victim, offset) - self.start) as usize * PAGE_BYTES;
        let rest = &self.buffer[at..self.held as usize * PAGE_BYTES];
        let header = BatchHead::decode(&rest[..rest.len().min(HEADER_PAGES as usize * PAGE_BYTES)]);
        let is_it = |head: &BatchHead| {
            head.life.get() == segment.life && head.offset.get() == offset && status.is_ok()
        };
        let Some((head, entries)) = header.filter(|(head, _)| is_it(head)) else {
            // The pages behind are read as before, but nobody knows any more which they are.
            store.report.stuck += 1;
            if store.segments.at(victim).state == State::Victim {
                store.segments.set_state(victim, State::Stuck);
            }
            return self.leave_victim(store);
        };
        let data_at = offset + head.pages() - u32::from(head.data.get());
        let first = store.geometry.place(victim, data_at);
        for (place, entry) in (first..).zip(&entries[..usize::from(head.data.get())]) {
            if entry.page.get() < store.geometry.pages && store.map.place(entry.page.get()) == place
            {
                self.candidates.push(Candidate { place, entry: *entry });
            }
        }
        self.batch_at = offset;
        self.offset += head.pages();
        self.phase = Phase::Pages;
    }

    /// Reads the batch's next live pages that lie close together, unless a checkpoint waits to
    /// begin.
    fn read_pages(&mut self, store: &mut Store, gate: &Checkpointer) {
        if gate.is_wanted() {
            return;
        }
        let is_live = |c: &Candidate| store.map.place(c.entry.page.get()) == c.place;
        let rest = &self.candidates[self.end..];
        let Some(skipped) = rest.iter().position(is_live) else {
            self.phase = Phase::Header;
            return;
        };
        self.begin = self.end + skipped;
        let first = self.candidates[self.begin].place;
        let near = |c: &&Candidate| ((c.place - first) as usize) < RUN_PAGES_MAX;
        let run = self.candidates[self.begin..].iter().take_while(near).count();
        self.end = self.begin + run;
        let pages = self.run_pages() as u32;
        if self.held_from(first) >= pages {
            (self.phase, self.unreadable) = (Phase::Staging, false);
            return;
        }
        if self.may_read(store, pages) {
            self.phase = Phase::ReadingPages;
            self.send_read(store, first, pages);
        } else {
            self.end = self.begin;
        }
    }

    /// Copies the pages that were read and are still live into the logs' batches.
    fn stage(&mut self, store: &mut Store) {
        let start = self.start;
        while self.begin < self.end {
            let Candidate { place, entry } = self.candidates[self.begin];
            let page = entry.page.get();
            if store.map.place(page) == place && !self.stage_page(store, place - start, page, entry)
            {
                return;
            }
            self.begin += 1;
        }
        self.phase = Phase::Pages;
    }

    fn stage_page(&mut self, store: &mut Store, index: u32, page: u32, entry: Entry) -> bool {
        let at = index as usize * PAGE_BYTES;
        let bytes = &self.buffer[at..at + PAGE_BYTES];
        let whole =
            !self.unreadable && (!store.settings.data || page_sum(bytes) == entry.check.get());
        let heat = store.map.heat(page);
        let coldest = store.geometry.streams - 1;
        let scarce = store.segments.free() <= u32::from(store.geometry.streams);
        let stream = if scarce { coldest } else { store.stream(heat) };
        let from = store.map.place(page);
        let check = entry.check.get();
        let stamp = match store.is_sabotaged(Sabotage::NewStamps) {
            true => store.clock.next_stamp,
            false => entry.stamp(),
        };
        let log = &mut store.logs[usize::from(stream)];
        if !log.takes(usize::from(whole), usize::from(!whole), true) {
            return false;
        }
        let filling = &mut log.filling;
        if whole {
            let item = Item { page, kind: Kind::Moved, heat, stamp, check, from, is_fresh: false };
            if let Some(to) = filling.push(item) {
                to.copy_from_slice(bytes);
            }
            store.report.moved_pages += 1;
        } else {
            let item =
                Item { page, kind: Kind::Poisoned, heat, stamp, check: 1, from, is_fresh: false };
            filling.records.push(item);
        }
        store.begin_move(from);
        true
    }
}
