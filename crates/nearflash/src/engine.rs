//! The engine of a queue over one kernel interface: an initiator, a reactor and a clock on one
//! thread.
//!
//! This module deliberately leaves out the waiters for answers: the caller keeps them by ticket.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use client::{Address, Done, Initiator, Loss, Op, Report, Ticket};
use contract::{ControlRequest, Instant, NamespaceId};
use io::{
    ClientTls, Clock, Endpoint, EpollReactor, EpollSockets, Network, PacketSockets, Reactor,
    Readiness, Ring, Sockets, SocketsConfig, Waker,
};

use crate::options::Options;
use crate::tenancy::{Notice, Tenancy, TenantQuestion, TenantRequest};
use crate::{Error, Info, Registered};

/// Maximum number of events that wait for the program. Further events about connections and further
/// notices are dropped; answers to requests are not.
const EVENTS_MAX: usize = 256;

/// Maximum time that closing a queue waits for the kernel to return the buffers.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The request that was rejected because the maximum number of requests is in flight.
#[derive(Debug)]
pub struct Full(pub Op);

/// An event of a queue, except the end of a request about data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection is ready for requests.
    Connected {
        /// Index of the connection, below [`Options::connections`].
        connection: usize,
    },
    /// A connection, or an attempt to make one, ended. The queue dials again after a pause.
    Lost {
        /// Index of the connection, below [`Options::connections`].
        connection: usize,
        /// The reason, with words for the user.
        why: Error,
    },
    /// The answer to a request for the namespace's properties.
    Info {
        /// The ticket that [`Queue::info`](crate::Queue::info) returned for the request.
        ticket: Ticket,
        /// The namespace's properties, or the reason why the server did not tell them.
        info: Result<Info, Error>,
    },
    /// The answer to a request about the tenant.
    Tenant(Result<Registered, Error>),
    /// The tenant demands more than its SLO.
    Notice(Notice),
}

/// The way in which a poll waits while no request has ended and there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Polls once and returns without waiting.
    No,
    /// Polls repeatedly for this time, without sleeping: the least latency, at the cost of a whole
    /// core.
    Spin(Duration),
    /// Sleeps in the kernel for at most this time, after polling for [`Options::spin`].
    Sleep(Duration),
}

impl Wait {
    fn limit(self) -> Duration {
        match self {
            Wait::No => Duration::ZERO,
            Wait::Spin(limit) | Wait::Sleep(limit) => limit,
        }
    }
}

/// The initiator, the reactor and the clock of a queue, over one kernel interface.
pub(crate) struct Engine<N: Network> {
    initiator: Initiator<N>,
    reactor: N::Reactor,
    waker: Waker,
    clock: Clock,
    /// The descriptor for event loops; `None` until it was requested.
    readiness: Option<Readiness>,
    address: Address,
    namespace: Option<NamespaceId>,
    tenancy: Tenancy,
    /// The requests about the tenant in flight, by their tickets' indices.
    asked: Vec<Option<TenantQuestion>>,
    events: VecDeque<Event>,
    spin: Duration,
    /// Time of the last turn in which the initiator had work.
    progressed_at: Instant,
    /// `true` in a forked child, whose parent made the engine: dropping it then only closes
    /// descriptors.
    is_foreign: bool,
}

/// An engine over io_uring or epoll, or over packets with io_uring.
pub(crate) enum AnyEngine {
    Ring(Box<Engine<Sockets>>),
    Epoll(Box<Engine<EpollSockets>>),
    Packets(Box<Engine<PacketSockets>>),
}

impl AnyEngine {
    /// Returns an engine, which dials with its first poll. It uses io_uring, or epoll where
    /// io_uring is forbidden, as in many containers. epoll costs some speed and nothing else.
    /// Packets need io_uring.
    pub(crate) fn new(address: &Address, options: &Options) -> Result<AnyEngine, Error> {
        let in_packets = address.place.is_of_packets();
        match Ring::new() {
            Ok(ring) if in_packets => {
                Engine::new(ring, address, options).map(Box::new).map(AnyEngine::Packets)
            }
            Err(no_ring) if in_packets => Err(Error::System(no_ring.to_string())),
            Ok(ring) => Engine::new(ring, address, options).map(Box::new).map(AnyEngine::Ring),
            Err(no_ring) => match EpollReactor::new() {
                Ok(epoll) => {
                    Engine::new(epoll, address, options).map(Box::new).map(AnyEngine::Epoll)
                }
                Err(_) => Err(Error::System(no_ring.to_string())),
            },
        }
    }
}

impl<N: Network> Engine<N> {
    fn new(reactor: N::Reactor, address: &Address, options: &Options) -> Result<Self, Error> {
        let server = Endpoint::find(&address.place).map_err(|e| Error::Address(e.to_string()))?;
        let config = SocketsConfig {
            connections_max: options.connections + 4,
            receive_buffers: 64,
            frames_max: options.in_flight_max + 4 * options.connections,
            ..SocketsConfig::default()
        };
        let sockets = N::new(&reactor, config);
        let mut sockets = sockets.map_err(|e| Error::System(e.to_string()))?;
        sockets.dial_to(server);
        if let Some(tls) = tls_of(address)? {
            sockets.dial_over(tls).map_err(|e| Error::System(e.to_string()))?;
        }
        if let Some(file) = &address.key {
            let key =
                io::read_packet_key(Path::new(file)).map_err(|e| Error::Address(e.to_string()))?;
            sockets.dial_sealed(key).map_err(|e| Error::System(e.to_string()))?;
        }
        Ok(Engine {
            initiator: Initiator::new(sockets, options.for_initiator(address.version)),
            waker: reactor.waker(),
            reactor,
            clock: Clock::start(),
            readiness: None,
            address: address.clone(),
            namespace: options.namespace.map(NamespaceId),
            tenancy: Tenancy::new(options.connections),
            asked: vec![None; options.in_flight_max],
            events: VecDeque::with_capacity(EVENTS_MAX),
            spin: options.spin,
            progressed_at: Instant::ZERO,
            is_foreign: false,
        })
    }

    pub(crate) fn initiator(&self) -> &Initiator<N> {
        &self.initiator
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn submit(&mut self, mut op: Op) -> Result<Ticket, Full> {
        op.namespace = op.namespace.or(self.namespace);
        self.initiator.submit(self.clock.now(), op).map_err(|full| Full(full.0))
    }

    pub(crate) fn info(&mut self) -> Result<Ticket, Error> {
        let question = ControlRequest::Info { tag: 0, namespace: self.namespace };
        self.initiator.control(self.clock.now(), None, question).map_err(|_| Error::Full)
    }

    /// Starts a request about the tenant. Fails with [`Error::Full`] if one is in progress.
    pub(crate) fn begin(&mut self, wish: TenantRequest) -> Result<(), Error> {
        self.tenancy.begin(&mut self.initiator, wish)?;
        self.ask(self.clock.now());
        Ok(())
    }

    pub(crate) fn kick(&mut self) {
        let now = self.clock.now();
        self.initiator.flush(now);
        self.reactor.enter(None);
        self.set_readiness(now);
    }

    pub(crate) fn poll(&mut self, done: &mut Vec<Done>, wait: Wait) -> usize {
        let had = done.len();
        self.clear_readiness();
        let mut now = self.clock.now();
        let until = now + wait.limit();
        self.initiator.flush(now);
        self.reactor.enter(None);
        loop {
            let has_events = self.turn(now, done);
            if has_events || done.len() > had || now >= until || self.waker.was_woken() {
                // The completions that this poll has taken rang once more.
                self.clear_readiness();
                // What the turn has queued leaves, also if nobody polls for a while.
                self.reactor.enter(None);
                self.set_readiness(now);
                return done.len() - had;
            }
            let sleep = self.nap(now, until, wait);
            if !self.reactor.enter(sleep) && sleep.is_none() {
                std::hint::spin_loop();
            }
            now = self.clock.now();
        }
    }

    /// Returns for how long a poll that ends at `until` should sleep from `now` on: `Some(None)`
    /// until there is work, `None` to look again at once. A sleep ends `spin` before a timer, as
    /// waking takes a while.
    fn nap(&self, now: Instant, until: Instant, wait: Wait) -> Option<Option<Duration>> {
        let spins = matches!(wait, Wait::Spin(_)) || now.since(self.progressed_at) < self.spin;
        if spins {
            return None;
        }
        let at = self.initiator.wake_at().map_or(until, |at| at.min(until));
        if at == Instant::from_nanos(u64::MAX) {
            return Some(None);
        }
        let left = at.since(now);
        (left > self.spin).then(|| Some(left - self.spin))
    }

    /// Takes a turn of the initiator. Returns `true` if the turn queued an event.
    fn turn(&mut self, now: Instant, done: &mut Vec<Done>) -> bool {
        if self.initiator.turn(now, done) {
            self.progressed_at = now;
        }
        let had = self.events.len();
        let reports: Vec<Report> = self.initiator.reports().collect(); // allocates nothing if empty
        for report in reports {
            self.take_report(report);
        }
        self.ask(now);
        self.initiator.flush(now);
        self.events.len() > had
    }

    fn take_report(&mut self, report: Report) {
        match report {
            Report::Connected { link, .. } => {
                self.tenancy.connected(&mut self.initiator, link);
                self.tell(Event::Connected { connection: link });
            }
            Report::Lost { link, why } => {
                self.tenancy.lost(link);
                let why = Error::Connect(unreachable_text(&self.address, why));
                self.tell(Event::Lost { connection: link, why });
            }
            Report::Info(ticket, info) => {
                let info = info.map(Info::from).map_err(Error::from);
                self.events.push_back(Event::Info { ticket, info });
            }
            Report::Tenant(ticket, status, reply) => {
                let asked = self.asked[ticket.index()].take();
                let asked = asked.expect("only questions about the tenant are answered so");
                let outcome = self.tenancy.answered(&mut self.initiator, asked, status, reply);
                self.events.extend(outcome.map(Event::Tenant));
            }
            Report::Notice {
                notice: contract::Notice::Renegotiate { iops, read_percent, .. },
                ..
            } => self.tell(Event::Notice(Notice { iops, read_percent })),
            Report::Notice { .. } | Report::Pong(..) => {}
        }
    }

    /// Queues an event, or drops it if [`EVENTS_MAX`] events wait already.
    fn tell(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// Sends waiting requests about the tenant while there is room in flight.
    fn ask(&mut self, now: Instant) {
        let asked = &mut self.asked;
        self.tenancy.ask(&mut self.initiator, now, |ticket, purpose| {
            let before = asked[ticket.index()].replace(purpose);
            assert!(before.is_none(), "a ticket's index names one request");
        });
    }

    fn clear_readiness(&self) {
        if let Some(readiness) = &self.readiness {
            readiness.clear();
        }
    }

    fn set_readiness(&mut self, now: Instant) {
        if let Some(readiness) = &mut self.readiness {
            readiness.set(now, self.initiator.wake_at());
        }
    }

    /// Returns the descriptor for event loops, which is opened at the first call.
    pub(crate) fn fd(&mut self) -> Result<BorrowedFd<'_>, Error> {
        if self.readiness.is_none() {
            let made = Readiness::new(&self.reactor);
            self.readiness = Some(made.map_err(|e| Error::System(e.to_string()))?);
            self.kick();
        }
        Ok(self.readiness.as_ref().expect("it was just made").fd())
    }

    /// Closes the connections, and waits at most [`CLOSE_MAX`] until the kernel has returned all
    /// buffers. Returns `true` if the kernel has.
    pub(crate) fn close(&mut self, done: &mut Vec<Done>) -> bool {
        self.initiator.close();
        let until = self.clock.now() + CLOSE_MAX;
        loop {
            let now = self.clock.now();
            self.turn(now, done);
            if self.initiator.is_closed() || now >= until {
                self.turn(now, done); // ends what came home last
                return self.initiator.is_closed();
            }
            self.reactor.enter(Some(Some(Duration::from_millis(10))));
        }
    }

    pub(crate) fn disown(&mut self) {
        self.is_foreign = true;
    }
}

impl<N: Network> Drop for Engine<N> {
    /// Waits for the kernel's last completion: until then, it may use the memory of requests.
    fn drop(&mut self) {
        if !self.is_foreign && !self.initiator.is_closed() {
            self.close(&mut Vec::new());
        }
    }
}

/// Returns the TLS settings of an address; `None` without TLS.
fn tls_of(address: &Address) -> Result<Option<ClientTls>, Error> {
    let Some(trust) = &address.trust else { return Ok(None) };
    let authorities = trust.authorities.as_deref().map(Path::new);
    let tls = ClientTls::new(address.certified_name(), authorities, trust.fingerprint.as_deref());
    tls.map(Some).map_err(|error| Error::Address(error.to_string()))
}

fn unreachable_text(address: &Address, why: Loss) -> String {
    let what = match (why.refused_seal(), why.errno()) {
        (Some(refusal), _) => refusal.to_owned(),
        (None, Some(errno)) => std::io::Error::from_raw_os_error(errno).to_string(),
        (None, None) => why.to_string(),
    };
    format!("cannot connect to {address}: {what}")
}
