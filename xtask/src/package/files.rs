//! Files of a package, and the commands that make it, with errors that name them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The time limit of one command.
pub(super) const LIMIT: Duration = Duration::from_secs(1200);

/// Copies a file to its place in a tree, with these permissions.
pub(super) fn install(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    create_above(to)?;
    fs::copy(from, to).map_err(|e| say(from, e))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(|e| say(to, e))
}

/// Copies a directory with its contents.
pub(super) fn documents(from: &Path, to: &Path) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|e| say(from, e))? {
        let entry = entry.map_err(|e| say(from, e))?;
        let (source, place) = (entry.path(), to.join(entry.file_name()));
        match source.is_dir() {
            true => documents(&source, &place)?,
            false => install(&source, &place, 0o644)?,
        }
    }
    Ok(())
}

/// Creates the directory of a file.
pub(super) fn create_above(path: &Path) -> Result<(), String> {
    let folder = path.parent().expect("a place inside the tree");
    fs::create_dir_all(folder).map_err(|e| say(folder, e))
}

/// Runs a command and returns its output.
///
/// # Errors
/// The output of a command that failed.
pub(super) fn checked(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = shell::capture(command, LIMIT)?;
    if ran.ok { Ok(ran.output) } else { Err(format!("{name} failed:\n{}", ran.output)) }
}

/// Returns the message for a file that could not be used.
pub(super) fn say(path: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
