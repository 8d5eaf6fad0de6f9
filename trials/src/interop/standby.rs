//! A guest that stays for the next test: booting one takes longer than most tests that need no more
//! of it than its kernel.
//!
//! A test takes the guest, and gives it back when it has left everything as it found it. The guest of
//! a test that failed is gone, and what it wrote stays with that test.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};

use super::guest::{self, Guest, Machine};
use super::kernel::{Kernel, Qemu, Series};

/// See the module.
pub(super) struct Standby {
    /// What the guest shares with us.
    folder: PathBuf,
    guest: RefCell<Option<Guest>>,
    boots: Cell<u32>,
    keeps: bool,
}

impl Standby {
    /// Nothing is booted until a test asks for it.
    pub(super) fn new(place: &Path, series: Option<Series>, keeps: bool) -> Standby {
        let folder = place.join(format!("guest-{}", series.map_or("none", Series::name)));
        Standby { folder, guest: RefCell::new(None), boots: Cell::new(0), keeps }
    }

    /// The guest, which nobody else has then.
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

    /// Takes the guest back.
    ///
    /// # Errors
    /// Its kernel complained of something; the guest is gone.
    pub(super) fn give(&self, guest: Guest) -> Result<(), String> {
        let trouble = guest::trouble(&self.folder);
        if !trouble.is_empty() {
            return Err(format!("a guest's kernel complained:\n{}", trouble.join("\n")));
        }
        self.guest.replace(Some(guest));
        Ok(())
    }

    /// Leaves what the guest wrote to the test whose failure was its end.
    pub(super) fn bequeath(&self, folder: &Path) -> Result<(), String> {
        let is_here = self.guest.borrow().is_some();
        if is_here || self.boots.get() == 0 || !self.folder.is_dir() {
            return Ok(());
        }
        fs::rename(&self.folder, folder.join("guest")).map_err(|error| error.to_string())
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // The guest first: it writes there.
        drop(self.guest.take());
        if !self.keeps {
            // Nothing else is in there than what tests that passed have written.
            let _left = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Makes a folder, or takes everything out of it.
pub(super) fn empty(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)
}
