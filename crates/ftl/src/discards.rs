//! Discards in progress: runs of pages that become zeroes by records in the log.

use alloc::vec::Vec;

use contract::Slot;

use crate::flight::{PagesInFlight, RequiredStream};
use crate::layout::Kind;
use crate::log::{Item, Log};
use crate::map::{Map, UNMAPPED};

/// Maximum number of pages of a discard that one record carries.
const RUN_PAGES_MAX: u32 = 1024;

/// Maximum number of discards in progress.
const DISCARDS_MAX: usize = 8;

/// A discard of the logical pages from `begin` to `end` in progress: `begin ≤ next ≤ end`.
#[derive(Clone, Copy, Debug)]
struct Discarding {
    slot: Slot,
    begin: u32,
    next: u32,
    end: u32,
    /// `true` while a record for the pages from `next` on is staged or in flight.
    sent: bool,
}

/// The discards in progress.
pub(crate) struct Discards {
    all: Vec<Discarding>,
}

impl Discards {
    pub(crate) fn new() -> Discards {
        Discards { all: Vec::with_capacity(DISCARDS_MAX) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns `true` if a page from `page` up to but not including `end` is being discarded.
    pub(crate) fn overlaps(&self, page: u32, end: u32) -> bool {
        self.all.iter().any(|d| d.begin < end && page < d.end)
    }

    /// Adds a discard; returns `false` if it has to wait.
    pub(crate) fn push(&mut self, slot: Slot, page: u32, end: u32) -> bool {
        let waits = self.overlaps(page, end) || self.all.len() == DISCARDS_MAX;
        if !waits {
            self.all.push(Discarding { slot, begin: page, next: page, end, sent: false });
        }
        !waits
    }

    /// Stages the next record of each discard in `log`. A discard waits until no write to its pages
    /// is staged or in flight; new writes to them wait for the discard. Chunks without a slab are
    /// discarded already.
    pub(crate) fn advance(
        &mut self,
        log: &mut Log,
        flight: &mut PagesInFlight,
        map: &Map,
        may_open: bool,
    ) {
        for discard in &mut self.all {
            if !discard.sent {
                discard.next = map.next_with_slab(discard.next, discard.end);
            }
            let run = RUN_PAGES_MAX.min(discard.end - discard.next);
            let waits = discard.sent
                || run == 0
                || flight.bound(discard.next..discard.next + run) != RequiredStream::Free;
            if waits || !log.takes(0, 1, may_open) {
                continue;
            }
            let (page, kind) = (discard.next, Kind::Discarded);
            let item =
                Item { page, kind, heat: 0, stamp: 0, check: run, from: UNMAPPED, is_fresh: false };
            log.filling.records.push(item);
            discard.sent = true;
        }
    }

    /// Takes the completion of the record for `pages` pages from `page` on. Returns the request if
    /// this was its last record.
    pub(crate) fn land(&mut self, page: u32, pages: u32) -> Option<Slot> {
        // Not there: the volume became read-only meanwhile, and the request was answered.
        let index = self.all.iter().position(|d| d.sent && d.next == page)?;
        let discard = &mut self.all[index];
        (discard.next, discard.sent) = (page + pages, false);
        (discard.next == discard.end).then(|| self.all.swap_remove(index).slot)
    }

    /// Removes a discard that needs no more records, and returns its request; `None` if there is
    /// none.
    pub(crate) fn pop_ended(&mut self) -> Option<Slot> {
        let index = self.all.iter().position(|d| !d.sent && d.next == d.end)?;
        Some(self.all.swap_remove(index).slot)
    }

    /// Removes an arbitrary waiting discard without completing it, and returns the slot of its
    /// request; `None` if there is none.
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        self.all.pop().map(|discard| discard.slot)
    }
}
