//! The differences between the kernel interfaces: the ports that io_uring and epoll implement.

use std::os::fd::OwnedFd;

use contract::Buf;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::listeners::Listeners;
use super::table::{ConnState, ConnTable, ReceiveTarget};
use crate::{Endpoint, Error, Listener, Reactor, SocketsConfig};

/// A kernel interface for streams: io_uring or epoll. The caller owns the table of connections; the
/// methods change the entries that they concern, and add events to the table.
pub trait Kernel: Receive + Accept + Sized {
    /// The reactor of the thread.
    type Reactor: Reactor;

    /// Flags with which sockets for dialling are created.
    const FLAGS: SocketFlags;

    /// Creates the interface of the calling thread.
    ///
    /// # Errors
    /// Fails if memory or descriptors do not suffice for what `config` asks.
    fn new(reactor: &Self::Reactor, config: &SocketsConfig) -> Result<Self, Error>;

    /// Registers the socket of the reserved place `index` of the table with the kernel interface.
    fn register(
        &mut self,
        table: &ConnTable<Self::ConnState>,
        index: u32,
        socket: &OwnedFd,
    ) -> std::io::Result<()>;

    /// Unregisters the socket of the place `index` of the table.
    fn unregister(&mut self, index: u32, socket: &OwnedFd);

    /// Starts to connect a socket to `server`, and returns its index in the table.
    ///
    /// # Errors
    /// Fails if there is no place, or the kernel refuses at once.
    fn connect(
        &mut self,
        table: &mut ConnTable<Self::ConnState>,
        socket: OwnedFd,
        server: &Endpoint,
    ) -> Result<u32, Errno>;

    /// Processes the kernel's reports: received bytes, ends of streams, results of dials, and
    /// accepted sockets.
    fn poll(&mut self, table: &mut ConnTable<Self::ConnState>, listeners: &mut Listeners);

    /// Sends the queued frames of the connection at `index`, as many as fit into one send.
    fn flush(&mut self, table: &mut ConnTable<Self::ConnState>, index: u32);

    /// Cancels the operations in flight of the connection at `index`, which ends.
    fn cancel(&mut self, table: &mut ConnTable<Self::ConnState>, index: u32);

    /// Returns whether [`poll`](Kernel::poll) would find something now.
    fn has_work(&self, listeners: &Listeners) -> bool;
}

/// The receiving part of a [`Kernel`].
pub trait Receive {
    /// The interface's state of one connection.
    type ConnState: ConnState;

    /// Returns a receive buffer to the interface.
    fn give(&mut self, buf: Buf);

    /// Makes the connection's next bytes arrive in `target`, a buffer of the caller.
    ///
    /// # Errors
    /// Returns the buffer if the connection has another one that is not filled yet.
    fn receive_into(
        &mut self,
        table: &mut ConnTable<Self::ConnState>,
        index: u32,
        target: ReceiveTarget,
    ) -> Result<(), Buf>;

    /// Begins to receive on a new connection at the end of the turn: a few bytes first, so that
    /// its first payload stays in the kernel until the head of the message is parsed.
    fn start_bounded(&mut self, table: &mut ConnTable<Self::ConnState>, index: u32);

    /// Begins to receive on a connection that is new, or resumed.
    fn start(&mut self, table: &mut ConnTable<Self::ConnState>, index: u32);

    /// Stops receiving on a connection whose flow has changed; `was_read` is `true` if data was
    /// being received before.
    fn stop(&mut self, table: &mut ConnTable<Self::ConnState>, index: u32, was_read: bool);

    /// Resumes receives of connections that were paused until the end of the turn.
    fn end_turn(&mut self, table: &mut ConnTable<Self::ConnState>);
}

/// The accepting part of a [`Kernel`].
pub trait Accept {
    /// Begins to accept connections from the listener at index `n`.
    ///
    /// # Errors
    /// Fails if the kernel cannot watch the listener.
    fn listen(&mut self, listeners: &mut Listeners, n: usize) -> Result<(), Error>;

    /// Stops accepting from the listener at index `n`, which is about to be closed.
    fn unlisten(&mut self, listeners: &mut Listeners, n: usize, listener: &Listener);

    /// Applies a change of `is_held` in `listeners`, or the end of a pause after a failed accept.
    fn follow(&mut self, listeners: &mut Listeners);

    /// Returns whether an accept may still yield a connection.
    fn accepts(listeners: &Listeners) -> bool;
}
