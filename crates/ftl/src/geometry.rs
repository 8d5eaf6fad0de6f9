//! Sizes of a volume, and the places of its structures on the members.
//!
//! A member holds two copies of the superblock, then its part of the two checkpoint areas, then its
//! segments. Segment `s` is on member `s mod members`. A *place* is the number of a physical page:
//! segment · pages of a segment + offset.

use contract::REQUEST_BYTES_MAX;

use crate::error::Error;
use crate::layout::{
    CHECKPOINT_BYTES, PAGE_BYTES, SegmentRecord, Superblock, VERSION, VERSION_THIN, header_pages,
};
use crate::map::Slab;
use crate::policy::Policy;
use crate::segment::Segment;

/// Number of pages of a member that hold copies of the superblock.
pub(crate) const SUPERBLOCK_PAGES: u64 = 2;

/// Maximum number of members.
pub const MEMBERS_MAX: usize = 32;

/// Maximum number of pages of one read or write, and of data in one batch.
pub const BATCH_PAGES_MAX: u32 = 256;

/// Maximum number of pages of a commit: with its list it fills the largest request.
pub(crate) const COMMIT_PAGES_MAX: u32 = (REQUEST_BYTES_MAX / PAGE_BYTES - 1) as u32;

/// Maximum number of pages of a write of moved pages: 128 KiB.
const PART_PAGES_MAX: u32 = 32;

/// Maximum number of pages of a batch of lone writes.
const LONE_PAGES_MAX: u32 = 16;

/// Number of logical pages in a chunk of the map: 4 MiB. Tests have small chunks, so that small
/// volumes have several.
pub(crate) const CHUNK_PAGES: u32 = if cfg!(test) { 16 } else { 1024 };

/// Number of chunks that a thin volume may use beside twice as many as its capacity fills.
const SLABS_MORE: u32 = if cfg!(test) { 4 } else { 256 };

/// Maximum number of logical pages of a thin volume: 4 MiB less than 16 TiB.
pub(crate) const VIRTUAL_PAGES_MAX: u32 = u32::MAX / CHUNK_PAGES * CHUNK_PAGES;

/// Bytes of a slab in a checkpoint: the number of its chunk, places and heats.
pub(crate) const SLAB_RECORD_BYTES: usize = 4 + 5 * CHUNK_PAGES as usize;

/// Numbers of pages that a segment may have.
pub const SEGMENT_PAGES: core::ops::RangeInclusive<u32> = 8..=32_768;

/// The wanted sizes and policy of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The volume's identity, from a source of randomness.
    pub uuid: [u8; 16],
    /// Number of pages of a segment.
    pub segment_pages: u32,
    /// Physical over logical pages, less one, in thousandths.
    pub spare_per_mille: u32,
    /// The policy, which sets the number of streams.
    pub policy: Policy,
    /// Number of logical pages of a thin volume, which may be more than the members hold; `None`
    /// for a volume that is not thin.
    pub virtual_pages: Option<u64>,
}

#[cfg(test)]
impl Shape {
    /// Returns the shape of a small volume that is not thin.
    pub(crate) fn small(spare_per_mille: u32, policy: Policy) -> Shape {
        Shape { uuid: [7; 16], segment_pages: 64, spare_per_mille, policy, virtual_pages: None }
    }
}

/// The sizes of a volume. Fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// Number of members.
    pub members: u16,
    /// Number of pages of each member that the volume uses.
    pub member_pages: u64,
    /// Number of pages of a segment.
    pub segment_pages: u32,
    /// Number of logical pages.
    pub pages: u32,
    /// Number of logical pages that may hold data at once: fewer than `pages` only in a thin
    /// volume.
    pub capacity: u32,
    /// `true` if the map and its checkpoints grow with the pages in use.
    pub thin: bool,
    /// Number of streams.
    pub streams: u8,
}

impl Geometry {
    /// Returns the geometry of a new volume on members of these sizes in pages.
    ///
    /// # Errors
    /// Fails if the shape is no possible one, or the members are too small for it, too large, or
    /// too many.
    pub fn plan(shape: &Shape, sizes: &[u64]) -> Result<Geometry, Error> {
        let few = !sizes.is_empty() && sizes.len() <= MEMBERS_MAX;
        if !few || !SEGMENT_PAGES.contains(&shape.segment_pages) || shape.spare_per_mille < 20 {
            return Err(Error::Shape);
        }
        let member_pages = sizes.iter().copied().min().unwrap_or(0);
        let mut geometry = Geometry {
            uuid: shape.uuid,
            members: sizes.len() as u16,
            member_pages,
            segment_pages: shape.segment_pages,
            pages: 0,
            capacity: 0,
            thin: shape.virtual_pages.is_some(),
            streams: shape.policy.streams(),
        };
        let wished = shape.virtual_pages.unwrap_or(1);
        if !(1..=u64::from(VIRTUAL_PAGES_MAX)).contains(&wished) {
            return Err(Error::VirtualSize);
        }
        // The checkpoint's size depends on the logical pages and takes space from them: the first
        // guess, which is too large, settles it.
        for _ in 0..2 {
            let physical = u64::from(geometry.segments()) * u64::from(shape.segment_pages);
            let logical = physical * 1000 / (1000 + u64::from(shape.spare_per_mille));
            let capacity = u32::try_from(logical).map_err(|_| Error::TooLarge)?;
            geometry.pages = if geometry.thin { wished as u32 } else { capacity };
            geometry.capacity = capacity.min(geometry.pages);
        }
        if geometry.leaves_room() { Ok(geometry) } else { Err(Error::TooSmall) }
    }

    /// Returns the geometry that a superblock states, or `None` if it contradicts itself.
    pub fn of(block: &Superblock) -> Option<Geometry> {
        let (thin, pages) = (block.version.get() == VERSION_THIN, block.sizes.pages.get());
        let geometry = Geometry {
            uuid: block.uuid,
            members: block.members.get(),
            member_pages: block.sizes.member_pages.get(),
            segment_pages: block.sizes.segment_pages.get(),
            pages,
            capacity: if thin { block.thin.capacity.get() } else { pages },
            thin,
            streams: block.streams,
        };
        let known = (1..=MEMBERS_MAX as u16).contains(&geometry.members)
            && SEGMENT_PAGES.contains(&geometry.segment_pages)
            && (1..=6).contains(&geometry.streams)
            && geometry.member_pages < 1 << 40;
        let fits = geometry.capacity <= pages && pages <= VIRTUAL_PAGES_MAX.max(geometry.capacity);
        (known && fits && geometry.is_sound()).then_some(geometry)
    }

    /// Returns the number of the format's version that the volume has on its members.
    pub(crate) fn version(&self) -> u16 {
        if self.thin { VERSION_THIN } else { VERSION }
    }

    /// Returns `true` if live data, packed as densely as batches permit, leaves the reserve and two
    /// segments free.
    fn is_sound(&self) -> bool {
        let (segments, reserve) = (u64::from(self.segments()), u64::from(self.reserve()));
        let places = segments * u64::from(self.segment_pages);
        let dense = u64::from(self.dense_pages());
        let room = segments.saturating_sub(reserve + 2) * dense;
        self.capacity > 0 && u64::from(self.capacity) <= room && places < u64::from(u32::MAX) - 1
    }

    /// Returns `true` if writes always find room: with all pages written and packed densely, so that
    /// no segment gives space, the reserve and two segments are free beside the open segment of each
    /// log.
    fn leaves_room(&self) -> bool {
        let taken = self.reserve() + u32::from(self.streams) + 2;
        let room = u64::from(self.segments().saturating_sub(taken));
        self.is_sound() && u64::from(self.capacity) <= room * u64::from(self.dense_pages())
    }

    /// Returns `true` if there is room for one more open segment, with the batches of lone writes.
    pub(crate) fn has_lone_log(&self) -> bool {
        let taken = self.reserve() + u32::from(self.streams) + 3;
        let room = u64::from(self.segments().saturating_sub(taken));
        u64::from(self.capacity) <= room * u64::from(self.dense_pages())
    }

    /// Returns the number of data pages that a segment holds at most, in batches as large as can be.
    pub fn dense_pages(&self) -> u32 {
        let (mut left, mut dense) = (self.segment_pages, 0);
        while left >= 2 {
            let most = self.batch_pages_max().min(left - 1);
            let fits = |data: &u32| *data + header_pages(*data as usize) as u32 <= left;
            let data = (1..=most).rev().find(fits).unwrap_or(0);
            dense += data;
            left -= data + header_pages(data as usize) as u32;
        }
        dense
    }

    /// Returns the number of free segments that host writes leave to the collector: one to open and
    /// one to fill for each stream, and two victims.
    pub fn reserve(&self) -> u32 {
        Geometry::reserve_of(self.streams)
    }

    /// Returns the maximum number of pages of a write of moved pages: a quarter of a segment, at
    /// most 128 KiB.
    pub(crate) fn part_pages(&self) -> u32 {
        (self.segment_pages / 4).min(PART_PAGES_MAX)
    }

    /// Returns the [reserve](Geometry::reserve) of a volume with `streams` streams.
    pub(crate) fn reserve_of(streams: u8) -> u32 {
        2 * u32::from(streams) + 2
    }

    /// Returns the maximum number of chunks of the map in use. A thin volume may spread its pages
    /// over twice as many chunks as its capacity fills, and 256.
    pub fn slabs(&self) -> u32 {
        let chunks = self.pages.div_ceil(CHUNK_PAGES);
        let dense = self.capacity.div_ceil(CHUNK_PAGES);
        if self.thin {
            chunks.min(dense.saturating_mul(2).saturating_add(SLABS_MORE))
        } else {
            chunks
        }
    }

    /// Returns the bytes of memory that a volume in service takes at most, without its queue's
    /// buffers: four bytes of map and one of heat for each page of the chunks in use, the table of
    /// chunks, the table of segments, and two batches for each log.
    pub fn memory_bytes(&self) -> u64 {
        let segment = size_of::<Segment>() + 3 * size_of::<u64>();
        let batch = |pages: u32| 2 * u64::from(pages + 2) * PAGE_BYTES as u64;
        let slab = 5 * CHUNK_PAGES as usize + size_of::<Slab>() + 2 * size_of::<u32>() + 16;
        slab as u64 * u64::from(self.slabs())
            + 4 * u64::from(self.pages.div_ceil(CHUNK_PAGES))
            + segment as u64 * u64::from(self.segments())
            + batch(self.batch_pages_max()) * u64::from(self.streams)
            + if self.has_lone_log() { batch(self.lone_pages_max()) } else { 0 }
    }

    /// Returns the number of pages of a thin volume's checkpoint for the map of `slabs` slabs.
    pub(crate) fn slab_pages(&self, slabs: u32) -> u32 {
        let bytes = u64::from(slabs) * SLAB_RECORD_BYTES as u64;
        bytes.div_ceil(CHECKPOINT_BYTES as u64) as u32
    }

    /// Returns the number of pages of a checkpoint's map and heat while `slabs` slabs are in use.
    pub(crate) fn index_pages(&self, slabs: u32) -> u32 {
        if self.thin { self.slab_pages(slabs) } else { self.map_pages() + self.heat_pages() }
    }

    /// Returns the number of pages of a checkpoint while `slabs` slabs are in use.
    pub(crate) fn checkpoint_pages_with(&self, slabs: u32) -> u32 {
        let records = (CHECKPOINT_BYTES / size_of::<SegmentRecord>()) as u32;
        self.index_pages(slabs) + self.segments_guess().div_ceil(records)
    }

    /// Returns the number of pages of a checkpoint's map, in a volume that is not thin.
    pub(crate) fn map_pages(&self) -> u32 {
        self.pages.div_ceil(CHECKPOINT_BYTES as u32 / 4)
    }

    /// Returns the number of pages of a checkpoint's heats, in a volume that is not thin.
    pub(crate) fn heat_pages(&self) -> u32 {
        self.pages.div_ceil(CHECKPOINT_BYTES as u32)
    }

    /// Returns the number of pages of the volume's largest checkpoint.
    pub fn checkpoint_pages(&self) -> u32 {
        self.checkpoint_pages_with(self.slabs())
    }

    /// Returns the number of segments that would fit if the members held nothing else.
    fn segments_guess(&self) -> u32 {
        let all = self.member_pages * u64::from(self.members) / u64::from(self.segment_pages);
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Returns the first page of segments on each member.
    pub(crate) fn data_at(&self) -> u64 {
        let areas = if self.members == 1 { 2 } else { 1 };
        SUPERBLOCK_PAGES + areas * u64::from(self.checkpoint_pages())
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> u32 {
        let room = self.member_pages.saturating_sub(self.data_at());
        let each = room / u64::from(self.segment_pages);
        u32::try_from(each * u64::from(self.members)).unwrap_or(u32::MAX)
    }

    /// Returns the member and the first page on it of checkpoint area 0 or 1.
    pub(crate) fn area(&self, area: u64) -> (u16, u64) {
        match self.members {
            1 => (0, SUPERBLOCK_PAGES + area * u64::from(self.checkpoint_pages())),
            _ => (area as u16, SUPERBLOCK_PAGES),
        }
    }

    /// Returns the member and the page on it where a place lies.
    pub(crate) fn locate(&self, place: u32) -> (u16, u64) {
        self.locate_from(self.data_at(), self.split(place))
    }

    /// Returns the segment of a place, and the place's offset there.
    #[inline]
    pub(crate) fn split(&self, place: u32) -> (u32, u32) {
        (place / self.segment_pages, place % self.segment_pages)
    }

    /// Returns the member and the page on it where a page of a segment lies. `data_at` is the first
    /// page of segments, so that it need not be computed.
    #[inline]
    pub(crate) fn locate_from(&self, data_at: u64, (segment, offset): (u32, u32)) -> (u16, u64) {
        let members = u32::from(self.members);
        let row = u64::from(segment / members);
        let at = data_at + row * u64::from(self.segment_pages) + u64::from(offset);
        ((segment % members) as u16, at)
    }

    /// Returns the place of the page at this offset in a segment.
    pub(crate) fn place(&self, segment: u32, offset: u32) -> u32 {
        segment * self.segment_pages + offset
    }

    /// Returns the maximum number of data pages of a batch.
    pub fn batch_pages_max(&self) -> u32 {
        BATCH_PAGES_MAX.min(self.segment_pages - 2)
    }

    /// Returns the maximum number of pages of a commit.
    pub fn commit_pages_max(&self) -> u16 {
        COMMIT_PAGES_MAX.min(self.batch_pages_max()) as u16
    }

    /// Returns the maximum number of data pages of a batch of lone writes.
    pub(crate) fn lone_pages_max(&self) -> u32 {
        LONE_PAGES_MAX.min(self.batch_pages_max())
    }
}
