//! The context of an end-to-end test, and its verdict.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use super::kernel::{Kernel, Qemu};
use super::standby::Standby;

/// The result of a test that did not fail.
pub(super) enum Verdict {
    /// The test passed; the text describes the checks in one line.
    Passed(String),
    /// The test cannot run here; the text says why.
    Skipped(String),
}

/// The context of a test: its folder, the program under test, options, and a guest.
pub(super) struct Context {
    /// The folder of the test, which is empty when the test starts.
    pub(super) folder: PathBuf,
    /// The path of the program under test.
    pub(super) nearflash: PathBuf,
    pub(super) quick: bool,
    pub(super) seed: u64,
    /// The number of kills, in tests that kill something; `None` for the test's own number.
    pub(super) kills: Option<u32>,
    pub(super) tools: OnceCell<(Qemu, Kernel)>,
    /// The guest with the test's kernel, which tests take and give back.
    pub(super) standby: Rc<Standby>,
}

impl Context {
    /// Returns the spec of a device of 64 MiB: the file `volume` in the test's folder.
    pub(super) fn volume(&self) -> String {
        format!("file:{}?size=64MiB", self.folder.join("volume").display())
    }

    /// Returns the emulator and the kernel; fails in a test that was not to run in a guest.
    pub(super) fn tools(&self) -> Result<&(Qemu, Kernel), String> {
        self.tools.get().ok_or_else(|| "this test was not to run in a guest".to_owned())
    }
}
