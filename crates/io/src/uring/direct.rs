//! The memory of bounded receives: a vector of pieces for each in flight, and small buffers.

use contract::{Buf, SizeClass};

use crate::message::{EMPTY_HEADER, EMPTY_PIECE};
use crate::sockets::{LOOK_BYTES, ReceiveTarget};
use crate::{Error, carve};

/// Number of a worker's small buffers for the bytes that follow a directly received payload.
pub(super) const LOOKS: usize = 256;

/// The memory of a bounded receive in flight, and of a payload that is expected.
pub(crate) struct DirectReceive {
    /// The caller's buffer for the payload that comes next.
    pub(super) target: Option<ReceiveTarget>,
    /// The buffer for a few bytes behind the payload.
    pub(super) look: Option<Buf>,
    header: libc::msghdr,
    pieces: [libc::iovec; 2],
}

impl DirectReceive {
    pub(super) fn new() -> Box<DirectReceive> {
        Box::new(DirectReceive {
            target: None,
            look: None,
            header: EMPTY_HEADER,
            pieces: [EMPTY_PIECE; 2],
        })
    }

    /// Returns the message header of a receive of `len` bytes at `start` and of further bytes into
    /// `look`.
    pub(super) fn message(&mut self, start: *mut u8, len: usize) -> *mut libc::msghdr {
        let behind = self.look.as_mut().expect("the caller has put a buffer there").bytes_mut();
        self.pieces = [
            libc::iovec { iov_base: start.cast(), iov_len: len },
            libc::iovec { iov_base: behind.as_mut_ptr().cast(), iov_len: behind.len() },
        ];
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len() as _;
        &raw mut self.header
    }
}

/// Carves the buffers for the bytes behind payloads, numbered from `first` on.
pub(super) fn carve_looks(first: usize) -> Result<Vec<Buf>, Error> {
    let class = SizeClass { bytes: LOOK_BYTES * LOOKS, count: 1 };
    let whole = carve(&[class])?.bufs.pop().expect("it was just carved");
    let parts = whole.into_bytes().chunks_exact_mut(LOOK_BYTES);
    Ok((first..).zip(parts).map(|(n, bytes)| Buf::new(bytes, n as u32)).collect())
}
