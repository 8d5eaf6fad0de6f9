//! The requests in flight: the queue of each link, their order, and their ends.

use std::collections::VecDeque;
use std::sync::Arc;

use contract::{
    Buf, Command, ControlRequest, Frame, FrameHead, IoKind, NamespaceId, ProtocolError, Slot,
    SlotTable, Status, Tag, TenantReply,
};
use proto::reflex::ClientSession;

use crate::Durability;

use super::interface::{Done, Options, Report, Ticket, Version};

/// Maximum number of reports that wait to be read; further reports are dropped.
const REPORTS_MAX: usize = 4096;

/// The requests in flight of an initiator, and the reports about requests that have ended.
#[derive(Debug)]
pub(super) struct Requests {
    flights: SlotTable<Flight>,
    /// The requests of each link.
    queues: Vec<Queue>,
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
    /// The number of the next request. Numbers give the order of submission.
    order: u64,
    /// Maximum number of repetitions of a request.
    reissues_max: u8,
    /// `true` if the server ends the requests of a lost connection before it accepts the connection
    /// that replaces it.
    fenced: bool,
    durability: Arc<Durability>,
}

/// The requests of a link.
#[derive(Debug)]
struct Queue {
    /// Number of requests that belong to the link, waiting or sent.
    load: usize,
    /// Number of requests sent on the current connection: `sent ≤ load`.
    sent: usize,
    /// Requests that wait to be sent, in order.
    ready: VecDeque<Slot>,
    /// Requests whose payload the transport holds, in the order of sending.
    lent: VecDeque<Slot>,
    /// `true` while the link is in the list of links that have something to send.
    eager: bool,
    /// The storage epoch of the current connection.
    storage_epoch: u32,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Flight {
    link: usize,
    /// Position in the order of submission.
    order: u64,
    pub(super) work: RequestBody,
    /// `true` if the request was sent on the present connection.
    sent: bool,
    /// Number of times the request was sent on earlier connections.
    reissues: u8,
    /// The identity of the payload's buffer while the transport holds the buffer; `None` otherwise.
    lent: Option<BufName>,
    /// The answer that came before the transport gave the payload back.
    answer: Option<Status>,
    /// The span of changes that become durable with the request if the request is a flush; see
    /// [`Durability`].
    span: u64,
}

impl Flight {
    /// Returns `true` while the transport holds the payload.
    pub(super) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Returns the final status of a request whose last copy ended with this status.
    fn outcome(&self, status: Status) -> Status {
        match self.work {
            RequestBody::Data { command, .. }
                if self.reissues > 0 && command.kind() == IoKind::Write =>
            {
                status.of_repeated_change()
            }
            _ => status,
        }
    }
}

#[derive(Debug)]
pub(super) enum RequestBody {
    Data { command: Command, stream: u8, namespace: Option<NamespaceId>, buf: Option<Buf> },
    Control(Box<ControlRequest>),
}

impl RequestBody {
    /// Returns the command of a request, and the stream in which barriers order the request.
    /// Returns `None` for a request about the connection.
    fn place(&self) -> Option<(Command, u8)> {
        match *self {
            RequestBody::Data { command, stream, .. } => Some((command, stream)),
            RequestBody::Control(_) => None,
        }
    }

    /// Returns `true` if a request that may have been carried out already may be sent again.
    fn may_repeat(&self, fenced: bool) -> bool {
        match self {
            RequestBody::Data { command, .. } => match command {
                Command::Read(_) | Command::Compare(_) => true,
                Command::Write { .. }
                | Command::Flush
                | Command::Discard(_)
                | Command::WriteZeroes { .. }
                | Command::Barrier => fenced,
                Command::WriteAtomic(_) | Command::CompareAndWrite(_) | Command::Commit { .. } => {
                    false
                }
            },
            RequestBody::Control(control) => {
                matches!(**control, ControlRequest::Info { .. } | ControlRequest::Ping { .. })
            }
        }
    }
}

impl Requests {
    pub(super) fn new(options: &Options) -> Self {
        // Each queue can hold every request; small ones start with that capacity.
        let capacity = options.in_flight_max.min(64);
        let queue = |_| Queue {
            load: 0,
            sent: 0,
            ready: VecDeque::with_capacity(capacity),
            lent: VecDeque::with_capacity(capacity),
            eager: false,
            storage_epoch: 0,
        };
        Requests {
            flights: SlotTable::new(options.in_flight_max),
            queues: (0..options.connections).map(queue).collect(),
            orphans: VecDeque::new(),
            eager: VecDeque::with_capacity(options.connections),
            refused: Vec::new(),
            done: Vec::with_capacity(options.in_flight_max),
            reports: Vec::new(),
            order: 0,
            reissues_max: options.reissues_max,
            fenced: options.version == Version::Two && options.client != 0,
            durability: options.durability.clone(),
        }
    }

    /// Returns the number of further requests that there is room for.
    pub(super) fn room(&self) -> usize {
        self.flights.room()
    }

    /// Returns the number of requests in flight.
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Returns the number of requests that belong to a link, waiting or sent.
    pub(super) fn load(&self, link: usize) -> usize {
        self.queues[link].load
    }

    /// Returns `true` if the server owes an answer on a link's connection.
    pub(super) fn is_owed(&self, link: usize) -> bool {
        self.queues[link].sent > 0
    }

    /// Returns `true` if the transport holds payloads of connections that are gone.
    pub(super) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Returns `true` if requests of a link wait to be sent.
    pub(super) fn has_ready(&self, link: usize) -> bool {
        !self.queues[link].ready.is_empty()
    }

    /// Returns `true` if the next turn has requests to end that could not be sent.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Returns the content of a request in flight: its command and buffer, or its control message.
    pub(super) fn work(&mut self, slot: Slot) -> &mut RequestBody {
        &mut self.flights.get(slot).work
    }

    /// Adds a request, which is to be queued or sent next. There must be room.
    pub(super) fn insert(&mut self, link: usize, work: RequestBody) -> Slot {
        let order = self.order;
        self.order += 1;
        self.queues[link].load += 1;
        let flight = Flight {
            link,
            order,
            work,
            sent: false,
            reissues: 0,
            lent: None,
            answer: None,
            span: 0,
        };
        self.flights.insert(flight).expect("the caller asked for room")
    }

    /// Appends a new request to the queue of its link.
    pub(super) fn queue(&mut self, link: usize, slot: Slot) {
        self.queues[link].ready.push_back(slot);
        self.rouse(link);
    }

    /// Adds the link to the list of links that may have something to send.
    pub(super) fn rouse(&mut self, link: usize) {
        if !self.queues[link].eager {
            self.queues[link].eager = true;
            self.eager.push_back(link);
        }
    }

    /// Returns the first link that may have something to send; `None` if there is none.
    pub(super) fn first_eager(&self) -> Option<usize> {
        self.eager.front().copied()
    }

    /// Removes the first link from the list of links that may have something to send.
    pub(super) fn pop_eager(&mut self) {
        let link = self.eager.pop_front().expect("a link is listed");
        self.queues[link].eager = false;
    }

    /// Takes the next request that waits to be sent on a link; `None` if none waits.
    pub(super) fn pop_ready(&mut self, link: usize) -> Option<Slot> {
        self.queues[link].ready.pop_front()
    }

    /// Returns the frame of a request with a command, and lends the payload. Returns `None` if the
    /// session refuses the request, which the next turn ends.
    pub(super) fn frame(&mut self, slot: Slot, session: &mut ClientSession) -> Option<Frame> {
        let flight = self.flights.get(slot);
        let RequestBody::Data { command, stream, namespace, buf } = &mut flight.work else {
            unreachable!("the caller looked")
        };
        if *command == Command::Flush {
            flight.span = self.durability.begin_flush();
        }
        let bytes = command.payload_bytes();
        let payload = match buf {
            Some(buf) if bytes > 0 => &buf.bytes()[..bytes],
            _ => &[],
        };
        let frame = match session.request(tag_of(slot), *stream, *namespace, *command, payload) {
            Err(status) => {
                self.refused.push((slot, status));
                return None;
            }
            Ok(head) if bytes == 0 => Frame::bare(head),
            Ok(head) => Frame { head, body: buf.take(), body_len: bytes },
        };
        flight.lent = frame.body.as_ref().map(name_of);
        if flight.lent.is_some() {
            self.queues[flight.link].lent.push_back(slot);
        }
        Some(frame)
    }

    /// Returns the heads of a request about the connection. Returns `None` if the session refuses
    /// the request, which the next turn ends.
    pub(super) fn heads(
        &mut self,
        slot: Slot,
        session: &mut ClientSession,
    ) -> Option<Vec<FrameHead>> {
        let RequestBody::Control(control) = &mut self.flights.get(slot).work else {
            unreachable!("the caller looked")
        };
        let tag = tag_of(slot);
        match &mut **control {
            ControlRequest::Hello(hello) => hello.tag = tag,
            ControlRequest::Register(register) | ControlRequest::Renegotiate(register) => {
                register.tag = tag
            }
            ControlRequest::Info { tag: place, .. }
            | ControlRequest::Find { tag: place, .. }
            | ControlRequest::List { tag: place }
            | ControlRequest::Unregister { tag: place, .. }
            | ControlRequest::Ping { tag: place } => *place = tag,
        }
        session.control(control).map_err(|status| self.refused.push((slot, status))).ok()
    }

    /// Counts one more answer that the server owes. Returns `true` if the server owed none before
    /// on this connection.
    pub(super) fn owe(&mut self, slot: Slot) -> bool {
        let flight = self.flights.get(slot);
        flight.sent = true;
        let queue = &mut self.queues[flight.link];
        queue.sent += 1;
        queue.sent == 1
    }

    /// Returns the request with this tag. Fails if it was not sent on this connection, or is
    /// answered already.
    pub(super) fn owed(
        &mut self,
        link: usize,
        tag: Tag,
    ) -> Result<(Slot, &mut Flight), ProtocolError> {
        let slot = slot_of(tag).ok_or(ProtocolError::UnknownTag(tag))?;
        match self.flights.find(slot) {
            Some(flight) if flight.link == link && flight.sent && flight.answer.is_none() => {
                Ok((slot, flight))
            }
            _ => Err(ProtocolError::UnknownTag(tag)),
        }
    }

    /// Takes back a payload from the transport. Without a link, the connection ended before.
    /// Returns the request and its status if the answer came earlier; the caller ends it.
    pub(super) fn take_back(&mut self, link: Option<usize>, buf: Buf) -> Option<(Slot, Status)> {
        let key = name_of(&buf);
        let flights = &mut self.flights;
        let lent = match link {
            Some(link) => &mut self.queues[link].lent,
            None => &mut self.orphans,
        };
        // The first slot nearly always matches; a transport that copies nothing may return payloads
        // in another order.
        let place = lent
            .iter()
            .position(|&slot| flights.get(slot).lent == Some(key))
            .expect("the transport gives back what it was lent");
        let slot = lent.remove(place).expect("it was found");
        let flight = self.flights.get(slot);
        flight.lent = None;
        let answer = flight.answer.take();
        let RequestBody::Data { buf: home, .. } = &mut flight.work else {
            unreachable!("only requests with data lend a payload")
        };
        *home = Some(buf);
        if answer.is_none() && link.is_none() {
            self.queue_again(slot);
        }
        answer.map(|status| (slot, status))
    }

    /// Ends the request. The request leaves the tables as soon as its buffer is back. Returns the
    /// link on whose connection the server owes one answer less; `None` if the buffer is still
    /// away, or the request was not sent.
    pub(super) fn finish(&mut self, slot: Slot, status: Status) -> Option<usize> {
        // Before the payload is back, when the connection may be another one.
        self.note_change(slot, status);
        let flight = self.flights.get(slot);
        if flight.lent.is_some() {
            flight.answer = Some(status);
            return None;
        }
        let flight = self.retire(slot);
        let status = match &flight.work {
            RequestBody::Data { command: Command::Flush, .. } if status.is_ok() => {
                self.durability.end_flush(flight.span)
            }
            _ => flight.outcome(status),
        };
        match flight.work {
            RequestBody::Data { command, buf, .. } => {
                self.done.push(Done { ticket: Ticket(slot), command, status, buf });
            }
            RequestBody::Control(control) => {
                self.report(unanswered(Ticket(slot), &control, status))
            }
        }
        flight.sent.then_some(flight.link)
    }

    /// Notes in the volume's [`Durability`] that the server has acknowledged a change of data, if
    /// it has.
    fn note_change(&mut self, slot: Slot, status: Status) {
        let flight = self.flights.get(slot);
        let is_open = flight.work.place().is_some_and(|(command, _)| is_open_change(command));
        if status.is_ok() && is_open {
            self.durability.change(self.queues[flight.link].storage_epoch);
        }
    }

    /// Notes the storage epoch of a link's new connection.
    pub(super) fn meet(&mut self, link: usize, storage_epoch: u32) {
        self.queues[link].storage_epoch = storage_epoch;
        self.durability.meet(storage_epoch);
    }

    /// Removes the request from the tables.
    pub(super) fn retire(&mut self, slot: Slot) -> Flight {
        let flight = self.flights.remove(slot);
        let queue = &mut self.queues[flight.link];
        queue.load -= 1;
        queue.sent -= usize::from(flight.sent);
        flight
    }

    /// Ends the requests that could not be sent.
    pub(super) fn end_refused(&mut self) {
        let mut refused = std::mem::take(&mut self.refused);
        for (slot, status) in refused.drain(..) {
            self.finish(slot, status);
        }
        self.refused = refused;
    }

    /// Moves the ended requests to the end of `done`. Returns `true` if there are any.
    pub(super) fn drain_done(&mut self, done: &mut Vec<Done>) -> bool {
        let progressed = !self.done.is_empty();
        if done.is_empty() {
            std::mem::swap(done, &mut self.done); // Nothing is copied on the way out.
        } else {
            done.append(&mut self.done);
        }
        progressed
    }

    pub(super) fn report(&mut self, report: Report) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    /// Removes and returns the reports that wait to be read.
    pub(super) fn reports(&mut self) -> impl Iterator<Item = Report> + '_ {
        self.reports.drain(..)
    }

    /// Puts the requests that were sent on a lost connection back into the link's queue, or ends
    /// those that may not be repeated.
    pub(super) fn recall(&mut self, link: usize) {
        if self.queues[link].sent == 0 {
            return;
        }
        let mut sent: Vec<(u64, Slot)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.link == link && flight.sent)
            .map(|(slot, flight)| (flight.order, slot))
            .collect();
        sent.sort_unstable_by_key(|&(order, _)| order);
        self.queues[link].lent.clear();
        let mut doomed = Vec::new();
        for &(_, slot) in sent.iter().rev() {
            let flight = self.flights.get(slot);
            flight.sent = false;
            self.queues[link].sent -= 1;
            if flight.lent.is_some() {
                self.orphans.push_back(slot);
            } else if self.count_repeat(slot) {
                self.queues[link].ready.push_front(slot);
            } else {
                doomed.push(slot);
            }
        }
        for &slot in doomed.iter().rev() {
            self.finish(slot, Status::ConnectionLost);
        }
    }

    /// Returns `true` if a request that was sent on a lost connection may be sent again, and counts
    /// the repetition.
    fn count_repeat(&mut self, slot: Slot) -> bool {
        let flight = self.flights.get(slot);
        let may = flight.work.may_repeat(self.fenced) && flight.reissues < self.reissues_max;
        flight.reissues += u8::from(may);
        may
    }

    /// Queues a request of a lost connection again, now that the transport has returned its
    /// payload. Ends the request if it may not be repeated.
    fn queue_again(&mut self, slot: Slot) {
        if self.count_repeat(slot) {
            self.put_in_order(slot);
        } else {
            self.finish(slot, Status::ConnectionLost);
        }
    }

    /// Ends all requests that wait for the connection.
    pub(super) fn forsake(&mut self, link: usize, status: Status) {
        while let Some(slot) = self.queues[link].ready.pop_front() {
            self.finish(slot, status);
        }
    }

    /// Puts a request back that a draining server did not carry out; the request waits for the next
    /// connection.
    pub(super) fn put_back(&mut self, slot: Slot) {
        let flight = self.flights.get(slot);
        flight.sent = false;
        self.queues[flight.link].sent -= 1;
        self.put_in_order(slot);
    }

    /// Returns `true` if a barrier was sent after the request in its stream, or the request is a
    /// barrier and another request was sent after it.
    ///
    /// The server goes on with the requests after the barrier, so a repetition would break their
    /// order. Instead, the submitter learns that the request was not carried out.
    pub(super) fn is_ordered(&mut self, slot: Slot) -> bool {
        let Flight { link, order, ref work, .. } = *self.flights.get(slot);
        let Some((command, stream)) = work.place() else { return false };
        self.flights.iter().any(|(_, other)| {
            let is_behind = other.link == link && other.sent && other.order > order;
            is_behind
                && other.work.place().is_some_and(|(behind, its)| {
                    its == stream && [command, behind].contains(&Command::Barrier)
                })
        })
    }

    /// Queues the request at its position in the original order.
    fn put_in_order(&mut self, slot: Slot) {
        let Flight { link, order, .. } = *self.flights.get(slot);
        let flights = &mut self.flights;
        let ready = &mut self.queues[link].ready;
        let later = ready.iter().position(|&other| flights.get(other).order > order);
        ready.insert(later.unwrap_or(ready.len()), slot);
        self.rouse(link);
    }
}

/// Returns `true` if an acknowledged command has changed data that only a flush makes durable.
fn is_open_change(command: Command) -> bool {
    match command {
        Command::Write { fua, .. } | Command::WriteZeroes { fua, .. } => !fua,
        Command::Discard(_) | Command::CompareAndWrite(_) => true,
        Command::WriteAtomic(_)
        | Command::Commit { .. }
        | Command::Read(_)
        | Command::Compare(_)
        | Command::Flush
        | Command::Barrier => false,
    }
}

/// Returns the report of a control request that ended without an answer.
fn unanswered(ticket: Ticket, control: &ControlRequest, status: Status) -> Report {
    match control {
        ControlRequest::Info { .. } | ControlRequest::Find { .. } => {
            Report::Info(ticket, Err(status))
        }
        ControlRequest::Ping { .. } | ControlRequest::List { .. } | ControlRequest::Hello(_) => {
            Report::Pong(ticket, status)
        }
        ControlRequest::Register(_)
        | ControlRequest::Renegotiate(_)
        | ControlRequest::Unregister { .. } => {
            Report::Tenant(ticket, status, TenantReply::default())
        }
    }
}

/// Returns the tag of a request on the wire. Version 1 forbids zero.
fn tag_of(slot: Slot) -> Tag {
    u64::from(slot.to_bits()) + 1
}

/// Returns the slot of a tag; `None` if this initiator can have made no such tag.
fn slot_of(tag: Tag) -> Option<Slot> {
    u32::try_from(tag.checked_sub(1)?).ok().map(Slot::from_bits)
}

/// The identity of a buffer: its address and its index, since two requests may send bytes at the
/// same address.
type BufName = (usize, u32);

/// Returns the buffer's name, which differs from that of every other buffer.
fn name_of(buf: &Buf) -> BufName {
    (buf.bytes().as_ptr().addr(), buf.index())
}
