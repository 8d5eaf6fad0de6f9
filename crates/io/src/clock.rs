//! The one clock: monotonic nanoseconds.

use contract::Instant;

/// Reads the monotonic clock. The outer loop asks it once a turn; nothing in a turn does.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// A clock whose origin is now. Instants of different clocks must not be mixed; clone one to
    /// share it.
    #[expect(clippy::disallowed_methods, reason = "this is where time is made")]
    pub fn start() -> Self {
        Clock { origin: std::time::Instant::now() }
    }

    /// The time since the origin.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}
