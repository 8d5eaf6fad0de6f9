//! Paths of missing files: whether a file may be created there.
//!
//! A file created below `/dev` would be in memory and lost with the machine, whatever was
//! acknowledged. It would also take the place of a disk that is late or has another name after a
//! boot.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::FileOptions;
use crate::Error;

/// Folder of the device nodes, a file system in memory.
const DEVICES: &str = "/dev";

/// The folder below `/dev` where files in memory may be created; it never has disks.
const SHARED_MEMORY: &str = "/dev/shm";

/// Maximum number of symbolic links followed on the way to a missing file.
const LINKS_MAX: usize = 40;

/// Creates the missing directories above a file to be created, or returns the reason to refuse it.
pub(super) fn prepare(path: &Path, size: Option<u64>, options: FileOptions) -> Result<(), Error> {
    check(path, size)?;
    if options.read_only {
        return Err(without_size(path));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Some(parent) = parent else { return Ok(()) };
    fs::create_dir_all(parent)
        .map_err(|e| Error::system(format!("cannot make the directory {}", parent.display()), e))
}

/// Returns the size of the file to be created.
///
/// # Errors
/// Fails if the path is below `/dev`, where disks belong, or the size of the new file is not given.
pub(super) fn check(path: &Path, size: Option<u64>) -> Result<u64, Error> {
    if is_of_a_disk(path) {
        let shown = path.display();
        return Err(Error::new(format!(
            "{shown} does not exist, and no file is made in its place: what is below {DEVICES} is in \
             memory; name a disk that is there by what `ls /dev/disk/by-id` shows, like \
             file:/dev/disk/by-id/NAME"
        )));
    }
    size.ok_or_else(|| without_size(path))
}

fn without_size(path: &Path) -> Error {
    let shown = path.display();
    Error::new(format!(
        "{shown} does not exist; name its size to make it, like file:{shown}?size=1GiB"
    ))
}

/// Returns `true` if the path, with its links resolved, is below `/dev` and not in `/dev/shm`.
pub(super) fn is_of_a_disk(path: &Path) -> bool {
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for _ in 0..LINKS_MAX {
        let at = resolved(&path);
        if at.starts_with(DEVICES) && !at.starts_with(SHARED_MEMORY) {
            return true;
        }
        match fs::read_link(&at) {
            // A link that leads nowhere: a file would be made where it leads.
            Ok(to) => path = at.parent().unwrap_or(Path::new("/")).join(to),
            Err(_) => return false,
        }
    }
    false
}

/// Returns the path with the links of its existing folders resolved, and without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut at = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                at.pop();
            }
            part => {
                at.push(part);
                if let Ok(real) = fs::canonicalize(&at) {
                    at = real;
                }
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileVolume;

    #[test]
    fn no_file_is_made_in_the_place_of_a_disk() {
        let folder = std::env::temp_dir().join(format!("nearflash-missing-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let link = folder.join("disk");
        std::os::unix::fs::symlink("/dev/nearflash-no-disk", &link).unwrap();
        let devices = folder.join("devices");
        std::os::unix::fs::symlink("/dev", &devices).unwrap();
        for path in [
            Path::new("/dev/nearflash-no-disk"),
            Path::new("/dev/nearflash-no-folder/disk"),
            Path::new("/dev/shm/../nearflash-no-disk"),
            Path::new("/./dev/disk/by-id/nvme-nearflash-no-disk"),
            &link,
            &devices.join("nearflash-no-disk"),
        ] {
            for size in [None, Some(4 << 20)] {
                let opened = FileVolume::open(path, size, FileOptions::default());
                let foreseen = FileVolume::foresee(path, size);
                for said in [opened.unwrap_err().to_string(), foreseen.unwrap_err().to_string()] {
                    assert!(said.contains("ls /dev/disk/by-id"), "{said}");
                    assert!(!said.contains("size"), "{said}");
                }
                assert!(!path.exists(), "{}", path.display());
            }
        }
        assert!(!Path::new("/dev/nearflash-no-folder").exists());
        for path in ["/dev/shm/x", "/srv/dev/x", "dev/x", "/devices/x"] {
            assert!(!is_of_a_disk(Path::new(path)), "{path}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
