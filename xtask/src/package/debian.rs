//! Debian packages, and their effect on a machine at installation, upgrade and removal.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{LIMIT, checked, say};
use xtask::shell;

/// The maintainer scripts, which run on the machine as root.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// The script that installs, upgrades, removes and purges two packages, and checks the remaining
/// files each time.
const TRIAL: &str = include_str!("debian/trial.sh");

/// The script that runs the script `$3` on a layer over this machine's files. Writes go to memory
/// only.
const ASIDE: &str = "mount -t tmpfs -o mode=755 none \"$1\" && cd \"$1\" && mkdir up work root && \
                     mount -t overlay -o lowerdir=/,upperdir=up,workdir=work none root && \
                     cp -r \"$2\" root/packages && exec chroot root sh -euc \"$3\"";

/// The name and the version of a package, and the contents of its control files.
pub(super) struct Control<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    /// Lines of the file `control` in addition to those common to all packages; the description
    /// comes last.
    pub(super) fields: String,
    /// The further control files: name, text and mode of each.
    pub(super) files: Vec<(&'a str, String, u32)>,
}

/// A package that a trial finds under the name `name`.
pub(super) struct NamedPackage<'a> {
    pub(super) file: &'a Path,
    pub(super) name: &'a str,
}

/// Makes the package of the program, whose files are in `tree`, in the folder `out`; `compression`
/// is a word for dpkg-deb.
pub(super) fn build(
    out: &Path,
    tree: &Path,
    version: &str,
    compression: &str,
) -> Result<PathBuf, String> {
    let fields = "Section: net\nDepends: adduser\n\
         Description: share NVMe flash over an ordinary network\n \
         Exports block devices over TCP at close to local speed and keeps the\n \
         tail-latency and throughput objective of each tenant.\n";
    let kept = "/etc/nearflash/nearflash.toml\n/etc/logrotate.d/nearflash\n";
    let mut files = vec![("conffiles", kept.to_owned(), 0o644)];
    for script in SCRIPTS {
        let from = shell::root().join("packaging/debian").join(script);
        files.push((script, fs::read_to_string(&from).map_err(|e| say(&from, e))?, 0o755));
    }
    pack(
        out,
        tree,
        &Control { name: "nearflash", version, fields: fields.to_owned(), files },
        compression,
    )
}

/// Makes a Debian package of the files in `tree`, in the folder `out`. Returns its path.
/// `compression` is an option of dpkg-deb.
pub(super) fn pack(
    out: &Path,
    tree: &Path,
    control: &Control,
    compression: &str,
) -> Result<PathBuf, String> {
    let folder = tree.join("DEBIAN");
    fs::create_dir_all(&folder).map_err(|e| say(&folder, e))?;
    let architecture = match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(format!("no Debian architecture is known for {other}")),
    };
    let Control { name, version, fields, files } = control;
    let about = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nPriority: optional\n\
         Source: nearflash\nMaintainer: The nearflash authors\n\
         Homepage: https://github.com/nearflash/nearflash\n{fields}"
    );
    let all = files.iter().map(|(name, text, mode)| (*name, text, *mode));
    for (file, text, mode) in all.chain([("control", &about, 0o644)]) {
        let path = folder.join(file);
        fs::write(&path, text).map_err(|e| say(&path, e))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(|e| say(&path, e))?;
    }
    let package = out.join(format!("{name}_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", compression, "--build"]);
    checked(build.arg(tree).arg(&package))?;
    fs::remove_dir_all(&folder).map_err(|e| say(&folder, e))?;
    Ok(package)
}

/// Installs, upgrades and purges the package of the program on a copy of this machine. Returns
/// `None` on success, or the reason that this could not be tried.
pub(super) fn try_out(
    out: &Path,
    tree: &Path,
    version: &str,
) -> Result<Option<&'static str>, String> {
    let programs = ["deb-systemd-helper", "systemctl", "adduser"];
    if !programs.iter().all(|program| shell::has_program(program)) {
        return Ok(Some("that takes systemctl, adduser and Debian's helper for services"));
    }
    // A folder for each, as they have one name if they have one version.
    let made = out.join("trial");
    let next = made.join("next");
    fs::create_dir_all(&next).map_err(|e| say(&next, e))?;
    let this = build(&made, tree, version, "-Znone")?;
    let next = build(&next, tree, &format!("{version}+next"), "-Znone")?;
    let copied = [
        NamedPackage { file: &this, name: "this.deb" },
        NamedPackage { file: &next, name: "next.deb" },
    ];
    let tried = try_aside(out, &copied, TRIAL);
    fs::remove_dir_all(&made).map_err(|e| say(&made, e))?;
    tried
}

/// Runs the script of a trial on a copy of this machine, with these packages in `/packages`.
/// Returns `None` on success, or the reason that this could not be done.
pub(super) fn try_aside(
    out: &Path,
    packages: &[NamedPackage],
    script: &str,
) -> Result<Option<&'static str>, String> {
    let programs = ["unshare", "dpkg", "dpkg-deb"];
    if !shell::is_root() || !programs.iter().all(|program| shell::has_program(program)) {
        return Ok(Some("that takes root and Debian's tools"));
    }
    // Beside the place, which is out of sight behind what is mounted there.
    let (place, folder) = (out.join("machine"), out.join("packages"));
    for new in [&place, &folder] {
        fs::create_dir_all(new).map_err(|e| say(new, e))?;
    }
    if !can_overlay(&place, &folder)? {
        return Ok(Some("this machine's files cannot be overlaid with others"));
    }
    for NamedPackage { file, name } in packages {
        fs::copy(file, folder.join(name)).map_err(|e| say(file, e))?;
    }
    let tried = checked(&mut aside(&place, &folder, script));
    fs::remove_dir_all(&folder).map_err(|e| say(&folder, e))?;
    tried.map(|_| None)
}

/// Returns `true` if this machine allows the trial's mounts, which some containers do not.
fn can_overlay(place: &Path, folder: &Path) -> Result<bool, String> {
    Ok(shell::capture(&mut aside(place, folder, "true"), LIMIT)?.ok)
}

fn aside(place: &Path, packages: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", ASIDE, "sh"]).args([place, packages]).arg(script);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
