//! A stream to another process of this user that can pass descriptors (`unix(7)`, `SCM_RIGHTS`).
//!
//! This module deliberately leaves out the messages on the stream.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Maximum number of descriptors in one message; the kernel's limit is 253.
pub const DESCRIPTORS_MAX: usize = 250;

/// Bytes of the control message with [`DESCRIPTORS_MAX`] descriptors.
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// An end of a stream to another process. A clone made by [`try_clone`](ProcessLink::try_clone) is
/// the same end, so that one thread can read while another writes.
#[derive(Debug)]
pub struct ProcessLink {
    stream: UnixStream,
}

impl ProcessLink {
    /// Connects to the process that listens on the Unix socket at `path`.
    ///
    /// # Errors
    /// Fails if nobody listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<ProcessLink> {
        UnixStream::connect(path).map(ProcessLink::new)
    }

    /// Wraps an accepted stream.
    pub fn new(stream: UnixStream) -> ProcessLink {
        ProcessLink { stream }
    }

    /// Returns another handle to this end of the stream.
    ///
    /// # Errors
    /// Fails if there are too few descriptors.
    pub fn try_clone(&self) -> Result<ProcessLink> {
        self.stream.try_clone().map(ProcessLink::new)
    }

    /// Sets the time limit of a read and a write; `None` for no limit.
    ///
    /// # Errors
    /// Fails if the limit is zero.
    pub fn set_patience(&self, read: Option<Duration>, write: Option<Duration>) -> Result<()> {
        self.stream.set_read_timeout(read)?;
        self.stream.set_write_timeout(write)
    }

    /// Returns the user identifier (UID) of the process at the other end of the stream.
    ///
    /// # Errors
    /// Fails if the system does not say.
    pub fn peer_uid(&self) -> Result<u32> {
        Ok(rustix::net::sockopt::socket_peercred(&self.stream)?.uid.as_raw())
    }

    /// Shuts both directions: reads at both ends find the end of the stream.
    pub fn shut(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both); // it may have ended already
    }

    /// Shuts the receiving direction: bytes that have arrived can be read, and the other end fails
    /// to send more.
    pub fn shut_receiving(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Read); // it may have ended already
    }

    /// Sends all bytes; the descriptors go with the first byte.
    ///
    /// # Errors
    /// Fails if the other end is gone, or takes too long.
    ///
    /// # Panics
    /// Panics if there are more descriptors than [`DESCRIPTORS_MAX`], or no bytes to go with them.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        assert!(descriptors.len() <= DESCRIPTORS_MAX, "{} descriptors", descriptors.len());
        if descriptors.is_empty() {
            return (&self.stream).write_all(bytes);
        }
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "they have room");
        let sent = loop {
            let pieces = [IoSlice::new(bytes)];
            match rustix::net::sendmsg(&self.stream, &pieces, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        assert!(sent > 0, "descriptors go with a byte");
        (&self.stream).write_all(&bytes[sent..])
    }

    /// Fills `bytes`, and appends the descriptors that came with them. If the process reaches its
    /// limit of descriptors, the later ones are lost.
    ///
    /// # Errors
    /// Fails with `UnexpectedEof` if the stream ends before, and if the time limit of a read is
    /// over.
    pub fn receive(&self, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let mut space = [MaybeUninit::uninit(); SPACE];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let pieces = &mut [IoSliceMut::new(&mut bytes[filled..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = match rustix::net::recvmsg(&self.stream, pieces, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            if got.bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            filled += got.bytes;
        }
        Ok(())
    }

    /// Fills `bytes`, which must come without descriptors.
    ///
    /// # Errors
    /// Fails as [`receive`](ProcessLink::receive) does.
    pub fn receive_plain(&self, bytes: &mut [u8]) -> Result<()> {
        (&self.stream).read_exact(bytes)
    }
}

/// Returns whether a descriptor and a path refer to the same file.
///
/// # Errors
/// Fails if the system does not say, as for a path without a file.
pub fn is_same_file(one: impl AsFd, path: &Path) -> Result<bool> {
    let (open, named) = (rustix::fs::fstat(one)?, rustix::fs::stat(path)?);
    let is_same =
        (open.st_dev, open.st_ino, open.st_rdev) == (named.st_dev, named.st_ino, named.st_rdev);
    Ok(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Seek;

    fn pair() -> (ProcessLink, ProcessLink) {
        let (one, other) = UnixStream::pair().unwrap();
        (ProcessLink::new(one), ProcessLink::new(other))
    }

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (one, other) = pair();
        let mut file = tempfile();
        file.write_all(b"precious").unwrap();
        one.send(b"first", &[]).unwrap();
        one.send(b"second", &[file.as_fd(), file.as_fd()]).unwrap();
        one.send(b"third", &[]).unwrap();
        let (mut bytes, mut descriptors) = ([0; 5], Vec::new());
        other.receive(&mut bytes, &mut descriptors).unwrap();
        assert!(&bytes == b"first" && descriptors.is_empty());
        let mut bytes = [0; 6];
        other.receive(&mut bytes, &mut descriptors).unwrap();
        assert!(&bytes == b"second" && descriptors.len() == 2);
        let mut again = File::from(descriptors.pop().unwrap());
        again.rewind().unwrap();
        let mut text = String::new();
        again.read_to_string(&mut text).unwrap();
        assert_eq!(text, "precious");
        let mut bytes = [0; 5];
        other.receive_plain(&mut bytes).unwrap();
        assert_eq!(&bytes, b"third");
    }

    #[test]
    fn the_end_and_a_long_wait_are_errors() {
        let (one, other) = pair();
        one.set_patience(Some(Duration::from_millis(10)), None).unwrap();
        let late = one.receive(&mut [0; 4], &mut Vec::new()).unwrap_err();
        assert!(matches!(late.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{late}");
        assert_eq!(one.peer_uid().unwrap(), rustix::process::geteuid().as_raw());
        other.shut();
        let gone = one.receive(&mut [0; 4], &mut Vec::new()).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_file_is_known_again() {
        let path = std::env::temp_dir().join(format!("nearflash-link-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert!(is_same_file(&file, &path).unwrap());
        assert!(!is_same_file(&file, Path::new("/proc/self/exe")).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(is_same_file(&file, &path).is_err());
    }

    fn tempfile() -> File {
        let fd = rustix::fs::memfd_create("link", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(fd)
    }
}
