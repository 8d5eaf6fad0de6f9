//! The check that a device is on the same physical disk as at the last start of the server.
//!
//! Names such as `/dev/nvme1n1` may mean another disk after each boot. The state file keeps the
//! identity of each device's disk, and a start compares it before anything is written.

use flash::{Source, Spec};
use io::device::disk_identity;

use super::{Storage, Volume};

/// The value of `disk=` that accepts any disk with the name.
const ANY: &str = "any";

impl Volume {
    /// Returns the identity of the device's disk, for the comparison at the next start. Returns
    /// `None` if the device is no disk, the kernel reports no identity, or any disk is accepted.
    pub fn disk(&self) -> Option<String> {
        match &self.storage {
            Storage::File(_) if asked_for(&self.spec) == Some(ANY) => None,
            Storage::File(file) => disk_identity(file),
            _ => None,
        }
    }

    /// Checks that the disk has the identity that the spec requires with `disk=`.
    pub(super) fn check_asked_disk(&self) -> Result<(), String> {
        match (asked_for(&self.spec), &self.spec.source) {
            (Some(asked), Source::File { path, .. }) if asked != ANY => {
                is_asked_for(path, asked, self.disk().as_deref())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the named device is on the disk with the identity `kept`, which served it
    /// before. Without `kept`, any disk fits.
    ///
    /// # Errors
    /// Fails if the device is on another disk, or on a disk that cannot be identified.
    pub fn check_kept_disk(&self, device: &str, kept: Option<&String>) -> Result<(), String> {
        match (kept, &self.spec.source) {
            (Some(kept), Source::File { path, disk: None, .. }) => {
                is_kept(device, path, kept, self.disk().as_deref())
            }
            _ => Ok(()),
        }
    }
}

fn asked_for(spec: &Spec) -> Option<&str> {
    match &spec.source {
        Source::File { disk, .. } => disk.as_deref(),
        _ => None,
    }
}

fn is_asked_for(path: &str, asked: &str, found: Option<&str>) -> Result<(), String> {
    match found {
        Some(found) if found == asked => Ok(()),
        Some(found) => Err(format!(
            "{path} is the disk {found}, and `disk={asked}` asks for another; name the disk as \
             `ls -l /dev/disk/by-id` shows it"
        )),
        None => Err(format!(
            "{path} cannot be identified, and `disk={asked}` asks for a disk; leave `disk=` out or \
             name another path"
        )),
    }
}

fn is_kept(device: &str, path: &str, kept: &str, found: Option<&str>) -> Result<(), String> {
    let is = match found {
        Some(found) if found == kept => return Ok(()),
        Some(found) => format!("is the disk {found}"),
        None => "cannot be identified".to_owned(),
    };
    Err(format!(
        "device {device:?}: {path} {is}, and the disk {kept} served under this name before; names \
         in /dev may mean another disk after a boot: name the disk as `ls -l /dev/disk/by-id` shows \
         it; if the disk was replaced, start once with `--accept-disk {device}`, and what is on it \
         is served as this device's blocks"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_disk_than_the_one_that_served_is_refused_with_the_way_out() {
        let kept = "eui.1";
        assert_eq!(is_kept("fast", "/dev/nvme0n1", kept, Some("eui.1")), Ok(()));
        let said = is_kept("fast", "/dev/nvme0n1", kept, Some("eui.2")).unwrap_err();
        for part in ["\"fast\"", "eui.1", "by-id", "`--accept-disk fast`"] {
            assert!(said.contains(part), "{said}");
        }
        let said = is_kept("fast", "/dev/loop0", kept, None).unwrap_err();
        assert!(said.contains("cannot be identified"), "{said}");
    }

    #[test]
    fn a_specification_that_names_another_disk_is_refused() {
        assert_eq!(is_asked_for("/dev/sda", "t10.A", Some("t10.A")), Ok(()));
        assert!(is_asked_for("/dev/sda", "t10.A", Some("t10.B")).unwrap_err().contains("t10.B"));
        assert!(is_asked_for("./file", "t10.A", None).unwrap_err().contains("leave `disk=` out"));
    }

    #[test]
    fn a_regular_file_is_served_unless_a_disk_is_asked_for() {
        let path = std::env::temp_dir().join(format!("nearflash-a-disk-{}", std::process::id()));
        let spec = |query: &str| format!("file:{}?size=1MiB{query}", path.display());
        let open = |query: &str| Volume::open(&spec(query).parse().unwrap());
        let volume = open("").unwrap();
        assert_eq!(volume.disk(), None);
        assert_eq!(volume.check_kept_disk("fast", None), Ok(()));
        assert!(volume.check_kept_disk("fast", Some(&"eui.1".to_owned())).is_err());
        drop(volume);
        assert!(open("&disk=eui.1").unwrap_err().contains("cannot be identified"));
        let volume = open("&disk=any").unwrap();
        assert_eq!(volume.check_kept_disk("fast", Some(&"eui.1".to_owned())), Ok(()));
        drop(volume);
        std::fs::remove_file(&path).unwrap();
        let mut journal = path.into_os_string();
        journal.push(".journal");
        let _ = std::fs::remove_file(journal);
    }
}
