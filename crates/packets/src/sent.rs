//! The sent window of a path: the state of its last 128 packets.
//!
//! A number is used once (RFC 9000, section 12.3). A packet that was counted as lost stays known
//! until its place is needed, so that a late acknowledgement shows that it was not lost.

use contract::Instant;

use crate::piece::Piece;
use crate::slab::{NONE, Queue, Slab};

/// The number of a path's latest packets that the sent window remembers.
pub(crate) const SENT_MAX: usize = 128;

/// The state of a packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentPacketState {
    /// The peer has the packet, or the packet needed no acknowledgement.
    Done,
    /// The packet is in flight. An acknowledgement or the loss detection ends the state.
    InFlight,
    /// The packet counts as lost; its pieces travel in other packets. A late acknowledgement ends
    /// the state.
    Lost,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacket {
    pub at: Instant,
    /// The index of the first of the packet's pieces; [`NONE`] if it has none.
    pieces: u32,
    number: u32,
    pub bytes: u16,
    pub fate: SentPacketState,
    /// `true` if packets took up at least half of the path's window when the packet was sent.
    pub was_limited: bool,
}

/// The last packets of a path, indexed by their number modulo [`SENT_MAX`].
pub(crate) struct SentWindow {
    packets: [SentPacket; SENT_MAX],
}

const _: () = assert!(size_of::<SentWindow>() == SENT_MAX * 24);

impl SentWindow {
    pub(crate) fn new() -> SentWindow {
        let never = SentPacket {
            at: Instant::ZERO,
            pieces: NONE,
            number: u32::MAX,
            bytes: 0,
            fate: SentPacketState::Done,
            was_limited: false,
        };
        SentWindow { packets: [never; SENT_MAX] }
    }

    /// Returns the packet with this number; `None` if it is not remembered.
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut SentPacket> {
        let packet = &mut self.packets[number as usize % SENT_MAX];
        (packet.number == number as u32).then_some(packet)
    }

    /// Returns the packet whose place packet `number` will take.
    pub(crate) fn evicted(&mut self, number: u64) -> &mut SentPacket {
        &mut self.packets[number as usize % SENT_MAX]
    }

    /// Notes a packet as in flight, with its pieces.
    pub(crate) fn note(
        &mut self,
        number: u64,
        now: Instant,
        bytes: usize,
        pieces: Queue,
        was_limited: bool,
    ) {
        let place = self.evicted(number);
        assert!(place.fate != SentPacketState::InFlight, "a packet in flight is not forgotten");
        *place = SentPacket {
            at: now,
            pieces: pieces.front().unwrap_or(NONE),
            number: number as u32,
            bytes: bytes as u16,
            fate: SentPacketState::InFlight,
            was_limited,
        };
    }
}

impl SentPacket {
    /// Takes the packet out of flight, sets its fate, and moves its pieces to `to`.
    pub(crate) fn land(&mut self, fate: SentPacketState, pieces: &mut Slab<Piece>, to: &mut Queue) {
        self.fate = fate;
        let mut piece = core::mem::replace(&mut self.pieces, NONE);
        while piece != NONE {
            let next = pieces[piece].next;
            to.push(pieces, piece);
            piece = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::PieceKind;

    #[test]
    fn a_packet_is_known_until_its_place_is_taken() {
        let mut pieces = Slab::new(4);
        let mut queue = Queue::EMPTY;
        for count in 0..2 {
            let piece = pieces.take(Piece::bare(PieceKind::Ping, 0, count)).unwrap();
            queue.push(&mut pieces, piece);
        }
        let mut window = SentWindow::new();
        window.note(5, Instant::ZERO, 100, queue, false);
        assert!(window.get(5 + SENT_MAX as u64).is_none() && window.get(4).is_none());
        let mut lost = Queue::EMPTY;
        window.get(5).unwrap().land(SentPacketState::Lost, &mut pieces, &mut lost);
        assert_eq!(window.get(5).unwrap().fate, SentPacketState::Lost);
        let first = lost.pop(&mut pieces).unwrap();
        assert_eq!(pieces[first].number, 0, "the order is kept");
        window.note(5 + SENT_MAX as u64, Instant::ZERO, 1, Queue::EMPTY, false);
        assert!(window.get(5).is_none());
    }
}
