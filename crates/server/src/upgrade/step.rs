//! The steps of a take-over, with their time limits.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The time limit of a step that waits only for the other process.
pub(super) const STEP_MAX: Duration = Duration::from_secs(10);

/// The time limit for the successor to open devices and create its workers.
pub(super) const PREPARE_MAX: Duration = Duration::from_secs(120);

/// The time after the predecessor's sudden end during which its last requests may still reach a
/// device, until the kernel has freed its rings.
pub(super) const AFTERMATH: Duration = Duration::from_secs(1);

/// Marks a step of one of the two processes. For tests and experiments, the process can pause
/// there: for two seconds with `NEARFLASH_UPGRADE_STAY=predecessor:still:2000` in its environment,
/// or until a file exists with `predecessor:still:/tmp/go`.
pub(super) fn step(of: &str, name: &str) {
    step_with(of, name, 0);
}

/// Logs a step of the take-over with a number of connections.
pub(super) fn step_with(of: &str, name: &str, count: usize) {
    static STAY: OnceLock<Option<String>> = OnceLock::new();
    tracing::debug!(of, name, count, "take-over");
    let Some(stay) = STAY.get_or_init(|| std::env::var("NEARFLASH_UPGRADE_STAY").ok()) else {
        return;
    };
    for mut words in stay.split(',').map(|one| one.splitn(3, ':')) {
        if (words.next(), words.next()) == (Some(of), Some(name)) {
            crate::log::say(format_args!("stays at {of}:{name} ({count})"));
            stay_until(words.next().unwrap_or("3600000"));
        }
    }
}

/// Pauses for the number of milliseconds in `end`, or until the file with that path exists.
fn stay_until(end: &str) {
    if let Ok(milliseconds) = end.parse() {
        std::thread::sleep(Duration::from_millis(milliseconds));
        return;
    }
    while !Path::new(end).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}
