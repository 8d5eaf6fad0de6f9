//! The reports of a host, and its timeouts.

use core::fmt;
use core::time::Duration;

use contract::CloseReason;
use proto::nvme_tcp::{Found, Refusal};

use crate::Loss;

/// The timeouts and pauses of a host.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Maximum time for a queue to connect, and for a silent server that owes an answer.
    pub silence_max: Duration,
    /// The first pause before connecting again. The pause doubles with each failure.
    pub pause_min: Duration,
    /// The longest pause before connecting again.
    pub pause_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            silence_max: Duration::from_secs(30),
            pause_min: Duration::from_millis(10),
            pause_max: Duration::from_secs(1),
        }
    }
}

/// An event of a host, except the end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostReport {
    /// All queues are connected to the controller; `Found` has the properties that the host has
    /// learned.
    Up(Found),
    /// The controller is lost, or could not be created. The host connects again after a pause.
    Lost(HostLoss),
}

/// The reason that there is no controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostLoss {
    /// A connection ended, or was silent for too long.
    Connection(Loss),
    /// The server refused a step of the connection, or broke the protocol.
    Refused(Refusal),
}

impl HostLoss {
    /// Returns the loss of a connection that the network ended.
    pub(super) const fn network(reason: CloseReason) -> HostLoss {
        HostLoss::Connection(Loss::Network(reason))
    }

    /// Returns `false` if the network reported that the dial failed, and `true` for every other
    /// loss.
    pub const fn reached(&self) -> bool {
        match self {
            HostLoss::Connection(loss) => loss.reached(),
            HostLoss::Refused(_) => true,
        }
    }
}

impl fmt::Display for HostLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostLoss::Connection(loss) => loss.fmt(f),
            HostLoss::Refused(refusal) => refusal.fmt(f),
        }
    }
}
