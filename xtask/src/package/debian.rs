//! The Debian package, and what happens to a machine when it comes, is replaced and goes.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{LIMIT, checked, install, say};
use xtask::shell;

/// The maintainer scripts, which run on the machine as root.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// Installs, upgrades, removes and purges two packages, and looks what is left each time.
const TRIAL: &str = include_str!("debian/trial.sh");

/// The script that runs the trial on a layer over this machine's files. Writes go to memory only.
const ASIDE: &str = "mount -t tmpfs -o mode=755 none \"$1\" && cd \"$1\" && mkdir up work root && \
                     mount -t overlay -o lowerdir=/,upperdir=up,workdir=work none root && \
                     mkdir root/packages && cp \"$2\" root/packages/this.deb && \
                     cp \"$3\" root/packages/next.deb && exec chroot root sh -euc \"$4\"";

/// Makes the package of `tree` in the folder `out`; `compression` is a word for dpkg-deb.
pub(super) fn build(
    out: &Path,
    tree: &Path,
    version: &str,
    compression: &str,
) -> Result<PathBuf, String> {
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control).map_err(|e| say(&control, e))?;
    let architecture = match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(format!("no Debian architecture is known for {other}")),
    };
    let about = format!(
        "Package: nearflash\nVersion: {version}\nArchitecture: {architecture}\nSection: net\n\
         Priority: optional\nDepends: adduser\nMaintainer: The nearflash authors\n\
         Homepage: https://github.com/nearflash/nearflash\n\
         Description: share NVMe flash over an ordinary network\n \
         Exports block devices over TCP at close to local speed and keeps the\n \
         tail-latency and throughput objective of each tenant.\n"
    );
    fs::write(control.join("control"), about).map_err(|e| say(&control, e))?;
    let files = "/etc/nearflash/nearflash.toml\n/etc/logrotate.d/nearflash\n";
    fs::write(control.join("conffiles"), files).map_err(|e| say(&control, e))?;
    for script in SCRIPTS {
        let from = shell::root().join("packaging/debian").join(script);
        install(&from, &control.join(script), 0o755)?;
    }
    let package = out.join(format!("nearflash_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", compression, "--build"]);
    checked(build.arg(tree).arg(&package))?;
    fs::remove_dir_all(&control).map_err(|e| say(&control, e))?;
    Ok(package)
}

/// Installs, upgrades and purges this package on a copy of this machine. Returns `None`, or the
/// reason why that could not be tried.
pub(super) fn try_out(
    out: &Path,
    tree: &Path,
    version: &str,
) -> Result<Option<&'static str>, String> {
    let programs = ["unshare", "dpkg", "dpkg-deb", "deb-systemd-helper", "systemctl", "adduser"];
    if !shell::is_root() || !programs.iter().all(|program| shell::has_program(program)) {
        return Ok(Some("that takes root, Debian's tools and systemctl"));
    }
    let place = out.join("machine");
    fs::create_dir_all(&place).map_err(|e| say(&place, e))?;
    if !can_overlay(&place)? {
        return Ok(Some("this machine's files cannot be overlaid with others"));
    }
    // Beside the place, which is out of sight behind what is mounted there.
    let packages = out.join("trial");
    fs::create_dir_all(&packages).map_err(|e| say(&packages, e))?;
    let this = build(&packages, tree, version, "-Znone")?;
    let next = build(&packages, tree, &format!("{version}+next"), "-Znone")?;
    let tried = checked(&mut aside(&place, &this, &next, TRIAL));
    fs::remove_dir_all(&packages).map_err(|e| say(&packages, e))?;
    tried.map(|_| None)
}

/// Returns true if this machine allows the trial's mounts. Some containers do not.
fn can_overlay(place: &Path) -> Result<bool, String> {
    let nothing = Path::new("/dev/null");
    let mut command = aside(place, nothing, nothing, "true");
    Ok(shell::capture(&mut command, LIMIT)?.ok)
}

fn aside(place: &Path, this: &Path, next: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", ASIDE, "sh"]).args([place, this, next]).arg(script);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
