//! The port between a worker and the control plane: bounded messages, and counters.
//!
//! The same mailbox carries connections from one worker to another
//! (docs/adr/0007-moving-connections.md).
//!
//! A worker never waits for the control plane. It asks, goes on, and finds the answer in a later
//! turn. The control plane never touches a worker's data. It sends messages, and reads
//! [`Meters`](crate::Meters). Rates and shares need no message at all, because schedulers read them
//! where the registry writes them (docs/adr/0005-mailbox.md).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::{
    ConnId, Instant, ListenerId, MigratingConnection, Namespace, NamespaceId, Peer, Slo, Status,
    Tag, TenantId, Ticket,
};

/// A tenant's number within one epoch: the number is reused only in a later epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The tenant's number on the whole server.
    pub tenant: TenantId,
    /// Number of times that the tenant's number was freed before.
    pub epoch: u32,
}

/// A request of a connection to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenancyRequest {
    /// The worker that asks on behalf of the connection.
    pub worker: u16,
    /// The connection for which the worker asks.
    pub conn: ConnId,
    /// The peer's identifier of the request.
    pub tag: Tag,
    /// The connection's handle on the tenant; zero if it has none yet.
    pub handle: u16,
    /// The connection's tenant by its access rule: the tenant that asks.
    pub asker: TenantId,
    /// The operation that the connection requests.
    pub wish: TenancyOperation,
}

/// An operation that a connection requests of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenancyOperation {
    /// Registers a tenant by its name. An existing tenant is joined.
    Register {
        /// The name of the tenant to register or join.
        name: Box<str>,
        /// The requested SLO; `None` for best effort.
        slo: Option<Slo>,
        /// The device that the SLO is about, in the order of configuration.
        device: u8,
    },
    /// Asks for the admission of the connection to a tenant that an operator has created.
    Enter {
        /// The name of the tenant to join.
        name: Box<str>,
    },
    /// Changes the SLO of a tenant.
    Change {
        /// The tenant whose SLO changes.
        member: Member,
        /// The new SLO; `None` for best effort.
        slo: Option<Slo>,
    },
    /// Gives up the connection's handle.
    Unregister {
        /// The tenant of the handle.
        member: Member,
    },
}

/// The owner of the latency bound that limits a device's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitedBy {
    /// No tenant: no request was refused for lack of rate.
    #[default]
    Nobody,
    /// The SLO that is being requested.
    ThisSlo,
    /// A tenant that is already admitted.
    Tenant(TenantId),
}

/// The control plane's answer to an [`TenancyRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenancyAnswer {
    /// The status of the operation.
    pub status: Status,
    /// The registered or changed tenant, on success.
    pub member: Option<Member>,
    /// Tokens per second that the requested SLO needs.
    pub tokens_needed: u64,
    /// On success, tokens per second that the device has left beside the SLO; on refusal, those
    /// that were free for it.
    pub tokens_free: u64,
    /// The owner of the strictest latency bound, if the rate did not suffice.
    pub limited_by: LimitedBy,
    /// The strictest latency bound in microseconds.
    pub limit_latency_us: u32,
}

impl TenancyAnswer {
    /// Returns an answer that only has a status.
    pub const fn bare(status: Status) -> TenancyAnswer {
        TenancyAnswer {
            status,
            member: None,
            tokens_needed: 0,
            tokens_free: 0,
            limited_by: LimitedBy::Nobody,
            limit_latency_us: 0,
        }
    }
}

/// A message to a worker, from the control plane or from another worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerMessage {
    /// Moves a connection to another worker. Exactly one [`Report::Moved`] follows.
    Move {
        /// The connection to move.
        conn: ConnId,
        /// The worker that the connection moves to.
        to: u16,
    },
    /// Moves any `count` connections to another worker, or as many of them as exist and can move. A
    /// later message about the same destination replaces this one.
    Give {
        /// Number of connections to move.
        count: u32,
        /// The worker that the connections move to.
        to: u16,
        /// Maximum number of concurrent moves. Each connection is paused until the moves before it
        /// have landed.
        at_once: u16,
    },
    /// Moves connections to another worker that together cause a part of this worker's load. The
    /// worker moves about that part: never a connection with much more load, nor one without load.
    Relieve {
        /// The part of the load, in thousandths.
        permille: u16,
        /// The worker that the connections move to.
        to: u16,
        /// Maximum number of concurrent moves, as in [`Give`](WorkerMessage::Give).
        at_once: u16,
    },
    /// Lists the worker's connections from a position of its table on. Exactly one
    /// [`Report::Listed`] follows.
    List {
        /// The first position of the worker's table of connections to list.
        from: u32,
    },
    /// Hands over a connection from another worker. Exactly one `Landed` or `Returned` follows.
    Arrive(Box<MigratingConnection>),
    /// Reports that a moved connection has landed.
    Landed {
        /// The ticket of the connection.
        ticket: Ticket,
        /// The connection's identifier at the new worker.
        conn: ConnId,
        /// Time during which the connection was not received from.
        pause: Duration,
    },
    /// Returns a moved connection that found no room.
    Returned(Box<MigratingConnection>),
    /// Answers an [`TenancyRequest`]: exactly one answer each.
    Answer {
        /// The connection on whose behalf the worker asked.
        conn: ConnId,
        /// The peer's identifier of the request.
        tag: Tag,
        /// The handle of the request.
        handle: u16,
        /// The control plane's answer.
        answer: TenancyAnswer,
    },
    /// Announces that a tenant was removed, so that its handles are invalid. The worker ends the
    /// tenant's epoch.
    Leave {
        /// The tenant that was removed.
        tenant: TenantId,
    },
    /// Sends a notice to a tenant's connections: the tenant demands more than its SLO.
    Renegotiate {
        /// The tenant that demands more than its SLO.
        member: Member,
        /// The tenant's measured rate in requests per second.
        iops: u32,
        /// Measured share of reads in percent.
        read_percent: u8,
    },
    /// Drains connections: they accept no more requests, and each ends when its requests in flight
    /// have ended, or at `until`. A later message about the same connections replaces this one.
    Drain {
        /// The listener of the connections; `None` for all current connections.
        listener: Option<ListenerId>,
        /// Deadline at which the remaining connections are cut, even with requests in flight.
        /// `None` cancels the drain: connections that were not told to end continue, and new ones
        /// are accepted.
        until: Option<Instant>,
    },
    /// Ends a connection: it accepts no more requests, and ends when its requests in flight have
    /// ended, or at `until`.
    ///
    /// Exactly one [`Report::Ends`] follows: at once, or after landing if the connection is moving
    /// to another worker. A later message about the same connection replaces the time.
    End {
        /// The connection to end.
        conn: ConnId,
        /// Deadline at which the connection is cut, even with requests in flight.
        until: Instant,
    },
    /// Changes or removes a namespace. The worker reports in [`Meters`](crate::Meters) when no
    /// device has requests any more that the change forbids.
    Place {
        /// Number of the change, in the order of these messages.
        change: u64,
        /// The number of the namespace that changes.
        number: NamespaceId,
        /// The new namespace; `None` to remove it.
        namespace: Option<Namespace>,
        /// The name of the namespace that changes.
        name: Arc<str>,
    },
}

/// The reason that a connection did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveRefusal {
    /// The connection is gone, or its end has begun.
    Gone,
    /// The connection's session cannot move there.
    Session,
    /// The connection did not become quiet in time: its peer does not read, or the device is slow.
    Busy,
    /// Too many connections leave the worker already.
    TooMany,
    /// The other worker had no room for the connection, does not exist, or is the connection's own
    /// worker.
    NoRoom,
    /// The connection has moved in the meantime, and has another identifier now.
    Elsewhere {
        /// The connection's worker. A number of no worker means another process.
        worker: u16,
        /// The connection's identifier at that worker.
        conn: ConnId,
    },
}

impl fmt::Display for MoveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveRefusal::Gone => "it is gone, or its end has begun",
            MoveRefusal::Session => "connections of its protocol cannot move there",
            MoveRefusal::Busy => {
                "it did not become quiet in time: its peer does not read its replies, or the \
                 device is slow"
            }
            MoveRefusal::TooMany => "too many connections leave its worker already; try again",
            MoveRefusal::NoRoom => "the other worker has no room for it",
            MoveRefusal::Elsewhere { .. } => "it has just moved, and has another name now",
        })
    }
}

/// A worker's description of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnSummary {
    /// The connection's identifier at the worker.
    pub conn: ConnId,
    /// The network address, or the user, at the other end of the connection.
    pub peer: Peer,
    /// The connection's tenant; `None` while the connection has no rights.
    pub tenant: Option<TenantId>,
    /// The place of the listener that accepted the connection.
    pub listener: u16,
    /// Number of its requests in flight.
    pub in_flight: u32,
    /// Number of messages received on the connection at this worker; wraps at 2³².
    pub messages: u32,
    /// `true` if the connection's session can move to other workers.
    pub can_move: bool,
    /// `true` if the connection can also move to another process.
    pub can_leave: bool,
    /// `true` if its end has begun: it accepts no more requests.
    pub is_ending: bool,
}

/// A worker's report to the control plane about its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The answer to a [`WorkerMessage::List`].
    Listed {
        /// Number of the reporting worker.
        worker: u16,
        /// The first position, as requested.
        from: u32,
        /// Descriptions of the connections from position `from` on, possibly not all of them.
        connections: Box<[ConnSummary]>,
        /// The first position that was not visited; `None` at the end of the table.
        next: Option<u32>,
    },
    /// The outcome of a [`WorkerMessage::Move`].
    Moved {
        /// The worker that the connection left.
        worker: u16,
        /// The connection's identifier at that worker.
        conn: ConnId,
        /// On success, the connection's identifier at its new worker, and the time during which no
        /// bytes were received from the connection. On failure, the reason why the connection
        /// stays.
        ended: Result<(ConnId, Duration), MoveRefusal>,
    },
    /// The outcome of a [`WorkerMessage::End`].
    Ends {
        /// The worker that received the message.
        worker: u16,
        /// The connection of the message.
        conn: ConnId,
        /// The description of the ending connection, or the reason that it does not end.
        begun: Result<ConnSummary, MoveRefusal>,
    },
}

/// A worker's end of the mailbox. No method blocks.
pub trait Mailbox {
    /// Sends a request to the control plane. Returns `false`, and sends nothing, if the mailbox is
    /// full or the control plane is gone.
    fn ask(&mut self, ask: TenancyRequest) -> bool;

    /// Sends a report to the control plane. A report that finds the mailbox full is lost.
    fn report(&mut self, report: Report) {
        let _unheard = report;
    }

    /// Sends a message to another worker.
    ///
    /// # Errors
    /// The message comes back if the other worker's mailbox is full, or there is no such worker.
    fn pass(&mut self, to: u16, tell: WorkerMessage) -> Result<(), WorkerMessage> {
        let _nobody = to;
        Err(tell)
    }

    /// Returns the next message to the worker; `None` if there is none now.
    fn poll(&mut self) -> Option<WorkerMessage>;
}

/// The mailbox of a worker without a control plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMailbox;

impl Mailbox for NoMailbox {
    fn ask(&mut self, _: TenancyRequest) -> bool {
        false
    }

    fn poll(&mut self) -> Option<WorkerMessage> {
        None
    }
}
