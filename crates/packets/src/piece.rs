//! Pieces: the parts of messages that each travel in one packet. A retransmission sends pieces
//! again, in new packets, on any path, without a copy of a body.

use wire::packets::RecordKind;

use crate::slab::{Linked, NONE};

/// A piece that was cut off a message and is not acknowledged, or a record without a message
/// number.
///
/// A piece stands in one queue: that of a packet in flight, or the association's queue of lost
/// pieces.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The index of the message in the table of messages; [`NONE`] for a record without a message
    /// number.
    pub message: u32,
    /// The number of the message, or the count of a stop or go record.
    pub number: u32,
    /// Offset of the piece in its message; in an open, the channel's serial number.
    pub offset: u32,
    pub next: u32,
    pub bytes: u16,
    /// The channel's number on the wire.
    pub channel: u16,
    pub behind: u16,
    pub kind: PieceKind,
    pub last: bool,
}

const _: () = assert!(size_of::<Option<Piece>>() == 24);

impl Linked for Piece {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// The kinds of records, as a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Data,
    Open,
    Opened,
    End,
    Reset,
    Stop,
    Go,
    Ping,
}

impl PieceKind {
    /// Returns the kind as it stands in a record on the wire.
    pub(crate) fn on_wire(self) -> RecordKind {
        match self {
            PieceKind::Data => RecordKind::DATA,
            PieceKind::Open => RecordKind::OPEN,
            PieceKind::Opened => RecordKind::OPENED,
            PieceKind::End => RecordKind::END,
            PieceKind::Reset => RecordKind::RESET,
            PieceKind::Stop => RecordKind::STOP,
            PieceKind::Go => RecordKind::GO,
            PieceKind::Ping => RecordKind::PING,
        }
    }

    /// Returns the kind of a parsed record. The parser lets no unknown kind through.
    pub(crate) fn of_wire(kind: RecordKind) -> PieceKind {
        match kind {
            RecordKind::DATA => PieceKind::Data,
            RecordKind::OPEN => PieceKind::Open,
            RecordKind::OPENED => PieceKind::Opened,
            RecordKind::END => PieceKind::End,
            RecordKind::RESET => PieceKind::Reset,
            RecordKind::STOP => PieceKind::Stop,
            RecordKind::GO => PieceKind::Go,
            _ => PieceKind::Ping,
        }
    }
}

impl Piece {
    /// Returns the piece of a record without a message number: a reset, stop, go or ping. `count`
    /// is the count of a stop or go.
    pub(crate) fn bare(kind: PieceKind, channel: u16, count: u32) -> Piece {
        Piece {
            message: NONE,
            number: count,
            offset: 0,
            next: NONE,
            bytes: 0,
            channel,
            behind: 0,
            kind,
            last: true,
        }
    }

    /// Shortens the piece to its first `bytes` bytes, and returns the rest.
    pub(crate) fn split(&mut self, bytes: u16) -> Piece {
        let rest = Piece {
            offset: self.offset + u32::from(bytes),
            bytes: self.bytes - bytes,
            next: NONE,
            ..self.clone()
        };
        (self.bytes, self.last) = (bytes, false);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_piece_is_two_neighbours() {
        let mut piece = Piece { bytes: 100, offset: 50, ..Piece::bare(PieceKind::Data, 3, 9) };
        let rest = piece.split(30);
        assert_eq!((piece.offset, piece.bytes, piece.last), (50, 30, false));
        assert_eq!((rest.offset, rest.bytes, rest.last, rest.number), (80, 70, true, 9));
    }

    #[test]
    fn kinds_go_to_the_wire_and_back() {
        for byte in 0..=RecordKind::PING.0 {
            assert_eq!(PieceKind::of_wire(RecordKind(byte)).on_wire(), RecordKind(byte));
        }
    }
}
