//! The network of a scenario: ordered, lossless, without limits of its own. It counts what it
//! carries.
//!
//! The real client session encodes messages when the worker receives them; replies pass through
//! that session. Deliberately left out: delay (the sender of a message sets its arrival),
//! bandwidth, and all faults of [`sim::World`].

use std::collections::VecDeque;

use contract::{
    Buf, CloseReason, Command, ConnId, Frame, Hello, Instant, ListenerId, Migrate, NetEvent, Peer,
    REQUEST_BYTES_MAX, Status, Streams, Tag, Ticket, Transport,
};
use proto::reflex::{ClientEvent, ClientSession};

use super::costs::TurnWork;

/// Maximum number of receives in a turn: the number of requests in a batch. Connections beyond it
/// are received from in the next turns.
const RECEIVES_MAX: usize = 64;

static ZEROES: [u8; REQUEST_BYTES_MAX] = [0; REQUEST_BYTES_MAX];

/// A request on its way from a client to the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) tag: Tag,
    pub(crate) command: Command,
}

/// A simulated connection: the client's session, and the bytes and requests that the worker has not
/// received.
#[derive(Debug)]
struct SimulatedConnection {
    id: ConnId,
    session: ClientSession,
    /// The bytes of the client's hello that the worker has not received. The requests in `waiting`
    /// follow it.
    greeting: VecDeque<u8>,
    waiting: VecDeque<Message>,
    /// The number of bytes of the first waiting request that the worker has received.
    cut: usize,
    greeted: bool,
    paused: bool,
    /// `true` if the connection is in `ready`, the list of connections with something to receive.
    listed: bool,
    /// The number of the turn in which the worker last sent to the connection.
    sent_in: u64,
}

/// The connections of one worker.
#[derive(Debug)]
pub(crate) struct Wire {
    lines: Vec<SimulatedConnection>,
    buffers: Vec<Buf>,
    events: VecDeque<NetEvent>,
    /// Indices of the connections that have something to receive, in order of arrival.
    ready: VecDeque<u32>,
    /// Buffers of bodies that were sent, to be returned to the worker in the next poll.
    sent: Vec<(ConnId, Buf)>,
    /// The replies that clients got in this turn.
    replies: Vec<(Tag, Status)>,
    turn: u64,
    work: TurnWork,
}

impl Wire {
    pub(crate) fn new(buffers: Vec<Buf>) -> Wire {
        Wire {
            lines: Vec::new(),
            buffers,
            events: VecDeque::new(),
            ready: VecDeque::new(),
            sent: Vec::new(),
            replies: Vec::new(),
            turn: 1,
            work: TurnWork::default(),
        }
    }

    /// Opens a connection of the local user `uid`, whose client sends its hello. Returns the
    /// connection's number.
    pub(crate) fn open(&mut self, uid: u32) -> u32 {
        let index = self.lines.len() as u32;
        let id = ConnId { index, generation: 0 };
        let mut session = ClientSession::v2(Hello::default());
        let heads = session.greeting();
        let greeting = heads.iter().flat_map(|head| head.bytes().iter().copied()).collect();
        self.lines.push(SimulatedConnection {
            id,
            session,
            greeting,
            waiting: VecDeque::new(),
            cut: 0,
            greeted: false,
            paused: false,
            listed: false,
            sent_in: 0,
        });
        let listener = Some(ListenerId(0));
        self.events.push_back(NetEvent::opened(id, Peer::Local { uid }, listener));
        self.list(index);
        index
    }

    /// Adds a request that the worker may receive from connection `line` from now on.
    pub(crate) fn arrive(&mut self, line: u32, message: Message) {
        self.lines[line as usize].waiting.push_back(message);
        self.list(line);
    }

    /// Returns `true` if the worker's next turn would receive something.
    pub(crate) fn has_news(&self) -> bool {
        !self.events.is_empty() || !self.ready.is_empty()
    }

    /// Drops the requests of which the worker has received no byte.
    pub(crate) fn forget(&mut self) {
        for line in &mut self.lines {
            line.waiting.truncate(usize::from(line.cut > 0));
        }
    }

    /// Takes the receive buffers that no message is in.
    pub(crate) fn take_buffers(&mut self) -> Vec<Buf> {
        std::mem::take(&mut self.buffers)
    }

    /// Ends a turn. Returns the replies that clients got in it, and the counts of its work.
    pub(crate) fn end_turn(&mut self) -> (std::vec::Drain<'_, (Tag, Status)>, TurnWork) {
        self.turn += 1;
        (self.replies.drain(..), std::mem::take(&mut self.work))
    }

    /// Adds a connection to `ready` if it has something to receive, is not paused and is not in the
    /// list.
    fn list(&mut self, index: u32) {
        let line = &mut self.lines[index as usize];
        let something = !line.greeting.is_empty() || (line.greeted && !line.waiting.is_empty());
        if something && !line.paused && !line.listed {
            line.listed = true;
            self.ready.push_back(index);
        }
    }

    fn receive(&mut self, events: &mut Vec<NetEvent>) {
        for _ in 0..RECEIVES_MAX {
            let Some(index) = self.ready.pop_front() else { return };
            let Some(mut buf) = self.buffers.pop() else {
                self.ready.push_front(index);
                return;
            };
            let line = &mut self.lines[index as usize];
            line.listed = false;
            if line.paused {
                self.buffers.push(buf);
                continue;
            }
            let (len, requests) = line.fill(&mut buf);
            self.work.receives += 1;
            self.work.requests += requests;
            self.work.bytes_in += len as u64;
            events.push(NetEvent::Received { conn: line.id, buf, len });
            self.list(index);
        }
    }

    /// Passes bytes from the worker to the client's session, and collects the replies in them.
    fn feed(&mut self, index: u32, mut bytes: &[u8]) {
        let line = &mut self.lines[index as usize];
        loop {
            match line.session.next_event(&mut bytes).expect("the server keeps to the protocol") {
                None => break,
                Some(ClientEvent::Reply { tag, status, .. }) => self.replies.push((tag, status)),
                Some(ClientEvent::Hello { status, .. }) => {
                    assert!(status.is_ok(), "the server refuses {:?}: {status}", line.id);
                    line.greeted = true;
                }
                Some(_) => {}
            }
        }
        self.list(index);
    }
}

impl SimulatedConnection {
    /// Fills a receive buffer with the bytes that have arrived on the connection. Returns the
    /// number of bytes, and of requests whose first byte is among them.
    fn fill(&mut self, buf: &mut Buf) -> (usize, u64) {
        let room = buf.capacity();
        if !self.greeting.is_empty() {
            let len = self.greeting.len().min(room);
            let bytes = buf.prefix_mut(len);
            bytes.iter_mut().zip(self.greeting.drain(..len)).for_each(|(to, from)| *to = from);
            return (len, 0);
        }
        let (mut len, mut requests) = (0, 0);
        while let Some(&Message { tag, command }) = self.waiting.front() {
            let payload = &ZEROES[..command.payload_bytes()];
            let head = self.session.request(tag, 0, None, command, payload);
            let head = head.expect("a request that can be said");
            let head = head.bytes();
            let from_head = head.len().saturating_sub(self.cut).min(room - len);
            if from_head > 0 {
                requests += u64::from(self.cut == 0);
                let bytes = buf.prefix_mut(len + from_head);
                bytes[len..].copy_from_slice(&head[self.cut..self.cut + from_head]);
            }
            // The payload is whatever the buffer holds.
            let total = head.len() + payload.len();
            let taken = (total - self.cut).min(room - len);
            buf.prefix_mut(len + taken);
            len += taken;
            self.cut += taken;
            if self.cut < total {
                break;
            }
            self.cut = 0;
            self.waiting.pop_front();
        }
        (len, requests)
    }
}

impl Streams for Wire {
    fn poll(&mut self, _now: Instant, events: &mut Vec<NetEvent>, _max: usize) {
        events.extend(self.events.drain(..));
        events.extend(self.sent.drain(..).map(|(conn, buf)| NetEvent::Sent { conn, buf }));
        self.receive(events);
    }

    fn give(&mut self, buf: Buf) {
        self.buffers.push(buf);
    }

    fn room(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        let line = &mut self.lines[conn.index as usize];
        if line.sent_in != self.turn {
            line.sent_in = self.turn;
            self.work.sends += 1;
        }
        self.work.bytes_out += (frame.head.bytes().len() + frame.body_len) as u64;
        self.feed(conn.index, frame.head.bytes());
        if let Some(body) = frame.body {
            self.feed(conn.index, &body.bytes()[..frame.body_len]);
            self.sent.push((conn, body));
        }
    }

    fn kick(&mut self, _now: Instant) {}

    fn close(&mut self, conn: ConnId) {
        let reason = CloseReason::Local;
        self.events.push_back(NetEvent::Closed { conn, reason });
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl Transport for Wire {
    fn pause(&mut self, conn: ConnId) {
        self.lines[conn.index as usize].paused = true;
    }

    fn resume(&mut self, conn: ConnId) {
        self.lines[conn.index as usize].paused = false;
        self.list(conn.index);
    }

    fn unsent(&self, _conn: ConnId) -> usize {
        0
    }

    fn finish(&mut self, conn: ConnId) {
        self.close(conn);
    }

    fn stop_listening(&mut self) {}
}

impl Migrate for Wire {
    fn still(&mut self, conn: ConnId) {
        self.pause(conn);
    }

    fn is_still(&self, _conn: ConnId) -> bool {
        false // no connection of a scenario changes workers
    }

    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket {
        unreachable!("{conn:?} is never still, so it does not go to worker {to}")
    }

    fn attach(&mut self, _ticket: Ticket) -> Option<ConnId> {
        None
    }
}
