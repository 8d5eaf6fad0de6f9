//! Self-signed certificates for servers under trial, made by the program `openssl`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The validity of a certificate in days.
const DAYS: &str = "2";

/// The addresses of servers under trial: this machine's, and the server's end of the virtual cable of
/// `bench --veth`.
const NAMES: &str = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.99.0.1";

/// Writes a self-signed certificate for servers under trial, and its key, to these files.
///
/// # Errors
/// Fails with the program's output if there is no `openssl`, or it cannot write.
pub(crate) fn make(certificate: &Path, key: &Path) -> Result<(), String> {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    command.args(["-days", DAYS, "-subj", "/CN=localhost"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", NAMES]);
    command.arg("-keyout").arg(key).arg("-out").arg(certificate);
    let ran = shell::capture(&mut command, Duration::from_secs(60))?;
    if ran.ok { Ok(()) } else { Err(ran.output) }
}
