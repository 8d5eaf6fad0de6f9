//! NVMe/TCP hosts in memory. Each has one I/O queue, keeps a batch of requests in flight on it, and
//! sends the next batch when the last is answered.
//!
//! Deliberately left out: the contents of replies, once a queue is up.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Buf, Command, CompletedPrelude, ConnId, Frame, Geometry, Instant, ListenerId, Migrate,
    NetEvent, Peer, Range, Streams, Ticket, Transport,
};
use dataplane::AnySession;
use proto::nvme::{
    Config, Environment, Fabric, Hosts, Identifiers, Namespace, Nqn, Port, PortId, Subsystem,
};
use proto::nvme_tcp::{ControllerSession, Digests, HostOptions, HostQueue, WorkerFabric};
use worker::{SessionFactory, UnpackError};

use crate::{BATCH, BLOCKS, TURN_NANOS, address, counted, scheduler, worker};

const SUBSYSTEM: &str = "nqn.2026-01.io.nearflash:cost";

/// The number of I/O queues, each of a tenant of its own.
const QUEUES: usize = 4;

/// The number of requests in flight on each queue: two batches on all of them.
const DEPTH: usize = 2 * BATCH / QUEUES;

/// Bytes of a receive buffer, as a server has them.
const RECEIVE_BYTES: usize = 8 << 10;

/// Serves reads or writes of so many bytes over NVMe/TCP. Returns `false` if no load is called
/// `what`.
pub(crate) fn serve(what: &str, bytes: usize, requests: u64) -> bool {
    let range = Range::new(8, (bytes / contract::BLOCK_BYTES) as u32);
    let (command, uses_flow_control) = match what {
        "nvme-read" => (Command::Read(range), false),
        "nvme-read-flow" => (Command::Read(range), true),
        "nvme-write" => (Command::Write { range, fua: false }, false),
        "nvme-write-flow" => (Command::Write { range, fua: false }, true),
        _ => return false,
    };
    let desk = Rc::new(WorkerFabric::new(fabric(), 0));
    let hosts = HostNetwork::new(command, uses_flow_control);
    let mut worker = worker(hosts, scheduler(QUEUES + 1), QUEUES + 1, HostSessions(desk));
    let mut now = 1_000_000_000;
    while worker.ports().0.up <= QUEUES {
        worker.turn(Instant::from_nanos(now));
        now += TURN_NANOS;
    }
    let before = worker.ports().0.answered;
    let goes_on = |answered: u64| answered < before + requests;
    counted(&mut worker, &mut now, |_| {}, |worker| goes_on(worker.ports().0.answered));
    true
}

/// An environment in which nothing is to be done.
#[derive(Debug)]
struct IdleEnvironment;

impl Environment for IdleEnvironment {
    fn wake(&self, _: u16) {}
    fn compute(&self) {}
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn fabric() -> Arc<Fabric> {
    let nqn = Nqn::new(SUBSYSTEM).expect("a name");
    let namespace = Namespace {
        nsid: 1,
        id: contract::NamespaceId(1),
        geometry: Geometry::new(BLOCKS, 512),
        block_bytes: 512,
        identifiers: Identifiers { uuid: [1; 16], ..Identifiers::default() },
        ana_group: 1,
        hosts: Hosts::Any,
        tenant: None,
    };
    let subsystem = Subsystem::open_to_all(nqn, "cost", vec![namespace]);
    let port = Port::plain(PortId(0), "127.0.0.1");
    let config =
        Config { workers: 1, ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    Fabric::new(&config, Instant::ZERO, Box::new(IdleEnvironment)).expect("a sound fabric")
}

/// The sessions of the hosts' connections, of the type that a server has.
struct HostSessions(Rc<WorkerFabric>);

impl SessionFactory<AnySession> for HostSessions {
    fn open(
        &mut self,
        conn: ConnId,
        _: Option<ListenerId>,
        _: &Peer,
        _: Option<&CompletedPrelude>,
    ) -> AnySession {
        AnySession::NvmeTcp(ControllerSession::new(self.0.clone(), PortId(0), conn))
    }

    fn unpack(&mut self, _: &[u8]) -> Result<AnySession, UnpackError> {
        Err(UnpackError::Unknown)
    }

    fn news(&mut self, now: Instant) -> Option<ConnId> {
        self.0.news(now)
    }

    fn wake_at(&self) -> Option<Instant> {
        self.0.wake_at()
    }
}

/// A network in memory whose peers are the queues of one host. Connection 0 is the admin queue.
#[derive(Debug)]
struct HostNetwork {
    options: Rc<HostOptions>,
    command: Command,
    uses_flow_control: bool,
    queues: Vec<Queue>,
    /// The number of queues that are up, with the admin queue.
    up: usize,
    events: Vec<NetEvent>,
    answered: u64,
}

#[derive(Debug)]
struct Queue {
    host: HostQueue,
    /// The bytes that the server has sent since the queue last looked, until it is up.
    inbox: Vec<u8>,
    /// The bytes of a batch of requests, in receive buffers; `None` while the worker has one.
    chunks: Vec<(Option<Buf>, usize)>,
    /// The number of requests in flight.
    in_flight: usize,
}

impl HostNetwork {
    fn new(command: Command, uses_flow_control: bool) -> HostNetwork {
        let options = Rc::new(HostOptions {
            subsystem: SUBSYSTEM.to_owned(),
            host: "nqn.2026-01.io.nearflash:host".to_owned(),
            host_id: [1; 16],
            nsid: 1,
            queues: QUEUES,
            queue_depth: DEPTH as u16,
            digests: Digests { header: false, data: false },
            in_capsule: true,
            keep_alive: Duration::ZERO,
            key: None,
            controller_key: None,
            chance: [0; 32],
        });
        let mut hosted = HostNetwork {
            options: options.clone(),
            command,
            uses_flow_control,
            queues: Vec::new(),
            up: 0,
            events: Vec::new(),
            answered: 0,
        };
        hosted.open(HostQueue::admin(options, 1));
        hosted
    }

    fn open(&mut self, host: HostQueue) {
        let index = self.queues.len() as u32;
        let peer = Peer::Internet(SocketAddr::new(address(index), 1));
        let conn = ConnId { index, generation: 0 };
        self.events.push(NetEvent::opened(conn, peer, Some(ListenerId(0))));
        self.queues.push(Queue { host, inbox: Vec::new(), chunks: Vec::new(), in_flight: 0 });
        self.speak(index as usize);
    }

    /// Sends what a queue wants to send while it is set up.
    fn speak(&mut self, index: usize) {
        let speech = self.queues[index].host.speech();
        let mut bytes: Vec<u8> = speech.flat_map(|head| head.bytes().to_vec()).collect();
        let is_connect = bytes.len() > 72 && bytes[0] == 4 && bytes[8] == 0x7f && bytes[12] == 1;
        if is_connect && self.uses_flow_control {
            bytes[8 + 46] &= !wire::nvme::CONNECT_DISABLE_FLOW_CONTROL;
        }
        if !bytes.is_empty() {
            let (conn, len) = (ConnId { index: index as u32, generation: 0 }, bytes.len());
            let buf = Buf::new(bytes.leak(), u32::MAX);
            self.events.push(NetEvent::Received { conn, buf, len });
        }
    }

    /// Goes on with the setup of a queue. Once the admin queue is up, the others connect.
    fn set_up(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let inbox = std::mem::take(&mut queue.inbox);
        queue.host.next_event(&mut &inbox[..]).expect("a queue that comes up");
        if !queue.host.is_up() {
            return self.speak(index);
        }
        self.up += 1;
        if index == 0 {
            let found = queue.host.found().clone();
            for number in 1..=QUEUES as u16 {
                self.open(HostQueue::io(self.options.clone(), number, found.clone()));
            }
        } else {
            queue.chunks = batch(&mut queue.host, self.command, index as u32);
        }
    }
}

/// Encodes a batch of requests, cut as a stream of bytes is into receive buffers. The buffers have
/// the number of the connection.
fn batch(host: &mut HostQueue, command: Command, index: u32) -> Vec<(Option<Buf>, usize)> {
    let payload = vec![7; command.payload_bytes()];
    let mut bytes = Vec::new();
    for cid in 0..DEPTH as u16 {
        let encoded = host.request(cid, command, &payload).expect("it can be said");
        let [first, second] = encoded.heads;
        bytes.extend_from_slice(first.bytes());
        bytes.extend_from_slice(second.bytes());
        if encoded.has_payload {
            bytes.extend_from_slice(&payload);
        }
        bytes.extend_from_slice(second.tail());
    }
    let chunk = |bytes: &[u8]| {
        let len = bytes.len();
        (Some(Buf::new(bytes.to_vec().leak(), index)), len)
    };
    bytes.chunks(RECEIVE_BYTES).map(chunk).collect()
}

impl Streams for HostNetwork {
    fn poll(&mut self, _: Instant, events: &mut Vec<NetEvent>, _: usize) {
        for index in 0..self.queues.len() {
            if !self.queues[index].inbox.is_empty() {
                self.set_up(index);
            }
        }
        events.append(&mut self.events);
        if self.up <= QUEUES {
            return;
        }
        for (index, queue) in self.queues.iter_mut().enumerate().skip(1) {
            let is_whole = queue.chunks.iter().all(|(buf, _)| buf.is_some());
            if queue.in_flight > 0 || !is_whole {
                continue;
            }
            queue.in_flight = DEPTH;
            let conn = ConnId { index: index as u32, generation: 0 };
            for (buf, len) in &mut queue.chunks {
                let buf = buf.take().expect("just seen");
                events.push(NetEvent::Received { conn, buf, len: *len });
            }
        }
    }

    fn give(&mut self, buf: Buf) {
        // Those of the setup are nobody's.
        let Some(queue) = self.queues.get_mut(buf.index() as usize) else { return };
        // They come back in the order in which they left.
        let place = queue.chunks.iter_mut().find(|(place, _)| place.is_none());
        place.expect("the worker had it").0 = Some(buf);
    }

    fn room(&self) -> usize {
        usize::MAX / 2
    }

    fn send(&mut self, _: Instant, conn: ConnId, frame: Frame) {
        let queue = &mut self.queues[conn.index as usize];
        if queue.host.is_up() {
            self.answered += 1;
            queue.in_flight -= 1;
        } else {
            queue.inbox.extend_from_slice(frame.head.bytes());
            queue.inbox.extend_from_slice(frame.body());
            queue.inbox.extend_from_slice(frame.head.tail());
        }
        if let Some(buf) = frame.body {
            self.events.push(NetEvent::Sent { conn, buf });
        }
    }

    fn kick(&mut self, _: Instant) {}
    fn close(&mut self, conn: ConnId) {
        panic!("the worker closed {conn:?}");
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

crate::takes_all_at_once!(HostNetwork);
