//! The ring of buffers that the kernel receives into.

// UNSAFETY: shares a ring of buffer addresses with the kernel.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU16, Ordering};

use contract::{Buf, SizeClass};
use io_uring::types::BufRingEntry;

use crate::arena::{ArenaGuard, MappedRange};
use crate::{Error, Ring};

/// A provided-buffer ring (`IORING_REGISTER_PBUF_RING`). A buffer is with the kernel, held back, or
/// lent with a `Received` event.
///
/// The kernel uses the buffers in turn, so with all of them in the ring each receive would write to
/// the least recently used memory, which no cache holds. Hence the ring has only as many as
/// receives need; the others are held back, and the last used one is added first.
pub(crate) struct ProvidedBuffers {
    entries: *mut BufRingEntry,
    mask: u16,
    tail: u16,
    /// The buffers that the kernel has, by their numbers; `None` for those that it has not.
    with_kernel: Box<[Option<Buf>]>,
    with_kernel_count: usize,
    held_back: Vec<Buf>,
    level: BufferLevel,
    /// The number of the group, and the mappings of the entries and of the buffers.
    group: u16,
    spans: Vec<MappedRange>,
}

impl ProvidedBuffers {
    /// Registers a ring of `count` buffers (a power of two, at most 32 768) of `bytes` bytes each
    /// with the kernel, as group `group`. The kernel gets [`BufferLevel::LEAST`] of them; the
    /// others are held back.
    ///
    /// # Errors
    /// Fails if memory does not suffice, or the kernel has such a group already.
    pub(crate) fn register(
        ring: &Ring,
        group: u16,
        bytes: usize,
        count: usize,
    ) -> Result<Self, Error> {
        assert!(count.is_power_of_two() && count <= 1 << 15, "a provided-buffer ring's size");
        let ring_bytes = count * size_of::<BufRingEntry>();
        let memory = ArenaGuard::carve(SizeClass { bytes: ring_bytes, count: 1 })?;
        let bufs = ArenaGuard::carve(SizeClass { bytes, count })?;
        let entries = memory.base().cast::<BufRingEntry>();
        // SAFETY: the memory is page-aligned, holds `count` entries, and stays until `withdraw`.
        ring.with_submitter(|submitter| unsafe {
            submitter.register_buf_ring_with_flags(entries as u64, count as u16, group, 0)
        })
        .map_err(|e| Error::system("cannot register receive buffers (Linux 5.19 can)", e))?;
        let (span, _) = memory.keep();
        let (span_of_bufs, bufs) = bufs.keep();
        let mut provided = ProvidedBuffers {
            entries,
            mask: count as u16 - 1,
            tail: 0,
            with_kernel: (0..count).map(|_| None).collect(),
            with_kernel_count: 0,
            held_back: Vec::with_capacity(count),
            level: BufferLevel::new(count),
            group,
            spans: vec![span, span_of_bufs],
        };
        bufs.into_iter().for_each(|buf| provided.give(buf));
        Ok(provided)
    }

    /// Takes the ring of buffers back from the kernel, and unmaps its memory. The group can be
    /// registered again then. The memory of a ring of which a buffer is lent stays.
    ///
    /// # Safety
    /// No receive of the group is in flight, and from now on this value is only dropped.
    pub(crate) unsafe fn withdraw(&mut self, ring: &Ring) {
        let is_whole = self.with_kernel_count + self.held_back.len() == self.with_kernel.len();
        self.with_kernel.fill_with(|| None);
        self.held_back.clear();
        let withdrawn = ring.with_submitter(|submitter| submitter.unregister_buf_ring(self.group));
        if is_whole && withdrawn.is_ok() {
            // SAFETY: the kernel has neither the ring nor a receive, and all buffers are gone.
            self.spans.drain(..).for_each(|span| unsafe { span.unmap() });
        }
    }

    /// Takes back a lent buffer, which goes to the kernel or is held back.
    pub(crate) fn give(&mut self, buf: Buf) {
        if self.with_kernel_count < self.level.wanted {
            self.provide(buf);
        } else {
            self.held_back.push(buf);
        }
    }

    /// Raises the number of provided buffers, because a receive found none. Of several such
    /// receives in one turn only the first counts.
    pub(crate) fn ran_dry(&mut self) {
        if self.with_kernel_count > 0 {
            return;
        }
        self.level.raise();
        while self.with_kernel_count < self.level.wanted {
            let Some(buf) = self.held_back.pop() else { return };
            self.provide(buf);
        }
    }

    fn provide(&mut self, mut buf: Buf) {
        let id = buf.index() as u16;
        let place = usize::from(self.tail & self.mask);
        // SAFETY: `place ≤ mask`, so the entry lies within the ring; the kernel reads it only after
        // the tail below has moved past it.
        let entry = unsafe { &mut *self.entries.add(place) };
        let bytes = buf.bytes_mut();
        entry.set_addr(bytes.as_mut_ptr() as u64);
        entry.set_len(bytes.len() as u32);
        entry.set_bid(id);
        let before = self.with_kernel[usize::from(id)].replace(buf);
        assert!(before.is_none(), "a receive buffer was returned twice");
        self.with_kernel_count += 1;
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `entries` is the ring's base; the tail lies in its first entry's reserved field,
        // is aligned to 2, and is shared with the kernel, hence the atomic store.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Takes buffer number `id`, which the kernel has filled.
    pub(crate) fn take(&mut self, id: u16) -> Buf {
        self.with_kernel_count -= 1;
        self.level.taken(self.with_kernel_count);
        self.with_kernel[usize::from(id)].take().expect("the kernel had this buffer")
    }

    /// Returns the number of buffers that the kernel may still fill.
    pub(crate) fn available(&self) -> usize {
        self.with_kernel_count
    }
}

/// The number of buffers that the kernel should have, adapted over time.
#[derive(Debug)]
struct BufferLevel {
    /// The number of buffers that the kernel should have, with `least ≤ wanted ≤ most`.
    wanted: usize,
    least: usize,
    most: usize,
    /// The smallest number of buffers that the kernel had in this period.
    fewest: usize,
    /// Number of buffers that the kernel will still fill in this period.
    left: u32,
}

impl BufferLevel {
    /// The initial and least number of buffers, which fit into a core's second-level cache with
    /// other data.
    const LEAST: usize = 64;

    /// Number of buffers that the kernel fills in a period.
    const PERIOD: u32 = 1 << 16;

    fn new(most: usize) -> BufferLevel {
        let least = BufferLevel::LEAST.min(most);
        BufferLevel { wanted: least, least, most, fewest: least, left: BufferLevel::PERIOD }
    }

    /// Doubles the wanted number, up to the maximum, because there were too few buffers.
    fn raise(&mut self) {
        self.wanted = (2 * self.wanted).min(self.most);
        (self.fewest, self.left) = (0, BufferLevel::PERIOD);
    }

    /// Notes that the kernel has filled a buffer and has `available` left. If half of the buffers
    /// would have been enough for a whole period, the wanted number is halved.
    fn taken(&mut self, available: usize) {
        self.fewest = self.fewest.min(available);
        self.left -= 1;
        if self.left == 0 {
            if self.fewest > self.wanted / 2 {
                self.wanted = (self.wanted / 2).max(self.least);
            }
            (self.fewest, self.left) = (self.wanted, BufferLevel::PERIOD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_rises_with_need_and_sinks_again() {
        let mut level = BufferLevel::new(4096);
        assert_eq!(level.wanted, 64);
        (0..9).for_each(|_| level.raise());
        assert_eq!(level.wanted, 4096, "no more than there are");
        let mut period = |available: usize| {
            (0..BufferLevel::PERIOD).for_each(|_| level.taken(available));
            level.wanted
        };
        assert_eq!(period(4095), 4096, "a period in which there were too few changes nothing");
        assert_eq!(period(2048), 4096, "the half would not have done");
        assert_eq!(
            [period(2049), period(2047), period(2000), period(2000)],
            [2048, 1024, 512, 256]
        );
        assert_eq!([period(2000), period(2000), period(63)], [128, 64, 64]);
        assert_eq!(BufferLevel::new(16).wanted, 16, "all of a few");
    }
}
