//! Instants: times of a monotonic clock that are passed as arguments.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on a monotonic clock, in nanoseconds since an origin that only the maker knows.
///
/// `io`'s outer loop (once per turn) or the simulated world makes instants; all other code receives
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Instant = Instant(0);

    /// Returns the instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this instant; zero if the clock seems to have gone back.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    /// Returns the instant `rhs` later, at most the end of the clock (584 years after its origin).
    fn add(self, rhs: Duration) -> Instant {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// Returns the instant `by` earlier, or the first one of all.
    fn sub(self, by: Duration) -> Instant {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(self.as_nanos().saturating_sub(by))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, rhs: Instant) -> Duration {
        self.since(rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_go_negative() {
        let (a, b) = (Instant::from_nanos(5), Instant::from_nanos(9));
        assert_eq!(b - a, Duration::from_nanos(4));
        assert_eq!(a - b, Duration::ZERO);
        assert_eq!(
            Instant::from_nanos(u64::MAX) + Duration::from_secs(1),
            Instant::from_nanos(u64::MAX)
        );
    }
}
