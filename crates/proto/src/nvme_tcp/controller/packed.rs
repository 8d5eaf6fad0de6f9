//! Serialization of the controller's end of a connection, which moves to another worker, or to
//! another process with all connections of its controller. It holds the negotiated settings, the
//! message that is being received, and the commands in progress.
//!
//! Format 2 is little-endian: protocol and format (2 bytes), the queue's number (8), whether the
//! session comes from another process (1), then the fields in the order of [`put_session`]. The
//! queue itself is not included, only its number (`Queue::detach`), because its controller is
//! shared with other sessions.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

use contract::{ConnId, NamespaceId, ProtocolError, Request, Status, Tag, TenantId};
use wire::nvme::Submission;
use wire::nvme_tcp::DataHead;
use zerocopy::{FromBytes, IntoBytes};

use super::super::DATA_OFFSET_SERVED_MAX;
use super::super::WorkerFabric;
use super::super::encode::PduFormat;
use super::super::framer::{Digests, Framer};
use super::exchanges::{DataTarget, Exchange, Exchanges, OwnCommand};
use super::fused::{FusedHalf, FusedOperation};
use super::{ControllerSession, FROM_HOSTS, MigratedQueue, PendingEvent, Phase};
use crate::nvme::{DeviceRequest, FusedPart, LockBusy, PAYLOAD_BYTES_MAX, PortId};
use crate::takeover::{Reader, TakeoverRefusal, Writer, put_command, take_command};

/// The first bytes of a serialized session of NVMe over TCP, in format 2.
const FORMAT: [u8; 2] = [b'n', 2];

/// A tenant that does not exist, so that the next tenant has to be announced.
const UNKNOWN_TENANT: TenantId = TenantId(u32::MAX);

/// The most commands in progress: the entries of the largest queue.
const PLACES_MAX: usize = 4096;

/// The most ranges of a discard: 256 of the host's (NVM 1.0, 3.2.1), each of which is up to nine of
/// the contract's where the host's blocks have 4 KiB.
const DISCARDS_MAX: usize = 256 * 9;

/// The queue number of a session without a queue.
const NO_QUEUE: u64 = 0;

impl ControllerSession {
    /// Returns `true` if the session can be serialized now: it has nothing to send, and no command
    /// to carry out now. Before its Connect, a session over TLS stays where it is, as its identity
    /// is not serialized.
    pub(super) fn is_at_ease(&self) -> bool {
        let is_done = self.phase == Phase::Over || self.own.parting.is_some();
        let has_work =
            !self.own.ready.iter().all(|own| self.waits(own).is_some()) || self.goodbye.is_some();
        let is_blocked = self.own.blocked.is_some() || self.arriving.is_unsettled;
        let is_heard = self.outbox.len() == 0 && !self.desk.has_mail(self.peer.conn);
        let is_bound = self.queue.is_some() || self.peer.identity.is_none();
        !is_done && !has_work && !is_blocked && is_heard && is_bound
    }

    /// Serializes the session, and detaches its queue. Returns `None`, without a change, if another
    /// thread changes the fabric.
    pub(super) fn pack_session(&mut self) -> Option<Vec<u8>> {
        let number = match &mut self.queue {
            Some(queue) => queue.detach().ok()?,
            None => NO_QUEUE,
        };
        self.queue = None;
        Some(self.bytes(number))
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        let mut to = Writer::default();
        to.put(FORMAT);
        to.put(number.to_le_bytes());
        to.flag(self.arriving.is_foreign);
        put_session(&mut to, self).expect("commands are few and small");
        to.0
    }

    /// Returns the number of a serialized session's moving queue. Returns `None` if the session has
    /// no queue, or if the bytes are no session of this protocol.
    pub fn number(packed: &[u8]) -> Option<u64> {
        let input = &mut Reader(packed);
        let (format, number) = (input.array().ok()?, input.u64().ok()?);
        (format == FORMAT && number != NO_QUEUE).then_some(number)
    }

    /// Restores a session of another process, whose queue arrives under `number` and whose port is
    /// `port` here. Also returns its bytes for a worker; `None` if `packed` is invalid.
    pub fn from_other_process(
        desk: Rc<WorkerFabric>,
        packed: &[u8],
        number: u64,
        port: PortId,
    ) -> Option<(ControllerSession, Vec<u8>)> {
        let mut session = ControllerSession::unpack_at(desk, packed)?;
        session.peer.port = port;
        session.arriving =
            MigratedQueue { number: Some(number), is_foreign: true, ..session.arriving };
        let bytes = session.bytes(number);
        Some((session, bytes))
    }

    /// Restores a serialized session; `None` if the bytes are invalid. Its queue has yet to be
    /// [claimed](ControllerSession::claim_queue).
    pub fn unpack_at(desk: Rc<WorkerFabric>, packed: &[u8]) -> Option<ControllerSession> {
        let input = &mut Reader(packed);
        if input.array().ok()? != FORMAT {
            return None;
        }
        let number = input.u64().ok()?;
        let is_foreign = input.flag("origin").ok()?;
        let mut session = take_session(input, desk).ok()?;
        let number = (number != NO_QUEUE).then_some(number);
        session.arriving = MigratedQueue { number, is_foreign, is_unsettled: false };
        (input.0.is_empty() && is_sound(&session)).then_some(session)
    }

    /// Ends the queue of a serialized session whose connection is lost; ignores other protocols.
    pub fn lose(desk: &WorkerFabric, packed: &[u8]) {
        let input = &mut Reader(packed);
        if let (Ok(FORMAT), Ok(number)) = (input.array(), input.u64()) {
            desk.drop_queue(number);
        }
    }

    /// Claims the queue of a restored session, which needs a connection next.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub fn claim_queue(&mut self) -> Result<(), LockBusy> {
        let Some(number) = self.arriving.number else { return Ok(()) };
        self.queue = self.desk.claim(number)?;
        self.arriving.number = None;
        self.arriving.is_unsettled = self.queue.is_some();
        if self.queue.is_none() {
            self.goodbye = Some(ProtocolError::Ended(0));
            self.pending.push_front(PendingEvent::Own);
        }
        Ok(())
    }

    /// Attaches the session, and its queue, to a connection.
    pub(super) fn take_connection(&mut self, conn: ConnId) {
        self.peer.conn = conn;
        if !self.own.ready.is_empty() {
            self.pending.push_back(PendingEvent::Own);
        }
        self.settle();
        if core::mem::take(&mut self.arriving.is_foreign) {
            self.adapt();
        }
    }

    /// Adapts a session from another process. Tenants announced there have other numbers here, and
    /// permissions granted there have to be checked again.
    fn adapt(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        let before = queue.fence().epoch().wrapping_sub(1);
        for exchange in self.exchanges.all_mut() {
            match exchange {
                Exchange::Device { io, as_of, .. } | Exchange::Discard { io, as_of, .. } => {
                    (io.tenant, *as_of) = (queue.tenant_of(io.nsid), before);
                }
                Exchange::Compare(half) => {
                    half.io.tenant = queue.tenant_of(half.io.nsid);
                    queue.expect_partner(half.io);
                }
                Exchange::Fused(pair) => {
                    pair.as_of = before;
                    for half in &mut pair.halves {
                        half.io.tenant = queue.tenant_of(half.io.nsid);
                    }
                }
                Exchange::Vacant | Exchange::Own { .. } | Exchange::Partner { .. } => {}
            }
        }
        self.charged.tenant = Some(UNKNOWN_TENANT);
        for pending in core::mem::take(&mut self.pending) {
            match &pending {
                PendingEvent::Attached(_) => continue,
                PendingEvent::Request(request) | PendingEvent::Awaited(request) => {
                    let tenant = self.exchanges.io_at(request.tag).and_then(|io| io.tenant);
                    if self.is_another(tenant) {
                        self.pending.push_back(PendingEvent::Attached(tenant));
                    }
                }
                PendingEvent::Own | PendingEvent::Fenced(_) => {}
            }
            self.pending.push_back(pending);
        }
    }

    /// Returns `true` if these requests, which moved along with their connection, are exactly those
    /// that the session has to answer.
    pub fn answers(&self, requests: impl Iterator<Item = Tag>) -> bool {
        let waiting = self.pending.iter().filter_map(|pending| match pending {
            PendingEvent::Request(request) | PendingEvent::Awaited(request) => Some(request.tag),
            _ => None,
        });
        let mut counts = vec![0; self.exchanges.all().len()];
        for tag in requests.chain(waiting) {
            match usize::try_from(tag).ok().and_then(|place| counts.get_mut(place)) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
        let expected = |(place, exchange): (usize, &Exchange)| match exchange {
            Exchange::Device { .. } => 1,
            Exchange::Discard { left, .. } => *left,
            // The operation becomes a request when its second half has come.
            Exchange::Fused(_) => {
                usize::from(self.data != DataTarget::Held { place: place as u16 })
            }
            _ => 0,
        };
        self.exchanges.all().iter().enumerate().map(expected).eq(counts)
    }
}

/// Returns `true` if the parts of the session agree with each other.
fn is_sound(session: &ControllerSession) -> bool {
    let alignment = session.style.alignment;
    let aligned = alignment > 0
        && alignment.is_multiple_of(4)
        && session.style.data_offset(size_of::<DataHead>()) <= DATA_OFFSET_SERVED_MAX;
    let sized = session.exchanges.most() <= PLACES_MAX
        && session.exchanges.all().len() <= session.exchanges.most();
    let places = 0..session.exchanges.all().len();
    let is_compare =
        |place: &usize| matches!(session.exchanges.all()[*place], Exchange::Compare(_));
    let compare = places.clone().filter(is_compare).collect::<Vec<_>>();
    let compares =
        compare == session.exchanges.compare().map(usize::from).into_iter().collect::<Vec<_>>();
    let plain = |request: &Request| {
        let bytes = request.command.payload_bytes();
        session.exchanges.io_at(request.tag).is_some() && request.payload_bytes == bytes
    };
    let pending = session.pending.iter().all(|pending| match pending {
        PendingEvent::Request(request) | PendingEvent::Awaited(request) => plain(request),
        _ => true,
    });
    aligned && sized && compares && pending && places.into_iter().all(|at| is_sound_at(session, at))
}

/// Returns `true` if a command in progress is valid and its received data matches the framer's
/// state.
fn is_sound_at(session: &ControllerSession, at: usize) -> bool {
    let ControllerSession { exchanges, framer, data, .. } = session;
    let place = at as u16;
    let owed = |is_coming: bool| if is_coming { framer.owed() } else { 0 };
    let is_held = *data == DataTarget::Held { place };
    let half = |half: &FusedHalf, is_coming: bool| {
        let here = half.held.len() + owed(is_coming);
        half.came == 0 && (!half.is_here && here == 0 || here == half.io.payload_bytes)
    };
    match &exchanges.all()[at] {
        Exchange::Vacant => true,
        Exchange::Device { io, .. } => io.payload_bytes == io.command.payload_bytes(),
        Exchange::Own { own, wanted, is_asked } => {
            let is_coming = *data == DataTarget::Own { place };
            let here = own.payload.len() + owed(is_coming);
            // Requested data may come in several messages.
            let comes = here == *wanted || *is_asked && here < *wanted;
            comes && (1..=PAYLOAD_BYTES_MAX).contains(wanted)
        }
        Exchange::Compare(first) => half(first, is_held),
        Exchange::Partner { of } => match exchanges.all().get(usize::from(*of)) {
            Some(Exchange::Fused(pair)) => pair.first_place == place,
            _ => false,
        },
        Exchange::Fused(pair) => {
            let partner = exchanges.all().get(usize::from(pair.first_place));
            let [first, second] = &pair.halves;
            let bytes = first.io.payload_bytes + second.io.payload_bytes;
            matches!(partner, Some(Exchange::Partner { of }) if *of == place)
                && half(first, false)
                && half(second, is_held)
                && second.io.command.payload_bytes() == bytes
                && second.io.fused == FusedPart::Second { first: first.io.cid }
        }
        Exchange::Discard { left, .. } => (1..=DISCARDS_MAX).contains(left),
    }
}

fn put_session(to: &mut Writer, session: &ControllerSession) -> Result<(), TakeoverRefusal> {
    to.put(session.peer.port.0.to_le_bytes());
    to.address(session.peer.address);
    to.flag(session.peer.is_let_in);
    to.flag(session.phase == Phase::Open);
    to.flag(session.style.digests.header);
    to.flag(session.style.digests.data);
    to.put([session.style.alignment as u8]);
    to.flag(session.says_success);
    put_tenant(to, session.charged.tenant);
    let compare = session.exchanges.compare();
    to.flag(compare.is_some());
    to.put(compare.unwrap_or(0).to_le_bytes());
    session.framer.put(to)?;
    let (kind, place) = match session.data {
        // The destination of earlier data does not matter any more.
        _ if !session.framer.is_behind_head() => (0, 0),
        DataTarget::Skipped => (0, 0),
        DataTarget::Request => (1, 0),
        DataTarget::Own { place } => (2, place),
        DataTarget::Held { place } => (3, place),
        DataTarget::Piece { .. } => unreachable!("nothing that was asked for is on its way"),
    };
    to.put([kind]);
    to.put(u16::to_le_bytes(place));
    to.put((session.exchanges.most() as u32).to_le_bytes());
    let exchanges = session.exchanges.all();
    to.count(exchanges.len())?;
    exchanges.iter().try_for_each(|exchange| put_exchange(to, exchange))?;
    to.count(session.pending.len())?;
    session.pending.iter().for_each(|pending| put_pending(to, pending));
    to.count(session.own.ready.len())?;
    session.own.ready.iter().try_for_each(|own| put_own(to, own))
}

fn take_session(
    input: &mut Reader<'_>,
    desk: Rc<WorkerFabric>,
) -> Result<ControllerSession, TakeoverRefusal> {
    let nobody = ConnId { index: u32::MAX, generation: u32::MAX };
    let mut session = ControllerSession::new(desk, PortId(input.u16()?), nobody);
    session.peer.address = input.address()?;
    session.peer.is_let_in = input.flag("access")?;
    if input.flag("phase")? {
        session.phase = Phase::Open;
    }
    let digests = Digests { header: input.flag("digest")?, data: input.flag("digest")? };
    session.style = PduFormat { digests, alignment: usize::from(input.u8()?) };
    session.says_success = input.flag("flow control")?;
    session.charged.tenant = take_tenant(input)?;
    let (compares, compare) = (input.flag("compare")?, input.u16()?);
    session.framer = Framer::take(FROM_HOSTS, digests, input)?;
    let (kind, place) = (input.u8()?, input.u16()?);
    session.data = match kind {
        0 => DataTarget::Skipped,
        1 => DataTarget::Request,
        2 => DataTarget::Own { place },
        3 => DataTarget::Held { place },
        _ => return Err(TakeoverRefusal::Value("data")),
    };
    let most = input.u32()? as usize;
    let count = input.count(1)?;
    let all =
        (0..count).map(|_| take_exchange(input)).collect::<Result<Vec<_>, TakeoverRefusal>>()?;
    session.exchanges = Exchanges::restore(most, compares.then_some(compare), all);
    for _ in 0..input.count(1)? {
        let pending = take_pending(input)?;
        session.pending.push_back(pending);
    }
    for _ in 0..input.count(1)? {
        let own = take_own(input)?;
        session.own.ready.push_back(own);
    }
    Ok(session)
}

fn put_own(to: &mut Writer, own: &OwnCommand) -> Result<(), TakeoverRefusal> {
    to.0.extend(own.entry.as_bytes());
    to.string(&own.payload)?;
    to.put(own.verdict.code().to_le_bytes());
    Ok(())
}

fn take_own(input: &mut Reader<'_>) -> Result<OwnCommand, TakeoverRefusal> {
    let entry = input.bytes(size_of::<Submission>())?;
    let entry = Submission::read_from_bytes(entry).map_err(|_| TakeoverRefusal::Length)?;
    let payload = input.string()?.to_vec();
    Ok(OwnCommand { entry, payload, verdict: Status::from_code(input.u16()?) })
}

fn put_exchange(to: &mut Writer, exchange: &Exchange) -> Result<(), TakeoverRefusal> {
    match exchange {
        Exchange::Vacant => to.put([0]),
        Exchange::Device { io, transfer, as_of } => {
            assert!(transfer.is_none(), "nothing that was asked for is on its way");
            to.put([1]);
            put_io(to, io);
            to.put(as_of.to_le_bytes());
        }
        Exchange::Own { own, wanted, is_asked } => {
            to.put([2]);
            put_own(to, own)?;
            to.count(*wanted)?;
            to.flag(*is_asked);
        }
        Exchange::Compare(half) => {
            to.put([3]);
            put_half(to, half)?;
        }
        Exchange::Partner { of } => {
            to.put([4]);
            to.put(of.to_le_bytes());
        }
        Exchange::Fused(pair) => {
            to.put([5]);
            to.put(pair.first_place.to_le_bytes());
            to.put(pair.as_of.to_le_bytes());
            pair.halves.iter().try_for_each(|half| put_half(to, half))?;
        }
        Exchange::Discard { io, left, status, as_of } => {
            to.put([6]);
            put_io(to, io);
            to.put(as_of.to_le_bytes());
            to.count(*left)?;
            to.put(status.code().to_le_bytes());
        }
    }
    Ok(())
}

fn take_exchange(input: &mut Reader<'_>) -> Result<Exchange, TakeoverRefusal> {
    Ok(match input.u8()? {
        0 => Exchange::Vacant,
        1 => Exchange::Device { io: take_io(input)?, transfer: None, as_of: input.u32()? },
        2 => {
            let (own, wanted) = (take_own(input)?, input.u32()? as usize);
            Exchange::Own { own, wanted, is_asked: input.flag("command")? }
        }
        3 => Exchange::Compare(take_half(input)?),
        4 => Exchange::Partner { of: input.u16()? },
        5 => {
            let (first_place, as_of) = (input.u16()?, input.u32()?);
            let pair =
                FusedOperation::new(first_place, take_half(input)?, take_half(input)?, as_of);
            Exchange::Fused(Box::new(pair))
        }
        6 => {
            let (io, as_of) = (take_io(input)?, input.u32()?);
            let left = input.u32()? as usize;
            Exchange::Discard { io, left, status: Status::from_code(input.u16()?), as_of }
        }
        _ => return Err(TakeoverRefusal::Value("command")),
    })
}

/// Serializes half of a fused operation. Its slot is left out: either all its data is here, or the
/// other worker requests it once it has a slot.
fn put_half(to: &mut Writer, half: &FusedHalf) -> Result<(), TakeoverRefusal> {
    put_io(to, &half.io);
    to.string(&half.held)?;
    to.flag(half.is_here);
    to.count(half.came)?;
    to.put(half.verdict.code().to_le_bytes());
    Ok(())
}

fn take_half(input: &mut Reader<'_>) -> Result<FusedHalf, TakeoverRefusal> {
    let (io, held) = (take_io(input)?, input.string()?.to_vec());
    let (is_here, came) = (input.flag("half")?, input.u32()? as usize);
    Ok(FusedHalf { io, held, is_here, came, verdict: Status::from_code(input.u16()?) })
}

fn put_io(to: &mut Writer, io: &DeviceRequest) {
    to.put(io.cid.to_le_bytes());
    to.put(io.nsid.to_le_bytes());
    to.put(io.namespace.0.to_le_bytes());
    put_tenant(to, io.tenant);
    put_command(to, io.command);
    to.put((io.payload_bytes as u32).to_le_bytes());
    to.put((io.reply_bytes as u32).to_le_bytes());
    let (kind, first) = match io.fused {
        FusedPart::None => (0, 0),
        FusedPart::First => (1, 0),
        FusedPart::Second { first } => (2, first),
    };
    to.put([kind]);
    to.put(first.to_le_bytes());
}

fn take_io(input: &mut Reader<'_>) -> Result<DeviceRequest, TakeoverRefusal> {
    let (cid, nsid, namespace) = (input.u16()?, input.u32()?, NamespaceId(input.u16()?));
    let (tenant, command) = (take_tenant(input)?, take_command(input)?);
    let (payload_bytes, reply_bytes) = (input.u32()? as usize, input.u32()? as usize);
    let fused = match (input.u8()?, input.u16()?) {
        (0, _) => FusedPart::None,
        (1, _) => FusedPart::First,
        (2, first) => FusedPart::Second { first },
        _ => return Err(TakeoverRefusal::Value("fused operation")),
    };
    Ok(DeviceRequest { cid, nsid, namespace, tenant, command, payload_bytes, reply_bytes, fused })
}

fn put_tenant(to: &mut Writer, tenant: Option<TenantId>) {
    to.flag(tenant.is_some());
    to.put(tenant.map_or(0, |tenant| tenant.0).to_le_bytes());
}

fn take_tenant(input: &mut Reader<'_>) -> Result<Option<TenantId>, TakeoverRefusal> {
    let (is_some, number) = (input.flag("tenant")?, input.u32()?);
    Ok(is_some.then_some(TenantId(number)))
}

fn put_pending(to: &mut Writer, pending: &PendingEvent) {
    let request = match pending {
        // A session with a fence announces it when it arrives.
        PendingEvent::Own | PendingEvent::Fenced(_) => return to.put([0]),
        PendingEvent::Attached(tenant) => {
            to.put([1]);
            return put_tenant(to, *tenant);
        }
        PendingEvent::Request(request) => {
            to.put([2]);
            request
        }
        PendingEvent::Awaited(request) => {
            to.put([3]);
            request
        }
    };
    to.put(request.tag.to_le_bytes());
    to.put(request.namespace.map_or(0, |namespace| namespace.0).to_le_bytes());
    put_command(to, request.command);
    to.put((request.payload_bytes as u32).to_le_bytes());
}

fn take_pending(input: &mut Reader<'_>) -> Result<PendingEvent, TakeoverRefusal> {
    let make = match input.u8()? {
        0 => return Ok(PendingEvent::Own),
        1 => return Ok(PendingEvent::Attached(take_tenant(input)?)),
        2 => PendingEvent::Request,
        3 => PendingEvent::Awaited,
        _ => return Err(TakeoverRefusal::Value("event")),
    };
    let tag: Tag = input.u64()?;
    let namespace = Some(NamespaceId(input.u16()?)).filter(|namespace| namespace.0 > 0);
    let command = take_command(input)?;
    let payload_bytes = input.u32()? as usize;
    let (stream, tenant, verdict) = (0, 0, Status::Ok);
    Ok(make(Request { tag, stream, namespace, tenant, command, payload_bytes, verdict }))
}
