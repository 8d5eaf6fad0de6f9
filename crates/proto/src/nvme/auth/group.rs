//! The groups of DH-HMAC-CHAP (Base 8.13.5.3): finite fields of RFC 7919 with the generator 2.

use alloc::vec;
use alloc::vec::Vec;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};

/// The size of an exponent in bytes: more than twice the strength of the largest group (RFC 7919,
/// section 5.2).
pub const EXPONENT_BYTES: usize = 64;

/// A Diffie-Hellman group of DH-HMAC-CHAP, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// No Diffie-Hellman exchange (the NULL group).
    Null,
    /// The group ffdhe2048, whose prime has 2048 bits.
    Ffdhe2048,
    /// The group ffdhe3072, whose prime has 3072 bits.
    Ffdhe3072,
    /// The group ffdhe4096, whose prime has 4096 bits.
    Ffdhe4096,
    /// The group ffdhe6144, whose prime has 6144 bits.
    Ffdhe6144,
    /// The group ffdhe8192, whose prime has 8192 bits.
    Ffdhe8192,
}

impl Group {
    /// All groups, in the order in which a controller prefers them: any exchange before none, and
    /// cheaper ones first.
    pub const ALL: [Group; 6] = [
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
        Group::Null,
    ];

    /// Returns the group's identifier in authentication messages.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Returns the group of this identifier; `None` if no group has it.
    pub fn from_id(id: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Returns the size in bytes of the prime, and of public and shared values; zero for
    /// [`Group::Null`].
    pub const fn bytes(self) -> usize {
        match self {
            Group::Null => 0,
            Group::Ffdhe2048 => 256,
            Group::Ffdhe3072 => 384,
            Group::Ffdhe4096 => 512,
            Group::Ffdhe6144 => 768,
            Group::Ffdhe8192 => 1024,
        }
    }

    /// Returns the number X of the prime's formula (RFC 7919, appendix A).
    const fn offset(self) -> u64 {
        match self {
            Group::Null => 0,
            Group::Ffdhe2048 => 560_316,
            Group::Ffdhe3072 => 2_625_351,
            Group::Ffdhe4096 => 5_736_041,
            Group::Ffdhe6144 => 15_705_020,
            Group::Ffdhe8192 => 10_965_728,
        }
    }

    /// Returns the prime, big-endian: 2^b − 2^(b−64) + (⌊2^(b−130) e⌋ + X) 2^64 − 1 of b bits.
    /// Empty for [`Group::Null`].
    pub fn prime(self) -> Vec<u8> {
        let Some(middle) = (self.bytes() / 8).checked_sub(2) else { return Vec::new() };
        // The last term borrows 1 from the digits, which leaves all ones in the lowest word. The
        // highest word, 2^b − 2^(b−64), is all ones as well.
        let mut digits = DIGITS_OF_E[DIGITS_OF_E.len() - middle..].to_vec();
        add_small(&mut digits, self.offset() - 1);
        let words = [u64::MAX].into_iter().chain(digits).chain([u64::MAX]);
        words.rev().flat_map(u64::to_be_bytes).collect()
    }

    /// Returns the computation of an exponent's public value, a power of 2; `None` for
    /// [`Group::Null`].
    pub fn public(self, exponent: [u8; EXPONENT_BYTES]) -> Option<ModularPower> {
        let mut base = vec![0; self.bytes()];
        *base.last_mut()? = 2;
        Some(ModularPower { group: self, base, exponent })
    }

    /// Returns the computation of the value shared with the other end, from its public value and an
    /// exponent. Returns `None` if the public value is invalid (RFC 7919, section 5.1): wrong in
    /// length, or not above 1 and below the prime less 1.
    pub fn shared(self, public: &[u8], exponent: [u8; EXPONENT_BYTES]) -> Option<ModularPower> {
        if self == Group::Null || public.len() != self.bytes() {
            return None;
        }
        let mut most = self.prime();
        *most.last_mut()? -= 1;
        let (last, rest) = public.split_last()?;
        let above_one = *last > 1 || rest.iter().any(|byte| *byte != 0);
        let is_good = above_one && *public < *most;
        is_good.then(|| ModularPower { group: self, base: public.to_vec(), exponent })
    }
}

/// A modular exponentiation to compute, which takes from half a millisecond to some tens of
/// milliseconds.
#[derive(Clone)]
pub struct ModularPower {
    group: Group,
    /// The base, big-endian: a number below the prime, in as many bytes.
    base: Vec<u8>,
    exponent: [u8; EXPONENT_BYTES],
}

impl core::fmt::Debug for ModularPower {
    /// Prints the group without the exponent, which is secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ModularPower({:?})", self.group)
    }
}

impl ModularPower {
    /// Computes the power, big-endian and as long as the prime. Takes the same time for all
    /// exponents.
    pub fn raise(&self) -> Vec<u8> {
        let bits = self.group.bytes() as u32 * 8;
        let number = |bytes: &[u8], bits| {
            BoxedUint::from_be_slice(bytes, bits).expect("as long as its precision")
        };
        let prime = number(&self.group.prime(), bits);
        let prime = Odd::new(prime).into_option().expect("a prime above 2 is odd");
        let params = BoxedMontyParams::new(prime);
        let base = BoxedMontyForm::new(number(&self.base, bits), &params);
        let exponent = number(&self.exponent, EXPONENT_BYTES as u32 * 8);
        base.pow(&exponent).retrieve().to_be_bytes().into_vec()
    }
}

/// The words of ⌊2^(b−130) e⌋ for the largest group, of b = 8192 bits, the lowest word first. The
/// highest words are also the number for a group of fewer bits.
static DIGITS_OF_E: [u64; DIGIT_WORDS] = digits_of_e();

const DIGIT_WORDS: usize = Group::Ffdhe8192.bytes() / 8 - 2;

/// Computes [`DIGITS_OF_E`] as the sum of the inverses of factorials, with 128 bits more than are
/// kept.
const fn digits_of_e() -> [u64; DIGIT_WORDS] {
    const GUARD_WORDS: usize = 2;
    const WORDS: usize = DIGIT_WORDS + GUARD_WORDS;
    let mut term = [0; WORDS];
    // Two bits of the highest word stand before the point.
    term[WORDS - 1] = 1 << 62;
    let mut sum = [0; WORDS];
    let mut divisor = 1_u128;
    // The words of the term from here on are zero.
    let mut used = WORDS;
    while used > 0 {
        let mut carry = false;
        let mut n = 0;
        while n < WORDS {
            let (once, first) = u64::overflowing_add(sum[n], term[n]);
            let (twice, second) = once.overflowing_add(carry as u64);
            (sum[n], carry) = (twice, first || second);
            n += 1;
        }
        let mut rest = 0;
        n = used;
        while n > 0 {
            n -= 1;
            let whole = rest << 64 | term[n] as u128;
            term[n] = (whole / divisor) as u64;
            rest = whole % divisor;
        }
        while used > 0 && term[used - 1] == 0 {
            used -= 1;
        }
        divisor += 1;
    }
    let mut digits = [0; DIGIT_WORDS];
    let mut n = 0;
    while n < DIGIT_WORDS {
        digits[n] = sum[n + GUARD_WORDS];
        n += 1;
    }
    digits
}

fn add_small(number: &mut [u64], small: u64) {
    let mut carry = small;
    for word in number {
        let (sum, overflows) = word.overflowing_add(carry);
        (*word, carry) = (sum, u64::from(overflows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares words with RFC 7919, appendix A: the second of each prime, and the last but one.
    #[test]
    fn primes_are_those_of_the_rfc() {
        for (group, last) in [
            (Group::Ffdhe2048, 0x886b_4238_6128_5c97),
            (Group::Ffdhe3072, 0x25e4_1d2b_66c6_2e37),
            (Group::Ffdhe4096, 0xc68a_007e_5e65_5f6a),
            (Group::Ffdhe6144, 0xa40e_329c_d0e4_0e65),
            (Group::Ffdhe8192, 0xd68c_8bb7_c5c6_424c_u64),
        ] {
            let prime = group.prime();
            let words: Vec<u64> = prime
                .chunks_exact(8)
                .map(|word| u64::from_be_bytes(word.try_into().unwrap()))
                .collect();
            assert_eq!(prime.len(), group.bytes());
            assert_eq!(words[..2], [u64::MAX, 0xadf8_5458_a2bb_4a9a], "{group:?}");
            assert_eq!(words[words.len() - 2..], [last, u64::MAX], "{group:?}");
        }
    }

    /// Compares hashes of the smallest and the largest prime, and of a power of 2 in each, with
    /// those of another implementation.
    #[test]
    fn powers_are_those_of_another_implementation() {
        use crate::nvme::auth::Hash;
        let hash = |bytes: &[u8]| Hash::Sha256.digest(bytes)[..8].to_vec();
        for (group, prime, power) in [
            (Group::Ffdhe2048, 0x9cd3_b7f3_3687_2f46_u64, 0x128d_5210_732d_85f7_u64),
            (Group::Ffdhe8192, 0x770b_14ef_af6f_0499, 0xafcd_4037_0739_419f),
        ] {
            assert_eq!(hash(&group.prime()), prime.to_be_bytes());
            let raised = group.public([0x5a; EXPONENT_BYTES]).unwrap().raise();
            assert_eq!(hash(&raised), power.to_be_bytes());
        }
    }

    #[test]
    fn both_ends_share_a_value() {
        for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
            let (one, two) = ([0x5a; EXPONENT_BYTES], [0xc3; EXPONENT_BYTES]);
            let public = |exponent| group.public(exponent).unwrap().raise();
            let (public_one, public_two) = (public(one), public(two));
            let shared = group.shared(&public_two, one).unwrap().raise();
            assert_eq!(group.shared(&public_one, two).unwrap().raise(), shared);
            assert_ne!(public_one, public_two);
        }
    }

    #[test]
    fn values_that_would_give_the_secret_away_are_refused() {
        let group = Group::Ffdhe2048;
        let exponent = [1; EXPONENT_BYTES];
        let prime = group.prime();
        let value = |last: u8, prime: &[u8]| {
            let mut value = prime.to_vec();
            *value.last_mut().unwrap() = last;
            value
        };
        let zeroes = [0; 256];
        for bad in [value(0, &zeroes), value(1, &zeroes), value(0xff, &prime), value(0xfe, &prime)]
        {
            assert!(group.shared(&bad, exponent).is_none());
        }
        assert!(group.shared(&value(2, &zeroes), exponent).is_some());
        assert!(group.shared(&value(0xfd, &prime), exponent).is_some());
        assert!(group.shared(&[2; 255], exponent).is_none());
    }
}
