//! The controller's end of a connection as bytes, on its way to another worker of the same process:
//! what was agreed, the message that is being received, and the commands in progress.
//!
//! Format 1: protocol and format (2 bytes), then the fields in the order in which [`put_session`] puts
//! them; numbers are little-endian. The queue itself is not in it but its number
//! ([`Queue::depart`]): its controller is shared with others, and stays where it is.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use contract::{ConnId, Fatal, NamespaceId, Request, Status, Tag, TenantId};
use wire::nvme::Submission;
use zerocopy::{FromBytes, IntoBytes};

use super::super::Desk;
use super::super::encode::Style;
use super::super::framer::{Digests, Framer};
use super::fused::{Half, Pair};
use super::own::Own;
use super::{Data, Exchange, FROM_HOSTS, Pending, Phase, TargetSession};
use crate::nvme::{Fused, Io, PortId, Queue};
use crate::takeover::{Reader, Unfit, Writer, put_command, take_command};

/// Says that a session of NVMe over TCP follows, in format 1.
const FORMAT: [u8; 2] = [b'n', 1];

/// The queue's number where there is none.
const NO_QUEUE: u64 = 0;

impl TargetSession {
    /// Whether it can be packed now: it has nothing to say or to do by itself.
    pub(super) fn is_at_ease(&self) -> bool {
        let is_done = self.phase == Phase::Over || self.parting.is_some();
        let has_work = !self.ready.is_empty() || self.goodbye.is_some();
        !is_done && !has_work && self.outbox.len() == 0 && !self.desk.has_mail(self.conn)
    }

    /// The session as bytes; its queue is on its way.
    pub(super) fn pack_up(&mut self) -> Vec<u8> {
        let number = self.queue.take().map_or(NO_QUEUE, Queue::depart);
        let mut to = Writer::default();
        to.put(FORMAT);
        to.put(number.to_le_bytes());
        put_session(&mut to, self).expect("commands are few and small");
        to.0
    }

    /// The session that these bytes were made of. Its queue comes when it has a connection.
    pub fn unpack_at(desk: Rc<Desk>, packed: &[u8]) -> Option<TargetSession> {
        let input = &mut Reader(packed);
        if input.array().ok()? != FORMAT {
            return None;
        }
        let number = input.u64().ok()?;
        let mut session = take_session(input, desk).ok()?;
        session.number = (number != NO_QUEUE).then_some(number);
        input.0.is_empty().then_some(session)
    }

    /// A session that was packed is lost, and so is its queue. Bytes of others mean nothing.
    pub fn lose(desk: &Desk, packed: &[u8]) {
        let input = &mut Reader(packed);
        if let (Ok(FORMAT), Ok(number)) = (input.array(), input.u64()) {
            desk.lose(number);
        }
    }

    /// It has a connection, and its queue with it.
    pub(super) fn take_queue(&mut self, conn: ConnId) {
        self.conn = conn;
        let Some(number) = self.number.take() else { return };
        self.queue = self.desk.land(number, conn);
        if self.queue.is_none() {
            self.goodbye = Some(Fatal::Ended(0));
            self.pending.push_front(Pending::Own);
        }
    }
}

fn put_session(to: &mut Writer, session: &TargetSession) -> Result<(), Unfit> {
    to.put(session.port.0.to_le_bytes());
    to.flag(session.address.is_some());
    to.flag(session.address.is_some_and(|address| address.is_ipv4()));
    to.put(match session.address {
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
        None => [0; 16],
    });
    to.flag(session.is_let_in);
    to.flag(session.phase == Phase::Open);
    to.flag(session.style.digests.header);
    to.flag(session.style.digests.data);
    to.put([session.style.alignment as u8]);
    to.flag(session.says_success);
    put_tenant(to, session.tenant);
    to.flag(session.compare.is_some());
    to.put(session.compare.unwrap_or(0).to_le_bytes());
    session.framer.put(to)?;
    let (kind, place) = match session.data {
        // What the last message's was for matters no more.
        _ if !session.framer.is_behind_head() => (0, 0),
        Data::Skipped => (0, 0),
        Data::Request => (1, 0),
        Data::Own { place } => (2, place),
        Data::Held { place } => (3, place),
        Data::Piece { .. } => unreachable!("nothing that was asked for is on its way"),
    };
    to.put([kind]);
    to.put(u16::to_le_bytes(place));
    to.put((session.places_max as u32).to_le_bytes());
    to.count(session.exchanges.len())?;
    session.exchanges.iter().try_for_each(|exchange| put_exchange(to, exchange))?;
    to.count(session.pending.len())?;
    session.pending.iter().for_each(|pending| put_pending(to, pending));
    Ok(())
}

fn take_session(input: &mut Reader<'_>, desk: Rc<Desk>) -> Result<TargetSession, Unfit> {
    let nobody = ConnId { index: u32::MAX, generation: u32::MAX };
    let mut session = TargetSession::new(desk, PortId(input.u16()?), nobody);
    let (comes, is_v4) = (input.flag("address")?, input.flag("address")?);
    let address = Ipv6Addr::from(input.array::<16>()?);
    let short = address.to_ipv4_mapped().filter(|_| is_v4);
    session.address = comes.then_some(short.map_or(IpAddr::V6(address), IpAddr::V4));
    session.is_let_in = input.flag("access")?;
    if input.flag("phase")? {
        session.phase = Phase::Open;
    }
    let digests = Digests { header: input.flag("digest")?, data: input.flag("digest")? };
    session.style = Style { digests, alignment: usize::from(input.u8()?) };
    session.says_success = input.flag("flow control")?;
    session.tenant = take_tenant(input)?;
    let (compares, compare) = (input.flag("compare")?, input.u16()?);
    session.compare = compares.then_some(compare);
    session.framer = Framer::take(FROM_HOSTS, digests, input)?;
    let (kind, place) = (input.u8()?, input.u16()?);
    session.data = match kind {
        0 => Data::Skipped,
        1 => Data::Request,
        2 => Data::Own { place },
        3 => Data::Held { place },
        _ => return Err(Unfit::Value("data")),
    };
    session.places_max = input.u32()? as usize;
    session.exchanges.reserve(session.places_max.min(usize::from(u16::MAX)));
    for place in 0..input.count(1)? {
        let exchange = take_exchange(input)?;
        match &exchange {
            Exchange::Vacant => session.vacant.push(place as u16),
            Exchange::Own { is_asked: true, .. } => session.asked += 1,
            _ => {}
        }
        session.exchanges.push(exchange);
    }
    for _ in 0..input.count(1)? {
        let pending = take_pending(input)?;
        session.pending.push_back(pending);
    }
    Ok(session)
}

fn put_exchange(to: &mut Writer, exchange: &Exchange) -> Result<(), Unfit> {
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
            to.string(own.entry.as_bytes())?;
            to.string(&own.payload)?;
            to.put(own.verdict.code().to_le_bytes());
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

fn take_exchange(input: &mut Reader<'_>) -> Result<Exchange, Unfit> {
    Ok(match input.u8()? {
        0 => Exchange::Vacant,
        1 => Exchange::Device { io: take_io(input)?, transfer: None, as_of: input.u32()? },
        2 => {
            let entry = Submission::read_from_bytes(input.string()?);
            let entry = entry.map_err(|_| Unfit::Value("command"))?;
            let payload = input.string()?.to_vec();
            let verdict = Status::from_code(input.u16()?);
            let own = Own { entry, payload, verdict };
            let wanted = input.u32()? as usize;
            Exchange::Own { own, wanted, is_asked: input.flag("command")? }
        }
        3 => Exchange::Compare(take_half(input)?),
        4 => Exchange::Partner { of: input.u16()? },
        5 => {
            let (first_place, as_of) = (input.u16()?, input.u32()?);
            let pair = Pair::new(first_place, take_half(input)?, take_half(input)?, as_of);
            Exchange::Fused(Box::new(pair))
        }
        6 => {
            let (io, as_of) = (take_io(input)?, input.u32()?);
            let left = input.u32()? as usize;
            Exchange::Discard { io, left, status: Status::from_code(input.u16()?), as_of }
        }
        _ => return Err(Unfit::Value("command")),
    })
}

/// Half of a fused operation. Whether it has a slot does not matter: either all of it is here, or it
/// is asked for when it has one at the other worker.
fn put_half(to: &mut Writer, half: &Half) -> Result<(), Unfit> {
    put_io(to, &half.io);
    to.string(&half.held)?;
    to.flag(half.is_here);
    to.count(half.came)?;
    to.put(half.verdict.code().to_le_bytes());
    Ok(())
}

fn take_half(input: &mut Reader<'_>) -> Result<Half, Unfit> {
    let (io, held) = (take_io(input)?, input.string()?.to_vec());
    let (is_here, came) = (input.flag("half")?, input.u32()? as usize);
    Ok(Half { io, held, is_here, came, verdict: Status::from_code(input.u16()?) })
}

fn put_io(to: &mut Writer, io: &Io) {
    to.put(io.cid.to_le_bytes());
    to.put(io.nsid.to_le_bytes());
    to.put(io.namespace.0.to_le_bytes());
    put_tenant(to, io.tenant);
    put_command(to, io.command);
    to.put((io.payload_bytes as u32).to_le_bytes());
    to.put((io.reply_bytes as u32).to_le_bytes());
    let (kind, first) = match io.fused {
        Fused::None => (0, 0),
        Fused::First => (1, 0),
        Fused::Second { first } => (2, first),
    };
    to.put([kind]);
    to.put(first.to_le_bytes());
}

fn take_io(input: &mut Reader<'_>) -> Result<Io, Unfit> {
    let (cid, nsid, namespace) = (input.u16()?, input.u32()?, NamespaceId(input.u16()?));
    let (tenant, command) = (take_tenant(input)?, take_command(input)?);
    let (payload_bytes, reply_bytes) = (input.u32()? as usize, input.u32()? as usize);
    let fused = match (input.u8()?, input.u16()?) {
        (0, _) => Fused::None,
        (1, _) => Fused::First,
        (2, first) => Fused::Second { first },
        _ => return Err(Unfit::Value("fused operation")),
    };
    Ok(Io { cid, nsid, namespace, tenant, command, payload_bytes, reply_bytes, fused })
}

fn put_tenant(to: &mut Writer, tenant: Option<TenantId>) {
    to.flag(tenant.is_some());
    to.put(tenant.map_or(0, |tenant| tenant.0).to_le_bytes());
}

fn take_tenant(input: &mut Reader<'_>) -> Result<Option<TenantId>, Unfit> {
    let (is_some, number) = (input.flag("tenant")?, input.u32()?);
    Ok(is_some.then_some(TenantId(number)))
}

fn put_pending(to: &mut Writer, pending: &Pending) {
    let request = match pending {
        // Whoever has a fence says so when it lands.
        Pending::Own | Pending::Fenced(_) => return to.put([0]),
        Pending::Attached(tenant) => {
            to.put([1]);
            return put_tenant(to, *tenant);
        }
        Pending::Request(request) => {
            to.put([2]);
            request
        }
        Pending::Awaited(request) => {
            to.put([3]);
            request
        }
    };
    to.put(request.tag.to_le_bytes());
    to.put(request.namespace.map_or(0, |namespace| namespace.0).to_le_bytes());
    put_command(to, request.command);
    to.put((request.payload_bytes as u32).to_le_bytes());
}

fn take_pending(input: &mut Reader<'_>) -> Result<Pending, Unfit> {
    let make = match input.u8()? {
        0 => return Ok(Pending::Own),
        1 => return Ok(Pending::Attached(take_tenant(input)?)),
        2 => Pending::Request,
        3 => Pending::Awaited,
        _ => return Err(Unfit::Value("event")),
    };
    let tag: Tag = input.u64()?;
    let namespace = Some(NamespaceId(input.u16()?)).filter(|namespace| namespace.0 > 0);
    let command = take_command(input)?;
    let payload_bytes = input.u32()? as usize;
    let (stream, tenant, verdict) = (0, 0, Status::Ok);
    Ok(make(Request { tag, stream, namespace, tenant, command, payload_bytes, verdict }))
}
