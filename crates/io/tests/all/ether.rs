//! Tests of connections in frames of Ethernet, between the two cards of a cable (`veth(4)`) in a
//! network that the test makes: over packet sockets, over AF_XDP behind the driver, and in it.

// UNSAFETY: a thread enters a network of its own, and strangers send raw frames.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::mpsc::TryRecvError;

use contract::{CloseReason, ConnId, Dial, EtherAddress, Frame, FrameHead, ListenerId, Mac, Peer};
use contract::{NetEvent, Streams, Transport};
use nearflash_io::{Endpoint, Listener, Network, PacketKey, Reactor};

use crate::packets::{EventLog, Packets, byte, end, end_in_order, until};
use crate::rig::buf;

pub(crate) const SERVER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Runs `ip` with the arguments in `line`. Returns `true` if it succeeds.
pub(crate) fn ip(line: &str) -> bool {
    let ran = Command::new("ip").args(line.split(' ')).stdin(Stdio::null()).output();
    ran.is_ok_and(|output| output.status.success())
}

/// Has the ends of the cable leave the tags of VLANs in frames. Returns `true` if that succeeded.
pub(crate) fn keep_tags(card: &str) -> bool {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const ETHTOOL_SFLAGS: u32 = 0x26;
    // No flag is set: neither for received frames, nor for sent ones.
    let mut words = [ETHTOOL_SFLAGS, 0];
    // SAFETY: the name leaves room for a zero; the kernel reads two words, which outlive the call.
    unsafe {
        let mut asked: libc::ifreq = std::mem::zeroed();
        for (to, from) in asked.ifr_name.iter_mut().zip(card.bytes()) {
            *to = from as libc::c_char;
        }
        asked.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut asked) == 0
    }
}

/// Runs a test in a network of its own with a cable between the cards `left` (the server's) and
/// `right`, which leave tags in frames. The network ends with the test.
pub(crate) fn in_segment(mtu: u32, test: impl FnOnce() + Send) {
    in_usual_segment(mtu, || {
        assert!(["left", "right"].into_iter().all(keep_tags));
        test();
    });
}

/// Runs a test in a network of its own. As usual, the cards take the tags of VLANs off.
fn in_usual_segment(mtu: u32, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| {
            // SAFETY: the thread changes its network, which nothing else of the thread depends on.
            let is_apart = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            let lines = [
                format!("link add left address {SERVER} mtu {mtu} type veth peer name right"),
                format!("link set right address {CLIENT} mtu {mtu} up"),
                "link set left up".to_owned(),
            ];
            if !is_apart || !lines.iter().all(|line| ip(line)) {
                return println!("SKIPPED: making networks needs root and `ip`");
            }
            test();
        });
        ran.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

pub(crate) fn at(text: &str, via: &str) -> EtherAddress {
    let mut at: EtherAddress = text.parse().unwrap();
    assert!(via.is_empty() || at.take("via", via));
    // Both ends take turns in one thread, which sleeps in between: its delay tells nothing.
    assert!(at.take("window", "64"));
    at
}

/// Returns a server at the card `left`, over the way `via` (any if that is empty), with `key` for
/// sealed packets.
fn server(via: &str, key: Option<PacketKey>) -> Packets {
    let mut server = end();
    let listener = Listener::bind_ether(&at("left", via), 1).unwrap();
    assert_eq!(*listener.endpoint(), Endpoint::Ethernet(at(&format!("left/{SERVER}"), via)));
    server.sockets.listen(ListenerId(7), listener.with_key(key)).unwrap();
    server
}

/// Returns a client at the card `right` that dials the server, over the way `via`.
fn client(via: &str) -> Packets {
    let mut client = end();
    client.sockets.dial_to(Endpoint::Ethernet(at(&format!("right/{SERVER}"), via)));
    client
}

/// Sends bytes of all sizes from the client to the server, and checks what arrives.
pub(crate) fn exchange(
    server: &mut Packets,
    client: &mut Packets,
    conns: &[ConnId],
    seen: &mut [EventLog; 2],
) {
    let before: Vec<usize> = seen[0].bytes.values().map(Vec::len).collect();
    let before: usize = before.iter().sum();
    let sizes = [1, 100, 3_700, 4_096, 8_900, 20_000, 70_000];
    for (n, bytes) in sizes.into_iter().enumerate() {
        for conn in conns {
            let mut body = buf(bytes);
            (0..bytes).for_each(|at| body.prefix_mut(bytes)[at] = byte(n, at));
            let head = FrameHead::new(&[n as u8; 8]);
            client.send(*conn, Frame { head, body: Some(body), body_len: bytes });
        }
    }
    let each = sizes.iter().map(|bytes| 8 + bytes).sum::<usize>();
    until(server, client, seen, |seen| {
        let bytes: usize = seen[0].bytes.values().map(Vec::len).sum();
        bytes == before + each * conns.len()
    });
    for whole in seen[0].bytes.values_mut() {
        let mut rest = &std::mem::take(whole)[..];
        for (n, bytes) in sizes.into_iter().enumerate() {
            let (head, body) = rest[..8 + bytes].split_at(8);
            assert!(head.iter().all(|byte| *byte == n as u8), "message {n}");
            assert!(body.iter().enumerate().all(|(at, found)| *found == byte(n, at)), "body {n}");
            rest = &rest[8 + bytes..];
        }
        assert!(rest.is_empty());
    }
}

pub(crate) fn dial(client: &mut Packets, count: usize) -> Vec<ConnId> {
    let now = client.clock.now();
    (0..count).map(|_| client.sockets.dial(now)).collect()
}

/// Returns a server and a client with two connections, what both have seen, and the connections.
fn connected(via: &str) -> (Packets, Packets, [EventLog; 2], Vec<ConnId>) {
    let (mut server, mut client) = (server(via, None), client(via));
    let mut seen = <[EventLog; 2]>::default();
    let conns = dial(&mut client, 2);
    until(&mut server, &mut client, &mut seen, |seen| seen.iter().all(|end| end.opened.len() == 2));
    (server, client, seen, conns)
}

/// Connects, exchanges bytes and ends, once without a key and once with one.
fn carries(server_via: &str, client_via: &str) {
    for key in [None, PacketKey::parse(&"0a".repeat(32))] {
        let mut server = server(server_via, key.clone());
        let mut client = client(client_via);
        key.into_iter().for_each(|key| client.sockets.dial_sealed(key).unwrap());
        let mut seen = <[EventLog; 2]>::default();
        let conns = dial(&mut client, 20);
        until(&mut server, &mut client, &mut seen, |seen| {
            seen.iter().all(|end| end.opened.len() == 20)
        });
        exchange(&mut server, &mut client, &conns, &mut seen);
        end_in_order(client, &mut server, &mut seen[0], 20);
    }
}

#[test]
fn frames_carry_bytes_over_packet_sockets() {
    in_segment(9000, || carries("packet", "packet"));
    in_segment(1500, || carries("packet", "packet"));
}

#[test]
fn frames_carry_bytes_over_af_xdp() {
    for (server, client) in [("xdp", "xdp"), ("native", "native"), ("xdp", "packet"), ("", "")] {
        in_segment(9000, || carries(server, client));
    }
    in_segment(1500, || carries("xdp", "native"));
}

/// Returns a packet socket for whole frames at a card, as another program would open it.
fn stranger(card: &str) -> (OwnedFd, libc::sockaddr_ll) {
    let name = std::ffi::CString::new(card).unwrap();
    // SAFETY: the name ends with a zero; the descriptor is new; the address is plain.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        (OwnedFd::from_raw_fd(fd), address)
    }
}

fn send_raw((socket, address): &(OwnedFd, libc::sockaddr_ll), frame: &[u8]) {
    // SAFETY: frame and address outlive the call.
    unsafe {
        let (to, bytes) = ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t);
        // A frame that is shorter than a head is refused here already.
        libc::sendto(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, bytes);
    }
}

/// Returns frames that are not for a server's port or of no use to it: cut, of another type, of a
/// VLAN, for another card, from a group, with noise in them.
fn hostile() -> Vec<Vec<u8>> {
    let ports = |to: u16| [to.to_be_bytes(), 0x9000u16.to_be_bytes()].concat();
    let frame = |to: Mac, from: Mac, kind: &[u8], rest: &[u8]| {
        [&to.0[..], &from.0[..], kind, rest].concat()
    };
    let group = Mac([1, 0, 0x5e, 0, 0, 1]);
    let noise: Vec<u8> = (0..200u32).map(|n| (n * 77 / 3) as u8).collect();
    let ours = [0x88, 0xb5];
    let mut all = vec![
        frame(SERVER, CLIENT, &ours, &[]),
        frame(SERVER, CLIENT, &ours, &[0x1c]),
        frame(SERVER, CLIENT, &ours, &ports(7420)),
        frame(SERVER, CLIENT, &ours, &[ports(7420), noise.clone()].concat()),
        frame(SERVER, CLIENT, &ours, &[ports(7421), noise.clone()].concat()),
        frame(SERVER, CLIENT, &[0x08, 0x00], &[ports(7420), noise.clone()].concat()),
        frame(
            SERVER,
            CLIENT,
            &[0x81, 0x00, 0, 7, 0x88, 0xb5],
            &[ports(7420), noise.clone()].concat(),
        ),
        frame(CLIENT, SERVER, &ours, &[ports(7420), noise.clone()].concat()),
        frame(SERVER, group, &ours, &[ports(7420), noise.clone()].concat()),
        frame(group, CLIENT, &ours, &[ports(7420), noise.clone()].concat()),
        frame(SERVER, Mac([0; 6]), &ours, &[ports(7420), noise].concat()),
    ];
    // As large as frames may be: in several chunks.
    all.push(frame(SERVER, CLIENT, &ours, &[ports(7420), vec![0x10; 8_000]].concat()));
    all
}

#[test]
fn strangers_in_the_segment_harm_nobody() {
    for via in ["packet", "xdp", "native"] {
        in_segment(9000, || {
            let (mut server, mut client, mut seen, conns) = connected(via);
            // One sends from the client's card as the client, the other one at the server's.
            let strangers = [stranger("right"), stranger("left")];
            for round in 0..50 {
                for frame in hostile() {
                    strangers.iter().for_each(|stranger| send_raw(stranger, &frame));
                }
                seen[0].follow(&mut server);
                seen[1].follow(&mut client);
                if round % 10 == 0 {
                    exchange(&mut server, &mut client, &conns, &mut seen);
                }
            }
            assert!(seen.iter().all(|end| end.closed.is_empty() && end.opened.len() == 2));
        });
    }
}

#[test]
fn connections_outlive_an_interface_that_is_down_for_a_moment() {
    for via in ["packet", "xdp", "native"] {
        in_segment(9000, || {
            let (mut server, mut client, mut seen, conns) = connected(via);
            for card in ["right", "left"] {
                assert!(ip(&format!("link set {card} down")));
                // What is sent now is lost.
                for conn in &conns {
                    client.send(*conn, Frame::bare(FrameHead::new(&[9; 8])));
                }
                for _ in 0..20 {
                    seen[0].follow(&mut server);
                    seen[1].follow(&mut client);
                }
                assert!(ip(&format!("link set {card} up")));
                until(&mut server, &mut client, &mut seen, |seen| {
                    seen[0].bytes.values().map(Vec::len).sum::<usize>() == 2 * 8
                });
                seen[0].bytes.values_mut().for_each(Vec::clear);
                exchange(&mut server, &mut client, &conns, &mut seen);
            }
            assert!(seen.iter().all(|end| end.closed.is_empty()), "{via}");
        });
    }
}

#[test]
fn a_port_belongs_to_one_server_and_a_card_may_have_several() {
    in_segment(9000, || {
        let mut first = server("xdp", None);
        let again = Listener::bind_ether(&at("left", "packet"), 1).unwrap_err().to_string();
        assert!(again.contains("is another server running there?"), "{again}");
        let mut other = at("left", "xdp");
        assert!(other.take("port", "7421"));
        let refused = Listener::bind_ether(&other, 1).unwrap_err().to_string();
        assert!(refused.contains("another program is at the card"), "{refused}");
        // Without a way that it asks for, it goes beside.
        other.via = None;
        let mut second = end();
        let listener = Listener::bind_ether(&other, 1).unwrap();
        second.sockets.listen(ListenerId(7), listener).unwrap();
        let mut clients = [client("xdp"), end()];
        let mut to_other = other.at_cards([SERVER]);
        to_other = at(&format!("right/{}", to_other.first().mac.unwrap()), "packet");
        assert!(to_other.take("port", "7421"));
        clients[1].sockets.dial_to(Endpoint::Ethernet(to_other));
        let [one, two] = &mut clients;
        for (server, client) in [(&mut first, one), (&mut second, two)] {
            let mut seen = <[EventLog; 2]>::default();
            let conns = dial(client, 1);
            until(server, client, &mut seen, |seen| seen.iter().all(|end| end.opened.len() == 1));
            exchange(server, client, &conns, &mut seen);
        }
    });
}

#[test]
fn a_program_leaves_its_card_with_its_process_and_what_is_wrong_is_named() {
    in_segment(9000, || {
        let has_program = || {
            let output = Command::new("ip").args(["link", "show", "left"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().contains("xdp")
        };
        for via in ["xdp", "native"] {
            let server = server(via, None);
            assert!(has_program());
            drop(server);
            assert!(!has_program(), "it ends with its server");
        }
        let error = |text: &str, via, workers| {
            Listener::bind_ether(&at(text, via), workers).unwrap_err().to_string()
        };
        assert!(error("left", "xdp", 2).contains("one worker, and there are 2"));
        assert!(error(&format!("left/{CLIENT}"), "", 1).contains("left has the address"));
        assert!(ip("link set left down"));
        assert!(error("left", "", 1).contains("ip link set left up"));
        assert!(ip("link add many numrxqueues 4 numtxqueues 4 type veth peer name others"));
        assert!(ip("link set many up") && ip("link set others up"));
        let queues = error("many", "xdp", 1);
        assert!(queues.contains("the card has") && queues.contains("ethtool -L"), "{queues}");
        assert!(ip("link set left mtu 1000 up"));
        let small = error("left", "packet", 1);
        assert!(small.contains("MTU of 1204 or more"), "{small}");
    });
}

#[test]
fn a_client_hears_that_nobody_listens_and_how_a_peer_is_named() {
    in_segment(9000, || {
        let mut client = client("packet");
        let conn = client.sockets.dial(client.clock.now());
        let reason = CloseReason::Unreachable(rustix::io::Errno::TIMEDOUT.raw_os_error());
        assert_eq!(client.await_closed(), (conn, reason));
        // Until the end of the association is seen, dials fail with it.
        (0..10).for_each(|_| drop(client.turn()));
        let mut server = server("packet", None);
        client.sockets.dial(client.clock.now());
        let deadline = 10_000;
        let peer = (0..deadline).find_map(|_| {
            client.turn();
            server.turn().into_iter().find_map(|event| match event {
                NetEvent::Opened { peer, .. } => Some(peer),
                _ => None,
            })
        });
        let peer = peer.expect("it comes");
        assert!(matches!(peer, Peer::Ethernet { mac: CLIENT, port: 0x8000.. }), "{peer}");
        assert!(peer.to_string().starts_with("ethernet 02:00:00:00:00:02 port "));
    });
}

/// A card that takes the tags of VLANs off would show AF_XDP the frames of all VLANs as ours.
#[test]
fn a_card_that_takes_tags_off_has_no_af_xdp() {
    in_usual_segment(9000, || {
        for via in ["xdp", "native"] {
            let refused = Listener::bind_ether(&at("left", via), 1).unwrap_err().to_string();
            assert!(refused.contains("ethtool -K") && refused.contains("rxvlan off"), "{refused}");
        }
        // What nobody asked for is left out.
        carries("", "");
        assert!(keep_tags("left"));
        drop(server("xdp", None));
    });
}

/// The packet socket beside AF_XDP keeps no frames that nobody reads. Whoever takes it over hears.
#[test]
fn the_socket_beside_af_xdp_hears_nothing_until_it_is_taken_over() {
    in_segment(9000, || {
        let mut server = end();
        let listener = Listener::bind_ether(&at("left", "xdp"), 1).unwrap();
        let (beside, endpoint) = (listener.try_clone().unwrap(), listener.endpoint().clone());
        server.sockets.listen(ListenerId(7), listener).unwrap();
        // The program leaves the card, as in a take-over.
        server.sockets.hold(true);
        server.sockets.stop_listening();
        let send = |byte: u8| {
            let ports = [7420u16.to_be_bytes(), 0x9000u16.to_be_bytes()].concat();
            let parts = [&SERVER.0[..], &CLIENT.0, &[0x88, 0xb5], &ports, &[byte; 100]];
            send_raw(&stranger("right"), &parts.concat());
        };
        send(1);
        let taken = Listener::adopt(beside, endpoint).unwrap().try_clone().unwrap();
        send(2);
        let mut first = [0; 104];
        let flags = rustix::net::RecvFlags::empty();
        assert_eq!(rustix::net::recv(&taken, &mut first, flags).unwrap(), (104, 104));
        assert_eq!(first[4..], [2; 100]);
    });
}

/// A thread whose interface is down tries again from time to time, and not in each turn.
#[test]
fn a_thread_rests_while_its_interface_is_down() {
    const TURNS: usize = 1_000;
    for via in ["xdp", "native"] {
        in_segment(9000, || {
            let (mut server, mut client, mut seen, conns) = connected(via);
            assert!(ip("link set right down"));
            client.send(conns[0], Frame::bare(FrameHead::new(&[9; 8])));
            // Each completion would end a park.
            let mut ends = 0;
            for _ in 0..TURNS {
                seen[1].read(&mut client);
                client.sockets.kick(client.clock.now());
                ends += usize::from(client.reactor.enter(None));
            }
            assert!((1..TURNS / 4).contains(&ends), "{via}: {ends} of {TURNS} parks end at once");
            assert!(ip("link set right up"));
            until(&mut server, &mut client, &mut seen, |seen| {
                seen[0].bytes.values().map(Vec::len).sum::<usize>() == 8
            });
        });
    }
}

/// Runs a test again as a process of its own, where no other test uses memory. Returns `true` in
/// that process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "NEARFLASH_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let ran = alone.args(["--exact", test, "--show-output"]).env(ALONE, "").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| println!("{line}"));
    false
}

/// A program that dials a card in use again and again neither waits for it nor uses more memory.
#[test]
fn refused_dials_keep_no_memory() {
    const DIALS: u64 = 40;
    const KIB_OF_A_SOCKET: u64 = 6 << 10;
    if !is_alone("ether::refused_dials_keep_no_memory") {
        return;
    }
    in_segment(9000, || {
        let mapped = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
        };
        let mut server = server("xdp", None);
        for what in ["another program is at the card", "another socket has its queue"] {
            let mut client = end();
            client.sockets.dial_to(Endpoint::Ethernet(at(&format!("left/{CLIENT}"), "xdp")));
            let before = mapped();
            for _ in 0..DIALS {
                let conn = dial(&mut client, 1)[0];
                let (closed, reason) = client.await_closed();
                assert_eq!(closed, conn);
                assert!(matches!(reason, CloseReason::Unreachable(_)), "{what}: {reason:?}");
            }
            let more = mapped().saturating_sub(before);
            assert!(more < DIALS * KIB_OF_A_SOCKET / 4, "{what}: {more} KiB are left");
            // Another process has the port from now on: the program leaves the card.
            server.sockets.hold(true);
            server.sockets.stop_listening();
        }
    });
}

/// A child of a program has no part of its rings, which would keep the card after the program's
/// end.
#[test]
fn a_forked_child_does_not_get_the_rings() {
    in_segment(9000, || {
        let server = server("xdp", None);
        let rings = |process: &str| {
            let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
            maps.lines().filter(|line| line.contains("socket:[")).count()
        };
        // The child shares the table of descriptors, so that it keeps none of other tests open.
        let flags = libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: the child has a copy of the memory, and waits for its end only.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } as libc::pid_t;
        assert!(child >= 0);
        if child == 0 {
            loop {
                // SAFETY: no memory is passed.
                unsafe { libc::pause() };
            }
        }
        let (own, of_child) = (rings("self"), rings(&child.to_string()));
        // SAFETY: it is our child, which has not been waited for.
        unsafe {
            assert_eq!(libc::kill(child, libc::SIGKILL), 0);
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
        assert!(own >= 4, "fill, completions, received and sent frames");
        assert_eq!(of_child, 0);
        drop(server);
    });
}

/// Checks that a server whose thread waits in its ring, without looking again and again, wakes for
/// the frames of a client.
pub(crate) fn wakes(mut server: Packets, client: impl FnOnce() -> Packets + Send) {
    const ROUNDS: usize = 20;
    let (parks, rounds) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut client, mut seen) = (client(), EventLog::default());
            let conn = dial(&mut client, 1)[0];
            while seen.opened.is_empty() {
                seen.follow(&mut client);
            }
            // The client goes on turning: how many turns a frame takes to leave depends on
            // how promptly its acknowledgements are seen.
            loop {
                match rounds.try_recv() {
                    Ok(()) => client.send(conn, Frame::bare(FrameHead::new(&[3; 8]))),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => break,
                }
                seen.follow(&mut client);
            }
        });
        let mut seen = EventLog::default();
        while seen.opened.is_empty() {
            seen.follow(&mut server);
        }
        for round in 1..=ROUNDS {
            parks.send(()).unwrap();
            while seen.bytes.values().map(Vec::len).sum::<usize>() < 8 * round {
                seen.read(&mut server);
                server.sockets.kick(server.clock.now());
                let limit = std::time::Duration::from_secs(60);
                assert!(server.reactor.enter(Some(Some(limit))), "nothing woke the thread");
            }
        }
        drop(parks);
    });
}

#[test]
fn frames_wake_a_parked_thread() {
    for via in ["packet", "xdp", "native"] {
        in_segment(9000, || wakes(server(via, None), || client(via)));
    }
}
