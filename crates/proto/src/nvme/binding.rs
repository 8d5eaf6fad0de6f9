//! The interface between a controller and the transport that carries its capsules. A transport's
//! binding passes each submission to its [`Queue`](super::Queue) and acts on the
//! [`SubmissionStep`]. Later actions come as an [`Action`] from
//! [`Fabric::poll`](super::Fabric::poll).

use alloc::vec::Vec;
use core::net::IpAddr;

use contract::{Command, ConnId, NamespaceId, PskMark, TenantId};
use wire::nvme::{CommandId, Completion, Status};
use zerocopy::little_endian::{U16, U64};

use super::config::PortId;

/// The worker and connection that a queue lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueAddress {
    /// The worker, below [`Config::workers`](super::Config::workers). `u16::MAX` while the
    /// connection moves from one worker to another.
    pub worker: u16,
    /// The connection, as that worker's transport names it.
    pub conn: ConnId,
    /// The source address, by which failed authentications are counted; `None` means not to count.
    pub address: Option<IpAddr>,
}

/// The origin of a Connect.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The port (listener) by which the connection came.
    pub port: PortId,
    /// The worker and connection that the queue will live on.
    pub place: QueueAddress,
    /// The mark of the key that the peer has proven in the handshake of TLS; `None` without TLS.
    pub proven: Option<PskMark>,
}

impl Origin {
    /// Returns the origin of a connection without TLS.
    pub fn plain(port: PortId, place: QueueAddress) -> Origin {
        Origin { port, place, proven: None }
    }
}

/// The outcome of a command, before the queue adds its head pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The command's identifier.
    pub cid: CommandId,
    /// The status of the command.
    pub status: Status,
    /// The command-specific result.
    pub result: u64,
}

impl CommandResult {
    /// Creates the answer of a command that has succeeded.
    pub const fn ok(cid: CommandId) -> CommandResult {
        CommandResult { cid, status: Status::SUCCESS, result: 0 }
    }

    /// Creates the answer of a command that has succeeded with a result.
    pub const fn with_result(cid: CommandId, result: u64) -> CommandResult {
        CommandResult { cid, status: Status::SUCCESS, result }
    }

    /// Creates the answer of a command that has failed.
    pub const fn error(cid: CommandId, status: Status) -> CommandResult {
        CommandResult { cid, status, result: 0 }
    }

    /// Returns the completion queue entry of this answer, with the submission queue's head pointer
    /// `sq_head`.
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

/// The next step for a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmissionStep {
    /// The command is for a device. Its payload (of [`DeviceRequest::payload_bytes`]) goes into a
    /// buffer of [`DeviceRequest::command`]; the device's completion goes to
    /// [`Queue::complete`](super::Queue::complete).
    Device(DeviceRequest),
    /// The controller carries out the command itself, in [`Queue::execute`](super::Queue::execute),
    /// once the host's payload has arrived.
    Controller {
        /// The number of bytes that the host sends, at most 4 096. Zero means to carry out the
        /// command at once.
        payload_bytes: usize,
    },
    /// The command is refused. A payload in its capsule is skipped, and none is asked for.
    Refused(CommandResult),
    /// Another thread holds the lock of the fabric, and wakes the worker afterwards. The submission
    /// had no effect and has to be repeated then.
    Busy,
}

/// A command for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The host's identifier of the command.
    pub cid: CommandId,
    /// The controller's identifier of the namespace.
    pub nsid: u32,
    /// The server's identifier of the namespace.
    pub namespace: NamespaceId,
    /// The tenant to charge; `None` means the connection's tenant.
    pub tenant: Option<TenantId>,
    /// The operation, in blocks of 512 bytes. Its range lies within the namespace.
    pub command: Command,
    /// The number of bytes that the host sends with this command, in its capsule or on request.
    pub payload_bytes: usize,
    /// The number of bytes that the host receives on success. Zero for a verify, whose `command` is
    /// a read.
    pub reply_bytes: usize,
    /// The command's part in a fused operation.
    pub fused: FusedPart,
}

/// The part of a command in a fused compare and write. Both halves have the same `command`, a
/// [`CompareAndWrite`](Command::CompareAndWrite). The payload of the first is the first half of the
/// buffer, that of the second the other half. The operation starts when both have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedPart {
    /// An ordinary command.
    None,
    /// The compare. It is kept until its write comes, or until
    /// [`Queue::orphan`](super::Queue::orphan) answers it.
    First,
    /// The write, which comes after its compare.
    Second {
        /// The identifier of the compare command, the other half of the fused operation.
        first: CommandId,
    },
}

/// The outcome of a command that the controller carries out itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionOutcome {
    /// The command has ended. The output goes to the host if the status is good.
    Done(CommandResult),
    /// The command waits, as an event request does. Its answer comes as [`Action::Complete`].
    Parked,
    /// The caller must [`Command::Discard`] the ranges of [`Queue::ranges`](super::Queue::ranges),
    /// each as a request of the namespace, and answer the command when all have ended.
    Discard(DeviceRequest),
    /// The command has ended, and so has its queue. The worker sends the command's output and then
    /// the answer to the host, and closes the connection.
    Closing(CommandResult),
    /// Another thread holds the lock of the fabric, and wakes the worker afterwards. The command
    /// had no effect and has to be repeated then.
    Busy,
}

/// An order of a controller to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Completes a command that has waited.
    Complete {
        /// The command's connection.
        conn: ConnId,
        /// The answer, still to be passed to [`Queue::seal`](super::Queue::seal).
        answer: CommandResult,
        /// The data that the host receives before the answer; empty for none.
        data: Vec<u8>,
    },
    /// Closes the connection once all output is sent, because its association is over.
    Close {
        /// The connection to close.
        conn: ConnId,
        /// The reason of the close, for the log.
        reason: CloseReason,
    },
}

impl Action {
    /// Returns the connection that the action is for.
    pub fn conn(&self) -> ConnId {
        match self {
            Action::Complete { conn, .. } | Action::Close { conn, .. } => *conn,
        }
    }
}

/// The reason for which a controller closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The host sent no command for its keep-alive timeout.
    KeepAliveExpired,
    /// The host reset the controller.
    Reset,
    /// The host shut the controller down.
    ShutDown,
    /// The controller's admin connection has ended.
    AdminGone,
    /// The host may no longer connect.
    HostRemoved,
    /// The subsystem was removed, or may no longer be reached through the port of this connection.
    SubsystemRemoved,
    /// The host did not authenticate.
    NotAuthenticated,
}
