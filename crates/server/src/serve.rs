//! `nearflash serve`: devices below, sockets above, and a worker on each core between them.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

mod args;
mod clash;
mod doors;
mod draft;
mod duty;
pub mod preview;
mod reload;
pub mod state_file;

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::{BufPool, ListenerId};
use control::{Tenants, WorkerCommands, WorkerController, WorkerMailbox};
use io::{
    Clock, EpollSockets, Listener, PacketSockets, Reactor, Sockets, SocketsConfig, SpinPolicy,
    Spread, TcpOptions, Waker,
};
use proto::nvme::Fabric;
use qos::{AnyScheduler, PassThrough, QueueLimits};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use worker::{Attached, Limits, Line, Parts, Watch, Worker};

pub use self::args::Args;
use self::args::{located, merge};
use self::doors::Doors;
use self::draft::{Beside, Draft};
use self::duty::{Duty, ServerDevice, ServerWorker};
use crate::accounts::Accounts;
use crate::admin::{Crew, Office};
use crate::config::exposure::{doubtful_names, exposed};
use crate::config::{Config, Mistakes};
use crate::fabric::Wakers;
use crate::interface::{Chosen, Way};
use crate::listen::ListenAt;
use crate::live::{Gate, Ground, Live, Store};
use crate::log;
use crate::orders::{Inbox, Orders};
use crate::places::Places;
use crate::recalibrate::{self, Recalibrations};
use crate::sessions::ByListener;
use crate::storage_epoch;
use crate::upgrade::{
    Grounds, HandOver, Successor, ask_for_time, socket_path, start_hand_over, tell_service_manager,
    tell_why_anew,
};
use crate::volumes::{ONE_WORKER, Through, Volume, nothing};
use crate::watchdog;

/// The parts from which each worker of a server is built.
pub(crate) struct Plan {
    pub(crate) places: Arc<Places>,
    pub(crate) shared: Arc<Parts>,
    limits: Limits,
    spread: Arc<Spread>,
    orders: Arc<Orders>,
    cpus: Option<Vec<usize>>,
    spin: SpinPolicy,
    tcp: TcpOptions,
    /// The largest number of connections of one worker.
    connections_max: usize,
    /// The number of connections that all workers together have room for.
    pub(crate) room: usize,
    /// The clock of all workers and the control plane.
    clock: Clock,
    pub(crate) tenants: Tenants,
    no_scheduler: bool,
    /// The NVMe fabric, created once a listener speaks NVMe.
    fabric: Arc<OnceLock<Arc<Fabric>>>,
    /// The mailboxes and orders of the workers that have not started, by worker.
    boxes: Mutex<Vec<Option<(WorkerMailbox, Inbox)>>>,
    accounts: Accounts,
}

impl Plan {
    /// Checks that this server can serve the predecessor's connections, and takes over the
    /// predecessor's record of removed namespaces and listeners.
    fn check_successor(
        &self,
        successor: &mut Successor,
        live: &Live,
        listen_at: &[ListenAt],
    ) -> Result<(), String> {
        let (listeners, spaces) = (&self.shared.listeners, live.spaces());
        live.set_removals(successor.removals()?);
        let departed = successor.check(&spaces, listen_at, self.room, &self.tenants, listeners)?;
        live.set_departed(departed);
        Ok(())
    }

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
        through: &Through<'_>,
        volume: &Volume,
        place: usize,
        worker: usize,
    ) -> Result<ServerDevice, String> {
        let queue = volume.open_queue(through, place, worker)?;
        Ok(Attached::new(queue, self.scheduler(place, worker)))
    }

    fn workers(&self) -> usize {
        self.spread.connections().len()
    }

    /// Waits until all workers have ended, and closes the devices. Returns `true` if a worker
    /// failed.
    fn await_ends(&self, threads: Vec<JoinHandle<()>>) -> bool {
        let join = |failed, thread: JoinHandle<()>| failed | thread.join().is_err();
        let failed = threads.into_iter().fold(false, join);
        self.places.all().iter().for_each(|disk| disk.volume.close());
        failed
    }

    /// Collects the parts of the server that the admin API shows and changes, and starts the
    /// recalibrations.
    fn crew(
        &self,
        chosen: Chosen,
        live: &Arc<Live>,
        commands: &WorkerCommands,
        config: &Config,
    ) -> Result<Crew, String> {
        let tools = recalibrate::Tools {
            tenants: self.tenants.clone(),
            places: self.places.clone(),
            clock: self.clock,
            accounts: self.accounts.clone(),
            workers: self.workers(),
            chosen,
        };
        let recalibrations = Recalibrations::new(tools, live.clone(), &config.device);
        live.set_recalibrations(&recalibrations);
        recalibrations.start()?;
        let (commands, cpus) = (commands.clone(), self.cpus.clone());
        Ok(Crew { commands, cpus, live: live.clone(), recalibrations })
    }

    /// Returns the parts of the server that never change, which live changes use.
    fn ground(&self, wakers: &Wakers, insecure: bool) -> Ground {
        Ground {
            places: self.places.clone(),
            shared: self.shared.clone(),
            fabric: self.fabric.clone(),
            wakers: wakers.clone(),
            workers: self.workers(),
            clock: self.clock,
            tenants: self.tenants.clone(),
            tcp: self.tcp.clone(),
            insecure,
            drain_limit: self.limits.drain,
        }
    }

    /// Returns the parts that a successor takes over and to which taken-over connections are added.
    fn grounds(
        &self,
        doors: &mut Doors,
        live: Arc<Live>,
        commands: WorkerCommands,
        wakers: Vec<Waker>,
        listeners: Vec<(ListenerId, Listener)>,
    ) -> Grounds {
        Grounds {
            tenants: self.tenants.clone(),
            commands,
            spread: self.spread.clone(),
            shared: self.shared.clone(),
            places: self.places.clone(),
            live,
            clock: self.clock,
            orders: self.orders.clone(),
            wakers,
            sockets: doors.take_sockets(),
            apis: doors.apis(),
            connections_max: self.room,
            listeners: Mutex::new(listeners),
        }
    }
}

/// Serves until SIGTERM or SIGINT arrives, or another process has taken over.
pub fn run(args: Args) -> Result<ExitCode, String> {
    end_with_any_thread();
    let base = merge(&args)?;
    // Who has logs opened anew does not end a server that is about to start: it reloads when it serves.
    let hang_ups =
        Signals::new([SIGHUP]).map_err(|error| format!("cannot take signals: {error}"))?;
    // Before there are others: workers alone go to their processors.
    if let Some(Err(error)) = base.pinned().map(|cpus| io::keep_off_cpus(cpus)) {
        tracing::warn!(%error, "threads that answer operators keep the workers' priority and may delay requests");
    }
    log::tell_what_is_left_out();
    tell_why_anew();
    if let Some(made) = args::told_of_defaults(&base).filter(|_| !args.check) {
        log::say(made);
    }
    if let Some(exposed) = args.config.as_ref().and_then(|file| exposed(&base, file)) {
        log::say(format_args!("warning: {exposed}"));
    }
    for doubt in doubtful_names(&base) {
        log::say(format_args!("warning: {doubt}; no host of another name is let in by it"));
    }
    let place = socket_path(args.upgrade_socket.as_deref(), base.admin.listen.as_ref());
    let mut successor = match (args.upgrade && !args.check, &place) {
        (false, _) => None,
        (true, Some(place)) => Successor::knock(place)?,
        (true, None) => {
            return Err(
                "--upgrade needs to know where the server that runs is upgraded: name its \
                        --upgrade-socket"
                    .to_owned(),
            );
        }
    };
    let served = serve(&args, base, &mut successor, hang_ups);
    if let (Err(why), Some(successor)) = (&served, &successor) {
        successor.stop(why);
    }
    served
}

/// Runs the server. If it is a successor, begins the take-over and removes it from `successor`.
fn serve(
    args: &Args,
    base: Config,
    successor: &mut Option<Successor>,
    signals: Signals,
) -> Result<ExitCode, String> {
    let (told, file) = (args.state.as_deref(), args.config.as_deref());
    let (store, changes) =
        state_file::open(state_file::path(told, file, &base).as_deref(), args.previous_state)?;
    if store.is_none() && !args.check {
        state_file::warn_of_none(told, &base);
    }
    if let Some(successor) = successor {
        successor.check_state(store.as_ref().map(Store::at).as_ref())?;
    }
    changes.dormant(&base).into_iter().for_each(|line| tracing::warn!("{line}"));
    let config = changes.made_to(&base);
    let draft = Draft::of(&base, &config, args.beside()).map_err(|found| located(args, &found))?;
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let listen_at = draft.listen.clone();
    let chosen = args.interface.choose()?;
    let (plan, mut controller, hand_over) = plan(args, &base, &config, draft, successor.as_mut())?;
    let mut doors = Doors::bind(&listen_at, (&plan.tcp, plan.workers()), successor.as_mut())?;
    let fabric_wakers = Wakers::default();
    let ground = plan.ground(&fabric_wakers, args.insecure);
    let live = Live::new(ground, doors.take_open(), base, changes, store)?;
    match successor {
        Some(successor) => plan.check_successor(successor, &live, &listen_at)?,
        None => live.keep_disks(),
    }
    let plan = Arc::new(plan);
    // Before the threads, so that a signal cannot come in between.
    take_ends(&signals)?;
    // What is taken over is accepted from when it is ours.
    let listeners = doors.take_listeners();
    let (now, later) = if successor.is_none() { (listeners, vec![]) } else { (vec![], listeners) };
    let (threads, wakers) = match chosen {
        Chosen::IoUring if has_packets(&listen_at) => start::<PacketSockets>(&plan, now)?,
        Chosen::IoUring => start::<Sockets>(&plan, now)?,
        Chosen::Epoll => start::<EpollSockets>(&plan, now)?,
    };
    let commands = controller.commands();
    let crew = plan.crew(chosen, &live, &commands, &config)?;
    let (office, is_successor) = (Arc::new(Office::open(&config.admin)?), successor.is_some());
    live.set_audit(office.audit());
    doors.open_apis(args, &office, &plan.tenants, crew, successor.as_mut())?;
    fabric_wakers.set(wakers.clone());
    let (orders, to_wake) = (plan.orders.clone(), wakers.clone());
    live.set_gate(Gate { orders, wakers: to_wake, commands: commands.clone() });
    let (hand_over, wake) = HandOver::new(hand_over);
    controller.set_wake(wakers.len(), wake);
    start_controller(controller, &wakers).and_then(|()| watchdog::start(&plan.orders, &wakers))?;
    let (reloaded, words, own_office) = (live.clone(), args.clone(), office.clone());
    let reload = move || reload::reload(&words, &reloaded, &own_office);
    let (serves, is_served) = sync_channel(1);
    stop_on_signal(signals, plan.clone(), wakers.clone(), is_served, reload)?;
    let grounds = plan.grounds(&mut doors, live, commands, wakers, later);
    let hand_over = start_hand_over(hand_over, grounds, successor.take(), doors.upgrade()?)?;
    if hand_over.has_to_serve(&threads)? {
        announce(&doors, is_successor.then(|| (&*office, args.about())));
        let _ = serves.send(()); // it is listened to until this process ends
    }
    let failed = plan.await_ends(threads);
    hand_over.see_out();
    doors.let_answers_leave();
    office.settle();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns `true` if workers need the transport of packets beside streams. Without a listener of
/// packets, streams have no additional cost.
fn has_packets(listen: &[ListenAt]) -> bool {
    listen.iter().any(|at| at.endpoint.is_of_packets())
}

/// Makes `signals` receive SIGTERM and SIGINT, which end a server.
fn take_ends(signals: &Signals) -> Result<(), String> {
    let taken = [SIGTERM, SIGINT].into_iter().try_for_each(|signal| signals.add_signal(signal));
    taken.map_err(|error| format!("cannot take signals: {error}"))
}

/// Announces that this process serves. A process that has taken over also logs that; its service
/// manager has been told already.
fn announce(doors: &Doors, taken_over: Option<(&Office, String)>) {
    match taken_over {
        Some((office, about)) => office.has_taken_over(&about),
        None => tell_service_manager(),
    }
    // Who started it may not listen any more.
    let _ = writeln!(std::io::stdout(), "ready {}", doors.urls());
}

/// Starts the control plane's thread.
fn start_controller(mut controller: WorkerController, wakers: &[Waker]) -> Result<(), String> {
    for (worker, waker) in wakers.iter().cloned().enumerate() {
        controller.set_wake(worker, Box::new(move || waker.wake()));
    }
    controller.set_give_back(Box::new(io::give_memory_back));
    let started = std::thread::Builder::new().name("control".to_owned()).spawn(|| controller.run());
    started.map(drop).map_err(|error| format!("cannot start the control plane: {error}"))
}

/// Ends the whole process when a thread panics, so that its supervisor restarts it. Without one
/// worker, the server would seem to run while connections and locks of that worker wait for ever.
fn end_with_any_thread() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Collects the mistakes of a configuration, for `--check`.
pub fn check_config(base: &Config, config: &Config) -> Result<(), Mistakes> {
    Draft::of(base, config, Beside::default()).map(drop)
}

/// Returns the number of workers if so many can serve these devices, or an error.
fn check_workers(workers: usize, specs: &[flash::Spec]) -> Result<usize, String> {
    match workers > 1 && specs.iter().any(Volume::is_of_one_worker) {
        true => Err(format!("{workers} workers: {ONE_WORKER}")),
        false => Ok(workers),
    }
}

fn plan(
    args: &Args,
    base: &Config,
    config: &Config,
    draft: Draft,
    mut successor: Option<&mut Successor>,
) -> Result<(Plan, WorkerController, WorkerMailbox), String> {
    let Draft { listen, size, limits, specs, clock, tenants } = draft;
    let workers = check_workers(size.most, &specs)?;
    if let Some(successor) = &mut successor {
        successor.find_devices(&specs)?;
    }
    let mut open = |(n, (name, spec)): (usize, (String, &flash::Spec))| {
        let files = successor.as_mut().and_then(|successor| successor.files(n));
        let volume = files.map_or_else(|| Volume::open(spec), |files| Volume::adopt(spec, files));
        let volume = volume?;
        let known = config.known.disks.get(&name).filter(|_| !args.accept_disk.contains(&name));
        volume.check_kept_disk(&name, known)?;
        Ok((name, volume))
    };
    let named = config.device_names().into_iter().zip(&specs).enumerate();
    let named = named.map(&mut open).collect::<Result<Vec<_>, String>>()?;
    crate::tenancy::expect_chores(&tenants, &named)?;
    let blocks: Vec<u64> = named.iter().map(|(_, volume)| volume.blocks()).collect();
    let storage_epoch = storage_epoch::of(named.iter().map(|(_, volume)| volume));
    let places = Arc::new(Places::of(named));
    // Sizes are known now that were not, such as those of block devices.
    let shared = draft::parts(base, config, &listen, &blocks, &tenants);
    let mut shared = shared.map_err(|mistakes| located(args, &mistakes))?;
    shared.storage_epoch = storage_epoch.into();
    if let Some(successor) = successor {
        shared.namespaces = shared.namespaces.after(&successor.removals()?);
        shared.storage_epoch = successor.storage_epoch().unwrap_or(storage_epoch).into();
    }
    if args.zero_copy_send {
        tracing::warn!("--zero-copy-send has no effect any more: it was slower");
    }
    let (mut controller, boxes, hand_over) =
        WorkerController::with_hand_over(tenants.clone(), workers);
    let descriptors = io::raise_descriptor_limit().saturating_sub(64 + 16 * workers);
    let room = config.connections_max().min(descriptors).max(1);
    let spread = Spread::new(workers);
    spread.bound(room);
    let open_to = spread.clone();
    let commands = controller.commands();
    commands.set_open_to(Box::new(move |workers| open_to.open_to(workers)));
    commands.size(size.least);
    let (orders, inboxes) = Orders::new(workers);
    let boxes = boxes.into_iter().zip(inboxes).map(Some).collect();
    let plan = Plan {
        places,
        shared: Arc::new(shared),
        limits,
        spread,
        orders: Arc::new(orders),
        cpus: config.pinned().cloned(),
        spin: SpinPolicy { spin: Duration::from_micros(args.spin) },
        tcp: TcpOptions { congestion: args.congestion.clone(), socket_buffer: None },
        // Of those that serve at least, each has its part; they may be all that serve.
        connections_max: room.div_ceil(size.least),
        room,
        clock,
        tenants,
        no_scheduler: args.no_scheduler,
        fabric: Arc::default(),
        boxes: Mutex::new(boxes),
        accounts: Accounts::watched_by(&mut controller, workers),
    };
    Ok((plan, controller, hand_over))
}

/// Starts the workers and waits until each can serve. The first worker accepts connections.
fn start<N: Way>(
    plan: &Arc<Plan>,
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
fn work<N: Way>(
    plan: &Plan,
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
    let mut duty = Duty::new(plan.orders.clone(), number, inbox);
    io::run(&reactor, &plan.clock, plan.spin, |now| {
        let attach = |place: usize, volume: Option<&Volume>| match volume {
            Some(volume) => plan.attach(&N::through(&reactor), volume, place, number),
            None => {
                let scheduler = PassThrough::new(plan.limits.in_flight);
                Ok(Attached::new(nothing(), AnyScheduler::PassThrough(scheduler)))
            }
        };
        duty.attend(&mut worker, now, attach);
        let turn = worker.turn(now);
        duty.after(&mut worker, now, turn)
    });
}

fn build<N: Way>(
    plan: &Plan,
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
    if let Through::Ring(ring) = through
        && plan.places.all().iter().any(|disk| disk.volume.is_direct())
        && let Err(error) = ring.register_buffers(&arena)
    {
        tracing::warn!("{error}");
    }
    let disks = plan.places.all().into_iter();
    let devices = disks.map(|disk| plan.attach(&through, &disk.volume, disk.place, number));
    let devices = devices.collect::<Result<Vec<_>, String>>()?;
    let pool = BufPool::new(arena.bufs);
    let line = Line {
        mailbox,
        meters: plan.tenants.meters(number),
        worker: number as u16,
        watch: Some(Watch {
            clock: io::Clock::now_since,
            origin: plan.clock.origin(),
            traces: plan.tenants.traces(number),
        }),
    };
    let (shared, limits) = (plan.shared.clone(), plan.limits);
    let (fabric, worker, desk) = (plan.fabric.clone(), number as u16, None);
    let sessions = ByListener { fabric, desk, worker, shared: shared.clone() };
    let worker = Worker::with_sessions(sockets, devices, pool, shared, limits, sessions, line);
    Ok((reactor, worker))
}

/// Handles signals. The first SIGTERM or SIGINT drains all workers, or ends a drain soon. The
/// second one ends the process at once.
/// SIGHUP reloads the configuration in a thread of its own, because the disk may be slow. A SIGHUP
/// during a reload causes one more reload.
fn stop_on_signal(
    mut signals: Signals,
    plan: Arc<Plan>,
    wakers: Vec<Waker>,
    serves: Receiver<()>,
    reload: impl Fn() + Send + 'static,
) -> Result<(), String> {
    let (asked, asking) = sync_channel(1);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let reloads = thread("reloads").spawn(move || {
        // Nothing is changed of what another process serves still.
        if serves.recv().is_ok() {
            asking.into_iter().for_each(|()| reload());
        }
    });
    let heard = thread("signals").spawn(move || {
        let mut is_told = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                // It is full when one is to come that has not begun: that reads what this one would.
                let _ = asked.try_send(());
                continue;
            }
            if std::mem::replace(&mut is_told, true) {
                std::process::exit(130);
            }
            // First, since an idle server ends as soon as it is told to stop.
            ask_for_time(plan.limits.drain);
            plan.orders.stop_soon(plan.clock.now() + plan.limits.drain, &wakers);
        }
    });
    let started = reloads.and(heard).map(drop);
    started.map_err(|error| format!("cannot start a thread: {error}"))
}
