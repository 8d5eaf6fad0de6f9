//! Keeping the process's memory from the rest of the machine, and reading files with secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use packets::PacketKey;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use zeroize::Zeroizing;

use crate::Error;

/// Reads a text file that only its owner may read. The text is wiped from memory when it is dropped.
///
/// # Errors
/// Fails if the file cannot be read, or others than its owner may read it.
pub fn read_secret(path: &Path) -> Result<Zeroizing<String>, Error> {
    let fail = |error| Error::system(format!("cannot read {}", path.display()), error);
    let mode = std::fs::metadata(path).map_err(fail)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Error::new(format!(
            "{} has the permissions {:03o}, so others may read what is secret in it; `chmod 600` it",
            path.display(),
            mode & 0o777
        )));
    }
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(fail)
}

/// Reads the key of sealed packets from a file that only its owner may read.
///
/// # Errors
/// Fails as [`read_secret`] does, or if the file has no key in it.
pub fn read_packet_key(path: &Path) -> Result<PacketKey, Error> {
    PacketKey::parse(&read_secret(path)?).ok_or_else(|| {
        Error::new(format!(
            "{} has no packet key in it; expected 64 hexadecimal digits, as `openssl rand -hex 32` \
             writes them",
            path.display()
        ))
    })
}

/// Keeps the memory of this process out of core dumps, and prevents other processes of its user
/// from tracing or reading it (`PR_SET_DUMPABLE`, prctl(2)). Root still can.
///
/// # Errors
/// Fails if the system does not support it, as some sandboxes.
pub fn keep_memory_secret() -> Result<(), Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Error::system("cannot keep secrets out of core dumps".to_owned(), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::dumpable_behavior;
    use std::fs::{Permissions, set_permissions, write};

    #[test]
    fn a_packet_key_is_read_from_a_file_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let error = || read_packet_key(&path).unwrap_err().to_string();
        assert!(error().contains("cannot read"), "{}", error());
        write(&path, format!("{}\n", "0a".repeat(32))).unwrap();
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(error().contains("permissions 640"), "{}", error());
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(read_packet_key(&path).is_ok());
        write(&path, "0a".repeat(31)).unwrap();
        assert!(error().contains("openssl rand -hex 32"), "{}", error());
    }

    #[test]
    fn the_process_is_not_dumpable_afterwards() {
        keep_memory_secret().unwrap();
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
