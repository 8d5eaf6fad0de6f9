//! A normal start of a process whose take-over has lost its peer, so that one process serves
//! whichever of the two was killed.
//!
//! The process replaces itself by its own program (`execve(2)`) and keeps its number and its
//! output. So its files are closed, and journals, locks and the state file are handled as after any
//! killed server. Only the sockets at network cards stay open ([`RetainedSockets`]).

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use io::{Process, ProcessLink};

use super::notify;
use super::retained::RetainedSockets;
use crate::log;

/// The program of this process, even if its file was replaced or removed.
const PROGRAM: &str = "/proc/self/exe";

/// The number of checks of a socket whose server seems to have ended. A pause of [`LOOK_PAUSE`]
/// precedes each.
const LOOKS: u32 = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// The maximum number of checks whether a process whose link has closed has ended. There is a pause
/// of [`END_PAUSE`] between two.
const END_LOOKS: u32 = 5000;
const END_PAUSE: Duration = Duration::from_millis(1);

/// The environment variable that passes the reason to the restarted program, since the threads that
/// write the log end with this one.
const WHY: &str = "NEARFLASH_STARTED_ANEW";

/// Logs the reason of this start, if an attempted take-over preceded it.
pub(crate) fn tell_why() {
    if let Ok(why) = std::env::var(WHY) {
        log::tell(format!("{why}; this process starts as after a crash"));
    }
}

/// Restarts this process as a server that takes over from no other, with the sockets that it could
/// not open again.
///
/// # Errors
/// The program cannot be started.
pub(super) fn start_anew(why: &str, retained: &RetainedSockets) -> Result<Infallible, String> {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let program = program.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| OsString::from("nearflash"));
    let mut command = Command::new(&program);
    command.arg0(name).args(without_upgrade(words)).env(WHY, why);
    if let Some(interval) = notify::interval() {
        command.env(notify::WATCHDOG_USEC, interval.as_micros().to_string());
        command.env_remove(notify::WATCHDOG_PID);
    }
    let passed = retained.pass_on(&mut command);
    let error = passed.err().unwrap_or_else(|| command.exec().to_string());
    retained.keep();
    Err(format!("cannot start {} anew: {error}", Path::new(&program).display()))
}

/// The server that was asked to hand over, as far as it has identified itself.
#[derive(Default)]
pub(super) struct PeerServer {
    pub(super) owner: Option<Process>,
    /// `true` if the connection to the server that was asked to hand over ended before that server
    /// sent anything.
    pub(super) is_silent: bool,
}

/// Returns `true` if the process that was asked to hand over has ended. For a process that has not
/// identified itself, the only sign is a socket at which no server listens any more.
pub(super) fn has_been_killed(path: &Path, end: &PeerServer) -> bool {
    match &end.owner {
        Some(owner) => ends(owner),
        None => end.is_silent && is_deserted(path),
    }
}

/// Returns `true` if no server listens any more at a socket whose server's link has closed. The
/// socket closes with the process's other files, which takes a moment.
fn is_deserted(path: &Path) -> bool {
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK_PAUSE);
        if let Err(error) = ProcessLink::connect(path) {
            return error.kind() == ErrorKind::ConnectionRefused;
        }
    }
    false
}

/// Returns `true` if a process that has closed its connection to this one is ending, and so has
/// closed its files. Returns `false` if the process lives on without the connection.
pub(super) fn ends(process: &Process) -> bool {
    (0..END_LOOKS).any(|n| {
        std::thread::sleep(if n == 0 { Duration::ZERO } else { END_PAUSE });
        process.has_ended()
    })
}

fn without_upgrade(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    words.filter(|word| word != "--upgrade")
}
