//! Identifiers of requests in flight.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The identifier of an entry of a [`SlotTable`]. The generation distinguishes successive entries
/// of the same place, so that a stale completion is detected.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The generation, then 16 bits of the index, in one word.
    bits: u32,
}

impl Slot {
    const fn new(index: u16, generation: u16) -> Slot {
        Slot { bits: (generation as u32) << 16 | index as u32 }
    }

    /// Returns the slot as 32 bits, for the user data of a queue entry.
    pub const fn to_bits(self) -> u32 {
        self.bits
    }

    /// Returns the slot that `to_bits` made these bits from.
    pub const fn from_bits(bits: u32) -> Slot {
        Slot { bits }
    }

    /// Returns the index of the entry in its table, below the table's capacity.
    pub const fn index(self) -> usize {
        self.bits as u16 as usize
    }

    const fn generation(self) -> u16 {
        (self.bits >> 16) as u16
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({}, {})", self.index(), self.generation())
    }
}

/// A table of at most `capacity` entries, allocated once. An entry is removed exactly once. Access
/// to a missing entry is a broken invariant of this process and panics.
#[derive(Debug)]
pub struct SlotTable<T> {
    entries: Box<[Entry<T>]>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u16,
    value: Option<T>,
}

impl<T> SlotTable<T> {
    /// Returns an empty table for `capacity` entries, at most 65 536.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity <= 1 << 16, "a slot's index has 16 bits");
        let entries = (0..capacity).map(|_| Entry { generation: 0, value: None }).collect();
        let free = (0..capacity).rev().map(|index| index as u16).collect();
        SlotTable { entries, free }
    }

    /// Inserts `value` and returns its slot. Returns the value as the error if the table is full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Slot, T> {
        let Some(index) = self.free.pop() else { return Err(value) };
        let entry = &mut self.entries[usize::from(index)];
        entry.value = Some(value);
        Ok(Slot::new(index, entry.generation))
    }

    /// Inserts the value of `make` where there is [room](SlotTable::room). The value is constructed
    /// in its place, since nothing can fail afterwards. For large values.
    ///
    /// # Panics
    /// Panics if the table is full.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Slot {
        let index = self.free.pop().expect("the table has room");
        let entry = &mut self.entries[usize::from(index)];
        // The assertion spares a drop of the old value.
        assert!(entry.value.is_none(), "a free place holds nothing");
        entry.value = Some(make());
        Slot::new(index, entry.generation)
    }

    /// Returns the entry of a slot; `None` if the entry was removed already.
    pub fn find(&mut self, slot: Slot) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot.index())?;
        if entry.generation == slot.generation() { entry.value.as_mut() } else { None }
    }

    /// Returns the entry of a slot that must be in the table.
    pub fn get(&mut self, slot: Slot) -> &mut T {
        self.find(slot).unwrap_or_else(|| panic!("{slot:?} is not in flight"))
    }

    /// Removes and returns the entry; its slot is never valid again.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> T {
        let entry = &mut self.entries[slot.index()];
        assert!(entry.generation == slot.generation(), "{slot:?} is stale");
        assert!(entry.value.is_some(), "{slot:?} is not in flight");
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot.bits as u16);
        // Last, so that the value is moved once.
        entry.value.take().expect("it was just looked at")
    }

    /// Drops the entry in its place; its slot is never valid again.
    #[inline(always)]
    pub fn discard(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot.index()];
        assert!(entry.generation == slot.generation(), "{slot:?} is stale");
        assert!(entry.value.is_some(), "{slot:?} is not in flight");
        entry.generation = entry.generation.wrapping_add(1);
        entry.value = None;
        self.free.push(slot.bits as u16);
    }

    /// Returns all entries of the table, each with its slot.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let slot = Slot::new(index as u16, entry.generation);
            entry.value.as_ref().map(|value| (slot, value))
        })
    }

    /// Returns all entries of the table, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns `true` if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of further entries that fit.
    pub fn room(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_gives_the_value_back() {
        let mut table = SlotTable::new(1);
        let slot = table.insert('a').unwrap();
        assert_eq!(table.insert('b'), Err('b'));
        assert_eq!(table.remove(slot), 'a');
        assert!(table.is_empty());
    }

    #[test]
    fn a_stale_slot_is_caught() {
        let mut table = SlotTable::new(1);
        let old = table.insert('a').unwrap();
        table.remove(old);
        let new = table.insert('b').unwrap();
        assert_eq!(old.index(), new.index());
        assert_eq!(table.find(old), None);
        assert_eq!(table.find(new), Some(&mut 'b'));
        assert_eq!(Slot::from_bits(new.to_bits()), new);
    }

    #[test]
    fn a_place_is_filled_and_emptied_where_it_is() {
        let mut table = SlotTable::new(1);
        let slot = table.insert_with(|| 'a');
        assert_eq!((table.room(), *table.get(slot)), (0, 'a'));
        table.discard(slot);
        assert!(table.is_empty() && table.find(slot).is_none());
        assert_ne!(table.insert_with(|| 'b'), slot);
    }

    #[test]
    #[should_panic(expected = "stale")]
    fn discarding_twice_panics() {
        let mut table = SlotTable::new(1);
        let slot = table.insert(()).unwrap();
        table.discard(slot);
        table.discard(slot);
    }

    #[test]
    #[should_panic(expected = "stale")]
    fn removing_twice_panics() {
        let mut table = SlotTable::new(1);
        let slot = table.insert(()).unwrap();
        table.remove(slot);
        table.remove(slot);
    }
}
