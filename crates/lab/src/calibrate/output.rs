//! The files that a calibration writes. Each file is written whole or not at all.

use std::path::{Path, PathBuf};

use super::stop::CalibrationError;

/// Checks before the measurement that a file can be written at `path`.
pub(super) fn check_writable(path: &Path) -> Result<(), CalibrationError> {
    let partial = partial(path);
    let attempt = match path.is_dir() {
        true => Err(std::io::ErrorKind::IsADirectory.into()),
        false => std::fs::write(&partial, "").and_then(|()| std::fs::remove_file(&partial)),
    };
    attempt.map_err(|e| CalibrationError::Failed(format!("cannot write {}: {e}", path.display())))
}

/// Returns the temporary path to which a file is written before it is renamed.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Writes `text` to a temporary file and renames it to `path`, so that the file is whole or
/// unchanged.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let partial = partial(path);
    std::fs::write(&partial, text)
        .and_then(|()| std::fs::rename(&partial, path))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}
