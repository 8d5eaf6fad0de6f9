//! A guest that stays booted for the next test, since booting takes longer than most tests that
//! need only a kernel.
//!
//! A test takes the guest and gives it back as it found it. If a test fails, its guest is discarded
//! and the guest's output stays in the folder of that test.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};

use super::guest::{self, Guest, Machine};
use super::kernel::{Kernel, Qemu, Series};

/// A guest that is booted when the first test asks for it, and kept for later tests.
pub(super) struct Standby {
    /// The folder that guest and host share.
    folder: PathBuf,
    guest: RefCell<Option<Guest>>,
    boots: Cell<u32>,
    keeps: bool,
}

impl Standby {
    /// Creates the standby for guests with this kernel. No guest is booted until a test takes it.
    pub(super) fn new(place: &Path, series: Option<Series>, keeps: bool) -> Standby {
        let folder = place.join(format!("guest-{}", series.map_or("none", Series::name)));
        Standby { folder, guest: RefCell::new(None), boots: Cell::new(0), keeps }
    }

    /// Takes the guest, which then only this test uses. Boots one if there is none.
    pub(super) fn take(&self, qemu: &Qemu, kernel: &Kernel) -> Result<Guest, String> {
        if let Some(guest) = self.guest.take() {
            return Ok(guest);
        }
        empty(&self.folder)?;
        self.boots.set(self.boots.get() + 1);
        let machine =
            Machine { qemu, kernel, share: &self.folder, disks: Vec::new(), forwards: Vec::new() };
        machine.boot(&format!("boot{}", self.boots.get()))
    }

    /// Takes the guest back from a test, for later tests.
    ///
    /// # Errors
    /// Fails if the guest's kernel reported a problem. The guest is then discarded.
    pub(super) fn give(&self, guest: Guest) -> Result<(), String> {
        let trouble = guest::trouble(&self.folder);
        if !trouble.is_empty() {
            return Err(format!("a guest's kernel complained:\n{}", trouble.join("\n")));
        }
        self.guest.replace(Some(guest));
        Ok(())
    }

    /// Moves the output of a guest that was not given back to the folder of the test that failed.
    pub(super) fn leave_output(&self, folder: &Path) -> Result<(), String> {
        let is_here = self.guest.borrow().is_some();
        if is_here || self.boots.get() == 0 || !self.folder.is_dir() {
            return Ok(());
        }
        fs::rename(&self.folder, folder.join("guest")).map_err(|error| error.to_string())
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // Stop the guest first, because it writes to the folder.
        drop(self.guest.take());
        if !self.keeps {
            // The folder holds only what tests that passed have written.
            let _left = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Creates an empty folder, or deletes and creates it again if it exists.
pub(super) fn empty(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)
}
