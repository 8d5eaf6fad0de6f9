//! What a worker knows of one connection.

use std::collections::VecDeque;
use std::sync::Arc;

use contract::{
    ConnId, End, Fence, HelloReply, Listed, ListenerId, Member, NamespaceId, ParcelRequest, Peer,
    Request, Session, Slot, Tag,
};

use crate::Grant;
use crate::chain::Chain;
use crate::fence::Place;
use crate::quota::Stand;

/// Streams of a connection that barriers order.
pub(crate) const STREAMS: usize = 8;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<P> {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
    pub(crate) session: P,
    /// `None`: no rule lets it do anything (yet).
    pub(crate) grant: Option<Arc<Grant>>,
    /// The grant's tenant, if it entered that and it can go; the others stay while the server runs.
    pub(crate) entered: Option<Member>,
    /// The listener that it came by.
    pub(crate) listener: ListenerId,
    /// The namespace of requests that name none.
    pub(crate) namespace: NamespaceId,
    /// The tenants that it registered; handle `n` is at `n - 1`.
    pub(crate) handles: Vec<Option<Member>>,
    /// Requests in flight.
    pub(crate) in_flight: usize,
    /// Those among them whose payload was asked for and has not all come.
    pub(crate) awaited: usize,
    /// The same, to find them by.
    pub(crate) asked: Chain,
    /// Bytes of data that their replies will carry.
    pub(crate) owed: usize,
    /// Where the bytes of the message being received go.
    pub(crate) receiving: Receiving,
    /// The request whose buffer the transport has, to receive into it; its return ends this.
    pub(crate) filling: Option<Slot>,
    /// A request that waits for a buffer, or for its tenant to hold less, whose payload has not been
    /// looked at; the next turn that finds a buffer, or the end of one of the tenant's requests,
    /// ends this.
    pub(crate) waiting: Option<Request>,
    pub(crate) streams: [Stream; STREAMS],
    /// Not read from: it is over its limits, or waits for its fence. What had arrived already is
    /// kept here from `carried_from` on.
    pub(crate) stalled: Option<Stalled>,
    /// It is queued, because its stall may be over.
    pub(crate) is_queued: bool,
    /// It is stalled for a shortage of the worker's, and queued for its end.
    pub(crate) is_starving: bool,
    /// Where it stands in a tenant's line, because that holds too much for its next request.
    pub(crate) stand: Option<Stand>,
    /// The answer to its hello, until the fence lets it in.
    pub(crate) greeting: Option<(Tag, HelloReply)>,
    /// What its hello said of its client, while the control plane is asked whether it may enter the
    /// tenant that the hello names.
    pub(crate) entering: Option<(u128, u32)>,
    /// Its hello's token is looked at late; ended by the time.
    pub(crate) is_put_off: bool,
    pub(crate) place: Option<Place>,
    /// Counts its requests that may change data: its place's, or the one that its session gave.
    pub(crate) fence: Option<Arc<Fence>>,
    pub(crate) progress: Progress,
    /// Requests that it brought along from another worker and that have no slot yet, oldest first;
    /// it is stalled until there is none.
    pub(crate) luggage: VecDeque<ParcelRequest>,
    /// Requests of it whose payload is asked for when it has landed, or stays, oldest first, with whom
    /// they are charged to; at most as many as its session takes.
    pub(crate) put_off: Vec<(Request, Member)>,
    /// It is to move to another worker, when it has sent all that it was asked for: it is asked for
    /// nothing more.
    pub(crate) is_settling: bool,
    /// It is to move to another worker: it is not received from, and nothing behind its barriers
    /// starts.
    pub(crate) is_leaving: bool,
    /// No more requests are taken; it ends when those in flight have.
    pub(crate) finishing: bool,
    /// The peer broke the protocol or a limit: its bytes mean nothing any more.
    pub(crate) broken: bool,
    /// Why its end was begun here; `None`: it was not.
    pub(crate) cause: Option<End>,
}

/// Where the payload of the current message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// There is none.
    Nothing,
    /// Into this request's buffer.
    Into(Slot),
    /// Nowhere: the request was refused.
    Discard,
}

/// Bytes that had arrived when the connection was stopped.
#[derive(Debug, Default)]
pub(crate) struct Stalled {
    pub(crate) bytes: Vec<u8>,
    /// `taken ≤ bytes.len()`
    pub(crate) taken: usize,
}

/// The order of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// Requests that have started and not ended.
    pub(crate) running: u32,
    /// A barrier and everything behind it; empty, or a barrier is in front.
    pub(crate) held: Chain,
}

/// Counters that housekeeping compares with what it saw last, to find peers that are stuck.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Messages whose first byte was seen.
    pub(crate) messages: u32,
    /// Bytes given to the transport; less what it has not sent, those that have left.
    pub(crate) queued: u64,
    pub(crate) messages_seen: u32,
    /// Messages between two housekeepings lately: half of it is what the last one saw.
    pub(crate) messages_lately: u32,
    pub(crate) left_seen: u64,
    /// Housekeepings since a message was left half received, and since frames waited unsent.
    pub(crate) idle_receiving: u32,
    pub(crate) idle_sending: u32,
}

impl<P: Session> Connection<P> {
    /// What it is, said by its `worker`.
    pub(crate) fn listed(&self, worker: u16) -> Listed {
        Listed {
            conn: self.id,
            peer: self.peer,
            tenant: self.grant.as_ref().map(|grant| grant.tenant),
            listener: self.listener.0,
            in_flight: self.in_flight as u32,
            messages: self.progress.messages,
            can_move: self.session.moves_to(worker),
            can_leave: self.session.moves_to(u16::MAX),
            is_ending: self.finishing || self.broken,
        }
    }
}

impl<P> Connection<P> {
    /// Whether it is to move to another worker.
    pub(crate) fn is_on_the_move(&self) -> bool {
        self.is_settling || self.is_leaving
    }

    pub(crate) fn new(id: ConnId, peer: Peer, session: P) -> Self {
        Connection {
            id,
            peer,
            session,
            grant: None,
            entered: None,
            listener: ListenerId(0),
            namespace: NamespaceId(1),
            handles: Vec::new(),
            in_flight: 0,
            awaited: 0,
            asked: Chain::default(),
            owed: 0,
            receiving: Receiving::Nothing,
            filling: None,
            waiting: None,
            streams: [Stream::default(); STREAMS],
            stalled: None,
            is_queued: false,
            is_starving: false,
            stand: None,
            greeting: None,
            entering: None,
            is_put_off: false,
            place: None,
            fence: None,
            progress: Progress::default(),
            luggage: VecDeque::new(),
            put_off: Vec::new(),
            is_settling: false,
            is_leaving: false,
            finishing: false,
            broken: false,
            cause: None,
        }
    }
}
