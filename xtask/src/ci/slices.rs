//! A slice of the checks of full runs: a different one for each commit, so that some dozens of
//! commits cover all of them.
//!
//! A slice takes at most three minutes. Longer single checks, such as packages as shipped, are no
//! slices.

use std::process::Command;
use std::time::Duration;

use xtask::needs;
use xtask::shell;

use super::end_to_end::{self, BROWSER};
use super::programs::built;
use super::step::{Outcome, Run};
use super::steps;
use crate::lists;

/// The package with the tests of figures.
const LAB: &str = "crates/lab";

/// Number of simulated worlds in a slice.
const WORLDS: u64 = 200;

/// A part of a full run.
#[derive(Debug, PartialEq, Eq)]
enum Slice {
    /// A test in a browser.
    Browser(String),
    /// A test of `cargo xtask interop` on one kernel, or on none.
    Interop { test: String, kernel: Option<String> },
    /// A figure or a calibration in virtual time, of those that take longest.
    Figure(String),
    /// A part of a full run's simulated worlds, from this seed on.
    Worlds(u64),
    /// The documentation is built.
    Documentation,
}

/// Runs the slice of this commit.
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
            built()?.integration(LAB)?.run(&[name, "--ignored"], &[]).map(Outcome::Counted)
        }
        Slice::Worlds(seed) => steps::some_worlds(*seed, WORLDS),
        Slice::Documentation => steps::documentation(run),
    }
}

/// Returns all possible slices, always in the same order.
fn all() -> Result<Vec<Slice>, String> {
    let mut command = Command::new(built()?.path("trials")?);
    let ran = shell::capture(command.args(["interop", "--names"]), Duration::from_secs(60))?;
    if !ran.ok {
        return Err(ran.output);
    }
    let figures = lists::names("full", LAB)?;
    Ok(of(&ran.output, end_to_end::other_browser_tests()?, figures))
}

/// Returns the slices for the browser tests, for the tests of figures, and for lines of the form
/// `LIST TEST [KERNEL]`.
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

/// Returns a number derived from the commit: the first digits of its hash. Without a repository it
/// is 1.
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
