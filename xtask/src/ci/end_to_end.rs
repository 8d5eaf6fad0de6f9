//! The end-to-end steps: real programs, real sockets, other people's clients.
//!
//! To add one: write a function that returns its [`Outcome`], and a row that names
//! it and the programs of others that it [needs](xtask::needs::Need).

use std::time::Duration;

use xtask::needs::Need;
use xtask::shell;

use super::{Outcome, Step, steps};
use crate::{package, trials};

/// In the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    // Its tests see to their needs themselves: one that lacks something is skipped alone.
    Step { name: "interop (quick)", needs: &[], run: interop },
    Step { name: "dashboard", needs: BROWSER, run: steps::dashboard },
    Step { name: "package", needs: &[], run: packages },
];

/// A browser, and what drives it.
const BROWSER: &[Need] = &[
    Need { program: "chromium", package: "chromium" },
    Need { program: "chromedriver", package: "chromium-driver" },
    Need { program: "fc-list", package: "fontconfig" },
];

/// The short form takes minutes; the rest is for building it on a busy machine.
const INTEROP_LIMIT: Duration = Duration::from_secs(2700);

/// The short form of `cargo xtask interop`.
fn interop() -> Result<Outcome, String> {
    let mut command = shell::cargo(&trials::arguments("interop", &["--quick"]));
    let ran = shell::capture(&mut command, INTEROP_LIMIT)?;
    let last = ran.output.lines().rfind(|line| line.ends_with(" skipped")).unwrap_or("");
    let counts: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    match counts[..] {
        [0, 0, _] => Ok(Outcome::Skipped(ran.output)),
        [passed, failed, ignored] => {
            Ok(Outcome::Counted { passed, failed, ignored, output: ran.output })
        }
        _ => Err(ran.output),
    }
}

/// The packages can be built, and what is in them runs.
fn packages() -> Result<Outcome, String> {
    package::check(None).map(|_| Outcome::Passed)
}
