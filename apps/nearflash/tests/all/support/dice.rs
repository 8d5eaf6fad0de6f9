//! Random instants for tests that kill a server, from a seed, so that a run can be had again.

/// Random numbers.
pub(crate) struct Dice(u64);

impl Dice {
    /// The numbers of this seed, which is not zero.
    pub(crate) fn of(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Returns a number below this one.
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Returns how often a test is to kill its server: `usual`, or what `NEARFLASH_KILLS` says.
pub(crate) fn kills(usual: u32) -> u32 {
    std::env::var("NEARFLASH_KILLS").map_or(usual, |n| n.parse().expect("a number"))
}
