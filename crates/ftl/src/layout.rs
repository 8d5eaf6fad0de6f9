//! The structures on the media: superblock, batch header, checkpoint page. All are little-endian
//! and have a CRC-32C. Superblocks and batch headers carry the version of the format. The pages of
//! hosts have a [`page_sum`], which is more than a CRC.
//!
//! | structure | bytes | place |
//! |---|---|---|
//! | [`Superblock`] | 4 096 | pages 0 and 1 of each member, equal after each change |
//! | [`BatchHead`] + n × [`Entry`] | 72 + 16 n, in one or two pages | before the batch's pages |
//! | [`CheckpointPage`] | 4 096 | one of two areas, in turns |
//!
//! This module deliberately leaves out where a structure lies (see `geometry`), and when it is
//! written.

use core::mem::{offset_of, size_of};

use crc::{Crc32c, product_hash};
use wire::superblock::{Format, SuperblockPage};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a page in bytes: the unit of mapping, and of I/O to members.
pub const PAGE_BYTES: usize = 4096;

/// The version of the format of volumes that are not thin, and of batch headers. Versions 1 and 2
/// had the CRC-32C of pages in place of their [`page_sum`].
pub const VERSION: u16 = 3;

/// The version of the format of thin volumes. It differs in the superblock and in checkpoints.
pub const VERSION_THIN: u16 = 4;

/// The first bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"nfftl001";

/// The first bytes of a batch header.
pub const BATCH_MAGIC: [u8; 8] = *b"nfbatch1";

/// Number of bytes of content in a checkpoint page.
pub const CHECKPOINT_BYTES: usize = 4080;

/// Maximum number of entries of a batch header: as many as two pages hold.
pub const ENTRIES_MAX: usize = (2 * PAGE_BYTES - size_of::<BatchHead>()) / size_of::<Entry>();

/// Flag of a batch: it is valid only if every page of it is whole.
pub const FLAG_ATOMIC: u8 = 1;

/// The sizes of a volume.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SizesRecord {
    /// Number of pages of each member that the volume uses.
    pub member_pages: U64,
    /// Number of logical pages.
    pub pages: U32,
    /// Number of pages of a segment.
    pub segment_pages: U32,
}

/// The sizes of a thin volume and of its checkpoint.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ThinRecord {
    /// Maximum number of logical pages with data.
    pub capacity: U32,
    /// Number of slabs in the valid checkpoint.
    pub slabs: U32,
    /// Number of logical pages in use when the valid checkpoint began.
    pub used: U32,
}

/// The description of the valid checkpoint in a superblock.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CheckpointRecord {
    /// The checkpoint's identity: the superblock's generation that made it valid.
    pub identity: U64,
    /// The lowest stamp of batches that may not be in the checkpoint.
    pub horizon: U64,
    /// The next stamp when the checkpoint began: pages moved by batches below it are in place.
    pub begun: U64,
    /// The checkpoint's area, 0 or 1.
    pub area: u8,
}

/// The description of a volume, on each of its members.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// Always [`MAGIC`].
    pub magic: [u8; 8],
    /// Version of the format: [`VERSION`], or [`VERSION_THIN`].
    pub version: U16,
    /// Index of the member among the volume's members, from zero.
    pub member: U16,
    /// Number of members.
    pub members: U16,
    /// Number of streams. The log of lone writes is none of them.
    pub streams: u8,
    /// 1 if the volume was closed in order and not opened since.
    pub clean: u8,
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// Number of changes of the superblock.
    pub generation: U64,
    /// Number of openings of the volume.
    pub session: U64,
    /// Sizes of the volume, its members and its segments.
    pub sizes: SizesRecord,
    /// The checkpoint from which recovery begins.
    pub checkpoint: CheckpointRecord,
    /// A stamp above all stamps at the checkpoint's end.
    pub next_stamp: U64,
    /// Number of pages that hosts have written in the volume's life.
    pub written: U64,
    /// The sizes of a thin volume; zero in other volumes.
    pub thin: ThinRecord,
    /// Reserved; always zero.
    pub reserved: [u8; 3975],
    /// CRC-32C of all bytes before.
    pub crc: U32,
}

/// The head of a batch header. Entries follow, those with data first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BatchHead {
    /// Always [`BATCH_MAGIC`].
    pub magic: [u8; 8],
    /// First eight bytes of the volume's identity.
    pub volume: [u8; 8],
    /// The life of the segment: session · 2³² + number of the opening in the session.
    pub life: U64,
    /// Stamp of the batch; batches of a volume are ordered by it.
    pub base: U64,
    /// Stamp of the batch before this one in the segment; zero for the first.
    pub previous: U64,
    /// The stamp below which all batches are durable.
    pub durable_below: U64,
    /// Number of the segment in the volume.
    pub segment: U32,
    /// Offset in the segment, in pages, where this header begins.
    pub offset: U32,
    /// The number of times the segment was opened.
    pub wear: U32,
    /// Number of entries with data. Their pages follow the header in the entries' order.
    pub data: U16,
    /// Number of entries without data.
    pub records: U16,
    /// [`FLAG_ATOMIC`], or zero.
    pub flags: u8,
    /// Number of the stream whose log has the batch; in the log of lone writes, the number of
    /// streams.
    pub stream: u8,
    /// Version of the format, always [`VERSION`].
    pub version: U16,
    /// CRC-32C of the head before this field and of the entries.
    pub crc: U32,
}

/// An entry of a batch header: the logical page in one data page of the batch, or a record about a
/// run of logical pages.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Entry {
    /// The logical page.
    pub page: U32,
    /// [`page_sum`] of the data; for a record, the number of logical pages from `page` on.
    pub check: U32,
    /// Stamp (48 bits), heat (8 bits), kind (8 bits).
    word: U64,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page that a host wrote.
    Host,
    /// A page that the collector moved. Its entry keeps the stamp of the host's write.
    Moved,
    /// A record: a run of pages was discarded.
    Discarded,
    /// A record: a page's data is lost.
    Poisoned,
}

impl Entry {
    /// Returns an entry. Stamps lie below 2⁴⁸.
    pub fn new(page: u32, kind: Kind, heat: u8, stamp: u64, check: u32) -> Entry {
        assert!(stamp < 1 << 48, "a volume writes fewer than 2^48 pages");
        let word = stamp | u64::from(heat) << 48 | (kind as u64) << 56;
        Entry { page: page.into(), check: check.into(), word: word.into() }
    }

    /// Returns the stamp of the write that the entry is about.
    pub fn stamp(self) -> u64 {
        self.word.get() & ((1 << 48) - 1)
    }

    /// Returns the heat of the page when the entry was written.
    pub fn heat(self) -> u8 {
        (self.word.get() >> 48) as u8
    }

    /// Returns the entry's kind, or `None` for a number that this version does not know.
    pub fn kind(self) -> Option<Kind> {
        [Kind::Host, Kind::Moved, Kind::Discarded, Kind::Poisoned]
            .get((self.word.get() >> 56) as usize)
            .copied()
    }
}

/// A page of a checkpoint.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CheckpointPage {
    /// Entries of the map, bytes of heat, or [`SegmentRecord`]s. In a thin volume, map and heat are
    /// a sequence of slabs: number of the chunk, entries, heats.
    pub content: [u8; CHECKPOINT_BYTES],
    /// The checkpoint's identity.
    pub checkpoint: U64,
    /// Index of the page in the checkpoint.
    pub index: U32,
    /// CRC-32C of all bytes before.
    pub crc: U32,
}

/// The state of a segment in a checkpoint.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentRecord {
    /// The segment's life, as in [`BatchHead`]; zero if the segment was never opened.
    pub life: U64,
    /// Number of pages that hosts had written to the volume when the segment was closed.
    pub closed_at: U64,
    /// Stamp of the segment's last batch.
    pub last: U64,
    /// The number of times the segment was opened.
    pub wear: U32,
    /// Number of the stream whose log has the segment; in the log of lone writes, the number of
    /// streams.
    pub stream: u8,
    /// 1 if the segment is open.
    pub open: u8,
    /// Number of pages of the segment's batches.
    pub fill: U16,
}

const _: () = assert!(size_of::<Superblock>() == PAGE_BYTES);
const _: () = assert!(offset_of!(Superblock, reserved) == 117);
const _: () = assert!(size_of::<BatchHead>() == 72);
const _: () = assert!(size_of::<Entry>() == 16);
const _: () = assert!(ENTRIES_MAX == 507);
const _: () = assert!(size_of::<CheckpointPage>() == PAGE_BYTES);
const _: () = assert!(size_of::<SegmentRecord>() == 32);

/// Returns the CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    Crc32c::of(bytes)
}

/// Returns the checksum of a page's data, by which recovery tells whether the page was written: its
/// CRC-32C with a [`product_hash`] added, without which a host's own CRCs could make the sums of
/// different pages equal.
pub fn page_sum(page: &[u8]) -> u32 {
    product_hash(page) ^ checksum(page)
}

/// Returns the number of pages of the header of a batch of this many entries.
pub const fn header_pages(entries: usize) -> usize {
    (size_of::<BatchHead>() + entries * size_of::<Entry>()).div_ceil(PAGE_BYTES)
}

/// The format of superblocks.
const FORMAT: Format = Format { magic: MAGIC, versions: &[VERSION, VERSION_THIN], checksum };

impl Superblock {
    /// Decodes a page that should hold a superblock.
    pub fn decode(page: &[u8]) -> SuperblockPage<Superblock> {
        FORMAT.read(page)
    }

    /// Writes the superblock with its checksum into `page`.
    pub fn encode(&self, page: &mut [u8]) {
        page.copy_from_slice(self.as_bytes());
        FORMAT.seal(page);
    }
}

fn batch_checksum(head: &[u8], entries: &[u8]) -> u32 {
    Crc32c::of_parts([&head[..offset_of!(BatchHead, crc)], entries])
}

impl BatchHead {
    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        usize::from(self.data.get()) + usize::from(self.records.get())
    }

    /// Returns the number of pages of the batch: header and data.
    pub fn pages(&self) -> u32 {
        (header_pages(self.entries()) + usize::from(self.data.get())) as u32
    }

    /// Decodes the head of a batch without its checksum, to tell how much to read for the rest;
    /// `None` if `page` begins with no head.
    pub fn peek(page: &[u8]) -> Option<BatchHead> {
        let (head, _) = BatchHead::read_from_prefix(page).ok()?;
        let counts = head.entries() > 0 && head.entries() <= ENTRIES_MAX;
        (head.magic == BATCH_MAGIC && head.version.get() == VERSION && counts).then_some(head)
    }

    /// Decodes a whole batch header, of one or two pages; `None` if it is no header, or damaged.
    pub fn decode(bytes: &[u8]) -> Option<(BatchHead, &[Entry])> {
        let head = BatchHead::peek(bytes)?;
        let rest = bytes.get(size_of::<BatchHead>()..)?;
        let raw = rest.get(..head.entries() * size_of::<Entry>())?;
        let sound = batch_checksum(bytes, raw) == head.crc.get();
        let entries = <[Entry]>::ref_from_bytes(raw).ok()?;
        (sound && entries.iter().all(|entry| entry.kind().is_some())).then_some((head, entries))
    }

    /// Writes head and entries with their checksum into `bytes`, one or two pages. Bytes from
    /// `stale` on are zero before. Returns the number of bytes that head and entries take; those
    /// behind are zero afterwards.
    pub fn encode(
        &self,
        entries: impl Iterator<Item = Entry>,
        bytes: &mut [u8],
        stale: usize,
    ) -> usize {
        let used = size_of::<BatchHead>() + self.entries() * size_of::<Entry>();
        if stale > used {
            bytes[used..stale].fill(0);
        }
        let (head, rest) = bytes.split_at_mut(size_of::<BatchHead>());
        head.copy_from_slice(self.as_bytes());
        let mut count = 0;
        for (entry, place) in entries.zip(rest.chunks_exact_mut(size_of::<Entry>())) {
            place.copy_from_slice(entry.as_bytes());
            count += 1;
        }
        assert_eq!(count, self.entries(), "the head counts its entries");
        let crc = batch_checksum(head, &rest[..used - size_of::<BatchHead>()]);
        head[offset_of!(BatchHead, crc)..].copy_from_slice(&crc.to_le_bytes());
        used
    }
}

impl CheckpointPage {
    /// Writes identity, index and checksum into a checkpoint page whose content is in place.
    pub fn seal(page: &mut [u8], checkpoint: u64, index: u32) {
        page[CHECKPOINT_BYTES..][..8].copy_from_slice(&checkpoint.to_le_bytes());
        page[CHECKPOINT_BYTES + 8..][..4].copy_from_slice(&index.to_le_bytes());
        let crc_at = offset_of!(CheckpointPage, crc);
        let crc = checksum(&page[..crc_at]);
        page[crc_at..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the content of a page; `None` unless it is page `index` of this checkpoint, and
    /// whole.
    pub fn open(page: &[u8], checkpoint: u64, index: u32) -> Option<&[u8]> {
        let read = CheckpointPage::ref_from_bytes(page).ok()?;
        let is_it = read.checkpoint.get() == checkpoint && read.index.get() == index;
        let sound = read.crc.get() == checksum(&page[..offset_of!(CheckpointPage, crc)]);
        (is_it && sound).then_some(&read.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec;

    /// Returns a page of sectors that each end with the CRC-32C of their other bytes.
    fn sealed(number: u32) -> vec::Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        for (sector, bytes) in (0..).zip(page.chunks_mut(512)) {
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            bytes[4] = sector;
            let crc = checksum(&bytes[..508]);
            bytes[508..].copy_from_slice(&crc.to_le_bytes());
        }
        page
    }

    /// Their CRC is one number, so that a CRC would prove nothing.
    #[test]
    fn pages_that_end_with_their_own_crc_have_different_sums() {
        let pages: vec::Vec<_> = (0..1000).map(sealed).collect();
        let crcs: BTreeSet<u32> = pages.iter().map(|page| checksum(page)).collect();
        let sums: BTreeSet<u32> = pages.iter().map(|page| page_sum(page)).collect();
        assert_eq!((crcs.len(), sums.len()), (1, 1000));
    }

    #[test]
    fn every_bit_of_a_page_changes_its_sum() {
        let mut page = sealed(7);
        let sum = page_sum(&page);
        let mut sums = BTreeSet::new();
        for bit in 0..8 * PAGE_BYTES {
            page[bit / 8] ^= 1 << (bit % 8);
            sums.insert(page_sum(&page));
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!sums.contains(&sum));
        assert!(sums.len() > 8 * PAGE_BYTES - 4, "hardly two bits change it alike");
    }

    /// The format has this sum.
    #[test]
    fn the_sum_of_a_page_stays_as_it_is() {
        let page: vec::Vec<u8> = (0..PAGE_BYTES).map(|n| (n * 7 % 251) as u8).collect();
        assert_eq!([page_sum(&page), page_sum(&[0; PAGE_BYTES])], [1_403_647_561, 1_072_036_850]);
    }
}
