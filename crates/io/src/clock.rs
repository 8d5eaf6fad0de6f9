//! The one clock: monotonic nanoseconds.

use std::time::Duration;

use contract::Instant;

/// A monotonic clock of nanoseconds since an origin. The outer loop reads it once a turn; the code
/// within a turn does not.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The machine's monotonic time at this clock's origin, in nanoseconds.
    origin: u64,
}

impl Clock {
    /// Starts a clock whose origin is now. Instants of different clocks must not be mixed; clones
    /// share the origin.
    pub fn start() -> Self {
        Clock { origin: machine_nanos() }
    }

    /// Returns the machine's monotonic time at this clock's origin, in nanoseconds, for
    /// [`now_since`](Clock::now_since).
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Returns the time since `origin`, the [origin](Clock::origin) of a clock of this machine, in
    /// nanoseconds.
    pub fn now_since(origin: u64) -> Instant {
        Instant::from_nanos(machine_nanos() - origin)
    }

    /// Returns the nanoseconds of the machine's monotonic clock. All processes share its origin,
    /// except across time namespaces, so that times of two processes can be compared.
    pub fn machine_nanos(&self) -> u64 {
        machine_nanos()
    }

    /// Returns the time since this clock's origin.
    pub fn now(&self) -> Instant {
        Clock::now_since(self.origin)
    }
}

/// The clock of a turn's instants, for code that must know the time within a turn. Its origin is the
/// least difference of the machine's clock and an instant that the turn has just read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnClock {
    origin: u64,
}

impl TurnClock {
    /// A clock that has not seen a turn yet.
    pub(crate) const NEW: TurnClock = TurnClock { origin: u64::MAX };

    /// Notes the instant of a turn that has just begun.
    pub(crate) fn begin(&mut self, turn: Instant) {
        self.origin = self.origin.min(machine_nanos().saturating_sub(turn.as_nanos()));
    }

    /// Returns the present time, which is not before the instant of the turn.
    pub(crate) fn now(&self, turn: Instant) -> Instant {
        Instant::from_nanos(machine_nanos().saturating_sub(self.origin)).max(turn)
    }
}

/// Returns the time of day, as the time since 1970. It may jump, so nothing is measured by it.
pub fn since_1970() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}

fn machine_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
