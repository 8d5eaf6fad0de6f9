//! The parts of a file system, and the rules that keep them consistent: the pages that a change
//! dirties, and the fate of an inode without users.
//!
//! A file is taken apart in two commits. With the first, its inode has no name. Then its data is
//! discarded, durably. With the second, its inode and its place are free; it waits until a commit
//! is taken for another reason. So free space is clean at any crash, and a mount finds what was
//! left.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::buddy::{Buddy, FileSpace};
use crate::chores::{Chores, FollowUp, Owner};
use crate::errno::Errno;
use crate::layout::{
    CHUNK_PAGES, FLAG_EXTENDING, Geometry, InodeRecord, PAGE_BYTES, PageUse, seal_inodes, seal_pool,
};
use crate::ledger::{Ledger, OPERATION_PAGES_MAX};
use crate::names::{Names, TouchedPages};
use crate::pool::{BLOB_PAGES_MAX, Pool};
use crate::table::Table;
use crate::words::{AwaitedEvent, ChoreWork, Commit, Image, Ino, Move, S_IFMT};

/// Maximum number of pages that freeing an inode changes: its own, attributes, target.
const RECLAIM_PAGES_MAX: usize = 1 + 2 * BLOB_PAGES_MAX;

/// The users of an inode. An inode with users stays when its last name goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeUsers {
    /// Lookups that were answered and not forgotten.
    pub(crate) lookups: u64,
    /// Openings that were not released.
    pub(crate) opens: u32,
    /// Openings that may write.
    pub(crate) writers: u32,
    /// Number of writes to the file that are in progress.
    pub(crate) writes: u32,
    /// `true` if a change waits for the end of the writes under way: no further ones begin.
    pub(crate) is_awaited: bool,
}

/// The stage of a move of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveStage {
    /// The new place is being claimed by this commit. Ended by the caller that asks again.
    Claiming(u64),
    /// The caller copies; so many pages are promised to the rest of the copy. Ended by its call of
    /// `moved`.
    Copying(u64),
    /// The commit that records the new place is being written. The end of the commit ends the
    /// stage.
    Landing,
    /// The place that is not needed any more is discarded. Ended by the chore.
    Leaving,
    /// The place is clean, and waits to be freed.
    Left,
}

/// A freeing that waits for the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingReclaim {
    /// An inode whose data are discarded.
    Inode(Ino),
    /// The second place of an inode, whose content was discarded.
    Other(Ino),
}

/// The physical space of the volume, as the volume's owner last reported it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhysicalSpace {
    pub(crate) pages: u64,
    pub(crate) pages_free: u64,
    /// Pages that writes and moves under way may take.
    pub(crate) promised: u64,
}

/// Free pages that are left for commits: below it, nothing is written but names that go.
const ROOM_PAGES_MIN: u64 = 256;

/// Free pages that growth leaves beside them to writes within files, which may lie in holes: a
/// share of the volume, and at most so many.
const ROOM_WITHIN_SHARE: u64 = 64;
const ROOM_WITHIN_MAX: u64 = 4096;

impl PhysicalSpace {
    /// Returns the number of free pages, without those that are promised to operations in progress.
    fn left(&self) -> u64 {
        self.pages_free.saturating_sub(self.promised)
    }

    /// Promises free pages to a write or a move; `grows` if they may lie behind the end of the
    /// file.
    ///
    /// # Errors
    /// [`Errno::NOSPC`] if too few would be left.
    pub(crate) fn promise(&mut self, pages: u64, grows: bool) -> Result<(), Errno> {
        self.check(pages, grows)?;
        self.promised += pages;
        Ok(())
    }

    /// Checks that a promise could be given.
    ///
    /// # Errors
    /// [`Errno::NOSPC`] if too few pages would be left.
    pub(crate) fn check(&self, pages: u64, grows: bool) -> Result<(), Errno> {
        let within = (self.pages / ROOM_WITHIN_SHARE).min(ROOM_WITHIN_MAX);
        let kept = ROOM_PAGES_MIN + if grows { within } else { 0 };
        let full = self.left() < pages.saturating_add(kept);
        if full { Err(Errno::NOSPC) } else { Ok(()) }
    }
}

/// The reason why an operation does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The operation is refused.
    Refused(Errno),
    /// The operation is to be applied again.
    Again(AwaitedEvent),
    /// The caller is to move a file's data.
    Move(Move),
}

impl From<Errno> for StopReason {
    fn from(errno: Errno) -> StopReason {
        StopReason::Refused(errno)
    }
}

/// The parts of a file system.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) geometry: Geometry,
    pub(crate) table: Table,
    pub(crate) pool: Pool,
    pub(crate) names: Names,
    pub(crate) space: Buddy,
    pub(crate) ledger: Ledger,
    pub(crate) chores: Chores,
    pub(crate) holds: BTreeMap<Ino, InodeUsers>,
    pub(crate) moves: BTreeMap<Ino, MoveStage>,
    /// The inodes whose place or flag was changed and is not durable yet, each with the number of
    /// the commit that has the change.
    pub(crate) claims: BTreeMap<Ino, u64>,
    /// Inodes that are taken apart.
    condemned: BTreeSet<Ino>,
    reclaims: VecDeque<PendingReclaim>,
    pub(crate) room: PhysicalSpace,
    /// Commits, chores and promises of space that have ended.
    ended: u64,
}

/// Returns a page for the media.
fn image(geometry: &Geometry, table: &Table, pool: &Pool, page: u64) -> Image {
    let start = geometry.pool_start();
    if page < start {
        let mut image = table.image((page - geometry.inode(0).0) as usize);
        seal_inodes(&mut image);
        image
    } else {
        let mut image = pool.image((page - start) as u32);
        seal_pool(&mut image);
        image
    }
}

/// Returns the discard of the pages of a place from a byte on.
pub(crate) fn discard(
    geometry: &Geometry,
    place: FileSpace,
    from: u64,
    to: u64,
) -> Option<ChoreWork> {
    let first = from.div_ceil(PAGE_BYTES as u64);
    let end = to.min(place.bytes()).div_ceil(PAGE_BYTES as u64);
    let page = geometry.chunk_page(place.chunk) + first;
    (first < end).then(|| ChoreWork::Discard { page, pages: end - first })
}

impl State {
    /// Returns a state of these parts, at rest.
    pub(crate) fn new(
        geometry: Geometry,
        (table, pool, names): (Table, Pool, Names),
        space: Buddy,
        commit_pages_max: usize,
    ) -> State {
        State {
            geometry,
            table,
            pool,
            names,
            space,
            ledger: Ledger::new(commit_pages_max),
            chores: Chores::default(),
            holds: BTreeMap::new(),
            moves: BTreeMap::new(),
            claims: BTreeMap::new(),
            condemned: BTreeSet::new(),
            reclaims: VecDeque::new(),
            room: PhysicalSpace { pages: geometry.pages, pages_free: geometry.pages, promised: 0 },
            ended: 0,
        }
    }

    /// Begins a change of at most [`OPERATION_PAGES_MAX`] pages.
    ///
    /// # Errors
    /// [`Errno::ROFS`] after a failure.
    pub(crate) fn begin(&mut self) -> Result<(), Errno> {
        if self.ledger.has_failed() {
            return Err(Errno::ROFS);
        }
        self.begin_of(OPERATION_PAGES_MAX);
        Ok(())
    }

    fn begin_of(&mut self, pages: usize) {
        let State { geometry, table, pool, ledger, .. } = self;
        ledger.begin(pages, |page| image(geometry, table, pool, page));
    }

    /// Refuses to grow on a volume that is nearly full.
    ///
    /// # Errors
    /// [`Errno::NOSPC`].
    pub(crate) fn check_room(&self) -> Result<(), Errno> {
        let full = self.room.left() < ROOM_PAGES_MIN;
        if full { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Notes that an inode changed, and returns the commit.
    pub(crate) fn dirty(&mut self, ino: Ino) -> u64 {
        self.ledger.dirty(self.geometry.inode(ino).0)
    }

    /// Notes that size or times of an inode changed. After a failure the change is lost.
    pub(crate) fn dirty_lazily(&mut self, ino: Ino) {
        self.ledger.dirty_lazily(self.geometry.inode(ino).0);
    }

    /// Notes that a page of an inode's directory changed.
    pub(crate) fn dirty_entry(&mut self, ino: Ino, touched: TouchedPages) {
        let record = self.table.at(ino);
        let pages = record.pool_pages.get() + u32::from(touched.is_new);
        record.pool_pages = (pages - u32::from(touched.is_cleared)).into();
        record.size = (self.names.pages(ino) as u64 * PAGE_BYTES as u64).into();
        self.dirty_pool(touched.page, touched.is_cleared);
    }

    fn dirty_pool(&mut self, page: u32, is_cleared: bool) {
        let at = self.geometry.pool_start() + u64::from(page);
        let commit = self.ledger.dirty(at);
        if is_cleared {
            let work = ChoreWork::Discard { page: at, pages: 1 };
            self.chores.after(commit, FollowUp::Work(Owner::Pool(page), work));
        }
    }

    /// Writes an inode's attributes or target. The caller has looked that there is space.
    pub(crate) fn write_blob(&mut self, ino: Ino, what: PageUse, bytes: &[u8]) {
        let record = *self.table.at(ino);
        let growth = self.pool.blob_growth(ino, what, bytes.len()) as u32;
        let (written, cleared) = self.pool.write_blob(ino, &record, what, bytes);
        let pages = record.pool_pages.get() + growth - cleared.len() as u32;
        self.table.at(ino).pool_pages = pages.into();
        written.into_iter().for_each(|page| self.dirty_pool(page, false));
        cleared.into_iter().for_each(|page| self.dirty_pool(page, true));
    }

    /// Returns an inode that is linked or still in use.
    ///
    /// # Errors
    /// [`Errno::STALE`] if there is none.
    pub(crate) fn find(&self, ino: Ino) -> Result<&InodeRecord, Errno> {
        let record = self.table.find(ino)?;
        let gone = record.nlink.get() == 0 && !self.holds.contains_key(&ino);
        if gone { Err(Errno::STALE) } else { Ok(record) }
    }

    /// Returns the place of an inode's data.
    pub(crate) fn place(&self, ino: Ino) -> Option<FileSpace> {
        self.table.get(ino).and_then(|record| FileSpace::of(record.place))
    }

    /// Changes the counts of an inode's users. Deletes the inode if neither users nor names are
    /// left.
    pub(crate) fn hold(&mut self, ino: Ino, change: impl FnOnce(&mut InodeUsers)) {
        let hold = self.holds.entry(ino).or_default();
        change(hold);
        if hold.lookups == 0 && hold.opens == 0 && hold.writes == 0 {
            self.holds.remove(&ino);
            self.abandon(ino);
        }
    }

    /// Starts the removal of an inode that has neither names nor users. The removal waits until the
    /// inode's last commit is durable.
    pub(crate) fn abandon(&mut self, ino: Ino) {
        if self.is_abandoned(ino) {
            self.chores.after(self.ledger.last(), FollowUp::Condemn(ino));
            self.carry_on();
        }
    }

    fn is_abandoned(&self, ino: Ino) -> bool {
        let nameless = self.table.get(ino).is_some_and(|record| record.nlink.get() == 0);
        let busy = self.holds.contains_key(&ino) || self.moves.contains_key(&ino);
        nameless && !busy && !self.condemned.contains(&ino)
    }

    /// Carries out the follow-up actions of all commits that are durable.
    pub(crate) fn carry_on(&mut self) {
        let durable = self.ledger.durable();
        for deed in self.chores.ripe(durable) {
            match deed {
                FollowUp::Work(owner, work) => self.chores.queue(owner, work),
                FollowUp::Free(place) => self.space.give(place),
                FollowUp::Condemn(ino) if self.is_abandoned(ino) => self.condemn(ino),
                FollowUp::Condemn(_) => {}
                FollowUp::Landed(ino) => self.leave(ino),
            }
        }
        self.claims.retain(|_, commit| *commit > durable);
    }

    fn condemn(&mut self, ino: Ino) {
        self.condemned.insert(ino);
        let record = *self.table.at(ino);
        let work = FileSpace::of(record.place).and_then(|place| {
            let extends = record.flags.get() & FLAG_EXTENDING != 0;
            let end = if extends { place.bytes() } else { record.size.get() };
            discard(&self.geometry, place, 0, end)
        });
        match work {
            Some(work) => self.work_now(ino, work),
            None if !self.chores.has(ino) => self.reclaims.push_back(PendingReclaim::Inode(ino)),
            None => {}
        }
    }

    /// Queues work for an inode that waits for no commit.
    pub(crate) fn work_now(&mut self, ino: Ino, work: ChoreWork) {
        self.chores.count(ino);
        self.chores.queue(Owner::Inode(ino), work);
    }

    /// Starts to discard the second place of an inode, after or instead of a move of its data.
    pub(crate) fn leave(&mut self, ino: Ino) {
        self.moves.insert(ino, MoveStage::Leaving);
        let other = FileSpace::of(self.table.at(ino).other).expect("a move has another place");
        let whole = discard(&self.geometry, other, 0, other.bytes()).expect("a place has pages");
        self.chores.queue(Owner::Other(ino), whole);
    }

    /// Records that a chore has ended, and carries out the actions that wait for it.
    pub(crate) fn chore_ended(&mut self, number: u64, succeeded: bool) {
        self.ended += 1;
        let owner = self.chores.ended(number);
        if !succeeded {
            self.ledger.fail();
        }
        if self.ledger.has_failed() {
            return;
        }
        match owner {
            Owner::Pool(page) => self.pool.give(page),
            Owner::Other(ino) => {
                self.moves.insert(ino, MoveStage::Left);
                self.reclaims.push_back(PendingReclaim::Other(ino));
            }
            Owner::Inode(ino) if self.chores.has(ino) => {}
            Owner::Inode(ino) if self.condemned.contains(&ino) => {
                self.reclaims.push_back(PendingReclaim::Inode(ino));
            }
            Owner::Inode(ino) => self.settle(ino),
        }
    }

    /// Clears the extending flag of a file without writers. Data beyond the file's size is
    /// discarded.
    pub(crate) fn settle(&mut self, ino: Ino) {
        let busy = self.holds.get(&ino).is_some_and(|hold| hold.writers > 0 || hold.writes > 0);
        if !busy && !self.moves.contains_key(&ino) && self.table.get(ino).is_some() {
            let record = self.table.at(ino);
            record.flags = (record.flags.get() & !FLAG_EXTENDING).into();
            self.dirty_lazily(ino);
        }
    }

    /// Frees discarded inodes and places, as many as the commit that is being built has room for.
    fn reclaim(&mut self) {
        while self.ledger.has_room(RECLAIM_PAGES_MAX) {
            let Some(reclaim) = self.reclaims.pop_front() else { break };
            match reclaim {
                PendingReclaim::Inode(ino) => self.free(ino),
                PendingReclaim::Other(ino) => {
                    let record = self.table.at(ino);
                    let other = FileSpace::of(record.other).expect("a move has another place");
                    record.other = FileSpace::record(None);
                    let commit = self.dirty(ino);
                    self.chores.after(commit, FollowUp::Free(other));
                    self.moves.remove(&ino);
                    self.abandon(ino);
                }
            }
        }
    }

    fn free(&mut self, ino: Ino) {
        self.condemned.remove(&ino);
        self.claims.remove(&ino);
        self.write_blob(ino, PageUse::Xattrs, &[]);
        self.write_blob(ino, PageUse::Target, &[]);
        let place = self.place(ino);
        self.table.give(ino);
        let commit = self.dirty(ino);
        if let Some(place) = place {
            self.chores.after(commit, FollowUp::Free(place));
        }
    }

    /// Frees all discarded inodes and places, in as many commits as necessary.
    pub(crate) fn reclaim_all(&mut self) {
        while !self.reclaims.is_empty() && !self.ledger.has_failed() {
            self.begin_of(RECLAIM_PAGES_MAX);
            self.reclaim();
        }
    }

    /// Tells an operation that found no space whether some will come: from chores, or from writes
    /// and moves under way, which may take less than they were promised.
    pub(crate) fn starve(&mut self) -> StopReason {
        self.reclaim_all();
        let nothing_comes = self.chores.is_idle() && self.room.promised == 0;
        if nothing_comes || self.ledger.has_failed() {
            return Errno::NOSPC.into();
        }
        StopReason::Again(AwaitedEvent::Space { seen: self.ended })
    }

    /// Ends a promise: its pages are written, or will not be.
    pub(crate) fn end_promise(&mut self, pages: u64) {
        self.ended += 1;
        let promised = self.room.promised.checked_sub(pages);
        self.room.promised = promised.expect("the pages were promised");
    }

    /// Moves all changes that wait into commits.
    pub(crate) fn flush(&mut self) {
        self.reclaim_all();
        while let Some(page) = self.ledger.first_lazy() {
            self.begin_of(1);
            self.ledger.dirty(page);
        }
    }

    /// Takes the next commit.
    pub(crate) fn take_commit(&mut self) -> Option<Commit> {
        if !self.ledger.is_due() {
            return None;
        }
        self.reclaim();
        let State { geometry, table, pool, ledger, .. } = self;
        ledger.take(|page| image(geometry, table, pool, page))
    }

    /// Ends the commit that is under way.
    pub(crate) fn commit_ended(&mut self, number: u64, succeeded: bool) {
        self.ended += 1;
        self.ledger.ended(number, succeeded);
        if succeeded {
            self.carry_on();
        }
    }

    /// Returns whether the awaited event has succeeded; `None` while the event has not happened.
    pub(crate) fn outcome(&self, until: AwaitedEvent) -> Option<Result<(), Errno>> {
        let failed = self.ledger.has_failed().then_some(Err(Errno::IO));
        let ready = |ready: bool| if ready { Some(Ok(())) } else { failed };
        match until {
            AwaitedEvent::Now => Some(Ok(())),
            AwaitedEvent::Commit(commit) => self.ledger.outcome(commit),
            AwaitedEvent::Clean { commit, ino } => match self.ledger.outcome(commit)? {
                Ok(()) => ready(!self.chores.has(ino)),
                failed => Some(failed),
            },
            AwaitedEvent::Moved { ino } => match self.moves.get(&ino) {
                None | Some(MoveStage::Left) => Some(Ok(())),
                Some(MoveStage::Claiming(commit)) => match self.ledger.outcome(*commit)? {
                    Ok(()) => {
                        let writes = self.holds.get(&ino).is_some_and(|hold| hold.writes > 0);
                        ready(!writes && !self.chores.has(ino))
                    }
                    failed => Some(failed),
                },
                Some(MoveStage::Copying(_) | MoveStage::Landing | MoveStage::Leaving) => failed,
            },
            AwaitedEvent::Quiet { ino } => {
                let writes = self.holds.get(&ino).is_some_and(|hold| hold.writes > 0);
                if writes { None } else { Some(Ok(())) }
            }
            AwaitedEvent::Space { seen } => ready(self.ended > seen),
        }
    }

    /// Returns `true` if no commit, chore or move is left to be done.
    pub(crate) fn is_idle(&self) -> bool {
        let written = self.ledger.durable() == self.ledger.last();
        self.ledger.has_failed()
            || (written
                && self.chores.is_idle()
                && self.reclaims.is_empty()
                && self.ledger.first_lazy().is_none())
    }

    /// Returns the type of an inode.
    pub(crate) fn kind(&self, ino: Ino) -> u32 {
        self.table.get(ino).map_or(0, |record| record.mode.get() & S_IFMT)
    }

    /// Returns the first byte of an inode's place in virtual space.
    pub(crate) fn base(&self, place: FileSpace) -> u64 {
        (self.geometry.data_start() + u64::from(place.chunk) * CHUNK_PAGES) * PAGE_BYTES as u64
    }

    /// Returns inodes that a mount has to take apart or to complete.
    pub(crate) fn unfinished(&self) -> Vec<Ino> {
        let is = |record: &InodeRecord| {
            record.nlink.get() == 0
                || record.flags.get() & FLAG_EXTENDING != 0
                || record.other.order_next != 0
        };
        self.table.iter().filter(|(_, record)| is(record)).map(|(ino, _)| ino).collect()
    }
}
