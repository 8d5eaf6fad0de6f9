//! The door for packets of associations: whether a packet is the peer's. Nothing changes before that
//! is known.

use wire::packets::TAG_BYTES;

use crate::association::Association;
use crate::head::Head;
use crate::pools::Pools;
use crate::seals::Seals;
use crate::window::Seen;

/// A packet that was let in.
pub(crate) struct Entered {
    pub association: u32,
    pub path: u32,
    /// Bytes of the packet without the proof behind it.
    pub bytes: usize,
}

/// The reason that a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// No association or path of ours has the packet.
    Unknown,
    /// The packet is not sealed, but its association is; or the other way round.
    Unsealed,
    /// A packet with this number was received before, so this one was not opened.
    Repeated,
    /// The seal is wrong.
    Forged,
}

/// Opens a packet of an association in place, if the association is sealed. Returns its bytes
/// without the proof. `path` is `None` for a packet that came by a path which is to be added.
///
/// # Errors
/// The reason that the packet is dropped. Nothing but the packet has changed then.
pub(crate) fn open(
    seals: &mut Option<Seals>,
    pools: &Pools,
    (association, path): (&Association, Option<u32>),
    head: &Head,
    packet: &mut [u8],
) -> Result<usize, Dropped> {
    let Some(seals) = seals else {
        return if head.mark.is_none() { Ok(head.bytes) } else { Err(Dropped::Unsealed) };
    };
    let Some(mark) = head.mark else { return Err(Dropped::Unsealed) };
    let number = match path {
        Some(path) => {
            let path = &pools.paths[path];
            if path.id != mark.path {
                return Err(Dropped::Unknown);
            }
            let seen = &path.receipt.seen;
            let number = seen.complete(head.number, 32);
            if seen.has(number) {
                return Err(Dropped::Repeated);
            }
            number
        }
        None => {
            if association.paths().any(|path| pools.paths[path].id == mark.path) {
                return Err(Dropped::Unknown);
            }
            Seen::default().complete(head.number, 32)
        }
    };
    match seals.open(association.place, mark, number, packet) {
        true => Ok(head.bytes - TAG_BYTES),
        false => Err(Dropped::Forged),
    }
}
