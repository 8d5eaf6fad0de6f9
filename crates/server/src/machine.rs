//! The machine that a server runs on: its name, its identifier, and the names derived from them.

use std::fs;
use std::sync::OnceLock;

/// The prefix of the qualified names of this program's subsystems.
const NQN_PREFIX: &str = "nqn.2026-11.io.nearflash";

/// Returns the default qualified name of the subsystem that a configuration leaves unnamed.
pub(crate) fn own_name() -> String {
    format!("{NQN_PREFIX}:{}", machine_name())
}

/// Returns the machine's name on the network.
fn machine_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the machine's identifier from `/etc/machine-id`, or the machine's name if there is no
/// such file. The file is read once per process. Namespace UUIDs are derived from the identifier.
pub(crate) fn machine_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        if id.trim().is_empty() { machine_name() } else { id.trim().to_owned() }
    })
}
