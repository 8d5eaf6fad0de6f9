//! The NVMe/TCP host: the common life of its connections, and the requests on them.

use std::collections::VecDeque;
use std::rc::Rc;

use contract::{
    Buf, CloseReason, Command, ConnId, DIRECT_BYTES_MIN, Dial, Frame, Instant, NetEvent, Status,
    TlsFailure,
};
use proto::nvme_tcp::{HostOptions, HostQueue, QueueEvent, ReadyToTransfer, Refusal};

use super::connection::{CommandId, Flight, QueueConnection};
use super::report::{HostLoss, HostReport, Patience};
use crate::Loss;
use crate::load::{Ended, Path};

/// Maximum number of transport events that one turn of the host processes.
const EVENTS_MAX: usize = 256;

/// Number of frames to set up a connection: the longest message, cut into heads.
const SETUP_FRAMES: usize = 64;

/// Number of frames of a request: its capsule in two parts, and the payload.
const REQUEST_FRAMES: usize = 3;

/// Maximum number of transport connections that are found by their index; further ones are searched
/// for.
const NAMES_MAX: usize = 1 << 17;

/// Maximum number of reports that wait to be read; further reports are dropped.
const REPORTS_MAX: usize = 64;

/// Maximum number of doublings of the pause between two attempts.
const DOUBLINGS_MAX: u32 = 16;

/// The state of the host, in a cycle: Resting → Rising → Up → Falling → Resting.
#[derive(Debug)]
enum HostPhase {
    /// There are no connections. The host connects again at the time `until`.
    Resting { until: Instant },
    /// Queues connect, the admin queue first. The last queue or the clock ends this state.
    Rising { until: Instant },
    /// Requests flow. The next keep-alive is due at `alive_at`.
    Up { alive_at: Instant },
    /// Connections are being closed. The end of the last connection, or the return of the last
    /// payload, ends this state.
    Falling { why: HostLoss },
}

/// A host: keeps a controller of a server, and requests in flight on its queues.
#[derive(Debug)]
pub struct Host<T> {
    transport: T,
    options: Rc<HostOptions>,
    patience: Patience,
    phase: HostPhase,
    /// The line of the admin queue, then the lines of the I/O queues in order.
    lines: Vec<QueueConnection>,
    /// The generation and the line of each connection, by the transport's index of the connection;
    /// `None` for a free index.
    names: Vec<Option<(u32, usize)>>,
    /// Time at which the server last sent anything.
    heard: Instant,
    /// Number of losses and failed attempts since the queues were last up, and number of all
    /// attempts.
    failures: u32,
    attempts: u64,
    in_flight: usize,
    /// Requests that have ended since the last turn.
    done: Vec<Ended>,
    reports: Vec<HostReport>,
    events: Vec<NetEvent>,
    /// Minimum number of outstanding bytes of a read's data at which they are received directly
    /// into the read's buffer, without a copy.
    direct_min: usize,
    /// Lines whose next bytes may be data to receive directly.
    fillable: Vec<usize>,
}

impl<T: Dial> Host<T> {
    /// Returns a host that uses `transport`, and connects in its first turn.
    pub fn new(transport: T, options: HostOptions, patience: Patience) -> Self {
        let options = Rc::new(options);
        let depth = usize::from(options.queue_depth);
        let line = |n: usize| {
            let names = if n == 0 { 0 } else { depth };
            QueueConnection {
                conn: None,
                queue: HostQueue::admin(options.clone(), 0),
                flights: (0..names).map(|_| None).collect(),
                vacant: (0..names as CommandId).rev().collect(),
                lent: VecDeque::with_capacity(names),
                filling: None,
            }
        };
        Host {
            transport,
            lines: (0..=options.queues).map(line).collect(),
            done: Vec::with_capacity(options.queues * depth),
            options,
            patience,
            phase: HostPhase::Resting { until: Instant::ZERO },
            names: Vec::new(),
            heard: Instant::ZERO,
            failures: 0,
            attempts: 0,
            in_flight: 0,
            reports: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            direct_min: DIRECT_BYTES_MIN,
            fillable: Vec::with_capacity(EVENTS_MAX),
        }
    }

    /// Sets the minimum number of bytes for which a read's data is received directly into its
    /// buffer. The default is [`DIRECT_BYTES_MIN`].
    pub fn direct_from(self, bytes: usize) -> Self {
        Host { direct_min: bytes, ..self }
    }

    /// Returns the number of frames that the transport of a host with these options must have room
    /// for.
    pub fn frames_max(options: &HostOptions) -> usize {
        let requests = options.queues * usize::from(options.queue_depth);
        requests * REQUEST_FRAMES + (options.queues + 1) * SETUP_FRAMES
    }

    /// Takes the next event other than the end of a request; `None` if there is none now.
    pub fn next_report(&mut self) -> Option<HostReport> {
        self.reports.drain(..self.reports.len().min(1)).next()
    }

    /// Returns `true` if requests can be sent.
    pub fn is_up(&self) -> bool {
        matches!(self.phase, HostPhase::Up { .. })
    }

    fn report(&mut self, report: HostReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => {
                if let Some(line) = self.line_of(conn) {
                    self.speak(now, line);
                }
            }
            NetEvent::Received { conn, buf, len } => {
                if let Some(line) = self.line_of(conn)
                    && !matches!(self.phase, HostPhase::Falling { .. })
                {
                    self.heard = now;
                    let bytes = &buf.bytes()[..len];
                    let rises = matches!(self.phase, HostPhase::Rising { .. });
                    if rises && bytes == TlsFailure::REFUSAL {
                        let why = CloseReason::Insecure(TlsFailure::Wanted);
                        self.fall(HostLoss::network(why));
                    } else if let Err(refusal) = self.parse(now, line, bytes) {
                        self.fall(HostLoss::Refused(refusal));
                    } else if let Some((.., bytes)) = self.lines[line].queue.expects()
                        && bytes >= self.direct_min
                    {
                        self.fillable.push(line);
                    }
                }
                self.transport.give(buf);
            }
            NetEvent::Filled { conn, buf, at, len } => {
                let line = self.line_of(conn).expect("a buffer comes back before the end");
                if let Err(refusal) = self.filled(now, line, buf, at, len) {
                    self.fall(HostLoss::Refused(refusal));
                }
            }
            NetEvent::Sent { conn, buf } => {
                self.take_back(self.line_of(conn), buf);
            }
            NetEvent::Closed { conn, reason } => {
                let line = self.line_of(conn).expect("only what was dialled closes");
                self.lines[line].conn = None;
                if let Some(name) = self.names.get_mut(conn.index as usize) {
                    *name = None;
                }
                self.fall(HostLoss::network(reason));
            }
        }
    }

    /// Returns the line whose current connection is `conn`.
    fn line_of(&self, conn: ConnId) -> Option<usize> {
        match self.names.get(conn.index as usize) {
            Some(&Some((generation, line))) if generation == conn.generation => Some(line),
            Some(_) => None,
            // An index beyond the table: the dial failed before it became a connection.
            None => self.lines.iter().position(|line| line.conn == Some(conn)),
        }
    }

    fn dial(&mut self, now: Instant, line: usize, queue: HostQueue) {
        let conn = self.transport.dial(now);
        let index = conn.index as usize;
        if self.names.len() <= index && index < NAMES_MAX {
            self.names.resize(index + 1, None);
        }
        if let Some(name) = self.names.get_mut(index) {
            *name = Some((conn.generation, line));
        }
        self.lines[line].conn = Some(conn);
        self.lines[line].queue = queue;
    }

    /// Sends the messages of a queue that are not requests of the program, such as those that set
    /// the queue up.
    fn speak(&mut self, now: Instant, line: usize) {
        let QueueConnection { conn: Some(conn), queue, .. } = &mut self.lines[line] else { return };
        for head in queue.speech() {
            self.transport.send(now, *conn, Frame::bare(head));
        }
    }

    fn parse(&mut self, now: Instant, line: usize, mut input: &[u8]) -> Result<(), Refusal> {
        while let Some(event) = self.lines[line].queue.next_event(&mut input)? {
            match event {
                QueueEvent::Up => self.risen(now, line),
                QueueEvent::Data { cid, offset, bytes } => {
                    let flight = self.lines[line].flights[usize::from(cid)].as_mut();
                    let flight = flight.expect("a queue names what is in flight");
                    if let Some(buf) = &mut flight.buf {
                        let room = buf.prefix_mut(flight.command.reply_bytes());
                        room[offset..offset + bytes.len()].copy_from_slice(bytes);
                    }
                }
                QueueEvent::Ready(ready) => self.send_payload(now, line, &ready)?,
                QueueEvent::Ended { cid, status } => self.answer(line, cid, status),
            }
        }
        self.speak(now, line);
        Ok(())
    }

    /// Lends the transport the buffers of reads whose data comes next on their connections, so that
    /// the data is received into them directly.
    fn receive_directly(&mut self) {
        for n in 0..self.fillable.len() {
            let line = self.fillable[n];
            let QueueConnection { conn: Some(conn), queue, flights, filling, .. } =
                &mut self.lines[line]
            else {
                continue;
            };
            let Some((cid, at, bytes)) = queue.expects().filter(|_| filling.is_none()) else {
                continue;
            };
            let flight = flights[usize::from(cid)].as_mut();
            let flight = flight.expect("a queue names what is in flight");
            let Some(buf) = flight.buf.take() else { continue };
            match self.transport.receive_into(*conn, buf, at, at + bytes) {
                Ok(()) => *filling = Some(cid),
                Err(buf) => flight.buf = Some(buf),
            }
        }
        self.fillable.clear();
    }

    /// Takes back a buffer that was lent to the transport to receive into.
    fn filled(
        &mut self,
        now: Instant,
        line: usize,
        buf: Buf,
        at: usize,
        len: usize,
    ) -> Result<(), Refusal> {
        let falls = matches!(self.phase, HostPhase::Falling { .. });
        let owner = &mut self.lines[line];
        let cid = owner.filling.take().expect("it was lent");
        let mut came = &buf.bytes()[at..at + len];
        let passed = match falls {
            true => Ok(()),
            false => owner.queue.next_event(&mut came).map(|event| {
                let bytes = match event {
                    Some(QueueEvent::Data { bytes, .. }) => bytes.len(),
                    None => 0,
                    Some(other) => unreachable!("data was expected, not {other:?}"),
                };
                assert!(bytes == len, "what was expected is what came");
            }),
        };
        let flight = owner.flights[usize::from(cid)].as_mut();
        flight.expect("nothing ends while its data comes").buf = Some(buf);
        passed?;
        if falls || len == 0 {
            return Ok(()); // the connection ends
        }
        self.heard = now;
        // The line stays in the list however little data is left, since further large reads may
        // follow.
        self.fillable.push(line);
        self.parse(now, line, &[]) // data may tell its command's end
    }

    /// Handles a connected queue: the first one starts the others, the last one admits requests.
    fn risen(&mut self, now: Instant, line: usize) {
        self.phase = HostPhase::Rising { until: now + self.patience.silence_max };
        if line == 0 {
            let found = self.lines[0].queue.found().clone();
            for n in 1..self.lines.len() {
                let queue = HostQueue::io(self.options.clone(), n as u16, found.clone());
                self.dial(now, n, queue);
            }
        }
        if self.lines.iter().all(|line| line.queue.is_up()) {
            self.phase = HostPhase::Up { alive_at: now + self.options.keep_alive / 2 };
            self.failures = 0;
            let found = self.lines[0].queue.found().clone();
            self.report(HostReport::Up(found));
        }
    }

    /// Sends a write's payload, which the server has asked for.
    fn send_payload(
        &mut self,
        now: Instant,
        line: usize,
        ready: &ReadyToTransfer,
    ) -> Result<(), Refusal> {
        let QueueConnection { conn, queue, flights, lent, .. } = &mut self.lines[line];
        let flight = flights[usize::from(ready.cid)].as_mut().expect("as above");
        let bytes = flight.command.payload_bytes();
        let buf = flight.buf.as_ref().ok_or(Refusal::Pieces)?;
        let head = queue.payload(ready, &buf.bytes()[..bytes])?;
        let frame = Frame { head, body: flight.buf.take(), body_len: bytes };
        flight.lent = frame.body.as_ref().map(address);
        lent.push_back(ready.cid);
        self.transport.send(now, conn.expect("it speaks"), frame);
        Ok(())
    }

    fn answer(&mut self, line: usize, cid: CommandId, status: Status) {
        let flight = self.lines[line].flights[usize::from(cid)].as_mut().expect("as above");
        if flight.lent.is_some() {
            flight.answer = Some(status);
        } else {
            self.finish(line, cid, status);
        }
    }

    /// Takes back a payload from the transport. If no line has it, its connection had ended before
    /// it was sent.
    fn take_back(&mut self, line: Option<usize>, buf: Buf) {
        let key = address(&buf);
        let line = line.or_else(|| self.lines.iter().position(|line| line.lent_at(key).is_some()));
        let line = line.expect("the transport gives back what it was lent");
        let place = self.lines[line].lent_at(key).expect("and to whom it was lent");
        let QueueConnection { flights, lent, .. } = &mut self.lines[line];
        let cid = lent.remove(place).expect("it was found");
        let flight = flights[usize::from(cid)].as_mut().expect("it was found");
        flight.buf = Some(buf);
        flight.lent = None;
        if let Some(status) = flight.answer {
            self.finish(line, cid, status);
        }
    }

    fn finish(&mut self, line: usize, cid: CommandId, status: Status) {
        let owner = &mut self.lines[line];
        let flight = owner.flights[usize::from(cid)].take().expect("it is in flight");
        owner.vacant.push(cid);
        self.in_flight -= 1;
        let index = self.index(line, cid);
        self.done.push(Ended { index, status, buf: flight.buf });
    }

    fn index(&self, line: usize, cid: CommandId) -> usize {
        (line - 1) * usize::from(self.options.queue_depth) + usize::from(cid)
    }

    /// Gives up the controller for the reason `why`, and closes its connections.
    fn fall(&mut self, why: HostLoss) {
        if !matches!(self.phase, HostPhase::Falling { .. }) {
            self.phase = HostPhase::Falling { why };
            for line in &self.lines {
                if let Some(conn) = line.conn {
                    self.transport.close(conn);
                }
            }
        }
    }

    /// Ends the requests in flight, once the last connection is gone and every payload is back.
    fn fallen(&mut self, now: Instant, why: HostLoss) {
        for line in 1..self.lines.len() {
            for cid in 0..self.options.queue_depth {
                if self.lines[line].flights[usize::from(cid)].is_some() {
                    self.finish(line, cid, Status::ConnectionLost);
                }
            }
            // The queue is not connected any more, whatever its state was.
            self.lines[line].queue = HostQueue::admin(self.options.clone(), 0);
        }
        let doublings = self.failures.min(DOUBLINGS_MAX);
        let pause = self.patience.pause_min.saturating_mul(1 << doublings);
        self.failures += 1;
        self.phase = HostPhase::Resting { until: now + pause.min(self.patience.pause_max) };
        self.report(HostReport::Lost(why));
    }

    /// Handles the deadlines that are due.
    fn tend(&mut self, now: Instant) {
        let silent = HostLoss::Connection(Loss::Silent);
        match self.phase {
            HostPhase::Resting { until } if until <= now => {
                self.phase = HostPhase::Rising { until: now + self.patience.silence_max };
                self.attempts += 1;
                let queue = HostQueue::admin(self.options.clone(), self.attempts);
                self.dial(now, 0, queue);
            }
            HostPhase::Rising { until } if until <= now => self.fall(silent),
            HostPhase::Up { .. }
                if self.in_flight > 0 && self.heard + self.patience.silence_max <= now =>
            {
                self.fall(silent);
            }
            HostPhase::Up { alive_at } if alive_at <= now => {
                if self.lines[0].queue.keep_alive() {
                    self.phase = HostPhase::Up { alive_at: now + self.options.keep_alive / 2 };
                    self.speak(now, 0);
                } else {
                    self.fall(silent);
                }
            }
            _ => {}
        }
        if let HostPhase::Falling { why } = &self.phase
            && self.lines.iter().all(|line| line.conn.is_none() && line.lent.is_empty())
        {
            let why = why.clone();
            self.fallen(now, why);
        }
    }
}

impl<T: Dial> Path for Host<T> {
    fn in_flight_max(&self) -> usize {
        self.options.queues * usize::from(self.options.queue_depth)
    }

    fn room(&self) -> usize {
        match self.phase {
            HostPhase::Up { .. } => self.in_flight_max() - self.in_flight,
            _ => 0,
        }
    }

    fn reads_need_buffers(&self, bytes: usize) -> bool {
        bytes >= DIRECT_BYTES_MIN
    }

    fn lost_writes_linger(&self) -> bool {
        true
    }

    fn submit(
        &mut self,
        now: Instant,
        lane: usize,
        command: Command,
        mut buf: Option<Buf>,
    ) -> usize {
        let line = lane + 1;
        if self.in_flight == 0 {
            self.heard = now;
        }
        let QueueConnection { conn, queue, flights, vacant, lent, .. } = &mut self.lines[line];
        let cid = vacant.pop().expect("the caller asked for room on this lane");
        let bytes = command.payload_bytes();
        let payload = match &buf {
            Some(buf) if bytes > 0 => &buf.bytes()[..bytes],
            _ => &[],
        };
        self.in_flight += 1;
        let encoded = queue.request(cid, command, payload);
        let mut flight = Flight { command, buf: None, lent: None, answer: None };
        let refused = encoded.as_ref().err().copied();
        if let (Ok(encoded), Some(conn)) = (encoded, *conn) {
            let [first, rest] = encoded.heads;
            self.transport.send(now, conn, Frame::bare(first));
            let mut frame = Frame::bare(rest);
            if encoded.has_payload {
                (frame.body, frame.body_len) = (buf.take(), bytes);
                flight.lent = frame.body.as_ref().map(address);
                lent.push_back(cid);
            }
            self.transport.send(now, conn, frame);
        }
        flight.buf = buf;
        flights[usize::from(cid)] = Some(flight);
        if let Some(status) = refused {
            self.finish(line, cid, status);
        }
        self.index(line, cid)
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
        if !self.fillable.is_empty() {
            self.receive_directly();
        }
        self.tend(now);
        self.transport.kick(now);
        progressed |= !self.done.is_empty();
        ended.append(&mut self.done);
        progressed
    }

    fn wake_at(&self) -> Option<Instant> {
        let own = match self.phase {
            HostPhase::Resting { until } | HostPhase::Rising { until } => Some(until),
            HostPhase::Up { alive_at } if self.in_flight > 0 => {
                Some(alive_at.min(self.heard + self.patience.silence_max))
            }
            HostPhase::Up { alive_at } => Some(alive_at),
            HostPhase::Falling { .. } => None,
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
