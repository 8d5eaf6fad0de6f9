//! The words between the controller and whatever carries its capsules: a transport's binding shows
//! each submission to its [`Queue`](super::Queue) and acts on the [`Step`]; what comes later comes
//! as an [`Action`] of [`Fabric::poll`](super::Fabric::poll).

use alloc::vec::Vec;
use core::net::IpAddr;

use contract::{Command, ConnId, NamespaceId, TenantId};
use wire::nvme::{CommandId, Completion, Status};
use zerocopy::little_endian::{U16, U64};

/// Where the connection of a queue lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The worker, below [`Config::workers`](super::Config::workers); of a connection that is on its
    /// way from one to another, `u16::MAX`.
    pub worker: u16,
    /// The connection, as that worker's transport names it.
    pub conn: ConnId,
    /// Where it comes from, by which failed authentications are counted; `None`: nobody counts.
    pub address: Option<IpAddr>,
}

/// How a command ended, before the queue has stamped its head pointer on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The command.
    pub cid: CommandId,
    /// How it ended.
    pub status: Status,
    /// Command specific.
    pub result: u64,
}

impl Answer {
    /// The command was carried out.
    pub const fn ok(cid: CommandId) -> Answer {
        Answer { cid, status: Status::SUCCESS, result: 0 }
    }

    /// The command was carried out, with this result.
    pub const fn with_result(cid: CommandId, result: u64) -> Answer {
        Answer { cid, status: Status::SUCCESS, result }
    }

    /// The command failed.
    pub const fn error(cid: CommandId, status: Status) -> Answer {
        Answer { cid, status, result: 0 }
    }

    /// The completion queue entry with this head pointer.
    pub fn completion(&self, sq_head: u16) -> Completion {
        Completion {
            result: U64::new(self.result),
            sq_head: U16::new(sq_head),
            sq_id: U16::ZERO,
            cid: U16::new(self.cid),
            status: U16::new(self.status.to_field()),
        }
    }
}

/// What to do with a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is for a device. Its payload (of [`Io::payload_bytes`]) goes into a buffer of
    /// [`Io::command`], the device's completion into [`Queue::complete`](super::Queue::complete).
    Device(Io),
    /// The controller carries it out itself, in [`Queue::execute`](super::Queue::execute), once the
    /// host's payload is here.
    Controller {
        /// Bytes that the host sends; zero: at once. Never more than 4 096.
        payload_bytes: usize,
    },
    /// It is refused. A payload that came in its capsule is skipped, none is asked for.
    Refused(Answer),
}

/// A command for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The host's name for it.
    pub cid: CommandId,
    /// The controller's name of the namespace.
    pub nsid: u32,
    /// The server's.
    pub namespace: NamespaceId,
    /// Whom it is charged to; `None`: whomever the connection belongs to.
    pub tenant: Option<TenantId>,
    /// What to do, in the contract's blocks; it lies within the namespace.
    pub command: Command,
    /// Bytes that the host sends with this command, by its capsule or when asked.
    pub payload_bytes: usize,
    /// Bytes that the host receives when it succeeds. Zero for a verify, whose `command` is a read.
    pub reply_bytes: usize,
    /// Whether it is half of a fused operation.
    pub fused: Fused,
}

/// Halves of a fused compare and write. `command` is the same
/// [`CompareAndWrite`](Command::CompareAndWrite) in both: the payload of the first is the first half
/// of the buffer, that of the second the other. It starts when both have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// An ordinary command.
    None,
    /// The compare: keep it until its write comes, or until
    /// [`Queue::orphan`](super::Queue::orphan) answers it.
    First,
    /// The write.
    Second {
        /// Its compare.
        first: CommandId,
    },
}

/// What became of a command of the controller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has ended; what was written to the output goes to the host, if the status is good.
    Done(Answer),
    /// It waits, as an event request does; its answer comes as [`Action::Complete`].
    Parked,
    /// [`Command::Discard`] these ranges ([`Queue::ranges`](super::Queue::ranges)), each a request
    /// of the namespace, and answer when all have ended.
    Discard(Io),
    /// It has ended, and so has its queue: what was written to the output goes to the host, then the
    /// answer, then the connection is closed.
    Closing(Answer),
}

/// What the controllers want of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A parked command has ended.
    Complete {
        /// Its connection.
        conn: ConnId,
        /// How; to be stamped by [`Queue::seal`](super::Queue::seal).
        answer: Answer,
        /// Data for the host.
        data: Vec<u8>,
    },
    /// The connection's association is over: close it, when what was to be said has left.
    Close {
        /// Which.
        conn: ConnId,
        /// Why, for the log.
        reason: CloseReason,
    },
}

impl Action {
    /// Whose it is.
    pub fn conn(&self) -> ConnId {
        match self {
            Action::Complete { conn, .. } | Action::Close { conn, .. } => *conn,
        }
    }
}

/// Why a connection is closed by its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The host said nothing for its keep-alive timeout.
    KeepAliveExpired,
    /// The host reset the controller.
    Reset,
    /// The host shut the controller down.
    ShutDown,
    /// The controller's admin connection has ended.
    AdminGone,
    /// The host may no longer connect.
    HostRemoved,
    /// The subsystem, or this way to it, is no more.
    SubsystemRemoved,
    /// The host did not prove who it is.
    NotAuthenticated,
}
