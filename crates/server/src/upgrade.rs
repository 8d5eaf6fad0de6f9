//! A new process takes over from the one that runs, with its connections
//! (docs/adr/0009-upgrade.md).
//!
//! Every server that has an upgrade socket has a thread for the [hand-over](hand_over). In the
//! older process it acts as the [predecessor], in the newer one it begins as the [successor]. They
//! talk in the messages of `proto::takeover`. This module deliberately leaves out how a connection
//! leaves its worker and lands at another, which is the same as between two workers.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

mod command;
mod departures;
mod hand_over;
mod inventory;
mod knock;
mod notify;
mod predecessor;
mod socket;
mod successor;
mod talk;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use contract::ListenerId;
use control::admin::{AdminAddress, Running};
use control::{Tenants, WorkerCommands};
use io::{Clock, Listener, Spread, UnixPath, Waker};
use worker::Parts;

use crate::admin::Wanted;
use crate::live::Live;
use crate::orders::Orders;
use crate::places::Places;

pub use command::{Args, run};
pub(crate) use hand_over::HandOver;
pub(crate) use notify::{drains as ask_for_time, ready as tell_service_manager};
pub(crate) use socket::{Role, Socket, wanted};
pub(crate) use successor::Successor;

/// The permissions of the upgrade socket: the user who runs the server, and root.
const MODE: u32 = 0o600;

/// The time limit of a step that waits only for the other process.
const STEP_MAX: Duration = Duration::from_secs(10);

/// The time limit for the successor to open devices and create its workers.
const PREPARE_MAX: Duration = Duration::from_secs(120);

/// The time after the predecessor's sudden end during which its last requests may still reach a
/// device, until the kernel has freed its rings.
const AFTERMATH: Duration = Duration::from_secs(1);

/// The parts of a server that are handed over, or that taken-over connections are added to.
pub(crate) struct Grounds {
    pub(crate) tenants: Tenants,
    pub(crate) commands: WorkerCommands,
    pub(crate) spread: Arc<Spread>,
    pub(crate) shared: Arc<Parts>,
    pub(crate) places: Arc<Places>,
    pub(crate) live: Arc<Live>,
    pub(crate) clock: Clock,
    pub(crate) orders: Arc<Orders>,
    pub(crate) wakers: Vec<Waker>,
    /// Admin API, metrics and the upgrade socket; beside them stand the listeners, which change.
    pub(crate) sockets: Vec<Arc<Socket>>,
    /// The APIs behind them.
    pub(crate) apis: Vec<Running>,
    /// Connections that fit all workers.
    pub(crate) connections_max: usize,
    /// The listeners of these sockets, which the first worker gets when this process serves.
    pub(crate) listeners: Mutex<Vec<(ListenerId, Listener)>>,
}

impl Grounds {
    /// Returns all listening sockets.
    fn all_sockets(&self) -> Vec<Arc<Socket>> {
        let (mut all, _) = self.live.open_sockets();
        all.extend(self.sockets.iter().cloned());
        all
    }

    /// Marks the files of the sockets as owned by the other process, or by this one again.
    fn give_away(&self, is_given: bool) {
        self.all_sockets().iter().for_each(|socket| socket.kept.give_away(is_given));
    }

    /// Lets the APIs accept, or not.
    fn hold_apis(&self, is_held: bool) {
        self.apis.iter().for_each(|api| api.hold(is_held));
    }
}

/// Returns the path of the upgrade socket of a server with this admin API, or `None` if it has
/// none.
pub(crate) fn place(told: Option<&str>, admin: Option<&Wanted>) -> Option<PathBuf> {
    match (told, admin) {
        (Some("none"), _) => None,
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(Wanted::Nowhere)) => None,
        (None, Some(Wanted::At(each))) => each.iter().find_map(|address| {
            let AdminAddress::Unix(path) = address else { return None };
            let mut name = path.as_os_str().to_owned();
            name.push(".upgrade");
            Some(PathBuf::from(name))
        }),
        (None, None) => match crate::admin::default_place() {
            Wanted::Nowhere => None,
            default => place(None, Some(&default)),
        },
    }
}

/// Opens the upgrade socket.
pub(crate) fn open(path: &std::path::Path) -> Result<Listener, String> {
    let path = UnixPath::new(path).map_err(|error| error.to_string())?;
    Listener::bind_unix(&path, MODE).map_err(|error| error.to_string())
}

/// Marks a step of one of the two processes, at which the process can be told to stay for a while:
/// for two seconds with `NEARFLASH_UPGRADE_STAY=predecessor:still:2000` in its environment. This is
/// for tests, and for whoever wants to see a take-over step by step.
fn step(of: &str, name: &str) {
    step_with(of, name, 0);
}

/// Logs a step of the take-over with a number of connections.
fn step_with(of: &str, name: &str, count: usize) {
    static STAY: OnceLock<Option<String>> = OnceLock::new();
    tracing::debug!(of, name, count, "take-over");
    let Some(stay) = STAY.get_or_init(|| std::env::var("NEARFLASH_UPGRADE_STAY").ok()) else {
        return;
    };
    for mut words in stay.split(',').map(|one| one.split(':')) {
        if (words.next(), words.next()) == (Some(of), Some(name)) {
            crate::log::say(format_args!("stays at {of}:{name} ({count})"));
            let long = words.next().and_then(|text| text.parse().ok()).unwrap_or(3_600_000);
            std::thread::sleep(Duration::from_millis(long));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upgrade_socket_is_beside_the_admin_socket() {
        let admin: Wanted = "/run/x/admin.sock".parse().unwrap();
        let beside = PathBuf::from("/run/x/admin.sock.upgrade");
        assert_eq!(place(None, Some(&admin)), Some(beside));
        assert_eq!(place(Some("none"), Some(&admin)), None);
        assert_eq!(place(Some("/u"), Some(&Wanted::Nowhere)), Some(PathBuf::from("/u")));
        assert_eq!(place(None, Some(&Wanted::Nowhere)), None);
    }
}
