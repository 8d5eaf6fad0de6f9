//! The initiator: connections to one server, and the requests in flight on them.
//!
//! A core without I/O: it speaks to a [`Dial`] transport and is driven by turns. What it adds to
//! the protocol is a life beyond one connection: it dials again with growing pauses, and sends
//! again what is safe to send again, in the original order, barriers included.
//!
//! *Safe to send again.* With protocol version 2 the hello of a new connection names the client and
//! which of its connections this is, and the server answers it only when the requests of the old
//! connection have ended (docs/adr/0003-fences.md). Hence a plain write, discard, write of zeroes
//! or flush can be carried out twice without harm: nothing of the old connection can land after
//! the repeated one. A compare-and-write or an atomic write is never sent again, for its second
//! execution may answer differently from the first; it ends as [`Status::ConnectionLost`]. Without
//! a fence (version 1) only reads are sent again.

mod events;
mod link;
mod recovery;
mod words;

use std::collections::VecDeque;

use contract::{
    Buf, Command, Control, Dial, Frame, Instant, NamespaceId, NetEvent, Slot, SlotTable, Status,
    Tag,
};
use proto::reflex::ClientSession;

use crate::random::Random;
use link::{Link, State};
pub use words::{Done, Loss, Op, Options, QueueFull, Report, Ticket, Version};

/// Events of the network that one turn handles.
const EVENTS_MAX: usize = 256;

/// Reports that wait for somebody to ask; further ones are dropped.
const REPORTS_MAX: usize = 4096;

/// Keeps connections to one server and requests in flight on them.
#[derive(Debug)]
pub struct Initiator<T> {
    transport: T,
    options: Options,
    links: Vec<Link>,
    flights: SlotTable<Flight>,
    /// By the transport's index of a connection: its generation and the link it belongs to.
    names: Vec<Option<(u32, usize)>>,
    /// Requests of connections that are gone, whose payload the transport still holds: they were
    /// sent after the transport had seen the end and before we did.
    orphans: VecDeque<Slot>,
    /// Links that may have something to send; each is listed at most once.
    eager: VecDeque<usize>,
    /// Requests that could not be sent at all, and why: the next turn ends them.
    refused: Vec<(Slot, Status)>,
    /// What has ended since the last turn ended.
    done: Vec<Done>,
    reports: Vec<Report>,
    events: Vec<NetEvent>,
    /// Links whose next bytes may be data of a read, to be received into its buffer.
    fillable: Vec<usize>,
    /// The number of the next request: the original order.
    order: u64,
    /// Where the search for the least loaded connection begins.
    rotor: usize,
    /// When [`Initiator::tend`] is due: not after any link's deadline.
    alarm: Option<Instant>,
    random: Random,
}

/// A request in flight.
#[derive(Debug)]
struct Flight {
    link: usize,
    /// Its place in the order of submission.
    order: u64,
    work: Work,
    /// Whether it was sent on the present connection.
    sent: bool,
    /// How often it was sent on earlier connections.
    reissues: u8,
    /// The address of the payload while the transport holds it; `None` while it is ours.
    lent: Option<usize>,
    /// The answer that came before the transport gave the payload back.
    answer: Option<Status>,
}

#[derive(Debug)]
enum Work {
    Data { command: Command, stream: u8, namespace: Option<NamespaceId>, buf: Option<Buf> },
    Control(Box<Control>),
}

impl Work {
    /// A command, and the stream that barriers order it in.
    fn place(&self) -> Option<(Command, u8)> {
        match *self {
            Work::Data { command, stream, .. } => Some((command, stream)),
            Work::Control(_) => None,
        }
    }
}

impl<T: Dial> Initiator<T> {
    /// An initiator over `transport`, which dials when its first turn comes.
    ///
    /// # Panics
    /// If the options ask for no connection or for more than 65 536 requests in flight.
    pub fn new(transport: T, options: Options) -> Self {
        assert!(options.connections > 0, "an initiator has at least one connection");
        let links = (0..options.connections)
            .map(|link| Link::new(Self::session(&options, link), options.in_flight_max))
            .collect();
        Initiator {
            transport,
            links,
            flights: SlotTable::new(options.in_flight_max),
            names: Vec::new(),
            orphans: VecDeque::new(),
            eager: VecDeque::with_capacity(options.connections),
            refused: Vec::new(),
            done: Vec::with_capacity(options.in_flight_max),
            reports: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            fillable: Vec::with_capacity(EVENTS_MAX),
            order: 0,
            rotor: 0,
            alarm: Some(Instant::ZERO),
            random: Random::new(options.seed),
            options,
        }
    }

    /// How many more requests it takes now.
    pub fn room(&self) -> usize {
        self.flights.room()
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether requests can be sent on this connection now.
    pub fn is_connected(&self, link: usize) -> bool {
        self.links[link].is_open()
    }

    /// The transport, for whoever made it.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Takes a request. Its end comes from a later [`turn`](Initiator::turn).
    ///
    /// # Errors
    /// As many requests as allowed are in flight.
    ///
    /// # Panics
    /// If the buffer is smaller than the command's payload or reply, or the payload is missing.
    pub fn submit(&mut self, now: Instant, op: Op) -> Result<Ticket, QueueFull> {
        if self.flights.room() == 0 {
            return Err(QueueFull(op));
        }
        let Op { link, stream, namespace, command, buf } = op;
        match &buf {
            Some(buf) => assert!(buf.capacity() >= command.buffer_bytes(), "the buffer is small"),
            None => assert!(command.payload_bytes() == 0, "a payload is missing"),
        }
        let work = Work::Data { command, stream, namespace, buf };
        Ok(self.enlist(now, link, work))
    }

    /// Takes a request about the connection; the answer comes as a [`Report`], or, when there is
    /// none, as one with a status. The tag inside is replaced by ours.
    ///
    /// # Errors
    /// As many requests as allowed are in flight; the request comes back.
    pub fn control(
        &mut self,
        now: Instant,
        link: Option<usize>,
        control: Control,
    ) -> Result<Ticket, Control> {
        if self.flights.room() == 0 {
            return Err(control);
        }
        Ok(self.enlist(now, link, Work::Control(Box::new(control))))
    }

    /// Charges what is sent on a connection from here on to the tenant with this handle, which a
    /// register on it was answered with; zero: to the connection's own. A connection that is dialled
    /// again charges its own.
    pub fn charge(&mut self, link: usize, handle: u16) {
        self.links[link].session.charge(handle);
    }

    /// The handle that what is sent on a connection is charged to.
    pub fn charged(&self, link: usize) -> u16 {
        self.links[link].session.charged()
    }

    fn enlist(&mut self, now: Instant, link: Option<usize>, work: Work) -> Ticket {
        let link = link.unwrap_or_else(|| self.least_loaded());
        let order = self.order;
        self.order += 1;
        let flight =
            Flight { link, order, work, sent: false, reissues: 0, lent: None, answer: None };
        let slot = self.flights.insert(flight).expect("the caller asked for room");
        let owner = &mut self.links[link];
        owner.load += 1;
        if owner.is_open() && owner.ready.is_empty() && self.transport.room() > 0 {
            self.issue(now, link, slot);
        } else {
            owner.ready.push_back(slot);
            self.rouse(link);
        }
        Ticket(slot)
    }

    /// The connection with the fewest requests, an open one if there is one; among equals, in turn.
    fn least_loaded(&mut self) -> usize {
        let count = self.links.len();
        self.rotor = (self.rotor + 1) % count;
        let order = (self.rotor..count).chain(0..self.rotor);
        order
            .min_by_key(|&link| (!self.links[link].is_open(), self.links[link].load))
            .expect("there is a connection")
    }

    /// Handles what the network brought, dials, sends what waited; appends the requests that ended
    /// to `done`. Returns whether anything happened.
    pub fn turn(&mut self, now: Instant, done: &mut Vec<Done>) -> bool {
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
        if self.alarm.is_some_and(|at| at <= now) {
            self.tend(now);
        }
        self.flush(now);
        // Only now, so that no ticket is given away again before its request's end was told.
        let mut refused = std::mem::take(&mut self.refused);
        for (slot, status) in refused.drain(..) {
            self.finish(slot, status);
        }
        self.refused = refused;
        progressed |= !self.done.is_empty();
        if done.is_empty() {
            std::mem::swap(done, &mut self.done); // Nothing is copied on the way out.
        } else {
            done.append(&mut self.done);
        }
        progressed
    }

    /// Sends what was submitted since the last turn: call it after the submissions of a turn.
    pub fn flush(&mut self, now: Instant) {
        while let Some(&link) = self.eager.front() {
            while self.links[link].is_open() && self.transport.room() > 0 {
                let Some(slot) = self.links[link].ready.pop_front() else { break };
                self.issue(now, link, slot);
            }
            if self.links[link].is_open() && !self.links[link].ready.is_empty() {
                break; // No room: it stays first.
            }
            self.links[link].eager = false;
            self.eager.pop_front();
        }
        self.transport.kick(now);
    }

    /// What happened besides the end of requests, since this was last asked.
    pub fn reports(&mut self) -> impl Iterator<Item = Report> + '_ {
        self.reports.drain(..)
    }

    /// When the next turn is worth while without an event of the network.
    pub fn wake_at(&self) -> Option<Instant> {
        if !self.refused.is_empty() {
            return Some(Instant::ZERO);
        }
        match (self.alarm, self.transport.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// A session of the version that the options ask for.
    fn session(options: &Options, link: usize) -> ClientSession {
        match options.version {
            Version::One => ClientSession::v1(),
            Version::Two => ClientSession::v2(contract::Hello {
                tag: 0,
                client: options.client,
                connection: link as u32,
                queue_depth: options.in_flight_max.min(u32::MAX as usize) as u32,
                checksums: options.checksums,
                token: options.token.clone(),
                tenant: options.tenant.clone(),
            }),
        }
    }

    fn report(&mut self, report: Report) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    /// Lists the link among those that may have something to send.
    fn rouse(&mut self, link: usize) {
        if !self.links[link].eager {
            self.links[link].eager = true;
            self.eager.push_back(link);
        }
    }

    /// The server owes one more answer on this connection.
    fn owe(&mut self, now: Instant, link: usize) {
        let owner = &mut self.links[link];
        if owner.sent == 0 {
            owner.heard = now;
            let deadline = now + self.options.silence_max;
            self.alarm = Some(self.alarm.map_or(deadline, |at| at.min(deadline)));
        }
        owner.sent += 1;
    }

    /// Sends the request on its connection, which is open; the transport has room.
    fn issue(&mut self, now: Instant, link: usize, slot: Slot) {
        let Link { state, session, .. } = &mut self.links[link];
        let State::Up { conn } = *state else { unreachable!("only open connections send") };
        let flight = self.flights.get(slot);
        let tag = tag_of(slot);
        let frame = match &mut flight.work {
            Work::Control(_) => return self.issue_control(now, link, slot, conn),
            Work::Data { command, stream, namespace, buf } => {
                let bytes = command.payload_bytes();
                let payload = match buf {
                    Some(buf) if bytes > 0 => &buf.bytes()[..bytes],
                    _ => &[],
                };
                match session.request(tag, *stream, *namespace, *command, payload) {
                    Err(status) => return self.refused.push((slot, status)),
                    Ok(head) if bytes == 0 => Frame::bare(head),
                    Ok(head) => Frame { head, body: buf.take(), body_len: bytes },
                }
            }
        };
        flight.sent = true;
        flight.lent = frame.body.as_ref().map(address);
        let owner = &mut self.links[link];
        if flight.lent.is_some() {
            owner.lent.push_back(slot);
        }
        self.owe(now, link);
        self.transport.send(now, conn, frame);
    }
}

/// The tag of a request on the wire. Version 1 forbids zero.
fn tag_of(slot: Slot) -> Tag {
    u64::from(slot.to_bits()) + 1
}

/// The slot that a tag names, if it can name one.
fn slot_of(tag: Tag) -> Option<Slot> {
    u32::try_from(tag.checked_sub(1)?).ok().map(Slot::from_bits)
}

/// What tells a buffer from every other one, whoever made it.
fn address(buf: &Buf) -> usize {
    buf.bytes().as_ptr().addr()
}
