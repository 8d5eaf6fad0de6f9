//! Mounts of file systems that a program serves.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags};
use wire::fuse::DEVICE_PATH;

use crate::Error;

/// The file with the list of this process's mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The file system type under which our file systems are listed there.
const TYPE: &str = "fuse.nearflash";

/// Read-ahead of a mounted file system in KiB: as much as the largest request has.
const READAHEAD_KIB: &str = "1024";

/// A file system of this program that is mounted, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedFileSystem {
    /// The folder at which the file system is mounted.
    pub folder: PathBuf,
    /// The name under which the file system was mounted.
    pub source: OsString,
    /// Major and minor number of the file system's device.
    device: String,
}

/// Mounts a file system with the name `source` at the folder, for all users, with the kernel
/// checking permissions. Returns the descriptor of `/dev/fuse` by which its requests come; reads of
/// it do not block. Whoever looks into the folder waits until the first request is answered.
///
/// # Errors
/// Fails if the kernel has no FUSE, or the system refuses the mount, as without the rights of root.
pub fn mount(source: &str, folder: &Path, is_read_only: bool) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = open(DEVICE_PATH, flags, Mode::empty()).map_err(|e| {
        let what = format!("cannot open {DEVICE_PATH} (`modprobe fuse` brings it)");
        Error::system(what, e)
    })?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        file.as_raw_fd()
    );
    let options = CString::new(options).expect("numbers have no zero");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if is_read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(source, folder, TYPE, flags, options.as_c_str()).map_err(|e| {
        let what = match e {
            rustix::io::Errno::PERM => {
                format!("cannot mount at {} without the rights of root", folder.display())
            }
            _ => format!("cannot mount at {}", folder.display()),
        };
        Error::system(what, e)
    })?;
    Ok(file)
}

/// Returns the file system of ours that was mounted last at this folder; `None` if there is none.
///
/// # Errors
/// Fails if the mounts of this process cannot be read.
pub fn mounted(folder: &Path) -> io::Result<Option<MountedFileSystem>> {
    let mounts = fs::read(MOUNTS)?;
    let mut mounts = mounts.split(|byte| *byte == b'\n').filter_map(parse);
    Ok(mounts.rfind(|mounted| mounted.folder == folder))
}

/// Unmounts the file system at the folder. The program that serves it must go on meanwhile, in
/// another thread. With `detach`, the folder is free at once, and the file system ends with its
/// last user (a lazy unmount).
///
/// # Errors
/// Fails with `EBUSY` if somebody uses the file system and `detach` is not set.
pub fn unmount(folder: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(rustix::mount::unmount(folder, flags | UnmountFlags::NOFOLLOW)?)
}

impl MountedFileSystem {
    /// Makes the kernel read ahead as much as a request can have.
    ///
    /// # Errors
    /// Fails if the kernel's settings cannot be written.
    pub fn read_ahead(&self) -> io::Result<()> {
        fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", self.device), READAHEAD_KIB)
    }
}

/// Parses a line of the list of mounts; `None` if it is not a file system of ours.
fn parse(line: &[u8]) -> Option<MountedFileSystem> {
    let mut words = line.split(|byte| *byte == b' ');
    let (device, folder) = (words.nth(2)?, words.nth(1)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    if words.next()? != TYPE.as_bytes() {
        return None;
    }
    let source = words.next()?;
    Some(MountedFileSystem {
        folder: PathBuf::from(OsString::from_vec(unescape(folder))),
        source: OsString::from_vec(unescape(source)),
        device: String::from_utf8_lossy(device).into_owned(),
    })
}

/// Returns the text of a word, in which white space stands as a backslash and three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(byte);
                rest = &behind[3..];
            }
            None => {
                text.push(*first);
                rest = behind;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_in_its_line() {
        let line = b"98 29 0:52 / /mnt/my\\040files rw,nosuid,nodev shared:7 - fuse.nearflash \
                     ftl:file:/a\\134b rw,user_id=0";
        let wanted = MountedFileSystem {
            folder: "/mnt/my files".into(),
            source: "ftl:file:/a\\b".into(),
            device: "0:52".to_owned(),
        };
        assert_eq!(parse(line), Some(wanted));
        assert_eq!(parse(b"98 29 0:52 / /mnt rw - tmpfs tmpfs rw"), None);
        assert_eq!(parse(b"98 29"), None);
        assert_eq!(unescape(b"a\\9z\\"), b"a\\9z\\");
    }

    #[test]
    fn nothing_of_ours_is_mounted_at_the_root() {
        assert_eq!(mounted(Path::new("/")).unwrap(), None);
        assert!(unmount(Path::new("/nowhere/at/all"), false).is_err());
    }
}
