//! Two endpoints over a network without loss.

use std::time::Duration;

use super::talk::{ConversationPlan, TrialConversations};
use super::world::{Arena, Port, World};
use crate::{PacketKey, SealSettings, Settings};

/// The settings of an endpoint with small tables, so that they run full.
pub(crate) const SMALL: Settings = Settings {
    packet_bytes: 1400,
    associations_max: 4,
    paths_max: 8,
    windows_max: 4,
    channels_max: 16,
    messages_max: 64,
    pieces_max: 96,
    holds_max: 64,
    chunks_max: 32,
    ..Settings::WORKER
};

/// Returns the settings of an endpoint with small tables that seals its packets, `packets_max` with
/// each key.
pub(crate) fn sealed(packets_max: u32) -> Settings {
    let sealed = SealSettings { key: PacketKey::new([9; 32]), chance: [0; 32], packets_max };
    Settings { sealed: Some(sealed), ..SMALL }
}

#[test]
fn messages_and_answers_cross_a_perfect_network() {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(1);
    let client = world.add(Settings { accepts: false, ..SMALL }, [Port::FAST].into(), &mut arena);
    let server = world.add(SMALL, [Port::FAST].into(), &mut arena);
    let manner =
        ConversationPlan { messages: 200, ahead: 8, body_bytes_max: 6000, strict: 100, pauses: 0 };
    let mut talks = TrialConversations::new(manner, 2);
    let now = world.now;
    let endpoint = &mut world.nodes[client].endpoint;
    let association = endpoint.dial(now, 0, World::peer_address(server, 0)).unwrap();
    for _ in 0..4 {
        assert!(talks.start(endpoint, client, association, &mut arena));
    }
    let until = now + Duration::from_millis(3);
    world.run(until, |endpoint, node, event| {
        talks.follow(endpoint, node, event, &mut arena);
    });
    talks.assert_done(4);
    assert_eq!(talks.up, [(client, association)]);
    assert_eq!(talks.down, []);
    world.end(&mut arena);
    assert_eq!(arena.free(), arena.made as usize);
}

/// Returns a world in which a client has dialled a server and begun a conversation on a channel.
fn acquainted(messages: u32) -> (Arena, World, TrialConversations) {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(1);
    let client = world.add(Settings { accepts: false, ..SMALL }, [Port::FAST].into(), &mut arena);
    let server = world.add(SMALL, [Port::FAST].into(), &mut arena);
    let manner = ConversationPlan { messages, ahead: 1, body_bytes_max: 900, strict: 0, pauses: 0 };
    let mut talks = TrialConversations::new(manner, 2);
    let now = world.now;
    let endpoint = &mut world.nodes[client].endpoint;
    let association = endpoint.dial(now, 0, World::peer_address(server, 0)).unwrap();
    assert!(talks.start(endpoint, client, association, &mut arena));
    (arena, world, talks)
}

/// Runs the world for `over`.
fn run(world: &mut World, talks: &mut TrialConversations, arena: &mut Arena, over: Duration) {
    let until = world.now + over;
    world.run(until, |endpoint, node, event| talks.follow(endpoint, node, event, arena));
}

fn sent(world: &World) -> u64 {
    world.nodes.iter().map(|node| node.endpoint.counters().sent).sum()
}

#[test]
fn one_request_at_a_time_needs_no_bare_acknowledgement() {
    let (mut arena, mut world, mut talks) = acquainted(1000);
    run(&mut world, &mut talks, &mut arena, Duration::from_millis(5));
    let (packets, messages) = (sent(&world), talks.whole);
    run(&mut world, &mut talks, &mut arena, Duration::from_millis(5));
    let (packets, messages) = (sent(&world) - packets, talks.whole - messages);
    assert!(messages > 300, "{messages}");
    assert!(packets.abs_diff(messages) <= 1, "{packets} packets for {messages} messages");
}

#[test]
fn an_idle_association_sends_a_question_in_twenty_seconds() {
    let (mut arena, mut world, mut talks) = acquainted(10);
    run(&mut world, &mut talks, &mut arena, Duration::from_secs(1));
    // A channel that says nothing.
    world.nodes[0].endpoint.connect(talks.up[0].1).unwrap();
    // The first questions come sooner.
    run(&mut world, &mut talks, &mut arena, Duration::from_secs(60));
    let (before, steps) = (sent(&world), world.steps);
    run(&mut world, &mut talks, &mut arena, Duration::from_secs(1000));
    // A question and its answer each time.
    assert!((90..=102).contains(&(sent(&world) - before)), "{}", sent(&world) - before);
    assert!(world.steps - steps < 500, "endpoints sleep: {} steps", world.steps - steps);
}

/// Checks that a client soon notices that a server was killed that had acknowledged all of its
/// requests, so that nothing is in flight.
#[test]
fn a_client_that_waits_for_a_killed_server_asks_soon() {
    let (mut arena, mut world, mut talks) = acquainted(10);
    run(&mut world, &mut talks, &mut arena, Duration::from_millis(1));
    // As the one that is started next does.
    let client = talks.up[0];
    crate::endpoint::hang_up_all(&mut world.nodes[1].endpoint);
    run(&mut world, &mut talks, &mut arena, Duration::from_millis(100));
    let is_ours =
        |down: &(usize, crate::AssociationId, crate::AssociationEnd)| (down.0, down.1) == client;
    assert!(talks.down.iter().any(is_ours), "{:?}", talks.down);
}

#[test]
fn a_client_that_vanishes_is_noticed() {
    let (mut arena, mut world, mut talks) = acquainted(10);
    talks.manner.ahead = 1;
    run(&mut world, &mut talks, &mut arena, Duration::from_millis(1));
    world.nodes.iter_mut().for_each(|node| node.ports[0].is_cut = true);
    run(&mut world, &mut talks, &mut arena, Duration::from_secs(26));
    assert_eq!(talks.down.len(), 2, "both ends notice");
    assert_eq!(talks.open(), 0);
    world.end(&mut arena);
}
