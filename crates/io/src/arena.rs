//! Memory carved into buffers at start.

// UNSAFETY: maps anonymous memory and hands out disjoint `'static` slices of it.
#![allow(unsafe_code)]

use std::ptr;

use contract::{Buf, SizeClass};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::Error;

/// The alignment of every buffer, which lets any device read into it directly.
const ALIGN: usize = 4096;

/// A memory mapping that lives as long as the process, and the buffers into which the mapping was
/// divided.
#[derive(Debug)]
pub struct Arena {
    /// First byte of the mapping, for registering all of it with a ring.
    pub(crate) base: *mut u8,
    /// Bytes in the mapping.
    pub(crate) len: usize,
    /// The buffers, numbered from 0 in the order of the classes. They do not overlap.
    pub bufs: Vec<Buf>,
}

/// Maps memory and carves it into zeroed, page-aligned buffers: of each class as many as it counts.
/// Pages become resident when they are first touched. Memory in use is never unmapped, as a
/// worker lives as long as its process.
///
/// # Errors
/// Fails if the system has no memory to map.
pub fn carve(classes: &[SizeClass]) -> Result<Arena, Error> {
    let stride = |class: &SizeClass| class.bytes.next_multiple_of(ALIGN);
    let len: usize = classes.iter().map(|c| stride(c) * c.count).sum::<usize>().max(ALIGN);
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice aliases nothing.
    let base = unsafe {
        mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .map_err(|e| Error::system(format!("cannot map {len} bytes for buffers"), e))?
    .cast::<u8>();
    let mut bufs = Vec::with_capacity(classes.iter().map(|c| c.count).sum());
    let mut offset = 0;
    for class in classes {
        for _ in 0..class.count {
            // SAFETY: `offset + class.bytes ≤ len`, the mapping is zeroed, never unmapped, and each
            // slice covers a part that no other slice does.
            let bytes = unsafe { std::slice::from_raw_parts_mut(base.add(offset), class.bytes) };
            bufs.push(Buf::new(bytes, bufs.len() as u32));
            offset += stride(class);
        }
    }
    Ok(Arena { base, len, bufs })
}

impl Arena {
    /// Unmaps memory that is not used any more.
    ///
    /// # Safety
    /// All buffers that were carved are in the arena, and nothing refers to their bytes.
    pub(crate) unsafe fn unmap(self) {
        // SAFETY: the caller promises that nothing refers to the mapping.
        unsafe { MappedRange { base: self.base, len: self.len }.unmap() };
    }
}

/// An arena that is unmapped when it is dropped, unless its buffers were taken out: what is made of
/// several parts leaves nothing behind if one of them cannot be made.
pub(crate) struct ArenaGuard(Option<Arena>);

impl ArenaGuard {
    /// Maps memory and carves it into buffers.
    ///
    /// # Errors
    /// Fails as [`carve`] does.
    pub(crate) fn carve(class: SizeClass) -> Result<ArenaGuard, Error> {
        carve(&[class]).map(|arena| ArenaGuard(Some(arena)))
    }

    /// Returns the first byte of the mapping.
    pub(crate) fn base(&self) -> *mut u8 {
        self.0.as_ref().expect("it was not taken").base
    }

    /// Returns the buffers and the range of their mapping, which stays.
    pub(crate) fn keep(mut self) -> (MappedRange, Vec<Buf>) {
        let Arena { base, len, bufs } = self.0.take().expect("it was not taken");
        (MappedRange { base, len }, bufs)
    }
}

impl Drop for ArenaGuard {
    fn drop(&mut self) {
        if let Some(arena) = self.0.take() {
            // SAFETY: no buffer was taken out, and whoever knows the base uses it with buffers
            // only.
            unsafe { arena.unmap() };
        }
    }
}

/// The range of a mapping whose buffers were taken out of their arena.
#[derive(Debug)]
pub(crate) struct MappedRange {
    base: *mut u8,
    len: usize,
}

impl MappedRange {
    /// Unmaps the memory.
    ///
    /// # Safety
    /// Nothing refers to the mapping: all its buffers are gone, and the kernel uses none.
    pub(crate) unsafe fn unmap(self) {
        // SAFETY: the caller promises that nothing refers to the mapping.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::BufPool;

    #[test]
    fn buffers_are_aligned_disjoint_and_zero() {
        let classes = [SizeClass { bytes: 4096, count: 3 }, SizeClass { bytes: 9000, count: 2 }];
        let mut arena = carve(&classes).unwrap();
        for (n, buf) in arena.bufs.iter_mut().enumerate() {
            assert_eq!(buf.bytes().as_ptr() as usize % ALIGN, 0);
            assert!(buf.bytes().iter().all(|b| *b == 0));
            buf.bytes_mut().fill(n as u8 + 1);
        }
        for (n, buf) in arena.bufs.iter().enumerate() {
            assert!(buf.bytes().iter().all(|b| usize::from(*b) == n + 1));
        }
        assert_eq!(BufPool::new(arena.bufs).largest(), 9000);
    }
}
