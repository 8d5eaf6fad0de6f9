//! The sending side of an association: the channels with messages to send, the lost pieces, and the
//! opens that the peer has not acknowledged. `pack.rs` puts the pieces into packets.

use contract::{Frame, Instant};

use crate::channel::{DueRecord, EndReason, State};
use crate::flags::Flags;
use crate::loss::SettledPieces;
use crate::message::Message;
use crate::piece::PieceKind;
use crate::pools::Pools;
use crate::slab::{NONE, Queue};

/// The number of serial numbers, from the lowest unacknowledged one on, that new channels may have.
/// The acceptor remembers twice as many numbers.
const OPENS_MAX: u64 = 128;

/// The serial numbers of the channels that this end has opened.
#[derive(Debug)]
pub(crate) struct OpenedSerials {
    /// A flag for each serial number from `base` on, which is set once the peer has the open or
    /// does not need it.
    flags: Flags,
    /// The lowest unacknowledged serial number: `base ≤ next ≤ base + OPENS_MAX`. At the upper
    /// bound no channel may be opened now.
    base: u64,
    /// The next serial number to use.
    next: u64,
}

impl OpenedSerials {
    /// The state in which no channel was opened.
    const NONE: OpenedSerials = OpenedSerials { flags: Flags::NONE, base: 0, next: 0 };

    /// Returns the next serial number; `None` if too many opens are unacknowledged.
    fn next(&self) -> Option<u32> {
        (self.next - self.base < OPENS_MAX).then_some(self.next as u32)
    }

    /// Takes the next serial number, so that it is not used again.
    fn take(&mut self) -> u32 {
        self.next += 1;
        (self.next - 1) as u32
    }

    /// Notes that the peer has the open with this serial number, or does not need it.
    fn acknowledged(&mut self, serial: u32) {
        let ahead = serial.wrapping_sub(self.base as u32);
        if u64::from(ahead) < OPENS_MAX {
            self.flags.set(ahead);
            self.base += u64::from(self.flags.pass());
        }
    }
}

/// The messages, records and lost pieces that an association has to send.
#[derive(Debug)]
pub(crate) struct PendingRecords {
    /// The association's index in the table of associations.
    pub association: u32,
    /// Channels with something to send.
    pub speakers: Queue,
    /// Lost pieces, which are to be sent again.
    pub lost: Queue,
    opens: OpenedSerials,
    /// The time since which the association has had no channel; `None` if it has one.
    pub idle_since: Option<Instant>,
    /// `true` if a ping is to be sent, to ask for an acknowledgement.
    pub pings: bool,
    /// The number of pings with which this end asked a silent peer since its last message.
    pub asked: u8,
    /// `true` if this end opened the association, and so may open channels.
    pub is_initiator: bool,
}

impl PendingRecords {
    /// Returns the sending side of a new association, which has nothing to send.
    pub(crate) fn new(is_initiator: bool) -> PendingRecords {
        PendingRecords {
            association: NONE,
            speakers: Queue::EMPTY,
            lost: Queue::EMPTY,
            opens: OpenedSerials::NONE,
            idle_since: None,
            pings: false,
            asked: 0,
            is_initiator,
        }
    }

    /// Returns `true` if the association has a ping, a lost piece or a channel's record or message
    /// to send.
    pub(crate) fn are_any(&self) -> bool {
        self.pings || !self.lost.is_empty() || !self.speakers.is_empty()
    }

    /// Opens a channel and returns its place. Returns `None` if there is no room now, or if the
    /// peer opened the association.
    pub(crate) fn connect(&mut self, pools: &mut Pools) -> Option<u32> {
        if !self.is_initiator || pools.messages.free() == 0 {
            return None;
        }
        // A name that is in use is passed over.
        while pools.find(self.association, self.opens.next()? as u16).is_some() {
            let serial = self.opens.take();
            self.opens.acknowledged(serial);
        }
        let serial = self.opens.next()?;
        let place = pools.make(self.association, serial, State::Opening)?;
        self.opens.take();
        self.queue(pools, place, PieceKind::Open, bare_frame(), true);
        Some(place)
    }

    /// Queues a message of a channel. The caller has checked that the table of messages has room.
    pub(crate) fn queue(
        &mut self,
        pools: &mut Pools,
        place: u32,
        kind: PieceKind,
        frame: Frame,
        strict: bool,
    ) {
        let message = pools.messages.take(Message::new(place, frame, kind, strict));
        let message = message.expect("there is room for a message");
        let channel = &mut pools.channels[place];
        channel.out.unsent += pools.messages[message].bytes;
        channel.messages += 1;
        channel.out.queue.push(&mut pools.messages, message);
        self.speak(pools, place);
    }

    /// Queues a channel for sending if it has a record or message to send.
    pub(crate) fn speak(&mut self, pools: &mut Pools, place: u32) {
        let channel = &pools.channels[place];
        let front = channel.out.queue.front();
        let is_begun = front.is_some_and(|front| pools.messages[front].cut > 0);
        if !channel.speaks && channel.has_words(is_begun) {
            pools.channels[place].speaks = true;
            self.speakers.push(&mut pools.channels, place);
        }
    }

    /// Ends a channel at once. A reset tells the peer, unless the peer has never heard of the
    /// channel or has ended it.
    pub(crate) fn leave(&mut self, pools: &mut Pools, place: u32, why: EndReason, peer_left: bool) {
        if pools.channels[place].is_over() && !peer_left {
            return;
        }
        let why = match pools.channels[place].state {
            State::Leaving(earlier) | State::Gone(earlier) => earlier,
            _ => why,
        };
        // Set before words are dropped: the last message must not end the channel under our feet.
        pools.channels[place].state = State::Leaving(why);
        let serial = pools.channels[place].serial;
        let was_opening = pools.drop_words(place);
        if was_opening {
            self.opens.acknowledged(serial);
        }
        let channel = &mut pools.channels[place];
        if peer_left || was_opening {
            channel.owed = DueRecord::Nothing;
            channel.state = State::Gone(why);
            pools.release(place);
        } else {
            channel.owed = DueRecord::Reset;
            self.speak(pools, place);
        }
    }

    /// Stops or resumes the delivery of a channel's messages, and tells the peer to stop or to go
    /// on.
    pub(crate) fn pause(&mut self, pools: &mut Pools, place: u32, pause: bool) {
        let channel = &mut pools.channels[place];
        if channel.is_over() || channel.incoming.is_paused == pause {
            return;
        }
        channel.incoming.is_paused = pause;
        channel.stops = channel.stops.wrapping_add(1);
        channel.owed = if pause { DueRecord::Stop } else { DueRecord::Go };
        self.speak(pools, place);
    }

    /// Processes pieces that are no longer in flight. Acknowledged pieces finish their messages;
    /// lost pieces are queued again.
    pub(crate) fn land(&mut self, pools: &mut Pools, mut landed: SettledPieces) {
        while let Some(piece) = landed.acked.pop(&mut pools.pieces) {
            self.acknowledged(pools, piece);
        }
        while let Some(piece) = landed.lost.pop(&mut pools.pieces) {
            self.lose(pools, piece);
        }
    }

    fn acknowledged(&mut self, pools: &mut Pools, piece: u32) {
        let piece = pools.pieces.give(piece);
        if piece.message == NONE {
            if let (PieceKind::Reset, Some(place)) =
                (piece.kind, pools.find(self.association, piece.channel))
                && let State::Leaving(why) = pools.channels[place].state
            {
                pools.channels[place].state = State::Gone(why);
                pools.release(place);
            }
            return;
        }
        let message = &mut pools.messages[piece.message];
        message.pieces -= 1;
        let channel = message.channel;
        if message.kind == PieceKind::Open {
            self.opens.acknowledged(pools.channels[channel].serial);
        }
        if message.is_cut() && message.pieces == 0 && !message.is_dropped {
            pools.channels[channel].out.acknowledged(message.number);
            self.speak(pools, channel);
        }
        pools.settle(piece.message);
    }

    /// Queues a lost piece to be sent again. A record without a number is written anew. Pieces of a
    /// channel that is over are dropped, except for its open.
    fn lose(&mut self, pools: &mut Pools, place: u32) {
        let piece = &pools.pieces[place];
        let (kind, name) = (piece.kind, piece.channel);
        if piece.message != NONE {
            let channel = &pools.channels[pools.messages[piece.message].channel];
            if channel.is_over() && kind != PieceKind::Open {
                return pools.discard(place);
            }
            pools.counters.resent += 1;
            return self.lost.push(&mut pools.pieces, place);
        }
        let count = pools.pieces.give(place).number;
        if kind == PieceKind::Ping {
            self.pings = true;
            return;
        }
        let Some(channel) = pools.find(self.association, name) else { return };
        let it = &mut pools.channels[channel];
        let owed = DueRecord::again(kind);
        let is_current = match it.state {
            State::Gone(_) => false,
            State::Leaving(_) => kind == PieceKind::Reset,
            _ => kind != PieceKind::Reset && it.stops == count,
        };
        if is_current {
            it.owed = owed;
            self.speak(pools, channel);
        }
    }

    /// Empties the queues of lost pieces and of channels to send, since the association is over.
    pub(crate) fn clear(&mut self, pools: &mut Pools) {
        while let Some(piece) = self.lost.pop(&mut pools.pieces) {
            pools.discard(piece);
        }
        while let Some(place) = self.speakers.pop(&mut pools.channels) {
            pools.channels[place].speaks = false;
        }
    }
}

/// Returns a frame without bytes.
pub(crate) fn bare_frame() -> Frame {
    Frame::bare(contract::FrameHead::new(&[]))
}
