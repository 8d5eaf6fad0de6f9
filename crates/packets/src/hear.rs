//! Processing of the packets that arrive for an association.

use core::time::Duration;

use contract::ProtocolError;
use wire::packets::{ADDRESS_NONE, AddressBody, ProbeBody};
use zerocopy::FromBytes;

use crate::association::{Association, State};
use crate::channel::{EndReason, State as ChannelState};
use crate::event::{Delivery, Event};
use crate::head::{HEAD_BYTES, ParsedHead};
use crate::incoming::{HeldPiece, PlacementOutcome, RemovalReason};
use crate::loss::SettledPieces;
use crate::peer_address::PeerAddress;
use crate::piece::PieceKind;
use crate::pools::{Pools, let_go};
use crate::proof::{LEAST_BYTES, PAUSE_RAISE};
use crate::receipt::{DueAck, RxTimes};
use crate::record::{Record, Records};
use crate::settings::LANES_MAX;
use crate::slab::NONE;

/// The position of a packet that is being read: its path, its chunk, and its offset in the chunk.
#[derive(Clone, Copy)]
pub(crate) struct PacketPosition {
    /// The path by which the packet came.
    pub path: u32,
    /// The chunk with the packet's bytes, [`NONE`] if no chunk is free.
    pub chunk: u32,
    /// Offset of the packet in the chunk, in bytes.
    pub at: u32,
}

/// The channel that a record is for.
enum Addressee {
    /// The channel at this place of the table of channels.
    Channel(u32),
    /// A channel that is over; the record is late and is ignored.
    Past,
    /// A channel whose open has not arrived, or for which there is no room.
    Unknown,
}

impl Association {
    /// Processes a data packet whose association, path, and checksum or seal are right.
    ///
    /// # Errors
    /// Fails if a record is malformed. No record of the packet was followed then.
    pub(crate) fn hear(
        &mut self,
        pools: &mut Pools,
        (now, came): RxTimes,
        head: &ParsedHead,
        packet: &[u8],
        place: PacketPosition,
    ) -> Result<(), ProtocolError> {
        let records = || Records::new(packet, HEAD_BYTES);
        if let Some(error) = records().find_map(|record| self.fault(record)) {
            return Err(error);
        }
        let path = &mut pools.paths[place.path];
        let number = path.receipt.seen.complete(head.number, 32);
        let elicits = packet.len() > HEAD_BYTES;
        if path.receipt.seen.has(number) {
            pools.counters.repeated += 1;
            if elicits {
                // The acknowledgement may have been lost.
                path.receipt.debt = DueAck::Now;
            }
            return Ok(());
        }
        self.heard(pools, (now, came), head, place.path);
        let mut is_refused = false;
        for record in records().flatten() {
            is_refused |= !self.follow(pools, &record, place);
        }
        if is_refused {
            // Not noted, so not acknowledged: the peer sends the pieces again. It hears at once
            // that we live.
            pools.counters.refused += 1;
            pools.paths[place.path].receipt.debt = DueAck::Now;
        } else {
            pools.paths[place.path].receipt.arrived((now, came), number, elicits, head.ack_now);
        }
        Ok(())
    }

    /// Returns the fault of a record; `None` if it has none. An open and its answer must be the
    /// first messages of their direction, so that each channel has one open and one answer.
    fn fault(&self, record: Result<Record, ProtocolError>) -> Option<ProtocolError> {
        let record = match record {
            Ok(record) => record,
            Err(error) => return Some(error),
        };
        let may = match PieceKind::of_wire(record.kind) {
            PieceKind::Open => !self.words.is_initiator,
            PieceKind::Opened => self.words.is_initiator,
            _ => return None,
        };
        (!may || record.message != 0).then_some(ProtocolError::BadOpcode(u16::from(record.kind.0)))
    }

    /// Processes a packet's head: notes that the peer lives, and takes its credits and
    /// acknowledgements.
    pub(crate) fn heard(
        &mut self,
        pools: &mut Pools,
        times: RxTimes,
        head: &ParsedHead,
        path: u32,
    ) {
        let (now, came) = times;
        if self.state == State::Half {
            self.state = State::Up;
        }
        self.heard_at = now;
        self.credits = head.credits.max(crate::credits::LEAST);
        let path = &mut pools.paths[path];
        if let Some(ack) = head.ack
            && path.flight.window != NONE
        {
            let mut landed = SettledPieces::NOTHING;
            let window = &mut pools.windows[path.flight.window];
            path.acknowledged(came, (ack, head.echo), window, &mut pools.pieces, &mut landed);
            self.land(pools, landed);
        }
        self.waits_since = (self.in_flight > 0).then_some(now);
    }

    /// Takes packets out of flight that were acknowledged or lost, and processes their pieces.
    pub(crate) fn land(&mut self, pools: &mut Pools, landed: SettledPieces) {
        self.in_flight -= landed.packets;
        self.words.land(pools, landed);
    }

    /// Processes a record. Returns `false` if there is no room, or its channel is not known yet.
    fn follow(&mut self, pools: &mut Pools, record: &Record, place: PacketPosition) -> bool {
        let kind = PieceKind::of_wire(record.kind);
        if kind == PieceKind::Ping {
            return true;
        }
        let channel = match self.addressee(pools, record, kind) {
            Addressee::Channel(channel) => channel,
            Addressee::Past => return true,
            Addressee::Unknown => return false,
        };
        match kind {
            PieceKind::Reset => {
                let why = match pools.channels[channel].state {
                    ChannelState::Finishing => EndReason::Peer,
                    _ => EndReason::Reset,
                };
                self.words.leave(pools, channel, why, true);
                true
            }
            PieceKind::Stop | PieceKind::Go => {
                pools.channels[channel].out.hear(record.message, kind == PieceKind::Stop);
                self.words.speak(pools, channel);
                true
            }
            _ if pools.channels[channel].is_over() => true,
            _ => self.place(pools, channel, record, kind, place),
        }
    }

    /// Finds the channel of a record. An open creates its channel.
    fn addressee(&mut self, pools: &mut Pools, record: &Record, kind: PieceKind) -> Addressee {
        if let Some(place) = pools.find(self.place, record.channel) {
            return Addressee::Channel(place);
        }
        if self.words.is_initiator {
            return Addressee::Past;
        }
        let serial = match kind {
            PieceKind::Open => self.opened.complete(record.offset, 32),
            _ => self.opened.complete(u32::from(record.channel), 16),
        };
        if self.opened.has(serial) || serial as u16 != record.channel {
            return Addressee::Past;
        }
        if kind != PieceKind::Open || pools.gate.is_held || pools.messages.free() == 0 {
            return Addressee::Unknown;
        }
        let Some(place) = pools.make(self.place, serial as u32, ChannelState::Open) else {
            return Addressee::Unknown;
        };
        self.opened.note(serial);
        Addressee::Channel(place)
    }

    /// Stores a piece of a message, and delivers the pieces that may be delivered now. Returns
    /// `false` if there is no room for the piece.
    fn place(
        &mut self,
        pools: &mut Pools,
        channel: u32,
        record: &Record,
        kind: PieceKind,
        place: PacketPosition,
    ) -> bool {
        let hold = HeldPiece {
            chunk: if record.bytes > 0 { place.chunk } else { NONE },
            at: place.at + record.at as u32,
            offset: if kind == PieceKind::Data { record.offset } else { 0 },
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
        if kind == PieceKind::Open && is_due && pools.messages.free() == 0 {
            // There is no room for the answer.
            return false;
        }
        let chunk = hold.chunk;
        let Pools { channels, holds, chunks, returned, .. } = pools;
        let incoming = &mut channels[channel].incoming;
        match incoming.place(holds, hold, |freed| let_go(chunks, returned, freed.chunk)) {
            PlacementOutcome::Known => return true,
            PlacementOutcome::Refused => return false,
            PlacementOutcome::Kept => {}
        }
        if chunk != NONE {
            chunks[chunk].holds += 1;
        }
        self.deliver(pools, channel);
        true
    }

    /// Delivers as events the pieces of a channel that may be delivered now.
    pub(crate) fn deliver(&mut self, pools: &mut Pools, channel: u32) {
        let conn = pools.conn(channel);
        let association = self.id();
        let peer = self.peer.began_at;
        let mut opened = None;
        let mut is_ended = false;
        let Pools { channels, holds, chunks, returned, events, .. } = pools;
        channels[channel].incoming.deliver(holds, |hold, turn| match (turn, hold.kind) {
            (RemovalReason::Due, PieceKind::Data) if hold.bytes > 0 || hold.last => {
                let HeldPiece { chunk, at, offset, last: is_last, .. } = hold;
                let bytes = u32::from(hold.bytes);
                let delivery = Delivery { chunk, at, bytes, offset, is_last };
                events.push_back(Event::Received { conn, delivery });
            }
            (RemovalReason::Due, PieceKind::Open | PieceKind::Opened) => {
                opened = Some(hold.kind);
                events.push_back(Event::Opened { conn, association, peer });
            }
            (RemovalReason::Due, PieceKind::End) => is_ended = true,
            _ => let_go(chunks, returned, hold.chunk),
        });
        match opened {
            Some(PieceKind::Open) if pools.channels[channel].state == ChannelState::Open => {
                let frame = crate::words::bare_frame();
                self.words.queue(pools, channel, PieceKind::Opened, frame, true);
            }
            Some(PieceKind::Opened) if pools.channels[channel].state == ChannelState::Opening => {
                pools.channels[channel].state = ChannelState::Open;
            }
            _ => {}
        }
        if is_ended {
            self.words.leave(pools, channel, EndReason::Peer, false);
        }
    }

    /// Processes a probe of the peer. The path is proved if the probe returns this end's number.
    /// The peer's number is returned in the next probe.
    pub(crate) fn probed(
        &mut self,
        pools: &mut Pools,
        (now, came): RxTimes,
        head: &ParsedHead,
        packet: &[u8],
        (place, challenge): (u32, u64),
    ) {
        let read = ProbeBody::read_from_prefix(&packet[HEAD_BYTES..]);
        let Ok((body, rest)) = read else { return };
        let path = &mut pools.paths[place];
        let number = path.receipt.seen.complete(head.number, 32);
        if path.receipt.seen.has(number) {
            pools.counters.repeated += 1;
            return;
        }
        path.receipt.arrived((now, came), number, false, false);
        path.proof.echo = body.challenge.get();
        let bytes = head.bytes.min(usize::from(self.packet_bytes)) as u16;
        if !path.is_proven && path.proof.challenge == 0 {
            path.proof.ask(challenge, bytes, None);
        } else if !path.is_proven && path.proof.next.is_none() {
            // Nobody gets more bytes than it sent.
            path.proof.bytes = bytes;
        } else if !path.is_proven {
            path.proof.hurry(now);
        }
        let echo = body.echo.get();
        if echo != 0 && echo == path.proof.challenge {
            if self.words.is_initiator {
                let (id, dialled) = (self.id(), self.peer.began_at);
                let told = told(rest, &dialled)
                    .map(|peer_address| Event::AddressAnnounced(id, peer_address));
                pools.events.extend(told);
            }
            let path = &mut pools.paths[place];
            path.carries(path.proof.bytes.clamp(LEAST_BYTES, self.packet_bytes));
            // On a path that is used anew, the least size was tried alone.
            let pause = if path.is_proven { PAUSE_RAISE } else { Duration::ZERO };
            pools.counters.paths_proven += u64::from(!path.is_proven);
            (path.is_proven, path.flight.probes) = (true, 0);
            path.proof.is_claim = false;
            match path.bytes < self.packet_bytes {
                true => path.proof.ask(challenge, self.packet_bytes, Some(now + pause)),
                false => path.proof.ask(0, 0, None),
            }
        }
        self.heard(pools, (now, came), head, place);
    }
}

/// Returns the addresses in a peer's answer to a probe, whose first address is `dialled`. Addresses
/// that no peer of this one can have are left out. `bytes` are those behind the body of the probe.
fn told<'a>(bytes: &'a [u8], dialled: &'a PeerAddress) -> impl Iterator<Item = PeerAddress> + 'a {
    let bodies = bytes.chunks_exact(size_of::<AddressBody>());
    let bodies = bodies.filter_map(|bytes| AddressBody::read_from_bytes(bytes).ok());
    let bodies = bodies.take_while(|body| body.kind != ADDRESS_NONE).take(LANES_MAX - 1);
    bodies.filter_map(|body| PeerAddress::of_body(&body)).filter(|told| told.may_accompany(dialled))
}
