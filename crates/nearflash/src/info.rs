//! The properties of a namespace.

use contract::{BLOCK_BYTES, NamespaceInfo};

/// The properties of a namespace, and the client's rights to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Number of the namespace on the server.
    pub namespace: u16,
    /// Size in blocks of 512 bytes.
    pub blocks: u64,
    /// Size of the namespace in bytes.
    pub bytes: u64,
    /// Size in bytes of the pieces in which the device works best: multiples of it, aligned to it.
    pub physical_block_bytes: u32,
    /// Maximum size of an atomic write in bytes; zero for none.
    pub atomic_bytes_max: u64,
    /// `true` if this client may read.
    pub may_read: bool,
    /// `true` if this client may write.
    pub may_write: bool,
    /// `true` if acknowledged writes become durable only with a flush.
    pub needs_flush: bool,
}

impl From<NamespaceInfo> for Info {
    fn from(info: NamespaceInfo) -> Info {
        let block = BLOCK_BYTES as u64;
        Info {
            namespace: info.namespace.0,
            blocks: info.blocks,
            bytes: info.blocks.saturating_mul(block),
            physical_block_bytes: info.physical_block_bytes,
            atomic_bytes_max: u64::from(info.atomic_blocks_max) * block,
            may_read: info.rights.read,
            may_write: info.rights.write,
            needs_flush: info.volatile_cache,
        }
    }
}
