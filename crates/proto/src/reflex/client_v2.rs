//! Version 2 of protocol `reflex` at the client: encoding of outgoing heads and decoding of
//! incoming ones.

use alloc::vec::Vec;

use contract::{
    Command, ControlRequest, FrameHead, HEAD_BYTES_MAX, Hello, HelloReply, NamespaceId,
    NamespaceInfo, Notice, ProtocolError, Range, Rights, Status, Tag, TenantRegistration,
    TenantReply,
};
use crc::Crc32c;
use wire::reflex_v2::{
    FEATURE_CHECKSUMS, FLAG_FUA, HelloBody, HelloHead, INFO_VOLATILE_CACHE, InfoBody, MAGIC,
    Opcode, RIGHT_READ, RIGHT_WRITE, RenegotiateBody, ReplyHead, ReplyOpcode, RequestHead, SloBody,
    TENANT_BYTES_MAX, TenantBody, VERSION,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::client::ClientEvent;

/// The longest body in bytes of a notice that this client does not know, and skips.
const NOTICE_BYTES_MAX: usize = HEAD_BYTES_MAX - size_of::<ReplyHead>();

/// Encodes the hello: its head, the token, the tenant's name. The caller has checked the lengths.
pub(super) fn greeting(hello: &Hello) -> Vec<FrameHead> {
    let head = HelloHead {
        magic: MAGIC,
        version_min: VERSION.into(),
        version_max: VERSION.into(),
        tag: hello.tag.into(),
        client: hello.client.into(),
        connection: hello.connection.into(),
        queue_depth: hello.queue_depth.into(),
        features: if hello.checksums { FEATURE_CHECKSUMS } else { 0 }.into(),
        token_bytes: hello.token.len() as u8,
        tenant_bytes: hello.tenant.len() as u8,
        reserved: 0.into(),
    };
    heads(&[head.as_bytes(), &hello.token, hello.tenant.as_bytes()])
}

/// Splits the concatenated parts into as few heads as possible.
fn heads(parts: &[&[u8]]) -> Vec<FrameHead> {
    parts.concat().chunks(HEAD_BYTES_MAX).map(FrameHead::new).collect()
}

/// Encodes the head of a request whose lengths were checked. Fails with `Unsupported` for requests
/// that the version does not have.
pub(super) fn request(
    tag: Tag,
    stream: u8,
    namespace: Option<NamespaceId>,
    tenant: u16,
    command: Command,
    payload: &[u8],
    checksums: bool,
) -> Result<FrameHead, Status> {
    let (opcode, fua) = match command {
        Command::Compare(_) | Command::Commit { .. } => return Err(Status::Unsupported),
        Command::Read(_) => (Opcode::READ, false),
        Command::Write { fua, .. } => (Opcode::WRITE, fua),
        Command::WriteAtomic(_) => (Opcode::WRITE_ATOMIC, false),
        Command::CompareAndWrite(_) => (Opcode::COMPARE_AND_WRITE, false),
        Command::Flush => (Opcode::FLUSH, false),
        Command::Discard(_) => (Opcode::DISCARD, false),
        Command::WriteZeroes { fua, .. } => (Opcode::WRITE_ZEROES, fua),
        Command::Barrier => (Opcode::BARRIER, false),
    };
    let range = command.range().unwrap_or(Range::new(0, 0));
    let payload_crc32c = if checksums && !payload.is_empty() { Crc32c::of(payload) } else { 0 };
    let head = RequestHead {
        opcode,
        flags: if fua { FLAG_FUA } else { 0 },
        stream,
        reserved: 0,
        payload_bytes: (payload.len() as u32).into(),
        tag: tag.into(),
        lba: range.lba.into(),
        blocks: range.blocks.into(),
        namespace: namespace.map_or(0, |namespace| namespace.0).into(),
        tenant: tenant.into(),
        payload_crc32c: payload_crc32c.into(),
        reserved_tail: 0.into(),
    };
    Ok(FrameHead::new(head.as_bytes()))
}

/// Encodes a request about the connection or a tenant, such as a ping or a register, as heads to
/// send in this order. Fails with `Unsupported` for requests that the version does not have,
/// `Invalid` for a hello, and `BadLength` for a name that is too long.
pub(super) fn control(control: &ControlRequest) -> Result<Vec<FrameHead>, Status> {
    let head = |opcode: Opcode, tag: Tag| {
        let mut head = RequestHead::new_zeroed();
        head.opcode = opcode;
        head.tag = tag.into();
        head
    };
    match control {
        ControlRequest::Hello(_) => Err(Status::Invalid),
        ControlRequest::Find { .. } | ControlRequest::List { .. } => Err(Status::Unsupported),
        ControlRequest::Ping { tag } => Ok(heads(&[head(Opcode::PING, *tag).as_bytes()])),
        ControlRequest::Info { tag, namespace } => {
            let mut head = head(Opcode::INFO, *tag);
            head.namespace = namespace.map_or(0, |namespace| namespace.0).into();
            Ok(heads(&[head.as_bytes()]))
        }
        ControlRequest::Unregister { tag, tenant } => {
            let mut head = head(Opcode::UNREGISTER, *tag);
            head.tenant = (*tenant).into();
            Ok(heads(&[head.as_bytes()]))
        }
        ControlRequest::Register(register) => {
            with_slo(head(Opcode::REGISTER, register.tag), register)
        }
        ControlRequest::Renegotiate(register) => {
            with_slo(head(Opcode::RENEGOTIATE, register.tag), register)
        }
    }
}

fn with_slo(
    mut head: RequestHead,
    register: &TenantRegistration,
) -> Result<Vec<FrameHead>, Status> {
    if register.name.len() > TENANT_BYTES_MAX {
        return Err(Status::BadLength);
    }
    // Zeros ask for best effort.
    let mut body = SloBody { name_bytes: register.name.len() as u8, ..SloBody::new_zeroed() };
    if let Some(slo) = &register.slo {
        body.latency_us = slo.latency_us.into();
        body.iops = slo.iops.into();
        body.request_bytes = slo.request_bytes.into();
        body.percentile_tenths = slo.percentile_tenths.into();
        body.read_percent = slo.read_percent;
    }
    head.tenant = register.tenant.into();
    head.payload_bytes = ((size_of::<SloBody>() + register.name.len()) as u32).into();
    Ok(heads(&[head.as_bytes(), body.as_bytes(), register.name.as_bytes()]))
}

/// Returns the status of a reply. Statuses that only clients may report become `Internal`.
pub(super) fn status(head: &ReplyHead) -> Status {
    match Status::from_code(head.status.get()) {
        Status::ConnectionLost | Status::WritesLost => Status::Internal,
        status => status,
    }
}

/// Checks and returns the size in bytes of the body after a head other than a command's end. The
/// opcode fixes the size, except that unknown notices have up to `NOTICE_BYTES_MAX`.
pub(super) fn fixed_body_bytes(head: &ReplyHead) -> Result<usize, ProtocolError> {
    let body_bytes = head.body_bytes.get() as usize;
    let fixed = match head.opcode {
        ReplyOpcode::HELLO => size_of::<HelloBody>(),
        ReplyOpcode::INFO => size_of::<InfoBody>(),
        ReplyOpcode::TENANT => size_of::<TenantBody>(),
        ReplyOpcode::NOTICE_RENEGOTIATE => size_of::<RenegotiateBody>(),
        ReplyOpcode::PONG | ReplyOpcode::NOTICE_DRAINING => 0,
        opcode if opcode.is_notice() => body_bytes.min(NOTICE_BYTES_MAX),
        ReplyOpcode(opcode) => return Err(ProtocolError::BadOpcode(u16::from(opcode))),
    };
    if fixed == body_bytes { Ok(fixed) } else { Err(ProtocolError::BadLength(body_bytes as u64)) }
}

/// Decodes a gathered message; `None` for a notice that this client does not know.
pub(super) fn event(
    head: &ReplyHead,
    body: &[u8],
) -> Result<Option<ClientEvent<'static>>, ProtocolError> {
    let tag = head.tag.get();
    let status = status(head);
    Ok(Some(match head.opcode {
        ReplyOpcode::HELLO => {
            let body = whole::<HelloBody>(body);
            if status.is_ok() && body.version.get() != VERSION {
                return Err(ProtocolError::BadVersion(body.version.get()));
            }
            ClientEvent::Hello { tag, status, reply: hello_reply(&body) }
        }
        ReplyOpcode::INFO => {
            let info = whole::<InfoBody>(body);
            let info = if status.is_ok() { Ok(namespace_info(&info)) } else { Err(status) };
            ClientEvent::Info { tag, info }
        }
        ReplyOpcode::TENANT => {
            ClientEvent::Tenant { tag, status, reply: tenant_reply(&whole::<TenantBody>(body)) }
        }
        ReplyOpcode::PONG => ClientEvent::Pong { tag },
        ReplyOpcode::NOTICE_DRAINING => ClientEvent::Notice(Notice::Draining),
        ReplyOpcode::NOTICE_RENEGOTIATE => {
            let body = whole::<RenegotiateBody>(body);
            ClientEvent::Notice(Notice::Renegotiate {
                tenant: body.tenant.get(),
                iops: body.iops.get(),
                read_percent: body.read_percent,
            })
        }
        _ => return Ok(None),
    }))
}

fn whole<T: FromBytes>(body: &[u8]) -> T {
    T::read_from_bytes(body).expect("the length was checked")
}

fn hello_reply(body: &HelloBody) -> HelloReply {
    HelloReply {
        queue_depth: body.queue_depth.get(),
        request_bytes_max: body.request_bytes_max.get(),
        checksums: body.features.get() & FEATURE_CHECKSUMS != 0,
        namespaces: body.namespaces.get(),
        namespace: body.namespace.get(),
        storage_epoch: body.storage_epoch.get(),
    }
}

fn namespace_info(body: &InfoBody) -> NamespaceInfo {
    NamespaceInfo {
        namespace: NamespaceId(body.namespace.get()),
        blocks: body.blocks.get(),
        physical_block_bytes: body.physical_block_bytes.get(),
        atomic_blocks_max: body.atomic_blocks_max.get(),
        rights: Rights {
            read: body.rights & RIGHT_READ != 0,
            write: body.rights & RIGHT_WRITE != 0,
        },
        volatile_cache: body.flags & INFO_VOLATILE_CACHE != 0,
    }
}

fn tenant_reply(body: &TenantBody) -> TenantReply {
    TenantReply {
        tenant: body.tenant.get(),
        tokens_needed: body.tokens_needed.get(),
        tokens_free: body.tokens_free.get(),
        limited_by: body.limited_by.get(),
        limit_latency_us: body.limit_latency_us.get(),
    }
}
