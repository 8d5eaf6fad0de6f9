//! Tests of receives into buffers of the receiver's choice: no byte is lost, doubled or out of its
//! place, whatever the receiver expects and when, and the buffer comes back before the connection
//! goes. Every test runs over io_uring and over epoll, through TCP and through Unix sockets.

use std::sync::Arc;

use crate::rig::{SocketRig, buf, unix_listener};
use contract::{Buf, CloseReason, ConnId, Frame, FrameHead, ListenerId, NetEvent};
use nearflash_io::{ConnectionBalancer, Listener, Network, SocketsConfig};

over_every! {
    every_byte_comes_once_and_in_its_place
    a_stretch_of_payloads_is_not_received_elsewhere
    the_buffer_comes_back_before_a_connection_that_ends
    a_payload_behind_the_first_message_stays_in_the_kernel_while_paused
    a_connection_changes_hands_while_it_is_received_into
}

/// Returns the byte at this offset of the stream that tests send.
fn byte(place: usize) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

fn config() -> SocketsConfig {
    SocketsConfig {
        connections_max: 4,
        receive_buffers: 16,
        receive_buffer_bytes: 4096,
        frames_max: 64,
        ..SocketsConfig::default()
    }
}

/// A sender of the stream, and its receiver.
struct Pair<N: Network> {
    sender: SocketRig<N>,
    dialled: ConnId,
    /// Number of bytes that were given to the sender's sockets (`sent`), and of frames that have
    /// not left (`leaving`).
    sent: usize,
    leaving: usize,
    receiver: SocketRig<N>,
    accepted: ConnId,
}

impl<N: Network> Pair<N> {
    fn new(listener: Listener) -> Self {
        Pair::with(listener, SocketRig::with(config()))
    }

    fn with(listener: Listener, mut receiver: SocketRig<N>) -> Self {
        let mut sender = SocketRig::<N>::with(config());
        sender.sockets.dial_to(listener.endpoint().clone());
        receiver.sockets.listen(ListenerId(0), listener).unwrap();
        let dialled = sender.sockets.dial(sender.clock.now());
        let (mut accepted, mut opened) = (None, false);
        for _ in 0..2000 {
            for event in receiver.poll() {
                if let NetEvent::Opened { conn, .. } = event {
                    accepted = Some(conn);
                }
            }
            opened |= sender.poll().iter().any(|e| matches!(e, NetEvent::Opened { .. }));
            receiver.end_turn();
            sender.end_turn();
            if let (Some(accepted), true) = (accepted, opened) {
                return Pair { sender, dialled, sent: 0, leaving: 0, receiver, accepted };
            }
        }
        panic!("never connected");
    }

    /// Sends the next `bytes` bytes of the stream.
    fn send(&mut self, bytes: usize) {
        let mut body = buf(bytes);
        let from = self.sent;
        body.bytes_mut().iter_mut().enumerate().for_each(|(n, b)| *b = byte(from + n));
        let frame = Frame { head: FrameHead::new(&[]), body: Some(body), body_len: bytes };
        self.sender.sockets.send(self.sender.clock.now(), self.dialled, frame);
        self.sent += bytes;
        self.leaving += 1;
    }

    /// Runs one turn of the sender.
    fn push(&mut self) {
        for event in self.sender.poll() {
            self.leaving -= usize::from(matches!(event, NetEvent::Sent { .. }));
        }
        self.sender.end_turn();
    }

    fn expect(&mut self, from: usize, bytes: usize) -> Result<(), Buf> {
        let room = buf(from + bytes + 3);
        self.receiver.sockets.receive_into(self.accepted, room, from, from + bytes)
    }
}

/// Checks that `bytes` are those of the stream from offset `got` on, and advances `got`.
fn check(got: &mut usize, bytes: &[u8]) {
    for (n, found) in bytes.iter().enumerate() {
        assert!(*found == byte(*got + n), "byte {} of the stream", *got + n);
    }
    *got += bytes.len();
}

/// A generator of pseudo-random numbers.
struct TestRandom(u64);

impl TestRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn every_byte_comes_once_and_in_its_place<N: Network>(listener: Listener) {
    let mut pair = Pair::<N>::new(listener);
    let (mut chance, mut got, mut direct) = (TestRandom(0x9e37_79b9), 0, 0);
    let mut expected = None;
    let whole = 4 << 20;
    for turn in 0..20_000 {
        while pair.leaving < 8 && pair.sent < whole {
            let bytes = [1, 24, 700, 5_000, 40_000, 131_072][chance.below(6)];
            pair.send(bytes.min(whole - pair.sent));
        }
        pair.push();
        for event in pair.receiver.poll() {
            match event {
                NetEvent::Received { buf, len, .. } => {
                    assert!(expected.is_none(), "what is expected somewhere comes first");
                    check(&mut got, &buf.bytes()[..len]);
                    pair.receiver.sockets.give(buf);
                }
                NetEvent::Filled { conn, buf, at, len } => {
                    let (from, bytes) = expected.take().expect("it was asked for");
                    assert_eq!((conn, at), (pair.accepted, from));
                    assert!(len <= bytes && buf.bytes()[..at].iter().all(|&b| b == 0));
                    check(&mut got, &buf.bytes()[at..at + len]);
                    direct += len;
                }
                event => panic!("{event:?}"),
            }
        }
        if turn % 50 == 49 {
            pair.receiver.sockets.pause(pair.accepted);
        } else if turn % 50 == 1 {
            pair.receiver.sockets.resume(pair.accepted);
        }
        if expected.is_none() && chance.below(3) > 0 {
            let (from, bytes) = (chance.below(9), 1 + chance.below(100_000));
            expected = pair.expect(from, bytes).is_ok().then_some((from, bytes));
            assert!(expected.is_none() || pair.expect(0, 1).is_err(), "one at a time");
        }
        pair.receiver.end_turn();
        if got == whole && expected.is_none() {
            break;
        }
    }
    if let Some((from, _)) = expected {
        pair.receiver.sockets.pause(pair.accepted);
        assert_eq!(await_filled(&mut pair.receiver), (from, 0));
    }
    assert_eq!((got, pair.sent), (whole, whole));
    assert!(direct > whole / 4, "{direct} bytes came where they belong");
}

/// Runs turns until a buffer comes back. Returns the offset and the number of its received bytes.
fn await_filled<N: Network>(end: &mut SocketRig<N>) -> (usize, usize) {
    for _ in 0..2000 {
        end.end_turn();
        for event in end.poll() {
            match event {
                NetEvent::Filled { at, len, .. } => return (at, len),
                NetEvent::Received { buf, .. } => end.sockets.give(buf),
                event => panic!("{event:?} before the buffer came back"),
            }
        }
    }
    panic!("the buffer never came back");
}

fn a_stretch_of_payloads_is_not_received_elsewhere<N: Network>(listener: Listener) {
    const HEAD: usize = 24;
    const PAYLOAD: usize = 128 << 10;
    const MESSAGES: usize = 64;
    let mut pair = Pair::<N>::new(listener);
    let (mut got, mut elsewhere, mut is_asked) = (0, 0, false);
    for _ in 0..20_000 {
        while pair.leaving < 4 && pair.sent < MESSAGES * (HEAD + PAYLOAD) {
            pair.send(HEAD);
            pair.send(PAYLOAD);
        }
        pair.push();
        for event in pair.receiver.poll() {
            match event {
                NetEvent::Received { buf, len, .. } => {
                    let before = got;
                    check(&mut got, &buf.bytes()[..len]);
                    if before > HEAD + PAYLOAD {
                        elsewhere += len;
                    }
                    pair.receiver.sockets.give(buf);
                }
                NetEvent::Filled { buf, at, len, .. } => {
                    check(&mut got, &buf.bytes()[at..at + len]);
                    is_asked = false;
                }
                event => panic!("{event:?}"),
            }
        }
        let of_message = got % (HEAD + PAYLOAD);
        if of_message >= HEAD && !is_asked {
            is_asked = pair.expect(of_message - HEAD, HEAD + PAYLOAD - of_message).is_ok();
        }
        pair.receiver.end_turn();
        if got == MESSAGES * (HEAD + PAYLOAD) {
            break;
        }
    }
    assert_eq!(got, MESSAGES * (HEAD + PAYLOAD));
    assert!(elsewhere <= MESSAGES * 1024, "{elsewhere} bytes were received elsewhere");
}

fn a_payload_behind_the_first_message_stays_in_the_kernel_while_paused<N: Network>(
    listener: Listener,
) {
    let mut pair = Pair::<N>::new(listener);
    pair.send(50_000);
    let (mut got, mut at_pause) = (0, None);
    for turn in 0..20_000 {
        pair.push();
        for event in pair.receiver.poll() {
            let NetEvent::Received { buf, len, .. } = event else { panic!("{event:?}") };
            check(&mut got, &buf.bytes()[..len]);
            pair.receiver.sockets.give(buf);
        }
        if at_pause.is_none() && got > 0 {
            pair.receiver.sockets.pause(pair.accepted);
            at_pause = Some((turn, got));
        } else if at_pause.is_some_and(|(since, _)| turn == since + 100) {
            assert_eq!(at_pause, Some((turn - 100, got)), "it was paused");
            pair.receiver.sockets.resume(pair.accepted);
        }
        pair.receiver.end_turn();
        if got == pair.sent {
            break;
        }
    }
    let (_, first) = at_pause.expect("something came");
    assert!(first <= 512, "{first} bytes came before the first message could be parsed");
    assert_eq!(got, pair.sent);
}

fn the_buffer_comes_back_before_a_connection_that_ends<N: Network>(listener: Listener) {
    let listener = Some(listener);
    for (n, listener) in
        listener.into_iter().chain([crate::rig::listener(), unix_listener()]).enumerate()
    {
        let mut pair = Pair::<N>::new(listener);
        pair.send(1000);
        pair.push();
        pair.expect(7, 5000).unwrap();
        let mut got = 0;
        while got == 0 {
            pair.push();
            pair.receiver.end_turn();
            for event in pair.receiver.poll() {
                let NetEvent::Filled { buf, at, len, .. } = event else { panic!("{event:?}") };
                check(&mut got, &buf.bytes()[at..at + len]);
            }
        }
        pair.expect(0, 5000).unwrap();
        pair.receiver.end_turn();
        match n {
            0 => pair.sender.sockets.close(pair.dialled),
            1 => pair.receiver.sockets.close(pair.accepted),
            _ => pair.sender.sockets.finish(pair.dialled),
        }
        let (mut returned, mut closed) = (false, None);
        for _ in 0..2000 {
            for event in pair.receiver.poll() {
                match event {
                    NetEvent::Filled { len: 0, at: 0, .. } if closed.is_none() => returned = true,
                    NetEvent::Closed { reason, .. } if returned => closed = Some(reason),
                    event => panic!("{event:?}"),
                }
            }
            pair.sender.poll();
            pair.sender.end_turn();
            pair.receiver.end_turn();
            if closed.is_some() {
                break;
            }
        }
        let expected = if n == 1 { CloseReason::Local } else { CloseReason::Peer };
        assert_eq!(closed, Some(expected));
        assert!(pair.expect(0, 1).is_err(), "nothing comes of a connection that is gone");
    }
}

fn a_connection_changes_hands_while_it_is_received_into<N: Network>(listener: Listener) {
    let spread = ConnectionBalancer::new(2);
    let mut ends = [SocketRig::<N>::with(config()), SocketRig::<N>::with(config())];
    ends.iter_mut().enumerate().for_each(|(n, end)| end.sockets.join(Arc::clone(&spread), n));
    let [first, mut other] = ends;
    let mut pair = Pair::<N>::with(listener, first);
    let mut got = 0;
    for round in 0..6u16 {
        pair.expect(0, 50_000).unwrap();
        pair.receiver.end_turn();
        pair.send(20_000);
        pair.sender.end_turn();
        pair.receiver.sockets.still(pair.accepted);
        for _ in 0..2000 {
            if pair.receiver.sockets.is_still(pair.accepted) {
                break;
            }
            pair.receiver.end_turn();
            for event in pair.receiver.poll() {
                match event {
                    NetEvent::Filled { buf, at, len, .. } => {
                        check(&mut got, &buf.bytes()[at..at + len]);
                    }
                    NetEvent::Received { buf, len, .. } => {
                        check(&mut got, &buf.bytes()[..len]);
                        pair.receiver.sockets.give(buf);
                    }
                    event => panic!("{event:?}"),
                }
            }
        }
        let to = (round + 1) % 2;
        let ticket = pair.receiver.sockets.detach(pair.accepted, to);
        pair.accepted = other.sockets.attach(ticket).expect("there is room");
        std::mem::swap(&mut pair.receiver, &mut other);
        pair.receiver.sockets.resume(pair.accepted);
        for _ in 0..2000 {
            if got == pair.sent {
                break;
            }
            pair.push();
            pair.receiver.end_turn();
            for event in pair.receiver.poll() {
                let NetEvent::Received { buf, len, .. } = event else { panic!("{event:?}") };
                check(&mut got, &buf.bytes()[..len]);
                pair.receiver.sockets.give(buf);
            }
        }
        assert_eq!(got, pair.sent, "round {round}");
    }
}
