//! The kernel interface of the workers: io_uring or epoll.

use io::{EpollReactor, EpollSockets, Network, PacketSockets, Reactor, Ring, Sockets};

use crate::volumes::FileBackend;

/// The kernel interface that all workers of a process use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelInterface {
    /// An io_uring for each worker.
    IoUring,
    /// epoll for sockets, a pool of threads for files.
    Epoll,
}

/// A kind of sockets (of io_uring or epoll) that a worker can be built on.
pub trait SocketBackend: Network {
    /// Returns the kernel interface that devices use beside these sockets.
    fn through(reactor: &Self::Reactor) -> FileBackend<'_>;
}

impl SocketBackend for Sockets {
    fn through(reactor: &Ring) -> FileBackend<'_> {
        FileBackend::Ring(reactor)
    }
}

impl SocketBackend for PacketSockets {
    fn through(reactor: &Ring) -> FileBackend<'_> {
        FileBackend::Ring(reactor)
    }
}

impl SocketBackend for EpollSockets {
    fn through(reactor: &EpollReactor) -> FileBackend<'_> {
        FileBackend::Threads(reactor.waker())
    }
}
