//! The one clock: monotonic nanoseconds.

use contract::Instant;

/// Reads the monotonic clock. The outer loop asks it once a turn; nothing in a turn does.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// Starts a clock whose origin is now. Instants of different clocks must not be mixed; clone
    /// one to share it.
    #[expect(clippy::disallowed_methods, reason = "this is where time is made")]
    pub fn start() -> Self {
        Clock { origin: std::time::Instant::now() }
    }

    /// Nanoseconds of the machine's own clock, whose origin is that of all its processes outside of
    /// time namespaces: for comparisons with another process.
    pub fn machine_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// Returns the time since the origin.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}
