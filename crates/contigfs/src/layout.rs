//! The structures on the media: superblock, inodes, pages of the pool. All are little-endian, and
//! all have a CRC-32C.
//!
//! | structure | bytes | place |
//! |---|---|---|
//! | [`Superblock`] | 4 096 | pages 0 and 1, equal |
//! | [`InodeRecord`] | 128, 32 a page | the table, from page 2 on, by number |
//! | [`PoolHead`] and content | 4 096 | the pool, behind the table, in any order |
//!
//! Files lie behind the pool, in chunks of 4 MiB. A page that was never written reads as zeroes: an
//! inode that was never used, or a free page of the pool.
//!
//! Deliberately left out: the entries of directories (`directory`) and of attributes (`blob`) in
//! the pages of the pool.

use core::mem::{offset_of, size_of};

use crc::Crc32c;
use wire::superblock::{Format, SuperblockPage};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::words::Time;

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Pages of a chunk, the unit of places for files: 4 MiB.
pub const CHUNK_PAGES: u64 = 1024;

/// Bytes of a chunk.
pub const CHUNK_BYTES: u64 = CHUNK_PAGES * PAGE_BYTES as u64;

/// The largest order of a place: 16 TiB.
pub const ORDER_MAX: u8 = 22;

/// The version of the format that this crate reads and writes.
pub const VERSION: u16 = 1;

/// The first bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"nfcfs001";

/// Inodes of a page of the table.
pub const INODES_PER_PAGE: u32 = (PAGE_BYTES / size_of::<InodeRecord>()) as u32;

/// First page of the table.
pub const TABLE_START: u64 = 2;

/// Bytes of a page of the pool behind its head.
pub const CONTENT_BYTES: usize = PAGE_BYTES - size_of::<PoolHead>();

/// Flag of an inode: data may lie in its place beyond its size. A mount discards it.
pub const FLAG_EXTENDING: u32 = 1;

/// The description of a file system.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// The constant [`MAGIC`], which identifies a superblock of the file system.
    pub magic: [u8; 8],
    /// Version of the format: the constant [`VERSION`].
    pub version: U16,
    /// Reserved bytes, which are zero.
    pub reserved: [u8; 6],
    /// The file system's identity.
    pub uuid: [u8; 16],
    /// Pages of virtual space.
    pub pages: U64,
    /// Numbers of inodes: 0 is none, 1 is the root directory.
    pub inodes: U32,
    /// Pages of the pool.
    pub pool_pages: U32,
    /// The order of a new file's place.
    pub order: u8,
    /// Reserved bytes, which are zero.
    pub rest: [u8; 4043],
    /// CRC-32C of all bytes before.
    pub crc: U32,
}

wire::layout! {
    /// A point of time.
    #[derive(Default)]
    pub struct TimeRecord: 12 {
        /// Seconds since 1970-01-01 00:00 UTC.
        [0] seconds: I64,
        /// Nanoseconds within the second.
        [8] nanos: U32,
    }
}

wire::layout! {
    /// The times of an inode.
    #[derive(Default)]
    pub struct TimesRecord: 48 {
        /// Time of the last access to the content.
        [0] atime: TimeRecord,
        /// Last change of the content.
        [12] mtime: TimeRecord,
        /// Time of the last change of the inode's attributes.
        [24] ctime: TimeRecord,
        /// Time of the inode's creation.
        [36] birth: TimeRecord,
    }
}

wire::layout! {
    /// An on-disk record of a place, a range of contiguous chunks in virtual space.
    #[derive(Default)]
    pub struct PlaceRecord: 5 {
        /// Number of the first chunk of the place.
        [0] chunk: U32,
        /// Zero if the record names no place; otherwise one more than the order, for 2^order
        /// chunks.
        [4] order_next: u8,
    }
}

/// An inode. All zeroes: never used. A mode of zero: free. Names of zero: to be removed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InodeRecord {
    /// Number of the use of this inode.
    pub generation: U32,
    /// Type and permissions; zero if the inode is free.
    pub mode: U32,
    /// User identifier (UID) of the inode's owner.
    pub uid: U32,
    /// Group identifier (GID) of the inode.
    pub gid: U32,
    /// Number of directory entries that name the inode.
    pub nlink: U32,
    /// Flags of the inode: zero or [`FLAG_EXTENDING`].
    pub flags: U32,
    /// Number of a device.
    pub rdev: U32,
    /// The directory that has this directory.
    pub parent: U32,
    /// Size of the file's content in bytes.
    pub size: U64,
    /// Pages of the pool that belong to the inode.
    pub pool_pages: U32,
    /// Times of the last access and changes, and of the creation.
    pub times: TimesRecord,
    /// The place of the file's data in virtual space.
    pub place: PlaceRecord,
    /// A second place of the file, whose content must be discarded: the target of an unfinished
    /// move of the data, or the source of a finished one.
    pub other: PlaceRecord,
    /// Reserved bytes, which are zero.
    pub reserved: [u8; 22],
    /// CRC-32C of all bytes before.
    pub crc: U32,
}

/// The head of a page of the pool.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PoolHead {
    /// The use: [`PageUse`]. Zero if the page is free.
    pub kind: u8,
    /// Reserved bytes, which are zero.
    pub reserved: u8,
    /// Bytes of content, for attributes and targets.
    pub bytes: U16,
    /// Number of the inode to which the page belongs.
    pub owner: U32,
    /// Generation of the inode to which the page belongs.
    pub generation: U32,
    /// Index of the page among the pages of the same inode with the same use.
    pub index: U32,
    /// Reserved bytes, which are zero.
    pub rest: U32,
    /// CRC-32C of the page's other bytes.
    pub crc: U32,
}

/// The use of a page of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PageUse {
    /// Entries of a directory.
    Directory = 1,
    /// The page holds extended attributes.
    Xattrs = 2,
    /// The target of a symbolic link.
    Target = 3,
}

const _: () = assert!(size_of::<Superblock>() == PAGE_BYTES);
const _: () = assert!(size_of::<TimeRecord>() == 12);
const _: () = assert!(size_of::<PlaceRecord>() == 5);
const _: () = assert!(size_of::<InodeRecord>() == 128);
const _: () = assert!(size_of::<PoolHead>() == 24);
const _: () = assert!(CONTENT_BYTES.is_multiple_of(8));

/// Returns the CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    Crc32c::of(bytes)
}

/// The format of superblocks.
const FORMAT: Format = Format { magic: MAGIC, versions: &[VERSION], checksum };

impl Superblock {
    /// Decodes the superblock from a page, and checks it.
    pub fn decode(page: &[u8]) -> SuperblockPage<Superblock> {
        FORMAT.read(page)
    }

    /// Writes the superblock with its checksum into `page`.
    pub fn encode(&self, page: &mut [u8]) {
        page.copy_from_slice(self.as_bytes());
        FORMAT.seal(page);
    }
}

impl From<Time> for TimeRecord {
    fn from(time: Time) -> TimeRecord {
        TimeRecord { seconds: time.seconds.into(), nanos: time.nanos.into() }
    }
}

impl From<TimeRecord> for Time {
    fn from(record: TimeRecord) -> Time {
        Time { seconds: record.seconds.get(), nanos: record.nanos.get() }
    }
}

/// The state of an inode's record on the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeSlot {
    /// The record was never used.
    Fresh,
    /// The record is free, but was used before.
    Free,
    /// The record describes an existing inode.
    Used,
    /// The checksum is wrong.
    Damaged,
}

impl InodeRecord {
    /// Returns a record of zeroes.
    pub fn empty() -> InodeRecord {
        InodeRecord::new_zeroed()
    }

    /// Classifies an inode record that was read from the device.
    pub fn judge(&self) -> InodeSlot {
        let bytes = self.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            InodeSlot::Fresh
        } else if self.crc.get() != checksum(&bytes[..offset_of!(InodeRecord, crc)]) {
            InodeSlot::Damaged
        } else if self.mode.get() == 0 {
            InodeSlot::Free
        } else {
            InodeSlot::Used
        }
    }

    /// Sets the checksum, unless the record was never used.
    fn seal(&mut self) {
        if self.generation.get() != 0 {
            self.crc = checksum(&self.as_bytes()[..offset_of!(InodeRecord, crc)]).into();
        }
    }
}

/// Returns the inodes of a page of the table.
pub fn inodes(page: &[u8; PAGE_BYTES]) -> &[InodeRecord; INODES_PER_PAGE as usize] {
    zerocopy::transmute_ref!(page)
}

/// Returns the inodes of a page of the table, to be changed.
pub fn inodes_mut(page: &mut [u8; PAGE_BYTES]) -> &mut [InodeRecord; INODES_PER_PAGE as usize] {
    zerocopy::transmute_mut!(page)
}

/// Sets the checksums of a page of the table.
pub fn seal_inodes(page: &mut [u8; PAGE_BYTES]) {
    for record in inodes_mut(page) {
        record.seal();
    }
}

impl PageUse {
    /// Returns the use with a number.
    pub fn of(kind: u8) -> Option<PageUse> {
        [PageUse::Directory, PageUse::Xattrs, PageUse::Target]
            .into_iter()
            .find(|one| *one as u8 == kind)
    }
}

/// Returns the head of a page of the pool.
pub fn pool_head(page: &[u8; PAGE_BYTES]) -> PoolHead {
    let (head, _) = PoolHead::read_from_prefix(page).expect("a page is longer than a head");
    head
}

/// Writes the head of a page of the pool.
pub fn set_pool_head(page: &mut [u8; PAGE_BYTES], head: &PoolHead) {
    page[..size_of::<PoolHead>()].copy_from_slice(head.as_bytes());
}

fn pool_checksum(page: &[u8; PAGE_BYTES]) -> u32 {
    let at = offset_of!(PoolHead, crc);
    Crc32c::of_parts([&page[..at], &page[at + 4..]])
}

/// Sets the checksum of a page of the pool, unless the page is free.
pub fn seal_pool(page: &mut [u8; PAGE_BYTES]) {
    if page[0] != 0 {
        let (crc, at) = (pool_checksum(page), offset_of!(PoolHead, crc));
        page[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Returns `true` if the page of the pool matches its checksum.
pub fn is_sound_pool(page: &[u8; PAGE_BYTES]) -> bool {
    pool_head(page).crc.get() == pool_checksum(page)
}

/// The sizes of a file system, and the places of its parts in virtual space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Pages of virtual space.
    pub pages: u64,
    /// Number of inode records in the file system.
    pub inodes: u32,
    /// Pages of the pool.
    pub pool_pages: u32,
    /// The order of a new file's place.
    pub order: u8,
}

impl Geometry {
    /// Returns the geometry described by a superblock; `None` if the described parts do not fit
    /// into its pages.
    pub fn of(block: &Superblock) -> Option<Geometry> {
        let geometry = Geometry {
            pages: block.pages.get(),
            inodes: block.inodes.get(),
            pool_pages: block.pool_pages.get(),
            order: block.order,
        };
        geometry.is_sound().then_some(geometry)
    }

    /// Returns `true` if all parts fit into the pages, with room for a chunk of data.
    pub fn is_sound(&self) -> bool {
        self.pages < 1 << 40
            && self.inodes >= 2 * INODES_PER_PAGE
            && self.inodes.is_multiple_of(INODES_PER_PAGE)
            && self.pool_pages >= 16
            && self.order <= ORDER_MAX
            && self.data_start() + CHUNK_PAGES <= self.pages
    }

    /// Returns the page of the inode table that holds an inode, and the byte offset of the inode's
    /// record in the page.
    pub fn inode(&self, ino: u32) -> (u64, usize) {
        let page = TABLE_START + u64::from(ino / INODES_PER_PAGE);
        (page, (ino % INODES_PER_PAGE) as usize)
    }

    /// Returns the first page of the pool.
    pub fn pool_start(&self) -> u64 {
        TABLE_START + u64::from(self.inodes / INODES_PER_PAGE)
    }

    /// Returns the first page of data.
    pub fn data_start(&self) -> u64 {
        (self.pool_start() + u64::from(self.pool_pages)).next_multiple_of(CHUNK_PAGES)
    }

    /// Returns the number of chunks for data.
    pub fn chunks(&self) -> u32 {
        ((self.pages - self.data_start()) / CHUNK_PAGES).try_into().unwrap_or(u32::MAX)
    }

    /// Returns the first page of a chunk.
    pub fn chunk_page(&self, chunk: u32) -> u64 {
        self.data_start() + u64::from(chunk) * CHUNK_PAGES
    }
}
