//! Sockets on loopback: what one end sends the other receives, in order, and everything is given
//! back.

use std::time::Duration;

use contract::{Buf, CloseReason, ConnId, Dial, Frame, FrameHead, ListenerId, NetEvent, Transport};
use nearflash_io::{Clock, Listener, Ring, Sockets, SocketsConfig, TcpOptions};

fn buf(bytes: usize) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), 0)
}

/// Sockets with a ring of their own that turn until `done` says so.
struct End {
    ring: Ring,
    clock: Clock,
    sockets: Sockets,
}

impl End {
    fn new() -> End {
        let ring = Ring::new().unwrap();
        let config = SocketsConfig {
            connections_max: 64,
            receive_buffers: 8,
            receive_buffer_bytes: 4096,
            frames_max: 256,
            ..SocketsConfig::default()
        };
        let sockets = Sockets::new(&ring, config).unwrap();
        End { ring, clock: Clock::start(), sockets }
    }

    fn turn(&mut self) -> Vec<NetEvent> {
        let mut events = Vec::new();
        self.sockets.poll(self.clock.now(), &mut events, 64);
        self.sockets.kick(self.clock.now());
        self.ring.enter(Some(Some(Duration::from_millis(1))));
        events
    }
}

fn connected() -> (End, End, ConnId, ConnId) {
    let (mut server, mut client) = (End::new(), End::new());
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
    client.sockets.dial_to(listener.address());
    server.sockets.listen(ListenerId(7), listener);
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

#[test]
fn bytes_arrive_in_order_through_few_buffers() {
    let (mut server, mut client, accepted, dialled) = connected();
    let mut expected = Vec::new();
    for n in 0..100u8 {
        let mut body = buf(10_000);
        body.bytes_mut().fill(n);
        let head = FrameHead::new(&[n; 24]);
        expected.extend_from_slice(head.bytes());
        expected.extend_from_slice(&body.bytes()[..9_999]);
        let frame = Frame { head, body: Some(body), body_len: 9_999 };
        client.sockets.send(client.clock.now(), dialled, frame);
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

#[test]
fn a_paused_connection_receives_nothing_until_it_is_resumed() {
    let (mut server, mut client, accepted, dialled) = connected();
    server.sockets.pause(accepted);
    server.turn();
    client.sockets.send(client.clock.now(), dialled, Frame::bare(FrameHead::new(b"hello")));
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

#[test]
fn closing_returns_every_buffer_and_tells_both_ends() {
    let (mut server, mut client, accepted, dialled) = connected();
    for _ in 0..200 {
        let frame =
            Frame { head: FrameHead::new(&[0; 24]), body: Some(buf(60_000)), body_len: 60_000 };
        client.sockets.send(client.clock.now(), dialled, frame);
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

#[test]
fn finish_sends_what_is_queued_first() {
    let (mut server, mut client, accepted, _) = connected();
    let frame =
        Frame { head: FrameHead::new(&[1; 24]), body: Some(buf(500_000)), body_len: 500_000 };
    server.sockets.send(server.clock.now(), accepted, frame);
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

#[test]
fn nobody_listening_is_unreachable() {
    let mut client = End::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    client.sockets.dial_to(free);
    let dialled = client.sockets.dial(client.clock.now());
    for _ in 0..1000 {
        if let Some(event) = client.turn().pop() {
            let NetEvent::Closed { conn, reason } = event else { panic!("{event:?}") };
            assert_eq!(conn, dialled);
            assert!(matches!(reason, CloseReason::Unreachable(_)));
            return;
        }
    }
    panic!("the dial never ended");
}
