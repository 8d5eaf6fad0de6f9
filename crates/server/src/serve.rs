//! `nearflash serve`: devices below, sockets above, and a worker on each core between them.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

mod args;
mod bound;
mod clash;
mod draft;
pub mod preview;
mod reload;
pub mod state_file;

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::ListenerId;
use control::{WorkerCommands, WorkerController, WorkerMailbox};
use dataplane::{
    DeviceTable, KernelInterface, ONE_WORKER, ThreadAccounts, Volume, WorkerOrders, WorkerSetup,
    read_files,
};
use io::{ConnectionBalancer, Listener, SpinPolicy, TcpOptions, Waker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use self::args::Args;
use self::args::{located, merge};
use self::bound::BoundSockets;
use self::draft::{CommandLineSettings, StartupPlan};
use crate::admin::{AdminState, RunningServer};
use crate::config::exposure::{doubtful_names, exposed};
use crate::config::{Config, Mistakes};
use crate::fabric::Wakers;
use crate::host_keys::HostKeys;
use crate::listen::ListenAt;
use crate::live::{FixedParts, LiveConfig, Store, WorkerAccess};
use crate::log;
use crate::recalibrate::{self, Recalibrations};
use crate::storage_epoch;
use crate::upgrade::{
    HandOver, HandOverParts, Successor, ask_for_time, socket_path, start_hand_over,
    tell_service_manager, tell_why_anew,
};
use crate::watchdog;

/// Checks that this server can serve the predecessor's connections, and takes over the
/// predecessor's record of removed namespaces and listeners.
fn check_successor(
    plan: &WorkerSetup,
    successor: &mut Successor,
    live: &LiveConfig,
    listen_at: &[ListenAt],
) -> Result<(), String> {
    let (listeners, spaces) = (&plan.shared.listeners, live.spaces());
    live.set_removals(successor.removals()?);
    let departed = successor.check(&spaces, listen_at, plan.room, &plan.tenants, listeners)?;
    live.set_departed(departed);
    Ok(())
}

/// Collects the parts of the server that the admin API shows and changes, and starts the
/// recalibrations.
fn crew(
    plan: &WorkerSetup,
    chosen: KernelInterface,
    live: &Arc<LiveConfig>,
    commands: &WorkerCommands,
    config: &Config,
) -> Result<RunningServer, String> {
    let tools = recalibrate::RecalibrationContext {
        tenants: plan.tenants.clone(),
        places: plan.places.clone(),
        clock: plan.clock,
        accounts: plan.accounts.clone(),
        workers: plan.workers(),
        chosen,
    };
    let recalibrations = Recalibrations::new(tools, live.clone(), &config.device);
    live.set_recalibrations(&recalibrations);
    recalibrations.start()?;
    let (commands, cpus) = (commands.clone(), plan.cpus.clone());
    Ok(RunningServer { commands, cpus, live: live.clone(), recalibrations })
}

/// Returns the parts of the server that never change, which live changes use.
fn ground(plan: &WorkerSetup, wakers: &Wakers, insecure: bool) -> FixedParts {
    FixedParts {
        places: plan.places.clone(),
        shared: plan.shared.clone(),
        fabric: plan.fabric.clone(),
        wakers: wakers.clone(),
        workers: plan.workers(),
        clock: plan.clock,
        tenants: plan.tenants.clone(),
        tcp: plan.tcp.clone(),
        insecure,
        drain_limit: plan.limits.drain,
    }
}

/// Returns the parts that a successor takes over and to which taken-over connections are added.
fn grounds(
    plan: &WorkerSetup,
    bound: &mut BoundSockets,
    live: Arc<LiveConfig>,
    commands: WorkerCommands,
    wakers: Vec<Waker>,
    listeners: Vec<(ListenerId, Listener)>,
) -> HandOverParts {
    HandOverParts {
        tenants: plan.tenants.clone(),
        commands,
        spread: plan.spread.clone(),
        shared: plan.shared.clone(),
        places: plan.places.clone(),
        live,
        clock: plan.clock,
        orders: plan.orders.clone(),
        wakers,
        sockets: bound.take_sockets(),
        apis: bound.apis(),
        connections_max: plan.room,
        listeners: Mutex::new(listeners),
    }
}

/// Serves until SIGTERM or SIGINT arrives, or another process has taken over.
pub fn run(args: Args) -> Result<ExitCode, String> {
    end_with_any_thread();
    let base = merge(&args)?;
    // Who has logs opened anew does not end a server that is about to start: it reloads when it
    // serves.
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
    let draft =
        StartupPlan::of(&base, &config, args.beside()).map_err(|found| located(args, &found))?;
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let listen_at = draft.listen.clone();
    let chosen = args.interface.choose()?;
    let (plan, mut controller, hand_over) = plan(args, &base, &config, draft, successor.as_mut())?;
    let keys = HostKeys(plan.fabric.clone());
    let binding = (&plan.tcp, plan.workers(), &keys);
    let mut bound = BoundSockets::bind(&listen_at, binding, successor.as_mut())?;
    let fabric_wakers = Wakers::default();
    let ground = ground(&plan, &fabric_wakers, args.insecure);
    let live = LiveConfig::new(ground, bound.take_open(), base, changes, store)?;
    match successor {
        Some(successor) => check_successor(&plan, successor, &live, &listen_at)?,
        None => live.keep_disks(),
    }
    let plan = Arc::new(plan);
    // Before the threads, so that a signal cannot come in between.
    take_ends(&signals)?;
    // What is taken over is accepted from when it is ours.
    let listeners = bound.take_listeners();
    let (now, later) = if successor.is_none() { (listeners, vec![]) } else { (vec![], listeners) };
    let (threads, wakers) = plan.start(chosen, has_packets(&listen_at), now)?;
    let commands = controller.commands();
    let crew = crew(&plan, chosen, &live, &commands, &config)?;
    let (admin, is_successor) = (Arc::new(AdminState::open(&config.admin)?), successor.is_some());
    live.set_audit(admin.audit());
    bound.open_apis(args, &admin, &plan.tenants, crew, successor.as_mut())?;
    fabric_wakers.set(wakers.clone());
    let (orders, to_wake) = (plan.orders.clone(), wakers.clone());
    live.set_gate(WorkerAccess { orders, wakers: to_wake, commands: commands.clone() });
    let (hand_over, wake) = HandOver::new(hand_over);
    controller.set_wake(wakers.len(), wake);
    start_controller(controller, &wakers).and_then(|()| watchdog::start(&plan.orders, &wakers))?;
    let (reloaded, words, own_admin) = (live.clone(), args.clone(), admin.clone());
    let reload = move || reload::reload(&words, &reloaded, &own_admin);
    let (serves, is_served) = sync_channel(1);
    stop_on_signal(signals, plan.clone(), wakers.clone(), is_served, reload)?;
    let grounds = grounds(&plan, &mut bound, live, commands, wakers, later);
    let hand_over = start_hand_over(hand_over, grounds, successor.take(), bound.upgrade()?)?;
    if hand_over.has_to_serve(&threads)? {
        announce(&bound, is_successor.then(|| (&*admin, args.about())));
        let _ = serves.send(()); // it is listened to until this process ends
    }
    let failed = plan.await_ends(threads);
    hand_over.see_out();
    bound.let_answers_leave();
    admin.settle();
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
/// manager has been notified already.
fn announce(bound: &BoundSockets, taken_over: Option<(&AdminState, String)>) {
    match taken_over {
        Some((admin, about)) => admin.has_taken_over(&about),
        None => tell_service_manager(),
    }
    // Who started it may not listen any more.
    let _ = writeln!(std::io::stdout(), "ready {}", bound.urls());
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
    StartupPlan::of(base, config, CommandLineSettings::default()).map(drop)
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
    draft: StartupPlan,
    mut successor: Option<&mut Successor>,
) -> Result<(WorkerSetup, WorkerController, WorkerMailbox), String> {
    let StartupPlan { listen, size, limits, specs, clock, tenants } = draft;
    let workers = check_workers(size.most, &specs)?;
    if let Some(successor) = &mut successor {
        successor.find_devices(&specs)?;
    }
    let mut open = |(n, (name, spec)): (usize, (String, &flash::Spec))| {
        let files = successor.as_mut().and_then(|successor| successor.files(n));
        let volume = files.map_or_else(|| Volume::open(spec), |files| Volume::adopt(spec, files));
        let volume = read_files(volume?, config.exports_files_of(&name))?;
        let known = config.known.disks.get(&name).filter(|_| !args.accept_disk.contains(&name));
        volume.check_kept_disk(&name, known)?;
        Ok((name, volume))
    };
    let named = config.device_names().into_iter().zip(&specs).enumerate();
    let named = named.map(&mut open).collect::<Result<Vec<_>, String>>()?;
    crate::tenancy::expect_chores(&tenants, &named)?;
    // Sizes and files are known now that were not, such as those of block devices.
    let shared = draft::parts(base, config, &listen, &named, &tenants);
    let storage_epoch = storage_epoch::of(named.iter().map(|(_, volume)| volume));
    let places = Arc::new(DeviceTable::of(named));
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
    let spread = ConnectionBalancer::new(workers);
    spread.bound(room);
    let open_to = spread.clone();
    let commands = controller.commands();
    commands.set_open_to(Box::new(move |workers| open_to.open_to(workers)));
    commands.size(size.least);
    let (orders, inboxes) = WorkerOrders::new(workers);
    let boxes = boxes.into_iter().zip(inboxes).map(Some).collect();
    let plan = WorkerSetup {
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
        accounts: ThreadAccounts::watched_by(&mut controller, workers),
    };
    Ok((plan, controller, hand_over))
}

/// Handles signals. The first SIGTERM or SIGINT drains all workers, or ends a drain soon. The
/// second one ends the process at once.
/// SIGHUP reloads the configuration in a thread of its own, because the disk may be slow. A SIGHUP
/// during a reload causes one more reload.
fn stop_on_signal(
    mut signals: Signals,
    plan: Arc<WorkerSetup>,
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
                // It is full when one is to come that has not begun: that reads what this one
                // would.
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
