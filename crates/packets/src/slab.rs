//! Tables of a fixed size, and queues through their entries.
//!
//! An index is a right: it is taken once and given back once. Queues link entries by index, so that
//! they need no memory of their own.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// The index that stands for "no entry".
pub(crate) const NONE: u32 = u32::MAX;

/// A table whose memory is allocated when it is created.
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    /// The indexes of the empty slots, used as a stack.
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Returns an empty table of `max` entries.
    pub(crate) fn new(max: usize) -> Slab<T> {
        let free = (0..max as u32).rev().collect();
        Slab { slots: (0..max).map(|_| None).collect(), free }
    }

    /// Takes a slot for `value` and returns its index, or `None` if the table is full.
    pub(crate) fn take(&mut self, value: T) -> Option<u32> {
        let index = self.free.pop()?;
        self.slots[index as usize] = Some(value);
        Some(index)
    }

    /// Empties a slot and returns its value. Panics if the slot is empty.
    pub(crate) fn give(&mut self, index: u32) -> T {
        let value = self.slots[index as usize].take().expect("a slot is given once");
        self.free.push(index);
        value
    }

    /// Returns the value at an index, or `None` if there is none.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.as_ref()
    }

    /// Returns the value at an index, to change it; `None` if there is none.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// Returns the number of empty slots.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of slots.
    pub(crate) fn max(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of taken slots.
    pub(crate) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        self.slots[index as usize].as_ref().expect("a taken slot")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].as_mut().expect("a taken slot")
    }
}

/// An entry of a slab that may stand in a queue.
pub(crate) trait Linked {
    /// Returns the field for the index of the next entry in the queue, which is [`NONE`] in the
    /// last entry.
    fn next(&mut self) -> &mut u32;
}

/// A queue of entries of one slab. An entry stands in one queue at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
}

impl Queue {
    /// A queue without entries.
    pub(crate) const EMPTY: Queue = Queue { head: NONE, tail: NONE };

    /// Returns the first entry's index, or `None` if the queue is empty.
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Returns `true` if the queue has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Appends the entry at an index of the slab.
    pub(crate) fn push<T: Linked>(&mut self, slab: &mut Slab<T>, index: u32) {
        *slab[index].next() = NONE;
        match self.tail {
            NONE => self.head = index,
            tail => *slab[tail].next() = index,
        }
        self.tail = index;
    }

    /// Inserts the entry at an index of the slab before all others.
    pub(crate) fn push_front<T: Linked>(&mut self, slab: &mut Slab<T>, index: u32) {
        *slab[index].next() = self.head;
        if self.head == NONE {
            self.tail = index;
        }
        self.head = index;
    }

    /// Removes the first entry and returns its index; `None` if the queue is empty.
    pub(crate) fn pop<T: Linked>(&mut self, slab: &mut Slab<T>) -> Option<u32> {
        let index = self.front()?;
        self.head = *slab[index].next();
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry(u32);

    impl Linked for Entry {
        fn next(&mut self) -> &mut u32 {
            &mut self.0
        }
    }

    #[test]
    fn a_queue_keeps_the_order_and_ends_empty() {
        let mut slab = Slab::new(3);
        let entries: [u32; 3] = core::array::from_fn(|_| slab.take(Entry(NONE)).unwrap());
        assert!(slab.take(Entry(NONE)).is_none(), "the table is full");
        let mut queue = Queue::EMPTY;
        queue.push(&mut slab, entries[1]);
        queue.push(&mut slab, entries[2]);
        queue.push_front(&mut slab, entries[0]);
        for entry in entries {
            assert_eq!(queue.pop(&mut slab), Some(entry));
            slab.give(entry);
        }
        assert!(queue.is_empty() && queue.pop(&mut slab).is_none());
        assert_eq!((slab.free(), slab.max(), slab.taken()), (3, 3, 0));
    }

    #[test]
    #[should_panic(expected = "given once")]
    fn a_slot_given_twice_is_caught() {
        let mut slab = Slab::new(1);
        let index = slab.take(0).unwrap();
        slab.give(index);
        slab.give(index);
    }
}
