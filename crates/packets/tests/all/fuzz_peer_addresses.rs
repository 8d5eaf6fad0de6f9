//! Fuzzing of the lists of further addresses that peers tell: absurd lists are refused, and an
//! address gets nothing but small probes until it has answered one.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use contract::{Buf, Instant};
use nearflash_packets::{
    AssociationId, Endpoint, Event, Packet, PeerAddress, ReceivedPacket, Settings,
};
use wire::packets::{
    ADDRESS_IPV4, AcceptBody, AddressBody, HELLO_BYTES, PacketHead, PacketHelloBody, PacketKind,
    ProbeBody, VERSION,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::chance::Chance;
use crate::fuzz_packets::seal;
use crate::pair::{SMALL, peer_address};
use crate::rounds::rounds;

/// The number of rounds if the environment sets no time.
const ROUNDS: u64 = 400;

/// The association and the cookie that the server claims to have.
const SERVER: (u32, u64) = (7, 99);

thread_local! {
    /// Buffers for packets, which outlive the endpoints.
    static BUFS: RefCell<Vec<Buf>> = const { RefCell::new(Vec::new()) };
}

/// A client whose server is the test.
struct Client {
    endpoint: Endpoint,
    now: Instant,
    association: AssociationId,
    /// The association's number and cookie at the client.
    own: (u32, u64),
    /// The number of the last packet that the server sent on the first path.
    number: u32,
}

/// A packet of the client: its address, kind, length and bytes behind the head.
struct Sent {
    to: PeerAddress,
    kind: PacketKind,
    bytes: usize,
    body: Vec<u8>,
}

impl Client {
    /// Returns a client that dialled a server with `addresses` further addresses, which accepted.
    fn new(peer_addresses: u16) -> Client {
        let settings = Settings { accepts: false, secret: [1; 32], ..SMALL };
        let now = Instant::from_nanos(1_000_000_000);
        let mut endpoint = Endpoint::new(settings);
        let association = endpoint.dial(now, 0, peer_address(1)).unwrap();
        let mut client = Client { endpoint, now, association, own: (0, 0), number: 0 };
        let hello = client.fetch().expect("a hello");
        let (hello, _) = PacketHelloBody::read_from_prefix(&hello.body).unwrap();
        client.own = (hello.association.get(), hello.cookie.get());
        let accept = AcceptBody {
            association: SERVER.0.into(),
            packet_bytes: 9000.into(),
            addresses: peer_addresses.into(),
            cookie: SERVER.1.into(),
        };
        client.hand(0, peer_address(1), PacketKind::ACCEPT, accept.as_bytes());
        assert_eq!(client.endpoint.event(), Some(Event::Up(association)));
        client
    }

    fn fetch(&mut self) -> Option<Sent> {
        let mut packet = Packet::new(9000);
        if !self.endpoint.transmit(self.now, &mut packet) {
            return None;
        }
        let bytes = self.endpoint.slices(&packet).collect::<Vec<_>>().concat();
        if let Some(lent) = packet.lent() {
            self.endpoint.gone(lent);
        }
        let (head, body) = PacketHead::read_from_prefix(&bytes).unwrap();
        let kind = PacketKind(head.version_kind & 15);
        Some(Sent { to: packet.to, kind, bytes: bytes.len(), body: body.to_vec() })
    }

    /// Returns all packets that the client sends in this time.
    fn fetch_for(&mut self, time: Duration) -> Vec<Sent> {
        let (end, mut all) = (self.now + time, Vec::new());
        loop {
            self.endpoint.advance(self.now);
            while let Some(sent) = self.fetch() {
                all.push(sent);
            }
            match self.endpoint.wake_at().filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at) + Duration::from_nanos(1),
                None => break,
            }
        }
        self.now = end;
        all
    }

    /// Hands a packet to the client.
    fn hand(&mut self, lane: u8, from: PeerAddress, kind: PacketKind, body: &[u8]) {
        self.number += 1;
        let mut head = PacketHead::new_zeroed();
        head.version_kind = VERSION << 4 | kind.0;
        (head.association, head.cookie) = (self.own.0.into(), self.own.1.into());
        (head.number, head.credits) = (self.number.into(), 64.into());
        let mut packet = [head.as_bytes(), body].concat();
        seal(&mut packet);
        let bytes = packet.len();
        let mut buf = BUFS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| Buf::new(Box::leak(vec![0; 9000].into_boxed_slice()), 0));
        buf.prefix_mut(bytes).copy_from_slice(&packet);
        let arrived = ReceivedPacket { lane, ..ReceivedPacket::plain(from, buf, bytes) };
        self.endpoint.receive(self.now, arrived);
        let returned = std::iter::from_fn(|| self.endpoint.take_back());
        BUFS.with_borrow_mut(|bufs| bufs.extend(returned));
    }

    /// Returns the number that the client asks an address to return in the next probe.
    fn challenge(&mut self, from: PeerAddress) -> u64 {
        // Before the client takes its path for one that swallows large packets.
        let sent = self.fetch_for(Duration::from_millis(1));
        let probe = sent.into_iter().find(|sent| sent.kind == PacketKind::PROBE && sent.to == from);
        let (probe, _) = ProbeBody::read_from_prefix(&probe.expect("a probe").body).unwrap();
        probe.challenge.get()
    }

    /// Answers the client's probe with this list, and returns the addresses that it believes.
    fn told(&mut self, list: &[u8]) -> Vec<PeerAddress> {
        let echo = self.challenge(peer_address(1));
        let body = ProbeBody { challenge: 0.into(), echo: echo.into() };
        self.hand(0, peer_address(1), PacketKind::PROBE, &[body.as_bytes(), list].concat());
        let mut told = Vec::new();
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::AddressAnnounced(association, peer_address)
                    if association == self.association =>
                {
                    told.push(peer_address);
                }
                other => panic!("nothing else happens: {other:?}"),
            }
        }
        told
    }
}

fn listed(octets: [u8; 4], port: u16) -> Vec<u8> {
    let mut body = AddressBody::new_zeroed();
    (body.kind, body.port) = (ADDRESS_IPV4, port.into());
    body.address[..4].copy_from_slice(&octets);
    body.as_bytes().to_vec()
}

fn at(octets: [u8; 4], port: u16) -> PeerAddress {
    PeerAddress::Internet(SocketAddr::from((octets, port)))
}

#[test]
fn a_list_of_stations_is_believed_as_far_as_it_makes_sense() {
    let good = |last: u8| listed([10, 9, 0, last], 7420);
    let told = |list: &[Vec<u8>]| Client::new(3).told(&list.concat());
    assert_eq!(told(&[good(1), good(2)]), [at([10, 9, 0, 1], 7420), at([10, 9, 0, 2], 7420)]);
    // At most three, of which those that nobody can have are left out.
    assert_eq!(told(&[good(1), good(2), good(3), good(4)]).len(), 3);
    let bad = [listed([127, 0, 0, 1], 22), listed([224, 0, 0, 1], 7), listed([10, 0, 0, 1], 0)];
    assert_eq!(told(&bad), []);
    assert_eq!(told(&[vec![0; 24], good(1)]), [], "zeroes end the list");
    let mut unknown = good(1);
    unknown[0] = 9;
    assert_eq!(told(&[unknown, good(2)]), [at([10, 9, 0, 2], 7420)]);
    assert_eq!(told(&[good(1)[..23].to_vec()]), [], "a list that is cut short");
}

#[test]
fn stations_are_told_by_the_answer_to_a_probe_alone() {
    let mut client = Client::new(0);
    // Later, the silence of a peer makes it ask for full packets.
    let sent = client.fetch_for(Duration::from_millis(20));
    assert!(sent.iter().all(|sent| sent.kind != PacketKind::PROBE), "there is nothing to ask for");
    let mut client = Client::new(1);
    let echo = client.challenge(peer_address(1));
    for forged in [0, 1, echo ^ 1] {
        let body = ProbeBody { challenge: 5.into(), echo: forged.into() };
        let list = listed([10, 9, 0, 1], 7420);
        client.hand(0, peer_address(1), PacketKind::PROBE, &[body.as_bytes(), &list].concat());
        assert_eq!(client.endpoint.event(), None, "{forged}");
    }
}

#[test]
fn a_told_station_gets_small_probes_alone_until_it_answers() {
    let (victim, far) = (at([10, 9, 0, 1], 7420), Duration::from_secs(4));
    let mut client = Client::new(1);
    assert_eq!(client.told(&listed([10, 9, 0, 1], 7420)), [victim]);
    let (now, association) = (client.now, client.association);
    assert!(client.endpoint.add_path(now, association, (1, victim), true));
    client.endpoint.connect(association).unwrap();
    let sent = client.fetch_for(far);
    let to_it: Vec<&Sent> = sent.iter().filter(|sent| sent.to == victim).collect();
    assert!(sent.len() > to_it.len(), "the channel's open goes by the first path");
    let is_small = |sent: &&Sent| sent.kind == PacketKind::PROBE && sent.bytes == HELLO_BYTES;
    assert!(to_it.iter().all(is_small) && (3..=9).contains(&to_it.len()), "{}", to_it.len());
    // Whoever guesses proves nothing.
    for guess in [0, 1, u64::MAX] {
        let body = ProbeBody { challenge: 3.into(), echo: guess.into() };
        client.hand(1, victim, PacketKind::PROBE, body.as_bytes());
    }
    let sent = client.fetch_for(Duration::from_millis(500));
    let is_probe = |sent: &Sent| sent.to != victim || sent.kind == PacketKind::PROBE;
    assert!(sent.iter().all(is_probe), "nothing but probes goes there");
}

#[test]
fn fuzz_lists_of_peer_addresses() {
    rounds(ROUNDS, |seed| {
        let mut chance = Chance(seed);
        let mut client = Client::new(chance.next() as u16 | 1);
        let mut list = Vec::new();
        for _ in 0..chance.below(12) {
            let mut body: Vec<u8> = (0..24).map(|_| chance.next() as u8).collect();
            body[0] = [0, 1, 4, 6, 4, 6, 255][chance.below(7)];
            if chance.below(2) == 0 {
                body[8..12].copy_from_slice(&[10, 0, 0, chance.below(3) as u8]);
            }
            list.extend(body);
        }
        list.truncate(list.len() - chance.below(list.len() / 8 + 1));
        let told = client.told(&list);
        assert!(told.len() <= 3);
        for (n, peer_address) in told.into_iter().enumerate() {
            assert!(
                matches!(peer_address, PeerAddress::Internet(at) if at.port() > 0),
                "{peer_address:?}"
            );
            let (now, association) = (client.now, client.association);
            client.endpoint.add_path(now, association, (n as u8 + 1, peer_address), true);
        }
        client.fetch_for(Duration::from_secs(1));
        client.endpoint.hang_up(client.association);
        client.fetch_for(Duration::from_secs(1));
        assert!(client.endpoint.is_at_rest());
    });
}
