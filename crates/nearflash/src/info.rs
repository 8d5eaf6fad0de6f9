//! What a namespace is.

use contract::{BLOCK_BYTES, NamespaceInfo};

/// What a namespace is, and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its number on the server.
    pub namespace: u16,
    /// Its size in blocks of 512 bytes.
    pub blocks: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of the granularity at which the device works best.
    pub physical_block_bytes: u32,
    /// The largest atomic write in bytes; zero for none.
    pub atomic_bytes_max: u64,
    /// Whether this client may read.
    pub may_read: bool,
    /// Whether this client may write.
    pub may_write: bool,
    /// Whether acknowledged writes need a flush to be durable.
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
