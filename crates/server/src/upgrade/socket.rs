//! A listening socket that is passed to a successor, and its purpose.

use io::{Kept, Listener};
use serde::{Deserialize, Serialize};

use crate::listen::{ListenAt, url};

/// A listening socket that is passed to the successor, with its purpose and its addresses.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) role: Role,
    /// The configured address.
    pub(crate) wanted: String,
    pub(crate) kept: Kept,
}

impl Socket {
    /// Returns a listener's socket as it is passed to the successor, with its purpose and the
    /// configured address `wanted`.
    pub(crate) fn of(listener: &Listener, role: Role, wanted: String) -> Socket {
        Socket { role, wanted, kept: listener.keep() }
    }
}

/// The purpose of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Connections of clients, at the listener whose identifier has this place.
    Listener(u16),
    /// The admin API.
    Admin,
    /// Scrapes of metrics.
    Metrics,
    /// Successors that want to take over.
    Upgrade,
}

/// Returns the configured URL of a listener, without options. By this URL, a successor finds the
/// listener among its own.
pub(crate) fn wanted(at: &ListenAt) -> String {
    url(at.protocol, &at.endpoint)
}
