//! A volume: takes requests and completions, yields commands for its members and replies.
//!
//! Nothing here blocks, and nothing is allocated after [`open`](Volume::open). Deliberately left
//! out: what moves live pages (`collect`), what writes checkpoints (`checkpoint`), and what reads
//! them back (`open`).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use contract::{Slot, Status};

use crate::checkpoint::Checkpointer;
use crate::collect::Collector;
use crate::flight::{Bound, Flight};
use crate::flush::Flusher;
use crate::geometry::Geometry;
use crate::layout::{BATCH_MAGIC, BatchHead, FLAG_ATOMIC, Kind, PAGE_BYTES, VERSION, checksum};
use crate::log::{Item, Log, Waiter};
use crate::map::{Map, POISONED, UNMAPPED};
use crate::policy::Policy;
use crate::report::Report;
use crate::sabotage::Sabotage;
use crate::segment::{Segments, State};

/// Requests that may be under way at once.
pub const REQUESTS_MAX: usize = 1024;

/// Commands that may wait for the caller to take them.
const COMMANDS_MAX: usize = 4096;

/// Pages of a discard that one record carries.
const RUN_PAGES_MAX: u32 = 1024;

/// Discards that may be under way at once.
const DISCARDS_MAX: usize = 8;

/// A request of a host, in pages.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Reads pages.
    Read {
        /// First page.
        page: u32,
        /// Number of pages.
        pages: u32,
    },
    /// Writes pages.
    Write {
        /// First page.
        page: u32,
        /// Number of pages.
        pages: u32,
        /// The data; empty on members without data.
        data: &'a [u8],
        /// `true` if the data must be durable before the reply.
        fua: bool,
        /// `true` if a crash leaves all of the pages or none.
        atomic: bool,
    },
    /// Discards pages: they read as zeroes.
    Discard {
        /// First page.
        page: u32,
        /// Number of pages.
        pages: u32,
    },
    /// Makes all acknowledged writes durable.
    Flush,
}

/// The refusal of a request for lack of room: to be repeated after some completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's slot.
    pub slot: Slot,
    /// The status.
    pub status: Status,
}

/// The name of a command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// A read for a host, by its place in the table of reads, with place and number of pages.
    Read(u16, u32, u32),
    /// A batch of a log.
    Batch(u8),
    /// A read of the collector.
    Collect,
    /// A flush of a member.
    Flush(u16),
    /// A discard of a segment.
    Discard(u32),
    /// A write of the checkpoint.
    Checkpoint,
    /// A superblock of a member.
    Superblock(u16),
}

/// Where the data of a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// To the request's buffer, from this page on.
    Host(Slot, u32),
    /// To the volume: [`Volume::bytes_mut`].
    Volume,
}

/// An operation on a member, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
        /// Where the data goes.
        into: Into,
    },
    /// Writes [`Volume::bytes`].
    Write {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Makes all that was written durable.
    Flush,
    /// Gives pages back to the member.
    Discard {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Zeroes pages of the request's buffer. Never completed, as no member takes part.
    Zero {
        /// The request.
        slot: Slot,
        /// First page of the buffer.
        first: u32,
        /// Number of pages.
        pages: u32,
    },
}

/// A command for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The name to complete it by.
    pub token: Token,
    /// The member.
    pub member: u16,
    /// The operation.
    pub op: Op,
}

/// How a volume is run. May differ from one opening to the next.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The choice of victims, and the streams.
    pub policy: Policy,
    /// `true` if freed segments are discarded on the members.
    pub discards: bool,
    /// `false` for members that keep headers only, to measure amplification.
    pub data: bool,
    /// Pages after which the volume flushes by itself, which bounds what recovery has to prove.
    pub flush_pages: u32,
}

impl Settings {
    /// Returns settings for this policy: discards, and a flush every 64 MiB.
    pub const fn new(policy: Policy) -> Settings {
        Settings { policy, discards: true, data: true, flush_pages: 16_384 }
    }
}

/// Stamps, sessions and the clock of ages.
pub(crate) struct Clock {
    pub(crate) next_stamp: u64,
    pub(crate) session: u64,
    pub(crate) opened: u32,
    /// Pages that hosts wrote in the volume's life.
    pub(crate) written: u64,
}

/// A read of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    slot: Slot,
    parts: u32,
    status: Status,
}

/// A discard: `begin ≤ next ≤ end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Discarding {
    slot: Slot,
    begin: u32,
    next: u32,
    end: u32,
    /// `true` while a record is on its way.
    sent: bool,
}

/// A queue of commands and replies to take.
pub(crate) struct Out {
    pub(crate) commands: VecDeque<Command>,
    replies: VecDeque<Reply>,
    reads: Box<[Option<Read>]>,
    free_reads: Vec<u16>,
}

/// A volume in service.
pub struct Volume {
    pub(crate) geometry: Geometry,
    pub(crate) settings: Settings,
    pub(crate) map: Map,
    pub(crate) segments: Segments,
    pub(crate) logs: Box<[Log]>,
    pub(crate) flight: Flight,
    pub(crate) clock: Clock,
    pub(crate) flusher: Flusher,
    pub(crate) discards: Vec<Discarding>,
    /// Segments without live pages, with the round of flushes that they wait for.
    pub(crate) emptied: VecDeque<(u64, u32)>,
    pub(crate) collector: Collector,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) out: Out,
    pub(crate) report: Report,
    /// `true` after failures that no other segment mended.
    pub(crate) read_only: bool,
    #[cfg(test)]
    pub(crate) sabotage: Option<Sabotage>,
}

impl Volume {
    /// Returns a volume with an empty map.
    pub(crate) fn new(geometry: Geometry, settings: Settings, clock: Clock) -> Volume {
        let batch = geometry.batch_pages_max() as usize;
        let streams = usize::from(geometry.streams);
        let log = |_| Log::new(geometry.segment_pages, batch, settings.data);
        let durable_below = clock.next_stamp;
        Volume {
            geometry,
            settings,
            map: Map::new(geometry.pages),
            segments: Segments::new(geometry.segments()),
            logs: (0..streams).map(log).collect(),
            flight: Flight::new(2 * streams * batch),
            clock,
            flusher: Flusher::new(durable_below, REQUESTS_MAX),
            discards: Vec::with_capacity(DISCARDS_MAX),
            emptied: VecDeque::with_capacity(geometry.segments() as usize),
            collector: Collector::new(batch),
            checkpointer: Checkpointer::new(),
            out: Out {
                commands: VecDeque::with_capacity(COMMANDS_MAX),
                replies: VecDeque::with_capacity(2 * REQUESTS_MAX),
                reads: (0..REQUESTS_MAX).map(|_| None).collect(),
                free_reads: (0..REQUESTS_MAX as u16).rev().collect(),
            },
            report: Report::default(),
            read_only: false,
            #[cfg(test)]
            sabotage: None,
        }
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the counters since the opening, and the state now.
    pub fn report(&self) -> Report {
        let (wear_min, wear_sum, wear_max) = self.segments.wear();
        let free = self.segments.free();
        Report { free, wear_min, wear_sum, wear_max, read_only: self.read_only, ..self.report }
    }

    /// Takes a request. The reply comes by [`reply`](Volume::reply), often within this call.
    ///
    /// # Errors
    /// [`Busy`] when the request has to wait for room: nothing was done.
    pub fn submit(&mut self, slot: Slot, request: Request<'_>) -> Result<(), Busy> {
        if self.out.replies.len() + REQUESTS_MAX > self.out.replies.capacity() {
            return Err(Busy);
        }
        let (page, pages) = match request {
            Request::Flush if !self.flusher.has_room() => return Err(Busy),
            Request::Flush => {
                self.flusher.wait(slot);
                return Ok(());
            }
            Request::Read { page, pages }
            | Request::Discard { page, pages }
            | Request::Write { page, pages, .. } => (page, pages),
        };
        let is_run = matches!(request, Request::Discard { .. });
        if pages == 0 || (!is_run && pages > self.geometry.batch_pages_max()) {
            return self.answer(slot, Status::BadLength);
        }
        if page.checked_add(pages).is_none_or(|end| end > self.geometry.pages) {
            return self.answer(slot, Status::OutOfRange);
        }
        match request {
            Request::Read { .. } => self.read(slot, page, pages),
            _ if self.read_only => self.answer(slot, Status::ReadOnly),
            Request::Discard { .. } => self.discard(slot, page, pages),
            Request::Write { data, fua, atomic, .. } => {
                self.write(slot, (page, pages), data, fua, atomic)
            }
            Request::Flush => Ok(()),
        }
    }

    fn answer(&mut self, slot: Slot, status: Status) -> Result<(), Busy> {
        self.out.replies.push_back(Reply { slot, status });
        Ok(())
    }

    fn read(&mut self, slot: Slot, page: u32, pages: u32) -> Result<(), Busy> {
        let room = self.out.commands.len() + pages as usize <= COMMANDS_MAX;
        let Some(&index) = self.out.free_reads.last().filter(|_| room) else { return Err(Busy) };
        let places = &self.map.places()[page as usize..(page + pages) as usize];
        if places.contains(&POISONED) {
            return self.answer(slot, Status::MediaError);
        }
        let mut parts = 0;
        let mut first = 0;
        while first < pages {
            let place = self.map.place(page + first);
            let mut run = 1;
            while first + run < pages && self.follows(place, run, page + first + run) {
                run += 1;
            }
            let (token, member, op) = if place == UNMAPPED {
                (Token::Collect, 0, Op::Zero { slot, first, pages: run })
            } else {
                let (member, at) = self.geometry.locate(place);
                self.segments.at_mut(place / self.geometry.segment_pages).reads += run;
                parts += 1;
                let read = Op::Read { at, pages: run, into: Into::Host(slot, first) };
                (Token::Read(index, place, run), member, read)
            };
            self.out.commands.push_back(Command { token, member, op });
            first += run;
        }
        if parts == 0 {
            return self.answer(slot, Status::Ok);
        }
        self.out.free_reads.pop();
        self.out.reads[usize::from(index)] = Some(Read { slot, parts, status: Status::Ok });
        Ok(())
    }

    /// Returns `true` if the page at `next` goes on where `run` pages from `place` end.
    fn follows(&self, place: u32, run: u32, next: u32) -> bool {
        let after = self.map.place(next);
        match place {
            UNMAPPED => after == UNMAPPED,
            _ => {
                let segment = self.geometry.segment_pages;
                after == place + run && after / segment == place / segment
            }
        }
    }

    fn write(
        &mut self,
        slot: Slot,
        (page, pages): (u32, u32),
        data: &[u8],
        fua: bool,
        atomic: bool,
    ) -> Result<(), Busy> {
        let bytes = if self.settings.data { pages as usize * PAGE_BYTES } else { 0 };
        if data.len() != bytes {
            return self.answer(slot, Status::BadLength);
        }
        let end = page + pages;
        if self.discards.iter().any(|d| d.begin < end && page < d.end) || !self.flusher.has_room() {
            return Err(Busy);
        }
        let stream = match self.flight.bound(page, pages) {
            Bound::Split => return Err(Busy),
            Bound::To(stream) => stream,
            Bound::Free => {
                let heat: u32 = (page..end).map(|p| u32::from(self.map.next_heat(p))).sum();
                self.settings.policy.stream((heat / pages) as u8)
            }
        };
        let may_open = self.segments.free() > self.geometry.reserve();
        let log = &mut self.logs[usize::from(stream)];
        if !log.takes(pages as usize, 0, may_open) {
            return Err(Busy);
        }
        for (index, page) in (page..end).enumerate() {
            let bytes = data.get(index * PAGE_BYTES..(index + 1) * PAGE_BYTES);
            let check = bytes.map_or(0, checksum);
            let heat = self.map.warm(page);
            let kind = Kind::Host;
            let item = Item { page, kind, heat, stamp: 0, check, from: UNMAPPED };
            if let (Some(to), Some(bytes)) = (log.filling.push(item), bytes) {
                to.copy_from_slice(bytes);
            }
            self.flight.enter(page, stream);
        }
        log.filling.atomic |= atomic;
        log.filling.waiters.push(Waiter { slot, fua: fua || atomic });
        self.clock.written += u64::from(pages);
        self.report.host_pages += u64::from(pages);
        Ok(())
    }

    fn discard(&mut self, slot: Slot, page: u32, pages: u32) -> Result<(), Busy> {
        let end = page + pages;
        let overlaps = self.discards.iter().any(|d| d.begin < end && page < d.end);
        if overlaps || self.discards.len() == DISCARDS_MAX {
            return Err(Busy);
        }
        self.discards.push(Discarding { slot, begin: page, next: page, end, sent: false });
        Ok(())
    }

    /// Stages the next records of discards. A discard waits until no write to its pages is on its
    /// way; new writes to them wait for the discard.
    fn advance_discards(&mut self) {
        let may_open = self.segments.free() > self.geometry.reserve();
        let coldest = self.logs.len() - 1;
        for index in 0..self.discards.len() {
            let discard = self.discards[index];
            let run = RUN_PAGES_MAX.min(discard.end - discard.next);
            let waits = discard.sent || self.flight.bound(discard.next, run) != Bound::Free;
            if waits || !self.logs[coldest].takes(0, 1, may_open) {
                continue;
            }
            let (page, kind) = (discard.next, Kind::Discarded);
            let item = Item { page, kind, heat: 0, stamp: 0, check: run, from: UNMAPPED };
            self.logs[coldest].filling.records.push(item);
            self.discards[index].sent = true;
        }
    }

    /// Does what can be done now: closes batches, frees segments, collects, writes checkpoints,
    /// flushes. To be called once a turn, after requests and completions.
    pub fn advance(&mut self) {
        if !self.read_only {
            self.advance_discards();
            self.advance_collector();
            self.advance_checkpoint();
            let hurry = self.collector.hurries || self.checkpointer.waits_for_moves();
            for log in 0..self.logs.len() {
                self.close_batch(log, hurry);
            }
            self.advance_emptied();
        }
        let floor = self.lowest_base();
        if self.flusher.begin(self.geometry.members, floor) {
            self.report.flushes += 1;
            self.report.unflushed_pages = 0;
            for member in 0..self.geometry.members {
                let token = Token::Flush(member);
                self.out.commands.push_back(Command { token, member, op: Op::Flush });
            }
        }
    }

    /// Returns the lowest stamp of a batch on its way, or the next stamp.
    fn lowest_base(&self) -> u64 {
        let flying = self.logs.iter().filter(|log| log.is_flying).map(|log| log.flying.base);
        flying.min().unwrap_or(self.clock.next_stamp)
    }

    fn close_batch(&mut self, index: usize, hurry: bool) {
        let log = &mut self.logs[index];
        if log.is_flying || log.filling.is_empty() {
            return;
        }
        let waited_for = !log.filling.waiters.is_empty() || !log.filling.records.is_empty();
        if !(waited_for || hurry || !log.takes(1, 0, false)) {
            return;
        }
        if log.left() < log.filling.pages() as u32 && !self.open_segment(index) {
            return;
        }
        let log = &mut self.logs[index];
        let base = self.clock.next_stamp;
        (log.filling.base, log.filling.first) = (base, base);
        for item in log.filling.data.iter_mut().chain(&mut log.filling.records) {
            if matches!(item.kind, Kind::Host | Kind::Discarded) {
                item.stamp = self.clock.next_stamp;
            }
            self.clock.next_stamp += 1;
        }
        log.launch();
        self.send_batch(index);
    }

    /// Closes the log's segment and opens another; returns `false` if none is free.
    fn open_segment(&mut self, index: usize) -> bool {
        if self.segments.free() == 0 {
            return false;
        }
        self.seal(index);
        let life = self.clock.session << 32 | u64::from(self.clock.opened);
        self.clock.opened += 1;
        let opened = self.segments.open(index as u8, life);
        let log = &mut self.logs[index];
        (log.segment, log.cursor) = (opened, 0);
        true
    }

    /// Closes the log's open segment, if it has one.
    pub(crate) fn seal(&mut self, index: usize) {
        let log = &mut self.logs[index];
        log.cursor = self.geometry.segment_pages;
        if let Some(segment) = log.segment.take() {
            self.segments.close(segment, self.clock.written);
        }
    }

    /// Writes the batch on its way to the log's open segment.
    fn send_batch(&mut self, index: usize) {
        let log = &mut self.logs[index];
        let segment = log.segment.expect("a segment was opened");
        let pages = log.flying.pages() as u32;
        log.flying.offset = log.cursor;
        log.cursor += pages;
        let entry = self.segments.at_mut(segment);
        (entry.last, entry.fill) = (log.flying.base, log.cursor);
        if !log.flying.records.is_empty() {
            entry.records = log.flying.base;
        }
        let mut volume = [0; 8];
        volume.copy_from_slice(&self.geometry.uuid[..8]);
        let head = BatchHead {
            magic: BATCH_MAGIC,
            volume,
            life: entry.life.into(),
            base: log.flying.base.into(),
            durable_below: self.flusher.durable_below.into(),
            segment: segment.into(),
            offset: log.flying.offset.into(),
            wear: entry.wear.into(),
            data: (log.flying.data.len() as u16).into(),
            records: (log.flying.records.len() as u16).into(),
            flags: if log.flying.atomic { FLAG_ATOMIC } else { 0 },
            stream: index as u8,
            version: VERSION.into(),
            crc: 0.into(),
        };
        log.flying.encode(&head);
        let (member, at) = self.geometry.locate(self.geometry.place(segment, log.flying.offset));
        let token = Token::Batch(index as u8);
        self.report.log_pages += u64::from(pages);
        self.report.header_pages += log.flying.header_pages() as u64;
        self.report.unflushed_pages += pages;
        self.checkpointer.log_pages += u64::from(pages);
        self.out.commands.push_back(Command { token, member, op: Op::Write { at, pages } });
        if self.report.unflushed_pages >= self.settings.flush_pages {
            self.flusher.ask();
        }
    }

    /// Returns the bytes of a write: whole pages, or less on members without data.
    pub fn bytes(&self, token: Token) -> &[u8] {
        match token {
            Token::Batch(log) => self.logs[usize::from(log)].flying.bytes(),
            Token::Checkpoint => self.checkpointer.bytes(),
            Token::Superblock(member) => self.checkpointer.superblock(member),
            _ => &[],
        }
    }

    /// Returns where the data of a read goes whose command says [`Into::Volume`].
    pub fn bytes_mut(&mut self, token: Token) -> &mut [u8] {
        match token {
            Token::Collect => self.collector.bytes_mut(),
            _ => &mut [],
        }
    }

    /// Takes the next command for a member.
    pub fn command(&mut self) -> Option<Command> {
        self.out.commands.pop_front()
    }

    /// Takes the next reply.
    pub fn reply(&mut self) -> Option<Reply> {
        self.out.replies.pop_front()
    }

    /// Ends a command.
    pub fn complete(&mut self, token: Token, status: Status) {
        match token {
            Token::Read(index, place, pages) => self.end_read(index, place, pages, status),
            Token::Batch(log) if status.is_ok() => self.land(usize::from(log)),
            Token::Batch(log) => self.repeat(usize::from(log)),
            Token::Collect => self.end_collect(status),
            Token::Flush(_) => self.end_flush(status),
            Token::Discard(segment) => {
                self.segments.release(segment);
                self.collector.victims -= 1;
            }
            Token::Checkpoint | Token::Superblock(_) => self.end_checkpoint(status),
        }
    }

    fn end_read(&mut self, index: u16, place: u32, pages: u32, status: Status) {
        let segment = place / self.geometry.segment_pages;
        self.segments.at_mut(segment).reads -= pages;
        let entry = &mut self.out.reads[usize::from(index)];
        let read = entry.as_mut().expect("the read is in flight");
        read.parts -= 1;
        if !status.is_ok() {
            read.status = status;
        }
        if read.parts == 0 {
            self.out.replies.push_back(Reply { slot: read.slot, status: read.status });
            *entry = None;
            self.out.free_reads.push(index);
        }
    }

    fn end_flush(&mut self, status: Status) {
        self.flusher.end(status.is_ok());
        self.read_only |= self.flusher.failed;
        while let Some((slot, durable)) = self.flusher.pop() {
            let status = if durable { Status::Ok } else { Status::MediaError };
            self.out.replies.push_back(Reply { slot, status });
        }
    }

    /// Installs the pages of a batch that was written, and answers its requests.
    fn land(&mut self, index: usize) {
        let log = &self.logs[index];
        let segment = log.segment.expect("the batch's segment is open");
        let data_at = log.flying.offset + log.flying.header_pages() as u32;
        for at in 0..self.logs[index].flying.data.len() {
            let item = self.logs[index].flying.data[at];
            let place = self.geometry.place(segment, data_at + at as u32);
            match item.kind {
                Kind::Host => self.flight.leave(item.page),
                _ => {
                    self.collector.moves -= 1;
                    let blind = self.is_sabotaged(Sabotage::BlindMoves);
                    if self.map.place(item.page) != item.from && !blind {
                        continue;
                    }
                }
            }
            let old = self.map.set(item.page, place);
            self.segments.at_mut(segment).valid += 1;
            self.invalidate(old);
        }
        for at in 0..self.logs[index].flying.records.len() {
            let item = self.logs[index].flying.records[at];
            self.land_record(item);
        }
        for at in 0..self.logs[index].flying.waiters.len() {
            let waiter = self.logs[index].flying.waiters[at];
            match waiter.fua {
                true => self.flusher.wait(waiter.slot),
                false => {
                    self.out.replies.push_back(Reply { slot: waiter.slot, status: Status::Ok })
                }
            }
        }
        self.logs[index].land();
    }

    fn land_record(&mut self, item: Item) {
        if item.kind == Kind::Poisoned {
            self.collector.moves -= 1;
            if self.map.place(item.page) == item.from {
                self.map.set(item.page, POISONED);
                self.invalidate(item.from);
                self.report.poisoned += 1;
            }
            return;
        }
        for page in item.page..item.page + item.check {
            let old = self.map.set(page, UNMAPPED);
            self.invalidate(old);
        }
        let found = self.discards.iter().position(|d| d.sent && d.next == item.page);
        // Not there: the volume became read-only meanwhile, and the request was answered.
        let Some(index) = found else { return };
        let discard = &mut self.discards[index];
        (discard.next, discard.sent) = (item.page + item.check, false);
        if discard.next == discard.end {
            let slot = self.discards.swap_remove(index).slot;
            self.out.replies.push_back(Reply { slot, status: Status::Ok });
        }
    }

    /// Counts a place as dead. A victim's last one makes it wait for a flush.
    fn invalidate(&mut self, place: u32) {
        if place >= POISONED {
            return;
        }
        let segment = place / self.geometry.segment_pages;
        let entry = self.segments.at_mut(segment);
        entry.valid -= 1;
        if entry.valid == 0 && matches!(entry.state, State::Victim | State::Stuck) {
            self.empty(segment);
        }
    }

    pub(crate) fn empty(&mut self, segment: u32) {
        self.segments.at_mut(segment).state = State::Emptied;
        let early = self.is_sabotaged(Sabotage::EarlyReuse);
        let round = if early { 0 } else { self.flusher.ask() };
        self.emptied.push_back((round, segment));
    }

    fn is_read(&self, segment: u32) -> bool {
        self.segments.at(segment).reads > 0 && !self.is_sabotaged(Sabotage::UnpinnedReads)
    }

    /// Frees emptied segments that were flushed and are not read: at once, or after a discard.
    fn advance_emptied(&mut self) {
        for _ in 0..self.emptied.len() {
            let Some((round, segment)) = self.emptied.pop_front() else { return };
            if !self.flusher.is_done(round) || self.is_read(segment) {
                self.emptied.push_back((round, segment));
            } else if self.settings.discards {
                let (member, at) = self.geometry.locate(self.geometry.place(segment, 0));
                let op = Op::Discard { at, pages: self.geometry.segment_pages };
                let token = Token::Discard(segment);
                self.out.commands.push_back(Command { token, member, op });
            } else {
                self.segments.release(segment);
                self.collector.victims -= 1;
            }
        }
    }

    /// Writes a batch that failed to another segment. After three, the volume is read-only.
    fn repeat(&mut self, index: usize) {
        self.report.write_failures += 1;
        let log = &mut self.logs[index];
        log.flying.failures += 1;
        if log.flying.failures < 3 && self.open_segment(index) {
            // A stamp of its own, above the failed copy's: recovery prefers this one.
            let log = &mut self.logs[index];
            log.flying.base = self.clock.next_stamp;
            self.clock.next_stamp += 1;
            return self.send_batch(index);
        }
        self.read_only = true;
        for index in 0..self.logs.len() {
            self.abandon(index);
        }
    }

    /// Answers the requests of batches that will not be written.
    fn abandon(&mut self, index: usize) {
        let log = &mut self.logs[index];
        let fails = log.is_flying && log.flying.failures > 0;
        for at in 0..log.filling.waiters.len() {
            let slot = log.filling.waiters[at].slot;
            self.out.replies.push_back(Reply { slot, status: Status::ReadOnly });
        }
        log.filling.waiters.clear();
        for at in 0..if fails { log.flying.waiters.len() } else { 0 } {
            let slot = log.flying.waiters[at].slot;
            self.out.replies.push_back(Reply { slot, status: Status::MediaError });
        }
        if fails {
            log.land();
        }
        while let Some(discard) = self.discards.pop() {
            self.out.replies.push_back(Reply { slot: discard.slot, status: Status::ReadOnly });
        }
    }
}
