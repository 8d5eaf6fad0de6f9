//! Tables of the map: in memory of the volume, or in memory that its caller lends.

use alloc::boxed::Box;
use core::mem;
use core::ops::{Deref, DerefMut};

/// Memory that a caller lends a volume. It is given back when the volume ends.
///
/// The slice is the first field, for the sake of [`Table`].
#[repr(C)]
pub struct LentMemory<T: 'static> {
    slice: &'static mut [T],
    give_back: fn(&'static mut [T]),
}

impl<T> LentMemory<T> {
    /// Returns lent memory, and the function that takes it back.
    pub fn new(slice: &'static mut [T], give_back: fn(&'static mut [T])) -> LentMemory<T> {
        LentMemory { slice, give_back }
    }
}

impl<T> Drop for LentMemory<T> {
    fn drop(&mut self) {
        (self.give_back)(mem::take(&mut self.slice));
    }
}

/// Lent memory for the map of a volume: the places of its pages, and their heats.
pub struct MapMemory {
    /// Memory for the places.
    pub places: LentMemory<u32>,
    /// Memory for the heats.
    pub heat: LentMemory<u8>,
}

/// A table of the map.
///
/// In this layout the slice of both variants is at one place, so that an access needs not look at
/// the tag. A request of a host makes several accesses.
#[repr(u8)]
pub(crate) enum Table<T: 'static> {
    /// The table is in memory of the volume.
    Own(Box<[T]>),
    /// The table is in memory of the volume's caller, which may pass it on to another process.
    Lent(LentMemory<T>),
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Table::Own(own) => own,
            Table::Lent(lent) => lent.slice,
        }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Table::Own(own) => own,
            Table::Lent(lent) => lent.slice,
        }
    }
}

impl<T: Copy> Table<T> {
    /// Copies the table to lent memory, which replaces it.
    ///
    /// # Panics
    /// Panics if the memory has another size.
    pub(crate) fn move_to(&mut self, lent: LentMemory<T>) {
        lent.slice.copy_from_slice(self);
        *self = Table::Lent(lent);
    }
}
