//! The requests that wait, as one table that the in-flight table's slots index: a queue is two
//! numbers, and queueing allocates nothing.

use alloc::boxed::Box;

use contract::{Kind, Slot};

use crate::Cost;

const NONE: u32 = u32::MAX;

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) slot: Slot,
    pub(crate) kind: Kind,
    pub(crate) cost: Cost,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    waiting: Option<Waiting>,
    next: u32,
}

/// All that wait.
#[derive(Debug)]
pub(crate) struct Requests {
    entries: Box<[Entry]>,
}

/// One tenant's queue, first come, first served; its requests lie in [`Requests`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    /// Requests in it.
    pub(crate) len: u32,
    /// What they cost in units, under a mixed load and under a load of reads.
    pub(crate) mixed: u64,
    pub(crate) read_only: u64,
}

impl Queue {
    pub(crate) const EMPTY: Queue =
        Queue { head: NONE, tail: NONE, len: 0, mixed: 0, read_only: 0 };
}

impl Requests {
    /// Room for requests whose slots have indices below `slots`.
    pub(crate) fn new(slots: usize) -> Requests {
        Requests { entries: alloc::vec![Entry { waiting: None, next: NONE }; slots].into() }
    }

    pub(crate) fn slots(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn push(&mut self, queue: &mut Queue, waiting: Waiting) {
        let index = waiting.slot.index();
        let entry = &mut self.entries[index];
        assert!(entry.waiting.is_none(), "{:?} waits already", waiting.slot);
        *entry = Entry { waiting: Some(waiting), next: NONE };
        match queue.tail {
            NONE => queue.head = index as u32,
            tail => self.entries[tail as usize].next = index as u32,
        }
        queue.tail = index as u32;
        queue.len += 1;
        queue.mixed += u64::from(waiting.cost.mixed);
        queue.read_only += u64::from(waiting.cost.read_only);
    }

    pub(crate) fn first(&self, queue: &Queue) -> Option<&Waiting> {
        self.entries.get(queue.head as usize)?.waiting.as_ref()
    }

    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Waiting {
        let entry = &mut self.entries[queue.head as usize];
        let waiting = entry.waiting.take().expect("whoever pops has looked");
        queue.head = entry.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        queue.len -= 1;
        queue.mixed -= u64::from(waiting.cost.mixed);
        queue.read_only -= u64::from(waiting.cost.read_only);
        waiting
    }
}
