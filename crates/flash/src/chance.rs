//! Pseudo-random decisions from a seed: equal seeds give equal decisions.

use core::ops::RangeInclusive;

/// A small pseudo-random generator (SplitMix64: Steele, Lea and Flood, OOPSLA 2014). Good enough to
/// pick faults and delays, never a source of secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Returns the generator of this seed.
    pub const fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// Returns the next number, any `u64`.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number of the range, all numbers being almost equally likely (the bias is
    /// below one in 2⁶⁴ divided by the length of the range).
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = range.into_inner();
        assert!(first <= last, "a range must hold a number");
        let length = u128::from(last - first) + 1;
        first + ((u128::from(self.number()) * length) >> 64) as u64
    }

    /// Returns a number below `end`, which is not zero, each about equally likely.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Returns `true` once in `count` times on average.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns an element of a list that is not empty, each about equally likely.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Returns `true` with this probability (0 never, 1 always).
    pub fn happens(&mut self, probability: f64) -> bool {
        let unit = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        unit < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_things_are_certain() {
        let mut chance = Rng::new(1);
        assert!((0..1000).all(|_| chance.happens(1.0)));
        assert!((0..1000).all(|_| !chance.happens(0.0)));
        let hits = (0..10_000).filter(|_| chance.happens(0.25)).count();
        assert!((2200..2800).contains(&hits), "{hits} of 10 000 at one in four");
        let hits = (0..10_000).filter(|_| chance.one_in(4)).count();
        assert!((2200..2800).contains(&hits), "{hits} of 10 000 at one in four");
    }

    #[test]
    fn every_number_of_a_range_comes_up_and_no_other() {
        let mut chance = Rng::new(2);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[(chance.within(7..=10) - 7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 150), "{seen:?}");
        chance.within(0..=u64::MAX);
        let mut picked = [0; 3];
        (0..1000).for_each(|_| picked[*chance.pick(&[0, 1, 2])] += 1);
        assert!(picked.iter().all(|&count| count > 250), "{picked:?}");
    }
}
