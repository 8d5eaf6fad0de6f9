//! The queue: requests of one thread in flight, driven by polls, in the caller's memory.

use std::fmt;
use std::os::fd::BorrowedFd;

use client::{Address, Done, Op, Ticket};
use contract::{BufPool, SizeClass};
use io::Waker;

use crate::engine::{AnyEngine, Event, Full, Wait};
use crate::options::Options;
use crate::tenancy::TenantRequest;
use crate::{Error, Slo};

/// Requests in flight to a server's namespace, over connections of the queue's own: what the clients
/// and the C library stand on.
///
/// A queue belongs to the thread that made it. [`submit`](Queue::submit) never blocks and never
/// enters the kernel; [`poll`](Queue::poll) sends what was submitted, in one system call, and
/// returns what has ended. After the first requests of each kind, neither allocates memory.
///
/// A request's memory travels with it as a [`Buf`](crate::Buf) and comes back in its [`Done`], on
/// errors too. Writes are sent from this memory. Data of reads from 32 KiB on is received into it,
/// except for the few bytes that come with its head; data of smaller reads is copied into it once.
///
/// When a connection is lost, the queue connects again and repeats the requests that are safe to
/// repeat, as a [`Client`](crate::Client) does. Dropping the queue closes it.
///
/// ```no_run
/// use nearflash::{Command, Op, Options, Queue, Range, SizeClass, Wait, memory};
///
/// # fn main() -> Result<(), nearflash::Error> {
/// let mut queue = Queue::connect("reflex://127.0.0.1:7420", &Options::default())?;
/// let mut pool = memory(&[SizeClass { bytes: 4096, count: 32 }])?;
/// let mut done = Vec::with_capacity(256);
/// let read = Command::Read(Range::new(0, 8));
/// queue.submit(Op::new(read, pool.take(4096))).expect("nothing is in flight yet");
/// while queue.in_flight() > 0 {
///     queue.poll(&mut done, Wait::Sleep(std::time::Duration::from_secs(1)));
///     for ended in done.drain(..) {
///         println!("{:?}", ended.status);
///         pool.give(ended.buf.expect("a read has a buffer"));
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Queue {
    engine: AnyEngine,
}

contract::variants!(engine, AnyEngine: Ring, Epoll, Packets);

impl Queue {
    /// Returns a queue to the server at `url`, as [`Client::connect`](crate::Client::connect) takes
    /// it. The name of a host is looked up before the call returns; the queue connects with its
    /// polls. Requests can be submitted at once.
    ///
    /// # Errors
    /// [`Error::Address`] for an invalid or unknown address, or [`Error::System`]. A server that
    /// cannot be reached is reported as [`Event::Lost`].
    ///
    /// # Panics
    /// If the options ask for no connection or no request in flight.
    pub fn connect(url: &str, options: &Options) -> Result<Queue, Error> {
        let address: Address = url.parse().map_err(|e| Error::Address(format!("`{url}`: {e}")))?;
        Queue::to(&address, options)
    }

    pub(crate) fn to(address: &Address, options: &Options) -> Result<Queue, Error> {
        options.check();
        AnyEngine::new(address, options).map(|engine| Queue { engine })
    }

    /// Returns `true` if requests can be sent now on this connection, below
    /// [`Options::connections`].
    pub fn is_open(&self, connection: usize) -> bool {
        engine!(&self.engine, engine => engine.initiator().is_connected(connection))
    }

    /// Returns the number of requests that [`submit`](Queue::submit) takes now.
    pub fn room(&self) -> usize {
        engine!(&self.engine, engine => engine.initiator().room())
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        engine!(&self.engine, engine => engine.initiator().in_flight())
    }

    /// Returns the number of bytes of reads that were copied into their buffers so far. All others
    /// were received into them, and bytes of writes are never copied.
    pub fn copied_bytes(&self) -> u64 {
        engine!(&self.engine, engine => engine.initiator().copied_bytes())
    }

    /// Submits a request. The next [`poll`](Queue::poll) or [`kick`](Queue::kick) sends it, and a
    /// later poll returns its end.
    ///
    /// # Errors
    /// [`Full`] gives the request back: [`Options::in_flight_max`] requests are in flight.
    ///
    /// # Panics
    /// If the buffer is smaller than the command's payload or reply, or the payload is missing.
    pub fn submit(&mut self, op: Op) -> Result<Ticket, Full> {
        engine!(&mut self.engine, engine => engine.submit(op))
    }

    /// Sends the requests that were submitted, and does nothing else.
    pub fn kick(&mut self) {
        engine!(&mut self.engine, engine => engine.kick());
    }

    /// Sends the requests that were submitted, and appends those that have ended to `done`: at most
    /// [`Options::in_flight_max`]. Waits for the first one as `wait` says. Returns their number, or
    /// zero when there is an [`event`](Queue::event), a [waker](Queue::waker) was used or the time is
    /// over.
    pub fn poll(&mut self, done: &mut Vec<Done>, wait: Wait) -> usize {
        engine!(&mut self.engine, engine => engine.poll(done, wait))
    }

    /// Returns the oldest event that was not returned yet; `None` if there is none. At most 256
    /// events about connections and notices wait; further ones are dropped.
    pub fn event(&mut self) -> Option<Event> {
        engine!(&mut self.engine, engine => engine.pop_event())
    }

    /// Returns a descriptor for an event loop. The descriptor is readable when
    /// [`poll`](Queue::poll) has something to do, besides sending what was just submitted. It is
    /// level-triggered and belongs to the queue.
    ///
    /// # Errors
    /// [`Error::System`] if there are too few descriptors.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>, Error> {
        engine!(&mut self.engine, engine => engine.fd())
    }

    /// Returns a handle with which another thread ends this thread's wait in
    /// [`poll`](Queue::poll).
    pub fn waker(&self) -> Waker {
        engine!(&self.engine, engine => engine.waker())
    }

    /// Asks the server for the namespace's properties. An [`Event::Info`] with the returned ticket
    /// brings them.
    ///
    /// # Errors
    /// [`Error::Full`] if the maximum number of requests is in flight.
    pub fn info(&mut self) -> Result<Ticket, Error> {
        engine!(&mut self.engine, engine => engine.info())
    }

    /// Registers a tenant, like [`Client::register`](crate::Client::register). [`Event::Tenant`]
    /// brings the answer.
    ///
    /// # Errors
    /// [`Error::Full`] while another request about the tenant is under way.
    pub fn register(&mut self, name: &str, slo: Slo) -> Result<(), Error> {
        self.begin(TenantRequest::Register { name: name.to_owned(), slo })
    }

    /// Changes the tenant's SLO, like [`Client::renegotiate`](crate::Client::renegotiate).
    /// [`Event::Tenant`] brings the answer.
    ///
    /// # Errors
    /// [`Error::Full`] while another request about the tenant is under way; [`Error::Failed`] with
    /// `NoTenant` if none is registered.
    pub fn renegotiate(&mut self, slo: Slo) -> Result<(), Error> {
        self.begin(TenantRequest::Renegotiate { slo })
    }

    /// Unregisters the tenant, like [`Client::unregister`](crate::Client::unregister).
    /// [`Event::Tenant`] brings the answer.
    ///
    /// # Errors
    /// Fails as [`renegotiate`](Queue::renegotiate) does.
    pub fn unregister(&mut self) -> Result<(), Error> {
        self.begin(TenantRequest::Unregister)
    }

    pub(crate) fn begin(&mut self, wish: TenantRequest) -> Result<(), Error> {
        engine!(&mut self.engine, engine => engine.begin(wish))
    }

    /// Closes the connections, and waits until the kernel is done with the memory of all requests.
    /// Requests in flight end as `ConnectionLost` in `done`. Returns `false` if the kernel still had
    /// some memory after 5 s; that of requests which are not in `done` must then stay mapped and
    /// untouched for good.
    pub fn close(mut self, done: &mut Vec<Done>) -> bool {
        engine!(&mut self.engine, engine => engine.close(done))
    }

    /// Ends the queue in a child process that was forked: closes the child's descriptors, and
    /// leaves the connections, which are the parent's, alone.
    pub fn leave_to_parent(mut self) {
        engine!(&mut self.engine, engine => engine.disown());
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Returns a pool of page-aligned buffers of these sizes, for requests of any queue. The memory
/// becomes resident when it is first touched and lives as long as the process.
///
/// # Errors
/// [`Error::System`] if there is no memory.
pub fn memory(classes: &[SizeClass]) -> Result<BufPool, Error> {
    let arena = io::carve(classes).map_err(|e| Error::System(e.to_string()))?;
    Ok(BufPool::new(arena.bufs))
}
