//! Random numbers for tests that kill a server at random instants. They come from a seed, so that a
//! run can be repeated.

/// A generator of random numbers (xorshift).
pub(crate) struct Rng(u64);

impl Rng {
    /// Returns the generator of this seed, which is not zero.
    pub(crate) fn of(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns a number that is less than `below`.
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Returns how often a test kills its server: `NEARFLASH_KILLS`, or `usual`.
pub(crate) fn kills(usual: u32) -> u32 {
    std::env::var("NEARFLASH_KILLS").map_or(usual, |n| n.parse().expect("a number"))
}
