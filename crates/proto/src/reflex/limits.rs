//! Upper limits of protocol `reflex`, at both ends.

use contract::{BLOCK_BYTES, REQUEST_BYTES_MAX};

/// The number of streams of a connection; stream numbers are below it.
pub const STREAMS_MAX: u8 = 8;

/// The most blocks of a range whose data travels. Discards and writes of zeroes may have more in
/// version 2.
pub const REQUEST_BLOCKS_MAX: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32;

/// The longest payload in bytes: that of the largest compare-and-write.
pub const PAYLOAD_BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX;
