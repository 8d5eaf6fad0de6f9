//! Intended send times: the arrival process of an open loop.

use contract::Instant;

use crate::Random;

/// The distribution of the gaps between arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// Independent arrivals: exponential gaps.
    #[default]
    Poisson,
    /// Evenly spaced arrivals, with reads and writes evenly mixed. Suits a client that paces itself
    /// to a rate of tokens as well as of requests.
    Constant,
}

/// The intended send times of an open loop. They do not depend on the progress of requests: an
/// arrival that finds no free place waits, and its waiting counts.
#[derive(Clone, Debug)]
pub struct Arrivals {
    arrival: Arrival,
    /// Mean gap in nanoseconds.
    gap: f64,
    origin: Instant,
    /// Nanoseconds from `origin` to the next arrival, with the fraction, so that rounding does not
    /// change the rate. (53 bits of nanoseconds are 104 days.)
    next: f64,
}

impl Arrivals {
    /// Returns `per_second` arrivals per second (above zero) from `origin` on.
    pub fn new(arrival: Arrival, per_second: f64, origin: Instant, random: &mut Random) -> Self {
        assert!(per_second > 0.0 && per_second.is_finite(), "a rate is above zero");
        let mut arrivals = Arrivals { arrival, gap: 1e9 / per_second, origin, next: 0.0 };
        arrivals.advance(random);
        arrivals
    }

    /// Returns the intended send time of the next request.
    pub fn next(&self) -> Instant {
        Instant::from_nanos(self.origin.as_nanos() + self.next as u64)
    }

    /// Moves on to the next arrival.
    pub fn advance(&mut self, random: &mut Random) {
        self.next += match self.arrival {
            Arrival::Poisson => random.exponential(self.gap),
            Arrival::Constant => self.gap,
        };
    }

    /// Returns the approximate number of arrivals between the next one and `until`.
    pub fn overdue(&self, until: Instant) -> u64 {
        (until.since(self.next()).as_nanos() as f64 / self.gap) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arrival: Arrival, per_second: f64, count: usize) -> Vec<u64> {
        let mut random = Random::new(3);
        let mut arrivals = Arrivals::new(arrival, per_second, Instant::ZERO, &mut random);
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(arrivals.next().as_nanos());
            arrivals.advance(&mut random);
        }
        times
    }

    #[test]
    fn both_processes_keep_the_rate() {
        // 300 000 a second: the gap is not a whole number of nanoseconds.
        let constant = take(Arrival::Constant, 300_000.0, 300_001);
        assert_eq!(constant[300_000] - constant[0], 1_000_000_000);
        let poisson = take(Arrival::Poisson, 300_000.0, 300_001);
        let seconds = (poisson[300_000] - poisson[0]) as f64 / 1e9;
        // One standard deviation is 0.18 %.
        assert!((0.99..1.01).contains(&seconds), "{seconds}");
    }

    #[test]
    fn poisson_gaps_vary_as_much_as_their_mean() {
        let times = take(Arrival::Poisson, 1_000.0, 100_001);
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.98..1.02).contains(&mean) && (0.95..1.05).contains(&variance));
        // A third of the gaps (1 - 1/e = 63 %) is longer than the mean.
        let long = gaps.iter().filter(|&&g| g > mean).count() as f64 / gaps.len() as f64;
        assert!((0.36..0.376).contains(&long), "{long}");
    }

    #[test]
    fn waiting_arrivals_are_counted() {
        let mut random = Random::new(1);
        let arrivals = Arrivals::new(Arrival::Constant, 1_000.0, Instant::ZERO, &mut random);
        assert_eq!(arrivals.overdue(Instant::from_nanos(11_000_000)), 10);
        assert_eq!(arrivals.overdue(Instant::ZERO), 0);
    }
}
