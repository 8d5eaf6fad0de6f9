//! What a host tells, and how patient it is.

use core::fmt;
use core::time::Duration;

use contract::CloseReason;
use proto::nvme_tcp::{Found, Refusal};

use crate::Loss;

/// How long a host waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a queue to come up, and for a server that owes an answer to say anything.
    pub silence_max: Duration,
    /// The first pause before connecting again; it doubles with each failure.
    pub pause_min: Duration,
    /// The longest pause.
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

/// What happened besides the end of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostReport {
    /// All queues are there.
    Up(Found),
    /// The controller is lost, or could not be had; the host connects again after a pause.
    Lost(HostLoss),
}

/// Why there is no controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostLoss {
    /// A connection ended, or was silent.
    Connection(Loss),
    /// The server refused.
    Refused(Refusal),
}

impl HostLoss {
    /// The network ended a connection.
    pub(super) const fn network(reason: CloseReason) -> HostLoss {
        HostLoss::Connection(Loss::Network(reason))
    }

    /// Whether there was a connection before.
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
