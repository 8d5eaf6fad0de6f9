//! A listening socket that a successor is passed, and its purpose.

use io::{Kept, Listener};
use serde::{Deserialize, Serialize};

use crate::listen::{ListenAt, url};

/// A socket that listens and that the next process is passed.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) role: Role,
    /// The address as it was configured.
    pub(crate) wanted: String,
    pub(crate) kept: Kept,
}

impl Socket {
    /// Returns what the successor is passed of a listener.
    pub(crate) fn of(listener: &Listener, role: Role, wanted: String) -> Socket {
        Socket { role, wanted, kept: listener.keep() }
    }
}

/// The purpose of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Clients, by this listener.
    Listener(u16),
    /// The admin API.
    Admin,
    /// Scrapes.
    Metrics,
    /// The next process.
    Upgrade,
}

/// Returns the URL of a listener as it was asked for.
pub(crate) fn wanted(at: &ListenAt) -> String {
    url(at.protocol, &at.endpoint)
}
