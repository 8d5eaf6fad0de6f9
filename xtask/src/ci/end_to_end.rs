//! The end-to-end steps: real programs, real sockets, other people's clients.
//!
//! To add one: write a function that returns its [`Outcome`], and a row that names
//! it and the programs of others that it [needs](xtask::needs::Need).

use std::process::Command;
use std::time::Duration;

use xtask::needs::Need;
use xtask::shell;

use super::programs::built;
use super::python::{self, PYTHON};
use super::slices;
use super::step::{Counts, Lane, List, Outcome, Run, Step};
use super::steps::APP;
use crate::package;

/// The end-to-end steps, in the order in which they run.
#[rustfmt::skip]
pub(super) const STEPS: &[Step] = &[
    // The tests of this step install what they need themselves: a test that lacks a program is
    // skipped alone.
    Step { name: "interop", list: List::Short, lane: Lane::Left, needs: &[], run: interop },
    // In the lane of `interop`, since a slice may repeat a part of that step.
    Step { name: "slice", list: List::OnlyShort, lane: Lane::Left, needs: &[], run: slices::run },
    Step { name: "python", list: List::Short, lane: Lane::Either, needs: PYTHON, run: python::run },
    Step { name: "dashboard", list: List::Short, lane: Lane::Either, needs: BROWSER, run: dashboard },
    Step { name: "package contents", list: List::Short, lane: Lane::Either, needs: PACKAGER, run: contents },
    Step { name: "packages as shipped", list: List::Full, lane: Lane::Either, needs: PACKAGER, run: shipped },
];

/// The needs of tests in a browser: the browser, its driver, and the tool that lists fonts.
pub(super) const BROWSER: &[Need] = &[
    Need { program: "chromium", package: "chromium" },
    Need { program: "chromedriver", package: "chromium-driver" },
    Need { program: "fc-list", package: "fontconfig" },
];

/// The needs of the checks of packages: pkg-config, by which builds of C programs find the library.
const PACKAGER: &[Need] = &[Need { program: "pkg-config", package: "pkgconf" }];

/// The time limit of one run of `interop` with all tests on both kernels, on a busy machine.
const INTEROP_LIMIT: Duration = Duration::from_secs(5400);

/// The module of all browser tests, and the only one of them that is in short runs. The others are
/// slices.
const DASHBOARD: &str = "dashboard::";
const DASHBOARD_SHORT: &str = "figures_move_under_load";

/// Tests the dashboard in a browser: all tests in a full run, else one. The tests run one at a
/// time, since each starts a browser and a server.
fn dashboard(run: &Run) -> Result<Outcome, String> {
    in_browser(if run.is_full { DASHBOARD } else { DASHBOARD_SHORT })
}

/// Runs the browser tests whose names contain `name`. Fails if there is no such test.
pub(super) fn in_browser(name: &str) -> Result<Outcome, String> {
    let program = built()?.integration(APP)?;
    let counts = program.run(&[name, "--ignored", "--test-threads", "1"], &[])?;
    if counts.passed + counts.failed == 0 {
        return Err(format!("there is no test {name}:\n{}", counts.output));
    }
    println!("    pictures of it are in target/ui");
    Ok(Outcome::Counted(counts))
}

/// Returns the names of the tests of the list `browser` that are not in short runs.
pub(super) fn other_browser_tests() -> Result<Vec<String>, String> {
    let mut names = crate::lists::names("browser", "")?;
    names.retain(|name| name != DASHBOARD_SHORT);
    Ok(names)
}

/// Tests the program together with others: commands, kills, power cuts, take-overs, NVMe hosts of
/// stock kernels. A short run uses one guest for all hosts.
fn interop(run: &Run) -> Result<Outcome, String> {
    interop_of(if run.is_full { &[] } else { &["--quick"] })
}

/// Runs `cargo xtask interop` with the additional arguments `words`, on the program that [`built`]
/// has made.
pub(super) fn interop_of(words: &[&str]) -> Result<Outcome, String> {
    let programs = built()?;
    let mut command = Command::new(programs.path("trials")?);
    command.arg("interop").args(words).arg("--nearflash").arg(programs.path("nearflash")?);
    let ran = shell::capture(&mut command, INTEROP_LIMIT)?;
    let last = ran.output.lines().rfind(|line| line.ends_with(" skipped")).unwrap_or("");
    let counts: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [passed, failed, _] = counts[..] else { return Err(ran.output) };
    // They are said where they happen, and once more at the end, one after the other.
    let mut skipped: Vec<String> = ran.output.lines().filter_map(skip).collect();
    skipped.sort();
    skipped.dedup();
    for line in ran.output.lines().filter(|line| is_summary(line)) {
        println!("    {}", line.trim());
    }
    Ok(Outcome::Counted(Counts { passed, failed, skipped, output: ran.output }))
}

fn skip(line: &str) -> Option<String> {
    line.strip_prefix("skipped: ").map(str::to_owned)
}

fn is_summary(line: &str) -> bool {
    line.starts_with("--- ") || line.starts_with("    passed in ")
}

/// Checks that packages can be made of the program that [`built`] has made, and that what they
/// contain runs.
fn contents(_: &Run) -> Result<Outcome, String> {
    package::check_contents(built()?.path("nearflash")?).map(|()| Outcome::Passed)
}

/// Builds the portable program, and tries its container and the installation and removal of its
/// packages.
fn shipped(_: &Run) -> Result<Outcome, String> {
    let skipped = package::try_out(&package::CompiledParts::portable()?)?;
    let passed = 4 - skipped.len() as u64;
    Ok(Outcome::Counted(Counts { passed, failed: 0, skipped, output: String::new() }))
}
