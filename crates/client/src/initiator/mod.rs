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
//! fence (version 1, or no client identifier), only reads and compares are sent again.

mod events;
mod interface;
mod link;
mod recovery;
mod requests;

use contract::{CloseReason, ControlRequest, Dial, Instant, NetEvent, Slot, Status};
use proto::reflex::ClientSession;

use crate::random::Random;
pub use interface::{Done, Loss, Op, Options, QueueFull, Report, Ticket, Version};
use link::{Link, LinkState};
use requests::{RequestBody, Requests};

/// Maximum number of transport events that one turn of the initiator processes.
const EVENTS_MAX: usize = 256;

/// Keeps several connections to one server, and the requests in flight on them.
#[derive(Debug)]
pub struct Initiator<T> {
    transport: T,
    options: Options,
    links: Vec<Link>,
    requests: Requests,
    /// The generation and the link of each connection, by the transport's index of the connection;
    /// `None` for a free index.
    names: Vec<Option<(u32, usize)>>,
    events: Vec<NetEvent>,
    /// Links whose next bytes may be data of a read, to be received into the read's buffer.
    fillable: Vec<usize>,
    /// The index of the link at which the next search for the least loaded link begins.
    rotor: usize,
    /// Time at which [`Initiator::tend`] is due: not after any link's deadline.
    alarm: Option<Instant>,
    random: Random,
    /// `true` once the initiator was closed: it dials no more.
    closed: bool,
    /// Number of bytes of reads that were copied into their buffers.
    copied: u64,
}

impl<T: Dial> Initiator<T> {
    /// Returns an initiator over `transport`, which dials in its first turn.
    ///
    /// # Panics
    /// If the options ask for no connection or for more than 65 536 requests in flight.
    pub fn new(transport: T, options: Options) -> Self {
        assert!(options.connections > 0, "an initiator has at least one connection");
        let links =
            (0..options.connections).map(|link| Link::new(Self::session(&options, link))).collect();
        Initiator {
            transport,
            links,
            requests: Requests::new(&options),
            names: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            fillable: Vec::with_capacity(EVENTS_MAX),
            rotor: 0,
            alarm: Some(Instant::ZERO),
            random: Random::new(options.seed),
            closed: false,
            copied: 0,
            options,
        }
    }

    /// Returns the number of further requests that the initiator accepts now.
    pub fn room(&self) -> usize {
        self.requests.room()
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Returns `true` if requests can be sent on this connection now.
    pub fn is_connected(&self, link: usize) -> bool {
        self.links[link].is_open()
    }

    /// Returns the number of bytes of reads that were copied into their buffers so far. All other
    /// bytes were received directly into the buffers.
    pub fn copied_bytes(&self) -> u64 {
        self.copied
    }

    /// Closes the connections for good. The following turns end all requests, which give their
    /// buffers back.
    pub fn close(&mut self) {
        self.closed = true;
        for link in 0..self.links.len() {
            if self.links[link].state.conn().is_some() {
                self.hang_up(link, Loss::Network(CloseReason::Local));
            }
        }
    }

    /// Returns `true` once a closed initiator has no connection left and the transport holds none
    /// of its buffers.
    pub fn is_closed(&self) -> bool {
        self.closed
            && self.links.iter().all(|link| link.state.conn().is_none())
            && !self.requests.has_orphans()
    }

    /// Returns the transport over which the initiator sends and receives.
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
        if self.requests.room() == 0 {
            return Err(QueueFull(op));
        }
        let Op { link, stream, namespace, command, buf } = op;
        match &buf {
            Some(buf) => assert!(buf.capacity() >= command.buffer_bytes(), "the buffer is small"),
            None => assert!(command.payload_bytes() == 0, "a payload is missing"),
        }
        let work = RequestBody::Data { command, stream, namespace, buf };
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
        control: ControlRequest,
    ) -> Result<Ticket, ControlRequest> {
        if self.requests.room() == 0 {
            return Err(control);
        }
        Ok(self.enlist(now, link, RequestBody::Control(Box::new(control))))
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

    fn enlist(&mut self, now: Instant, link: Option<usize>, work: RequestBody) -> Ticket {
        let link = link.unwrap_or_else(|| self.least_loaded());
        let slot = self.requests.insert(link, work);
        let is_first = self.links[link].is_open() && !self.requests.has_ready(link);
        if is_first && self.transport.room() > 0 {
            self.issue(now, link, slot);
        } else {
            self.requests.queue(link, slot);
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
            .min_by_key(|&link| (!self.links[link].is_open(), self.requests.load(link)))
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
        if self.closed {
            for link in 0..self.links.len() {
                self.requests.forsake(link, Status::ConnectionLost);
            }
        }
        self.flush(now);
        // Ended only here, so that no ticket is reused before the end of its request was reported.
        self.requests.end_refused();
        progressed |= self.requests.drain_done(done);
        progressed
    }

    /// Sends the requests that are ready, as far as their connections are open and the transport
    /// has room. To be called after the submissions of a turn.
    pub fn flush(&mut self, now: Instant) {
        while let Some(link) = self.requests.first_eager() {
            while self.links[link].is_open() && self.transport.room() > 0 {
                let Some(slot) = self.requests.pop_ready(link) else { break };
                self.issue(now, link, slot);
            }
            if self.links[link].is_open() && self.requests.has_ready(link) {
                break; // No room: it stays first.
            }
            self.requests.pop_eager();
        }
        self.transport.kick(now);
    }

    /// Drains the reports: all events except the ends of requests.
    pub fn reports(&mut self) -> impl Iterator<Item = Report> + '_ {
        self.requests.reports()
    }

    /// Returns the time at which the next turn is due if no network event comes first; `None` if
    /// only an event makes a turn necessary.
    pub fn wake_at(&self) -> Option<Instant> {
        if self.requests.has_refused() {
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

    /// Counts one more unanswered request on this connection, for the detection of silent servers.
    fn owe(&mut self, now: Instant, link: usize, slot: Slot) {
        if self.requests.owe(slot) {
            self.links[link].heard = now;
            let deadline = now + self.options.silence_max;
            self.alarm = Some(self.alarm.map_or(deadline, |at| at.min(deadline)));
        }
    }

    /// Sends the request on its connection, which must be open. The transport must have room.
    fn issue(&mut self, now: Instant, link: usize, slot: Slot) {
        let Link { state, session, .. } = &mut self.links[link];
        let LinkState::Up { conn } = *state else { unreachable!("only open connections send") };
        if let RequestBody::Control(_) = self.requests.work(slot) {
            if let Some(heads) = self.requests.heads(slot, session) {
                self.owe(now, link, slot);
                self.send_heads(now, conn, heads);
            }
        } else if let Some(frame) = self.requests.frame(slot, session) {
            self.owe(now, link, slot);
            self.transport.send(now, conn, frame);
        }
    }
}
