//! Identifiers of requests in flight.

use alloc::boxed::Box;
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
    /// Number of free places.
    room: usize,
    /// Index of the place that was freed last and is taken next; meaningless in a full table.
    next: u16,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u16,
    /// In a free place, the index of the place that is taken after it; meaningless in the last one.
    next: u16,
    value: Option<T>,
}

impl<T> SlotTable<T> {
    /// Returns an empty table for `capacity` entries, at most 65 536.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity <= 1 << 16, "a slot's index has 16 bits");
        let entry = |index| Entry { generation: 0, next: index as u16, value: None };
        SlotTable { entries: (1..=capacity).map(entry).collect(), room: capacity, next: 0 }
    }

    /// Inserts `value` and returns its slot. Returns the value as the error if the table is full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Slot, T> {
        if self.room == 0 {
            return Err(value);
        }
        Ok(self.insert_with(|| value))
    }

    /// Inserts the value of `make` where there is [room](SlotTable::room). The value is constructed
    /// in its place, since nothing can fail afterwards. For large values.
    ///
    /// # Panics
    /// Panics if the table is full.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Slot {
        assert!(self.room > 0, "the table has room");
        let index = self.next;
        let entry = &mut self.entries[usize::from(index)];
        // The assertion spares a drop of the old value.
        assert!(entry.value.is_none(), "a free place holds nothing");
        entry.value = Some(make());
        (self.room, self.next) = (self.room - 1, entry.next);
        Slot::new(index, entry.generation)
    }

    /// Returns the entry of a slot; `None` if the entry was removed already.
    pub fn find(&mut self, slot: Slot) -> Option<&mut T> {
        let entry = self.entries.get_mut(slot.index())?;
        if entry.generation == slot.generation() { entry.value.as_mut() } else { None }
    }

    /// Returns the entry of a slot that must be in the table.
    pub fn get(&mut self, slot: Slot) -> &mut T {
        self.find(slot).unwrap_or_else(|| missing(slot))
    }

    /// Removes and returns the entry; its slot is never valid again.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> T {
        // Last, so that the value is moved once.
        self.free(slot).take().expect("it was just looked at")
    }

    /// Drops the entry in its place, and returns what `look` has returned for it; its slot is never
    /// valid again.
    #[inline(always)]
    pub fn discard<R>(&mut self, slot: Slot, look: impl FnOnce(&T) -> R) -> R {
        let value = self.free(slot);
        let seen = look(value.as_ref().expect("it was just looked at"));
        *value = None;
        seen
    }

    /// Frees the place of a slot, and returns its value, which the caller removes.
    #[inline(always)]
    fn free(&mut self, slot: Slot) -> &mut Option<T> {
        let entry = &mut self.entries[slot.index()];
        if entry.generation != slot.generation() || entry.value.is_none() {
            missing(slot);
        }
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.next;
        (self.room, self.next) = (self.room + 1, slot.bits as u16);
        &mut entry.value
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
        self.entries.len() - self.room
    }

    /// Returns `true` if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of further entries that fit.
    pub fn room(&self) -> usize {
        self.room
    }
}

/// Reports that a slot has no entry. Out of line, and by value, so that callers keep slots in
/// registers.
#[cold]
#[inline(never)]
fn missing(slot: Slot) -> ! {
    panic!("{slot:?} is stale or not in flight")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

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
        assert_eq!(table.discard(slot, |value| *value), 'a');
        assert!(table.is_empty() && table.find(slot).is_none());
        assert_ne!(table.insert_with(|| 'b'), slot);
    }

    /// The place that was freed last is taken first: its memory was used last.
    #[test]
    fn places_are_taken_in_order_and_then_the_last_that_was_freed() {
        let mut table = SlotTable::new(4);
        let slots: Vec<Slot> = (0..4).map(|n| table.insert(n).unwrap()).collect();
        assert_eq!(table.insert(4), Err(4));
        let index = |slot: Slot| slot.index();
        assert_eq!(slots.iter().copied().map(index).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for at in [2, 0, 3] {
            assert_eq!(table.remove(slots[at]), at);
        }
        assert_eq!((table.len(), table.room()), (1, 3));
        assert_eq!([3, 0, 2].map(|_| table.insert_with(|| 9).index()), [3, 0, 2]);
        assert_eq!((*table.get(slots[1]), table.room()), (1, 0));
    }

    #[test]
    #[should_panic(expected = "stale")]
    fn discarding_twice_panics() {
        let mut table = SlotTable::new(1);
        let slot = table.insert(()).unwrap();
        table.discard(slot, |()| ());
        table.insert(()).unwrap(); // has the place now, under another slot
        table.discard(slot, |()| ());
    }

    #[test]
    #[should_panic(expected = "stale")]
    fn removing_twice_panics() {
        let mut table = SlotTable::new(1);
        let slot = table.insert(()).unwrap();
        table.remove(slot);
        table.insert(()).unwrap(); // has the place now, under another slot
        table.remove(slot);
    }
}
