//! The load of `cargo xtask cost`: the real worker over a network made of memory and a device of
//! nothing, so that an instruction counter sees the worker alone.
//!
//! ```text
//! cost pass|token TENANTS REQUESTS
//! cost register|change|check|adjust TENANTS TIMES
//! ```
//!
//! The second form does something to a registry of so many tenants instead: one more comes and goes,
//! one changes its SLO, one asks what would have to give for most of the device, the correction
//! changes the price of writes.
//!
//! Everything is deterministic. Each tenant has one connection; half of the tenants have an SLO (the
//! odd ones are best effort), none asks for more than its tokens. Every turn finds a full batch
//! ready. With a few tenants each connection has many requests in flight, with thousands one each,
//! which is the hard case: no tenant has two requests in a round. What is deliberately not here: the
//! sockets. A real server spends more on a request, so the shares that this shows are upper bounds.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use contract::{
    Buf, ConnId, Frame, Instant, ListenerId, NamespaceId, NetEvent, Peer, Rights, Scheduler, Slo,
    TenantId, Transport,
};
use flash::Null;
use proto::reflex::ServerSession;
use qos::admission::Verdict;
use qos::{
    Adjustment, CostModel, DeviceModel, PassThrough, QueueLimits, RatePoint, Registry,
    TokenScheduler,
};
use target::{
    Access, Attached, Fences, Limits, Namespace, Namespaces, Parts, Rule, Scope, Who, Worker,
};

/// Requests of a turn: the worker's batch.
const BATCH: usize = 64;
/// Nanoseconds of a turn: a million requests a second.
const TURN_NANOS: u64 = 64_000;
/// Bytes of a request head of protocol version 2.
const HEAD_BYTES: usize = 40;
/// Blocks of the device.
const BLOCKS: u64 = 1 << 21;

/// A network made of memory: peers that send the next request when they have an answer.
#[derive(Debug)]
struct Memory {
    conns: Vec<Conn>,
    /// Connections with answered requests, in the order of the answers.
    ready: Vec<usize>,
    events: Vec<NetEvent>,
    answered: u64,
}

#[derive(Debug)]
struct Conn {
    /// Holds as many requests as may be in flight; `None` while it is lent.
    requests: Option<Buf>,
    /// Requests that it may send.
    credit: usize,
    is_ready: bool,
}

impl Memory {
    fn new(conns: usize, depth: usize) -> Memory {
        let open = |index| NetEvent::Opened {
            conn: ConnId { index, generation: 0 },
            peer: Peer::Internet(SocketAddr::new(address(index), 1)),
            listener: Some(ListenerId(0)),
        };
        let mut events: Vec<NetEvent> = (0..conns as u32).map(open).collect();
        for index in 0..conns as u32 {
            let hello = Buf::new(Box::leak(hello().into()), u32::MAX);
            let conn = ConnId { index, generation: 0 };
            events.push(NetEvent::Received { conn, buf: hello, len: 48 });
        }
        let conn = |index| Conn {
            requests: Some(Buf::new(Box::leak(requests(depth).into()), index as u32)),
            credit: depth,
            is_ready: true,
        };
        let conns: Vec<Conn> = (0..conns).map(conn).collect();
        Memory { ready: (0..conns.len()).collect(), conns, events, answered: 0 }
    }
}

impl Transport for Memory {
    fn poll(&mut self, _: Instant, events: &mut Vec<NetEvent>, _: usize) {
        events.append(&mut self.events);
        let mut wanted = BATCH;
        let mut seen = 0;
        while seen < self.ready.len() && wanted > 0 {
            let index = self.ready[seen];
            let conn = &mut self.conns[index];
            let Some(buf) = conn.requests.take() else { break };
            let count = conn.credit.min(wanted);
            conn.credit -= count;
            conn.is_ready = false;
            wanted -= count;
            seen += 1;
            let conn = ConnId { index: index as u32, generation: 0 };
            events.push(NetEvent::Received { conn, buf, len: count * HEAD_BYTES });
        }
        self.ready.drain(..seen);
    }

    fn give(&mut self, buf: Buf) {
        // The hello's buffer is nobody's.
        if let Some(conn) = self.conns.get_mut(buf.index() as usize) {
            conn.requests = Some(buf);
            if conn.credit > 0 && !conn.is_ready {
                // More than the batch took.
                conn.is_ready = true;
                self.ready.push(buf_owner(conn));
            }
        }
    }

    fn room(&self) -> usize {
        usize::MAX / 2
    }

    fn send(&mut self, _: Instant, id: ConnId, frame: Frame) {
        let Some(buf) = frame.body else { return };
        assert!(frame.body_len == 4096, "a read was refused");
        self.answered += 1;
        self.events.push(NetEvent::Sent { conn: id, buf });
        let conn = &mut self.conns[id.index as usize];
        conn.credit += 1;
        if !conn.is_ready && conn.requests.is_some() {
            conn.is_ready = true;
            self.ready.push(id.index as usize);
        }
    }

    fn kick(&mut self, _: Instant) {}
    fn pause(&mut self, _: ConnId) {}
    fn resume(&mut self, _: ConnId) {}
    fn unsent(&self, _: ConnId) -> usize {
        0
    }
    fn finish(&mut self, _: ConnId) {}
    fn close(&mut self, conn: ConnId) {
        panic!("the worker closed {conn:?}");
    }
    fn stop_listening(&mut self) {}
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

fn buf_owner(conn: &Conn) -> usize {
    conn.requests.as_ref().expect("it was just given back").index() as usize
}

/// Each tenant's peer has an address of its own, which tells the worker whose it is.
fn address(tenant: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + tenant))
}

/// The first message of a connection (docs/protocol/reflex-v2.md): nothing but zeroes behind the
/// magic and the versions.
fn hello() -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[..8].copy_from_slice(b"NFR2\x02\x00\x02\x00");
    bytes
}

/// Reads of 4 KiB.
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

fn parts(tenants: usize) -> Arc<Parts> {
    let rule = |tenant| Rule {
        who: Who::Network { address: address(tenant), prefix: 32 },
        tenant: TenantId(tenant),
        tenant_name: String::new(),
        register: true,
        scope: Scope::All(Rights::ALL),
    };
    let namespace = Namespace { device: 0, first: 0, blocks: BLOCKS, read_only: false };
    Arc::new(Parts {
        namespaces: Namespaces::new(vec![namespace]),
        access: Access::new((0..tenants as u32).map(rule).collect(), 1),
        listener_namespaces: vec![NamespaceId(1)],
        listener_tenants: Vec::new(),
        fences: Fences::default(),
    })
}

/// A device that is never the limit, with so many tenants.
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
        let slo = Slo { latency_us: 2_000, iops, read_percent: 100, ..Slo::default() };
        let slo = if critical { slo } else { Slo::default() };
        let admission = registry.register(&slo, Instant::ZERO).expect("it fits");
        assert!(admission.tenant.0 as usize == tenant, "tenants are numbered in order");
    }
    registry
}

fn scheduler(tenants: usize) -> TokenScheduler {
    let limits = QueueLimits { slots: 8192, of_tenant: 8192 };
    registry(tenants).scheduler(0, limits)
}

/// Asks so many times something of a registry: how often the answer was yes.
fn ask(what: &str, tenants: usize, times: u64) -> Option<u64> {
    let mut registry = registry(tenants);
    let now = Instant::ZERO;
    let slo = |iops| Slo { latency_us: 2_000, iops, read_percent: 100, ..Slo::default() };
    let mut granted = 0;
    for time in 0..times {
        granted += u64::from(match what {
            "register" => {
                let tenant = registry.register(&slo(100), now).expect("it fits").tenant;
                registry.unregister(tenant, now).expect("it was just registered");
                registry.remove(tenant, now)
            }
            "change" => {
                let tenant = TenantId((time * 2 % tenants as u64) as u32);
                registry.change(tenant, &slo(101 + time as u32 % 7), now).is_ok()
            }
            "check" => {
                matches!(registry.check(&slo(15_900_000)), Verdict::Admitted { .. })
            }
            "adjust" => {
                let write_permille = 1_000 + time as u32 % 2_000;
                registry.adjust(Adjustment { write_permille, ..Adjustment::NONE }, now);
                true
            }
            _ => return None,
        });
    }
    Some(granted)
}

/// Serves so many requests.
fn run<S: Scheduler>(scheduler: S, tenants: usize, requests: u64) -> u64 {
    let depth = if tenants > 2 * BATCH { 1 } else { 2 * BATCH / tenants };
    let leak = |(index, bytes)| Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index);
    let sizes = std::iter::repeat_n(4096, 4096).chain([2 << 20, 2 << 20]);
    let pool = contract::BufPool::new((0..).zip(sizes).map(leak));
    let attached = Attached::new(Null::new(BLOCKS), scheduler);
    let mut worker = Worker::new(
        Memory::new(tenants, depth),
        vec![attached],
        pool,
        parts(tenants),
        Limits { batch: BATCH, tenants, ..Limits::default() },
        |_, _| ServerSession::new(),
    );
    let mut now = 1_000_000_000;
    while worker.ports().0.answered < requests {
        worker.turn(Instant::from_nanos(now));
        now += TURN_NANOS;
    }
    worker.ports().0.answered
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok());
    let (Some(kind), Some(tenants), Some(requests)) = (words.first(), number(1), number(2)) else {
        eprintln!("cost pass|token|register|change|check|adjust TENANTS NUMBER");
        std::process::exit(2);
    };
    let tenants = tenants.max(1) as usize;
    let answered = match kind.as_str() {
        "pass" => run(PassThrough::new(8192), tenants, requests),
        "token" => run(scheduler(tenants), tenants, requests),
        what => match ask(what, tenants, requests) {
            Some(granted) => return println!("{granted} of {requests} granted"),
            None => {
                eprintln!("nothing is known of {kind:?}");
                std::process::exit(2);
            }
        },
    };
    println!("{answered} requests answered");
}
