//! The client's thread: its ring, sockets and initiator, between the program's queue of requests
//! and their answers.

use std::collections::VecDeque;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex};

use client::{Address, Done, Initiator, Loss, Op, Report, ServerEndpoint, Ticket};
use contract::{
    Buf, BufPool, Command, Control, NamespaceId, NamespaceInfo, SizeClass, Status, Turn,
};
use io::{
    Clock, Endpoint, EpollReactor, EpollSockets, Network, Reactor, Ring, Sockets, SocketsConfig,
    SpinPolicy, UnixPath,
};

use crate::answer::Promise;
use crate::queue::Queue;
use crate::slo::Registered;
use crate::tenancy::{Asked, Notice, Tenancy, TenantRequest};
use crate::{Error, Options};

/// The route of a request: a connection and a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Index of the connection; `None` for the least loaded.
    pub(crate) link: Option<usize>,
    pub(crate) stream: u8,
}

/// A request on its way to the thread.
#[derive(Debug)]
pub(crate) enum Request {
    /// A request about data. The answer is the data that was read, or empty.
    Data { command: Command, route: Route, payload: Vec<u8>, promise: Promise<Vec<u8>> },
    /// A request for the namespace's properties.
    Info(Promise<NamespaceInfo>),
    /// A request about the client's tenant.
    Tenant { wish: TenantRequest, promise: Promise<Registered> },
}

impl Request {
    fn buffer_bytes(&self) -> usize {
        match self {
            Request::Data { command, .. } => command.buffer_bytes(),
            Request::Info(_) | Request::Tenant { .. } => 0,
        }
    }
}

/// The receiver of an answer.
#[derive(Debug)]
enum Waiting {
    Data(Promise<Vec<u8>>),
    Info(Promise<NamespaceInfo>),
    /// The client's tenancy, for its own request.
    Tenant(Asked),
}

/// Maximum number of notices that wait for the program; the oldest is dropped.
const NOTICES_MAX: usize = 16;

/// Notices from the thread to the program.
pub(crate) type Notices = Mutex<VecDeque<Notice>>;

/// The buffers of a client: 25 MiB of address space, of which only the used part is resident.
const CLASSES: [SizeClass; 4] = [
    SizeClass { bytes: 4 << 10, count: 256 },
    SizeClass { bytes: 64 << 10, count: 64 },
    SizeClass { bytes: 1 << 20, count: 16 },
    SizeClass { bytes: 2 << 20, count: 2 },
];

/// Pools of ended clients. Buffers live as long as the process, so later clients reuse them.
static IDLE_POOLS: Mutex<Vec<BufPool>> = Mutex::new(Vec::new());

fn take_pool() -> Result<BufPool, Error> {
    if let Some(pool) = IDLE_POOLS.lock().expect("no holder panics").pop() {
        return Ok(pool);
    }
    let arena = io::carve(&CLASSES).map_err(|e| Error::System(e.to_string()))?;
    Ok(BufPool::new(arena.bufs))
}

/// Runs the client until its queue is closed. `opened` receives the first connection, or the reason
/// that there is none.
pub(crate) fn run(
    address: &Address,
    options: &Options,
    queue: &Arc<Queue<Request>>,
    notices: &Arc<Notices>,
    opened: Promise<io::Waker>,
) {
    let _closing = Closing(queue.clone());
    match Ring::new() {
        Ok(ring) => run_on::<Sockets>(&ring, address, options, queue, notices, opened),
        // Containers often forbid io_uring; epoll costs some speed and nothing else.
        Err(no_ring) => match EpollReactor::new() {
            Ok(epoll) => run_on::<EpollSockets>(&epoll, address, options, queue, notices, opened),
            Err(_) => opened.keep(Err(Error::System(no_ring.to_string()))),
        },
    }
}

fn run_on<N: Network>(
    reactor: &N::Reactor,
    address: &Address,
    options: &Options,
    queue: &Arc<Queue<Request>>,
    notices: &Arc<Notices>,
    opened: Promise<io::Waker>,
) {
    match Engine::<N>::open(reactor, address, options, queue.clone(), notices.clone()) {
        Ok(engine) => engine.run(reactor, options, address, opened),
        Err(error) => opened.keep(Err(error)),
    }
}

/// Closes the queue on drop, also when its holder panics.
#[derive(Debug)]
pub(crate) struct Closing(pub(crate) Arc<Queue<Request>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Looks up the host.
fn find(place: &ServerEndpoint) -> Result<Endpoint, Error> {
    match place {
        ServerEndpoint::Unix(path) => match UnixPath::new(path) {
            Ok(path) => Ok(path.into()),
            Err(error) => Err(Error::Address(error.to_string())),
        },
        ServerEndpoint::Network(name) => {
            let unknown = |why: String| Error::Address(format!("cannot find `{name}`: {why}"));
            let mut found = name.to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
            let address = found.next().ok_or_else(|| unknown("it has no address".to_owned()))?;
            Ok(address.into())
        }
    }
}

struct Engine<N> {
    initiator: Initiator<N>,
    namespace: Option<NamespaceId>,
    pool: BufPool,
    queue: Arc<Queue<Request>>,
    notices: Arc<Notices>,
    tenancy: Tenancy,
    /// Receivers of answers, by the tickets' indices.
    waiting: Vec<Option<Waiting>>,
    done: Vec<Done>,
}

impl<N: Network> Engine<N> {
    fn open(
        reactor: &N::Reactor,
        address: &Address,
        options: &Options,
        queue: Arc<Queue<Request>>,
        notices: Arc<Notices>,
    ) -> Result<Engine<N>, Error> {
        let server = find(&address.place)?;
        let system = |e: io::Error| Error::System(e.to_string());
        let config = SocketsConfig {
            connections_max: options.connections + 4,
            receive_buffers: 64,
            frames_max: options.in_flight_max + 4 * options.connections,
            ..SocketsConfig::default()
        };
        let mut sockets = N::new(reactor, config).map_err(system)?;
        sockets.dial_to(server);
        Ok(Engine {
            initiator: Initiator::new(sockets, options.for_initiator(address.version)),
            namespace: options.namespace.map(NamespaceId),
            pool: take_pool()?,
            queue,
            notices,
            tenancy: Tenancy::new(options.connections),
            waiting: (0..options.in_flight_max).map(|_| None).collect(),
            done: Vec::with_capacity(options.in_flight_max),
        })
    }

    fn run(
        mut self,
        reactor: &N::Reactor,
        options: &Options,
        address: &Address,
        opened: Promise<io::Waker>,
    ) {
        let clock = Clock::start();
        let mut opened = Some(opened);
        io::run(reactor, &clock, SpinPolicy { spin: options.spin }, |now| {
            let mut progressed = self.initiator.turn(now, &mut self.done);
            let mut done = std::mem::take(&mut self.done);
            for done in done.drain(..) {
                self.finish(done);
            }
            self.done = done;
            let reports: Vec<Report> = self.initiator.reports().collect();
            for report in reports {
                match report {
                    Report::Connected { link, .. } => {
                        self.tenancy.connected(&mut self.initiator, link);
                        if let Some(opened) = opened.take() {
                            opened.keep(Ok(reactor.waker()));
                        }
                    }
                    Report::Lost { why, link } => {
                        self.tenancy.lost(link);
                        if let Some(opened) = opened.take() {
                            opened.keep(Err(Error::Connect(unreachable_text(address, why))));
                            return None;
                        }
                    }
                    Report::Info(ticket, info) => self.inform(ticket, info),
                    Report::Tenant(ticket, status, reply) => {
                        let Some(Waiting::Tenant(asked)) = self.waiting[ticket.index()].take()
                        else {
                            unreachable!("only questions about the tenant are answered so")
                        };
                        self.tenancy.answered(&mut self.initiator, asked, status, reply);
                    }
                    Report::Notice { notice, .. } => self.notice(notice),
                    Report::Pong(..) => {}
                }
            }
            if self.queue.is_closed() {
                return None;
            }
            progressed |= self.take_requests(now);
            self.initiator.flush(now);
            Some(Turn { progressed, wake_at: self.initiator.wake_at() })
        });
        let Engine { initiator, pool, .. } = self;
        drop(initiator);
        if pool.is_whole() {
            IDLE_POOLS.lock().expect("no holder panics").push(pool);
        }
    }

    /// Submits requests while there is a place in flight and a buffer for the next one.
    fn take_requests(&mut self, now: contract::Instant) -> bool {
        let mut any = false;
        let waiting = &mut self.waiting;
        self.tenancy.ask(&mut self.initiator, now, |ticket, asked| {
            let before = waiting[ticket.index()].replace(Waiting::Tenant(asked));
            assert!(before.is_none(), "a ticket's index names one request");
            any = true;
        });
        while self.initiator.room() > 0 {
            let mut buf = None;
            let (pool, busy) = (&mut self.pool, self.tenancy.is_busy());
            let next = self.queue.pop_if(|request| {
                if busy && matches!(request, Request::Tenant { .. }) {
                    return false;
                }
                let bytes = request.buffer_bytes();
                if bytes > 0 {
                    buf = pool.take(bytes);
                }
                bytes == 0 || buf.is_some()
            });
            let Some(request) = next else { break };
            self.submit(now, request, buf);
            any = true;
        }
        any
    }

    fn submit(&mut self, now: contract::Instant, request: Request, mut buf: Option<Buf>) {
        let (ticket, waiting) = match request {
            Request::Data { command, route, payload, promise } => {
                if let Some(buf) = &mut buf
                    && !payload.is_empty()
                {
                    buf.prefix_mut(payload.len()).copy_from_slice(&payload);
                }
                let Route { link, stream } = route;
                let op = Op { link, stream, namespace: self.namespace, command, buf };
                let ticket = self.initiator.submit(now, op).expect("there is room");
                (ticket, Waiting::Data(promise))
            }
            Request::Info(promise) => {
                let question = Control::Info { tag: 0, namespace: self.namespace };
                let ticket = self.initiator.control(now, None, question).expect("there is room");
                (ticket, Waiting::Info(promise))
            }
            Request::Tenant { wish, promise } => {
                self.tenancy.begin(&mut self.initiator, wish, promise);
                let waiting = &mut self.waiting;
                return self.tenancy.ask(&mut self.initiator, now, |ticket, asked| {
                    let before = waiting[ticket.index()].replace(Waiting::Tenant(asked));
                    assert!(before.is_none(), "a ticket's index names one request");
                });
            }
        };
        let before = self.waiting[ticket.index()].replace(waiting);
        assert!(before.is_none(), "a ticket's index names one request");
    }

    fn finish(&mut self, done: Done) {
        let Some(Waiting::Data(promise)) = self.waiting[done.ticket.index()].take() else {
            unreachable!("only requests about data end so")
        };
        let mut data = Vec::new();
        if let Some(buf) = done.buf {
            if done.status.is_ok() {
                data.extend_from_slice(&buf.bytes()[..done.command.reply_bytes()]);
            }
            self.pool.give(buf);
        }
        promise.keep(match done.status {
            Status::Ok => Ok(data),
            status => Err(status.into()),
        });
    }

    fn notice(&self, notice: contract::Notice) {
        let contract::Notice::Renegotiate { iops, read_percent, .. } = notice else { return };
        let mut notices = self.notices.lock().expect("no holder panics");
        if notices.len() == NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(Notice { iops, read_percent });
    }

    fn inform(&mut self, ticket: Ticket, info: Result<NamespaceInfo, Status>) {
        let Some(Waiting::Info(promise)) = self.waiting[ticket.index()].take() else {
            unreachable!("only questions are answered so")
        };
        promise.keep(info.map_err(Error::from));
    }
}

fn unreachable_text(address: &Address, why: Loss) -> String {
    let what = match why.errno() {
        Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
        None => why.to_string(),
    };
    format!("cannot connect to {address}: {what}")
}
