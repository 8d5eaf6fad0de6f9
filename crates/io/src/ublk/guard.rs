//! Protection of a program that serves a block device from waiting for the device itself: the
//! kernel writes pages out to the device when memory is short, and the program may need memory to
//! let it.

// UNSAFETY: calls prctl(2), whose option the safe wrappers do not know.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MlockAllFlags, mlockall};

use crate::Error;

/// Option of prctl(2): the kernel frees no memory for this thread by way of file systems or disks.
const SET_IO_FLUSHER: libc::c_int = 57;

/// Protects this process against waiting for its own device: its memory stays resident, the kernel
/// reclaims nothing through disks on its behalf, and the process is exempt from out-of-memory
/// kills. Includes threads that are started later.
///
/// # Errors
/// Fails if a protection is missing. The error names the first that is; the others hold.
pub fn guard_memory() -> Result<(), Error> {
    let mut first = Ok(());
    let mut note = |done: Result<(), Error>| {
        if first.is_ok() {
            first = done;
        }
    };
    // SAFETY: the option takes numbers only.
    let flusher = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    note(match flusher {
        0 => Ok(()),
        _ => Err(Error::system("cannot become a flusher (prctl)", io::Error::last_os_error())),
    });
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    note(mlockall(flags).map_err(|e| Error::system("cannot lock memory (mlockall)", e)));
    let score = std::fs::write("/proc/self/oom_score_adj", "-1000");
    note(score.map_err(|e| Error::system("cannot set /proc/self/oom_score_adj", e)));
    first
}

/// An exclusive hold on a block device, so that it cannot be mounted.
#[derive(Debug)]
pub struct ExclusiveHold {
    _file: OwnedFd,
}

impl ExclusiveHold {
    /// Takes the exclusive hold on an unused block device.
    ///
    /// # Errors
    /// Fails with `EBUSY` if it is mounted, or part of another device.
    pub fn take(path: &Path) -> io::Result<ExclusiveHold> {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(ExclusiveHold { _file: rustix::fs::open(path, flags, Mode::empty())? })
    }
}

/// Opens the character device through which a block device's queues are served.
pub(super) fn open_device(device: u32) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/dev/ublkc{device}"))
}
