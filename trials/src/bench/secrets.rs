//! The keys of the rows over TLS: a certificate for `reflex`, and a pre-shared key for NVMe/TCP.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::servers::built;
use crate::certificate;

/// The qualified name of the host over TLS.
pub(super) const HOST: &str = "nqn.2026-11.io.nearflash:bench";

/// The host's key, for measurements only: it is published here.
pub(super) const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

/// The environment variable from which the client takes its key.
pub(super) const KEY_VARIABLE: &str = "NEARFLASH_NVME_TLS_KEY";

/// Returns the path of a file of the rows over TLS.
pub(super) fn place(name: &str) -> PathBuf {
    built("bench-secrets").join(name)
}

/// Writes the files: `certificate.pem` with `key.pem`, and the configuration `host.toml`. Needs the
/// program `openssl`.
pub(super) fn make() -> Result<(), String> {
    let folder = built("bench-secrets");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write(&place("host.toml"), &format!("[[host]]\nnqn = \"{HOST}\"\ntls_key = \"{KEY}\"\n"))?;
    certificate::make(&place("certificate.pem"), &place("key.pem"))
}

/// Writes a file that only its owner can read.
fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The key of sealed packets, for measurements only: it is published here.
const PACKET_KEY: &str = "6e656172666c6173682062656e6368207061636b65747320746573742d6b6579";

/// Writes the key of sealed packets to a file, and returns its path.
pub(super) fn packet_key() -> Result<PathBuf, String> {
    let path = place("packets.key");
    let folder = built("bench-secrets");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write(&path, &format!("{PACKET_KEY}\n"))?;
    Ok(path)
}
