//! Tests that a worker allocates nothing after its warm-up: a real worker over real sockets, whose
//! thread's allocations are counted while clients of both versions keep it busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::{Answer, V1, V2};
use allocation_counter::AllocationInfo;
use contract::{BufPool, Command, Device, ListenerId, Range, SizeClass, Status};
use flash::{ExclusiveQueue, MemVolume, Null, RangeLocks};
use io::{
    Clock, EpollSockets, Listener, Network, Reactor, Sockets, SocketsConfig, SpinPolicy,
    TcpOptions, Waker,
};
use proto::reflex::ServerSession;
use qos::PassThrough;
use worker::{AccessRules, DeviceLane, Limits, Namespace, Namespaces, SharedState, Worker};

/// Number of requests before allocations are counted.
const WARM_UP: u64 = 10_000;
/// Number of requests during which allocations are counted.
const COUNTED: u64 = 100_000;
/// The least time for which allocations are counted, so that the worker's upkeep once a second is
/// included.
const HOUSEKEEPING: Duration = Duration::from_millis(1200);
/// Number of requests in flight on each connection.
const DEPTH: u64 = 32;
/// Number of blocks of the device: so few that the warm-up writes all of them.
const BLOCKS: u64 = 8192;

#[test]
fn null_over_io_uring() {
    measure::<Sockets, _>(|| Null::new(BLOCKS));
}

#[test]
fn null_over_epoll() {
    measure::<EpollSockets, _>(|| Null::new(BLOCKS));
}

#[test]
fn mem_over_io_uring() {
    measure::<Sockets, _>(memory);
}

#[test]
fn mem_over_epoll() {
    measure::<EpollSockets, _>(memory);
}

#[test]
fn the_count_sees_an_allocation() {
    let seen = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 10])));
    assert_eq!(seen.count_total, 1);
}

fn memory() -> impl Device {
    let bytes = ExclusiveQueue::<Null>::scratch_bytes(512);
    let scratch = io::carve(&[SizeClass { bytes, count: 2 }]).unwrap().bufs;
    ExclusiveQueue::new(MemVolume::new(BLOCKS).open_queue(), Arc::new(RangeLocks::new()), scratch)
}

/// The phases of the worker's thread, which the test sets in this order.
const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const ENDING: u8 = 2;

fn measure<N: Network, D: Device>(make: impl FnOnce() -> D + Send + 'static) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
    let address = listener.endpoint().internet().expect("a port");
    let phase = Arc::new(AtomicU8::new(WARMING));
    let (sender, reached) = channel();
    let told = phase.clone();
    let server = std::thread::spawn(move || serve::<N, D>(listener, make(), &told, &sender));
    let waker = reached.recv().expect("the worker starts");
    let mut clients = Clients {
        v1: [V1::connect(address), V1::connect(address)],
        v2: [V2::connect(address), V2::connect(address)],
        next: 0,
    };
    clients.run(WARM_UP);
    tell(&phase, COUNTING, &waker, &reached);
    let counting = crate::support::now();
    while clients.next < WARM_UP + COUNTED || counting.elapsed() < HOUSEKEEPING {
        clients.run(DEPTH);
    }
    tell(&phase, ENDING, &waker, &reached);
    let counted = server.join().expect("the worker does not panic");
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

/// Sets the next phase, and waits until the worker has reached it.
fn tell(phase: &AtomicU8, next: u8, waker: &Waker, reached: &Receiver<Waker>) {
    phase.store(next, Ordering::Release);
    waker.wake();
    reached.recv().expect("the worker lives");
}

/// Runs the worker on this thread. Returns the thread's allocations during the phase `COUNTING`.
fn serve<N: Network, D: Device>(
    listener: Listener,
    device: D,
    phase: &AtomicU8,
    reached: &Sender<Waker>,
) -> AllocationInfo {
    let reactor = N::Reactor::new().unwrap();
    let limits = Limits::default();
    let config = SocketsConfig {
        connections_max: 64,
        frames_max: 2 * limits.in_flight + 64,
        ..SocketsConfig::default()
    };
    let mut sockets = N::new(&reactor, config).unwrap();
    sockets.listen(ListenerId(0), listener).unwrap();
    let whole = Namespace { device: 0, first: 0, blocks: BLOCKS, read_only: false };
    let shared = SharedState::new(Namespaces::new(vec![whole]), AccessRules::open_to_all());
    let devices = vec![DeviceLane::new(device, PassThrough::new(limits.in_flight))];
    let pool = BufPool::new(io::carve(&BufPool::CLASSES).unwrap().bufs);
    let mut worker =
        Worker::new(sockets, devices, pool, Arc::new(shared), limits, |_, _| ServerSession::new());
    let clock = Clock::start();
    let mut serve_while = |now: u8| {
        io::run(&reactor, &clock, SpinPolicy::default(), |at| {
            (phase.load(Ordering::Acquire) == now).then(|| worker.turn(at))
        });
    };
    reached.send(reactor.waker()).unwrap();
    serve_while(WARMING);
    reached.send(reactor.waker()).unwrap();
    let counted = allocation_counter::measure(|| serve_while(COUNTING));
    reached.send(reactor.waker()).unwrap();
    counted
}

struct Clients {
    v1: [V1; 2],
    v2: [V2; 2],
    /// Number of requests that were sent so far, which also decides the next request.
    next: u64,
}

impl Clients {
    /// Carries out at least `count` requests, `DEPTH` at a time on each connection.
    fn run(&mut self, count: u64) {
        let end = self.next + count;
        while self.next < end {
            let mut sent = VecDeque::new();
            for v1 in &mut self.v1 {
                let commands: Vec<Command> = take(&mut self.next);
                let mut bytes = Vec::new();
                for (handle, command) in (1..).zip(&commands) {
                    append_v1(&mut bytes, handle, *command);
                }
                v1.send(&bytes);
                sent.push_back(commands);
            }
            for v2 in &mut self.v2 {
                let commands: Vec<Command> = take(&mut self.next);
                for (tag, command) in (1..).zip(&commands) {
                    v2.send(tag, *command, &vec![5; command.payload_bytes()]);
                }
                sent.push_back(commands);
            }
            for v1 in &mut self.v1 {
                let commands = sent.pop_front().expect("sent above");
                v1.receive(commands.iter().map(|c| 24 + c.reply_bytes()).sum());
            }
            for v2 in &mut self.v2 {
                for _ in sent.pop_front().expect("sent above") {
                    let answer = v2.answer();
                    assert!(matches!(answer, Answer::Done { status: Status::Ok, .. }));
                }
            }
        }
    }
}

/// Returns the next requests of a connection: reads of 4 KiB and 1 KiB and writes of 4 KiB, in
/// turns, over all blocks of the device.
fn take(next: &mut u64) -> Vec<Command> {
    let command = |n: u64| {
        let lba = n / 3 * 8 % BLOCKS;
        match n % 3 {
            0 => Command::Read(Range::new(lba, 8)),
            1 => Command::Read(Range::new(lba, 2)),
            _ => Command::Write { range: Range::new(lba, 8), fua: false },
        }
    };
    let first = *next;
    *next += DEPTH;
    (first..*next).map(command).collect()
}

fn append_v1(bytes: &mut Vec<u8>, handle: u64, command: Command) {
    let range = command.range().expect("they all have one");
    let opcode = if command.payload_bytes() > 0 { 1 } else { 0 };
    bytes.extend(crate::support::v1_head(opcode, handle, range.lba, range.blocks));
    bytes.resize(bytes.len() + command.payload_bytes(), 7);
}
