//! Background discards and zeroing of space that durable commits have released, and the follow-up
//! actions of each.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::buddy::FileSpace;
use crate::words::{Chore, ChoreWork, Ino};

/// The owner of the space that a chore (a discard or zeroing) cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An inode: a truncated file, or one that is to be removed.
    Inode(Ino),
    /// The second place of an inode whose data moves: the old place after the move, or the new
    /// place of a failed one.
    Other(Ino),
    /// A cleared page of the pool.
    Pool(u32),
}

/// A follow-up action of a durable commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// A discard or zeroing may begin for the owner.
    Work(Owner, ChoreWork),
    /// An inode without names and users is deleted.
    Condemn(Ino),
    /// A place was discarded and returns to the free space.
    Free(FileSpace),
    /// A file's data have moved.
    Landed(Ino),
}

/// The queue of chores: discards and zeroing of released space.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    next: u64,
    queue: VecDeque<Chore>,
    owners: BTreeMap<u64, Owner>,
    /// For each inode, the number of its chores that are queued, in progress, or waiting for a
    /// commit.
    pending: BTreeMap<Ino, u32>,
    /// Follow-up actions, by the number of the commit that must be durable first.
    waiting: BTreeMap<u64, Vec<FollowUp>>,
}

impl Chores {
    /// Queues a follow-up action until the commit is durable.
    pub(crate) fn after(&mut self, commit: u64, deed: FollowUp) {
        if let FollowUp::Work(Owner::Inode(ino), _) = deed {
            *self.pending.entry(ino).or_default() += 1;
        }
        self.waiting.entry(commit).or_default().push(deed);
    }

    /// Removes and returns the follow-up actions of all commits up to `durable`.
    pub(crate) fn ripe(&mut self, durable: u64) -> Vec<FollowUp> {
        let later = self.waiting.split_off(&(durable + 1));
        core::mem::replace(&mut self.waiting, later).into_values().flatten().collect()
    }

    /// Queues work whose commit is durable.
    pub(crate) fn queue(&mut self, owner: Owner, work: ChoreWork) {
        self.next += 1;
        self.owners.insert(self.next, owner);
        self.queue.push_back(Chore { number: self.next, work });
    }

    /// Counts work of an inode that is about to be queued without waiting for a commit.
    pub(crate) fn count(&mut self, ino: Ino) {
        *self.pending.entry(ino).or_default() += 1;
    }

    /// Takes the next chore.
    pub(crate) fn take(&mut self) -> Option<Chore> {
        self.queue.pop_front()
    }

    /// Ends a chore, and returns its owner.
    ///
    /// # Panics
    /// Panics if there is no such chore.
    pub(crate) fn ended(&mut self, number: u64) -> Owner {
        let owner = self.owners.remove(&number).expect("the chore was taken");
        if let Owner::Inode(ino) = owner {
            let left = self.pending.get_mut(&ino).expect("the chore was counted");
            *left -= 1;
            if *left == 0 {
                self.pending.remove(&ino);
            }
        }
        owner
    }

    /// Returns `true` if an inode has chores.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.pending.contains_key(&ino)
    }

    /// Returns `true` if no chore is queued or in progress, and no action waits for a commit.
    pub(crate) fn is_idle(&self) -> bool {
        self.owners.is_empty() && self.waiting.is_empty()
    }
}
