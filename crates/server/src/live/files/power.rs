//! A model of the state in which a power cut may leave a directory. File calls are recorded, and
//! after each call all possible states of the file system are enumerated.
//!
//! Any subset of the names created, moved or removed since the directory's last sync may be there.
//! Of the bytes written to a file since its last sync, all, none or half may be there, and zeroes
//! may follow.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) type FileId = usize;

/// A recorded file call.
#[derive(Clone, Debug)]
enum Call {
    Created(PathBuf, FileId),
    Renamed(PathBuf, PathBuf, FileId),
    Linked(PathBuf, FileId),
    Removed(PathBuf),
    Wrote(FileId, Vec<u8>),
    Cut(FileId, u64),
    Synced(FileId),
    SyncedNames,
    /// An operator was told that the change of this number is made.
    Answered(u64),
}

/// The file calls that a thread of a test has made, and the fault to inject into the next ones.
#[derive(Debug, Default)]
struct Record {
    calls: Vec<Call>,
    names: BTreeMap<PathBuf, FileId>,
    files: usize,
    /// The number of attempted calls, failed ones included.
    made: usize,
    fault: Fault,
}

/// The fault to inject into calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The call of this number fails.
    Once(usize),
    /// All file calls from this number on fail, as if the process had died.
    From(usize),
}

thread_local! {
    static RECORD: RefCell<Record> = RefCell::default();
}

fn call(make: impl FnOnce(&mut Record) -> Call) {
    RECORD.with_borrow_mut(|record| {
        let call = make(record);
        record.calls.push(call);
    });
}

pub(super) fn created(path: &Path) -> FileId {
    call(|record| {
        record.files += 1;
        record.names.insert(path.to_owned(), record.files);
        Call::Created(path.to_owned(), record.files)
    });
    named(path)
}

/// Returns the identifier of a file in the record. A file that no recorded call created gets a new
/// identifier.
pub(super) fn named(path: &Path) -> FileId {
    RECORD.with_borrow_mut(|record| match record.names.get(path) {
        Some(id) => *id,
        None => {
            record.files += 1;
            record.files
        }
    })
}

/// Fails if a fault is set for this call; otherwise the caller makes the call.
pub(super) fn may() -> io::Result<()> {
    RECORD.with_borrow_mut(|record| {
        let (made, fault) = (record.made, record.fault);
        record.made += 1;
        match fault {
            Fault::Once(n) if made == n => Err(io::Error::other("a disk that fails")),
            Fault::From(n) if made >= n => Err(io::Error::other("a process that is dead")),
            _ => Ok(()),
        }
    })
}

pub(super) fn may_write(id: FileId, bytes: &[u8]) -> io::Result<()> {
    may().map(|()| call(|_| Call::Wrote(id, bytes.to_vec())))
}

pub(super) fn may_cut(id: FileId, bytes: u64) -> io::Result<()> {
    may().map(|()| call(|_| Call::Cut(id, bytes)))
}

pub(super) fn may_sync(id: FileId) -> io::Result<()> {
    may().map(|()| call(|_| Call::Synced(id)))
}

pub(super) fn may_sync_names() -> io::Result<()> {
    may().map(|()| call(|_| Call::SyncedNames))
}

pub(super) fn renamed(from: &Path, to: &Path) {
    call(|record| {
        let id = record.names.remove(from).unwrap_or_default();
        record.names.insert(to.to_owned(), id);
        Call::Renamed(from.to_owned(), to.to_owned(), id)
    });
}

pub(super) fn linked(file: &Path, name: &Path) {
    let id = named(file);
    call(|record| {
        record.names.insert(name.to_owned(), id);
        Call::Linked(name.to_owned(), id)
    });
}

pub(super) fn removed(path: &Path) {
    call(|record| {
        record.names.remove(path);
        Call::Removed(path.to_owned())
    });
}

/// Sets the fault for this thread's calls. Returns the number of calls attempted so far.
pub(crate) fn set_fault(fault: Fault) -> usize {
    RECORD.with_borrow_mut(|record| {
        record.fault = fault;
        record.made
    })
}

/// Records that a change was confirmed to an operator.
pub(crate) fn answered(change: u64) {
    call(|_| Call::Answered(change));
}

/// The bytes of a file: the durable ones, and those that its writer sees.
#[derive(Clone, Debug, Default)]
struct Bytes {
    durable: Vec<u8>,
    seen: Vec<u8>,
}

impl Bytes {
    /// Returns the contents that a restart may find after a power cut.
    fn after_a_cut(&self) -> Vec<Vec<u8>> {
        if self.durable == self.seen {
            return vec![self.seen.clone()];
        }
        let half = (self.durable.len() + self.seen.len()) / 2;
        let torn = self.seen[..half.min(self.seen.len())].to_vec();
        let mut zeroed = torn.clone();
        zeroed.resize(self.seen.len(), 0);
        vec![self.seen.clone(), self.durable.clone(), torn, zeroed]
    }
}

type Names = BTreeMap<PathBuf, FileId>;

/// The state of the disk after some of the calls.
#[derive(Clone, Debug, Default)]
struct Disk {
    files: BTreeMap<FileId, Bytes>,
    names: Names,
    /// Changes of names that are not durable.
    pending: Vec<Call>,
    answered: u64,
}

fn apply(names: &mut Names, call: &Call) {
    match call {
        Call::Created(path, id) | Call::Linked(path, id) => drop(names.insert(path.clone(), *id)),
        Call::Removed(path) => drop(names.remove(path)),
        Call::Renamed(from, to, id) => {
            names.remove(from);
            names.insert(to.clone(), *id);
        }
        _ => {}
    }
}

impl Disk {
    fn take(&mut self, call: &Call) {
        match call {
            Call::Wrote(id, bytes) => self.files.entry(*id).or_default().seen.extend(bytes),
            Call::Cut(id, bytes) => {
                self.files.entry(*id).or_default().seen.truncate(*bytes as usize);
            }
            Call::Synced(id) => {
                let file = self.files.entry(*id).or_default();
                file.durable = file.seen.clone();
            }
            Call::SyncedNames => {
                let pending = std::mem::take(&mut self.pending);
                pending.iter().for_each(|call| apply(&mut self.names, call));
            }
            Call::Answered(change) => self.answered = *change,
            names => self.pending.push(names.clone()),
        }
    }

    /// Returns the sets of names that a power cut may leave in the directory: one for each subset
    /// of the changes of names that are not durable.
    fn names_after_a_cut(&self) -> Vec<Names> {
        let choices = 1_u32 << self.pending.len();
        let chosen = |choice: u32| {
            let mut names = self.names.clone();
            let kept = self.pending.iter().enumerate().filter(|(n, _)| choice >> n & 1 == 1);
            kept.for_each(|(_, call)| apply(&mut names, call));
            names
        };
        (0..choices).map(chosen).collect()
    }

    /// Returns states that a restart may find: the content of each name. For each set of names,
    /// every kind of content that a file may have occurs, though not all combinations of different
    /// files.
    fn after_a_cut(&self) -> Vec<State> {
        let empty = Bytes::default();
        let mut states = Vec::new();
        for names in self.names_after_a_cut() {
            let kinds = names.iter().map(|(path, id)| {
                let name = path.file_name().expect("it is a file's").to_owned();
                (name, self.files.get(id).unwrap_or(&empty).after_a_cut())
            });
            let kinds: Vec<(OsString, Vec<Vec<u8>>)> = kinds.collect();
            let most = kinds.iter().map(|(_, kinds)| kinds.len()).max().unwrap_or(1);
            let pick = |kinds: &[Vec<u8>], n: usize| kinds.get(n).unwrap_or(&kinds[0]).clone();
            states.extend((0..most).map(|n| -> State {
                kinds.iter().map(|(name, kinds)| (name.clone(), pick(kinds, n))).collect()
            }));
        }
        states
    }
}

type State = Vec<(OsString, Vec<u8>)>;

/// Recreates in `folder` each state that a power cut may leave of this thread's writes, and calls
/// `look` with the last change that was confirmed by then. Returns the number of different states.
/// Calls made meanwhile are not recorded.
pub(crate) fn cut_everywhere(folder: &Path, mut look: impl FnMut(u64)) -> usize {
    let calls = RECORD.take().calls;
    let (mut disk, mut shown) = (Disk::default(), HashSet::new());
    for call in &calls {
        disk.take(call);
        for state in disk.after_a_cut() {
            if !shown.insert((state.clone(), disk.answered)) {
                continue;
            }
            for old in std::fs::read_dir(folder).unwrap() {
                std::fs::remove_file(old.unwrap().path()).unwrap();
            }
            for (name, bytes) in &state {
                std::fs::write(folder.join(name), bytes).unwrap();
            }
            look(disk.answered);
        }
    }
    RECORD.take();
    shown.len()
}
