//! The step of the Python package: its tests with the extension that the workspace has built and, in
//! full runs, types, stubs and the packages themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtask::needs::{self, Need};
use xtask::shell;

use super::programs::built;
use super::step::{Counts, Outcome, Run};

/// The Python interpreter, with the means to create environments.
pub(super) const PYTHON: &[Need] = &[Need { program: "python3", package: "python3-venv" }];

/// The time limit of each command of this step, on a busy machine.
const LIMIT: Duration = Duration::from_secs(1500);

/// The package's folder, and the folder in which the package is laid out with its extension, from
/// the root.
const SOURCES: &str = "python";
const PLACE: &str = "target/python";

/// The lists of third-party packages for the tests, and for all checks.
const FOR_TESTS: &str = "python/tests/requirements.txt";
const FOR_ALL: &str = "python/requirements.txt";

/// The arguments of pytest that choose the tests of short runs.
const SHORT: &[&str] = &["-m", "not slow"];

/// Runs the package's tests: in a short run those that are not slow, in a full run all, with checks
/// of the types and of the packages themselves.
pub(super) fn run(run: &Run) -> Result<Outcome, String> {
    let tools = match Tools::provide(if run.is_full { FOR_ALL } else { FOR_TESTS }) {
        Ok(tools) => tools,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let nearflash = built()?.path("nearflash")?;
    let package = lay_out(nearflash.parent().ok_or("the program is in no folder")?)?;
    if !run.is_full {
        return Ok(Outcome::Counted(tools.pytest(&package, nearflash, SHORT)?));
    }
    let mut counts = tools.pytest(&package, nearflash, &[])?;
    tools.check_types(&package)?;
    counts.add(tools.pytest(&tools.install_wheel()?, nearflash, SHORT)?);
    counts.passed += 3; // types, stubs, packages
    Ok(Outcome::Counted(counts))
}

/// Lays out the package's Python code together with the extension that is in `folder`, and returns
/// the path from which Python imports them.
fn lay_out(folder: &Path) -> Result<PathBuf, String> {
    let (from, place) = (shell::root().join(SOURCES).join("package"), place("package"));
    let extension = folder.join("libnearflash_native.so");
    let lay = || {
        remove(&place)?;
        fs::create_dir_all(place.join("nearflash"))?;
        for entry in fs::read_dir(from.join("nearflash"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), place.join("nearflash").join(entry.file_name()))?;
            }
        }
        fs::copy(&extension, place.join("nearflash/_native.abi3.so"))
    };
    lay().map_err(|error: std::io::Error| format!("{}: {error}", place.display()))?;
    Ok(place)
}

fn place(name: &str) -> PathBuf {
    shell::root().join(PLACE).join(name)
}

/// A Python environment, in a folder, with the third-party packages of a list.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Returns the environment for the list `list`, which is created if it is missing or out of
    /// date. The error is the reason to skip the step.
    fn provide(list: &str) -> Result<Tools, String> {
        const VERSION: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
        let has_python = || succeeds(Command::new("python3").args(["-c", VERSION]));
        if !has_python() {
            // No program has this name, so its Debian package is installed in any case.
            needs::provide(&[Need { program: "python3-venv", package: "python3-venv" }])?;
        }
        if !has_python() {
            return Err("there is no Python 3.11 with venv and pip (Debian: python3-venv)".into());
        }
        let root = shell::root();
        let wanted = [FOR_TESTS, list].map(|list| fs::read_to_string(root.join(list)));
        let wanted: String = wanted.into_iter().filter_map(Result::ok).collect();
        let folder = place(if list == FOR_ALL { "tools" } else { "test-tools" });
        let stamp = folder.join("requirements");
        if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
            return Ok(Tools { folder });
        }
        println!("installing Python's packages of {list} in {}", folder.display());
        let tools = Tools { folder };
        let make = ["-m", "venv", "--clear"];
        if !succeeds(Command::new("python3").args(make).arg(&tools.folder)) {
            return Err("an environment of Python cannot be made".into());
        }
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        let mut pip = tools.python();
        if !succeeds(pip.args(install).arg(root.join(list))) {
            return Err("Python's packages cannot be had here".into());
        }
        let noted = fs::write(&stamp, wanted);
        noted.map_err(|error| format!("{}: {error}", stamp.display()))?;
        Ok(tools)
    }

    fn python(&self) -> Command {
        let mut command = Command::new(self.folder.join("bin/python"));
        command.current_dir(shell::root().join(SOURCES)).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs the tests of the package in the folder `package` against the program `nearflash`, with
    /// the arguments `words`, and counts them.
    fn pytest(&self, package: &Path, nearflash: &Path, words: &[&str]) -> Result<Counts, String> {
        let mut command = self.python();
        command.env("NEARFLASH", nearflash).env("PYTHONPATH", package);
        command.args(["-X", "dev", "-m", "pytest", "-q"]).args(words);
        let ran = shell::capture(&mut command, LIMIT)?;
        Ok(counts(ran.ok, ran.output))
    }

    /// Checks the types of the package's code in the folder `package`, and the stubs of its
    /// extension.
    fn check_types(&self, package: &Path) -> Result<(), String> {
        let mut types = self.python();
        types.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(place("mypy"));
        succeed(types.args(["package/nearflash", "tests", "tools", "benches"]))?;
        let mut stubs = self.python();
        stubs.args(["-m", "mypy.stubtest", "nearflash._native"]).env("PYTHONPATH", package);
        succeed(&mut stubs)
    }

    /// Packs the sources, builds a wheel from the packed sources alone, and installs it. Returns
    /// the folder of the installation.
    fn install_wheel(&self) -> Result<PathBuf, String> {
        let (packed, sources, installed) = (place("packed"), place("sources"), place("installed"));
        for folder in [&packed, &sources, &installed] {
            let made = remove(folder).and_then(|()| fs::create_dir_all(folder));
            made.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let maturin = |words: &[&str], folder: &Path| {
            let mut command = Command::new(self.folder.join("bin/maturin"));
            command.current_dir(folder).args(words).arg("--out").arg(&packed);
            succeed(&mut command)
        };
        maturin(&["sdist"], &shell::root().join(SOURCES))?;
        let mut unpack = Command::new("tar");
        unpack.current_dir(&sources).args(["--extract", "--strip-components=1", "--file"]);
        succeed(unpack.arg(file_in(&packed, ".tar.gz")?))?;
        maturin(&["build", "--profile", "dev"], &sources)?;
        let mut pip = self.python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-index", "--no-deps", "--target"]).arg(&installed);
        succeed(pip.arg(file_in(&packed, ".whl")?))?;
        Ok(installed)
    }
}

fn remove(folder: &Path) -> std::io::Result<()> {
    if folder.exists() { fs::remove_dir_all(folder) } else { Ok(()) }
}

/// Returns the file in `folder` whose name ends in `end`.
fn file_in(folder: &Path, end: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.ok_or_else(|| format!("no {end} in {}", folder.display()))
}

/// Runs a command. The error is the output of a command that failed.
fn succeed(command: &mut Command) -> Result<(), String> {
    let ran = shell::capture(command, LIMIT)?;
    if ran.ok { Ok(()) } else { Err(ran.output) }
}

fn succeeds(command: &mut Command) -> bool {
    succeed(command).is_ok()
}

/// Counts the tests in an output of pytest, whose last line is `3 passed, 1 failed in 0.1s`; it
/// ended with zero if `is_ok`.
fn counts(is_ok: bool, output: String) -> Counts {
    let mut counts = Counts::default();
    let last = output.lines().rfind(|line| line.contains(" in ")).unwrap_or_default();
    for part in last.split(" in ").next().unwrap_or_default().split(", ") {
        let (number, word) = part.trim_matches(['=', ' ']).split_once(' ').unwrap_or_default();
        let number: u64 = number.parse().unwrap_or(0);
        match word {
            "passed" => counts.passed += number,
            "failed" | "error" | "errors" => counts.failed += number,
            "skipped" => counts.skipped.push(format!("pytest skipped {number}")),
            _ => {}
        }
    }
    // A crash leaves no count, and no test is no pass.
    if counts.failed == 0 && (!is_ok || counts.passed == 0) {
        counts.failed = 1;
    }
    counts.output = output;
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_pytest_are_counted() {
        let of = |is_ok, output: &str| {
            let counts = counts(is_ok, output.to_owned());
            (counts.passed, counts.failed, counts.skipped.len())
        };
        assert_eq!(of(true, "..\n12 passed, 3 deselected in 3.2s\n"), (12, 0, 0));
        assert_eq!(of(false, "== 2 failed, 1 passed, 1 error in 1.00s ==\n"), (1, 3, 0));
        assert_eq!(of(true, "5 passed, 2 skipped in 1.00s\n"), (5, 0, 1));
        assert_eq!(of(false, "Segmentation fault\n"), (0, 1, 0));
        assert_eq!(of(true, "no tests ran in 0.01s\n"), (0, 1, 0));
    }
}
