//! A mounted file system.

use crate::errno::Errno;
use crate::layout::Geometry;
use crate::operations::{self, attributes_of, data};
use crate::state::State;
use crate::words::{
    Applied, AwaitedEvent, Caller, Chore, Commit, DataPlacement, DirectoryEntry, Ino, Operation,
    S_IFDIR, Statistics, Time,
};

/// A mounted file system: all of its metadata, and the changes on their way to the media.
#[derive(Debug)]
pub struct FileSystem {
    pub(crate) state: State,
    uuid: [u8; 16],
}

/// Cookies of entries begin here: 0 is the beginning, 1 and 2 are behind `.` and `..`.
const COOKIE_FIRST: u64 = 3;

impl FileSystem {
    pub(crate) fn new(state: State, uuid: [u8; 16]) -> FileSystem {
        FileSystem { state, uuid }
    }

    /// Returns the file system's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns the sizes of the file system.
    pub fn geometry(&self) -> Geometry {
        self.state.geometry
    }

    /// Applies an operation at time `now`.
    ///
    /// # Errors
    /// The operation is refused, and nothing has changed.
    pub fn apply(&mut self, now: Time, caller: &Caller, operation: Operation) -> Applied {
        operations::apply(&mut self.state, now, caller, operation)
    }

    /// Reads a directory from a cookie on; zero is the beginning. `visit` returns `false` to end
    /// before its entry.
    ///
    /// # Errors
    /// [`Errno::NOTDIR`] or [`Errno::STALE`].
    pub fn read_directory(
        &self,
        ino: Ino,
        cookie: u64,
        mut visit: impl FnMut(&DirectoryEntry) -> bool,
    ) -> Result<(), Errno> {
        let state = &self.state;
        let record = state.find(ino)?;
        if state.kind(ino) != S_IFDIR {
            return Err(Errno::NOTDIR);
        }
        let dots = [(ino, &b"."[..], 1), (record.parent.get(), &b".."[..], 2)];
        let entries = dots.into_iter().filter(|(_, _, next)| *next > cookie);
        let from = cookie.saturating_sub(COOKIE_FIRST - 1);
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let named = state.names.entries_from(&state.pool, ino, from);
        let named =
            named.map(|(place, entry)| (entry.ino, entry.name, u64::from(place) + COOKIE_FIRST));
        for (ino, name, cookie) in entries.chain(named) {
            let Some(record) = state.table.get(ino) else { continue };
            let (kind, attributes) = (state.kind(ino), attributes_of(ino, record));
            if !visit(&DirectoryEntry { ino, kind, name, cookie, attributes }) {
                break;
            }
        }
        Ok(())
    }

    /// Increments the kernel's lookup count of an inode, since a directory entry was returned with
    /// the inode's attributes.
    ///
    /// # Errors
    /// [`Errno::STALE`] if there is no such inode.
    pub fn remember(&mut self, ino: Ino) -> Result<(), Errno> {
        self.state.find(ino)?;
        self.state.hold(ino, |hold| hold.lookups += 1);
        Ok(())
    }

    /// Takes back `lookups` lookups of an inode.
    pub fn forget(&mut self, ino: Ino, lookups: u64) {
        if self.state.holds.contains_key(&ino) {
            self.state.hold(ino, |hold| hold.lookups = hold.lookups.saturating_sub(lookups));
        }
    }

    /// Returns the place of bytes of a regular file to be read. Bytes in no written page are
    /// zeroes.
    ///
    /// # Errors
    /// The inode is no regular file.
    pub fn place_read(&self, ino: Ino, offset: u64, bytes: u64) -> Result<DataPlacement, Errno> {
        data::place_read(&self.state, ino, (offset, bytes))
    }

    /// Returns the place in virtual space to which bytes of a regular file are to be written, or
    /// the step that must come first.
    ///
    /// # Errors
    /// The inode is no regular file, the file would be too large, or there is no space.
    pub fn place_write(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: u64,
    ) -> Result<DataPlacement, Errno> {
        data::place_write(&mut self.state, ino, (offset, bytes))
    }

    /// Ends a write that [`place_write`](FileSystem::place_write) has placed. A success changes
    /// size and times in memory.
    ///
    /// # Panics
    /// Panics if no write of the file is under way.
    pub fn wrote(&mut self, now: Time, ino: Ino, offset: u64, bytes: u64, succeeded: bool) {
        data::wrote(&mut self.state, now, ino, (offset, bytes), succeeded);
    }

    /// Records that a [`Move`](crate::Move) still has to copy `left` bytes.
    ///
    /// # Panics
    /// Panics if no move of the file was asked for.
    pub fn copied(&mut self, ino: Ino, left: u64) {
        data::copied(&mut self.state, ino, left);
    }

    /// Ends a [`Move`](crate::Move). The caller has flushed the copy before it reports a success.
    ///
    /// # Panics
    /// Panics if no move of the file was asked for.
    pub fn moved(&mut self, ino: Ino, succeeded: bool) {
        data::moved(&mut self.state, ino, succeeded);
    }

    /// Takes the next commit. One is under way at a time.
    pub fn take_commit(&mut self) -> Option<Commit> {
        self.state.take_commit()
    }

    /// Returns `true` if a commit is full and has not been taken: changes come faster than commits.
    pub fn has_full_commit(&self) -> bool {
        self.state.ledger.has_full()
    }

    /// Returns the end of the last commit that has changes.
    pub fn last_commit(&self) -> AwaitedEvent {
        AwaitedEvent::Commit(self.state.ledger.last())
    }

    /// Returns `true` if the event is the end of a commit that has not been taken.
    pub fn is_to_be_taken(&self, until: AwaitedEvent) -> bool {
        matches!(until, AwaitedEvent::Commit(commit) if self.state.ledger.is_to_be_taken(commit))
    }

    /// Ends the commit that is under way. After a failure the file system is read-only.
    ///
    /// # Panics
    /// Panics if another commit is under way, or none.
    pub fn commit_ended(&mut self, number: u64, succeeded: bool) {
        self.state.commit_ended(number, succeeded);
    }

    /// Takes the next chore. Chores may be carried out together, and end in any order.
    pub fn take_chore(&mut self) -> Option<Chore> {
        self.state.chores.take()
    }

    /// Ends a chore. Its discard or zeroes are durable; after a failure the file system is
    /// read-only.
    ///
    /// # Panics
    /// Panics if there is no such chore.
    pub fn chore_ended(&mut self, number: u64, succeeded: bool) {
        self.state.chore_ended(number, succeeded);
    }

    /// Returns the outcome of an event, or `None` before the event has come.
    pub fn outcome(&self, until: AwaitedEvent) -> Option<Result<(), Errno>> {
        self.state.outcome(until)
    }

    /// Moves all deferred changes of sizes and times into commits.
    pub fn flush_attributes(&mut self) {
        if !self.is_read_only() {
            self.state.flush();
        }
    }

    /// Returns `true` if nothing is left to be written or discarded: no commit, chore or move.
    pub fn is_idle(&self) -> bool {
        self.state.is_idle()
    }

    /// Returns `true` if nothing is written any more.
    pub fn is_read_only(&self) -> bool {
        self.state.ledger.has_failed()
    }

    /// Sets the physical space of the volume in pages. Without a call, the file system assumes that
    /// all virtual space is physical. Writes under way may still count as free.
    pub fn set_room(&mut self, pages: u64, pages_free: u64) {
        (self.state.room.pages, self.state.room.pages_free) = (pages, pages_free);
    }

    /// Returns counts of the file system.
    pub fn statistics(&self) -> Statistics {
        operations::statistics(&self.state)
    }
}
