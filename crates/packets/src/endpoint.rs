//! An endpoint: all associations of a worker or of a client process, and the entrance of each
//! packet.

use alloc::collections::VecDeque;
use core::time::Duration;

use contract::{Buf, ConnId, Frame, Instant};
use wire::packets::PacketKind;

use crate::association::{Association, State};
use crate::channel::{EndReason, State as ChannelState};
use crate::deadlines::Deadlines;
use crate::directory::Directory;
use crate::entrance::{DropReason, PacketPath, open};
use crate::event::{AssociationEnd, AssociationId, Delivery, Event};
use crate::greet::{QueuedAnswer, forget, greet, hello_of};
use crate::head::{PACKET_BYTES_MAX, ParsedHead};
use crate::hear::PacketPosition;
use crate::moved::{self, AddressProbe};
use crate::packet::{LentBodies, Packet};
use crate::path::Path;
use crate::peer_address::PeerAddress;
use crate::piece::PieceKind;
use crate::pools::{Chunk, Counters, Pools};
use crate::proof::{LEAST_BYTES, PathProbes};
use crate::seals::Seals;
use crate::secret::Secret;
use crate::settings::{LANES_MAX, Settings};
use crate::slab::{NONE, Queue, Slab};

/// Maximum number of queued answers to packets of the handshake and of unknown associations.
const ANSWERS_MAX: usize = 64;

/// A packet that a lane received. Its buffer is lent until [`Endpoint::take_back`] returns it.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// The number of the lane that received the packet.
    pub lane: u8,
    /// The address that sent the packet.
    pub from: PeerAddress,
    /// The buffer with the packet.
    pub buf: Buf,
    /// Offset of the packet in the buffer.
    pub at: usize,
    /// Bytes that arrived, padding of the network included.
    pub bytes: usize,
    /// `true` if the network has marked the packet for congestion.
    pub is_marked: bool,
    /// The time for which the packet has lain at this end before the lane took it. A busy machine
    /// makes it long, which says nothing about the network.
    pub waited: Duration,
}

impl ReceivedPacket {
    /// Returns a packet that has arrived at lane 0, at the beginning of its buffer, without a mark
    /// and without a wait, as over a network of tests.
    pub fn plain(from: PeerAddress, buf: Buf, bytes: usize) -> ReceivedPacket {
        ReceivedPacket {
            lane: 0,
            from,
            buf,
            at: 0,
            bytes,
            is_marked: false,
            waited: Duration::ZERO,
        }
    }
}

/// All associations of a worker or of a client process.
///
/// The user hands in packets with [`receive`](Endpoint::receive), fetches packets with
/// [`transmit`](Endpoint::transmit) until there is none, and calls [`advance`](Endpoint::advance)
/// at [`wake_at`](Endpoint::wake_at). Nothing is allocated after [`new`](Endpoint::new) but the
/// keys of a sealed association, in its handshake.
pub struct Endpoint {
    pub(crate) settings: Settings,
    pub(crate) associations: Slab<Association>,
    pub(crate) pools: Pools,
    /// Associations with something to send.
    busy: Queue,
    held_up: BlockedAssociations,
    deadlines: Deadlines,
    /// The number of associations that each place of the table had before.
    generations: alloc::vec::Vec<u32>,
    pub(crate) secret: Secret,
    /// Places of associations, by the peer's cookie.
    pub(crate) by_peer: Directory,
    /// Answers to packets of the handshake and of unknown associations, which wait to be sent.
    pub(crate) answers: VecDeque<QueuedAnswer>,
    /// Probes to other addresses of peers, which wait to be sent.
    elsewhere: VecDeque<AddressProbe>,
    /// Number of associations that this end has accepted, by the peer's address.
    pub(crate) by_network: Directory,
    pub(crate) rates: crate::greet::AnswerRates,
    /// The encryption states of the associations; `None` if the endpoint has no key.
    pub(crate) seals: Option<Seals>,
}

impl Endpoint {
    /// Returns an endpoint without associations.
    ///
    /// # Panics
    /// Panics if packets are smaller than a hello or larger than the format allows.
    pub fn new(mut settings: Settings) -> Endpoint {
        let bytes = settings.packet_bytes;
        assert!(
            (Settings::PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&bytes),
            "packets of {bytes} bytes"
        );
        let max = settings.associations_max;
        Endpoint {
            associations: Slab::new(max),
            pools: Pools::new(&settings),
            busy: Queue::EMPTY,
            held_up: BlockedAssociations(alloc::vec::Vec::with_capacity(max)),
            deadlines: Deadlines::new(max),
            generations: alloc::vec![0; max],
            secret: Secret::new(settings.secret),
            by_peer: Directory::new(max),
            answers: VecDeque::with_capacity(ANSWERS_MAX),
            elsewhere: VecDeque::with_capacity(ANSWERS_MAX),
            by_network: Directory::new(max),
            rates: crate::greet::AnswerRates::default(),
            seals: settings.sealed.take().map(|sealed| Seals::new(&sealed, max)),
            settings,
        }
    }

    /// Begins an association with the endpoint at an address. [`Event::Up`] or [`Event::Down`]
    /// follows, but channels may be opened at once. Returns `None` if there is no room for an
    /// association or its path.
    pub fn dial(&mut self, now: Instant, lane: u8, to: PeerAddress) -> Option<AssociationId> {
        let token = wire::packets::RetryBody { minute: 0.into(), proof: [0; 16] };
        let state = State::Greeting { token, tries: 0, next: now };
        let place = self.admit(now, state, (lane, to), self.settings.packet_bytes)?;
        let hello = hello_of(self, place, token);
        if let Some(seals) = &mut self.seals {
            seals.greet(place, &hello);
        }
        self.refresh(place);
        Some(self.associations[place].id())
    }

    /// Creates an association with its first path and returns its place; `None` if there is no
    /// room.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        state: State,
        (lane, peer_address): (u8, PeerAddress),
        packet_bytes: usize,
    ) -> Option<u32> {
        if self.pools.paths.free() == 0 || self.associations.free() == 0 {
            return None;
        }
        let cookie = self.secret.cookie();
        let association = Association::new(state, cookie, now, peer_address);
        let association = Association { packet_bytes: packet_bytes as u16, ..association };
        let place = self.associations.take(association)?;
        let policy = self.settings.policy(&peer_address);
        let mut path = Path::new(lane, peer_address, policy, packet_bytes);
        // The handshake proves the first path. That it carries full packets is believed until they
        // stay unanswered: so the least round trip is measured before there is a queue.
        (path.is_proven, path.bytes) = (true, packet_bytes as u16);
        let association = &mut self.associations[place];
        (association.place, association.generation) = (place, self.generations[place as usize]);
        association.words.association = place;
        association.add_path(&mut self.pools, path, PathProbes::default());
        Some(place)
    }

    /// Adds a path to an association that this end has dialled: another lane, another address of
    /// the peer, or both. Packets go by the path once the peer has proved that it receives there.
    /// An address that is a claim of the peer is given up if nothing answers. Returns `false` if
    /// there is no room, or the association is not up.
    pub fn add_path(
        &mut self,
        now: Instant,
        association: AssociationId,
        (lane, to): (u8, PeerAddress),
        is_claim: bool,
    ) -> bool {
        let Some(place) = self.find(association) else { return false };
        let bytes = self.associations[place].packet_bytes;
        let mut path = Path::new(lane, to, self.settings.policy(&to), usize::from(bytes));
        let mut proof = PathProbes::default();
        // The peer may have named another's address: it gets no more than any path must carry.
        proof.ask(self.secret.cookie(), LEAST_BYTES, Some(now));
        proof.is_claim = is_claim;
        let association = &mut self.associations[place];
        let may = association.words.is_initiator && association.is_up();
        path.id = association.paths().count() as u8;
        let is_added = may && association.add_path(&mut self.pools, path, proof);
        self.refresh(place);
        is_added
    }

    /// Opens a channel. Messages may be sent at once; [`Event::Opened`] follows when the peer knows
    /// the channel, or [`Event::Closed`]. Returns `None` if there is no room, or if the association
    /// is gone or was not dialled by this end.
    pub fn connect(&mut self, association: AssociationId) -> Option<ConnId> {
        let place = self.find(association)?;
        let association = &mut self.associations[place];
        if matches!(association.state, State::Over(_)) {
            return None;
        }
        let channel = association.words.connect(&mut self.pools)?;
        self.refresh(place);
        Some(self.pools.conn(channel))
    }

    /// Returns the number of messages that [`send`](Endpoint::send) accepts now. Some places are
    /// kept for the messages of the endpoint itself.
    pub fn room(&self) -> usize {
        let kept = self.pools.messages.max() / 8;
        self.pools.messages.free().saturating_sub(kept)
    }

    /// Queues a message, which is delivered exactly once. A `strict` message is delivered after all
    /// earlier messages of its channel and before all later ones. Another message may be delivered
    /// in any order after the last strict one before it. A message to a channel that is over is
    /// dropped; its body comes back in [`Event::Sent`] nevertheless.
    ///
    /// # Panics
    /// Panics if the table of messages is full, which it is not while [`room`](Endpoint::room) is
    /// above zero.
    pub fn send(&mut self, conn: ConnId, frame: Frame, strict: bool) {
        let Some(place) = self.pools.place(conn).filter(|_| self.may_send(conn)) else {
            let buf = frame.body.map(crate::event::MessageBody);
            return self.pools.events.push_back(Event::Sent { conn, buf });
        };
        let association = self.pools.channels[place].association;
        let words = &mut self.associations[association].words;
        words.asked = 0;
        words.queue(&mut self.pools, place, PieceKind::Data, frame, strict);
        self.refresh(association);
    }

    /// Returns `true` if messages can be sent on a channel: neither end has ended it.
    pub fn may_send(&self, conn: ConnId) -> bool {
        let place = self.pools.place(conn);
        let state = place.map(|place| self.pools.channels[place].state);
        matches!(state, Some(ChannelState::Opening | ChannelState::Open))
    }

    /// Ends this end's direction of a channel after the queued messages, or the whole channel at
    /// once if the table of messages is full. [`Event::Closed`] follows when the peer's direction
    /// has ended, too.
    pub fn finish(&mut self, conn: ConnId) {
        let Some(place) = self.pools.place(conn) else { return };
        let channel = &mut self.pools.channels[place];
        if !matches!(channel.state, ChannelState::Opening | ChannelState::Open) {
            return;
        }
        if self.pools.messages.free() == 0 {
            return self.close(conn);
        }
        channel.state = ChannelState::Finishing;
        let association = channel.association;
        let frame = crate::words::bare_frame();
        self.associations[association].words.queue(
            &mut self.pools,
            place,
            PieceKind::End,
            frame,
            true,
        );
        self.refresh(association);
    }

    /// Ends a channel at once; messages that were not sent are dropped.
    pub fn close(&mut self, conn: ConnId) {
        let Some(place) = self.pools.place(conn) else { return };
        let association = self.pools.channels[place].association;
        self.associations[association].words.leave(&mut self.pools, place, EndReason::Local, false);
        self.refresh(association);
    }

    /// Stops the delivery of a channel's messages, and asks the peer to send no more.
    pub fn pause(&mut self, conn: ConnId) {
        self.set_pause(conn, true);
    }

    /// Resumes the delivery of a channel's messages after a [`pause`](Endpoint::pause).
    pub fn resume(&mut self, conn: ConnId) {
        self.set_pause(conn, false);
    }

    fn set_pause(&mut self, conn: ConnId, pause: bool) {
        let Some(place) = self.pools.place(conn) else { return };
        let association = self.pools.channels[place].association;
        let of = &mut self.associations[association];
        of.words.pause(&mut self.pools, place, pause);
        if !pause {
            of.deliver(&mut self.pools, place);
        }
        self.refresh(association);
    }

    /// Returns the number of bytes in messages of a channel that are not wholly acknowledged; zero
    /// if the channel is gone.
    pub fn unsent(&self, conn: ConnId) -> usize {
        self.pools.place(conn).map_or(0, |place| self.pools.channels[place].out.unsent as usize)
    }

    /// Ends an association and all of its channels, without a message to the peer.
    pub fn hang_up(&mut self, association: AssociationId) {
        if let Some(place) = self.find(association) {
            self.associations[place].end(&mut self.pools, AssociationEnd::Local);
            self.refresh(place);
        }
    }

    fn find(&self, id: AssociationId) -> Option<u32> {
        let association = self.associations.get(id.index)?;
        (association.generation == id.generation).then_some(id.index)
    }

    /// Processes a packet that arrived. Packets for others, damaged packets and repeated packets
    /// deliver nothing.
    pub fn receive(&mut self, now: Instant, arrived: ReceivedPacket) {
        let ReceivedPacket { lane, from, mut buf, at, bytes, is_marked, waited } = arrived;
        let came = now - waited;
        self.pools.counters.arrived += 1;
        let packet = buf.bytes().get(at..at + bytes).unwrap_or_default();
        let Ok(head) = ParsedHead::parse(packet) else {
            self.pools.counters.malformed += 1;
            return self.pools.returned.push_back(buf);
        };
        if head.kind != PacketKind::DATA && head.kind != PacketKind::PROBE {
            self.greeted(now, (lane, from), &head, &packet[..head.bytes]);
            return self.pools.returned.push_back(buf);
        }
        let PacketPath { association: place, path, bytes } =
            match enter(self, &head, (lane, from), &mut buf, at) {
                Ok(entered) => entered,
                Err(why) => {
                    drop_packet(self, now, &head, (lane, from), why);
                    return self.pools.returned.push_back(buf);
                }
            };
        let packet = &buf.bytes()[at..at + bytes];
        if head.kind == PacketKind::PROBE {
            let challenge = self.secret.cookie();
            let association = &mut self.associations[place];
            let of = (&mut self.pools, &self.secret);
            moved::move_path(association, of, (path, from), packet);
            association.probed(&mut self.pools, (now, came), &head, packet, (path, challenge));
            self.refresh(place);
            return self.pools.returned.push_back(buf);
        }
        self.pools.paths[path].receipt.echo |= is_marked;
        // Without a free chunk, pieces have no room, but the head still counts.
        let chunk = self.pools.chunks.take(Chunk { buf: None, holds: 1 });
        let of = PacketPosition { path, chunk: chunk.unwrap_or(NONE), at: at as u32 };
        let association = &mut self.associations[place];
        let heard = association.hear(&mut self.pools, (now, came), &head, packet, of);
        self.pools.counters.malformed += u64::from(heard.is_err());
        match chunk {
            None => self.pools.returned.push_back(buf),
            Some(chunk) => {
                self.pools.chunks[chunk].buf = Some(buf);
                crate::pools::let_go(&mut self.pools.chunks, &mut self.pools.returned, chunk);
            }
        }
        self.refresh(place);
    }

    /// Returns the indices of the association and of the path that a packet belongs to; `None` if
    /// the packet's cookie is wrong, or the packet came from another address.
    fn path_of(&self, head: &ParsedHead, lane: u8, from: &PeerAddress) -> Option<(u32, u32)> {
        let place = self.addressee(head)?;
        let comes_by = |path: &u32| {
            let path = &self.pools.paths[*path];
            path.lane == lane && path.to == *from
        };
        self.associations[place].paths().find(comes_by).map(|path| (place, path))
    }

    /// Returns the index of the association that a packet names; `None` unless the association is
    /// up and the packet has its cookie.
    fn addressee(&self, head: &ParsedHead) -> Option<u32> {
        let place = head.association & 0x00ff_ffff;
        let association = self.associations.get(place)?;
        let is_ours = association.cookie == head.cookie && association.is_up();
        (is_ours && head.association >> 24 == u32::from(self.settings.worker)).then_some(place)
    }

    /// Removes and returns the next event; `None` if there is none.
    pub fn event(&mut self) -> Option<Event> {
        self.pools.events.pop_front()
    }

    /// Returns `true` if there is an event to fetch.
    pub fn has_events(&self) -> bool {
        !self.pools.events.is_empty()
    }

    /// Sets the local address on each lane. Peers are told the addresses if there are several.
    pub fn tell(&mut self, peer_addresses: [Option<PeerAddress>; LANES_MAX]) {
        self.pools.gate.peer_addresses = peer_addresses;
    }

    /// Sets whether the endpoint answers hellos.
    pub fn accept(&mut self, accepts: bool) {
        self.settings.accepts = accepts;
    }

    /// Returns the bytes of a delivery.
    pub fn bytes(&self, delivery: &Delivery) -> &[u8] {
        if delivery.chunk == NONE {
            return &[];
        }
        let buf = self.pools.chunks[delivery.chunk].buf.as_ref();
        let buf = buf.expect("a chunk is whole between packets");
        &buf.bytes()[delivery.at as usize..][..delivery.bytes as usize]
    }

    /// Gives the bytes of a delivery back to the endpoint.
    pub fn give(&mut self, delivery: Delivery) {
        let Pools { chunks, returned, .. } = &mut self.pools;
        crate::pools::let_go(chunks, returned, delivery.chunk);
    }

    /// Returns a buffer that is not needed any more, to be given back to its lane; `None` if there
    /// is none.
    pub fn take_back(&mut self) -> Option<Buf> {
        self.pools.returned.pop_front()
    }

    /// Writes the next packet that goes by one of the lanes with room: bit n of `room` stands for
    /// lane n. Handshakes, probes and bare acknowledgements may go by any lane, since they may be
    /// lost. Returns `false` if there is nothing to send now.
    pub fn transmit_by(&mut self, room: u8, now: Instant, packet: &mut Packet) -> bool {
        let before = core::mem::replace(&mut self.pools.gate.lanes_with_room, room);
        if room & !before != 0 {
            while let Some(place) = self.held_up.0.pop() {
                if self.associations.get(place).is_some() {
                    self.refresh(place);
                }
            }
        }
        self.transmit(now, packet)
    }

    /// Writes the next packet. Returns `false` if there is nothing to send now. A call may end
    /// associations, so there may be events afterwards.
    pub fn transmit(&mut self, now: Instant, packet: &mut Packet) -> bool {
        packet.set_sealed(false);
        if self.answer(packet) || ask_elsewhere(self, packet) {
            return true;
        }
        while let Some(place) = self.busy.front() {
            packet.set_sealed(false);
            if greet(self, now, place, packet) {
                return true;
            }
            let associations = self.associations.taken();
            let credits = self.pools.grant(associations);
            let association = &mut self.associations[place];
            let is_up = association.is_up();
            packet.set_sealed(self.seals.is_some());
            if is_up && association.transmit(&mut self.pools, now, credits, packet) {
                let seal = self.seals.as_mut().and_then(|seals| seals.get(place));
                seal.into_iter().for_each(|seal| packet.seal(seal));
                // The next packet is another association's.
                self.busy.pop(&mut self.associations);
                self.busy.push(&mut self.associations, place);
                return true;
            }
            self.busy.pop(&mut self.associations);
            self.associations[place].is_busy = false;
            if is_up && is_held_up(&self.associations[place], &self.pools) {
                self.held_up.add(place);
            }
            self.settle(now, place);
        }
        false
    }

    /// Returns the bytes of a packet, part by part.
    pub fn slices<'a>(&'a self, packet: &'a Packet) -> impl Iterator<Item = &'a [u8]> {
        packet.slices(&self.pools.messages)
    }

    /// Releases the bodies that a packet has lent to a lane, once the lane has sent or dropped it.
    pub fn gone(&mut self, lent: LentBodies) {
        let mut at = lent.0;
        while at != NONE {
            let loan = self.pools.loans.give(at);
            at = loan.next;
            self.pools.messages[loan.message].loans -= 1;
            self.pools.settle(loan.message);
        }
    }

    /// Does the timed work that is due at `now`: probes, losses, time-outs.
    pub fn advance(&mut self, now: Instant) {
        while let Some((at, place)) = self.deadlines.first()
            && at <= now
        {
            self.associations[place].on_time(&mut self.pools, now, &mut self.secret);
            // The next deadline is set when there is nothing to send any more.
            self.deadlines.set(place, None);
            self.refresh(place);
        }
    }

    /// Returns the time at which [`advance`](Endpoint::advance) and then
    /// [`transmit`](Endpoint::transmit) are to be called, if nothing happens before; `None` if
    /// nothing is due. To be called when there is nothing to transmit.
    pub fn wake_at(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// Returns the endpoint's counters.
    pub fn counters(&self) -> Counters {
        self.pools.counters
    }

    /// Returns `true` if the endpoint keeps no message, no piece sent or received, no loan to the
    /// lane and no buffer of the lane.
    pub fn is_at_rest(&self) -> bool {
        let pools = &self.pools;
        let taken = [pools.messages.taken(), pools.pieces.taken(), pools.loans.taken()];
        let received = [pools.holds.taken(), pools.chunks.taken(), pools.returned.len()];
        taken.iter().chain(&received).all(|taken| *taken == 0)
    }

    /// Puts an association into the queue of busy ones, since it may have something to send or may
    /// end.
    pub(crate) fn refresh(&mut self, place: u32) {
        if !self.associations[place].is_busy {
            self.associations[place].is_busy = true;
            self.busy.push(&mut self.associations, place);
        }
    }

    /// Sets the next deadline of an association that has nothing to send now, or removes the
    /// association if it is over.
    fn settle(&mut self, now: Instant, place: u32) {
        let is_idle = self.pools.channels_of[place as usize] == 0;
        let association = &mut self.associations[place];
        let words = &mut association.words;
        words.idle_since = is_idle.then(|| words.idle_since.unwrap_or(now));
        let State::Over(why) = association.state else {
            let deadline = association.wake_at(&self.pools, now);
            return self.deadlines.set(place, deadline);
        };
        if !is_idle {
            return self.deadlines.set(place, None);
        }
        let id = association.id();
        self.deadlines.set(place, None);
        let association = self.associations.give(place);
        self.generations[place as usize] = self.generations[place as usize].wrapping_add(1);
        forget(self, place, &association);
        self.seals.iter_mut().for_each(|seals| seals.forget(place));
        for path in association.paths() {
            let path = self.pools.paths.give(path);
            if path.flight.window != NONE {
                self.pools.windows.give(path.flight.window);
            }
        }
        self.pools.events.push_back(Event::Down(id, why));
    }
}

/// Indices of associations that have something to send by lanes without room. An index may be
/// listed more than once; the list is at most as long as the table of associations.
struct BlockedAssociations(alloc::vec::Vec<u32>);

impl BlockedAssociations {
    fn add(&mut self, place: u32) {
        if self.0.len() == self.0.capacity() {
            self.0.sort_unstable();
            self.0.dedup();
        }
        // Without room for another, each association is here, and so this one.
        if self.0.len() < self.0.capacity() {
            self.0.push(place);
        }
    }
}

/// Returns `true` if an association has something to send, and a lane of its paths has no room.
fn is_held_up(association: &Association, pools: &Pools) -> bool {
    association.words.are_any() && association.paths().any(|path| !pools.lane_has_room(path))
}

/// Finds the association and the path of a packet, and decrypts the packet if it is sealed. A probe
/// from a new address adds a path. A packet of a path that came from another address is taken if it
/// is sealed. The packet is `head.bytes` bytes of the buffer from `at` on.
///
/// # Errors
/// The reason that the packet is dropped. Nothing of the endpoint has changed then.
fn enter(
    endpoint: &mut Endpoint,
    head: &ParsedHead,
    (lane, from): (u8, PeerAddress),
    buf: &mut Buf,
    at: usize,
) -> Result<PacketPath, DropReason> {
    let known = endpoint.path_of(head, lane, &from);
    let moved = if known.is_none() { path_of_moved(endpoint, head, lane) } else { None };
    let (place, path) = match known.or(moved) {
        Some((place, path)) => (place, Some(path)),
        None => (newcomer(endpoint, head).ok_or(DropReason::Unknown)?, None),
    };
    let packet = &mut buf.prefix_mut(at + head.bytes)[at..];
    let of = (&endpoint.associations[place], path);
    let bytes = open(&mut endpoint.seals, &endpoint.pools, of, head, packet)?;
    if let Some((place, path)) = moved {
        let of = (&endpoint.associations[place], path);
        let by = (&endpoint.pools, &endpoint.secret);
        let answer = moved::answer_to(of, by, head, from);
        // Without room, the peer's next packet is answered.
        let room = endpoint.elsewhere.capacity() - endpoint.elsewhere.len();
        endpoint.elsewhere.extend(answer.into_iter().take(room));
    }
    let path = path.or_else(|| new_path(endpoint, head, place, (lane, from)));
    let path = path.ok_or(DropReason::Unknown)?;
    Ok(PacketPath { association: place, path, bytes })
}

/// Returns the association and the path of a sealed packet that came from another address than the
/// path's; `None` if there is none, or its address cannot change.
fn path_of_moved(endpoint: &Endpoint, head: &ParsedHead, lane: u8) -> Option<(u32, u32)> {
    endpoint.seals.as_ref()?;
    let place = endpoint.addressee(head)?;
    let association = &endpoint.associations[place];
    let path = moved::path_of_moved(association, &endpoint.pools, head, lane)?;
    Some((place, path))
}

/// Writes the oldest queued probe to another address of a peer into a packet, and seals it. Returns
/// `false` if there is none.
fn ask_elsewhere(endpoint: &mut Endpoint, packet: &mut Packet) -> bool {
    while let Some(there) = endpoint.elsewhere.pop_front() {
        let Some(place) = endpoint.find(there.association) else { continue };
        let association = &endpoint.associations[place];
        let seal = endpoint.seals.as_mut().and_then(|seals| seals.get(place));
        let Some(seal) = seal.filter(|_| association.is_up()) else { continue };
        let credits = endpoint.pools.grant(endpoint.associations.taken());
        packet.set_sealed(true);
        moved::ask(association, &mut endpoint.pools, credits, &there, packet);
        packet.seal(seal);
        return true;
    }
    false
}

/// Counts a packet that was dropped. A packet of an unknown association is answered with a reset.
fn drop_packet(
    endpoint: &mut Endpoint,
    now: Instant,
    head: &ParsedHead,
    (lane, from): (u8, PeerAddress),
    why: DropReason,
) {
    let counters = &mut endpoint.pools.counters;
    match why {
        DropReason::Repeated => counters.repeated += 1,
        DropReason::Forged => counters.malformed += 1,
        DropReason::Unsealed => counters.unknown += 1,
        DropReason::Unknown => {
            counters.unknown += 1;
            endpoint.disown(now, head, lane, from);
        }
    }
}

/// Returns the index of the association to which a probe from a new address adds a path; `None` if
/// the packet is no probe, or the local end has dialled the association.
fn newcomer(endpoint: &Endpoint, head: &ParsedHead) -> Option<u32> {
    let place = endpoint.addressee(head)?;
    let is_initiator = endpoint.associations[place].words.is_initiator;
    (head.kind == PacketKind::PROBE && !is_initiator).then_some(place)
}

/// Adds a path for a probe that came from a new address with the right cookie. Returns the path's
/// place; `None` if there is no room.
fn new_path(
    endpoint: &mut Endpoint,
    head: &ParsedHead,
    place: u32,
    (lane, from): (u8, PeerAddress),
) -> Option<u32> {
    // Further paths leave one for each association that may come.
    if endpoint.pools.paths.free() <= endpoint.associations.free() {
        return None;
    }
    let association = &mut endpoint.associations[place];
    let bytes = usize::from(association.packet_bytes);
    let mut path = Path::new(lane, from, endpoint.settings.policy(&from), bytes);
    path.id = head.mark.unwrap_or_default().path;
    let is_added = association.add_path(&mut endpoint.pools, path, PathProbes::default());
    is_added.then(|| association.paths().last()).flatten()
}

/// Ends all associations and their channels, without a message to the peers.
pub(crate) fn hang_up_all(endpoint: &mut Endpoint) {
    for place in 0..endpoint.associations.max() as u32 {
        if let Some(association) = endpoint.associations.get_mut(place) {
            association.end(&mut endpoint.pools, AssociationEnd::Reset);
            endpoint.refresh(place);
        }
    }
}
