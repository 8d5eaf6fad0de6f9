//! A file system over a volume in memory, beside its model. Commits and chores are carried out
//! late, as chance will have it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use flash::Rng;
use nearflash_contigfs::layout::PAGE_BYTES;
use nearflash_contigfs::*;

use crate::disk::Disk;
use crate::model::{Model, comparable};

/// A deliberate fault of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// A commit that is under way at a crash is written in part.
    TornCommit,
    /// Discards are acknowledged and not done.
    NoDiscard,
    /// Zeroes within pages are acknowledged and not written.
    NoZero,
}

/// The sizes of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) pages: u64,
    pub(crate) inodes: u32,
    pub(crate) pool_pages: u32,
    pub(crate) commit_pages: usize,
}

/// Sizes with room for everything that the random tests do.
pub(crate) const ROOMY: Sizes =
    Sizes { pages: 1 << 22, inodes: 1024, pool_pages: 512, commit_pages: 16 };

/// An opening or a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum User {
    Lookup(Ino),
    Open(Ino, bool),
}

/// A file system beside its model.
pub(crate) struct World {
    pub(crate) disk: Disk,
    pub(crate) system: FileSystem,
    pub(crate) model: Model,
    pub(crate) chance: Rng,
    pub(crate) settings: Settings,
    pub(crate) users: Vec<User>,
    pub(crate) now: Time,
    pub(crate) sabotage: Option<Sabotage>,
    flying: Option<Commit>,
    chores: VecDeque<Chore>,
    /// The model after the last operation of each commit.
    pub(crate) snapshots: BTreeMap<u64, Model>,
    /// `true` if snapshots are taken.
    pub(crate) keeps: bool,
    /// Sizes that files had, by inode and generation, with the step.
    pub(crate) sizes: BTreeMap<(Ino, u32), Vec<(u64, u64)>>,
    /// The last event of each file that an answer waits for.
    pub(crate) pending: BTreeMap<Ino, AwaitedEvent>,
    /// The volume after each commit, if it is kept.
    pub(crate) history: Option<Vec<(u64, Disk)>>,
    /// Events that tests are meant to meet.
    pub(crate) marks: BTreeSet<&'static str>,
}

const CALLER: Caller = Caller { uid: 1000, gid: 100, groups: &[] };

impl World {
    pub(crate) fn new(sizes: Sizes, seed: u64) -> World {
        let mut disk = Disk::new(sizes.pages);
        let (inodes, pool_pages) = (sizes.inodes, sizes.pool_pages);
        let shape = Shape { uuid: *b"a file system's!", inodes, pool_pages, order: 0 };
        let now = Time { seconds: 1, nanos: 0 };
        create(&mut disk, &shape, now, (0, 0)).expect("the volume is large enough");
        let commit_pages_max = sizes.commit_pages;
        let settings = Settings { commit_pages_max, seed, read_only: false };
        let system = mount(&mut disk, &settings).expect("it was made");
        let mut world = World {
            disk,
            system,
            model: Model::default(),
            chance: Rng::new(seed),
            settings,
            users: Vec::new(),
            now,
            sabotage: None,
            flying: None,
            chores: VecDeque::new(),
            snapshots: BTreeMap::new(),
            keeps: false,
            sizes: BTreeMap::new(),
            pending: BTreeMap::new(),
            history: None,
            marks: BTreeSet::new(),
        };
        let Ok(Reply::Answer(OperationResult::Attributes(root), _)) =
            world.system.apply(now, &CALLER, Operation::Attributes { ino: ROOT })
        else {
            panic!("there is a root");
        };
        world.model = Model::new(comparable(root));
        world
    }

    /// Carries out one step of a commit or chore. Returns `false` if there is nothing to do.
    pub(crate) fn turn(&mut self) -> bool {
        while let Some(chore) = self.system.take_chore() {
            self.chores.push_back(chore);
        }
        if self.flying.is_none() {
            self.flying = self.system.take_commit();
        }
        let commit_first = self.chance.one_in(2) || self.chores.is_empty();
        if let Some(commit) = self.flying.take_if(|_| commit_first) {
            self.land(commit);
            return true;
        }
        let Some(chore) = self.chores.pop_front() else { return false };
        self.work(chore.work);
        self.system.chore_ended(chore.number, true);
        true
    }

    fn land(&mut self, commit: Commit) {
        assert!(commit.pages.len() <= self.settings.commit_pages_max, "a commit is too large");
        let done = self.disk.commit(&commit.pages);
        if let Some(history) = &mut self.history {
            history.push((commit.number, self.disk.clone()));
        }
        self.system.commit_ended(commit.number, done.is_ok());
    }

    fn work(&mut self, work: ChoreWork) {
        match work {
            ChoreWork::Discard { .. } if self.sabotage == Some(Sabotage::NoDiscard) => {}
            ChoreWork::Discard { page, pages } => self.disk.discard(page, pages).expect("memory"),
            ChoreWork::Zero { .. } if self.sabotage == Some(Sabotage::NoZero) => {}
            ChoreWork::Zero { at, bytes } => {
                assert!(at % PAGE_BYTES as u64 + bytes <= PAGE_BYTES as u64, "within a page");
                self.disk.write(at, &vec![0; bytes as usize]);
            }
        }
    }

    /// Waits for an event.
    pub(crate) fn wait(&mut self, until: AwaitedEvent) {
        for _ in 0..100_000 {
            if self.system.outcome(until).is_some() {
                return;
            }
            if !self.turn() {
                self.system.flush_attributes();
            }
        }
        panic!("{until:?} does not come");
    }

    /// Carries out everything.
    pub(crate) fn settle(&mut self) {
        while !self.system.is_idle() {
            if !self.turn() {
                self.system.flush_attributes();
            }
        }
    }

    fn copy(&mut self, order: Move) {
        self.marks.insert("move");
        let bytes = self.disk.read_bytes(order.from, order.bytes);
        for (at, page) in (order.to..).step_by(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES)) {
            if page.iter().any(|byte| *byte != 0) {
                self.disk.write(at, page);
            }
        }
        self.system.copied(order.ino, order.bytes / 2);
        let succeeds = !self.chance.one_in(8);
        self.system.moved(order.ino, succeeds);
    }

    /// Applies an operation to the file system alone.
    pub(crate) fn ask(
        &mut self,
        operation: Operation,
    ) -> Result<(OperationResult, AwaitedEvent), Errno> {
        loop {
            match self.system.apply(self.now, &CALLER, operation)? {
                Reply::Answer(answer, until) => return Ok((answer, until)),
                Reply::Again(until) => {
                    self.marks.insert("again");
                    self.wait(until);
                }
                Reply::Move(order) => self.copy(order),
            }
        }
    }

    /// Applies an operation to both, and compares the answers.
    pub(crate) fn apply(&mut self, operation: Operation) -> Result<OperationResult, Errno> {
        self.now.nanos += 1;
        let real = self.ask(operation);
        let made = match &real {
            Ok((OperationResult::Entry(attributes), _)) => Some(attributes),
            _ => None,
        };
        let mut model = self.model.apply(self.now, &CALLER, operation, made);
        let mut answer = real.clone().map(|(answer, _)| answer);
        for side in [&mut model, &mut answer] {
            match side {
                Ok(OperationResult::Entry(a) | OperationResult::Attributes(a)) => {
                    *a = comparable(*a)
                }
                Ok(OperationResult::Bytes(bytes))
                    if matches!(operation, Operation::ListXattrs { .. }) =>
                {
                    let mut names: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
                    names.sort_unstable();
                    *bytes = names.concat();
                }
                _ => {}
            }
        }
        assert_eq!(answer, model, "{operation:?}");
        if let Ok((OperationResult::Entry(attributes), _)) = &real {
            self.users.push(User::Lookup(attributes.ino));
        }
        if let Ok((_, until)) = &real {
            self.note(*until);
        }
        answer
    }

    /// Keeps the model of a commit, and the sizes of files.
    fn note(&mut self, until: AwaitedEvent) {
        if let AwaitedEvent::Clean { ino, .. } = until {
            self.pending.insert(ino, until);
        }
        if !self.keeps {
            return;
        }
        for (ino, node) in &self.model.nodes {
            if node.kind() == S_IFREG {
                let log = self.sizes.entry((*ino, node.attributes.generation)).or_default();
                if log.last().is_none_or(|(_, size)| *size != node.attributes.size) {
                    log.push((self.model.step, node.attributes.size));
                }
            }
        }
        if let AwaitedEvent::Commit(commit) | AwaitedEvent::Clean { commit, .. } = until {
            // An operation that needs no commit names one that is durable already.
            if self.snapshots.range(commit + 1..).next().is_none() {
                self.snapshots.insert(commit, self.model.clone());
            }
        }
    }

    /// Opens an inode, and keeps the opening.
    pub(crate) fn open(&mut self, ino: Ino, write: bool) {
        if self.apply(Operation::Open { ino, write }).is_ok() {
            self.users.push(User::Open(ino, write));
        }
    }

    /// Ends one of the openings and lookups.
    pub(crate) fn let_one_go(&mut self) {
        if self.users.is_empty() {
            return;
        }
        let at = self.chance.below(self.users.len());
        match self.users.swap_remove(at) {
            User::Open(ino, write) => {
                self.apply(Operation::Release { ino, write }).expect("it was open");
            }
            User::Lookup(ino) => {
                self.system.forget(ino, 1);
                *self.model.users.get_mut(&ino).expect("it was looked up") -= 1;
                self.model.let_go(ino);
            }
        }
    }

    /// Writes to both.
    pub(crate) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.now.nanos += 1;
        self.model.step += 1;
        let length = bytes.len() as u64;
        let at = loop {
            match self.system.place_write(ino, offset, length)? {
                DataPlacement::At { at, bytes } => {
                    assert_eq!(bytes, length);
                    break at;
                }
                DataPlacement::Again(until) => {
                    self.marks.insert("again to write");
                    self.wait(until);
                }
                DataPlacement::Move(order) => self.copy(order),
            }
        };
        // Some writes fail half way.
        if self.chance.one_in(50) {
            self.marks.insert("failed write");
            let end = self.model.node(ino).expect("it was placed").attributes.size;
            if offset >= end {
                self.disk.write(at, &bytes[..bytes.len() / 2]);
            }
            self.system.wrote(self.now, ino, offset, length, false);
            return Ok(());
        }
        self.disk.write(at, bytes);
        self.system.wrote(self.now, ino, offset, length, true);
        let node = self.model.at(ino);
        node.write(offset, bytes);
        (node.attributes.mtime, node.attributes.ctime) = (self.now, self.now);
        self.note(AwaitedEvent::Now);
        Ok(())
    }

    /// Reads from the file system, after the end of what would be answered before.
    pub(crate) fn read(&mut self, ino: Ino, offset: u64, bytes: u64) -> Vec<u8> {
        if let Some(until) = self.pending.remove(&ino) {
            self.wait(until);
        }
        match self.system.place_read(ino, offset, bytes) {
            Ok(DataPlacement::At { at, bytes }) => self.disk.read_bytes(at, bytes),
            other => panic!("a read is placed: {other:?}"),
        }
    }

    /// Ends the file system and mounts it again. With `clean`, everything is carried out before;
    /// otherwise the process dies, and the commit that is under way has happened or not.
    pub(crate) fn remount(&mut self, clean: bool) -> u64 {
        let mut durable = 0;
        if clean {
            self.settle();
        } else {
            if self.flying.is_none() {
                self.flying = self.system.take_commit();
            }
            durable =
                (0..).find(|n| self.system.outcome(AwaitedEvent::Commit(n + 1)).is_none()).unwrap();
            let happens = self.chance.one_in(2);
            if let Some(mut commit) = self.flying.take_if(|_| happens) {
                durable = commit.number;
                if self.sabotage == Some(Sabotage::TornCommit) {
                    commit.pages.truncate(commit.pages.len() / 2);
                }
                self.disk.commit(&commit.pages).expect("memory");
            }
        }
        self.flying = None;
        self.chores.clear();
        self.users.clear();
        self.pending.clear();
        self.settings.seed = self.chance.number();
        self.system = mount(&mut self.disk, &self.settings)
            .unwrap_or_else(|error| panic!("it does not mount: {error}"));
        let checked = check(&mut self.disk).expect("it can be read");
        assert_eq!(checked.faults.first, [""; 0], "a mounted file system is sound");
        assert_eq!(checked.nameless, 0, "a mount leaves no inode without a name");
        durable
    }

    /// Returns the entries of a directory, read in pieces.
    pub(crate) fn entries(&mut self, ino: Ino) -> BTreeMap<Vec<u8>, Ino> {
        let mut entries = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let mut left = 1 + self.chance.below(20);
            let before = cookie;
            let visit = |entry: &DirectoryEntry| {
                left -= 1;
                cookie = entry.cookie;
                let name = entry.name.to_vec();
                assert!(entries.insert(name, entry.ino).is_none(), "an entry comes once");
                left > 0
            };
            self.system.read_directory(ino, before, visit).expect("it is a directory");
            if cookie == before {
                break;
            }
        }
        assert_eq!(entries.remove(&b"."[..]), Some(ino));
        assert!(entries.remove(&b".."[..]).is_some());
        entries
    }

    /// Compares the whole tree with the model.
    pub(crate) fn compare(&mut self) {
        let mut seen = BTreeSet::new();
        let mut next = vec![ROOT];
        while let Some(ino) = next.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let node = self.model.node(ino).expect("the model has all that the tree has").clone();
            let Ok((OperationResult::Attributes(has), _)) = self.ask(Operation::Attributes { ino })
            else {
                panic!("inode {ino} is gone");
            };
            assert_eq!(comparable(has), node.attributes, "inode {ino}");
            match node.kind() {
                S_IFDIR => {
                    assert_eq!(self.entries(ino), node.children, "directory {ino}");
                    next.extend(node.children.values());
                }
                S_IFREG => {
                    for page in node.data.keys() {
                        let (has, want) =
                            (self.read(ino, page * 4096, 4096), node.read(page * 4096, 4096));
                        assert!(has == want, "inode {ino}, page {page}");
                    }
                    let last = node.attributes.size.saturating_sub(4000);
                    assert!(self.read(ino, last, 9000) == node.read(last, 9000), "inode {ino}");
                }
                S_IFLNK => {
                    let target = self.ask(Operation::ReadLink { ino }).map(|(answer, _)| answer);
                    assert_eq!(target, Ok(OperationResult::Bytes(node.target)));
                }
                _ => {}
            }
            for (name, value) in &node.xattrs {
                let has = self.ask(Operation::GetXattr { ino, name }).map(|(answer, _)| answer);
                assert_eq!(has, Ok(OperationResult::Bytes(value.clone())));
            }
        }
        let named = self.model.nodes.iter().filter(|(_, node)| node.attributes.nlink > 0);
        assert_eq!(seen.len(), named.count(), "the tree has all that the model has");
    }
}

/// Helpers of the crash tests.
impl World {
    /// Returns a world over a volume as a crash left it. It has no model.
    pub(crate) fn over(mut disk: Disk, settings: Settings) -> World {
        let system = mount(&mut disk, &settings).expect("a crash leaves a sound file system");
        let mut world = World::new(ROOMY, 0);
        (world.disk, world.system) = (disk, system);
        world
    }

    /// Begins the logs of sizes with the sizes that files have.
    pub(crate) fn begin_log(&mut self) {
        for (ino, node) in &self.model.nodes {
            let log = self.sizes.entry((*ino, node.attributes.generation)).or_default();
            log.push((0, node.attributes.size));
        }
    }

    /// Returns the pages of a file that the volume has.
    pub(crate) fn stored(&self, ino: Ino, size: u64) -> Vec<u64> {
        let Ok(DataPlacement::At { at, .. }) = self.system.place_read(ino, 0, 1) else {
            panic!("a read is placed");
        };
        let first = at / PAGE_BYTES as u64;
        let pages = self.disk.pages.range(first..first + size.div_ceil(PAGE_BYTES as u64));
        pages.map(|(page, _)| page - first).collect()
    }
}
