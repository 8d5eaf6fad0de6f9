//! The collector: moves the live pages of a victim to the ends of the logs.
//!
//! A victim's batch headers, read from the member, say what its pages were; the map says which of
//! them are live. A moved page keeps its stamp, and counts only if the map still names the old
//! place. So a host's write always wins. A page whose checksum is wrong becomes poisoned.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use contract::Status;

use crate::layout::{BatchHead, ENTRIES_MAX, Entry, Kind, PAGE_BYTES, checksum};
use crate::log::Item;
use crate::sabotage::Sabotage;
use crate::segment::State;
use crate::volume::{Command, Into, Op, Token, Volume};

/// Pages of one read of live pages: 128 KiB.
const RUN_PAGES_MAX: usize = 32;

/// Victims that may be under way at once.
const VICTIMS_MAX: u32 = 4;

/// What the collector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing. Ends when space is short.
    Idle,
    /// The next header is to be read.
    Header,
    /// A header is being read. Ends with the read.
    ReadingHeader,
    /// The next live pages of the batch are to be read.
    Pages,
    /// Live pages are being read. Ends with the read.
    ReadingPages,
    /// Read pages are to be staged. Ends when the logs have room.
    Staging,
}

/// A page of the batch under collection.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    place: u32,
    entry: Entry,
}

/// The collector's state.
pub(crate) struct Collector {
    phase: Phase,
    victim: u32,
    /// Page of the victim where the next header begins.
    offset: u32,
    candidates: Vec<Candidate>,
    /// `begin ≤ end ≤ candidates`: the run that is read or staged.
    begin: usize,
    end: usize,
    /// Place of the first page that was read.
    start: u32,
    /// `true` if the run could not be read.
    unreadable: bool,
    buffer: Box<[u8]>,
    /// Victims that are not free yet.
    pub(crate) victims: u32,
    /// Moved pages and poison records that are staged or on their way.
    pub(crate) moves: u64,
    /// `true` if batches are to be closed although nobody waits for them.
    pub(crate) hurries: bool,
}

impl Collector {
    pub(crate) fn new(batch_pages: usize) -> Collector {
        Collector {
            phase: Phase::Idle,
            victim: 0,
            offset: 0,
            candidates: Vec::with_capacity(batch_pages.max(ENTRIES_MAX)),
            begin: 0,
            end: 0,
            start: 0,
            unreadable: false,
            buffer: vec![0; RUN_PAGES_MAX * PAGE_BYTES].into(),
            victims: 0,
            moves: 0,
            hurries: false,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let pages = match self.phase {
            Phase::ReadingPages => self.run_pages(),
            _ => 2,
        };
        &mut self.buffer[..pages * PAGE_BYTES]
    }

    fn run_pages(&self) -> usize {
        let (first, last) = (self.candidates[self.begin], self.candidates[self.end - 1]);
        (last.place - first.place) as usize + 1
    }

    /// Returns `true` if no page is between its old place and its new one.
    pub(crate) fn is_between(&self) -> bool {
        !matches!(self.phase, Phase::ReadingPages | Phase::Staging) && self.moves == 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.moves == 0
    }
}

impl Volume {
    /// Does the collector's next steps that need no completion.
    pub(crate) fn advance_collector(&mut self) {
        self.collector.hurries = self.segments.free() <= self.geometry.reserve() / 2;
        loop {
            let before = (self.collector.phase, self.collector.victim, self.collector.offset);
            match self.collector.phase {
                Phase::Idle => self.choose_victim(),
                Phase::Header => self.read_header(),
                Phase::Pages => self.read_pages(),
                Phase::Staging => self.stage(),
                Phase::ReadingHeader | Phase::ReadingPages => return,
            }
            if before == (self.collector.phase, self.collector.victim, self.collector.offset) {
                return;
            }
        }
    }

    fn choose_victim(&mut self) {
        let enough = self.segments.free() > self.geometry.reserve() + 1;
        if enough || self.checkpointer.waits_for_moves() {
            return;
        }
        if self.collector.victims >= VICTIMS_MAX {
            self.collector.hurries = true;
            return;
        }
        let dense = self.geometry.dense_pages();
        let (written, horizon) = (self.clock.written, self.checkpointer.records_below);
        let victims = self.settings.policy.victims;
        let Some(victim) = self.segments.victim(victims, dense, written, horizon) else {
            // The only segments with space may be those whose records no checkpoint has.
            self.collector.hurries = true;
            self.checkpointer.want();
            return;
        };
        self.report.victims += 1;
        self.collector.victims += 1;
        self.segments.take(victim, State::Victim);
        if self.segments.at(victim).valid == 0 {
            return self.empty(victim);
        }
        self.segments.at_mut(victim).reads += 1;
        (self.collector.victim, self.collector.offset) = (victim, 0);
        self.collector.phase = Phase::Header;
    }

    fn read_header(&mut self) {
        let (victim, offset) = (self.collector.victim, self.collector.offset);
        let segment = *self.segments.at(victim);
        if offset >= segment.fill || segment.valid == 0 {
            return self.leave_victim();
        }
        let pages = 2.min(self.geometry.segment_pages - offset);
        let (member, at) = self.geometry.locate(self.geometry.place(victim, offset));
        self.collector.phase = Phase::ReadingHeader;
        self.read_for_collector(member, at, pages);
    }

    fn read_for_collector(&mut self, member: u16, at: u64, pages: u32) {
        self.report.collect_read_pages += u64::from(pages);
        let op = Op::Read { at, pages, into: Into::Volume };
        self.out.commands.push_back(Command { token: Token::Collect, member, op });
    }

    fn leave_victim(&mut self) {
        self.segments.at_mut(self.collector.victim).reads -= 1;
        self.collector.phase = Phase::Idle;
    }

    /// Ends a read of the collector.
    pub(crate) fn end_collect(&mut self, status: Status) {
        match self.collector.phase {
            Phase::ReadingHeader => self.take_header(status),
            Phase::ReadingPages => {
                self.collector.unreadable = !status.is_ok();
                self.collector.phase = Phase::Staging;
            }
            other => panic!("the collector reads nothing in {other:?}"),
        }
    }

    fn take_header(&mut self, status: Status) {
        let (victim, offset) = (self.collector.victim, self.collector.offset);
        let segment = *self.segments.at(victim);
        let collector = &mut self.collector;
        collector.candidates.clear();
        (collector.begin, collector.end) = (0, 0);
        let header = BatchHead::decode(&collector.buffer[..2 * PAGE_BYTES]);
        let is_it = |head: &BatchHead| {
            head.life.get() == segment.life && head.offset.get() == offset && status.is_ok()
        };
        let Some((head, entries)) = header.filter(|(head, _)| is_it(head)) else {
            // The pages behind are read as before, but nobody knows any more which they are.
            self.report.stuck += 1;
            if self.segments.at(victim).state == State::Victim {
                self.segments.at_mut(victim).state = State::Stuck;
            }
            return self.leave_victim();
        };
        let data_at = offset + head.pages() - u32::from(head.data.get());
        let first = self.geometry.place(victim, data_at);
        for (place, entry) in (first..).zip(&entries[..usize::from(head.data.get())]) {
            if entry.page.get() < self.geometry.pages && self.map.place(entry.page.get()) == place {
                collector.candidates.push(Candidate { place, entry: *entry });
            }
        }
        collector.offset += head.pages();
        collector.phase = Phase::Pages;
    }

    /// Reads the next live pages that lie close together.
    fn read_pages(&mut self) {
        if self.checkpointer.is_wanted() {
            return;
        }
        let collector = &mut self.collector;
        let is_live = |c: &Candidate| self.map.place(c.entry.page.get()) == c.place;
        let rest = &collector.candidates[collector.end..];
        let Some(skipped) = rest.iter().position(is_live) else {
            collector.phase = Phase::Header;
            return;
        };
        collector.begin = collector.end + skipped;
        let first = collector.candidates[collector.begin].place;
        let near = |c: &&Candidate| ((c.place - first) as usize) < RUN_PAGES_MAX;
        let run = collector.candidates[collector.begin..].iter().take_while(near).count();
        collector.end = collector.begin + run;
        collector.start = first;
        let pages = collector.run_pages() as u32;
        collector.phase = Phase::ReadingPages;
        let (member, at) = self.geometry.locate(first);
        self.read_for_collector(member, at, pages);
    }

    /// Copies the pages that were read, and are live still, into the logs' batches.
    fn stage(&mut self) {
        let start = self.collector.start;
        while self.collector.begin < self.collector.end {
            let Candidate { place, entry } = self.collector.candidates[self.collector.begin];
            let page = entry.page.get();
            if self.map.place(page) == place && !self.stage_page(place - start, page, entry) {
                self.collector.hurries = true;
                return;
            }
            self.collector.begin += 1;
        }
        self.collector.phase = Phase::Pages;
    }

    fn stage_page(&mut self, index: u32, page: u32, entry: Entry) -> bool {
        let at = index as usize * PAGE_BYTES;
        let bytes = &self.collector.buffer[at..at + PAGE_BYTES];
        let whole = !self.collector.unreadable
            && (!self.settings.data || checksum(bytes) == entry.check.get());
        let heat = self.map.heat(page);
        let coldest = self.geometry.streams - 1;
        let scarce = self.segments.free() <= u32::from(self.geometry.streams);
        let stream = if scarce { coldest } else { self.settings.policy.stream(heat) };
        let from = self.map.place(page);
        let check = entry.check.get();
        let stamp = match self.is_sabotaged(Sabotage::NewStamps) {
            true => self.clock.next_stamp,
            false => entry.stamp(),
        };
        let log = &mut self.logs[usize::from(stream)];
        if !log.takes(usize::from(whole), usize::from(!whole), true) {
            return false;
        }
        let filling = &mut log.filling;
        if whole {
            let item = Item { page, kind: Kind::Moved, heat, stamp, check, from };
            if let Some(to) = filling.push(item) {
                to.copy_from_slice(bytes);
            }
            self.report.moved_pages += 1;
        } else {
            let item = Item { page, kind: Kind::Poisoned, heat, stamp, check: 1, from };
            filling.records.push(item);
        }
        self.collector.moves += 1;
        true
    }
}
