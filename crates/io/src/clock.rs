//! The one clock: monotonic nanoseconds.

use std::time::Duration;

use contract::Instant;

/// Reads the monotonic clock. The outer loop reads it once a turn; the code within a turn does not.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The machine's nanoseconds at the origin.
    origin: u64,
}

impl Clock {
    /// Starts a clock whose origin is now. Instants of different clocks must not be mixed; clones
    /// share the origin.
    pub fn start() -> Self {
        Clock { origin: machine_nanos() }
    }

    /// Returns the machine's nanoseconds at the origin, for [`now_since`](Clock::now_since).
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Returns the time since the origin of a clock.
    pub fn now_since(origin: u64) -> Instant {
        Instant::from_nanos(machine_nanos() - origin)
    }

    /// Returns the nanoseconds of the machine's own clock, whose origin all processes share outside
    /// of time namespaces, for comparisons with another process.
    pub fn machine_nanos(&self) -> u64 {
        machine_nanos()
    }

    /// Returns the time since the origin.
    pub fn now(&self) -> Instant {
        Clock::now_since(self.origin)
    }
}

/// Returns the time of day, as time since 1970. It may jump; nothing is measured by it.
pub fn since_1970() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}

fn machine_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
