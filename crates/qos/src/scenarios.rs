//! Scenarios like the paper's Figure 5, with a device that is only a queue in virtual time. Its
//! latencies are meaningless; the tests check the distribution of tokens.

use alloc::vec;
use alloc::vec::Vec;

use contract::{Instant, IoKind, Scheduler, Slo, SlotTable, TenantId};

use crate::units::ROUND_NANOS_MAX;
use crate::{Adjustment, DeviceModel, FairShare, QueueLimits, Registry, TokenScheduler};

/// A tenant's load: requests at a steady rate (open loop), or a constant number of waiting
/// requests.
#[derive(Clone, Copy, Debug)]
enum Load {
    Rate(u64),
    Backlog(u32),
}

#[derive(Clone, Copy, Debug)]
struct Client {
    slo: Option<Slo>,
    load: Load,
    read_percent: u64,
    bytes: usize,
    /// The workers to which the tenant is connected.
    workers: &'static [usize],
}

fn client(slo: Option<Slo>, load: Load, read_percent: u64) -> Client {
    Client { slo, load, read_percent, bytes: 4096, workers: &[0] }
}

fn critical(iops: u32, read_percent: u8) -> Option<Slo> {
    Some(Slo::new(500, iops, read_percent))
}

/// The result of a scenario.
#[derive(Debug)]
struct ScenarioResult {
    /// Requests that were submitted, of each client.
    submitted: Vec<u64>,
    /// Tokens (units / 100) that were spent, of each client.
    tokens: Vec<f64>,
    /// The longest that a request of each client waited, in nanoseconds.
    waited: Vec<u64>,
    seconds: f64,
    device_tokens: f64,
}

impl ScenarioResult {
    fn iops(&self, client: usize) -> f64 {
        self.submitted[client] as f64 / self.seconds
    }

    fn rate(&self, client: usize) -> f64 {
        self.tokens[client] / self.seconds
    }

    /// Returns the share of the device's tokens that were spent.
    fn used(&self) -> f64 {
        self.tokens.iter().sum::<f64>() / self.seconds / self.device_tokens
    }
}

/// A simulated worker: its scheduler, and its requests.
struct Worker {
    scheduler: TokenScheduler,
    /// The client of each request, and the time of its arrival.
    table: SlotTable<(usize, u64)>,
}

struct World {
    registry: Registry,
    workers: Vec<Worker>,
    clients: Vec<Client>,
    /// Number of requests that each client has made.
    made: Vec<u64>,
    outcome: ScenarioResult,
    now: u64,
    /// Nanoseconds between two turns.
    turn_nanos: u64,
}

impl World {
    fn new(clients: &[Client], workers: usize) -> World {
        let mut registry = Registry::new(DeviceModel::device_a(), clients.len());
        for client in clients {
            registry.register(client.slo, Instant::ZERO).unwrap();
        }
        let limits = QueueLimits { slots: 32_768, of_tenant: 16_384 };
        let worker = |number| Worker {
            scheduler: registry.scheduler(number, limits),
            table: SlotTable::new(limits.slots),
        };
        let outcome = ScenarioResult {
            submitted: vec![0; clients.len()],
            tokens: vec![],
            waited: vec![0; clients.len()],
            seconds: 0.0,
            device_tokens: registry.device_rate() as f64 / 100.0,
        };
        let workers = (0..workers).map(worker).collect();
        let made = vec![0; clients.len()];
        World {
            registry,
            workers,
            clients: clients.to_vec(),
            made,
            outcome,
            now: 0,
            turn_nanos: 10_000,
        }
    }

    /// Adds the requests of one client until now.
    fn feed(&mut self, number: usize) {
        let client = self.clients[number];
        let tenant = TenantId(number as u32);
        loop {
            let worker = client.workers[self.made[number] as usize % client.workers.len()];
            let worker = &mut self.workers[worker];
            let wanted = match client.load {
                Load::Rate(iops) => self.now as u128 * u128::from(iops) / 1_000_000_000,
                Load::Backlog(depth) => {
                    u128::from(self.outcome.submitted[number] + u64::from(depth))
                }
            };
            if u128::from(self.made[number]) >= wanted {
                return;
            }
            // Reads and writes spread evenly, writes late in a hundred.
            let turn = self.made[number] * 61 % 100;
            let kind = if turn < client.read_percent { IoKind::Read } else { IoKind::Write };
            let Ok(slot) = worker.table.insert((number, self.now)) else { return };
            if worker.scheduler.enqueue(tenant, kind, client.bytes, slot).is_err() {
                worker.table.remove(slot);
                return;
            }
            self.made[number] += 1;
        }
    }

    /// Runs a turn of every worker that has work, at slightly different times, on a device with
    /// room for all requests.
    fn turn(&mut self) {
        for number in 0..self.clients.len() {
            self.feed(number);
        }
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let now = Instant::from_nanos(self.now + number as u64 * 700);
            let due = worker.scheduler.wake_at(now).is_some_and(|at| at <= now);
            if worker.scheduler.queued() == 0 && !due {
                continue;
            }
            worker.scheduler.begin_round(now);
            while let Some(slot) = worker.scheduler.next() {
                let (client, came) = worker.table.remove(slot);
                self.outcome.submitted[client] += 1;
                let waited = &mut self.outcome.waited[client];
                *waited = (*waited).max(self.now - came);
            }
        }
        self.now += self.turn_nanos;
    }

    fn run(mut self, millis: u64) -> ScenarioResult {
        let end = self.now + millis * 1_000_000;
        while self.now < end {
            self.turn();
        }
        self.outcome.seconds = self.now as f64 / 1e9;
        let spent = |n| self.registry.shared().usage(TenantId(n as u32)).spent as f64 / 100.0;
        self.outcome.tokens = (0..self.clients.len()).map(spent).collect();
        self.outcome
    }
}

/// Runs the scenario of the paper's Figure 5 with its four tenants; B issues `b` IOPS.
fn figure_five(b: u64) -> ScenarioResult {
    let best_effort = |reads| client(None, Load::Backlog(64), reads);
    let clients = [
        client(critical(120_000, 100), Load::Rate(120_000), 100),
        client(critical(70_000, 80), Load::Rate(b), 80),
        best_effort(95),
        best_effort(25),
    ];
    World::new(&clients, 1).run(500)
}

fn within(left: f64, right: f64, part: f64) -> bool {
    (left - right).abs() <= part * right
}

#[test]
fn figure_five_scenario_one() {
    let outcome = figure_five(70_000);
    assert!(outcome.iops(0) >= 0.99 * 120_000.0, "{outcome:?}");
    assert!(outcome.iops(1) >= 0.99 * 70_000.0, "{outcome:?}");
    assert!(within(outcome.rate(2), outcome.rate(3), 0.03), "{outcome:?}");
    assert!(within(outcome.rate(2), 52_000.0, 0.03), "{outcome:?}");
    assert!((0.97..=1.01).contains(&outcome.used()), "{outcome:?}");
    assert!(outcome.waited[0] <= 100_000 && outcome.waited[1] <= 100_000, "{outcome:?}");
}

#[test]
fn figure_five_scenario_two() {
    let outcome = figure_five(45_000);
    // B leaves 25 K × 2.8 tokens.
    let left = 104_000.0 + 70_000.0;
    assert!(outcome.rate(2) + outcome.rate(3) >= 0.95 * left, "{outcome:?}");
    assert!(within(outcome.rate(2), outcome.rate(3), 0.03), "{outcome:?}");
    assert!(outcome.iops(0) >= 0.99 * 120_000.0 && outcome.iops(1) >= 0.99 * 45_000.0);
    assert!((0.97..=1.01).contains(&outcome.used()), "{outcome:?}");
}

/// Runs Figure 5 with A silent for a while and then sending what it has missed. Returns the longest
/// wait of A's requests in nanoseconds, from `later_nanos` after the silence on, and the largest
/// spending of all tenants in a millisecond before that, as a share of the device's rate.
fn after_silence(pays_arrears: bool, silence_nanos: u64, later_nanos: u64) -> (u64, f64) {
    let best_effort = |reads| client(None, Load::Backlog(64), reads);
    let clients = [
        client(critical(120_000, 100), Load::Rate(120_000), 100),
        client(critical(70_000, 80), Load::Rate(70_000), 80),
        best_effort(95),
        best_effort(25),
    ];
    let mut world = World::new(&clients, 1);
    world.registry.pay_arrears(pays_arrears);
    let run = |world: &mut World, nanos: u64| -> f64 {
        let spent = |world: &World| -> u64 {
            (0..4).map(|n| world.registry.shared().usage(TenantId(n)).spent).sum()
        };
        let (until, mut most) = (world.now + nanos, 0);
        while world.now < until {
            let before = spent(world);
            (0..100).for_each(|_| world.turn());
            most = most.max(spent(world) - before);
        }
        most as f64 * 1_000.0 / world.registry.device_rate() as f64
    };
    run(&mut world, 20_000_000);
    // What it has sent already is all that it has to send.
    let load = core::mem::replace(&mut world.clients[0].load, Load::Rate(0));
    run(&mut world, silence_nanos);
    world.clients[0].load = load;
    let most = run(&mut world, later_nanos);
    world.outcome.waited[0] = 0;
    run(&mut world, 50_000_000);
    (world.outcome.waited[0], most)
}

#[test]
fn who_was_kept_from_sending_has_it_back_from_best_effort() {
    for silence in [5_000_000, 15_000_000] {
        // What is missing but for the deficit, which best effort pays with 7/8 of 104 K a second.
        let missing = 120_000 * silence / 1_000_000_000 - 50;
        let paid = missing * 1_000_000_000 / 91_000;
        let (waited, most) = after_silence(true, silence, paid * 11 / 10);
        assert!(waited <= 100_000, "{waited}");
        // Without it every request waits for all of it for ever, and the device gets as much: but
        // for what is lent, which is a twentieth of what it makes in 500 µs.
        let (waited, most_without) = after_silence(false, silence, paid * 11 / 10);
        assert!(most <= most_without + 0.05, "{most} of {most_without}");
        assert!(waited >= missing * 1_000_000_000 / 120_000 * 9 / 10, "{waited}");
    }
}

#[test]
fn what_a_modest_tenant_leaves_is_not_wasted() {
    // Rounds so long that the modest tenant gets several requests' tokens in each of its own.
    let clients = [
        client(None, Load::Backlog(512), 100),
        client(None, Load::Rate(10_000), 100),
        client(critical(10_000, 100), Load::Rate(10_000), 100),
    ];
    let mut world = World::new(&clients, 1);
    world.turn_nanos = 100_000;
    let outcome = world.run(500);
    assert!(outcome.iops(1) >= 0.99 * 10_000.0, "{outcome:?}");
    assert!(outcome.used() >= 0.97, "{outcome:?}");
}

#[test]
fn eight_best_effort_tenants_share_fairly() {
    let sizes = [512, 4096, 8192, 16 << 10, 64 << 10, 128 << 10, 1 << 20, 4096];
    let reads = [100, 95, 75, 50, 25, 0, 80, 0];
    let mut clients = vec![client(critical(50_000, 90), Load::Rate(40_000), 90)];
    for (bytes, reads) in sizes.into_iter().zip(reads) {
        let client = client(None, Load::Backlog(256), reads);
        clients.push(Client { bytes, ..client });
    }
    let outcome = World::new(&clients, 1).run(2_000);
    let tokens = &outcome.tokens[1..];
    let (sum, squares) = tokens.iter().fold((0.0, 0.0), |(s, q), t| (s + t, q + t * t));
    let jain = sum * sum / (8.0 * squares);
    assert!(jain >= 0.99, "{jain} {outcome:?}");
    assert!(outcome.used() >= 0.97, "{outcome:?}");
}

#[test]
fn a_hostile_critical_tenant_hurts_itself() {
    let polite = client(critical(100_000, 90), Load::Rate(100_000), 90);
    let hostile = client(critical(10_000, 100), Load::Rate(100_000), 100);
    let best_effort = client(None, Load::Backlog(64), 50);
    let outcome = World::new(&[polite, hostile, best_effort], 1).run(200);
    assert!(outcome.iops(0) >= 0.99 * 100_000.0, "{outcome:?}");
    assert!(outcome.waited[0] <= 200_000, "{outcome:?}");
    assert!(outcome.waited[1] >= 10_000_000, "{outcome:?}");
    // Its own rate, and the deficit that it may run up.
    assert!(outcome.iops(1) <= 10_000.0 * 1.01 + 60.0 / outcome.seconds, "{outcome:?}");
    assert!(within(outcome.rate(2), 420_000.0 - 190_000.0 - 10_000.0, 0.03), "{outcome:?}");
}

#[test]
fn leftovers_serve_critical_tenants_when_there_is_nobody_else() {
    let greedy = client(critical(10_000, 95), Load::Backlog(256), 95);
    let modest = client(critical(100_000, 95), Load::Rate(50_000), 95);
    let outcome = World::new(&[greedy, modest], 1).run(500);
    assert!(outcome.iops(1) >= 0.99 * 50_000.0, "{outcome:?}");
    assert!(outcome.used() >= 0.97, "{outcome:?}");
}

#[test]
fn one_tenant_on_several_workers_has_one_balance() {
    let everywhere = |client: Client| Client { workers: &[0, 1, 2, 3], ..client };
    let clients = [
        everywhere(client(critical(100_000, 90), Load::Backlog(1_000), 90)),
        everywhere(client(None, Load::Backlog(256), 80)),
        client(None, Load::Backlog(256), 80),
    ];
    let outcome = World::new(&clients, 4).run(500);
    // 190 K tokens a second were promised, 115 K are left for each best-effort tenant.
    assert!(within(outcome.rate(0), 190_000.0, 0.01), "{outcome:?}");
    assert!(within(outcome.rate(1), 115_000.0, 0.03), "{outcome:?}");
    assert!(within(outcome.rate(2), 115_000.0, 0.03), "{outcome:?}");
}

#[test]
fn a_parked_worker_costs_nobody_tokens() {
    // Worker 1 has a critical and a best-effort tenant, both silent after their first request.
    let once = |slo| Client { workers: &[1], ..client(slo, Load::Rate(2), 100) };
    let clients = [
        once(critical(200_000, 100)),
        once(None),
        client(None, Load::Backlog(256), 70),
        client(critical(50_000, 100), Load::Rate(50_000), 100),
    ];
    let outcome = World::new(&clients, 2).run(600);
    assert_eq!((outcome.submitted[0], outcome.submitted[1]), (1, 1));
    assert!(outcome.used() >= 0.97, "{outcome:?}");
    assert!(outcome.rate(2) >= 0.97 * 370_000.0, "{outcome:?}");
}

#[test]
fn workers_exchange_what_their_tenants_spare() {
    for (donor, taker) in [(0, 1), (1, 0)] {
        let on = |worker: usize, client| Client { workers: [&[0], &[1]][worker], ..client };
        let clients = [
            on(donor, client(critical(200_000, 100), Load::Rate(100_000), 100)),
            // Its worker always has something to do.
            on(donor, client(critical(10_000, 100), Load::Backlog(64), 100)),
            on(taker, client(None, Load::Backlog(256), 90)),
        ];
        let outcome = World::new(&clients, 2).run(300);
        assert!(outcome.iops(0) >= 0.99 * 100_000.0, "{outcome:?}");
        assert!((0.97..=1.01).contains(&outcome.used()), "{outcome:?}");
    }
}

#[test]
fn a_round_visits_active_tenants_only() {
    let mut clients = vec![client(None, Load::Rate(0), 100); 5_000];
    clients.extend(vec![client(critical(10, 100), Load::Rate(0), 100); 5_000]);
    clients.extend([client(critical(50_000, 100), Load::Rate(50_000), 100)]);
    clients.extend([client(None, Load::Backlog(256), 100)]);
    let mut world = World::new(&clients, 1);
    for _ in 0..100 {
        world.turn();
    }
    assert!(world.workers[0].scheduler.active() <= 2);
    let spent = |n: u32| world.registry.shared().usage(TenantId(n)).spent;
    // All but the critical tenant's rate serves the only one that asks.
    let expected = (42_000_000.0 - 5_000_000.0) * world.now as f64 / 1e9;
    assert!(within(spent(10_001) as f64, expected, 0.05), "{} {expected}", spent(10_001));
}

#[test]
fn weights_and_caps_bound_best_effort() {
    let greedy = || client(None, Load::Backlog(256), 80);
    let clients = [
        client(critical(50_000, 100), Load::Rate(50_000), 100),
        greedy(),
        greedy(),
        greedy(),
        Client { bytes: 256 << 10, ..greedy() },
    ];
    let mut world = World::new(&clients, 1);
    let mut portion = |tenant, weight, cap: Option<u64>| {
        let portion = FairShare { weight, cap: cap.map(|tokens| tokens * 100) };
        world.registry.set_portion(TenantId(tenant), portion, Instant::ZERO).unwrap();
    };
    portion(1, 3, None);
    portion(3, 2, Some(20_000));
    portion(4, 1, Some(10_000));
    let outcome = world.run(1_000);
    // 370 K tokens a second are left. Two may have no more than 30 K together, however large their
    // requests are; the bucket takes what they leave of their shares to the others in turns.
    assert!(within(outcome.rate(3), 20_000.0, 0.02), "{outcome:?}");
    assert!(outcome.rate(4) <= 10_000.0 * 1.02 + 640.0 && outcome.rate(4) > 9_000.0, "{outcome:?}");
    assert!(within(outcome.rate(1) + outcome.rate(2), 340_000.0, 0.02), "{outcome:?}");
    assert!(outcome.rate(1) > 1.4 * outcome.rate(2), "{outcome:?}");
    assert!((0.97..=1.01).contains(&outcome.used()), "{outcome:?}");
}

#[test]
fn what_a_cap_leaves_serves_others_wherever_the_tenant_is() {
    let greedy = || Client { workers: &[0, 1], ..client(None, Load::Backlog(256), 80) };
    let mut world = World::new(&[greedy(), greedy()], 2);
    let portion = FairShare { weight: 1, cap: Some(20_000 * 100) };
    world.registry.set_portion(TenantId(0), portion, Instant::ZERO).unwrap();
    let outcome = world.run(500);
    assert!(within(outcome.rate(0), 20_000.0, 0.02), "{outcome:?}");
    assert!((0.97..=1.01).contains(&outcome.used()), "{outcome:?}");
}

#[test]
fn weights_alone_are_exact() {
    let greedy = || client(None, Load::Backlog(256), 80);
    let mut world = World::new(&[greedy(), greedy()], 1);
    let portion = FairShare { weight: 4, cap: None };
    world.registry.set_portion(TenantId(0), portion, Instant::ZERO).unwrap();
    let outcome = world.run(500);
    assert!(within(outcome.rate(0), 4.0 * outcome.rate(1), 0.01), "{outcome:?}");
    assert!((0.97..=1.01).contains(&outcome.used()), "{outcome:?}");
}

#[test]
fn what_waits_is_priced_anew_when_writes_become_dearer() {
    let writer = client(None, Load::Backlog(256), 0);
    let mut world = World::new(&[writer], 1);
    for turn in 0..20_000 {
        if turn == 10_000 {
            let dearer = Adjustment { write_permille: 2_000, ..Adjustment::NONE };
            let now = Instant::from_nanos(world.now);
            world.registry.adjust(dearer, now);
        }
        world.turn();
    }
    // 100 K writes a second in the first tenth of a second, 50 K in the second.
    let submitted = world.outcome.submitted[0];
    assert!(within(submitted as f64, 15_000.0, 0.02), "{submitted}");
    let usage = world.registry.shared().usage(TenantId(0));
    assert!(within(usage.spent as f64, 20_000_000.0, 0.02), "{usage:?}");
}

/// Checks that the tokens of requests that are refunded, because they were released but not
/// submitted, go to other tenants.
#[test]
fn what_was_not_submitted_is_anybodys() {
    let served = |refunds: bool| {
        let mut registry = Registry::new(DeviceModel::device_a(), 8);
        let mut slots = SlotTable::<()>::new(512);
        let mut register = || registry.register(None, Instant::ZERO).unwrap().tenant;
        let (gone, here) = (register(), register());
        let mut order = registry.scheduler(0, QueueLimits { slots: 512, of_tenant: 256 });
        let mut owner = vec![gone; 512];
        let mut served = 0;
        for round in 0..2_000_u64 {
            for tenant in [gone, here] {
                while order.queued_of(tenant) < 128 {
                    let slot = slots.insert(()).unwrap();
                    owner[slot.index()] = tenant;
                    order.enqueue(tenant, IoKind::Write, 4096, slot).unwrap();
                }
            }
            order.begin_round(Instant::from_nanos(round * 100_000));
            while let Some(slot) = order.next() {
                slots.remove(slot);
                match owner[slot.index()] == gone {
                    true if refunds => order.refund(IoKind::Write, 4096),
                    true => {}
                    false => served += 1,
                }
            }
        }
        served
    };
    // 1 M tokens a second make 20 000 writes in 200 ms, half of them for each.
    let (half, all) = (served(false), served(true));
    assert!((9_800..=10_200).contains(&half) && (19_500..=20_200).contains(&all), "{half}, {all}");
}

/// Returns the reads of this tenant that are submitted in ten milliseconds from `start` on, beside
/// a best-effort tenant, if both have many.
fn reads_in_ten_ms(registry: &Registry, tenant: TenantId, start: u64) -> u64 {
    let other = TenantId(1 - tenant.0);
    let mut scheduler = registry.scheduler(0, QueueLimits { slots: 20_000, of_tenant: 10_000 });
    let mut slots = SlotTable::new(20_000);
    for tenant in [tenant, other] {
        for _ in 0..9_000 {
            let slot = slots.insert(()).unwrap();
            scheduler.enqueue(tenant, IoKind::Read, 4096, slot).unwrap();
        }
    }
    let before = registry.shared().usage(tenant).reads;
    for round in 0..=200 {
        scheduler.begin_round(Instant::from_nanos(start + round * 50_000));
        while scheduler.next().is_some() {}
    }
    registry.shared().usage(tenant).reads - before
}

#[test]
fn what_was_not_promised_is_no_arrears() {
    let second = 1_000_000_000;
    let at = Instant::from_nanos;
    // Ten milliseconds of its rate, the deficit, and what one read may exceed it by.
    let most = |iops: u64| iops / 100 + 50 + 1;
    for before in [None, critical(1, 100)] {
        let mut registry = Registry::new(DeviceModel::device_a(), 2);
        let late = registry.register(before, at(0)).unwrap().tenant;
        registry.register(None, at(0)).unwrap();
        registry.change(late, critical(100_000, 100), at(second)).unwrap();
        let reads = reads_in_ten_ms(&registry, late, second);
        assert!(reads <= most(100_000), "{reads}");
    }
    // Who is promised less has no more to get back than that makes.
    let mut registry = Registry::new(DeviceModel::device_a(), 2);
    let less = registry.register(critical(200_000, 100), at(0)).unwrap().tenant;
    registry.register(None, at(0)).unwrap();
    registry.change(less, critical(1_000, 100), at(second)).unwrap();
    let reads = reads_in_ten_ms(&registry, less, second);
    assert!(reads <= most(1_000) + 20, "{reads}");
    // Who was promised the same all the time has.
    registry.change(less, critical(100_000, 100), at(second + 100_000_000)).unwrap();
    let reads = reads_in_ten_ms(&registry, less, second + 200_000_000);
    assert!(reads > most(100_000) + 1_000, "{reads}");
}

/// Checks that what idle tenants donate in the first rounds after a start, or after an hour of
/// silence, lets a best-effort tenant with a long queue have no more at any time than the device
/// makes in that time and in one of the longest rounds: docs/explanation/scheduler.md, "A start".
#[test]
fn donations_at_a_start_are_no_burst() {
    let hour = 3_600_000_000_000;
    for (start, silence) in [(0, 0), (1_000_000, 0), (hour, 0), (0, 400_000_000), (0, hour)] {
        let mut registry = Registry::new(DeviceModel::device_a(), 8);
        for _ in 0..4 {
            registry.register(critical(50_000, 100), Instant::from_nanos(start)).unwrap();
        }
        let mut register = || registry.register(None, Instant::from_nanos(start)).unwrap().tenant;
        let [_, _, greedy] = [register(), register(), register()];
        let mut scheduler = registry.scheduler(0, QueueLimits { slots: 9_000, of_tenant: 9_000 });
        let mut slots = SlotTable::new(9_000);
        // The worker has a round when it starts, and then sleeps until somebody sends.
        scheduler.begin_round(Instant::from_nanos(start));
        while scheduler.next().is_some() {}
        for _ in 0..9_000 {
            let slot = slots.insert(()).unwrap();
            scheduler.enqueue(greedy, IoKind::Read, 4096, slot).unwrap();
        }
        for round in 0..=400 {
            let passed = round * 50_000;
            scheduler.begin_round(Instant::from_nanos(start + silence + passed));
            while scheduler.next().is_some() {}
            let spent = registry.shared().usage(greedy).spent;
            let most = registry.device_rate() * (passed + ROUND_NANOS_MAX) / 1_000_000_000;
            assert!(
                spent <= most,
                "{spent} of {most} units, {passed} ns after {start} + {silence}"
            );
            // The bound is not far from the truth.
            assert!(round < 400 || spent * 100 >= most * 90, "{spent} of {most} units");
        }
    }
}
