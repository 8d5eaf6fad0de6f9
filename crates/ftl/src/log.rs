//! The logs of a volume: each stream has one, and lone writes may have one. A log has an open
//! segment, a batch that fills and a batch in flight.
//!
//! At most one batch of a log is in flight. So the batches of a segment complete in order, and a
//! flush that covers a batch covers those before it. While one is in flight the next one fills: a
//! single write leaves at once; under load, batches grow by themselves.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use contract::Slot;

use crate::layout::{BatchHead, ENTRIES_MAX, Entry, Kind, PAGE_BYTES, header_pages};

/// Bytes of memory before the first data page of a staged batch: room for the longest header.
const HEADER_BYTES: usize = 2 * PAGE_BYTES;

/// A page or a record of a batch, which becomes an entry of its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) page: u32,
    pub(crate) kind: Kind,
    pub(crate) heat: u8,
    /// Stamp of the page's write; zero for a host's page until the batch is closed.
    pub(crate) stamp: u64,
    /// For a page, the checksum of its data; for a record of a run, its number of pages.
    pub(crate) check: u32,
    /// The former place of a moved page; unused for other items.
    pub(crate) from: u32,
    /// `true` for a host's page that was unmapped when it was written: space is held for it.
    pub(crate) is_fresh: bool,
}

/// A request that waits for the end of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) slot: Slot,
    /// `true` if the reply also waits for a flush.
    pub(crate) fua: bool,
}

/// A batch: staged pages, records, and the requests that wait for them.
pub(crate) struct Batch {
    bytes: Box<[u8]>,
    /// End of the last header in `bytes`: the memory from there to the first data page is zero.
    header_end: usize,
    pub(crate) data: Vec<Item>,
    pub(crate) records: Vec<Item>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) atomic: bool,
    /// `true` if a request waits because the batch has no room for it.
    pub(crate) is_crowded: bool,
    /// Maximum number of pages of header and data of the batch, which its first addition decides.
    limit: usize,
    /// Stamp of the batch, set when it is closed.
    pub(crate) base: u64,
    /// Stamp of the batch's first copy, set when the batch is closed. Repeating a failed batch
    /// keeps it.
    pub(crate) first: u64,
    pub(crate) offset: u32,
    /// The part of header and data that is being written, or was last: its first page and its end,
    /// counted from the first page of the header.
    pub(crate) sent: (u32, u32),
    pub(crate) failures: u8,
}

impl Batch {
    fn new(pages: usize, keeps_data: bool) -> Batch {
        let bytes = HEADER_BYTES + if keeps_data { pages * PAGE_BYTES } else { 0 };
        Batch {
            bytes: vec![0; bytes].into(),
            header_end: 0,
            data: Vec::with_capacity(pages),
            records: Vec::with_capacity(ENTRIES_MAX - pages),
            waiters: Vec::with_capacity(ENTRIES_MAX),
            atomic: false,
            is_crowded: false,
            limit: 0,
            base: 0,
            first: 0,
            offset: 0,
            sent: (0, 0),
            failures: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.records.is_empty()
    }

    /// Returns the number of pages of header and data with `data` more pages and `records` more
    /// records.
    fn pages_with(&self, data: usize, records: usize) -> usize {
        let (data, records) = (self.data.len() + data, self.records.len() + records);
        header_pages(data + records) + data
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages_with(0, 0)
    }

    pub(crate) fn header_pages(&self) -> usize {
        header_pages(self.data.len() + self.records.len())
    }

    /// Returns `true` if `data` more pages and `records` more records fit.
    fn fits(&self, data: usize, records: usize) -> bool {
        self.data.len() + data <= self.data.capacity()
            && self.records.len() + records <= self.records.capacity()
            && self.waiters.len() < self.waiters.capacity()
            && self.pages_with(data, records) <= self.limit
    }

    /// Adds a page and returns the memory for its data; `None` on members without data.
    pub(crate) fn push(&mut self, item: Item) -> Option<&mut [u8]> {
        let at = HEADER_BYTES + self.data.len() * PAGE_BYTES;
        self.data.push(item);
        self.bytes.get_mut(at..at + PAGE_BYTES)
    }

    /// Returns the number of pages in the batch that hosts wrote.
    pub(crate) fn hosts(&self) -> usize {
        self.data.iter().filter(|item| item.kind == Kind::Host).count()
    }

    /// Moves the pages that hosts wrote, with the requests that wait for these pages, to the batch
    /// `to`, which must have room for them.
    pub(crate) fn split_hosts(&mut self, to: &mut Batch) {
        let place =
            |at: usize| HEADER_BYTES + at * PAGE_BYTES..HEADER_BYTES + (at + 1) * PAGE_BYTES;
        let mut kept = 0;
        for at in 0..self.data.len() {
            let item = self.data[at];
            if item.kind == Kind::Host {
                if let (Some(to), Some(from)) = (to.push(item), self.bytes.get(place(at))) {
                    to.copy_from_slice(from);
                }
                continue;
            }
            if kept < at && place(at).end <= self.bytes.len() {
                self.bytes.copy_within(place(at), place(kept).start);
            }
            self.data[kept] = item;
            kept += 1;
        }
        self.data.truncate(kept);
        to.waiters.append(&mut self.waiters);
        to.atomic |= core::mem::take(&mut self.atomic);
    }

    /// Encodes the header into its place before the data.
    pub(crate) fn encode(&mut self, head: &BatchHead) {
        let begin = HEADER_BYTES - self.header_pages() * PAGE_BYTES;
        let items = self.data.iter().chain(&self.records);
        let entries = items.map(|i| Entry::new(i.page, i.kind, i.heat, i.stamp, i.check));
        let stale = self.header_end.saturating_sub(begin);
        let used = head.encode(entries, &mut self.bytes[begin..HEADER_BYTES], stale);
        self.header_end = begin + used;
    }

    /// Returns the part of header and data that is being written.
    pub(crate) fn bytes(&self) -> &[u8] {
        let begin = HEADER_BYTES - self.header_pages() * PAGE_BYTES;
        let at = |pages: u32| (begin + pages as usize * PAGE_BYTES).min(self.bytes.len());
        let (from, to) = self.sent;
        &self.bytes[at(from)..at(to)]
    }

    /// Begins to write the next part of the batch: at most `most` pages, or all that are left if a
    /// request waits for the batch. Returns the part's first page, counted from the first page of
    /// the header, and its number of pages; `None` if all is written.
    pub(crate) fn next_part(&mut self, most: u32) -> Option<(u32, u32)> {
        let (begin, left) = (self.sent.1, self.pages() as u32 - self.sent.1);
        let count = if self.waiters.is_empty() { left.min(most) } else { left };
        self.sent = (begin, begin + count);
        (count > 0).then_some((begin, count))
    }

    fn clear(&mut self) {
        self.data.clear();
        self.records.clear();
        self.waiters.clear();
        (self.atomic, self.is_crowded, self.limit, self.failures) = (false, false, 0, 0);
    }
}

/// The log of one stream, or of lone writes.
pub(crate) struct Log {
    /// The open segment; `None` before the first batch and after a failure.
    pub(crate) segment: Option<u32>,
    /// Offset of the first page of the open segment that no batch uses.
    pub(crate) cursor: u32,
    pub(crate) filling: Batch,
    pub(crate) flying: Batch,
    pub(crate) is_flying: bool,
    segment_pages: u32,
}

impl Log {
    pub(crate) fn new(segment_pages: u32, batch_pages: usize, keeps_data: bool) -> Log {
        Log {
            segment: None,
            cursor: segment_pages,
            filling: Batch::new(batch_pages, keeps_data),
            flying: Batch::new(batch_pages, keeps_data),
            is_flying: false,
            segment_pages,
        }
    }

    /// Returns the number of pages that are left in the open segment.
    pub(crate) fn left(&self) -> u32 {
        self.segment_pages - self.cursor
    }

    /// Returns `true` if `data` pages and `records` records fit into the batch that fills. The
    /// first addition decides whether the batch goes to the open segment, or to a new one, for
    /// which `may_open` must be true. Without it, nothing joins a batch of others that goes to a
    /// new segment: hosts' writes in the collector's batches would use up the reserve.
    pub(crate) fn takes(&mut self, data: usize, records: usize, may_open: bool) -> bool {
        if self.filling.is_empty() {
            let fits_here = self.filling.pages_with(data, records) <= self.left() as usize;
            self.filling.limit = match fits_here {
                true => self.left() as usize,
                false if may_open => self.segment_pages as usize,
                false => 0,
            };
        } else if !may_open && self.filling.limit > self.left() as usize {
            return false;
        }
        self.filling.fits(data, records)
    }

    /// Returns `true` if the batch that fills goes to a segment that is not open yet.
    pub(crate) fn will_open(&self) -> bool {
        !self.filling.is_empty() && self.filling.limit > self.left() as usize
    }

    /// Returns `true` if the batch that fills holds something, and none is in flight.
    #[inline]
    pub(crate) fn may_close(&self) -> bool {
        !self.is_flying && !self.filling.is_empty()
    }

    /// Returns `true` if no page fits into the batch that fills.
    pub(crate) fn is_full(&self) -> bool {
        !self.filling.fits(1, 0)
    }

    /// Swaps the two batches, so that the filled one is in flight.
    pub(crate) fn launch(&mut self) {
        core::mem::swap(&mut self.filling, &mut self.flying);
        self.is_flying = true;
    }

    /// Empties the batch in flight, which has ended.
    pub(crate) fn land(&mut self) {
        self.flying.clear();
        self.is_flying = false;
    }
}
