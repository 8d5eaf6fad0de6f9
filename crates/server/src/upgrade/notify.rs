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

/// The time after a drain for the remaining steps, such as writing the last lines of the audit log.
const LAST: Duration = Duration::from_secs(20);

/// Reports that this process serves.
pub(crate) fn ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Asks the service manager to allow the time of a drain of this length.
pub(crate) fn drains(limit: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}\n", (limit + LAST).as_micros()));
}

/// Sends a message to the service manager, if there is one.
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
