//! Access to the kernel's files about the machine and its devices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::io::Offloads;
pub(super) use ::io::cpu_list::{Cpus, parse_cpus, show_cpus};

/// A machine as its `/proc`, `/sys` and systemd units describe it, below a folder. Paths of files
/// are relative to it.
pub(crate) struct Machine {
    root: PathBuf,
    /// The function that returns the offloads of a network card by its name; `None` if they cannot
    /// be read. There is no file for them.
    pub(super) offloads: fn(&str) -> Option<Offloads>,
}

impl Machine {
    /// Returns the machine on which this program runs.
    pub(crate) fn this() -> Machine {
        Machine { offloads: |name| ::io::offloads(name).ok(), ..Machine::at(Path::new("/")) }
    }

    /// Creates a machine that is described only by files below the folder `root`.
    pub(crate) fn at(root: &Path) -> Machine {
        Machine { root: root.to_owned(), offloads: |_| None }
    }

    /// Returns the trimmed content of a file; `None` if it is missing or empty.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the number in a file; `None` if the file is missing or holds no number.
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.parse().ok()
    }

    /// Returns the last number in a file; `None` if the file is missing or ends otherwise.
    pub(crate) fn last_number(&self, file: &str) -> Option<u64> {
        self.read(file)?.split_whitespace().last()?.parse().ok()
    }

    /// Returns the word in brackets of a file that lists choices, such as `none` in `mq-deadline
    /// [none]`; `None` if there is none.
    pub(crate) fn chosen(&self, file: &str) -> Option<String> {
        let text = self.read(file)?;
        let (_, behind) = text.split_once('[')?;
        Some(behind.split_once(']')?.0.to_owned())
    }

    /// Returns the processors that a file lists in the kernel's format, such as `0-3,8`; `None` if
    /// it is missing or malformed.
    pub(super) fn cpus(&self, file: &str) -> Option<Cpus> {
        parse_cpus(&self.read(file)?)
    }

    /// Returns the names of the machine's processors: `cpu0` and so on.
    pub(super) fn processors(&self) -> Vec<String> {
        let mut all = self.list("sys/devices/system/cpu");
        all.retain(|name| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok()));
        all
    }

    /// Returns the sorted names in a folder; none if the folder cannot be read.
    pub(crate) fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the targets of the symbolic links in a folder; `None` if this user may not read the
    /// folder.
    pub(super) fn links(&self, folder: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.root.join(folder)).ok()?;
        let led = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        Some(led.map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// Returns the last name in the target of a symbolic link; `None` if there is no such link.
    pub(super) fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub(super) fn is_folder(&self, path: &str) -> bool {
        self.root.join(path).is_dir()
    }

    pub(crate) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.root.join(file);
        // Settings are there already: a file that is not must not be made.
        fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
        fs::write(path, value)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a machine of these files, given by path and content. Returns it with the folder that
    /// holds the files.
    pub(in super::super) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::at(Path::new(folder.path()));
        (folder, machine)
    }
}
