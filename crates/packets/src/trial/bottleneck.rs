//! Bottlenecks in virtual time: the utilisation of a link, the length of its queue, and the
//! fairness between its users.

use std::time::Duration;
use std::vec::Vec;

use contract::{ConnId, Frame, FrameHead, Instant};

use super::perfect::SMALL;
use super::world::{Arena, Port, World};
use crate::{Endpoint, Event, Policy, Settings};

const LARGE: Settings = Settings {
    packet_bytes: 9000,
    messages_max: 512,
    pieces_max: 1024,
    holds_max: 512,
    chunks_max: 256,
    associations_max: 128,
    paths_max: 128,
    windows_max: 128,
    channels_max: 128,
    ..SMALL
};

/// Senders that always have `ahead` messages of `bytes` bytes in flight to one receiver.
struct Flood {
    senders: usize,
    bytes: usize,
    ahead: usize,
    port: Port,
    control: Policy,
    /// The time from the dial until the senders send their first messages.
    rest: Duration,
}

/// The measurements of a flood after its warm-up.
#[derive(Debug)]
struct Measured {
    /// The share of the receiver's port that was used, from 0 to 1.
    utilisation: f64,
    /// The longest queue at the receiver's port, in bytes.
    queued_most: f64,
    /// The goal for the longest queue, in bytes: what the port sends in the target delay and a
    /// round trip.
    queue_goal: f64,
    /// Jain's fairness index over the bytes that each sender delivered; 1 if all are equal.
    jain: f64,
    dropped: u64,
    resent: u64,
}

impl Flood {
    /// Creates a flood of messages of 4 KiB with the window that finds the queue by delays.
    fn of(senders: usize, ahead: usize, port: Port) -> Flood {
        let (control, rest) = (Policy::Delay, Duration::ZERO);
        Flood { senders, bytes: 4096, ahead, port, control, rest }
    }

    fn say(endpoint: &mut Endpoint, conn: ConnId, bytes: usize, arena: &mut Arena) {
        let mut body = arena.take(bytes);
        body.prefix_mut(bytes);
        let head = FrameHead::new(&[0; 8]);
        endpoint.send(conn, Frame { head, body: Some(body), body_len: bytes }, false);
    }

    /// Runs the flood for `warm`, then measures it for `over`.
    fn run(&self, warm: Duration, over: Duration) -> Measured {
        let mut arena = Arena::new(16 << 10);
        let mut world = World::new(7);
        let settings = Settings { control: self.control, ..LARGE };
        let receiver = world.add(settings.clone(), [self.port.clone()].into(), &mut arena);
        let mut conns = Vec::new();
        for _ in 0..self.senders {
            let back = Port { rate: 10 * self.port.rate, ..self.port.clone() };
            let sender = Settings { chunks_max: 64, ..settings.clone() };
            let node = world.add(sender, [back].into(), &mut arena);
            let endpoint = &mut world.nodes[node].endpoint;
            let to = World::peer_address(receiver, 0);
            let association = endpoint.dial(world.now, 0, to).unwrap();
            conns.push((node, endpoint.connect(association).unwrap()));
        }
        let mut delivered = std::vec![0u64; self.senders];
        let run = |world: &mut World, until: Instant, delivered: &mut [u64], arena: &mut Arena| {
            world.run(until, |endpoint, node, event| match event {
                Event::Received { delivery, .. } => endpoint.give(delivery),
                Event::Sent { conn, buf } => {
                    arena.give(buf.expect("every message has a body").0);
                    delivered[node - 1] += self.bytes as u64;
                    Flood::say(endpoint, conn, self.bytes, arena);
                }
                Event::Opened { .. } | Event::Up(_) => {}
                other => panic!("nothing ends: {other:?}"),
            });
        };
        let begun = world.now + self.rest;
        run(&mut world, begun, &mut delivered, &mut arena);
        for (node, conn) in conns {
            for _ in 0..self.ahead {
                Flood::say(&mut world.nodes[node].endpoint, conn, self.bytes, &mut arena);
            }
        }
        let (start, end) = (world.now + warm, world.now + warm + over);
        run(&mut world, start, &mut delivered, &mut arena);
        let port = &mut world.nodes[receiver].ports[0];
        (port.carried, port.queued_most) = (0, 0);
        delivered.fill(0);
        let resent = |world: &World| {
            world.nodes.iter().map(|node| node.endpoint.counters().resent).sum::<u64>()
        };
        let before = resent(&world);
        run(&mut world, end, &mut delivered, &mut arena);
        let port = &world.nodes[receiver].ports[0];
        let rate = port.rate as f64;
        // The round trip of an empty network: both ports' delays, and a packet's time on the way.
        let round_trip = 2.0 * port.delay.as_secs_f64() + 9000.0 / rate;
        let target = crate::control::TARGET.as_secs_f64();
        let sum: f64 = delivered.iter().map(|n| *n as f64).sum();
        let squares: f64 = delivered.iter().map(|n| (*n as f64).powi(2)).sum();
        Measured {
            utilisation: port.carried as f64 / (rate * over.as_secs_f64()),
            queued_most: port.queued_most as f64,
            queue_goal: rate * (target + round_trip),
            jain: sum * sum / (self.senders as f64 * squares),
            dropped: port.dropped,
            resent: resent(&world) - before,
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn one_sender_fills_a_link_and_keeps_the_queue_short() {
    for (rate, delay_us) in [(125_000_000, 20), (1_250_000_000, 10), (1_250_000_000, 30)] {
        let delay = Duration::from_micros(delay_us);
        let port = Port { rate, delay, queue_bytes: 4 << 20, ..Port::FAST };
        let flood = Flood::of(1, 256, port);
        let measured = flood.run(SECOND / 20, SECOND / 20);
        assert!(measured.utilisation >= 0.90, "{measured:?}");
        assert!(measured.queued_most <= measured.queue_goal, "{measured:?}");
        assert_eq!((measured.dropped, measured.resent), (0, 0));
    }
}

#[test]
fn eight_senders_share_a_link_evenly() {
    let port = Port { queue_bytes: 4 << 20, ..Port::FAST };
    let flood = Flood::of(8, 64, port);
    let measured = flood.run(SECOND / 10, SECOND / 5);
    assert!(measured.jain >= 0.95, "{measured:?}");
    assert!(measured.utilisation >= 0.90, "{measured:?}");
}

#[test]
fn a_hundred_senders_do_not_collapse() {
    // All are acquainted before the first one sends: it is their number that is tried.
    let rest = SECOND / 5;
    let port = Port { queue_bytes: 500_000, ..Port::FAST };
    let flood = Flood { rest, ..Flood::of(100, 32, port) };
    let measured = flood.run(SECOND / 10, SECOND / 10);
    assert!(measured.utilisation >= 0.80, "{measured:?}");
    // Of about 27 000 messages.
    assert!(measured.resent < 500, "{measured:?}");
}

#[test]
fn marks_keep_the_queue_shorter_than_the_target_would() {
    let port = Port { mark_bytes: 30_000, queue_bytes: 4 << 20, ..Port::FAST };
    let flood = Flood::of(2, 256, port);
    let measured = flood.run(SECOND / 20, SECOND / 20);
    assert!(measured.utilisation >= 0.90, "{measured:?}");
    assert!(measured.queued_most < 0.6 * measured.queue_goal, "{measured:?}");
}

#[test]
fn a_fixed_window_stays_whatever_the_queue() {
    let port = Port { queue_bytes: 4 << 20, ..Port::FAST };
    let flood = Flood { control: Policy::Fixed(64), ..Flood::of(1, 256, port) };
    let measured = flood.run(SECOND / 20, SECOND / 20);
    assert!(measured.utilisation >= 0.99, "{measured:?}");
    // All of the window but what is on the way.
    assert!((450_000.0..576_000.0).contains(&measured.queued_most), "{measured:?}");
}
