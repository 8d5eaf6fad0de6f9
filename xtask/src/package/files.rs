//! Functions for the files of packages and the commands that make them, with errors that name the
//! file or the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The time limit of one command that makes or checks a package.
pub(super) const LIMIT: Duration = Duration::from_secs(1200);

/// Copies the file `from` to its place `to` in a tree, with the permissions `mode`.
pub(super) fn install(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    create_above(to)?;
    fs::copy(from, to).map_err(|e| say(from, e))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(|e| say(to, e))
}

/// Copies a directory with its contents, whose files get the mode 644.
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

/// Creates the directory that contains the file `path`, and all above it.
pub(super) fn create_above(path: &Path) -> Result<(), String> {
    let folder = path.parent().expect("a place inside the tree");
    fs::create_dir_all(folder).map_err(|e| say(folder, e))
}

/// Runs a command and returns its output, of both streams.
///
/// # Errors
/// The output of a command that failed.
pub(super) fn checked(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = shell::capture(command, LIMIT)?;
    if ran.ok { Ok(ran.output) } else { Err(format!("{name} failed:\n{}", ran.output)) }
}

/// Returns the message of an error in the use of a file, with its path.
pub(super) fn say(path: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
