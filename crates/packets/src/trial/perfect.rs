//! Two ends over a network that loses nothing.

use std::time::Duration;

use super::talk::{Manner, Talks};
use super::world::{Arena, Port, World};
use crate::Settings;

/// Small tables, so that they run full.
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

#[test]
fn messages_and_answers_cross_a_perfect_network() {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(1);
    let client = world.add(Settings { accepts: false, ..SMALL }, [Port::FAST].into(), &mut arena);
    let server = world.add(SMALL, [Port::FAST].into(), &mut arena);
    let manner = Manner { messages: 200, ahead: 8, body_bytes_max: 6000, strict: 100, pauses: 0 };
    let mut talks = Talks::new(manner, 2);
    let now = world.now;
    let endpoint = &mut world.nodes[client].endpoint;
    let association = endpoint.dial(now, 0, World::station(server, 0)).unwrap();
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
