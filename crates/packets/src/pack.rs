//! Packing: the choice of the messages and pieces that go into the next packet.
//!
//! Lost pieces go first. New messages are packed by deficit round robin over the channels that have
//! something to send (Shreedhar and Varghese, SIGCOMM 1995), with a packet as quantum.

use crate::channel::{DueRecord, State};
use crate::head::HEAD_BYTES;
use crate::packet::Packet;
use crate::piece::{Piece, PieceKind};
use crate::pools::Pools;
use crate::record::RECORD_BYTES;
use crate::slab::{NONE, Queue};
use crate::words::PendingRecords;

/// The least room in a packet, in bytes, for which a piece is cut off a message that needs several
/// packets.
const CUT_BYTES_MIN: usize = 512;

/// The records that may go into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedRecords {
    /// Any records.
    Any,
    /// A ping alone: the path may be dead.
    Ping,
}

/// The outcome of an attempt to put a record into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackOutcome {
    /// A record was put into the packet, or the next attempt may put one.
    More,
    /// The packet is full.
    Full,
}

impl PendingRecords {
    /// Puts records into a packet: first a ping, then lost pieces, then new messages of the
    /// channels. Returns the pieces of these records.
    pub(crate) fn fill(
        &mut self,
        pools: &mut Pools,
        packet: &mut Packet,
        load: AllowedRecords,
    ) -> Queue {
        let mut pieces = Queue::EMPTY;
        if self.pings && packet.room().is_some() {
            self.pings = !put(pools, packet, &mut pieces, Piece::bare(PieceKind::Ping, 0, 0));
        }
        if load == AllowedRecords::Ping {
            return pieces;
        }
        while let Some(front) = self.lost.front() {
            if self.put_lost(pools, packet, &mut pieces, front) == PackOutcome::Full {
                return pieces;
            }
        }
        while let Some(front) = self.speakers.front() {
            if self.put_words(pools, packet, &mut pieces, front) == PackOutcome::Full {
                break;
            }
        }
        pieces
    }

    fn put_lost(
        &mut self,
        pools: &mut Pools,
        packet: &mut Packet,
        pieces: &mut Queue,
        front: u32,
    ) -> PackOutcome {
        let piece = &pools.pieces[front];
        let message = &pools.messages[piece.message];
        let is_over = pools.channels[message.channel].is_over();
        if is_over && piece.kind != PieceKind::Open {
            self.lost.pop(&mut pools.pieces);
            pools.discard(front);
            return PackOutcome::More;
        }
        let Some(room) = packet.room() else { return PackOutcome::Full };
        if usize::from(piece.bytes) > room {
            // A piece that was cut for a larger packet.
            if !packet.is_bare() || pools.pieces.free() == 0 {
                return PackOutcome::Full;
            }
            self.lost.pop(&mut pools.pieces);
            let rest = pools.pieces[front].split(room as u16);
            pools.messages[rest.message].pieces += 1;
            let rest = pools.pieces.take(rest).expect("there is a free piece");
            self.lost.push_front(&mut pools.pieces, rest);
        } else {
            self.lost.pop(&mut pools.pieces);
        }
        let piece = pools.pieces[front].clone();
        packet.push(&piece, &mut pools.messages, &mut pools.loans);
        pieces.push(&mut pools.pieces, front);
        PackOutcome::More
    }

    /// Puts the next record of a channel, which is the first one of the queue, into a packet. If it
    /// may not send now, the next channel gets its turn.
    fn put_words(
        &mut self,
        pools: &mut Pools,
        packet: &mut Packet,
        pieces: &mut Queue,
        place: u32,
    ) -> PackOutcome {
        let Some(room) = packet.room() else { return PackOutcome::Full };
        let channel = &mut pools.channels[place];
        if let Some(kind) = channel.owed.kind() {
            let record = Piece::bare(kind, channel.name(), channel.stops);
            if !put(pools, packet, pieces, record) {
                return PackOutcome::Full;
            }
            pools.channels[place].owed = DueRecord::Nothing;
            return PackOutcome::More;
        }
        let front = channel.out.queue.front();
        let is_begun = front.is_some_and(|front| pools.messages[front].cut > 0);
        let Some(front) = front.filter(|_| channel.has_words(is_begun)) else {
            self.hush(pools, place);
            return PackOutcome::More;
        };
        let may_overtake = self.is_initiator
            && !channel.is_known()
            && pools.messages[front].kind != PieceKind::Open
            && !opens(pools, pieces, place);
        if may_overtake {
            // The open is on its way in another packet, which this one must not overtake.
            self.hush(pools, place);
            return PackOutcome::More;
        }
        let channel = &mut pools.channels[place];
        if channel.deficit <= 0 {
            channel.deficit += packet.bytes_max as i32;
            self.speakers.pop(&mut pools.channels);
            self.speakers.push(&mut pools.channels, place);
            return PackOutcome::More;
        }
        let rest = (pools.messages[front].bytes - pools.messages[front].cut) as usize;
        let whole = packet.bytes_max - HEAD_BYTES - RECORD_BYTES;
        let fits = rest <= room || rest > whole && room >= CUT_BYTES_MIN;
        if !fits || pools.pieces.free() == 0 {
            return PackOutcome::Full;
        }
        self.cut(pools, packet, pieces, (place, front), rest.min(room));
        PackOutcome::More
    }

    /// Cuts a piece of `bytes` bytes off a channel's first message and puts it into a packet.
    fn cut(
        &mut self,
        pools: &mut Pools,
        packet: &mut Packet,
        pieces: &mut Queue,
        (place, front): (u32, u32),
        bytes: usize,
    ) {
        let channel = &mut pools.channels[place];
        let message = &mut pools.messages[front];
        if message.cut == 0 {
            (message.number, message.behind) = channel.out.number(message.strict);
        }
        let last = message.cut as usize + bytes == message.bytes as usize;
        let offset = if message.kind == PieceKind::Open { channel.serial } else { message.cut };
        let piece = Piece {
            message: front,
            number: message.number,
            offset,
            next: NONE,
            bytes: bytes as u16,
            channel: channel.name(),
            behind: message.behind,
            kind: message.kind,
            last,
        };
        message.cut += bytes as u32;
        message.pieces += 1;
        channel.deficit -= (bytes + RECORD_BYTES) as i32;
        if last {
            channel.out.queue.pop(&mut pools.messages);
            pools.messages[front].end_cut();
        }
        let is_put = put(pools, packet, pieces, piece);
        assert!(is_put, "there is a free piece");
    }

    /// Removes a channel that has nothing to send from the queue of channels.
    fn hush(&mut self, pools: &mut Pools, place: u32) {
        self.speakers.pop(&mut pools.channels);
        let channel = &mut pools.channels[place];
        (channel.speaks, channel.deficit) = (false, 0);
        if matches!(channel.state, State::Gone(_)) {
            pools.release(place);
        }
    }
}

/// Returns `true` if the open of a channel is among the queued pieces.
fn opens(pools: &mut Pools, pieces: &Queue, channel: u32) -> bool {
    let mut at = pieces.front();
    while let Some(piece) = at {
        let piece = &pools.pieces[piece];
        if piece.kind == PieceKind::Open && pools.messages[piece.message].channel == channel {
            return true;
        }
        at = (piece.next != NONE).then_some(piece.next);
    }
    false
}

/// Puts a new piece into a packet and into `pieces`. Returns `false` if the packet or the table of
/// pieces has no room for it.
fn put(pools: &mut Pools, packet: &mut Packet, pieces: &mut Queue, piece: Piece) -> bool {
    if packet.room().is_none() {
        return false;
    }
    let Some(place) = pools.pieces.take(piece.clone()) else { return false };
    packet.push(&piece, &mut pools.messages, &mut pools.loans);
    pieces.push(&mut pools.pieces, place);
    true
}
