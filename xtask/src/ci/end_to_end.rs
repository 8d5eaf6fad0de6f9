//! The end-to-end steps: real programs, real sockets, other people's clients.
//!
//! To add one: write a function that returns its [`Outcome`], and a row that names
//! it and the programs of others that it [needs](super::needs::Need).

use super::{Outcome, Step};
use crate::{interop, package};

/// In the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    // Its tests see to their needs themselves: one that lacks something is skipped alone.
    Step { name: "interop (quick)", needs: &[], run: interop::quick },
    Step { name: "package", needs: &[], run: packages },
];

/// The packages can be built, and what is in them runs.
fn packages() -> Result<Outcome, String> {
    package::try_out().map(|()| Outcome::Passed)
}
