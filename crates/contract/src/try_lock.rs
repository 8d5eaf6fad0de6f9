//! A lock on a value that threads share, for which no worker waits
//! (docs/adr/0023-one-try-lock.md).
//!
//! A lock has at most one holder. A worker takes it only if no thread holds it. Otherwise the
//! worker sets its bit among the waiters, goes on with its turn and tries again in a later one: the
//! holder wakes the waiters after it has released the lock. Threads of the control plane wait.

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

/// A value that only one thread at a time may use. A worker never waits for the lock, but tries
/// again in a later turn.
pub struct TryLock<T> {
    value: Mutex<T>,
    /// The workers that found the lock taken, one bit each. They are woken when it is released.
    /// Workers above 63 share bits and are woken together.
    waiters: AtomicU64,
}

impl<T> fmt::Debug for TryLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryLock").finish_non_exhaustive()
    }
}

impl<T: Default> Default for TryLock<T> {
    fn default() -> Self {
        TryLock::new(T::default())
    }
}

/// Returns the bit of a worker in [`TryLock::waiters`].
fn bit(worker: u16) -> u64 {
    1 << (worker % u64::BITS as u16)
}

impl<T> TryLock<T> {
    /// Creates a lock that protects the value.
    pub fn new(value: T) -> Self {
        TryLock { value: Mutex::new(value), waiters: AtomicU64::new(0) }
    }

    /// Takes the lock unless another thread holds it; never waits.
    fn guard(&self) -> Option<MutexGuard<'_, T>> {
        #[cfg(feature = "loom")]
        return self.value.try_lock().ok();
        #[cfg(not(feature = "loom"))]
        self.value.try_lock()
    }

    /// Runs `work` on the value under the lock. Returns its result, or `None` without
    /// calling `work` if another thread holds the lock.
    #[must_use]
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut value = self.guard()?;
        Some(work(&mut value))
    }

    /// Runs `work` on the value under the lock and returns its result. If another thread
    /// holds the lock, sets the worker's bit and returns `None`: that thread collects the bit
    /// [after it has released the lock](TryLock::take_waiters).
    #[must_use]
    pub fn with_or_register<R>(&self, worker: u16, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if let Some(mut value) = self.guard() {
            return Some(work(&mut value));
        }
        self.waiters.fetch_or(bit(worker), Relaxed);
        // Either this worker finds the lock free, or the other thread finds the bit.
        fence(SeqCst);
        let mut value = self.guard()?;
        Some(work(&mut value))
    }

    /// Runs `work` on the value under the lock, and calls `give_way` as long as another
    /// thread holds the lock. For threads that carry no I/O: a worker never calls this method.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R, mut give_way: impl FnMut()) -> R {
        loop {
            if let Some(mut value) = self.guard() {
                return work(&mut value);
            }
            give_way();
        }
    }

    /// Returns the workers that have found the lock taken since the last call, as bits, and forgets
    /// them. To be called after every release. The caller wakes these workers.
    #[must_use]
    pub fn take_waiters(&self) -> u64 {
        fence(SeqCst);
        match self.waiters.load(Relaxed) {
            0 => 0,
            _ => self.waiters.swap(0, AcqRel),
        }
    }

    /// Returns `true` if a worker has found the lock taken and was not returned by
    /// [`take_waiters`](TryLock::take_waiters) since.
    pub fn is_waiting(&self, worker: u16) -> bool {
        self.waiters.load(Acquire) & bit(worker) != 0
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_taken_lock_remembers_who_waits() {
        let lock = TryLock::new(1);
        let inside = lock.try_with(|value| {
            assert_eq!(lock.try_with(|_| ()), None);
            assert_eq!(lock.with_or_register(3, |_| ()), None);
            assert!(lock.is_waiting(3) && !lock.is_waiting(2));
            *value
        });
        assert_eq!((inside, lock.take_waiters(), lock.take_waiters()), (Some(1), 1 << 3, 0));
        assert_eq!(lock.with_or_register(3, |value| *value), Some(1));
        assert!(!lock.is_waiting(3));
    }

    #[test]
    fn the_control_plane_gives_way_until_the_lock_is_free() {
        let (lock, mut waited) = (TryLock::new(0), 0);
        let held = lock.guard();
        let mut held = Some(held);
        lock.with(
            |value| *value += 1,
            || {
                waited += 1;
                drop(held.take());
            },
        );
        assert_eq!((waited, lock.try_with(|value| *value)), (1, Some(1)));
    }
}
