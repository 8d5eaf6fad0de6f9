//! The map from logical pages to places, and the heat of each page, in two levels.
//!
//! A chunk of pages has a slab while one of its pages is mapped, or about to be. So the map of a
//! thin volume grows with the pages in use. A slab whose last page was discarded is free once a
//! flush covers the discard: until then a loss of power may bring the page back.
//!
//! Slabs come from a pool that is taken when a volume is opened. Places are stored as complements,
//! so fresh memory, which is zero, says that a page is unmapped, and untouched slabs take none.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::field_codec::FieldCodec;
use crate::geometry::{CHUNK_PAGES, Geometry};
use crate::table::{MapMemory, Table};

/// The place of a page that was never written, or was discarded: it reads as zeroes.
pub(crate) const UNMAPPED: u32 = u32::MAX;

/// The place of a page whose data is lost: reading it is an error.
pub(crate) const POISONED: u32 = u32::MAX - 1;

/// The heat that a host's write adds to a page.
const WARMTH: u8 = 16;

/// The index of the slab that stands for chunks without a slab. No page of it is ever mapped.
const NO_SLAB: u32 = 0;

/// Number of pages of a chunk, for arithmetic with indices.
const CHUNK: usize = CHUNK_PAGES as usize;

/// Slabs that do not count as room, since each of few pages may take one.
const SLABS_KEPT: u32 = if cfg!(test) { 0 } else { 64 };

/// Maximum number of chunks without a slab that the hand, which cools pages, skips in one write.
const SKIPPED_MAX: usize = 64;

/// Maximum number of rounds of flushes for which freed pages wait at a time, with a spare one.
const ROUNDS_MAX: usize = 4;

/// The part of the map for one chunk. Its places and heats lie in the pool's arrays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slab {
    chunk: u32,
    /// Number of mapped pages, and of writes in progress to pages that were unmapped when the
    /// writes came.
    uses: u16,
    /// `true` while the slab is in the pool's list `emptied` of slabs without uses.
    waits: bool,
    /// `true` if the slab of the mapping table became empty again while it was in the list of
    /// emptied slabs.
    again: bool,
}

/// The slabs of a map, with a chunk or free.
struct Pool {
    /// Complements of places.
    places: Table<u32>,
    heat: Table<u8>,
    slabs: Box<[Slab]>,
    /// Indices of the slabs below `top` without a chunk.
    free: Vec<u32>,
    /// Slabs from here on were never used: `1 ≤ top ≤ slabs`.
    top: u32,
    /// Maximum number of slabs in use. Opening a volume may need more for a while.
    most: u32,
    /// Indices of slabs without uses, each behind the number of the round of flushes that covers
    /// their discards.
    emptied: VecDeque<(u64, u32)>,
    /// Indices of the slabs in the checkpoint that is being written. They keep their chunks
    /// meanwhile.
    frozen: Vec<u32>,
    is_frozen: bool,
}

/// The map of a volume: four bytes of place and one of heat for each page of the chunks in use.
pub(crate) struct Map {
    /// Index of each chunk's slab, or [`NO_SLAB`].
    chunks: Box<[u32]>,
    pool: Pool,
    pages: u32,
    /// `true` if chunks without a slab are skipped, as there may be many.
    is_thin: bool,
    /// The next page whose heat is lowered: `hand < pages`.
    hand: u32,
    /// Maximum number of pages that are mapped, held or freed.
    capacity: u32,
    mapped: u32,
    /// Number of writes in progress to pages that were unmapped when the writes came.
    held: u32,
    /// Number of discarded pages that a loss of power may bring back.
    freed: u32,
    /// Numbers of freed pages, each behind the number of the round of flushes that covers their
    /// discards.
    freed_by: VecDeque<(u64, u32)>,
}

/// The reason that the map has no room for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapShortage {
    /// There is room once writes in flight have landed, or after a flush.
    ForNow,
    /// No space is free, and no operation in progress will free any.
    Full,
}

impl Pool {
    fn new(slabs: u32) -> Pool {
        let most = slabs;
        // Slab 0 stands for all chunks without one.
        let slabs = slabs as usize + 1;
        Pool {
            most,
            places: Table::Own(vec![0; slabs * CHUNK].into()),
            heat: Table::Own(vec![0; slabs * CHUNK].into()),
            slabs: vec![Slab::default(); slabs].into(),
            free: Vec::with_capacity(slabs),
            top: 1,
            emptied: VecDeque::with_capacity(slabs),
            frozen: Vec::with_capacity(slabs),
            is_frozen: false,
        }
    }

    /// Returns the number of slabs in use.
    fn used(&self) -> u32 {
        self.top - 1 - self.free.len() as u32
    }

    /// Gives a slab to a chunk and returns its index; `None` if none is left.
    fn take(&mut self, chunk: u32) -> Option<u32> {
        (self.used() < self.most).then(|| self.take_any(chunk))
    }

    /// Gives a slab to a chunk and returns its index. If none is left, the pool grows.
    fn take_any(&mut self, chunk: u32) -> u32 {
        if self.free.is_empty() && self.top as usize == self.slabs.len() {
            self.grow();
        }
        let slab = self.free.pop().unwrap_or(self.top);
        self.top = self.top.max(slab + 1);
        self.slabs[slab as usize] = Slab { chunk, ..Slab::default() };
        slab
    }

    /// Doubles the pool.
    fn grow(&mut self) {
        let slabs = 2 * self.slabs.len();
        self.places = Table::Own(resized(self.places.to_vec(), slabs * CHUNK, 0));
        self.heat = Table::Own(resized(self.heat.to_vec(), slabs * CHUNK, 0));
        self.slabs = resized(mem::take(&mut self.slabs).into_vec(), slabs, Slab::default());
        self.free.reserve(slabs - self.free.len());
        self.emptied.reserve(slabs - self.emptied.len());
        self.frozen.reserve(slabs - self.frozen.len());
    }

    /// Returns the heat that a host's write would give the page at an index.
    #[inline]
    fn next_heat(&self, index: usize) -> u8 {
        if self.places[index] == 0 { 0 } else { self.heat[index].saturating_add(WARMTH) }
    }

    /// Ends a use of a slab. After its last use, the slab waits for the round `round` of flushes.
    fn end_use(&mut self, slab: u32, round: u64) {
        let entry = &mut self.slabs[slab as usize];
        entry.uses -= 1;
        match entry {
            Slab { uses: 0, waits: true, .. } => entry.again = true,
            Slab { uses: 0, .. } => {
                entry.waits = true;
                self.emptied.push_back((round, slab));
            }
            _ => {}
        }
    }
}

/// Returns the array lengthened to `len` by copies of `value`.
fn resized<T: Clone>(mut array: Vec<T>, len: usize, value: T) -> Box<[T]> {
    array.resize(len, value);
    array.into()
}

impl Map {
    /// Returns the map of a volume of `pages` pages, of which `capacity` may be mapped at once, in
    /// at most `slabs` chunks.
    pub(crate) fn new(pages: u32, capacity: u32, slabs: u32) -> Map {
        Map {
            chunks: vec![NO_SLAB; pages.div_ceil(CHUNK_PAGES) as usize].into(),
            pool: Pool::new(slabs),
            pages,
            is_thin: capacity < u32::MAX,
            hand: 0,
            capacity,
            mapped: 0,
            held: 0,
            freed: 0,
            freed_by: VecDeque::with_capacity(ROUNDS_MAX),
        }
    }

    /// Returns the map of a volume of this geometry.
    pub(crate) fn of(geometry: &Geometry) -> Map {
        let capacity = if geometry.thin { geometry.capacity } else { u32::MAX };
        Map::new(geometry.pages, capacity, geometry.slabs())
    }

    /// Returns the index of a page in the pool's arrays.
    #[inline]
    fn index(&self, page: u32) -> usize {
        let page = page as usize;
        self.chunks[page / CHUNK] as usize * CHUNK + page % CHUNK
    }

    #[inline]
    pub(crate) fn place(&self, page: u32) -> u32 {
        !self.pool.places[self.index(page)]
    }

    /// Returns the complements of the places of the pages from `page` to the end of its chunk, and
    /// their heats.
    pub(crate) fn rest_of_chunk(&self, page: u32) -> (&[u32], &[u8]) {
        let (from, count) = (self.index(page), CHUNK - page as usize % CHUNK);
        (&self.pool.places[from..][..count], &self.pool.heat[from..][..count])
    }

    /// Returns the number of mapped pages.
    pub(crate) fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Returns the number of pages without data that hosts can still write, wherever they lie.
    pub(crate) fn room(&self) -> u32 {
        let free = |most: u32| most.saturating_sub(self.mapped).saturating_sub(self.held);
        if !self.is_thin {
            return free(self.pages);
        }
        let (used, most) = (self.pool.used(), self.pool.most);
        if most as usize >= self.chunks.len() {
            return free(self.capacity);
        }
        let slabs = most.saturating_sub(used).saturating_sub(SLABS_KEPT);
        free(self.capacity).min(slabs.saturating_mul(CHUNK_PAGES))
    }

    /// Returns `true` if the chunk of a page has a slab: pages of it are mapped, will be, or may be
    /// again after a loss of power.
    pub(crate) fn has_slab(&self, page: u32) -> bool {
        self.chunks[page as usize / CHUNK] != NO_SLAB
    }

    /// Returns the first page from `page` on whose chunk has a slab, or `end`. In a volume that is
    /// not thin, returns `page`.
    pub(crate) fn next_with_slab(&self, page: u32, end: u32) -> u32 {
        if page >= end || !self.is_thin || self.has_slab(page) {
            return page;
        }
        let chunk = page as usize / CHUNK;
        let chunks = &self.chunks[chunk..end.div_ceil(CHUNK_PAGES) as usize];
        let skipped = chunks.iter().position(|slab| *slab != NO_SLAB);
        skipped.map_or(end, |skipped| ((chunk + skipped) * CHUNK) as u32)
    }

    /// Returns the mapped logical pages, each with its place on the members.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u32)> {
        let used = (0..).zip(&self.chunks).filter(|(_, slab)| **slab != NO_SLAB);
        used.flat_map(|(chunk, slab)| {
            let first: u32 = chunk * CHUNK_PAGES;
            let places = &self.pool.places[*slab as usize * CHUNK..][..CHUNK];
            let pages = (first..).zip(places).filter(|(_, place)| **place != 0);
            pages.map(|(page, place)| (page, !place))
        })
    }

    /// Sets the place of a logical page, and returns its previous place. The page's chunk must have
    /// a slab of the mapping table.
    #[inline]
    pub(crate) fn set(&mut self, page: u32, place: u32) -> u32 {
        let index = self.index(page);
        assert!(index >= CHUNK && place != UNMAPPED, "a page is held before it is mapped");
        let old = !mem::replace(&mut self.pool.places[index], !place);
        if old == UNMAPPED {
            self.mapped += 1;
            self.pool.slabs[index / CHUNK].uses += 1;
        }
        old
    }

    /// Unmaps a page and returns its place before. The space counts as used until round `round` of
    /// flushes, which covers the discard, has ended.
    pub(crate) fn unmap(&mut self, page: u32, round: u64) -> u32 {
        let index = self.index(page);
        let old = !mem::take(&mut self.pool.places[index]);
        if old == UNMAPPED {
            return old;
        }
        self.mapped -= 1;
        self.freed += 1;
        match self.freed_by.back_mut() {
            Some((last, pages)) if *last == round => *pages += 1,
            _ => self.freed_by.push_back((round, 1)),
        }
        self.pool.end_use((index / CHUNK) as u32, round);
        old
    }

    /// Maps a page while a volume is opened. A log that is replayed may have pages of more chunks
    /// than there were slabs at any time, because it has their discards further on: the pool grows.
    pub(crate) fn restore(&mut self, page: u32, place: u32) {
        if !self.has_slab(page) {
            let chunk = page / CHUNK_PAGES;
            self.chunks[chunk as usize] = self.pool.take_any(chunk);
        }
        self.set(page, place);
    }

    /// Makes sure that the chunk of a page has a slab of the mapping table. Returns `false` if no
    /// slab is left.
    fn give_slab(&mut self, page: u32) -> bool {
        let chunk = page / CHUNK_PAGES;
        if self.has_slab(page) {
            return true;
        }
        let Some(slab) = self.pool.take(chunk) else { return false };
        self.chunks[chunk as usize] = slab;
        true
    }

    /// Holds space for a write of these pages, or for none of them if there is too little.
    /// [`let_go`](Map::let_go) ends the hold for each page that was unmapped.
    pub(crate) fn hold(
        &mut self,
        list: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), MapShortage> {
        for (count, page) in list.clone().enumerate() {
            if self.place(page) != UNMAPPED || self.hold_page(page) {
                continue;
            }
            for page in list.take(count) {
                if self.place(page) == UNMAPPED {
                    self.take_back(page);
                }
            }
            let waits = self.held > 0 || self.freed > 0 || !self.pool.emptied.is_empty();
            return Err(if waits { MapShortage::ForNow } else { MapShortage::Full });
        }
        Ok(())
    }

    fn hold_page(&mut self, page: u32) -> bool {
        let used = u64::from(self.mapped) + u64::from(self.held) + u64::from(self.freed);
        if used >= u64::from(self.capacity) || !self.give_slab(page) {
            return false;
        }
        let slab = self.index(page) / CHUNK;
        self.pool.slabs[slab].uses += 1;
        self.held += 1;
        true
    }

    /// Ends the hold on the space of a page that was not written.
    fn take_back(&mut self, page: u32) {
        let slab = self.index(page) / CHUNK;
        self.held -= 1;
        let entry = &mut self.pool.slabs[slab];
        entry.uses -= 1;
        if entry.uses == 0 && !entry.waits {
            self.release(slab as u32);
        }
    }

    /// Returns a slab without uses to the pool; its chunk has no slab then.
    fn release(&mut self, slab: u32) {
        let entry = mem::take(&mut self.pool.slabs[slab as usize]);
        self.chunks[entry.chunk as usize] = NO_SLAB;
        self.pool.heat[slab as usize * CHUNK..][..CHUNK].fill(0);
        self.pool.free.push(slab);
    }

    /// Ends the hold on the space of a page that is mapped now.
    pub(crate) fn let_go(&mut self, page: u32) {
        let slab = self.index(page) / CHUNK;
        self.held -= 1;
        self.pool.end_use(slab as u32, 0);
    }

    /// Returns the number of the last round of flushes for which freed space waits; zero if none
    /// waits.
    pub(crate) fn last_round(&self) -> u64 {
        let slabs = self.pool.emptied.back().map_or(0, |(round, _)| *round);
        self.freed_by.back().map_or(0, |(round, _)| *round).max(slabs)
    }

    /// Frees the space that waited for rounds of flushes up to `done`. A slab that was emptied once
    /// more meanwhile waits for round `next`.
    pub(crate) fn settle(&mut self, done: u64, next: u64) {
        while let Some((round, pages)) = self.freed_by.front()
            && *round <= done
        {
            self.freed -= *pages;
            self.freed_by.pop_front();
        }
        for _ in 0..if self.pool.is_frozen { 0 } else { self.pool.emptied.len() } {
            let front = self.pool.emptied.front().filter(|(round, _)| *round <= done);
            let Some(&(_, slab)) = front else { return };
            self.pool.emptied.pop_front();
            let entry = &mut self.pool.slabs[slab as usize];
            match *entry {
                Slab { uses: 0, again: true, .. } => {
                    entry.again = false;
                    self.pool.emptied.push_back((next, slab));
                }
                Slab { uses: 0, .. } => self.release(slab),
                _ => (entry.waits, entry.again) = (false, false),
            }
        }
    }

    #[inline]
    pub(crate) fn heat(&self, page: u32) -> u8 {
        self.pool.heat[self.index(page)]
    }

    /// Sets the heat of a page, unless its chunk has no slab.
    pub(crate) fn set_heat(&mut self, page: u32, heat: u8) {
        if self.has_slab(page) {
            let index = self.index(page);
            self.pool.heat[index] = heat;
        }
    }

    /// Raises the heat of a page that a host writes, and lowers that of one page. Returns the
    /// page's heat, and `true` if the page is unmapped. Each page's heat halves once in as many
    /// writes as the volume has pages, or a thin volume in chunks with slabs. A page's first write
    /// leaves it cold.
    pub(crate) fn warm(&mut self, page: u32) -> (u8, bool) {
        self.cool();
        let index = self.index(page);
        let heat = self.pool.next_heat(index);
        self.pool.heat[index] = heat;
        (heat, self.pool.places[index] == 0)
    }

    /// Halves the heat of the page under the hand, and moves the hand on. In a thin volume the hand
    /// skips chunks without a slab.
    fn cool(&mut self) {
        for _ in 0..if self.is_thin { SKIPPED_MAX } else { 0 } {
            if self.has_slab(self.hand) {
                break;
            }
            let next = (self.hand / CHUNK_PAGES + 1) * CHUNK_PAGES;
            self.hand = if next < self.pages { next } else { 0 };
        }
        if self.has_slab(self.hand) {
            let index = self.index(self.hand);
            let cooled = &mut self.pool.heat[index];
            *cooled -= cooled.div_ceil(2);
        }
        self.hand += 1;
        if self.hand == self.pages {
            self.hand = 0;
        }
    }

    /// Returns the heat that a host's write would give a page.
    #[inline]
    pub(crate) fn next_heat(&self, page: u32) -> u8 {
        self.pool.next_heat(self.index(page))
    }

    /// Returns the number of slabs in use.
    pub(crate) fn slabs(&self) -> u32 {
        self.pool.used()
    }

    /// Keeps the slabs in use with their chunks until [`thaw`](Map::thaw), for a checkpoint.
    pub(crate) fn freeze(&mut self) {
        let Pool { frozen, slabs, top, .. } = &mut self.pool;
        let has_chunk = |slab: &u32| self.chunks[slabs[*slab as usize].chunk as usize] == *slab;
        frozen.clear();
        frozen.extend((1..*top).filter(has_chunk));
        self.pool.is_frozen = true;
    }

    /// Returns the number of slabs in the checkpoint that is being written.
    pub(crate) fn frozen(&self) -> u32 {
        self.pool.frozen.len() as u32
    }

    /// Returns the chunk, the complements of the places and the heats of a slab in the checkpoint
    /// that is being written.
    pub(crate) fn frozen_slab(&self, number: usize) -> (u32, &[u32], &[u8]) {
        let slab = self.pool.frozen[number] as usize;
        let range = slab * CHUNK..(slab + 1) * CHUNK;
        let Pool { slabs, places, heat, .. } = &self.pool;
        (slabs[slab].chunk, &places[range.clone()], &heat[range])
    }

    /// Ends the effect of [`freeze`](Map::freeze).
    pub(crate) fn thaw(&mut self) {
        self.pool.is_frozen = false;
    }

    /// Returns the numbers of places and of heats in the map's memory.
    pub(crate) fn memory_sizes(&self) -> (usize, usize) {
        (self.pool.places.len(), self.pool.heat.len())
    }

    /// Returns the tables of places and heats.
    #[cfg(test)]
    pub(crate) fn tables(&self) -> (&[u32], &[u8]) {
        (&self.pool.places, &self.pool.heat)
    }

    /// Moves places and heats to lent memory of the map's sizes.
    pub(crate) fn move_to(&mut self, memory: MapMemory) {
        self.pool.places.move_to(memory.places);
        self.pool.heat.move_to(memory.heat);
    }

    /// Adopts memory with the places and heats of a map that is handed over.
    pub(crate) fn adopt(&mut self, memory: MapMemory) {
        self.pool.places = Table::Lent(memory.places);
        self.pool.heat = Table::Lent(memory.heat);
        let slabs = self.pool.places.len() / CHUNK;
        self.pool.slabs = vec![Slab::default(); slabs].into();
        self.pool.free = Vec::with_capacity(slabs);
        self.pool.emptied = VecDeque::with_capacity(slabs);
        self.pool.frozen = Vec::with_capacity(slabs);
    }

    /// Writes or reads the map but for its places and heats. Nothing is held or frozen.
    pub(crate) fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        let slabs = self.pool.slabs.len();
        scribe.same(slabs as u64);
        scribe.same(self.pool.heat.len() as u64);
        for slab in &mut self.chunks {
            scribe.u32(slab);
            scribe.check((*slab as usize) < slabs);
        }
        for field in [&mut self.hand, &mut self.mapped, &mut self.freed] {
            scribe.u32(field);
        }
        scribe.check(self.hand < self.pages);
        scribe.rounds(&mut self.freed_by, usize::MAX);
        let pool = &mut self.pool;
        scribe.u32(&mut pool.top);
        scribe.u32(&mut pool.most);
        scribe.check((1..=slabs).contains(&(pool.top as usize)));
        if matches!(scribe, FieldCodec::Failed) {
            return;
        }
        for slab in &mut pool.slabs[..pool.top as usize] {
            scribe.u32(&mut slab.chunk);
            scribe.u16(&mut slab.uses);
            scribe.bool(&mut slab.waits);
            scribe.bool(&mut slab.again);
            scribe.check((slab.chunk as usize) < self.chunks.len());
        }
        let free = scribe.count(pool.free.len(), slabs);
        if scribe.reads() {
            pool.free.resize(free, 0);
        }
        for slab in &mut pool.free {
            scribe.u32(slab);
            scribe.check(*slab < pool.top);
        }
        scribe.rounds(&mut pool.emptied, slabs);
        let is_known = pool.emptied.iter().all(|(_, slab)| *slab < pool.top);
        scribe.check(is_known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps pages as a volume's write does: holds them, sets them, and lets them go.
    fn write(map: &mut Map, pages: &[u32]) -> Result<(), MapShortage> {
        let fresh: Vec<u32> =
            pages.iter().copied().filter(|page| map.place(*page) == UNMAPPED).collect();
        map.hold(pages.iter().copied())?;
        for page in pages {
            map.set(*page, *page);
        }
        fresh.iter().for_each(|page| map.let_go(*page));
        Ok(())
    }

    #[test]
    fn slabs_come_with_the_first_page_and_go_with_the_last_after_a_flush() {
        let mut map = Map::new(100 * CHUNK_PAGES, 50, 2);
        assert_eq!(map.room(), 2 * CHUNK_PAGES, "of 50 pages, two slabs take these");
        assert_eq!((map.place(99 * CHUNK_PAGES), map.slabs()), (UNMAPPED, 0));
        write(&mut map, &[5, 99 * CHUNK_PAGES, 6]).unwrap();
        assert_eq!((map.place(6), map.slabs(), map.mapped()), (6, 2, 3));
        assert_eq!(map.room(), 0, "both are in use");
        assert_eq!(
            write(&mut map, &[7, 3 * CHUNK_PAGES]),
            Err(MapShortage::Full),
            "both are in use"
        );
        assert_eq!(map.place(7), UNMAPPED, "nothing was held");
        assert_eq!(map.next_with_slab(CHUNK_PAGES, 100 * CHUNK_PAGES), 99 * CHUNK_PAGES);
        assert_eq!(map.unmap(99 * CHUNK_PAGES, 4), 99 * CHUNK_PAGES);
        map.settle(3, 4);
        assert_eq!(
            write(&mut map, &[3 * CHUNK_PAGES]),
            Err(MapShortage::ForNow),
            "it may come back"
        );
        assert_eq!(map.last_round(), 4);
        map.settle(4, 5);
        write(&mut map, &[3 * CHUNK_PAGES]).unwrap();
        let pages = [5, 6, 3 * CHUNK_PAGES].map(|page| (page, page));
        assert_eq!(map.all().collect::<Vec<_>>(), pages);
    }

    #[test]
    fn a_replayed_log_may_have_more_chunks_than_slabs() {
        let first = |chunk: u32| chunk * CHUNK_PAGES;
        let mut map = Map::new(first(10), 50, 2);
        (0..7).for_each(|chunk| map.restore(first(chunk), chunk));
        (0..5).for_each(|chunk| assert_eq!(map.unmap(first(chunk), 0), chunk));
        map.settle(0, 0);
        assert_eq!((map.slabs(), map.mapped()), (2, 2));
        assert_eq!(write(&mut map, &[first(9)]), Err(MapShortage::Full), "two at most");
        map.unmap(first(5), 1);
        map.settle(1, 2);
        write(&mut map, &[first(9)]).unwrap();
        assert_eq!((map.place(first(6)), map.slabs()), (6, 2));
    }

    #[test]
    fn a_slab_that_is_emptied_again_waits_again() {
        let mut map = Map::new(10 * CHUNK_PAGES, 50, 1);
        write(&mut map, &[5]).unwrap();
        map.unmap(5, 1);
        write(&mut map, &[6]).unwrap();
        map.unmap(6, 2);
        map.settle(1, 2);
        assert_eq!(write(&mut map, &[CHUNK_PAGES]), Err(MapShortage::ForNow));
        map.settle(2, 3);
        write(&mut map, &[CHUNK_PAGES]).unwrap();
    }

    #[test]
    fn slabs_of_a_checkpoint_keep_their_chunks() {
        let mut map = Map::new(10 * CHUNK_PAGES, 50, 2);
        write(&mut map, &[5, CHUNK_PAGES]).unwrap();
        map.freeze();
        map.unmap(5, 1);
        map.settle(1, 2);
        assert_eq!(write(&mut map, &[2 * CHUNK_PAGES]), Err(MapShortage::ForNow));
        assert_eq!((map.frozen(), map.frozen_slab(0).0, map.frozen_slab(1).0), (2, 0, 1));
        map.thaw();
        map.settle(1, 2);
        write(&mut map, &[2 * CHUNK_PAGES]).unwrap();
    }

    #[test]
    fn capacity_is_bounded_and_overwrites_go_on() {
        let mut map = Map::new(10 * CHUNK_PAGES, 2, 10);
        write(&mut map, &[1, 2]).unwrap();
        assert_eq!(write(&mut map, &[3]), Err(MapShortage::Full));
        write(&mut map, &[2, 1]).unwrap();
        map.unmap(1, 1);
        assert_eq!(write(&mut map, &[3]), Err(MapShortage::ForNow));
        map.settle(1, 2);
        write(&mut map, &[3]).unwrap();
    }
}
