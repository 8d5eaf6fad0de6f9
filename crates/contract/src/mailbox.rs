//! The port between a worker and the control plane: bounded messages, and counters.
//!
//! A worker never waits for the control plane: it asks, goes on, and finds the answer in a later
//! turn. The control plane never touches what a worker owns: it tells, and reads
//! [`Meters`](crate::Meters). Rates and shares need no message at all, because schedulers read
//! them where the registry writes them (docs/adr/0005-mailbox.md).

use alloc::boxed::Box;

use crate::{ConnId, Slo, Status, Tag, TenantId};

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

/// What the control plane tells a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
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
}

/// A worker's end. Neither method blocks.
pub trait Mailbox {
    /// Sends to the control plane. `false`: its box is full, or it is gone; nothing was sent.
    fn ask(&mut self, ask: Ask) -> bool;

    /// The next message of the control plane.
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
