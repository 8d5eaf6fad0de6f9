//! The server's interface to the kernel: io_uring, or epoll where io_uring is forbidden.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

use dataplane::KernelInterface;
use io::Ring;

use crate::log;

/// The requested kernel interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Interface {
    /// io_uring, and epoll where it is refused
    #[default]
    Auto,
    /// io_uring or nothing
    #[value(name = "io_uring")]
    IoUring,
    /// Event notification and a system call for each transfer
    Epoll,
}

impl Interface {
    /// Chooses the interface for all workers by a trial. A fallback is logged once, with its reason
    /// and its cost.
    pub fn choose(self) -> Result<KernelInterface, String> {
        if self == Interface::Epoll {
            return Ok(KernelInterface::Epoll);
        }
        match (Ring::new(), self) {
            (Ok(_), _) => Ok(KernelInterface::IoUring),
            (Err(error), Interface::Auto) => {
                log::say(format_args!(
                    "warning: {error}; serving through epoll instead, which costs more processor \
                     time a request and reaches files through threads"
                ));
                Ok(KernelInterface::Epoll)
            }
            (Err(error), _) => Err(error.to_string()),
        }
    }
}
