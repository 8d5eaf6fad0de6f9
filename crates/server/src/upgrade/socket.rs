//! A listening socket that is passed to a successor, and its purpose.

use std::os::fd::OwnedFd;

use io::{Listener, ListenerHandle};
use serde::{Deserialize, Serialize};

use super::inventory::{self, SocketRecord};
use crate::listen::{ListenAt, url};

/// A listening socket that is passed to the successor, with its purpose and its addresses.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) role: Role,
    /// The socket's address as the configuration gives it.
    pub(crate) wanted: String,
    pub(crate) kept: ListenerHandle,
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
    /// Clients' connections to the listener whose identifier has this place.
    Listener(u16),
    /// Operators' connections to the admin API.
    Admin,
    /// Connections that scrape the metrics.
    Metrics,
    /// Successors that want to take over.
    Upgrade,
}

/// Returns a listener over the first socket for which `is_wanted` is true, with the further sockets
/// of the same listener; `None` if there is no such socket.
///
/// # Errors
/// Fails if a socket is not what it was said to be.
pub(super) fn adopt(
    sockets: &mut [(SocketRecord, Option<OwnedFd>)],
    is_wanted: impl Fn(&SocketRecord) -> bool,
) -> Result<Option<Listener>, String> {
    let found = sockets.iter().find(|(at, socket)| is_wanted(at) && socket.is_some());
    let Some(at) = found.map(|(at, _)| at.clone()) else { return Ok(None) };
    let all = sockets.iter_mut().filter(|(one, _)| *one == at);
    let mut all = all.filter_map(|(_, socket)| socket.take());
    let first = all.next().expect("it was just seen");
    let adopted = Listener::adopt(first, inventory::endpoint(&at.is_at)?);
    let mut listener = adopted.map_err(|error| error.to_string())?;
    listener.adopt_others(all.collect()).map_err(|error| error.to_string())?;
    Ok(Some(listener))
}

/// Returns the configured URL of a listener, without options. By this URL, a successor finds the
/// listener among its own.
pub(crate) fn wanted(at: &ListenAt) -> String {
    url(at.protocol, &at.endpoint)
}
