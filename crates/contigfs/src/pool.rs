//! The pool in memory: pages of directories, extended attributes and targets.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::size_of;

use crate::layout::{
    CONTENT_BYTES, InodeRecord, PAGE_BYTES, PageUse, PoolHead, pool_head, set_pool_head,
};
use crate::words::{Image, Ino};

/// Maximum number of pages of an inode's attributes, or of a target.
pub(crate) const BLOB_PAGES_MAX: usize = 2;

/// Maximum number of bytes of an inode's attributes, or of a target.
pub(crate) const BLOB_BYTES_MAX: usize = BLOB_PAGES_MAX * CONTENT_BYTES;

/// The pages of the pool. Free pages take no memory.
#[derive(Debug)]
pub(crate) struct Pool {
    pages: Vec<Option<Image>>,
    /// Free pages below `fresh`.
    free: BTreeSet<u32>,
    /// First page that was never used.
    fresh: u32,
    /// Pages that are not free: in use, or cleared and not yet given back.
    taken: u32,
    /// The pages of attributes and targets.
    blobs: BTreeMap<(Ino, PageUse), Vec<u32>>,
}

/// Returns the content of a page.
pub(crate) fn content(image: &Image) -> &[u8] {
    &image[size_of::<PoolHead>()..]
}

impl Pool {
    /// Returns a pool of free pages.
    pub(crate) fn new(pages: u32) -> Pool {
        let (free, blobs) = (BTreeSet::new(), BTreeMap::new());
        Pool { pages: (0..pages).map(|_| None).collect(), free, fresh: 0, taken: 0, blobs }
    }

    /// Adds a page that was read from the device to the pool. Pages must be added in ascending
    /// order.
    pub(crate) fn load(&mut self, page: u32, image: Image) {
        self.free.extend(self.fresh..page);
        self.fresh = page + 1;
        self.taken += 1;
        self.pages[page as usize] = Some(image);
    }

    /// Tells the pages of an inode's attributes or target.
    pub(crate) fn set_blob(&mut self, ino: Ino, what: PageUse, pages: Vec<u32>) {
        self.blobs.insert((ino, what), pages);
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Returns the number of free pages.
    pub(crate) fn pages_free(&self) -> u32 {
        self.pages() - self.taken
    }

    /// Takes the lowest free page for an inode. The caller has looked that one is free.
    pub(crate) fn take(
        &mut self,
        ino: Ino,
        record: &InodeRecord,
        what: PageUse,
        index: u32,
    ) -> u32 {
        let page = self.free.pop_first().unwrap_or_else(|| {
            assert!(self.fresh < self.pages(), "a page is free");
            self.fresh += 1;
            self.fresh - 1
        });
        self.taken += 1;
        let mut image = Box::new([0; PAGE_BYTES]);
        let head = PoolHead {
            kind: what as u8,
            reserved: 0,
            bytes: 0.into(),
            owner: ino.into(),
            generation: record.generation,
            index: index.into(),
            rest: 0.into(),
            crc: 0.into(),
        };
        set_pool_head(&mut image, &head);
        self.pages[page as usize] = Some(image);
        page
    }

    /// Clears a page. The page stays taken until it is [given](Pool::give) back.
    pub(crate) fn clear(&mut self, page: u32) {
        self.pages[page as usize] = None;
    }

    /// Gives a cleared page back.
    pub(crate) fn give(&mut self, page: u32) {
        assert!(self.pages[page as usize].is_none(), "a page is given back cleared");
        self.taken -= 1;
        assert!(self.free.insert(page), "a page is given back once");
    }

    /// Returns a page in use.
    pub(crate) fn page(&self, page: u32) -> &Image {
        self.pages[page as usize].as_ref().expect("the page is in use")
    }

    /// Returns the content of a page in use, to be changed.
    pub(crate) fn content_mut(&mut self, page: u32) -> &mut [u8] {
        let image = self.pages[page as usize].as_mut().expect("the page is in use");
        &mut image[size_of::<PoolHead>()..]
    }

    /// Returns the page's content for the media: zeroes if it is free or cleared.
    pub(crate) fn image(&self, page: u32) -> Image {
        self.pages[page as usize].clone().unwrap_or_else(|| Box::new([0; PAGE_BYTES]))
    }

    /// Returns an inode's attributes or target as bytes.
    pub(crate) fn read_blob(&self, ino: Ino, what: PageUse) -> Vec<u8> {
        let mut bytes = Vec::new();
        for page in self.blobs.get(&(ino, what)).into_iter().flatten() {
            let image = self.page(*page);
            let length = usize::from(pool_head(image).bytes.get()).min(CONTENT_BYTES);
            bytes.extend_from_slice(&content(image)[..length]);
        }
        bytes
    }

    /// Returns how many pages writing an inode's attributes or target would add.
    pub(crate) fn blob_growth(&self, ino: Ino, what: PageUse, bytes: usize) -> usize {
        let has = self.blobs.get(&(ino, what)).map_or(0, Vec::len);
        bytes.div_ceil(CONTENT_BYTES).saturating_sub(has)
    }

    /// Writes an inode's attributes or target. Returns the pages that were written and those that
    /// were cleared. The caller has looked that there are pages enough.
    pub(crate) fn write_blob(
        &mut self,
        ino: Ino,
        record: &InodeRecord,
        what: PageUse,
        bytes: &[u8],
    ) -> (Vec<u32>, Vec<u32>) {
        assert!(bytes.len() <= BLOB_BYTES_MAX, "attributes and targets have a maximum");
        let mut pages = self.blobs.remove(&(ino, what)).unwrap_or_default();
        let count = bytes.len().div_ceil(CONTENT_BYTES);
        let cleared = pages.split_off(count.min(pages.len()));
        for page in &cleared {
            self.clear(*page);
        }
        for index in pages.len()..count {
            let page = self.take(ino, record, what, index as u32);
            pages.push(page);
        }
        for (page, part) in pages.iter().zip(bytes.chunks(CONTENT_BYTES)) {
            let image = self.pages[*page as usize].as_mut().expect("the page is in use");
            let mut head = pool_head(image);
            head.bytes = (part.len() as u16).into();
            set_pool_head(image, &head);
            let content = &mut image[size_of::<PoolHead>()..];
            content[..part.len()].copy_from_slice(part);
            content[part.len()..].fill(0);
        }
        if count > 0 {
            self.blobs.insert((ino, what), pages.clone());
        }
        (pages, cleared)
    }
}
