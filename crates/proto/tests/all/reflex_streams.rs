//! Checks that each end hears what the other meant in streams of many messages, wherever they are
//! cut.

use crate::support::{Chance, client_stream, cut, listen, meet, serve, server_stream};
use nearflash_proto::reflex::{ClientSession, ServerSession};

/// The versions, with and without checksums where they exist.
const KINDS: [(u8, bool); 3] = [(1, false), (2, false), (2, true)];

#[test]
fn a_client_stream_may_be_cut_at_every_byte() {
    for (version, checksums) in KINDS {
        let (bytes, heard) = client_stream(&mut Chance(1), version, checksums, 24);
        assert!(bytes.len() > 2000, "a stream worth cutting");
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(serve([first, second], checksums), heard, "cut at {at}");
        }
        assert_eq!(serve(bytes.chunks(1), checksums), heard, "every byte alone");
        assert_eq!(serve([&[][..], &bytes, &[]], checksums), heard, "with empty pieces");
    }
}

#[test]
fn a_server_stream_may_be_cut_at_every_byte() {
    for (version, checksums) in KINDS {
        let whole = || server_stream(&mut Chance(2), version, checksums, 64);
        let (_, bytes, said) = whole();
        assert!(bytes.len() > 2000, "a stream worth cutting");
        for at in 0..=bytes.len() {
            let mut client = meet(&mut Chance(3), version, checksums).client;
            let (first, second) = bytes.split_at(at);
            assert_eq!(listen(&mut client, [first, second]), said, "cut at {at}");
        }
        let (mut client, ..) = whole();
        assert_eq!(listen(&mut client, bytes.chunks(1)), said, "every byte alone");
    }
}

#[test]
fn the_answer_to_a_hello_may_be_cut_at_every_byte() {
    let pair = meet(&mut Chance(4), 2, true);
    for at in 0..=pair.to_client.len() {
        let mut client = ClientSession::v2(pair.hello.clone());
        let (first, second) = pair.to_client.split_at(at);
        assert_eq!(listen(&mut client, [first, second]).len(), 1);
        assert!(client.checksums());
    }
}

#[test]
fn what_one_end_means_the_other_hears() {
    for seed in 0..300 {
        for (version, checksums) in KINDS {
            let chance = &mut Chance(seed);
            let (bytes, heard) = client_stream(chance, version, checksums, 12);
            let pieces = cut(chance, &bytes);
            assert_eq!(serve(pieces, checksums), heard, "seed {seed}");
            let (mut client, bytes, said) = server_stream(chance, version, checksums, 12);
            let pieces = cut(chance, &bytes);
            assert_eq!(listen(&mut client, pieces), said, "seed {seed}");
        }
    }
}

/// A payload that comes in one piece with its head is passed on as a slice of the input, not as a
/// copy.
#[test]
fn payloads_are_passed_through() {
    use contract::{Command, Range, Session, SessionEvent};
    let command = Command::Write { range: Range::new(0, 2048), fua: false };
    let payload = vec![7; 1 << 20];
    let head = ClientSession::v1().request(1, 0, None, command, &payload).unwrap();
    let bytes = [head.bytes(), &payload].concat();
    let mut session = ServerSession::new();
    let mut input = &bytes[..];
    session.next_event(&mut input).unwrap();
    let Some(SessionEvent::Payload { bytes: piece, .. }) = session.next_event(&mut input).unwrap()
    else {
        panic!()
    };
    assert_eq!(piece.as_ptr_range(), bytes[24..].as_ptr_range());
}
