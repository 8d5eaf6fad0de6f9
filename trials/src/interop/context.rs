//! The means of a test of the program as a whole, and its verdict.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use super::kernel::{Kernel, Qemu};
use super::standby::Standby;

/// The end of a test that did not fail.
pub(super) enum Verdict {
    /// Success, and what was done, in one line.
    Passed(String),
    /// The reason for which the test cannot run here.
    Skipped(String),
}

/// The means of a test.
pub(super) struct Context {
    /// The folder of the test, empty when it starts.
    pub(super) folder: PathBuf,
    /// The program under test.
    pub(super) nearflash: PathBuf,
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) tools: OnceCell<(Qemu, Kernel)>,
    /// A guest of the test's kernel that tests hand on to each other.
    pub(super) standby: Rc<Standby>,
}

impl Context {
    /// The emulator and the kernel of a test that runs in a guest.
    pub(super) fn tools(&self) -> Result<&(Qemu, Kernel), String> {
        self.tools.get().ok_or_else(|| "this test was not to run in a guest".to_owned())
    }
}
