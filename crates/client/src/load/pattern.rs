//! Address patterns: the order in which a load visits its places.

use crate::Random;

/// The order in which a load visits the addresses of its range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pattern {
    /// All block positions are equally likely.
    #[default]
    Random,
    /// Places in ascending order, round and round.
    Sequential,
    /// The place of rank k has probability proportional to k^(-theta); ranks are scattered over the
    /// span.
    Zipf {
        /// The exponent, at least zero (zero is random); YCSB's is 0.99.
        theta: f64,
    },
}

/// A generator of the places that a load visits. Places divide the load's range into pieces as
/// large as a request, numbered from zero.
#[derive(Clone, Debug)]
pub struct Places {
    count: u64,
    kind: PatternState,
}

#[derive(Clone, Debug)]
enum PatternState {
    Random,
    Sequential { next: u64 },
    Zipf { zipf: Zipf, stride: u64 },
}

impl Places {
    /// Returns a generator of `count` places.
    pub fn new(pattern: Pattern, count: u64) -> Self {
        assert!(count > 0, "there is a place to draw");
        let kind = match pattern {
            Pattern::Random => PatternState::Random,
            Pattern::Sequential => PatternState::Sequential { next: 0 },
            Pattern::Zipf { theta } => {
                PatternState::Zipf { zipf: Zipf::new(count, theta), stride: stride(count) }
            }
        };
        Places { count, kind }
    }

    /// Returns the position of the next request, from 0 to below the number of positions.
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        let count = self.count;
        match &mut self.kind {
            PatternState::Random => random.below(count),
            PatternState::Sequential { next } => {
                let place = *next;
                *next = if place + 1 == count { 0 } else { place + 1 };
                place
            }
            PatternState::Zipf { zipf, stride } => {
                let rank = zipf.draw(random) - 1;
                (u128::from(rank) * u128::from(*stride) % u128::from(count)) as u64
            }
        }
    }
}

/// Returns a step that visits each of `count` places once. The step has no common divisor with
/// `count` and is near the golden section, so that neighbouring ranks land far apart.
fn stride(count: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (count as f64 * 0.618_033_988_749_895) as u64;
    (golden.max(1)..).find(|&step| divisor(step, count) == 1).expect("one more than a multiple")
}

/// The Zipf distribution on 1..=count by rejection inversion (Hörmann and Derflinger, 1996). The
/// inverse of a smooth hat's integral proposes a rank, which is kept with the share of the hat that
/// the true weight fills. Constant time and memory, exact for every exponent.
#[derive(Clone, Debug)]
struct Zipf {
    count: u64,
    theta: f64,
    /// The hat's integral at 1.5, less the weight of rank 1.
    area_low: f64,
    /// The hat's integral at `count` + 0.5.
    area_high: f64,
    /// Maximum distance below their rank at which proposals are always kept.
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        assert!(theta >= 0.0 && theta.is_finite(), "an exponent is at least zero");
        let mut zipf = Zipf { count, theta, area_low: 0.0, area_high: 0.0, squeeze: 0.0 };
        zipf.area_low = zipf.area(1.5) - 1.0;
        zipf.area_high = zipf.area(count as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_high + random.unit() * (self.area_low - self.area_high);
            let x = self.area_inverse(area);
            let rank = (x + 0.5).clamp(1.0, self.count as f64).floor();
            if rank - x <= self.squeeze || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Returns the integral of x^(-theta) from 1 to `x`: (x^(1-theta) - 1) / (1 - theta).
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let exponent = (1.0 - self.theta) * log;
        log * if exponent.abs() > 1e-8 {
            exponent.exp_m1() / exponent
        } else {
            1.0 + exponent / 2.0
        }
    }

    /// Returns the x whose area is `area`: (1 + area (1-theta))^(1/(1-theta)).
    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        let log = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 };
        (log * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: Pattern, places: u64, draws: usize) -> Vec<u32> {
        let mut random = Random::new(5);
        let mut drawn = Places::new(pattern, places);
        let mut seen = vec![0; places as usize];
        for _ in 0..draws {
            seen[drawn.draw(&mut random) as usize] += 1;
        }
        seen
    }

    #[test]
    fn sequential_goes_round() {
        assert_eq!(counts(Pattern::Sequential, 4, 10), [3, 3, 2, 2]);
    }

    /// Compares the most frequent places with the definition.
    fn zipf_has_its_shape(theta: f64) {
        let (places, draws) = (1000u64, 400_000);
        let mut seen = counts(Pattern::Zipf { theta }, places, draws);
        seen.sort_unstable_by_key(|&n| std::cmp::Reverse(n));
        let total: f64 = (1..=places).map(|k| (k as f64).powf(-theta)).sum();
        for rank in [1u32, 2, 3, 10, 30] {
            let expected = f64::from(rank).powf(-theta) / total * draws as f64;
            let found = f64::from(seen[rank as usize - 1]);
            // Four standard deviations, and room for neighbours that change places in the sort.
            let slack = 4.0 * expected.sqrt() + 0.02 * expected;
            assert!(
                (found - expected).abs() < slack,
                "theta {theta} rank {rank}: {found} {expected}"
            );
        }
    }

    #[test]
    fn zipf_follows_its_definition() {
        for theta in [0.5, 0.99, 1.0, 1.5] {
            zipf_has_its_shape(theta);
        }
    }

    #[test]
    fn zipf_zero_is_uniform_and_one_place_is_certain() {
        let seen = counts(Pattern::Zipf { theta: 0.0 }, 10, 100_000);
        assert!(seen.iter().all(|&n| (9_600..10_400).contains(&n)), "{seen:?}");
        assert_eq!(counts(Pattern::Zipf { theta: 1.2 }, 1, 5), [5]);
    }

    #[test]
    fn ranks_are_scattered_each_to_its_own_place() {
        for count in [1u64, 2, 3, 1000, 262_144] {
            let step = stride(count);
            let mut seen = vec![false; count as usize];
            for rank in 0..count {
                seen[(rank * step % count) as usize] = true;
            }
            assert!(seen.iter().all(|&s| s));
        }
        assert!(stride(262_144) > 100_000);
    }
}
