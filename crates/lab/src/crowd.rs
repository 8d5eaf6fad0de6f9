//! Several clients of one server at once, each with its own tenant, connections and load, all driven
//! by one thread: what a comparison of tenants needs on a machine with few processors.
//!
//! The thread never sleeps, so that no client's requests wait for another's to wake it. What is
//! deliberately not here: whose tenants they are, and what is to be shown of them.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use client::load::{Arrival, Generator, Pace, Path, Pattern, Remote, Shape, Tally};
use client::{Initiator, Options};
use contract::{BufPool, Instant, SizeClass, Turn};
use io::{Clock, EpollSockets, Network, Reactor, Ring, Sockets, SocketsConfig, SpinPolicy, Waker};

use crate::bench::connect;

/// The interval at which the thread publishes its measurements.
const REPORT_GAP: Duration = Duration::from_millis(100);

/// A client of the crowd.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The tenant it belongs to; empty for the server's choice.
    pub(crate) tenant: String,
    pub(crate) read_percent: u8,
    pub(crate) request_bytes: usize,
    pub(crate) connections: usize,
    /// Requests in flight on each connection at most.
    pub(crate) queue_depth: usize,
    /// Requests a second, evenly spaced and mixed; as many as come back without it.
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

/// Clients at work.
pub(crate) struct Crowd {
    tallies: Arc<Mutex<Vec<Tally>>>,
    thread: JoinHandle<Result<(), String>>,
    /// Disconnected when the thread has ended.
    running: Receiver<()>,
}

impl Crowd {
    /// Connects all and starts their loads on the first bytes of the server's namespace. Chance
    /// starts at `seed`.
    pub(crate) fn start(
        address: SocketAddr,
        members: Vec<Member>,
        span_bytes: u64,
        times: Times,
        seed: u64,
    ) -> Result<Crowd, String> {
        io::raise_descriptor_limit();
        let tallies = Arc::new(Mutex::new(vec![Tally::new(); members.len()]));
        let (sender, running) = channel();
        let job =
            Job { address, members, span_bytes, times, seed, tallies: tallies.clone(), sender };
        let body = move || match Ring::new() {
            Ok(_) => job.run::<Sockets>(),
            Err(_) => job.run::<EpollSockets>(),
        };
        let thread = std::thread::Builder::new().name("clients".to_owned()).spawn(body);
        let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Crowd { tallies, thread, running })
    }

    /// Waits until all have ended, at most this long; whether they have.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError::Disconnected;
        matches!(self.running.recv_timeout(at_most), Err(Disconnected))
    }

    /// Adds what each member measured since the last call, in their order.
    pub(crate) fn collect(&self, sums: &mut [Tally]) {
        let mut tallies = self.tallies.lock().expect("no holder panics");
        for (sum, tally) in sums.iter_mut().zip(tallies.iter_mut()) {
            sum.add(tally);
            tally.reset();
        }
    }

    /// Waits for the end, and says what went wrong.
    pub(crate) fn join(self) -> Result<(), String> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Waits for the end; what each member measured.
    pub(crate) fn finish(self) -> Result<Vec<Tally>, String> {
        let tallies = self.tallies.clone();
        self.join()?;
        let mut tallies = tallies.lock().expect("no holder panics");
        Ok(std::mem::take(&mut *tallies))
    }
}

/// The task of the load thread.
struct Job {
    address: SocketAddr,
    members: Vec<Member>,
    span_bytes: u64,
    times: Times,
    seed: u64,
    tallies: Arc<Mutex<Vec<Tally>>>,
    #[expect(dead_code, reason = "dropped with the thread, which tells whoever waits")]
    sender: Sender<()>,
}

impl Job {
    fn run<N: Network>(self) -> Result<(), String> {
        let clock = Clock::start();
        let mut reactors = Reactors(Vec::new());
        let mut paths = Vec::new();
        for (n, member) in self.members.iter().enumerate() {
            let reactor = N::Reactor::new().map_err(|e| e.to_string())?;
            paths.push(self.path::<N>(&reactor, &clock, n, member)?);
            reactors.0.push(reactor);
        }
        let start = clock.now();
        let mut generators = Vec::new();
        for ((n, member), path) in self.members.iter().enumerate().zip(paths) {
            let shape = member.shape(self.span_bytes, self.times, self.seed + n as u64);
            let bytes = shape.request_bytes;
            let count = if member.read_percent < 100 { shape.in_flight_max() } else { 1 };
            let arena = io::carve(&[SizeClass { bytes, count }]).map_err(|e| e.to_string())?;
            let generator = Generator::new(start, shape, path, BufPool::new(arena.bufs));
            generators.push(generator.map_err(|e| e.to_string())?);
        }
        self.drive(&reactors, &clock, &mut generators);
        // A client without a rate has asked for more than there is, and may have to wait for it.
        let is_paced = |(member, _): &(&Member, &Generator<_>)| member.rate.is_some();
        let pairs = self.members.iter().zip(&generators).filter(is_paced);
        let stuck: usize = pairs.map(|(_, generator)| generator.in_flight()).sum();
        if stuck > 0 {
            return Err(format!("{stuck} requests had not ended 5 s after the end"));
        }
        Ok(())
    }

    /// A connected way to the server.
    fn path<N: Network>(
        &self,
        reactor: &N::Reactor,
        clock: &Clock,
        n: usize,
        member: &Member,
    ) -> Result<Remote<N>, String> {
        let options = Options {
            connections: member.connections,
            in_flight_max: member.connections * member.queue_depth,
            client: (u128::from(std::process::id()) << 64 | u128::from(self.seed)) + n as u128 + 1,
            tenant: member.tenant.clone().into(),
            seed: self.seed + n as u64,
            ..Options::default()
        };
        let config = SocketsConfig {
            connections_max: member.connections + 16,
            frames_max: options.in_flight_max + member.connections + 64,
            ..SocketsConfig::default()
        };
        let mut sockets = N::new(reactor, config).map_err(|e| e.to_string())?;
        sockets.dial_to(self.address);
        let connections = options.connections;
        let mut initiator = Initiator::new(sockets, options);
        let who = |e| match member.tenant.as_str() {
            "" => e,
            tenant => format!("tenant {tenant}: {e}"),
        };
        connect(reactor, clock, &mut initiator, connections).map_err(who)?;
        Ok(Remote::new(initiator, None, false))
    }

    /// Takes everybody's turns until all are finished.
    fn drive<P: Path>(
        &self,
        reactors: &Reactors<impl Reactor>,
        clock: &Clock,
        generators: &mut [Generator<P>],
    ) {
        let mut report_at = clock.now() + REPORT_GAP;
        io::run(reactors, clock, SpinPolicy { spin: Duration::MAX }, |now| {
            for generator in &mut *generators {
                generator.turn(now);
            }
            let finished = generators.iter().all(|generator| generator.is_finished(now));
            if now >= report_at || finished {
                report_at = now + REPORT_GAP;
                self.report(generators);
            }
            (!finished).then_some(Turn { progressed: true, wake_at: Some(Instant::ZERO) })
        });
    }

    fn report<P: Path>(&self, generators: &mut [Generator<P>]) {
        let mut tallies = self.tallies.lock().expect("no holder panics");
        for (generator, tally) in generators.iter_mut().zip(tallies.iter_mut()) {
            generator.report(tally);
        }
    }
}

/// The reactors of all members, entered one after the other. They do not wait: that would be for one
/// of them.
struct Reactors<R>(Vec<R>);

impl<R: Reactor> Reactor for Reactors<R> {
    fn new() -> Result<Self, io::Error> {
        Ok(Reactors(Vec::new()))
    }

    fn enter(&self, wait: Option<Option<Duration>>) -> bool {
        assert!(wait.is_none(), "whoever drives several never sleeps");
        self.0.iter().fold(false, |any, reactor| reactor.enter(None) | any)
    }

    fn waker(&self) -> Waker {
        self.0.first().expect("there is a member").waker()
    }
}
