//! A start in the ordinary way of a process whose take-over has lost its other side, so that one
//! process serves whichever of the two was killed.
//!
//! The process replaces itself by the program that it is (`execve(2)`) and keeps its number and its
//! output. So what it had open is closed, and journals, locks and the state file are dealt with as
//! after any server that was killed.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use io::{Link, Process};

use crate::log;

/// The program of this process, also where its file was replaced or removed.
const PROGRAM: &str = "/proc/self/exe";

/// Looks for a server at a socket whose last server seems to have ended, and the pause before each.
const LOOKS: u32 = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Looks at a process whose link has closed, until it has ended, and the pause between two.
const END_LOOKS: u32 = 5000;
const END_PAUSE: Duration = Duration::from_millis(1);

/// The environment variable that brings the reason over to the program that starts: the threads that
/// write the log end with this one, and whoever reads it may not do so for now.
const WHY: &str = "NEARFLASH_STARTED_ANEW";

/// Tells why this process starts, if another start of it was to take over.
pub(crate) fn tell_why() {
    if let Ok(why) = std::env::var(WHY) {
        log::tell(format!("{why}; this process starts as after a crash"));
    }
}

/// Begins this process again as a server that takes over from nobody.
///
/// # Errors
/// The program cannot be started.
pub(super) fn start_anew(why: &str) -> Result<Infallible, String> {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let program = program.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| OsString::from("nearflash"));
    let error = Command::new(&program).arg0(name).args(without_upgrade(words)).env(WHY, why).exec();
    Err(format!("cannot start {} anew: {error}", Path::new(&program).display()))
}

/// The server that was asked to hand over, as far as it has shown itself.
#[derive(Default)]
pub(super) struct OtherEnd {
    pub(super) owner: Option<Process>,
    /// True if its link ended before it said anything.
    pub(super) is_silent: bool,
}

/// Returns true if the process that was asked to hand over has ended. Of a process that has not shown
/// itself, only a socket at which nobody listens any more is a sign of that.
pub(super) fn has_been_killed(path: &Path, end: &OtherEnd) -> bool {
    match &end.owner {
        Some(owner) => ends(owner),
        None => end.is_silent && is_deserted(path),
    }
}

/// Returns true if nobody listens at a socket any more, whose server's last link has closed. The socket
/// closes when all that the server has open does, which takes a moment.
fn is_deserted(path: &Path) -> bool {
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK_PAUSE);
        if let Err(error) = Link::connect(path) {
            return error.kind() == ErrorKind::ConnectionRefused;
        }
    }
    false
}

/// Returns true if a process whose link has closed ends. It has closed its files by then, unless it
/// lives on without the link.
pub(super) fn ends(process: &Process) -> bool {
    (0..END_LOOKS).any(|n| {
        std::thread::sleep(if n == 0 { Duration::ZERO } else { END_PAUSE });
        process.has_ended()
    })
}

fn without_upgrade(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    words.filter(|word| word != "--upgrade")
}
