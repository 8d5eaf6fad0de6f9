//! Debian packages that are unpacked into a folder of the build instead of being installed: other
//! kernels and a newer emulator.
//!
//! Packages to install go through [`needs`](xtask::needs).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtask::shell;

/// The time limit of an apt command: about three times the duration of the slowest download.
const LIMIT: Duration = Duration::from_secs(400);

/// The Debian release whose backports have the newest kernels.
const NEWEST: &str = "trixie";

/// The folder of the system's package sources.
const SOURCES: &str = "/etc/apt/sources.list.d";

/// A source of Debian packages: the system's own suites, or another suite of its mirror. Package
/// lists of another suite are kept in a folder apart, so that the system's configuration does not
/// change.
pub(super) struct Apt {
    options: Vec<String>,
    scratch: PathBuf,
}

impl Apt {
    /// Creates a source of the system's own suites. `cache` is a folder for downloads.
    pub(super) fn of_system(cache: &Path) -> Result<Apt, String> {
        let apt = Apt { options: Vec::new(), scratch: cache.join("downloads") };
        let lists = fs::read_dir("/var/lib/apt/lists").map_err(|e| format!("apt's lists: {e}"))?;
        let known = lists.flatten().any(|e| e.file_name().to_string_lossy().contains("_Packages"));
        if !known {
            apt.apt_get(&["update"])?;
        }
        Ok(apt)
    }

    /// Creates a source of the backports of the system's release.
    pub(super) fn of_backports(cache: &Path) -> Result<Apt, String> {
        Apt::of_suite(cache, |own| format!("{own}-backports"))
    }

    /// Creates a source of the backports of the Debian release with the newest kernels, whatever
    /// the system's release is. Kernels need no libraries of their release.
    pub(super) fn of_newest_backports(cache: &Path) -> Result<Apt, String> {
        Apt::of_suite(cache, |_| format!("{NEWEST}-backports"))
    }

    /// Creates a source of the Debian release with the newest kernels. Its programs need the
    /// libraries of that release.
    pub(super) fn of_newest(cache: &Path) -> Result<Apt, String> {
        Apt::of_suite(cache, |_| NEWEST.to_owned())
    }

    /// Creates a source of the suite that `name` returns for the name of the system's release.
    fn of_suite(cache: &Path, name: impl Fn(&str) -> String) -> Result<Apt, String> {
        let release = fs::read_to_string("/etc/os-release").map_err(|e| e.to_string())?;
        let codename = codename(&release).ok_or("the system does not say which Debian it is")?;
        let suite = name(codename);
        Apt::apart(cache, &suite, &stanza(codename, &suite)?)
    }

    /// Creates a source of source packages of the system's release.
    pub(super) fn of_sources(cache: &Path) -> Result<Apt, String> {
        let release = fs::read_to_string("/etc/os-release").map_err(|e| e.to_string())?;
        let codename = codename(&release).ok_or("the system does not say which Debian it is")?;
        let text = stanza(codename, codename)?.replace("Types: deb\n", "Types: deb-src\n");
        Apt::apart(cache, &format!("{codename}-sources"), &text)
    }

    /// Creates a source that a stanza of apt's configuration describes, with package lists of its
    /// own below `cache`.
    fn apart(cache: &Path, name: &str, stanza: &str) -> Result<Apt, String> {
        let folder = cache.join(format!("apt-{name}"));
        let (parts, lists) = (folder.join("parts"), folder.join("lists"));
        for folder in [&parts, &lists.join("partial")] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        fs::write(parts.join("apart.sources"), stanza).map_err(|e| e.to_string())?;
        let option = |name: &str, value: &str| ["-o".to_owned(), format!("{name}={value}")];
        let options = [
            option("Dir::Etc::sourcelist", "/dev/null"),
            option("Dir::Etc::sourceparts", &parts.to_string_lossy()),
            option("Dir::State::lists", &lists.to_string_lossy()),
            option("Dir::Cache::pkgcache", ""),
            option("Dir::Cache::srcpkgcache", ""),
        ];
        let apt = Apt { options: options.concat(), scratch: cache.join("downloads") };
        apt.apt_get(&["update"])?;
        Ok(apt)
    }

    /// Downloads the source package `package` and unpacks it into `folder`. Fails unless it unpacks
    /// as a folder `name`.
    pub(super) fn unpack_source(
        &self,
        package: &str,
        name: &str,
        folder: &Path,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        if self.scratch.exists() {
            fs::remove_dir_all(&self.scratch).map_err(failed)?;
        }
        fs::create_dir_all(&self.scratch).map_err(failed)?;
        println!("downloading the Debian source of {package}");
        self.apt_get(&["source", package])?;
        let unpacked = self.scratch.join(name);
        if !unpacked.is_dir() {
            return Err(format!("the mirror has no source of {name}"));
        }
        fs::rename(&unpacked, folder).map_err(failed)
    }

    /// Returns the packages that `package` depends on, preferred alternatives first.
    pub(super) fn dependencies(&self, package: &str) -> Result<Vec<String>, String> {
        let mut command = Command::new("apt-cache");
        command.args(&self.options).args(["depends", package]);
        let output = run(&mut command)?;
        let names = output.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads the packages and unpacks them into `folder`, which is created only if everything
    /// succeeded.
    pub(super) fn unpack(&self, packages: &[&str], folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let partial = folder.with_extension("partial");
        for fresh in [&partial, &self.scratch] {
            if fresh.exists() {
                fs::remove_dir_all(fresh).map_err(failed)?;
            }
            fs::create_dir_all(fresh).map_err(failed)?;
        }
        println!("downloading Debian packages: {}", packages.join(" "));
        self.apt_get(&[&["download"], packages].concat())?;
        for file in fs::read_dir(&self.scratch).map_err(failed)? {
            let file = file.map_err(failed)?.path();
            run(Command::new("dpkg").arg("-x").arg(file).arg(&partial))?;
        }
        fs::remove_dir_all(&self.scratch).map_err(failed)?;
        fs::rename(&partial, folder).map_err(failed)
    }

    fn apt_get(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new("apt-get");
        command.args(["-q", "-o", "APT::Sandbox::User=root"]).args(&self.options).args(arguments);
        if self.scratch.is_dir() {
            command.current_dir(&self.scratch);
        }
        run(&mut command).map(|_| ())
    }
}

/// Runs a command and returns its output. The error of a failed command has the last line of its
/// output.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = shell::capture(command, LIMIT)?;
    let last = ran.output.lines().last().unwrap_or("no output");
    if ran.ok { Ok(ran.output) } else { Err(format!("{name}: {last}")) }
}

/// Returns the value of `VERSION_CODENAME` in the text of `os-release`.
fn codename(release: &str) -> Option<&str> {
    release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))
}

/// Returns the stanza of apt's configuration that describes `codename`, rewritten for `suite`.
fn stanza(codename: &str, suite: &str) -> Result<String, String> {
    let files = fs::read_dir(SOURCES).map_err(|error| format!("{SOURCES}: {error}"))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sources"));
    paths.sort();
    let mut texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts
        .find_map(|text| text.split("\n\n").find_map(|part| replace_suite(part, codename, suite)))
        .ok_or_else(|| format!("no stanza for {codename} in {SOURCES}/*.sources"))
}

fn replace_suite(stanza: &str, codename: &str, suite: &str) -> Option<String> {
    let mut found = false;
    let mut text = String::new();
    for line in stanza.lines() {
        match line.strip_prefix("Suites:") {
            Some(suites) => {
                found |= suites.split_whitespace().any(|word| word == codename);
                text.push_str(&format!("Suites: {suite}\n"));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    found.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_replaced_in_the_stanza_of_the_release() {
        let stanza = "Types: deb\nURIs: http://d\nSuites: bookworm bookworm-updates\nComponents: x";
        assert_eq!(
            replace_suite(stanza, "bookworm", "bookworm-backports").unwrap(),
            "Types: deb\nURIs: http://d\nSuites: bookworm-backports\nComponents: x\n"
        );
        assert_eq!(replace_suite(stanza, "trixie", "x"), None);
    }

    #[test]
    fn the_release_says_its_name() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=trixie\n"), Some("trixie"));
        assert_eq!(codename("ID=other\n"), None);
    }
}
