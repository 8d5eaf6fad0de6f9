//! Connections over packets behind the ports of the network ([`Streams`], [`Transport`], [`Dial`]).
//!
//! A frame is a message, and every message is strict: sessions see a stream of bytes in order. A
//! body is returned when the peer has acknowledged it. Connections do not change workers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, Instant, ListenerId, Migrate, NetEvent, PacketReading,
    Streams, TenantId, Ticket, Transport,
};

use crate::batch::Batch;
use crate::caller::Caller;
use crate::channel::{REFUSED, RESET, TIMED_OUT};
use crate::conns::{Conns, State};
use crate::endpoint::{Endpoint, ReceivedPacket, hang_up_all};
use crate::event::{AssociationEnd, AssociationId, Delivery, Event};
use crate::greet::farewell;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::packet::Packet;
use crate::peer_address::PeerAddress;
use crate::routes::Route;
use crate::settings::{LANES_MAX, Settings};
use crate::waiting::WaitingFrames;

/// The time that the peer of a finished connection has to close its side.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// The sizes of a transport over packets.
#[derive(Clone, Debug)]
pub struct TransportSettings {
    /// The endpoint's sizes.
    pub endpoint: Settings,
    /// Maximum number of simultaneous connections.
    pub connections_max: usize,
    /// The number of this transport's first connection. Lower numbers belong to the other half of a
    /// combined transport.
    pub first: u32,
}

/// Bytes received on a connection, of which some have not been copied into a buffer of the user
/// yet.
struct PartialDelivery {
    place: u32,
    delivery: Delivery,
    /// The number of bytes that were copied into buffers.
    at: usize,
}

/// A thread's connections over packets.
pub struct Packets<L> {
    endpoint: Endpoint,
    lanes: Lanes<L>,
    conns: Conns,
    packet: Packet,
    arrived: Vec<ReceivedPacket>,
    events: VecDeque<NetEvent>,
    /// The number of polls so far. An index into `events` is valid until the next poll.
    taken: u64,
    /// Buffers for received bytes.
    bufs: Vec<Buf>,
    partly: Option<PartialDelivery>,
    caller: Caller,
    listener: Option<ListenerId>,
    refuses: bool,
    /// Connections that wait for the peer's close, with their deadlines, earliest first.
    finishing: VecDeque<(Instant, ConnId)>,
    /// Frames that wait for their batch; `None` if frames leave with their turn.
    waiting: Option<WaitingFrames>,
    now: Instant,
}

impl<L: Lane> Packets<L> {
    /// Creates a transport without connections over one to [`LANES_MAX`] lanes. Received bytes are
    /// copied into `bufs`.
    ///
    /// # Panics
    /// Panics if there is no buffer, no lane, or there are too many lanes.
    pub fn new(settings: TransportSettings, lanes: Vec<L>, bufs: Vec<Buf>) -> Packets<L> {
        assert!(!bufs.is_empty(), "received bytes go up in buffers");
        let TransportSettings { endpoint, connections_max, first } = settings;
        let events = endpoint.messages_max + 2 * connections_max + bufs.len();
        Packets {
            lanes: Lanes::new(lanes),
            conns: Conns::new(first, connections_max, endpoint.channels_max),
            packet: Packet::new(endpoint.packet_bytes),
            arrived: Vec::with_capacity(endpoint.chunks_max),
            events: VecDeque::with_capacity(events),
            taken: 0,
            bufs,
            partly: None,
            caller: Caller::default(),
            listener: None,
            refuses: false,
            finishing: VecDeque::with_capacity(connections_max),
            waiting: None,
            now: Instant::ZERO,
            endpoint: Endpoint::new(endpoint),
        }
    }

    /// Accepts connections for `listener` from now on, or no new ones if it is `None`. Existing
    /// connections stay.
    pub fn listen(&mut self, listener: Option<ListenerId>) {
        self.listener = listener;
        self.endpoint.accept(listener.is_some());
    }

    /// Makes frames leave by another rule than [`Batch::Turn`], and limits the records of a packet
    /// to the rule's level. It is for measurements: see docs/adr/0051-shaped-lanes.md.
    pub fn batch(&mut self, rule: Batch) {
        let waits = matches!(rule, Batch::Static(_) | Batch::Adaptive(_));
        let waiting = WaitingFrames::new(rule, self.endpoint.room());
        self.packet.set_records_max(waiting.level().unwrap_or(u32::MAX));
        self.waiting = waits.then_some(waiting);
    }

    /// Refuses new connections, or accepts them again.
    pub fn refuse(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    /// Leaves new connections unanswered, so that their peers try again, or accepts them again.
    pub fn hold(&mut self, is_held: bool) {
        self.endpoint.pools.gate.is_held = is_held;
    }

    /// Sets this end's address on each lane, which clients are told if there are several.
    pub fn tell(&mut self, peer_addresses: [Option<PeerAddress>; LANES_MAX]) {
        self.endpoint.tell(peer_addresses);
    }

    /// Makes [`Dial::dial`] connect to the endpoint that has these addresses: at the first one, or
    /// at another one if it is silent. The others become further paths, as do those that the
    /// endpoint tells. A lane is added for each of them.
    pub fn dial_to(&mut self, servers: &[PeerAddress]) {
        self.caller.routes.reach(servers);
    }

    /// Makes [`Dial::dial`] connect to the endpoint at the end of these routes, by lanes that are
    /// there: by the first route with an address, or by another one if that is silent. The others
    /// become further paths.
    pub fn dial_by(&mut self, routes: &[Route]) {
        self.caller.routes.reach_by(routes);
    }

    /// Divides further dials among `count` associations with the server, in turns, where usually
    /// all share one. These associations have one path each. It is for measurements: see
    /// docs/adr/0051-shaped-lanes.md.
    pub fn divide(&mut self, count: usize) {
        self.caller.divide(count);
    }

    /// Returns a further address of the server for which a lane is to be added; `None` if there is
    /// none. [`add_lane`](Packets::add_lane) or [`forgo_lane`](Packets::forgo_lane) answers it.
    pub fn wanted_lane(&self) -> Option<PeerAddress> {
        self.caller.routes.address_of(self.lanes.count())
    }

    /// Adds a lane to the address that [`wanted_lane`](Packets::wanted_lane) returns.
    pub fn add_lane(&mut self, lane: L) {
        let number = self.lanes.count();
        self.lanes.add(lane);
        self.use_lane(number);
    }

    /// Gives up the address that [`wanted_lane`](Packets::wanted_lane) returns: no lane leads
    /// there.
    pub fn forgo_lane(&mut self) {
        self.caller.routes.forgo(self.lanes.count());
    }

    /// Adds the path by a lane to the address that it leads to, if both are there. The lane may
    /// have led elsewhere in an earlier association.
    fn use_lane(&mut self, number: usize) {
        if let Some(to) = self.caller.routes.address_of(number)
            && let Some(lane) = self.lanes.all().get_mut(number)
        {
            lane.renew(to);
            self.add_path(number as u8, to);
        }
    }

    /// Adds a path to the association with the server, if there is one.
    fn add_path(&mut self, lane: u8, to: PeerAddress) {
        if let Some(association) = self.caller.association {
            let is_claim = !self.caller.routes.names(&to);
            self.endpoint.add_path(self.now, association, (lane, to), is_claim);
        }
    }

    /// Notes a further address of the server that was dialled.
    fn told(&mut self, peer_address: PeerAddress) {
        if !self.caller.routes.note(peer_address) {
            return;
        }
        if let Some(association) =
            self.caller.association.filter(|_| self.caller.routes.is_by_segment())
        {
            for lane in self.caller.routes.searching() {
                self.endpoint.add_path(self.now, association, (lane, peer_address), true);
            }
        } else {
            self.use_lane(self.caller.routes.last_lane());
        }
    }

    /// Tells the peers that all associations are over. Nothing that arrives for them may be passed
    /// on afterwards.
    pub fn leave(&mut self) {
        let mut bytes = Vec::with_capacity(crate::packet::RESET_BYTES);
        let mut at = 0;
        while farewell(&self.endpoint, &mut at, &mut self.packet) {
            bytes.clear();
            self.endpoint.slices(&self.packet).for_each(|part| bytes.extend_from_slice(part));
            if let Some(lane) = self.lanes.all().get_mut(usize::from(self.packet.lane)) {
                lane.part(self.packet.to, &bytes);
            }
        }
    }

    /// Ends all connections at once, and tells the peers.
    pub fn abandon(&mut self) {
        self.leave();
        hang_up_all(&mut self.endpoint);
    }

    /// Returns the counters of the transport's packets, and its number of associations.
    pub fn reading(&self) -> PacketReading {
        let counted = self.endpoint.counters();
        PacketReading {
            received: counted.arrived,
            sent: counted.sent,
            resent: counted.resent,
            malformed: counted.malformed,
            unknown: counted.unknown,
            repeated: counted.repeated,
            no_room: counted.refused,
            paths_left: counted.paths_left,
            paths_proven: counted.paths_proven,
            lanes: self.lanes.carried(),
            too_many: counted.hellos_dropped,
            associations: self.endpoint.associations.taken() as u64,
        }
    }

    /// Returns the number of connections, including dials and connections that are ending.
    pub fn connections(&self) -> usize {
        self.conns.taken()
    }

    /// Returns `true` if there are no connections, and nothing is sent or held.
    pub fn is_at_rest(&self) -> bool {
        let has_events = !self.events.is_empty() || self.endpoint.has_events();
        let waits = self.waiting.as_ref().is_some_and(|waiting| waiting.len() > 0);
        let holds = has_events || waits || self.partly.is_some() || !self.endpoint.is_at_rest();
        !holds && self.connections() == 0
    }

    /// Takes the buffers for received bytes out of a transport that is not used any more.
    pub fn take_apart(&mut self) -> Vec<Buf> {
        core::mem::take(&mut self.bufs)
    }

    /// Returns `true` if a lane has something for the next poll.
    pub fn is_reached(&self) -> bool {
        self.lanes.has_work()
    }

    /// Returns the lanes that carry the packets.
    pub fn lanes(&mut self) -> &mut [L] {
        self.lanes.all()
    }

    /// Processes the network's report that nothing receives at the server's address. The report may
    /// be forged, so it ends only an association that is not up yet.
    fn refused(&mut self, errno: i32) {
        while let Some(association) = self.caller.unanswered(errno) {
            self.endpoint.hang_up(association);
        }
    }

    /// Opens channels for waiting dials, as many as may be opened now.
    fn connect(&mut self, now: Instant) {
        // A new channel may have the place of one whose end was not followed yet.
        if self.partly.is_some() || self.endpoint.has_events() {
            return;
        }
        while let Some(&place) = self.caller.waiting.front() {
            let Some((lane, server)) = self.caller.routes.dialled() else { return };
            self.caller.choose();
            if self.caller.association.is_none() {
                if !self.caller.has_others() {
                    self.lanes.all()[usize::from(lane)].renew(server);
                }
                self.caller.routes.begin();
                self.caller.association = self.endpoint.dial(now, lane, server);
                (self.caller.is_up, self.caller.refusal) = (false, None);
            }
            let Some(association) = self.caller.association else { return };
            let Some(channel) = self.endpoint.connect(association) else { return };
            self.caller.waiting.pop_front();
            self.conns.tie(place, channel);
            self.conns.at(place).state = State::Dialling;
        }
    }

    /// Processes the endpoint's events while there are buffers for received bytes.
    fn follow(&mut self) {
        loop {
            if let Some(partly) = self.partly.take()
                && let Some(rest) = self.hand_up(partly)
            {
                self.partly = Some(rest);
                return;
            }
            if self.bufs.is_empty() {
                return;
            }
            let Some(event) = self.endpoint.event() else { return };
            match event {
                Event::Opened { conn, peer, .. } => self.opened(conn, peer),
                Event::Received { conn, delivery } => match self.conns.of_channel(conn) {
                    Some(place) => {
                        if let (Some(waiting), true) = (&mut self.waiting, delivery.is_last) {
                            waiting.answered(delivery.offset + delivery.bytes);
                        }
                        self.partly = Some(PartialDelivery { place, delivery, at: 0 });
                    }
                    None => self.endpoint.give(delivery),
                },
                Event::Sent { conn, buf } => {
                    if let Some(place) = self.conns.of_channel(conn) {
                        self.conns.remove_frame(place);
                        let conn = self.conns.id(place);
                        self.events.extend(buf.map(|buf| NetEvent::Sent { conn, buf: buf.0 }));
                    }
                }
                Event::Closed { conn, reason } => self.closed(conn, reason),
                Event::Up(association) => self.up(association),
                Event::AddressAnnounced(association, peer_address) => {
                    if self.caller.association == Some(association) {
                        self.told(peer_address);
                    }
                }
                Event::Down(association, why) => self.down(association, why),
            }
        }
    }

    /// Processes the beginning of an association, which gets a path for each route to the server
    /// that is known.
    fn up(&mut self, association: AssociationId) {
        if !self.caller.up(association) || self.caller.is_divided() {
            return;
        }
        let mut number = 1;
        while let Some((lane, to)) = self.caller.routes.nth(number) {
            match self.caller.routes.is_by_segment() {
                true => self.add_path(lane, to),
                false => self.told(to),
            }
            number += 1;
        }
    }

    fn opened(&mut self, channel: ConnId, peer: PeerAddress) {
        let peer = peer.peer();
        if let Some(place) = self.conns.of_channel(channel) {
            if self.conns.at(place).state == State::Dialling {
                self.conns.at(place).state = State::Open;
                let conn = self.conns.id(place);
                self.events.push_back(NetEvent::opened(conn, peer, None));
            }
            return;
        }
        let listener = self.listener.filter(|_| !self.refuses);
        let place = listener.and_then(|_| self.conns.take(State::Open));
        let Some(place) = place else { return self.endpoint.close(channel) };
        self.conns.tie(place, channel);
        let conn = self.conns.id(place);
        self.events.push_back(NetEvent::opened(conn, peer, listener));
    }

    /// Copies received bytes into buffers of events. Returns the bytes that found no buffer.
    fn hand_up(&mut self, mut partly: PartialDelivery) -> Option<PartialDelivery> {
        let id = self.conns.id(partly.place);
        let conn = self.conns.at(partly.place);
        let bytes = match conn.state {
            State::Open => self.endpoint.bytes(&partly.delivery),
            _ => &[],
        };
        while partly.at < bytes.len() {
            let rest = &bytes[partly.at..];
            let (taken, nth) = conn.open;
            let open = (taken == self.taken).then(|| self.events.get_mut(nth as usize)).flatten();
            if let Some(NetEvent::Received { conn, buf, len }) = open
                && *conn == id
                && *len < buf.capacity()
            {
                let count = rest.len().min(buf.capacity() - *len);
                buf.prefix_mut(*len + count)[*len..].copy_from_slice(&rest[..count]);
                (*len, partly.at) = (*len + count, partly.at + count);
                continue;
            }
            let Some(buf) = self.bufs.pop() else { return Some(partly) };
            conn.open = (self.taken, self.events.len() as u32);
            self.events.push_back(NetEvent::Received { conn: id, buf, len: 0 });
        }
        self.endpoint.give(partly.delivery);
        None
    }

    fn closed(&mut self, channel: ConnId, reason: CloseReason) {
        let Some(place) = self.conns.of_channel(channel) else { return };
        let reason = match (self.conns.at(place).state, reason) {
            (State::Dialling, CloseReason::Reset(errno)) => CloseReason::Unreachable(errno),
            (State::Dialling, _) => {
                CloseReason::Unreachable(self.caller.refusal.unwrap_or(REFUSED))
            }
            (State::Closing, _) => CloseReason::Local,
            (_, reason) => reason,
        };
        let conn = self.conns.vacate(place);
        self.events.push_back(NetEvent::Closed { conn, reason });
    }

    /// Processes the end of an association: fails the dials that waited for it. If it was up and
    /// the peer forgot it, or it was idle, they wait for a new association instead.
    fn down(&mut self, association: AssociationId, why: AssociationEnd) {
        if self.caller.association != Some(association) {
            self.caller.forget(association);
            return;
        }
        if why == AssociationEnd::Idle || why == AssociationEnd::Reset && self.caller.is_up {
            // Dials that wait came too late for it, and begin another one.
            self.caller.association = None;
            return;
        }
        if why == AssociationEnd::Silent || self.caller.refusal.is_some() {
            // The next dial is to another address of the server.
            self.caller.routes.turn();
        }
        let errno = self.caller.refusal.take().unwrap_or(match why {
            AssociationEnd::Silent => TIMED_OUT,
            AssociationEnd::Reset | AssociationEnd::Local | AssociationEnd::Idle => RESET,
            AssociationEnd::Refused(reason) => AssociationEnd::refusal(reason),
        });
        self.caller.association = None;
        while let Some(place) = self.caller.waiting.pop_front() {
            let conn = self.conns.vacate(place);
            self.events
                .push_back(NetEvent::Closed { conn, reason: CloseReason::Unreachable(errno) });
        }
    }

    /// Closes connections whose peers did not close in time. While frames are still being sent, the
    /// peer gets more time: the caller of `finish` sets the limit.
    fn expire_finishing(&mut self) {
        let now = self.now;
        while let Some((_, conn)) = self.finishing.pop_front_if(|(deadline, _)| *deadline <= now) {
            if self.unsent(conn) > 0 {
                self.finishing.push_back((now + FINISH_LIMIT, conn));
            } else {
                self.close(conn);
            }
        }
    }

    /// Passes a frame on to its channel.
    fn pass(&mut self, conn: ConnId, frame: Frame) {
        let channel = self.conns.channel(conn).filter(|channel| self.endpoint.may_send(*channel));
        let Some(channel) = channel else {
            self.events.extend(frame.body.map(|buf| NetEvent::Sent { conn, buf }));
            return;
        };
        let place = self.conns.of_channel(channel).expect("a connection has the channel");
        self.conns.add_frame(place);
        self.endpoint.send(channel, frame, true);
    }

    /// Passes on the frames of the batches that leave now.
    fn release(&mut self, now: Instant) {
        let Some(waiting) = &mut self.waiting else { return };
        waiting.advance(now);
        self.packet.set_records_max(waiting.level().unwrap_or(u32::MAX));
        for _ in 0..waiting.due(now) {
            if let Some((conn, frame)) = self.waiting.as_mut().and_then(WaitingFrames::take) {
                self.pass(conn, frame);
            }
        }
    }

    /// Passes on all frames that wait for their batch.
    fn release_all(&mut self) {
        while let Some((conn, frame)) = self.waiting.as_mut().and_then(WaitingFrames::take) {
            self.pass(conn, frame);
        }
    }

    fn return_buffers(&mut self) {
        while let Some(buf) = self.endpoint.take_back() {
            self.lanes.give(buf);
        }
    }
}

impl<L: Lane> Streams for Packets<L> {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        self.now = now;
        if let Some(errno) = self.lanes.poll(now, &mut self.arrived) {
            self.refused(errno);
        }
        for arrived in self.arrived.drain(..) {
            self.endpoint.receive(now, arrived);
        }
        self.endpoint.advance(now);
        self.follow();
        self.return_buffers();
        self.expire_finishing();
        let count = max.min(self.events.len());
        events.extend(self.events.drain(..count));
        self.taken += 1;
    }

    fn give(&mut self, buf: Buf) {
        self.bufs.push(buf);
    }

    fn room(&self) -> usize {
        let waiting = self.waiting.as_ref().map_or(0, WaitingFrames::len);
        self.endpoint.room().saturating_sub(waiting)
    }

    fn send(&mut self, now: Instant, conn: ConnId, frame: Frame) {
        match &mut self.waiting {
            Some(waiting) => waiting.push(now, conn, frame),
            None => self.pass(conn, frame),
        }
    }

    fn kick(&mut self, now: Instant) {
        self.connect(now);
        self.release(now);
        loop {
            let room = self.lanes.room();
            if room == 0 || !self.endpoint.transmit_by(room, now, &mut self.packet) {
                break;
            }
            self.lanes.put(&self.packet, self.endpoint.slices(&self.packet));
            if let Some(lent) = self.packet.lent() {
                self.endpoint.gone(lent);
            }
        }
        self.lanes.kick();
        self.return_buffers();
    }

    fn close(&mut self, conn: ConnId) {
        self.release_all();
        let Some(place) = self.conns.find(conn) else { return };
        match self.conns.channel(conn) {
            Some(channel) => {
                self.conns.at(place).state = State::Closing;
                self.endpoint.close(channel);
            }
            None => {
                self.caller.waiting.retain(|waiting| *waiting != place);
                self.conns.vacate(place);
                self.events.push_back(NetEvent::Closed { conn, reason: CloseReason::Local });
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let goes_on =
            !self.bufs.is_empty() && (self.partly.is_some() || self.endpoint.has_events());
        if !self.events.is_empty() || goes_on || self.lanes.has_work() {
            return Some(Instant::ZERO);
        }
        let finishing = self.finishing.front().map(|(deadline, _)| *deadline);
        let batch = self.waiting.as_ref().and_then(WaitingFrames::wake_at);
        [finishing, self.endpoint.wake_at(), batch].into_iter().flatten().min()
    }
}

impl<L: Lane> Transport for Packets<L> {
    fn pause(&mut self, conn: ConnId) {
        if let Some(channel) = self.conns.channel(conn) {
            self.endpoint.pause(channel);
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(channel) = self.conns.channel(conn) {
            self.endpoint.resume(channel);
        }
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.conns.channel(conn).map_or(0, |channel| self.endpoint.unsent(channel))
    }

    fn charge(&mut self, conn: ConnId, account: TenantId) {
        self.conns.charge(conn, account);
    }

    fn queued(&self, account: TenantId) -> usize {
        self.conns.queued(account)
    }

    fn finish(&mut self, conn: ConnId) {
        self.release_all();
        let Some(channel) = self.conns.channel(conn) else { return };
        if self.endpoint.may_send(channel) {
            self.endpoint.finish(channel);
            self.finishing.push_back((self.now + FINISH_LIMIT, conn));
            self.endpoint.resume(channel); // to see the peer's close
        }
    }

    fn stop_listening(&mut self) {
        self.listen(None);
    }
}

impl<L: Lane> Migrate for Packets<L> {
    fn moves_to(&self, _conn: ConnId, _to: u16) -> bool {
        false
    }

    fn still(&mut self, conn: ConnId) {
        self.pause(conn);
    }

    fn is_still(&self, _conn: ConnId) -> bool {
        false // so none is ever detached
    }

    fn detach(&mut self, conn: ConnId, _to: u16) -> Ticket {
        unreachable!("connection {conn:?} is never still");
    }

    fn attach(&mut self, _ticket: Ticket) -> Option<ConnId> {
        None
    }
}

impl<L: Lane> Dial for Packets<L> {
    fn dial(&mut self, now: Instant) -> ConnId {
        match self.conns.take(State::Waiting) {
            Some(place) => {
                self.caller.waiting.push_back(place);
                self.connect(now);
                self.conns.id(place)
            }
            None => {
                self.caller.failed = self.caller.failed.wrapping_add(1);
                let conn = ConnId { index: u32::MAX, generation: self.caller.failed };
                let reason = CloseReason::Unreachable(REFUSED);
                self.events.push_back(NetEvent::Closed { conn, reason });
                conn
            }
        }
    }
}
