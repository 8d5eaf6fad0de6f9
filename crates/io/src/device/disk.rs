//! The identity of a disk: a value that stays the same when its name in `/dev` changes.

use std::fs;
use std::path::Path;

use rustix::fs::{FileType, fstat, major, minor};

use super::file::FileVolume;

/// The files of a disk's directory in sysfs that identify it, the best first: the worldwide name of
/// NVMe, of SCSI and ATA; the serial number of virtio; the identity that device mapper and MD keep.
const IDENTITIES: [&str; 6] =
    ["wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid"];

/// Returns the kernel's identity of a volume's disk, followed by `-partN` for a partition. Returns
/// `None` for a regular file, and for a disk without an identity.
pub fn disk_identity(volume: &FileVolume) -> Option<String> {
    let status = fstat(&volume.shared.file).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::BlockDevice {
        return None;
    }
    identity(Path::new("/sys"), (major(status.st_rdev), minor(status.st_rdev)))
}

/// Returns the identity of the block device with these numbers, as `sys`, a directory like `/sys`,
/// shows it. Returns `None` if there is none.
fn identity(sys: &Path, (major, minor): (u32, u32)) -> Option<String> {
    let at = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    let partition = word(&at.join("partition"));
    let disk = if partition.is_some() { at.parent()? } else { &at };
    let found = IDENTITIES.iter().find_map(|file| word(&disk.join(file)))?;
    Some(partition.map_or(found.clone(), |number| format!("{found}-part{number}")))
}

/// Reads a file of sysfs as one word, without the spaces that pad identities of ATA disks.
/// Characters that separate the parts of a device's specification become underscores. Returns
/// `None` if the file is missing or empty.
fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let word = words.join("_").replace(['&', '?', '='], "_");
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A disk in a sysfs: its major and minor number, its directory, and its files with their text.
    type Shown<'a> = ((u32, u32), &'a str, &'a [(&'a str, &'a str)]);

    /// Creates a directory that shows these disks as sysfs does, and returns its path.
    fn sysfs(name: &str, disks: &[Shown<'_>]) -> std::path::PathBuf {
        let name = format!("nearflash-sysfs-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("dev/block")).unwrap();
        for ((major, minor), directory, files) in disks {
            let at = root.join("devices").join(directory);
            fs::create_dir_all(&at).unwrap();
            for (file, text) in *files {
                let file = at.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            symlink(at, root.join(format!("dev/block/{major}:{minor}"))).unwrap();
        }
        root
    }

    #[test]
    fn a_disk_is_known_by_its_worldwide_name_and_a_partition_by_its_number_too() {
        let root = sysfs(
            "names",
            &[
                ((259, 0), "nvme0n1", &[("wwid", "eui.0025385b61b0a1c2\n")]),
                ((259, 1), "nvme0n1/nvme0n1p2", &[("partition", "2\n")]),
                ((8, 0), "sda", &[("device/wwid", "t10.ATA     Disk 500G   S1&2\n")]),
                ((253, 0), "vda", &[("serial", "\n")]),
                ((253, 1), "vdb", &[("serial", "backup")]),
            ],
        );
        let of = |numbers| identity(&root, numbers);
        assert_eq!(of((259, 0)).unwrap(), "eui.0025385b61b0a1c2");
        assert_eq!(of((259, 1)).unwrap(), "eui.0025385b61b0a1c2-part2");
        assert_eq!(of((8, 0)).unwrap(), "t10.ATA_Disk_500G_S1_2");
        assert_eq!(of((253, 0)), None, "an empty serial number identifies nothing");
        assert_eq!(of((253, 1)).unwrap(), "backup");
        assert_eq!(of((7, 0)), None, "unknown to the kernel");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_regular_file_has_no_identity() {
        let path = std::env::temp_dir().join(format!("nearflash-no-disk-{}", std::process::id()));
        let volume = FileVolume::open(&path, Some(1 << 20), Default::default()).unwrap();
        assert_eq!(disk_identity(&volume), None);
        drop(volume);
        let _ = fs::remove_file(super::super::journal::path_of(&path));
        fs::remove_file(path).unwrap();
    }
}
