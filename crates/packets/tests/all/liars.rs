//! Peers that greet or open as no proper peer does: the endpoint stands, and others notice nothing.

use std::net::SocketAddr;
use std::time::Duration;

use nearflash_packets::{Counters, Event, PeerAddress, Settings};
use wire::packets::{
    AcceptBody, HELLO_BYTES, PacketHead, PacketHelloBody, PacketKind, RecordHead, RecordKind,
    RetryBody, VERSION,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::fuzz_packets::seal;
use crate::pair::{Arena, Pair, SMALL, peer_address};

fn no_token() -> RetryBody {
    RetryBody::new_zeroed()
}

/// Returns a packet of at least `bytes` bytes with a right checksum, for the association and cookie
/// in `to`.
fn packet(kind: PacketKind, to: (u32, u64), body: &[u8], bytes: usize) -> Vec<u8> {
    let mut head = PacketHead::new_zeroed();
    head.version_kind = VERSION << 4 | kind.0;
    (head.association, head.cookie) = (to.0.into(), to.1.into());
    let mut packet = [head.as_bytes(), body].concat();
    packet.resize(bytes.max(packet.len()), 0);
    seal(&mut packet);
    packet
}

/// Says hello to the server, and returns the kind and the body of its answer; `None` if it does not
/// answer.
fn hello(
    pair: &mut Pair,
    from: PeerAddress,
    (place, cookie): (u32, u64),
    token: RetryBody,
    arena: &mut Arena,
) -> Option<(PacketKind, Vec<u8>)> {
    let mut body = PacketHelloBody::new_zeroed();
    (body.association, body.cookie, body.token) = (place.into(), cookie.into(), token);
    body.packet_bytes = 9000.into();
    let packet = packet(PacketKind::HELLO, (0, 0), body.as_bytes(), HELLO_BYTES);
    pair.hand(1, from, &packet, arena);
    while pair.fetch(1) {
        let (head, body) = PacketHead::read_from_prefix(&pair.wire).unwrap();
        let kind = PacketKind(head.version_kind & 15);
        if kind != PacketKind::DATA {
            return Some((kind, body.to_vec()));
        }
    }
    None
}

/// Says hello to the server, and again with the token of its retry. Returns the kind and the body
/// of the second answer; `None` if there is none.
fn greet(
    pair: &mut Pair,
    from: PeerAddress,
    me: (u32, u64),
    arena: &mut Arena,
) -> Option<(PacketKind, Vec<u8>)> {
    let (kind, body) = hello(pair, from, me, no_token(), arena)?;
    assert_eq!(kind, PacketKind::RETRY);
    let (token, _) = RetryBody::read_from_prefix(&body).unwrap();
    hello(pair, from, me, token, arena)
}

fn at(host: u8, port: u16) -> PeerAddress {
    PeerAddress::Internet(SocketAddr::from(([10, 1, 0, host], port)))
}

/// Checks that a packet that went astray to another worker gets no answer, since a reset would end
/// its association, and that a packet of nobody's association is answered with a reset.
#[test]
fn what_is_another_workers_is_dropped_and_what_is_nobodys_is_answered() {
    let mut arena = Arena::default();
    let settings = Settings { worker: 1, workers: 3, ..SMALL };
    let mut pair = Pair::new(&settings, &mut arena);
    for (worker, answer) in [(0, false), (1, true), (2, false), (3, true)] {
        let stray = packet(PacketKind::DATA, (worker << 24 | 5, 77), &[], 0);
        pair.hand(1, at(1, 1), &stray, &mut arena);
        let mut kinds = Vec::new();
        while pair.fetch(1) {
            let (head, _) = PacketHead::read_from_prefix(&pair.wire).unwrap();
            kinds.push(PacketKind(head.version_kind & 15));
        }
        assert_eq!(kinds.contains(&PacketKind::RESET), answer, "worker {worker}: {kinds:?}");
    }
}

#[test]
fn a_hello_or_an_accept_without_a_cookie_is_dropped() {
    let mut arena = Arena::default();
    let mut pair = Pair::new(&SMALL, &mut arena);
    assert_eq!(greet(&mut pair, at(1, 1), (7, 0), &mut arena), None);
    let second = pair.ends[0].dial(pair.now, 0, peer_address(1)).unwrap();
    assert!(pair.fetch(0), "its hello");
    let (hello, _) = PacketHelloBody::read_from_prefix(&pair.wire[40..]).unwrap();
    let me = (hello.association.get(), hello.cookie.get());
    let accept = AcceptBody::new_zeroed();
    let accept = packet(PacketKind::ACCEPT, me, accept.as_bytes(), 0);
    pair.hand(0, peer_address(1), &accept, &mut arena);
    assert_eq!(pair.ends[0].counters().unknown, 1);
    // The association comes up when the server answers.
    let hello = pair.wire.clone();
    pair.hand(1, peer_address(0), &hello, &mut arena);
    pair.settle(&mut arena);
    assert!(pair.ends[0].connect(second).is_some());
}

#[test]
fn only_who_said_hello_hears_the_accept() {
    let mut arena = Arena::default();
    let mut pair = Pair::new(&SMALL, &mut arena);
    let first = greet(&mut pair, at(1, 1), (7, 99), &mut arena);
    assert_eq!(first.as_ref().unwrap().0, PacketKind::ACCEPT);
    assert_eq!(greet(&mut pair, at(1, 1), (7, 99), &mut arena), first, "the accept was lost");
    for (from, place) in [(at(1, 2), 7), (at(2, 1), 7), (at(1, 1), 8)] {
        assert_eq!(greet(&mut pair, from, (place, 99), &mut arena), None);
    }
    assert_eq!(greet(&mut pair, at(2, 1), (7, 98), &mut arena).unwrap().0, PacketKind::ACCEPT);
}

#[test]
fn an_address_has_its_share_of_the_associations() {
    let mut arena = Arena::default();
    let settings = Settings { associations_max: 64, paths_max: 64, ..SMALL };
    let mut pair = Pair::new(&settings, &mut arena);
    let mut kind =
        |pair: &mut Pair, host, port| greet(pair, at(host, port), (1, u64::from(port)), &mut arena);
    for port in 1..=8 {
        assert_eq!(kind(&mut pair, 1, port).unwrap().0, PacketKind::ACCEPT);
    }
    assert_eq!(kind(&mut pair, 1, 9).unwrap().0, PacketKind::REFUSE);
    assert_eq!(kind(&mut pair, 2, 10).unwrap().0, PacketKind::ACCEPT);
    // Those that say nothing end.
    pair.now = pair.now + Duration::from_secs(6);
    pair.settle(&mut arena);
    let port = 11;
    let again = greet(&mut pair, at(1, port), (1, u64::from(port)), &mut arena);
    assert_eq!(again.unwrap().0, PacketKind::ACCEPT);
}

#[test]
fn noise_and_hellos_do_not_keep_others_out() {
    let mut arena = Arena::default();
    let mut pair = Pair::new(&SMALL, &mut arena);
    let (_, body) = hello(&mut pair, at(1, 1), (7, 99), no_token(), &mut arena).unwrap();
    let (token, _) = RetryBody::read_from_prefix(&body).unwrap();
    // Packets of no association take no answers from hellos.
    for n in 0..100 {
        pair.hand(1, at(3, 3), &packet(PacketKind::DATA, (n, 77), &[], 0), &mut arena);
    }
    while pair.fetch(1) {}
    assert!(hello(&mut pair, at(1, 2), (7, 98), no_token(), &mut arena).is_some());
    // Hellos without a token take none from those with one.
    let answered =
        (0..100).filter(|n| hello(&mut pair, at(2, *n), (7, 1), no_token(), &mut arena).is_some());
    assert!(answered.count() < 64);
    let welcome = hello(&mut pair, at(1, 1), (7, 99), token, &mut arena);
    assert_eq!(welcome.unwrap().0, PacketKind::ACCEPT);
}

/// A peer of the server that knows its cookie and sends any record. The value is the head of its
/// last packet.
struct Liar(PacketHead);

impl Liar {
    fn new(pair: &mut Pair, arena: &mut Arena) -> Liar {
        let conn = pair.conn;
        pair.send(0, conn, 10, arena);
        assert!(pair.fetch(0));
        let wire = pair.wire.clone();
        pair.hand(1, peer_address(0), &wire, arena);
        Liar(PacketHead::read_from_prefix(&wire).unwrap().0)
    }

    fn say(&mut self, pair: &mut Pair, kind: RecordKind, name: u16, message: u32, to: &mut Arena) {
        self.0.number = self.0.number.get().wrapping_add(1).into();
        let mut record = RecordHead::new_zeroed();
        (record.channel, record.kind, record.flags) = (name.into(), kind, 1);
        (record.message, record.offset) = (message.into(), u32::from(name).into());
        let mut packet = [self.0.as_bytes(), record.as_bytes()].concat();
        seal(&mut packet);
        pair.hand(1, peer_address(0), &packet, to);
    }
}

/// Returns a pair with these settings, and a liar in place of its client.
fn lied_to(settings: &Settings) -> (Arena, Pair, Liar) {
    let mut arena = Arena::default();
    let mut pair = Pair::new(settings, &mut arena);
    let liar = Liar::new(&mut pair, &mut arena);
    (arena, pair, liar)
}

fn counters(pair: &Pair) -> Counters {
    pair.ends[1].counters()
}

#[test]
fn a_channel_has_one_open_and_one_answer() {
    let (mut arena, mut pair, mut liar) = lied_to(&SMALL);
    let before = counters(&pair).malformed;
    for message in 1..=2 * SMALL.messages_max as u32 {
        liar.say(&mut pair, RecordKind::OPEN, 0, message, &mut arena);
        liar.say(&mut pair, RecordKind::OPEN, 9, message, &mut arena);
        liar.say(&mut pair, RecordKind::OPENED, 0, message, &mut arena);
    }
    assert_eq!(counters(&pair).malformed - before, 6 * SMALL.messages_max as u64);
    // The open itself may come again.
    for _ in 0..2 * SMALL.messages_max {
        liar.say(&mut pair, RecordKind::OPEN, 0, 0, &mut arena);
    }
    assert_eq!(counters(&pair).malformed - before, 6 * SMALL.messages_max as u64);
}

#[test]
fn an_open_without_room_for_its_answer_waits() {
    let settings = Settings { messages_max: 8, ..SMALL };
    let (mut arena, mut pair, mut liar) = lied_to(&settings);
    for name in 1..30 {
        liar.say(&mut pair, RecordKind::OPEN, name, 0, &mut arena);
    }
    assert!(counters(&pair).refused >= 20, "{:?}", counters(&pair));
}

#[test]
fn an_association_without_channels_ends() {
    // There is room for one association.
    let settings = Settings { associations_max: 1, ..SMALL };
    let (mut arena, mut pair, mut liar) = lied_to(&settings);
    let lasts = |pair: &mut Pair, liar: &mut Liar, arena: &mut Arena| {
        for _ in 0..15 {
            pair.now = pair.now + Duration::from_secs(1);
            liar.say(pair, RecordKind::PING, 0, 0, arena);
            pair.ends[1].advance(pair.now);
            while pair.fetch(1) {}
            pair.follow(1, arena);
        }
        let answer = greet(pair, at(1, 1), (7, 99), arena);
        answer.unwrap().0 == PacketKind::REFUSE
    };
    assert!(lasts(&mut pair, &mut liar, &mut arena), "it has a channel");
    liar.say(&mut pair, RecordKind::RESET, 0, 0, &mut arena);
    assert!(!lasts(&mut pair, &mut liar, &mut arena), "words alone do not keep it");
}

#[test]
fn a_client_ends_its_association_before_the_server_does() {
    let mut arena = Arena::default();
    let mut pair = Pair::new(&SMALL, &mut arena);
    let conn = pair.conn;
    pair.ends[0].close(conn);
    for _ in 0..10 {
        pair.settle(&mut arena);
        pair.now = pair.now + Duration::from_millis(1);
    }
    pair.now = pair.now + Duration::from_secs(5);
    pair.ends[0].advance(pair.now);
    while pair.fetch(0) {}
    let ended = std::iter::from_fn(|| pair.ends[0].event());
    let is_idle =
        |event: &Event| matches!(event, Event::Down(_, nearflash_packets::AssociationEnd::Idle));
    assert_eq!(ended.filter(is_idle).count(), 1);
}
