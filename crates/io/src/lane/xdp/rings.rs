//! The rings that an AF_XDP socket shares with the kernel (Linux's
//! `Documentation/networking/af_xdp.rst`).
//!
//! Of each ring, one side produces and the other consumes. Positions only grow, modulo 2³², and
//! `consumer ≤ producer ≤ consumer + size` holds.

// UNSAFETY: the kernel reads and writes the rings' memory at the same time.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A ring of entries, of which one side is ours.
#[derive(Debug)]
struct MappedRing<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    entries: *mut T,
    size: u32,
    /// The mapping of the whole ring. While it exists, the kernel keeps the socket, and no other
    /// socket gets the card.
    mapping: (*mut c_void, usize),
    /// The number of the process that has the mapping. Its forked children do not get it.
    process: u32,
    _entry: PhantomData<T>,
}

// SAFETY: a ring has one owner, which may be moved to another thread, and unmaps its own memory.
unsafe impl<T: Send> Send for MappedRing<T> {}

impl<T: Copy> MappedRing<T> {
    /// Maps a ring of `size` entries, a power of two, of which the kernel says where its parts lie.
    fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<MappedRing<T>> {
        let bytes = at.desc as usize + size as usize * size_of::<T>();
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, flags, socket, offset) }?;
        // A child of the program would keep the card from others after the program's end.
        // SAFETY: the advice changes nothing in this process.
        if let Err(error) = unsafe { madvise(base, bytes, Advice::LinuxDontFork) } {
            // SAFETY: the mapping is new, and nothing refers to it.
            let _ = unsafe { munmap(base, bytes) };
            return Err(error.into());
        }
        let mapping = (base, bytes);
        let base = base.cast::<u8>();
        // SAFETY: the kernel has made the mapping large enough for the parts at these offsets.
        unsafe {
            Ok(MappedRing {
                producer: base.add(at.producer as usize).cast::<AtomicU32>().cast_const(),
                consumer: base.add(at.consumer as usize).cast::<AtomicU32>().cast_const(),
                flags: base.add(at.flags as usize).cast::<AtomicU32>().cast_const(),
                entries: base.add(at.desc as usize).cast::<T>(),
                size,
                mapping,
                process: std::process::id(),
                _entry: PhantomData,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, is aligned, and is only used atomically.
        unsafe { &*self.producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, is aligned, and is only used atomically.
        unsafe { &*self.consumer }
    }

    /// Returns the entry at a position.
    fn at(&self, position: u32) -> *mut T {
        // SAFETY: the size is a power of two, so the index is below it.
        unsafe { self.entries.add((position & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for MappedRing<T> {
    fn drop(&mut self) {
        let (base, bytes) = self.mapping;
        if self.process == std::process::id() {
            // SAFETY: the mapping was made with the value, and nothing refers to it any more.
            let _ = unsafe { munmap(base, bytes) };
        }
    }
}

/// A ring into which we put entries for the kernel.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    shared: MappedRing<T>,
    /// The position of the next entry: ahead of the shared one until it is published.
    next: u32,
}

impl<T: Copy> ProducerRing<T> {
    /// Maps the ring.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<ProducerRing<T>> {
        Ok(ProducerRing { shared: MappedRing::map(socket, offset, at, size)?, next: 0 })
    }

    /// Returns the position of the next entry.
    pub(super) fn position(&self) -> u32 {
        self.next
    }

    /// Returns the number of entries of the ring.
    pub(super) fn size(&self) -> usize {
        self.shared.size as usize
    }

    /// Returns the number of entries that have room.
    pub(super) fn room(&self) -> usize {
        let consumed = self.shared.consumer().load(Ordering::Acquire);
        (self.shared.size - self.next.wrapping_sub(consumed)) as usize
    }

    /// Adds an entry, which the kernel sees after [`publish`](ProducerRing::publish).
    ///
    /// # Panics
    /// Panics without room.
    pub(super) fn push(&mut self, entry: T) {
        assert!(self.room() > 0, "the kernel has as many entries as there are");
        // SAFETY: the kernel reads the entry only after the position was published.
        unsafe { self.shared.at(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel all entries.
    pub(super) fn publish(&self) {
        self.shared.producer().store(self.next, Ordering::Release);
    }

    /// Returns `true` if the kernel has not taken all entries.
    pub(super) fn is_pending(&self) -> bool {
        self.shared.consumer().load(Ordering::Acquire) != self.next
    }

    /// Returns `true` if the kernel asks for a system call to look at the ring.
    pub(super) fn needs_wake(&self) -> bool {
        // SAFETY: the word lies in the mapping, is aligned, and is only used atomically.
        let flags = unsafe { &*self.shared.flags };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring from which we take entries of the kernel.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    shared: MappedRing<T>,
    /// The position of the next entry: ahead of the shared one until it is released.
    next: u32,
}

impl<T: Copy> ConsumerRing<T> {
    /// Maps the ring.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<ConsumerRing<T>> {
        Ok(ConsumerRing { shared: MappedRing::map(socket, offset, at, size)?, next: 0 })
    }

    /// Returns the number of entries that the kernel has put in.
    pub(super) fn len(&self) -> usize {
        self.shared.producer().load(Ordering::Acquire).wrapping_sub(self.next) as usize
    }

    /// Takes the next entry. [`len`](ConsumerRing::len) must have returned at least one.
    pub(super) fn take(&mut self) -> T {
        debug_assert!(self.len() > 0, "an entry was seen");
        // SAFETY: the kernel has put the entry in before it moved its position, and does not write
        // to it before ours has moved.
        let entry = unsafe { self.shared.at(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Gives the places of taken entries back to the kernel.
    pub(super) fn release(&self) {
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}
