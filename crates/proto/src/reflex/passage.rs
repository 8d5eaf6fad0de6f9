//! Data on its way through a session of protocol `reflex`: counted, and checked if a checksum came
//! with it.

use contract::Status;
use crc::Crc32c;

/// The bytes of a payload that have not come, and the payload's checksums.
#[derive(Debug)]
pub(super) struct PayloadProgress {
    left: u32,
    /// The checksum that the data should have; `None` if it has none.
    expected: Option<u32>,
    /// The checksum of the bytes so far.
    crc: Crc32c,
}

impl PayloadProgress {
    pub(super) const fn new() -> Self {
        PayloadProgress { left: 0, expected: None, crc: Crc32c::EMPTY }
    }

    /// Restores a passage: the bytes that are left, their checksum if they have one, and the
    /// complement of the checksum so far.
    pub(super) const fn from_parts(left: u32, expected: Option<u32>, crc: u32) -> Self {
        PayloadProgress { left, expected, crc: Crc32c::from_sum(!crc) }
    }

    /// Returns the arguments of [`from_parts`](PayloadProgress::from_parts).
    pub(super) const fn to_parts(&self) -> (u32, Option<u32>, u32) {
        (self.left, self.expected, !self.crc.sum())
    }

    /// Begins a payload of `bytes` bytes, whose CRC-32C must be `expected`; `None` if the payload
    /// has no checksum.
    pub(super) fn begin(&mut self, bytes: u32, expected: Option<u32>) {
        assert!(self.left == 0, "data begins before the data before it has ended");
        *self = PayloadProgress { left: bytes, expected, crc: Crc32c::EMPTY };
    }

    /// Returns `true` if bytes of the data have not come yet.
    pub(super) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Returns the number of bytes that have not come yet.
    pub(super) fn left(&self) -> usize {
        self.left as usize
    }

    /// Takes the next piece, as large as possible, off the front of `input`. The last piece comes
    /// with the status of the checksum. Returns `None` if `input` is empty.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<(&'a [u8], Option<Status>)> {
        if input.is_empty() {
            return None;
        }
        let taken = input.len().min(self.left as usize);
        let (piece, rest) = input.split_at(taken);
        *input = rest;
        self.left -= taken as u32;
        if self.expected.is_some() {
            self.crc.add(piece);
        }
        let is_good = self.expected.is_none_or(|expected| expected == self.crc.sum());
        let verdict = if is_good { Status::Ok } else { Status::BadChecksum };
        let end = (self.left == 0).then_some(verdict);
        Some((piece, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_over_pieces_is_that_of_the_whole() {
        let data: alloc::vec::Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for cut in [1, 17, 500, 999] {
            for (expected, end) in
                [(Crc32c::of(&data), Status::Ok), (Crc32c::of(&data) ^ 1, Status::BadChecksum)]
            {
                let mut passage = PayloadProgress::new();
                passage.begin(1000, Some(expected));
                assert_eq!(passage.next(&mut &data[..cut]), Some((&data[..cut], None)));
                let mut input = &data[cut..];
                assert_eq!(passage.next(&mut input), Some((&data[cut..], Some(end))));
                assert!(!passage.is_open());
            }
        }
    }
}
