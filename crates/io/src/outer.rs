//! The outer loop: reads the clock, takes a turn, then spins or parks.

use std::time::Duration;

use contract::{Instant, Turn};

use crate::ring::wait_limit;
use crate::{Clock, Reactor};

/// When to stop spinning.
#[derive(Clone, Copy, Debug)]
pub struct SpinPolicy {
    /// How long after the last progress to look again at once; zero parks at once, the maximum
    /// never parks.
    pub spin: Duration,
}

impl Default for SpinPolicy {
    /// 50 µs: a little more than it costs to sleep and be woken, so spinning never costs more than
    /// twice what the best choice would have.
    fn default() -> Self {
        SpinPolicy { spin: Duration::from_micros(50) }
    }
}

/// Takes turns until one returns `None`. Spins while there is work; parks in the kernel, using no
/// processor time, until the earlier of an event and the turn's `wake_at`.
pub fn run(
    reactor: &impl Reactor,
    clock: &Clock,
    policy: SpinPolicy,
    mut turn: impl FnMut(Instant) -> Option<Turn>,
) {
    let mut progressed_at = clock.now();
    loop {
        let now = clock.now();
        let Some(taken) = turn(now) else { return };
        if taken.progressed {
            progressed_at = now;
        }
        let due = taken.wake_at.is_some_and(|at| at <= now);
        let spin = taken.progressed || due || now.since(progressed_at) < policy.spin;
        let wait = if spin { None } else { Some(wait_limit(now, taken.wake_at)) };
        if !reactor.enter(wait) && spin {
            std::hint::spin_loop();
        }
    }
}
