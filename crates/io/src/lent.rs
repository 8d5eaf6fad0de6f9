//! Memory of a caller, lent for the time of a request.

// UNSAFETY: makes a buffer of a caller's pointer; the caller promises what the pointer leads to.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use contract::Buf;

/// Lends `len` bytes at `start` as a buffer. `number` is the lender's number for the buffer; no
/// other buffer of the lender may have this number and address at the same time. The loan ends when
/// the lender gets the buffer back and drops it.
///
/// # Safety
/// From the call to the end of the loan the memory is mapped. It is initialised; nothing changes a
/// buffer of a write, and only the borrower accesses a buffer of a read.
pub unsafe fn lend(start: NonNull<u8>, len: usize, number: u32) -> Buf {
    // SAFETY: the caller promised that the bytes are there and initialised. The borrower writes only
    // into buffers of reads, which the caller promised to leave alone.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) };
    let mut buf = Buf::new(bytes, number);
    buf.bytes_mut(); // its bytes are not zero
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_bytes_are_the_lenders() {
        let mut memory = [7u8; 1024];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the memory outlives the buffer, and is not touched meanwhile.
        let mut buf = unsafe { lend(start, 512, 3) };
        assert_eq!((buf.capacity(), buf.index(), buf.bytes()[511]), (512, 3, 7));
        buf.zero_prefix(8);
        buf.prefix_mut(16)[8..].fill(9);
        assert_eq!((memory[7], memory[8], memory[16], memory[512]), (0, 9, 7, 7));
    }
}
