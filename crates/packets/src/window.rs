//! The window of the latest packet numbers, with a bit for each number that was seen.

/// The numbers seen lately: the highest, and the 255 before it. Older numbers count as seen, so a
/// repeated packet is never new (the anti-replay window of RFC 4303, section 3.4.3).
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenNumbers {
    /// The highest number seen, plus one; zero if none was.
    next: u64,
    /// Bit `n`, counted over all words: number `next` − 1 − `n` was seen.
    bits: [u64; 4],
}

/// Number of the latest numbers that a window remembers.
pub(crate) const SEEN_MAX: u64 = 256;

impl SeenNumbers {
    /// Returns the highest number seen; `None` if none was.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Returns the full number of a packet from its lower `bits` bits: the number closest to the
    /// next expected one (RFC 9000, appendix A.3). `bits` is 16 or 32.
    pub(crate) fn complete(&self, low: u32, bits: u32) -> u64 {
        let (span, half) = (1u64 << bits, 1u64 << (bits - 1));
        let near = (self.next & !(span - 1)) | u64::from(low) & (span - 1);
        if near + half <= self.next {
            near + span
        } else if near > self.next + half && near >= span {
            near - span
        } else {
            near
        }
    }

    /// Returns `true` if the number was seen, or is older than the window.
    pub(crate) fn has(&self, number: u64) -> bool {
        match self.next.checked_sub(number) {
            None | Some(0) => false,
            Some(back) if back > SEEN_MAX => true,
            Some(back) => self.bits[(back - 1) as usize / 64] >> ((back - 1) % 64) & 1 == 1,
        }
    }

    /// Notes a number as seen. Returns `false` if it was seen before, or is older than the window.
    pub(crate) fn note(&mut self, number: u64) -> bool {
        if self.has(number) {
            return false;
        }
        if number >= self.next {
            self.shift(number - self.next + 1);
            self.next = number + 1;
        }
        let back = self.next - 1 - number;
        self.bits[back as usize / 64] |= 1 << (back % 64);
        true
    }

    /// Returns which of the 64 numbers before the highest were seen: bit `n` is number
    /// `highest` − 1 − `n`.
    pub(crate) fn before(&self) -> u64 {
        self.bits[0] >> 1 | self.bits[1] << 63
    }

    fn shift(&mut self, by: u64) {
        if by >= SEEN_MAX {
            self.bits = [0; 4];
            return;
        }
        let (words, bits) = ((by / 64) as usize, by % 64);
        for at in (0..4).rev() {
            let low = if at >= words { self.bits[at - words] << bits } else { 0 };
            let carry = match at.checked_sub(words + 1) {
                Some(below) if bits > 0 => self.bits[below] >> (64 - bits),
                _ => 0,
            };
            self.bits[at] = low | carry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_number_is_new_once() {
        let mut seen = SeenNumbers::default();
        assert_eq!(seen.highest(), None);
        for (number, is_new) in [
            (3, true),
            (3, false),
            (0, true),
            (300, true),
            (3, false),
            (44, false),
            (45, true),
            (45, false),
            (299, true),
            (1000, true),
            (744, false),
            (745, true),
        ] {
            assert_eq!(seen.note(number), is_new, "{number}");
        }
        assert_eq!(seen.highest(), Some(1000));
    }

    #[test]
    fn acknowledgements_name_the_sixty_four_before() {
        let mut seen = SeenNumbers::default();
        for number in [0, 1, 3, 4] {
            seen.note(number);
        }
        assert_eq!(seen.before(), 0b1101);
        for number in [2].into_iter().chain(5..70) {
            seen.note(number);
        }
        assert_eq!(seen.before(), u64::MAX);
    }

    #[test]
    fn lower_halves_complete_to_the_nearest_number() {
        let mut seen = SeenNumbers::default();
        assert_eq!(seen.complete(5, 32), 5);
        seen.note((1 << 32) - 2);
        for (low, whole) in [(u32::MAX, u64::from(u32::MAX)), (0, 1 << 32), (7, (1 << 32) + 7)] {
            assert_eq!(seen.complete(low, 32), whole);
        }
        seen.note((1 << 32) + 1);
        assert_eq!(seen.complete(u32::MAX, 32), u64::from(u32::MAX));
        assert_eq!(seen.complete(3, 16), (1 << 32) + 3);
        assert_eq!(seen.complete(0xfff0, 16), (1 << 32) - 16);
    }

    proptest::proptest! {
        #[test]
        fn it_is_a_set_with_a_horizon(steps in proptest::collection::vec(0u64..900, 1..300)) {
            let (mut seen, mut model) = (SeenNumbers::default(), BTreeSet::new());
            for number in steps {
                let horizon = seen.highest().map_or(0, |highest| (highest + 1).saturating_sub(256));
                let is_new = number >= horizon && !model.contains(&number);
                assert_eq!(seen.note(number), is_new);
                model.insert(number);
                let highest = seen.highest().unwrap();
                for back in 0..64 {
                    let was = highest.checked_sub(1 + back).is_some_and(|n| model.contains(&n));
                    assert_eq!(seen.before() >> back & 1 == 1, was);
                }
            }
        }
    }
}
