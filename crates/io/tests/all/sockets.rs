//! Tests of sockets on loopback: bytes that one end sends arrive at the other in order, and all
//! buffers come back. Every test runs over io_uring and over epoll, some of them also through Unix
//! sockets and over TLS, with the same expectations.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{PATIENCE, SocketRig, buf, client_tls, listener, unix_path};
use contract::{CloseReason, ConnId, Frame, FrameHead, ListenerId, NetEvent, Peer};
use nearflash_io::{ConnectionBalancer, Endpoint, Listener, Network, Reactor, SocketsConfig};

over_every! {
    bytes_arrive_in_order_through_few_buffers
    every_buffer_is_used_while_none_is_given_back
    a_paused_connection_receives_nothing_until_it_is_resumed
    the_end_of_a_connection_that_is_not_read_is_noticed
    closing_returns_every_buffer_and_tells_both_ends
    finish_sends_what_is_queued_first
    a_connection_changes_hands_to_and_fro
}

over_tls! {
    bytes_arrive_in_order_through_few_buffers
    every_buffer_is_used_while_none_is_given_back
    a_paused_connection_receives_nothing_until_it_is_resumed
    the_end_of_a_connection_that_is_not_read_is_noticed
    closing_returns_every_buffer_and_tells_both_ends
    finish_sends_what_is_queued_first
}

over_both! {
    local_peers_are_known_by_their_user
    a_unix_socket_that_nobody_listens_on_is_unreachable
    a_finished_connection_whose_peer_stays_ends_in_time
    nobody_listening_is_unreachable
    a_reset_in_the_middle_of_a_send_returns_every_buffer_before_it_is_told
    a_peers_close_comes_behind_its_last_bytes
    whoever_shuts_its_side_or_resets_has_left_even_if_nobody_reads
    frames_to_a_connection_that_is_gone_come_back
    a_place_is_used_again_under_another_name
    connections_beyond_the_maximum_are_refused
    arrivals_wait_while_accepting_is_held
    connections_are_spread_over_workers
    nobody_is_let_in_after_listening_was_stopped
    an_idle_end_sleeps
    who_was_to_move_and_stays_is_watched_again
    who_is_paused_takes_nobodys_place_in_the_line_for_buffers
}

fn frame(bytes: usize) -> Frame {
    Frame { head: FrameHead::new(&[1; 24]), body: Some(buf(bytes)), body_len: bytes }
}

const CONNECTIONS_MAX: usize = 64;

fn small() -> SocketsConfig {
    SocketsConfig {
        connections_max: CONNECTIONS_MAX,
        receive_buffers: 8,
        receive_buffer_bytes: 4096,
        frames_max: 256,
        ..SocketsConfig::default()
    }
}

fn connected<N: Network>(listener: Listener) -> (SocketRig<N>, SocketRig<N>, ConnId, ConnId) {
    connected_with(listener, small())
}

/// Connects a client to a server with this configuration. Returns both ends, the server's
/// connection and the client's.
fn connected_with<N: Network>(
    listener: Listener,
    config: SocketsConfig,
) -> (SocketRig<N>, SocketRig<N>, ConnId, ConnId) {
    let mut server = SocketRig::<N>::with(config);
    let mut client = SocketRig::<N>::with(small());
    client.sockets.dial_to(listener.endpoint().clone());
    if listener.tls().is_some() {
        client.sockets.dial_over(client_tls()).unwrap();
        server.sockets.join(ConnectionBalancer::new(1), 0);
    }
    server.sockets.listen(ListenerId(7), listener).unwrap();
    let dialled = client.sockets.dial(client.clock.now());
    let (mut accepted, mut opened) = (None, false);
    for _ in 0..1000 {
        for event in server.turn() {
            if let NetEvent::Opened { conn, listener, .. } = event {
                assert_eq!(listener, Some(ListenerId(7)));
                accepted = Some(conn);
            }
        }
        for event in client.turn() {
            opened |= matches!(event, NetEvent::Opened { conn, .. } if conn == dialled);
        }
        if let (Some(accepted), true) = (accepted, opened) {
            return (server, client, accepted, dialled);
        }
    }
    panic!("never connected");
}

/// Returns an end that listens, and its address.
fn listening<N: Network>() -> (SocketRig<N>, SocketAddr) {
    let mut server = SocketRig::<N>::with(small());
    let listener = listener();
    let address = listener.endpoint().internet().expect("a port");
    server.sockets.listen(ListenerId(7), listener).unwrap();
    (server, address)
}

/// Returns a server, its connection, and the other end of that as a stream of the standard library.
fn connected_stream<N: Network>() -> (SocketRig<N>, ConnId, TcpStream) {
    let (mut server, address) = listening::<N>();
    server.turn();
    let stream = TcpStream::connect(address).unwrap();
    let accepted = server.await_opened();
    (server, accepted, stream)
}

/// Connects a stream of the standard library to `endpoint`.
fn plain_stream(endpoint: &Endpoint) -> Box<dyn Stream> {
    match endpoint {
        Endpoint::Internet(address) => Box::new(TcpStream::connect(address).unwrap()),
        Endpoint::Unix(path) => Box::new(UnixStream::connect(path.to_string()).unwrap()),
        Endpoint::Packets(address) => panic!("no stream leads to {address}"),
        Endpoint::Ethernet(address) => panic!("no stream leads to {address}"),
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Closes the stream with a reset instead of in order.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

fn bytes_arrive_in_order_through_few_buffers<N: Network>(listener: Listener) {
    let (mut server, mut client, accepted, dialled) = connected::<N>(listener);
    let mut expected = Vec::new();
    for n in 0..100u8 {
        let mut body = buf(10_000);
        body.bytes_mut().fill(n);
        let head = FrameHead::new(&[n; 24]);
        expected.extend_from_slice(head.bytes());
        expected.extend_from_slice(&body.bytes()[..9_999]);
        client.send(dialled, Frame { head, body: Some(body), body_len: 9_999 });
    }
    assert_eq!(client.sockets.unsent(dialled), expected.len());
    let (mut got, mut sent) = (Vec::new(), 0);
    for _ in 0..5000 {
        sent += client.turn().iter().filter(|e| matches!(e, NetEvent::Sent { .. })).count();
        for event in server.turn() {
            if let NetEvent::Received { conn, buf, len } = event {
                assert_eq!(conn, accepted);
                got.extend_from_slice(&buf.bytes()[..len]);
                server.sockets.give(buf);
            }
        }
        if got.len() == expected.len() && sent == 100 {
            break;
        }
    }
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    assert_eq!(sent, 100);
    assert_eq!(client.sockets.unsent(dialled), 0);
}

fn every_buffer_is_used_while_none_is_given_back<N: Network>(listener: Listener) {
    const BUFFERS: usize = 512;
    let many = SocketsConfig { receive_buffers: BUFFERS, receive_buffer_bytes: 64, ..small() };
    let (mut server, mut client, _, dialled) = connected_with::<N>(listener, many);
    let whole = 3 * BUFFERS * 64;
    let body: Vec<u8> = (0..whole).map(|n| ((n * 7) ^ (n >> 8)) as u8).collect();
    let mut sent = buf(whole);
    sent.bytes_mut().copy_from_slice(&body);
    client.send(dialled, Frame { head: FrameHead::new(&[]), body: Some(sent), body_len: whole });
    let (mut got, mut held) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        for _ in 0..2000 {
            client.turn();
            for event in server.turn() {
                let NetEvent::Received { buf, len, .. } = event else { panic!("{event:?}") };
                got.extend_from_slice(&buf.bytes()[..len]);
                held.push(buf);
            }
            if held.len() == BUFFERS || got.len() == whole {
                break;
            }
        }
        assert!(held.len() == BUFFERS || got.len() == whole, "{} are lent", held.len());
        held.drain(..).for_each(|buf| server.sockets.give(buf));
    }
    assert!(got == body, "{} of {whole} bytes", got.len());
}

fn a_paused_connection_receives_nothing_until_it_is_resumed<N: Network>(listener: Listener) {
    let (mut server, mut client, accepted, dialled) = connected::<N>(listener);
    server.sockets.pause(accepted);
    server.turn();
    client.send(dialled, Frame::bare(FrameHead::new(b"hello")));
    for _ in 0..20 {
        client.turn();
        assert!(server.turn().is_empty());
    }
    server.sockets.resume(accepted);
    let mut got = 0;
    for _ in 0..1000 {
        for event in server.turn() {
            let NetEvent::Received { buf, len, .. } = event else { panic!("{event:?}") };
            got += len;
            server.sockets.give(buf);
        }
        if got == 5 {
            return;
        }
    }
    panic!("nothing arrived after the resume");
}

fn the_end_of_a_connection_that_is_not_read_is_noticed<N: Network>(listener: Listener) {
    let (mut server, mut client, accepted, dialled) = connected::<N>(listener);
    // A pause that is over leaves nothing behind that ends the connection early.
    server.sockets.pause(accepted);
    server.turn();
    server.sockets.resume(accepted);
    client.send(dialled, Frame::bare(FrameHead::new(b"hello")));
    client.turn();
    server.await_event(|event| matches!(event, NetEvent::Received { len: 5, .. }).then_some(()));
    server.sockets.pause(accepted);
    client.send(dialled, Frame::bare(FrameHead::new(b"unheard")));
    for _ in 0..5 {
        client.turn();
        assert!(server.turn().is_empty(), "it lives");
    }
    client.sockets.close(dialled);
    client.turn();
    assert_eq!(server.await_closed(), (accepted, CloseReason::Peer));
    assert!(server.turn().is_empty() && server.sockets.room() == 256);
}

fn closing_returns_every_buffer_and_tells_both_ends<N: Network>(listener: Listener) {
    let (mut server, mut client, accepted, dialled) = connected::<N>(listener);
    for _ in 0..200 {
        client.send(dialled, frame(60_000));
    }
    client.turn();
    client.sockets.close(dialled);
    let (mut sent, mut closed) = (0, None);
    for _ in 0..1000 {
        for event in client.turn() {
            match event {
                NetEvent::Sent { .. } => {
                    assert!(closed.is_none(), "Sent comes before Closed");
                    sent += 1;
                }
                NetEvent::Closed { reason, .. } => closed = Some(reason),
                other => panic!("{other:?}"),
            }
        }
        if closed.is_some() {
            break;
        }
    }
    assert_eq!((sent, closed), (200, Some(CloseReason::Local)));
    assert_eq!(client.sockets.room(), 256);
    let mut seen = false;
    for _ in 0..1000 {
        for event in server.turn() {
            match event {
                NetEvent::Received { buf, .. } => server.sockets.give(buf),
                NetEvent::Closed { conn, .. } => seen = conn == accepted,
                other => panic!("{other:?}"),
            }
        }
        if seen {
            return;
        }
    }
    panic!("the server never saw the close");
}

fn finish_sends_what_is_queued_first<N: Network>(listener: Listener) {
    let (mut server, mut client, accepted, _) = connected::<N>(listener);
    server.send(accepted, frame(500_000));
    server.sockets.finish(accepted);
    let (mut got, mut closed, mut gone) = (0, false, false);
    for _ in 0..5000 {
        for event in client.turn() {
            match event {
                NetEvent::Received { buf, len, .. } => {
                    got += len;
                    client.sockets.give(buf);
                }
                NetEvent::Closed { reason, .. } => {
                    assert_eq!(reason, CloseReason::Peer);
                    closed = true;
                }
                other => panic!("{other:?}"),
            }
        }
        gone |= server.turn().iter().any(|e| matches!(e, NetEvent::Closed { .. }));
        if closed && gone {
            break;
        }
    }
    assert!(closed && gone);
    assert_eq!(got, 500_024);
}

fn a_connection_changes_hands_to_and_fro<N: Network>(listener: Listener) {
    let spread = ConnectionBalancer::new(2);
    let mut workers = [SocketRig::<N>::with(small()), SocketRig::<N>::with(small())];
    let endpoint = listener.endpoint().clone();
    for (n, worker) in workers.iter_mut().enumerate() {
        worker.sockets.join(Arc::clone(&spread), n);
    }
    workers[0].sockets.listen(ListenerId(7), listener).unwrap();
    workers[0].turn();
    let mut stream = plain_stream(&endpoint);
    let mut conn = workers[0].await_opened();
    for round in 0..20u8 {
        let (from, to) = (usize::from(round % 2), usize::from(round + 1) % 2);
        // It is read from, and paused with its end watched for, before it leaves.
        stream.write_all(&[round; 100]).unwrap();
        let mut left = 100;
        while left > 0 {
            left -= workers[from].await_event(|event| match event {
                NetEvent::Received { len, .. } => Some(*len),
                _ => None,
            });
        }
        if round % 3 == 0 {
            workers[from].sockets.pause(conn);
            workers[from].turn();
        }
        workers[from].sockets.still(conn);
        let end = workers[from].clock.now() + PATIENCE;
        while !workers[from].sockets.is_still(conn) {
            assert!(workers[from].turn().is_empty(), "nothing comes");
            assert!(workers[from].clock.now() < end, "it never stands still");
        }
        let ticket = workers[from].sockets.detach(conn, to as u16);
        // What comes in between waits in the kernel.
        stream.write_all(b"meanwhile").unwrap();
        let gone = workers[from].turn();
        assert!(gone.is_empty(), "{gone:?}");
        conn = workers[to].sockets.attach(ticket).expect("there is a place");
        let mut counts = [0, 0];
        counts[to] = 1;
        assert_eq!(spread.connections(), counts);
        assert!(workers[to].turn().is_empty(), "it is paused");
        workers[to].sockets.resume(conn);
        let len = workers[to].await_event(|event| match event {
            NetEvent::Received { len, .. } => Some(*len),
            _ => None,
        });
        assert_eq!(len, 9);
        workers[to].send(conn, frame(5000));
        let mut answer = vec![0; 5024];
        workers[to].await_event(|event| matches!(event, NetEvent::Sent { .. }).then_some(()));
        stream.read_exact(&mut answer).unwrap();
    }
    drop(stream);
    assert_eq!(workers[0].await_closed(), (conn, CloseReason::Peer));
    assert_eq!(spread.connections(), [0, 0]);
}

fn who_was_to_move_and_stays_is_watched_again<N: Network>() {
    let (mut server, accepted, stream) = connected_stream::<N>();
    server.sockets.pause(accepted);
    server.turn();
    server.sockets.still(accepted);
    // Before it is known that nothing watches any more.
    server.sockets.pause(accepted);
    (0..3).for_each(|_| drop(server.turn()));
    drop(stream);
    assert_eq!(server.await_closed().0, accepted);
}

fn who_is_paused_takes_nobodys_place_in_the_line_for_buffers<N: Network>() {
    let (mut server, address) = listening::<N>();
    server.turn();
    let mut connect = || {
        let stream = TcpStream::connect(address).unwrap();
        (server.await_opened(), stream)
    };
    let mut all: Vec<(ConnId, TcpStream)> = (0..10).map(|_| connect()).collect();
    all[0].1.write_all(&[1; 8 * 4096]).unwrap();
    let mut held = Vec::new();
    for _ in 0..2000 {
        for event in server.turn() {
            let NetEvent::Received { buf, .. } = event else { panic!("{event:?}") };
            held.push(buf);
        }
    }
    assert_eq!(held.len(), 8, "all that there are");
    for (_, stream) in &mut all[1..] {
        stream.write_all(&[2; 10]).unwrap();
        (0..5).for_each(|_| assert!(server.turn().is_empty()));
    }
    all[1..9].iter().for_each(|(conn, _)| server.sockets.pause(*conn));
    held.into_iter().for_each(|buf| server.sockets.give(buf));
    // Once: nothing else would have the worker look again.
    server.sockets.kick(server.clock.now());
    let (mut events, last) = (Vec::new(), all[9].0);
    let got = |event: &NetEvent| matches!(event, NetEvent::Received { conn, .. } if *conn == last);
    let end = server.clock.now() + PATIENCE;
    while !events.iter().any(got) {
        assert!(server.clock.now() < end, "{events:?}");
        server.reactor.enter(Some(Some(Duration::from_millis(1))));
        server.sockets.poll(server.clock.now(), &mut events, 64);
    }
}

fn a_finished_connection_whose_peer_stays_ends_in_time<N: Network>() {
    let (mut server, accepted, mut stream) = connected_stream::<N>();
    let begun = server.clock.now();
    server.sockets.finish(accepted);
    stream.write_all(b"nobody reads this").unwrap();
    assert_eq!(server.await_closed(), (accepted, CloseReason::Local));
    let waited = server.clock.now().since(begun);
    assert!(waited >= Duration::from_millis(1500), "{waited:?}");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest); // its end, or a reset for what nobody read
    assert!(rest.is_empty());
}

fn nobody_listening_is_unreachable<N: Network>() {
    let mut client = SocketRig::<N>::with(small());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    client.sockets.dial_to(free);
    let dialled = client.sockets.dial(client.clock.now());
    let (conn, reason) = client.await_closed();
    assert_eq!(conn, dialled);
    assert_eq!(reason, CloseReason::Unreachable(libc_errno::CONNREFUSED));
}

fn local_peers_are_known_by_their_user<N: Network>() {
    let path = unix_path();
    let listener = Listener::bind_unix(&path, 0o600).unwrap();
    let (mut server, mut client) = (SocketRig::<N>::with(small()), SocketRig::<N>::with(small()));
    server.sockets.listen(ListenerId(7), listener).unwrap();
    client.sockets.dial_to(path.clone());
    client.sockets.dial(client.clock.now());
    let peer = |event: &NetEvent| match event {
        NetEvent::Opened { peer, .. } => Some(*peer),
        _ => None,
    };
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(client.await_event(peer), Peer::Local { uid });
    assert_eq!(server.await_event(peer), Peer::Local { uid });
    server.sockets.stop_listening();
    assert!(!path.as_path().exists(), "the file goes with the listener");
}

fn a_unix_socket_that_nobody_listens_on_is_unreachable<N: Network>() {
    let path = unix_path();
    let mut client = SocketRig::<N>::with(small());
    client.sockets.dial_to(path.clone());
    let missing = rustix::io::Errno::NOENT.raw_os_error();
    client.sockets.dial(client.clock.now());
    assert_eq!(client.await_closed().1, CloseReason::Unreachable(missing));
    drop(std::os::unix::net::UnixListener::bind(path.as_path()).unwrap());
    client.sockets.dial(client.clock.now());
    assert_eq!(client.await_closed().1, CloseReason::Unreachable(libc_errno::CONNREFUSED));
    std::fs::remove_file(path.as_path()).unwrap();
}

mod libc_errno {
    pub(super) const CONNREFUSED: i32 = rustix::io::Errno::CONNREFUSED.raw_os_error();
}

fn a_reset_in_the_middle_of_a_send_returns_every_buffer_before_it_is_told<N: Network>() {
    let (mut server, accepted, mut stream) = connected_stream::<N>();
    for _ in 0..200 {
        server.send(accepted, frame(60_000));
    }
    let mut early = 0;
    for _ in 0..10 {
        for event in server.turn() {
            assert!(matches!(event, NetEvent::Sent { .. }), "{event:?}");
            early += 1;
        }
    }
    assert!(early < 200, "12 MB fit nowhere");
    assert!(server.sockets.unsent(accepted) > 0);
    // The peer takes a little and then is gone: a send is under way, and more waits behind it.
    stream.read_exact(&mut [0; 10_000]).unwrap();
    reset(stream);
    let (mut sent, mut closed) = (early, None);
    for _ in 0..1000 {
        for event in server.turn() {
            assert!(closed.is_none(), "Closed is the last: {event:?}");
            match event {
                NetEvent::Sent { conn, .. } => {
                    assert_eq!(conn, accepted);
                    sent += 1;
                }
                NetEvent::Closed { conn, reason } => closed = Some((conn, reason)),
                other => panic!("{other:?}"),
            }
        }
        if closed.is_some() {
            break;
        }
    }
    let (conn, reason) = closed.expect("the reset was seen");
    assert_eq!((conn, sent), (accepted, 200));
    assert!(matches!(reason, CloseReason::Reset(_)), "{reason:?}");
    assert_eq!(server.sockets.room(), 256);
    assert_eq!(server.sockets.unsent(accepted), 0);
    assert!(server.turn().is_empty());
}

fn a_peers_close_comes_behind_its_last_bytes<N: Network>() {
    let (mut server, accepted, mut stream) = connected_stream::<N>();
    stream.write_all(&[7; 100_000]).unwrap_or_else(|e| panic!("{e}"));
    drop(stream);
    let (mut got, mut closed) = (0, None);
    for _ in 0..2000 {
        for event in server.turn() {
            assert!(closed.is_none(), "Closed is the last: {event:?}");
            match event {
                NetEvent::Received { buf, len, .. } => {
                    got += len;
                    server.sockets.give(buf);
                }
                NetEvent::Closed { conn, reason } => closed = Some((conn, reason)),
                other => panic!("{other:?}"),
            }
        }
        if closed.is_some() {
            break;
        }
    }
    assert_eq!((got, closed), (100_000, Some((accepted, CloseReason::Peer))));
}

fn whoever_shuts_its_side_or_resets_has_left_even_if_nobody_reads<N: Network>() {
    for ends_before in [false, true] {
        let (mut server, accepted, mut stream) = connected_stream::<N>();
        stream.write_all(&[7; 100_000]).unwrap();
        if !ends_before {
            server.sockets.pause(accepted);
            server.turn();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        // Where it is paused too late, what had come until then may have been received.
        server.sockets.pause(accepted);
        assert_eq!(server.await_closed(), (accepted, CloseReason::Peer));

        let (mut server, accepted, stream) = connected_stream::<N>();
        server.sockets.pause(accepted);
        if !ends_before {
            server.turn();
        }
        reset(stream);
        let (conn, reason) = server.await_closed();
        assert!(conn == accepted && matches!(reason, CloseReason::Reset(_)), "{reason:?}");
    }
}

fn frames_to_a_connection_that_is_gone_come_back<N: Network>() {
    let (mut server, accepted, stream) = connected_stream::<N>();
    drop(stream);
    assert_eq!(server.await_closed(), (accepted, CloseReason::Peer));
    server.send(accepted, frame(10));
    let conn = server.await_event(|event| match event {
        NetEvent::Sent { conn, .. } => Some(*conn),
        _ => None,
    });
    assert_eq!(conn, accepted);
    server.sockets.close(accepted);
    server.sockets.finish(accepted);
    assert!(server.turn().is_empty(), "it is gone already");
}

fn a_place_is_used_again_under_another_name<N: Network>() {
    let (mut server, address) = listening::<N>();
    let mut names = Vec::new();
    for _ in 0..5 {
        let stream = TcpStream::connect(address).unwrap();
        names.push(server.await_opened());
        drop(stream);
        server.await_closed();
    }
    assert!(names.iter().all(|name| name.index == names[0].index));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5);
}

fn connections_beyond_the_maximum_are_refused<N: Network>() {
    let (mut server, address) = listening::<N>();
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        streams.push(TcpStream::connect(address).unwrap());
        server.await_opened();
    }
    let mut refused = TcpStream::connect(address).unwrap();
    for _ in 0..20 {
        assert!(server.turn().is_empty());
    }
    refused.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(refused.read(&mut [0]), Ok(0)), "closed at once");
    drop(streams.pop());
    server.await_closed();
    let _admitted = TcpStream::connect(address).unwrap();
    server.await_opened();
}

fn arrivals_wait_while_accepting_is_held<N: Network>() {
    let (mut server, address) = listening::<N>();
    server.sockets.hold(true);
    for _ in 0..1000 {
        server.turn();
        if !server.sockets.accepts() {
            break;
        }
    }
    assert!(!server.sockets.accepts());
    let _waiting = TcpStream::connect(address).unwrap();
    for _ in 0..20 {
        assert!(server.turn().is_empty());
    }
    server.sockets.hold(false);
    server.await_opened();
}

fn connections_are_spread_over_workers<N: Network>() {
    let spread = ConnectionBalancer::new(2);
    let (mut first, address) = listening::<N>();
    let mut second = SocketRig::<N>::with(small());
    first.sockets.join(Arc::clone(&spread), 0);
    second.sockets.join(Arc::clone(&spread), 1);
    let streams: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut opened = [0, 0];
    for _ in 0..1000 {
        let count = |events: Vec<NetEvent>| {
            events.iter().filter(|e| matches!(e, NetEvent::Opened { .. })).count()
        };
        opened[0] += count(first.turn());
        opened[1] += count(second.turn());
        if opened == [5, 5] {
            break;
        }
    }
    assert_eq!(opened, [5, 5]);
    assert_eq!(spread.connections(), [5, 5]);
    drop(streams);
    for _ in 0..1000 {
        first.turn();
        second.turn();
        if spread.connections() == [0, 0] {
            return;
        }
    }
    panic!("{:?} connections are left", spread.connections());
}

fn nobody_is_let_in_after_listening_was_stopped<N: Network>() {
    let (mut server, address) = listening::<N>();
    let before = TcpStream::connect(address).unwrap();
    server.await_opened();
    server.sockets.stop_listening();
    for _ in 0..20 {
        server.turn();
    }
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
    drop(before);
    server.await_closed();
}

fn an_idle_end_sleeps<N: Network>() {
    let (mut server, _accepted, _stream) = connected_stream::<N>();
    for _ in 0..20 {
        server.turn();
    }
    assert_eq!(server.sockets.wake_at(), None);
    let begun = server.clock.now();
    assert!(!server.reactor.enter(Some(Some(Duration::from_millis(50)))), "nothing happened");
    assert!(server.clock.now().since(begun) >= Duration::from_millis(49));
}
