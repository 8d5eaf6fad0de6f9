//! The medium under a file, and whether it keeps blocks whole.
//!
//! A drive carries out each sector as a whole, even beside concurrent reads. Memory does not: a
//! copy into the page cache or a persistent-memory device may be overtaken by a copy out of it in
//! the middle of a block. The kernel excludes writers of a file from each other, but on most file
//! systems not readers from writers.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags, fstat, fstatfs, statx};

/// Magic numbers of file systems on which direct I/O certainly goes to the drive:
/// `EXT4_SUPER_MAGIC` (also of ext2 and ext3) and `XFS_SUPER_MAGIC`. Other file systems accept the
/// flag and use the page cache, always (tmpfs) or at times (btrfs).
const SEEN_TO_BE_DIRECT: [u64; 2] = [0xef53, 0x5846_5342];

/// Magic number of file systems in memory, `TMPFS_MAGIC`.
const IN_MEMORY: u64 = 0x0102_1994;

/// The major number of RAM disks (`/dev/ram*`).
const RAM_DISK_MAJOR: u32 = 1;

/// Returns whether a read beside a write of the same block may find a part of the block old and a
/// part new. True for unknown media.
pub(super) fn tears_blocks(file: &OwnedFd, is_direct: bool, is_block_device: bool) -> bool {
    if !is_direct {
        return true;
    }
    if is_block_device {
        return is_memory(file);
    }
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let is_dax = told.is_ok_and(|told| told.stx_attributes.contains(StatxAttributes::DAX));
    let is_known =
        fstatfs(file).is_ok_and(|told| SEEN_TO_BE_DIRECT.contains(&(told.f_type as u64)));
    is_dax || !is_known
}

/// Returns whether a regular file is on a file system in memory. A disk is not in memory, though its
/// node is on such a file system (`/dev`).
pub(super) fn is_file_in_memory(file: &OwnedFd) -> bool {
    let is_regular = fstat(file)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
    is_regular && fstatfs(file).is_ok_and(|told| told.f_type as u64 == IN_MEMORY)
}

/// Returns whether a block device copies from and to memory: a RAM disk, or persistent memory
/// without a translation table. A partition uses the queue of its disk.
fn is_memory(file: &OwnedFd) -> bool {
    let Ok(status) = fstat(file) else { return true };
    let (major, minor) = (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev));
    let at = format!("/sys/dev/block/{major}:{minor}");
    let is_dax = |queue: &str| {
        std::fs::read_to_string(format!("{at}/{queue}/dax")).is_ok_and(|told| told.trim() == "1")
    };
    major == RAM_DISK_MAJOR || is_dax("queue") || is_dax("../queue")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn a_device_node_is_no_file_in_memory() {
        let node = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
        assert!(!is_file_in_memory(&node));
    }

    fn opened(path: &std::path::Path, flags: OFlags) -> Option<OwnedFd> {
        std::fs::write(path, [0; 4096]).unwrap();
        let file = rustix::fs::open(path, OFlags::RDWR | flags, Mode::empty());
        std::fs::remove_file(path).unwrap();
        file.ok()
    }

    #[test]
    fn what_is_cached_or_in_memory_tears() {
        let name = format!("nearflash-medium-{}", std::process::id());
        let cached = opened(&std::env::temp_dir().join(&name), OFlags::empty()).unwrap();
        assert!(tears_blocks(&cached, false, false));
        // Since 6.6 tmpfs takes the flag, and copies as ever.
        if let Some(file) = opened(&std::path::Path::new("/dev/shm").join(&name), OFlags::DIRECT) {
            assert!(tears_blocks(&file, true, false));
        }
    }

    #[test]
    fn direct_files_of_a_drive_do_not_tear() {
        let name = format!("nearflash-drive-{}", std::process::id());
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
        let Some(file) = opened(&path, OFlags::DIRECT) else {
            return println!("SKIPPED: no direct I/O here");
        };
        if fstatfs(&file).unwrap().f_type as u64 != SEEN_TO_BE_DIRECT[0] {
            return println!("SKIPPED: the build is not on ext4");
        }
        assert!(!tears_blocks(&file, true, false));
    }
}
