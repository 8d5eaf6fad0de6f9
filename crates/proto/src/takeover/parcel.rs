//! A connection as bytes, for another process: a [`MigratingConnection`] with tenants by name and
//! times as ages.
//!
//! The format is little-endian: magic `nfparcel` (8 bytes), version (2), length of the rest (4),
//! then the fields in the order of [`encode`]. Each count is checked against the remaining bytes
//! before anything is allocated.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use contract::{
    Command, Instant, ListenerId, Member, MigratingConnection, MigratingGrant, MigratingNameClaim,
    MigratingPayload, MigratingRequest, NamespaceId, NamespaceView, Peer, REQUEST_BYTES_MAX, Range,
    Request, Rights, Status, TenantId, Ticket,
};

use super::bytes::{Reader, Writer, age, earlier};
use super::{BODY_BYTES_MAX, TakeoverRefusal};

const MAGIC: [u8; 8] = *b"nfparcel";

/// The number of streams of a connection.
const STREAMS: u8 = 8;

/// The encoded index that stands for an absent tenant, instead of an index into the table of names.
const NOBODY: u16 = u16::MAX;

/// The tenants that a parcel refers to, with their names; the parcel refers to them by index.
#[derive(Default)]
struct Names(Vec<(TenantId, String)>);

impl Names {
    fn place(&self, tenant: TenantId) -> Result<u16, TakeoverRefusal> {
        let place = self.0.iter().position(|(known, _)| *known == tenant);
        place.map(|place| place as u16).ok_or_else(|| TakeoverRefusal::Tenant(String::new()))
    }
}

/// Encodes a parcel. `name` returns the name of a tenant, or `None` if its number is not of this
/// epoch any more; without an epoch, any epoch will do.
///
/// # Errors
/// Returns a [`TakeoverRefusal`] if a required tenant has no name any more, or if the parcel is too
/// large.
pub fn encode(
    parcel: &MigratingConnection,
    now: Instant,
    mut name: impl FnMut(TenantId, Option<u32>) -> Option<String>,
) -> Result<Vec<u8>, TakeoverRefusal> {
    let mut names = Names::default();
    let mut know = |tenant: TenantId, epoch: Option<u32>| {
        let found = name(tenant, epoch);
        if let (Some(found), Err(_)) = (&found, names.place(tenant)) {
            names.0.push((tenant, found.clone()));
        }
        found.map(|_| tenant)
    };
    let entered = parcel.entered.map(|member| know(member.tenant, Some(member.epoch)));
    let handles: Vec<Option<TenantId>> = parcel
        .handles
        .iter()
        .map(|held| held.and_then(|member| know(member.tenant, Some(member.epoch))))
        .collect();
    let grant = parcel.grant.iter().map(|grant| grant.tenant);
    let place = parcel.place.iter().map(|place| place.tenant);
    let requests = parcel.requests.iter().map(|request| request.tenant);
    let put_off: Vec<(&Request, TenantId)> = parcel
        .put_off
        .iter()
        .map(|(request, member)| {
            let known = know(member.tenant, Some(member.epoch));
            known
                .map(|tenant| (request, tenant))
                .ok_or_else(|| TakeoverRefusal::Tenant(String::new()))
        })
        .collect::<Result<_, TakeoverRefusal>>()?;
    for tenant in grant.chain(place).chain(requests) {
        know(tenant, None).ok_or_else(|| TakeoverRefusal::Tenant(String::new()))?;
    }
    let entered = match entered {
        Some(None) => return Err(TakeoverRefusal::Tenant(String::new())),
        Some(Some(tenant)) => names.place(tenant)?,
        None => NOBODY,
    };
    let mut to = Writer::begin(MAGIC);
    put_names(&mut to, &names)?;
    put_self(&mut to, parcel, now)?;
    put_grant(&mut to, parcel.grant.as_ref(), &names)?;
    to.put(entered.to_le_bytes());
    to.count(handles.len())?;
    for handle in handles {
        let place = handle.map_or(Ok(NOBODY), |tenant| names.place(tenant))?;
        to.put(place.to_le_bytes());
    }
    put_place(&mut to, parcel.place.as_ref(), &names)?;
    to.count(parcel.requests.len())?;
    for request in &parcel.requests {
        put_request(&mut to, request, now, &names)?;
    }
    put_waiting(&mut to, parcel.waiting.as_ref())?;
    to.count(put_off.len())?;
    for (request, tenant) in put_off {
        to.put(names.place(tenant)?.to_le_bytes());
        put_bare(&mut to, request)?;
    }
    to.flag(parcel.discards);
    to.string(&parcel.unparsed)?;
    to.sealed(BODY_BYTES_MAX - super::batch::PREFIX_BYTES)
}

/// Decodes a parcel from worker number `from`; the parcel's ticket is meaningless. `member` returns
/// the tenant that has a name in this process.
///
/// # Errors
/// Returns a [`TakeoverRefusal`] if the bytes are foreign, of another version, truncated or
/// invalid, or if there is no tenant of a required name.
pub fn decode(
    bytes: &[u8],
    from: u16,
    now: Instant,
    mut member: impl FnMut(&str) -> Option<Member>,
) -> Result<MigratingConnection, TakeoverRefusal> {
    let input = &mut Reader::open(bytes, MAGIC)?;
    let mut names: Vec<Result<Member, String>> = Vec::new();
    for _ in 0..input.count(4)? {
        let name =
            core::str::from_utf8(input.string()?).map_err(|_| TakeoverRefusal::Value("name"))?;
        names.push(member(name).ok_or_else(|| name.to_string()));
    }
    let paused_age = input.u64()?;
    let (peer, listener) = (take_peer(input)?, ListenerId::new(input.u16()?, 0));
    let (view, session) = (take_view(input)?, input.string()?.to_vec());
    let grant = take_grant(input, &names)?;
    let entered =
        take_member(input, &names)?.map(|known| known.ok_or(TakeoverRefusal::Value("tenant")));
    let entered = entered.transpose()?;
    let mut handles = Vec::new();
    for _ in 0..input.count(2)? {
        handles.push(take_member(input, &names)?.flatten());
    }
    let place = take_place(input, &names)?;
    let mut requests = Vec::new();
    for _ in 0..input.count(REQUEST_BYTES_MIN)? {
        requests.push(take_request(input, now, &names)?);
    }
    let waiting = take_waiting(input)?;
    let mut put_off = Vec::new();
    for _ in 0..input.count(BARE_BYTES)? {
        let member =
            take_member(input, &names)?.flatten().ok_or(TakeoverRefusal::Value("tenant"))?;
        put_off.push((take_bare(input)?, member));
    }
    let discards = input.flag("discarding")?;
    let unparsed = input.string()?.to_vec();
    if !input.0.is_empty() {
        return Err(TakeoverRefusal::Length);
    }
    check_begun(&requests, waiting.is_some(), discards)?;
    let ticket = Ticket(0);
    let paused_at = earlier(now, paused_age);
    Ok(MigratingConnection {
        from,
        ticket,
        peer,
        listener,
        view,
        session,
        grant,
        entered,
        handles,
        place,
        requests,
        waiting,
        put_off,
        discards,
        unparsed,
        paused_at,
    })
}

/// Checks that at most one payload is incomplete: the last request's, the waiting request's, or a
/// discarded one.
fn check_begun(
    requests: &[MigratingRequest],
    waits: bool,
    discards: bool,
) -> Result<(), TakeoverRefusal> {
    let is_begun =
        |request: &MigratingRequest| matches!(request.payload, MigratingPayload::Begun(_));
    let (last, others) = match requests.split_last() {
        Some((last, others)) => (is_begun(last), others),
        None => (false, requests),
    };
    let under_way = u8::from(last) + u8::from(waits) + u8::from(discards);
    match under_way > 1 || others.iter().any(is_begun) {
        true => Err(TakeoverRefusal::Value("payload")),
        false => Ok(()),
    }
}

fn put_names(to: &mut Writer, names: &Names) -> Result<(), TakeoverRefusal> {
    to.count(names.0.len())?;
    names.0.iter().try_for_each(|(_, name)| to.string(name.as_bytes()))
}

fn put_self(
    to: &mut Writer,
    parcel: &MigratingConnection,
    now: Instant,
) -> Result<(), TakeoverRefusal> {
    to.put(age(now, parcel.paused_at));
    match parcel.peer {
        Peer::Internet(SocketAddr::V4(address)) | Peer::Packets(SocketAddr::V4(address)) => {
            to.put([0]);
            to.put(address.ip().octets());
            to.put(address.port().to_le_bytes());
        }
        Peer::Internet(SocketAddr::V6(address)) | Peer::Packets(SocketAddr::V6(address)) => {
            to.put([1]);
            to.put(address.ip().octets());
            to.put(address.port().to_le_bytes());
            to.put(address.flowinfo().to_le_bytes());
            to.put(address.scope_id().to_le_bytes());
        }
        Peer::Local { uid } => {
            to.put([2]);
            to.put(uid.to_le_bytes());
        }
        // Connections in packets do not move.
        Peer::Ethernet { .. } => return Err(TakeoverRefusal::Value("peer")),
    }
    to.put(parcel.listener.place().to_le_bytes());
    put_view(to, &parcel.view)?;
    to.string(&parcel.session)
}

fn put_view(to: &mut Writer, view: &NamespaceView) -> Result<(), TakeoverRefusal> {
    to.put(view.namespace.0.to_le_bytes());
    to.put(view.removals.to_le_bytes());
    to.put(view.admitted.to_le_bytes());
    to.flag(view.follows);
    to.count(view.learned().len())?;
    for (number, removed) in view.learned() {
        to.put(number.0.to_le_bytes());
        to.put(removed.to_le_bytes());
    }
    Ok(())
}

fn take_view(input: &mut Reader<'_>) -> Result<NamespaceView, TakeoverRefusal> {
    let mut view = NamespaceView::new(NamespaceId(input.u16()?), input.u64()?);
    view.admitted = input.u64()?;
    view.follows = input.flag("view")?;
    for _ in 0..input.count(2 + 8)? {
        view.learn(NamespaceId(input.u16()?), input.u64()?);
    }
    Ok(view)
}

fn take_peer(input: &mut Reader<'_>) -> Result<Peer, TakeoverRefusal> {
    Ok(match input.u8()? {
        0 => {
            let ip = Ipv4Addr::from(input.array::<4>()?);
            Peer::Internet(SocketAddrV4::new(ip, input.u16()?).into())
        }
        1 => {
            let (ip, port) = (Ipv6Addr::from(input.array::<16>()?), input.u16()?);
            let (flow, scope) = (input.u32()?, input.u32()?);
            Peer::Internet(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        2 => Peer::Local { uid: input.u32()? },
        _ => return Err(TakeoverRefusal::Value("peer")),
    })
}

fn put_rights(to: &mut Writer, rights: Rights) {
    to.put([u8::from(rights.read) | u8::from(rights.write) << 1]);
}

fn take_rights(input: &mut Reader<'_>) -> Result<Rights, TakeoverRefusal> {
    match input.u8()? {
        bits @ 0..=3 => Ok(Rights { read: bits & 1 != 0, write: bits & 2 != 0 }),
        _ => Err(TakeoverRefusal::Value("rights")),
    }
}

fn put_grant(
    to: &mut Writer,
    grant: Option<&MigratingGrant>,
    names: &Names,
) -> Result<(), TakeoverRefusal> {
    to.flag(grant.is_some());
    let Some(grant) = grant else { return Ok(()) };
    to.put(names.place(grant.tenant)?.to_le_bytes());
    to.flag(grant.register);
    put_rights(to, grant.all);
    to.count(grant.single.len())?;
    grant.single.iter().for_each(|rights| put_rights(to, *rights));
    Ok(())
}

fn take_grant(
    input: &mut Reader<'_>,
    names: &[Result<Member, String>],
) -> Result<Option<MigratingGrant>, TakeoverRefusal> {
    if !input.flag("grant")? {
        return Ok(None);
    }
    let (tenant, register) = (take_tenant(input, names)?, input.flag("right to register")?);
    let (all, count) = (take_rights(input)?, input.count(1)?);
    let single = (0..count).map(|_| take_rights(input)).collect::<Result<_, _>>()?;
    Ok(Some(MigratingGrant { tenant, register, all, single }))
}

/// Takes a reference to the table of names, and returns the tenant. Returns `None` for an absent
/// tenant, and `Some(None)` for a name that is unknown here.
fn take_member(
    input: &mut Reader<'_>,
    names: &[Result<Member, String>],
) -> Result<Option<Option<Member>>, TakeoverRefusal> {
    match input.u16()? {
        NOBODY => Ok(None),
        place => {
            let known = names.get(usize::from(place)).ok_or(TakeoverRefusal::Value("tenant"))?;
            Ok(Some(known.as_ref().ok().copied()))
        }
    }
}

/// Takes a reference to the table of names. Fails if the name is unknown here, since this tenant is
/// required.
fn take_tenant(
    input: &mut Reader<'_>,
    names: &[Result<Member, String>],
) -> Result<TenantId, TakeoverRefusal> {
    let place = usize::from(input.u16()?);
    match names.get(place) {
        Some(Ok(member)) => Ok(member.tenant),
        Some(Err(name)) => Err(TakeoverRefusal::Tenant(name.clone())),
        None => Err(TakeoverRefusal::Value("tenant")),
    }
}

fn put_place(
    to: &mut Writer,
    place: Option<&MigratingNameClaim>,
    names: &Names,
) -> Result<(), TakeoverRefusal> {
    to.flag(place.is_some());
    let Some(place) = place else { return Ok(()) };
    to.put(names.place(place.tenant)?.to_le_bytes());
    to.put(place.client.to_le_bytes());
    to.put(place.connection.to_le_bytes());
    to.flag(place.is_superseded);
    Ok(())
}

fn take_place(
    input: &mut Reader<'_>,
    names: &[Result<Member, String>],
) -> Result<Option<MigratingNameClaim>, TakeoverRefusal> {
    if !input.flag("place")? {
        return Ok(None);
    }
    Ok(Some(MigratingNameClaim {
        tenant: take_tenant(input, names)?,
        client: input.u128()?,
        connection: input.u32()?,
        serial: 0,
        is_superseded: input.flag("place")?,
    }))
}

pub(crate) fn put_command(to: &mut Writer, command: Command) {
    let (number, fua) = match command {
        Command::Read(_) => (0, false),
        Command::Write { fua, .. } => (1, fua),
        Command::WriteAtomic(_) => (2, false),
        Command::Compare(_) => (3, false),
        Command::CompareAndWrite(_) => (4, false),
        Command::Flush => (5, false),
        Command::Discard(_) => (6, false),
        Command::WriteZeroes { fua, .. } => (7, fua),
        Command::Barrier => (8, false),
        Command::Commit { .. } => unreachable!("no protocol carries a commit"),
    };
    let range = command.range().unwrap_or(Range::new(0, 0));
    to.put([number]);
    to.flag(fua);
    to.put(range.lba.to_le_bytes());
    to.put(range.blocks.to_le_bytes());
}

pub(crate) fn take_command(input: &mut Reader<'_>) -> Result<Command, TakeoverRefusal> {
    let (number, fua) = (input.u8()?, input.flag("command")?);
    let range = Range::new(input.u64()?, input.u32()?);
    let command = match number {
        0 => Command::Read(range),
        1 => Command::Write { range, fua },
        2 => Command::WriteAtomic(range),
        3 => Command::Compare(range),
        4 => Command::CompareAndWrite(range),
        5 => Command::Flush,
        6 => Command::Discard(range),
        7 => Command::WriteZeroes { range, fua },
        8 => Command::Barrier,
        _ => return Err(TakeoverRefusal::Value("command")),
    };
    let whole = command.range().is_none_or(|range| range.blocks > 0 && range.end().is_some());
    match whole && command.buffer_bytes() <= 2 * REQUEST_BYTES_MAX {
        true => Ok(command),
        false => Err(TakeoverRefusal::Value("range")),
    }
}

/// The encoded size in bytes of a request without a payload.
const REQUEST_BYTES_MIN: usize = 8 + 1 + 2 + 14 + 2 + 1 + 8 + 1 + 4 + 8;

fn put_request(
    to: &mut Writer,
    request: &MigratingRequest,
    now: Instant,
    names: &Names,
) -> Result<(), TakeoverRefusal> {
    to.put(request.tag.to_le_bytes());
    to.put([request.stream]);
    to.put(names.place(request.tenant)?.to_le_bytes());
    put_command(to, request.command);
    to.put(request.namespace.0.to_le_bytes());
    to.put([request.device]);
    to.put(request.lba.to_le_bytes());
    let (is_begun, bytes) = match &request.payload {
        MigratingPayload::Whole(bytes) => (false, bytes),
        MigratingPayload::Begun(bytes) => (true, bytes),
    };
    to.flag(is_begun);
    to.string(bytes)?;
    to.put(age(now, request.received_at));
    Ok(())
}

fn take_request(
    input: &mut Reader<'_>,
    now: Instant,
    names: &[Result<Member, String>],
) -> Result<MigratingRequest, TakeoverRefusal> {
    let (tag, stream) = (input.u64()?, input.u8()?);
    let (tenant, command) = (take_tenant(input, names)?, take_command(input)?);
    let (namespace, device) = (NamespaceId(input.u16()?), input.u8()?);
    let (lba, is_begun) = (input.u64()?, input.flag("payload")?);
    let bytes = input.string()?.to_vec();
    let received_at = earlier(now, input.u64()?);
    let total = command.payload_bytes();
    let payload = match is_begun {
        false if bytes.len() == total => MigratingPayload::Whole(bytes),
        true if bytes.len() < total => MigratingPayload::Begun(bytes),
        _ => return Err(TakeoverRefusal::Value("payload")),
    };
    if stream >= STREAMS {
        return Err(TakeoverRefusal::Value("stream"));
    }
    Ok(MigratingRequest {
        tag,
        stream,
        tenant,
        command,
        namespace,
        device,
        lba,
        payload,
        received_at,
    })
}

fn put_waiting(to: &mut Writer, waiting: Option<&Request>) -> Result<(), TakeoverRefusal> {
    to.flag(waiting.is_some());
    waiting.map_or(Ok(()), |request| put_bare(to, request))
}

/// The encoded size in bytes of a request whose payload has not come, with its tenant.
const BARE_BYTES: usize = 2 + 8 + 1 + 2 + 2 + 14 + 4 + 2;

fn put_bare(to: &mut Writer, request: &Request) -> Result<(), TakeoverRefusal> {
    to.put(request.tag.to_le_bytes());
    to.put([request.stream]);
    to.put(request.namespace.map_or(0, |number| number.0).to_le_bytes());
    to.put(request.tenant.to_le_bytes());
    put_command(to, request.command);
    to.count(request.payload_bytes)?;
    to.put(request.verdict.code().to_le_bytes());
    Ok(())
}

fn take_waiting(input: &mut Reader<'_>) -> Result<Option<Request>, TakeoverRefusal> {
    match input.flag("request")? {
        true => take_bare(input).map(Some),
        false => Ok(None),
    }
}

fn take_bare(input: &mut Reader<'_>) -> Result<Request, TakeoverRefusal> {
    let (tag, stream) = (input.u64()?, input.u8()?);
    let namespace = Some(NamespaceId(input.u16()?)).filter(|number| number.0 > 0);
    let (tenant, command) = (input.u16()?, take_command(input)?);
    let (payload_bytes, verdict) = (input.u32()? as usize, Status::from_code(input.u16()?));
    let is_other = verdict.is_ok() && payload_bytes != command.payload_bytes();
    if stream >= STREAMS || payload_bytes > 2 * REQUEST_BYTES_MAX || is_other {
        return Err(TakeoverRefusal::Value("request"));
    }
    Ok(Request { tag, stream, namespace, tenant, command, payload_bytes, verdict })
}

#[cfg(test)]
mod tests;
