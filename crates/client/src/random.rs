//! Pseudo-random numbers from a seed: xoshiro256++ (Blackman and Vigna), seeded by splitmix64.
//!
//! Not for secrets. Equal seeds give equal sequences on every machine and in every version; for
//! that reason the algorithm is written out here.

/// A seeded pseudo-random generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Returns the generator of this seed.
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        let mut split = || {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = at;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Random { state: [split(), split(), split(), split()] }
    }

    /// Returns the next 64 pseudo-random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let out = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        out
    }

    /// Returns a number below `bound`, which is not zero; each is equally likely (to one in 2⁶⁴ /
    /// `bound`).
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1), a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a waiting time of the exponential distribution with the mean `mean`, in the same
    /// unit.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // `1 - unit` lies in (0, 1], so the logarithm is finite.
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let take = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn numbers_fill_their_range_evenly() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        let mean = (0..100_000).map(|_| random.exponential(4.0)).sum::<f64>() / 100_000.0;
        assert!((3.9..4.1).contains(&mean), "{mean}");
    }
}
