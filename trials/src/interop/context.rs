//! The environment of an end-to-end test, and its verdict.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use super::kernel::{Kernel, Qemu};
use super::standby::Standby;

/// The result of a test that did not fail.
pub(super) enum Verdict {
    /// The test passed; the text says in one line what it did.
    Passed(String),
    /// The test cannot run here; the text says why.
    Skipped(String),
}

/// The environment of a test: its folder, the program, options and the guest.
pub(super) struct Context {
    /// The folder of the test, which is empty when the test starts.
    pub(super) folder: PathBuf,
    /// The path of the program under test.
    pub(super) nearflash: PathBuf,
    pub(super) quick: bool,
    pub(super) seed: u64,
    /// The number of kills, in tests that take one.
    pub(super) kills: Option<u32>,
    pub(super) tools: OnceCell<(Qemu, Kernel)>,
    /// A guest with the test's kernel, which tests pass on to each other.
    pub(super) standby: Rc<Standby>,
}

impl Context {
    /// Returns the emulator and the kernel of a test that runs in a guest.
    pub(super) fn tools(&self) -> Result<&(Qemu, Kernel), String> {
        self.tools.get().ok_or_else(|| "this test was not to run in a guest".to_owned())
    }
}
