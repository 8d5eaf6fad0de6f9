//! Creating a volume, and opening it after a clean or an unclean stop.
//!
//! Both happen before a volume serves, over [`Media`], whose calls may block. Recovery from an
//! unclean stop loads the checkpoint, walks the batches that are younger than its horizon, proves
//! those that no flush covered, and applies them in the order of their stamps. It writes a new
//! checkpoint and nothing else. So a crash during recovery is a crash before it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use contract::Status;
use wire::superblock::{MissingSuperblock, Search, SuperblockPage};
use zerocopy::FromBytes;

use crate::checkpoint::{CheckpointMark, Checkpointer, PIECE_PAGES, encode_page};
use crate::command::{REQUESTS_MAX, Settings};
use crate::error::Error;
use crate::flush::Flusher;
use crate::geometry::{CHUNK_PAGES, Geometry, SLAB_RECORD_BYTES, Shape};
use crate::layout::{
    BatchHead, CHECKPOINT_BYTES, CheckpointPage, Entry, FLAG_ATOMIC, Kind, PAGE_BYTES,
    SegmentRecord, Superblock, header_pages, page_sum,
};
use crate::map::{POISONED, UNMAPPED};
use crate::sabotage::Sabotage;
use crate::segment::{Segment, State};
use crate::store::{Clock, Store};
use crate::volume::Volume;

/// The members of a volume that does not serve. Calls may block.
pub trait Media {
    /// Returns the number of members.
    fn members(&self) -> usize;

    /// Returns the size of a member in pages.
    fn pages(&self, member: usize) -> u64;

    /// Reads whole pages from page `at` on.
    ///
    /// # Errors
    /// Fails with the status of the member.
    fn read(&mut self, member: usize, at: u64, into: &mut [u8]) -> Result<(), Status>;

    /// Writes whole pages from page `at` on.
    ///
    /// # Errors
    /// Fails with the status of the member.
    fn write(&mut self, member: usize, at: u64, from: &[u8]) -> Result<(), Status>;

    /// Makes a member's writes durable.
    ///
    /// # Errors
    /// Fails with the status of the member.
    fn flush(&mut self, member: usize) -> Result<(), Status>;
}

/// The findings and work of opening a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningReport {
    /// `true` if the volume had been closed in order.
    pub clean: bool,
    /// Number of damaged copies of the superblock, which the next change rewrites.
    pub damaged_copies: u32,
    /// Number of pages that opening has read.
    pub read_pages: u64,
    /// Number of pages that opening has written: the checkpoint after recovery, and superblocks.
    pub written_pages: u64,
    /// Number of batches that recovery has applied.
    pub batches: u64,
    /// Number of pages whose checksum proved that their write was never durable.
    pub torn_pages: u64,
}

/// The parameters of a volume, as its superblocks describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeParameters {
    /// The sizes of the volume.
    pub geometry: Geometry,
    /// `true` if the volume was closed in order and not opened since.
    pub clean: bool,
    /// Number of copies of the superblock that are damaged.
    pub damaged_copies: u32,
    /// Number of openings of the volume.
    pub sessions: u64,
    /// Number of pages that hosts have written in the volume's life, as of the last checkpoint.
    pub written_pages: u64,
    /// Number of pages in use at the last checkpoint; `None` if the volume is not thin.
    pub used_pages: Option<u32>,
}

/// Describes the volume on the members. Nothing is written.
///
/// # Errors
/// Fails if the members are not those of one volume in their order, or are damaged, or cannot be
/// read.
pub fn describe<M: Media>(media: &mut M) -> Result<VolumeParameters, Error> {
    let mut counted = CountingMedia { media, opened: OpeningReport::default() };
    let block = find_superblock(&mut counted)?;
    let geometry = Geometry::of(&block).ok_or(Error::Damaged(0))?;
    for member in 0..counted.media.members() {
        if counted.media.pages(member) < geometry.member_pages {
            return Err(Error::Shrunk(member));
        }
    }
    Ok(VolumeParameters {
        geometry,
        clean: block.clean == 1,
        damaged_copies: counted.opened.damaged_copies,
        sessions: block.session.get(),
        written_pages: block.written.get(),
        used_pages: geometry.thin.then_some(block.thin.used.get()),
    })
}

/// A batch that recovery found: its stamp, its segment, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BatchPlace {
    base: u64,
    segment: u32,
    offset: u32,
}

/// A wrapper of media that counts the pages that are read and written.
struct CountingMedia<'a, M> {
    media: &'a mut M,
    opened: OpeningReport,
}

impl<M: Media> CountingMedia<'_, M> {
    fn read(&mut self, member: u16, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.opened.read_pages += (into.len() / PAGE_BYTES) as u64;
        let member = usize::from(member);
        self.media.read(member, at, into).map_err(|status| Error::Failed(member, status))
    }

    fn write(&mut self, member: u16, at: u64, from: &[u8]) -> Result<(), Error> {
        self.opened.written_pages += (from.len() / PAGE_BYTES) as u64;
        let member = usize::from(member);
        self.media.write(member, at, from).map_err(|status| Error::Failed(member, status))
    }

    fn flush(&mut self) -> Result<(), Error> {
        for member in 0..self.media.members() {
            self.media.flush(member).map_err(|status| Error::Failed(member, status))?;
        }
        Ok(())
    }

    /// Writes the superblock: copy A, a flush, copy B, a flush.
    fn commit(&mut self, block: &Superblock) -> Result<(), Error> {
        let mut page = vec![0; PAGE_BYTES];
        for copy in 0..2 {
            for member in 0..block.members.get() {
                Superblock { member: member.into(), ..*block }.encode(&mut page);
                self.write(member, copy, &page)?;
            }
            self.flush()?;
        }
        Ok(())
    }
}

/// Creates a volume on members that hold none.
///
/// # Errors
/// Fails if a member holds a volume or the sizes do not fit, without writing anything; and if a
/// member fails.
pub fn create<M: Media>(media: &mut M, shape: &Shape) -> Result<Geometry, Error> {
    let sizes: Vec<u64> = (0..media.members()).map(|member| media.pages(member)).collect();
    let geometry = Geometry::plan(shape, &sizes)?;
    let mut counted = CountingMedia { media, opened: OpeningReport::default() };
    let mut page = vec![0; PAGE_BYTES];
    for member in 0..geometry.members {
        for copy in 0..2 {
            counted.read(member, copy, &mut page)?;
            if !matches!(Superblock::decode(&page), SuperblockPage::Nothing) {
                return Err(Error::InUse(usize::from(member)));
            }
        }
    }
    let clock = Clock { next_stamp: 1, session: 0, opened: 0, written: 0 };
    let settings = Settings::new(shape.policy);
    let mut store = Store::new(geometry, settings, clock);
    let mut checkpointer = Checkpointer::new(CheckpointMark::default(), 0);
    write_checkpoint(&mut store, &mut checkpointer, &mut counted)?;
    counted.commit(&checkpointer.superblock(&store, true))?;
    Ok(geometry)
}

/// Opens the volume on the members for service, after recovery if it was not closed in order.
///
/// # Errors
/// Fails if the members are not those of one volume in their order, or are damaged, or fail.
/// Nothing was written then, unless a member fails to write.
pub fn open<M: Media>(media: &mut M, settings: Settings) -> Result<(Volume, OpeningReport), Error> {
    open_with(media, settings, None)
}

pub(crate) fn open_with<M: Media>(
    media: &mut M,
    settings: Settings,
    sabotage: Option<Sabotage>,
) -> Result<(Volume, OpeningReport), Error> {
    let mut counted = CountingMedia { media, opened: OpeningReport::default() };
    let block = find_superblock(&mut counted)?;
    let geometry = Geometry::of(&block).ok_or(Error::Damaged(0))?;
    for member in 0..counted.media.members() {
        if counted.media.pages(member) < geometry.member_pages {
            return Err(Error::Shrunk(member));
        }
    }
    let clock = Clock {
        next_stamp: block.next_stamp.get(),
        session: block.session.get() + 1,
        opened: 0,
        written: block.written.get(),
    };
    let mut store = Store::new(geometry, settings, clock);
    #[cfg(test)]
    store.set_sabotage(sabotage);
    let _ = sabotage;
    let mark = CheckpointMark::of(&block);
    if mark.slabs > geometry.slabs() {
        return Err(Error::Damaged(0));
    }
    let mut checkpointer = Checkpointer::new(mark, block.generation.get());
    let records = load_checkpoint(&mut store, mark, &mut counted)?;
    adopt(&mut store, &records);
    // A clean superblock beside a damaged copy may be an old one: then nothing is taken on trust.
    counted.opened.clean = block.clean == 1 && counted.opened.damaged_copies == 0;
    if !counted.opened.clean {
        recover(&mut store, mark, &mut counted)?;
    }
    count_live(&mut store);
    counted.flush()?;
    if !counted.opened.clean {
        write_checkpoint(&mut store, &mut checkpointer, &mut counted)?;
    } else {
        checkpointer.keep_valid();
    }
    counted.commit(&checkpointer.superblock(&store, false))?;
    store.flusher = Flusher::new(store.clock.next_stamp, REQUESTS_MAX);
    checkpointer.trust_records();
    let opened = counted.opened;
    Ok((Volume::new(store, checkpointer), opened))
}

/// Returns the newest superblock, after checking that the members belong to one volume.
fn find_superblock<M: Media>(media: &mut CountingMedia<'_, M>) -> Result<Superblock, Error> {
    let mut newest: Option<Superblock> = None;
    let mut page = vec![0; PAGE_BYTES];
    let given = media.media.members();
    for member in 0..given {
        let mut search = Search::new();
        for copy in 0..2 {
            media.read(member as u16, copy, &mut page)?;
            let is_newer = |new: &Superblock, old: &Superblock| new.generation > old.generation;
            search.take(Superblock::decode(&page), is_newer);
        }
        media.opened.damaged_copies += search.damaged();
        let block = search.end().map_err(|missing| match missing {
            MissingSuperblock::Version(version) => Error::Version(member, version),
            MissingSuperblock::Damaged => Error::Damaged(member),
            MissingSuperblock::Nothing => Error::NoVolume(member),
        })?;
        if newest.is_some_and(|first| first.uuid != block.uuid) {
            return Err(Error::Foreign(member));
        }
        if usize::from(block.members.get()) != given {
            return Err(Error::Count(given, usize::from(block.members.get())));
        }
        if usize::from(block.member.get()) != member {
            return Err(Error::Order(member, usize::from(block.member.get())));
        }
        if newest.is_none_or(|newest| newest.generation < block.generation) {
            newest = Some(block);
        }
    }
    newest.ok_or(Error::Shape)
}

/// Fills map and heat from the valid checkpoint, and returns the checkpoint's records of segments.
fn load_checkpoint<M: Media>(
    store: &mut Store,
    mark: CheckpointMark,
    media: &mut CountingMedia<'_, M>,
) -> Result<Box<[SegmentRecord]>, Error> {
    let geometry = store.geometry;
    let mut records = vec![SegmentRecord::default(); geometry.segments() as usize];
    let mut piece = vec![0; PIECE_PAGES as usize * PAGE_BYTES];
    let (member, begin) = geometry.area(u64::from(mark.area));
    let per_page = CHECKPOINT_BYTES / size_of::<SegmentRecord>();
    let index_pages = geometry.index_pages(mark.slabs);
    let all = geometry.checkpoint_pages_with(mark.slabs);
    let mut slabs = SlabLoader::default();
    for index in 0..all {
        let in_piece = (index % PIECE_PAGES) as usize * PAGE_BYTES;
        if in_piece == 0 {
            let pages = (all - index).min(PIECE_PAGES) as usize;
            media.read(member, begin + u64::from(index), &mut piece[..pages * PAGE_BYTES])?;
        }
        let page = &piece[in_piece..in_piece + PAGE_BYTES];
        let damaged = Error::Checkpoint(index);
        let content = CheckpointPage::open(page, mark.identity, index).ok_or(damaged)?;
        if index < index_pages && geometry.thin {
            slabs.load(store, mark.slabs, content).ok_or(damaged)?;
        } else if index < index_pages {
            load_index(store, index, content).ok_or(damaged)?;
        } else {
            let first = (index - index_pages) as usize * per_page;
            let raw = content.chunks_exact(size_of::<SegmentRecord>());
            for (record, raw) in records.iter_mut().skip(first).zip(raw) {
                *record = SegmentRecord::read_from_bytes(raw).map_err(|_| damaged)?;
            }
        }
    }
    let places = geometry.segments() * geometry.segment_pages;
    if store.map.all().any(|(_, place)| place >= places && place < POISONED) {
        return Err(Error::Checkpoint(0));
    }
    Ok(records.into())
}

/// Loads a checkpoint page of a whole map. Returns `None` if the page contradicts itself.
fn load_index(store: &mut Store, index: u32, content: &[u8]) -> Option<()> {
    let geometry = store.geometry;
    if index < geometry.map_pages() {
        let first = index * (CHECKPOINT_BYTES as u32 / 4);
        for (page, place) in (first..geometry.pages).zip(content.chunks_exact(4)) {
            restore(store, page, u32::from_le_bytes(place.try_into().ok()?));
        }
    } else {
        let first = (index - geometry.map_pages()) * CHECKPOINT_BYTES as u32;
        for (page, heat) in (first..geometry.pages).zip(content) {
            store.map.set_heat(page, *heat);
        }
    }
    Some(())
}

/// Restores the place of a page that a checkpoint has recorded, unless the page is unmapped there.
fn restore(store: &mut Store, page: u32, place: u32) {
    if place != UNMAPPED {
        store.map.restore(page, place);
    }
}

/// A reader of the slabs in the checkpoint of a thin volume, which follow each other across pages.
#[derive(Default)]
struct SlabLoader {
    /// Number of words, of four bytes each, that were read.
    word: usize,
    /// The first page of the present slab's chunk.
    first: u32,
}

impl SlabLoader {
    /// Loads a checkpoint page of slabs. Returns `None` if the page contradicts itself.
    fn load(&mut self, store: &mut Store, slabs: u32, content: &[u8]) -> Option<()> {
        const CHUNK: usize = CHUNK_PAGES as usize;
        for word in content.chunks_exact(4) {
            let (number, at) =
                (self.word / (SLAB_RECORD_BYTES / 4), self.word % (SLAB_RECORD_BYTES / 4));
            if number >= slabs as usize {
                return Some(());
            }
            let value = u32::from_le_bytes(word.try_into().ok()?);
            let page = |offset: usize| self.first.checked_add(offset as u32);
            match at {
                0 => {
                    self.first = value.checked_mul(CHUNK_PAGES)?;
                    if self.first >= store.geometry.pages || store.map.has_slab(self.first) {
                        return None;
                    }
                }
                1..=CHUNK if value == UNMAPPED => {}
                1..=CHUNK => {
                    let page = page(at - 1).filter(|page| *page < store.geometry.pages)?;
                    restore(store, page, value);
                }
                _ => {
                    let first = page((at - 1 - CHUNK) * 4)?;
                    for (page, heat) in (first..store.geometry.pages).zip(word) {
                        store.map.set_heat(page, *heat);
                    }
                }
            }
            self.word += 1;
        }
        Some(())
    }
}

fn adopt(store: &mut Store, records: &[SegmentRecord]) {
    for (index, record) in (0..).zip(records) {
        let segment = store.segments.at_mut(index);
        let state = if record.open == 1 { State::Open } else { State::Free };
        *segment = Segment {
            state,
            life: record.life.get(),
            last: record.last.get(),
            closed_at: record.closed_at.get(),
            wear: record.wear.get(),
            stream: record.stream,
            fill: u32::from(record.fill.get()).min(store.geometry.segment_pages),
            ..*segment
        };
    }
}

/// Counts the live pages of each segment, and marks the segment as free or closed.
fn count_live(store: &mut Store) {
    let pages = store.geometry.segment_pages;
    for (_, place) in store.map.all().filter(|(_, place)| *place < POISONED) {
        store.segments.at_mut(place / pages).valid += 1;
    }
    let mut closed: Vec<(u64, u32)> = Vec::new();
    for segment in 0..store.geometry.segments() {
        let entry = store.segments.at_mut(segment);
        match entry.valid {
            0 => store.segments.release(segment),
            _ => closed.push((entry.closed_at, segment)),
        }
    }
    closed.sort_unstable();
    for (closed_at, segment) in closed {
        store.segments.close(segment, closed_at);
    }
}

/// A sound batch behind a gap in its segment, where its predecessor has no sound header.
struct OrphanBatch {
    place: BatchPlace,
    /// Stamp of the batch before this one in the segment, which is missing.
    previous: u64,
}

/// The state of recovery's walk: the batches that it has found on the members.
struct RecoveryWalk {
    /// The lowest stamp of batches that may be missing in the checkpoint.
    horizon: u64,
    found: Vec<BatchPlace>,
    /// Batches behind a gap in their segments.
    orphans: Vec<OrphanBatch>,
    /// The stamp below which all batches are durable.
    durable_below: u64,
}

/// Finds the batches that may be missing in the checkpoint, and applies them in the order of their
/// stamps.
fn recover<M: Media>(
    store: &mut Store,
    mark: CheckpointMark,
    media: &mut CountingMedia<'_, M>,
) -> Result<(), Error> {
    let mut header = vec![0; 2 * PAGE_BYTES];
    let horizon = mark.horizon;
    let (found, orphans) = (Vec::new(), Vec::new());
    let mut walk = RecoveryWalk { horizon, found, orphans, durable_below: horizon };
    for segment in 0..store.geometry.segments() {
        walk.segment(store, media, segment, &mut header)?;
    }
    walk.found.sort_unstable();
    let mut replay = Replay {
        known: BTreeMap::new(),
        mark,
        durable_below: walk.durable_below,
        data: vec![0; store.geometry.segment_pages as usize * PAGE_BYTES].into(),
    };
    for place in walk.found {
        replay.batch(store, media, place, &mut header)?;
        store.map.settle(0, 0);
    }
    for orphan in walk.orphans.iter().filter(|orphan| orphan.previous < walk.durable_below) {
        replay.judge(store, media, orphan.place, &mut header)?;
    }
    Ok(())
}

/// Reads the batch header at an offset of a segment; returns `None` unless there is a sound one of
/// this volume.
fn read_header<'a, M: Media>(
    store: &Store,
    media: &mut CountingMedia<'_, M>,
    (segment, offset): (u32, u32),
    header: &'a mut [u8],
) -> Result<Option<(BatchHead, &'a [Entry])>, Error> {
    let geometry = &store.geometry;
    if offset >= geometry.segment_pages {
        return Ok(None);
    }
    let (member, at) = geometry.locate(geometry.place(segment, offset));
    header.fill(0);
    media.read(member, at, &mut header[..PAGE_BYTES])?;
    let Some(peek) = BatchHead::peek(header) else { return Ok(None) };
    if offset + peek.pages() > geometry.segment_pages {
        return Ok(None);
    }
    if header_pages(peek.entries()) == 2 {
        media.read(member, at + 1, &mut header[PAGE_BYTES..])?;
    }
    let is_ours = |head: &BatchHead| {
        head.volume == geometry.uuid[..8]
            && (head.segment.get(), head.offset.get()) == (segment, offset)
    };
    Ok(BatchHead::decode(header).filter(|(head, _)| is_ours(head)))
}

impl RecoveryWalk {
    /// Notes what the head of a batch says about stamps.
    fn note(&mut self, store: &mut Store, head: &BatchHead) {
        self.durable_below = head.durable_below.get().max(self.durable_below);
        let next = head.base.get() + head.entries() as u64 + 1;
        store.clock.next_stamp = store.clock.next_stamp.max(next);
    }

    /// Collects the batches of a segment that may be missing in the checkpoint.
    fn segment<M: Media>(
        &mut self,
        store: &mut Store,
        media: &mut CountingMedia<'_, M>,
        segment: u32,
        header: &mut [u8],
    ) -> Result<(), Error> {
        let entry = *store.segments.at(segment);
        let Some((first, _)) = read_header(store, media, (segment, 0), header)? else {
            return Ok(());
        };
        let life = first.life.get();
        let known = life == entry.life && entry.state != State::Open && entry.last < self.horizon;
        if known || life < entry.life {
            return Ok(());
        }
        let mut last = first;
        let mut offset = 0;
        while let Some((head, _)) = read_header(store, media, (segment, offset), header)? {
            if head.life.get() != life {
                break;
            }
            self.note(store, &head);
            if head.base.get() >= self.horizon {
                self.found.push(BatchPlace { base: head.base.get(), segment, offset });
            }
            offset += head.pages();
            last = head;
        }
        let written = store.clock.written;
        let entry = store.segments.at_mut(segment);
        (entry.life, entry.wear, entry.stream) = (life, last.wear.get(), last.stream);
        (entry.fill, entry.last, entry.closed_at) = (offset, last.base.get(), written);
        self.look_behind(store, media, (segment, offset + 1), life, header)
    }

    /// Searches for a later batch behind the end of a segment's batches. The batch before such a
    /// batch is missing: lost with power, or damaged if it was durable.
    fn look_behind<M: Media>(
        &mut self,
        store: &mut Store,
        media: &mut CountingMedia<'_, M>,
        (segment, from): (u32, u32),
        life: u64,
        header: &mut [u8],
    ) -> Result<(), Error> {
        for offset in from..store.geometry.segment_pages {
            let found = read_header(store, media, (segment, offset), header)?;
            let Some((head, _)) = found.filter(|(head, _)| head.life.get() == life) else {
                continue;
            };
            self.note(store, &head);
            let place = BatchPlace { base: head.base.get(), segment, offset };
            self.orphans.push(OrphanBatch { place, previous: head.previous.get() });
        }
        Ok(())
    }
}

/// The replay of batches in the order of their stamps.
struct Replay {
    /// For each page of the chunks in the log, the stamp of its newest known state, less the
    /// horizon, plus one; zero for the state of the checkpoint.
    known: BTreeMap<u32, Box<[u32]>>,
    mark: CheckpointMark,
    durable_below: u64,
    data: Box<[u8]>,
}

impl Replay {
    /// Applies a batch of the log during recovery, or the part of the batch that is intact.
    fn batch<M: Media>(
        &mut self,
        store: &mut Store,
        media: &mut CountingMedia<'_, M>,
        place: BatchPlace,
        header: &mut [u8],
    ) -> Result<(), Error> {
        let at = (place.segment, place.offset);
        let Some((head, entries)) = read_header(store, media, at, header)? else { return Ok(()) };
        let data = usize::from(head.data.get());
        let data_at = place.offset + head.pages() - data as u32;
        let first = store.geometry.place(place.segment, data_at);
        let proves = head.base.get() >= self.durable_below && store.settings.data;
        if proves && data > 0 && !store.is_sabotaged(Sabotage::UnprovenPages) {
            let (member, at) = store.geometry.locate(first);
            media.read(member, at, &mut self.data[..data * PAGE_BYTES])?;
            let torn = (0..data).filter(|&page| !self.is_whole(page, &entries[page])).count();
            media.opened.torn_pages += torn as u64;
            let single = store.is_sabotaged(Sabotage::SinglePages);
            if torn > 0 && head.flags & FLAG_ATOMIC != 0 && !single {
                return Ok(());
            }
        }
        media.opened.batches += 1;
        // What a batch moved before the checkpoint began is in it, unless a host was faster.
        let early = head.base.get() < self.mark.begun;
        let is_settled = |entry: &Entry| early && entry.stamp() < self.mark.horizon;
        let settled: Vec<bool> = entries.iter().map(is_settled).collect();
        for (page, entry) in entries[..data].iter().enumerate() {
            if settled[page] {
                continue;
            }
            if !proves || store.is_sabotaged(Sabotage::UnprovenPages) || self.is_whole(page, entry)
            {
                self.apply(store, entry.page.get(), entry, first + page as u32)?;
            }
        }
        for (entry, settled) in entries[data..].iter().zip(&settled[data..]) {
            if *settled {
                continue;
            }
            let forgets = store.is_sabotaged(Sabotage::ForgottenDiscards);
            let (begin, count) = (entry.page.get(), entry.check.get());
            match entry.kind() {
                Some(Kind::Poisoned) => self.apply(store, begin, entry, POISONED)?,
                Some(Kind::Discarded) if !forgets => {
                    for page in begin..begin.saturating_add(count) {
                        self.apply(store, page, entry, UNMAPPED)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if a gap of durable batches, which the batch `orphan` behind it shows, is damage. An
    /// emptied segment may have lost any of its headers to a discard. If one of its pages is live,
    /// a header is damaged.
    fn judge<M: Media>(
        &self,
        store: &Store,
        media: &mut CountingMedia<'_, M>,
        orphan: BatchPlace,
        header: &mut [u8],
    ) -> Result<(), Error> {
        let at = (orphan.segment, orphan.offset);
        let Some((_, entries)) = read_header(store, media, at, header)? else { return Ok(()) };
        let is_newer = |entry: &Entry| {
            let page = entry.page.get();
            let chunk = self.known.get(&(page / CHUNK_PAGES));
            let known = chunk.map_or(0, |known| known[(page % CHUNK_PAGES) as usize]);
            let stamp = (entry.stamp() + 1).saturating_sub(self.mark.horizon);
            page < store.geometry.pages && stamp > u64::from(known)
        };
        let pages = store.geometry.segment_pages;
        let mut places = store.map.all().filter(|(_, place)| *place < POISONED);
        let is_live = |(_, place)| place / pages == orphan.segment;
        match entries.iter().any(is_newer) || places.any(is_live) {
            true => Err(Error::Batch(orphan.segment)),
            false => Ok(()),
        }
    }

    fn is_whole(&self, page: usize, entry: &Entry) -> bool {
        page_sum(&self.data[page * PAGE_BYTES..(page + 1) * PAGE_BYTES]) == entry.check.get()
    }

    /// Sets the place of a page to `place`, unless a younger state of the page is known.
    fn apply(
        &mut self,
        store: &mut Store,
        page: u32,
        entry: &Entry,
        place: u32,
    ) -> Result<(), Error> {
        if page >= store.geometry.pages {
            return Ok(());
        }
        let chunk = self.known.entry(page / CHUNK_PAGES);
        let known = chunk.or_insert_with(|| vec![0; CHUNK_PAGES as usize].into());
        let known = &mut known[(page % CHUNK_PAGES) as usize];
        let stamp = (entry.stamp() + 1).saturating_sub(self.mark.horizon);
        let stamp = u32::try_from(stamp).map_err(|_| Error::Log)?;
        if stamp < *known {
            return Ok(());
        }
        *known = stamp;
        if place == UNMAPPED {
            store.map.unmap(page, 0);
        } else {
            store.map.restore(page, place);
            store.map.set_heat(page, entry.heat());
        }
        Ok(())
    }
}

/// Writes a whole checkpoint to the area that the valid one does not use, and makes it durable. The
/// caller writes the superblock that names it.
fn write_checkpoint<M: Media>(
    store: &mut Store,
    checkpointer: &mut Checkpointer,
    media: &mut CountingMedia<'_, M>,
) -> Result<(), Error> {
    let geometry = store.geometry;
    let (horizon, begun) = (store.clock.next_stamp, store.clock.next_stamp);
    if geometry.thin {
        store.map.freeze();
    }
    let (slabs, used) = (store.map.frozen(), store.map.mapped());
    let used = if geometry.thin { used } else { 0 };
    checkpointer.make_valid(CheckpointMark {
        horizon,
        begun,
        slabs,
        used,
        ..CheckpointMark::default()
    });
    let all = geometry.checkpoint_pages_with(slabs);
    let CheckpointMark { identity, area, .. } = checkpointer.valid();
    let (member, begin) = geometry.area(u64::from(area));
    let mut piece = vec![0; PIECE_PAGES as usize * PAGE_BYTES];
    let mut index = 0;
    while index < all {
        let pages = (all - index).min(PIECE_PAGES);
        for (number, page) in (index..index + pages).zip(piece.chunks_exact_mut(PAGE_BYTES)) {
            encode_page(&geometry, &store.map, &store.segments, (identity, number), page);
        }
        media.write(member, begin + u64::from(index), &piece[..pages as usize * PAGE_BYTES])?;
        index += pages;
    }
    store.map.thaw();
    media.flush()
}
