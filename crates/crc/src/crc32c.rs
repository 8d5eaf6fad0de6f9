//! CRC-32C (Castagnoli): the digest of NVMe/TCP's headers and data, and the checksum of `reflex`
//! version 2, of packets, and of the structures on media.
//!
//! `crc-fast` folds blocks of 384 bytes by carry-less multiplication, from the first multiple of 64
//! on. It takes the rest after the last block word by word, and each step waits for the one before.
//! For a page, these steps are a fifth of the time. So the end of the bytes is cut off and summed
//! separately, which the processor does while it folds. The sums are then combined, modulo the
//! polynomial: `crc(a b) = crc(a) x^(8 len(b)) + crc(b)`.

use crc_fast::{CrcAlgorithm, Digest};

/// The number of bytes that `crc-fast` folds at once; `ALIGN` is the alignment of their start.
const BLOCK_BYTES: usize = 384;
const ALIGN: usize = 64;

/// The granularity in bytes of the end that is cut off and summed separately. The end is shorter
/// than `BLOCK_BYTES`.
const STEP_BYTES: usize = 64;

/// The polynomial of CRC-32C, reflected: bit 31 is x⁰.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// A checksum over bytes that come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The checksum of no bytes.
    pub const EMPTY: Crc32c = Crc32c(0);

    /// Returns the checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> u32 {
        match cut(bytes) {
            Some((first, last, shift)) => {
                let last = crc_fast::crc32_iscsi(last);
                shift.apply(crc_fast::crc32_iscsi(first)) ^ last
            }
            None => crc_fast::crc32_iscsi(bytes),
        }
    }

    /// Continues the checksum with `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = match cut(bytes) {
            Some((first, last, shift)) => {
                let last = crc_fast::crc32_iscsi(last);
                shift.apply(go_on(self.0, first)) ^ last
            }
            None => go_on(self.0, bytes),
        };
    }

    /// Returns the checksum of the bytes added so far.
    pub const fn sum(self) -> u32 {
        self.0
    }

    /// Returns the checksum of `parts`, one behind the other.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
        let mut sum = Crc32c::EMPTY;
        parts.into_iter().for_each(|part| sum.add(part));
        sum.0
    }

    /// Creates a checksum that continues from `sum`, the checksum of earlier bytes.
    pub const fn from_sum(sum: u32) -> Crc32c {
        Crc32c(sum)
    }
}

#[inline]
fn go_on(sum: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!sum));
    digest.update(bytes);
    !(digest.get_state() as u32)
}

/// Splits `bytes` into a part to fold and a part to sum separately, and returns them with the shift
/// by the length of the second part. Returns `None` if the split does not pay.
#[inline]
fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8], &'static Shift)> {
    let before = bytes.as_ptr().align_offset(ALIGN);
    let behind = bytes.len().checked_sub(before).filter(|folded| *folded >= BLOCK_BYTES)?;
    let steps = behind % BLOCK_BYTES / STEP_BYTES;
    let shift = SHIFTS.get(steps.checked_sub(1)?)?;
    let (first, last) = bytes.split_at(bytes.len() - steps * STEP_BYTES);
    Some((first, last, shift))
}

/// The shifts by one, two and more times `STEP_BYTES` bytes, in this order.
static SHIFTS: [Shift; BLOCK_BYTES / STEP_BYTES - 1] = {
    let mut shifts = [const { Shift::by(STEP_BYTES) }; BLOCK_BYTES / STEP_BYTES - 1];
    let mut n = 1;
    while n < shifts.len() {
        shifts[n] = Shift::by((n + 1) * STEP_BYTES);
        n += 1;
    }
    shifts
};

/// A multiplication of a checksum by the power of x that stands for a number of appended bytes, as
/// tables indexed by half bytes of the checksum.
struct Shift([[u32; 16]; 8]);

impl Shift {
    const fn by(bytes: usize) -> Shift {
        let mut table = [[0; 16]; 8];
        let mut bit = 0;
        while bit < 32 {
            let mut product = 1u32 << bit;
            let mut times = 8 * bytes;
            while times > 0 {
                product = product >> 1 ^ if product & 1 == 1 { POLYNOMIAL } else { 0 };
                times -= 1;
            }
            let mut of = 0;
            while of < 16 {
                if of >> (bit % 4) & 1 == 1 {
                    table[bit / 4][of] ^= product;
                }
                of += 1;
            }
            bit += 1;
        }
        Shift(table)
    }

    #[inline]
    fn apply(&self, sum: u32) -> u32 {
        (0..8).fold(0, |product, n| product ^ self.0[n][(sum >> (4 * n)) as usize & 15])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Computes the CRC-32C of `bytes` bit by bit, to compare with.
    fn plain(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 }
            })
        })
    }

    fn some_bytes(len: usize) -> Vec<u8> {
        (0..len as u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
    }

    /// Compares with the check value of CRC-32/ISCSI, and with RFC 3720 B.4.
    #[test]
    fn it_is_castagnolis() {
        assert_eq!(Crc32c::of(b"123456789"), 0xe306_9283);
        assert_eq!(Crc32c::of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(Crc32c::of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(Crc32c::of(&[]), Crc32c::EMPTY.sum());
    }

    #[test]
    fn every_length_from_every_place_is_summed_up_right() {
        let bytes = some_bytes(2000);
        for from in 0..=64 {
            for len in (0..200).chain((200..1800).step_by(7)).chain([384, 448, 640, 768, 1024]) {
                let part = &bytes[from..from + len];
                assert_eq!(Crc32c::of(part), plain(part), "{len} bytes from {from}");
            }
        }
    }

    #[test]
    fn pieces_sum_up_to_the_whole() {
        let bytes = some_bytes(8192);
        let whole = plain(&bytes);
        for cut in (0..=8192).step_by(13) {
            let (first, second) = bytes.split_at(cut);
            let mut sum = Crc32c::EMPTY;
            sum.add(first);
            assert_eq!(sum.sum(), plain(first));
            let mut sum = Crc32c::from_sum(sum.sum());
            sum.add(second);
            assert_eq!(sum.sum(), whole, "cut at {cut}");
            assert_eq!(Crc32c::of_parts([first, second]), whole, "cut at {cut}");
        }
    }
}
