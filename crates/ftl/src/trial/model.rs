//! A model of the values that a host may see: for each page, those that are legal now and after a
//! loss of power.
//!
//! The model is deliberately simple: sets of numbers. Zero is the value of a page without data.

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

type Values = BTreeSet<u64>;

/// The legal values of a page.
#[derive(Clone, Default)]
struct Page {
    /// Values that are legal now: the last acknowledged one, and those written concurrently with
    /// it.
    now: Values,
    /// Values that are legal after a loss of power, beside the pending ones.
    durable: Values,
    /// Values in flight, each with the values written concurrently with it.
    pending: BTreeMap<u64, Values>,
}

impl Page {
    fn visible(&self) -> Values {
        self.now.iter().chain(self.pending.keys()).copied().collect()
    }

    fn begin(&mut self, value: u64) {
        let others: Values = self.pending.keys().copied().collect();
        self.pending.values_mut().for_each(|set| {
            set.insert(value);
        });
        self.pending.insert(value, others);
    }

    fn end(&mut self, value: u64) {
        let beside = self.pending.remove(&value).expect("it was on its way");
        self.now = beside;
        self.now.insert(value);
        self.durable.extend(&self.now);
    }
}

/// The model of a volume: the legal values of all pages.
#[derive(Clone)]
pub(crate) struct Model {
    pages: Vec<Page>,
}

impl Model {
    pub(crate) fn new(pages: u32) -> Model {
        let zero = Values::from([0]);
        let page = Page { now: zero.clone(), durable: zero, ..Page::default() };
        Model { pages: vec![page; pages as usize] }
    }

    pub(crate) fn begin(&mut self, pages: &[u32], value: u64) {
        for page in pages {
            self.pages[*page as usize].begin(value);
        }
    }

    pub(crate) fn end(&mut self, pages: &[u32], value: u64, durable: bool) {
        for page in pages {
            let page = &mut self.pages[*page as usize];
            page.end(value);
            if durable {
                page.durable = page.now.clone();
            }
        }
    }

    /// Takes back a write that was refused and changed nothing.
    pub(crate) fn refuse(&mut self, pages: &[u32], value: u64) {
        for page in pages {
            self.pages[*page as usize].pending.remove(&value);
        }
    }

    /// Returns the values that each page may have now. A flush that begins now makes them durable.
    pub(crate) fn snapshot(&self) -> Vec<Values> {
        self.pages.iter().map(|page| page.now.clone()).collect()
    }

    /// Ends a flush that began with this snapshot. The values in `since`, of writes in flight then
    /// or begun since, may be durable as well. No other flush has ended meanwhile.
    pub(crate) fn flushed(&mut self, snapshot: Vec<Values>, since: &BTreeMap<u32, Values>) {
        for (number, (page, now)) in (0..).zip(self.pages.iter_mut().zip(snapshot)) {
            page.durable = now;
            page.durable.extend(since.get(&number).into_iter().flatten());
        }
    }

    /// Returns `true` if a read may see this value now.
    pub(crate) fn may_read(&self, page: u32, value: u64) -> bool {
        self.pages[page as usize].visible().contains(&value)
    }

    /// Returns the legal values of a page after the process died, or after power was lost.
    pub(crate) fn survivors(&self, page: u32, power: bool) -> Values {
        let page = &self.pages[page as usize];
        let base = if power { &page.durable } else { &page.now };
        base.iter().chain(page.pending.keys()).copied().collect()
    }

    /// Accepts the content of a reopened volume as the present state.
    pub(crate) fn settle(&mut self, values: &[u64]) {
        for (page, &value) in self.pages.iter_mut().zip(values) {
            let only = Values::from([value]);
            *page = Page { now: only.clone(), durable: only, ..Page::default() };
        }
    }
}
