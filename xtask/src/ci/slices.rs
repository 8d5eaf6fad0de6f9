//! The slice of a short run: a part of the checks of full runs that the commit chooses, so that
//! some dozens of commits cover all parts.
//!
//! A slice takes at most three minutes. Checks that take longer and cannot be divided, such as
//! those of packages as shipped, are no slices.

use std::process::Command;
use std::time::Duration;

use xtask::needs;
use xtask::shell;

use super::end_to_end::{self, BROWSER};
use super::programs::built;
use super::step::{Outcome, Run};
use super::steps;
use crate::lists;

/// The folder of the package with the tests of figures.
const FIGURES: &str = "crates/figures";

/// Number of simulated worlds in one slice.
const WORLDS: u64 = 200;

/// A part of a full run, which a short run repeats.
#[derive(Debug, PartialEq, Eq)]
enum Slice {
    /// A browser test, by its name.
    Browser(String),
    /// A test of `cargo xtask interop` on one kernel; `None` if the test needs no kernel.
    Interop { test: String, kernel: Option<String> },
    /// A test of a figure or a calibration in virtual time, by its name, of those that take
    /// longest.
    Figure(String),
    /// The simulated worlds of [`WORLDS`] seeds, of which this is the first.
    Worlds(u64),
    /// The build of the documentation.
    Documentation,
}

/// Runs the slice that the commit chooses.
pub(super) fn run(run: &Run) -> Result<Outcome, String> {
    let slices = all()?;
    let number = (run.seed % slices.len() as u64) as usize;
    println!("    {} of {}: {:?}", number + 1, slices.len(), slices[number]);
    match &slices[number] {
        Slice::Browser(name) => match needs::provide(BROWSER) {
            Ok(()) => end_to_end::in_browser(name),
            Err(reason) => Ok(Outcome::Skipped(reason)),
        },
        Slice::Interop { test, kernel } => {
            let kernel = kernel.as_ref().map(|kernel| ["--kernel", kernel]);
            let words = [&["--exact", test][..], kernel.as_ref().map_or(&[], |k| &k[..])].concat();
            end_to_end::interop_of(&words)
        }
        Slice::Figure(name) => {
            built()?.integration(FIGURES)?.run(&[name, "--ignored"], &[]).map(Outcome::Counted)
        }
        Slice::Worlds(seed) => steps::some_worlds(*seed, WORLDS),
        Slice::Documentation => steps::documentation(run),
    }
}

/// Returns all slices, in an order that is the same in every run of a commit.
fn all() -> Result<Vec<Slice>, String> {
    let mut command = Command::new(built()?.path("trials")?);
    let ran = shell::capture(command.args(["interop", "--names"]), Duration::from_secs(60))?;
    if !ran.ok {
        return Err(ran.output);
    }
    let figures = lists::names("full", FIGURES)?;
    Ok(of(&ran.output, end_to_end::other_browser_tests()?, figures))
}

/// Returns the slices for the tests of `cargo xtask interop`, the browser tests and the tests of
/// figures. `interop` has lines of the form `LIST TEST [KERNEL]`.
fn of(interop: &str, browser: Vec<String>, figures: Vec<String>) -> Vec<Slice> {
    let tests = interop.lines().filter_map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        (words.next()? == "full").then_some(())?;
        Some(Slice::Interop { test: words.next()?, kernel: words.next() })
    });
    let worlds = (1..=steps::ALL_WORLDS).step_by(WORLDS as usize).map(Slice::Worlds);
    let all = browser.into_iter().map(Slice::Browser).chain(tests).chain(worlds);
    all.chain([Slice::Documentation]).chain(figures.into_iter().map(Slice::Figure)).collect()
}

/// Returns a number derived from the commit that is checked out: the first 15 digits of its hash,
/// or 1 without a repository.
pub(super) fn seed_of_commit() -> u64 {
    let mut command = Command::new("git");
    command.args(["rev-parse", "HEAD"]).current_dir(shell::root());
    let ran = shell::capture(&mut command, Duration::from_secs(60)).ok();
    let seed = ran.filter(|ran| ran.ok).and_then(|ran| seed_of(&ran.output));
    seed.unwrap_or(1)
}

fn seed_of(hash: &str) -> Option<u64> {
    u64::from_str_radix(hash.get(..15)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_short_runs_have_is_no_slice() {
        let said = "short kill-server\nfull old-kernel 6.1\nfull other\n";
        let slices = of(said, vec!["a_test".to_owned()], vec!["figure_9".to_owned()]);
        let kernel = Some("6.1".to_owned());
        assert!(slices.contains(&Slice::Interop { test: "old-kernel".to_owned(), kernel }));
        assert!(slices.contains(&Slice::Interop { test: "other".to_owned(), kernel: None }));
        assert!(slices.contains(&Slice::Browser("a_test".to_owned())));
        assert!(slices.contains(&Slice::Figure("figure_9".to_owned())));
        // Worlds from 1, 201, 401, 601 and 801, the documentation, and the figure.
        assert_eq!(slices.len(), 3 + 5 + 2, "{slices:?}");
    }

    #[test]
    fn commits_have_seeds() {
        assert_eq!(seed_of("00000000000000f1aa"), Some(0xf));
        assert_eq!(seed_of("fatal: no"), None);
    }
}
