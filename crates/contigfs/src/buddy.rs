//! The allocator of places in virtual space: a buddy system over chunks.
//!
//! A place of order k is 2^k chunks, and begins at a multiple of its size. The allocator lives in
//! memory only; a mount rebuilds it from the places of the inodes.

use alloc::collections::BTreeSet;

use crate::layout::{CHUNK_BYTES, ORDER_MAX, PlaceRecord};

/// The space of a file's data: 2^order contiguous chunks of virtual space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileSpace {
    /// Number of the first chunk, in chunks of 4 MiB from the beginning of virtual space.
    pub(crate) chunk: u32,
    /// The order: 2^order chunks.
    pub(crate) order: u8,
}

impl FileSpace {
    /// Returns the number of chunks.
    pub(crate) fn chunks(self) -> u32 {
        1 << self.order
    }

    /// Returns the number of bytes.
    pub(crate) fn bytes(self) -> u64 {
        CHUNK_BYTES << self.order
    }

    /// Returns the on-disk record of a place; `None` gives the record of no place.
    pub(crate) fn record(place: Option<FileSpace>) -> PlaceRecord {
        match place {
            None => PlaceRecord::default(),
            Some(FileSpace { chunk, order }) => {
                PlaceRecord { chunk: chunk.into(), order_next: order + 1 }
            }
        }
    }

    /// Returns the place that an on-disk record describes; `None` for no place. The order is not
    /// checked and may be too large.
    pub(crate) fn of(record: PlaceRecord) -> Option<FileSpace> {
        let order = record.order_next.checked_sub(1)?;
        Some(FileSpace { chunk: record.chunk.get(), order })
    }

    /// Returns `true` if the place lies within the first `chunks` chunks and begins at a multiple
    /// of its size.
    pub(crate) fn is_sound(self, chunks: u32) -> bool {
        let end = u64::from(self.chunk) + (1 << self.order.min(ORDER_MAX));
        let aligned = self.order <= ORDER_MAX && self.chunk.is_multiple_of(1 << self.order);
        aligned && end <= u64::from(chunks)
    }
}

/// Returns the smallest order of a place that holds `bytes` bytes; `None` if no order is large
/// enough.
pub(crate) fn order_for(bytes: u64) -> Option<u8> {
    (0..=ORDER_MAX).find(|order| CHUNK_BYTES << order >= bytes)
}

/// Free chunks, by order.
#[derive(Clone, Debug)]
pub(crate) struct Buddy {
    free: [BTreeSet<u32>; ORDER_MAX as usize + 1],
    chunks: u32,
    chunks_free: u32,
}

impl Buddy {
    /// Returns an allocator in which exactly the places in `used` are allocated. The places ascend.
    ///
    /// # Errors
    /// The index of a place that overlaps the one before.
    pub(crate) fn rebuild(chunks: u32, used: &[FileSpace]) -> Result<Buddy, usize> {
        let free = core::array::from_fn(|_| BTreeSet::new());
        let mut buddy = Buddy { free, chunks, chunks_free: 0 };
        let mut at = 0;
        for (index, place) in used.iter().enumerate() {
            if place.chunk < at {
                return Err(index);
            }
            buddy.add(at, place.chunk);
            at = place.chunk + place.chunks();
        }
        buddy.add(at, chunks);
        Ok(buddy)
    }

    /// Adds free chunks as the largest blocks that fit.
    fn add(&mut self, mut from: u32, to: u32) {
        while from < to {
            let by_place = if from == 0 { u32::from(ORDER_MAX) } else { from.trailing_zeros() };
            let order = by_place.min((to - from).ilog2()).min(u32::from(ORDER_MAX));
            self.free[order as usize].insert(from);
            self.chunks_free += 1 << order;
            from += 1 << order;
        }
    }

    /// Returns the number of chunks.
    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns the number of free chunks.
    pub(crate) fn chunks_free(&self) -> u32 {
        self.chunks_free
    }

    /// Takes a place of an order out of the smallest block that has room.
    pub(crate) fn take(&mut self, order: u8) -> Option<FileSpace> {
        let from = (order..=ORDER_MAX).find(|o| !self.free[usize::from(*o)].is_empty())?;
        let chunk = self.free[usize::from(from)].pop_first()?;
        for smaller in order..from {
            self.free[usize::from(smaller)].insert(chunk + (1 << smaller));
        }
        self.chunks_free -= 1 << order;
        Some(FileSpace { chunk, order })
    }

    /// Takes a place of the largest free order from `most` down to `least`.
    pub(crate) fn take_between(&mut self, least: u8, most: u8) -> Option<FileSpace> {
        (least..=most).rev().find_map(|order| self.take(order))
    }

    /// Gives a place back.
    ///
    /// # Panics
    /// Panics if a part of the place is free already.
    pub(crate) fn give(&mut self, place: FileSpace) {
        let FileSpace { mut chunk, mut order } = place;
        self.chunks_free += place.chunks();
        assert!(self.chunks_free <= self.chunks, "a place is given back once");
        while order < ORDER_MAX && self.free[usize::from(order)].remove(&(chunk ^ (1 << order))) {
            chunk &= !(1 << order);
            order += 1;
        }
        assert!(self.free[usize::from(order)].insert(chunk), "a place is given back once");
    }

    /// Returns the largest order, at most `most`, to which a place can grow without moving its
    /// beginning.
    pub(crate) fn reach(&self, place: FileSpace, most: u8) -> u8 {
        let mut order = place.order;
        while order < most {
            let buddy = place.chunk | 1 << order;
            let is_lower = place.chunk & 1 << order == 0;
            if !is_lower || !self.free[usize::from(order)].contains(&buddy) {
                break;
            }
            order += 1;
        }
        order
    }

    /// Grows a place to an order within its [reach](Buddy::reach).
    pub(crate) fn grow(&mut self, place: FileSpace, to: u8) -> FileSpace {
        for order in place.order..to {
            let was = self.free[usize::from(order)].remove(&(place.chunk | 1 << order));
            assert!(was, "the buddy was free");
            self.chunks_free -= 1 << order;
        }
        FileSpace { order: to, ..place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn places_come_back_as_large_blocks() {
        let mut buddy = Buddy::rebuild(1000, &[]).unwrap();
        let places: Vec<FileSpace> = core::iter::from_fn(|| buddy.take(0)).collect();
        assert_eq!((places.len(), buddy.chunks_free()), (1000, 0));
        for place in places {
            buddy.give(place);
        }
        assert_eq!(buddy.take(9), Some(FileSpace { chunk: 0, order: 9 }));
        assert_eq!(buddy.take(8), Some(FileSpace { chunk: 512, order: 8 }));
        assert_eq!(buddy.take(8), None);
        assert_eq!(buddy.take_between(3, 8), Some(FileSpace { chunk: 768, order: 7 }));
    }

    #[test]
    fn a_place_grows_into_its_free_buddies_only() {
        let mut buddy = Buddy::rebuild(16, &[]).unwrap();
        let place = buddy.take(0).unwrap();
        assert_eq!((buddy.reach(place, 3), buddy.reach(place, 22)), (3, 4));
        let place = buddy.grow(place, 2);
        assert_eq!(place, FileSpace { chunk: 0, order: 2 });
        let next = buddy.take(2).unwrap();
        assert_eq!(buddy.reach(place, 4), 2);
        assert_eq!(buddy.reach(next, 4), 2, "an upper half does not grow");
        buddy.give(place);
        buddy.give(next);
        assert_eq!(buddy.take(4), Some(FileSpace { chunk: 0, order: 4 }));
    }

    #[test]
    fn a_rebuilt_allocator_has_what_is_between_the_places() {
        let used = [FileSpace { chunk: 4, order: 2 }, FileSpace { chunk: 8, order: 0 }];
        let mut buddy = Buddy::rebuild(16, &used).unwrap();
        assert_eq!(buddy.chunks_free(), 11);
        assert_eq!(buddy.take(2), Some(FileSpace { chunk: 0, order: 2 }));
        let overlapping = [FileSpace { chunk: 4, order: 2 }, FileSpace { chunk: 7, order: 0 }];
        assert_eq!(Buddy::rebuild(16, &overlapping).unwrap_err(), 1);
    }

    #[test]
    fn orders_follow_sizes() {
        assert_eq!(order_for(0), Some(0));
        assert_eq!(order_for(CHUNK_BYTES), Some(0));
        assert_eq!(order_for(CHUNK_BYTES + 1), Some(1));
        assert_eq!(order_for(CHUNK_BYTES << 22), Some(22));
        assert_eq!(order_for((CHUNK_BYTES << 22) + 1), None);
    }
}
