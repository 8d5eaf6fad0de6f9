//! A map of a fixed size from numbers to indices, with open addressing and linear probing.
//!
//! Nothing is allocated after creation. A removal moves later entries back instead of leaving
//! marks, so that the map does not slow down over time.

use alloc::vec;
use alloc::vec::Vec;

use crate::slab::NONE;

/// A map from numbers to indices, at most half full.
pub(crate) struct Directory {
    /// Keys and values; an empty place has the value [`NONE`].
    places: Vec<(u64, u32)>,
}

impl Directory {
    /// Returns an empty map for at most `max` entries.
    pub(crate) fn new(max: usize) -> Directory {
        Directory { places: vec![(0, NONE); (2 * max).next_power_of_two().max(2)] }
    }

    /// Returns the value of a key; `None` if the map does not have the key.
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        let place = self.find(key);
        (self.places[place].1 != NONE).then(|| self.places[place].1)
    }

    /// Sets the value of a key. The map must have room for it.
    pub(crate) fn insert(&mut self, key: u64, value: u32) {
        let place = self.find(key);
        self.places[place] = (key, value);
    }

    /// Removes a key, if the map has it.
    pub(crate) fn remove(&mut self, key: u64) {
        let mut hole = self.find(key);
        let mut at = hole;
        loop {
            at = (at + 1) & (self.places.len() - 1);
            if at == hole || self.places[at].1 == NONE {
                break;
            }
            // An entry may fill the hole if its own place does not lie behind the hole.
            let home = self.home(self.places[at].0);
            let from_home = at.wrapping_sub(home) & (self.places.len() - 1);
            let from_hole = at.wrapping_sub(hole) & (self.places.len() - 1);
            if from_home >= from_hole {
                self.places[hole] = self.places[at];
                hole = at;
            }
        }
        self.places[hole].1 = NONE;
    }

    /// Returns the position in `places` of a key, or the empty one where it belongs.
    fn find(&self, key: u64) -> usize {
        let mut place = self.home(key);
        while self.places[place].1 != NONE && self.places[place].0 != key {
            place = (place + 1) & (self.places.len() - 1);
        }
        place
    }

    /// Returns the position in `places` at which the search for a key begins (Fibonacci hashing).
    fn home(&self, key: u64) -> usize {
        let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    proptest::proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0u64..40, 0u32..3), 0..400)) {
            let mut directory = Directory::new(24);
            let mut model = BTreeMap::new();
            for (key, step) in steps {
                if step == 0 || model.len() == 24 {
                    directory.remove(key);
                    model.remove(&key);
                } else {
                    directory.insert(key, step);
                    model.insert(key, step);
                }
                for key in 0..40 {
                    assert_eq!(directory.get(key), model.get(&key).copied());
                }
            }
        }
    }
}
