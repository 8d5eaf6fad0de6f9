//! The server's interface to the kernel: io_uring, or epoll where io_uring is forbidden.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

use io::{EpollReactor, EpollSockets, Network, PacketSockets, Reactor, Ring, Sockets};

use crate::log;
use crate::volumes::Through;

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

/// The kernel interface that all workers of a process use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// An io_uring for each worker.
    IoUring,
    /// epoll for sockets, a pool of threads for files.
    Epoll,
}

impl Interface {
    /// Chooses the interface for all workers by a trial. A fallback is logged once, with its reason
    /// and its cost.
    pub fn choose(self) -> Result<Chosen, String> {
        if self == Interface::Epoll {
            return Ok(Chosen::Epoll);
        }
        match (Ring::new(), self) {
            (Ok(_), _) => Ok(Chosen::IoUring),
            (Err(error), Interface::Auto) => {
                log::say(format_args!(
                    "warning: {error}; serving through epoll instead, which costs more processor \
                     time a request and reaches files through threads"
                ));
                Ok(Chosen::Epoll)
            }
            (Err(error), _) => Err(error.to_string()),
        }
    }
}

/// A kind of sockets that a worker can be built on.
pub(crate) trait Way: Network {
    /// Returns the kernel interface that devices use beside these sockets.
    fn through(reactor: &Self::Reactor) -> Through<'_>;
}

impl Way for Sockets {
    fn through(reactor: &Ring) -> Through<'_> {
        Through::Ring(reactor)
    }
}

impl Way for PacketSockets {
    fn through(reactor: &Ring) -> Through<'_> {
        Through::Ring(reactor)
    }
}

impl Way for EpollSockets {
    fn through(reactor: &EpollReactor) -> Through<'_> {
        Through::Threads(reactor.waker())
    }
}
