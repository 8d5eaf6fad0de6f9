//! What a service manager is told of a server: that it serves, and which process it is
//! (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Whether there is a manager that is to be told.
pub(super) fn is_watched() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Tells that this process serves. A manager that nobody named, or that is not there, hears nothing.
pub(crate) fn ready() {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let words = format!("READY=1\nMAINPID={}\n", std::process::id());
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&place),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told that this server is ready");
    }
}
