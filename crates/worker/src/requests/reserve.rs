//! The slots and buffers of a worker that are kept for tenants with a promise, while there are any.

use contract::BufPool;

use super::quota::CLASSES_MAX;

/// The number of slots or buffers of which one is kept in reserve.
const PART: usize = 16;

/// The slots and buffers that tenants without a promise leave to tenants with one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    slots: usize,
    /// The number of buffers, by size.
    buffers: [usize; CLASSES_MAX],
}

impl Reserve {
    /// Keeps a part of so many slots, and of each size of a pool that has a few.
    pub(super) fn new(slots: usize, pool: &BufPool) -> Reserve {
        let mut buffers = [0; CLASSES_MAX];
        for (class, reserve) in buffers[..pool.classes()].iter_mut().enumerate() {
            *reserve = part_of(pool.count(class));
        }
        Reserve { slots: part_of(slots), buffers }
    }

    /// Returns how many of the free slots are left for a tenant that `yields` or not.
    #[inline]
    pub(super) fn left_of_slots(&self, free: usize, yields: impl Fn() -> bool) -> usize {
        left(free, self.slots, yields)
    }

    /// Returns how many of the free buffers of a size are left for a tenant that `yields` or not.
    #[inline]
    pub(super) fn left(&self, class: usize, free: usize, yields: impl Fn() -> bool) -> usize {
        left(free, self.buffers[class], yields)
    }
}

/// Returns the part of so many that is kept: nothing of fewer than that, which a tenant shares out
/// anyway.
fn part_of(count: usize) -> usize {
    count / PART
}

/// Subtracts a reserve from what is free, if a tenant has to leave it to others. While much is free
/// nobody asks whether that is so.
#[inline]
fn left(free: usize, reserve: usize, yields: impl Fn() -> bool) -> usize {
    if free > 4 * reserve || !yields() { free } else { free.saturating_sub(reserve) }
}
