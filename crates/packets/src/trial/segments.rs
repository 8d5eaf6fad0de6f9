//! Tests of network cards on Ethernet segments that do not reach each other: a client with some
//! cards, and a server with some.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, FrameHead, Instant, ListenerId, Mac, NetEvent, Streams,
    TenantId, Transport,
};

use super::perfect::SMALL;
use crate::transport::{Packets, TransportSettings};
use crate::{LANES_MAX, Lane, PeerAddress, Policy, ReceivedPacket, Route, Settings};

/// The time that a packet takes, and the time between two turns, while there is a load.
const STEP: Duration = Duration::from_micros(50);

const PORT: u16 = 7420;

/// Frames of the client in flight: several packets for each card.
const IN_FLIGHT: usize = 256;

/// Returns the address of an end at its lane.
fn peer_address(end: u8, lane: u8) -> PeerAddress {
    PeerAddress::Ethernet { mac: Mac([2, 0, 0, 0, end, lane]), port: PORT }
}

/// The packets in transit, and the segments.
#[derive(Default)]
struct SegmentNetwork {
    /// Each packet with its segment, sender and receiver.
    flying: Vec<(u8, PeerAddress, PeerAddress, Vec<u8>)>,
    cut: Vec<u8>,
    /// Packets that were sent, by sender and receiver.
    sent: Vec<(PeerAddress, PeerAddress)>,
}

impl SegmentNetwork {
    /// Returns the number of packets between two addresses since the last reading of any count.
    fn count(&self, from: PeerAddress, to: PeerAddress) -> usize {
        self.sent.iter().filter(|route| **route == (from, to)).count()
    }
}

/// A card in a segment.
struct Card {
    air: Rc<RefCell<SegmentNetwork>>,
    segment: u8,
    peer_address: PeerAddress,
    free: Vec<Buf>,
}

impl Lane for Card {
    fn poll(&mut self, _now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        let mut air = self.air.borrow_mut();
        let mine = |(segment, _, to, _): &mut (u8, PeerAddress, PeerAddress, Vec<u8>)| {
            (*segment, *to) == (self.segment, self.peer_address)
        };
        let landed: Vec<_> = air.flying.extract_if(.., mine).collect();
        for (_, from, _, packet) in landed {
            let Some(mut buf) = self.free.pop() else { continue };
            buf.prefix_mut(packet.len()).copy_from_slice(&packet);
            arrived.push(ReceivedPacket::plain(from, buf, packet.len()));
        }
        None
    }

    fn give(&mut self, buf: Buf) {
        self.free.push(buf);
    }

    fn has_room(&self) -> bool {
        true
    }

    fn put<'a>(&mut self, to: PeerAddress, _bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        let packet: Vec<u8> = parts.flatten().copied().collect();
        self.part(to, &packet);
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        let mut air = self.air.borrow_mut();
        air.sent.push((self.peer_address, to));
        if !air.cut.contains(&self.segment) {
            air.flying.push((self.segment, self.peer_address, to, packet.to_vec()));
        }
    }

    fn kick(&mut self) {}

    fn renew(&mut self, _to: PeerAddress) {}

    fn has_work(&self) -> bool {
        let air = self.air.borrow();
        air.flying.iter().any(|flying| (flying.0, flying.2) == (self.segment, self.peer_address))
    }
}

fn bufs(count: u32, bytes: usize) -> Vec<Buf> {
    let buf = |n| Buf::new(std::vec![0; bytes].leak(), n);
    (0..count).map(buf).collect()
}

const CLIENT: u8 = 1;
const SERVER: u8 = 2;

/// Returns an endpoint's transport with a card in each of the segments.
fn end(air: &Rc<RefCell<SegmentNetwork>>, end: u8, segments: &[u8]) -> Packets<Card> {
    let card = |(n, segment): (usize, &u8)| Card {
        air: air.clone(),
        segment: *segment,
        peer_address: peer_address(end, n as u8),
        free: bufs(64, SMALL.packet_bytes),
    };
    let accepts = end == SERVER;
    let endpoint = Settings {
        accepts,
        secret: [end; 32],
        paths_max: 16,
        // A few packets fill a card, and the rest goes by others.
        control: Policy::Fixed(2),
        windows_max: 16,
        messages_max: 2 * IN_FLIGHT,
        pieces_max: 4 * IN_FLIGHT,
        holds_max: 4 * IN_FLIGHT,
        ..SMALL
    };
    let settings = TransportSettings { endpoint, connections_max: 4, first: 0 };
    let lanes = segments.iter().enumerate().map(card).collect();
    Packets::new(settings, lanes, bufs(16, 4096))
}

/// A client that always has some frames in flight to a server.
struct Segments {
    air: Rc<RefCell<SegmentNetwork>>,
    client: Packets<Card>,
    server: Packets<Card>,
    now: Instant,
    step: Duration,
    conn: Option<ConnId>,
    /// Bytes that the server has received.
    received: usize,
    closed: Vec<CloseReason>,
}

impl Segments {
    /// Returns a client and a server with a card in each of the given segments. `routes` are the
    /// client's routes.
    fn new(client: &[u8], routes: &[Route], server: &[u8]) -> Segments {
        let air = Rc::<RefCell<SegmentNetwork>>::default();
        let mut peer_addresses = [None; LANES_MAX];
        let told = peer_addresses.iter_mut().zip(0..server.len() as u8);
        told.for_each(|(place, lane)| *place = Some(peer_address(SERVER, lane)));
        let (mut client, mut server) = (end(&air, CLIENT, client), end(&air, SERVER, server));
        client.dial_by(routes);
        server.tell(peer_addresses);
        server.listen(Some(ListenerId(7)));
        let now = Instant::from_nanos(1_000_000_000);
        let (step, conn, received, closed) = (STEP, None, 0, Vec::new());
        let mut all = Segments { air, client, server, now, step, conn, received, closed };
        all.client.dial(all.now);
        all
    }

    /// Takes turns at both ends for `over`. Returns the bytes that the server has received
    /// meanwhile.
    fn run(&mut self, over: Duration) -> usize {
        let (until, before) = (self.now + over, self.received);
        while self.now < until {
            self.now = self.now + self.step;
            for is_server in [false, true] {
                self.turn(is_server);
            }
        }
        self.received - before
    }

    fn turn(&mut self, is_server: bool) {
        let end = if is_server { &mut self.server } else { &mut self.client };
        let mut events = Vec::new();
        end.poll(self.now, &mut events, usize::MAX);
        for event in events {
            match event {
                NetEvent::Opened { conn, .. } if !is_server => self.conn = Some(conn),
                NetEvent::Received { buf, len, .. } => {
                    self.received += len;
                    end.give(buf);
                }
                NetEvent::Closed { reason, .. } => self.closed.push(reason),
                _ => {}
            }
        }
        if let Some(conn) = self.conn.filter(|_| !is_server) {
            for _ in end.queued(TenantId(0))..IN_FLIGHT {
                end.send(self.now, conn, Frame::bare(FrameHead::new(&[1; 64])));
            }
        }
        end.kick(self.now);
    }

    /// Returns the number of packets from the client's lane to the server's address, for each of
    /// the `routes`, in the time `over`.
    fn carried(&mut self, routes: &[(u8, u8)], over: Duration) -> Vec<usize> {
        self.air.borrow_mut().sent.clear();
        self.run(over);
        let air = self.air.borrow();
        let count = |(lane, far): &(u8, u8)| {
            air.count(peer_address(CLIENT, *lane), peer_address(SERVER, *far))
        };
        routes.iter().map(count).collect()
    }

    fn cut(&mut self, segments: &[u8]) {
        self.air.borrow_mut().cut = segments.to_vec();
    }
}

fn route(lane: u8, to: u8) -> Route {
    Route { lane, to: Some(peer_address(SERVER, to)) }
}

const MILLI: Duration = Duration::from_millis(1);

#[test]
fn pairs_of_cards_carry_one_connection_and_a_cut_one_costs_nothing() {
    let mut all = Segments::new(&[0, 1], &[route(0, 0), route(1, 1)], &[0, 1]);
    all.run(50 * MILLI);
    let pairs = [(0, 0), (1, 1)];
    let both = all.carried(&pairs, 50 * MILLI);
    assert!(both.iter().all(|count| *count > 10), "{both:?}");
    for segment in [0, 1] {
        all.cut(&[segment]);
        all.run(20 * MILLI);
        assert!(all.run(50 * MILLI) > 0, "the other one carries");
        all.cut(&[]);
        all.run(2_000 * MILLI);
        let again = all.carried(&pairs, 50 * MILLI);
        assert!(again.iter().all(|count| *count > 10), "{again:?}");
    }
    assert!(all.closed.is_empty(), "{:?}", all.closed);
}

#[test]
fn a_silent_first_pair_leaves_the_others() {
    let mut all = Segments::new(&[0, 1], &[route(0, 0), route(1, 1)], &[0, 1]);
    all.cut(&[0]);
    all.run(6_000 * MILLI);
    assert_eq!(all.closed.len(), 1, "the dial by the first pair fails");
    let now = all.now;
    all.client.dial(now);
    assert!(all.run(100 * MILLI) > 0);
    all.cut(&[]);
    // Its last probe was within as much time as it had been silent.
    all.run(5_000 * MILLI);
    let both = all.carried(&[(0, 0), (1, 1)], 50 * MILLI);
    assert!(both.iter().all(|count| *count > 10), "{both:?}");
}

/// A client that knows the first card of its server alone finds the others, whichever segments they
/// are in, and leaves alone what its cards do not reach.
#[test]
fn told_cards_are_searched_by_the_cards_that_have_no_server() {
    let search = |lane| Route { lane, to: None };
    let routes = [route(0, 0), search(1), search(2), search(3)];
    for server in [[0, 1, 2, 3], [0, 3, 1, 2], [0, 2, 3, 1], [0, 1, 1, 1]] {
        let mut all = Segments::new(&[0, 1, 2, 3], &routes, &server);
        all.run(500 * MILLI);
        let pairs: Vec<(u8, u8)> = (0..4).map(|far| (server[usize::from(far)], far)).collect();
        let carried = all.carried(&pairs, 100 * MILLI);
        // An association has room for eight paths: all of the first two, and one of the third.
        let found = carried.iter().filter(|count| **count > 10).count();
        assert!(found >= 3, "{server:?}: {carried:?}");
        if server == [0, 1, 2, 3] {
            assert_eq!(found, 4, "{carried:?}");
        }
        // What leads nowhere gets probes, and after some minutes nothing.
        (all.conn, all.step) = (None, 20 * MILLI);
        all.run(120_000 * MILLI);
        all.air.borrow_mut().sent.clear();
        all.run(60_000 * MILLI);
        let air = all.air.borrow();
        let in_vain = air.sent.iter().filter(|(from, to)| {
            let lane = (0..4u8).find(|lane| peer_address(CLIENT, *lane) == *from);
            let far = (0..4u8).find(|far| peer_address(SERVER, *far) == *to);
            lane.is_some_and(|lane| far.is_some_and(|far| server[usize::from(far)] != lane))
        });
        assert_eq!(in_vain.count(), 0, "{server:?}");
    }
}
