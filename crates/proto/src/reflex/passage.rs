//! Data on its way through a session: counted, and checked where a checksum came with it.

use contract::Status;
use crc_fast::{CrcAlgorithm, Digest};

/// The state of a CRC-32C before its first byte.
const CRC_START: u32 = u32::MAX;

/// CRC-32C (Castagnoli) of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// What is left of the data that follows a head.
#[derive(Debug)]
pub(super) struct Passage {
    left: u32,
    /// The checksum that the data should have.
    expected: Option<u32>,
    /// The checksum's state after the bytes that have passed.
    crc: u32,
}

impl Passage {
    pub(super) const fn new() -> Self {
        Passage { left: 0, expected: None, crc: CRC_START }
    }

    /// One in the middle: bytes that are left, their checksum if they have one, and its state.
    pub(super) const fn from_parts(left: u32, expected: Option<u32>, crc: u32) -> Self {
        Passage { left, expected, crc }
    }

    /// What [`from_parts`](Passage::from_parts) takes.
    pub(super) const fn to_parts(&self) -> (u32, Option<u32>, u32) {
        (self.left, self.expected, self.crc)
    }

    /// Expects `bytes` bytes, with this checksum if they have one.
    pub(super) fn begin(&mut self, bytes: u32, expected: Option<u32>) {
        assert!(self.left == 0, "data begins before the data before it has ended");
        *self = Passage { left: bytes, expected, crc: CRC_START };
    }

    /// Whether bytes are still to come.
    pub(super) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Bytes that are still to come.
    pub(super) fn left(&self) -> usize {
        self.left as usize
    }

    /// Takes the next piece, as large as possible, off the front of `input`; with the last one
    /// comes whether the checksum was good. `None` when `input` is empty.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<(&'a [u8], Option<Status>)> {
        if input.is_empty() {
            return None;
        }
        let taken = input.len().min(self.left as usize);
        let (piece, rest) = input.split_at(taken);
        *input = rest;
        self.left -= taken as u32;
        if self.expected.is_some() {
            let state = u64::from(self.crc);
            let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
            digest.update(piece);
            self.crc = digest.get_state() as u32;
        }
        let is_good = self.expected.is_none_or(|expected| expected == !self.crc);
        let verdict = if is_good { Status::Ok } else { Status::BadChecksum };
        let end = (self.left == 0).then_some(verdict);
        Some((piece, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32/ISCSI, and RFC 3720 B.4's of 32 zeroes.
    #[test]
    fn checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn checksum_over_pieces_is_that_of_the_whole() {
        let data: alloc::vec::Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for cut in [1, 17, 500, 999] {
            for (expected, end) in
                [(crc32c(&data), Status::Ok), (crc32c(&data) ^ 1, Status::BadChecksum)]
            {
                let mut passage = Passage::new();
                passage.begin(1000, Some(expected));
                assert_eq!(passage.next(&mut &data[..cut]), Some((&data[..cut], None)));
                let mut input = &data[cut..];
                assert_eq!(passage.next(&mut input), Some((&data[cut..], Some(end))));
                assert!(!passage.is_open());
            }
        }
    }
}
