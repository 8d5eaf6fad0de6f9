//! The time at which the memory of closed connections is returned to the system.
//!
//! The allocator keeps memory for reuse. Returning it holds the allocator's locks for some
//! milliseconds, so it happens only when many connections have closed, their number is stable, and
//! not often.

use std::time::Duration;

use contract::Instant;

/// Minimum number of connections that must have closed since memory was last returned.
const LEFT_MIN: u32 = 256;

/// Minimum time between two returns of memory.
const PERIOD: Duration = Duration::from_secs(10);

/// The numbers of connections at earlier checks, from which the time to return memory follows.
#[derive(Debug, Default)]
pub(crate) struct MemoryTrim {
    /// The largest number of connections since memory was last returned.
    most: u32,
    last: u32,
    given_at: Option<Instant>,
}

impl MemoryTrim {
    /// Takes the present number of connections. Returns `true` if memory should be returned to the
    /// system.
    pub(crate) fn look(&mut self, connections: u32, now: Instant) -> bool {
        self.most = self.most.max(connections);
        let is_calm = std::mem::replace(&mut self.last, connections) == connections;
        let is_recent = self.given_at.is_some_and(|at| now.since(at) < PERIOD);
        if !is_calm || is_recent || self.most - connections < LEFT_MIN {
            return false;
        }
        (self.most, self.given_at) = (connections, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds at which memory is given back, of these numbers of connections a second.
    fn given(connections: impl IntoIterator<Item = u32>) -> Vec<u64> {
        let (mut memory_trim, mut given) = (MemoryTrim::default(), Vec::new());
        for (connections, second) in connections.into_iter().zip(1..) {
            if memory_trim.look(connections, Instant::ZERO + Duration::from_secs(second)) {
                given.push(second);
            }
        }
        given
    }

    #[test]
    fn memory_is_given_back_once_when_a_flood_has_gone() {
        assert_eq!(given([0, 2_000, 2_000, 900, 30, 30, 30, 30]), [6]);
        assert!(given([300, 300, 100, 100, 100]).is_empty(), "few have left");
        // One leaves or comes each second, so it is never calm.
        assert!(given((0..50).map(|n| 1_000 - 20 * n)).is_empty());
    }

    #[test]
    fn memory_is_given_back_seldom() {
        let wave = [1_000, 1_000, 10, 10];
        let waves = given(wave.into_iter().cycle().take(48));
        assert!(waves.windows(2).all(|two| two[1] - two[0] >= 10), "{waves:?}");
        assert_eq!(waves, [4, 16, 28, 40]);
    }
}
