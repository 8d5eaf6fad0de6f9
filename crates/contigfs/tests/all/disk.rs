//! A volume in memory.

use std::collections::BTreeMap;

use contract::Status;
use nearflash_contigfs::layout::PAGE_BYTES;
use nearflash_contigfs::{Image, Pages};

/// A volume in memory. Pages that were never written take no memory.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) size: u64,
    pub(crate) pages: BTreeMap<u64, Image>,
    /// Commits that were carried out.
    pub(crate) commits: u64,
    /// Commits after which the volume fails.
    pub(crate) commits_max: Option<u64>,
}

impl Disk {
    pub(crate) fn new(size: u64) -> Disk {
        Disk { size, ..Disk::default() }
    }

    pub(crate) fn page(&self, page: u64) -> Image {
        assert!(page < self.size, "page {page} lies in the volume");
        self.pages.get(&page).cloned().unwrap_or_else(|| Box::new([0; PAGE_BYTES]))
    }

    /// Writes bytes anywhere.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (page, from) = split(at + done as u64);
            let length = (PAGE_BYTES - from).min(bytes.len() - done);
            let mut image = self.page(page);
            image[from..from + length].copy_from_slice(&bytes[done..done + length]);
            self.pages.insert(page, image);
            done += length;
        }
    }

    /// Reads bytes from anywhere.
    pub(crate) fn read_bytes(&self, at: u64, bytes: u64) -> Vec<u8> {
        let mut read = Vec::new();
        while (read.len() as u64) < bytes {
            let (page, from) = split(at + read.len() as u64);
            let length = (PAGE_BYTES - from).min(bytes as usize - read.len());
            match self.pages.get(&page) {
                Some(image) => read.extend_from_slice(&image[from..from + length]),
                None => read.resize(read.len() + length, 0),
            }
        }
        read
    }
}

fn split(at: u64) -> (u64, usize) {
    (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize)
}

impl Pages for Disk {
    fn pages(&self) -> u64 {
        self.size
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Status> {
        for (page, part) in (at..).zip(into.chunks_mut(PAGE_BYTES)) {
            assert!(page < self.size, "page {page} lies in the volume");
            match self.pages.get(&page) {
                Some(image) => part.copy_from_slice(&image[..]),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn commit(&mut self, pages: &[(u64, Image)]) -> Result<(), Status> {
        if self.commits_max.is_some_and(|most| self.commits >= most) {
            return Err(Status::MediaError);
        }
        self.commits += 1;
        for (page, image) in pages {
            assert!(*page < self.size, "page {page} lies in the volume");
            self.pages.insert(*page, image.clone());
        }
        Ok(())
    }

    fn discard(&mut self, at: u64, pages: u64) -> Result<(), Status> {
        assert!(at + pages <= self.size, "the pages lie in the volume");
        let mut later = self.pages.split_off(&at);
        self.pages.append(&mut later.split_off(&(at + pages)));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Status> {
        Ok(())
    }
}
