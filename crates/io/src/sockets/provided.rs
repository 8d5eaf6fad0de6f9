//! The ring of buffers that the kernel receives into.

// UNSAFETY: shares a ring of buffer addresses with the kernel.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU16, Ordering};

use contract::{Buf, SizeClass};
use io_uring::types::BufRingEntry;

use crate::{Error, Ring, carve};

/// A provided-buffer ring (`IORING_REGISTER_PBUF_RING`). A buffer is with the kernel, or lent to
/// whoever took the `Received` event, never both.
pub(crate) struct ProvidedBuffers {
    entries: *mut BufRingEntry,
    mask: u16,
    tail: u16,
    /// The buffers that are with the kernel, by their number.
    with_kernel: Box<[Option<Buf>]>,
    with_kernel_count: usize,
}

impl ProvidedBuffers {
    /// Gives `count` buffers (a power of two, at most 32 768) of `bytes` each to the kernel as
    /// `group`.
    pub(crate) fn register(
        ring: &Ring,
        group: u16,
        bytes: usize,
        count: usize,
    ) -> Result<Self, Error> {
        assert!(count.is_power_of_two() && count <= 1 << 15, "a provided-buffer ring's size");
        let ring_bytes = count * size_of::<BufRingEntry>();
        let memory = carve(&[SizeClass { bytes: ring_bytes, count: 1 }])?;
        let entries = memory.base.cast::<BufRingEntry>();
        // SAFETY: the memory is page-aligned, holds `count` entries and lives as long as the process.
        ring.with_submitter(|submitter| unsafe {
            submitter.register_buf_ring_with_flags(entries as u64, count as u16, group, 0)
        })
        .map_err(|e| Error::system("cannot register receive buffers (Linux 5.19 can)", e))?;
        let mut provided = ProvidedBuffers {
            entries,
            mask: count as u16 - 1,
            tail: 0,
            with_kernel: (0..count).map(|_| None).collect(),
            with_kernel_count: 0,
        };
        for buf in carve(&[SizeClass { bytes, count }])?.bufs {
            provided.give(buf);
        }
        Ok(provided)
    }

    /// Returns a buffer to the kernel.
    pub(crate) fn give(&mut self, mut buf: Buf) {
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

    /// Takes the buffer that the kernel filled.
    pub(crate) fn take(&mut self, id: u16) -> Buf {
        self.with_kernel_count -= 1;
        self.with_kernel[usize::from(id)].take().expect("the kernel had this buffer")
    }

    /// Buffers that the kernel may still fill.
    pub(crate) fn available(&self) -> usize {
        self.with_kernel_count
    }
}
