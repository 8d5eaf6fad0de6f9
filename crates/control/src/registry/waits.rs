//! The time for which workers waited for processors, between two readings of their meters.

use std::sync::Arc;
use std::time::Duration;

use contract::Meters;

/// The total time for which each worker had waited for a processor at the last reading.
#[derive(Debug, Default)]
pub(super) struct Waits {
    seen: Vec<Duration>,
}

impl Waits {
    /// Returns the longest time since the last reading for which a worker waited for a processor.
    pub(super) fn look(&mut self, meters: &[Arc<Meters>]) -> Duration {
        let now: Vec<Duration> = meters.iter().map(|meters| meters.worker.waited()).collect();
        let before = self.seen.iter().copied().chain(std::iter::repeat(Duration::ZERO));
        let since = now.iter().zip(before).map(|(now, before)| now.saturating_sub(before));
        let most = since.max().unwrap_or_default();
        self.seen = now;
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_that_waited_most_counts() {
        let meters = [0, 1].map(|_| Arc::new(Meters::new(1)));
        let wait = |worker: usize, millis| {
            meters[worker].worker.set_waited(Duration::from_millis(millis));
        };
        let mut waits = Waits::default();
        assert_eq!(waits.look(&meters), Duration::ZERO);
        wait(0, 5);
        wait(1, 7);
        assert_eq!(waits.look(&meters), Duration::from_millis(7));
        wait(0, 9);
        assert_eq!(waits.look(&meters), Duration::from_millis(4));
        assert_eq!(waits.look(&meters), Duration::ZERO);
    }
}
