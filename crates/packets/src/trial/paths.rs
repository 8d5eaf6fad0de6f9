//! Several paths: their throughput adds up, a cut path loses no message, and a path that drops
//! large packets carries small ones.

use std::time::Duration;
use std::vec::Vec;

use contract::{ConnId, Frame, FrameHead};

use super::perfect::SMALL;
use super::talk::{ConversationPlan, TrialConversations};
use super::world::{Arena, Port, World};
use crate::{Endpoint, Event, Packet, Settings};

const LARGE: Settings = Settings {
    packet_bytes: 9000,
    messages_max: 1024,
    pieces_max: 2048,
    holds_max: 1024,
    chunks_max: 512,
    ..SMALL
};

const MILLI: Duration = Duration::from_millis(1);

/// A client that always has 512 messages of 4 KiB in flight to a server.
struct Stream {
    world: World,
    arena: Arena,
    delivered: u64,
    is_strict: bool,
}

impl Stream {
    fn say(endpoint: &mut Endpoint, conn: ConnId, arena: &mut Arena, is_strict: bool) {
        let mut body = arena.take(4096);
        body.prefix_mut(4096);
        let head = FrameHead::new(&[0; 8]);
        endpoint.send(conn, Frame { head, body: Some(body), body_len: 4096 }, is_strict);
    }

    fn new(ports: Vec<Port>) -> Stream {
        Stream::of(ports, false)
    }

    /// Returns a stream over the given lanes, whose messages are ordered (strict) or not.
    fn of(ports: Vec<Port>, is_strict: bool) -> Stream {
        let mut arena = Arena::new(16 << 10);
        let mut world = World::new(3);
        let lanes = ports.len() as u8;
        let client = world.add(LARGE, ports.clone(), &mut arena);
        let server = world.add(LARGE, ports, &mut arena);
        let endpoint = &mut world.nodes[client].endpoint;
        let association = endpoint.dial(world.now, 0, World::peer_address(server, 0)).unwrap();
        let conns: Vec<ConnId> = (0..8).map(|_| endpoint.connect(association).unwrap()).collect();
        for conn in conns.iter().cycle().take(512) {
            Stream::say(endpoint, *conn, &mut arena, is_strict);
        }
        let mut stream = Stream { world, arena, delivered: 0, is_strict };
        stream.run(5 * MILLI);
        let now = stream.world.now;
        let endpoint = &mut stream.world.nodes[client].endpoint;
        for lane in 1..lanes {
            let to = World::peer_address(server, lane);
            assert!(endpoint.add_path(now, association, (lane, to), true));
        }
        stream.run(45 * MILLI);
        stream
    }

    /// Runs the stream for `over`, and returns the delivered bytes per second.
    fn run(&mut self, over: Duration) -> f64 {
        let Stream { world, arena, delivered, is_strict } = self;
        *delivered = 0;
        world.run(world.now + over, |endpoint, _, event| match event {
            Event::Received { delivery, .. } => endpoint.give(delivery),
            Event::Sent { conn, buf } => {
                arena.give(buf.expect("every message has a body").0);
                *delivered += 4096;
                Stream::say(endpoint, conn, arena, *is_strict);
            }
            Event::Opened { .. } | Event::Up(_) => {}
            other => panic!("nothing ends: {other:?}"),
        });
        self.delivered as f64 / over.as_secs_f64()
    }

    /// Runs the stream for `over`, and returns the share of each of the server's lanes that was
    /// used.
    fn used(&mut self, over: Duration) -> Vec<f64> {
        self.world.nodes[1].ports.iter_mut().for_each(|port| port.carried = 0);
        self.run(over);
        let share = |port: &Port| port.carried as f64 / (port.rate as f64 * over.as_secs_f64());
        self.world.nodes[1].ports.iter().map(share).collect()
    }

    /// Lets `count` of the messages in flight end without being replaced.
    fn thin(&mut self, count: usize) {
        let Stream { world, arena, .. } = self;
        let mut left = count;
        while left > 0 {
            world.run(world.now + MILLI / 100, |endpoint, _, event| match event {
                Event::Received { delivery, .. } => endpoint.give(delivery),
                Event::Sent { conn, buf } => {
                    arena.give(buf.expect("every message has a body").0);
                    match left.checked_sub(1) {
                        Some(rest) => left = rest,
                        None => Stream::say(endpoint, conn, arena, true),
                    }
                }
                other => panic!("nothing else happens: {other:?}"),
            });
        }
    }

    fn cut(&mut self, lane: usize, is_cut: bool) {
        for node in &mut self.world.nodes {
            node.ports[lane].is_cut = is_cut;
        }
    }
}

fn port(rate: u64) -> Port {
    Port { rate, queue_bytes: 4 << 20, ..Port::FAST }
}

/// A link of 2.5 Gbit/s, in bytes per second.
const QUARTER: u64 = 312_500_000;

#[test]
fn lanes_add_up_also_unequal_ones() {
    let one = Stream::new([port(QUARTER)].into()).run(50 * MILLI);
    let two = Stream::new([port(QUARTER), port(QUARTER)].into()).run(50 * MILLI);
    let four = Stream::new((0..4).map(|_| port(QUARTER)).collect()).run(50 * MILLI);
    let unequal = Stream::new([port(QUARTER), port(QUARTER / 5)].into()).run(50 * MILLI);
    assert!(two >= 1.9 * one, "{two} of {one}");
    assert!(four >= 3.7 * one, "{four} of {one}");
    assert!(unequal >= 1.1 * one, "{unequal} of {one}");
}

#[test]
fn a_lane_of_a_tenth_is_filled_and_slows_nobody_down() {
    for is_strict in [false, true] {
        let one = Stream::of([port(QUARTER)].into(), is_strict).run(50 * MILLI);
        let lanes = || [port(QUARTER), port(QUARTER / 10)];
        for ports in [lanes().into(), lanes().into_iter().rev().collect::<Vec<_>>()] {
            let mut stream = Stream::of(ports, is_strict);
            let both = stream.run(50 * MILLI);
            assert!(both >= 0.9 * 1.1 * one, "{both} of {one}, strict: {is_strict}");
            let used = stream.used(50 * MILLI);
            // A full packet takes the small lane 288 µs, so its window is few packets.
            assert!(used.iter().all(|share| *share >= 0.8), "{used:?}, strict: {is_strict}");
        }
    }
}

/// Returns a stream without messages between the first two of three nodes, and its connection. The
/// client adds a path to the second lane of node `further`, as if the server had announced it.
fn quiet(ports: &[Port; 2], further: usize) -> (Stream, ConnId) {
    let mut arena = Arena::new(24 << 10);
    let mut world = World::new(5);
    for _ in 0..3 {
        world.add(LARGE, ports.to_vec(), &mut arena);
    }
    let endpoint = &mut world.nodes[0].endpoint;
    let association = endpoint.dial(world.now, 0, World::peer_address(1, 0)).unwrap();
    let conn = endpoint.connect(association).unwrap();
    let mut stream = Stream { world, arena, delivered: 0, is_strict: true };
    stream.run(5 * MILLI);
    let now = stream.world.now;
    let endpoint = &mut stream.world.nodes[0].endpoint;
    assert!(endpoint.add_path(now, association, (1, World::peer_address(further, 1)), true));
    stream.run(5 * MILLI);
    (stream, conn)
}

#[test]
fn a_single_message_takes_the_lane_that_delivers_it_first() {
    for slow in [0, 1] {
        let mut ports = [port(QUARTER), port(QUARTER)];
        ports[slow].rate /= 10;
        let (mut stream, conn) = quiet(&ports, 1);
        // As many as teach the times of both lanes, then one.
        let endpoint = &mut stream.world.nodes[0].endpoint;
        (0..64).for_each(|_| Stream::say(endpoint, conn, &mut stream.arena, true));
        stream.run(20 * MILLI);
        stream.thin(63);
        stream.world.nodes[1].ports.iter_mut().for_each(|port| port.carried = 0);
        stream.run(50 * MILLI);
        let carried = [0, 1].map(|lane| stream.world.nodes[1].ports[lane].carried);
        assert!(carried[slow] * 100 < carried[1 - slow], "{carried:?}, {slow} is slow");
    }
}

#[test]
fn a_lane_without_room_holds_nobody_up_and_is_used_when_it_has_room() {
    let (mut stream, conn) = quiet(&[port(QUARTER), port(QUARTER)], 1);
    let now = stream.world.now;
    let endpoint = &mut stream.world.nodes[0].endpoint;
    (0..64).for_each(|_| Stream::say(endpoint, conn, &mut stream.arena, true));
    let mut packet = Packet::new(LARGE.packet_bytes);
    let mut lanes = |room: u8| {
        let mut lanes = Vec::new();
        while endpoint.transmit_by(room, now, &mut packet) {
            lanes.push(packet.lane);
            packet.lent().into_iter().for_each(|lent| endpoint.gone(lent));
        }
        lanes
    };
    for (room, lane) in [(0b10, 1), (0b11, 0)] {
        let used = lanes(room);
        assert!(!used.is_empty() && used.iter().all(|used| *used == lane), "{room}: {used:?}");
    }
}

/// Cuts the second of two lanes, and checks that the stream is slower than nine tenths of the first
/// lane for 15 ms at most, measured in steps of `step`. Then mends the lane, which is used again
/// when its next probe arrives.
fn cut_and_mend(ports: [Port; 2], is_strict: bool, step: Duration) {
    let rest = Stream::of([ports[0].clone()].into(), is_strict).run(50 * MILLI);
    let mut stream = Stream::of(ports.into(), is_strict);
    let both = stream.run(20 * MILLI);
    stream.cut(1, true);
    let cut_at = stream.world.now;
    let mut slow = Duration::ZERO;
    while stream.world.now < cut_at + 100 * MILLI {
        if stream.run(step) < 0.9 * rest {
            slow += step;
        }
    }
    assert!(slow <= 15 * MILLI, "{slow:?} below 0.9 of the other lane, strict: {is_strict}");
    // Probes leave a dead lane alone, and ever more seldom.
    let port = &mut stream.world.nodes[1].ports[1];
    let before = core::mem::take(&mut port.dropped);
    stream.run(10_000 * MILLI);
    let after = stream.world.nodes[1].ports[1].dropped;
    assert!(before > 0 && (3..=5).contains(&after), "{before}, then {after} packets");
    stream.cut(1, false);
    stream.run(9_000 * MILLI);
    let again = stream.run(20 * MILLI);
    assert!(again >= 0.95 * both, "{again} of {both}, strict: {is_strict}");
}

#[test]
fn a_cut_lane_costs_milliseconds_and_comes_back() {
    let (large, small) = (port(QUARTER), port(QUARTER / 10));
    for is_strict in [false, true] {
        cut_and_mend([large.clone(), large.clone()], is_strict, MILLI);
        cut_and_mend([large.clone(), small.clone()], is_strict, MILLI);
        // Three packets take a millisecond.
        cut_and_mend([small.clone(), large.clone()], is_strict, 5 * MILLI);
    }
}

#[test]
fn a_peer_that_is_slow_for_a_moment_keeps_all_its_lanes() {
    let mut stream = Stream::new([port(QUARTER), port(QUARTER)].into());
    let both = stream.run(20 * MILLI);
    // Nothing arrives by any lane.
    stream.cut(0, true);
    stream.cut(1, true);
    stream.run(60 * MILLI);
    stream.cut(0, false);
    stream.cut(1, false);
    stream.run(200 * MILLI);
    let again = stream.run(20 * MILLI);
    assert!(again >= 0.95 * both, "{again} of {both}");
}

#[test]
fn a_lane_that_was_mended_is_tried_once_no_other_answers() {
    let mut stream = Stream::new([port(QUARTER), port(QUARTER)].into());
    stream.cut(1, true);
    stream.run(9_000 * MILLI);
    // Its next probe is seven seconds away.
    stream.cut(1, false);
    stream.run(10 * MILLI);
    stream.cut(0, true);
    stream.run(200 * MILLI);
    assert!(stream.run(50 * MILLI) > 0.0);
}

#[test]
fn a_server_that_is_probed_by_mistake_ends_no_association() {
    let (mut stream, _) = quiet(&[port(QUARTER), port(QUARTER)], 2);
    // Nothing ends.
    stream.run(20_000 * MILLI);
    assert!(stream.world.nodes[2].endpoint.counters().unknown > 0, "it was probed");
}

#[test]
fn a_station_where_nobody_ever_answers_is_given_up() {
    let (mut stream, _) = quiet(&[port(QUARTER), Port { is_cut: true, ..port(QUARTER) }], 2);
    stream.run(300_000 * MILLI);
    let port = &mut stream.world.nodes[2].ports[1];
    assert_eq!(core::mem::take(&mut port.dropped), 12);
    stream.run(300_000 * MILLI);
    assert_eq!(stream.world.nodes[2].ports[1].dropped, 0);
}

#[test]
fn a_path_that_swallows_large_packets_carries_small_ones() {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(1);
    for largest in [9000, 1400] {
        let port = Port { largest, ..Port::FAST };
        world.add(LARGE, [port.clone(), port].into(), &mut arena);
    }
    let manner = ConversationPlan {
        messages: 100,
        ahead: 8,
        body_bytes_max: 15_000,
        strict: 100,
        pauses: 0,
    };
    let mut talks = TrialConversations::new(manner, 2);
    let now = world.now;
    let endpoint = &mut world.nodes[0].endpoint;
    let association = endpoint.dial(now, 0, World::peer_address(1, 0)).unwrap();
    assert!(talks.start(endpoint, 0, association, &mut arena));
    world.run(now + 1_000 * MILLI, |endpoint, node, event| {
        talks.follow(endpoint, node, event, &mut arena);
    });
    talks.assert_done(1);
    world.end(&mut arena);
}

#[test]
fn a_path_that_begins_to_swallow_large_packets_is_noticed() {
    let mut stream = Stream::new([port(QUARTER)].into());
    let before = stream.run(20 * MILLI);
    stream.world.nodes[1].ports[0].largest = 1400;
    stream.run(100 * MILLI);
    let after = stream.run(500 * MILLI);
    assert!(after > 0.7 * before, "{after} of {before}");
}

/// A client with one connection to a server.
struct Caller {
    world: World,
    arena: Arena,
    conn: ConnId,
    /// Number of messages that the server has acknowledged.
    delivered: usize,
    said: usize,
}

impl Caller {
    /// Returns a client whose network delivers packets of up to `largest` bytes to the server.
    fn new(largest: usize) -> Caller {
        let mut arena = Arena::new(16 << 10);
        let mut world = World::new(1);
        for largest in [9000, largest] {
            world.add(LARGE, [Port { largest, ..Port::FAST }].into(), &mut arena);
        }
        let endpoint = &mut world.nodes[0].endpoint;
        let association = endpoint.dial(world.now, 0, World::peer_address(1, 0)).unwrap();
        let conn = endpoint.connect(association).unwrap();
        Caller { world, arena, conn, delivered: 0, said: 0 }
    }

    fn say(&mut self, bytes: usize) {
        let mut body = self.arena.take(bytes);
        body.prefix_mut(bytes);
        let frame = Frame { head: FrameHead::new(&[0; 8]), body: Some(body), body_len: bytes };
        self.world.nodes[0].endpoint.send(self.conn, frame, false);
        self.said += 1;
    }

    fn wait(&mut self, over: Duration) {
        let Caller { world, arena, delivered, .. } = self;
        world.run(world.now + over, |endpoint, _, event| match event {
            Event::Received { delivery, .. } => endpoint.give(delivery),
            Event::Sent { buf, .. } => {
                *delivered += 1;
                arena.give(buf.expect("every message has a body").0);
            }
            Event::Opened { .. } | Event::Up(_) => {}
            other => panic!("nothing ends: {other:?}"),
        });
    }

    /// Sends 64 messages of 4 KiB, and returns the number of packets that the client sends in the
    /// next second.
    fn packets_needed(&mut self) -> u64 {
        let before = self.world.nodes[0].endpoint.counters().sent;
        (0..64).for_each(|_| self.say(4096));
        self.wait(1_000 * MILLI);
        assert_eq!(self.delivered, self.said, "every message arrives");
        self.world.nodes[0].endpoint.counters().sent - before
    }

    fn has_small_packets(&mut self) -> bool {
        let count = self.packets_needed();
        assert!((32..60).contains(&count) || (190..260).contains(&count), "{count}");
        count > 60
    }
}

#[test]
fn a_path_that_carries_large_packets_again_is_found() {
    let mut caller = Caller::new(1400);
    caller.packets_needed();
    caller.wait(10_000 * MILLI);
    assert!(caller.has_small_packets());
    // Another route. It is found within ten minutes, and not at once.
    caller.world.nodes[1].ports[0].largest = 9000;
    caller.wait(60_000 * MILLI);
    assert!(caller.has_small_packets());
    caller.wait(600_000 * MILLI);
    assert!(!caller.has_small_packets());
    // And the first one again.
    caller.world.nodes[1].ports[0].largest = 1400;
    caller.packets_needed();
    caller.wait(10_000 * MILLI);
    assert!(caller.has_small_packets());
}

#[test]
fn a_path_that_stays_small_keeps_its_size_through_every_later_probe() {
    let mut caller = Caller::new(1400);
    caller.packets_needed();
    for _ in 0..3 {
        caller.wait(599_000 * MILLI);
        assert!(caller.has_small_packets());
    }
}

#[test]
fn large_packets_that_vanish_beside_small_ones_are_noticed() {
    let mut caller = Caller::new(9000);
    assert!(!caller.has_small_packets());
    caller.world.nodes[1].ports[0].largest = 1400;
    caller.say(4096);
    // Small messages arrive all the time, so the path is never silent.
    for _ in 0..200 {
        caller.say(8);
        caller.wait(MILLI / 10);
    }
    assert_eq!(caller.delivered, caller.said);
    caller.wait(10_000 * MILLI);
    assert!(caller.has_small_packets());
}

#[test]
fn an_outage_does_not_count_as_a_path_for_small_packets() {
    let mut caller = Caller::new(9000);
    assert!(!caller.has_small_packets());
    caller.world.nodes[1].ports[0].is_cut = true;
    caller.say(4096);
    caller.wait(4_000 * MILLI);
    caller.world.nodes[1].ports[0].is_cut = false;
    caller.wait(2_000 * MILLI);
    assert!(!caller.has_small_packets());
}
