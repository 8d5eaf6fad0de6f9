//! Compiles the engine for fio with the headers of the installed fio.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::super::apt::{Apt, run};
use xtask::needs::{self, Need};
use xtask::shell;

/// The time limit for building the client library.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

const NEEDS: &[Need] = &[
    Need { program: "fio", package: "fio" },
    Need { program: "dpkg-source", package: "dpkg-dev" },
];

/// Returns the folder with the configured sources of the installed fio. Fetches them into `cache`
/// if they are missing. The error is the reason why they cannot be had.
pub(super) fn sources(cache: &Path) -> Result<PathBuf, String> {
    needs::provide(NEEDS)?;
    let version = run(Command::new("fio").arg("--version"))?;
    let version = version.trim();
    let folder = cache.join(format!("{version}-source"));
    if !folder.join("config-host.h").exists() {
        fs::create_dir_all(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
        }
        Apt::of_sources(cache)?.unpack_source("fio", version, &folder)?;
        // As Debian configures it; features that other libraries bring do not change the headers.
        let mut configure = Command::new("./configure");
        run(configure.arg("--disable-native").current_dir(&folder))?;
    }
    Ok(folder)
}

/// Builds the archive of the client library in this profile, and returns its path.
pub(super) fn archive(profile: &str, target: &Path) -> Result<PathBuf, String> {
    let words = ["build", "--quiet", "--profile", profile, "--package", "nearflash-capi"];
    let ran = shell::capture(&mut shell::cargo(&words), BUILD_LIMIT)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    if ran.ok { Ok(target.join(folder).join("libnearflash_capi.a")) } else { Err(ran.output) }
}

/// Compiles the engine to the file `engine`, with the library's `archive` linked into it.
pub(super) fn compile(sources: &Path, archive: &Path, engine: &Path) -> Result<(), String> {
    let root = shell::root();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    compile.args(["-Wno-unused-parameter", "-D_GNU_SOURCE", "-include"]);
    compile.arg(sources.join("config-host.h")).arg("-isystem").arg(sources);
    compile.arg("-I").arg(root.join("crates/capi/include"));
    compile.arg(root.join("contrib/fio/nearflash.c")).arg(archive);
    // Fio unloads engines after each job, but threads of the library keep what they have registered.
    compile.args(["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-Wl,-z,nodelete"]);
    compile.args(["-lgcc_s", "-lm", "-lpthread", "-ldl", "-o"]).arg(engine);
    let ran = shell::capture(&mut compile, BUILD_LIMIT)?;
    if ran.ok { Ok(()) } else { Err(format!("cc:\n{}", ran.output)) }
}
