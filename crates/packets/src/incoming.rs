//! The receiving half of a channel: delivers each message once, whole, and not before the messages
//! below its floor.
//!
//! A message is delivered when all messages below its floor were delivered. The lowest undelivered
//! message is delivered piece by piece, as its bytes come in order; later messages are delivered
//! when they are complete. While a message is partly delivered, no other message of the channel is.

use crate::flags::Flags;
use crate::piece::PieceKind;
use crate::slab::{Linked, NONE, Slab};

/// The number of messages that the receiver tracks, counted from the lowest undelivered one.
pub(crate) const MESSAGES_MAX: u32 = 128;

/// A piece that has arrived and waits for its delivery.
#[derive(Clone, Debug)]
pub(crate) struct HeldPiece {
    /// The index of the chunk with the piece's bytes; [`NONE`] for a piece without bytes.
    pub chunk: u32,
    /// Offset of the bytes in the chunk.
    pub at: u32,
    /// Offset of the bytes in the message.
    pub offset: u32,
    pub message: u32,
    pub next: u32,
    pub bytes: u16,
    pub behind: u16,
    pub kind: PieceKind,
    pub last: bool,
}

impl Linked for HeldPiece {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl HeldPiece {
    fn end(&self) -> u32 {
        self.offset + u32::from(self.bytes)
    }

    /// Removes the first `bytes` bytes of the piece.
    fn skip(&mut self, bytes: u32) {
        (self.at, self.offset) = (self.at + bytes, self.offset + bytes);
        self.bytes -= bytes as u16;
    }
}

/// The outcome of placing a piece that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementOutcome {
    /// The piece has new bytes, which are kept until they are delivered.
    Kept,
    /// The piece has no new bytes, so it is dropped.
    Known,
    /// There is no room for the piece, so its packet must not be acknowledged.
    Refused,
}

/// The reason that a piece leaves the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    /// The piece is delivered.
    Due,
    /// The piece lies beyond the end of its message, and is dropped.
    Stray,
}

/// The receiving half of a channel.
#[derive(Debug)]
pub(crate) struct ReceivingHalf {
    /// Bit `n`: message `below` + n was delivered. Bit 0 is clear.
    delivered: Flags,
    /// The number of the lowest message that was not wholly delivered.
    below: u32,
    /// Number of bytes of message `below` that were delivered.
    progress: u32,
    /// The index of the first waiting piece. The pieces are linked in order of message and offset,
    /// and do not overlap.
    first: u32,
    pub is_paused: bool,
}

impl ReceivingHalf {
    pub(crate) fn new() -> ReceivingHalf {
        ReceivingHalf {
            delivered: Flags::NONE,
            below: 0,
            progress: 0,
            first: NONE,
            is_paused: false,
        }
    }

    /// Returns `true` if a piece is delivered as soon as it arrives, and so does not wait in the
    /// table.
    pub(crate) fn is_due(&self, piece: &HeldPiece) -> bool {
        let is_next = piece.message == self.below && piece.offset <= self.progress;
        let is_whole = piece.offset == 0 && piece.last && self.progress == 0;
        let passes = is_whole && self.is_above_floor(piece.message, piece.behind);
        !self.is_paused && (is_next || passes)
    }

    /// Stores a piece that arrived. Stored pieces that the new one covers go to `freed`.
    pub(crate) fn place(
        &mut self,
        holds: &mut Slab<HeldPiece>,
        mut piece: HeldPiece,
        mut freed: impl FnMut(HeldPiece),
    ) -> PlacementOutcome {
        let ahead = piece.message.wrapping_sub(self.below);
        if ahead > u32::MAX / 2 || ahead < MESSAGES_MAX && self.delivered.has(ahead) {
            return PlacementOutcome::Known;
        }
        if ahead >= MESSAGES_MAX {
            return PlacementOutcome::Refused;
        }
        if ahead == 0 && piece.offset < self.progress {
            if piece.end() <= self.progress && !piece.last {
                return PlacementOutcome::Known;
            }
            piece.skip((self.progress - piece.offset).min(u32::from(piece.bytes)));
        }
        // Walk to the place of the piece, and cut off what is held already.
        let (mut before, mut at) = (NONE, self.first);
        while at != NONE {
            let held = &holds[at];
            let held_ahead = held.message.wrapping_sub(self.below);
            if held_ahead > ahead || held_ahead == ahead && held.offset >= piece.end() {
                break;
            }
            if held_ahead == ahead && held.end() >= piece.offset {
                let covers = held.offset <= piece.offset && held.end() >= piece.end();
                if covers && (held.last || !piece.last) {
                    return PlacementOutcome::Known;
                }
                if held.offset < piece.offset {
                    piece.skip((held.end() - piece.offset).min(u32::from(piece.bytes)));
                } else if held.end() <= piece.end() {
                    piece.last |= held.last;
                    let next = held.next;
                    self.unlink(holds, before, at, next);
                    freed(holds.give(at));
                    at = next;
                    continue;
                } else if held.offset == piece.offset {
                    return PlacementOutcome::Known;
                } else {
                    (piece.bytes, piece.last) = ((held.offset - piece.offset) as u16, false);
                    break;
                }
            }
            (before, at) = (at, holds[at].next);
        }
        piece.next = at;
        let Some(place) = holds.take(piece) else { return PlacementOutcome::Refused };
        match before {
            NONE => self.first = place,
            before => holds[before].next = place,
        }
        PlacementOutcome::Kept
    }

    fn unlink(&mut self, holds: &mut Slab<HeldPiece>, before: u32, at: u32, next: u32) {
        match before {
            NONE => self.first = next,
            before => holds[before].next = next,
        }
        holds[at].next = NONE;
    }

    /// Passes every piece that may be delivered now to `up`, and removes it from the table.
    pub(crate) fn deliver(
        &mut self,
        holds: &mut Slab<HeldPiece>,
        mut up: impl FnMut(HeldPiece, RemovalReason),
    ) {
        while !self.is_paused && self.first != NONE {
            let first = &holds[self.first];
            if first.message == self.below {
                if first.offset != self.progress {
                    // The lowest message misses bytes. If none went up, others may pass it.
                    if self.progress > 0 || !self.deliver_whole(holds, &mut up) {
                        return;
                    }
                    continue;
                }
                let (message, last) = (first.message, first.last);
                self.progress = first.end();
                up(self.pop(holds, NONE), RemovalReason::Due);
                if last {
                    self.forget_rest(holds, NONE, message, &mut up);
                    self.note(message);
                }
            } else if self.progress > 0 || !self.deliver_whole(holds, &mut up) {
                return;
            }
        }
    }

    /// Delivers the lowest message that is complete and whose floor is reached. Returns `false` if
    /// there is none.
    fn deliver_whole(
        &mut self,
        holds: &mut Slab<HeldPiece>,
        up: &mut impl FnMut(HeldPiece, RemovalReason),
    ) -> bool {
        let (mut before, mut at) = (NONE, self.first);
        while at != NONE {
            let message = holds[at].message;
            let is_due = self.is_above_floor(message, holds[at].behind);
            let (mut end, mut whole, mut last_at, mut walk) = (0, false, at, at);
            while walk != NONE && holds[walk].message == message {
                let piece = &holds[walk];
                if piece.offset == end && !whole {
                    (end, whole) = (piece.end(), piece.last);
                }
                (last_at, walk) = (walk, piece.next);
            }
            if is_due && whole {
                let mut is_over = false;
                while !is_over {
                    let piece = self.pop(holds, before);
                    is_over = piece.last;
                    up(piece, RemovalReason::Due);
                }
                self.forget_rest(holds, before, message, up);
                self.note(message);
                return true;
            }
            (before, at) = (last_at, walk);
        }
        false
    }

    /// Removes and returns the piece that follows piece `before`, or the first one if `before` is
    /// [`NONE`].
    fn pop(&mut self, holds: &mut Slab<HeldPiece>, before: u32) -> HeldPiece {
        let at = if before == NONE { self.first } else { holds[before].next };
        let next = holds[at].next;
        self.unlink(holds, before, at, next);
        holds.give(at)
    }

    /// Returns `true` if a message's floor is reached: all messages numbered below `message -
    /// behind` were delivered.
    fn is_above_floor(&self, message: u32, behind: u16) -> bool {
        let ahead = message.wrapping_sub(self.below);
        let floor = ahead.saturating_sub(u32::from(behind));
        self.delivered.has_all_below(floor)
    }

    /// Drops the pieces of a message that lie beyond its end, which only a malicious peer sends.
    /// The pieces follow piece `before` in the list.
    fn forget_rest(
        &mut self,
        holds: &mut Slab<HeldPiece>,
        before: u32,
        message: u32,
        up: &mut impl FnMut(HeldPiece, RemovalReason),
    ) {
        loop {
            let at = if before == NONE { self.first } else { holds[before].next };
            if at == NONE || holds[at].message != message {
                return;
            }
            up(self.pop(holds, before), RemovalReason::Stray);
        }
    }

    fn note(&mut self, message: u32) {
        self.delivered.set(message.wrapping_sub(self.below));
        if message == self.below {
            self.progress = 0;
        }
        self.below = self.below.wrapping_add(self.delivered.pass());
    }

    /// Removes every piece that waits for its delivery.
    pub(crate) fn clear(&mut self, holds: &mut Slab<HeldPiece>, mut freed: impl FnMut(HeldPiece)) {
        while self.first != NONE {
            freed(self.pop(holds, NONE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// A message of the model: its floor, and the ends of its pieces.
    #[derive(Debug)]
    struct ModelMessage {
        behind: u16,
        ends: Vec<u32>,
    }

    fn piece(message: u32, behind: u16, offset: u32, end: u32, last: bool) -> HeldPiece {
        HeldPiece {
            chunk: NONE,
            at: offset,
            offset,
            message,
            next: NONE,
            bytes: (end - offset) as u16,
            behind,
            kind: PieceKind::Data,
            last,
        }
    }

    /// Places a piece and returns the pieces that are delivered then: message, offset and end.
    fn give(
        incoming: &mut ReceivingHalf,
        holds: &mut Slab<HeldPiece>,
        piece: HeldPiece,
    ) -> Vec<(u32, u32, u32)> {
        incoming.place(holds, piece, |_| ());
        let mut up = Vec::new();
        incoming.deliver(holds, |hold, turn| {
            assert_eq!(turn, RemovalReason::Due);
            up.push((hold.message, hold.offset, hold.end()));
        });
        up
    }

    #[test]
    fn messages_pass_each_other_down_to_the_floor() {
        let (mut incoming, mut holds) = (ReceivingHalf::new(), Slab::new(16));
        let mut give = |piece| give(&mut incoming, &mut holds, piece);
        // Free messages 1 and 2 behind the strict message 0; strict message 3.
        assert_eq!(give(piece(3, 0, 0, 8, true)), []);
        assert_eq!(give(piece(2, 1, 0, 8, true)), [], "message 0 is the floor");
        assert_eq!(give(piece(0, 0, 0, 8, true)), [(0, 0, 8), (2, 0, 8)]);
        assert_eq!(give(piece(2, 1, 0, 8, true)), [], "once");
        assert_eq!(give(piece(1, 0, 0, 8, true)), [(1, 0, 8), (3, 0, 8)]);
        assert_eq!(holds.taken(), 0);
    }

    #[test]
    fn the_lowest_message_goes_up_in_pieces_and_others_wait() {
        let (mut incoming, mut holds) = (ReceivingHalf::new(), Slab::new(16));
        let mut give = |piece| give(&mut incoming, &mut holds, piece);
        assert_eq!(give(piece(0, 0, 0, 100, false)), [(0, 0, 100)]);
        assert_eq!(give(piece(1, 1, 0, 8, true)), [], "a message is partly delivered");
        assert_eq!(give(piece(0, 0, 200, 300, true)), []);
        assert_eq!(give(piece(0, 0, 50, 120, false)), [(0, 100, 120)]);
        assert_eq!(give(piece(0, 0, 120, 220, false)), [(0, 120, 200), (0, 200, 300), (1, 0, 8)]);
        assert_eq!(holds.taken(), 0);
    }

    #[test]
    fn a_pause_holds_everything_and_an_empty_message_is_one() {
        let (mut incoming, mut holds) = (ReceivingHalf::new(), Slab::new(16));
        incoming.is_paused = true;
        assert_eq!(give(&mut incoming, &mut holds, piece(0, 0, 0, 0, true)), []);
        incoming.is_paused = false;
        assert_eq!(
            give(&mut incoming, &mut holds, piece(1, 0, 0, 1, true)),
            [(0, 0, 0), (1, 0, 1)]
        );
    }

    #[test]
    fn what_has_no_place_is_refused() {
        let (mut incoming, mut holds) = (ReceivingHalf::new(), Slab::new(1));
        let mut place = |piece| incoming.place(&mut holds, piece, |_| ());
        assert_eq!(place(piece(MESSAGES_MAX, 0, 0, 1, true)), PlacementOutcome::Refused);
        assert_eq!(
            place(piece(u32::MAX, 0, 0, 1, true)),
            PlacementOutcome::Known,
            "below the window"
        );
        assert_eq!(place(piece(5, 0, 0, 1, true)), PlacementOutcome::Kept);
        assert_eq!(place(piece(6, 0, 0, 1, true)), PlacementOutcome::Refused, "the table is full");
        assert_eq!(place(piece(5, 0, 0, 1, true)), PlacementOutcome::Known);
    }

    #[test]
    fn pieces_behind_the_end_are_dropped() {
        let (mut incoming, mut holds) = (ReceivingHalf::new(), Slab::new(8));
        incoming.place(&mut holds, piece(1, 1, 8, 20, false), |_| ());
        incoming.place(&mut holds, piece(1, 1, 0, 4, true), |_| ());
        let mut turns = Vec::new();
        incoming.deliver(&mut holds, |hold, turn| turns.push((hold.offset, turn)));
        assert_eq!(turns, [(0, RemovalReason::Due), (8, RemovalReason::Stray)]);
        assert_eq!(holds.taken(), 0);
    }

    /// Generates messages, and their pieces in any order and any number of times, cut in any way.
    fn arrivals()
    -> impl proptest::strategy::Strategy<Value = (Vec<ModelMessage>, Vec<(usize, u32, u32)>)> {
        use proptest::prelude::*;
        let message = (0u16..6, prop::collection::vec(1u32..40, 1..4));
        prop::collection::vec(message, 1..24)
            .prop_flat_map(|messages| {
                let told: Vec<(u16, Vec<u32>)> = messages
                    .into_iter()
                    .map(|(behind, sizes)| {
                        let ends = sizes.iter().scan(0, |sum, size| {
                            *sum += size;
                            Some(*sum)
                        });
                        (behind, ends.collect())
                    })
                    .collect();
                let mut pieces = Vec::new();
                for (message, (_, ends)) in told.iter().enumerate() {
                    let whole = *ends.last().unwrap();
                    let starts = core::iter::once(&0).chain(ends);
                    pieces.extend(starts.zip(ends).map(|(start, end)| (message, *start, *end)));
                    // The same bytes, cut elsewhere: as after a retransmission on another path.
                    pieces.push((message, 0, whole.div_ceil(2)));
                    pieces.push((message, whole / 2, whole));
                }
                (Just(told), Just(pieces).prop_shuffle())
            })
            .prop_map(|(told, pieces)| {
                let told =
                    told.into_iter().map(|(behind, ends)| ModelMessage { behind, ends }).collect();
                (told, pieces)
            })
    }

    proptest::proptest! {
        #[test]
        fn it_delivers_as_the_model((told, pieces) in arrivals()) {
            let (mut incoming, mut holds) = (ReceivingHalf::new(), Slab::new(200));
            let mut read = vec![0; told.len()];
            let mut partly = None;
            let all = |read: &[u32], n: usize| read[n] == *told[n].ends.last().unwrap();
            for (message, start, end) in pieces {
                let behind = told[message].behind.min(message as u16);
                let last = told[message].ends.last() == Some(&end);
                let up = give(&mut incoming, &mut holds,
                    piece(message as u32, behind, start, end, last));
                for (message, offset, end) in up {
                    let n = message as usize;
                    assert!(partly.is_none_or(|partly| partly == n), "one message at a time");
                    assert_eq!(read[n], offset, "every byte once, in order");
                    let floor = n - usize::from(told[n].behind).min(n);
                    assert!((0..floor).all(|below| all(&read, below)), "{n} is above its floor");
                    read[n] = end;
                    partly = if all(&read, n) { None } else { Some(n) };
                }
            }
            assert!((0..told.len()).all(|n| all(&read, n)), "all are delivered");
            assert_eq!(holds.taken(), 0);
        }
    }
}
