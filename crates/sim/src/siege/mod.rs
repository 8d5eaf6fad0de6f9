//! A siege: attacking tenants hold all resources that the server grants them, beside neighbours
//! whose reads are timed. [`World`](crate::World) checks that nothing is lost; a siege checks that
//! no neighbour waits.
//!
//! A siege has no faults, and a turn of a worker takes no time: neighbours can only wait for a
//! slot, a buffer, a frame or a place in a line that an attacker holds.

mod attacker;
mod neighbour;
mod plan;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Rights, SizeClass, TenantId};
use flash::{MemVolume, RangeLocks};
use worker::{AccessRules, AccessScope, Namespace, Namespaces, PeerPattern, PeerRule, SharedState};

use self::attacker::Attacker;
use self::neighbour::Neighbour;
use self::plan::{LARGE_BLOCKS, PROMISE, SiegePlan, VOLUME_BLOCKS};
use crate::arena::Arena;
use crate::control_plane::ControlPlane;
use crate::disk::Volume;
use crate::ledger::Ledger;
use crate::marks::Marks;
use crate::network::{HostSizes, NetHandle, Network, StreamPort};
use crate::nvme::Controllers;
use crate::plan::Sabotage;
use crate::port::Port;
use crate::site::{SharedServerParts, Site};

/// The longest time that a read of a neighbour may take.
const READ_MAX: Duration = Duration::from_millis(100);
/// The most that an attack may add to a neighbour's p95, as a factor.
const SLOWER_MAX: f64 = 1.1;
/// The number of reads in a window, for which a promise is judged.
const WINDOW_READS: usize = 50;
/// The share of windows in which the promise has to be kept.
const KEPT_MIN: f64 = 0.999;
/// The time in which everything has to come to rest.
const REST: Duration = Duration::from_secs(120);
/// The number of turns after which a siege is considered to loop.
const STEPS_MAX: u64 = 5_000_000;
/// The pause of a party without work.
const SPIN: Duration = Duration::from_micros(2);

/// The measurements of a siege, or of the same period without attackers.
#[derive(Clone, Debug, Default)]
pub struct SiegeReport {
    /// The number of turns of all parties.
    pub steps: u64,
    /// The number of reads that were timed.
    pub reads: u64,
    /// The virtual time that passed.
    pub elapsed: Duration,
    /// The longest latency of a read of any neighbour.
    pub longest: Duration,
    /// The p95 of each neighbour's reads.
    pub p95: Vec<Duration>,
    /// The number of windows of the promised neighbour, and of those in which the promise was kept.
    pub windows: (u64, u64),
}

/// Runs the siege of a seed, once without attackers and once with them, and checks that the
/// neighbours do not notice.
///
/// # Panics
/// Panics if a neighbour notices the attackers, with a description.
pub fn besiege(seed: u64, sabotage: Sabotage, arena: &mut Arena, marks: &Marks) -> SiegeReport {
    let peace = Siege::new(seed, false, sabotage, arena, marks).run(arena);
    let report = Siege::new(seed, true, sabotage, arena, marks).run(arena);
    let SiegeReport { longest, windows: (all, kept), .. } = report;
    assert!(longest <= READ_MAX, "the longest read of a neighbour took {longest:?}");
    for (n, (with, without)) in report.p95.iter().zip(&peace.p95).enumerate() {
        let slower = with.as_secs_f64() / without.as_secs_f64();
        assert!(
            slower <= SLOWER_MAX,
            "neighbour {n} has a p95 of {with:?} beside attackers and of {without:?} without"
        );
    }
    let share = kept as f64 / all as f64;
    assert!(share >= KEPT_MIN, "a promise was kept in {kept} of {all} windows");
    report
}

/// A siege in progress: the server, its neighbours and the attackers.
struct Siege {
    now: Instant,
    network: NetHandle,
    control_plane: ControlPlane,
    sites: Vec<Site>,
    neighbours: Vec<Neighbour>,
    raiders: Vec<Attacker>,
    /// The time of each party's next turn: workers, neighbours, raiders.
    wakes: Vec<Option<Instant>>,
    /// For each party, the time at which its pause after a turn without work ends.
    rests: Vec<Instant>,
    until: Instant,
    steps: u64,
}

impl Siege {
    fn new(
        seed: u64,
        attacked: bool,
        sabotage: Sabotage,
        arena: &mut Arena,
        marks: &Marks,
    ) -> Siege {
        let plan = SiegePlan::new(seed);
        let network = Network::new(plan.impairments.clone(), seed ^ 0x51e6, marks.clone(), false);
        let volume = Volume {
            data: MemVolume::new(VOLUME_BLOCKS),
            locks: Arc::new(RangeLocks::new()),
            ledger: Rc::new(RefCell::new(Ledger::new(marks.clone(), network.borrow().partings()))),
            calm: Rc::new(RefCell::new(true)),
            marks: marks.clone(),
        };
        let workers = plan.workers.len();
        let mut control_plane =
            ControlPlane::new(plan.control_plane, workers, sabotage, Instant::ZERO, marks);
        let mut tenants: Vec<TenantId> = plan
            .neighbours
            .iter()
            .enumerate()
            .map(|(n, neighbour)| {
                // Without tokens nothing can be promised; the same is expected all the same.
                let promises = neighbour.is_promised && plan.control_plane.tokens.is_some();
                let slo = promises.then_some(PROMISE);
                control_plane.enlist(&format!("neighbour {n}"), slo.into(), Instant::ZERO)
            })
            .collect();
        tenants.extend([control_plane.hostile(), TenantId::DEFAULT]);
        if sabotage == Sabotage::OneTenant {
            tenants.fill(control_plane.hostile());
        }
        let common = SharedServerParts {
            parts: parts(&tenants),
            controllers: Controllers::new(workers, control_plane.hostile(), Instant::ZERO),
        };
        let mut siege = Siege {
            now: Instant::ZERO,
            network,
            control_plane,
            sites: Vec::new(),
            neighbours: Vec::new(),
            raiders: Vec::new(),
            wakes: Vec::new(),
            rests: Vec::new(),
            until: Instant::ZERO + plan.lasts,
            steps: 0,
        };
        for (n, worker) in plan.workers.iter().enumerate() {
            let (sizes, buffers) = (worker.sizes, worker.receive_buffers);
            let port = siege.host([10, 200, 0, n as u8], sizes, buffers, true, arena);
            let (worker, control_plane) = (worker.clone(), &mut siege.control_plane);
            let site =
                Site::new(worker, port, volume.clone(), &common, sabotage, control_plane, arena);
            siege.sites.push(site);
        }
        siege.populate(&plan, attacked, seed, arena, marks);
        let parties = siege.sites.len() + siege.neighbours.len() + siege.raiders.len();
        siege.wakes = vec![Some(Instant::ZERO); parties];
        siege.rests = vec![Instant::ZERO; parties];
        siege
    }

    fn populate(
        &mut self,
        plan: &SiegePlan,
        attacked: bool,
        seed: u64,
        arena: &mut Arena,
        marks: &Marks,
    ) {
        let buffers = SizeClass { bytes: 16 << 10, count: 16 };
        let sizes = HostSizes { connections_max: 64, frames_max: 1 << 16 };
        for (n, neighbour) in plan.neighbours.iter().enumerate() {
            let port = self.host([10, n as u8, 0, 1], sizes, buffers, false, arena);
            let bufs = arena.pool(&[SizeClass { bytes: 16 << 10, count: 16 }]);
            let (seed, until) = (seed ^ (n as u64 + 1) << 32, self.until);
            self.neighbours.push(Neighbour::new(port, neighbour.clone(), seed, bufs, until));
        }
        let count = if attacked { plan.raiders.len() } else { 0 };
        for (n, raider) in plan.raiders[..count].iter().enumerate() {
            let address = [10, (plan.neighbours.len() + n) as u8, 0, 1];
            let port = self.host(address, sizes, buffers, false, arena);
            let bytes = LARGE_BLOCKS as usize * contract::BLOCK_BYTES;
            let bufs = arena.pool(&[SizeClass { bytes, count: raider.connections }]);
            let seed = seed.wrapping_mul(31) ^ n as u64;
            self.raiders.push(Attacker::new(port, raider.clone(), seed, bufs, marks.clone()));
        }
    }

    fn host(
        &mut self,
        address: [u8; 4],
        sizes: HostSizes,
        buffers: SizeClass,
        listening: bool,
        arena: &mut Arena,
    ) -> Port {
        let buffers = (0..buffers.count).map(|n| arena.take(buffers.bytes, n as u32)).collect();
        let address = (address, 1000).into();
        let host = self.network.borrow_mut().add_host(address, sizes, buffers, listening);
        Port::Streams(StreamPort::new(self.network.clone(), host))
    }

    /// Runs the siege to its end.
    fn run(mut self, arena: &mut Arena) -> SiegeReport {
        let end = self.until + REST;
        self.run_until(end, |siege| siege.neighbours.iter().all(Neighbour::is_done));
        for raider in &mut self.raiders {
            raider.retire();
            self.network.borrow_mut().kill(raider.port().host(), self.now);
        }
        let elapsed = self.now.since(Instant::ZERO);
        for n in 0..self.neighbours.len() {
            let host = self.neighbours[n].port().host();
            self.network.borrow_mut().kill(host, self.now);
        }
        self.wakes.iter_mut().for_each(|wake| *wake = Some(self.now));
        self.sites.iter_mut().for_each(|site| site.worker().drain(self.now));
        let end = self.now + REST;
        let drained = |site: &Site| site.served().is_drained();
        self.run_until(end, |siege| siege.sites.iter().all(drained));
        assert!(self.sites.iter().all(drained), "a worker does not come to rest");
        self.take_apart(elapsed, arena)
    }

    /// Runs the parties until `done` returns `true`, at most to `end`.
    fn run_until(&mut self, end: Instant, done: impl Fn(&Siege) -> bool) {
        while !done(self) && self.now < end {
            self.network.borrow_mut().settle(self.now);
            if self.control_plane.due <= self.now {
                let sites = &self.sites;
                let in_flight_of =
                    |tenant| sites.iter().map(|site| site.served().in_flight_of(tenant)).sum();
                self.control_plane.look(self.now, in_flight_of);
            }
            let (mut acted, mut next) = (false, vec![end, self.control_plane.due]);
            next.extend(self.network.borrow().next_dial());
            for party in 0..self.wakes.len() {
                match self.wake_at(party) {
                    Some(at) if at <= self.now => {
                        self.turn(party);
                        acted = true;
                    }
                    Some(at) => next.push(at),
                    None => {}
                }
            }
            if !acted {
                self.now = next.into_iter().min().expect("the end is one").max(self.now);
            }
        }
        let waits = self.neighbours.iter().filter_map(Neighbour::waits_since).min();
        let longest = waits.map_or(Duration::ZERO, |since| self.now.since(since));
        assert!(longest <= READ_MAX, "a request of a neighbour waits since {longest:?}");
    }

    fn host_of(&mut self, party: usize) -> usize {
        let (sites, neighbours) = (self.sites.len(), self.neighbours.len());
        match party {
            n if n < sites => self.sites[n].port.host(),
            n if n < sites + neighbours => self.neighbours[n - sites].port().host(),
            n => self.raiders[n - sites - neighbours].port().host(),
        }
    }

    /// Returns the time at which the party with this index can act next; `None` if it waits for
    /// others.
    fn wake_at(&mut self, party: usize) -> Option<Instant> {
        let host = self.host_of(party);
        let network = self.network.borrow().wake_at(host);
        let wake = [self.wakes[party], network].into_iter().flatten().min();
        wake.map(|at| at.max(self.rests[party]))
    }

    fn turn(&mut self, party: usize) {
        self.steps += 1;
        if self.steps == STEPS_MAX {
            let sites: Vec<String> = self.sites.iter_mut().map(Site::describe).collect();
            panic!("the siege runs in circles at {:?}: {}", self.now, sites.join("\n"));
        }
        let (now, sites, neighbours) = (self.now, self.sites.len(), self.neighbours.len());
        let (progressed, wake_at) = match party {
            n if n < sites => {
                let turn = self.sites[n].turn(now);
                (turn.progressed, turn.wake_at)
            }
            n if n < sites + neighbours => {
                let neighbour = &mut self.neighbours[n - sites];
                (neighbour.turn(now), neighbour.wake_at())
            }
            n => {
                let raider = &mut self.raiders[n - sites - neighbours];
                (raider.turn(now), raider.wake_at())
            }
        };
        self.wakes[party] = if progressed { Some(now) } else { wake_at };
        self.rests[party] = if progressed { now } else { now + SPIN };
    }

    fn take_apart(mut self, elapsed: Duration, arena: &mut Arena) -> SiegeReport {
        for site in &mut self.sites {
            site.take_apart(arena);
        }
        for raider in self.raiders {
            arena.give(raider.into_pool().into_bufs());
        }
        let mut report = SiegeReport { steps: self.steps, elapsed, ..SiegeReport::default() };
        for (n, neighbour) in self.neighbours.into_iter().enumerate() {
            let (pool, reads) = neighbour.into_parts();
            arena.give(pool.into_bufs());
            if n == 0 {
                report.windows = windows(&reads);
            }
            report.reads += reads.len() as u64;
            let longest = reads.iter().map(|(_, took)| *took).max();
            report.longest = report.longest.max(longest.expect("it has read"));
            report.p95.push(p95(reads.iter().map(|(_, took)| *took)));
        }
        arena.give(self.network.borrow_mut().take_buffers());
        report
    }
}

fn p95(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times[times.len() * 95 / 100]
}

/// Counts the windows of the promised neighbour's reads, and those in which it had its latency.
fn windows(reads: &[(Instant, Duration)]) -> (u64, u64) {
    let mut reads = reads.to_vec();
    reads.sort_unstable();
    let most = Duration::from_micros(u64::from(PROMISE.latency_us));
    let kept = |window: &&[(Instant, Duration)]| p95(window.iter().map(|read| read.1)) <= most;
    let all = reads.chunks_exact(WINDOW_READS);
    (all.len() as u64, all.filter(kept).count() as u64)
}

/// Returns the parts of a server with one namespace, where each network of 16 bits is a tenant.
fn parts(tenants: &[TenantId]) -> Arc<SharedState> {
    let namespace = Namespace { device: 0, first: 0, blocks: VOLUME_BLOCKS, read_only: false };
    let rule = |(n, tenant): (usize, &TenantId)| PeerRule {
        who: PeerPattern::Network { address: [10, n as u8, 0, 0].into(), prefix: 16 },
        tenant: *tenant,
        tenant_name: String::new(),
        register: false,
        scope: AccessScope::All(Rights::ALL),
    };
    let access = AccessRules::new(tenants.iter().enumerate().map(rule).collect());
    Arc::new(SharedState::new(Namespaces::new(vec![namespace]), access))
}
