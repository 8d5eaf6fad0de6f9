//! Empty message headers and I/O vectors for `sendmsg` and `recvmsg`, to be filled in by callers.

use std::ptr;

/// A vector element without bytes.
pub(crate) const EMPTY_PIECE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// A message header without a name, a vector and control data.
pub(crate) const EMPTY_HEADER: libc::msghdr = libc::msghdr {
    msg_name: ptr::null_mut(),
    msg_namelen: 0,
    msg_iov: ptr::null_mut(),
    msg_iovlen: 0,
    msg_control: ptr::null_mut(),
    msg_controllen: 0,
    msg_flags: 0,
};
