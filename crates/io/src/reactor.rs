//! The abstraction over io_uring and epoll: a reactor waits for the kernel on behalf of the outer
//! loop, and a network is the sockets of a server or initiator above it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use contract::{Dial, ListenerId, Transport};
use packets::PacketKey;

use crate::{ClientTls, ConnectionBalancer, Endpoint, Error, Listener, SocketsConfig, Waker};

/// A thread's interface for waiting on the kernel. Dispatch is static, so the loop over a
/// [`Ring`](crate::Ring) costs nothing more for it.
pub trait Reactor: Sized {
    /// Returns a reactor for the calling thread only.
    ///
    /// # Errors
    /// Fails if the kernel or its settings do not allow it; the error says what is missing or
    /// forbidden.
    fn new() -> Result<Self, Error>;

    /// Enters the kernel once for all entries that were queued. `Some` in `wait` blocks until there
    /// is an event or the duration is over (`Some(None)`: no limit). Returns whether there was an
    /// event.
    fn enter(&self, wait: Option<Option<Duration>>) -> bool;

    /// Returns a handle that ends the thread's wait in [`enter`](Reactor::enter).
    fn waker(&self) -> Waker;

    /// Returns a descriptor that signals the reactor's events from now on; called once for each
    /// reactor. Entries that are queued and not submitted cause no signal.
    ///
    /// # Errors
    /// Fails if there are too few descriptors.
    fn bell(&self) -> Result<ReadyDescriptor, Error>;
}

/// A descriptor that is readable when a reactor has events.
#[derive(Debug)]
pub struct ReadyDescriptor {
    pub(crate) fd: OwnedFd,
    /// `true` for a descriptor that stays readable until the holder reads it (an eventfd); `false`
    /// for a descriptor that is readable while the reactor has events.
    pub(crate) is_counter: bool,
}

/// A worker's sockets over a [`Reactor`]. The implementations over io_uring and epoll behave alike,
/// which `tests/all/sockets.rs` checks.
pub trait Network: Dial + Transport + Sized {
    /// The reactor of the sockets' thread.
    type Reactor: Reactor;

    /// Creates the sockets of the calling thread.
    ///
    /// # Errors
    /// Fails if memory or descriptors do not suffice for what `config` asks.
    fn new(reactor: &Self::Reactor, config: SocketsConfig) -> Result<Self, Error>;

    /// Joins the workers among which `spread` distributes connections, as worker number `worker`.
    fn join(&mut self, spread: Arc<ConnectionBalancer>, worker: usize);

    /// Accepts connections from `listener`.
    ///
    /// # Errors
    /// Fails if the listener cannot be watched.
    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error>;

    /// Closes a listener. Connections that came by the listener stay.
    fn unlisten(&mut self, id: ListenerId);

    /// Stops accepting connections, or resumes it. While it is stopped, new connections wait in the
    /// kernel, or their clients try again. A [`stop_listening`](Transport::stop_listening) in that
    /// time leaves the sockets to another process, so that connections over packets end.
    fn hold(&mut self, is_held: bool);

    /// Refuses new connections at a listener if `refuses`, or accepts them again otherwise.
    fn refuse(&mut self, id: ListenerId, refuses: bool);

    /// Returns whether a listener may still yield a connection.
    fn accepts(&self) -> bool;

    /// Makes [`Dial::dial`] connect to `server`.
    fn dial_to(&mut self, server: impl Into<Endpoint>);

    /// Makes [`Dial::dial`] connect over TLS from now on.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    fn dial_over(&mut self, tls: ClientTls) -> Result<(), Error>;

    /// Makes [`Dial::dial`] use sealed packets alone from now on, under `key`.
    ///
    /// # Errors
    /// Fails if these sockets do not send packets.
    fn dial_sealed(&mut self, key: PacketKey) -> Result<(), Error>;
}
