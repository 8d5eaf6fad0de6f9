//! The pages that hold no data.

use alloc::boxed::Box;
use alloc::vec;

/// The discarded pages of a device: a bit per page.
#[derive(Debug)]
pub(super) struct DiscardedPages {
    bits: Box<[u64]>,
    count: u64,
    pages: u64,
}

impl DiscardedPages {
    /// Returns the set of discarded pages for a device of `pages` pages; the set is empty.
    pub(super) fn new(pages: u64) -> Self {
        DiscardedPages {
            bits: vec![0; pages.div_ceil(64) as usize].into_boxed_slice(),
            count: 0,
            pages,
        }
    }

    /// Returns `true` if the page holds no data.
    pub(super) fn contains(&self, page: u64) -> bool {
        self.count > 0 && self.bits[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    /// Marks the page as discarded (`blank`) or written.
    pub(super) fn mark(&mut self, page: u64, blank: bool) {
        if blank == self.contains(page) {
            return;
        }
        self.bits[(page / 64) as usize] ^= 1 << (page % 64);
        self.count = if blank { self.count + 1 } else { self.count - 1 };
    }

    /// Returns the share of pages that hold data.
    pub(super) fn used(&self) -> f64 {
        (self.pages - self.count) as f64 / self.pages as f64
    }
}
