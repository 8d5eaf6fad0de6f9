//! The programs of the workspace, built once: one profile and one set of features for the tests, the
//! simulated world, the server in guests and the packages that are looked at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::Deserialize;
use xtask::shell;

use super::failures::without_successes;
use super::step::Counts;

/// The time limit of building the whole workspace, on two shared cores.
const BUILD_LIMIT: Duration = Duration::from_secs(2700);

/// The time limit of one test program, on two shared cores.
const TEST_LIMIT: Duration = Duration::from_secs(1500);

/// The seconds above which a test program is printed with its time.
const SLOW: f64 = 5.0;

/// The words before the reason in the line by which a test says that it cannot run on this machine.
const SKIPPED: &str = "SKIPPED: ";

/// The programs of the workspace that cargo has built.
pub(super) struct Programs {
    /// The test programs, in the order in which they run.
    pub(super) tests: Vec<TestProgram>,
    others: BTreeMap<String, PathBuf>,
}

/// A program of tests: those of a library, of a program, or the integration tests of a package.
pub(super) struct TestProgram {
    /// The folder of its package, from the root: `crates/wire`.
    pub(super) package: String,
    /// The name of its target: the library's, a program's, or `all` for integration tests.
    target: String,
    executable: PathBuf,
    folder: PathBuf,
}

/// A message of cargo about a target that it has built, with the members that are read.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Returns the workspace's programs. The first call builds them, and all others return its result.
pub(super) fn built() -> Result<&'static Programs, String> {
    static BUILT: OnceLock<Result<Programs, String>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref().map_err(Clone::clone)
}

fn build() -> Result<Programs, String> {
    let format = "--message-format=json-render-diagnostics";
    let words = ["build", "--workspace", "--all-targets", format];
    let ran = shell::capture(&mut shell::cargo(&words), BUILD_LIMIT)?;
    if !ran.ok {
        let said = ran.output.lines().filter(|line| !line.starts_with("{\"reason\""));
        return Err(said.collect::<Vec<_>>().join("\n"));
    }
    Ok(Programs::parse(&ran.output))
}

impl Programs {
    fn parse(output: &str) -> Programs {
        let mut programs = Programs { tests: Vec::new(), others: BTreeMap::new() };
        let artifacts = output.lines().filter(|line| line.contains("\"compiler-artifact\""));
        for artifact in artifacts.filter_map(|line| serde_json::from_str::<Artifact>(line).ok()) {
            let Artifact { manifest_path, target, profile, executable } = artifact;
            let (Some(executable), Some(folder)) = (executable, manifest_path.parent()) else {
                continue;
            };
            let package = last_two(folder);
            let (target, kind) = (target.name, target.kind);
            if profile.test {
                let folder = folder.to_path_buf();
                programs.tests.push(TestProgram { package, target, executable, folder });
            } else if kind.iter().any(|kind| kind == "bin") {
                programs.others.insert(target, executable);
            }
        }
        programs.tests.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
        programs
    }

    /// Returns the path of the program `name`, which is not a test.
    pub(super) fn path(&self, name: &str) -> Result<&Path, String> {
        let path = self.others.get(name).map(PathBuf::as_path);
        path.ok_or_else(|| format!("the workspace has no program {name}"))
    }

    /// Returns the program with the integration tests of a package, whose folder is `package`:
    /// `apps/nearflash`.
    pub(super) fn integration(&self, package: &str) -> Result<&TestProgram, String> {
        let mut tests = self.tests.iter();
        let found = tests.find(|program| program.package == package && program.target == "all");
        found.ok_or_else(|| format!("{package} has no integration tests"))
    }
}

/// Returns the last two components of a path.
fn last_two(folder: &Path) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder.parent().map(name).unwrap_or_default() + "/" + &name(folder)
}

impl TestProgram {
    /// Runs the test program with the arguments `words` and additional variables of the
    /// environment, and counts its tests.
    pub(super) fn run(
        &self,
        words: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Counts, String> {
        let mut command = Command::new(&self.executable);
        // A passed test prints `SKIPPED` if it did nothing, so its output is needed too.
        command.args(words).arg("--show-output");
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.envs(environment.iter().copied());
        let started = Instant::now();
        let ran = shell::capture(&mut command, TEST_LIMIT)?;
        let seconds = started.elapsed().as_secs_f64();
        if seconds > SLOW {
            println!("    {} {} in {seconds:.0} s", self.package, self.target);
        }
        let title = format!("{} {}: {}\n", self.package, self.target, words.join(" "));
        let mut counts = counts(ran.ok, title + &ran.output);
        counts.output = match counts.failed {
            // Beside the failure of another program only that is to be read.
            0 if counts.passed > 0 => String::new(),
            _ => without_successes(&counts.output),
        };
        Ok(counts)
    }
}

/// Counts the tests in the output of test programs, which all ended with zero if `is_ok`.
pub(super) fn counts(is_ok: bool, output: String) -> Counts {
    let (mut passed, mut failed) = count(&output);
    // A crash or a compile error leaves no count of its own.
    if !is_ok && failed == 0 {
        failed = 1;
    }
    let reasons = output.lines().filter_map(|line| line.split_once(SKIPPED));
    let skipped: Vec<String> = reasons.map(|(_, reason)| reason.to_owned()).collect();
    // A test that is skipped returns, so its program has counted it as passed.
    passed = passed.saturating_sub(skipped.len() as u64);
    Counts { passed, failed, skipped, output }
}

/// Returns the numbers of passed and failed tests, summed over all `test result` lines.
fn count(output: &str) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    for line in output.lines() {
        let Some(rest) = line.trim_start().strip_prefix("test result: ") else { continue };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            let (number, word) = part.split_once(' ').unwrap_or(("", ""));
            let number: u64 = number.parse().unwrap_or(0);
            match word {
                "passed" => passed += number,
                "failed" => failed += number,
                _ => {}
            }
        }
    }
    (passed, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_are_summed() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; in 0.00s\n\
            error: x\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(count(output), (13, 2));
        assert_eq!(count("error: could not compile"), (0, 0));
    }

    #[test]
    fn a_crash_is_a_failure_and_a_skip_is_no_pass() {
        assert_eq!(counts(false, "running 3 tests\n".into()).failed, 1);
        let output = "SKIPPED: no root\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        let counts = counts(true, output.into());
        assert_eq!((counts.passed, counts.skipped), (2, vec!["no root".to_owned()]));
    }

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let line = |name: &str, kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/wire/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":"/t/{name}"}}"#
            )
        };
        let said = [line("all", "test", true), line("nearflash", "bin", false)].join("\n");
        let programs = Programs::parse(&said);
        assert_eq!(programs.path("nearflash").unwrap(), Path::new("/t/nearflash"));
        assert!(programs.path("all").is_err());
        assert_eq!(programs.integration("crates/wire").unwrap().executable, Path::new("/t/all"));
        assert!(programs.integration("crates/proto").is_err());
    }
}
