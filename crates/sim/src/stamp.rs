//! The contents of blocks: each block names the request that wrote it and its place, and every byte
//! follows from that.

use contract::BLOCK_BYTES;

/// The first word of a stamped block, without the request's number.
const MAGIC: u64 = 0x5eed_b10c_0000_0000;

/// The writer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    /// The block was never written, or was written with zeroes.
    Zero,
    /// The block was written by the request with this number.
    By(u32),
}

/// Fills `data`, the blocks from `lba` on, as the request `op` writes them.
pub(crate) fn fill(op: u32, lba: u64, data: &mut [u8]) {
    for (n, block) in data.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let lba = lba + n as u64;
        let mut word = mixed(op, lba);
        for (k, place) in block.chunks_exact_mut(8).enumerate() {
            let value = match k {
                0 => MAGIC | u64::from(op),
                1 => lba,
                _ => word,
            };
            place.copy_from_slice(&value.to_le_bytes());
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
    }
}

/// Returns the writer of the block that was found at `lba`.
///
/// # Errors
/// Returns a description if the block is torn, belongs elsewhere, or has no writer.
pub(crate) fn read(lba: u64, block: &[u8]) -> Result<Content, String> {
    let word = |k: usize| u64::from_le_bytes(block[8 * k..][..8].try_into().expect("eight bytes"));
    if block == [0; BLOCK_BYTES] {
        return Ok(Content::Zero);
    }
    if word(0) & 0xffff_ffff_0000_0000 != MAGIC {
        return Err(format!("block {lba} holds no stamp: {:02x?}", &block[..32]));
    }
    let op = word(0) as u32;
    if word(1) != lba {
        return Err(format!("block {lba} holds block {} of request {op}", word(1)));
    }
    let first = mixed(op, lba);
    let good = (2..BLOCK_BYTES / 8)
        .all(|k| word(k) == first.wrapping_add((k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    if good { Ok(Content::By(op)) } else { Err(format!("block {lba} of request {op} is torn")) }
}

/// Returns the request that a payload's first block names; `None` if the block has no stamp.
pub(crate) fn writer(payload: &[u8]) -> Option<u32> {
    let word = u64::from_le_bytes(payload.get(..8)?.try_into().ok()?);
    (word & 0xffff_ffff_0000_0000 == MAGIC).then_some(word as u32)
}

fn mixed(op: u32, lba: u64) -> u64 {
    let z = (u64::from(op) << 32 ^ lba).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_says_who_and_where() {
        let mut data = [0; 3 * BLOCK_BYTES];
        fill(7, 100, &mut data);
        assert_eq!(writer(&data), Some(7));
        for n in 0..3 {
            let block = &data[n * BLOCK_BYTES..][..BLOCK_BYTES];
            assert_eq!(read(100 + n as u64, block), Ok(Content::By(7)));
            assert!(read(200, block).is_err(), "of another place");
        }
        data[300] ^= 1;
        assert!(read(100, &data[..BLOCK_BYTES]).unwrap_err().contains("torn"));
        assert_eq!(read(5, &[0; BLOCK_BYTES]), Ok(Content::Zero));
        assert_eq!(writer(&[0; 8]), None);
    }
}
