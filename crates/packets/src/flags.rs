//! 128 flags for consecutive numbers, in a window that moves forward.

/// A flag for each of 128 consecutive numbers, which are counted from the first one of the window.
/// The flags take two words, so that a channel fits into two cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags([u64; 2]);

impl Flags {
    /// The window with no flag set.
    pub(crate) const NONE: Flags = Flags([0; 2]);

    fn whole(self) -> u128 {
        u128::from(self.0[1]) << 64 | u128::from(self.0[0])
    }

    /// Returns the flag of the number at position `n` of the window, which is below 128.
    pub(crate) fn has(self, n: u32) -> bool {
        self.whole() >> n & 1 == 1
    }

    /// Returns `true` if the flags of all positions below `n` are set.
    pub(crate) fn has_all_below(self, n: u32) -> bool {
        self.whole().trailing_ones() >= n.min(128)
    }

    /// Sets the flag of the number at position `n` of the window, which is below 128.
    pub(crate) fn set(&mut self, n: u32) {
        self.0[n as usize / 64] |= 1 << (n % 64);
    }

    /// Moves the window past the flags that are set at its beginning. Returns the number of flags
    /// passed.
    pub(crate) fn pass(&mut self) -> u32 {
        let done = self.whole().trailing_ones();
        let rest = if done == 128 { 0 } else { self.whole() >> done };
        self.0 = [rest as u64, (rest >> 64) as u64];
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_moves_behind_set_flags() {
        let mut flags = Flags::NONE;
        for n in [1, 0, 2, 4, 100] {
            flags.set(n);
        }
        assert!(flags.has_all_below(3) && !flags.has_all_below(4));
        assert_eq!(flags.pass(), 3);
        assert!(!flags.has(0) && flags.has(1) && flags.has(97));
        (0..128).for_each(|n| flags.set(n));
        assert!(flags.has_all_below(500));
        assert_eq!(flags.pass(), 128);
        assert_eq!(flags, Flags::NONE);
    }
}
