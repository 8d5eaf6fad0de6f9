//! The state file: what was changed while servers ran, beside the configuration.
//!
//! Its first line names the format, its version, the generation and the SHA-256 of the rest, which is
//! JSON. A generation is written to a file of its own, made durable, and renamed over the one before,
//! which stays as `.bak`: so there is always a whole one, the old or the new. It holds keys, so nobody
//! but its owner may read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Changes;

/// The beginning of the first line.
const FORMAT: &str = "nearflash-state 1";

/// Bytes of the largest file that is read.
const BYTES_MAX: u64 = 1 << 30;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// Of the file; zero: there is none yet.
    generation: u64,
}

/// Where a state file is, so that another process can tell whether it has the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateAt {
    /// As this process names it.
    pub(crate) path: PathBuf,
    /// Device and inode of its directory.
    directory: (u64, u64),
    generation: u64,
}

impl StateAt {
    /// Whether it is the same file with the same content.
    pub(crate) fn is_same(&self, other: &StateAt) -> bool {
        let place = |state: &StateAt| (state.directory, state.path.file_name().map(<_>::to_owned));
        (place(self), self.generation) == (place(other), other.generation)
    }

    /// Whether there is no file yet.
    pub(crate) fn is_new(&self) -> bool {
        self.generation == 0
    }
}

impl Store {
    /// What is kept at a path; nothing if there is no file. `previous`: what was kept before that,
    /// which then takes its place.
    ///
    /// # Errors
    /// Says what is wrong with the file, and how a server can start all the same.
    pub(crate) fn open(path: &Path, previous: bool) -> Result<(Store, Changes), String> {
        let old = beside(path, "bak");
        let shown = if previous { &old } else { path };
        let kept = match read(shown) {
            Ok(None) if previous => Err("there is no such file".to_owned()),
            read => read,
        };
        let kept =
            kept.map_err(|error| format!("{}: {error}{}", shown.display(), way(path, previous)))?;
        let (generation, changes) = kept.unwrap_or_default();
        let mut store = Store { path: path.to_owned(), generation };
        if previous {
            // The broken one stays in its place until the other takes that: with no file there, a
            // server would start as if nothing had ever been kept.
            let put = store.put(&changes, "broken");
            put.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok((store, changes))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same, with what of it another process compares.
    pub(crate) fn at(&self) -> StateAt {
        let found = fs::metadata(directory_of(&self.path));
        let directory = found.map_or((0, 0), |found| (found.dev(), found.ino()));
        StateAt { path: self.path.clone(), directory, generation: self.generation }
    }

    /// Keeps these changes instead of what was kept. When it returns, they are what a restart finds;
    /// when it fails, that is what was kept before, unless the disk failed at the very last step, the
    /// directory's: then it may be either, until the next change is kept.
    pub(crate) fn save(&mut self, changes: &Changes) -> io::Result<()> {
        self.put(changes, "bak")
    }

    /// The same; what was there before is found under another ending then.
    fn put(&mut self, changes: &Changes, ending: &str) -> io::Result<()> {
        let generation = self.generation + 1;
        let body = serde_json::to_vec_pretty(changes)?;
        let head = format!("{FORMAT} generation {generation} sha256 {}\n", digest(&body));
        let new = beside(&self.path, "new");
        write(&new, &[head.as_bytes(), &body])?;
        keep_as(&self.path, ending)?;
        // Opened before the point of no return: that may fail, for want of descriptors or rights.
        let directory = File::open(directory_of(&self.path))?;
        fs::rename(&new, &self.path)?;
        // From here on a restart may find the new one.
        self.generation = generation;
        directory.sync_all()
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Another file in the same directory.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

fn way(path: &Path, previous: bool) -> String {
    if previous {
        return format!("; remove {} to start with the configuration alone", path.display());
    }
    let old = beside(path, "bak");
    let before = match read(&old) {
        Ok(Some((generation, _))) => format!(
            "; `--previous-state` starts once with what was kept before (generation {generation}, in \
             {}), or",
            old.display()
        ),
        _ => "; there is none before it:".to_owned(),
    };
    format!("{before} remove it to start with the configuration alone")
}

/// What a file holds; `None` if it is not there.
fn read(path: &Path) -> Result<Option<(u64, Changes)>, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > BYTES_MAX => return Err("it is too large".to_owned()),
        _ => {}
    }
    let bytes = fs::read(path).map_err(|error| format!("cannot read it: {error}"))?;
    let broken =
        || "this state file is broken (its first line or its checksum is wrong)".to_owned();
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(broken)?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| broken())?;
    let body = &bytes[end + 1..];
    let Some(rest) = head.strip_prefix(FORMAT) else {
        return match head.starts_with("nearflash-state ") {
            true => Err("this state file is of another version of nearflash".to_owned()),
            false => Err(broken()),
        };
    };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ["generation", generation, "sha256", sum] = fields[..] else { return Err(broken()) };
    let generation = generation.parse().map_err(|_| broken())?;
    if sum != digest(body) {
        return Err(broken());
    }
    let changes = serde_json::from_slice(body)
        .map_err(|error| format!("this state file makes no sense: {error}"))?;
    Ok(Some((generation, changes)))
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file durably; only its owner may read it.
fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.sync_all()
}

/// Lets what is kept now be reached under another ending, too.
fn keep_as(path: &Path, ending: &str) -> io::Result<()> {
    let (old, step) = (beside(path, ending), beside(path, "step"));
    let remove = fs::remove_file(&step);
    match fs::hard_link(path, &step) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => write(&step, &[&fs::read(path)?])?,
        Ok(()) => drop(remove), // it need not have been there
    }
    fs::rename(&step, &old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HiddenText, HostConfig};
    use std::os::unix::fs::PermissionsExt;

    fn with_key(key: &str) -> Changes {
        let host = HostConfig {
            nqn: "nqn.x".to_owned(),
            key: Some(HiddenText(key.to_owned())),
            controller_key: None,
            tenant: None,
        };
        Changes { hosts: [("nqn.x".to_owned(), Some(host))].into(), ..Changes::default() }
    }

    #[test]
    fn what_is_saved_is_found_and_the_one_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mut store, changes) = Store::open(&path, false).unwrap();
        assert_eq!(changes, Changes::default());
        store.save(&with_key("one")).unwrap();
        store.save(&with_key("two")).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Store::open(&path, false).unwrap().1, with_key("two"));
        let (store, changes) = Store::open(&path, true).unwrap();
        assert_eq!((changes, store.generation), (with_key("one"), 2));
        assert_eq!(Store::open(&path, false).unwrap().1, with_key("one"));
    }

    #[test]
    fn a_broken_file_is_refused_with_a_way_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mut store, _) = Store::open(&path, false).unwrap();
        store.save(&with_key("one")).unwrap();
        store.save(&with_key("two")).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in [0, 5, 40, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            let error = Store::open(&path, false).unwrap_err();
            assert!(error.contains("--previous-state") && error.contains("broken"), "{error}");
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&path, &flipped).unwrap();
        assert!(Store::open(&path, false).is_err());
        let later = String::from_utf8(whole).unwrap().replace("-state 1 ", "-state 9 ");
        fs::write(&path, later).unwrap();
        assert!(Store::open(&path, false).unwrap_err().contains("another version"));
        assert_eq!(Store::open(&path, true).unwrap().1, with_key("one"));
    }

    #[test]
    fn leftovers_of_a_crash_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mut store, _) = Store::open(&path, false).unwrap();
        store.save(&with_key("one")).unwrap();
        fs::write(beside(&path, "new"), b"half").unwrap();
        fs::write(beside(&path, "step"), b"half").unwrap();
        let (mut store, changes) = Store::open(&path, false).unwrap();
        assert_eq!(changes, with_key("one"));
        store.save(&with_key("two")).unwrap();
        assert_eq!(Store::open(&path, false).unwrap().1, with_key("two"));
    }

    /// With neither of both in its place, a server would start without anything that was changed.
    #[test]
    fn going_back_leaves_the_broken_file_until_the_other_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mut store, _) = Store::open(&path, false).unwrap();
        store.save(&with_key("one")).unwrap();
        store.save(&with_key("two")).unwrap();
        fs::write(&path, b"broken").unwrap();
        // As on a full disk: the new file cannot be written.
        fs::create_dir(beside(&path, "new")).unwrap();
        assert!(Store::open(&path, true).is_err());
        assert!(Store::open(&path, false).unwrap_err().contains("--previous-state"));
        fs::remove_dir(beside(&path, "new")).unwrap();
        assert_eq!(Store::open(&path, true).unwrap().1, with_key("one"));
        assert_eq!(fs::read(beside(&path, "broken")).unwrap(), b"broken");
        assert_eq!(Store::open(&path, false).unwrap().1, with_key("one"));
    }
}
