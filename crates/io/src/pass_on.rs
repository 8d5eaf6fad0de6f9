//! Sockets that stay open while a process replaces itself by another program (`execve(2)`).

// UNSAFETY: a descriptor of the program before has only its number here.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The highest number of the standard descriptors.
const STANDARD_MAX: i32 = 2;

/// Keeps a socket open for the program that is about to replace this one. Returns the number by
/// which that program [takes](take_passed) it.
///
/// # Errors
/// Fails if the system refuses.
pub fn pass_on(socket: impl AsFd) -> Result<i32> {
    fcntl_setfd(&socket, FdFlags::empty())?;
    Ok(socket.as_fd().as_raw_fd())
}

/// Keeps a socket for this program alone again, after an attempt to replace the program has failed.
pub fn pass_on_no_more(socket: impl AsFd) {
    let _ = fcntl_setfd(&socket, FdFlags::CLOEXEC); // it is open
}

/// Takes a socket that the previous program of this process has [passed on](pass_on), by its
/// descriptor number.
///
/// # Errors
/// Fails if there is no such descriptor, or if it belongs to this program.
pub fn take_passed(number: i32) -> Result<OwnedFd> {
    let foreign = || Error::new(ErrorKind::NotFound, format!("no socket {number} was passed on"));
    if number <= STANDARD_MAX {
        return Err(foreign());
    }
    // SAFETY: the number is looked up, and nothing is done if it is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    // Each descriptor that a part of this program has opened is closed with the program.
    if fcntl_getfd(passed).map_err(|_| foreign())?.contains(FdFlags::CLOEXEC) {
        return Err(foreign());
    }
    fcntl_setfd(passed, FdFlags::CLOEXEC)?;
    // SAFETY: nobody in this program has the descriptor, and from now on it cannot be taken again.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_taken_once_and_only_if_it_was_passed_on() {
        let (mut near, far) = UnixStream::pair().unwrap();
        assert!(take_passed(far.as_raw_fd()).is_err(), "it belongs to this program");
        let number = pass_on(&far).unwrap();
        pass_on_no_more(&far);
        assert!(take_passed(number).is_err(), "it is passed on no more");
        pass_on(&far).unwrap();
        // The program that has passed it on exists no more when it is taken.
        std::mem::forget(far);
        let mut far = UnixStream::from(take_passed(number).unwrap());
        assert!(take_passed(number).is_err(), "it was taken");
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        for none in [-1, 0, 2, i32::MAX] {
            assert!(take_passed(none).is_err(), "{none}");
        }
    }
}
