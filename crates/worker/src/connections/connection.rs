//! The state of a connection: its stage of life, its requests in flight, and its waits.

use std::collections::VecDeque;
use std::sync::Arc;

use contract::{
    ConnId, ConnSummary, EndCause, Fence, HelloReply, ListenerId, Member, Migrate,
    MigratingRequest, NamespaceId, NamespaceView, Peer, Request, Session, Slot, Tag, TenantId,
};

use super::fence::NameClaim;
use crate::Grant;
use crate::requests::{QueuePosition, SlotList};

/// The number of streams of a connection. A barrier orders the requests of its stream.
pub(crate) const STREAMS: usize = 8;

/// The state of one connection of a worker; `P` is its protocol's session.
#[derive(Debug)]
pub(crate) struct Connection<P> {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
    pub(crate) session: P,
    /// The listener that accepted the connection.
    pub(crate) listener: ListenerId,
    /// The namespace of requests that name none, and the removals of namespaces that the peer knows
    /// of.
    pub(crate) view: NamespaceView,
    pub(crate) life: ConnectionStage,
    pub(crate) greeting: HelloStage,
    pub(crate) membership: Membership,
    /// The connection's position in the succession of connections that use the same client name;
    /// `None` if the client gave no name.
    pub(crate) place: Option<NameClaim>,
    /// The fence that counts the connection's data-changing requests: the fence of the place, or
    /// the session's own.
    pub(crate) fence: Option<Arc<Fence>>,
    pub(crate) outstanding: OutstandingRequests,
    pub(crate) streams: [StreamState; STREAMS],
    pub(crate) intake: ReceiveState,
    /// Requests that came along from another worker and have no slot yet, oldest first. The
    /// connection is stalled while there are any.
    pub(crate) arrived: VecDeque<MigratingRequest>,
    /// Requests whose payload is asked for once the connection has landed or stays, oldest first,
    /// each with the charged tenant. At most as many as the session allows.
    pub(crate) put_off: Vec<(Request, Member)>,
    pub(crate) progress: ProgressCounters,
}

/// The stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    /// Requests are taken. The peer, an order to move or an order to end ends the state.
    Open,
    /// The connection is to move to another worker, and no more payloads are asked for. The last
    /// awaited payload or a time-out ends the state.
    Settling,
    /// The connection is to move to another worker: it is not received from, and nothing behind its
    /// barriers starts. The migration ends the state: the connection goes, or stays.
    Leaving,
    /// The connection takes no more requests, for this reason. The end of its last request in
    /// flight closes the connection.
    Finishing(EndCause),
    /// The peer broke the protocol or a limit, or its time is over: its bytes are ignored. The
    /// state ends when the transport has closed the connection.
    Broken(EndCause),
}

impl ConnectionStage {
    /// Returns whether the connection's end has begun.
    pub(crate) fn is_ending(self) -> bool {
        matches!(self, ConnectionStage::Finishing(_) | ConnectionStage::Broken(_))
    }

    /// Returns whether the connection closes when its requests have ended.
    pub(crate) fn is_finishing(self) -> bool {
        matches!(self, ConnectionStage::Finishing(_))
    }

    /// Returns whether the peer's bytes are ignored.
    pub(crate) fn is_broken(self) -> bool {
        matches!(self, ConnectionStage::Broken(_))
    }

    /// Returns whether the connection is to move to another worker.
    pub(crate) fn is_moving(self) -> bool {
        matches!(self, ConnectionStage::Settling | ConnectionStage::Leaving)
    }

    /// Returns the reason of an end that this worker began; `None` if it began none.
    pub(crate) fn cause(self) -> Option<EndCause> {
        match self {
            ConnectionStage::Open | ConnectionStage::Settling | ConnectionStage::Leaving => None,
            ConnectionStage::Finishing(cause) | ConnectionStage::Broken(cause) => Some(cause),
        }
    }

    /// Begins to end a connection: no more requests are taken from it. Does nothing if the
    /// connection is ending already.
    pub(crate) fn finish(&mut self, cause: EndCause) {
        if !self.is_ending() {
            *self = ConnectionStage::Finishing(cause);
        }
    }

    /// Marks the connection as broken; the first reason stays.
    pub(crate) fn break_off(&mut self, cause: EndCause) {
        *self = ConnectionStage::Broken(self.cause().unwrap_or(cause));
    }

    /// Ends a migration: the connection stays here.
    pub(crate) fn stay(&mut self) {
        if self.is_moving() {
            *self = ConnectionStage::Open;
        }
    }
}

/// The stage of a connection's hello. During a stage other than `Idle`, nothing more is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloStage {
    /// No hello waits for its answer.
    Idle,
    /// The check of the hello's token is delayed. The end of the delay ends the stage.
    Throttled,
    /// The control plane was asked whether the connection may enter the tenant that its hello
    /// names. The answer ends the stage.
    Asked(AcceptedHello, ClientConnection),
    /// The client's name waits for the table of names, which another thread is using. The first
    /// turn that finds the table free ends the stage.
    Unnamed(AcceptedHello, ClientConnection),
    /// The answer waits for the client's earlier connection: until that connection's requests have
    /// ended, or until the process that has it reports their end.
    Fenced(AcceptedHello),
}

/// The answer to a hello that admits its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedHello {
    pub(crate) tag: Tag,
    pub(crate) reply: HelloReply,
}

/// A client's name, and the number of the client's connection that a hello belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientConnection {
    pub(crate) name: u128,
    pub(crate) connection: u32,
}

impl HelloStage {
    /// Returns whether a hello waits for its answer.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self, HelloStage::Idle)
    }

    /// Takes the client out of a hello about which the control plane was asked; the hello then
    /// waits for its fence. Returns `None` without a change at any other stage.
    pub(crate) fn take_asked(&mut self) -> Option<ClientConnection> {
        let HelloStage::Asked(welcome, client) = *self else { return None };
        *self = HelloStage::Fenced(welcome);
        Some(client)
    }

    /// Lets a hello wait until the table of names is free.
    pub(crate) fn await_name(&mut self, client: ClientConnection) {
        if let HelloStage::Fenced(welcome) = *self {
            *self = HelloStage::Unnamed(welcome, client);
        }
    }

    /// Takes the client out of a hello that waited for the table of names; the hello then waits for
    /// its fence. Returns `None` without a change at any other stage.
    pub(crate) fn take_unnamed(&mut self) -> Option<ClientConnection> {
        let HelloStage::Unnamed(welcome, client) = *self else { return None };
        *self = HelloStage::Fenced(welcome);
        Some(client)
    }

    /// Takes the answer of a hello that waited only for its fence. Returns `None` without a change
    /// at any other stage.
    pub(crate) fn take_fenced(&mut self) -> Option<AcceptedHello> {
        let HelloStage::Fenced(welcome) = *self else { return None };
        *self = HelloStage::Idle;
        Some(welcome)
    }
}

/// The tenants that a connection belongs to.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    /// The rights of the connection, and its tenant; `None` while no rule has admitted it.
    pub(crate) grant: Option<Arc<Grant>>,
    /// The tenant of the grant, if the connection counts in it and the tenant can end. `None` for
    /// tenants that access rules or listeners name, since they cannot be removed.
    pub(crate) entered: Option<Member>,
    /// The tenants that the connection registered; handle `n` is at `n - 1`.
    pub(crate) handles: Vec<Option<Member>>,
}

/// The requests of a connection that are in flight.
#[derive(Debug, Default)]
pub(crate) struct OutstandingRequests {
    /// The number of requests in flight.
    pub(crate) count: usize,
    /// The number of requests whose payload the peer was asked for and has not sent.
    pub(crate) awaited: usize,
    /// The list of the requests with awaited payloads.
    pub(crate) asked: SlotList,
    /// Bytes of data that the replies to the requests in flight will carry.
    pub(crate) owed: usize,
}

/// The state of receiving from a connection: the payload that comes next, stalls and waits.
#[derive(Debug)]
pub(crate) struct ReceiveState {
    /// The place for the payload bytes that come next on the connection.
    pub(crate) receiving: PayloadDestination,
    /// The request whose buffer the transport has for a direct receive. The buffer's return ends
    /// the state.
    pub(crate) filling: Option<Slot>,
    /// The received bytes that are kept while the connection is stalled, that is, not received
    /// from: because it is over its limits, or waits for its fence, a slot or a buffer. `None`
    /// while it is not stalled.
    pub(crate) stalled: Option<StalledBytes>,
    /// The connection's position in its tenant's line, because the tenant holds too much for the
    /// next request.
    pub(crate) position: Option<QueuePosition>,
    /// `true` if the connection was called, because its stall may be over.
    pub(crate) is_called: bool,
    /// `true` if the connection is queued for a resource of the worker that is short.
    pub(crate) is_starving: bool,
    /// The tenant that is charged for the connection's kept bytes and queued frames.
    pub(crate) account: TenantId,
}

/// The place of the payload of the current message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadDestination {
    /// The next bytes on the connection are not payload.
    Nothing,
    /// The request before the payload waits for a slot or a buffer, or for its tenant to hold less.
    /// The wait ends in a turn that finds a buffer, or with one of the tenant's requests.
    Waiting(Request),
    /// The next bytes on the connection are payload for the buffer of this request.
    Into(Slot),
    /// The payload is dropped, because the request was refused.
    Discard,
}

/// Bytes that had arrived when the connection was stalled.
#[derive(Debug, Default)]
pub(crate) struct StalledBytes {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes that were parsed: `taken ≤ bytes.len()`.
    pub(crate) taken: usize,
}

impl StalledBytes {
    /// Returns the number of bytes that have not been parsed.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.taken
    }
}

/// The state of one of a connection's streams, whose barriers order requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamState {
    /// The number of the stream's requests that have started and not ended.
    pub(crate) running: u32,
    /// The requests that wait at a barrier: the barrier and all requests behind it, in order. Empty
    /// without a barrier.
    pub(crate) held: SlotList,
}

/// Counters that housekeeping compares with those of its last scan, to find peers that are stuck.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgressCounters {
    /// The number of requests that were parsed, and of pieces of awaited payloads that were
    /// received; wraps.
    pub(crate) messages: u32,
    /// Bytes handed to the transport; without the unsent ones, the bytes that have left.
    pub(crate) queued: u64,
    pub(crate) messages_seen: u32,
    /// Recent messages between two scans: an average in which the last scan counts half.
    pub(crate) messages_lately: u32,
    pub(crate) left_seen: u64,
    /// The number of scans in a row at which a message was half received, or the peer had no
    /// rights, without progress. `idle_sending` counts those at which frames were unsent.
    pub(crate) idle_receiving: u32,
    pub(crate) idle_sending: u32,
}

impl<P: Session> Connection<P> {
    /// Notes that the connection knows of `removals` removals of namespaces, if its session refuses
    /// outdated requests by itself and has no older requests waiting.
    pub(crate) fn follow(&mut self, removals: u64) {
        let waits = self.session.has_more()
            || !self.put_off.is_empty()
            || matches!(self.intake.receiving, PayloadDestination::Waiting(_));
        if self.view.follows && !waits {
            self.view.removals = removals;
        }
    }

    /// Returns a description of the connection, which `worker` has, for the control plane's list.
    pub(crate) fn listed(&self, worker: u16, net: &impl Migrate) -> ConnSummary {
        let moves_to = |to| self.session.moves_to(to) && net.moves_to(self.id, to);
        ConnSummary {
            conn: self.id,
            peer: self.peer,
            tenant: self.membership.grant.as_ref().map(|grant| grant.tenant),
            listener: self.listener.place(),
            in_flight: self.outstanding.count as u32,
            messages: self.progress.messages,
            can_move: moves_to(worker),
            can_leave: moves_to(u16::MAX),
            is_ending: self.life.is_ending(),
        }
    }
}

impl<P> Connection<P> {
    /// Creates a connection that has received nothing.
    pub(crate) fn new(id: ConnId, peer: Peer, session: P) -> Self {
        Connection {
            id,
            peer,
            session,
            listener: ListenerId(0),
            view: NamespaceView::new(NamespaceId(1), 0),
            life: ConnectionStage::Open,
            greeting: HelloStage::Idle,
            membership: Membership::default(),
            place: None,
            fence: None,
            outstanding: OutstandingRequests::default(),
            streams: [StreamState::default(); STREAMS],
            intake: ReceiveState {
                receiving: PayloadDestination::Nothing,
                filling: None,
                stalled: None,
                position: None,
                is_called: false,
                is_starving: false,
                account: TenantId::DEFAULT,
            },
            arrived: VecDeque::new(),
            put_off: Vec::new(),
            progress: ProgressCounters::default(),
        }
    }
}
