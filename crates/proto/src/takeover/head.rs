//! The head of a message: 24 bytes. They will be the same in every version, so that each version
//! can tell another why it is refused.
//!
//! The format is little-endian: magic `nftk` (4 bytes), version (2), kind (2), ticket (8), length
//! of the body (4), number of descriptors (2), zero (2).

use super::bytes::{Reader, Writer};
use super::{BODY_BYTES_MAX, TakeoverRefusal, VERSION};

const MAGIC: [u8; 4] = *b"nftk";

/// The kind of a message between the old and the new process of a take-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum TakeoverKind {
    /// From the new process: the wish to take over, and the process's identity.
    Hello = 1,
    /// From the old process: its configuration, which does not change from now on.
    Inventory = 2,
    /// From the old process: the descriptors of its devices' files.
    Files = 3,
    /// From the old process: the descriptors of its listeners.
    Listeners = 4,
    /// From the new process: it is ready to serve.
    Ready = 5,
    /// From the old process: it has stopped accepting connections, and begins to send its
    /// connections.
    Still = 6,
    /// From the old process: connections ([`parcels`](super::parcels)), with their sockets in the
    /// same order. The ticket is the time at which they left, in nanoseconds of the machine's
    /// clock.
    Parcels = 7,
    /// From the new process: it can serve these connections ([`tickets`](super::tickets)).
    Taken = 8,
    /// From the new process: it cannot take the connection of this ticket, with the reason.
    Refused = 9,
    /// From the old process: these connections now belong to the new process.
    Yours = 10,
    /// From the old process: all connections that can move have moved; everything else is handed
    /// over, too.
    Commit = 11,
    /// From the new process: it serves, and the take-over cannot be aborted any more.
    Committed = 12,
    /// From the old process: none of its threads runs any more.
    Rest = 13,
    /// From either process: it aborts the hand-over, with the reason. Never sent after `Committed`.
    Stop = 14,
    /// From the old process: the state that its NVMe controllers share, which does not change until
    /// the last one is handed over.
    Fabric = 15,
    /// From the old process: an NVMe controller with the connections of all its queues
    /// ([`controller`](super::controller)), and their sockets in the same order. The ticket is as
    /// with `Parcels`. The answer is for all of them, with the ticket of the first.
    Controller = 16,
    /// From the old process: the state of a volume at rest, as a descriptor of memory. The ticket
    /// is the index of its device there.
    Volume = 17,
}

impl TakeoverKind {
    const ALL: [TakeoverKind; 17] = [
        TakeoverKind::Hello,
        TakeoverKind::Inventory,
        TakeoverKind::Files,
        TakeoverKind::Listeners,
        TakeoverKind::Ready,
        TakeoverKind::Still,
        TakeoverKind::Parcels,
        TakeoverKind::Taken,
        TakeoverKind::Refused,
        TakeoverKind::Yours,
        TakeoverKind::Commit,
        TakeoverKind::Committed,
        TakeoverKind::Rest,
        TakeoverKind::Stop,
        TakeoverKind::Fabric,
        TakeoverKind::Controller,
        TakeoverKind::Volume,
    ];
}

/// The head of a take-over message, which states the kind and length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverHead {
    /// The kind of the message.
    pub kind: TakeoverKind,
    /// The ticket of the connection concerned, or a time; zero if neither.
    pub ticket: u64,
    /// The length of the body in bytes.
    pub body_bytes: usize,
    /// The number of descriptors that come with the head's first byte.
    pub descriptors: u16,
}

impl TakeoverHead {
    /// The size of a head in bytes.
    pub const BYTES: usize = 24;

    /// Encodes the head in the format of this module.
    ///
    /// # Errors
    /// Returns [`TakeoverRefusal::TooLarge`] if the body is larger than a message may be.
    pub fn to_bytes(self) -> Result<[u8; TakeoverHead::BYTES], TakeoverRefusal> {
        if self.body_bytes > BODY_BYTES_MAX {
            return Err(TakeoverRefusal::TooLarge);
        }
        let mut to = Writer::default();
        to.put(MAGIC);
        to.put(VERSION.to_le_bytes());
        to.put((self.kind as u16).to_le_bytes());
        to.put(self.ticket.to_le_bytes());
        to.count(self.body_bytes)?;
        to.put(self.descriptors.to_le_bytes());
        to.put([0; 2]);
        Ok(to.0.try_into().expect("the fields make a head"))
    }

    /// Decodes the head of a message of the other process.
    ///
    /// # Errors
    /// Returns a [`TakeoverRefusal`] if the bytes are foreign, of another version, of an unknown
    /// kind, or of too large a message.
    pub fn parse(bytes: &[u8; TakeoverHead::BYTES]) -> Result<TakeoverHead, TakeoverRefusal> {
        let from = &mut Reader(bytes);
        if from.array()? != MAGIC {
            return Err(TakeoverRefusal::Foreign);
        }
        let version = from.u16()?;
        if version != VERSION {
            return Err(TakeoverRefusal::Version(version));
        }
        let number = usize::from(from.u16()?);
        let kind = number.checked_sub(1).and_then(|index| TakeoverKind::ALL.get(index));
        let head = TakeoverHead {
            kind: *kind.ok_or(TakeoverRefusal::Value("kind"))?,
            ticket: from.u64()?,
            body_bytes: from.u32()? as usize,
            descriptors: from.u16()?,
        };
        match from.u16()? {
            _ if head.body_bytes > BODY_BYTES_MAX => Err(TakeoverRefusal::TooLarge),
            0 => Ok(head),
            _ => Err(TakeoverRefusal::Value("head")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_was_said() {
        for (n, kind) in TakeoverKind::ALL.into_iter().enumerate() {
            let (ticket, descriptors) = (u64::MAX - n as u64, n as u16);
            let head = TakeoverHead { kind, ticket, body_bytes: n * 1000, descriptors };
            assert_eq!(TakeoverHead::parse(&head.to_bytes().unwrap()), Ok(head));
        }
    }

    #[test]
    fn other_heads_are_refused() {
        let good =
            TakeoverHead { kind: TakeoverKind::Hello, ticket: 0, body_bytes: 0, descriptors: 0 };
        let good = good.to_bytes().unwrap();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            TakeoverHead::parse(&bytes)
        };
        assert_eq!(with(0, b'x'), Err(TakeoverRefusal::Foreign));
        assert_eq!(with(4, 9), Err(TakeoverRefusal::Version(9)));
        assert_eq!(with(6, 0), Err(TakeoverRefusal::Value("kind")));
        assert_eq!(with(6, 18), Err(TakeoverRefusal::Value("kind")));
        assert_eq!(with(19, 0xff), Err(TakeoverRefusal::TooLarge));
        assert_eq!(with(23, 1), Err(TakeoverRefusal::Value("head")));
        let largest =
            TakeoverHead { body_bytes: BODY_BYTES_MAX, ..TakeoverHead::parse(&good).unwrap() };
        assert_eq!(TakeoverHead::parse(&largest.to_bytes().unwrap()), Ok(largest));
        let large = TakeoverHead {
            kind: TakeoverKind::Parcels,
            ticket: 0,
            body_bytes: usize::MAX,
            descriptors: 1,
        };
        assert_eq!(large.to_bytes(), Err(TakeoverRefusal::TooLarge));
    }
}
