//! A connection in transfer from one worker to another: plain data, and the number of its socket.
//!
//! A parcel contains nothing of a worker: no slot, no buffer, nothing shared by address. This
//! module deliberately leaves out the encoding for another process, which `proto::takeover` has,
//! and the socket itself, which the transports pass among themselves.

use alloc::vec::Vec;

use crate::{
    Command, Instant, ListenerId, Member, NamespaceId, NamespaceView, Peer, Request, Rights, Tag,
    TenantId, Ticket,
};

/// A connection in transfer, with all state that its new worker needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratingConnection {
    /// The worker that the connection comes from.
    pub from: u16,
    /// The ticket of its socket.
    pub ticket: Ticket,
    /// The address of the peer.
    pub peer: Peer,
    /// The listener that accepted the connection.
    pub listener: ListenerId,
    /// The peer's knowledge of namespaces that were removed, and whose numbers are used again.
    pub view: NamespaceView,
    /// The session, as packed by [`MigratableSession::pack`](crate::MigratableSession::pack).
    pub session: Vec<u8>,
    /// The connection's rights; `None` while it has none.
    pub grant: Option<MigratingGrant>,
    /// The grant's tenant, if the connection joined it and the membership can move.
    pub entered: Option<Member>,
    /// The tenants that the connection registered, by handle less one.
    pub handles: Vec<Option<Member>>,
    /// The connection's position among the connections of its client.
    pub place: Option<MigratingNameClaim>,
    /// The connection's requests, oldest first: those of a stream in their order.
    pub requests: Vec<MigratingRequest>,
    /// The request whose payload comes next and has no buffer yet; `None` if there is no such
    /// request.
    pub waiting: Option<Request>,
    /// Requests whose payload has not been asked for, oldest first, each with the tenant it is
    /// charged to.
    pub put_off: Vec<(Request, Member)>,
    /// `true` if the arriving payload belongs to a refused request.
    pub discards: bool,
    /// Bytes that were received after all of `requests` and are not parsed yet.
    pub unparsed: Vec<u8>,
    /// Time since which the connection is not received from.
    pub paused_at: Instant,
}

/// The rights of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratingGrant {
    /// The tenant that the connection's requests are charged to.
    pub tenant: TenantId,
    /// `true` if the connection may register tenants.
    pub register: bool,
    /// The rights to every namespace.
    pub all: Rights,
    /// Additional rights to single namespaces, by number less one.
    pub single: Vec<Rights>,
}

/// A connection's position in the succession of connections that its client has opened under the
/// same connection number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigratingNameClaim {
    /// The tenant of the client.
    pub tenant: TenantId,
    /// The client's identifier, by which its connections belong together.
    pub client: u128,
    /// The client's number for the connection.
    pub connection: u32,
    /// Number that distinguishes this connection from earlier and later ones with the same client
    /// name; unique within one server.
    pub serial: u64,
    /// `true` if a newer connection took the identifier: no request of this connection may start
    /// any more.
    pub is_superseded: bool,
}

/// A request in transfer, which has not been submitted to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratingRequest {
    /// The peer's identifier of the request.
    pub tag: Tag,
    /// The stream in which barriers order the request.
    pub stream: u8,
    /// The tenant that is charged.
    pub tenant: TenantId,
    /// The command as the peer sent it.
    pub command: Command,
    /// The namespace of the command.
    pub namespace: NamespaceId,
    /// The number of the device that the namespace is on.
    pub device: u8,
    /// The first block on the device.
    pub lba: u64,
    /// The request's payload.
    pub payload: MigratingPayload,
    /// Time at which the request's last byte had arrived.
    pub received_at: Instant,
}

/// A request's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigratingPayload {
    /// The whole payload, possibly empty.
    Whole(Vec<u8>),
    /// The received part of the payload; the connection receives the rest next. Only the last
    /// request can have a partial payload.
    Begun(Vec<u8>),
}
