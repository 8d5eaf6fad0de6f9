//! The plan of a server's workers, and the start of their threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::{BufPool, ListenerId, TurnOutcome};
use control::{Tenants, WorkerMailbox};
use io::{
    Clock, ConnectionBalancer, EpollSockets, Listener, PacketSockets, Reactor, Sockets,
    SocketsConfig, SpinPolicy, TcpOptions, Waker,
};
use proto::nvme::Fabric;
use qos::{AnyScheduler, PassThrough, QueueLimits};
use worker::{ControlPlaneLink, DeviceLane, Limits, SharedState, TraceClock, Worker};

use crate::accounts::ThreadAccounts;
use crate::interface::{KernelInterface, SocketBackend};
use crate::orders::{OrderInbox, WorkerOrders};
use crate::places::DeviceTable;
use crate::sessions::ListenerSessionFactory;
use crate::volumes::hand_over::attend;
use crate::volumes::{FileBackend, Volume, nothing, rest};
use crate::worker_orders::{OrderProgress, ServerDevice, ServerWorker};

/// The longest time for which a worker that has ended waits for background operations of its
/// devices, such as garbage collection.
const REST_MAX: Duration = Duration::from_secs(10);

/// The parts from which each worker of a server is built.
pub struct WorkerSetup {
    /// The table of open devices, with their indices and names.
    pub places: Arc<DeviceTable>,
    /// The parts that all workers read: listeners, namespaces, access rules.
    pub shared: Arc<SharedState>,
    /// The limits of each worker.
    pub limits: Limits,
    /// The numbers of connections, by which new ones are spread over the workers.
    pub spread: Arc<ConnectionBalancer>,
    /// The orders to the workers.
    pub orders: Arc<WorkerOrders>,
    /// The processors of the workers, by worker; `None` if they are not pinned.
    pub cpus: Option<Vec<usize>>,
    /// The policy by which an idle worker polls for work before its thread sleeps.
    pub spin: SpinPolicy,
    /// The options of TCP connections.
    pub tcp: TcpOptions,
    /// The largest number of connections of one worker.
    pub connections_max: usize,
    /// The number of connections that all workers together have room for.
    pub room: usize,
    /// The clock of all workers and the control plane.
    pub clock: Clock,
    /// The tenants, with their schedulers and meters.
    pub tenants: Tenants,
    /// Requests go to the devices in their order of arrival.
    pub no_scheduler: bool,
    /// The NVMe fabric, created once a listener speaks NVMe.
    pub fabric: Arc<OnceLock<Arc<Fabric>>>,
    /// The mailboxes and orders of the workers that have not started, by worker.
    pub boxes: Mutex<Vec<Option<(WorkerMailbox, OrderInbox)>>>,
    /// The times for which the workers waited for a processor.
    pub accounts: ThreadAccounts,
}

impl WorkerSetup {
    /// Creates the scheduler of a worker's queue to a device.
    fn scheduler(&self, device: usize, worker: usize) -> AnyScheduler {
        let slots = self.limits.in_flight;
        match self.no_scheduler {
            true => AnyScheduler::PassThrough(PassThrough::new(slots)),
            false => {
                let limits = QueueLimits { slots, of_tenant: slots as u32 };
                self.tenants.scheduler(device, worker, limits)
            }
        }
    }

    /// Opens a worker's queue to a device, with its scheduler.
    fn attach(
        &self,
        through: &FileBackend<'_>,
        volume: &Volume,
        place: usize,
        worker: usize,
    ) -> Result<ServerDevice, String> {
        let queue = volume.open_queue(through, place, worker)?;
        Ok(DeviceLane::new(queue, self.scheduler(place, worker)))
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.spread.connections().len()
    }

    /// Waits until all workers have ended, and closes the devices. Returns `true` if a worker
    /// failed.
    pub fn await_ends(&self, threads: Vec<JoinHandle<()>>) -> bool {
        let join = |failed, thread: JoinHandle<()>| failed | thread.join().is_err();
        let failed = threads.into_iter().fold(false, join);
        self.places.all().iter().for_each(|disk| disk.volume.close());
        failed
    }

    /// Starts the workers through a kernel interface, and waits until each can serve. Returns their
    /// threads and their wakers, by worker. The first worker accepts connections; with
    /// `has_packets`, all serve packets beside streams.
    ///
    /// # Errors
    /// Says why a worker could not start.
    pub fn start(
        self: &Arc<WorkerSetup>,
        chosen: KernelInterface,
        has_packets: bool,
        listeners: Vec<(ListenerId, Listener)>,
    ) -> Result<(Vec<JoinHandle<()>>, Vec<Waker>), String> {
        match chosen {
            KernelInterface::IoUring if has_packets => start::<PacketSockets>(self, listeners),
            KernelInterface::IoUring => start::<Sockets>(self, listeners),
            KernelInterface::Epoll => start::<EpollSockets>(self, listeners),
        }
    }
}

/// Starts the workers and waits until each can serve. The first worker accepts connections.
fn start<N: SocketBackend>(
    plan: &Arc<WorkerSetup>,
    listeners: Vec<(ListenerId, Listener)>,
) -> Result<(Vec<JoinHandle<()>>, Vec<Waker>), String> {
    let (sender, receiver) = channel();
    let workers = plan.workers();
    let mut threads = Vec::new();
    for (number, own) in divided(listeners, workers)?.into_iter().enumerate() {
        let (plan, sender) = (plan.clone(), sender.clone());
        let body = move || work::<N>(&plan, number, own, &sender);
        let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(body);
        threads.push(thread.map_err(|error| format!("cannot start a worker: {error}"))?);
    }
    drop(sender);
    let wakers = await_workers(&receiver, workers)?;
    Ok((threads, wakers))
}

/// Returns the listeners of each worker: the first accepts for all, and packets come to each.
fn divided(
    listeners: Vec<(ListenerId, Listener)>,
    workers: usize,
) -> Result<Vec<Vec<(ListenerId, Listener)>>, String> {
    let mut all: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    for (id, listener) in listeners {
        let parts = listener.divide(workers).map_err(|error| error.to_string())?;
        parts.into_iter().enumerate().for_each(|(worker, part)| all[worker].push((id, part)));
    }
    Ok(all)
}

/// Waits for the start of all workers. Returns their wakers by number.
fn await_workers(
    receiver: &Receiver<Result<(usize, Waker), String>>,
    workers: usize,
) -> Result<Vec<Waker>, String> {
    let died = || "a worker ended before it could serve".to_owned();
    let started = (0..workers).map(|_| receiver.recv().map_err(|_| died())?);
    let mut wakers = started.collect::<Result<Vec<_>, _>>()?;
    wakers.sort_by_key(|(worker, _)| *worker);
    Ok(wakers.into_iter().map(|(_, waker)| waker).collect())
}

/// Runs a worker on the calling thread.
fn work<N: SocketBackend>(
    plan: &WorkerSetup,
    number: usize,
    listeners: Vec<(ListenerId, Listener)>,
    started: &Sender<Result<(usize, Waker), String>>,
) {
    plan.accounts.open(number);
    let own = plan.boxes.lock().expect("no holder panics")[number].take();
    let (mailbox, inbox) = own.expect("a worker starts once");
    let (reactor, mut worker) = match build::<N>(plan, number, listeners, mailbox) {
        Ok(built) => built,
        Err(error) => {
            let _ = started.send(Err(error)); // the receiver is gone only if another failed first
            return;
        }
    };
    if started.send(Ok((number, reactor.waker()))).is_err() {
        return;
    }
    let mut duty = OrderProgress::new(plan.orders.clone(), number, inbox);
    io::run(&reactor, &plan.clock, plan.spin, |now| {
        let attach = |place: usize, volume: Option<&Volume>| match volume {
            Some(volume) => plan.attach(&N::through(&reactor), volume, place, number),
            None => {
                let scheduler = PassThrough::new(plan.limits.in_flight);
                Ok(DeviceLane::new(nothing(), AnyScheduler::PassThrough(scheduler)))
            }
        };
        duty.attend(&mut worker, now, attach);
        let turn = worker.turn(now);
        let turn = duty.after(&mut worker, now, turn)?;
        Some(attend(worker.ports().1, now, turn))
    });
    // A device's own work may be under way still, and only a queue at rest gives its volume back.
    let until = plan.clock.now() + REST_MAX;
    io::run(&reactor, &plan.clock, plan.spin, |now| {
        let turn = rest(worker.ports().1, now).filter(|_| now < until)?;
        let wake_at = turn.wake_at.map_or(until, |at| at.min(until));
        Some(TurnOutcome { wake_at: Some(wake_at), ..turn })
    });
}

fn build<N: SocketBackend>(
    plan: &WorkerSetup,
    number: usize,
    listeners: Vec<(ListenerId, Listener)>,
    mailbox: WorkerMailbox,
) -> Result<(N::Reactor, ServerWorker<N>), String> {
    let say = |error: io::Error| error.to_string();
    if let Some(cpus) = &plan.cpus {
        io::pin_to_cpu(cpus[number]).map_err(say)?;
    }
    let reactor = N::Reactor::new().map_err(say)?;
    let arena = io::carve(&BufPool::CLASSES).map_err(say)?;
    let config = SocketsConfig {
        connections_max: plan.connections_max,
        frames_max: 2 * plan.limits.in_flight + 64,
        tcp: plan.tcp.clone(),
        ..SocketsConfig::default()
    };
    let mut sockets = N::new(&reactor, config).map_err(say)?;
    sockets.join(plan.spread.clone(), number);
    for (id, listener) in listeners {
        sockets.listen(id, listener).map_err(say)?;
    }
    let through = N::through(&reactor);
    if let FileBackend::Ring(ring) = through
        && plan.places.all().iter().any(|disk| disk.volume.is_direct())
        && let Err(error) = ring.register_buffers(&arena)
    {
        tracing::warn!("{error}");
    }
    let disks = plan.places.all().into_iter();
    let devices = disks.map(|disk| plan.attach(&through, &disk.volume, disk.place, number));
    let devices = devices.collect::<Result<Vec<_>, String>>()?;
    let pool = BufPool::new(arena.bufs);
    let line = ControlPlaneLink {
        mailbox,
        meters: plan.tenants.meters(number),
        worker: number as u16,
        watch: Some(TraceClock {
            clock: io::Clock::now_since,
            origin: plan.clock.origin(),
            traces: plan.tenants.traces(number),
        }),
    };
    let (shared, limits) = (plan.shared.clone(), plan.limits);
    let (fabric, worker, desk) = (plan.fabric.clone(), number as u16, None);
    let sessions = ListenerSessionFactory { fabric, desk, worker, shared: shared.clone() };
    let worker = Worker::with_sessions(sockets, devices, pool, shared, limits, sessions, line);
    Ok((reactor, worker))
}
