//! The table of inodes in memory: the pages of the media, and the free numbers.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::layout::{INODES_PER_PAGE, InodeRecord, PAGE_BYTES, inodes, inodes_mut};
use crate::words::{Image, Ino, ROOT};

/// The inodes. Pages without inodes take no memory.
#[derive(Debug)]
pub(crate) struct Table {
    pages: Vec<Option<Image>>,
    /// Free numbers below `fresh`.
    free: BTreeSet<Ino>,
    /// The first number that was never used.
    fresh: Ino,
    /// Number of inode numbers that are in use.
    used: u32,
}

/// Returns the page of the inode table that holds an inode, and the index of the inode's record in
/// the page.
fn locate(ino: Ino) -> (usize, usize) {
    ((ino / INODES_PER_PAGE) as usize, (ino % INODES_PER_PAGE) as usize)
}

impl Table {
    /// Returns a table without inodes for this many numbers.
    pub(crate) fn new(inodes: u32) -> Table {
        let pages = (0..inodes / INODES_PER_PAGE).map(|_| None).collect();
        Table { pages, free: BTreeSet::new(), fresh: ROOT, used: 0 }
    }

    /// Adds a page that was read from the device to the inode table. Pages must be added in
    /// ascending order.
    pub(crate) fn load(&mut self, page: usize, image: Image) {
        for (ino, record) in (page as u32 * INODES_PER_PAGE..).zip(inodes(&image)) {
            if record.mode.get() != 0 && ino >= ROOT {
                self.free.extend(self.fresh..ino);
                self.fresh = ino + 1;
                self.used += 1;
            }
        }
        self.pages[page] = Some(image);
    }

    /// Returns the number of numbers.
    pub(crate) fn inodes(&self) -> u32 {
        self.pages.len() as u32 * INODES_PER_PAGE
    }

    /// Returns the number of free numbers. The number 0 is never used.
    pub(crate) fn inodes_free(&self) -> u32 {
        self.inodes() - 1 - self.used
    }

    /// Returns an inode that is in use.
    pub(crate) fn get(&self, ino: Ino) -> Option<&InodeRecord> {
        let (page, place) = locate(ino);
        let record = &inodes(self.pages.get(page)?.as_ref()?)[place];
        (record.mode.get() != 0).then_some(record)
    }

    /// Returns an inode that is in use.
    ///
    /// # Errors
    /// [`Errno::STALE`] if the number is free.
    pub(crate) fn find(&self, ino: Ino) -> Result<&InodeRecord, Errno> {
        self.get(ino).ok_or(Errno::STALE)
    }

    /// Returns an inode that is in use, to be changed.
    ///
    /// # Panics
    /// Panics if the number is free.
    pub(crate) fn at(&mut self, ino: Ino) -> &mut InodeRecord {
        let (page, place) = locate(ino);
        let image = self.pages[page].as_mut().expect("an inode in use has a page");
        &mut inodes_mut(image)[place]
    }

    /// Returns all inodes that are in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, &InodeRecord)> {
        let pages = self.pages.iter().zip(0u32..).filter_map(|(page, n)| Some((page.as_ref()?, n)));
        pages.flat_map(|(image, page)| {
            (page * INODES_PER_PAGE..)
                .zip(inodes(image))
                .filter(|(_, record)| record.mode.get() != 0)
        })
    }

    /// Takes the lowest free number. Its record is empty but for the next generation.
    pub(crate) fn take(&mut self) -> Option<(Ino, &mut InodeRecord)> {
        let ino = match self.free.pop_first() {
            Some(ino) => ino,
            None if self.fresh < self.inodes() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        self.used += 1;
        let (page, place) = locate(ino);
        let image = self.pages[page].get_or_insert_with(|| Box::new([0; PAGE_BYTES]));
        let record = &mut inodes_mut(image)[place];
        let generation = record.generation.get().wrapping_add(1).max(1);
        *record = InodeRecord::empty();
        record.generation = generation.into();
        Some((ino, record))
    }

    /// Gives a number back. Its generation stays in the record.
    pub(crate) fn give(&mut self, ino: Ino) {
        let record = self.at(ino);
        let generation = record.generation;
        *record = InodeRecord::empty();
        record.generation = generation;
        self.used -= 1;
        assert!(self.free.insert(ino), "an inode is given back once");
    }

    /// Returns the page with this number in the table.
    pub(crate) fn image(&self, page: usize) -> Image {
        self.pages[page].clone().unwrap_or_else(|| Box::new([0; PAGE_BYTES]))
    }
}
