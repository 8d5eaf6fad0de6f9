//! The connections to an export: their common life, and the requests on them.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{Buf, Command, ConnId, Dial, Frame, Instant, NetEvent, Status};
use proto::nbd::{ClientEvent, NbdClient, NbdRefusal};

use super::report::{NbdLoss, NbdReport};
use crate::Loss;
use crate::load::{Ended, Path};

/// Maximum number of transport events that one turn of the attachment processes.
const EVENTS_MAX: usize = 256;

/// Number of frames to choose an export: the longest name, cut into heads.
const SETUP_FRAMES: usize = 72;

/// Maximum number of reports that wait to be read; further reports are dropped.
const REPORTS_MAX: usize = 64;

/// Maximum time for the choice of an export, and for a silent server that owes an answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The first pause before connecting again. The pause doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause before connecting again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Maximum number of doublings of the pause.
const DOUBLINGS_MAX: u32 = 7;

/// The options of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentOptions {
    /// Name of the export to connect to.
    pub export: String,
    /// Number of connections to the export.
    pub connections: usize,
    /// The most requests in flight on a connection.
    pub queue_depth: usize,
    /// `true` if the transport's connections are over TLS. Then the negotiation has begun when they
    /// open.
    pub over_tls: bool,
}

impl AttachmentOptions {
    fn session(&self) -> NbdClient {
        match self.over_tls {
            true => NbdClient::secured(&self.export, self.queue_depth),
            false => NbdClient::new(&self.export, self.queue_depth),
        }
    }
}

/// The state of an attachment. The cycle is: Resting → Rising → Up → Falling → Resting.
#[derive(Debug)]
enum Phase {
    /// There are no connections. The attachment connects again at the time `until`.
    Resting { until: Instant },
    /// Connections choose the export. The last of them or the clock ends this state.
    Rising { until: Instant },
    /// All connections have selected the export, and requests are sent. The loss of any connection
    /// ends this state.
    Up,
    /// Connections are being closed. The end of the last connection, or the return of the last
    /// payload, ends this state.
    Falling { why: NbdLoss },
}

/// A connection to the export, with its requests in flight.
#[derive(Debug)]
struct ExportConnection {
    /// The transport's identifier of the connection; `None` without a connection.
    conn: Option<ConnId>,
    session: NbdClient,
    /// Requests in flight, by their cookies.
    flights: Box<[Option<Flight>]>,
    /// Cookies that are not in use.
    vacant: Vec<usize>,
    /// Cookies of the requests whose payload the transport holds, in the order of sending.
    lent: VecDeque<usize>,
}

/// A request that was given to the attachment and has not ended.
#[derive(Debug)]
struct Flight {
    command: Command,
    buf: Option<Buf>,
    /// The address of the payload while the transport holds it; `None` otherwise.
    lent: Option<usize>,
    /// The answer that came before the transport gave the payload back.
    answer: Option<Status>,
}

/// Keeps connections to one export of an NBD server, and the requests in flight on them.
#[derive(Debug)]
pub struct Attachment<T> {
    transport: T,
    options: AttachmentOptions,
    phase: Phase,
    lines: Vec<ExportConnection>,
    /// Time at which the server last sent anything.
    heard: Instant,
    /// Number of losses and failed attempts since the connections were last up.
    failures: u32,
    in_flight: usize,
    /// Requests that have ended since the last turn.
    done: Vec<Ended>,
    reports: Vec<NbdReport>,
    events: Vec<NetEvent>,
}

impl<T: Dial> Attachment<T> {
    /// Returns an attachment over `transport`. It opens its connections in its first turn.
    pub fn new(transport: T, options: AttachmentOptions) -> Self {
        let line = |_| ExportConnection {
            conn: None,
            session: options.session(),
            flights: (0..options.queue_depth).map(|_| None).collect(),
            vacant: (0..options.queue_depth).rev().collect(),
            lent: VecDeque::with_capacity(options.queue_depth),
        };
        Attachment {
            transport,
            lines: (0..options.connections).map(line).collect(),
            done: Vec::with_capacity(options.connections * options.queue_depth),
            options,
            phase: Phase::Resting { until: Instant::ZERO },
            heard: Instant::ZERO,
            failures: 0,
            in_flight: 0,
            reports: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
        }
    }

    /// Returns the number of frames that the transport of an attachment with these options must
    /// have room for.
    pub fn frames_max(options: &AttachmentOptions) -> usize {
        options.connections * (options.queue_depth + SETUP_FRAMES)
    }

    /// Takes the next event other than the end of a request; `None` if there is none now.
    pub fn next_report(&mut self) -> Option<NbdReport> {
        self.reports.drain(..self.reports.len().min(1)).next()
    }

    fn report(&mut self, report: NbdReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    /// Returns the line whose current connection is `conn`.
    fn line_of(&self, conn: ConnId) -> Option<usize> {
        self.lines.iter().position(|line| line.conn == Some(conn))
    }

    fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            // The server speaks first, except behind a negotiation that has begun.
            NetEvent::Opened { conn, .. } => {
                if let Some(line) = self.line_of(conn) {
                    self.speak(now, line);
                }
            }
            NetEvent::Received { conn, buf, len } => {
                if let Some(line) = self.line_of(conn)
                    && !matches!(self.phase, Phase::Falling { .. })
                {
                    self.heard = now;
                    if let Err(refusal) = self.parse(now, line, &buf.bytes()[..len]) {
                        self.fall(NbdLoss::Refused(refusal));
                    }
                }
                self.transport.give(buf);
            }
            NetEvent::Filled { .. } => unreachable!("no buffer was lent to receive into"),
            NetEvent::Sent { buf, .. } => self.take_back(buf),
            NetEvent::Closed { conn, reason } => {
                let line = self.line_of(conn).expect("only what was dialled closes");
                self.lines[line].conn = None;
                self.fall(NbdLoss::network(reason));
            }
        }
    }

    fn parse(&mut self, now: Instant, line: usize, mut input: &[u8]) -> Result<(), NbdRefusal> {
        while let Some(event) = self.lines[line].session.next_event(&mut input)? {
            match event {
                ClientEvent::Up => self.risen(),
                ClientEvent::Data { cookie, at, bytes } => {
                    if let Some(room) = self.room_of(line, cookie) {
                        room[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                }
                ClientEvent::Hole { cookie, at, bytes } => {
                    if let Some(room) = self.room_of(line, cookie) {
                        room[at..at + bytes].fill(0);
                    }
                }
                ClientEvent::Ended { cookie, status } => self.answer(line, cookie as usize, status),
            }
        }
        if !matches!(self.phase, Phase::Up) {
            self.speak(now, line);
        }
        Ok(())
    }

    /// Sends the messages by which a session chooses the export.
    fn speak(&mut self, now: Instant, line: usize) {
        if let ExportConnection { conn: Some(conn), session, .. } = &mut self.lines[line] {
            for head in session.speech() {
                self.transport.send(now, *conn, Frame::bare(head));
            }
        }
    }

    /// Returns the buffer for a read's data, unless the read discards its data.
    fn room_of(&mut self, line: usize, cookie: u64) -> Option<&mut [u8]> {
        let flight = self.lines[line].flights[cookie as usize].as_mut();
        let flight = flight.expect("a session names what is in flight");
        let bytes = flight.command.reply_bytes();
        flight.buf.as_mut().map(|buf| buf.prefix_mut(bytes))
    }

    /// Admits requests once the last connection has chosen the export.
    fn risen(&mut self) {
        if self.lines.iter().all(|line| line.session.is_up()) {
            self.phase = Phase::Up;
            self.failures = 0;
            let found = self.lines[0].session.found();
            self.report(NbdReport::Up(found));
        }
    }

    fn answer(&mut self, line: usize, cookie: usize, status: Status) {
        let flight = self.lines[line].flights[cookie].as_mut().expect("as above");
        if flight.lent.is_some() {
            flight.answer = Some(status);
        } else {
            self.finish(line, cookie, status);
        }
    }

    /// Takes back a payload from the transport.
    fn take_back(&mut self, buf: Buf) {
        let key = address(&buf);
        let found = (0..self.lines.len()).find_map(|n| Some((n, self.lines[n].lent_at(key)?)));
        let (line, place) = found.expect("the transport gives back what it was lent");
        let ExportConnection { flights, lent, .. } = &mut self.lines[line];
        let cookie = lent.remove(place).expect("it was found");
        let flight = flights[cookie].as_mut().expect("it was found");
        flight.buf = Some(buf);
        flight.lent = None;
        if let Some(status) = flight.answer {
            self.finish(line, cookie, status);
        }
    }

    fn finish(&mut self, line: usize, cookie: usize, status: Status) {
        let owner = &mut self.lines[line];
        let flight = owner.flights[cookie].take().expect("it is in flight");
        owner.vacant.push(cookie);
        self.in_flight -= 1;
        let index = line * self.options.queue_depth + cookie;
        self.done.push(Ended { index, status, buf: flight.buf });
    }

    /// Closes all connections for the reason `why`.
    fn fall(&mut self, why: NbdLoss) {
        if !matches!(self.phase, Phase::Falling { .. }) {
            self.phase = Phase::Falling { why };
            for line in &self.lines {
                if let Some(conn) = line.conn {
                    self.transport.close(conn);
                }
            }
        }
    }

    /// Ends the requests in flight, once the last connection is gone and every payload is back.
    fn fallen(&mut self, now: Instant, why: NbdLoss) {
        for line in 0..self.lines.len() {
            for cookie in 0..self.options.queue_depth {
                if self.lines[line].flights[cookie].is_some() {
                    self.finish(line, cookie, Status::ConnectionLost);
                }
            }
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        self.failures += 1;
        self.phase = Phase::Resting { until: now + pause.min(PAUSE_MAX) };
        self.report(NbdReport::Lost(why));
    }

    /// Handles the deadlines that are due.
    fn tend(&mut self, now: Instant) {
        let silent = NbdLoss::Connection(Loss::Silent);
        match self.phase {
            Phase::Resting { until } if until <= now => {
                self.phase = Phase::Rising { until: now + SILENCE_MAX };
                for line in &mut self.lines {
                    line.session = self.options.session();
                    line.conn = Some(self.transport.dial(now));
                }
            }
            Phase::Rising { until } if until <= now => self.fall(silent),
            Phase::Up if self.in_flight > 0 && self.heard + SILENCE_MAX <= now => self.fall(silent),
            _ => {}
        }
        if let Phase::Falling { why } = self.phase
            && self.lines.iter().all(|line| line.conn.is_none() && line.lent.is_empty())
        {
            self.fallen(now, why);
        }
    }
}

impl ExportConnection {
    /// Returns the position in `lent` of the payload at this address.
    fn lent_at(&self, address: usize) -> Option<usize> {
        self.lent.iter().position(|cookie| {
            self.flights[*cookie].as_ref().is_some_and(|flight| flight.lent == Some(address))
        })
    }
}

impl<T: Dial> Path for Attachment<T> {
    fn in_flight_max(&self) -> usize {
        self.options.connections * self.options.queue_depth
    }

    fn room(&self) -> usize {
        match self.phase {
            Phase::Up => self.in_flight_max() - self.in_flight,
            _ => 0,
        }
    }

    fn reads_need_buffers(&self, _bytes: usize) -> bool {
        false
    }

    fn lost_writes_linger(&self) -> bool {
        true
    }

    fn submit(&mut self, now: Instant, lane: usize, command: Command, buf: Option<Buf>) -> usize {
        if self.in_flight == 0 {
            self.heard = now;
        }
        let ExportConnection { conn, session, flights, vacant, lent } = &mut self.lines[lane];
        let cookie = vacant.pop().expect("the caller asked for room on this lane");
        let mut flight = Flight { command, buf, lent: None, answer: None };
        let encoded = session.request(cookie as u64, command);
        if let (Ok(head), Some(conn)) = (&encoded, *conn) {
            let mut frame = Frame::bare(*head);
            if command.payload_bytes() > 0 {
                (frame.body, frame.body_len) = (flight.buf.take(), command.payload_bytes());
                flight.lent = frame.body.as_ref().map(address);
                lent.push_back(cookie);
            }
            self.transport.send(now, conn, frame);
        }
        self.in_flight += 1;
        flights[cookie] = Some(flight);
        if let Err(status) = encoded {
            self.finish(lane, cookie, status);
        }
        lane * self.options.queue_depth + cookie
    }

    fn flush(&mut self, now: Instant) {
        self.transport.kick(now);
    }

    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.transport.poll(now, &mut events, EVENTS_MAX);
        let mut progressed = !events.is_empty();
        for event in events.drain(..) {
            self.handle(now, event);
        }
        self.events = events;
        self.tend(now);
        self.transport.kick(now);
        progressed |= !self.done.is_empty();
        ended.append(&mut self.done);
        progressed
    }

    fn wake_at(&self) -> Option<Instant> {
        let own = match self.phase {
            Phase::Resting { until } | Phase::Rising { until } => Some(until),
            Phase::Up if self.in_flight > 0 => Some(self.heard + SILENCE_MAX),
            Phase::Up | Phase::Falling { .. } => None,
        };
        match (own, self.transport.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Returns the buffer's address, which differs from the address of every other buffer.
fn address(buf: &Buf) -> usize {
    buf.bytes().as_ptr().addr()
}
