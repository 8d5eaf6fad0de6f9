//! Repeatable random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// A generator of random numbers. Equal seeds give equal sequences.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns the next random number of 64 bits.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a random number below `end`, which must be small so that the bias does not matter.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }
}
