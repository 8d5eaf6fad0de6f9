//! Tests of connections over UDP on loopback: bytes that one end sends arrive at the other in
//! order, ends are noticed, and strangers harm nobody.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use contract::{CloseReason, ConnId, Dial, Frame, FrameHead, ListenerId, NetEvent, Streams};
use nearflash_io::{Endpoint, Listener, Network, PacketKey, PacketSockets, SocketsConfig};

use crate::rig::{SocketRig, buf};

pub(crate) type Packets = SocketRig<PacketSockets>;

pub(crate) fn end() -> Packets {
    let config =
        SocketsConfig { connections_max: 300, frames_max: 512, ..SocketsConfig::default() };
    SocketRig::with(config)
}

/// Returns a listener for packets at an address.
fn bind(address: &str) -> Result<Listener, nearflash_io::Error> {
    Listener::bind_packets(&address.parse::<SocketAddr>().unwrap().into())
}

/// Returns a server, and the address where it receives packets.
fn server() -> (Packets, SocketAddr) {
    let mut server = end();
    let listener = bind("127.0.0.1:0").unwrap();
    let address = listener.endpoint().internet().unwrap();
    assert_eq!(*listener.endpoint(), Endpoint::Packets(address.into()));
    server.sockets.listen(ListenerId(7), listener).unwrap();
    (server, address)
}

fn client(server: SocketAddr) -> Packets {
    let mut client = end();
    client.sockets.dial_to(Endpoint::Packets(server.into()));
    client
}

/// Returns a server, its client, and what they have seen: nothing.
fn both() -> (Packets, Packets, [EventLog; 2]) {
    let (server, address) = server();
    (server, client(address), Default::default())
}

/// The events of one end: its connections, their bytes, and the number of frame bodies that came
/// back.
#[derive(Default)]
pub(crate) struct EventLog {
    pub(crate) opened: Vec<ConnId>,
    pub(crate) closed: Vec<(ConnId, CloseReason)>,
    pub(crate) bytes: std::collections::BTreeMap<ConnId, Vec<u8>>,
    pub(crate) sent: usize,
}

impl EventLog {
    /// Runs one turn of an end, and notes its events.
    pub(crate) fn follow(&mut self, end: &mut Packets) {
        self.read(end);
        end.end_turn();
    }

    /// Notes an end's events, without a wait for more.
    pub(crate) fn read(&mut self, end: &mut Packets) {
        for event in end.poll() {
            match event {
                NetEvent::Opened { conn, listener, .. } => {
                    assert!(listener.is_none_or(|id| id == ListenerId(7)));
                    self.opened.push(conn);
                }
                NetEvent::Received { conn, buf, len } => {
                    self.bytes.entry(conn).or_default().extend_from_slice(&buf.bytes()[..len]);
                    end.sockets.give(buf);
                }
                NetEvent::Sent { .. } => self.sent += 1,
                NetEvent::Closed { conn, reason } => self.closed.push((conn, reason)),
                NetEvent::Filled { .. } => unreachable!("nothing is received in place"),
            }
        }
    }
}

/// Runs turns of both ends until the condition holds.
pub(crate) fn until(
    a: &mut Packets,
    b: &mut Packets,
    seen: &mut [EventLog; 2],
    what: impl Fn(&[EventLog; 2]) -> bool,
) {
    let deadline = a.clock.now() + Duration::from_secs(60);
    while !what(seen) {
        assert!(a.clock.now() < deadline, "it never came");
        seen[0].follow(a);
        seen[1].follow(b);
    }
}

pub(crate) fn byte(conn: usize, at: usize) -> u8 {
    (conn * 31 + at / 7 + at) as u8
}

#[test]
fn bytes_arrive_in_order_on_each_connection() {
    const CONNECTIONS: usize = 200;
    const FRAMES: usize = 12;
    let (mut server, mut client, mut seen) = both();
    let now = client.clock.now();
    let conns: Vec<ConnId> = (0..CONNECTIONS).map(|_| client.sockets.dial(now)).collect();
    until(&mut server, &mut client, &mut seen, |seen| {
        seen.iter().all(|end| end.opened.len() == CONNECTIONS)
    });
    let mut wanted = std::collections::BTreeMap::<usize, Vec<u8>>::new();
    for n in 0..FRAMES {
        for (c, conn) in conns.iter().enumerate() {
            while client.sockets.room() == 0 {
                seen[0].follow(&mut server);
                seen[1].follow(&mut client);
            }
            let whole = wanted.entry(c).or_default();
            let body_len = [0, 100, 4096, 70_000][(n + c) % 4];
            let bytes: Vec<u8> = (0..8 + body_len).map(|at| byte(c, whole.len() + at)).collect();
            let mut body = buf(body_len.max(1));
            body.prefix_mut(body_len).copy_from_slice(&bytes[8..]);
            let head = FrameHead::new(&bytes[..8]);
            whole.extend_from_slice(&bytes);
            let body = (body_len > 0).then_some(body);
            client.send(*conn, Frame { head, body, body_len });
        }
    }
    until(&mut server, &mut client, &mut seen, |seen| {
        let bodies = CONNECTIONS * FRAMES * 3 / 4;
        let bytes: usize = seen[0].bytes.values().map(Vec::len).sum();
        seen[1].sent == bodies && bytes == CONNECTIONS * FRAMES * (8 + (100 + 4096 + 70_000) / 4)
    });
    let mut got: Vec<Vec<u8>> = seen[0].bytes.values().cloned().collect();
    let mut wanted: Vec<Vec<u8>> = wanted.into_values().collect();
    got.sort();
    wanted.sort();
    assert!(got == wanted, "each connection has its bytes in order");
}

#[test]
fn sealed_ends_understand_each_other_and_nobody_else() {
    let key = |byte: &str| PacketKey::parse(&byte.repeat(32)).unwrap();
    let mut server = end();
    let listener = bind("127.0.0.1:0").unwrap();
    let address = listener.endpoint().internet().unwrap();
    server.sockets.listen(ListenerId(7), listener.with_key(Some(key("0a")))).unwrap();
    let mut client = client(address);
    client.sockets.dial_sealed(key("0a")).unwrap();
    let mut seen = <[EventLog; 2]>::default();
    let conn = client.sockets.dial(client.clock.now());
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.opened.len() == 1));
    let bytes: Vec<u8> = (0..70_000).map(|at| byte(1, at)).collect();
    let mut body = buf(bytes.len());
    body.prefix_mut(bytes.len()).copy_from_slice(&bytes);
    let head = FrameHead::new(&[7; 16]);
    client.send(conn, Frame { head, body: Some(body), body_len: bytes.len() });
    until(&mut server, &mut client, &mut seen, |seen| {
        seen[1].sent == 1 && seen[0].bytes.values().map(Vec::len).sum::<usize>() == 70_016
    });
    assert!(seen[0].bytes.values().all(|got| got[16..] == bytes));
    for (key, errno) in [(None, 126), (Some(key("0b")), 129)] {
        let mut stranger = self::client(address);
        key.into_iter().for_each(|key| stranger.sockets.dial_sealed(key).unwrap());
        let conn = stranger.sockets.dial(stranger.clock.now());
        let mut told = <[EventLog; 2]>::default();
        until(&mut server, &mut stranger, &mut told, |told| told[1].closed.len() == 1);
        assert_eq!(told[1].closed, [(conn, CloseReason::Unreachable(errno))]);
        assert!(told[0].opened.is_empty());
    }
    assert!(seen.iter().all(|end| end.closed.is_empty()), "the first connection stays");
}

#[test]
fn ends_are_noticed_at_the_other_end() {
    let (mut server, mut client, mut seen) = both();
    let now = client.clock.now();
    let conns: Vec<ConnId> = (0..3).map(|_| client.sockets.dial(now)).collect();
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.opened.len() == 3));
    client.sockets.close(conns[0]);
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.closed.len() == 1));
    assert_eq!(seen[1].closed, [(conns[0], CloseReason::Local)]);
    assert!(matches!(seen[0].closed[0].1, CloseReason::Reset(_)));
    contract::Transport::finish(&mut client.sockets, conns[1]);
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.closed.len() == 2));
    assert_eq!(seen[0].closed[1].1, CloseReason::Peer);
    end_in_order(client, &mut server, &mut seen[0], 3);
}

/// Ends a client's program, which says so: all `count` connections are closed at the server, which
/// would notice silence much later.
pub(crate) fn end_in_order(
    client: Packets,
    server: &mut Packets,
    seen: &mut EventLog,
    count: usize,
) {
    drop(client);
    let turns = (0..1_000).take_while(|_| {
        seen.follow(server);
        seen.closed.len() < count
    });
    assert!(turns.count() < 1_000, "a program that ends says so");
}

/// In a take-over, the older process and the newer one have one socket.
#[test]
fn another_process_goes_on_with_the_socket() {
    let mut server = end();
    let listener = bind("127.0.0.1:0").unwrap();
    let (kept, endpoint) = (listener.keep(), listener.endpoint().clone());
    server.sockets.listen(ListenerId(7), listener).unwrap();
    let mut client = client(endpoint.internet().unwrap());
    let mut seen = <[EventLog; 2]>::default();
    client.sockets.dial(client.clock.now());
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.opened.len() == 1));
    server.sockets.hold(true);
    client.sockets.dial(client.clock.now());
    for _ in 0..20 {
        seen[0].follow(&mut server);
        seen[1].follow(&mut client);
    }
    assert!(seen.iter().all(|end| end.opened.len() == 1 && end.closed.is_empty()), "it waits");
    let mut heir = end();
    let socket = kept.sockets().unwrap()[0].try_clone().unwrap();
    heir.sockets.listen(ListenerId(7), Listener::adopt(socket, endpoint).unwrap()).unwrap();
    contract::Transport::stop_listening(&mut server.sockets);
    until(&mut server, &mut client, &mut seen, |seen| {
        seen[0].closed.len() == 1 && seen[1].closed.len() == 2
    });
    let conn = client.sockets.dial(client.clock.now());
    let mut after = <[EventLog; 2]>::default();
    until(&mut heir, &mut client, &mut after, |seen| seen.iter().all(|end| end.opened.len() == 1));
    for round in 1..=20 {
        client.send(conn, Frame::bare(FrameHead::new(&[7; 16])));
        // The older one still turns, and takes nothing.
        seen[0].follow(&mut server);
        while after[0].bytes.values().map(Vec::len).sum::<usize>() < round * 16 {
            after[0].follow(&mut heir);
            after[1].follow(&mut client);
        }
    }
    drop(server);
    assert!(seen[0].opened.len() == 1 && after.iter().all(|end| end.closed.is_empty()));
}

#[test]
fn nobody_at_the_address_is_an_error_at_once() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let mut client = client(address);
    let conn = client.sockets.dial(client.clock.now());
    let reason = CloseReason::Unreachable(rustix::io::Errno::CONNREFUSED.raw_os_error());
    assert_eq!(client.await_closed(), (conn, reason));
}

#[test]
fn strangers_harm_nobody() {
    let (mut server, address) = server();
    let mut client = client(address);
    let mut seen = <[EventLog; 2]>::default();
    let conn = client.sockets.dial(client.clock.now());
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.opened.len() == 1));
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut noise = 7u32;
    for n in 0..2_000 {
        let bytes: Vec<u8> = (0..n % 1500)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        stranger.send_to(&bytes, address).unwrap();
        if n % 50 == 0 {
            client.send(conn, Frame::bare(FrameHead::new(&[n as u8; 16])));
            seen[0].follow(&mut server);
            seen[1].follow(&mut client);
        }
    }
    until(&mut server, &mut client, &mut seen, |seen| {
        seen[0].bytes.values().map(Vec::len).sum::<usize>() == 40 * 16
    });
    assert!(seen.iter().all(|end| end.closed.is_empty()), "the connection stays");
}

#[test]
fn the_end_of_a_hold_does_not_end_a_refusal() {
    let (mut server, mut client, mut seen) = both();
    server.sockets.refuse(ListenerId(7), true);
    server.sockets.hold(true);
    server.sockets.hold(false);
    client.sockets.dial(client.clock.now());
    until(&mut server, &mut client, &mut seen, |seen| seen[1].closed.len() == 1);
    assert!(seen[0].opened.is_empty());
    server.sockets.refuse(ListenerId(7), false);
    client.sockets.dial(client.clock.now());
    until(&mut server, &mut client, &mut seen, |seen| seen[0].opened.len() == 1);
}
