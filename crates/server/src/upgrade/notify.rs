//! Notifications to the service manager: that the server is ready, which process it is, and how
//! long it takes to stop (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Returns true if a service manager expects notifications.
pub(super) fn is_watched() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Beyond what a server may take to drain: what it does then, such as writing what it owes to its audit
/// log.
const LAST: Duration = Duration::from_secs(20);

/// Tells that this process serves.
pub(crate) fn ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Asks for as much time as a drain of so long may take, of whoever has told this process to stop.
pub(crate) fn drains(limit: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}\n", (limit + LAST).as_micros()));
}

/// A manager that nobody named, or that is not there, hears nothing.
fn tell(words: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&place),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told something");
    }
}
