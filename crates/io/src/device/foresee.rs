//! A dry run of opening a file for its result or error, without creating a file or taking a lock.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use contract::BLOCK_BYTES;
use rustix::fs::Access;

use super::FileVolume;
use super::file::fewer;
use super::missing;
use crate::Error;

impl FileVolume {
    /// Returns the size in bytes that [`open`](FileVolume::open) would find or create at `path`;
    /// `None` for a block device, whose size only opening shows. Does not detect another server's
    /// lock.
    ///
    /// # Errors
    /// Fails as `open` does.
    pub fn foresee(path: impl AsRef<Path>, size: Option<u64>) -> Result<Option<u64>, Error> {
        let path = path.as_ref();
        let shown = path.display();
        let Ok(found) = fs::metadata(path) else {
            let size = missing::check(path, size)?;
            can_be_made(path)?;
            return Ok(Some(size));
        };
        let kind = found.file_type();
        if kind.is_block_device() {
            return Ok(None);
        }
        if kind.is_dir() {
            return Err(Error::new(format!("{shown} is a directory; name a file in it")));
        }
        if !kind.is_file() {
            return Err(Error::new(format!("{shown} is neither a file nor a block device")));
        }
        if rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
            let what = format!("{shown} cannot be opened for writing (does its owner run this?)");
            return Err(Error::new(what));
        }
        let bytes = found.len();
        match size {
            Some(size) if bytes == 0 => Ok(Some(size)),
            Some(size) if bytes < size => Err(fewer(path, bytes, size)),
            _ if bytes < BLOCK_BYTES as u64 => {
                Err(Error::new(format!("{shown} holds {bytes} bytes: less than one block")))
            }
            _ => Ok(Some(bytes)),
        }
    }
}

/// Checks that a missing file can be created, with the directories that are missing above it.
fn can_be_made(path: &Path) -> Result<(), Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let there = parent.ancestors().find(|folder| folder.symlink_metadata().is_ok());
    let there = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_writable = rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    match there.is_dir() && is_writable {
        true => Ok(()),
        false => {
            let (path, there) = (path.display(), there.display());
            Err(Error::new(format!("cannot make {path}: {there} is no directory to write in")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileOptions;

    /// Opening does what the forecast says, with the message of the forecast if both have one.
    #[test]
    fn what_is_foreseen_is_what_opening_says() {
        let folder = std::env::temp_dir().join(format!("nearflash-foresee-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        fs::write(at("small"), [0; 100]).unwrap();
        fs::write(at("empty"), []).unwrap();
        fs::write(at("good"), vec![0; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("nowhere/at/all", at("dangling")).unwrap();
        for (name, size, is_good) in [
            ("small", None, false),
            ("small", Some(4096), false),
            ("empty", None, false),
            ("empty", Some(1 << 20), true),
            ("good", None, true),
            ("good", Some(1 << 19), true),
            ("good", Some(2 << 20), false),
            (".", Some(1 << 20), false),
            ("good/x", Some(1 << 20), false),
            ("dangling", None, false),
            ("new", None, false),
            ("new/er", Some(1 << 20), true),
        ] {
            let foreseen = FileVolume::foresee(at(name), size);
            let before = at(name).exists();
            let opened = FileVolume::open(at(name), size, FileOptions::default());
            assert_eq!(foreseen.is_ok(), is_good, "{name} {size:?}: {foreseen:?}");
            assert_eq!(opened.is_ok(), is_good, "{name} {size:?}: {opened:?}");
            if let (Ok(bytes), Ok(volume)) = (foreseen, opened) {
                let blocks = volume.geometry().blocks;
                assert_eq!(bytes, Some(blocks * BLOCK_BYTES as u64), "{name} was there: {before}");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
