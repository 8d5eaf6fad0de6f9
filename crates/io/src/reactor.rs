//! The seam between io_uring and epoll: a reactor waits for the kernel on behalf of the outer loop,
//! and a network is the sockets of a server or initiator above it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use contract::{Dial, ListenerId, Transport};

use crate::{ClientTls, Endpoint, Error, Listener, SocketsConfig, Spread, Waker};

/// A thread's way to wait for the kernel. Dispatch is static: the loop over a
/// [`Ring`](crate::Ring) costs what it would without this trait.
pub trait Reactor: Sized {
    /// Returns a reactor of the calling thread, which alone may use it.
    ///
    /// # Errors
    /// Says what is missing or forbidden.
    fn new() -> Result<Self, Error>;

    /// Enters the kernel once for everything that was queued. With `wait` it blocks until there is
    /// an event or the duration (`None`: no limit) is over. Returns whether there was an event.
    fn enter(&self, wait: Option<Option<Duration>>) -> bool;

    /// Returns a handle that ends the thread's wait in [`enter`](Reactor::enter).
    fn waker(&self) -> Waker;

    /// Returns the descriptor that tells of events from now on, once a reactor. What was queued and
    /// has not entered the kernel causes none.
    ///
    /// # Errors
    /// Fails if there are too few descriptors.
    fn bell(&self) -> Result<Bell, Error>;
}

/// A descriptor that is readable when a reactor has events.
#[derive(Debug)]
pub struct Bell {
    pub(crate) fd: OwnedFd,
    /// `true` if the descriptor is readable until it is read, and not while there are events.
    pub(crate) is_counter: bool,
}

/// A worker's sockets over a [`Reactor`]. Over io_uring and over epoll they keep the same promises,
/// which `tests/all/sockets.rs` checks for both.
pub trait Network: Dial + Transport + Sized {
    /// The reactor that the sockets' thread waits with.
    type Reactor: Reactor;

    /// Returns sockets of the calling thread.
    ///
    /// # Errors
    /// Fails if memory or descriptors do not suffice for what `config` asks.
    fn new(reactor: &Self::Reactor, config: SocketsConfig) -> Result<Self, Error>;

    /// Takes part in `spread` as its worker number `worker`.
    fn join(&mut self, spread: Arc<Spread>, worker: usize);

    /// Accepts connections from `listener`.
    ///
    /// # Errors
    /// Fails if the listener cannot be watched.
    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error>;

    /// Closes a listener. Connections that came by the listener stay.
    fn unlisten(&mut self, id: ListenerId);

    /// Accepts nothing for now (arrivals wait in the kernel), or again.
    fn hold(&mut self, is_held: bool);

    /// Turns away new connections that come by a listener, or lets them in again.
    fn refuse(&mut self, id: ListenerId, refuses: bool);

    /// Tells whether an accept may still bring a connection.
    fn accepts(&self) -> bool;

    /// Makes [`Dial::dial`] connect to `server`.
    fn dial_to(&mut self, server: impl Into<Endpoint>);

    /// Makes [`Dial::dial`] connect over TLS from now on.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    fn dial_over(&mut self, tls: ClientTls) -> Result<(), Error>;
}
