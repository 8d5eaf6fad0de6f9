//! Attackers on the network: off the path they forge packets, on the path they replay them, and
//! they flood with hellos.

use std::time::Duration;
use std::vec::Vec;

use wire::packets::{PacketHelloBody, PacketKind, ResetBody, RetryBody};
use zerocopy::IntoBytes;

use super::perfect::{SMALL, sealed};
use super::talk::{ConversationPlan, TrialConversations};
use super::world::{Arena, PacketInFlight, Port, World};
use crate::head::{HEAD_BYTES, ParsedHead, crc_of, write_crc};
use crate::{Counters, SealSettings, Settings};

const MILLI: Duration = Duration::from_millis(1);

const MANNER: ConversationPlan =
    ConversationPlan { messages: 300, ahead: 8, body_bytes_max: 3000, strict: 100, pauses: 0 };

/// Runs a client and a server that talk, while an attacker acts every fifth of a millisecond.
/// Returns the counters of both endpoints.
pub(super) fn talk_under(settings: &Settings, mut attack: impl FnMut(&mut World)) -> [Counters; 2] {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(5);
    // A slow link, so that the talk lasts.
    let port = Port { rate: 20_000_000, ..Port::FAST };
    let client = Settings { accepts: false, ..settings.clone() };
    let client = world.add(client, [port.clone()].into(), &mut arena);
    let server = world.add(settings.clone(), [port].into(), &mut arena);
    world.is_taped = true;
    let mut talks = TrialConversations::new(MANNER, 2);
    let endpoint = &mut world.nodes[client].endpoint;
    let association = endpoint.dial(world.now, 0, World::peer_address(server, 0)).unwrap();
    assert!(talks.start(endpoint, client, association, &mut arena));
    for _ in 0..5_000 {
        let until = world.now + MILLI / 5;
        world.run(until, |endpoint, node, event| talks.follow(endpoint, node, event, &mut arena));
        if talks.open() > 0 {
            attack(&mut world);
        }
    }
    talks.assert_done(1);
    assert_eq!(talks.down, [], "the association stands");
    let counters = [client, server].map(|node| world.nodes[node].endpoint.counters());
    assert_eq!(world.nodes[server].endpoint.associations.taken(), 1, "nobody else was let in");
    world.end(&mut arena);
    counters
}

/// Returns a packet with a right checksum, padded with zeroes to `bytes` bytes.
pub(super) fn packet(head: ParsedHead, body: &[u8], bytes: usize) -> Vec<u8> {
    let mut packet = std::vec![0; HEAD_BYTES];
    packet.extend_from_slice(body);
    packet.resize(bytes.max(packet.len()), 0);
    ParsedHead { bytes: packet.len(), ..head }.write(&mut packet);
    let crc = crc_of([&packet[..]]);
    write_crc(&mut packet, crc);
    packet
}

/// Returns the head of a forged packet with guessed values.
pub(super) fn guess(kind: PacketKind, association: u32, cookie: u64) -> ParsedHead {
    ParsedHead {
        kind,
        ack_now: true,
        echo: true,
        bytes: 0,
        association,
        cookie,
        number: 3,
        ack: None,
        credits: 0,
        mark: None,
    }
}

/// Delivers a packet to node `to` with the source address of node `from`.
pub(super) fn land(world: &mut World, from: usize, to: usize, bytes: Vec<u8>) {
    let like = world.tape[0].clone();
    world.land(PacketInFlight { from, to, bytes, is_marked: false, ..like });
}

#[test]
fn who_does_not_know_the_cookie_harms_nobody() {
    for settings in [SMALL, sealed(SealSettings::PACKETS_MAX)] {
        let counters = talk_under(&settings, |world| {
            for to in [0, 1] {
                let cookie = world.chance.next();
                for kind in 0..8 {
                    // The peer's address is easily forged, and associations are easily guessed.
                    let head = guess(PacketKind(kind), 0, cookie);
                    let body = ResetBody {
                        cookie: cookie.into(),
                        association: 0.into(),
                        reserved: 0.into(),
                        proof: [0; 16],
                    };
                    land(world, 1 - to, to, packet(head, body.as_bytes(), 1400));
                }
            }
        });
        assert!(counters.iter().all(|counters| counters.unknown > 500), "{counters:?}");
        assert_eq!(counters.map(|counters| counters.resent), [0, 0]);
    }
}

#[test]
fn who_replays_everything_harms_nobody() {
    for settings in [SMALL, sealed(50)] {
        let mut from = 0;
        let counters = talk_under(&settings, |world| {
            // Each packet again a little later, and some of the oldest.
            let tape = world.tape.clone();
            for flying in tape[from..].iter().chain(tape.iter().take(3)) {
                world.land(flying.clone());
            }
            from = tape.len();
        });
        assert!(counters.iter().all(|counters| counters.repeated > 300), "{counters:?}");
        assert!(counters.iter().all(|counters| counters.malformed == 0), "{counters:?}");
    }
}

#[test]
fn a_flood_of_hellos_takes_no_memory_and_gets_no_more_bytes_than_it_sends() {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(5);
    let server = world.add(SMALL, [Port::FAST].into(), &mut arena);
    let nobody = world.add(SMALL, [Port::FAST].into(), &mut arena);
    let mut sent = 0;
    let begun = world.now;
    while world.now < begun + 100 * MILLI {
        for _ in 0..50 {
            let cookie = world.chance.next();
            let token = RetryBody { minute: world.chance.next().into(), proof: [7; 16] };
            let hello = PacketHelloBody {
                association: 0.into(),
                packet_bytes: 9000.into(),
                reserved: 0.into(),
                cookie: cookie.into(),
                token,
            };
            let bytes = packet(guess(PacketKind::HELLO, 0, 0), hello.as_bytes(), 1200);
            sent += bytes.len() as u64;
            world.send(nobody, server, 0, bytes);
        }
        let until = world.now + MILLI;
        world.run(until, |_, _, event| panic!("nobody is let in: {event:?}"));
        assert_eq!(world.nodes[server].endpoint.associations.taken(), 0);
    }
    let answered = world.nodes[nobody].ports[0].carried;
    assert!(answered > 50_000 && answered < sent / 10, "{answered} of {sent}");
    let counters = world.nodes[server].endpoint.counters();
    // A thousand hellos in a tenth of a second are answered, and a burst.
    assert!((900..=1100).contains(&(counters.arrived - counters.hellos_dropped)), "{counters:?}");
    world.end(&mut arena);
}

#[test]
fn a_server_that_forgot_says_so_and_the_client_dials_again() {
    for settings in [SMALL, sealed(SealSettings::PACKETS_MAX)] {
        forgets(&settings);
    }
}

fn forgets(settings: &Settings) {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(5);
    let client = Settings { accepts: false, ..settings.clone() };
    let client = world.add(client, [Port::FAST].into(), &mut arena);
    let server = world.add(settings.clone(), [Port::FAST].into(), &mut arena);
    let mut talks = TrialConversations::new(ConversationPlan { messages: 1, ..MANNER }, 2);
    for round in 0..2 {
        let endpoint = &mut world.nodes[client].endpoint;
        let association = endpoint.dial(world.now, 0, World::peer_address(server, 0)).unwrap();
        assert!(talks.start(endpoint, client, association, &mut arena));
        let until = world.now + 100 * MILLI;
        world.run(until, |endpoint, node, event| talks.follow(endpoint, node, event, &mut arena));
        talks.assert_done(round + 1);
        // The server starts anew.
        let settings = Settings { secret: [9; 32], ..settings.clone() };
        world.nodes[server].endpoint = crate::Endpoint::new(settings);
        let endpoint = &mut world.nodes[client].endpoint;
        endpoint.connect(association).unwrap();
        let until = world.now + 100 * MILLI;
        world.run(until, |endpoint, _, event| {
            if let crate::Event::Down(_, why) = event {
                assert_eq!((why, endpoint.associations.taken()), (crate::AssociationEnd::Reset, 0));
                talks.up.clear();
            }
        });
        assert!(talks.up.is_empty(), "the client has heard it");
    }
    world.end(&mut arena);
}
