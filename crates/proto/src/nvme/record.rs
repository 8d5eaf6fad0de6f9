//! The controller's record of one of its queues.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use contract::{AuthFailures, Fence, Instant};
use wire::nvme::CommandId;

use super::auth::transaction::{CHANCE_BYTES, Transaction};
use super::binding::QueueAddress;
use super::config::{HostId, Nqn, PortId};
use super::counts::Counts;
use super::link::Link;

/// The kind of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// An I/O controller, which gives a host access to namespaces.
    Io,
    /// A discovery controller, which lists for a host the subsystems that the host may connect to.
    Discovery,
}

/// The two ends of a controller's association, and the port between them.
#[derive(Clone, Debug)]
pub(super) struct Association {
    pub(super) kind: ControllerKind,
    pub(super) subsystem: Nqn,
    pub(super) port: PortId,
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
    /// `true` if the controller was created over a TLS connection, so that the connections of its
    /// other queues must use TLS, too.
    pub(super) is_secured: bool,
}

/// The counts of a queue, shared with its controller's record.
pub(super) type SharedCounts = Arc<Counts>;

/// The parameters of a queue as it was created, and the state that the queue shares with its
/// controller.
#[derive(Clone, Debug)]
pub(super) struct QueueParameters {
    pub(super) link: Arc<Link>,
    pub(super) counts: SharedCounts,
    /// The fence that counts the queue's data-changing requests at devices; superseded when the
    /// queue ends.
    pub(super) fence: Arc<Fence>,
    pub(super) kind: ControllerKind,
    pub(super) id: u16,
    pub(super) size: u16,
    pub(super) flow_control: bool,
    /// `true` if the host has authenticated or need not.
    pub(super) proven: Arc<AtomicBool>,
    /// `true` if the queue ended while another thread held the fabric's lock, so that the
    /// controller has not removed the queue's record yet.
    pub(super) has_left: Arc<AtomicBool>,
}

impl QueueParameters {
    /// Returns the controller's record of the queue, which need not be authenticated.
    pub(super) fn record(
        &self,
        place: QueueAddress,
        transaction: Transaction,
        now: Instant,
    ) -> QueueRecord {
        QueueRecord {
            place,
            size: self.size,
            counts: Arc::clone(&self.counts),
            fence: Arc::clone(&self.fence),
            must_prove: false,
            prove_by: now,
            proven: Arc::clone(&self.proven),
            has_left: Arc::clone(&self.has_left),
            transaction,
            waiting: None,
            put_off: None,
            negotiated_at: now,
        }
    }
}

/// A host's message that begins an authentication, and whose processing is delayed.
#[derive(Debug)]
pub(super) struct DelayedNegotiation {
    pub(super) due: Instant,
    pub(super) message: Vec<u8>,
    pub(super) chance: [u8; CHANCE_BYTES],
}

/// An Authentication Receive command that waits for the controller's next message.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingReceive {
    pub(super) cid: CommandId,
    pub(super) room: usize,
}

/// A controller's record of one of its queues: the queue's address, authentication and counters.
#[derive(Debug)]
pub(super) struct QueueRecord {
    pub(super) place: QueueAddress,
    pub(super) size: u16,
    pub(super) counts: SharedCounts,
    /// The fence that counts the queue's data-changing requests at devices.
    pub(super) fence: Arc<Fence>,
    /// `true` if the host has to authenticate the queue before any other command.
    pub(super) must_prove: bool,
    /// The time at which the queue ends if the host has not authenticated.
    pub(super) prove_by: Instant,
    /// `true` if the host has authenticated or need not; read by the queue.
    pub(super) proven: Arc<AtomicBool>,
    /// `true` if the queue has ended while another thread held the fabric's lock; set by the queue.
    pub(super) has_left: Arc<AtomicBool>,
    pub(super) transaction: Transaction,
    /// The Authentication Receive command that waits for the controller's next message, if there is
    /// one.
    pub(super) waiting: Option<WaitingReceive>,
    /// A negotiation that is delayed because of earlier failures.
    pub(super) put_off: Option<DelayedNegotiation>,
    /// The time at which the host's last negotiation message was processed.
    pub(super) negotiated_at: Instant,
}

impl QueueRecord {
    /// Returns when the authentication is overdue; `None` once it has succeeded, or if none is
    /// required.
    pub(super) fn proof_due(&self) -> Option<Instant> {
        (!self.proven.load(Ordering::Acquire)).then_some(self.prove_by)
    }

    /// Counts a failure if the queue ends during its authentication: the computation was wasted.
    pub(super) fn count_abandoned(&self, failures: &mut AuthFailures) {
        if let Some(address) = self.place.address
            && self.transaction.is_under_way()
        {
            failures.add(address, self.negotiated_at);
        }
    }

    /// Tells the queue whether its host has authenticated.
    pub(super) fn tell_proven(&self) {
        self.proven.store(self.transaction.is_proven() || !self.must_prove, Ordering::Release);
    }

    /// Counts a failure if the transaction was refused.
    pub(super) fn count_refusal(&self, failures: &mut AuthFailures, now: Instant) {
        if let Some(address) = self.place.address
            && self.transaction.is_refused()
        {
            failures.add(address, now);
        }
    }
}
