//! Sealed associations: attackers on the path who change and invent packets, ends whose keys do not
//! fit, and keys that are used up.

use std::time::Duration;
use std::vec::Vec;

use wire::packets::{
    FLAG_SEALED, PacketKind, REFUSED_NEEDS_KEY, REFUSED_NO_KEY, REFUSED_OTHER_KEY,
};
use wire::packets::{PacketHead, ResetBody};
use zerocopy::{FromBytes, IntoBytes};

use super::hostile::{guess, land, packet, talk_under};
use super::perfect::{SMALL, sealed};
use super::talk::{ConversationPlan, TrialConversations};
use super::world::{Arena, PacketInFlight, Port, World};
use crate::head::{HEAD_BYTES, crc_of, write_crc};
use crate::secret::{RESET_KEY, reset_proof};
use crate::{AssociationEnd, Event, PacketKey, SealSettings, Settings};

const MILLI: Duration = Duration::from_millis(1);

/// Returns the head of a packet on its way.
fn head(flying: &PacketInFlight) -> PacketHead {
    PacketHead::read_from_prefix(&flying.bytes).unwrap().0
}

fn kind(flying: &PacketInFlight) -> PacketKind {
    PacketKind(head(flying).version_kind & 15)
}

fn is_encrypted(flying: &PacketInFlight) -> bool {
    head(flying).flags & FLAG_SEALED != 0
        && matches!(kind(flying), PacketKind::DATA | PacketKind::PROBE)
}

/// Returns the packets in the air that were sent since the last call. `seen` keeps the order number
/// of the latest one.
fn new_in_air(world: &World, seen: &mut u64) -> Vec<PacketInFlight> {
    let mut flying: Vec<PacketInFlight> = world.air.iter().map(|flying| flying.0.clone()).collect();
    flying.retain(|flying| flying.order > *seen);
    *seen = flying.iter().map(|flying| flying.order).fold(*seen, u64::max);
    flying
}

#[test]
fn who_changes_any_byte_of_any_packet_harms_nobody() {
    let mut round = 0;
    for _ in 0..4 {
        let counters = talk_under(&sealed(100), change_bytes(&mut round));
        assert!(counters.iter().all(|counters| counters.malformed > 10_000), "{counters:?}");
        assert_eq!(counters.map(|counters| counters.resent), [0, 0], "nothing was lost");
    }
}

/// Returns an attacker who delivers, before each packet arrives, copies of it in which one bit was
/// changed.
fn change_bytes(round: &mut usize) -> impl FnMut(&mut World) {
    let mut seen = 0;
    move |world| {
        for flying in new_in_air(world, &mut seen) {
            let bytes = flying.bytes.len();
            *round += 1;
            // Of the handshake, a few bytes of each packet in turns: a flood of hellos is another
            // attack. Of others all of head and proof, and an eleventh of the rest.
            let is_sealed = is_encrypted(&flying);
            let is_meant = |at: &usize| match is_sealed {
                true => *at < 90 || at + 16 >= bytes || at % 11 == *round % 11,
                false => at % 31 == *round % 31,
            };
            for at in (0..bytes).filter(is_meant) {
                let mut forged = flying.clone();
                forged.bytes[at] ^= 1 << (*round % 8);
                // Where there is a checksum alone, everybody can make it right.
                if !is_encrypted(&forged) {
                    forged.bytes[36..HEAD_BYTES].fill(0);
                    let crc = crc_of([&forged.bytes[..]]);
                    write_crc(&mut forged.bytes, crc);
                }
                world.land(forged);
            }
        }
    }
}

#[test]
fn who_sees_the_cookies_but_has_no_key_harms_nobody() {
    let mut seen = 0;
    let counters = talk_under(&sealed(SealSettings::PACKETS_MAX), |world| {
        for flying in new_in_air(world, &mut seen).iter().filter(|flying| is_encrypted(flying)) {
            let head = head(flying);
            let (cookie, association) = (head.cookie.get(), head.association.get());
            // Packets that are not sealed, and the reset of an association that is not.
            for kind in [PacketKind::DATA, PacketKind::PROBE] {
                let forged = guess(kind, association, cookie);
                land(world, flying.from, flying.to, packet(forged, &[0; 16], 0));
            }
            let reset = ResetBody {
                cookie: cookie.into(),
                association: association.into(),
                reserved: 0.into(),
                proof: reset_proof(&RESET_KEY, cookie, association),
            };
            let reset = packet(guess(PacketKind::RESET, 0, 0), reset.as_bytes(), 0);
            land(world, flying.to, flying.from, reset);
        }
    });
    assert!(counters.iter().all(|counters| counters.unknown > 300), "{counters:?}");
}

#[test]
fn everything_but_the_handshake_is_sealed() {
    let counters = talk_under(&sealed(SealSettings::PACKETS_MAX), |world| {
        let of_talk = |flying: &&PacketInFlight| {
            matches!(kind(flying), PacketKind::DATA | PacketKind::PROBE | PacketKind::HELLO)
        };
        assert!(world.tape.iter().filter(of_talk).all(|one| head(one).flags & FLAG_SEALED != 0));
    });
    assert_eq!(counters.map(|counters| counters.malformed), [0, 0]);
}

/// Dials a server, and returns the reason for the end of the association; `None` if it stands for
/// half a second.
fn dial(server: Settings, client: Settings) -> Option<AssociationEnd> {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(3);
    let client = Settings { accepts: false, ..client };
    let client = world.add(client, [Port::FAST].into(), &mut arena);
    let server = world.add(server, [Port::FAST].into(), &mut arena);
    let endpoint = &mut world.nodes[client].endpoint;
    endpoint.dial(world.now, 0, World::peer_address(server, 0)).unwrap();
    let (mut down, until) = (None, world.now + 500 * MILLI);
    world.run(until, |_, node, event| {
        if let Event::Down(_, why) = event {
            assert_eq!(node, client, "the server has let nobody in");
            down = Some(why);
        }
    });
    world.end(&mut arena);
    down
}

#[test]
fn keys_that_do_not_fit_are_told() {
    let with = |key: u8| {
        let mut settings = sealed(SealSettings::PACKETS_MAX);
        settings.sealed.iter_mut().for_each(|sealed| sealed.key = PacketKey::new([key; 32]));
        settings
    };
    assert_eq!(dial(with(1), with(1)), None);
    assert_eq!(dial(with(1), with(2)), Some(AssociationEnd::Refused(REFUSED_OTHER_KEY)));
    assert_eq!(dial(with(1), SMALL), Some(AssociationEnd::Refused(REFUSED_NEEDS_KEY)));
    assert_eq!(dial(SMALL, with(1)), Some(AssociationEnd::Refused(REFUSED_NO_KEY)));
}

#[test]
fn a_talk_goes_on_while_keys_are_replaced() {
    let mut arena = Arena::new(16 << 10);
    let mut world = World::new(1);
    let client = Settings { accepts: false, ..sealed(20) };
    let client = world.add(client, [Port::FAST].into(), &mut arena);
    let server = world.add(sealed(SealSettings::PACKETS_MAX), [Port::FAST].into(), &mut arena);
    world.is_taped = true;
    let manner =
        ConversationPlan { messages: 200, ahead: 8, body_bytes_max: 6000, strict: 100, pauses: 0 };
    let mut talks = TrialConversations::new(manner, 2);
    let endpoint = &mut world.nodes[client].endpoint;
    let association = endpoint.dial(world.now, 0, World::peer_address(server, 0)).unwrap();
    for _ in 0..4 {
        assert!(talks.start(endpoint, client, association, &mut arena));
    }
    let until = world.now + 3 * MILLI;
    world.run(until, |endpoint, node, event| talks.follow(endpoint, node, event, &mut arena));
    talks.assert_done(4);
    let phases = |from: usize| -> Vec<u8> {
        let of = world.tape.iter().filter(|flying| flying.from == from && is_encrypted(flying));
        let mut phases: Vec<u8> = of.map(|flying| flying.bytes[37]).collect();
        phases.dedup();
        phases
    };
    for from in [client, server] {
        let phases = phases(from);
        assert!(phases.len() > 20, "end {from}: {phases:?}");
        assert!(phases.iter().enumerate().all(|(n, phase)| n as u8 == *phase), "{phases:?}");
    }
    for node in [client, server] {
        let counters = world.nodes[node].endpoint.counters();
        assert_eq!((counters.malformed, counters.resent), (0, 0));
    }
    world.end(&mut arena);
}
