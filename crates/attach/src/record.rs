//! The records of attached devices: the state that a successor process needs to take a device over,
//! kept in a folder that does not outlive the kernel.
//!
//! The folder is not below `/run/nearflash`, which ends with the server of this machine.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Address;
use contract::ServerEndpoint;
use serde::{Deserialize, Serialize};

/// The folder of the records.
pub(crate) const FOLDER: &str = "/run/nearflash-attach";

/// The time that a killed process has to end. A process that holds the right for longer counts as
/// serving the device.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause between two attempts to take the right to serve a device.
const STEP: Duration = Duration::from_millis(20);

/// Default time in microseconds after the last progress of a queue until it sleeps, as for a worker
/// of the server.
pub(crate) const SPIN_MICROS: u64 = 50;

/// Returns the time until a queue sleeps, for a record of an older version, which has no such
/// field.
fn spin_micros() -> u64 {
    SPIN_MICROS
}

/// The record of an attached device, for a successor of the process that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The device's number: `N` of `/dev/ublkbN`.
    pub(crate) device: u32,
    /// The identifier of the process that serves the device, or was the last to do so.
    pub(crate) process: u32,
    /// The client identity of the first queue at the server, in hexadecimal digits; the identities
    /// of the other queues follow from it. The identity is secret: any holder may repeat requests
    /// in flight.
    pub(crate) client: String,
    /// The storage epoch of the server when no loss of changes was left to be reported; `None` if
    /// the server has given none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_epoch: Option<u32>,
    /// The volume, with the options that the user gave when attaching it.
    #[serde(flatten)]
    pub(crate) volume: Volume,
}

/// A volume of a server, and how to reach and serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// The address of the server, such as `reflex://HOST:PORT`.
    pub(crate) url: String,
    /// The namespace's number; `None` for the server's default.
    pub(crate) namespace: Option<u16>,
    /// The tenant; empty for the server's choice.
    pub(crate) tenant: String,
    /// The file with the token; `None` for no token.
    pub(crate) token_file: Option<PathBuf>,
    /// `true` if payloads have checksums.
    pub(crate) checksums: bool,
    /// Seconds for which requests wait for an absent server.
    pub(crate) fail_after: u64,
    /// `true` if the device refuses changes.
    pub(crate) read_only: bool,
    /// Microseconds after the last progress of a queue until it sleeps.
    #[serde(default = "spin_micros")]
    pub(crate) spin_micros: u64,
}

impl Volume {
    /// Returns `true` if both volumes are of the same server, namespace and tenant.
    pub(crate) fn is_same(&self, other: &Volume) -> bool {
        let key =
            |volume: &Volume| (identity(&volume.url), volume.namespace, volume.tenant.clone());
        key(self) == key(other)
    }
}

/// Returns the URL of a server with absolute paths, so that it means the same to a successor with
/// another working directory. A text that is no URL stays as it is.
pub(crate) fn lasting(url: &str) -> String {
    let Ok(mut address) = url.parse::<Address>() else { return url.to_owned() };
    let socket = match &mut address.place {
        ServerEndpoint::Unix(path) => Some(path),
        _ => None,
    };
    let authorities = address.trust.as_mut().and_then(|trust| trust.authorities.as_mut());
    for path in [socket, authorities, address.key.as_mut()].into_iter().flatten() {
        if let Ok(whole) = std::path::absolute(&*path) {
            *path = whole.to_string_lossy().into_owned();
        }
    }
    let text = address.to_string();
    // A folder with a question mark in its name cannot be told in a URL.
    if text.parse::<Address>().is_ok_and(|again| again == address) { text } else { url.to_owned() }
}

/// Returns the part of a URL that identifies the server. For packets that is the first address
/// alone: the window, further cards and the key may change while the volume stays.
fn identity(url: &str) -> String {
    match url.parse::<Address>().map(|address| address.place) {
        Ok(ServerEndpoint::Packets(hosts)) => format!("udp {}", hosts.lanes[0]),
        Ok(ServerEndpoint::Ethernet(at)) => {
            let mac = at.cards().iter().find_map(|card| card.mac);
            format!("eth {mac:?} {} {:?}", at.port, at.via)
        }
        _ => lasting(url),
    }
}

impl Record {
    /// Returns the identity of the first queue.
    ///
    /// # Errors
    /// Says that the record is damaged.
    pub(crate) fn identity(&self) -> Result<u128, String> {
        u128::from_str_radix(&self.client, 16)
            .map_err(|error| format!("the record of device {} is damaged: {error}", self.device))
    }

    /// Writes the record, as a whole or not at all.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let path = place(folder, self.device);
        let fresh = path.with_extension("new");
        let text = serde_json::to_string_pretty(self).expect("a record has a form");
        let write = || -> std::io::Result<()> {
            let options = &mut File::options();
            let options = options.create(true).truncate(true).write(true).mode(0o600);
            options.open(&fresh)?.write_all((text + "\n").as_bytes())?;
            fs::rename(&fresh, &path)
        };
        write().map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Keeps the storage epoch of a device's server for a successor.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn keep_epoch(folder: &Path, device: u32, epoch: Option<u32>) -> Result<(), String> {
        match Record::read(folder, device)? {
            Some(record) if epoch.is_some() && record.storage_epoch != epoch => {
                Record { storage_epoch: epoch, ..record }.write(folder)
            }
            _ => Ok(()),
        }
    }

    /// Reads the record of a device; `None` if there is none.
    ///
    /// # Errors
    /// Says that the record is damaged.
    pub(crate) fn read(folder: &Path, device: u32) -> Result<Option<Record>, String> {
        let path = place(folder, device);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| format!("{} is damaged: {error}", path.display()))
    }

    /// Reads all records, by the numbers of the devices.
    ///
    /// # Errors
    /// Says which record is damaged.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Record>, String> {
        let mut devices = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            devices.extend(name.strip_suffix(".json").and_then(|name| name.parse::<u32>().ok()));
        }
        devices.sort_unstable();
        let mut records = Vec::new();
        for device in devices {
            records.extend(Record::read(folder, device)?);
        }
        Ok(records)
    }

    /// Removes the record of a device, if there is one.
    pub(crate) fn remove(folder: &Path, device: u32) {
        // A record without a device is overwritten by the next one with the number.
        let _ = fs::remove_file(place(folder, device));
    }
}

fn place(folder: &Path, device: u32) -> PathBuf {
    folder.join(format!("{device}.json"))
}

/// The exclusive right to serve a device, which one process at a time holds until it ends.
#[derive(Debug)]
pub(crate) struct ServiceLock {
    _file: File,
}

impl ServiceLock {
    /// Takes the right, and waits a moment for a process that is about to end. Returns `None` if
    /// another process has the right.
    ///
    /// # Errors
    /// Names the file that stands for the right.
    pub(crate) fn await_free(folder: &Path, device: u32) -> Result<Option<ServiceLock>, String> {
        ServiceLock::await_for(folder, device, PATIENCE)
    }

    /// Takes the right once the process that has it has ended, or returns `None` if it has not
    /// after this time.
    ///
    /// # Errors
    /// Names the file that stands for the right.
    pub(crate) fn await_for(
        folder: &Path,
        device: u32,
        limit: Duration,
    ) -> Result<Option<ServiceLock>, String> {
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            if let Some(right) = ServiceLock::take(folder, device)? {
                return Ok(Some(right));
            }
            std::thread::sleep(STEP);
        }
        ServiceLock::take(folder, device)
    }

    /// Takes the right; `None` if another process has it.
    ///
    /// # Errors
    /// Names the file that stands for the right.
    fn take(folder: &Path, device: u32) -> Result<Option<ServiceLock>, String> {
        let path = folder.join(format!("{device}.lock"));
        let failed = |error: std::io::Error| format!("cannot lock {}: {error}", path.display());
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(failed)?;
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(ServiceLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(device: u32) -> Record {
        Record {
            device,
            process: 7,
            client: format!("{:032x}", 1_u128 << 100),
            storage_epoch: Some(7),
            volume: Volume {
                url: "reflex://127.0.0.1:7420".to_owned(),
                namespace: Some(2),
                tenant: "gold".to_owned(),
                token_file: None,
                checksums: true,
                fail_after: 600,
                read_only: false,
                spin_micros: 20,
            },
        }
    }

    #[test]
    fn a_record_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(folder.path(), 3), Ok(None));
        record(10).write(folder.path()).unwrap();
        record(3).write(folder.path()).unwrap();
        assert_eq!(Record::read(folder.path(), 3), Ok(Some(record(3))));
        assert_eq!(record(3).identity(), Ok(1 << 100));
        assert_eq!(Record::all(folder.path()), Ok(vec![record(3), record(10)]));
        Record::keep_epoch(folder.path(), 3, None).unwrap();
        assert_eq!(Record::read(folder.path(), 3), Ok(Some(record(3))), "nothing is known");
        Record::keep_epoch(folder.path(), 3, Some(9)).unwrap();
        let kept = Record { storage_epoch: Some(9), ..record(3) };
        assert_eq!(Record::read(folder.path(), 3), Ok(Some(kept)));
        Record::remove(folder.path(), 3);
        assert_eq!(Record::all(folder.path()), Ok(vec![record(10)]));
    }

    #[test]
    fn a_damaged_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("4.json"), "{").unwrap();
        assert!(Record::read(folder.path(), 4).unwrap_err().contains("4.json is damaged"));
        let damaged = Record { client: "x".to_owned(), ..record(5) };
        assert!(damaged.identity().unwrap_err().contains("device 5"));
    }

    #[test]
    fn one_process_at_a_time_has_the_right() {
        let folder = tempfile::tempdir().unwrap();
        let right = ServiceLock::take(folder.path(), 0).unwrap();
        assert!(right.is_some());
        assert!(ServiceLock::take(folder.path(), 0).unwrap().is_none());
        assert!(ServiceLock::take(folder.path(), 1).unwrap().is_some());
        drop(right);
        assert!(ServiceLock::take(folder.path(), 0).unwrap().is_some());
    }

    #[test]
    fn a_url_means_the_same_in_another_directory() {
        let here = std::env::current_dir().unwrap();
        let whole = |url: &str| url.replace("HERE", here.to_str().unwrap());
        for (url, wanted) in [
            (
                "reflex+udp://h:1?window=64&key=packet.key",
                "reflex+udp://h:1?window=64&key=HERE/packet.key",
            ),
            ("reflexs://h:1?ca=./ca.pem&name=n", "reflexs://h:1?ca=HERE/ca.pem&name=n"),
            ("reflex+unix:a.sock", "reflex+unix:HERE/a.sock"),
            ("reflex+unix:/run/a.sock", "reflex+unix:/run/a.sock"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(lasting(url), whole(wanted));
        }
        let one = record(1).volume;
        let of = |url: &str| Volume { url: url.to_owned(), ..one.clone() };
        assert!(of("reflex+unix:a.sock").is_same(&of(&whole("reflex+unix:HERE/a.sock"))));
    }

    #[test]
    fn another_tenant_has_another_volume() {
        let one = record(1).volume;
        assert!(one.is_same(&Volume { fail_after: 1, ..one.clone() }));
        let of = |url: &str| Volume { url: url.to_owned(), ..one.clone() };
        let udp = of("reflex+udp://h:1");
        assert!(udp.is_same(&of("reflex+udp://h:1?also=g:1&window=64")));
        assert!(!udp.is_same(&of("reflex+udp://h:2")) && !udp.is_same(&of("reflex://h:1")));
        let card = of("reflex+eth://eth1/02:00:00:00:00:01");
        assert!(card.is_same(&of("reflex+eth://eth1/02:00:00:00:00:01?also=eth2&window=64")));
        assert!(!card.is_same(&of("reflex+eth://eth1/02:00:00:00:00:02")));
        assert!(!card.is_same(&of("reflex+eth://eth1/02:00:00:00:00:01?via=xdp")));
        assert!(!one.is_same(&Volume { tenant: "other".to_owned(), ..one.clone() }));
    }
}
