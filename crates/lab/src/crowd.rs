//! Several clients of one server at once, each with its own tenant, connections, load and thread.
//!
//! The threads sleep between requests, because a spinning thread would take processor time from the
//! server on a small machine. This module deliberately leaves out the choice of tenants and the
//! display of results.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use client::load::{Arrival, Generator, Pace, Path, Pattern, Remote, Shape, Tally};
use client::{Initiator, Options};
use contract::{BufPool, Instant, SizeClass, TurnOutcome};
use io::{
    Clock, EpollReactor, EpollSockets, Network, Reactor, Ring, Sockets, SocketsConfig, SpinPolicy,
};

use crate::bench::connect;

/// The interval at which all threads publish their measurements, at the same times.
const REPORT_GAP: Duration = Duration::from_millis(50);

/// The time after a report's due time at which every running thread has published its measurements.
const REPORT_DELAY: Duration = Duration::from_millis(20);

/// A client of the crowd.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The tenant that the client names to the server; empty for the tenant that the server
    /// chooses.
    pub(crate) tenant: String,
    pub(crate) read_percent: u8,
    pub(crate) request_bytes: usize,
    pub(crate) connections: usize,
    /// Maximum number of requests in flight on each connection.
    pub(crate) queue_depth: usize,
    /// Requests a second, evenly spaced, with reads and writes evenly mixed; `None` for a closed
    /// loop.
    pub(crate) rate: Option<f64>,
}

impl Member {
    fn shape(&self, span_bytes: u64, times: Times, seed: u64) -> Shape {
        let pace = match self.rate {
            Some(per_second) => Pace::Open { per_second, arrival: Arrival::Constant },
            None => Pace::Closed,
        };
        Shape {
            read_percent: self.read_percent,
            request_bytes: self.request_bytes,
            lanes: self.connections,
            queue_depth: self.queue_depth,
            pace,
            pattern: Pattern::Random,
            first_lba: 0,
            span_bytes,
            fua: false,
            verify: None,
            probe: None,
            warmup: times.warmup,
            duration: times.measured,
            seed,
        }
    }
}

/// The duration of the warm-up and of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) warmup: Duration,
    /// The measured time after the warm-up.
    pub(crate) measured: Duration,
}

/// Running clients, each in a thread.
pub(crate) struct Crowd {
    tallies: Arc<[Mutex<Tally>]>,
    threads: Vec<JoinHandle<Result<(), String>>>,
    /// A receiver that is disconnected when all threads have ended.
    running: Receiver<()>,
    clock: Clock,
}

impl Crowd {
    /// Connects all clients, and starts their loads together on the first `span_bytes` bytes of the
    /// server's namespace. Random choices derive from `seed`.
    pub(crate) fn start(
        address: SocketAddr,
        members: Vec<Member>,
        span_bytes: u64,
        times: Times,
        seed: u64,
    ) -> Result<Crowd, String> {
        io::raise_descriptor_limit();
        let tallies: Arc<[_]> = members.iter().map(|_| Mutex::new(Tally::new())).collect();
        let (clock, together) = (Clock::start(), Arc::new(Barrier::new(members.len())));
        let (sender, running) = channel();
        let mut threads = Vec::new();
        for (n, member) in members.into_iter().enumerate() {
            let (tallies, together) = (tallies.clone(), together.clone());
            let shape = member.shape(span_bytes, times, seed + n as u64);
            let client = Client { address, member, shape, n, tallies, clock, together };
            let running = sender.clone();
            let body = move || {
                let _running = running; // dropped with the thread, which tells whoever waits
                match Ring::new() {
                    Ok(ring) => client.run::<Sockets>(&ring),
                    Err(_) => client.run::<EpollSockets>(&EpollReactor::new().map_err(text)?),
                }
            };
            let thread = std::thread::Builder::new().name(format!("client{n}")).spawn(body);
            threads.push(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
        }
        Ok(Crowd { tallies, threads, running, clock })
    }

    /// Waits for the next time that is a multiple of `gap` and at which all threads have published
    /// their measurements, and returns that time; `None` when all threads have ended.
    pub(crate) fn next(&self, gap: Duration) -> Option<Instant> {
        let now = self.clock.now();
        let multiple = now.since(Instant::ZERO).as_nanos() / gap.as_nanos() + 1;
        let at = Instant::ZERO + gap * u32::try_from(multiple).ok()?;
        let timeout = at.since(now) + REPORT_DELAY;
        (self.running.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout)).then_some(at)
    }

    /// Adds the measurements that each client has made since the last call to the client's entry of
    /// `sums`, in the order of the clients.
    pub(crate) fn collect(&self, sums: &mut [Tally]) {
        for (sum, tally) in sums.iter_mut().zip(self.tallies.iter()) {
            let mut tally = tally.lock().expect("no holder panics");
            sum.add(&tally);
            tally.reset();
        }
    }

    /// Waits until all threads have ended. Returns the first member's error, if any.
    pub(crate) fn join(self) -> Result<(), String> {
        let join = |thread: JoinHandle<Result<(), String>>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        self.threads.into_iter().map(join).fold(Ok(()), Result::and)
    }

    /// Waits until all threads have ended. Returns what each member measured since the last
    /// `collect`, in order.
    pub(crate) fn finish(self) -> Result<Vec<Tally>, String> {
        let tallies = self.tallies.clone();
        self.join()?;
        let take = |tally: &Mutex<Tally>| std::mem::take(&mut *tally.lock().expect("none panics"));
        Ok(tallies.iter().map(take).collect())
    }
}

/// The state of one client's thread, which sleeps while there is nothing to send or to receive.
struct Client {
    address: SocketAddr,
    member: Member,
    shape: Shape,
    n: usize,
    tallies: Arc<[Mutex<Tally>]>,
    clock: Clock,
    /// The barrier at which all clients wait until every one is connected.
    together: Arc<Barrier>,
}

impl Client {
    fn run<N: Network>(self, reactor: &N::Reactor) -> Result<(), String> {
        let path = self.path::<N>(reactor);
        self.together.wait();
        let bytes = self.shape.request_bytes;
        let count = if self.member.read_percent < 100 { self.shape.in_flight_max() } else { 1 };
        let arena = io::carve(&[SizeClass { bytes, count }]).map_err(text)?;
        let (start, pool) = (self.clock.now(), BufPool::new(arena.bufs));
        let mut generator = Generator::new(start, self.shape.clone(), path?, pool).map_err(text)?;
        self.drive(reactor, &mut generator);
        // A client without a rate has asked for more than there is, and may have to wait for it.
        match generator.in_flight() {
            stuck if stuck > 0 && self.member.rate.is_some() => {
                Err(format!("{stuck} requests had not ended 5 s after the end"))
            }
            _ => Ok(()),
        }
    }

    /// Connects to the server and returns the path for the member's requests.
    fn path<N: Network>(&self, reactor: &N::Reactor) -> Result<Remote<N>, String> {
        let member = &self.member;
        let seed = self.shape.seed;
        let options = Options {
            connections: member.connections,
            in_flight_max: member.connections * member.queue_depth,
            client: (u128::from(std::process::id()) << 64 | u128::from(seed)) + 1,
            tenant: member.tenant.clone().into(),
            seed,
            ..Options::default()
        };
        let config = SocketsConfig {
            connections_max: member.connections + 16,
            frames_max: options.in_flight_max + member.connections + 64,
            ..SocketsConfig::default()
        };
        let mut sockets = N::new(reactor, config).map_err(text)?;
        sockets.dial_to(self.address);
        let connections = options.connections;
        let mut initiator = Initiator::new(sockets, options);
        let who = |e| match member.tenant.as_str() {
            "" => e,
            tenant => format!("tenant {tenant}: {e}"),
        };
        connect(reactor, &self.clock, &mut initiator, connections).map_err(who)?;
        Ok(Remote::new(initiator, None, false))
    }

    /// Takes the generator's turns until its load is finished, and publishes its measurements.
    fn drive<P: Path>(&self, reactor: &impl Reactor, generator: &mut Generator<P>) {
        let mut report_at = Instant::ZERO;
        io::run(reactor, &self.clock, SpinPolicy { spin: Duration::ZERO }, |now| {
            let progressed = generator.turn(now);
            let finished = generator.is_finished(now);
            if now >= report_at || finished {
                while report_at <= now {
                    report_at = report_at + REPORT_GAP;
                }
                generator.report(&mut self.tallies[self.n].lock().expect("no holder panics"));
            }
            let wake_at = generator.wake_at(now).map_or(report_at, |at| at.min(report_at));
            (!finished).then_some(TurnOutcome { progressed, wake_at: Some(wake_at) })
        });
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
