//! The port between a worker and the control plane: bounded messages, and counters.
//!
//! The same mailbox carries connections from one worker to another (docs/adr/0007-moving-connections.md).
//!
//! A worker never waits for the control plane: it asks, goes on, and finds the answer in a later
//! turn. The control plane never touches what a worker owns: it tells, and reads
//! [`Meters`](crate::Meters). Rates and shares need no message at all, because schedulers read
//! them where the registry writes them (docs/adr/0005-mailbox.md).

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use crate::{
    ConnId, Instant, ListenerId, Namespace, NamespaceId, Parcel, Peer, Slo, Status, Tag, TenantId,
    Ticket,
};

/// A tenant as one life of its number: the number is used again only in a later epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its number.
    pub tenant: TenantId,
    /// How often the number was freed before.
    pub epoch: u32,
}

/// What a connection wants of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The worker that asks.
    pub worker: u16,
    /// The connection for which it asks.
    pub conn: ConnId,
    /// The peer's name for the request.
    pub tag: Tag,
    /// The connection's handle on the tenant; zero where it has none yet.
    pub handle: u16,
    /// The tenant that the connection belongs to by its access rule: who asks.
    pub asker: TenantId,
    /// What it wants.
    pub wish: Wish,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A tenant of this name, made unless it is there.
    Register {
        /// Its name.
        name: Box<str>,
        /// What it is promised.
        slo: Slo,
        /// The device, in the order of configuration, that the promise is about.
        device: u8,
    },
    /// To belong to a tenant of this name that an operator made.
    Enter {
        /// Its name.
        name: Box<str>,
    },
    /// Another promise.
    Change {
        /// Whose.
        member: Member,
        /// The new one.
        slo: Slo,
    },
    /// The connection gave its handle back.
    Unregister {
        /// On whom.
        member: Member,
    },
}

/// Whose latency bound limits the rate that a device makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitedBy {
    /// Nobody's: nothing was refused for want of rate.
    #[default]
    Nobody,
    /// The SLO's that was asked for.
    ThisSlo,
    /// That of a tenant that is admitted already.
    Tenant(TenantId),
}

/// What the control plane answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it ended.
    pub status: Status,
    /// Who was registered or changed, when it ended well.
    pub member: Option<Member>,
    /// Tokens a second that the SLO needs.
    pub tokens_needed: u64,
    /// Tokens a second that were free for it.
    pub tokens_free: u64,
    /// Whose latency is the strictest, when the rate did not suffice.
    pub limited_by: LimitedBy,
    /// That latency in microseconds.
    pub limit_latency_us: u32,
}

impl Answer {
    /// An answer that is a status and nothing else.
    pub const fn bare(status: Status) -> Answer {
        Answer {
            status,
            member: None,
            tokens_needed: 0,
            tokens_free: 0,
            limited_by: LimitedBy::Nobody,
            limit_latency_us: 0,
        }
    }
}

/// What a worker is told, by the control plane or by another worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    /// The connection is to move to another worker: exactly one [`Report::Moved`] follows.
    Move {
        /// Which.
        conn: ConnId,
        /// To whom.
        to: u16,
    },
    /// So many connections, whichever, are to move to another worker; as many as there are and as
    /// can. A later word about the same worker replaces this one.
    Give {
        /// How many.
        count: u32,
        /// To whom.
        to: u16,
        /// How many may be on their way at a time: each is paused until those before it have landed.
        at_once: u16,
    },
    /// Connections that together ask for such a part of what all of the worker's do are to move to another
    /// worker: about as much, never one that asks for much more, and none that asks for nothing.
    Relieve {
        /// The part, in thousandths.
        permille: u16,
        /// To whom.
        to: u16,
        /// As in [`Give`](Tell::Give).
        at_once: u16,
    },
    /// The worker is to say what its connections are, from a place of its table on: exactly one
    /// [`Report::Listed`] follows.
    List {
        /// The first place.
        from: u32,
    },
    /// A connection comes from another worker: exactly one `Landed` or `Returned` follows.
    Arrive(Box<Parcel>),
    /// A connection that was given away has landed.
    Landed {
        /// Which it was.
        ticket: Ticket,
        /// Its name there.
        conn: ConnId,
        /// From when it was not received from to when it was received from again.
        pause: Duration,
    },
    /// A connection that was given away comes back, because it found no room.
    Returned(Box<Parcel>),
    /// The answer to an [`Ask`]: exactly one each.
    Answer {
        /// Who asked.
        conn: ConnId,
        /// The peer's name for the request.
        tag: Tag,
        /// The ask's.
        handle: u16,
        /// What it is told.
        answer: Answer,
    },
    /// The tenant was unregistered: handles on it are good no more. The worker ends its epoch.
    Leave {
        /// Who.
        tenant: TenantId,
    },
    /// The tenant wants more than it was promised: its connections are given notice.
    Renegotiate {
        /// Who.
        member: Member,
        /// Measured requests a second.
        iops: u32,
        /// Measured share of reads.
        read_percent: u8,
    },
    /// Connections are to end: no more requests are taken from them, and each ends when what it has in
    /// flight has ended, or then. A later word about the same ones replaces this one.
    Drain {
        /// Those that came by this listener; `None`: all that there are now.
        listener: Option<ListenerId>,
        /// When the last of them end, whatever they have in flight; `None`: those that have not been
        /// told so far go on, and new ones come.
        until: Option<Instant>,
    },
    /// A connection is to end: no more requests are taken from it, and it ends when what it has in flight
    /// has ended, or then: exactly one [`Report::Ends`] follows, at once, or once it has landed if it is on
    /// its way to another worker. A later word about the same one replaces this one's time.
    End {
        /// Which.
        conn: ConnId,
        /// When it ends, whatever it has in flight.
        until: Instant,
    },
    /// A namespace is another one from now on, or none. The worker says in
    /// [`Meters`](crate::Meters) when no device has requests any more that this forbids.
    Place {
        /// Counts these messages.
        change: u64,
        /// Which.
        number: NamespaceId,
        /// What it is; `None`: it is gone.
        namespace: Option<Namespace>,
    },
}

/// Why a connection did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It is gone, or its end has begun.
    Gone,
    /// What it speaks cannot move there.
    Session,
    /// It did not become quiet in time: its peer does not read, or the device is slow.
    Busy,
    /// Too many leave the worker already.
    TooMany,
    /// The other worker had no room for it, is not there, or is its own.
    NoRoom,
    /// It has moved while it was asked about, and has another name now.
    Elsewhere {
        /// Whose it is; no worker's number: it is in another process.
        worker: u16,
        /// Its name there.
        conn: ConnId,
    },
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stays::Gone => "it is gone, or its end has begun",
            Stays::Session => "connections of its protocol cannot move there",
            Stays::Busy => {
                "it did not become quiet in time: its peer does not read its replies, or the \
                 device is slow"
            }
            Stays::TooMany => "too many connections leave its worker already; try again",
            Stays::NoRoom => "the other worker has no room for it",
            Stays::Elsewhere { .. } => "it has just moved, and has another name now",
        })
    }
}

/// What a worker knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name there.
    pub conn: ConnId,
    /// The other end.
    pub peer: Peer,
    /// The tenant that it belongs to; `None`: it may do nothing (yet).
    pub tenant: Option<TenantId>,
    /// The listener that it came by.
    pub listener: u16,
    /// Its requests in flight.
    pub in_flight: u32,
    /// Messages that have come on it at this worker; wraps.
    pub messages: u32,
    /// Whether what it speaks can move to other workers.
    pub can_move: bool,
    /// Whether it can move to another process, too.
    pub can_leave: bool,
    /// Whether its end has begun: no more requests are taken from it.
    pub is_ending: bool,
}

/// What a worker tells the control plane of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// What a [`Tell::List`] asked for.
    Listed {
        /// Whose they are.
        worker: u16,
        /// The place that was asked about.
        from: u32,
        /// Those from there on, not all.
        connections: Box<[Listed]>,
        /// The first place that was not looked at; `None`: there are no more.
        next: Option<u32>,
    },
    /// How a [`Tell::Move`] ended.
    Moved {
        /// The worker that it left.
        worker: u16,
        /// Its name there.
        conn: ConnId,
        /// Its name at its new worker, and how long it was not received from; or why it stays.
        ended: Result<(ConnId, Duration), Stays>,
    },
    /// What became of a [`Tell::End`].
    Ends {
        /// The worker that was told.
        worker: u16,
        /// The connection that it was told of.
        conn: ConnId,
        /// What it is while it ends; or why it does not.
        begun: Result<Listed, Stays>,
    },
}

/// A worker's end. No method blocks.
pub trait Mailbox {
    /// Sends to the control plane. `false`: its box is full, or it is gone; nothing was sent.
    fn ask(&mut self, ask: Ask) -> bool;

    /// Tells the control plane something. What its box has no room for is lost.
    fn report(&mut self, report: Report) {
        let _unheard = report;
    }

    /// Sends to another worker.
    ///
    /// # Errors
    /// The message comes back: the other's box is full, or there is nobody.
    fn pass(&mut self, to: u16, tell: Tell) -> Result<(), Tell> {
        let _nobody = to;
        Err(tell)
    }

    /// The next message.
    fn poll(&mut self) -> Option<Tell>;
}

/// The mailbox of a worker without a control plane.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMailbox;

impl Mailbox for NoMailbox {
    fn ask(&mut self, _: Ask) -> bool {
        false
    }

    fn poll(&mut self) -> Option<Tell> {
        None
    }
}
