//! A hash by multiplication, for checksums that no CRC within the data makes constant.

/// Number of independent lanes, so that a multiplication need not wait for the one before.
const LANES: usize = 4;

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
    let mut lanes: [u64; LANES] = [1, 2, 3, 4];
    let (pieces, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    debug_assert!(rest.is_empty(), "data are summed in pieces of 32 bytes");
    for piece in pieces {
        for (lane, word) in lanes.iter_mut().zip(piece.as_chunks::<8>().0) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let sum = lanes.iter().fold(0, |sum, lane| mix(sum, *lane));
    let sum = (sum ^ sum >> 32).wrapping_mul(FACTOR);
    (sum >> 32) as u32
}

#[inline]
fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(FACTOR).rotate_left(29)
}
