//! The entrance of packets that name an association: each is checked to come from the peer, before
//! it changes any state.

use wire::packets::TAG_BYTES;

use crate::association::Association;
use crate::head::ParsedHead;
use crate::pools::Pools;
use crate::seals::Seals;
use crate::window::SeenNumbers;

/// The association and the path of a packet that comes from the peer.
pub(crate) struct PacketPath {
    pub association: u32,
    pub path: u32,
    /// Length of the packet in bytes, without the authentication tag at its end.
    pub bytes: usize,
}

/// The reason that a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// The packet belongs to no association or path of this endpoint.
    Unknown,
    /// The packet is not encrypted but its association is, or the other way round.
    Unsealed,
    /// A packet with the same number was received before, so the packet was not decrypted.
    Repeated,
    /// The packet's authentication tag is wrong, so the packet was forged or damaged.
    Forged,
}

/// Decrypts a packet of an association in place and checks its authentication tag, if the endpoint
/// has a key. Returns the packet's length in bytes without the tag. `path` is `None` for a packet
/// that came by a path which is to be added.
///
/// # Errors
/// The reason that the packet is dropped. Nothing but the packet has changed then.
pub(crate) fn open(
    seals: &mut Option<Seals>,
    pools: &Pools,
    (association, path): (&Association, Option<u32>),
    head: &ParsedHead,
    packet: &mut [u8],
) -> Result<usize, DropReason> {
    let Some(seals) = seals else {
        return if head.mark.is_none() { Ok(head.bytes) } else { Err(DropReason::Unsealed) };
    };
    let Some(mark) = head.mark else { return Err(DropReason::Unsealed) };
    let number = match path {
        Some(path) => {
            let path = &pools.paths[path];
            if path.id != mark.path {
                return Err(DropReason::Unknown);
            }
            let seen = &path.receipt.seen;
            let number = seen.complete(head.number, 32);
            if seen.has(number) {
                return Err(DropReason::Repeated);
            }
            number
        }
        None => {
            if association.paths().any(|path| pools.paths[path].id == mark.path) {
                return Err(DropReason::Unknown);
            }
            SeenNumbers::default().complete(head.number, 32)
        }
    };
    match seals.open(association.place, mark, number, packet) {
        true => Ok(head.bytes - TAG_BYTES),
        false => Err(DropReason::Forged),
    }
}
