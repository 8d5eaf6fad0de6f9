//! What an association does with a packet that arrived.

use contract::{Fatal, Instant};

use crate::association::{Association, State};
use crate::channel::{State as ChannelState, Why};
use crate::event::{Delivery, Event};
use crate::head::{HEAD_BYTES, Head};
use crate::incoming::{Hold, Placed, Turn};
use crate::loss::Landed;
use crate::piece::Kind;
use crate::pools::{Pools, let_go};
use crate::record::{Record, Records};
use crate::slab::NONE;

/// The place of a packet that arrived, in the tables.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The path it came by.
    pub path: u32,
    /// The chunk it lies in, [`NONE`] if no place for a chunk is free.
    pub chunk: u32,
    /// Where the packet begins in the chunk.
    pub at: u32,
}

/// The channel that a record is for.
enum Addressee {
    /// This place.
    Channel(u32),
    /// A channel that is over: the record is of the past.
    Past,
    /// A channel whose open has not arrived, or for which there is no room.
    Unknown,
}

impl Association {
    /// Reads a packet of records whose head, cookie and checksum are right.
    ///
    /// # Errors
    /// When a record is malformed. Nothing of the packet was followed then.
    pub(crate) fn hear(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        head: &Head,
        packet: &[u8],
        place: Place,
    ) -> Result<(), Fatal> {
        let records = || Records::new(packet, HEAD_BYTES);
        if let Some(error) = records().find_map(Result::err) {
            return Err(error);
        }
        let path = &mut pools.paths[place.path];
        let number = path.seen.complete(head.number, 32);
        let elicits = packet.len() > HEAD_BYTES;
        if path.seen.has(number) {
            pools.counters.repeated += 1;
            if elicits {
                // The acknowledgement may have been lost.
                path.debt = crate::path::Debt::Now;
            }
            return Ok(());
        }
        self.heard(pools, now, head, place.path);
        let mut is_refused = false;
        for record in records().flatten() {
            is_refused |= !self.follow(pools, &record, place);
        }
        if is_refused {
            // Not noted, so not acknowledged: the peer sends the pieces again. It hears at once
            // that we live.
            pools.counters.refused += 1;
            pools.paths[place.path].debt = crate::path::Debt::Now;
        } else {
            pools.paths[place.path].arrived(now, number, elicits, head.ack_now);
        }
        Ok(())
    }

    /// Follows what the head of a packet says: the peer lives, its credits, what it has.
    pub(crate) fn heard(&mut self, pools: &mut Pools, now: Instant, head: &Head, path: u32) {
        if self.state == State::Half {
            self.state = State::Up;
        }
        self.heard_at = now;
        self.credits = head.credits.max(crate::credits::LEAST);
        let path = &mut pools.paths[path];
        if let Some(ack) = head.ack
            && path.window != NONE
        {
            let mut landed = Landed::NOTHING;
            let window = &mut pools.windows[path.window];
            path.acknowledged(now, (ack, head.echo), window, &mut pools.pieces, &mut landed);
            self.land(pools, landed);
        }
        self.waits_since = (self.in_flight > 0).then_some(now);
    }

    /// Follows the end of flights: acknowledged pieces end their messages, lost ones queue up.
    pub(crate) fn land(&mut self, pools: &mut Pools, mut landed: Landed) {
        self.in_flight -= landed.packets;
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
            if let (Kind::Reset, Some(place)) = (piece.kind, pools.find(self.place, piece.channel))
                && let ChannelState::Leaving(why) = pools.channels[place].state
            {
                pools.channels[place].state = ChannelState::Gone(why);
                pools.release(place);
            }
            return;
        }
        let message = &mut pools.messages[piece.message];
        message.pieces -= 1;
        let channel = message.channel;
        if message.kind == Kind::Open {
            self.open_acknowledged(pools.channels[channel].serial);
        }
        if message.is_cut() && message.pieces == 0 && !message.is_dropped {
            pools.channels[channel].out.acknowledged(message.number);
            self.speak(pools, channel);
        }
        pools.settle(piece.message);
    }

    /// Queues a lost piece to be sent again. A record without a number is owed anew; pieces of a
    /// channel that is over are dropped, but for its open.
    fn lose(&mut self, pools: &mut Pools, place: u32) {
        let piece = &pools.pieces[place];
        let (kind, name) = (piece.kind, piece.channel);
        if piece.message != NONE {
            let channel = &pools.channels[pools.messages[piece.message].channel];
            if channel.is_over() && kind != Kind::Open {
                return self.discard(pools, place);
            }
            pools.counters.resent += 1;
            return self.lost.push(&mut pools.pieces, place);
        }
        let count = pools.pieces.give(place).number;
        if kind == Kind::Ping {
            self.pings = true;
            return;
        }
        let Some(channel) = pools.find(self.place, name) else { return };
        let it = &mut pools.channels[channel];
        let owed = crate::channel::Owed::again(kind);
        let is_current = match it.state {
            ChannelState::Gone(_) => false,
            ChannelState::Leaving(_) => kind == Kind::Reset,
            _ => kind != Kind::Reset && it.stops == count,
        };
        if is_current {
            it.owed = owed;
            self.speak(pools, channel);
        }
    }

    /// Follows a record. Returns `false` if there is no room for it.
    fn follow(&mut self, pools: &mut Pools, record: &Record, place: Place) -> bool {
        let kind = Kind::of_wire(record.kind);
        if kind == Kind::Ping {
            return true;
        }
        let channel = match self.addressee(pools, record, kind) {
            Addressee::Channel(channel) => channel,
            Addressee::Past => return true,
            Addressee::Unknown => return false,
        };
        match kind {
            Kind::Reset => {
                let why = match pools.channels[channel].state {
                    ChannelState::Finishing => Why::Peer,
                    _ => Why::Reset,
                };
                self.leave(pools, channel, why, true);
                true
            }
            Kind::Stop | Kind::Go => {
                pools.channels[channel].out.hear(record.message, kind == Kind::Stop);
                self.speak(pools, channel);
                true
            }
            _ if pools.channels[channel].is_over() => true,
            _ => self.place(pools, channel, record, kind, place),
        }
    }

    /// Finds the channel of a record. An open makes it.
    fn addressee(&mut self, pools: &mut Pools, record: &Record, kind: Kind) -> Addressee {
        if let Some(place) = pools.find(self.place, record.channel) {
            return Addressee::Channel(place);
        }
        if self.is_initiator {
            return Addressee::Past;
        }
        let serial = match kind {
            Kind::Open => self.opened.complete(record.offset, 32),
            _ => self.opened.complete(u32::from(record.channel), 16),
        };
        if self.opened.has(serial) || serial as u16 != record.channel {
            return Addressee::Past;
        }
        if kind != Kind::Open || pools.messages.free() == 0 {
            return Addressee::Unknown;
        }
        let Some(place) = pools.make(self.place, serial as u32, ChannelState::Open) else {
            return Addressee::Unknown;
        };
        self.opened.note(serial);
        Addressee::Channel(place)
    }

    /// Takes a piece of a message, and delivers what is due. Returns `false` if there is no room.
    fn place(
        &mut self,
        pools: &mut Pools,
        channel: u32,
        record: &Record,
        kind: Kind,
        place: Place,
    ) -> bool {
        let hold = Hold {
            chunk: if record.bytes > 0 { place.chunk } else { NONE },
            at: place.at + record.at as u32,
            offset: if kind == Kind::Data { record.offset } else { 0 },
            message: record.message,
            next: NONE,
            bytes: record.bytes,
            behind: record.behind,
            kind,
            last: record.last,
        };
        let is_due = pools.channels[channel].incoming.is_due(&hold);
        if record.bytes > 0 && place.chunk == NONE || !pools.has_room(is_due) {
            return false;
        }
        let chunk = hold.chunk;
        let Pools { channels, holds, chunks, returned, .. } = pools;
        let incoming = &mut channels[channel].incoming;
        match incoming.place(holds, hold, |freed| let_go(chunks, returned, freed.chunk)) {
            Placed::Known => return true,
            Placed::Refused => return false,
            Placed::Kept => {}
        }
        if chunk != NONE {
            chunks[chunk].holds += 1;
        }
        self.deliver(pools, channel);
        true
    }

    /// Hands up what is due on a channel.
    pub(crate) fn deliver(&mut self, pools: &mut Pools, channel: u32) {
        let conn = pools.conn(channel);
        let association = self.id();
        let peer = pools.paths[self.paths[0]].to;
        let mut opened = None;
        let mut is_ended = false;
        let Pools { channels, holds, chunks, returned, events, .. } = pools;
        channels[channel].incoming.deliver(holds, |hold, turn| match (turn, hold.kind) {
            (Turn::Due, Kind::Data) if hold.bytes > 0 || hold.last => {
                let Hold { chunk, at, offset, last: is_last, .. } = hold;
                let bytes = u32::from(hold.bytes);
                let delivery = Delivery { chunk, at, bytes, offset, is_last };
                events.push_back(Event::Received { conn, delivery });
            }
            (Turn::Due, Kind::Open | Kind::Opened) => {
                opened = Some(hold.kind);
                events.push_back(Event::Opened { conn, association, peer });
            }
            (Turn::Due, Kind::End) => is_ended = true,
            _ => let_go(chunks, returned, hold.chunk),
        });
        match opened {
            Some(Kind::Open) if pools.channels[channel].state == ChannelState::Open => {
                let frame = crate::association::bare_frame();
                self.queue(pools, channel, Kind::Opened, frame, true);
            }
            Some(Kind::Opened) if pools.channels[channel].state == ChannelState::Opening => {
                pools.channels[channel].state = ChannelState::Open;
            }
            _ => {}
        }
        if is_ended {
            self.leave(pools, channel, Why::Peer, false);
        }
    }
}
