//! Waiting with a time limit: for a condition, and for a lock that a slow disk may hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use control::admin::{Code, Problem};
use io::Clock;

/// The time limit for a change to take effect on all workers, and for devices to finish the
/// requests that the change forbids.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(8);

/// The time that a change waits for the lock after another change has waited in vain.
const STUCK_MAX: Duration = Duration::from_millis(10);

/// The pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits for a condition until the time limit; returns `false` if it did not become true.
pub(crate) fn until(clock: &Clock, most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = clock.now() + most;
    while !is_so() {
        if clock.now() >= end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Takes the lock of changes. Waits a while for the change under way, or hardly at all after
/// another caller has waited in vain (`is_stuck`). So a disk that hangs holds few threads.
///
/// # Errors
/// Fails if it is locked for long.
pub(crate) fn lock_soon<'a, T>(
    clock: &Clock,
    mutex: &'a Mutex<T>,
    is_stuck: &AtomicBool,
) -> Result<MutexGuard<'a, T>, Problem> {
    let try_lock = || match mutex.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        locked => Some(locked.expect("no holder of this lock panics")),
    };
    let mut locked = try_lock();
    if locked.is_none() {
        // Whoever was slow may be done since.
        let was_stuck = is_stuck.load(Ordering::Acquire);
        until(clock, if was_stuck { STUCK_MAX } else { SETTLE_MAX }, || {
            locked = try_lock();
            locked.is_some()
        });
    }
    is_stuck.store(locked.is_none(), Ordering::Release);
    locked.ok_or_else(|| {
        let seconds = SETTLE_MAX.as_secs();
        let message = format!(
            "another change has been under way for {seconds} s: the disk of the state file, or of a \
             device, does not answer; nothing was changed"
        );
        Problem::new(Code::Busy, message)
    })
}
