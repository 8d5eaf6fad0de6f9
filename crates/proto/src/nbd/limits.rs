//! Upper limits for messages of NBD clients, which the server enforces.

use core::time::Duration;

use contract::{BLOCK_BYTES, REQUEST_BYTES_MAX};

/// The most bytes of all options of a connection, with their heads.
pub const OPTIONS_BYTES_MAX: usize = 64 << 10;

/// The longest name of an export, in bytes (the specification's "Conventions").
pub const NAME_BYTES_MAX: usize = 4096;

/// The most bytes of data in a read or a write of a client.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The time in which a client has to choose an export, before its connection is ended.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The number of the meta context `base:allocation` on every connection.
pub(super) const ALLOCATION: u32 = 1;

/// The most requests of a connection that are cut and not answered. Further requests wait.
pub(super) const CUTS_MAX: usize = 16;

/// The most 512-byte blocks of a command to a device, and so of a piece of a cut request.
pub(super) const PIECE_BLOCKS_MAX: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32;
