//! The controller's end of an NVMe/TCP connection.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use contract::{
    Command, CompletedPrelude, ConnId, ExpectedPayload, Fence, FrameHead, Instant,
    MigratableSession, ProtocolError, PskMark, Reply, Request, RevocablePermissions, Session,
    SessionEvent, Slot, Status, Tag, TenantId, UnsolicitedOutput,
};
use wire::nvme::{SglKind, Status as NvmeStatus, Submission};
use wire::nvme_tcp::{
    ALIGNMENT_MAX, CommonHeader, DataHead, FatalStatus, InitRequest, InitResponse, PDU_FORMAT_1_0,
    PduType, TERM_DATA_BYTES_MAX, Terminate, flags,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::encode::{self, Outbox, PduFormat};
use super::framer::{
    Digests, Framer, HEADER_BYTES_MAX, OffendingHeader, PduHeader, PduKind, PduPart, PduViolation,
};
use super::{CAPSULE_DATA_BYTES_MAX, DATA_BYTES_MAX, DATA_OFFSET_SERVED_MAX, WorkerFabric};
use crate::nvme::psk::TlsIdentity;
use crate::nvme::{
    CommandResult, DeviceRequest, FusedPart, LockBusy, PortId, Queue, SubmissionStep,
};

use exchanges::{DataTarget, Exchange, Exchanges, OwnCommand};
use own::RunProgress;

mod exchanges;
mod fused;
mod own;
mod packed;

/// The PDUs that a host may send, with the sizes of their headers and the most data of each.
const FROM_HOSTS: &[PduKind] = &[
    PduKind::with_data(PduType::COMMAND, 72, CAPSULE_DATA_BYTES_MAX),
    PduKind::with_data(PduType::HOST_DATA, 24, DATA_BYTES_MAX),
    PduKind::plain(PduType::INIT_REQUEST, 128, 0),
    PduKind::plain(PduType::HOST_TERMINATES, 24, TERM_DATA_BYTES_MAX),
];

/// The peer of a connection, and the port (listener) by which it came.
#[derive(Debug)]
struct Peer {
    port: PortId,
    conn: ConnId,
    /// The peer's address; `None` if failed authentications are not counted by it.
    address: Option<IpAddr>,
    /// `true` if the peer may have a queue; otherwise its Connect is refused.
    is_let_in: bool,
    /// The names for which the peer has proven a key of TLS; `None` without TLS.
    identity: Option<Box<TlsIdentity>>,
    /// The mark of that key.
    proven: Option<PskMark>,
}

impl Peer {
    fn new(port: PortId, conn: ConnId) -> Peer {
        Peer { port, conn, address: None, is_let_in: true, identity: None, proven: None }
    }
}

/// The queue of a migrated session, until its controller knows the session's new connection.
#[derive(Debug, Default)]
struct MigratedQueue {
    /// The number under which the queue arrives; `None` once it is claimed, or without a queue.
    number: Option<u64>,
    /// `true` if the queue comes from another process.
    is_foreign: bool,
    /// `true` if the controller does not know the new connection yet.
    is_unsettled: bool,
}

/// A command that waits until its queue can fetch a view, because another thread changes the
/// fabric.
#[derive(Debug)]
struct BlockedCommand {
    common: CommonHeader,
    entry: Submission,
    data_bytes: usize,
}

/// The tenant that the session has announced to the worker for its last request.
#[derive(Debug, Default)]
struct ChargedTenant {
    /// The tenant; `None` means the connection's tenant.
    tenant: Option<TenantId>,
    /// The queue's [`generation`](Queue::generation) when the tenant was announced.
    generation: u64,
}

impl ChargedTenant {
    /// Notes the tenant of the next request, and returns `true` if it has to be announced. Since
    /// tenants' numbers may be reused, the tenant is announced again after any change of the
    /// controller.
    fn change(&mut self, tenant: Option<TenantId>, generation: u64) -> bool {
        if tenant == self.tenant && (tenant.is_none() || generation == self.generation) {
            return false;
        }
        *self = ChargedTenant { tenant, generation };
        true
    }
}

/// Commands of the controller itself that wait for [`UnsolicitedOutput::attend`].
#[derive(Debug, Default)]
struct OwnCommands {
    /// Commands with complete payloads, oldest first. Commands that are [held
    /// back](crate::nvme::HeldCommands) in an upgrade wait here.
    ready: VecDeque<OwnCommand>,
    /// The answer, with its data, to a command that ends the queue: a Disconnect or a failed
    /// authentication. The session sends it when no data-changing request of the queue is at a
    /// device.
    parting: Option<(CommandResult, Vec<u8>)>,
    /// The command that blocks further input. [`UnsolicitedOutput::attend`] carries it out when the
    /// fabric is free.
    blocked: Option<Box<BlockedCommand>>,
}

/// The controller's end of NVMe over TCP on one connection.
#[derive(Debug)]
pub struct ControllerSession {
    desk: Rc<WorkerFabric>,
    peer: Peer,
    phase: Phase,
    framer: Framer,
    style: PduFormat,
    /// The connection's queue; `None` before a successful Connect.
    queue: Option<Queue>,
    arriving: MigratedQueue,
    /// `true` if the host has disabled flow control of its submission queue. Data may then report
    /// that its command succeeded (section 3.6.2.9).
    says_success: bool,
    charged: ChargedTenant,
    /// The epoch of the queue's fence under which the current command is permitted.
    as_of: u32,
    /// The destination of the data of the PDU whose header came last.
    data: DataTarget,
    exchanges: Exchanges,
    /// Events without bytes of their own, oldest first, which the next calls of
    /// [`Session::next_event`] return.
    pending: VecDeque<PendingEvent>,
    own: OwnCommands,
    /// The reason to end the connection, which [`UnsolicitedOutput::attend`] reports; `None` while
    /// it goes on.
    goodbye: Option<ProtocolError>,
    outbox: Outbox,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The host has sent nothing; an ICReq ends this phase.
    Initial,
    /// Capsules may come; the end of the queue ends this phase.
    Open,
    /// The connection ends, and all further input is ignored.
    Over,
}

/// An event that waits for the next call of [`Session::next_event`].
#[derive(Clone, Debug)]
enum PendingEvent {
    Own,
    Fenced(Arc<Fence>),
    Attached(Option<TenantId>),
    Request(Request),
    Awaited(Request),
}

impl ControllerSession {
    /// Creates a session for a new connection through a listener of this port. `desk` is the
    /// worker's access to the fabric.
    pub fn new(desk: Rc<WorkerFabric>, port: PortId, conn: ConnId) -> Self {
        ControllerSession {
            desk,
            peer: Peer::new(port, conn),
            phase: Phase::Initial,
            framer: Framer::new(FROM_HOSTS),
            style: PduFormat::PLAIN,
            queue: None,
            arriving: MigratedQueue::default(),
            says_success: false,
            charged: ChargedTenant::default(),
            as_of: 0,
            data: DataTarget::Skipped,
            exchanges: Exchanges::new(),
            pending: VecDeque::new(),
            own: OwnCommands::default(),
            goodbye: None,
            outbox: Outbox::default(),
        }
    }

    /// Creates a session for a peer that may have no queue here: its Connect is refused.
    pub fn refusing(desk: Rc<WorkerFabric>, port: PortId, conn: ConnId) -> Self {
        let mut session = ControllerSession::new(desk, port, conn);
        session.peer.is_let_in = false;
        session
    }

    /// Sets the peer's address, by which failed authentications are counted.
    pub fn from_address(mut self, address: IpAddr) -> Self {
        self.peer.address = Some(address);
        self
    }

    /// Sets what a connection over TLS began with: the identity of the peer's key. The peer has to
    /// connect by the names in it, while its host has that key.
    pub fn after(mut self, opening: &CompletedPrelude) -> Self {
        let identity = TlsIdentity::parse(&opening.heard);
        self.peer.is_let_in &= identity.is_some();
        self.peer.identity = identity.map(Box::new);
        self.peer.proven = opening.proven;
        self
    }

    /// Processes the header of a PDU. Returns the PDU's event, or `None` if it has none before its
    /// data has come.
    #[inline]
    fn begin(&mut self, head: &PduHeader<'_>) -> Result<Option<PendingEvent>, PduViolation> {
        self.data = DataTarget::Skipped;
        match (self.phase, head.common().pdu_type) {
            (Phase::Over, _) => Ok(None),
            (_, PduType::HOST_TERMINATES) => {
                let (head, _) = Terminate::read_from_prefix(head.bytes).expect("its size");
                self.phase = Phase::Over;
                self.goodbye = Some(ProtocolError::Ended(u32::from(head.status.0.get())));
                Ok(Some(PendingEvent::Own))
            }
            (Phase::Initial, PduType::INIT_REQUEST) => {
                let (response, style) = negotiate(head)?;
                self.outbox.plain(&response);
                (self.style, self.framer.digests) = (style, style.digests);
                self.phase = Phase::Open;
                Ok(Some(PendingEvent::Own))
            }
            (Phase::Open, PduType::COMMAND) => {
                let entry = &head.bytes[size_of::<CommonHeader>()..];
                let entry = Submission::ref_from_bytes(entry).expect("a capsule holds an entry");
                self.command(head.common(), entry, head.data_bytes as usize)
            }
            (Phase::Open, PduType::HOST_DATA) => self.host_data(head).map(|()| None),
            _ => Err(PduViolation::plain(FatalStatus::SEQUENCE)),
        }
    }

    /// Processes a command's capsule; `None` if its data has to come first, or the fabric is busy.
    #[inline]
    fn command(
        &mut self,
        common: &CommonHeader,
        entry: &Submission,
        data_bytes: usize,
    ) -> Result<Option<PendingEvent>, PduViolation> {
        let step = match &mut self.queue {
            Some(queue) => {
                // The epoch is read first, so that rights withdrawn meanwhile belong to a later
                // epoch.
                self.as_of = queue.fence().epoch();
                queue.begin(entry)
            }
            None => own::before_connect(entry),
        };
        if let Some(orphan) = self.queue.as_mut().and_then(Queue::orphan) {
            self.exchanges.vacate_compare();
            self.answer(orphan, &[]);
            self.pending.push_back(PendingEvent::Own);
        }
        match step {
            SubmissionStep::Device(io) => self.device(&io, entry, data_bytes),
            SubmissionStep::Controller { payload_bytes } => {
                self.own(*entry, data_bytes, payload_bytes)
            }
            SubmissionStep::Refused(answer) => {
                self.answer(answer, &[]);
                Ok(Some(PendingEvent::Own))
            }
            SubmissionStep::Busy => {
                // No more input is taken until the fabric is not busy any more.
                let blocked = BlockedCommand { common: *common, entry: *entry, data_bytes };
                self.own.blocked = Some(Box::new(blocked));
                self.desk.call_when_free(self.peer.conn);
                Ok(None)
            }
        }
    }

    /// Carries out the command that blocks further input, if there is one.
    ///
    /// # Errors
    /// Returns a [`ProtocolError`] reason to end the connection.
    fn unblock(&mut self) -> Result<(), ProtocolError> {
        let Some(blocked) = self.own.blocked.take() else { return Ok(()) };
        let BlockedCommand { common, entry, data_bytes } = *blocked;
        match self.command(&common, &entry, data_bytes) {
            // Before the events that belong to it.
            Ok(event) => event.into_iter().for_each(|event| self.pending.push_front(event)),
            Err(broken) => {
                let head = [common.as_bytes(), entry.as_bytes()].concat();
                return Err(self.broken(broken, &head));
            }
        }
        Ok(())
    }

    /// Tells the controller the new connection of a migrated queue.
    fn settle(&mut self) {
        let Some(queue) = self.queue.as_mut().filter(|_| self.arriving.is_unsettled) else {
            return;
        };
        match queue.settle(self.peer.conn) {
            Ok(()) => self.arriving.is_unsettled = false,
            Err(LockBusy) => self.desk.call_when_free(self.peer.conn),
        }
    }

    /// Turns a command for a device into a request.
    #[inline(always)]
    fn device(
        &mut self,
        io: &DeviceRequest,
        entry: &Submission,
        data_bytes: usize,
    ) -> Result<Option<PendingEvent>, PduViolation> {
        let is_here = match (io.fused, carries(entry, data_bytes, io.payload_bytes)) {
            (FusedPart::None, Ok(is_here)) => is_here,
            (FusedPart::None, Err(status)) => {
                self.answer(CommandResult::error(io.cid, status), &[]);
                return Ok(Some(PendingEvent::Own));
            }
            (_, carried) => {
                let (data, fused) = self.exchanges.add_half(*io, carried, self.as_of)?;
                self.data = data;
                return Ok(fused.map(|place| self.fused(place)));
            }
        };
        let as_of = self.as_of;
        let make = || Exchange::Device { io: *io, transfer: None, as_of };
        let place = self.exchanges.place_with(make)?;
        let request = request(place, io, io.command, io.payload_bytes);
        let mut event = PendingEvent::Request(request);
        if is_here {
            self.data = DataTarget::Request;
        } else if io.payload_bytes > 0 {
            event = PendingEvent::Awaited(request);
        }
        Ok(Some(self.charged(io.tenant, event)))
    }

    /// Starts a fused operation whose capsules have come with their data.
    fn fused(&mut self, place: u16) -> PendingEvent {
        let (pair, _) = self.exchanges.pair(place).expect("it was put there");
        let (io, verdict) = (pair.halves[1].io, pair.verdict());
        if !verdict.is_ok() {
            let answers = self.end_fused(place, verdict);
            answers.into_iter().for_each(|answer| self.answer(answer, &[]));
            return PendingEvent::Own;
        }
        let request = request(place, &io, io.command, io.command.payload_bytes());
        self.charged(io.tenant, PendingEvent::Awaited(request))
    }

    /// Ends a fused operation, and returns the answers to its commands.
    fn end_fused(&mut self, place: u16, status: Status) -> [CommandResult; 2] {
        let io = self.exchanges.end_fused(place);
        let queue = self.queue.as_mut().expect("only a queue has devices");
        queue.complete_fused(&io, status)
    }

    /// Returns a request's event, preceded by the announcement of its tenant if that has changed.
    #[inline(always)]
    fn charged(&mut self, tenant: Option<TenantId>, event: PendingEvent) -> PendingEvent {
        if !self.is_another(tenant) {
            return event;
        }
        self.pending.push_back(event);
        PendingEvent::Attached(tenant)
    }

    /// Notes the tenant of the next request, and returns `true` if the tenant has to be announced.
    fn is_another(&mut self, tenant: Option<TenantId>) -> bool {
        let generation = self.queue.as_ref().map_or(0, Queue::generation);
        self.charged.change(tenant, generation)
    }

    /// Processes H2CData (section 3.6.2.8): requested data, in order.
    fn host_data(&mut self, head: &PduHeader<'_>) -> Result<(), PduViolation> {
        let (data, _) = DataHead::read_from_prefix(head.bytes).expect("its size");
        let awaited = self.exchanges.awaited(data.tag.get());
        let (cid, came, wanted, destination) = awaited.ok_or(PduViolation::field(10))?;
        self.data = destination;
        if data.command.get() != cid {
            return Err(PduViolation::field(8));
        }
        check_range(&data, head.data_bytes as usize, came, wanted)
    }

    /// Passes data of a PDU on to its destination. Returns the event that this causes, if any.
    fn data<'a>(&mut self, bytes: &'a [u8], end: Option<Status>) -> Option<SessionEvent<'a>> {
        match self.data {
            DataTarget::Skipped => None,
            DataTarget::Request => Some(SessionEvent::Payload { bytes, end }),
            DataTarget::Piece { place } => self.exchanges.piece(place, bytes, end),
            DataTarget::Own { place } => {
                self.own.ready.push_back(self.exchanges.gather(place, bytes, end)?);
                Some(SessionEvent::Own)
            }
            DataTarget::Held { place } => {
                let is_whole = self.exchanges.hold(place, bytes, end);
                is_whole.then(|| self.fused(place).into())
            }
        }
    }

    /// Sends the answer to a command, with its data if it succeeded.
    fn answer(&mut self, answer: CommandResult, data: &[u8]) {
        let completion = match &mut self.queue {
            Some(queue) => queue.seal(answer),
            None => answer.completion(0),
        };
        let data = if answer.status.is_ok() { data } else { &[] };
        self.outbox.answer(&self.style, &completion, data);
    }

    /// Ends the connection, and informs the host of the reason.
    fn broken(&mut self, broken: PduViolation, offending: &[u8]) -> ProtocolError {
        self.phase = Phase::Over;
        self.outbox.terminate(PduType::CONTROLLER_TERMINATES, broken, offending);
        broken.fatal()
    }
}

impl Session for ControllerSession {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        if let Some(pending) = self.pending.pop_front() {
            return Ok(Some(pending.into()));
        }
        if self.own.blocked.is_some() {
            return Ok(None);
        }
        loop {
            let mut room = [0; HEADER_BYTES_MAX];
            let (broken, offending) = match self.framer.next(input, &mut room) {
                Ok(None) => return Ok(None),
                Ok(Some(PduPart::Data { bytes, end })) => match self.data(bytes, end) {
                    None => continue,
                    event => return Ok(event),
                },
                Ok(Some(PduPart::Head(head))) => match self.begin(&head) {
                    Ok(None) if self.own.blocked.is_some() => return Ok(None),
                    Ok(None) => continue,
                    Ok(Some(event)) => return Ok(Some(event.into())),
                    Err(broken) => (broken, OffendingHeader::new(head.bytes)),
                },
                Err(blame) => *blame,
            };
            return Err(self.broken(broken, offending.bytes()));
        }
    }

    fn has_more(&self) -> bool {
        !self.pending.is_empty()
    }

    fn expects(&self) -> Option<ExpectedPayload> {
        let bytes = self.framer.data_left();
        if bytes == 0 || self.has_more() {
            return None;
        }
        match self.data {
            DataTarget::Request => Some(ExpectedPayload { place: None, bytes }),
            DataTarget::Piece { place } => {
                let place = self.exchanges.expected(place)?;
                Some(ExpectedPayload { place: Some(place), bytes })
            }
            DataTarget::Skipped | DataTarget::Own { .. } | DataTarget::Held { .. } => None,
        }
    }

    fn reply(&mut self, reply: &Reply, body: &[u8]) -> Result<FrameHead, ProtocolError> {
        let Reply::Done { tag, status, .. } = *reply else { return Ok(FrameHead::EMPTY) };
        if self.own.parting.is_some() {
            self.desk.call(self.peer.conn);
        }
        // Commands are large: most are looked at where they are.
        let queue = self.queue.as_mut().expect("only a queue has devices");
        let Exchange::Device { io, .. } = self.exchanges.at(tag) else {
            return Ok(reply_other(&mut self.exchanges, queue, &self.style, (tag, status)));
        };
        let answer = queue.complete(io, status);
        let has_data = !body.is_empty() && io.reply_bytes > 0 && answer.status.is_ok();
        self.exchanges.vacate_device(tag as u16);
        let completion = queue.seal(answer);
        if !has_data {
            let head = encode::bare(&self.style, &self.style.response(&completion));
            return Ok(head.without_body());
        }
        let completion = (!self.says_success).then_some(&completion);
        Ok(encode::read_reply(&self.style, answer.cid, body, completion))
    }

    fn invite(&mut self, tag: Tag, slot: Slot, room: &mut [u8]) -> FrameHead {
        self.exchanges.invite(tag, slot, room, &self.style)
    }

    fn protocol(&self) -> contract::Protocol {
        contract::Protocol::NvmeTcp
    }

    fn is_mid_message(&self) -> bool {
        self.framer.is_mid_pdu() || self.exchanges.is_asking()
    }

    fn takes_notices(&self) -> bool {
        false
    }
}

impl RevocablePermissions for ControllerSession {
    fn allowed_as_of(&self, tag: Tag) -> u32 {
        match &self.exchanges.all()[tag as usize] {
            Exchange::Device { as_of, .. } | Exchange::Discard { as_of, .. } => *as_of,
            Exchange::Fused(pair) => pair.as_of,
            other => panic!("a worker asks about {other:?}"),
        }
    }

    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        let queue = self.queue.as_mut().expect("only a queue has a fence");
        let now = queue.fence().epoch();
        let permission = self.exchanges.at_mut(tag).permission();
        let (io, as_of) = permission.expect("a worker asks about its own requests");
        // The queue gives the reason when the command is answered.
        queue.permits(&io).map_err(|_| Status::Retry)?;
        *as_of = now;
        Ok(now)
    }
}

impl UnsolicitedOutput for ControllerSession {
    fn attend(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if let Some(fatal) = self.goodbye.take() {
            return Err(fatal);
        }
        self.settle();
        self.hear()?;
        self.part()?;
        for _ in 0..self.own.ready.len() {
            let own = self.own.ready.pop_front().expect("they were just counted");
            if let Some(held) = self.waits(&own) {
                self.put_off(own, Some(held));
                continue;
            }
            match self.execute(&own, now) {
                RunProgress::More => {}
                RunProgress::Last => {
                    self.phase = Phase::Over;
                    return Err(ProtocolError::Ended(0));
                }
                RunProgress::Busy => {
                    self.put_off(own, None);
                    break;
                }
            }
        }
        self.unblock()
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
}

impl MigratableSession for ControllerSession {
    fn moves_to(&self, worker: u16) -> bool {
        // A session goes to another process if its controller does.
        self.desk.has_worker(worker) || self.queue.as_ref().is_some_and(Queue::is_exporting)
    }

    fn is_settled(&self) -> bool {
        self.is_at_ease()
    }

    fn pack(&mut self) -> Option<Vec<u8>> {
        self.pack_session()
    }

    fn landed(&mut self, conn: ConnId) -> Option<Arc<Fence>> {
        self.take_connection(conn);
        let queue = self.queue.as_ref().filter(|queue| queue.id() != 0);
        queue.map(|queue| Arc::clone(queue.fence()))
    }
}

impl From<PendingEvent> for SessionEvent<'_> {
    #[inline]
    fn from(pending: PendingEvent) -> Self {
        match pending {
            PendingEvent::Own => SessionEvent::Own,
            PendingEvent::Fenced(fence) => SessionEvent::Fenced(fence),
            PendingEvent::Attached(tenant) => SessionEvent::Attached(tenant),
            PendingEvent::Request(request) => SessionEvent::Request(request),
            PendingEvent::Awaited(request) => SessionEvent::Awaited(request),
        }
    }
}

/// Returns the answer to a part of a discard or to a fused operation, which has ended with
/// `status`. The head is empty while other parts of a discard go on.
#[inline(never)]
fn reply_other(
    exchanges: &mut Exchanges,
    queue: &mut Queue,
    style: &PduFormat,
    (tag, status): (Tag, Status),
) -> FrameHead {
    let place = tag as u16;
    let (io, status) = match exchanges.at_mut(tag) {
        Exchange::Discard { left, status: worst, io, .. } => {
            *left -= 1;
            if worst.is_ok() {
                *worst = status;
            }
            if *left > 0 {
                return FrameHead::EMPTY;
            }
            (*io, *worst)
        }
        Exchange::Fused(_) => {
            let io = exchanges.end_fused(place);
            let answers = queue.complete_fused(&io, status);
            let heads = answers.map(|answer| style.response(&queue.seal(answer)));
            return encode::bare_all(style, &heads);
        }
        other => panic!("a worker answered {other:?}"),
    };
    exchanges.vacate(place);
    let answer = queue.complete(&io, status);
    encode::bare(style, &style.response(&queue.seal(answer))).without_body()
}

/// Chooses digests and the alignment of data from those that the host's ICReq asks for (section
/// 3.6.2.2).
fn negotiate(head: &PduHeader<'_>) -> Result<(InitResponse, PduFormat), PduViolation> {
    let (request, _) = InitRequest::read_from_prefix(head.bytes).expect("its size");
    let unsupported =
        |offset: u32| PduViolation { status: FatalStatus::UNSUPPORTED, information: offset };
    if request.format.get() != PDU_FORMAT_1_0 {
        return Err(unsupported(8));
    }
    if request.alignment > ALIGNMENT_MAX {
        return Err(PduViolation::field(10));
    }
    let agreed = Digests::from_bits(request.digests);
    let style = PduFormat { digests: agreed, alignment: (usize::from(request.alignment) + 1) * 4 };
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
    response.digests = agreed.to_bits();
    response.data_bytes_max = DATA_BYTES_MAX.into();
    Ok((response, style))
}

/// Returns the contract's request for a command in progress, whose tag is the command's index.
#[inline]
fn request(place: u16, io: &DeviceRequest, command: Command, payload_bytes: usize) -> Request {
    Request {
        tag: Tag::from(place),
        stream: 0,
        namespace: Some(io.namespace),
        tenant: 0,
        command,
        payload_bytes,
        verdict: Status::Ok,
    }
}

/// Checks that a PDU with `data_bytes` bytes of requested data continues after the `came` bytes
/// received so far, and within the `wanted` bytes.
fn check_range(
    data: &DataHead,
    data_bytes: usize,
    came: usize,
    wanted: usize,
) -> Result<(), PduViolation> {
    let (offset, bytes) = (data.offset.get() as usize, data.bytes.get() as usize);
    if bytes == 0 || bytes != data_bytes {
        return Err(PduViolation::field(16));
    }
    if offset != came || bytes > wanted - came {
        return Err(PduViolation::plain(FatalStatus::OUT_OF_RANGE));
    }
    let is_last = offset + bytes == wanted;
    if is_last != (data.common.flags & flags::LAST_PDU != 0) {
        return Err(PduViolation::field(1));
    }
    Ok(())
}

/// Returns `true` if the capsule carries the command's payload of `wanted` bytes. Otherwise the
/// payload, if there is any, has to be requested. Fails if the data pointer does not fit.
#[inline]
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
