//! A network that the test controls, with the server's end of the protocol.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use contract::{
    Buf, CloseReason, Command, ConnId, ControlRequest, Dial, Frame, HelloReply, Instant, NetEvent,
    Peer, Reply, Session, SessionEvent, Status, Streams, Tag,
};
use nearflash_client::{Done, Initiator, Options, Report};
use proto::reflex::ServerSession;

/// The state that the initiator and the test share.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) events: VecDeque<NetEvent>,
    /// Sent bytes that the test has not looked at yet.
    pub(crate) sent: Vec<(ConnId, Vec<u8>)>,
    /// Payloads that the network still holds.
    pub(crate) held: Vec<(ConnId, Buf)>,
    /// If `true`, payloads come back only when the test says so.
    pub(crate) hold_payloads: bool,
    pub(crate) dialled: Vec<ConnId>,
    pub(crate) closed: Vec<ConnId>,
    pub(crate) room: usize,
    /// Number of receive buffers that are lent.
    pub(crate) lent: usize,
}

pub(crate) struct Net(pub(crate) Rc<RefCell<Wire>>);

impl Streams for Net {
    fn poll(&mut self, _now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        let mut wire = self.0.borrow_mut();
        let take = max.min(wire.events.len());
        events.extend(wire.events.drain(..take));
    }

    fn give(&mut self, _buf: Buf) {
        self.0.borrow_mut().lent -= 1;
    }

    fn room(&self) -> usize {
        self.0.borrow().room
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        let mut wire = self.0.borrow_mut();
        let mut bytes = frame.head.bytes().to_vec();
        if let Some(buf) = frame.body {
            bytes.extend_from_slice(&buf.bytes()[..frame.body_len]);
            if wire.hold_payloads {
                wire.held.push((conn, buf));
            } else {
                wire.events.push_back(NetEvent::Sent { conn, buf });
            }
        }
        wire.sent.push((conn, bytes));
    }

    fn kick(&mut self, _now: Instant) {}
    fn close(&mut self, conn: ConnId) {
        let mut wire = self.0.borrow_mut();
        wire.closed.push(conn);
        wire.events.push_back(NetEvent::Closed { conn, reason: CloseReason::Local });
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl Dial for Net {
    fn dial(&mut self, _now: Instant) -> ConnId {
        let mut wire = self.0.borrow_mut();
        let count = wire.dialled.len() as u32;
        // Indices are reused, as in a real transport.
        let conn = ConnId { index: count % 2, generation: count };
        wire.dialled.push(conn);
        conn
    }
}

/// The initiator, its network and the server.
pub(crate) struct World {
    pub(crate) wire: Rc<RefCell<Wire>>,
    pub(crate) initiator: Initiator<Net>,
    pub(crate) now: Instant,
    pub(crate) done: Vec<Done>,
    pub(crate) reports: Vec<Report>,
    servers: Vec<(ConnId, ServerSession)>,
    /// The storage epoch with which the server answers hellos.
    pub(crate) storage_epoch: u32,
}

/// A request as the server received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    pub(crate) tag: Tag,
    pub(crate) stream: u8,
    pub(crate) command: Command,
    pub(crate) payload: Vec<u8>,
}

impl World {
    pub(crate) fn new(options: Options) -> World {
        let wire = Rc::new(RefCell::new(Wire { room: 1 << 20, ..Wire::default() }));
        let initiator = Initiator::new(Net(wire.clone()), options);
        World {
            wire,
            initiator,
            now: Instant::from_nanos(1_000_000_000),
            done: Vec::new(),
            reports: Vec::new(),
            servers: Vec::new(),
            storage_epoch: 0,
        }
    }

    /// Returns a world whose only connection is up.
    pub(crate) fn connected(options: Options) -> (World, ConnId) {
        let mut world = World::new(options);
        let conn = world.come_up();
        world.reports.clear();
        (world, conn)
    }

    pub(crate) fn turn(&mut self) {
        self.initiator.turn(self.now, &mut self.done);
        self.reports.extend(self.initiator.reports());
    }

    /// Advances time in steps of at most a second, with a turn at each requested wake-up.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now + std::time::Duration::from_millis(millis);
        while let Some(at) = self.initiator.wake_at().filter(|&at| at <= end) {
            self.now = at.max(self.now);
            self.turn();
        }
        self.now = end;
        self.turn();
    }

    /// Returns the connection that was dialled last.
    pub(crate) fn last(&self) -> ConnId {
        *self.wire.borrow().dialled.last().expect("something was dialled")
    }

    /// Opens the connection that was dialled last, and answers its hello if there is one.
    pub(crate) fn come_up(&mut self) -> ConnId {
        self.turn();
        let conn = self.last();
        self.open(conn);
        if !self.initiator.is_connected(0) {
            self.answer_hello(conn, Status::Ok);
        }
        conn
    }

    pub(crate) fn open(&mut self, conn: ConnId) {
        let peer = Peer::Local { uid: 0 };
        let opened = NetEvent::opened(conn, peer, None);
        self.wire.borrow_mut().events.push_back(opened);
        self.servers.push((conn, ServerSession::new()));
        self.turn();
    }

    pub(crate) fn answer_hello(&mut self, conn: ConnId, status: Status) {
        let mut tags = Vec::new();
        self.serve(conn, |event| {
            if let SessionEvent::Control(control) = event {
                let ControlRequest::Hello(hello) = *control else { panic!("{control:?}") };
                tags.push(hello.tag);
            }
        });
        for tag in tags {
            let reply = HelloReply {
                queue_depth: 128,
                storage_epoch: self.storage_epoch,
                ..HelloReply::default()
            };
            self.reply(conn, &Reply::Hello { tag, status, reply }, &[]);
        }
    }

    fn session(&mut self, conn: ConnId) -> &mut ServerSession {
        let found = self.servers.iter_mut().find(|(other, _)| *other == conn);
        &mut found.expect("the connection was opened").1
    }

    /// Lets the server of `conn` read what was sent to it.
    pub(crate) fn serve(&mut self, conn: ConnId, mut take: impl FnMut(SessionEvent<'_>)) {
        let sent: Vec<_> = {
            let mut wire = self.wire.borrow_mut();
            let (here, elsewhere) =
                std::mem::take(&mut wire.sent).into_iter().partition(|(to, _)| *to == conn);
            wire.sent = elsewhere;
            here
        };
        let session = self.session(conn);
        for (_, bytes) in sent {
            let mut input = &bytes[..];
            while let Some(event) = session.next_event(&mut input).expect("we speak properly") {
                take(event);
            }
        }
    }

    /// Returns the requests that were sent on `conn` since the last look.
    pub(crate) fn seen(&mut self, conn: ConnId) -> Vec<ReceivedRequest> {
        let mut seen: Vec<ReceivedRequest> = Vec::new();
        self.serve(conn, |event| match event {
            SessionEvent::Request(request) => seen.push(ReceivedRequest {
                tag: request.tag,
                stream: request.stream,
                command: request.command,
                payload: Vec::new(),
            }),
            SessionEvent::Payload { bytes, .. } => {
                seen.last_mut().expect("behind its request").payload.extend_from_slice(bytes);
            }
            _ => {}
        });
        seen
    }

    pub(crate) fn commands(&mut self, conn: ConnId) -> Vec<Command> {
        self.seen(conn).into_iter().map(|seen| seen.command).collect()
    }

    /// Sends this reply from the server.
    pub(crate) fn reply(&mut self, conn: ConnId, reply: &Reply, body: &[u8]) {
        let head = self.session(conn).reply(reply, body).expect("it can be said");
        let mut bytes = head.bytes().to_vec();
        bytes.extend_from_slice(body);
        self.receive(conn, &bytes);
    }

    pub(crate) fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        let mut buf = buffer(bytes.len());
        buf.prefix_mut(bytes.len()).copy_from_slice(bytes);
        {
            let mut wire = self.wire.borrow_mut();
            wire.lent += 1;
            wire.events.push_back(NetEvent::Received { conn, buf, len: bytes.len() });
        }
        self.turn();
    }

    /// Sends the reply of a request that the server carried out.
    pub(crate) fn end(
        &mut self,
        conn: ConnId,
        seen: &ReceivedRequest,
        status: Status,
        body: &[u8],
    ) {
        let reply = Reply::Done { tag: seen.tag, command: seen.command, status };
        self.reply(conn, &reply, body);
    }

    /// Returns the held payloads from the network.
    pub(crate) fn give_back(&mut self) {
        let mut wire = self.wire.borrow_mut();
        while let Some((conn, buf)) = wire.held.pop() {
            wire.events.push_back(NetEvent::Sent { conn, buf });
        }
    }

    /// Resets the connection.
    pub(crate) fn reset(&mut self, conn: ConnId) {
        self.give_back();
        let closed = NetEvent::Closed { conn, reason: CloseReason::Reset(104) };
        self.wire.borrow_mut().events.push_back(closed);
        self.turn();
    }

    /// Returns the requests that have ended since the last look.
    pub(crate) fn ends(&mut self) -> Vec<(Command, Status)> {
        self.done.drain(..).map(|done| (done.command, done.status)).collect()
    }
}

/// Returns a new buffer of `bytes` zero bytes.
pub(crate) fn buffer(bytes: usize) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), 0)
}

/// Returns a buffer full of `byte`.
pub(crate) fn filled(bytes: usize, byte: u8) -> Buf {
    let mut buf = buffer(bytes);
    buf.bytes_mut().fill(byte);
    buf
}
