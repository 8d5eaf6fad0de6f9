//! A hash by multiplication, for checksums that no CRC within the data makes constant.

/// Number of bytes that four independent lanes take at a time, so that a multiplication need not wait
/// for the one before.
const PIECE_BYTES: usize = 32;

/// Odd, with bits set at random: 2⁶⁴ over the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a hash of `bytes`, whose number is a multiple of 32.
///
/// A CRC alone does not tell whether data was written. Hosts end their own structures with CRCs,
/// and the CRC of such a structure, its own at the end, is one number for all contents: data that
/// lay there before would be taken for data that was never written. No linear code of a host can
/// make this hash constant. A CRC beside it tells all small changes apart. The hash has no key, and
/// is no defence against collisions that are looked for.
pub fn product_hash(bytes: &[u8]) -> u32 {
    // The lanes are variables, so that they stay in registers however the compiler optimises.
    let (mut a, mut b, mut c, mut d) = (1, 2, 3, 4);
    let (pieces, rest) = bytes.as_chunks::<PIECE_BYTES>();
    debug_assert!(rest.is_empty(), "data are summed in pieces of 32 bytes");
    for piece in pieces {
        let ([first, second, third, fourth], []) = piece.as_chunks::<8>() else { continue };
        a = mix(a, u64::from_le_bytes(*first));
        b = mix(b, u64::from_le_bytes(*second));
        c = mix(c, u64::from_le_bytes(*third));
        d = mix(d, u64::from_le_bytes(*fourth));
    }
    let sum = mix(mix(mix(mix(0, a), b), c), d);
    let sum = (sum ^ sum >> 32).wrapping_mul(FACTOR);
    (sum >> 32) as u32
}

#[inline(always)]
fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(FACTOR).rotate_left(29)
}
