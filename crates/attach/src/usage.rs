//! The users of a block device: mounts, devices on top of it, and processes that have it open.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use io::ublk::ExclusiveHold;

use crate::daemon::path;

/// Maximum number of checks for a process that has the device open, since some processes open a new
/// device only for a moment.
const LOOKS: u32 = 10;

/// The pause between two checks for a process that has the device open.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes the exclusive hold on an unused device.
///
/// # Errors
/// Says who uses the device.
pub(crate) fn hold(device: u32) -> Result<ExclusiveHold, String> {
    let place = path(device);
    let hold = ExclusiveHold::take(&place).map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => format!(
            "{} is in use: unmount it, or take it out of the device above it, first",
            place.display()
        ),
        _ => format!("cannot open {}: {error}", place.display()),
    })?;
    if let Some(above) = loop_device(Path::new("/sys/block"), &place) {
        return Err(format!("{} is in use: {above} is made of it", place.display()));
    }
    let mut looks = 1;
    while let Some(user) = opener(Path::new("/proc"), &place) {
        if looks == LOOKS {
            return Err(format!("{} is in use: it is open in {user}", place.display()));
        }
        std::thread::sleep(PAUSE);
        looks += 1;
    }
    Ok(hold)
}

/// Returns `true` if the path names the device or one of its partitions.
fn is_place(path: &Path, place: &Path) -> bool {
    let rest = path.to_str().zip(place.to_str()).and_then(|(path, place)| path.strip_prefix(place));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('p'))
}

/// Returns the name of the loop device whose backing file is the device or one of its partitions;
/// `None` if there is none. The kernel, and no process, has the backing file open.
fn loop_device(blocks: &Path, place: &Path) -> Option<String> {
    let mut blocks = fs::read_dir(blocks).into_iter().flatten().flatten();
    let found = blocks.find(|block| {
        let backing = fs::read_to_string(block.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| is_place(Path::new(backing.trim_end()), place))
    })?;
    Some(found.file_name().to_string_lossy().into_owned())
}

/// Returns the number and the name of a process, other than this one, that has the device or one of
/// its partitions open.
fn opener(processes: &Path, place: &Path) -> Option<String> {
    for process in fs::read_dir(processes).into_iter().flatten().flatten() {
        // There are folders of other names, too, such as `self`.
        let number = process.file_name().to_string_lossy().parse::<u32>();
        if number.is_err() || number == Ok(std::process::id()) {
            continue;
        }
        // A process may end meanwhile.
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        if targets.any(|target| is_place(&target, place)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let number = process.file_name().to_string_lossy().into_owned();
            return Some(format!("process {number} ({})", name.trim()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_loop_device_above_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("loop3/loop");
        fs::create_dir_all(&made).unwrap();
        fs::create_dir_all(folder.path().join("sda")).unwrap();
        let found = || loop_device(folder.path(), Path::new("/dev/ublkb1"));
        fs::write(made.join("backing_file"), "/dev/ublkb12\n").unwrap();
        assert_eq!(found(), None);
        fs::write(made.join("backing_file"), "/dev/ublkb1p2\n").unwrap();
        assert_eq!(found().as_deref(), Some("loop3"));
    }

    #[test]
    fn whoever_has_a_device_open_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let open = |process: &str, target: &str| {
            let files = folder.path().join(process).join("fd");
            fs::create_dir_all(&files).unwrap();
            symlink(target, files.join("3")).unwrap();
            fs::write(folder.path().join(process).join("comm"), "reader\n").unwrap();
        };
        let found = || opener(folder.path(), Path::new("/dev/ublkb1"));
        open("self", "/dev/ublkb1");
        open(&std::process::id().to_string(), "/dev/ublkb1");
        open("7", "/dev/ublkb12");
        assert_eq!(found(), None);
        open("8", "/dev/ublkb1p2");
        assert_eq!(found().as_deref(), Some("process 8 (reader)"));
    }
}
