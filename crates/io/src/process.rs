//! Another process, held by a descriptor (`pidfd_open(2)`): its holder notices the process's end,
//! and never mistakes a later process of the same number for it.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// A handle to a process. After the process's end it never stands for a later process of the same
/// number.
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
}

impl Process {
    /// Returns a handle to this process, by which other processes can watch it.
    ///
    /// # Errors
    /// Fails if there are too few descriptors, or if the kernel has no such handles (before 5.3).
    pub fn own() -> Result<Process> {
        Ok(Process { pidfd: pidfd_open(getpid(), PidfdFlags::empty())? })
    }

    /// Returns a handle to another process, made from the descriptor of its [`own`](Process::own)
    /// handle, which that process has sent.
    pub fn passed(pidfd: OwnedFd) -> Process {
        Process { pidfd }
    }

    /// Returns the handle's descriptor, which can be passed to another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Tells whether the process has ended, with all of its threads.
    pub fn has_ended(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ends = [PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match poll(&mut ends, Some(&at_once)) {
                Err(rustix::io::Errno::INTR) => {}
                polled => return polled.is_ok_and(|ready| ready > 0),
            }
        }
    }

    /// Kills the process, even a stopped one. The process has ended only when
    /// [`has_ended`](Process::has_ended) says so: threads that wait for a disk in the kernel end later.
    ///
    /// # Errors
    /// Fails if the process belongs to another user, is not in this process's PID namespace or one
    /// below it, or has ended.
    pub fn kill(&self) -> Result<()> {
        Ok(pidfd_send_signal(&self.pidfd, Signal::KILL)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_end_is_seen_and_no_other() {
        let own = Process::own().unwrap();
        assert!(!Process::passed(own.descriptor().try_clone_to_owned().unwrap()).has_ended());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let process = Process::passed(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        assert!(!process.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(process.kill().is_err(), "nobody is there any more");
    }

    #[test]
    fn who_stands_still_is_ended_all_the_same() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let process = Process::passed(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        process.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(process.has_ended());
    }
}
