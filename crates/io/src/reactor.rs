//! What the outer loop needs of whoever waits for the kernel, and what a server needs of the sockets
//! above it: the seam between io_uring and epoll.

use std::sync::Arc;
use std::time::Duration;

use contract::{Dial, ListenerId, Transport};

use crate::{Endpoint, EpollReactor, EpollSockets, Error, Listener, Ring, Sockets, SocketsConfig};
use crate::{Spread, Waker};

/// Waits for the kernel on behalf of one thread. Static dispatch: the loop over a [`Ring`] costs
/// what it would without this trait.
pub trait Reactor: Sized {
    /// One for the calling thread, which alone may use it.
    ///
    /// # Errors
    /// Says what is missing or forbidden.
    fn new() -> Result<Self, Error>;

    /// Enters the kernel once for everything that was queued. With `wait` it blocks until there is
    /// an event or the duration (`None`: no limit) is over. Returns whether there was an event.
    fn enter(&self, wait: Option<Option<Duration>>) -> bool;

    /// What ends the thread's wait.
    fn waker(&self) -> Waker;
}

/// A worker's sockets over a [`Reactor`]. The two implementations keep the same promises, which
/// `tests/all/sockets.rs` checks for both.
pub trait Network: Dial + Transport + Sized {
    /// What it waits with.
    type Reactor: Reactor;

    /// Sockets of the calling thread.
    ///
    /// # Errors
    /// When memory or descriptors do not suffice for what `config` asks.
    fn new(reactor: &Self::Reactor, config: SocketsConfig) -> Result<Self, Error>;

    /// Takes part in `spread` as its worker number `worker`.
    fn join(&mut self, spread: Arc<Spread>, worker: usize);

    /// Accepts connections from `listener`.
    ///
    /// # Errors
    /// When the listener cannot be watched.
    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error>;

    /// Closes a listener. Connections that came by it stay.
    fn unlisten(&mut self, id: ListenerId);

    /// Accepts nothing for now (arrivals wait in the kernel), or again.
    fn hold(&mut self, is_held: bool);

    /// Turns away whoever comes by a listener, or lets them in again.
    fn refuse(&mut self, id: ListenerId, refuses: bool);

    /// Whether an accept may still bring a connection.
    fn accepts(&self) -> bool;

    /// Makes [`Dial::dial`] connect to `server`.
    fn dial_to(&mut self, server: impl Into<Endpoint>);
}

impl Reactor for Ring {
    fn new() -> Result<Self, Error> {
        Ring::new()
    }

    fn enter(&self, wait: Option<Option<Duration>>) -> bool {
        Ring::enter(self, wait)
    }

    fn waker(&self) -> Waker {
        Ring::waker(self)
    }
}

impl Reactor for EpollReactor {
    fn new() -> Result<Self, Error> {
        EpollReactor::new()
    }

    fn enter(&self, wait: Option<Option<Duration>>) -> bool {
        EpollReactor::enter(self, wait)
    }

    fn waker(&self) -> Waker {
        EpollReactor::waker(self)
    }
}

impl Network for Sockets {
    type Reactor = Ring;

    fn new(reactor: &Ring, config: SocketsConfig) -> Result<Self, Error> {
        Sockets::new(reactor, config)
    }

    fn join(&mut self, spread: Arc<Spread>, worker: usize) {
        Sockets::join(self, spread, worker);
    }

    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error> {
        Sockets::listen(self, id, listener);
        Ok(())
    }

    fn unlisten(&mut self, id: ListenerId) {
        Sockets::unlisten(self, id);
    }

    fn hold(&mut self, is_held: bool) {
        Sockets::hold(self, is_held);
    }

    fn refuse(&mut self, id: ListenerId, refuses: bool) {
        Sockets::refuse(self, id, refuses);
    }

    fn accepts(&self) -> bool {
        Sockets::accepts(self)
    }

    fn dial_to(&mut self, server: impl Into<Endpoint>) {
        Sockets::dial_to(self, server);
    }
}

impl Network for EpollSockets {
    type Reactor = EpollReactor;

    fn new(reactor: &EpollReactor, config: SocketsConfig) -> Result<Self, Error> {
        EpollSockets::new(reactor, config)
    }

    fn join(&mut self, spread: Arc<Spread>, worker: usize) {
        EpollSockets::join(self, spread, worker);
    }

    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error> {
        EpollSockets::listen(self, id, listener)
    }

    fn unlisten(&mut self, id: ListenerId) {
        EpollSockets::unlisten(self, id);
    }

    fn hold(&mut self, is_held: bool) {
        EpollSockets::hold(self, is_held);
    }

    fn refuse(&mut self, id: ListenerId, refuses: bool) {
        EpollSockets::refuse(self, id, refuses);
    }

    fn accepts(&self) -> bool {
        EpollSockets::accepts(self)
    }

    fn dial_to(&mut self, server: impl Into<Endpoint>) {
        EpollSockets::dial_to(self, server);
    }
}
