//! The reports of an attachment.

use core::fmt;

use contract::CloseReason;
use proto::nbd::{Found, NbdRefusal};

use crate::Loss;

/// An event of an attachment, except the end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdReport {
    /// All connections have selected the export, whose properties are given.
    Up(Found),
    /// The connections are lost, or could not be made. They are made anew after a pause.
    Lost(NbdLoss),
}

/// The reason that there are no connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdLoss {
    /// A connection ended, or was silent for too long.
    Connection(Loss),
    /// The server refused the export, or broke the protocol.
    Refused(NbdRefusal),
}

impl NbdLoss {
    /// Returns the loss of a connection that the network ended.
    pub(super) const fn network(reason: CloseReason) -> NbdLoss {
        NbdLoss::Connection(Loss::Network(reason))
    }

    /// Returns `false` if the network reported that the dial failed, and `true` for every other
    /// loss.
    pub const fn reached(self) -> bool {
        match self {
            NbdLoss::Connection(loss) => loss.reached(),
            NbdLoss::Refused(_) => true,
        }
    }
}

impl fmt::Display for NbdLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdLoss::Connection(loss) => loss.fmt(f),
            NbdLoss::Refused(refusal) => refusal.fmt(f),
        }
    }
}
