//! `cargo xtask package`: the portable binary, a tar archive and a Debian package of it.
//!
//! The binary is linked statically, so that it runs on every distribution and in an empty container.
//! What is deliberately not here: uploading anything anywhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::manifest::Manifest;
use crate::shell;

/// Options of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct PackageOptions {
    /// Put this program into the packages instead of building the portable one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

const LIMIT: Duration = Duration::from_secs(1200);

/// What goes where: source in the repository, place in the file system, mode.
const FILES: &[(&str, &str, u32)] = &[
    ("packaging/systemd/nearflash.service", "usr/lib/systemd/system/nearflash.service", 0o644),
    ("packaging/nearflash.toml", "etc/nearflash/nearflash.toml", 0o640),
    ("README.md", "usr/share/doc/nearflash/README.md", 0o644),
    ("CHANGELOG.md", "usr/share/doc/nearflash/changelog", 0o644),
    ("LICENSE-MIT", "usr/share/doc/nearflash/LICENSE-MIT", 0o644),
    ("LICENSE-APACHE", "usr/share/doc/nearflash/LICENSE-APACHE", 0o644),
];

/// Where each shell looks for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/nearflash"),
    ("zsh", "usr/share/zsh/vendor-completions/_nearflash"),
    ("fish", "usr/share/fish/vendor_completions.d/nearflash.fish"),
];

pub(crate) fn run(options: &PackageOptions) -> Result<(), String> {
    let out = shell::root().join("target/package");
    let built = build(&out, options.binary.as_deref())?;
    for file in built {
        let bytes = fs::metadata(&file).map_err(|e| say(&file, e))?.len();
        println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}

/// Makes everything in the folder `out`, around `binary` or a portable one built for it. The files.
pub(crate) fn build(out: &Path, binary: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    let binary = match binary {
        Some(binary) => binary.to_owned(),
        None => portable()?,
    };
    let version = version()?;
    let tree = out.join("tree");
    if out.exists() {
        fs::remove_dir_all(out).map_err(|e| say(out, e))?;
    }
    let program = tree.join("usr/bin/nearflash");
    install(&binary, &program, 0o755)?;
    for (from, to, mode) in FILES {
        install(&shell::root().join(from), &tree.join(to), *mode)?;
    }
    pages(&program, &tree)?;
    let alone = out.join("nearflash");
    install(&binary, &alone, 0o755)?;
    let archive = out.join(format!("nearflash-{version}-linux-{}.tar.gz", std::env::consts::ARCH));
    let mut tar = Command::new("tar");
    tar.args(["--owner=root", "--group=root", "-czf"]).arg(&archive).arg("-C").arg(&tree).arg(".");
    checked(&mut tar)?;
    let mut files = vec![alone, archive];
    if shell::has_program("dpkg-deb") {
        files.push(debian(out, &tree, &version)?);
    } else {
        println!("no dpkg-deb: the Debian package is left out");
    }
    Ok(files)
}

/// Builds everything and runs the packaged program on the packaged configuration.
pub(crate) fn try_out() -> Result<(), String> {
    let out = shell::root().join("target/package");
    build(&out, None)?;
    let tree = out.join("tree");
    let mut check = Command::new(tree.join("usr/bin/nearflash"));
    check.args(["serve", "--check", "--config"]).arg(tree.join("etc/nearflash/nearflash.toml"));
    checked(&mut check).map(drop)
}

/// Builds the program for this processor's architecture, with nothing to load at run time.
fn portable() -> Result<PathBuf, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words =
        ["build", "--release", "--quiet", "--package", "nearflash-cli", "--target", &target];
    let mut cargo = shell::cargo(&words);
    checked(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(shell::root().join("target").join(target).join("release/nearflash"))
}

/// Completions and manual pages, by the program's own word.
fn pages(program: &Path, tree: &Path) -> Result<(), String> {
    for (shell_name, place) in COMPLETIONS {
        let mut command = Command::new(program);
        let script = checked(command.args(["completions", shell_name]))?;
        let place = tree.join(place);
        create_above(&place)?;
        fs::write(&place, script).map_err(|e| say(&place, e))?;
    }
    let man = tree.join("usr/share/man/man1");
    checked(Command::new(program).arg("man").arg("-o").arg(&man)).map(drop)
}

fn debian(out: &Path, tree: &Path, version: &str) -> Result<PathBuf, String> {
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control).map_err(|e| say(&control, e))?;
    let architecture = match std::env::consts::ARCH {
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
    fs::write(control.join("conffiles"), "/etc/nearflash/nearflash.toml\n")
        .map_err(|e| say(&control, e))?;
    for script in ["postinst", "prerm", "postrm"] {
        let from = shell::root().join("packaging/debian").join(script);
        install(&from, &control.join(script), 0o755)?;
    }
    let package = out.join(format!("nearflash_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    checked(build.args(["--root-owner-group", "--build"]).arg(tree).arg(&package))?;
    fs::remove_dir_all(&control).map_err(|e| say(&control, e))?;
    Ok(package)
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    create_above(to)?;
    fs::copy(from, to).map_err(|e| say(from, e))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(|e| say(to, e))
}

fn create_above(path: &Path) -> Result<(), String> {
    let folder = path.parent().expect("a place inside the tree");
    fs::create_dir_all(folder).map_err(|e| say(folder, e))
}

fn checked(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = shell::capture(command, LIMIT)?;
    if ran.ok { Ok(ran.output) } else { Err(format!("{name} failed:\n{}", ran.output)) }
}

fn version() -> Result<String, String> {
    let manifest = Manifest::load()?;
    let program = manifest.packages.into_iter().find(|package| package.name == "nearflash-cli");
    Ok(program.expect("the workspace has the program").version)
}

fn say(path: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
