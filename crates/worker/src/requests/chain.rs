//! Linked lists of requests through the tables that hold them: they allocate nothing, and an entry
//! can leave from the middle.

use contract::{Slot, SlotTable};

/// An entry's neighbours in its list. An entry is in one list at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListLinks {
    before: Option<Slot>,
    after: Option<Slot>,
}

/// An entry that can be in a list.
pub(crate) trait ListEntry {
    /// Returns the entry's neighbours.
    fn links(&mut self) -> &mut ListLinks;
}

/// A linked list of entries of one table, oldest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotList {
    first: Option<Slot>,
    last: Option<Slot>,
}

impl SlotList {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn front(&self) -> Option<Slot> {
        self.first
    }

    /// Counts the entries by walking through the list.
    pub(crate) fn len(&self, table: &mut SlotTable<impl ListEntry>) -> usize {
        std::iter::successors(self.first, |slot| table.get(*slot).links().after).count()
    }

    /// Returns the entry that follows `slot` in the list; `None` at the end.
    pub(crate) fn behind(table: &mut SlotTable<impl ListEntry>, slot: Slot) -> Option<Slot> {
        table.get(slot).links().after
    }

    /// Appends an entry that is in no list.
    pub(crate) fn push(&mut self, table: &mut SlotTable<impl ListEntry>, slot: Slot) {
        *table.get(slot).links() = ListLinks { before: self.last, after: None };
        match self.last.replace(slot) {
            Some(last) => table.get(last).links().after = Some(slot),
            None => self.first = Some(slot),
        }
    }

    /// Puts an entry that is in no list to the front.
    pub(crate) fn push_first(&mut self, table: &mut SlotTable<impl ListEntry>, slot: Slot) {
        *table.get(slot).links() = ListLinks { before: None, after: self.first };
        match self.first.replace(slot) {
            Some(first) => table.get(first).links().before = Some(slot),
            None => self.last = Some(slot),
        }
    }

    /// Removes an entry of this list.
    pub(crate) fn remove(&mut self, table: &mut SlotTable<impl ListEntry>, slot: Slot) {
        let ListLinks { before, after } = std::mem::take(table.get(slot).links());
        match before {
            Some(before) => table.get(before).links().after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => table.get(after).links().before = before,
            None => self.last = before,
        }
    }

    /// Removes the oldest entry.
    pub(crate) fn pop(&mut self, table: &mut SlotTable<impl ListEntry>) -> Option<Slot> {
        let slot = self.first?;
        self.remove(table, slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Entry(ListLinks);

    impl ListEntry for Entry {
        fn links(&mut self) -> &mut ListLinks {
            &mut self.0
        }
    }

    #[test]
    fn whoever_leaves_does_so_from_any_place() {
        let mut table = SlotTable::new(4);
        let slots = [(); 4].map(|()| table.insert(Entry::default()).expect("there is room"));
        for gone in slots {
            let mut chain = SlotList::default();
            slots.into_iter().for_each(|slot| chain.push(&mut table, slot));
            chain.remove(&mut table, gone);
            let left: Vec<_> = std::iter::from_fn(|| chain.pop(&mut table)).collect();
            let expected: Vec<_> = slots.into_iter().filter(|slot| *slot != gone).collect();
            assert_eq!(left, expected);
            assert!(chain.is_empty() && chain.last.is_none());
        }
    }

    #[test]
    fn whoever_was_taken_may_come_back_in_front() {
        let mut table = SlotTable::new(3);
        let slots = [(); 3].map(|()| table.insert(Entry::default()).expect("there is room"));
        let mut chain = SlotList::default();
        for slot in [slots[2], slots[1], slots[0]] {
            chain.push_first(&mut table, slot);
        }
        let order: Vec<_> = std::iter::from_fn(|| chain.pop(&mut table)).collect();
        assert_eq!(order, slots);
        assert!(chain.is_empty() && chain.last.is_none());
    }
}
