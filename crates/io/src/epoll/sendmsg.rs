//! The system calls that send a block of frames over epoll.

// UNSAFETY: hands the kernel a vector of pointers.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::sendblock::SendBlock;

/// Sends as much of the block as the kernel takes without waiting. Returns the number of bytes that
/// it took.
pub(super) fn send_block(socket: impl AsFd, block: &mut SendBlock) -> Result<usize, Errno> {
    const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the block's pieces point into its own stage and into bodies of frames that their
    // store keeps; nobody changes either during the call, and the kernel only reads them.
    let sent = unsafe { libc::sendmsg(fd, block.message(), FLAGS) };
    usize::try_from(sent).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Sends as much of the sealed records behind the first `taken` bytes as the kernel takes without
/// waiting. Returns the number of bytes.
pub(super) fn send_rest(
    socket: impl AsFd,
    block: &SendBlock,
    taken: usize,
) -> Result<usize, Errno> {
    let rest = &block.sealed_bytes()[taken..];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| rustix::net::send(&socket, rest, flags))
}
