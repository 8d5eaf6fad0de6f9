//! The differences between the kernel interfaces: the ports that io_uring and epoll implement.

use std::os::fd::OwnedFd;

use contract::Buf;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::listeners::Listeners;
use super::table::{Place, Table, Target};
use crate::{Endpoint, Error, Listener, Reactor, SocketsConfig};

/// A way to the kernel for streams. The table of connections is the caller's; the methods change the
/// places that they are about, and leave events in the table.
pub trait Kernel: Receive + Accept + Sized {
    /// The reactor that the thread waits with.
    type Reactor: Reactor;

    /// Flags of sockets that dial.
    const FLAGS: SocketFlags;

    /// Returns the interface of the calling thread.
    ///
    /// # Errors
    /// Fails if memory or descriptors do not suffice for what `config` asks.
    fn new(reactor: &Self::Reactor, config: &SocketsConfig) -> Result<Self, Error>;

    /// Makes the kernel know the socket of a reserved place.
    fn register(
        &mut self,
        table: &Table<Self::Place>,
        index: u32,
        socket: &OwnedFd,
    ) -> std::io::Result<()>;

    /// Makes the kernel forget the socket of a place.
    fn unregister(&mut self, index: u32, socket: &OwnedFd);

    /// Starts to connect a socket, and returns its place.
    ///
    /// # Errors
    /// Fails if there is no place, or the kernel refuses at once.
    fn connect(
        &mut self,
        table: &mut Table<Self::Place>,
        socket: OwnedFd,
        server: &Endpoint,
    ) -> Result<u32, Errno>;

    /// Takes what the kernel reports: bytes, ends, connects, and accepted sockets.
    fn poll(&mut self, table: &mut Table<Self::Place>, listeners: &mut Listeners);

    /// Sends what the connection has queued, as much as one send takes.
    fn flush(&mut self, table: &mut Table<Self::Place>, index: u32);

    /// Withdraws the operations in flight of a connection that ends.
    fn cancel(&mut self, table: &mut Table<Self::Place>, index: u32);

    /// Tells whether [`poll`](Kernel::poll) would find something now.
    fn has_work(&self, listeners: &Listeners) -> bool;
}

/// The receiving part of a [`Kernel`].
pub trait Receive {
    /// The state that the interface keeps of one connection.
    type Place: Place;

    /// Takes a receive buffer back.
    fn give(&mut self, buf: Buf);

    /// Expects the connection's next bytes in a buffer of the caller.
    ///
    /// # Errors
    /// Returns the buffer where another one is expected to be filled already.
    fn receive_into(
        &mut self,
        table: &mut Table<Self::Place>,
        index: u32,
        target: Target,
    ) -> Result<(), Buf>;

    /// Receives from a connection that is open, or read again.
    fn start(&mut self, table: &mut Table<Self::Place>, index: u32);

    /// Stops receiving from a connection whose flow has just changed; `was_read` says what the flow
    /// was before.
    fn stop(&mut self, table: &mut Table<Self::Place>, index: u32, was_read: bool);

    /// Receives again from connections that waited for the end of the turn.
    fn end_turn(&mut self, table: &mut Table<Self::Place>);
}

/// The accepting part of a [`Kernel`].
pub trait Accept {
    /// Accepts connections from the `n`-th listener.
    ///
    /// # Errors
    /// Fails if the kernel cannot watch the listener.
    fn listen(&mut self, listeners: &mut Listeners, n: usize) -> Result<(), Error>;

    /// Accepts no more from the `n`-th listener, which is about to be closed.
    fn unlisten(&mut self, listeners: &mut Listeners, n: usize, listener: &Listener);

    /// Follows a change of `is_held`, or the end of a pause after a failed accept.
    fn follow(&mut self, listeners: &mut Listeners);

    /// Tells whether an accept may still bring a connection.
    fn accepts(listeners: &Listeners) -> bool;
}
