//! The outer loop: reads the clock, takes a turn, then spins or parks.

use std::time::Duration;

use contract::{Instant, TurnOutcome};

use crate::{Clock, Reactor};

/// A rule for when the outer loop stops spinning and parks.
#[derive(Clone, Copy, Debug)]
pub struct SpinPolicy {
    /// Time after the last progress for which the loop spins. Zero parks at once, the maximum never
    /// parks.
    pub spin: Duration,
}

impl Default for SpinPolicy {
    /// Returns 50 µs: a little more than sleeping and waking costs, so spinning costs at most twice
    /// the optimum.
    fn default() -> Self {
        SpinPolicy { spin: Duration::from_micros(50) }
    }
}

/// Runs turns until one returns `None`. Spins while turns progress, and for `policy.spin` after the
/// last that did. Then parks in the kernel, using no processor time, until an event or the turn's
/// `wake_at`.
///
/// The kernel wakes a thread some tens of microseconds late, which would add to latencies. So a
/// park ends `policy.spin` before `wake_at`, and the loop spins for the rest. It spins all of a
/// wait that is shorter.
pub fn run(
    reactor: &impl Reactor,
    clock: &Clock,
    policy: SpinPolicy,
    mut turn: impl FnMut(Instant) -> Option<TurnOutcome>,
) {
    let mut progressed_at = clock.now();
    loop {
        let now = clock.now();
        let Some(taken) = turn(now) else { return };
        if taken.progressed {
            progressed_at = now;
        }
        let spin = taken.progressed || now.since(progressed_at) < policy.spin;
        let wait = if spin { None } else { park(now, taken.wake_at, policy) };
        if !reactor.enter(wait) && wait.is_none() {
            std::hint::spin_loop();
        }
    }
}

/// Returns how long to park from `now` on (`Some(None)`: until an event); `None` if `wake_at` is
/// too near for a park.
fn park(now: Instant, wake_at: Option<Instant>, policy: SpinPolicy) -> Option<Option<Duration>> {
    let Some(at) = wake_at else { return Some(None) };
    let left = at.since(now);
    if left <= policy.spin { None } else { Some(Some(left - policy.spin)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_park_ends_early_and_a_short_one_is_spun() {
        let policy = SpinPolicy { spin: Duration::from_micros(50) };
        let now = Instant::from_nanos(1_000_000);
        let in_micros = |micros| Some(now + Duration::from_micros(micros));
        assert_eq!(park(now, None, policy), Some(None));
        assert_eq!(park(now, in_micros(0), policy), None);
        assert_eq!(park(now, in_micros(50), policy), None);
        assert_eq!(park(now, in_micros(80), policy), Some(Some(Duration::from_micros(30))));
        assert_eq!(park(now, Some(Instant::ZERO), policy), None, "a time that is over is due");
        let parks_at_once = SpinPolicy { spin: Duration::ZERO };
        let all = Some(Some(Duration::from_micros(80)));
        assert_eq!(park(now, in_micros(80), parks_at_once), all);
        assert_eq!(park(now, in_micros(0), parks_at_once), None);
    }
}
