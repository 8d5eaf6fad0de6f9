//! The end-to-end steps: real programs, real sockets, other people's clients.
//!
//! To add one: write a function that returns its [`Outcome`], and a row that names
//! it and the programs of others that it [needs](super::needs::Need).

use super::needs::Need;
use super::{Outcome, Step, steps};
use crate::{interop, package};

/// In the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    // Its tests see to their needs themselves: one that lacks something is skipped alone.
    Step { name: "interop (quick)", needs: &[], run: interop::quick },
    Step { name: "dashboard", needs: BROWSER, run: steps::dashboard },
    Step { name: "package", needs: &[], run: packages },
];

/// A browser, and what drives it.
const BROWSER: &[Need] = &[
    Need { program: "chromium", package: "chromium" },
    Need { program: "chromedriver", package: "chromium-driver" },
    Need { program: "fc-list", package: "fontconfig" },
];

/// The packages can be built, and what is in them runs.
fn packages() -> Result<Outcome, String> {
    package::check(None).map(|_| Outcome::Passed)
}
