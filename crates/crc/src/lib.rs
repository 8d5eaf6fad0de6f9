//! Checksums of messages and of media: CRC-32C and CRC-32, compiled once for all who use them, and a
//! hash for what CRCs alone do not tell.
//!
//! The CRCs come from the library `crc-fast`. Its code is generic, and a good part of each crate
//! that calls it; so no other crate does.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod crc32c;
mod product_hash;

pub use crc32c::Crc32c;
pub use product_hash::product_hash;

/// Returns the CRC-32 (ISO-HDLC, the one of Ethernet and gzip) of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

#[cfg(test)]
mod tests {
    /// The check value of CRC-32/ISO-HDLC.
    #[test]
    fn crc32_is_the_one_of_ethernet() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
