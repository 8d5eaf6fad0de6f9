//! Tests of connections over TLS between real sockets: which are let in, and which reason the
//! others get.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{
    PATIENCE, SocketRig, buf, certificate, client_tls, listener, server_tls, tls_listener,
};
use contract::{CloseReason, ConnId, Frame, FrameHead, ListenerId, NetEvent, TlsFailure};
use nearflash_io::{ClientTls, ConnectionBalancer, Listener, Network, SocketsConfig, TlsPolicy};

over_both! {
    a_connection_changes_workers_in_the_middle_of_a_record
    a_plain_client_is_ended_where_tls_is_required
    a_client_over_tls_is_told_that_its_listener_has_none
    a_client_refuses_a_certificate_that_it_does_not_trust
    who_may_choose_is_known_by_the_first_byte
    a_certificate_is_replaced_for_those_who_come_later
    a_client_that_gives_up_leaves_nothing_behind
}

fn small() -> SocketsConfig {
    SocketsConfig {
        connections_max: 64,
        receive_buffers: 8,
        receive_buffer_bytes: 4096,
        frames_max: 256,
        ..SocketsConfig::default()
    }
}

/// Returns a server of one worker with this listener, and its address.
fn serving<N: Network>(listener: Listener) -> (SocketRig<N>, std::net::SocketAddr) {
    let mut server = SocketRig::<N>::with(small());
    let address = listener.endpoint().internet().unwrap();
    server.sockets.join(ConnectionBalancer::new(1), 0);
    server.sockets.listen(ListenerId(7), listener).unwrap();
    server.turn();
    (server, address)
}

/// Returns a client that dials this address, and its connection.
fn dialling<N: Network>(address: std::net::SocketAddr, tls: ClientTls) -> (SocketRig<N>, ConnId) {
    let mut client = SocketRig::<N>::with(small());
    client.sockets.dial_to(address);
    client.sockets.dial_over(tls).unwrap();
    let conn = client.sockets.dial(client.clock.now());
    (client, conn)
}

/// Runs turns of both until the client's connection is open (`None`), or closed: then returns the
/// reason.
fn outcome<N: Network>(
    server: &mut SocketRig<N>,
    client: &mut SocketRig<N>,
) -> Option<CloseReason> {
    let end = client.clock.now() + Duration::from_secs(60);
    while client.clock.now() < end {
        server.turn().into_iter().for_each(|event| give(server, event));
        match client.turn().into_iter().next() {
            Some(NetEvent::Opened { .. }) => return None,
            Some(NetEvent::Closed { reason, .. }) => return Some(reason),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    panic!("it never came");
}

fn give<N: Network>(end: &mut SocketRig<N>, event: NetEvent) {
    if let NetEvent::Received { buf, .. } = event {
        end.sockets.give(buf);
    }
}

fn a_connection_changes_workers_in_the_middle_of_a_record<N: Network>() {
    let spread = ConnectionBalancer::new(2);
    let mut workers = [SocketRig::<N>::with(small()), SocketRig::<N>::with(small())];
    for (n, worker) in workers.iter_mut().enumerate() {
        worker.sockets.join(Arc::clone(&spread), n);
    }
    let listener = tls_listener();
    let address = listener.endpoint().internet().unwrap();
    workers[0].sockets.listen(ListenerId(7), listener).unwrap();
    let (mut client, dialled) = dialling::<N>(address, client_tls());
    assert_eq!(outcome(&mut workers[0], &mut client), None);
    // It went to the worker with the fewest connections, which is the first of two.
    let (mut conn, mut at) = (ConnId { index: 0, generation: 0 }, 0);
    let (mut got, mut expected) = (Vec::new(), Vec::new());
    for round in 0..10u8 {
        let mut body = buf(100_000);
        body.bytes_mut().fill(round);
        expected.extend_from_slice(&[round; 100_004]);
        let head = FrameHead::new(&[round; 4]);
        client.send(dialled, Frame { head, body: Some(body), body_len: 100_000 });
        // Half of it, so that a record is not whole.
        while got.len() < expected.len() - 50_000 {
            client.turn();
            for event in workers[at].turn() {
                if let NetEvent::Received { buf, len, .. } = event {
                    got.extend_from_slice(&buf.bytes()[..len]);
                    workers[at].sockets.give(buf);
                }
            }
        }
        workers[at].sockets.still(conn);
        while !workers[at].sockets.is_still(conn) {
            for event in workers[at].turn() {
                if let NetEvent::Received { buf, len, .. } = event {
                    got.extend_from_slice(&buf.bytes()[..len]);
                    workers[at].sockets.give(buf);
                }
            }
        }
        assert!(workers[at].sockets.moves_to(conn, 1 - at as u16));
        assert!(!workers[at].sockets.moves_to(conn, 2), "not to another process");
        let ticket = workers[at].sockets.detach(conn, 1 - at as u16);
        at = 1 - at;
        conn = workers[at].sockets.attach(ticket).expect("there is a place");
        workers[at].sockets.resume(conn);
    }
    while got.len() < expected.len() {
        client.turn();
        for event in workers[at].turn() {
            if let NetEvent::Received { buf, len, .. } = event {
                got.extend_from_slice(&buf.bytes()[..len]);
                workers[at].sockets.give(buf);
            }
        }
    }
    assert!(got == expected);
    workers[at].send(conn, Frame::bare(FrameHead::new(b"answer")));
    let end = client.clock.now() + PATIENCE;
    while client.clock.now() < end {
        workers[at].turn();
        for event in client.turn() {
            if let NetEvent::Received { buf, len, .. } = event {
                assert_eq!(&buf.bytes()[..len], b"answer");
                return client.sockets.give(buf);
            }
        }
    }
    panic!("no answer came");
}

fn a_plain_client_is_ended_where_tls_is_required<N: Network>() {
    let (mut server, address) = serving::<N>(tls_listener());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"h").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    for _ in 0..10_000 {
        assert!(server.turn().is_empty(), "no connection of a worker");
        let mut answer = [0; 100];
        match stream.read(&mut answer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            read => {
                assert_eq!(&answer[..read.unwrap()], TlsFailure::REFUSAL);
                return;
            }
        }
    }
    panic!("it is still there");
}

fn a_client_over_tls_is_told_that_its_listener_has_none<N: Network>() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut client, conn) = dialling::<N>(free.local_addr().unwrap(), client_tls());
    client.turn();
    let (mut accepted, _) = free.accept().unwrap();
    accepted.write_all(b"what is that?").unwrap();
    let (closed, reason) = client.await_closed();
    assert_eq!((closed, reason), (conn, CloseReason::Insecure(TlsFailure::Plain)));
    let conn = client.sockets.dial(client.clock.now());
    client.turn();
    drop(free.accept().unwrap());
    let (closed, reason) = client.await_closed();
    assert_eq!((closed, reason), (conn, CloseReason::Insecure(TlsFailure::BrokenOff)));
}

fn a_client_refuses_a_certificate_that_it_does_not_trust<N: Network>() {
    let (mut server, address) = serving::<N>(tls_listener());
    let (pem, _, other) = certificate();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let pinned = ClientTls::new("127.0.0.1", None, Some(&other)).unwrap();
    let authority = ClientTls::new("127.0.0.1", Some(&file), None).unwrap();
    std::fs::write(&file, &crate::rig::CERTIFICATE.0).unwrap();
    let name = ClientTls::new("elsewhere", Some(&file), None).unwrap();
    let right = ClientTls::new("127.0.0.1", Some(&file), None).unwrap();
    for (tls, why) in [
        (pinned, Some(TlsFailure::WrongFingerprint)),
        (authority, Some(TlsFailure::UnknownAuthority)),
        (name, Some(TlsFailure::WrongName)),
        (right, None),
    ] {
        let (mut client, _) = dialling::<N>(address, tls);
        assert_eq!(outcome(&mut server, &mut client), why.map(CloseReason::Insecure));
    }
}

fn who_may_choose_is_known_by_the_first_byte<N: Network>() {
    let (mut server, address) =
        serving::<N>(listener().with_tls(Some(server_tls(TlsPolicy::Allowed))));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"hello").unwrap();
    let len = server.await_event(|event| match event {
        NetEvent::Received { len, buf, .. } => {
            assert_eq!(&buf.bytes()[..*len], b"hello");
            Some(*len)
        }
        _ => None,
    });
    assert_eq!(len, 5);
    let (mut client, _) = dialling::<N>(address, client_tls());
    assert_eq!(outcome(&mut server, &mut client), None);
}

fn a_certificate_is_replaced_for_those_who_come_later<N: Network>() {
    let tls = server_tls(TlsPolicy::Required);
    let (mut server, address) = serving::<N>(listener().with_tls(Some(tls.clone())));
    let (mut before, early) = dialling::<N>(address, client_tls());
    assert_eq!(outcome(&mut server, &mut before), None);
    let (pem, key, print) = certificate();
    tls.replace(pem.as_bytes(), key.as_bytes()).unwrap();
    let wrong = tls.replace(pem.as_bytes(), b"no key").unwrap_err().to_string();
    assert!(wrong.contains("no private key"), "{wrong}");
    let (mut late, _) = dialling::<N>(address, client_tls());
    let refused = Some(CloseReason::Insecure(TlsFailure::WrongFingerprint));
    assert_eq!(outcome(&mut server, &mut late), refused);
    let new = ClientTls::new("127.0.0.1", None, Some(&print)).unwrap();
    let (mut late, _) = dialling::<N>(address, new);
    assert_eq!(outcome(&mut server, &mut late), None);
    before.send(early, Frame::bare(FrameHead::new(b"still here")));
    before.turn();
    server.await_event(|event| matches!(event, NetEvent::Received { len: 10, .. }).then_some(()));
}

fn a_client_that_gives_up_leaves_nothing_behind<N: Network>() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut client, conn) = dialling::<N>(free.local_addr().unwrap(), client_tls());
    client.turn();
    let (mut accepted, _) = free.accept().unwrap();
    accepted.set_nonblocking(true).unwrap();
    while accepted.read(&mut [0; 1]).is_err() {
        client.turn(); // until its handshake has begun
    }
    client.sockets.close(conn);
    assert_eq!(client.await_closed(), (conn, CloseReason::Local));
    accepted.set_nonblocking(false).unwrap();
    accepted.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    accepted.read_to_end(&mut rest).unwrap();
    let again = client.sockets.dial(client.clock.now());
    client.turn();
    drop(free.accept().unwrap());
    assert_eq!(client.await_closed().0, again);
}
