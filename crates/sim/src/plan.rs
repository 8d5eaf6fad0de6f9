//! The random choices of a seed: sizes, network impairments, clients' habits, and the schedule
//! of other faults.

use std::ops::RangeInclusive;
use std::time::Duration;

use client::{Options, Version};
use contract::{DIRECT_BYTES_MIN, SizeClass, Status};
use flash::{Delay, Faults, Rng};
use proto::nvme_tcp::Digests;
use worker::Limits;

use crate::attach;
use crate::disk::{self, Lateness};
use crate::marks::Mark;
use crate::nbd;
use crate::network::{HostSizes, Impairments, PacketImpairments};
use crate::nvme;
use crate::steady;
use crate::tenants::TENANTS;

/// A promise of the server that is broken on purpose, to show that the checkers notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// No promise of the server is broken on purpose.
    #[default]
    None,
    /// Each worker has fences of its own, so that a client that reconnects to another worker does
    /// not wait for its old requests.
    SeparateFences,
    /// Workers do not hear of controllers' fences, so writes of NVMe hosts do not wait for writes
    /// of their lost connections.
    UnfencedControllers,
    /// Each worker has range locks of its own, so that requests on different workers do not exclude
    /// each other.
    SeparateLocks,
    /// Sessions spread requests over streams, so barriers order nothing.
    ScatteredStreams,
    /// A request of a connection that moves is carried out twice.
    DoubledMoves,
    /// The neighbours of a siege belong to the attackers' tenant, so nothing is shared out between
    /// them.
    OneTenant,
    /// The control plane is falsely informed that nothing of a tenant is in flight, so numbers are
    /// reused too early.
    EarlyReuse,
    /// The successor of a process that served an attached volume has another identity, so no fence
    /// holds back what its predecessor had sent.
    StrangeSuccessors,
}

/// The kind of a simulated world: the clients that it has in addition to those of protocol
/// `reflex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldKind {
    /// A world with NVMe hosts.
    Hosts,
    /// A world with clients of NBD.
    Nbd,
    /// A world with volumes that are attached as block devices.
    Attached,
    /// A world without other clients, in which the clients of `reflex` connect over packets.
    Packets,
}

/// The choices for the control plane of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlPlanePlan {
    /// Tokens a second at 500 µs; `None` means first come, first served.
    pub(crate) tokens: Option<u64>,
    pub(crate) seed: u64,
    /// The mark of moves that a session refuses; `None` if every session moves.
    pub(crate) stays: Option<Mark>,
}

/// The sizes of a worker's tables, and the behaviour of its device.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPlan {
    pub(crate) number: usize,
    pub(crate) limits: Limits,
    pub(crate) pool: Vec<SizeClass>,
    pub(crate) scratch: usize,
    pub(crate) queue_max: usize,
    pub(crate) receive_buffers: SizeClass,
    pub(crate) sizes: HostSizes,
    pub(crate) disk: disk::Habits,
}

/// An external event in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorldEvent {
    /// A connection is reset, ended or silenced.
    Strike,
    /// A worker's device stalls.
    Stall { worker: usize, lasts: Duration },
    /// A worker drains and starts again.
    Drain { worker: usize },
    /// The operator registers, changes or ends a tenant.
    Operate,
    /// A worker is told to move one of its connections to another worker.
    Move { worker: usize, to: usize },
    /// A worker gives any `count` connections to another worker.
    Give { worker: usize, to: usize, count: u32 },
    /// Every worker drains; then all start again, as a new process would.
    Restart,
    /// Every worker loses all its connections at once, as in a process that is killed; a new
    /// process starts when the device has ended what it had begun.
    Kill,
}

/// All random choices that a seed makes for a simulated world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) impairments: Impairments,
    /// The behaviour of the network of packets that replaces that of streams.
    pub(crate) packets: Option<PacketImpairments>,
    pub(crate) workers: Vec<WorkerPlan>,
    pub(crate) clients: Vec<steady::Habits>,
    pub(crate) hosts: Vec<nvme::Habits>,
    pub(crate) nbd: Vec<nbd::Habits>,
    pub(crate) attached: Vec<attach::Attachment>,
    pub(crate) hostile: usize,
    pub(crate) control_plane: ControlPlanePlan,
    /// The external events, in order of time.
    pub(crate) happenings: Vec<(Duration, WorldEvent)>,
}

/// Returns a randomly chosen element of `from`.
pub(crate) fn any<T: Clone>(chance: &mut Rng, from: &[T]) -> T {
    from[chance.within(0..=from.len() as u64 - 1) as usize].clone()
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let chance = &mut Rng::new(seed ^ 0x9a17_0000_0000);
        let granularity_bytes = any(chance, &[512, 512, 4096]);
        let huge = chance.happens(0.1);
        let workers = chance.within(1..=3) as usize;
        let clients = chance.within(1..=4) as usize;
        let quota = chance.within(50..=250) as u32;
        let think = any(chance, &[1_000, 50_000, 500_000]);
        let hot_blocks = any(chance, &[2, 8, 40, 96]);
        let control_plane = control_plane(&mut Rng::new(seed ^ 0x0ff1_ce00), huge);
        let client = |chance: &mut Rng, n| client(chance, n, quota, huge, hot_blocks, 0..=think);
        let impairments = impairments(chance);
        let mut workers: Vec<_> =
            (0..workers).map(|n| worker(chance, n, granularity_bytes, huge)).collect();
        let clients: Vec<_> = (0..clients).map(|n| client(chance, n)).collect();
        if clients.iter().any(|client| client.options.version == Version::One) {
            workers.iter_mut().for_each(queue_whatever_comes);
        }
        let mut hosts = hosts(&mut Rng::new(seed ^ 0x4e56_4d65), quota, hot_blocks, 0..=think);
        if !hosts.is_empty() {
            workers.iter_mut().for_each(make_room_for_hosts);
        }
        if Rng::new(seed ^ 0x0069_686f).happens(0.3) {
            hosts.iter_mut().for_each(lose_patience);
            workers.iter_mut().for_each(try_patience);
        }
        let count = workers.len();
        Plan {
            impairments,
            packets: None,
            workers,
            hosts,
            nbd: Vec::new(),
            attached: Vec::new(),
            clients,
            hostile: any(chance, &[0, 1, 2, 3]),
            happenings: {
                let mut list = happenings(chance, count);
                list.extend(moves(&mut Rng::new(seed ^ 0x0060_7e55), count));
                list.sort_by_key(|&(at, _)| at);
                list
            },
            control_plane,
        }
    }
}

/// Chooses the capacity of a server's device in tokens. Small rates make requests wait for tokens,
/// which takes many steps.
fn control_plane(chance: &mut Rng, huge: bool) -> ControlPlanePlan {
    let slow = if huge { 100_000 } else { 10_000 };
    let tokens = any(chance, &[None, Some(slow), Some(100_000), Some(1_000_000)]);
    ControlPlanePlan { tokens, seed: chance.number(), stays: None }
}

fn impairments(chance: &mut Rng) -> Impairments {
    let base = any(chance, &[5_000, 20_000, 100_000]);
    Impairments {
        latency: base..=any(chance, &[base, 2 * base, 20 * base]),
        hiccups: any(chance, &[0.0, 0.001, 0.02]),
        segment: any(chance, &[1..=40, 1..=1460, 512..=4096, 1460..=65_536]),
        piece: any(chance, &[1..=30, 1..=2000, 4096..=65_536, 65_536..=65_536]),
        window: any(chance, &[2_000..=8_000, 20_000..=100_000, 500_000..=500_000]),
        half_open: any(chance, &[0.0, 0.0, 0.05]),
        failed_dials: any(chance, &[0.0, 0.0, 0.05]),
        timeout: 1_000_000..=any(chance, &[100_000_000, 5_000_000_000]),
    }
}

fn worker(chance: &mut Rng, number: usize, granularity_bytes: usize, huge: bool) -> WorkerPlan {
    let seconds = |chance: &mut Rng, from: &[u64]| Duration::from_secs(any(chance, from));
    let in_flight = any(chance, &[4, 16, 64, 200]);
    let limits = Limits {
        batch: any(chance, &[1, 3, 64]),
        in_flight,
        tenants: TENANTS,
        in_flight_of_connection: any(chance, &[1, 3, 8, 64]),
        unsent_of_connection: any(chance, &[1_000, 20_000, 1 << 20]),
        direct_min: [1, 700, 8 << 10, DIRECT_BYTES_MIN][(in_flight / 16 + number) % 4],
        carried: any(chance, &[20_000, 200_000, 4 << 20]),
        discard_blocks: [1 << 17, 9, 3, 16][(in_flight / 16 + number) % 4],
        zeroes_blocks: [2048, 5, 12, 2][(in_flight / 16 + number) % 4],
        stuck: seconds(chance, &[2, 5, 10]),
        stuck_under_pressure: seconds(chance, &[1, 2]),
        quieting: Duration::from_micros(
            [100, 1_000, 20_000, 1_000_000][(in_flight / 4 + number) % 4],
        ),
        drain: seconds(chance, &[1, 3]),
    };
    // The largest request of ordinary worlds is an atomic write of 160 blocks.
    let mut pool = vec![
        SizeClass { bytes: 8 << 10, count: any(chance, &[1, 4, 32]) },
        SizeClass { bytes: 96 << 10, count: any(chance, &[2, 3, 6]) },
    ];
    if huge {
        pool.push(SizeClass { bytes: 1 << 20, count: 2 });
    }
    let frames_max = any(chance, &[in_flight + 2, in_flight + 8, 512]).max(8);
    let receive_bytes = any(chance, &[64, 1024, 16 << 10]);
    WorkerPlan {
        number,
        limits,
        pool,
        scratch: any(chance, &[1, 1, 3]),
        queue_max: any(chance, &[2, 512, 512]),
        receive_buffers: SizeClass { bytes: receive_bytes, count: any(chance, &[1, 2, 8, 32]) },
        sizes: HostSizes { connections_max: any(chance, &[16, 64]), frames_max },
        disk: disk(chance, granularity_bytes),
    }
}

/// Gives each tenant's queue as many places as there are slots. Version 1 has no status for a full
/// queue, so its connection ends. A client that returns with as many requests would never succeed.
fn queue_whatever_comes(worker: &mut WorkerPlan) {
    worker.queue_max = worker.queue_max.max(worker.limits.in_flight);
}

/// Gives hosts a connection for each queue. A worker that may await payloads of the largest size
/// leaves one buffer for others, beside the one that is set aside.
fn make_room_for_hosts(worker: &mut WorkerPlan) {
    worker.sizes.connections_max = 64;
    let largest = worker.pool.last_mut().expect("a pool has buffers");
    largest.count = largest.count.max(3);
}

/// Adds NVMe hosts to every second world.
fn hosts(
    chance: &mut Rng,
    quota: u32,
    hot_blocks: u64,
    think: RangeInclusive<u64>,
) -> Vec<nvme::Habits> {
    let millis = |chance: &mut Rng, from: &[u64]| Duration::from_millis(any(chance, from));
    let count = any(chance, &[0, 0, 1, 2]);
    let host = |_| nvme::Habits {
        queues: chance.within(1..=3) as usize,
        entries: any(chance, &nvme::ENTRIES),
        in_flight_max: any(chance, &[1, 4, 16, 40]),
        digests: Digests { header: chance.happens(0.4), data: chance.happens(0.4) },
        flow_control: chance.happens(0.7),
        keep_alive: millis(chance, &[0, 1_000, 2_000]),
        lapses: nvme::Lapses {
            dozes: any(chance, &[0.0, 0.0, 0.01]),
            cuts: any(chance, &[0.0, 0.0, 0.01, 0.05]),
            hangs_up: 0.0,
        },
        in_capsule: any(chance, &[0.0, 0.5, 0.9]),
        silence_max: millis(chance, &[50, 1_000, 4_000]),
        backoff: 1_000_000..=any(chance, &[2_000_000, 100_000_000]),
        reissues_max: any(chance, &[0, 1, 8]),
        quota: quota / 2,
        reads: any(chance, &[0.2, 0.5, 0.8]),
        hot_blocks,
        think: think.clone(),
        seed: chance.number(),
    };
    (0..count).map(host).collect()
}

/// Makes a host disconnect often and reconnect at once, while its requests are still at a device.
fn lose_patience(host: &mut nvme::Habits) {
    host.lapses.hangs_up = 0.1;
    host.backoff = 1_000_000..=2_000_000;
    host.reissues_max = 8;
    host.in_flight_max = host.in_flight_max.max(4);
    host.quota *= 2;
    host.reads = 0.3;
    host.hot_blocks = host.hot_blocks.min(8);
}

/// Makes a worker's device often so late that a host that disconnects often reconnects first. Each
/// write waits only for writes to its own blocks.
fn try_patience(worker: &mut WorkerPlan) {
    worker.disk.lateness.rare = 2_000_000..=100_000_000;
    worker.disk.lateness.share = 0.05;
    worker.disk.granularity_bytes = 512;
}

fn disk(chance: &mut Rng, granularity_bytes: usize) -> disk::Habits {
    let usual = any(chance, &[1_000, 80_000, 500_000]);
    let longest = Duration::from_nanos(any(chance, &[0, 20_000, 300_000]));
    let fails = chance.happens(0.4);
    let mut script = Vec::new();
    for nth in 0..200 {
        if fails && chance.happens(0.02) {
            script.push((nth, any(chance, &[Status::MediaError, Status::NoSpace])));
        }
    }
    let share = if fails { 0.01 } else { 0.0 };
    disk::Habits {
        depth: any(chance, &[2, 16, 128]),
        granularity_bytes,
        lateness: Lateness {
            usual: 0..=usual,
            rare: 1_000_000..=any(chance, &[20_000_000, 3_000_000_000]),
            share: any(chance, &[0.0, 0.01, 0.05]),
        },
        delay: Delay { min: Duration::ZERO, max: longest },
        faults: Faults {
            fail_reads: share,
            fail_writes: share,
            script,
            torn_writes: chance.happens(0.5),
            stall: None,
            seed: chance.number(),
        },
    }
}

fn client(
    chance: &mut Rng,
    number: usize,
    quota: u32,
    huge: bool,
    hot_blocks: u64,
    think: RangeInclusive<u64>,
) -> steady::Habits {
    let version = any(chance, &[Version::One, Version::Two, Version::Two, Version::Two]);
    let fenced = chance.happens(0.8);
    let millis = |chance: &mut Rng, from: &[u64]| Duration::from_millis(any(chance, from));
    steady::Habits {
        options: Options {
            connections: chance.within(1..=3) as usize,
            in_flight_max: any(chance, &[1, 4, 16, 40]),
            version,
            client: if fenced { 1000 + number as u128 } else { 0 },
            checksums: chance.happens(0.5),
            direct_min: [1, 700, 8 << 10, DIRECT_BYTES_MIN][number % 4],
            backoff_min: millis(chance, &[1, 10]),
            backoff_max: millis(chance, &[20, 300]),
            attempts_max: any(chance, &[u32::MAX, u32::MAX, 3]),
            outage_max: Duration::from_secs(any(chance, &[2, 30])),
            reissues_max: any(chance, &[0, 1, 8, 8]),
            silence_max: millis(chance, &[50, 1_000, 4_000]),
            seed: chance.number(),
            ..Options::default()
        },
        quota,
        reads: any(chance, &[0.2, 0.5, 0.8]),
        huge,
        hot_blocks,
        think,
    }
}

/// Adds moves of connections, in worlds with several workers.
fn moves(chance: &mut Rng, workers: usize) -> Vec<(Duration, WorldEvent)> {
    let count = any(chance, &[0, 3, 20, 100]);
    let last = any(chance, &[3_000_000, 30_000_000, 1_000_000_000]);
    let mut one = || {
        let mut worker = || chance.within(0..=workers as u64 - 1) as usize;
        let (worker, to) = (worker(), worker());
        let gives = chance.happens(0.1);
        let what = match gives {
            true => WorldEvent::Give { worker, to, count: chance.within(1..=4) as u32 },
            false => WorldEvent::Move { worker, to },
        };
        (Duration::from_nanos(chance.within(0..=last)), what)
    };
    let somewhere = if workers > 1 { count } else { 0 };
    (0..somewhere).map(|_| one()).collect()
}

fn happenings(chance: &mut Rng, workers: usize) -> Vec<(Duration, WorldEvent)> {
    let strikes = any(chance, &[0, 5, 40]);
    let stalls = any(chance, &[0, 0, 1, 4]);
    let drains = any(chance, &[0, 0, 1, 2]);
    let operations = any(chance, &[0, 5, 30]);
    let last = any(chance, &[3_000_000, 30_000_000, 1_000_000_000]);
    let mut list = Vec::new();
    let mut add = |chance: &mut Rng, what| {
        list.push((Duration::from_nanos(chance.within(0..=last)), what));
    };
    for _ in 0..strikes {
        add(chance, WorldEvent::Strike);
    }
    for _ in 0..operations {
        add(chance, WorldEvent::Operate);
    }
    for _ in 0..stalls {
        let worker = chance.within(0..=workers as u64 - 1) as usize;
        let lasts = Duration::from_millis(any(chance, &[1, 50, 2_500]));
        add(chance, WorldEvent::Stall { worker, lasts });
    }
    for _ in 0..drains {
        let worker = chance.within(0..=workers as u64 - 1) as usize;
        let what =
            if chance.happens(0.3) { WorldEvent::Restart } else { WorldEvent::Drain { worker } };
        add(chance, what);
    }
    list.sort_by_key(|&(at, _)| at);
    list
}
