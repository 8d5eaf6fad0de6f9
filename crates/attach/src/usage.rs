//! The users of a block device: whoever has mounted it, has put a device above it, or has it open.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use io::ublk::Hold;

use crate::daemon::path;

/// Looks for a process that has the device open. Some have it for a moment, when it appears.
const LOOKS: u32 = 10;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Holds a device that nobody uses.
///
/// # Errors
/// Says who uses the device.
pub(crate) fn hold(device: u32) -> Result<Hold, String> {
    let place = path(device);
    let hold = Hold::take(&place).map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => format!(
            "{} is in use: unmount it, or take it out of the device above it, first",
            place.display()
        ),
        _ => format!("cannot open {}: {error}", place.display()),
    })?;
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

/// Returns the process, other than this one, that has the device or one of its partitions open.
fn opener(processes: &Path, place: &Path) -> Option<String> {
    let is_place = |target: &Path| {
        let rest = target.to_str()?.strip_prefix(place.to_str()?)?;
        (rest.is_empty() || rest.starts_with('p')).then_some(())
    };
    for process in fs::read_dir(processes).into_iter().flatten().flatten() {
        // There are folders of other names, too, such as `self`.
        let number = process.file_name().to_string_lossy().parse::<u32>();
        if number.is_err() || number == Ok(std::process::id()) {
            continue;
        }
        // A process may end meanwhile.
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        if targets.any(|target| is_place(&target).is_some()) {
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
