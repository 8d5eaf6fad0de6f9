//! The file calls that write the state file and its log, in one place, so that a test can enumerate
//! the writes that a power cut may undo.
//!
//! The assumptions about a file system are weak. Written data survives a power cut once the file is
//! synced. A created, moved or removed name survives once its directory is synced; until then each
//! such change may be lost, independently of the others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

#[cfg(test)]
pub(super) mod power;

/// Maximum size in bytes of a state file or log that is read.
pub(super) const BYTES_MAX: u64 = 1 << 30;

/// A file that is open for appending. A file that is created here is for its owner alone.
#[derive(Debug)]
pub(super) struct AppendFile {
    file: File,
    /// `true` if the file's permissions are durable, because the file existed before or has been
    /// synced.
    is_old: bool,
    #[cfg(test)]
    id: power::FileId,
}

impl AppendFile {
    /// Creates a new file.
    pub(super) fn create(path: &Path) -> io::Result<AppendFile> {
        #[cfg(test)]
        power::may()?;
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(AppendFile {
            file,
            is_old: false,
            #[cfg(test)]
            id: power::created(path),
        })
    }

    /// Opens an existing file for appending.
    pub(super) fn go_on(path: &Path) -> io::Result<AppendFile> {
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(AppendFile {
            file,
            is_old: true,
            #[cfg(test)]
            id: power::named(path),
        })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        power::may_write(self.id, bytes)?;
        self.file.write_all(bytes)
    }

    pub(super) fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        #[cfg(test)]
        power::may_cut(self.id, bytes)?;
        self.file.set_len(bytes)
    }

    /// Makes the written bytes and the file's length durable. A new file's name is not durable yet.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        power::may_sync(self.id)?;
        match std::mem::replace(&mut self.is_old, true) {
            true => self.file.sync_data(),
            false => self.file.sync_all(),
        }
    }
}

/// Makes the content of a file durable, if the file exists.
pub(super) fn sync_if_there(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    #[cfg(test)]
    power::may_sync(power::named(path))?;
    file.sync_all()
}

/// A directory, opened in advance because opening may fail for lack of descriptors or rights.
#[derive(Debug)]
pub(super) struct Directory(File);

impl Directory {
    /// Opens the directory of a file.
    pub(super) fn of(path: &Path) -> io::Result<Directory> {
        File::open(directory_of(path)).map(Directory)
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        power::may_sync_names()?;
        self.0.sync_all()
    }
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    power::may()?;
    fs::rename(from, to)?;
    #[cfg(test)]
    power::renamed(from, to);
    Ok(())
}

/// Renames a file. Returns false if it did not exist.
pub(super) fn rename_if_there(from: &Path, to: &Path) -> io::Result<bool> {
    found(rename(from, to))
}

/// Gives a file an additional name (a hard link).
pub(super) fn link(file: &Path, name: &Path) -> io::Result<()> {
    #[cfg(test)]
    power::may()?;
    fs::hard_link(file, name)?;
    #[cfg(test)]
    power::linked(file, name);
    Ok(())
}

/// Removes a file. Returns false if it did not exist.
pub(super) fn remove_if_there(path: &Path) -> io::Result<bool> {
    #[cfg(test)]
    power::may()?;
    let is_removed = found(fs::remove_file(path))?;
    #[cfg(test)]
    if is_removed {
        power::removed(path);
    }
    Ok(is_removed)
}

fn found(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        done => done.map(|()| true),
    }
}

/// Returns the directory that a file is in.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the SHA-256 of these bytes in hexadecimal.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
