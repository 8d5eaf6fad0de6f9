//! The world: one clock, one seed, all parties, and the checks at the end.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{BLOCK_BYTES, BufPool, Instant, Range, SizeClass, WorkerMessage};
use flash::{MemVolume, RangeLocks, Rng};

use crate::arena::Arena;
use crate::attach::{AttachedQueue, SuccessiveProcesses};
use crate::disk::Volume;
use crate::good::WellBehavedPeer;
use crate::hostile::HostileClient;
use crate::layout::{self, COMPARED};
use crate::ledger::Ledger;
use crate::marks::{Mark, Marks};
use crate::nbd::{self, NbdPeer};
use crate::network::{HostSizes, NetHandle, Network, PacketNetwork, StreamPort};
use crate::nvme::{self, NvmeHost};
use crate::plan::{Plan, Sabotage, WorldEvent, WorldKind};
use crate::port::Port;
use crate::server::Server;
use crate::site::Site;
use crate::stamp;
use crate::steady::SteadyClient;

/// The longest time with faults.
const STORM: Duration = Duration::from_secs(20);
/// The time in which the good clients have to finish after the last fault.
const CALM: Duration = Duration::from_secs(120);
/// The time in which the workers have to drain at the end.
const DRAIN: Duration = Duration::from_secs(30);
/// The number of steps after which a world is considered to loop.
const STEPS_MAX: u64 = 3_000_000;
/// The shortest and longest delay of a party that asks to be called again at once. Each turn
/// without work doubles the delay.
const SPIN: (Duration, Duration) = (Duration::from_micros(5), Duration::from_millis(5));

/// The totals of a simulated world that has run to its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorldTotals {
    /// The number of turns of all parties.
    pub steps: u64,
    /// The number of requests of good clients that ended.
    pub requests: u64,
    /// The virtual time that passed.
    pub elapsed: Duration,
}

/// The outcome of a party's last turn.
#[derive(Clone, Copy, Debug, Default)]
struct TurnProgress {
    wake_at: Option<Instant>,
    /// `true` if the last turn of the party did any work, so that the party is called again soon.
    hot: bool,
    /// The time of the party's last turn without work, and the number of turns with work that all
    /// parties had had until then.
    idle_since: Option<(Instant, u64)>,
    /// The time at which a stall of the party's device ends, as its site has it. Every step looks
    /// at every party, and the sites lie far apart.
    stalled_until: Option<Instant>,
}

/// A simulated world: workers, clients, network and devices on one virtual clock, from one seed.
pub struct World {
    now: Instant,
    chance: Rng,
    network: NetHandle,
    sites: Vec<Site>,
    clients: Vec<WellBehavedPeer>,
    hostile: Vec<HostileClient>,
    /// The outcome of each party's last turn. Parties are workers, good clients, then hostile
    /// clients.
    drives: Vec<TurnProgress>,
    /// The number of turns that did something.
    progress: u64,
    steps: u64,
    /// The delay until the next turn of a party that asks to be called again at once.
    spin: Duration,
    /// The events that are still to happen, the last first.
    happenings: Vec<(Instant, WorldEvent)>,
    server: Server,
    /// `true` once the good and the hostile clients have left.
    is_deserted: bool,
    volume: Volume,
    marks: Marks,
    trace: bool,
}

impl World {
    /// Creates the world of this kind of a seed. Its memory comes from `arena`.
    pub fn new(
        kind: WorldKind,
        seed: u64,
        sabotage: Sabotage,
        arena: &mut Arena,
        marks: &Marks,
        trace: bool,
    ) -> Self {
        let plan = Plan::of(kind, seed);
        if trace {
            eprintln!("{plan:#?}");
        }
        let network = Network::new(plan.impairments.clone(), seed ^ 0x4e7, marks.clone(), trace);
        network.borrow_mut().packets = plan
            .packets
            .clone()
            .map(|impairments| PacketNetwork::new(impairments, seed ^ 0x7061_636b, marks.clone()));
        let volume = Volume {
            data: MemVolume::new(layout::VOLUME_BLOCKS),
            locks: Arc::new(RangeLocks::new()),
            ledger: Rc::new(RefCell::new(Ledger::new(marks.clone(), network.borrow().partings()))),
            calm: Rc::new(RefCell::new(false)),
            marks: marks.clone(),
        };
        let mut happenings: Vec<(Instant, WorldEvent)> =
            plan.happenings.iter().map(|&(at, what)| (Instant::ZERO + at, what)).collect();
        happenings.reverse();
        let workers = plan.workers.len();
        let server = Server::new(plan.control_plane, sabotage, workers, Instant::ZERO, seed, marks);
        let mut world = World {
            now: Instant::ZERO,
            chance: Rng::new(seed ^ 0x0123_4567),
            network,
            sites: Vec::new(),
            clients: Vec::new(),
            hostile: Vec::new(),
            drives: Vec::new(),
            progress: 0,
            steps: 0,
            spin: SPIN.0,
            happenings,
            server,
            is_deserted: false,
            volume,
            marks: marks.clone(),
            trace,
        };
        world.populate(&plan, seed, arena);
        world
    }

    fn populate(&mut self, plan: &Plan, seed: u64, arena: &mut Arena) {
        for (n, worker) in plan.workers.iter().enumerate() {
            let mut volume = self.volume.clone();
            if self.server.sabotage() == Sabotage::SeparateLocks {
                volume.locks = Arc::new(RangeLocks::new());
            }
            let address = ([10, 1, 0, n as u8], 7420);
            let place = Some((n, plan.workers.len()));
            let port =
                self.host(address.into(), worker.sizes, worker.receive_buffers, place, arena);
            let common = self.server.common_of_one();
            let (plan, sabotage) = (worker.clone(), self.server.sabotage());
            let control_plane = &mut self.server.control_plane;
            let site = Site::new(plan, port, volume, &common, sabotage, control_plane, arena);
            self.sites.push(site);
        }
        let sizes = HostSizes { connections_max: 64, frames_max: 64 };
        let buffers = SizeClass { bytes: 16 << 10, count: 8 };
        for (n, habits) in plan.clients.iter().enumerate() {
            let address = ([10, 0, 0, n as u8], 1000);
            let port = self.host(address.into(), sizes, buffers, None, arena);
            let pool = client_pool(habits.options.in_flight_max, habits.huge, arena);
            let ledger = self.volume.ledger.clone();
            let marks = self.marks.clone();
            let steady = SteadyClient::new(n, port, habits.clone(), ledger, pool, marks);
            self.clients.push(WellBehavedPeer::Reflex(Box::new(steady)));
        }
        for (n, habits) in plan.hosts.iter().enumerate() {
            let address = ([10, 2, 0, n as u8], 1000);
            let port = self.host(address.into(), sizes, buffers, None, arena);
            self.network.borrow_mut().dial_to(port.host(), nvme::LISTENER);
            let pool = arena.pool(&[SizeClass { bytes: 8 << 10, count: 16 }]);
            let (ledger, marks) = (self.volume.ledger.clone(), self.marks.clone());
            let number = plan.clients.len() + n;
            let controllers = self.server.controllers();
            let host =
                NvmeHost::new(number, port, habits.clone(), ledger, controllers, pool, marks);
            self.clients.push(WellBehavedPeer::Nvme(Box::new(host)));
        }
        for (n, habits) in plan.nbd.iter().enumerate() {
            let address = ([10, 3, 0, n as u8], 1000);
            let port = self.host(address.into(), sizes, buffers, None, arena);
            self.network.borrow_mut().dial_to(port.host(), nbd::LISTENER);
            let pool = arena.pool(&[SizeClass { bytes: 8 << 10, count: 16 }]);
            let (ledger, marks) = (self.volume.ledger.clone(), self.marks.clone());
            let number = plan.clients.len() + plan.hosts.len() + n;
            let peer = NbdPeer::new(number, port, habits.clone(), ledger, pool, marks);
            self.clients.push(WellBehavedPeer::Nbd(Box::new(peer)));
        }
        self.attach(plan, arena);
        let sizes = HostSizes { connections_max: 4, frames_max: 4096 };
        for n in 0..plan.hostile {
            let address = ([10, 9, 0, n as u8], 1000);
            let port = self.host(address.into(), sizes, buffers, None, arena);
            let seed = seed.wrapping_mul(31) ^ n as u64;
            self.hostile.push(HostileClient::new(port, seed, self.marks.clone()));
        }
        let parties = self.sites.len() + self.clients.len() + self.hostile.len();
        self.drives = vec![TurnProgress { hot: true, ..TurnProgress::default() }; parties];
    }

    /// Adds the plan's attached volumes to the good clients of the world.
    fn attach(&mut self, plan: &Plan, arena: &mut Arena) {
        let sizes = HostSizes { connections_max: 64, frames_max: 64 };
        let buffers = SizeClass { bytes: 16 << 10, count: 8 };
        for (n, device) in plan.attached.iter().enumerate() {
            let forgets = self.server.sabotage() == Sabotage::StrangeSuccessors;
            let crew = SuccessiveProcesses::new(device, forgets);
            for (queue, habits) in device.queues.iter().enumerate() {
                let address = ([10, 4, n as u8, queue as u8], 1000);
                let port = self.host(address.into(), sizes, buffers, None, arena);
                let mut classes = vec![
                    SizeClass { bytes: 4096, count: habits.options.in_flight_max.div_ceil(2) },
                    SizeClass { bytes: 64 << 10, count: 2 },
                ];
                if habits.big > 0.0 {
                    classes.push(SizeClass { bytes: 1 << 20, count: 1 });
                }
                let (crew, bufs) = (crew.clone(), arena.pool(&classes));
                let (ledger, marks) = (self.volume.ledger.clone(), self.marks.clone());
                let place = (self.clients.len(), queue);
                let habits = habits.clone();
                let queue = AttachedQueue::new(place, port, habits, crew, ledger, bufs, marks);
                self.clients.push(WellBehavedPeer::Attached(Box::new(queue)));
            }
        }
    }

    fn host(
        &mut self,
        address: SocketAddr,
        sizes: HostSizes,
        buffers: SizeClass,
        worker: Option<(usize, usize)>,
        arena: &mut Arena,
    ) -> Port {
        let buffers = (0..buffers.count).map(|n| arena.take(buffers.bytes, n as u32)).collect();
        if let Some(packets) = &mut self.network.borrow_mut().packets {
            return Port::Packets(packets.add(address, sizes, buffers, worker, arena));
        }
        let listening = worker.is_some();
        let host = self.network.borrow_mut().add_host(address, sizes, buffers, listening);
        Port::Streams(StreamPort::new(self.network.clone(), host))
    }

    /// Runs the world to its end and checks everything.
    ///
    /// # Panics
    /// Panics on a violation, with a description.
    pub fn run(mut self, arena: &mut Arena) -> WorldTotals {
        if let Err(what) = catch_unwind(AssertUnwindSafe(|| self.live(arena))) {
            eprintln!("{}", self.describe());
            resume_unwind(what);
        }
        self.take_apart(arena)
    }

    fn live(&mut self, arena: &mut Arena) {
        self.run_until(STORM, arena, |world| world.clients.iter().all(WellBehavedPeer::has_sent));
        self.calm_down();
        let content = |world: &mut World| world.clients.iter().all(WellBehavedPeer::is_content);
        if !self.run_until(CALM, arena, content) {
            panic!("the good clients do not come to an end");
        }
        self.desert();
        let drained = |world: &mut World| {
            !world.server.is_restarting && world.sites.iter().all(Site::is_drained)
        };
        if !self.run_until(DRAIN, arena, drained) {
            panic!("the workers do not come to rest");
        }
        self.check_rest();
        self.check_tokens();
        self.check_volume();
    }

    /// Takes steps until `done` returns `true`. Returns `false` if the time is over first.
    fn run_until(
        &mut self,
        limit: Duration,
        arena: &mut Arena,
        done: impl Fn(&mut World) -> bool,
    ) -> bool {
        let until = self.now + limit;
        while !done(self) {
            if self.now >= until || !self.step(until, arena) {
                return done(self);
            }
        }
        true
    }

    /// Lets one party take a turn, or advances the clock to the next possible turn, at most to
    /// `until`. Returns `false` if no party will ever act.
    fn step(&mut self, until: Instant, arena: &mut Arena) -> bool {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the world runs in circles");
        while self.happenings.last().is_some_and(|&(at, _)| at <= self.now) {
            let (_, what) = self.happenings.pop().expect("it was looked at");
            self.happen(what);
        }
        self.restart_drained(arena);
        if self.server.control_plane.due <= self.now {
            self.look_at_desk();
        }
        if self.server.take_woken() {
            self.wake_workers();
        }
        self.network.borrow_mut().settle(self.now);
        let (mut due, mut next, mut spins) = (Vec::new(), Vec::new(), false);
        for party in 0..self.drives.len() {
            let wake = self.wake_at(party);
            let idle = self.drives[party].idle_since == Some((self.now, self.progress));
            match wake {
                Some(at) if at > self.now => next.push(at),
                Some(_) if idle => spins = true,
                Some(_) => due.push(party),
                None => {}
            }
        }
        if !due.is_empty() {
            let party = due[self.chance.within(0..=due.len() as u64 - 1) as usize];
            self.turn(party);
            return true;
        }
        next.extend(self.network.borrow().next_dial());
        next.push(self.server.control_plane.due);
        next.extend(self.happenings.last().map(|&(at, _)| at));
        if spins {
            next.push(self.now + self.spin);
            self.spin = (2 * self.spin).min(SPIN.1);
        }
        let Some(at) = next.into_iter().min() else { return false };
        self.now = at.min(until);
        true
    }

    fn port_of(&mut self, party: usize) -> &Port {
        let (sites, clients) = (self.sites.len(), self.clients.len());
        match party {
            n if n < sites => &self.sites[n].port,
            n if n < sites + clients => self.clients[n - sites].port(),
            n => self.hostile[n - sites - clients].port(),
        }
    }

    /// Returns the time at which the party with this index can act next; `None` if it waits for
    /// others.
    fn wake_at(&mut self, party: usize) -> Option<Instant> {
        if party >= self.sites.len() && self.is_deserted {
            return None;
        }
        let drive = &self.drives[party];
        let own = [drive.wake_at, drive.stalled_until].into_iter().flatten().min();
        if drive.hot || own.is_some_and(|at| at <= self.now) {
            return Some(self.now);
        }
        [own, self.port_of(party).arrives_at()].into_iter().flatten().min()
    }

    fn turn(&mut self, party: usize) {
        let (now, sites, clients) = (self.now, self.sites.len(), self.clients.len());
        let (progressed, wake_at) = match party {
            n if n < sites => {
                let site = &mut self.sites[n];
                let turn = self.server.run(n, || site.turn(now));
                (turn.progressed, turn.wake_at)
            }
            n if n < sites + clients => {
                let client = &mut self.clients[n - sites];
                (client.turn(now), client.wake_at())
            }
            n => {
                let hostile = &mut self.hostile[n - sites - clients];
                (hostile.turn(now), hostile.wake_at())
            }
        };
        if self.server.control_plane.has_passed() {
            self.drives[..sites].iter_mut().for_each(|drive| drive.hot = true);
        }
        self.progress += u64::from(progressed);
        if progressed {
            self.spin = SPIN.0;
        }
        let idle_since = (!progressed).then_some((now, self.progress));
        let stalled_until = self.sites.get(party).and_then(|site| site.stalled_until);
        self.drives[party] = TurnProgress { wake_at, hot: progressed, idle_since, stalled_until };
    }

    fn happen(&mut self, what: WorldEvent) {
        if self.trace {
            eprintln!("{:14.3} {what:?}", self.now.as_nanos() as f64 / 1e3);
        }
        match what {
            WorldEvent::Strike => self.network.borrow_mut().strike(self.now),
            WorldEvent::Stall { worker, lasts } => {
                self.sites[worker].stall(self.now + lasts);
                self.drives[worker].stalled_until = self.sites[worker].stalled_until;
            }
            WorldEvent::Drain { worker } => self.drain(worker),
            WorldEvent::Operate => self.server.control_plane.operate(self.now),
            WorldEvent::Move { worker, to } => self.order_move(worker, to),
            WorldEvent::Give { worker, to, count } => {
                let to = to as u16;
                let tell = WorkerMessage::Give { count, to, at_once: control::GIVEN_AT_ONCE };
                self.server.control_plane.order(worker, tell, self.now);
            }
            WorldEvent::Restart => {
                self.server.is_restarting = true;
                (0..self.sites.len()).for_each(|worker| self.drain(worker));
            }
            WorldEvent::Kill => {
                self.marks.hit(Mark::Killed);
                self.server.is_restarting = true;
                for worker in 0..self.sites.len() {
                    self.sites[worker].port.kill(self.now);
                    self.drain(worker);
                }
            }
        }
    }

    /// Tells an arbitrary connection of the worker to move.
    fn order_move(&mut self, worker: usize, to: usize) {
        let open: Vec<_> = self.sites[worker].served().connection_ids().collect();
        if open.is_empty() {
            return;
        }
        let conn = open[self.chance.within(0..=open.len() as u64 - 1) as usize];
        self.server.control_plane.order(
            worker,
            WorkerMessage::Move { conn, to: to as u16 },
            self.now,
        );
    }

    /// Runs a turn of the control plane, and wakes the workers that have new messages.
    fn look_at_desk(&mut self) {
        let sites = &self.sites;
        let in_flight_of =
            |tenant| sites.iter().map(|site| site.served().in_flight_of(tenant)).sum();
        if self.server.control_plane.look(self.now, in_flight_of) {
            self.wake_workers();
        }
    }

    fn wake_workers(&mut self) {
        let workers = self.sites.len();
        self.drives[..workers].iter_mut().for_each(|drive| drive.hot = true);
    }

    /// Checks the token counts of a server whose workers have drained.
    fn check_tokens(&self) {
        let schedulers: Vec<_> =
            self.sites.iter().flat_map(|site| site.served().schedulers()).collect();
        self.server.control_plane.check(&schedulers);
    }

    fn drain(&mut self, worker: usize) {
        self.sites[worker].worker().drain(self.now);
        self.drives[worker].hot = true;
    }

    /// Starts drained workers again.
    fn restart_drained(&mut self, arena: &mut Arena) {
        let count = self.sites.len();
        let drained: Vec<usize> = (0..count).filter(|&n| self.sites[n].is_drained()).collect();
        if drained.is_empty() || self.is_deserted && !self.server.is_restarting {
            return;
        }
        let mut is_new = false;
        if self.server.is_restarting {
            if drained.len() < count {
                return;
            }
            self.check_tokens();
            self.server.renew(count, self.now, &self.marks);
            is_new = true;
            self.marks.hit(Mark::Restarted);
        }
        for worker in drained {
            self.marks.hit(Mark::Drained);
            let common = self.server.common_of_one();
            let rests = self.sites[worker].port.is_at_rest();
            assert!(rests, "a drained worker's network is not at rest");
            let control_plane = is_new.then_some(&mut self.server.control_plane);
            self.sites[worker].restart(&common, control_plane, arena);
            self.sites[worker].port.listen(is_new);
            let stalled_until = self.sites[worker].stalled_until;
            self.drives[worker] =
                TurnProgress { hot: true, stalled_until, ..TurnProgress::default() };
            if self.is_deserted {
                self.drain(worker);
            }
        }
    }

    /// Ends all faults; the hostile clients leave.
    fn calm_down(&mut self) {
        self.happenings.clear();
        self.network.borrow_mut().calm_down();
        *self.volume.calm.borrow_mut() = true;
        for client in &mut self.clients {
            client.calm_down();
        }
        for n in 0..self.hostile.len() {
            self.hostile[n].retire();
            self.hostile[n].port().bury(self.now);
        }
        self.drives.iter_mut().for_each(|drive| drive.hot = true);
    }

    /// Removes the clients, and drains the workers.
    fn desert(&mut self) {
        for n in 0..self.clients.len() {
            self.clients[n].port().bury(self.now);
        }
        self.is_deserted = true;
        (0..self.sites.len()).for_each(|worker| self.drain(worker));
    }

    fn check_rest(&mut self) {
        for n in 0..self.sites.len() {
            let rests = self.sites[n].worker().is_at_rest()
                && self.sites[n].worker().load().carried == 0
                && self.sites[n].port.is_at_rest()
                && self.sites[n].port.connections() == 0;
            assert!(rests, "worker {n} is not at rest");
        }
        for n in 0..self.hostile.len() + self.clients.len() {
            let port = self.port_of(self.sites.len() + n);
            assert!(port.connections() == 0, "host {} has connections", port.host());
        }
    }

    fn check_volume(&mut self) {
        let mut ledger = self.volume.ledger.borrow_mut();
        ledger.check_order();
        let mut data = vec![0; layout::BLOCKS as usize * BLOCK_BYTES];
        let all = Range::new(0, layout::BLOCKS as u32);
        self.volume.data.read_now(all, &mut data);
        ledger.check_final(all, &data);
        for lba in COMPARED.lba..COMPARED.lba + u64::from(COMPARED.blocks) {
            let block = &data[lba as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            let content = stamp::read(lba, block).expect("it was checked just now");
            ledger.check_chain(lba, content);
        }
    }

    fn take_apart(mut self, arena: &mut Arena) -> WorldTotals {
        for site in &mut self.sites {
            site.take_apart(arena);
        }
        let mut requests = 0;
        for client in self.clients {
            requests += client.ended();
            arena.give(client.into_pool().into_bufs());
        }
        let mut network = self.network.borrow_mut();
        arena.give(network.packets.iter_mut().flat_map(PacketNetwork::take_buffers));
        arena.give(network.take_buffers());
        drop(network);
        WorldTotals { steps: self.steps, requests, elapsed: self.now.since(Instant::ZERO) }
    }

    /// Describes which parties of the world wait, and for what, for the report of a failure.
    fn describe(&mut self) -> String {
        let mut lines = vec![format!(
            "at {:.3} ms, after {} steps",
            self.now.as_nanos() as f64 / 1e6,
            self.steps
        )];
        lines.extend(self.sites.iter_mut().map(Site::describe));
        lines.extend(self.clients.iter().map(WellBehavedPeer::describe));
        for party in 0..self.drives.len() {
            let drive = self.drives[party];
            let port = self.port_of(party);
            lines.push(format!("{drive:?}, network {:?}", port.arrives_at()));
            lines.push(port.describe());
        }
        lines.join("\n")
    }
}

fn client_pool(in_flight_max: usize, huge: bool, arena: &mut Arena) -> BufPool {
    let mut classes = vec![
        SizeClass { bytes: 8 << 10, count: in_flight_max.min(16) },
        SizeClass { bytes: 96 << 10, count: 2 },
    ];
    if huge {
        classes.push(SizeClass { bytes: 1 << 20, count: 2 });
    }
    arena.pool(&classes)
}
