//! A volume: takes requests and completions, and yields commands for its members and replies.
//!
//! No method blocks, and nothing is allocated after [`open`](fn@crate::open). The parts are types
//! of their own: the shared state (`store`), reads, discards, the collector and the checkpointer.

use alloc::sync::Arc;

use contract::{Chores, Slot, Status};
use zerocopy::little_endian::U64;

use crate::checkpoint::Checkpointer;
use crate::chores::Tally;
use crate::collect::Collector;
use crate::command::{Command, CommandToken, REQUESTS_MAX, Reply, Request, VolumeBusy};
use crate::flight::RequiredStream;
use crate::geometry::{COMMIT_PAGES_MAX, Geometry};
use crate::layout::{Kind, PAGE_BYTES, page_sum};
use crate::log::{Item, Waiter};
use crate::map::{MapShortage, UNMAPPED};
use crate::reads::Reads;
use crate::report::Report;
use crate::sabotage::Sabotage;
use crate::store::Store;

/// A volume that is open. It turns requests into commands for its members, and their completions
/// into replies.
pub struct Volume {
    pub(crate) store: Store,
    reads: Reads,
    pub(crate) collector: Collector,
    pub(crate) checkpointer: Checkpointer,
    tally: Arc<Tally>,
}

impl Volume {
    pub(crate) fn new(store: Store, checkpointer: Checkpointer) -> Volume {
        let tally = Arc::new(Tally::new(&store.geometry));
        Volume::with_tally(store, checkpointer, tally)
    }

    /// Returns a volume that publishes its counters in `tally`.
    pub(crate) fn with_tally(
        store: Store,
        checkpointer: Checkpointer,
        tally: Arc<Tally>,
    ) -> Volume {
        let collector = Collector::new(store.geometry.batch_pages_max() as usize);
        let volume = Volume { store, reads: Reads::new(), collector, checkpointer, tally };
        volume.publish(false);
        volume
    }

    /// Returns the sizes of the volume.
    pub fn geometry(&self) -> Geometry {
        self.store.geometry
    }

    /// Returns the counters since the opening, and the present state.
    pub fn report(&self) -> Report {
        let store = &self.store;
        let (wear, free) = (store.segments.wear(), store.segments.free());
        Report { free, wear, read_only: store.read_only, ..store.report }
    }

    /// Returns the number of pages that hold data.
    pub fn used_pages(&self) -> u32 {
        self.store.map.mapped()
    }

    /// Returns the counters of the volume's background work, such as garbage collection, for
    /// another thread.
    pub fn chores(&self) -> Arc<dyn Chores> {
        self.tally.clone()
    }

    /// Publishes the counters for [`chores`](Volume::chores). `writes_wait` means that hosts'
    /// writes wait for the volume.
    pub(crate) fn publish(&self, writes_wait: bool) {
        let (store, free) = (&self.store, self.store.segments.free());
        let is_short = writes_wait && !store.may_open();
        self.tally.publish(&store.report, free, store.map.room(), is_short);
    }

    /// Takes a request. Its reply comes by [`reply`](Volume::reply), often right after this call.
    ///
    /// # Errors
    /// Returns [`VolumeBusy`] if the request has to wait for room: it was not taken.
    pub fn submit(&mut self, slot: Slot, request: Request<'_>) -> Result<(), VolumeBusy> {
        if self.store.replies.len() + REQUESTS_MAX > self.store.replies.capacity() {
            return Err(VolumeBusy);
        }
        let (page, pages) = match request {
            Request::Flush if !self.store.flusher.has_room() => return Err(VolumeBusy),
            Request::Flush => {
                self.store.wait_for_flush(slot);
                return Ok(());
            }
            Request::Commit { pages, data } => return self.commit(slot, pages, data),
            Request::Read { page, pages }
            | Request::Discard { page, pages }
            | Request::Write { page, pages, .. } => (page, pages),
        };
        let is_run = matches!(request, Request::Discard { .. });
        if pages == 0 || (!is_run && pages > self.store.geometry.batch_pages_max()) {
            return self.store.answer(slot, Status::BadLength);
        }
        if page.checked_add(pages).is_none_or(|end| end > self.store.geometry.pages) {
            return self.store.answer(slot, Status::OutOfRange);
        }
        match request {
            Request::Read { .. } => self.reads.begin(&mut self.store, slot, (page, pages)),
            _ if self.store.read_only => self.store.answer(slot, Status::ReadOnly),
            Request::Discard { .. } => {
                let is_taken = self.store.discards.push(slot, page, page + pages);
                is_taken.then_some(()).ok_or(VolumeBusy)
            }
            Request::Write { data, fua, atomic, .. } => {
                self.write(slot, page..page + pages, data, fua, atomic)
            }
            Request::Flush | Request::Commit { .. } => Ok(()),
        }
    }

    fn commit(&mut self, slot: Slot, pages: &[U64], data: &[u8]) -> Result<(), VolumeBusy> {
        let store = &mut self.store;
        match refusal(&store.geometry, pages) {
            Some(status) => store.answer(slot, status),
            None if store.read_only => store.answer(slot, Status::ReadOnly),
            None => self.write(slot, pages.iter().map(|page| page.get() as u32), data, true, true),
        }
    }

    /// Stages a write of these pages, which are different ones, for one batch. The batch is marked,
    /// so that recovery drops all of it if a page of it is torn: a crash leaves the write whole. A
    /// batch of single pages needs no mark.
    fn write(
        &mut self,
        slot: Slot,
        list: impl ExactSizeIterator<Item = u32> + Clone,
        data: &[u8],
        fua: bool,
        atomic: bool,
    ) -> Result<(), VolumeBusy> {
        let store = &mut self.store;
        let pages = list.len() as u32;
        let bytes = if store.settings.data { pages as usize * PAGE_BYTES } else { 0 };
        if data.len() != bytes {
            return store.answer(slot, Status::BadLength);
        }
        let discards = &store.discards;
        let waits = || list.clone().any(|page| discards.overlaps(page, page + 1));
        if (!discards.is_empty() && waits()) || !store.flusher.has_room() {
            return Err(VolumeBusy);
        }
        // What the collector has opened of its reserve is the collector's, to the last page.
        if store.segments.free() < store.reserve() {
            self.collector.pace.hurry();
            return Err(VolumeBusy);
        }
        let stream = match store.flight.bound(list.clone()) {
            RequiredStream::Split => return Err(VolumeBusy),
            RequiredStream::To(stream) => stream,
            RequiredStream::Free => {
                let heat: u32 = list.clone().map(|p| u32::from(store.map.next_heat(p))).sum();
                store.stream((heat / pages) as u8)
            }
        };
        let marks = pages > 1 && !store.is_sabotaged(Sabotage::UnmarkedWrites);
        let may_open = store.may_open();
        // The log takes the pages before space is held for them.
        let log = &mut store.logs[usize::from(stream)];
        if !log.takes(pages as usize, 0, may_open) {
            self.end_wait(stream, may_open);
            return Err(VolumeBusy);
        }
        match store.map.hold(list.clone()) {
            Err(MapShortage::Full) => return store.answer(slot, Status::NoSpace),
            Err(MapShortage::ForNow) => {
                store.flusher.want(store.map.last_round());
                return Err(VolumeBusy);
            }
            Ok(()) => {}
        }
        for (index, page) in list.enumerate() {
            let bytes = data.get(index * PAGE_BYTES..(index + 1) * PAGE_BYTES);
            let check = bytes.map_or(0, page_sum);
            let (heat, is_fresh) = store.map.warm(page);
            store.trend.note_write(heat);
            let kind = Kind::Host;
            let item = Item { page, kind, heat, stamp: 0, check, from: UNMAPPED, is_fresh };
            if let (Some(to), Some(bytes)) = (log.filling.push(item), bytes) {
                to.copy_from_slice(bytes);
            }
            store.flight.enter(page, stream);
        }
        log.filling.atomic |= atomic || marks;
        log.filling.waiters.push(Waiter { slot, fua: fua || atomic });
        store.clock.written += u64::from(pages);
        self.collector.pace.earn(pages, store.trend.moves());
        store.report.host_pages += u64::from(pages);
        Ok(())
    }

    /// Makes room for another request in a stream: ends the stream's batch, which garbage
    /// collection alone may have filled so far, or speeds garbage collection up.
    fn end_wait(&mut self, stream: u8, may_open: bool) {
        // That fault shows where batches of moved pages wait for long.
        let closes = !self.store.is_sabotaged(Sabotage::UnpinnedMoves);
        match may_open {
            true => self.store.logs[usize::from(stream)].filling.is_crowded = closes,
            false => self.collector.pace.hurry(),
        }
    }

    /// Begins to close the volume in order: no more requests may come. Commands continue until
    /// [`is_closed`](Volume::is_closed).
    pub fn close(&mut self) {
        self.checkpointer.close();
    }

    /// Returns `true` once the volume is closed and marked clean on its members.
    pub fn is_closed(&self) -> bool {
        self.checkpointer.is_closed()
    }

    /// Does all possible work: closes batches, frees segments, collects, writes checkpoints,
    /// flushes. To be called once a turn, after requests and completions. Returns `true` if the
    /// work may let a waiting request or more work begin that no completion is awaited for: then
    /// both are to be tried again.
    pub fn advance(&mut self) -> bool {
        let before = self.standing();
        let Volume { store, collector, checkpointer, .. } = self;
        store.settle();
        if !store.read_only {
            store.settle_reserve();
            let may_open = store.may_open();
            let discards_wait = !may_open && !store.discards.is_empty();
            if discards_wait || checkpointer.is_closing() {
                collector.pace.hurry();
            }
            let coldest = &mut store.logs[usize::from(store.geometry.streams) - 1];
            store.discards.advance(coldest, &mut store.flight, &store.map, may_open);
            store.end_discards();
            collector.advance(store, checkpointer);
            checkpointer.advance(store, collector.motion(store));
            let hurry = collector.hurries() || checkpointer.waits_for_moves();
            store.close_batches(hurry);
            store.advance_emptied();
        }
        store.begin_flush();
        self.standing() != before
    }

    /// Returns `true` while [`advance`](Volume::advance) may have more to do after a command has
    /// left or a reply was taken: there is work that no request stands for.
    pub(crate) fn is_busy(&self) -> bool {
        let Volume { store, collector, checkpointer, .. } = self;
        !(collector.is_idle() && checkpointer.is_idle() && store.discards.is_empty())
            || store.read_only
    }

    /// Returns what decides whether requests and collection may go on, beside completions: the
    /// numbers of free segments and of those that hosts leave, and the records in checkpoints.
    fn standing(&self) -> (u32, u32, u64, bool) {
        let Volume { store, checkpointer, .. } = self;
        let is_idle = checkpointer.is_idle();
        (store.segments.free(), store.reserve(), checkpointer.records_below(), is_idle)
    }

    /// Returns the bytes of a write command: whole pages, or less on members without data.
    pub fn bytes(&self, token: CommandToken) -> &[u8] {
        match token {
            CommandToken::Batch(log) => self.store.logs[usize::from(log)].flying.bytes(),
            CommandToken::Checkpoint => self.checkpointer.bytes(),
            CommandToken::Superblock(member) => self.checkpointer.superblock_bytes(member),
            _ => &[],
        }
    }

    /// Returns the memory for the data of a read whose command says
    /// [`ReadDestination::Volume`](crate::ReadDestination).
    pub fn bytes_mut(&mut self, token: CommandToken) -> &mut [u8] {
        match token {
            CommandToken::Collect => self.collector.bytes_mut(),
            _ => &mut [],
        }
    }

    /// Returns `true` while the collector reads a batch header.
    pub(crate) fn reads_header(&self) -> bool {
        self.collector.reads_header()
    }

    /// Takes the next command for a member; `None` if there is none now.
    pub fn command(&mut self) -> Option<Command> {
        self.store.commands.pop_front()
    }

    /// Takes the next reply to a request; `None` if there is none now.
    pub fn reply(&mut self) -> Option<Reply> {
        self.store.replies.pop_front()
    }

    /// Completes a command with the status of its member.
    pub fn complete(&mut self, token: CommandToken, status: Status) {
        let store = &mut self.store;
        match token {
            CommandToken::Read(index, place, pages) => {
                self.reads.end(store, index, (place, pages), status);
            }
            CommandToken::Batch(log) if status.is_ok() => store.land(usize::from(log)),
            CommandToken::Batch(log) => store.repeat(usize::from(log)),
            CommandToken::Collect => self.collector.end(store, status),
            CommandToken::Flush(_) => store.end_flush(status),
            CommandToken::Discard(segment) => store.segments.release(segment),
            CommandToken::Checkpoint | CommandToken::Superblock(_) => {
                self.checkpointer.end(store, status)
            }
        }
    }
}

/// Returns the status with which a commit of these pages is refused; `None` if it may be served.
fn refusal(geometry: &Geometry, pages: &[U64]) -> Option<Status> {
    if pages.is_empty() {
        return Some(Status::BadLength);
    }
    if pages.len() > usize::from(geometry.commit_pages_max()) {
        return Some(Status::AtomicTooLarge);
    }
    let mut sorted = [0; COMMIT_PAGES_MAX as usize];
    let sorted = &mut sorted[..pages.len()];
    for (number, page) in sorted.iter_mut().zip(pages) {
        *number = page.get();
    }
    sorted.sort_unstable();
    if sorted.last().is_some_and(|last| *last >= u64::from(geometry.pages)) {
        return Some(Status::OutOfRange);
    }
    sorted.windows(2).any(|pair| pair[0] == pair[1]).then_some(Status::Invalid)
}
