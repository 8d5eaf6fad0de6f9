//! A server in this process: one worker with a device of memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use contract::{BufPool, ListenerId, SizeClass};
use flash::{ExclusiveQueue, MemVolume, Null, RangeLocks};
use io::{
    Clock, EpollReactor, EpollSockets, Listener, Network, Reactor, SocketsConfig, SpinPolicy,
    TcpOptions, Waker,
};
use proto::reflex::ServerSession;
use qos::PassThrough;
use worker::{AccessRules, DeviceLane, Limits, Namespace, Namespaces, SharedState, Worker};

/// Blocks of the device: 4 MiB.
const BLOCKS: u64 = 8192;

/// A server that ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &TcpOptions::default());
        let listener = listener.unwrap();
        let address = listener.endpoint().internet().expect("a port");
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, started) = channel();
        let told = ends.clone();
        let thread = std::thread::spawn(move || serve(listener, &told, &sender));
        let waker = started.recv().expect("the worker starts");
        Server { address, ends, waker, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("reflex://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.waker.wake();
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the worker panicked");
    }
}

/// Runs the worker until `ends` is set, and passes on its waker.
fn serve(listener: Listener, ends: &AtomicBool, started: &Sender<Waker>) {
    let reactor = EpollReactor::new().unwrap();
    let limits = Limits::default();
    let frames_max = 2 * limits.in_flight + 64;
    let config = SocketsConfig { connections_max: 64, frames_max, ..SocketsConfig::default() };
    let mut sockets = EpollSockets::new(&reactor, config).unwrap();
    sockets.listen(ListenerId(0), listener).unwrap();
    let whole = Namespace { device: 0, first: 0, blocks: BLOCKS, read_only: false };
    let shared = SharedState::new(Namespaces::new(vec![whole]), AccessRules::open_to_all());
    let bytes = ExclusiveQueue::<Null>::scratch_bytes(512);
    let scratch = io::carve(&[SizeClass { bytes, count: 2 }]).unwrap().bufs;
    let memory = MemVolume::new(BLOCKS).open_queue();
    let device = ExclusiveQueue::new(memory, Arc::new(RangeLocks::new()), scratch);
    let devices = vec![DeviceLane::new(device, PassThrough::new(limits.in_flight))];
    let pool = BufPool::new(io::carve(&BufPool::CLASSES).unwrap().bufs);
    let mut worker =
        Worker::new(sockets, devices, pool, Arc::new(shared), limits, |_, _| ServerSession::new());
    started.send(reactor.waker()).unwrap();
    io::run(&reactor, &Clock::start(), SpinPolicy::default(), |at| {
        (!ends.load(Ordering::Acquire)).then(|| worker.turn(at))
    });
}
