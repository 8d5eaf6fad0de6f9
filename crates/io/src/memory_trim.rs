//! Returning memory that the allocator keeps for later allocations.

// UNSAFETY: calls a function of the C library.
#![allow(unsafe_code)]

/// Returns the allocator's unused memory to the system. Threads that allocate meanwhile may wait
/// for some milliseconds. Does nothing with allocators other than that of the GNU C library.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call the function at any time; it changes only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
