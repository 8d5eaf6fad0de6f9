//! Pages of hosts' writes that are staged or in flight, counted by hash.
//!
//! Two writes to one page go to one log, whose batches complete in order. So the younger write wins
//! both in memory and after a crash. Pages share hash buckets rarely; then one of them goes to the
//! other's stream.

use alloc::boxed::Box;
use alloc::vec;

/// The stream that the pages of a write must use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredStream {
    /// No write of the pages is in flight.
    Free,
    /// Writes of the pages are in flight in this stream.
    To(u8),
    /// Writes of the pages are in flight in different streams.
    Split,
}

/// The table of pages in flight: for each hash of a page, their stream and their number.
pub(crate) struct PagesInFlight {
    buckets: Box<[(u8, u16)]>,
}

impl PagesInFlight {
    /// Returns a table for at most `pages` pages in flight.
    pub(crate) fn new(pages: usize) -> PagesInFlight {
        PagesInFlight { buckets: vec![(0, 0); (pages * 32).next_power_of_two()].into() }
    }

    fn bucket(&mut self, page: u32) -> &mut (u8, u16) {
        let hash = u64::from(page).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mask = self.buckets.len() - 1;
        &mut self.buckets[hash as usize & mask]
    }

    /// Returns the stream that a write of these pages must use.
    pub(crate) fn bound(&mut self, pages: impl Iterator<Item = u32>) -> RequiredStream {
        let mut bound = RequiredStream::Free;
        for page in pages {
            match (*self.bucket(page), bound) {
                ((_, 0), _) => {}
                ((stream, _), RequiredStream::Free) => bound = RequiredStream::To(stream),
                ((stream, _), RequiredStream::To(other)) if stream == other => {}
                _ => return RequiredStream::Split,
            }
        }
        bound
    }

    pub(crate) fn enter(&mut self, page: u32, stream: u8) {
        let (of, count) = self.bucket(page);
        assert!(*count == 0 || *of == stream, "a page is on its way in one stream");
        *of = stream;
        *count += 1;
    }

    /// Notes that a page in flight changes from the stream `from` to the stream `to`, with all
    /// pages in its bucket.
    pub(crate) fn redirect(&mut self, page: u32, from: u8, to: u8) {
        let (of, count) = self.bucket(page);
        assert!(*count > 0 && (*of == from || *of == to), "a page is on its way in one stream");
        *of = to;
    }

    pub(crate) fn leave(&mut self, page: u32) {
        let (_, count) = self.bucket(page);
        *count = count.checked_sub(1).expect("a page leaves once");
    }
}
