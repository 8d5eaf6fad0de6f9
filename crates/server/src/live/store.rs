//! The state file: the live changes, kept beside the configuration.
//!
//! Its first line names the format, its version, the generation and the SHA-256 of the rest, which
//! is JSON. A generation is written to a file of its own, made durable, and renamed over the
//! previous one, which stays as `.bak`. So there is always a whole file, the old or the new. The
//! file holds keys, so only its owner may read it. Everything that a step relies on is synced
//! before it, as [`files`] says. What a start finds is synced too, since its writer may have been
//! killed before the sync.
//!
//! Changes of tenants, of which there may be thousands, are lines of a [log](ChangeLog) beside the
//! file until the file is written again. Each line is a generation, too.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Changes;
use super::change_log::{self, ChangeLog, LogContents, StateVersion, TenantRecord};
use super::files::{self, AppendFile, BYTES_MAX, Directory, digest, directory_of};

/// The beginning of a state file's first line; the version follows.
const FORMAT: &str = "nearflash-state ";

/// The newest version of state files. Version 2 added listeners, devices and the log: an older
/// program would ignore the log and lose its changes, so it must refuse the file. Version 3 added
/// the identities of disks, and is written only if there are some.
const VERSION: u32 = 3;

/// The version of a state file without identities of disks.
const VERSION_WITHOUT_DISKS: u32 = 2;

/// The versions of state files that this program reads.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=VERSION;

/// The number of attempts to read the state file and its log, which the running server may rewrite
/// in between.
const READS_MAX: u32 = 8;

/// The ending that the log's path has after the state file's.
const LOG: &str = "log";

/// The state file of a server and the log of changes beside it.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// The generation of the last change; zero if there is no file yet.
    generation: u64,
    /// The log of tenants' changes; `None` if the next change writes the whole file.
    log: Option<ChangeLog>,
    /// `true` if storing the last change has failed, although a restart may find the change.
    in_doubt: bool,
}

/// The identity of a state file, by which a successor process checks that it opened the same file
/// as its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateFileIdentity {
    /// The path by which this process opens the file.
    pub(crate) path: PathBuf,
    /// Device and inode of its directory.
    directory: (u64, u64),
    generation: u64,
}

impl StateFileIdentity {
    /// Returns `true` if both identities name the same file with the same content.
    pub(crate) fn is_same(&self, other: &StateFileIdentity) -> bool {
        let place = |state: &StateFileIdentity| {
            (state.directory, state.path.file_name().map(<_>::to_owned))
        };
        (place(self), self.generation) == (place(other), other.generation)
    }

    /// Returns `true` if the state file does not exist yet.
    pub(crate) fn is_new(&self) -> bool {
        self.generation == 0
    }
}

impl Store {
    /// Opens the state file at a path, and returns its changes, which are empty if there is no
    /// file. `previous` restores the state before the last one instead.
    ///
    /// # Errors
    /// The fault in the file, and how a server can start nevertheless.
    pub(crate) fn open(path: &Path, previous: bool) -> Result<(Store, Changes), String> {
        let kept = match previous {
            false => read_both(path),
            true => read_previous(path),
        };
        let kept = kept.map_err(|error| format!("{error}{}", way(path, previous)))?;
        let Some(StoredState { over, changes, bytes, found }) = kept else {
            let store = Store { path: path.to_owned(), generation: 0, log: None, in_doubt: false };
            return Ok((store, Changes::default()));
        };
        let mut changes = changes;
        let generation = over.generation + found.lines;
        let mut store = Store { path: path.to_owned(), generation, log: None, in_doubt: false };
        let mut log = ChangeLog::new(beside(path, LOG), over, bytes);
        if let Err(error) = sync_both(path) {
            let path = path.display();
            tracing::warn!(
                "{path}: cannot make it durable ({error}); the next change writes it anew"
            );
            store.in_doubt = true;
        } else if found.has_rest {
            let log = beside(path, LOG);
            tracing::warn!("{}: an incomplete change, left by a crash, is ignored", log.display());
        } else if found.lines == 0 || log.go_on(found.bytes).is_ok() {
            store.log = Some(log);
        }
        found.apply(&mut changes);
        if previous {
            // Which disks there are is no change to go back to.
            changes.disks.clear();
            // The broken one stays in its place until the other takes that: with no file there, a
            // server would start as if nothing had ever been kept.
            let put = store.put(&changes, "broken");
            put.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok((store, changes))
    }

    /// Returns the path of the state file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of the state file.
    pub(crate) fn at(&self) -> StateFileIdentity {
        let found = fs::metadata(directory_of(&self.path));
        let directory = found.map_or((0, 0), |found| (found.dev(), found.ino()));
        StateFileIdentity { path: self.path.clone(), directory, generation: self.generation }
    }

    /// Stores these changes in place of the earlier ones. After success, a restart finds them.
    /// After a failure, a restart finds the earlier ones, unless the last step failed, the sync of
    /// the directory: then it may find either, and the store is [in doubt](Store::is_in_doubt).
    pub(crate) fn save(&mut self, changes: &Changes) -> io::Result<()> {
        let saved = self.put(changes, "bak");
        self.judge(saved)
    }

    /// Returns true if a restart may find a change that was reported as failed. The next change,
    /// which must be kept even if it changes nothing, writes the whole file and ends the doubt.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    fn judge(&mut self, saved: io::Result<()>) -> io::Result<()> {
        self.in_doubt = saved.is_err();
        if self.in_doubt {
            self.log = None;
        }
        saved
    }

    /// Stores changes that affect only these tenants, by one line of the log.
    pub(crate) fn save_tenants(&mut self, changes: &Changes, tenants: &[String]) -> io::Result<()> {
        let Some(log) = self.log.as_mut().filter(|log| log.has_room()) else {
            return self.save(changes);
        };
        let steps: Vec<TenantRecord> =
            tenants.iter().map(|tenant| TenantRecord::of(tenant, changes)).collect();
        let appended = log.append(self.generation + 1, &steps);
        self.generation += u64::from(appended.is_ok());
        self.judge(appended)
    }

    /// Writes the whole file. The previous file is kept under the ending `ending`.
    fn put(&mut self, changes: &Changes, ending: &str) -> io::Result<()> {
        let generation = self.generation + 1;
        let body = Zeroizing::new(serde_json::to_vec_pretty(changes)?);
        let sum = digest(&body);
        let version = if changes.disks.is_empty() { VERSION_WITHOUT_DISKS } else { VERSION };
        let head = format!("{FORMAT}{version} generation {generation} sha256 {sum}\n");
        let new = beside(&self.path, "new");
        write(&new, &[head.as_bytes(), &body])?;
        let (log, old_log) = (beside(&self.path, LOG), beside(&self.path, &log_of(ending)));
        if self.generation == 0 {
            // Whoever removed the file has left this, and the new one may be the same as that was.
            files::rename_if_there(&log, &old_log)?;
        }
        keep_as(&self.path, ending)?;
        // Opened before the point of no return: that may fail, for want of descriptors or rights.
        let directory = Directory::of(&self.path)?;
        // Else the new one may be there and the one before it nowhere.
        directory.sync()?;
        files::rename(&new, &self.path)?;
        // From here on a restart may find the new one.
        self.generation = generation;
        // Until this is so it may find the old one as well, which is nothing without its log.
        directory.sync()?;
        let moved = files::rename_if_there(&log, &old_log);
        let over = StateVersion { generation, sum };
        self.log = moved.is_ok().then(|| ChangeLog::new(log, over, body.len() as u64));
        Ok(())
    }
}

/// Returns the ending of the log that belongs to a copy of the state file with this ending.
fn log_of(ending: &str) -> String {
    format!("{LOG}.{ending}")
}

/// Syncs a state file, its change log, and the directory entries of both.
fn sync_both(path: &Path) -> io::Result<()> {
    files::sync_if_there(path)?;
    files::sync_if_there(&beside(path, LOG))?;
    Directory::of(path)?.sync()
}

/// Returns this path with a dot and `ending` added to the file's name.
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
    let before = match read_previous(path) {
        Ok(Some(kept)) => format!(
            "; `--previous-state` starts once with what was kept before (generation {}), or",
            kept.over.generation + kept.found.lines
        ),
        _ => "; there is none before it:".to_owned(),
    };
    format!("{before} remove it to start with the configuration alone")
}

/// The contents of a state file and its log.
#[derive(Debug)]
struct StoredState {
    over: StateVersion,
    changes: Changes,
    /// The size of the state file in bytes.
    bytes: u64,
    found: LogContents,
}

/// Reads a state file with its log; returns `None` if there is no file.
fn read_both(path: &Path) -> Result<Option<StoredState>, String> {
    let log = beside(path, LOG);
    for _ in 0..READS_MAX {
        let kept = read_with(path, &log)?;
        // Whoever only looks does so while a server writes.
        let Some(StoredState { over, found, .. }) = &kept else { return Ok(None) };
        let is_current = !found.has_rest && !found.is_broken;
        if !is_current && read_named(path)?.is_none_or(|(now, ..)| now != *over) {
            continue;
        }
        return match found.is_broken {
            true => Err(format!("{}: this log of changes is broken", log.display())),
            false => Ok(kept),
        };
    }
    Err(format!("{}: the file changes while it is read", path.display()))
}

/// Reads the state before a fault: the log up to its broken line, or else the previous state file.
fn read_previous(path: &Path) -> Result<Option<StoredState>, String> {
    if let Ok(Some(kept)) = read_with(path, &beside(path, LOG))
        && kept.found.is_broken
    {
        return Ok(Some(kept));
    }
    let old = beside(path, "bak");
    // A crash may have left the log where it was.
    let with_own = read_with(&old, &beside(path, &log_of("bak")))?;
    let with_last = read_with(&old, &beside(path, LOG))?;
    let lines = |kept: &Option<StoredState>| kept.as_ref().map_or(0, |kept| kept.found.lines);
    match if lines(&with_last) > lines(&with_own) { with_last } else { with_own } {
        None => Err(format!("{}: there is no such file", old.display())),
        kept => Ok(kept),
    }
}

fn read_with(path: &Path, log: &Path) -> Result<Option<StoredState>, String> {
    let Some((over, changes, bytes)) = read_named(path)? else { return Ok(None) };
    let found =
        change_log::read(log, &over).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok(Some(StoredState { over, changes, bytes, found }))
}

fn read_named(path: &Path) -> Result<Option<(StateVersion, Changes, u64)>, String> {
    read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a state file and its size; returns `None` if there is no file.
fn read(path: &Path) -> Result<Option<(StateVersion, Changes, u64)>, String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > BYTES_MAX => return Err("it is too large".to_owned()),
        _ => {}
    }
    // It has keys.
    let bytes = Zeroizing::new(fs::read(path).map_err(|error| format!("cannot read it: {error}"))?);
    let broken =
        || "this state file is broken (its first line or its checksum is wrong)".to_owned();
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(broken)?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| broken())?;
    let body = &bytes[end + 1..];
    let rest = head.strip_prefix(FORMAT).ok_or_else(broken)?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let version: Option<u32> = fields.first().and_then(|version| version.parse().ok());
    match version {
        Some(version) if VERSIONS.contains(&version) => {}
        Some(version) => {
            return Err(format!(
                "this state file is of another version of nearflash: it has version {version}, and this \
                 program knows {} to {}; start the program that wrote it",
                VERSIONS.start(),
                VERSIONS.end()
            ));
        }
        None => return Err(broken()),
    }
    let ["generation", generation, "sha256", sum] = fields[1..] else { return Err(broken()) };
    let generation = generation.parse().map_err(|_| broken())?;
    if sum != digest(body) {
        return Err(broken());
    }
    let changes = serde_json::from_slice(body)
        .map_err(|error| format!("this state file makes no sense: {error}"))?;
    Ok(Some((StateVersion { generation, sum: sum.to_owned() }, changes, body.len() as u64)))
}

/// Writes a file durably; only its owner may read it.
fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    files::remove_if_there(path)?;
    let mut file = AppendFile::create(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.sync()
}

/// Keeps the present state file under another ending, by a hard link or, where links fail, a copy.
fn keep_as(path: &Path, ending: &str) -> io::Result<()> {
    let (old, step) = (beside(path, ending), beside(path, "step"));
    let remove = files::remove_if_there(&step);
    match files::link(path, &step) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => write(&step, &[&fs::read(path)?])?,
        Ok(()) => drop(remove), // it need not have been there
    }
    files::rename(&step, &old)
}

#[cfg(test)]
mod power_cuts;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    impl Store {
        pub(super) fn save_tenant(&mut self, changes: &Changes, name: &str) -> io::Result<()> {
            self.save_tenants(changes, &[name.to_owned()])
        }
    }

    /// Returns a folder, and a new store in its file `state`.
    fn new_store() -> (tempfile::TempDir, std::path::PathBuf, Store) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("state");
        let (store, _) = Store::open(&path, false).unwrap();
        (folder, path, store)
    }

    fn with_key(key: &str) -> Changes {
        let host = spec::Host {
            key: Some(spec::Secret(key.to_owned())),
            ..spec::Host::of_name("nqn.x".to_owned())
        };
        Changes { hosts: [("nqn.x".to_owned(), Some(host))].into(), ..Changes::default() }
    }

    #[test]
    fn what_is_saved_is_found_and_the_one_before_it() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
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
    fn a_file_with_identities_of_disks_is_of_a_version_that_older_programs_refuse() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("state");
        let (mut store, mut changes) = Store::open(&path, false).unwrap();
        store.save(&changes).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("nearflash-state 2 "));
        changes.disks.insert("fast".to_owned(), "eui.0025".to_owned());
        store.save(&changes).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("nearflash-state 3 "));
        assert_eq!(Store::open(&path, false).unwrap().1, changes);
    }

    #[test]
    fn a_broken_file_is_refused_with_a_way_back() {
        let (_folder, path, mut store) = new_store();
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
        let later = String::from_utf8(whole).unwrap().replace("-state 2 ", "-state 9 ");
        fs::write(&path, later).unwrap();
        let error = Store::open(&path, false).unwrap_err();
        assert!(
            error.contains("it has version 9") && error.contains("--previous-state"),
            "{error}"
        );
        assert_eq!(Store::open(&path, true).unwrap().1, with_key("one"));
    }

    /// Tests that a file that may have a log is not of the first version, whose programs would
    /// ignore the log.
    #[test]
    fn a_file_that_may_have_a_log_is_not_of_the_first_version() {
        let (_folder, path, mut store) = new_store();
        store.save_tenant(&with_tenants(&["a"]), "a").unwrap();
        store.save_tenant(&with_tenants(&["a", "b"]), "b").unwrap();
        assert!(beside(&path, LOG).exists());
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.starts_with("nearflash-state 2 "), "{written}");
        // One of the first is read, and written anew with the next whole writing.
        fs::write(&path, written.replace("-state 2 ", "-state 1 ")).unwrap();
        let (mut store, changes) = Store::open(&path, false).unwrap();
        assert_eq!(changes, with_tenants(&["a", "b"]));
        store.save(&with_key("one")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("nearflash-state 2 "));
    }

    #[test]
    fn leftovers_of_a_crash_do_not_matter() {
        let (_folder, path, mut store) = new_store();
        store.save(&with_key("one")).unwrap();
        fs::write(beside(&path, "new"), b"half").unwrap();
        fs::write(beside(&path, "step"), b"half").unwrap();
        let (mut store, changes) = Store::open(&path, false).unwrap();
        assert_eq!(changes, with_key("one"));
        store.save(&with_key("two")).unwrap();
        assert_eq!(Store::open(&path, false).unwrap().1, with_key("two"));
    }

    /// Tests that going back leaves the broken file in its place until the other is whole. With
    /// neither, a server would start without any change.
    #[test]
    fn going_back_leaves_the_broken_file_until_the_other_is_whole() {
        let (_folder, path, mut store) = new_store();
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

    fn with_tenants(names: &[&str]) -> Changes {
        let text = |name: &&str| format!("[[tenant]]\nname = {name:?}\n");
        let text: String = names.iter().map(text).collect();
        let tenants = crate::config::Config::parse(&text).unwrap().tenant.into_iter();
        let tenants = tenants.map(|tenant| (tenant.name.clone(), Some(tenant)));
        Changes { tenants: tenants.collect(), ..Changes::default() }
    }

    #[test]
    fn a_tenant_is_a_line_until_the_file_is_written_again() {
        let (_folder, path, mut store) = new_store();
        store.save_tenant(&with_tenants(&["a"]), "a").unwrap();
        assert!(!beside(&path, LOG).exists(), "there was no file to be over");
        let whole = fs::read(&path).unwrap();
        store.save_tenant(&with_tenants(&["a", "b"]), "b").unwrap();
        let (mut store, changes) = Store::open(&path, false).unwrap();
        assert_eq!((changes, store.generation), (with_tenants(&["a", "b"]), 2));
        store.save_tenant(&with_tenants(&["b"]), "a").unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
        let mode = fs::metadata(beside(&path, LOG)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        store.save(&with_key("one")).unwrap();
        assert!(!beside(&path, LOG).exists());
        let (store, changes) = Store::open(&path, false).unwrap();
        assert_eq!((changes, store.generation), (with_key("one"), 4));
        // The one before it, with what its log had.
        fs::write(&path, b"broken").unwrap();
        let (store, changes) = Store::open(&path, true).unwrap();
        assert_eq!((changes, store.generation), (with_tenants(&["b"]), 4));
        assert_eq!(Store::open(&path, false).unwrap().1, with_tenants(&["b"]));
    }

    #[test]
    fn many_tenants_write_the_file_now_and_then() {
        let (_folder, path, mut store) = new_store();
        let (mut written, mut last) = (0, Vec::new());
        for n in 0..2_000 {
            let name = format!("tenant {}", n % 3);
            let changes = with_tenants(&[name.as_str()][..usize::from(n % 2 == 0)]);
            store.save_tenant(&changes, &name).unwrap();
            let now = fs::read(&path).unwrap();
            written += u32::from(now != last);
            last = now;
        }
        assert!((2..10).contains(&written), "{written}");
        assert_eq!(store.generation, 2_000);
    }

    #[test]
    fn a_broken_log_is_refused_and_a_torn_one_is_not() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("state");
        let log = beside(&path, LOG);
        let (mut store, _) = Store::open(&path, false).unwrap();
        for names in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d"]] {
            store.save_tenant(&with_tenants(names), names[names.len() - 1]).unwrap();
        }
        let lines = fs::read(&log).unwrap();
        fs::write(&log, &lines[..lines.len() - 9]).unwrap();
        let (mut store, changes) = Store::open(&path, false).unwrap();
        assert_eq!(changes, with_tenants(&["a", "b", "c"]));
        // Nothing is appended to half a line.
        store.save_tenant(&with_tenants(&["a", "b"]), "c").unwrap();
        assert_eq!(Store::open(&path, false).unwrap().1, with_tenants(&["a", "b"]));
        store.save_tenant(&with_tenants(&["a"]), "b").unwrap();
        store.save_tenant(&with_tenants(&[]), "a").unwrap();
        store.save_tenant(&with_tenants(&["x"]), "x").unwrap();
        let mut lines = fs::read(&log).unwrap();
        let end = lines.iter().position(|byte| *byte == b'\n').unwrap();
        lines[end + 200] ^= 1;
        fs::write(&log, &lines).unwrap();
        let error = Store::open(&path, false).unwrap_err();
        assert!(error.contains("broken") && error.contains("--previous-state"), "{error}");
        assert_eq!(Store::open(&path, true).unwrap().1, with_tenants(&["a"]));
        assert_eq!(Store::open(&path, false).unwrap().1, with_tenants(&["a"]));
        assert_eq!(fs::read(beside(&path, "log.broken")).unwrap(), lines);
    }

    /// Tests that an earlier log does not apply to a new state file, although equal changes make an
    /// equal file.
    #[test]
    fn a_log_whose_state_file_was_removed_is_over_nothing() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("state");
        for _ in 0..2 {
            let (mut store, changes) = Store::open(&path, false).unwrap();
            assert_eq!(changes, Changes::default());
            store.save_tenant(&with_tenants(&["a"]), "a").unwrap();
            assert_eq!(Store::open(&path, false).unwrap().1, with_tenants(&["a"]));
            store.save_tenant(&with_tenants(&["a", "b"]), "b").unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
}
