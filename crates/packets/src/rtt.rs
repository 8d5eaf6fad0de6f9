//! The round-trip time of a path (RFC 9002, section 5), and its minimum over the last seconds.

use core::time::Duration;

use contract::Instant;

/// The length of an epoch of the least round-trip time. Samples older than two epochs are
/// forgotten, as routes change.
const EPOCH: Duration = Duration::from_secs(10);

/// The shortest silence of the peer after which an acknowledgement is requested for a packet in
/// flight.
const PROBE_MIN: Duration = Duration::from_millis(1);

/// The longest time for which a receiver delays an acknowledgement.
pub(crate) const HOLD_MAX: Duration = Duration::from_micros(100);

/// The estimate of a path's round-trip time, in nanoseconds, without the time for which the peer
/// delayed its acknowledgements.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    smoothed: u32,
    variation: u32,
    latest: u32,
    /// The least sample of a full packet in this epoch and in the previous one. Small packets would
    /// give shorter times, as a full packet takes longer over each link.
    least: [u32; 2],
    epoch: Instant,
    is_guess: bool,
}

impl Default for Rtt {
    /// Begins with a guess for one data centre: a millisecond.
    fn default() -> Rtt {
        Rtt {
            smoothed: 1_000_000,
            variation: 500_000,
            latest: 0,
            least: [u32::MAX; 2],
            epoch: Instant::ZERO,
            is_guess: true,
        }
    }
}

impl Rtt {
    /// Adds a sample: `whole` is the time from sending to the acknowledgement, `held` the time for
    /// which the peer says that it delayed the acknowledgement. `is_full` says that the packet had
    /// at least half the full size.
    pub(crate) fn sample(&mut self, now: Instant, whole: Duration, held: Duration, is_full: bool) {
        let sample = u32::try_from(whole.saturating_sub(held).as_nanos()).unwrap_or(u32::MAX / 2);
        if core::mem::take(&mut self.is_guess) {
            (self.smoothed, self.variation) = (sample, sample / 2);
            self.epoch = now;
        } else {
            let (old, new) = (u64::from(self.smoothed), u64::from(sample));
            self.variation = ((3 * u64::from(self.variation) + old.abs_diff(new)) / 4) as u32;
            self.smoothed = ((7 * old + new) / 8) as u32;
        }
        if now - self.epoch > EPOCH {
            self.least = [u32::MAX, self.least[0]];
            self.epoch = now;
        }
        self.latest = sample;
        if is_full {
            self.least[0] = self.least[0].min(sample);
        }
    }

    /// Forgets the least round-trip time, because full packets have another size from now on.
    pub(crate) fn forget_least(&mut self) {
        self.least = [u32::MAX; 2];
    }

    /// Returns the smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Duration {
        Duration::from_nanos(u64::from(self.smoothed))
    }

    /// Returns the latest sample of the round-trip time.
    pub(crate) fn latest(&self) -> Duration {
        Duration::from_nanos(u64::from(self.latest))
    }

    /// Returns the least sample of a full packet in the last ten to twenty seconds; about four
    /// seconds if there is none.
    pub(crate) fn least(&self) -> Duration {
        Duration::from_nanos(u64::from(self.least[0].min(self.least[1])))
    }

    /// Returns the age from which a packet counts as lost once a later one was acknowledged
    /// (RFC 9002, section 6.1.2).
    pub(crate) fn lost_after(&self) -> Duration {
        self.smoothed().max(self.latest()) * 9 / 8 + Duration::from_micros(1)
    }

    /// Returns the silence after which a probe for an acknowledgement is sent, if `tries` probes
    /// stayed unanswered (RFC 9002, section 6.2.1): between a millisecond and a second.
    pub(crate) fn probe_after(&self, tries: u32) -> Duration {
        let variation = Duration::from_nanos(4 * u64::from(self.variation));
        let once = (self.smoothed() + variation + HOLD_MAX).max(PROBE_MIN);
        (once * (1 << tries.min(10))).min(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn the_first_sample_replaces_the_guess_and_others_are_smoothed() {
        let mut rtt = Rtt::default();
        rtt.sample(Instant::ZERO, 120 * MICRO, 20 * MICRO, true);
        assert_eq!((rtt.smoothed(), rtt.latest()), (100 * MICRO, 100 * MICRO));
        rtt.sample(Instant::ZERO, 180 * MICRO, Duration::ZERO, true);
        assert_eq!(rtt.smoothed(), 110 * MICRO);
        assert_eq!(rtt.variation, 57_500);
        assert_eq!(rtt.least(), 100 * MICRO);
    }

    #[test]
    fn probes_wait_a_millisecond_at_least_and_a_second_at_most() {
        let mut rtt = Rtt::default();
        rtt.sample(Instant::ZERO, 10 * MICRO, Duration::ZERO, true);
        let table = [(0, 1), (1, 2), (5, 32), (10, 1000), (40, 1000)];
        for (tries, millis) in table {
            assert_eq!(rtt.probe_after(tries), Duration::from_millis(millis), "try {tries}");
        }
    }

    #[test]
    fn the_least_round_trip_is_forgotten() {
        let mut rtt = Rtt::default();
        let at = |second| Instant::ZERO + Duration::from_secs(second);
        rtt.sample(at(0), 10 * MICRO, Duration::ZERO, true);
        for second in 1..40 {
            rtt.sample(at(second), 50 * MICRO, Duration::ZERO, true);
            let least = if second <= 21 { 10 } else { 50 };
            assert_eq!(rtt.least(), least * MICRO, "second {second}");
        }
    }

    #[test]
    fn a_peer_that_lies_about_holding_gives_no_negative_time() {
        let mut rtt = Rtt::default();
        rtt.sample(Instant::ZERO, 10 * MICRO, 60_000 * MICRO, true);
        assert_eq!(rtt.latest(), Duration::ZERO);
    }
}
