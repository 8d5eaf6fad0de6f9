//! Upper limits of NVMe over TCP, at both ends.

/// The most bytes of data in one H2CData that a controller accepts (MAXH2CDATA): the largest
/// request.
pub const DATA_BYTES_MAX: u32 = contract::REQUEST_BYTES_MAX as u32;

/// The most bytes of data in the capsule of a command. Hosts may send this many on an admin queue
/// (section 3.3.1), and here on I/O queues, too.
pub const CAPSULE_DATA_BYTES_MAX: u32 = 8192;

/// The largest supported offset in bytes of data in a PDU. A host whose alignment (HPDA) needs more
/// is refused.
pub const DATA_OFFSET_SERVED_MAX: usize = 32;
