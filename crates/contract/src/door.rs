//! A door: a value that threads share, and for which no worker waits (docs/adr/0023-one-door.md).
//!
//! One thread is inside at a time. A worker enters only if no thread is inside. Otherwise it rings
//! its bell, goes on with its turn and tries again in a later one: the thread inside answers the
//! bells after leaving. Threads of the control plane wait at the door.

use core::fmt;

#[cfg(not(feature = "loom"))]
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    fence,
};
#[cfg(feature = "loom")]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
        fence,
    },
};
#[cfg(not(feature = "loom"))]
use spin::{Mutex, MutexGuard};

/// A value that only one thread at a time may use (a lock). A worker never waits for the lock, but
/// tries again in a later turn.
pub struct Door<T> {
    room: Mutex<T>,
    /// The workers that found the lock taken, one bit each. They are woken when it is released.
    /// Workers above 63 share bits and are woken together.
    bells: AtomicU64,
}

impl<T> fmt::Debug for Door<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl<T: Default> Default for Door<T> {
    fn default() -> Self {
        Door::new(T::default())
    }
}

/// Returns the bit of a worker in [`Door::bells`].
fn bell(worker: u16) -> u64 {
    1 << (worker % u64::BITS as u16)
}

impl<T> Door<T> {
    /// Creates a lock that protects the value.
    pub fn new(value: T) -> Self {
        Door { room: Mutex::new(value), bells: AtomicU64::new(0) }
    }

    /// Enters unless another thread is inside; never waits.
    fn knock(&self) -> Option<MutexGuard<'_, T>> {
        #[cfg(feature = "loom")]
        return self.room.try_lock().ok();
        #[cfg(not(feature = "loom"))]
        self.room.try_lock()
    }

    /// Runs `work` on the value under the door's lock. Returns its result, or `None` without
    /// calling `work` if another thread holds the lock.
    #[must_use]
    pub fn try_enter<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut room = self.knock()?;
        Some(work(&mut room))
    }

    /// Runs `work` on the value under the door's lock and returns its result. If another thread
    /// holds the lock, sets the worker's bell and returns `None`: that thread collects the bell
    /// [after it has left](Door::answer).
    #[must_use]
    pub fn enter_or_ring<R>(&self, worker: u16, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if let Some(mut room) = self.knock() {
            return Some(work(&mut room));
        }
        self.bells.fetch_or(bell(worker), Relaxed);
        // Either this worker finds that the other has left, or the other finds the bell.
        fence(SeqCst);
        let mut room = self.knock()?;
        Some(work(&mut room))
    }

    /// Runs `work` on the value under the door's lock, and calls `give_way` as long as another
    /// thread holds the lock. For threads that carry no I/O: a worker never calls this method.
    pub fn enter<R>(&self, work: impl FnOnce(&mut T) -> R, mut give_way: impl FnMut()) -> R {
        loop {
            if let Some(mut room) = self.knock() {
                return work(&mut room);
            }
            give_way();
        }
    }

    /// Returns the workers that have rung since the last call, as bits, and silences their bells. To
    /// be called after every entry. The caller wakes these workers.
    #[must_use]
    pub fn answer(&self) -> u64 {
        fence(SeqCst);
        match self.bells.load(Relaxed) {
            0 => 0,
            _ => self.bells.swap(0, AcqRel),
        }
    }

    /// Returns `true` if a worker has rung and its bell has not been answered.
    pub fn has_rung(&self, worker: u16) -> bool {
        self.bells.load(Acquire) & bell(worker) != 0
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_door_is_rung_at_and_answered() {
        let door = Door::new(1);
        let inside = door.try_enter(|value| {
            assert_eq!(door.try_enter(|_| ()), None);
            assert_eq!(door.enter_or_ring(3, |_| ()), None);
            assert!(door.has_rung(3) && !door.has_rung(2));
            *value
        });
        assert_eq!((inside, door.answer(), door.answer()), (Some(1), 1 << 3, 0));
        assert_eq!(door.enter_or_ring(3, |value| *value), Some(1));
        assert!(!door.has_rung(3));
    }

    #[test]
    fn the_control_plane_gives_way_until_it_may_enter() {
        let (door, mut waited) = (Door::new(0), 0);
        let held = door.knock();
        let mut held = Some(held);
        door.enter(
            |value| *value += 1,
            || {
                waited += 1;
                drop(held.take());
            },
        );
        assert_eq!((waited, door.try_enter(|value| *value)), (1, Some(1)));
    }
}
