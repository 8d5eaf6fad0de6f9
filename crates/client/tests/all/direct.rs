//! Tests that data of reads is received directly into their buffers: whole and in its place,
//! wherever the stream is cut, whatever the transport refuses, and also when the connection ends
//! meanwhile. Covers both initiators, every version, with and without checksums.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use contract::{
    BLOCK_BYTES, Buf, CloseReason, Command, ConnId, ControlRequest, Dial, Frame, Geometry, Instant,
    NamespaceId, NetEvent, Peer, Range, Reply, SPEECH_BYTES_MAX, Session, SessionEvent, Status,
    Streams,
};
use nearflash_client::load::{Ended, Path, Remote};
use nearflash_client::nvme::{Digests, Host, HostOptions, Patience};
use nearflash_client::{Initiator, Options, Random, Version};
use proto::nvme::{
    Config, Environment, Fabric, Hosts, Identifiers, Namespace, Nqn, Port, PortId, Subsystem,
};
use proto::nvme_tcp::{ControllerSession, WorkerFabric};
use proto::reflex::ServerSession;

const SUBSYSTEM: &str = "nqn.2026-01.io.nearflash:disks";

/// Requests in flight on a lane.
const DEPTH: u16 = 8;

/// A connection of the test's network, as bytes under way in both directions.
struct TestConnection {
    conn: ConnId,
    is_open: bool,
    /// Bytes that the client has sent and the server has not read.
    said: Vec<u8>,
    /// Bytes that the server has sent and that have not arrived.
    coming: VecDeque<u8>,
    /// The destination of the next bytes: a buffer, and the begin and end within it.
    target: Option<(Buf, usize, usize)>,
}

/// A network that the test controls.
#[derive(Default)]
struct Wire {
    lines: Vec<TestConnection>,
    events: VecDeque<NetEvent>,
    /// Number of receive buffers that are lent.
    lent: usize,
    /// Number of bytes received directly.
    direct: usize,
    /// If `true`, receiving into chosen buffers is refused.
    refuses: bool,
}

impl Wire {
    /// Delivers one receive of at most `most` bytes, and the bytes after a payload.
    fn arrive(&mut self, line: usize, most: usize) {
        let TestConnection { conn, coming, target, is_open: true, .. } = &mut self.lines[line]
        else {
            return;
        };
        let mut bytes: Vec<u8> = coming.drain(..most.min(coming.len())).collect();
        if bytes.is_empty() {
            return;
        }
        let conn = *conn;
        if let Some((mut buf, at, until)) = target.take() {
            let len = bytes.len().min(until - at);
            buf.prefix_mut(at + len)[at..].copy_from_slice(&bytes[..len]);
            bytes.drain(..len);
            self.direct += len;
            self.events.push_back(NetEvent::Filled { conn, buf, at, len });
        }
        if !bytes.is_empty() {
            self.lent += 1;
            let (buf, len) = (buffer(&bytes), bytes.len());
            self.events.push_back(NetEvent::Received { conn, buf, len });
        }
    }

    fn end(&mut self, line: usize, reason: CloseReason) {
        let TestConnection { conn, target, is_open, .. } = &mut self.lines[line];
        if !std::mem::replace(is_open, false) {
            return;
        }
        let conn = *conn;
        if let Some((buf, at, _)) = target.take() {
            self.events.push_back(NetEvent::Filled { conn, buf, at, len: 0 });
        }
        self.events.push_back(NetEvent::Closed { conn, reason });
    }

    fn line(&mut self, conn: ConnId) -> Option<&mut TestConnection> {
        self.lines.iter_mut().find(|line| line.conn == conn && line.is_open)
    }
}

struct Net(Rc<RefCell<Wire>>);

impl Streams for Net {
    fn poll(&mut self, _now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        let waiting = &mut self.0.borrow_mut().events;
        events.extend(waiting.drain(..max.min(waiting.len())));
    }

    fn give(&mut self, _buf: Buf) {
        self.0.borrow_mut().lent -= 1;
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        assert!(at < until && until <= buf.capacity());
        let mut wire = self.0.borrow_mut();
        let refuses = wire.refuses;
        match wire.line(conn) {
            Some(line) if !refuses => {
                assert!(line.target.is_none(), "one at a time");
                line.target = Some((buf, at, until));
                Ok(())
            }
            _ => Err(buf),
        }
    }

    fn room(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        let mut wire = self.0.borrow_mut();
        if let Some(line) = wire.line(conn) {
            for bytes in [frame.head.bytes(), frame.body(), frame.head.tail()] {
                line.said.extend_from_slice(bytes);
            }
        }
        if let Some(buf) = frame.body {
            wire.events.push_back(NetEvent::Sent { conn, buf });
        }
    }

    fn kick(&mut self, _now: Instant) {}
    fn close(&mut self, conn: ConnId) {
        let mut wire = self.0.borrow_mut();
        if let Some(line) = wire.lines.iter().position(|line| line.conn == conn) {
            wire.end(line, CloseReason::Local);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl Dial for Net {
    fn dial(&mut self, _now: Instant) -> ConnId {
        let mut wire = self.0.borrow_mut();
        let conn = ConnId { index: wire.lines.len() as u32, generation: 7 };
        let (said, coming) = (Vec::new(), VecDeque::new());
        wire.lines.push(TestConnection { conn, is_open: true, said, coming, target: None });
        let peer = Peer::Local { uid: 0 };
        wire.events.push_back(NetEvent::opened(conn, peer, None));
        conn
    }
}

fn buffer(bytes: &[u8]) -> Buf {
    let mut buf = Buf::new(Box::leak(vec![0; bytes.len()].into_boxed_slice()), 0);
    buf.bytes_mut().copy_from_slice(bytes);
    buf
}

/// Returns the stored data of a range.
fn stored(range: Range) -> Vec<u8> {
    let byte = |n: usize| ((range.lba as usize * 37 + n) ^ (n >> 8)) as u8;
    (0..range.bytes()).map(byte).collect()
}

/// Runs the server's end of one connection: answers reads and the messages of its session.
fn serve(session: &mut impl Session, mut input: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    loop {
        let (reply, body) = match session.next_event(&mut input).expect("a client that speaks well")
        {
            None => return said,
            Some(SessionEvent::Request(request)) => {
                let (tag, command) = (request.tag, request.command);
                let body = command.range().map_or(Vec::new(), stored);
                (Reply::Done { tag, command, status: Status::Ok }, body)
            }
            Some(SessionEvent::Control(control)) => {
                let ControlRequest::Hello(hello) = *control else { panic!("{control:?}") };
                let granted = contract::HelloReply {
                    checksums: hello.checksums,
                    ..contract::HelloReply::default()
                };
                (Reply::Hello { tag: hello.tag, status: Status::Ok, reply: granted }, Vec::new())
            }
            Some(SessionEvent::Own) => {
                session.attend(Instant::ZERO).expect("nothing ends");
                let mut room = vec![0; SPEECH_BYTES_MAX];
                while session.unsaid() > 0 {
                    let bytes = session.speak(&mut room);
                    said.extend_from_slice(&room[..bytes]);
                }
                continue;
            }
            Some(SessionEvent::Fenced(_) | SessionEvent::Attached(_)) => continue,
            Some(other) => panic!("{other:?}"),
        };
        let head = session.reply(&reply, &body).expect("there is an answer");
        for bytes in [head.bytes(), &body, head.tail()] {
            said.extend_from_slice(bytes);
        }
    }
}

#[derive(Debug)]
struct TestEnvironment;

impl Environment for TestEnvironment {
    fn wake(&self, _worker: u16) {}
    fn compute(&self) {}
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(9);
    }
}

fn fabric() -> std::sync::Arc<Fabric> {
    let geometry = Geometry::new(1 << 20, 4096);
    let namespace = Namespace {
        nsid: 1,
        id: NamespaceId(1),
        geometry,
        block_bytes: 512,
        identifiers: Identifiers { uuid: [8; 16], ..Identifiers::default() },
        ana_group: 1,
        hosts: Hosts::Any,
        tenant: None,
    };
    let subsystem = Subsystem::open_to_all(Nqn::new(SUBSYSTEM).unwrap(), "serial", vec![namespace]);
    let port = Port::plain(PortId(1), "127.0.0.1");
    let config =
        Config { workers: 1, ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    Fabric::new(&config, Instant::ZERO, Box::new(TestEnvironment)).unwrap()
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TestProtocol {
    Reflex { version: Version, checksums: bool },
    Nvme(Digests),
}

impl TestProtocol {
    fn all() -> Vec<TestProtocol> {
        let reflex = |version, checksums| TestProtocol::Reflex { version, checksums };
        let mut all = vec![
            reflex(Version::One, false),
            reflex(Version::Two, false),
            reflex(Version::Two, true),
        ];
        for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
            all.push(TestProtocol::Nvme(Digests { header, data }));
        }
        all
    }

    fn is_checked(self) -> bool {
        match self {
            TestProtocol::Reflex { checksums, .. } => checksums,
            TestProtocol::Nvme(digests) => digests.data,
        }
    }

    /// Returns the number of connections that carry no requests.
    fn admin_lines(self) -> usize {
        if let TestProtocol::Nvme(_) = self { 1 } else { 0 }
    }
}

/// A server as a function from the client's bytes to its answer.
type Server = Box<dyn FnMut(&[u8]) -> Vec<u8>>;

/// The client under test, its network and its servers.
struct World {
    speech: TestProtocol,
    wire: Rc<RefCell<Wire>>,
    path: Box<dyn Path>,
    /// The servers, by line.
    servers: Vec<Server>,
    desk: Rc<WorkerFabric>,
    now: Instant,
    ended: Vec<Ended>,
    /// The requests in flight, by index.
    asked: Vec<Option<Range>>,
}

impl World {
    /// Returns a world with `lanes` lanes, all connected. Data of at least `direct_min` bytes is
    /// received directly.
    fn new(speech: TestProtocol, lanes: usize, direct_min: usize) -> World {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let net = Net(wire.clone());
        let in_flight_max = lanes * usize::from(DEPTH);
        let path: Box<dyn Path> = match speech {
            TestProtocol::Reflex { version, checksums } => {
                let options = Options {
                    connections: lanes,
                    in_flight_max,
                    version,
                    checksums,
                    client: 5,
                    direct_min,
                    ..Options::default()
                };
                Box::new(Remote::new(Initiator::new(net, options), None, false))
            }
            TestProtocol::Nvme(digests) => {
                let options = HostOptions {
                    subsystem: SUBSYSTEM.to_owned(),
                    host: "nqn.2026-01.io.nearflash:host".to_owned(),
                    host_id: [3; 16],
                    nsid: 1,
                    queues: lanes,
                    queue_depth: DEPTH,
                    digests,
                    in_capsule: true,
                    keep_alive: Duration::from_secs(600),
                    key: None,
                    controller_key: None,
                    chance: [0; 32],
                };
                Box::new(Host::new(net, options, Patience::default()).direct_from(direct_min))
            }
        };
        let mut world = World {
            speech,
            wire,
            path,
            servers: Vec::new(),
            desk: Rc::new(WorkerFabric::new(fabric(), 0)),
            now: Instant::from_nanos(1_000_000_000),
            ended: Vec::new(),
            asked: vec![None; in_flight_max],
        };
        world.settle();
        assert!(world.path.room() == in_flight_max, "{speech:?} came up");
        world
    }

    fn server(&self, conn: ConnId) -> Server {
        match self.speech {
            TestProtocol::Reflex { .. } => {
                let mut session = ServerSession::new();
                Box::new(move |bytes| serve(&mut session, bytes))
            }
            TestProtocol::Nvme(_) => {
                let mut session = ControllerSession::new(self.desk.clone(), PortId(1), conn);
                Box::new(move |bytes| serve(&mut session, bytes))
            }
        }
    }

    /// Runs a turn of the client, and answers what the client sent.
    fn turn(&mut self) {
        self.path.turn(self.now, &mut self.ended);
        self.path.flush(self.now);
        let lines = self.wire.borrow().lines.len();
        for line in self.servers.len()..lines {
            let conn = self.wire.borrow().lines[line].conn;
            self.servers.push(self.server(conn));
        }
        let mut wire = self.wire.borrow_mut();
        for (line, server) in wire.lines.iter_mut().zip(&mut self.servers) {
            if line.is_open && !line.said.is_empty() {
                line.coming.extend(server(&std::mem::take(&mut line.said)));
            }
        }
    }

    /// Runs turns until nothing is under way; everything sent arrives at once.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.turn();
            let mut wire = self.wire.borrow_mut();
            let lines = wire.lines.len();
            let is_coming = |line: &TestConnection| line.is_open && !line.coming.is_empty();
            if wire.events.is_empty() && !wire.lines.iter().any(is_coming) {
                return;
            }
            (0..lines).for_each(|line| wire.arrive(line, usize::MAX));
        }
        panic!("it never settles");
    }

    fn read(&mut self, lane: usize, range: Range) {
        let buf = buffer(&vec![0; range.bytes() + 3]);
        let index = self.path.submit(self.now, lane, Command::Read(range), Some(buf));
        assert!(self.asked[index].replace(range).is_none(), "an index names one request");
    }

    /// Checks the data of the ended requests; returns their statuses.
    fn check(&mut self) -> Vec<Status> {
        let mut ends = Vec::new();
        for Ended { index, status, buf } in self.ended.drain(..) {
            let range = self.asked[index].take().expect("it was asked for");
            let buf = buf.expect("a buffer comes back, however a request ends");
            let (data, rest) = buf.bytes().split_at(range.bytes());
            assert!(!status.is_ok() || data == stored(range), "{range:?} of {:?}", self.speech);
            assert_eq!(rest, [0; 3], "behind the data");
            ends.push(status);
        }
        ends
    }

    /// Returns the index of the connection of the last lane.
    fn last(&self) -> usize {
        self.wire.borrow().lines.len() - 1
    }

    /// Submits two reads, and puts their answers under way; returns the size of the answers in
    /// bytes.
    fn ask_for_two(&mut self) -> usize {
        self.read(0, Range::new(3, 2));
        self.read(0, Range::new(90, 1));
        self.turn();
        let line = self.last();
        self.wire.borrow().lines[line].coming.len()
    }
}

#[test]
fn data_may_be_cut_at_every_byte() {
    for speech in TestProtocol::all() {
        let mut world = World::new(speech, 1, 1);
        let line = world.last();
        for at in 0.. {
            let bytes = world.ask_for_two();
            assert!(bytes > 3 * BLOCK_BYTES && bytes < 5 * BLOCK_BYTES);
            if at == bytes {
                break;
            }
            let before = world.wire.borrow().direct;
            for most in [at, bytes - at] {
                world.wire.borrow_mut().arrive(line, most);
                world.turn();
            }
            world.settle();
            assert_eq!(world.check(), [Status::Ok; 2], "{speech:?} cut at {at}");
            let direct = world.wire.borrow().direct - before;
            let is_within = (80..1000).contains(&at);
            assert!(!is_within || direct >= 2 * BLOCK_BYTES - at, "{speech:?}: {direct} at {at}");
        }
        assert_eq!(world.wire.borrow().lent, 0, "receive buffers went back");
    }
}

#[test]
fn every_byte_may_come_alone() {
    for speech in TestProtocol::all() {
        let mut world = World::new(speech, 1, 1);
        let line = world.last();
        for _ in 0..world.ask_for_two() {
            world.wire.borrow_mut().arrive(line, 1);
            world.turn();
        }
        assert_eq!(world.check(), [Status::Ok; 2], "{speech:?}");
        let direct = world.wire.borrow().direct;
        assert!(direct >= 3 * BLOCK_BYTES - 2, "{speech:?}: {direct} bytes came in place");
    }
}

#[test]
fn pieces_of_any_length_and_refusals_lose_nothing() {
    for (speech, seed) in TestProtocol::all().into_iter().zip(1..) {
        let mut random = Random::new(seed);
        let mut world = World::new(speech, 2, 700);
        let (mut sent, mut ended) = (0, 0);
        while ended < 600 {
            for lane in 0..2 {
                let flying = sent - ended;
                if sent < 600 && flying < usize::from(DEPTH) && random.below(2) > 0 {
                    let blocks = [1, 2, 8, 64, 257][random.below(5) as usize];
                    world.read(lane, Range::new(random.below(1000), blocks));
                    sent += 1;
                }
            }
            world.wire.borrow_mut().refuses = random.below(4) == 0;
            for line in 0..world.servers.len() {
                let most = [1, 30, 700, 9_000, 200_000][random.below(5) as usize];
                world.wire.borrow_mut().arrive(line, 1 + random.below(most) as usize);
            }
            world.turn();
            let ends = world.check();
            assert!(ends.iter().all(|status| status.is_ok()), "{speech:?}: {ends:?}");
            ended += ends.len();
        }
        let wire = world.wire.borrow();
        assert!(wire.direct > 1 << 20 && wire.lent == 0, "{speech:?}: {}", wire.direct);
        assert!(wire.lines.iter().all(|line| line.target.is_none() && line.is_open));
    }
}

#[test]
fn damaged_data_is_found_out() {
    for speech in TestProtocol::all().into_iter().filter(|speech| speech.is_checked()) {
        let mut world = World::new(speech, 1, 1);
        let line = world.last();
        world.ask_for_two();
        world.wire.borrow_mut().arrive(line, 100);
        world.turn();
        world.wire.borrow_mut().lines[line].coming[500] ^= 4;
        world.settle();
        assert_eq!(world.check(), [Status::BadChecksum, Status::Ok], "{speech:?}");
        assert!(world.wire.borrow().direct > BLOCK_BYTES);
    }
}

/// The event that ends a connection while the transport has a read's buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ConnectionFault {
    Reset,
    Silence,
    /// The server breaks the protocol, in the same receive in which it ends the payload.
    Nonsense,
}

#[test]
fn a_connection_that_ends_gives_the_buffer_back() {
    for speech in TestProtocol::all() {
        for (blow, at) in [
            (ConnectionFault::Reset, 100),
            (ConnectionFault::Silence, 300),
            (ConnectionFault::Nonsense, 700),
        ] {
            let mut world = World::new(speech, 1, 1);
            let line = world.last();
            let around = (world.ask_for_two() - 3 * BLOCK_BYTES) / 2;
            world.wire.borrow_mut().arrive(line, at);
            world.turn();
            assert!(world.wire.borrow().lines[line].target.is_some(), "{speech:?} {blow:?}");
            match blow {
                ConnectionFault::Reset => {
                    world.wire.borrow_mut().end(line, CloseReason::Reset(104))
                }
                ConnectionFault::Silence => {
                    let coming = &mut world.wire.borrow_mut().lines[line].coming;
                    coming.clear();
                    world.now = world.now + Duration::from_secs(31);
                }
                ConnectionFault::Nonsense => {
                    let wire = &mut world.wire.borrow_mut();
                    let coming = &mut wire.lines[line].coming;
                    coming.truncate(around + 2 * BLOCK_BYTES - at);
                    coming.extend([0xee; 200]);
                    wire.arrive(line, usize::MAX);
                }
            }
            world.turn();
            world.turn();
            assert!(!world.wire.borrow().lines[line].is_open, "{speech:?} {blow:?}");
            assert!(world.wire.borrow().lines[line].target.is_none());
            world.now = world.now + Duration::from_secs(2);
            world.settle();
            let ends = world.check();
            let lost = Status::ConnectionLost;
            match speech {
                TestProtocol::Nvme(_) => {
                    assert!(ends.ends_with(&[lost]), "{speech:?} {blow:?}: {ends:?}");
                }
                TestProtocol::Reflex { .. } => {
                    assert_eq!(ends, [Status::Ok; 2], "{speech:?} {blow:?}: reads are sent again");
                }
            }
            world.ask_for_two();
            world.settle();
            assert_eq!(world.check(), [Status::Ok; 2], "{speech:?} {blow:?}: it goes on");
            let lines = world.wire.borrow().lines.len();
            assert_eq!(lines, 2 * (1 + speech.admin_lines()));
        }
    }
}
