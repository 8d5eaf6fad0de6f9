//! Two endpoints under every kind of loss, delay and damage: each message is delivered once, above
//! its floor, and all memory returns.

use std::time::Duration;

use super::key_randomness::Chance;
use super::perfect::{SMALL, sealed};
use super::talk::{ConversationPlan, TrialConversations};
use super::world::{Arena, Impairments, Port, World};
use crate::{AssociationEnd, Counters, Policy, SealSettings, Settings};

/// A random plan of a world and its conversations, which one seed decides.
struct Plan {
    impairments: Impairments,
    manner: ConversationPlan,
    channels: u64,
    client: Settings,
    server: Settings,
    port: Port,
    lanes: usize,
}

fn plan(seed: u64) -> Plan {
    let mut chance = Chance(seed);
    let mut some = |most: usize| if chance.below(2) == 0 { 0 } else { chance.below(most) as u32 };
    let impairments = Impairments {
        loss: some(250),
        duplicate: some(300),
        reorder: some(500),
        corrupt: some(100),
        truncate: some(50),
    };
    let manner = ConversationPlan {
        messages: 1 + some(60),
        ahead: 1 + some(20),
        body_bytes_max: [0, 40, 600, 5_000, 15_000][chance.below(5)],
        strict: [0, 100, 1000][chance.below(3)],
        pauses: [0, 30][chance.below(2)],
    };
    let sizes = [1200, 1400, 4000, 9000];
    let mut settings = || {
        let control = [Policy::Delay, Policy::Delay, Policy::Fixed(8)][chance.below(3)];
        let packet_bytes = sizes[chance.below(4)];
        let (holds_max, chunks_max) = [(64, 32), (8, 4)][chance.below(2)];
        let worker = chance.below(256) as u8;
        Settings { packet_bytes, control, worker, holds_max, chunks_max, ..SMALL }
    };
    let (mut client, mut server) = (settings(), settings());
    // Every second world is sealed, with keys that are soon used up in every fourth.
    if seed % 2 == 1 {
        let packets_max = [SealSettings::PACKETS_MAX, 40][seed as usize / 2 % 2];
        client.sealed = sealed(packets_max).sealed;
        server.sealed = sealed(SealSettings::PACKETS_MAX).sealed;
    }
    let port = Port {
        rate: [12_500_000, 125_000_000, 1_250_000_000][chance.below(3)],
        queue_bytes: 20_000 + chance.below(200_000) as u64,
        delay: Duration::from_micros(1 + chance.below(300) as u64),
        ..Port::FAST
    };
    let channels = 1 + chance.below(8) as u64;
    let lanes = 1 + chance.below(2);
    Plan { impairments, manner, channels, client, server, port, lanes }
}

/// Runs the world of a seed to its end. Returns the counters of both endpoints, and `true` if one
/// end took the other for dead. In the worst case a dozen packets in a row are sometimes lost.
fn trial(seed: u64, arena: &mut Arena) -> ([Counters; 2], bool) {
    let Plan { impairments, manner, channels, client, server, port, lanes } = plan(seed);
    let ports = std::vec![port; lanes];
    let mut world = World::new(seed);
    let client = Settings { accepts: false, ..client };
    let client = world.add(client, ports.clone(), arena);
    let server = world.add(server, ports, arena);
    world.impairments = impairments;
    let mut talks = TrialConversations::new(manner, seed ^ 1);
    let endpoint = &mut world.nodes[client].endpoint;
    let association = endpoint.dial(world.now, 0, World::peer_address(server, 0)).unwrap();
    let (mut started, mut has_path) = (0, false);
    let end = world.now + Duration::from_secs(100);
    while world.now < end && (started < channels || talks.open() > 0) {
        let endpoint = &mut world.nodes[client].endpoint;
        while started < channels && talks.start(endpoint, client, association, arena) {
            started += 1;
        }
        let until = world.now + Duration::from_millis(2);
        world.run(until, |endpoint, node, event| talks.follow(endpoint, node, event, arena));
        for node in [client, server] {
            talks.resume(&mut world.nodes[node].endpoint, node);
        }
        if lanes > 1 {
            let (now, to) = (world.now, World::peer_address(server, 1));
            let endpoint = &mut world.nodes[client].endpoint;
            has_path = has_path || endpoint.add_path(now, association, (1, to), true);
            // The second lane comes and goes.
            let is_cut = world.chance.per_mille(300);
            world.nodes.iter_mut().for_each(|node| node.ports[1].is_cut = is_cut);
        }
    }
    world.impairments = Impairments::default();
    let until = world.now + Duration::from_secs(33);
    world.run(until, |endpoint, node, event| talks.follow(endpoint, node, event, arena));
    // When all has been said, the association ends.
    talks.down.retain(|(_, _, why)| *why != AssociationEnd::Idle);
    let gave_up = !talks.down.is_empty();
    if gave_up {
        assert_eq!((talks.open(), talks.down[0].2), (0, AssociationEnd::Silent));
    } else {
        talks.assert_done(channels);
    }
    let counters = [client, server].map(|node| world.nodes[node].endpoint.counters());
    world.end(arena);
    (counters, gave_up)
}

/// A guard that prints the seed when its world panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("seed {}", self.0);
        }
    }
}

/// Runs the worlds of these seeds. Returns the sums, over both endpoints, of the packets that were
/// resent, repeated, malformed and refused.
fn trials(seeds: core::ops::Range<u64>) -> Counters {
    let mut arena = Arena::new(16 << 10);
    let (mut sum, mut deaths) = (Counters::default(), 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let _told = Seed(seed);
        let (counters, gave_up) = trial(seed, &mut arena);
        deaths += u64::from(gave_up);
        for counters in counters {
            sum.resent += counters.resent;
            sum.repeated += counters.repeated;
            sum.malformed += counters.malformed;
            sum.refused += counters.refused;
        }
        assert_eq!(arena.free(), arena.made as usize, "every buffer is back");
    }
    assert!(deaths * 200 <= count, "{deaths} of {count} gave up");
    sum
}

#[test]
fn every_message_arrives_once_in_any_weather() {
    let sum = trials(0..150);
    for reached in [sum.resent, sum.repeated, sum.malformed, sum.refused] {
        assert!(reached > 20, "the seeds reach everything: {sum:?}");
    }
}

#[test]
#[ignore = "full: twenty thousand worlds"]
fn every_message_arrives_once_in_twenty_thousand_weathers() {
    trials(1_000..21_000);
}
