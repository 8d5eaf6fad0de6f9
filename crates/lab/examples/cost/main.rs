//! The program that `cargo xtask cost` runs under an instruction counter: a real worker over a
//! device that does nothing, or one operation of the registry of tenants.
//!
//! ```text
//! cost pass|token memory|sockets TENANTS REQUESTS
//! cost nvme-read|nvme-write|nvme-read-flow|nvme-write-flow BLOCK_SIZE REQUESTS
//! cost register|change|check|adjust TENANTS TIMES
//! ```
//!
//! The first form serves peers. With `memory` they are simulated inside this process, so only the
//! worker is counted. With `sockets` they are another process, which the counter does not see, and
//! the worker has real TCP sockets of loopback and a real ring. The second form serves NVMe/TCP
//! hosts over memory (`nvme.rs`); with `-flow` the hosts use flow control. The third form runs one
//! operation TIMES times on a registry of TENANTS tenants: a tenant is registered and removed, a
//! tenant's SLO is changed, an SLO is checked that needs most of the device, or the online
//! correction changes the price of writes.
//!
//! Time is made up, and the load is the same in every run. Each tenant has one connection. Tenants
//! with even numbers have an SLO and the others are best effort; none asks for more than its
//! tokens. Each turn finds a full batch of requests. With a few tenants each connection has many
//! requests in flight; with thousands it has one each, which is the hard case: no tenant has two
//! requests in a round.
//!
//! Only the instructions inside of `counted` and `asked` are counted. Deliberately left out: the
//! kernel.

/// Makes a network a [`Transport`] that sends each frame at once and never stops receiving, and
/// whose connections stay where they are.
macro_rules! takes_all_at_once {
    ($network:ty) => {
        impl Transport for $network {
            fn pause(&mut self, _: ConnId) {}
            fn resume(&mut self, _: ConnId) {}
            fn unsent(&self, _: ConnId) -> usize {
                0
            }
            fn finish(&mut self, _: ConnId) {}
            fn stop_listening(&mut self) {}
        }

        impl Migrate for $network {
            fn still(&mut self, _: ConnId) {}
            fn is_still(&self, _: ConnId) -> bool {
                false // no connection changes workers here
            }
            fn detach(&mut self, conn: ConnId, to: u16) -> Ticket {
                unreachable!("{conn:?} is never still, so it does not go to worker {to}")
            }
            fn attach(&mut self, _: Ticket) -> Option<ConnId> {
                None
            }
        }
    };
}
pub(crate) use takes_all_at_once;

mod memory;
mod nvme;
mod peers;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use contract::{
    Buf, BufPool, Instant, ListenerId, NoMailbox, Rights, Scheduler, Session, Slo, TenantId,
    Transport,
};
use flash::Null;
use io::{Listener, Network, Reactor, Ring, Sockets, SocketsConfig, TcpOptions};
use memory::Memory;
use proto::reflex::ServerSession;
use qos::admission::Verdict;
use qos::{
    Adjustment, CostModel, DeviceModel, PassThrough, QueueLimits, RatePoint, Registry,
    TokenScheduler,
};
use worker::{
    AccessRules, AccessScope, ControlPlaneLink, DeviceLane, FnSessionFactory, Limits, Namespace,
    Namespaces, PeerPattern, PeerRule, SessionFactory, SharedState, Worker,
};

/// Maximum number of requests that the worker takes in a turn: its batch.
const BATCH: usize = 64;
/// Nanoseconds of virtual time between two turns: a batch of 64 in 64 µs is a million requests a
/// second.
const TURN_NANOS: u64 = 64_000;
/// Bytes of a request head of protocol version 2.
const HEAD_BYTES: usize = 40;
/// Number of 512-byte blocks of the null device: 1 GiB.
const BLOCKS: u64 = 1 << 21;

/// Returns the loopback address of a tenant's peer, by which the worker finds the tenant.
fn address(tenant: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x7f01_0000 + tenant))
}

/// Returns the first message of a connection (docs/reference/protocols/reflex-v2.md): zeroes except
/// for the magic and the versions.
fn hello() -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[..8].copy_from_slice(b"NFR2\x02\x00\x02\x00");
    bytes
}

/// Returns the heads of `count` reads of 4 KiB in protocol version 2, one after the other, with
/// tags from 0.
fn requests(count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * HEAD_BYTES);
    for tag in 0..count as u64 {
        let mut head = [0; HEAD_BYTES];
        head[0] = 1;
        head[8..16].copy_from_slice(&tag.to_le_bytes());
        head[16..24].copy_from_slice(&(tag * 8).to_le_bytes());
        head[24..28].copy_from_slice(&8u32.to_le_bytes());
        bytes.extend_from_slice(&head);
    }
    bytes
}

fn parts(tenants: usize) -> Arc<SharedState> {
    let rule = |tenant| PeerRule {
        who: PeerPattern::Network { address: address(tenant), prefix: 32 },
        tenant: TenantId(tenant),
        tenant_name: String::new(),
        register: true,
        scope: AccessScope::All(Rights::ALL),
    };
    let namespace = Namespace { device: 0, first: 0, blocks: BLOCKS, read_only: false };
    let access = AccessRules::new((0..tenants as u32).map(rule).collect());
    Arc::new(SharedState::new(Namespaces::new(vec![namespace]), access))
}

/// Returns a registry of `tenants` tenants, every other one with an SLO, on a device whose rate is
/// never the limit.
fn registry(tenants: usize) -> Registry {
    let cost = CostModel::linear(1_000, 100).expect("sound prices");
    let rate = 1_600_000_000;
    let row = RatePoint { latency_us: 2_000, mixed: rate, read_only: rate };
    let model = DeviceModel::new(cost, vec![row], rate).expect("a sound model");
    let mut registry = Registry::new(model, tenants + 1);
    // Twice what the load makes, so that deficits do not decide.
    let iops = (2_000_000 / tenants).max(1) as u32;
    for tenant in 0..tenants {
        let critical = tenant % 2 == 0;
        let slo = Slo::new(2_000, iops, 100);
        let admission = registry.register(critical.then_some(slo), Instant::ZERO).expect("it fits");
        assert!(admission.tenant.0 as usize == tenant, "tenants are numbered in order");
    }
    registry
}

fn scheduler(tenants: usize) -> TokenScheduler {
    let limits = QueueLimits { slots: 8192, of_tenant: 8192 };
    registry(tenants).scheduler(0, limits)
}

/// Makes a registry of `tenants` tenants and runs an operation on it `times` times. Returns `false`
/// if no operation is called `what`.
fn ask(what: &str, tenants: usize, times: u64) -> bool {
    let mut registry = registry(tenants);
    asked(&mut registry, what, tenants, times)
}

/// Runs the operation `what` on the registry `times` times. The instruction counter measures this
/// function.
#[inline(never)]
fn asked(registry: &mut Registry, what: &str, tenants: usize, times: u64) -> bool {
    let now = Instant::ZERO;
    let slo = |iops| Slo::new(2_000, iops, 100);
    for time in 0..times {
        let granted = match what {
            "register" => {
                let tenant = registry.register(Some(slo(100)), now).expect("it fits").tenant;
                registry.unregister(tenant, now).expect("it was just registered");
                registry.remove(tenant, now)
            }
            "change" => {
                let tenant = TenantId((time * 2 % tenants as u64) as u32);
                registry.change(tenant, Some(slo(101 + time as u32 % 7)), now).is_ok()
            }
            "check" => {
                // Refused, with what would have to give.
                !matches!(registry.check(Some(slo(15_900_000))), Verdict::Admitted { .. })
            }
            "adjust" => {
                let write_permille = 1_000 + time as u32 % 2_000;
                registry.adjust(Adjustment { write_permille, ..Adjustment::NONE }, now);
                true
            }
            _ => return false,
        };
        assert!(granted, "{what} number {time} went another way");
    }
    true
}

/// A worker of the load: its ports, but for the network, the scheduler and the sessions, are the
/// same for all.
type LoadWorker<T, S, P, N> = Worker<T, Null, S, P, NoMailbox, N>;

/// The sessions of peers that speak `reflex`.
fn reflex() -> FnSessionFactory<ServerSession> {
    FnSessionFactory(|_, _| ServerSession::new())
}

/// Creates a worker over `network`, with a null device behind the scheduler.
fn worker<T: Transport, S: Scheduler, P: Session, N: SessionFactory<P>>(
    network: T,
    scheduler: S,
    tenants: usize,
    sessions: N,
) -> LoadWorker<T, S, P, N> {
    let leak = |(index, bytes)| Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index);
    let sizes = std::iter::repeat_n(4096, 4096).chain([2 << 20, 2 << 20]);
    Worker::with_sessions(
        network,
        vec![DeviceLane::new(Null::new(BLOCKS), scheduler)],
        BufPool::new((0..).zip(sizes).map(leak)),
        parts(tenants),
        Limits { batch: BATCH, tenants, ..Limits::default() },
        sessions,
        ControlPlaneLink::none(tenants),
    )
}

/// Runs turns of the worker while `goes_on` returns `true`; the instruction counter measures this
/// function. After each turn, calls `between` with `true` if the turn progressed.
#[inline(never)]
fn counted<T: Transport, S: Scheduler, P: Session, N: SessionFactory<P>>(
    worker: &mut LoadWorker<T, S, P, N>,
    now: &mut u64,
    between: impl Fn(bool),
    goes_on: impl Fn(&mut LoadWorker<T, S, P, N>) -> bool,
) {
    while goes_on(worker) {
        let turn = worker.turn(Instant::from_nanos(*now));
        *now += TURN_NANOS;
        between(turn.progressed);
    }
}

/// Returns the number of requests that each tenant has in flight: two batches in all, and at least
/// one a tenant.
fn depth(tenants: usize) -> usize {
    if tenants > 2 * BATCH { 1 } else { 2 * BATCH / tenants }
}

/// Runs the worker over the network in memory until `requests` requests are answered.
fn over_memory<S: Scheduler>(scheduler: S, tenants: usize, requests: u64) {
    let mut worker = worker(Memory::new(tenants, depth(tenants)), scheduler, tenants, reflex());
    let mut now = 1_000_000_000;
    counted(&mut worker, &mut now, |_| {}, |worker| worker.ports().0.answered < requests);
}

/// Runs the worker over TCP sockets until a process of peers has sent `requests` requests and left.
fn over_sockets<S: Scheduler>(scheduler: S, tenants: usize, requests: u64) {
    io::raise_descriptor_limit();
    let ring = Ring::new().expect("io_uring");
    let mut sockets = Sockets::new(&ring, SocketsConfig::default()).expect("sockets");
    let at = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(at, &TcpOptions::default()).expect("a free port");
    let server = listener.endpoint().internet().expect("an address of the network");
    sockets.listen(ListenerId(0), listener).expect("it listens");
    let mut worker = worker(sockets, scheduler, tenants, reflex());
    let mut peers = peers::start(server, tenants, requests);
    // The outer loop, without a clock: it parks where nothing is to do.
    let enter = |progressed: bool| {
        ring.enter((!progressed).then_some(None));
    };
    let mut now = 1_000_000_000;
    while worker.connections() < tenants {
        let turn = worker.turn(Instant::from_nanos(now));
        enter(turn.progressed);
    }
    counted(&mut worker, &mut now, enter, |worker| worker.connections() == tenants);
    drop(worker);
    assert!(peers.wait().expect("the peers end").success(), "the peers were served");
}

/// Serves `requests` requests over `memory` or `sockets`. Returns `false` for any other name of a
/// network.
fn serve<S: Scheduler>(scheduler: S, network: &str, tenants: usize, requests: u64) -> bool {
    match network {
        "memory" => over_memory(scheduler, tenants, requests),
        "sockets" => over_sockets(scheduler, tenants, requests),
        _ => return false,
    }
    true
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().unwrap_or(1).max(1);
    let known = match words[..] {
        ["peers", server, tenants, requests] => {
            let tenants = number(tenants) as usize;
            peers::run(server, tenants, depth(tenants), number(requests));
            true
        }
        ["pass", network, tenants, requests] => {
            serve(PassThrough::new(8192), network, number(tenants) as usize, number(requests))
        }
        ["token", network, tenants, requests] => {
            let tenants = number(tenants) as usize;
            serve(scheduler(tenants), network, tenants, number(requests))
        }
        [what, bytes, requests] if what.starts_with("nvme-") => {
            nvme::serve(what, number(bytes) as usize, number(requests))
        }
        [what, tenants, times] => ask(what, number(tenants) as usize, number(times)),
        _ => false,
    };
    if !known {
        eprintln!(
            "cost pass|token memory|sockets TENANTS REQUESTS\n\
             cost nvme-read|nvme-write|nvme-read-flow|nvme-write-flow BLOCK_SIZE REQUESTS\n\
             cost register|change|check|adjust TENANTS TIMES"
        );
        std::process::exit(2);
    }
}
