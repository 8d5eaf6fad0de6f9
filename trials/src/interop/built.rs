//! The program under test as cargo builds it, if no other program is given, and cargo's target
//! folder.

use std::path::PathBuf;
use std::time::Duration;

use xtask::shell;

/// Builds the program in the profile that is shipped, and returns its path.
pub(super) fn build() -> Result<PathBuf, String> {
    let words = ["build", "--quiet", "--profile", "dist", "--package", "nearflash-cli"];
    let ran = shell::capture(&mut shell::cargo(&words), Duration::from_secs(1200))?;
    if ran.ok { Ok(target_folder().join("dist/nearflash")) } else { Err(ran.output) }
}

/// Returns cargo's target folder, which `CARGO_TARGET_DIR` may name.
pub(crate) fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    shell::root().join(folder.unwrap_or_else(|| "target".into()))
}
