//! `cargo xtask package`: the portable binary, a tar archive and a Debian package of it, and those
//! of the C library.
//!
//! The binary is linked statically, so that it runs on every distribution and in an empty
//! container. What is deliberately not here: uploading anything anywhere.

mod container;
mod debian;
mod files;
mod library;
mod manual;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::manifest::Manifest;
use files::{checked, create_above, documents, install, say};
use xtask::shell;

/// Options of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct PackageOptions {
    /// Put this program into the packages instead of building the portable one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Make the packages of the C library of this archive [default: it is built with the program]
    #[arg(long, value_name = "FILE", requires = "binary")]
    library: Option<PathBuf>,
    /// Try what was made: serve in the container, install, upgrade, remove and purge the Debian
    /// package
    #[arg(long)]
    try_out: bool,
}

/// The files that every package of the program has: path in the repository, path in the file
/// system, mode.
const FILES: &[(&str, &str, u32)] = &[
    ("packaging/debian/copyright", "usr/share/doc/nearflash/copyright", 0o644),
    ("packaging/systemd/nearflash.service", "usr/lib/systemd/system/nearflash.service", 0o644),
    (
        "packaging/systemd/nearflash-attach@.service",
        "usr/lib/systemd/system/nearflash-attach@.service",
        0o644,
    ),
    ("packaging/nearflash.toml", "etc/nearflash/nearflash.toml", 0o640),
    ("packaging/logrotate/nearflash", "etc/logrotate.d/nearflash", 0o644),
    ("README.md", "usr/share/doc/nearflash/README.md", 0o644),
    ("CHANGELOG.md", "usr/share/doc/nearflash/changelog", 0o644),
    ("LICENSE-MIT", "usr/share/doc/nearflash/LICENSE-MIT", 0o644),
    ("LICENSE-APACHE", "usr/share/doc/nearflash/LICENSE-APACHE", 0o644),
    ("packaging/grafana/nearflash.json", "usr/share/nearflash/grafana/nearflash.json", 0o644),
    (
        "packaging/prometheus/nearflash.rules.yml",
        "usr/share/nearflash/prometheus/nearflash.rules.yml",
        0o644,
    ),
];

/// The folder of the documents in the repository, and its path in the file system: beside the
/// README, so that its links work.
const DOCUMENTS: (&str, &str) = ("docs", "usr/share/doc/nearflash/docs");

/// The shells, each with the file from which it loads the program's completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/nearflash"),
    ("zsh", "usr/share/zsh/vendor-completions/_nearflash"),
    ("fish", "usr/share/fish/vendor_completions.d/nearflash.fish"),
];

pub(crate) fn run(options: &PackageOptions) -> Result<(), String> {
    let built = CompiledParts::of(options)?;
    if options.try_out {
        return try_out(&built).map(drop);
    }
    let out = shell::root().join("target/package");
    let PackageFiles { files, library } = build(&out, &built, &SMALL)?;
    for file in files.iter().chain(&library) {
        let bytes = fs::metadata(file).map_err(|e| say(file, e))?.len();
        println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}

/// The compiled parts of packages: the program and the C library.
pub(crate) struct CompiledParts {
    program: PathBuf,
    /// The archive of the C library; if `None`, the packages of the library are left out.
    archive: Option<PathBuf>,
}

impl CompiledParts {
    fn of(options: &PackageOptions) -> Result<CompiledParts, String> {
        match &options.binary {
            Some(program) => {
                Ok(CompiledParts { program: program.clone(), archive: options.library.clone() })
            }
            None => CompiledParts::portable(),
        }
    }

    /// Builds the static program for this processor's architecture, and the archive of the C
    /// library.
    pub(crate) fn portable() -> Result<CompiledParts, String> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let words = ["build", "--profile", "dist", "--quiet", "--target", &target];
        let packages = ["--package", "nearflash-cli", "--package", "nearflash-capi"];
        let mut cargo = shell::cargo(&[&words[..], &packages].concat());
        // The archive contains only our own objects, so it can be linked with a shared C library
        // nevertheless.
        checked(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
        Ok(CompiledParts::beside(&shell::root().join("target").join(target).join("dist/nearflash")))
    }

    /// Returns a program that is built already, and the archive of the C library beside it.
    fn beside(program: &Path) -> CompiledParts {
        let archive = program.with_file_name("libnearflash_capi.a");
        CompiledParts { program: program.to_owned(), archive: Some(archive) }
    }
}

/// The files of packages that [`build`] has made.
struct PackageFiles {
    files: Vec<PathBuf>,
    /// The packages of the C library; empty if none were made.
    library: Vec<PathBuf>,
}

/// The compression of packages, as options of tar and of dpkg-deb.
struct Compression {
    tar: &'static str,
    debian: &'static str,
}

/// The compression of packages for download: gzip for archives, xz for Debian packages.
const SMALL: Compression = Compression { tar: "-czf", debian: "-Zxz" };

/// The compression of packages that are only checked: none.
const NONE: Compression = Compression { tar: "-cf", debian: "-Znone" };

/// Makes all packages of the built parts in the folder `out`, which is emptied first.
fn build(
    out: &Path,
    built: &CompiledParts,
    compression: &Compression,
) -> Result<PackageFiles, String> {
    let CompiledParts { program: binary, archive: library } = built;
    let version = version()?;
    let tree = out.join("tree");
    if out.exists() {
        fs::remove_dir_all(out).map_err(|e| say(out, e))?;
    }
    let program = tree.join("usr/bin/nearflash");
    install(binary, &program, 0o755)?;
    for (from, to, mode) in FILES {
        install(&shell::root().join(from), &tree.join(to), *mode)?;
    }
    let (from, to) = DOCUMENTS;
    documents(&shell::root().join(from), &tree.join(to))?;
    pages(&program, &tree)?;
    container::directories(out)?;
    let alone = out.join("nearflash");
    install(binary, &alone, 0o755)?;
    let archive = out.join(format!("nearflash-{version}-linux-{}.tar.gz", std::env::consts::ARCH));
    let mut tar = Command::new("tar");
    tar.args(["--owner=root", "--group=root", compression.tar])
        .arg(&archive)
        .arg("-C")
        .arg(&tree)
        .arg(".");
    checked(&mut tar)?;
    let mut made = PackageFiles { files: vec![alone, archive], library: Vec::new() };
    if !shell::has_program("dpkg-deb") {
        println!("no dpkg-deb: the Debian packages are left out");
        return Ok(made);
    }
    made.files.push(debian::build(out, &tree, &version, compression.debian)?);
    match library {
        Some(library) => made.library = library::build(out, library, &version, compression.debian)?,
        None => println!("no --library: the packages of the C library are left out"),
    }
    Ok(made)
}

/// Makes uncompressed packages of an existing program and the archive beside it, and checks their
/// contents. The program's symbols are left out, since they are larger than everything else.
pub(crate) fn check_contents(program: &Path) -> Result<(), String> {
    let out = shell::root().join("target/package-contents");
    let stripped = shell::root().join("target/nearflash-stripped");
    checked(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    let built = CompiledParts { program: stripped, ..CompiledParts::beside(program) };
    let made = build(&out, &built, &NONE)?;
    has_all_files(&out.join("tree"))?;
    check(&out, &made)
}

/// Checks that the tree of a package has all files that are to be installed.
fn has_all_files(tree: &Path) -> Result<(), String> {
    let files = FILES.iter().map(|(_, to, _)| *to);
    let others = COMPLETIONS.iter().map(|(_, to)| *to);
    let more = ["usr/bin/nearflash", "usr/share/man/man1/nearflash.1", DOCUMENTS.1];
    let mut all = files.chain(others).chain(more);
    match all.find(|place| !tree.join(place).exists()) {
        Some(missing) => Err(format!("the packages have no {missing}")),
        None => Ok(()),
    }
}

/// Checks the packaged configuration with the packaged program, and the contents of the packages of
/// the C library.
fn check(out: &Path, made: &PackageFiles) -> Result<(), String> {
    if !made.library.is_empty() {
        library::check(out, &made.library)?;
    }
    let tree = out.join("tree");
    // The user who builds may not be allowed to write in the service's folder.
    let packaged = tree.join("etc/nearflash/nearflash.toml");
    let text = fs::read_to_string(&packaged).map_err(|error| say(&packaged, error))?;
    let text = text.replace("/var/lib/nearflash", &out.join("state").display().to_string());
    let text = text.replace("/var/log/nearflash", &out.display().to_string());
    let tried = out.join("tried.toml");
    fs::write(&tried, text).map_err(|error| say(&tried, error))?;
    let mut check = Command::new(tree.join("usr/bin/nearflash"));
    check.args(["serve", "--check", "--config"]).arg(&tried);
    checked(&mut check).map(drop)
}

/// Makes packages as shipped, [checks](check) them and tries them: the container without an engine,
/// and the Debian packages from their installation to their purge. Returns a line for each trial
/// that could not be made on this machine, with the reason.
pub(crate) fn try_out(built: &CompiledParts) -> Result<Vec<String>, String> {
    let out = shell::root().join("target/package");
    let made = build(&out, built, &SMALL)?;
    check(&out, &made)?;
    let tree = out.join("tree");
    let library = match made.library.is_empty() {
        true => Some("it was not made"),
        false => library::try_out(&out, &made.library)?,
    };
    let mut skipped = Vec::new();
    for (what, outcome) in [
        ("container", container::try_out(&out)?),
        ("Debian package", debian::try_out(&out, &tree, &version()?)?),
        ("C library's Debian package", library),
    ] {
        match outcome {
            None => println!("    the {what} does what it should"),
            Some(why) => skipped.push(format!("the {what} is not tried: {why}")),
        }
    }
    for reason in &skipped {
        println!("    {reason}");
    }
    Ok(skipped)
}

/// Writes the completions and manual pages that the program prints to their places in `tree`.
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

fn version() -> Result<String, String> {
    let manifest = Manifest::load()?;
    let program = manifest.packages.into_iter().find(|package| package.name == "nearflash-cli");
    Ok(program.expect("the workspace has the program").version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "packaging/systemd/nearflash.service";

    /// The version of systemd whose rating `docs/explanation/security.md` quotes. Other versions
    /// rate other settings.
    const VERSION: &str = "252";

    #[test]
    fn the_service_is_as_exposed_as_the_document_says() {
        let text = fs::read_to_string(shell::root().join("docs/explanation/security.md")).unwrap();
        let said = text.split("has an exposure of ").nth(1).expect("the document tells it");
        let said = said.split_whitespace().next().unwrap();
        assert!(text.contains(&format!("version {VERSION}")), "and whose opinion it is");
        let asked = shell::has_program("systemd-analyze").then(|| {
            let mut version = Command::new("systemd-analyze");
            checked(version.arg("--version")).unwrap()
        });
        if !asked.is_some_and(|version| version.starts_with(&format!("systemd {VERSION} "))) {
            println!("SKIPPED: there is no systemd-analyze of version {VERSION}");
            return;
        }
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(shell::root().join(UNIT));
        let found = checked(&mut analyze).unwrap();
        let overall = found.lines().find(|line| line.contains("Overall exposure level")).unwrap();
        assert!(overall.contains(&format!(": {said} ")), "{overall}, and the document says {said}");
    }
}
