//! Two transports over a lane that loses, repeats, reorders, flips and cuts packets: sessions see
//! their bytes in order, and every buffer comes back.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, FrameHead, Instant, ListenerId, NetEvent, Streams,
    Transport,
};
use nearflash_packets::batch::{Batch, DELAY_MAX};
use nearflash_packets::{
    Lane, PacketKey, Packets, PeerAddress, ReceivedPacket, SealSettings, Settings,
    TransportSettings,
};

const BODY_BYTES: usize = 9000;
const FRAMES: usize = 60;
const CONNECTIONS: usize = 12;

/// A generator of random numbers with a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The packets on their way to each end, with the times at which they arrive.
struct Air {
    chance: Chance,
    /// Chance that a packet is lost, repeated or late, in parts of 1000. Each kind of damage has a
    /// quarter of it.
    evil: u64,
    now: Instant,
    in_flight: [Vec<(Instant, Vec<u8>)>; 2],
    /// The packets by which ends said that they leave.
    parted: Vec<Vec<u8>>,
}

impl Air {
    fn carry(&mut self, to: usize, mut bytes: Vec<u8>) {
        if self.chance.below(1000) < self.evil {
            return;
        }
        if self.chance.below(1000) < self.evil / 4 {
            let at = self.chance.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.chance.below(8);
        }
        if self.chance.below(1000) < self.evil / 4 {
            let left = self.chance.below(bytes.len() as u64) as usize;
            bytes.truncate(left);
        }
        let copies = 1 + u64::from(self.chance.below(1000) < self.evil);
        for _ in 0..copies {
            let late = if self.chance.below(1000) < self.evil { 400 } else { 20 };
            let delay = 10 + self.chance.below(late);
            self.in_flight[to].push((self.now + Duration::from_micros(delay), bytes.clone()));
        }
    }
}

/// The lane of one end, which sends through the air.
struct End {
    air: Rc<RefCell<Air>>,
    me: usize,
    bufs: Vec<Buf>,
    /// Number of associations that were begun.
    renewals: usize,
}

fn peer_address(end: usize) -> PeerAddress {
    PeerAddress::Internet(SocketAddr::from(([10, 0, 0, end as u8], 7420)))
}

impl Lane for End {
    fn poll(&mut self, _now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        let mut air = self.air.borrow_mut();
        let now = air.now;
        let flying = &mut air.in_flight[self.me];
        flying.sort_by_key(|(at, _)| *at);
        while flying.first().is_some_and(|(at, _)| *at <= now) && !self.bufs.is_empty() {
            let (_, bytes) = flying.remove(0);
            let mut buf = self.bufs.pop().expect("there is one");
            buf.prefix_mut(bytes.len()).copy_from_slice(&bytes);
            arrived.push(ReceivedPacket::plain(peer_address(1 - self.me), buf, bytes.len()));
        }
        None
    }

    fn give(&mut self, buf: Buf) {
        self.bufs.push(buf);
    }

    fn has_room(&self) -> bool {
        true
    }

    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        assert_eq!(to, peer_address(1 - self.me));
        let packet: Vec<u8> = parts.flatten().copied().collect();
        assert_eq!(packet.len(), bytes);
        self.air.borrow_mut().carry(1 - self.me, packet);
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        self.air.borrow_mut().parted.push(packet.to_vec());
        self.put(to, packet.len(), [packet].into_iter());
    }

    fn kick(&mut self) {}

    fn renew(&mut self, to: PeerAddress) {
        assert_eq!(to, peer_address(1 - self.me));
        self.renewals += 1;
    }

    fn has_work(&self) -> bool {
        false
    }
}

fn bufs(count: usize, bytes: usize) -> Vec<Buf> {
    let memory = |n| Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), n as u32);
    (0..count).map(memory).collect()
}

fn transport(air: &Rc<RefCell<Air>>, me: usize, key: Option<u8>) -> Packets<End> {
    let worker = Settings { worker: 2, workers: 3, ..Settings::WORKER };
    let base = if me == 0 { worker } else { Settings::CLIENT };
    let secret = [me as u8 + 1; 32];
    let sealed = key.map(|key| {
        let key = PacketKey::new([key; 32]);
        SealSettings { key, chance: [me as u8 + 1; 32], packets_max: 100 }
    });
    transport_of(air, me, Settings { secret, sealed, ..base })
}

fn transport_of(air: &Rc<RefCell<Air>>, me: usize, base: Settings) -> Packets<End> {
    let endpoint = Settings { channels_max: 32, messages_max: 256, chunks_max: 64, ..base };
    let lane = End { air: air.clone(), me, bufs: bufs(96, 1500), renewals: 0 };
    // So few that bytes have to wait for them.
    let up = bufs(6, 1000);
    Packets::new(TransportSettings { endpoint, connections_max: 32, first: 100 }, vec![lane], up)
}

/// Returns the air without faults, a server and a client, and the time.
fn calm_ends() -> (Rc<RefCell<Air>>, [Packets<End>; 2], Instant) {
    ends_with([None; 2])
}

/// Returns the air without faults, a server and a client with these keys, and the time.
fn ends_with(keys: [Option<u8>; 2]) -> (Rc<RefCell<Air>>, [Packets<End>; 2], Instant) {
    let now = Instant::ZERO + Duration::from_secs(1);
    let air =
        Air { chance: Chance(1), evil: 0, now, in_flight: Default::default(), parted: vec![] };
    let air = Rc::new(RefCell::new(air));
    let mut ends = [transport(&air, 0, keys[0]), transport(&air, 1, keys[1])];
    ends[0].listen(Some(ListenerId(1)));
    ends[1].dial_to(&[peer_address(0)]);
    (air, ends, now)
}

/// The record of one end: its connections, the bytes that came and that were sent, and its buffers.
#[derive(Default)]
struct Seen {
    opened: Vec<ConnId>,
    closed: Vec<(ConnId, CloseReason)>,
    bytes: BTreeMap<ConnId, Vec<u8>>,
    said: BTreeMap<ConnId, Vec<u8>>,
    lent: Vec<Buf>,
    bodies: Vec<Buf>,
}

impl Seen {
    fn turn(&mut self, end: &mut Packets<End>, now: Instant, chance: &mut Chance) {
        self.lent.drain(..).for_each(|buf| end.give(buf));
        let mut events = Vec::new();
        end.poll(now, &mut events, 16);
        for event in events {
            match event {
                NetEvent::Opened { conn, .. } => self.opened.push(conn),
                NetEvent::Received { conn, buf, len } => {
                    self.bytes.entry(conn).or_default().extend_from_slice(&buf.bytes()[..len]);
                    if chance.below(8) == 0 {
                        end.pause(conn);
                    }
                    self.lent.push(buf);
                }
                NetEvent::Sent { buf, .. } => self.bodies.push(buf),
                NetEvent::Closed { conn, reason } => self.closed.push((conn, reason)),
                NetEvent::Filled { .. } => unreachable!("nothing is received in place"),
            }
        }
        for conn in &self.opened {
            end.resume(*conn);
        }
        end.kick(now);
    }

    /// Sends a frame with random length. Returns `false` if there is no room or no body.
    fn say(
        &mut self,
        end: &mut Packets<End>,
        conn: ConnId,
        now: Instant,
        chance: &mut Chance,
    ) -> bool {
        if end.room() == 0 || self.bodies.is_empty() {
            return false;
        }
        let said = self.said.entry(conn).or_default();
        let body_len = chance.below(BODY_BYTES as u64) as usize;
        let byte = |at: usize| (at * 7 + at / 251) as u8;
        let all: Vec<u8> = (said.len()..said.len() + 20 + body_len).map(byte).collect();
        let mut body = self.bodies.pop().expect("there is one");
        body.prefix_mut(body_len).copy_from_slice(&all[12..12 + body_len]);
        let head = FrameHead::with_tail(&all[..12], &all[12 + body_len..]);
        said.extend_from_slice(&all);
        end.send(now, conn, Frame { head, body: Some(body), body_len });
        true
    }
}

fn run(seed: u64, evil: u64, key: Option<u8>) {
    let (chance, now) = (Chance(seed), Instant::ZERO + Duration::from_secs(1));
    let air = Air { chance, evil, now, in_flight: Default::default(), parted: vec![] };
    let air = Rc::new(RefCell::new(air));
    let mut ends = [transport(&air, 0, key), transport(&air, 1, key)];
    let mut seen = [Seen::default(), Seen::default()];
    seen.iter_mut().for_each(|seen| seen.bodies = bufs(64, BODY_BYTES));
    let mut chance = Chance(seed ^ 0x5eed);
    ends[0].listen(Some(ListenerId(1)));
    ends[1].dial_to(&[peer_address(0)]);
    let conns: Vec<ConnId> = (0..CONNECTIONS).map(|_| ends[1].dial(now)).collect();
    let mut left: VecDeque<(usize, usize)> = VecDeque::new();
    let mut has_begun = false;
    for step in 0.. {
        assert!(step < 2_000_000, "seed {seed}: it never ends");
        let now = air.borrow().now + Duration::from_micros(5);
        air.borrow_mut().now = now;
        for (seen, end) in seen.iter_mut().zip(&mut ends) {
            seen.turn(end, now, &mut chance);
        }
        let are_open = seen.iter().all(|seen| seen.opened.len() == CONNECTIONS);
        if are_open && !has_begun {
            has_begun = true;
            left = (0..2 * CONNECTIONS * FRAMES).map(|n| (n % 2, n / 2 % CONNECTIONS)).collect();
        }
        for _ in 0..4 {
            let Some((end, conn)) = left.pop_front() else { break };
            let id = if end == 1 { conns[conn] } else { seen[0].opened[conn] };
            if !seen[end].say(&mut ends[end], id, now, &mut chance) {
                left.push_back((end, conn));
            }
        }
        let all = |of: &BTreeMap<ConnId, Vec<u8>>| of.values().map(Vec::len).sum::<usize>();
        let is_heard = (0..2).all(|n| all(&seen[n].said) == all(&seen[1 - n].bytes));
        let is_whole = seen.iter().all(|seen| seen.bodies.len() == 64);
        if has_begun && left.is_empty() && is_heard && is_whole {
            break;
        }
    }
    for n in 0..2 {
        let sorted = |of: &BTreeMap<ConnId, Vec<u8>>| {
            let mut all: Vec<Vec<u8>> = of.values().cloned().collect();
            all.sort();
            all
        };
        assert!(sorted(&seen[n].said) == sorted(&seen[1 - n].bytes), "seed {seed}: other bytes");
        assert!(seen[n].closed.is_empty(), "seed {seed}: {:?}", seen[n].closed);
    }
    for conn in &conns {
        ends[1].finish(*conn);
    }
    while seen.iter().any(|seen| seen.closed.len() < CONNECTIONS) {
        let now = air.borrow().now + Duration::from_micros(50);
        air.borrow_mut().now = now;
        assert!(now < Instant::ZERO + Duration::from_secs(60), "seed {seed}: they never end");
        for (seen, end) in seen.iter_mut().zip(&mut ends) {
            seen.turn(end, now, &mut chance);
        }
    }
    assert!(seen[0].closed.iter().all(|(_, reason)| *reason == CloseReason::Peer), "seed {seed}");
}

#[test]
fn sessions_see_their_bytes_in_order_whatever_the_network_does() {
    for seed in 0..6 {
        run(seed, [0, 10, 50, 120][seed as usize % 4], [None, Some(7)][seed as usize / 3]);
    }
}

/// Returns the connection whose end is the only event, as its peer is unreachable, with the error
/// number.
fn unreachable(events: &[NetEvent]) -> (ConnId, i32) {
    match events {
        [NetEvent::Closed { conn, reason: CloseReason::Unreachable(errno) }] => (*conn, *errno),
        _ => panic!("{events:?}"),
    }
}

#[test]
fn a_dial_to_nobody_ends() {
    let now = Instant::ZERO + Duration::from_secs(1);
    let air =
        Air { chance: Chance(1), evil: 0, now, in_flight: Default::default(), parted: vec![] };
    let air = Rc::new(RefCell::new(air));
    let mut end = transport(&air, 1, None);
    end.dial_to(&[peer_address(0)]);
    let conn = end.dial(now);
    let mut events = Vec::new();
    for ms in 0..6_000 {
        let now = now + Duration::from_millis(ms);
        end.poll(now, &mut events, 16);
        end.kick(now);
    }
    assert_eq!(unreachable(&events), (conn, 110));
}

#[test]
fn a_full_server_refuses() {
    let (air, mut ends, now) = calm_ends();
    let small = Settings { associations_max: 1, secret: [1; 32], ..Settings::WORKER };
    ends[0] = transport_of(&air, 0, small);
    ends[0].listen(Some(ListenerId(1)));
    ends[1].dial(now);
    let (_, events) = turns(&air, &mut ends, 40);
    assert!(matches!(events[..], [NetEvent::Opened { .. }]), "{events:?}");
    // Another client at the place of the first, whose association the server still has.
    ends[1] = transport_of(&air, 1, Settings { secret: [3; 32], ..Settings::CLIENT });
    ends[1].dial_to(&[peer_address(0)]);
    let conn = ends[1].dial(air.borrow().now);
    let (_, events) = turns(&air, &mut ends, 40);
    assert_eq!(unreachable(&events), (conn, 111));
}

#[test]
fn dials_without_the_servers_key_fail_with_the_reason() {
    let (needs_key, other_key, no_key) = (126, 129, 93);
    for (keys, expected) in
        [([Some(1), None], needs_key), ([Some(1), Some(2)], other_key), ([None, Some(1)], no_key)]
    {
        let (air, mut ends, now) = ends_with(keys);
        let conn = ends[1].dial(now);
        let (_, events) = turns(&air, &mut ends, 4_000);
        assert_eq!(unreachable(&events), (conn, expected), "{keys:?}");
    }
    let (air, mut ends, now) = ends_with([Some(1); 2]);
    ends[1].dial(now);
    let (_, events) = turns(&air, &mut ends, 40);
    assert!(matches!(events[..], [NetEvent::Opened { .. }]), "{events:?}");
    // An end that leaves is believed.
    ends[0].abandon();
    let (_, events) = turns(&air, &mut ends, 40);
    assert!(matches!(events[..], [NetEvent::Closed { .. }]), "{events:?}");
}

/// Runs both ends for `count` turns of 50 µs, and returns the events of the server and those of the
/// client.
fn turns(
    air: &Rc<RefCell<Air>>,
    ends: &mut [Packets<End>],
    count: usize,
) -> (Vec<NetEvent>, Vec<NetEvent>) {
    let mut events = (Vec::new(), Vec::new());
    for _ in 0..count {
        let now = air.borrow().now + Duration::from_micros(50);
        air.borrow_mut().now = now;
        for (end, events) in ends.iter_mut().zip([&mut events.0, &mut events.1]) {
            end.poll(now, events, 64);
            end.kick(now);
        }
    }
    events
}

#[test]
fn a_dial_does_not_overtake_the_end_of_the_channel_before_it() {
    let (air, mut ends, now) = calm_ends();
    let conns = [ends[1].dial(now), ends[1].dial(now)];
    let (opened, _) = turns(&air, &mut ends, 40);
    let [NetEvent::Opened { conn: first, .. }, NetEvent::Opened { conn: second, .. }] = opened[..]
    else {
        panic!("{opened:?}")
    };
    // All buffers of the client are in use, so the end of the first is not followed yet.
    let mut body = bufs(1, 8000).pop();
    let head = FrameHead::new(&[1; 8]);
    let frame = Frame { head, body: body.take(), body_len: 8000 };
    ends[0].send(now, second, frame);
    let (_, mut events) = turns(&air, &mut ends, 40);
    ends[0].close(first);
    turns(&air, &mut ends, 40);
    let third = ends[1].dial(air.borrow().now);
    for _ in 0..40 {
        let (_, more) = turns(&air, &mut ends, 1);
        events.extend(more);
        for event in std::mem::take(&mut events) {
            match event {
                NetEvent::Received { buf, .. } => ends[1].give(buf),
                other => events.push(other),
            }
        }
    }
    let closed =
        |event: &NetEvent| matches!(event, NetEvent::Closed { conn, .. } if *conn == conns[0]);
    let opened =
        |event: &NetEvent| matches!(event, NetEvent::Opened { conn, .. } if *conn == third);
    assert!(events.iter().any(closed) && events.iter().any(opened), "{events:?}");
}

#[test]
fn a_dial_at_the_end_of_an_association_begins_another() {
    let (air, mut ends, now) = calm_ends();
    let first = ends[1].dial(now);
    turns(&air, &mut ends, 40);
    ends[0].abandon();
    // The client knows of its end, and has not followed all of it.
    let mut events = Vec::new();
    while closed(&events) != [first] {
        assert!(events.len() < 2, "{events:?}");
        turns(&air, &mut ends[..1], 1);
        let now = air.borrow().now;
        ends[1].poll(now, &mut events, 64);
    }
    let second = ends[1].dial(air.borrow().now);
    let (_, events) = turns(&air, &mut ends, 40);
    let [NetEvent::Opened { conn, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(conn, second);
}

#[test]
fn each_association_looks_for_the_way_anew() {
    let (air, mut ends, _) = calm_ends();
    for round in 1..=3 {
        let conns = [(); 2].map(|()| ends[1].dial(air.borrow().now));
        let (_, opened) = turns(&air, &mut ends, 40);
        assert_eq!((opened.len(), ends[1].lanes()[0].renewals), (2, round));
        conns.iter().for_each(|conn| ends[1].close(*conn));
        turns(&air, &mut ends, 40);
        // An association without connections ends. The next dial begins another one.
        let later = air.borrow().now + Duration::from_secs(6);
        air.borrow_mut().now = later;
        turns(&air, &mut ends, 2);
    }
}

#[test]
fn divided_dials_go_to_associations_in_turn() {
    let (air, mut ends, _) = calm_ends();
    ends[1].divide(3);
    for (dials, associations) in [(2, 2), (4, 3)] {
        let conns: Vec<ConnId> = (0..dials).map(|_| ends[1].dial(air.borrow().now)).collect();
        let (_, opened) = turns(&air, &mut ends, 40);
        assert_eq!(opened.len(), conns.len(), "{opened:?}");
        let counted = ends.each_ref().map(|end| end.reading().associations);
        assert_eq!(counted, [associations; 2]);
    }
    // One association ends after the other, and further dials begin new ones.
    ends[0].abandon();
    let (_, ended) = turns(&air, &mut ends, 40);
    assert_eq!(closed(&ended).len(), 6, "{ended:?}");
    assert_eq!(ends.each_ref().map(|end| end.reading().associations), [0; 2]);
    let conns = [(); 3].map(|()| ends[1].dial(air.borrow().now));
    let (_, opened) = turns(&air, &mut ends, 40);
    assert_eq!((opened.len(), conns.len()), (3, 3), "{opened:?}");
    assert_eq!(ends.each_ref().map(|end| end.reading().associations), [3; 2]);
}

#[test]
fn a_divided_dial_takes_the_place_of_an_association_that_ended() {
    let (air, mut ends, now) = calm_ends();
    ends[1].divide(4);
    let conns = [(); 4].map(|()| ends[1].dial(now));
    turns(&air, &mut ends, 40);
    for conn in [conns[2], conns[0], conns[3], conns[1]] {
        ends[1].close(conn);
        turns(&air, &mut ends, 40);
        // An association without connections ends.
        let later = air.borrow().now + Duration::from_secs(6);
        air.borrow_mut().now = later;
        turns(&air, &mut ends, 40);
        assert_eq!(ends[1].reading().associations, 3);
        ends[1].dial(later);
        let (_, opened) = turns(&air, &mut ends, 40);
        assert_eq!((opened.len(), ends[1].reading().associations), (1, 4), "{opened:?}");
    }
}

fn closed(events: &[NetEvent]) -> Vec<ConnId> {
    let closed = |event: &NetEvent| match event {
        NetEvent::Closed { conn, .. } => Some(*conn),
        _ => None,
    };
    events.iter().filter_map(closed).collect()
}

#[test]
fn what_is_held_comes_again_and_what_is_abandoned_is_noticed() {
    let (air, mut ends, now) = calm_ends();
    ends[0].hold(true);
    let first = ends[1].dial(now);
    let (served, dialled) = turns(&air, &mut ends, 400);
    assert!(served.is_empty() && dialled.is_empty(), "the hellos are not answered");
    ends[0].hold(false);
    let (served, dialled) = turns(&air, &mut ends, 40_000);
    assert_eq!((served.len(), dialled.len()), (1, 1));
    // Another channel of an association that is up.
    ends[0].hold(true);
    let second = ends[1].dial(air.borrow().now);
    let (served, dialled) = turns(&air, &mut ends, 400);
    assert!(served.is_empty() && dialled.is_empty(), "the open is not answered");
    ends[0].hold(false);
    let (served, dialled) = turns(&air, &mut ends, 40_000);
    assert_eq!((served.len(), dialled.len()), (1, 1));
    // Both ends notice at once.
    ends[0].abandon();
    let (served, dialled) = turns(&air, &mut ends, 40);
    assert_eq!(closed(&served).len(), 2);
    assert_eq!(closed(&dialled), [first, second]);
    let again = ends[1].dial(air.borrow().now);
    let (_, dialled) = turns(&air, &mut ends, 40);
    let [NetEvent::Opened { conn, .. }] = dialled[..] else { panic!("{dialled:?}") };
    assert_eq!(conn, again);
}

#[test]
fn who_leaves_tells_the_worker_of_each_association() {
    let (air, mut ends, now) = calm_ends();
    ends[1].dial(now);
    turns(&air, &mut ends, 40);
    ends[1].leave();
    let (served, _) = turns(&air, &mut ends[..1], 40);
    assert_eq!(closed(&served).len(), 1);
    let [packet] = &air.borrow().parted[..] else { panic!("one association, one word") };
    assert_eq!(packet[7], 2, "byte 7 is where a kernel finds the worker");
}

/// Returns an open connection of a client whose frames leave by `rule`.
fn calm_client(rule: Batch) -> (Rc<RefCell<Air>>, [Packets<End>; 2], ConnId) {
    let (air, mut ends, now) = calm_ends();
    ends[1].batch(rule);
    let conn = ends[1].dial(now);
    let (_, events) = turns(&air, &mut ends, 40);
    assert!(matches!(events[..], [NetEvent::Opened { .. }]), "{events:?}");
    (air, ends, conn)
}

/// Sends `count` frames in one turn of the client. Returns the number of packets that left.
fn say(air: &Rc<RefCell<Air>>, end: &mut Packets<End>, conn: ConnId, count: usize) -> usize {
    let now = air.borrow().now;
    for _ in 0..count {
        end.send(now, conn, Frame::bare(FrameHead::new(&[1; 24])));
    }
    end.kick(now);
    air.borrow().in_flight[0].len()
}

#[test]
fn without_batches_each_frame_has_a_packet_of_its_own() {
    for (rule, packets) in [(Batch::Turn, 1), (Batch::Never, 7)] {
        let (air, mut ends, conn) = calm_client(rule);
        assert_eq!(say(&air, &mut ends[1], conn, 7), packets);
        let (events, _) = turns(&air, &mut ends, 10);
        let bytes = |event: &NetEvent| match event {
            NetEvent::Received { len, .. } => *len,
            _ => 0,
        };
        assert_eq!(events.iter().map(bytes).sum::<usize>(), 7 * 24);
    }
}

#[test]
fn a_batch_leaves_when_it_is_full_or_old() {
    let (air, mut ends, conn) = calm_client(Batch::Static(4));
    let began = air.borrow().now;
    assert_eq!(say(&air, &mut ends[1], conn, 3), 0);
    assert_eq!(ends[1].wake_at(), Some(began + DELAY_MAX));
    assert!(!ends[1].is_at_rest());
    assert_eq!(say(&air, &mut ends[1], conn, 7), 2, "two batches, a packet each");
    let (events, _) = turns(&air, &mut ends, 10);
    assert!(matches!(events[..], [NetEvent::Received { len: 192, .. }, ..]), "{events:?}");
    // The last two of the ten are not enough for a batch.
    let (events, _) = turns(&air, &mut ends, 70);
    assert!(events.is_empty(), "{events:?}");
    let (events, _) = turns(&air, &mut ends, 30);
    assert!(matches!(events[..], [NetEvent::Received { len: 48, .. }]), "{events:?}");
}

#[test]
fn who_finishes_leaves_no_frame_behind() {
    let (air, mut ends, conn) = calm_client(Batch::Static(64));
    assert_eq!(say(&air, &mut ends[1], conn, 3), 0);
    ends[1].finish(conn);
    let (events, _) = turns(&air, &mut ends, 10);
    let [NetEvent::Received { len: 72, .. }, NetEvent::Closed { .. }] = events[..] else {
        panic!("{events:?}")
    };
}
