//! The pages that operations changed, gathered into commits.
//!
//! The ledger builds one commit, while others wait and one is under way. An operation lies in one
//! commit whole: [`Ledger::begin`] closes the commit that is being built if the operation's pages
//! might not fit. Changes of sizes and times by writes are lazy: their pages wait until something
//! asks.

use alloc::collections::{BTreeSet, VecDeque};

use crate::errno::Errno;
use crate::words::{Commit, Image};

/// Maximum number of pages that one operation changes: a rename that replaces a name changes a page
/// of each directory, and the inodes of both directories, of the file and of the replaced file.
pub(crate) const OPERATION_PAGES_MAX: usize = 6;

/// The commits of a file system: the one being built, the one being written, and the outcomes of
/// earlier ones.
#[derive(Debug)]
pub(crate) struct Ledger {
    pages_max: usize,
    /// Pages of the commit that is being built.
    building: BTreeSet<u64>,
    /// Number of the last commit that was closed.
    closed: u64,
    ready: VecDeque<Commit>,
    flying: Option<u64>,
    /// Number of the last commit that is durable.
    durable: u64,
    failed: bool,
    /// `true` if changes were dropped because a commit had failed.
    lost: bool,
    /// Pages with deferred changes (of sizes and times), which are in no commit yet.
    lazy: BTreeSet<u64>,
}

impl Ledger {
    /// Returns a ledger without commits, whose commits will have at most `pages_max` pages each.
    pub(crate) fn new(pages_max: usize) -> Ledger {
        assert!(pages_max >= OPERATION_PAGES_MAX, "an operation fits into a commit");
        Ledger {
            pages_max,
            building: BTreeSet::new(),
            closed: 0,
            ready: VecDeque::new(),
            flying: None,
            durable: 0,
            failed: false,
            lost: false,
            lazy: BTreeSet::new(),
        }
    }

    /// Prepares for a change of at most `most` pages: closes the commit being built if they might
    /// not fit. `image` returns the content of a page in memory.
    pub(crate) fn begin(&mut self, most: usize, image: impl Fn(u64) -> Image) {
        if self.building.len() + most > self.pages_max {
            self.close(image);
        }
    }

    /// Returns `true` if a change of `most` pages fits into the commit that is being built.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        self.building.len() + most <= self.pages_max
    }

    /// Adds a changed page to the commit that is being built, and returns the commit's number.
    ///
    /// # Panics
    /// Panics if the commit is full: an operation has changed more than it announced.
    pub(crate) fn dirty(&mut self, page: u64) -> u64 {
        self.lazy.remove(&page);
        self.building.insert(page);
        assert!(self.building.len() <= self.pages_max, "an operation fits into a commit");
        self.closed + 1
    }

    /// Records a page with a deferred change. After a failed commit the change is dropped.
    pub(crate) fn dirty_lazily(&mut self, page: u64) {
        if self.failed {
            self.lost = true;
        } else if !self.building.contains(&page) {
            self.lazy.insert(page);
        }
    }

    /// Returns `true` if the page has deferred changes.
    pub(crate) fn is_lazy(&self, page: u64) -> bool {
        self.lazy.contains(&page)
    }

    /// Returns the first page with deferred changes.
    pub(crate) fn first_lazy(&self) -> Option<u64> {
        self.lazy.first().copied()
    }

    /// Returns `true` if the commit that is being built has pages.
    pub(crate) fn is_building(&self) -> bool {
        !self.building.is_empty()
    }

    /// Returns the number of the last commit that has changes: with it, all earlier ones are durable.
    pub(crate) fn last(&self) -> u64 {
        self.closed + u64::from(self.is_building())
    }

    /// Returns the number of the last durable commit.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns `true` after a failure: nothing is written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns `true` if a failed commit has caused changes to be dropped.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost
    }

    fn close(&mut self, image: impl Fn(u64) -> Image) {
        let pages = core::mem::take(&mut self.building);
        self.closed += 1;
        let pages = pages.into_iter().map(|page| (page, image(page))).collect();
        self.ready.push_back(Commit { number: self.closed, pages });
    }

    /// Returns `true` if a commit is closed, and none has taken it.
    pub(crate) fn has_full(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns `true` if the commit with this number has not been taken.
    pub(crate) fn is_to_be_taken(&self, commit: u64) -> bool {
        commit > self.flying.unwrap_or(self.durable)
    }

    /// Returns `true` if a commit could be taken.
    pub(crate) fn is_due(&self) -> bool {
        let some = !self.ready.is_empty() || self.is_building();
        some && self.flying.is_none() && !self.failed
    }

    /// Removes the next commit from the ledger to be written, unless another one is still being
    /// written.
    pub(crate) fn take(&mut self, image: impl Fn(u64) -> Image) -> Option<Commit> {
        if !self.is_due() {
            return None;
        }
        if self.ready.is_empty() {
            self.close(image);
        }
        let commit = self.ready.pop_front()?;
        self.flying = Some(commit.number);
        Some(commit)
    }

    /// Ends the commit that is under way.
    ///
    /// # Panics
    /// Panics if another commit is under way, or none.
    pub(crate) fn ended(&mut self, number: u64, succeeded: bool) {
        assert_eq!(self.flying.take(), Some(number), "the commit was taken");
        if succeeded {
            self.durable = number;
        } else {
            self.lost = true;
            self.fail();
        }
    }

    /// Drops all changes that are not durable.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        self.lost |= !(self.ready.is_empty() && self.building.is_empty() && self.lazy.is_empty());
        self.ready.clear();
        self.building.clear();
        self.lazy.clear();
    }

    /// Returns whether the commit with this number succeeded; `None` while the commit has not
    /// ended.
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<(), Errno>> {
        if number <= self.durable {
            return Some(Ok(()));
        }
        self.failed.then_some(Err(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_loses_what_waits_and_else_nothing() {
        let failed = |change: fn(&mut Ledger)| {
            let mut ledger = Ledger::new(OPERATION_PAGES_MAX);
            change(&mut ledger);
            ledger.fail();
            ledger.has_lost()
        };
        assert!(!failed(|_| ()), "a file system that is mounted read-only loses nothing");
        assert!(failed(|ledger| ledger.dirty_lazily(3)), "the size of a file");
        assert!(failed(|ledger| _ = ledger.dirty(3)), "a change that no commit has yet");
    }
}
