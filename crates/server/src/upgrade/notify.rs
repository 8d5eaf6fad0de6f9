//! Notifications to the service manager: that the server is ready, which process it is, that its
//! workers run, and how long it takes to stop (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

/// Returns true if a service manager expects notifications.
pub(super) fn is_watched() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// The time that shutdown steps after a drain may take, such as writing the last lines of the audit
/// log.
const LAST: Duration = Duration::from_secs(20);

/// The environment variable that says how often the service manager wants a sign of life, in
/// microseconds (`sd_watchdog_enabled(3)`).
pub(super) const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
pub(super) const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// The watchdog interval of the predecessor, which the service manager does not tell a successor.
static INHERITED: OnceLock<Duration> = OnceLock::new();

/// Stores the watchdog interval of the predecessor for this process.
pub(super) fn inherit_interval(interval: Duration) {
    let _ = INHERITED.set(interval); // a process takes over once
}

/// Returns the time without a sign of life after which the service manager ends this process;
/// `None` if it waits for no sign.
pub(crate) fn interval() -> Option<Duration> {
    let told = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_own = told(WATCHDOG_PID).is_none_or(|pid| pid == u64::from(std::process::id()));
    let own = told(WATCHDOG_USEC).filter(|micros| is_own && *micros > 0);
    own.map(Duration::from_micros).or_else(|| INHERITED.get().copied())
}

/// Sends the service manager a sign of life.
pub(crate) fn lives() {
    tell("WATCHDOG=1\n");
}

/// Notifies the service manager that this process serves, and that it is the service's main
/// process.
pub(crate) fn ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Asks the service manager to extend its stop time-out by the length of a drain.
pub(crate) fn drains(limit: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}\n", (limit + LAST).as_micros()));
}

/// Sends a message to the service manager's socket (`sd_notify(3)`); does nothing if there is no
/// service manager.
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
