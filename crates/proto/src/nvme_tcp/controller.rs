//! The controller's end of a connection.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use contract::{
    ConnId, Event, Expected, Fatal, Fence, FrameHead, Instant, Reply, Request, Session, Slot,
    Status, Tag, TenantId,
};
use wire::nvme::{SglKind, Status as NvmeStatus, Submission};
use wire::nvme_tcp::{
    ALIGNMENT_MAX, CommonHeader, DataHead, FatalStatus, InitRequest, InitResponse, PDU_FORMAT_1_0,
    PduType, TERM_DATA_BYTES_MAX, Terminate, digests, flags,
};
use zerocopy::{FromBytes, FromZeros};

use super::encode::{self, Outbox, Style};
use super::framer::{Broken, Digests, Framer, HEADER_BYTES_MAX, Head, Kind, Offending, Part};
use super::{CAPSULE_DATA_BYTES_MAX, DATA_BYTES_MAX, DATA_OFFSET_SERVED_MAX, Desk};
use crate::nvme::{Answer, Fused, Io, PortId, Queue, Step};

use fused::{Half, Pair};
use own::{Own, before_connect};

mod fused;
mod own;
mod packed;

/// The PDUs that a host may send.
const FROM_HOSTS: &[Kind] = &[
    Kind::with_data(PduType::COMMAND, 72, CAPSULE_DATA_BYTES_MAX),
    Kind::with_data(PduType::HOST_DATA, 24, DATA_BYTES_MAX),
    Kind::plain(PduType::INIT_REQUEST, 128, 0),
    Kind::plain(PduType::HOST_TERMINATES, 24, TERM_DATA_BYTES_MAX),
];

/// The commands that may be in progress before the queue's size is known: one Connect.
const BEFORE_CONNECT: usize = 1;

/// The controller's end of NVMe over TCP on one connection.
#[derive(Debug)]
pub struct TargetSession {
    desk: Rc<Desk>,
    port: PortId,
    conn: ConnId,
    /// The peer's address; `None` if failed authentications are not counted by it.
    address: Option<IpAddr>,
    /// `true` if the peer may have a queue at all.
    is_let_in: bool,
    phase: Phase,
    framer: Framer,
    style: Style,
    /// The queue, after a successful Connect.
    queue: Option<Queue>,
    /// The number under which a migrated session's queue arrives, until the session has a
    /// connection; and whether it comes from another process.
    number: Option<u64>,
    is_foreign: bool,
    /// `true` if the host has disabled flow control of its submission queue. Data may then report
    /// that its command succeeded (section 3.6.2.9).
    says_success: bool,
    /// The tenant that the last request was charged to; `None` means the connection's tenant.
    tenant: Option<TenantId>,
    /// The queue's [`generation`](Queue::generation) when `tenant` was announced.
    tenant_as_of: u64,
    /// The epoch of the queue's fence under which the current command is permitted.
    as_of: u32,
    /// The index of a fused compare whose write has not come.
    compare: Option<u16>,
    /// The destination of the data that is being received.
    data: Data,
    /// Commands in progress, by index; at most `places_max`.
    exchanges: Vec<Exchange>,
    vacant: Vec<u16>,
    places_max: usize,
    /// The number of commands whose data was requested and has not all come.
    asked: usize,
    /// Events without bytes of their own, oldest first. The next calls of [`Session::next_event`]
    /// return them.
    pending: VecDeque<Pending>,
    /// Commands of the controller itself that have come with their payload, oldest first.
    /// [`Session::attend`] carries them out. Some wait here while two processes have controllers.
    ready: VecDeque<Own>,
    /// The answer, with its data, to a command that ends the queue: a Disconnect or a failed
    /// authentication. [`Session::attend`] sends it once the queue has no request at a device.
    parting: Option<(Answer, Vec<u8>)>,
    /// The end of the connection, which [`Session::attend`] reports.
    goodbye: Option<Fatal>,
    outbox: Outbox,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The host has sent nothing; an ICReq ends this phase.
    Initial,
    /// Capsules may come; the end of the queue ends this phase.
    Open,
    /// All further input is ignored.
    Over,
}

/// The destination of the data of the current PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// The data is skipped, because its command was refused.
    Skipped,
    /// The data belongs to the last request.
    Request,
    /// The data belongs to a request that asked for it.
    Piece { place: u16 },
    /// The data belongs to a command of the controller itself.
    Own { place: u16 },
    /// The data belongs to half of a fused operation, which keeps it until there is a buffer.
    Held { place: u16 },
}

/// An event that waits for the next call.
#[derive(Clone, Debug)]
enum Pending {
    Own,
    Fenced(Arc<Fence>),
    Attached(Option<TenantId>),
    Request(Request),
    Awaited(Request),
}

/// A command in progress.
#[derive(Debug)]
enum Exchange {
    Vacant,
    /// The worker carries out the command.
    Device {
        io: Io,
        transfer: Option<Transfer>,
        as_of: u32,
    },
    /// The controller will carry out the command. Its payload is on its way: in the capsule, or
    /// `is_asked`.
    Own {
        own: Own,
        wanted: usize,
        is_asked: bool,
    },
    /// A fused compare. Its write, or another command, ends this state.
    Compare(Half),
    /// A fused compare whose write has index `of`.
    Partner {
        of: u16,
    },
    /// A fused write with its compare.
    Fused(Box<Pair>),
    /// A discard of several ranges, `left` of which have not ended.
    Discard {
        io: Io,
        left: usize,
        status: Status,
        as_of: u32,
    },
}

/// A payload that was requested.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    slot: Slot,
    /// The received bytes: `came ≤ wanted`.
    came: usize,
    wanted: usize,
    /// The worst status of the received data.
    verdict: Status,
}

impl TargetSession {
    /// Creates a session for a new connection that came through a listener of this port. `desk` is
    /// its worker's.
    pub fn new(desk: Rc<Desk>, port: PortId, conn: ConnId) -> Self {
        TargetSession {
            desk,
            port,
            conn,
            address: None,
            is_let_in: true,
            phase: Phase::Initial,
            framer: Framer::new(FROM_HOSTS),
            style: Style::PLAIN,
            queue: None,
            number: None,
            is_foreign: false,
            says_success: false,
            tenant: None,
            tenant_as_of: 0,
            as_of: 0,
            compare: None,
            data: Data::Skipped,
            exchanges: Vec::new(),
            vacant: Vec::new(),
            places_max: BEFORE_CONNECT,
            asked: 0,
            pending: VecDeque::new(),
            ready: VecDeque::new(),
            parting: None,
            goodbye: None,
            outbox: Outbox::default(),
        }
    }

    /// Creates a session for a peer that may have no queue here: its Connect is refused.
    pub fn refusing(desk: Rc<Desk>, port: PortId, conn: ConnId) -> Self {
        TargetSession { is_let_in: false, ..TargetSession::new(desk, port, conn) }
    }

    /// Sets the peer's address, by which failed authentications are counted.
    pub fn from_address(self, address: IpAddr) -> Self {
        TargetSession { address: Some(address), ..self }
    }

    /// Processes the header of a PDU. Most have an event at once, the others when their data has
    /// come.
    fn begin(&mut self, head: &Head<'_>) -> Result<Option<Pending>, Broken> {
        self.data = Data::Skipped;
        match (self.phase, head.common().pdu_type) {
            (Phase::Over, _) => Ok(None),
            (_, PduType::HOST_TERMINATES) => {
                let (head, _) = Terminate::read_from_prefix(head.bytes).expect("its size");
                self.phase = Phase::Over;
                self.goodbye = Some(Fatal::Ended(u32::from(head.status.0.get())));
                Ok(Some(Pending::Own))
            }
            (Phase::Initial, PduType::INIT_REQUEST) => {
                self.initialize(head)?;
                Ok(Some(Pending::Own))
            }
            (Phase::Open, PduType::COMMAND) => self.command(head),
            (Phase::Open, PduType::HOST_DATA) => self.host_data(head).map(|()| None),
            _ => Err(Broken::plain(FatalStatus::SEQUENCE)),
        }
    }

    /// Processes ICReq (section 3.6.2.2), which negotiates digests and alignment.
    fn initialize(&mut self, head: &Head<'_>) -> Result<(), Broken> {
        let (request, _) = InitRequest::read_from_prefix(head.bytes).expect("its size");
        let unsupported =
            |offset: u32| Broken { status: FatalStatus::UNSUPPORTED, information: offset };
        if request.format.get() != PDU_FORMAT_1_0 {
            return Err(unsupported(8));
        }
        if request.alignment > ALIGNMENT_MAX {
            return Err(Broken::field(10));
        }
        let agreed = Digests {
            header: request.digests & digests::HEADER != 0,
            data: request.digests & digests::DATA != 0,
        };
        let style = Style { digests: agreed, alignment: (usize::from(request.alignment) + 1) * 4 };
        if style.data_offset(size_of::<DataHead>()) > DATA_OFFSET_SERVED_MAX {
            return Err(unsupported(10));
        }
        let header_bytes = size_of::<InitResponse>();
        let mut response = InitResponse::new_zeroed();
        response.common = CommonHeader {
            pdu_type: PduType::INIT_RESPONSE,
            flags: 0,
            header_bytes: header_bytes as u8,
            data_offset: 0,
            pdu_bytes: (header_bytes as u32).into(),
        };
        response.format = PDU_FORMAT_1_0.into();
        response.digests = request.digests & (digests::HEADER | digests::DATA);
        response.data_bytes_max = DATA_BYTES_MAX.into();
        self.outbox.plain(&response);
        self.style = style;
        self.framer.digests = agreed;
        self.phase = Phase::Open;
        Ok(())
    }

    /// Processes a command's capsule.
    fn command(&mut self, head: &Head<'_>) -> Result<Option<Pending>, Broken> {
        let entry = &head.bytes[size_of::<CommonHeader>()..];
        let entry = Submission::ref_from_bytes(entry).expect("a capsule holds an entry");
        let data_bytes = head.data_bytes as usize;
        let step = match &mut self.queue {
            Some(queue) => {
                // The epoch is read first, so that rights withdrawn meanwhile belong to a later
                // epoch.
                self.as_of = queue.fence().epoch();
                queue.begin(entry)
            }
            None => before_connect(entry),
        };
        if let Some(orphan) = self.queue.as_mut().and_then(Queue::orphan) {
            let place = self.compare.take().expect("its compare came");
            self.vacate(place);
            self.answer(orphan, &[]);
            self.pending.push_back(Pending::Own);
        }
        match step {
            Step::Device(io) => self.device(io, entry, data_bytes),
            Step::Controller { payload_bytes } => self.own(*entry, data_bytes, payload_bytes),
            Step::Refused(answer) => {
                self.answer(answer, &[]);
                Ok(Some(Pending::Own))
            }
        }
    }

    /// Turns a command for a device into a request.
    fn device(
        &mut self,
        io: Io,
        entry: &Submission,
        data_bytes: usize,
    ) -> Result<Option<Pending>, Broken> {
        let is_here = match (io.fused, carries(entry, data_bytes, io.payload_bytes)) {
            (Fused::None, Ok(is_here)) => is_here,
            (Fused::None, Err(status)) => {
                self.answer(Answer::error(io.cid, status), &[]);
                return Ok(Some(Pending::Own));
            }
            (_, carried) => return self.half(io, carried),
        };
        let as_of = self.as_of;
        let place = self.place(Exchange::Device { io, transfer: None, as_of })?;
        let request = Request {
            tag: Tag::from(place),
            stream: 0,
            namespace: Some(io.namespace),
            tenant: 0,
            command: io.command,
            payload_bytes: io.payload_bytes,
            verdict: Status::Ok,
        };
        let mut event = Pending::Request(request);
        if is_here {
            self.data = Data::Request;
        } else if io.payload_bytes > 0 {
            event = Pending::Awaited(request);
        }
        Ok(Some(self.charged(io.tenant, event)))
    }

    /// Returns a request's event, preceded by the announcement of its tenant if that has changed.
    fn charged(&mut self, tenant: Option<TenantId>, event: Pending) -> Pending {
        if !self.is_another(tenant) {
            return event;
        }
        self.pending.push_back(event);
        Pending::Attached(tenant)
    }

    /// Returns `true` if the tenant of the next request has to be announced. A tenant's number may
    /// have been reused, so the tenant is announced again whenever anything about the controller
    /// has changed.
    fn is_another(&mut self, tenant: Option<TenantId>) -> bool {
        let as_of = self.queue.as_ref().map_or(0, Queue::generation);
        if tenant == self.tenant && (tenant.is_none() || as_of == self.tenant_as_of) {
            return false;
        }
        (self.tenant, self.tenant_as_of) = (tenant, as_of);
        true
    }

    /// Processes H2CData (section 3.6.2.8): requested data, in order.
    fn host_data(&mut self, head: &Head<'_>) -> Result<(), Broken> {
        let (data, _) = DataHead::read_from_prefix(head.bytes).expect("its size");
        let place = data.tag.get();
        let (cid, came, wanted) = match self.exchanges.get(usize::from(place)) {
            Some(Exchange::Device { io, transfer: Some(transfer), .. }) => {
                self.data = Data::Piece { place };
                (io.cid, transfer.came, transfer.wanted)
            }
            Some(Exchange::Own { own, wanted, is_asked: true }) => {
                self.data = Data::Own { place };
                {
                    let (cid, came) = own.came();
                    (cid, came, *wanted)
                }
            }
            _ => {
                let awaited = self.pair(place).and_then(|(pair, half)| pair.awaited(half));
                self.data = Data::Piece { place };
                awaited.ok_or(Broken::field(10))?
            }
        };
        if data.command.get() != cid {
            return Err(Broken::field(8));
        }
        let (offset, bytes) = (data.offset.get() as usize, data.bytes.get() as usize);
        if bytes == 0 || bytes != head.data_bytes as usize {
            return Err(Broken::field(16));
        }
        if offset != came || bytes > wanted - came {
            return Err(Broken::plain(FatalStatus::OUT_OF_RANGE));
        }
        let is_last = offset + bytes == wanted;
        if is_last != (data.common.flags & flags::LAST_PDU != 0) {
            return Err(Broken::field(1));
        }
        Ok(())
    }

    /// Passes data on to its destination.
    fn data<'a>(&mut self, bytes: &'a [u8], end: Option<Status>) -> Option<Event<'a>> {
        match self.data {
            Data::Skipped => None,
            Data::Request => Some(Event::Payload { bytes, end }),
            Data::Piece { place } => self.piece(place, bytes, end),
            Data::Own { place } => self.gather(place, bytes, end),
            Data::Held { place } => {
                let half = match &mut self.exchanges[usize::from(place)] {
                    Exchange::Compare(half) => half,
                    Exchange::Fused(pair) => &mut pair.halves[1],
                    _ => unreachable!("its data was announced"),
                };
                half.hold(bytes, end);
                let is_second = matches!(self.exchanges[usize::from(place)], Exchange::Fused(_));
                (end.is_some() && is_second).then(|| self.fused(place).into())
            }
        }
    }

    /// Passes on a piece of a request's payload. Each of its PDUs may have a digest of its own; the
    /// end of the last one comes with the worst status of all.
    fn piece<'a>(&mut self, place: u16, bytes: &'a [u8], end: Option<Status>) -> Option<Event<'a>> {
        if let Some((pair, half)) = self.pair(place) {
            let taken = pair.take(half, bytes.len(), end);
            self.asked -= usize::from(taken.is_half);
            let (slot, offset, end) = (taken.slot, taken.offset, taken.end);
            let tells = !bytes.is_empty() || end.is_some();
            return tells.then_some(Event::Piece { slot, offset, bytes, end });
        }
        let exchange = &mut self.exchanges[usize::from(place)];
        let Exchange::Device { transfer: slot @ Some(_), .. } = exchange else {
            unreachable!("its data was announced")
        };
        let transfer = slot.as_mut().expect("matched above");
        let offset = transfer.came;
        transfer.came += bytes.len();
        if let Some(status) = end
            && !status.is_ok()
        {
            transfer.verdict = status;
        }
        let Transfer { slot: request, came, wanted, verdict } = *transfer;
        let end = (end.is_some() && came == wanted).then_some(verdict);
        if end.is_some() {
            *slot = None;
            self.asked -= 1;
        } else if bytes.is_empty() {
            return None;
        }
        Some(Event::Piece { slot: request, offset, bytes, end })
    }

    /// Returns an index for a command in progress. A host with more commands than its queue has
    /// entries breaks the protocol.
    fn place(&mut self, exchange: Exchange) -> Result<u16, Broken> {
        if let Some(place) = self.vacant.pop() {
            self.exchanges[usize::from(place)] = exchange;
            return Ok(place);
        }
        if self.exchanges.len() == self.places_max {
            return Err(Broken::plain(FatalStatus::SEQUENCE));
        }
        self.exchanges.push(exchange);
        Ok((self.exchanges.len() - 1) as u16)
    }

    fn vacate(&mut self, place: u16) -> Exchange {
        self.vacant.push(place);
        core::mem::replace(&mut self.exchanges[usize::from(place)], Exchange::Vacant)
    }

    /// Sends the answer to a command, with its data if it succeeded.
    fn answer(&mut self, answer: Answer, data: &[u8]) {
        let completion = match &mut self.queue {
            Some(queue) => queue.seal(answer),
            None => answer.completion(0),
        };
        let data = if answer.status.is_ok() { data } else { &[] };
        self.outbox.answer(&self.style, &completion, data);
    }

    /// Ends the connection, and tells the host why.
    fn broken(&mut self, broken: Broken, offending: &[u8]) -> Fatal {
        self.phase = Phase::Over;
        self.outbox.terminate(PduType::CONTROLLER_TERMINATES, broken, offending);
        broken.fatal()
    }
}

impl Session for TargetSession {
    fn next_event<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fatal> {
        if let Some(pending) = self.pending.pop_front() {
            return Ok(Some(pending.into()));
        }
        loop {
            let mut room = [0; HEADER_BYTES_MAX];
            let (broken, offending) = match self.framer.next(input, &mut room) {
                Ok(None) => return Ok(None),
                Ok(Some(Part::Data { bytes, end })) => match self.data(bytes, end) {
                    None => continue,
                    event => return Ok(event),
                },
                Ok(Some(Part::Head(head))) => match self.begin(&head) {
                    Ok(None) => continue,
                    Ok(Some(event)) => return Ok(Some(event.into())),
                    Err(broken) => (broken, Offending::new(head.bytes)),
                },
                Err(blame) => *blame,
            };
            return Err(self.broken(broken, offending.bytes()));
        }
    }

    fn has_more(&self) -> bool {
        !self.pending.is_empty()
    }

    fn expects(&self) -> Option<Expected> {
        let bytes = self.framer.data_left();
        if bytes == 0 || self.has_more() {
            return None;
        }
        match self.data {
            Data::Request => Some(Expected { place: None, bytes }),
            Data::Piece { place } => match &self.exchanges[usize::from(place)] {
                Exchange::Device { transfer: Some(transfer), .. } => {
                    Some(Expected { place: Some((transfer.slot, transfer.came)), bytes })
                }
                _ => None, // halves of a fused operation are small
            },
            Data::Skipped | Data::Own { .. } | Data::Held { .. } => None,
        }
    }

    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, Fatal> {
        let Reply::Done { tag, status, .. } = *reply else { return Ok(FrameHead::new(&[])) };
        if self.parting.is_some() {
            self.desk.call(self.conn);
        }
        let place = tag as u16;
        let (io, status) = match &mut self.exchanges[usize::from(place)] {
            Exchange::Discard { left, status: worst, io, .. } => {
                *left -= 1;
                if worst.is_ok() {
                    *worst = status;
                }
                if *left > 0 {
                    return Ok(FrameHead::new(&[]));
                }
                (*io, *worst)
            }
            Exchange::Device { io, .. } => (*io, status),
            Exchange::Fused(_) => {
                let answers = self.end_fused(place, status);
                let queue = self.queue.as_mut().expect("only a queue has devices");
                let [first, second] = answers.map(|answer| queue.seal(answer));
                let heads = [self.style.response(&first), self.style.response(&second)];
                return Ok(encode::bare_all(&self.style, &heads));
            }
            other => panic!("a worker answered {other:?}"),
        };
        self.vacate(place);
        let queue = self.queue.as_mut().expect("only a queue has devices");
        let answer = queue.complete(&io, status);
        let completion = queue.seal(answer);
        if body.is_empty() || io.reply_bytes == 0 || !answer.status.is_ok() {
            let head = encode::bare(&self.style, &self.style.response(&completion));
            return Ok(head.without_body());
        }
        let completion = (!self.says_success).then_some(&completion);
        Ok(encode::read_reply(&self.style, io.cid, body, completion))
    }

    fn invite(&mut self, tag: Tag, slot: Slot, room: &mut [u8]) -> FrameHead {
        let place = tag as u16;
        let style = self.style;
        if let Some((pair, _)) = self.pair(place) {
            pair.settle(slot, room);
            let places = [pair.first_place, place];
            let awaited = [0, 1].map(|half| Some((places[half], pair.awaited(half)?)));
            let heads = awaited
                .into_iter()
                .flatten()
                .map(|(place, (cid, _, wanted))| style.ready(cid, place, wanted));
            let heads: Vec<_> = heads.collect();
            self.asked += heads.len();
            return encode::bare_all(&style, &heads);
        }
        let Exchange::Device { io, transfer, .. } = &mut self.exchanges[usize::from(place)] else {
            panic!("request {tag} was not awaited")
        };
        let wanted = io.payload_bytes;
        *transfer = Some(Transfer { slot, came: 0, wanted, verdict: Status::Ok });
        self.asked += 1;
        encode::bare(&self.style, &self.style.ready(io.cid, place, wanted))
    }

    fn allowed_as_of(&self, tag: Tag) -> u32 {
        match &self.exchanges[tag as usize] {
            Exchange::Device { as_of, .. } | Exchange::Discard { as_of, .. } => *as_of,
            Exchange::Fused(pair) => pair.as_of,
            other => panic!("a worker asks about {other:?}"),
        }
    }

    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        let queue = self.queue.as_mut().expect("only a queue has a fence");
        let now = queue.fence().epoch();
        let (io, as_of) = match &mut self.exchanges[tag as usize] {
            Exchange::Device { io, as_of, .. } | Exchange::Discard { io, as_of, .. } => {
                (*io, as_of)
            }
            Exchange::Fused(pair) => (pair.halves[1].io, &mut pair.as_of),
            other => panic!("a worker asks about {other:?}"),
        };
        // The queue gives the reason when the command is answered.
        queue.permits(&io).map_err(|_| Status::Retry)?;
        *as_of = now;
        Ok(now)
    }

    fn attend(&mut self, now: Instant) -> Result<(), Fatal> {
        if let Some(fatal) = self.goodbye.take() {
            return Err(fatal);
        }
        self.hear()?;
        self.part()?;
        for _ in 0..self.ready.len() {
            let own = self.ready.pop_front().expect("they were just counted");
            if let Some(held) = self.waits(&own) {
                self.put_off(own, held);
            } else if !self.execute(&own, now) {
                self.phase = Phase::Over;
                return Err(Fatal::Ended(0));
            }
        }
        Ok(())
    }

    fn unsaid(&self) -> usize {
        self.outbox.len()
    }

    fn speak(&mut self, to: &mut [u8]) -> usize {
        self.outbox.take(to)
    }

    fn leave(&mut self) {
        self.phase = Phase::Over;
        if let Some(queue) = &self.queue {
            queue.leave();
        }
    }

    fn moves_to(&self, worker: u16) -> bool {
        // A session goes to another process if its controller does.
        self.desk.has_worker(worker) || self.queue.as_ref().is_some_and(Queue::is_called)
    }

    fn is_settled(&self) -> bool {
        self.is_at_ease()
    }

    fn pack(&mut self) -> Vec<u8> {
        self.pack_up()
    }

    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        self.take_queue(conn);
        let queue = self.queue.as_ref().filter(|queue| queue.id() != 0);
        queue.map(|queue| Arc::clone(queue.fence()))
    }

    fn protocol(&self) -> contract::Protocol {
        contract::Protocol::NvmeTcp
    }

    fn is_mid_message(&self) -> bool {
        self.framer.is_mid_pdu() || self.asked > 0
    }

    fn takes_notices(&self) -> bool {
        false
    }
}

impl From<Pending> for Event<'_> {
    fn from(pending: Pending) -> Self {
        match pending {
            Pending::Own => Event::Own,
            Pending::Fenced(fence) => Event::Fenced(fence),
            Pending::Attached(tenant) => Event::Attached(tenant),
            Pending::Request(request) => Event::Request(request),
            Pending::Awaited(request) => Event::Awaited(request),
        }
    }
}

/// Returns `true` if the capsule carries the command's payload; otherwise the payload has to be
/// requested.
fn carries(entry: &Submission, data_bytes: usize, wanted: usize) -> Result<bool, NvmeStatus> {
    let said = entry.data.length.get() as usize;
    match entry.data.kind {
        _ if wanted == 0 => Ok(false),
        SglKind::DATA_OFFSET if entry.data.address.get() != 0 => Err(NvmeStatus::SGL_OFFSET.dnr()),
        SglKind::DATA_OFFSET if said == wanted && data_bytes == wanted => Ok(true),
        SglKind::TRANSPORT if said == wanted => Ok(false),
        SglKind::DATA_OFFSET | SglKind::TRANSPORT => Err(NvmeStatus::DATA_SGL_LENGTH.dnr()),
        _ => Err(NvmeStatus::SGL_KIND.dnr()),
    }
}
