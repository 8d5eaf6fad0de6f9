//! What the kernel says of itself and its devices, in files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A machine's `/proc` and `/sys`, below some folder.
pub(crate) struct Machine {
    root: PathBuf,
}

impl Machine {
    pub(crate) fn at(root: &Path) -> Machine {
        Machine { root: root.to_owned() }
    }

    /// A file without the white space around it; `None` where it is not there or says nothing.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A file that holds a number.
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.parse().ok()
    }

    /// The last number of a file that holds several.
    pub(crate) fn last_number(&self, file: &str) -> Option<u64> {
        self.read(file)?.split_whitespace().last()?.parse().ok()
    }

    /// The choice in brackets, as in `mq-deadline [none]`.
    pub(crate) fn chosen(&self, file: &str) -> Option<String> {
        let text = self.read(file)?;
        let (_, behind) = text.split_once('[')?;
        Some(behind.split_once(']')?.0.to_owned())
    }

    /// Names in a folder, in their order.
    pub(crate) fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub(crate) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.root.join(file);
        // Settings are there already: a file that is not must not be made.
        fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
        fs::write(path, value)
    }
}
