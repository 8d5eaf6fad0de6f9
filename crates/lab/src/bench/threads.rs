//! The threads that make the load: each has its own ring, sockets and generator.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use client::load::{Local, Remote, Tally};
use client::{Initiator, Options, Report, Version};
use contract::{NamespaceId, TurnOutcome};
use dataplane::{FileBackend, Volume};
use io::{
    Clock, EpollReactor, EpollSockets, Network, PacketSockets, Ring, Sockets, SocketsConfig,
    SpinPolicy,
};

use super::block_server;
use super::job::{CONNECT_MAX, Job, ThreadShared};
use super::plan::{Plan, RequestPath};
use super::problem::Problem;
use super::target::ServerAddress;
use crate::report::ThreadResult;

/// The load threads of a measurement.
pub(super) struct LoadThreads {
    desks: Vec<Arc<ThreadShared>>,
    threads: Vec<JoinHandle<Result<ThreadResult, String>>>,
    /// A receiver that is disconnected when every thread has ended.
    running: Receiver<()>,
}

/// Starts the load threads, and starts their loads together when all are connected.
pub(super) fn start(plan: &Plan) -> Result<LoadThreads, Problem> {
    let clock = Clock::start();
    let (running_sender, running) = channel();
    let (ready_sender, ready) = channel();
    let mut crew = LoadThreads { desks: Vec::new(), threads: Vec::new(), running };
    let mut starts = Vec::new();
    for (n, shape) in plan.shapes.iter().enumerate() {
        let (start, go) = channel();
        starts.push(start);
        let desk = Arc::new(ThreadShared::default());
        crew.desks.push(desk.clone());
        let job = Job {
            shape: shape.clone(),
            clock,
            spin: plan.spin,
            desk,
            ready: ready_sender.clone(),
            go,
            _running: running_sender.clone(),
        };
        crew.threads.push(spawn(n, &plan.path, job)?);
    }
    drop((running_sender, ready_sender));
    for _ in 0..plan.shapes.len() {
        if ready.recv().is_err() {
            break; // A thread ended before it was ready; the others hear it from `go`.
        }
    }
    if crew.threads.iter().any(JoinHandle::is_finished) {
        drop(starts);
        return Err(crew
            .join()
            .err()
            .unwrap_or_else(|| Problem::Failed("a thread ended before it was ready".to_owned())));
    }
    let now = clock.now();
    for start in starts {
        let _ = start.send(now);
    }
    Ok(crew)
}

fn spawn(
    n: usize,
    path: &RequestPath,
    job: Job,
) -> Result<JoinHandle<Result<ThreadResult, String>>, Problem> {
    let builder = std::thread::Builder::new().name(format!("load{n}"));
    let spawned = match path {
        RequestPath::Server { reach, namespace, options } => {
            let lanes = job.shape.lanes + usize::from(job.shape.probe.is_some());
            let options = Options {
                connections: lanes,
                in_flight_max: job.shape.in_flight_max(),
                client: options.client.wrapping_add(n as u128),
                seed: options.seed.wrapping_add(n as u64),
                durability: Arc::default(),
                ..options.clone()
            };
            let (server, namespace) = (reach.clone(), *namespace);
            builder.spawn(move || remote(server, namespace, options, job))
        }
        RequestPath::Nvme(server) => {
            let server = server.clone();
            builder.spawn(move || block_server::drive(server, job))
        }
        RequestPath::Nbd(server) => {
            let server = server.clone();
            builder.spawn(move || block_server::drive(server, job))
        }
        RequestPath::Device(volume) => {
            let volume = volume.clone();
            builder.spawn(move || local(&volume, n, job))
        }
    };
    spawned.map_err(|e| Problem::Failed(format!("cannot start a thread: {e}")))
}

impl LoadThreads {
    /// Waits until all threads have ended, at most for `at_most`. Returns `true` if all have.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        matches!(self.running.recv_timeout(at_most), Err(RecvTimeoutError::Disconnected))
    }

    /// Returns a function for any thread that ends the load early.
    pub(super) fn stopper(&self) -> impl Fn() + Send + 'static {
        let desks = self.desks.clone();
        move || desks.iter().for_each(|desk| desk.stopped.store(true, Ordering::Relaxed))
    }

    /// Adds the measurements that all threads have made since the last call to `sum`.
    pub(super) fn collect(&self, sum: &mut Tally) {
        for desk in &self.desks {
            let mut tally = desk.tally.lock().expect("no holder panics");
            sum.add(&tally);
            tally.reset();
        }
    }

    /// Returns the notes for the user that the threads left since the last call.
    pub(super) fn notes(&self) -> Vec<String> {
        let take = |desk: &Arc<ThreadShared>| {
            std::mem::take(&mut *desk.notes.lock().expect("no holder panics"))
        };
        self.desks.iter().flat_map(take).collect()
    }

    /// Waits for the threads and returns their combined results.
    pub(super) fn join(self) -> Result<ThreadResult, Problem> {
        let mut sum = ThreadResult::default();
        let mut problem = None;
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(end)) => {
                    sum.failures.extend(end.failures);
                    sum.unsent += end.unsent;
                    sum.stuck += end.stuck;
                    sum.losses += end.losses;
                }
                Ok(Err(text)) => problem = problem.or(Some(text)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        match problem {
            Some(text) if !text.is_empty() => Err(Problem::Failed(text)),
            _ => Ok(sum),
        }
    }
}

/// Runs the load of thread `n` on a device that this process opens itself.
fn local(volume: &Volume, n: usize, job: Job) -> Result<ThreadResult, String> {
    let ring = Ring::new().map_err(|e| e.to_string())?;
    let device = volume.open_queue(&FileBackend::Ring(&ring), 0, n)?;
    let path = Local::new(device, job.shape.in_flight_max());
    job.drive(&ring, path, |_, _| ())
}

/// Runs the load of a thread on a server of protocol `reflex`.
fn remote(
    server: ServerAddress,
    namespace: Option<NamespaceId>,
    options: Options,
    job: Job,
) -> Result<ThreadResult, String> {
    match Ring::new() {
        Ok(ring) if server.endpoint.is_of_packets() => {
            remote_on::<PacketSockets>(&ring, server, namespace, options, job)
        }
        Ok(ring) => remote_on::<Sockets>(&ring, server, namespace, options, job),
        Err(no_ring) if server.endpoint.is_of_packets() => Err(no_ring.to_string()),
        // The survey has told so already.
        Err(no_ring) => match EpollReactor::new() {
            Ok(epoll) => remote_on::<EpollSockets>(&epoll, server, namespace, options, job),
            Err(_) => Err(no_ring.to_string()),
        },
    }
}

fn remote_on<N: Network>(
    reactor: &N::Reactor,
    server: ServerAddress,
    namespace: Option<NamespaceId>,
    options: Options,
    job: Job,
) -> Result<ThreadResult, String> {
    let text = |e: io::Error| e.to_string();
    let connections = options.connections;
    let config = SocketsConfig {
        connections_max: connections + 16,
        frames_max: options.in_flight_max + connections + 64,
        ..SocketsConfig::default()
    };
    io::raise_descriptor_limit();
    let mut sockets = N::new(reactor, config).map_err(text)?;
    server.dial(&mut sockets).map_err(text)?;
    let unfenced = options.version == Version::One;
    let mut initiator = Initiator::new(sockets, options);
    connect(reactor, &job.clock, &mut initiator, connections)?;
    let path = Remote::new(initiator, namespace, unfenced);
    job.drive(reactor, path, |path, losses| {
        for report in path.initiator().reports() {
            if let Report::Lost { link, why } = report {
                losses(why.reached(), format!("connection {link}: {why}; dialling again"));
            }
        }
    })
}

/// Takes turns of `initiator` until `connections` connections are open.
pub(crate) fn connect<N: Network>(
    reactor: &N::Reactor,
    clock: &Clock,
    initiator: &mut Initiator<N>,
    connections: usize,
) -> Result<(), String> {
    let deadline = clock.now() + CONNECT_MAX;
    let mut done = Vec::new();
    let mut up = 0;
    let mut trouble = None;
    io::run(reactor, clock, SpinPolicy::default(), |now| {
        let progressed = initiator.turn(now, &mut done);
        for report in initiator.reports() {
            match report {
                Report::Connected { .. } => up += 1,
                Report::Lost { why, .. } => trouble = Some(why),
                _ => {}
            }
        }
        let open = (0..connections).filter(|&link| initiator.is_connected(link));
        if now >= deadline || up >= connections && open.count() == connections {
            return None;
        }
        let wake_at = initiator.wake_at().map_or(deadline, |at| at.min(deadline));
        Some(TurnOutcome { progressed, wake_at: Some(wake_at) })
    });
    let open = (0..connections).filter(|&link| initiator.is_connected(link)).count();
    if open == connections {
        return Ok(());
    }
    let why = trouble.map_or("the server does not answer".to_owned(), |why| why.to_string());
    Err(format!("only {open} of {connections} connections came up: {why}"))
}
