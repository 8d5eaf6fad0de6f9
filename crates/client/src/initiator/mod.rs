//! The initiator: connections to one server, and the requests in flight on them.
//!
//! A core without I/O: the initiator uses a [`Dial`] transport and is driven by turns. It adds a
//! life beyond one connection to the protocol. It dials again with growing pauses, and sends again
//! what is safe to repeat, in the original order, barriers included.
//!
//! *Safe to repeat.* With protocol version 2, the hello of a new connection identifies the client
//! and the connection. The server answers the hello only when the requests of the old connection
//! have ended (docs/adr/0003-fences.md). Hence a plain write, discard, write of zeroes or flush can
//! be carried out twice without harm: no write of the old connection can land after the repeated
//! one.
//!
//! A compare-and-write or an atomic write is never sent again, since its second execution may
//! answer differently from the first. Such a request ends as [`Status::ConnectionLost`]. Without a
//! fence (version 1), only reads are sent again.

mod events;
mod interface;
mod link;
mod recovery;

use std::collections::VecDeque;

use contract::{
    Buf, Command, Control, Dial, Frame, Instant, NamespaceId, NetEvent, Slot, SlotTable, Status,
    Tag,
};
use proto::reflex::ClientSession;

use crate::random::Random;
pub use interface::{Done, Loss, Op, Options, QueueFull, Report, Ticket, Version};
use link::{Link, LinkState};

/// Maximum number of network events that one turn handles.
const EVENTS_MAX: usize = 256;

/// Maximum number of reports that wait to be read; further reports are dropped.
const REPORTS_MAX: usize = 4096;

/// Keeps connections to one server, and requests in flight on them.
#[derive(Debug)]
pub struct Initiator<T> {
    transport: T,
    options: Options,
    links: Vec<Link>,
    flights: SlotTable<Flight>,
    /// The generation and the link of each connection, by the transport's index of the connection.
    names: Vec<Option<(u32, usize)>>,
    /// Requests of lost connections whose payload the transport still holds. They were sent after
    /// the transport had seen the end and before the initiator heard of it.
    orphans: VecDeque<Slot>,
    /// Links that may have something to send; each link is listed at most once.
    eager: VecDeque<usize>,
    /// Requests that could not be sent at all, with the reason: the next turn ends them.
    refused: Vec<(Slot, Status)>,
    /// Requests that have ended since the last turn.
    done: Vec<Done>,
    reports: Vec<Report>,
    events: Vec<NetEvent>,
    /// Links whose next bytes may be data of a read, to be received into the read's buffer.
    fillable: Vec<usize>,
    /// The number of the next request: the original order.
    order: u64,
    /// The link at which the search for the least loaded link begins.
    rotor: usize,
    /// Time at which [`Initiator::tend`] is due: not after any link's deadline.
    alarm: Option<Instant>,
    random: Random,
}

/// A request in flight.
#[derive(Debug)]
struct Flight {
    link: usize,
    /// Position in the order of submission.
    order: u64,
    work: Work,
    /// `true` if the request was sent on the current connection.
    sent: bool,
    /// Number of times the request was sent on earlier connections.
    reissues: u8,
    /// The address of the payload while the transport holds it, else `None`.
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
    /// Returns the command, and the stream in which barriers order it.
    fn place(&self) -> Option<(Command, u8)> {
        match *self {
            Work::Data { command, stream, .. } => Some((command, stream)),
            Work::Control(_) => None,
        }
    }
}

impl<T: Dial> Initiator<T> {
    /// Returns an initiator over `transport`, which dials in its first turn.
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

    /// Returns the number of further requests that the initiator accepts now.
    pub fn room(&self) -> usize {
        self.flights.room()
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Returns `true` if requests can be sent on this connection now.
    pub fn is_connected(&self, link: usize) -> bool {
        self.links[link].is_open()
    }

    /// Returns the transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Submits a request. A later [`turn`](Initiator::turn) returns its end.
    ///
    /// # Errors
    /// The maximum number of requests is in flight.
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

    /// Submits a request about the connection. The answer comes as a [`Report`]; without an answer,
    /// the report has a status. The initiator replaces the tag inside by its own.
    ///
    /// # Errors
    /// The maximum number of requests is in flight; the request comes back.
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

    /// Charges later requests on a connection to the tenant with this handle, which is from the
    /// reply to a register on this connection. Zero stands for the connection's own tenant. A
    /// connection that is dialled again charges its own tenant.
    pub fn charge(&mut self, link: usize, handle: u16) {
        self.links[link].session.charge(handle);
    }

    /// Returns the handle of the tenant to which a connection's requests are charged.
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

    /// Returns the link with the fewest requests, an open one if there is one. Equal links take
    /// turns.
    fn least_loaded(&mut self) -> usize {
        let count = self.links.len();
        self.rotor = (self.rotor + 1) % count;
        let order = (self.rotor..count).chain(0..self.rotor);
        order
            .min_by_key(|&link| (!self.links[link].is_open(), self.links[link].load))
            .expect("there is a connection")
    }

    /// Handles network events, dials, and sends waiting requests. Appends the ended requests to
    /// `done`. Returns `true` if anything happened.
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
        // Ended only here, so that no ticket is reused before the end of its request was reported.
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

    /// Sends the requests submitted since the last turn. To be called after the submissions of a
    /// turn.
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

    /// Drains the reports: all events except the ends of requests.
    pub fn reports(&mut self) -> impl Iterator<Item = Report> + '_ {
        self.reports.drain(..)
    }

    /// Returns the time of the next turn if no network event comes before.
    pub fn wake_at(&self) -> Option<Instant> {
        if !self.refused.is_empty() {
            return Some(Instant::ZERO);
        }
        match (self.alarm, self.transport.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns a session of the version that the options ask for.
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

    /// Adds the link to the list of links that may have something to send.
    fn rouse(&mut self, link: usize) {
        if !self.links[link].eager {
            self.links[link].eager = true;
            self.eager.push_back(link);
        }
    }

    /// Counts one more answer that the server owes on this connection.
    fn owe(&mut self, now: Instant, link: usize) {
        let owner = &mut self.links[link];
        if owner.sent == 0 {
            owner.heard = now;
            let deadline = now + self.options.silence_max;
            self.alarm = Some(self.alarm.map_or(deadline, |at| at.min(deadline)));
        }
        owner.sent += 1;
    }

    /// Sends the request on its connection, which must be open. The transport must have room.
    fn issue(&mut self, now: Instant, link: usize, slot: Slot) {
        let Link { state, session, .. } = &mut self.links[link];
        let LinkState::Up { conn } = *state else { unreachable!("only open connections send") };
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

/// Returns the tag of a request on the wire. Version 1 forbids zero.
fn tag_of(slot: Slot) -> Tag {
    u64::from(slot.to_bits()) + 1
}

/// Returns the slot of a tag, if the tag can be one of this initiator.
fn slot_of(tag: Tag) -> Option<Slot> {
    u32::try_from(tag.checked_sub(1)?).ok().map(Slot::from_bits)
}

/// Returns the buffer's address, which differs from the address of every other buffer.
fn address(buf: &Buf) -> usize {
    buf.bytes().as_ptr().addr()
}
