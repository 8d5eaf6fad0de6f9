//! The storage epoch of a server: a number that changes whenever acknowledged but unflushed writes
//! may have been lost.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use dataplane::Volume;

use crate::fabric::uuid_of;
use crate::machine::machine_id;

/// The file with the kernel's boot identifier, which differs after each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the storage epoch of a server with these devices.
///
/// Files and block devices keep acknowledged writes as long as the machine runs; memory keeps them
/// as long as this process runs. Zero stands for devices that keep acknowledged writes always.
pub(crate) fn of<'a>(devices: impl IntoIterator<Item = &'a Volume>) -> u32 {
    let mut is_volatile = false;
    for device in devices {
        if Volume::identity(device.spec()).is_none() {
            return number(&[&boot(), &process()]);
        }
        is_volatile |= device.geometry().volatile_cache;
    }
    if is_volatile { number(&[&boot()]) } else { 0 }
}

/// Begins an epoch for a device that was added at run time, if no epoch exists. An epoch that
/// clients know stays.
pub(crate) fn begin(epoch: &AtomicU32, added: &Volume) {
    let _ = epoch.compare_exchange(0, of([added]), Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns a nonzero hash of these words.
fn number(words: &[&str]) -> u32 {
    let digest = uuid_of(words);
    u32::from_be_bytes([digest[12], digest[13], digest[14], digest[15]]).max(1)
}

fn boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_else(|_| machine_id().to_owned())
}

/// Returns a unique name of this process: its number, and its start time in clock ticks since the
/// machine's start (`proc_pid_stat(5)`, field 22).
fn process() -> String {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    let start = rest.split_whitespace().nth(19).unwrap_or_default();
    format!("{} {start}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: &str) -> Volume {
        Volume::open(&spec.parse().unwrap()).unwrap()
    }

    #[test]
    fn memory_ends_with_the_process_and_files_with_the_machine() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let file = volume(&format!("file:{}", file.path().display()));
        let memory = volume("mem:1MiB");
        assert_eq!(of([&file]), number(&[&boot()]));
        assert_eq!(of([&file, &memory]), number(&[&boot(), &process()]));
        assert_ne!(of([&file]), of([&memory]));
        assert_eq!(of([&volume("null:1MiB")]), 0, "nothing is kept, so nothing is lost");
    }

    #[test]
    fn a_device_that_comes_later_begins_an_epoch_and_changes_none() {
        let epoch = AtomicU32::new(0);
        begin(&epoch, &volume("null:1MiB"));
        assert_eq!(epoch.load(Ordering::Relaxed), 0);
        begin(&epoch, &volume("mem:1MiB"));
        let begun = epoch.load(Ordering::Relaxed);
        assert_eq!(begun, number(&[&boot(), &process()]));
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        begin(&epoch, &volume(&format!("file:{}", file.path().display())));
        assert_eq!(epoch.load(Ordering::Relaxed), begun);
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = process();
        let (id, start) = own.split_once(' ').unwrap();
        assert_eq!(id, std::process::id().to_string());
        assert!(start.parse::<u64>().unwrap() > 0);
    }
}
