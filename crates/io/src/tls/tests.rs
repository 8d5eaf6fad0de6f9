//! Tests of the records of both ends of a connection, without a network between. Data that arrives
//! is the data that was sent, however the stream is cut, and tampered streams bring no other data.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use contract::{Buf, Frame, FrameHead, TlsFailure};

use super::certificate::{ServerTls, TlsPolicy};
use super::handshake::{Handshake, HandshakeProgress, HandshakeRole, PreHandshake};
use super::intake::RecordBuffers;
use super::seal::SealedRecords;
use super::secured::TlsState;
use super::trust::ClientTls;

/// The TLS settings of a server, and of a client that trusts it.
static TLS: LazyLock<(Arc<ServerTls>, ClientTls)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(vec!["server".to_owned()]).unwrap();
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let server = ServerTls::new(TlsPolicy::Required, pem.as_bytes(), key.as_bytes()).unwrap();
    let print = ring::digest::digest(&ring::digest::SHA256, made.cert.der());
    let print: String = print.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (server, ClientTls::new("server", None, Some(&print)).unwrap())
});

/// Returns the TLS settings of a server with a certificate, and of a client that trusts it.
pub(super) fn with_certificate() -> (&'static ServerTls, &'static ClientTls) {
    (&TLS.0, &TLS.1)
}

/// Returns the server's and the client's end of a new connection.
fn pair() -> (TlsState, TlsState) {
    let (server, client) = &*TLS;
    let (here, there) = UnixStream::pair().unwrap();
    let mut server = Handshake::new(here.into(), server.side().unwrap(), PreHandshake::Nothing);
    let mut client = Handshake::new(there.into(), client.side().unwrap(), PreHandshake::Nothing);
    loop {
        let said = client.advance().unwrap();
        let answered = server.advance().unwrap();
        if (said, answered) == (HandshakeProgress::Done, HandshakeProgress::Done) {
            return (*server.finish().unwrap().1, *client.finish().unwrap().1);
        }
    }
}

/// A generator of random numbers from a seed.
pub(super) struct TestRandom(pub(super) u64);

impl TestRandom {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Returns `count` frames of random sizes, and all their bytes.
pub(super) fn frames(dice: &mut TestRandom, count: usize, largest: usize) -> (Vec<Frame>, Vec<u8>) {
    let mut all = Vec::new();
    let made = (0..count).map(|n| {
        let len = dice.below(largest);
        let bytes: Vec<u8> = (0..len).map(|at| (at ^ at >> 8 ^ n) as u8).collect();
        let head = FrameHead::with_tail(&[n as u8; 24], &[!(n as u8); 4]);
        all.extend_from_slice(head.bytes());
        all.extend_from_slice(&bytes);
        all.extend_from_slice(head.tail());
        let body = (len > 0).then(|| Buf::new(Box::leak(bytes.into_boxed_slice()), 0));
        Frame { head, body, body_len: len }
    });
    (made.collect(), all)
}

/// Seals all frames, in as many sends as that takes. Returns the records.
pub(super) fn seal(from: &mut TlsState, frames: &[Frame]) -> Vec<u8> {
    let (mut stage, mut stream, mut first) = (SealedRecords::new(), Vec::new(), 0);
    while first < frames.len() {
        stage.seal(from, frames[first..].iter()).unwrap();
        stream.extend_from_slice(stage.bytes());
        first += stage.frames;
    }
    stream
}

/// Opens a stream that arrives in pieces of up to `largest` bytes. Returns the data, and the reason
/// if the stream was refused.
pub(super) fn open(
    to: &mut TlsState,
    stream: &[u8],
    dice: &mut TestRandom,
    largest: usize,
) -> (Vec<u8>, Option<TlsFailure>) {
    let (mut data, mut spares) = (Vec::new(), RecordBuffers::default());
    let mut receive = Some(Buf::new(Box::leak(vec![0; largest].into_boxed_slice()), 0));
    let mut rest = stream;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + dice.below(largest)).min(rest.len()));
        rest = later;
        let mut buf = receive.take().expect("it comes back each time");
        buf.prefix_mut(now.len()).copy_from_slice(now);
        match to.take(&mut spares, buf, now.len()) {
            Ok(taken) => {
                receive = taken.spent;
                if let Some((joined, len)) = taken.joined {
                    data.extend_from_slice(&joined.bytes()[..len]);
                    assert!(receive.is_none(), "it is kept back while the other is lent");
                    receive = spares.give(joined);
                }
                if let Some((buf, len)) = taken.opened {
                    data.extend_from_slice(&buf.bytes()[..len]);
                    receive = Some(buf);
                }
            }
            Err((_, why)) => return (data, Some(why)),
        }
    }
    (data, None)
}

/// Returns a hundred sealed records without data.
fn empty_records(from: &mut TlsState) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..100 {
        let mut record = [0; 64];
        let length = from.sending.seal(&mut record, 0, super::key::ContentType::Data).unwrap();
        stream.extend_from_slice(&record[..length]);
    }
    stream
}

#[test]
fn what_arrives_is_what_was_sent_however_the_stream_is_cut() {
    let mut dice = TestRandom(7);
    let (mut server, mut client) = pair();
    for (largest_frame, largest_piece) in
        [(100, 20), (5_000, 8_192), (100_000, 8_192), (3, 1), (20_000, 64), (300_000, 65_536)]
    {
        let (sent, bytes) = frames(&mut dice, 20, largest_frame);
        let stream = seal(&mut server, &sent);
        assert!(open(&mut client, &stream, &mut dice, largest_piece) == (bytes, None));
        let (sent, bytes) = frames(&mut dice, 20, largest_frame);
        let stream = seal(&mut client, &sent);
        assert!(open(&mut server, &stream, &mut dice, largest_piece) == (bytes, None));
    }
}

#[test]
fn keys_are_replaced_after_so_many_records_and_when_the_peer_asks() {
    let mut dice = TestRandom(3);
    let (mut server, mut client) = pair();
    server.sending.records_max = 9;
    for _ in 0..20 {
        let (sent, bytes) = frames(&mut dice, 10, 30_000);
        let stream = seal(&mut server, &sent);
        assert!(open(&mut client, &stream, &mut dice, 8_192) == (bytes, None));
    }
    // One that asks for new keys gets them with the next data.
    let mut record = [0; 64];
    record[5..10].copy_from_slice(&[24, 0, 0, 1, 1]);
    let length = client.sending.seal(&mut record, 5, super::key::ContentType::Handshake).unwrap();
    let outdated = client.sending.seal(&mut [0; 64], 1, super::key::ContentType::Data).unwrap();
    assert_eq!(outdated, 23);
    assert_eq!(open(&mut server, &record[..length], &mut dice, 64), (vec![], None));
    assert!(server.owes_update);
    let (sent, bytes) = frames(&mut dice, 2, 100);
    let stream = seal(&mut server, &sent);
    assert!(!server.owes_update);
    assert!(open(&mut client, &stream, &mut dice, 8_192) == (bytes, None));
}

#[test]
fn an_end_that_is_said_is_told_from_one_that_is_not() {
    let (mut server, mut client) = pair();
    let farewell = server.farewell().unwrap();
    let mut buf = Buf::new(Box::leak(vec![0; 64].into_boxed_slice()), 0);
    buf.prefix_mut(farewell.len()).copy_from_slice(&farewell);
    let taken = client.take(&mut RecordBuffers::default(), buf, farewell.len()).unwrap();
    assert!(taken.is_closed && taken.opened.is_none() && taken.spent.is_some());
}

#[test]
fn tampered_streams_bring_nothing_but_what_was_sent() {
    let mut dice = TestRandom(11);
    for round in 0..300 {
        let (mut server, mut client) = pair();
        let (sent, bytes) = frames(&mut dice, 6, 20_000);
        let mut stream = seal(&mut server, &sent);
        let at = dice.below(stream.len());
        match round % 5 {
            0 => stream[at] ^= 1 << dice.below(8),
            1 => drop(stream.drain(at..(at + 1 + dice.below(40)).min(stream.len()))),
            2 => drop(stream.splice(at..at, [dice.below(256) as u8])),
            3 => stream[at..].reverse(),
            _ => {
                // The first record once more, which nobody may say again.
                let first = super::key::record_bytes(&stream).unwrap();
                let again = stream[..first].to_vec();
                stream.splice(..0, again);
            }
        }
        let (data, why) = open(&mut client, &stream, &mut dice, 8_192);
        assert!(bytes.starts_with(&data), "round {round}: data that was not sent");
        // A stream that was cut short may only wait for more.
        assert!(why.is_some() || data.len() < bytes.len(), "round {round}");
    }
}

#[test]
fn noise_is_refused_and_records_without_data_are_bounded() {
    let mut dice = TestRandom(13);
    let (mut server, mut client) = pair();
    for _ in 0..2_000 {
        let noise: Vec<u8> = (0..1 + dice.below(200)).map(|_| dice.below(256) as u8).collect();
        let (data, _) = open(&mut client, &noise, &mut dice, 64);
        assert!(data.is_empty());
        client.drop_carry();
    }
    let (_, mut client) = (client, pair().1);
    let stream = empty_records(&mut server);
    let (_, why) = open(&mut client, &stream, &mut dice, 64);
    assert_eq!(why, Some(TlsFailure::BadRecord), "they are another connection's");
    let (mut server, mut client) = pair();
    let stream = empty_records(&mut server);
    let (_, why) = open(&mut client, &stream, &mut dice, 64);
    assert_eq!(why, Some(TlsFailure::Misbehaved));
}

#[test]
fn keys_are_not_replaced_again_and_again_between_bytes() {
    let mut dice = TestRandom(19);
    let ((mut server, mut client), mut why) = (pair(), None);
    for round in 0..20 {
        let (mut record, mut byte) = ([0; 64], [0; 64]);
        let length = server.update(&mut record).unwrap();
        let more = server.sending.seal(&mut byte, 1, super::key::ContentType::Data).unwrap();
        let stream = [&record[..length], &byte[..more]].concat();
        why = open(&mut client, &stream, &mut dice, 64).1;
        if why.is_some() {
            assert!(round > 2, "some are taken");
            break;
        }
    }
    assert_eq!(why, Some(TlsFailure::Misbehaved));
}

/// Moves a byte from one stream to the other, if a byte has come.
pub(super) fn move_byte(from: &mut UnixStream, to: &mut UnixStream) {
    let mut byte = [0];
    if matches!(from.read(&mut byte), Ok(1)) {
        to.write_all(&byte).unwrap();
    }
}

#[test]
fn a_handshake_goes_on_wherever_its_records_are_cut() {
    let (server, client) = &*TLS;
    let (here, mut at_server) = UnixStream::pair().unwrap();
    let (there, mut at_client) = UnixStream::pair().unwrap();
    let mut server = Handshake::new(here.into(), server.side().unwrap(), PreHandshake::Nothing);
    let mut client = Handshake::new(there.into(), client.side().unwrap(), PreHandshake::Nothing);
    at_server.set_nonblocking(true).unwrap();
    at_client.set_nonblocking(true).unwrap();
    for _ in 0..100_000 {
        let said = client.advance().unwrap();
        move_byte(&mut at_client, &mut at_server);
        let answered = server.advance().unwrap();
        move_byte(&mut at_server, &mut at_client);
        if (said, answered) == (HandshakeProgress::Done, HandshakeProgress::Done) {
            server.finish().unwrap();
            client.finish().unwrap();
            return;
        }
    }
    panic!("it never ended");
}

/// Sends a client's hello, damaged and then cut off if `is_cut`, to a server, which has to fail, or
/// to answer and wait for an end that comes at once.
pub(super) fn damage_hello(
    dice: &mut TestRandom,
    server: HandshakeRole,
    client: HandshakeRole,
    is_cut: bool,
) {
    let (here, mut there) = UnixStream::pair().unwrap();
    let (mut theirs, back) = UnixStream::pair().unwrap();
    let mut client = Handshake::new(back.into(), client, PreHandshake::Nothing);
    assert_eq!(client.advance(), Ok(HandshakeProgress::Reads));
    let mut hello = vec![0; 4096];
    let len = theirs.read(&mut hello).unwrap();
    hello.truncate(len);
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(hello.len());
        hello[at] = dice.below(256) as u8;
    }
    if is_cut {
        hello.truncate(1 + dice.below(hello.len()));
    }
    there.write_all(&hello).unwrap();
    there.shutdown(std::net::Shutdown::Write).unwrap();
    let mut server = Handshake::new(here.into(), server, PreHandshake::Nothing);
    while let Ok(progress) = server.advance() {
        assert_eq!(progress, HandshakeProgress::Reads);
    }
}

#[test]
fn a_handshake_stands_tampered_streams() {
    let mut dice = TestRandom(17);
    for _ in 0..200 {
        let (server, client) = &*TLS;
        damage_hello(&mut dice, server.side().unwrap(), client.side().unwrap(), true);
    }
}
