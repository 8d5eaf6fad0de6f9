//! Memory that another process may have as well, by its descriptor.

// UNSAFETY: maps files of memory, and hands each mapping out once as a `'static` slice.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::Error;

/// The address and the length of each mapping that was handed out.
static MAPPED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Memory that is mapped and that nobody in this process refers to.
#[derive(Debug)]
pub struct SharedMemory {
    base: usize,
    len: usize,
}

impl SharedMemory {
    /// Makes zeroed memory of so many bytes. Returns the descriptor by which another process
    /// [adopts](SharedMemory::adopt) it, and the memory.
    ///
    /// # Errors
    /// Fails if the system has no memory or no descriptor.
    pub fn create(bytes: usize) -> Result<(OwnedFd, SharedMemory), Error> {
        let failed = |e| Error::system(format!("cannot make {bytes} bytes of shared memory"), e);
        let file = memfd_create("nearflash", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, bytes as u64).map_err(failed)?;
        let memory = SharedMemory::map(&file, bytes, MapFlags::SHARED)?;
        Ok((file, memory))
    }

    /// Maps the memory of another process. Its pages are there at the first touch.
    ///
    /// # Errors
    /// Fails if the descriptor is none of memory, or the system cannot map it.
    pub fn adopt(file: &OwnedFd) -> Result<SharedMemory, Error> {
        let failed = |e| Error::system("cannot ask about shared memory".to_owned(), e);
        let bytes = fstat(file).map_err(failed)?.st_size as usize;
        SharedMemory::map(file, bytes, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Returns the descriptor of memory with these bytes, which are not empty.
    ///
    /// # Errors
    /// Fails if the system has no memory or no descriptor.
    pub fn of(bytes: &[u8]) -> Result<OwnedFd, Error> {
        let (file, memory) = SharedMemory::create(bytes.len())?;
        let mapped = memory.into_bytes();
        mapped.copy_from_slice(bytes);
        SharedMemory::give_back(mapped);
        Ok(file)
    }

    /// Returns a copy of the bytes of the memory with this descriptor.
    ///
    /// # Errors
    /// Fails if the descriptor is none of memory, or the system cannot map it.
    pub fn bytes_of(file: &OwnedFd) -> Result<Vec<u8>, Error> {
        let mapped = SharedMemory::adopt(file)?.into_bytes();
        let bytes = mapped.to_vec();
        SharedMemory::give_back(mapped);
        Ok(bytes)
    }

    fn map(file: &OwnedFd, bytes: usize, flags: MapFlags) -> Result<SharedMemory, Error> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing here.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, flags, file, 0) };
        let failed = |e| Error::system(format!("cannot map {bytes} bytes of shared memory"), e);
        Ok(SharedMemory { base: base.map_err(failed)? as usize, len: bytes })
    }

    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "the system maps no empty memory")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes. The other process must not touch them as long as this one does.
    /// [`give_back`](SharedMemory::give_back) unmaps them.
    pub fn into_bytes(self) -> &'static mut [u8] {
        let (base, len) = (self.base, self.len);
        std::mem::forget(self);
        MAPPED.lock().unwrap_or_else(PoisonError::into_inner).push((base, len));
        // SAFETY: the mapping has `len` bytes, is handed out once, and is unmapped only by
        // `give_back`, which gets this slice.
        unsafe { std::slice::from_raw_parts_mut(base as *mut u8, len) }
    }

    /// Unmaps bytes of [`into_bytes`](SharedMemory::into_bytes). Other bytes stay as they are.
    pub fn give_back(bytes: &'static mut [u8]) {
        let (base, len) = (bytes.as_mut_ptr() as usize, bytes.len());
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = mapped.iter().position(|one| *one == (base, len)) {
            mapped.swap_remove(at);
            // SAFETY: the bytes are all of a mapping, and the only reference to them ends here.
            let _ = unsafe { munmap(base as *mut _, len) };
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was never handed out.
        let _ = unsafe { munmap(self.base as *mut _, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let (file, memory) = SharedMemory::create(10_000).unwrap();
        let bytes = memory.into_bytes();
        assert!(bytes.len() == 10_000 && bytes.iter().all(|byte| *byte == 0));
        bytes[9_999] = 7;
        let other = SharedMemory::adopt(&file).unwrap();
        assert_eq!(other.len(), 10_000);
        assert_eq!(other.into_bytes()[9_999], 7);
        let place = (bytes.as_ptr() as usize, bytes.len());
        let is_mapped = || MAPPED.lock().unwrap().contains(&place);
        assert!(is_mapped());
        SharedMemory::give_back(bytes);
        assert!(!is_mapped());
        SharedMemory::give_back(Box::leak(Box::new([0; 16])));
    }
}
