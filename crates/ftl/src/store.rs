//! The state that the parts of a volume share: the map, the segments, the logs, and outgoing
//! commands.
//!
//! A batch leaves a log, is written, and changes the map. A segment without live pages waits for a
//! flush and becomes free. This module deliberately leaves out the producers of log entries
//! (`volume`, `collect`, `discards`).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::{iter, mem};

use contract::{Slot, Status};

use crate::command::{
    Command, CommandToken, MemberOperation, REQUESTS_MAX, Reply, Settings, VolumeBusy,
};
use crate::discards::Discards;
use crate::field_codec::FieldCodec;
use crate::flight::PagesInFlight;
use crate::flush::Flusher;
use crate::geometry::Geometry;
use crate::layout::{BATCH_MAGIC, BatchHead, FLAG_ATOMIC, Kind, VERSION};
use crate::log::{Batch, Item, Log, Waiter};
use crate::map::{Map, POISONED};
use crate::report::Report;
use crate::sabotage::Sabotage;
use crate::segment::{Segments, State};
use crate::trend::Trend;

/// Maximum number of commands that wait for the caller when a read of a host begins, counting one
/// for each of its pages. Other commands are queued without regard to it.
pub(crate) const COMMANDS_MAX: usize = 4096;

/// The counters from which a volume's stamps, lives of segments and ages come.
pub(crate) struct Clock {
    pub(crate) next_stamp: u64,
    pub(crate) session: u64,
    pub(crate) opened: u32,
    /// Number of pages that hosts have written in the volume's life, which is the clock of ages.
    pub(crate) written: u64,
}

/// The state that all parts of a volume share.
pub(crate) struct Store {
    pub(crate) geometry: Geometry,
    pub(crate) settings: Settings,
    pub(crate) map: Map,
    pub(crate) segments: Segments,
    /// The logs: one for each stream, and one for lone writes if the volume has room for it.
    pub(crate) logs: Box<[Log]>,
    pub(crate) flight: PagesInFlight,
    pub(crate) clock: Clock,
    pub(crate) trend: Trend,
    pub(crate) flusher: Flusher,
    pub(crate) discards: Discards,
    /// Number of moved pages and records of lost pages that are staged or in flight.
    pub(crate) moves: u64,
    pub(crate) commands: VecDeque<Command>,
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) report: Report,
    /// `true` after a batch could not be written (three failures, or no free segment), or a flush
    /// or the write of a checkpoint failed.
    pub(crate) read_only: bool,
    upkeep: StoreInternals,
}

/// State that only the store itself uses.
struct StoreInternals {
    /// Segments without live pages that wait to be reused: for each, the number of the round of
    /// flushes that must end first, and the segment's index.
    emptied: VecDeque<(u64, u32)>,
    /// Number of pages of batches since the last round of flushes began.
    unflushed_pages: u32,
    reserve: u32,
    /// First page of segments on each member.
    data_at: u64,
    #[cfg(test)]
    sabotage: Option<Sabotage>,
}

impl StoreInternals {
    fn new(geometry: &Geometry) -> StoreInternals {
        StoreInternals {
            emptied: VecDeque::with_capacity(geometry.segments() as usize),
            unflushed_pages: 0,
            reserve: geometry.reserve(),
            data_at: geometry.data_at(),
            #[cfg(test)]
            sabotage: None,
        }
    }
}

impl Store {
    /// Returns a store with an empty map.
    pub(crate) fn new(geometry: Geometry, settings: Settings, clock: Clock) -> Store {
        let batch = geometry.batch_pages_max() as usize;
        let streams = usize::from(geometry.streams);
        let log = |pages| Log::new(geometry.segment_pages, pages, settings.data);
        let lone = geometry.has_lone_log().then_some(geometry.lone_pages_max() as usize);
        let durable_below = clock.next_stamp;
        Store {
            geometry,
            settings,
            map: Map::of(&geometry),
            segments: Segments::new(geometry.segments(), geometry.dense_pages()),
            logs: iter::repeat_n(batch, streams).chain(lone).map(log).collect(),
            flight: PagesInFlight::new(2 * (streams + 1) * batch),
            trend: Trend::new(geometry.capacity),
            clock,
            flusher: Flusher::new(durable_below, REQUESTS_MAX),
            discards: Discards::new(),
            moves: 0,
            commands: VecDeque::with_capacity(COMMANDS_MAX),
            replies: VecDeque::with_capacity(2 * REQUESTS_MAX),
            report: Report::default(),
            read_only: false,
            upkeep: StoreInternals::new(&geometry),
        }
    }

    /// Injects a fault, or none.
    #[cfg(test)]
    pub(crate) fn set_sabotage(&mut self, fault: Option<Sabotage>) {
        self.upkeep.sabotage = fault;
    }

    /// Returns `true` if a test injected this fault.
    #[cfg(test)]
    pub(crate) fn is_sabotaged(&self, fault: Sabotage) -> bool {
        self.upkeep.sabotage == Some(fault)
    }

    /// Returns `false`: faults exist in tests only.
    #[cfg(not(test))]
    pub(crate) fn is_sabotaged(&self, _fault: Sabotage) -> bool {
        false
    }

    /// Returns `true` if the logs have nothing to write.
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = self.logs.iter().all(|log| !log.is_flying && log.filling.is_empty());
        quiet && self.discards.is_empty()
    }

    /// Writes or reads the state of a store at rest, but for the places and heats of the map.
    pub(crate) fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        scribe.u32(&mut self.clock.opened);
        self.map.hand_over(scribe);
        self.segments.hand_over(scribe);
        scribe.same(self.logs.len() as u64);
        let segments = self.geometry.segments();
        for log in &mut self.logs {
            let mut segment = log.segment.unwrap_or(u32::MAX);
            scribe.u32(&mut segment);
            scribe.u32(&mut log.cursor);
            scribe.check(segment < segments || segment == u32::MAX);
            scribe.check(log.cursor <= self.geometry.segment_pages);
            log.segment = (segment != u32::MAX).then_some(segment);
        }
        self.trend.hand_over(scribe);
        self.flusher.hand_over(scribe);
        scribe.rounds(&mut self.upkeep.emptied, segments as usize);
        scribe.check(self.upkeep.emptied.iter().all(|(_, segment)| *segment < segments));
        scribe.u32(&mut self.upkeep.unflushed_pages);
        scribe.u32(&mut self.upkeep.reserve);
    }

    /// Begins a round of flushes if one is wanted and none is in progress.
    pub(crate) fn begin_flush(&mut self) {
        if !self.flusher.may_begin() {
            return;
        }
        let floor = self.lowest_stamp();
        if self.flusher.begin(self.geometry.members, floor) {
            self.report.flushes += 1;
            self.upkeep.unflushed_pages = 0;
            for member in 0..self.geometry.members {
                self.send(CommandToken::Flush(member), member, MemberOperation::Flush);
            }
        }
    }

    /// Queues a command for the caller.
    pub(crate) fn send(&mut self, token: CommandToken, member: u16, op: MemberOperation) {
        self.commands.push_back(Command { token, member, op });
    }

    pub(crate) fn answer(&mut self, slot: Slot, status: Status) -> Result<(), VolumeBusy> {
        self.replies.push_back(Reply { slot, status });
        Ok(())
    }

    /// Returns the lowest stamp of a batch in flight, or the next stamp. A batch that is repeated
    /// counts with the stamp of its first copy, which failed and is not durable.
    fn lowest_stamp(&self) -> u64 {
        let flying = self.logs.iter().filter(|log| log.is_flying).map(|log| log.flying.first);
        flying.min().unwrap_or(self.clock.next_stamp)
    }

    /// Returns the stream for pages of this heat. All pages go to one stream while writes are even,
    /// and until the reserve is free that several streams need: moves could otherwise open a
    /// segment for each stream, and leave none for the next move.
    pub(crate) fn stream(&self, heat: u8) -> u8 {
        let streams = self.geometry.streams;
        if self.trend.is_even() || self.upkeep.reserve < Geometry::reserve_of(streams) {
            streams - 1
        } else {
            self.settings.policy.stream(heat)
        }
    }

    /// Returns the number of free segments that host writes leave to the collector.
    pub(crate) fn reserve(&self) -> u32 {
        self.upkeep.reserve
    }

    /// Returns `true` if hosts' writes may open a segment.
    pub(crate) fn may_open(&self) -> bool {
        self.segments.free() > self.upkeep.reserve
    }

    /// Adapts the reserve to the trend. A larger reserve is built by the collector, one segment
    /// after the other, so that no write waits for all of it.
    pub(crate) fn settle_reserve(&mut self) {
        let (wanted, reserve) = (self.wanted_reserve(), self.upkeep.reserve);
        let rises = wanted > reserve && self.segments.free() > reserve + 1;
        self.upkeep.reserve = if rises { reserve + 1 } else { wanted.min(reserve) };
    }

    /// Returns the number of segments that must stay free for the present pattern of writes. Even
    /// writes and the pages that garbage collection moves share one stream. Unfinished batches of
    /// other streams may each still need a segment.
    fn wanted_reserve(&self) -> u32 {
        let streams = self.geometry.streams;
        if !self.trend.is_even() {
            return Geometry::reserve_of(streams);
        }
        let others = &self.logs[..usize::from(streams) - 1];
        let opened_late = others.iter().filter(|log| log.will_open()).count();
        Geometry::reserve_of(1) + opened_late as u32
    }

    /// Returns the member and the page on it where a place lies.
    pub(crate) fn locate(&self, place: u32) -> (u16, u64) {
        self.locate_in(self.geometry.split(place))
    }

    /// Returns the member and the page on it where a page of a segment lies.
    #[inline]
    pub(crate) fn locate_in(&self, (segment, offset): (u32, u32)) -> (u16, u64) {
        self.geometry.locate_from(self.upkeep.data_at, (segment, offset))
    }

    /// Returns `true` if the segment holds batches of lone writes.
    pub(crate) fn is_lone(&self, segment: u32) -> bool {
        self.segments.at(segment).stream == self.geometry.streams
    }

    /// Closes the logs' batches that a request waits for or that are full, and starts their writes.
    /// With `hurry` it closes all others, too.
    pub(crate) fn close_batches(&mut self, hurry: bool) {
        for log in 0..usize::from(self.geometry.streams) {
            if !self.logs[log].may_close() {
                continue;
            }
            if hurry || !self.set_aside(log) {
                self.close_batch(log, hurry);
            }
        }
        for lone in usize::from(self.geometry.streams)..self.logs.len() {
            self.close_batch(lone, hurry);
        }
    }

    /// Moves the pages that hosts wrote from a stream's batch to the log of lone writes, if
    /// requests wait for them, and they are fewer than the pages that collection moves to free the
    /// place of a header. The batch's other pages then wait until it is full. Returns `true` if the
    /// batch has to wait, because the log of lone writes has a batch in flight.
    fn set_aside(&mut self, index: usize) -> bool {
        let may_open = self.may_open();
        let (streams, rest) = self.logs.split_at_mut(usize::from(self.geometry.streams));
        let (log, Some(lone)) = (&mut streams[index], rest.first_mut()) else { return false };
        let waits = !log.filling.waiters.is_empty() && log.filling.records.is_empty();
        let leaves = waits && !log.is_flying && !log.is_full();
        if !leaves || self.settings.policy.is_baseline() {
            return false;
        }
        let hosts = log.filling.hosts();
        if hosts as f32 >= self.trend.moves() || !lone.takes(hosts, 0, may_open) {
            return false;
        }
        if lone.is_flying {
            return true;
        }
        let first = lone.filling.data.len();
        log.filling.split_hosts(&mut lone.filling);
        for item in &lone.filling.data[first..] {
            self.flight.redirect(item.page, index as u8, self.geometry.streams);
        }
        false
    }

    fn close_batch(&mut self, index: usize, hurry: bool) {
        let log = &mut self.logs[index];
        if !log.may_close() {
            return;
        }
        let Batch { waiters, records, is_crowded, .. } = &log.filling;
        let waited_for = *is_crowded || !waiters.is_empty() || !records.is_empty();
        if !(waited_for || hurry || log.is_full()) {
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
        if index == usize::from(self.geometry.streams) {
            self.report.lone_pages += log.flying.data.len() as u64;
        }
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

    /// Closes the open segment of a log, if the log has one.
    pub(crate) fn seal(&mut self, index: usize) {
        let log = &mut self.logs[index];
        log.cursor = self.geometry.segment_pages;
        if let Some(segment) = log.segment.take() {
            self.segments.close(segment, self.clock.written);
        }
    }

    /// Writes the header and the first part of the log's launched batch to its open segment.
    fn send_batch(&mut self, index: usize) {
        let log = &mut self.logs[index];
        let segment = log.segment.expect("a segment was opened");
        let pages = log.flying.pages() as u32;
        log.flying.offset = log.cursor;
        log.cursor += pages;
        let entry = self.segments.at_mut(segment);
        let previous = entry.last;
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
            previous: previous.into(),
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
        log.flying.sent = (0, 0);
        self.report.log_pages += u64::from(pages);
        self.report.header_pages += log.flying.header_pages() as u64;
        self.upkeep.unflushed_pages += pages;
        self.send_part(index);
        if self.upkeep.unflushed_pages >= self.settings.flush_pages {
            self.flusher.ask();
        }
    }

    /// Writes the next part of the log's batch in flight. Returns `false` if all of it is written.
    /// Parts are small, so that reads find a gap between them, unless a request waits for the batch
    /// or for its end.
    fn send_part(&mut self, index: usize) -> bool {
        let log = &mut self.logs[index];
        let is_awaited = !log.filling.waiters.is_empty() || !log.flying.records.is_empty();
        let most = if is_awaited || self.settings.policy.is_baseline() {
            u32::MAX
        } else {
            self.geometry.part_pages()
        };
        let Some((first, pages)) = log.flying.next_part(most) else { return false };
        let segment = log.segment.expect("the batch's segment is open");
        let place = self.geometry.place(segment, log.flying.offset + first);
        let (member, at) = self.locate(place);
        self.send(CommandToken::Batch(index as u8), member, MemberOperation::Write { at, pages });
        true
    }

    /// Frees the map's space of pages that were discarded before the last finished round of
    /// flushes.
    pub(crate) fn settle(&mut self) {
        self.map.settle(self.flusher.last(), self.flusher.next());
    }

    /// Makes a request wait for the next round of flushes; answers it with an error if a flush has
    /// failed.
    pub(crate) fn wait_for_flush(&mut self, slot: Slot) {
        match self.flusher.has_failed() {
            true => self.replies.push_back(Reply { slot, status: Status::MediaError }),
            false => self.flusher.wait(slot),
        }
    }

    pub(crate) fn end_flush(&mut self, status: Status) {
        self.flusher.end(status.is_ok());
        self.settle();
        if self.flusher.has_failed() {
            self.end_writes();
        }
        while let Some((slot, durable)) = self.flusher.pop() {
            let status = if durable { Status::Ok } else { Status::MediaError };
            self.replies.push_back(Reply { slot, status });
        }
    }

    /// Takes the completion of a part of the log's batch. Writes the next part, or else puts the
    /// batch's pages into the map and answers its requests.
    pub(crate) fn land(&mut self, index: usize) {
        if self.send_part(index) {
            return;
        }
        let log = &self.logs[index];
        let segment = log.segment.expect("the batch's segment is open");
        let data_at = log.flying.offset + log.flying.header_pages() as u32;
        let data = mem::take(&mut self.logs[index].flying.data);
        for (place, &item) in (self.geometry.place(segment, data_at)..).zip(&data) {
            match item.kind {
                Kind::Host => self.flight.leave(item.page),
                _ => {
                    self.end_move(item.from);
                    let blind = self.is_sabotaged(Sabotage::BlindMoves);
                    if self.map.place(item.page) != item.from && !blind {
                        continue;
                    }
                }
            }
            let old = self.map.set(item.page, place);
            if item.is_fresh {
                self.map.let_go(item.page);
            }
            self.segments.at_mut(segment).valid += 1;
            self.invalidate(old);
        }
        self.logs[index].flying.data = data;
        for at in 0..self.logs[index].flying.records.len() {
            let item = self.logs[index].flying.records[at];
            self.land_record(item);
        }
        for at in 0..self.logs[index].flying.waiters.len() {
            let waiter = self.logs[index].flying.waiters[at];
            match waiter.fua {
                true => self.wait_for_flush(waiter.slot),
                false => self.replies.push_back(Reply { slot: waiter.slot, status: Status::Ok }),
            }
        }
        self.logs[index].land();
    }

    /// Notes that the page at this place is being moved. The place is not written again before the
    /// move has ended: otherwise the page's newest version might be there by then, and the move
    /// replace it.
    pub(crate) fn begin_move(&mut self, from: u32) {
        self.moves += 1;
        if !self.is_sabotaged(Sabotage::UnpinnedMoves) {
            self.segments.at_mut(from / self.geometry.segment_pages).reads += 1;
        }
    }

    fn end_move(&mut self, from: u32) {
        self.moves -= 1;
        if !self.is_sabotaged(Sabotage::UnpinnedMoves) {
            self.segments.at_mut(from / self.geometry.segment_pages).reads -= 1;
        }
    }

    fn land_record(&mut self, item: Item) {
        if item.kind == Kind::Poisoned {
            self.end_move(item.from);
            if self.map.place(item.page) == item.from {
                self.map.set(item.page, POISONED);
                self.invalidate(item.from);
                self.report.poisoned += 1;
            }
            return;
        }
        let round = self.flusher.next();
        for page in item.page..item.page + item.check {
            let old = self.map.unmap(page, round);
            self.invalidate(old);
        }
        if let Some(slot) = self.discards.land(item.page, item.check) {
            self.replies.push_back(Reply { slot, status: Status::Ok });
        }
    }

    /// Answers the discards that need no more records.
    pub(crate) fn end_discards(&mut self) {
        while let Some(slot) = self.discards.pop_ended() {
            self.replies.push_back(Reply { slot, status: Status::Ok });
        }
    }

    /// Records that the page at this place is not live any more. A segment under garbage collection
    /// that loses its last live page then waits for a flush before reuse.
    fn invalidate(&mut self, place: u32) {
        if place >= POISONED {
            return;
        }
        let segment = place / self.geometry.segment_pages;
        let entry = self.segments.lose_page(segment);
        if entry.valid == 0 && matches!(entry.state, State::Victim | State::Stuck) {
            self.empty(segment);
        }
    }

    pub(crate) fn empty(&mut self, segment: u32) {
        self.segments.set_state(segment, State::Emptied);
        let early = self.is_sabotaged(Sabotage::EarlyReuse);
        let round = if early { 0 } else { self.flusher.ask() };
        self.upkeep.emptied.push_back((round, segment));
    }

    /// Returns `true` if segments without live pages wait to be reused.
    pub(crate) fn has_emptied(&self) -> bool {
        !self.upkeep.emptied.is_empty()
    }

    fn is_read(&self, segment: u32) -> bool {
        self.segments.at(segment).reads > 0 && !self.is_sabotaged(Sabotage::UnpinnedReads)
    }

    /// Frees emptied segments that were flushed and are not read: at once, or after a discard.
    pub(crate) fn advance_emptied(&mut self) {
        for _ in 0..self.upkeep.emptied.len() {
            let Some((round, segment)) = self.upkeep.emptied.pop_front() else { return };
            if !self.flusher.is_done(round) || self.is_read(segment) {
                self.upkeep.emptied.push_back((round, segment));
            } else if self.settings.discards {
                let (member, at) = self.locate(self.geometry.place(segment, 0));
                let op = MemberOperation::Discard { at, pages: self.geometry.segment_pages };
                let token = CommandToken::Discard(segment);
                self.send(token, member, op);
            } else {
                self.segments.release(segment);
            }
        }
    }

    /// Writes a failed batch to another segment. After three failures, the volume is read-only.
    pub(crate) fn repeat(&mut self, index: usize) {
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
        let log = &mut self.logs[index];
        for at in 0..log.flying.waiters.len() {
            let slot = log.flying.waiters[at].slot;
            self.replies.push_back(Reply { slot, status: Status::MediaError });
        }
        log.land();
        self.end_writes();
    }

    /// Makes the volume read-only, and answers the writes and discards that no batch in flight
    /// carries.
    pub(crate) fn end_writes(&mut self) {
        self.read_only = true;
        for log in &mut self.logs {
            for Waiter { slot, .. } in log.filling.waiters.drain(..) {
                self.replies.push_back(Reply { slot, status: Status::ReadOnly });
            }
        }
        while let Some(slot) = self.discards.pop() {
            self.replies.push_back(Reply { slot, status: Status::ReadOnly });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Shape;
    use crate::policy::Policy;

    /// Returns a store whose hosts write evenly, with all segments free.
    fn even_store() -> Store {
        let policy = Policy::HEAT6;
        let shape = Shape::small(200, policy);
        let geometry = Geometry::plan(&shape, &[16_384]).expect("a possible volume");
        let clock = Clock { next_stamp: 1, session: 1, opened: 0, written: 0 };
        let mut store = Store::new(geometry, Settings::new(policy), clock);
        (0..geometry.segments()).for_each(|segment| store.segments.release(segment));
        (0..100_000).for_each(|_| store.trend.note_write(0));
        assert!(store.trend.is_even());
        store
    }

    fn stage_move(store: &mut Store, log: usize) {
        let kind = Kind::Moved;
        let log = &mut store.logs[log];
        assert!(log.takes(1, 0, true));
        let item = Item { page: 1, kind, heat: 0, stamp: 0, check: 0, from: 0, is_fresh: false };
        log.filling.push(item);
    }

    /// The batches of other streams that filled before writes became even may each open a segment,
    /// for which the reserve keeps one.
    #[test]
    fn the_reserve_keeps_a_segment_for_each_batch_that_may_open_one() {
        let mut store = even_store();
        stage_move(&mut store, 0);
        stage_move(&mut store, 3);
        let alone = Geometry::reserve_of(1);
        store.settle_reserve();
        assert_eq!(store.reserve(), alone + 2);
        store.close_batches(true);
        store.settle_reserve();
        assert_eq!(store.reserve(), alone, "both have opened theirs");
        for log in [0, 3] {
            store.logs[log].land();
            stage_move(&mut store, log);
        }
        store.settle_reserve();
        assert_eq!(store.reserve(), alone, "batches that go to open segments need none");
    }
}
