//! A client whose address changes while it talks, and others who pretend that it does.

use std::time::Duration;
use std::vec::Vec;

use super::perfect::{SMALL, sealed};
use super::talk::{ConversationPlan, TrialConversations};
use super::world::{Arena, PacketInFlight, Port, World};
use crate::{AssociationEnd, AssociationId, PeerAddress, SealSettings, Settings};

const MILLI: Duration = Duration::from_millis(1);

/// A client that talks to a server over four channels, and keeps all of them.
struct Scene {
    world: World,
    arena: Arena,
    talks: TrialConversations,
    association: AssociationId,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Scene {
    fn new(settings: &Settings) -> Scene {
        let mut arena = Arena::new(16 << 10);
        let mut world = World::new(1);
        let client = Settings { accepts: false, ..settings.clone() };
        let port = || Port { rate: 125_000_000, ..Port::FAST };
        assert_eq!(world.add(client, [port()].into(), &mut arena), CLIENT);
        assert_eq!(world.add(settings.clone(), [port()].into(), &mut arena), SERVER);
        let manner = ConversationPlan {
            messages: 2_000,
            ahead: 8,
            body_bytes_max: 6_000,
            strict: 500,
            pauses: 0,
        };
        let mut talks = TrialConversations::new(manner, 2);
        let endpoint = &mut world.nodes[CLIENT].endpoint;
        let association = endpoint.dial(world.now, 0, World::peer_address(SERVER, 0)).unwrap();
        for _ in 0..4 {
            assert!(talks.start(endpoint, CLIENT, association, &mut arena));
        }
        Scene { world, arena, talks, association }
    }

    fn run(&mut self, over: Duration) {
        let Scene { world, arena, talks, .. } = self;
        world.run(world.now + over, |endpoint, node, event| {
            talks.follow(endpoint, node, event, arena);
        });
    }

    /// Returns the number of paths that the server has seen proven, and left.
    fn proven(&self) -> (u64, u64) {
        let counters = self.world.nodes[SERVER].endpoint.counters();
        (counters.paths_proven, counters.paths_left)
    }
}

#[test]
fn a_sealed_talk_goes_on_when_the_clients_address_changes() {
    let mut scene = Scene::new(&sealed(SealSettings::PACKETS_MAX));
    for n in 1..=5_u16 {
        scene.run(2 * MILLI);
        let before = scene.talks.whole;
        scene.world.nodes[CLIENT].udp += 1;
        scene.run(8 * MILLI);
        assert_eq!(scene.proven(), (u64::from(n), 0));
        assert!(scene.talks.whole > before + 20, "it goes on after change {n}");
    }
    scene.run(2_000 * MILLI);
    scene.talks.assert_done(4);
    assert_eq!(scene.talks.down, []);
    scene.world.end(&mut scene.arena);
}

#[test]
fn a_client_that_comes_back_after_a_rest_is_followed() {
    let mut scene = Scene::new(&sealed(SealSettings::PACKETS_MAX));
    // A channel on which nobody says anything keeps the association.
    let (association, world) = (scene.association, &mut scene.world);
    assert!(world.nodes[CLIENT].endpoint.connect(association).is_some());
    scene.run(2_000 * MILLI);
    // The client asks now and then whether the server is there, and is found by that.
    scene.world.nodes[CLIENT].udp = 9_000;
    scene.run(21_000 * MILLI);
    assert_eq!(scene.proven(), (1, 0));
    assert_eq!(scene.talks.down, []);
}

#[test]
fn without_a_key_a_client_at_another_address_has_to_dial_again() {
    let mut scene = Scene::new(&SMALL);
    scene.run(2 * MILLI);
    scene.world.nodes[CLIENT].udp += 1;
    scene.run(40_000 * MILLI);
    assert_eq!(scene.proven(), (0, 0));
    let down: Vec<_> = scene.talks.down.iter().map(|(node, _, why)| (*node, *why)).collect();
    assert_eq!(down, [(CLIENT, AssociationEnd::Silent), (SERVER, AssociationEnd::Silent)]);
    let Scene { world, arena, talks, .. } = &mut scene;
    let endpoint = &mut world.nodes[CLIENT].endpoint;
    let again = endpoint.dial(world.now, 0, World::peer_address(SERVER, 0)).unwrap();
    assert!(talks.start(endpoint, CLIENT, again, arena));
    let before = talks.whole;
    scene.run(20 * MILLI);
    assert!(scene.talks.whole > before, "the new association talks");
}

/// Lands a copy of each packet that is on its way to the server before it arrives, from an address
/// of somebody else. Returns the bytes that were landed.
fn copy_all(world: &mut World, seen: &mut u64) -> usize {
    let stranger = PeerAddress::Internet(([10, 9, 9, CLIENT as u8], 1_000).into());
    let mut flying: Vec<PacketInFlight> = world.air.iter().map(|flying| flying.0.clone()).collect();
    flying.retain(|flying| flying.order > *seen && flying.to == SERVER);
    flying.sort_by_key(|flying| flying.order);
    let mut bytes = 0;
    for copy in flying {
        *seen = copy.order;
        bytes += copy.bytes.len();
        world.land_from(copy, stranger);
    }
    bytes
}

#[test]
fn who_copies_packets_from_another_address_gets_small_probes_and_no_path() {
    let mut scene = Scene::new(&sealed(SealSettings::PACKETS_MAX));
    scene.run(MILLI);
    let (mut seen, mut copied) = (0, 0);
    for _ in 0..4_000 {
        scene.run(MILLI / 100);
        copied += copy_all(&mut scene.world, &mut seen);
    }
    scene.run(2_000 * MILLI);
    scene.talks.assert_done(4);
    assert_eq!((scene.talks.down.as_slice(), scene.proven()), (&[][..], (0, 0)));
    // Nothing that went to the stranger arrived anywhere; it is counted as it left.
    let to_stranger = scene.world.lost_bytes;
    assert!(copied > 1_000_000 && to_stranger > 0, "{copied} bytes were copied");
    assert!(to_stranger * 10 < copied, "{to_stranger} bytes for {copied}");
}
