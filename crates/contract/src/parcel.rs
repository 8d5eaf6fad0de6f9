//! A connection on its way from one worker to another: plain data, and the number of its socket.
//!
//! Nothing in it belongs to a worker: no slot, no buffer, nothing that is shared by address. What is
//! deliberately not here: how it is encoded for another process, and the socket itself, which the
//! transports pass among themselves. `proto::takeover` encodes it.

use alloc::vec::Vec;

use crate::{
    Command, Instant, ListenerId, Member, NamespaceId, Peer, Request, Rights, Tag, TenantId, Ticket,
};

/// A connection with everything that is to go on elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The worker that it comes from.
    pub from: u16,
    /// Its socket.
    pub ticket: Ticket,
    /// The other end.
    pub peer: Peer,
    /// The listener that it came by.
    pub listener: ListenerId,
    /// The namespace of requests that name none.
    pub namespace: NamespaceId,
    /// What [`Session::pack`](crate::Session::pack) made of its session.
    pub session: Vec<u8>,
    /// What it may do; `None`: nothing (yet).
    pub grant: Option<ParcelGrant>,
    /// The grant's tenant, if it entered that and it can go.
    pub entered: Option<Member>,
    /// The tenants that it registered, by handle less one.
    pub handles: Vec<Option<Member>>,
    /// Its place among the connections of its client.
    pub place: Option<ParcelPlace>,
    /// Its requests, oldest first: those of a stream in their order.
    pub requests: Vec<ParcelRequest>,
    /// The request whose payload comes next and has nowhere to go yet.
    pub waiting: Option<Request>,
    /// Requests whose payload has not been asked for, oldest first, and whom each is charged to.
    pub put_off: Vec<(Request, Member)>,
    /// The payload that is coming is of a request that was refused.
    pub discards: bool,
    /// Bytes that were received behind all that and not looked at.
    pub unparsed: Vec<u8>,
    /// Since when it is not received from.
    pub paused_at: Instant,
}

/// What a connection may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelGrant {
    /// The tenant that its requests are charged to.
    pub tenant: TenantId,
    /// Whether it may register tenants of its own.
    pub register: bool,
    /// With every namespace.
    pub all: Rights,
    /// With single ones besides, by number less one.
    pub single: Vec<Rights>,
}

/// A connection's place in the order of its client's connections of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParcelPlace {
    /// Whose client.
    pub tenant: TenantId,
    /// The client's name.
    pub client: u128,
    /// Which of its connections.
    pub connection: u32,
    /// Which holder of that name, within one server.
    pub serial: u64,
    /// A newer connection took the name: nothing of this one may start any more.
    pub is_superseded: bool,
}

/// A request that no device has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelRequest {
    /// The peer's name for it.
    pub tag: Tag,
    /// The stream that barriers order.
    pub stream: u8,
    /// Who is charged.
    pub tenant: TenantId,
    /// As the peer named it.
    pub command: Command,
    /// The namespace that it is about.
    pub namespace: NamespaceId,
    /// Which device, and the first block there.
    pub device: u8,
    /// See `device`.
    pub lba: u64,
    /// Its payload.
    pub payload: Payload,
    /// When its last byte had arrived.
    pub received_at: Instant,
}

/// A request's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// All of it, perhaps nothing.
    Whole(Vec<u8>),
    /// What has come of it: the rest is what the connection receives next. Of one request at most,
    /// the last.
    Begun(Vec<u8>),
}
