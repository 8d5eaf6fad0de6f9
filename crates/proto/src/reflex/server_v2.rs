//! Version 2 of protocol `reflex` at the server: decoding of incoming heads, encoding of outgoing
//! ones.

use alloc::string::String;

use contract::{
    Command, ControlRequest, FrameHead, HEAD_BYTES_MAX, Hello, HelloReply, NamespaceId,
    NamespaceInfo, Notice, ProtocolError, REQUEST_BYTES_MAX, Range, Reply, Request, Slo, Status,
    Tag, TenantRegistration, TenantReply,
};
use crc::Crc32c;
use wire::reflex_v2::{
    FEATURE_CHECKSUMS, FLAG_FUA, HelloBody, HelloHead, INFO_VOLATILE_CACHE, InfoBody, Opcode,
    RIGHT_READ, RIGHT_WRITE, RenegotiateBody, ReplyHead, ReplyOpcode, RequestHead, SloBody,
    TENANT_BYTES_MAX, TOKEN_BYTES_MAX, TenantBody, VERSION,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::{REQUEST_BLOCKS_MAX, STREAMS_MAX};

/// The largest percentile, in tenths of a percent.
const PERCENTILE_TENTHS_MAX: u16 = 1000;

/// The command that is recorded for a refused request. A flush is used, since it has no block
/// range.
const REFUSED: Command = Command::Flush;

/// Checks a hello's head, and returns the number of bytes of the token and the name that follow it.
pub(super) fn check_hello(head: &HelloHead) -> Result<usize, ProtocolError> {
    let (oldest, newest) = (head.version_min.get(), head.version_max.get());
    if !(oldest..=newest).contains(&VERSION) {
        return Err(ProtocolError::BadVersion(if oldest > VERSION { oldest } else { newest }));
    }
    let (token, tenant) = (usize::from(head.token_bytes), usize::from(head.tenant_bytes));
    for (length, max) in [(token, TOKEN_BYTES_MAX), (tenant, TENANT_BYTES_MAX)] {
        if length > max {
            return Err(ProtocolError::BadLength(length as u64));
        }
    }
    Ok(token + tenant)
}

/// Decodes a checked hello; `words` are the token and the tenant's name. Invalid UTF-8 in the name
/// is replaced, so that it names no tenant.
pub(super) fn hello(head: &HelloHead, words: &[u8]) -> Hello {
    let (token, tenant) = words.split_at(usize::from(head.token_bytes));
    Hello {
        tag: head.tag.get(),
        client: head.client.get(),
        connection: head.connection.get(),
        queue_depth: head.queue_depth.get(),
        checksums: head.features.get() & FEATURE_CHECKSUMS != 0,
        token: token.into(),
        tenant: String::from_utf8_lossy(tenant).into(),
    }
}

/// Decodes a command. A command that cannot be decoded becomes a [refusal] with the reason as its
/// verdict.
pub(super) fn request(head: &RequestHead) -> Request {
    let payload_bytes = head.payload_bytes.get() as usize;
    match command(head) {
        Ok(command) if command.payload_bytes() == payload_bytes => Request {
            tag: head.tag.get(),
            stream: head.stream,
            namespace: namespace(head),
            tenant: head.tenant.get(),
            command,
            payload_bytes,
            verdict: Status::Ok,
        },
        Ok(_) => refusal(head, payload_bytes, Status::BadLength),
        Err(verdict) => refusal(head, payload_bytes, verdict),
    }
}

/// Creates a request that is answered with `verdict`, without using any unchecked field.
pub(super) fn refusal(head: &RequestHead, payload_bytes: usize, verdict: Status) -> Request {
    Request {
        tag: head.tag.get(),
        stream: 0,
        namespace: None,
        tenant: 0,
        command: REFUSED,
        payload_bytes,
        verdict,
    }
}

fn command(head: &RequestHead) -> Result<Command, Status> {
    let fua = match head.opcode {
        Opcode::WRITE | Opcode::WRITE_ZEROES => head.flags & FLAG_FUA,
        _ => 0,
    };
    if head.flags != fua || !is_reserved_zero(head) || head.stream >= STREAMS_MAX {
        return Err(Status::Invalid);
    }
    let fua = fua != 0;
    match head.opcode {
        Opcode::READ => range(head).map(Command::Read),
        Opcode::WRITE => range(head).map(|range| Command::Write { range, fua }),
        Opcode::FLUSH => Ok(Command::Flush),
        Opcode::DISCARD => long_range(head).map(Command::Discard),
        Opcode::WRITE_ZEROES => long_range(head).map(|range| Command::WriteZeroes { range, fua }),
        Opcode::COMPARE_AND_WRITE => range(head).map(Command::CompareAndWrite),
        Opcode::WRITE_ATOMIC => range(head).map(Command::WriteAtomic),
        Opcode::BARRIER => Ok(Command::Barrier),
        _ => Err(Status::Invalid),
    }
}

fn is_reserved_zero(head: &RequestHead) -> bool {
    u32::from(head.reserved) | head.reserved_tail.get() == 0
}

fn range(head: &RequestHead) -> Result<Range, Status> {
    match head.blocks.get() {
        1..=REQUEST_BLOCKS_MAX => Ok(Range::new(head.lba.get(), head.blocks.get())),
        _ => Err(Status::BadLength),
    }
}

/// Returns the range of a request without a payload, which only the namespace's size bounds.
fn long_range(head: &RequestHead) -> Result<Range, Status> {
    match head.blocks.get() {
        0 => Err(Status::BadLength),
        blocks => Ok(Range::new(head.lba.get(), blocks)),
    }
}

fn namespace(head: &RequestHead) -> Option<NamespaceId> {
    let namespace = head.namespace.get();
    (namespace != 0).then_some(NamespaceId(namespace))
}

/// Decodes a ping, info or unregister, which have no payload; `None` if the message is another one
/// or malformed.
pub(super) fn control(head: &RequestHead) -> Option<ControlRequest> {
    if head.payload_bytes.get() != 0 || head.flags != 0 || !is_reserved_zero(head) {
        return None;
    }
    let tag = head.tag.get();
    match head.opcode {
        Opcode::PING => Some(ControlRequest::Ping { tag }),
        Opcode::INFO => Some(ControlRequest::Info { tag, namespace: namespace(head) }),
        Opcode::UNREGISTER => Some(ControlRequest::Unregister { tag, tenant: head.tenant.get() }),
        _ => None,
    }
}

/// Decodes a register or renegotiate with its payload, which is at least an [`SloBody`].
pub(super) fn register(head: &RequestHead, payload: &[u8]) -> Result<ControlRequest, Status> {
    let (body, name) = SloBody::ref_from_prefix(payload).expect("the length was checked");
    if name.len() != usize::from(body.name_bytes) {
        return Err(Status::BadLength);
    }
    let name = core::str::from_utf8(name).map_err(|_| Status::Invalid)?;
    let good = head.flags == 0
        && is_reserved_zero(head)
        && body.read_percent <= 100
        && body.percentile_tenths.get() <= PERCENTILE_TENTHS_MAX;
    if !good {
        return Err(Status::Invalid);
    }
    let register = TenantRegistration {
        tag: head.tag.get(),
        tenant: head.tenant.get(),
        name: name.into(),
        slo: slo(body),
    };
    Ok(match head.opcode {
        Opcode::REGISTER => ControlRequest::Register(register),
        _ => ControlRequest::Renegotiate(register),
    })
}

/// Returns the contract's SLO; `None` for best effort, which a message encodes as zero. Other zeros
/// are defaults.
fn slo(body: &SloBody) -> Option<Slo> {
    let or = |n: u32, default: u32| if n == 0 { default } else { n };
    let tenths = u32::from(body.percentile_tenths.get());
    (body.latency_us.get() > 0).then(|| Slo {
        latency_us: body.latency_us.get(),
        percentile_tenths: or(tenths, Slo::PERCENTILE_TENTHS.into()) as u16,
        iops: body.iops.get(),
        read_percent: body.read_percent,
        request_bytes: or(body.request_bytes.get(), Slo::REQUEST_BYTES),
    })
}

/// Encodes a reply or notice, up to the data of a read, which follows.
pub(super) fn reply(reply: &Reply, body: &[u8], checksums: bool) -> FrameHead {
    match *reply {
        Reply::Done { tag, status, .. } => done(tag, status, body, checksums),
        Reply::Hello { tag, status, reply } => {
            with_body(ReplyOpcode::HELLO, tag, status, &hello_body(&reply, checksums))
        }
        Reply::Info { tag, info } => {
            let (status, body) = match info {
                Ok(info) => (Status::Ok, info_body(&info)),
                Err(status) => (status, InfoBody::new_zeroed()),
            };
            with_body(ReplyOpcode::INFO, tag, status, &body)
        }
        Reply::Tenant { tag, status, reply } => {
            with_body(ReplyOpcode::TENANT, tag, status, &tenant_body(&reply))
        }
        Reply::List { tag, .. } => unreachable!("no list was asked for: {tag:#x}"),
        Reply::Pong { tag } => with_body(ReplyOpcode::PONG, tag, Status::Ok, &()),
        Reply::Notice(Notice::Draining) => {
            with_body(ReplyOpcode::NOTICE_DRAINING, 0, Status::Ok, &())
        }
        Reply::Notice(Notice::Renegotiate { tenant, iops, read_percent }) => {
            let body = RenegotiateBody {
                iops: iops.into(),
                tenant: tenant.into(),
                read_percent,
                reserved: 0,
            };
            with_body(ReplyOpcode::NOTICE_RENEGOTIATE, 0, Status::Ok, &body)
        }
    }
}

fn done(tag: Tag, status: Status, body: &[u8], checksums: bool) -> FrameHead {
    assert!(body.len() <= REQUEST_BYTES_MAX, "a reply carries at most the largest request");
    let body_crc32c = if checksums && !body.is_empty() { Crc32c::of(body) } else { 0 };
    let head = ReplyHead {
        opcode: ReplyOpcode::DONE,
        flags: 0,
        status: status.code().into(),
        body_bytes: (body.len() as u32).into(),
        tag: tag.into(),
        body_crc32c: body_crc32c.into(),
        reserved: 0.into(),
    };
    FrameHead::new(head.as_bytes())
}

/// Encodes a head and the fixed body of its opcode.
fn with_body(
    opcode: ReplyOpcode,
    tag: Tag,
    status: Status,
    body: &(impl IntoBytes + Immutable),
) -> FrameHead {
    let body = body.as_bytes();
    let head = ReplyHead {
        opcode,
        flags: 0,
        status: status.code().into(),
        body_bytes: (body.len() as u32).into(),
        tag: tag.into(),
        body_crc32c: 0.into(),
        reserved: 0.into(),
    };
    let mut bytes = [0; HEAD_BYTES_MAX];
    let (first, rest) = bytes.split_at_mut(size_of::<ReplyHead>());
    first.copy_from_slice(head.as_bytes());
    rest[..body.len()].copy_from_slice(body);
    FrameHead::new(&bytes[..size_of::<ReplyHead>() + body.len()])
}

fn hello_body(reply: &HelloReply, checksums: bool) -> HelloBody {
    HelloBody {
        version: VERSION.into(),
        namespaces: reply.namespaces.into(),
        namespace: reply.namespace.into(),
        reserved: 0.into(),
        queue_depth: reply.queue_depth.into(),
        request_bytes_max: reply.request_bytes_max.into(),
        features: if checksums { FEATURE_CHECKSUMS } else { 0 }.into(),
        storage_epoch: reply.storage_epoch.into(),
    }
}

fn info_body(info: &NamespaceInfo) -> InfoBody {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    InfoBody {
        blocks: info.blocks.into(),
        physical_block_bytes: info.physical_block_bytes.into(),
        atomic_blocks_max: info.atomic_blocks_max.into(),
        namespace: info.namespace.0.into(),
        rights: bit(info.rights.read, RIGHT_READ) | bit(info.rights.write, RIGHT_WRITE),
        flags: bit(info.volatile_cache, INFO_VOLATILE_CACHE),
        reserved: 0.into(),
    }
}

fn tenant_body(reply: &TenantReply) -> TenantBody {
    TenantBody {
        tokens_needed: reply.tokens_needed.into(),
        tokens_free: reply.tokens_free.into(),
        tenant: reply.tenant.into(),
        limited_by: reply.limited_by.into(),
        limit_latency_us: reply.limit_latency_us.into(),
    }
}
