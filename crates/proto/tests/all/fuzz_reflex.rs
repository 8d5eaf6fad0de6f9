//! Fuzzes both ends of `reflex` with damaged streams and random bytes. Neither end panics, hangs or
//! breaks the contract, and each hears the same wherever the stream is cut.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::BTreeSet;

use crate::support::{
    Chance, Damage, JoinedClientEvent, JoinedServerEvent, client_stream, cut, listen, meet, rounds,
    serve, server_stream, variant_name as name,
};
use contract::{ProtocolError, Status};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 4000;

/// The kinds of damage that the tests do to streams.
const DAMAGE: Damage = Damage {
    places_least: 0,
    telling: [0, 1, 2, 8, 0x18, 0x20, 0x40, 0x42, 0x4e, 0x7f, 0x80, 0xff],
    copied: 48,
};

/// Calls `round` with one seed after the other.
fn rounds(mut round: impl FnMut(&mut Chance)) {
    rounds::rounds(ROUNDS, |seed| round(&mut Chance(seed)));
}

/// Picks a version, and `true` if payloads have checksums.
fn kind(chance: &mut Chance) -> (u8, bool) {
    [(1, false), (2, false), (2, true)][chance.below(3)]
}

#[test]
fn servers_stand_tampered_streams() {
    let mut marks = BTreeSet::new();
    rounds(|chance| {
        let (version, checksums) = kind(chance);
        let messages = 1 + chance.below(6);
        let (mut bytes, _) = client_stream(chance, version, checksums, messages);
        chance.replace(&mut bytes, 200);
        DAMAGE.tamper(chance, &mut bytes);
        let heard = serve([&bytes[..]], checksums);
        assert_eq!(heard, serve(cut(chance, &bytes), checksums), "the cut changed what was heard");
        marks.extend(heard.iter().map(|heard| match heard {
            JoinedServerEvent::Request(request) => name(&request.verdict),
            JoinedServerEvent::Payload(_, end) => format!("payload {}", name(end)),
            JoinedServerEvent::Control(control) => name(control),
            JoinedServerEvent::Ended(fatal) => name(fatal),
        }));
    });
    let fatal = [
        ProtocolError::BadMagic(0),
        ProtocolError::BadOpcode(0),
        ProtocolError::BadLength(0),
        ProtocolError::OutOfOrder,
    ];
    let verdicts = [Status::Ok, Status::Invalid, Status::BadLength];
    let expected = fatal.iter().map(name).chain(verdicts.iter().map(name));
    for mark in
        expected.chain(["payload BadChecksum".to_owned(), name(&ProtocolError::BadVersion(0))])
    {
        assert!(marks.contains(&mark), "no round reached {mark}: {marks:?}");
    }
}

#[test]
fn clients_stand_tampered_streams() {
    let mut marks = BTreeSet::new();
    rounds(|chance| {
        let (version, checksums) = kind(chance);
        let messages = 1 + chance.below(6);
        let (mut client, mut bytes, _) = server_stream(chance, version, checksums, messages);
        chance.replace(&mut bytes, 200);
        DAMAGE.tamper(chance, &mut bytes);
        let said = listen(&mut client, [&bytes[..]]);
        let mut client = meet(chance, version, checksums).client;
        assert_eq!(said, listen(&mut client, cut(chance, &bytes)), "the cut changed what was said");
        marks.extend(said.iter().map(|said| match said {
            JoinedClientEvent::Reply { status, .. } => name(status),
            JoinedClientEvent::Body(_, end) => format!("body {}", name(end)),
            JoinedClientEvent::Other(event) => name(event),
            JoinedClientEvent::Ended(fatal) => name(fatal),
        }));
    });
    let fatal =
        [ProtocolError::BadMagic(0), ProtocolError::BadOpcode(0), ProtocolError::BadLength(0)];
    let expected = fatal.iter().map(name).chain([name(&Status::Ok), "body BadChecksum".to_owned()]);
    for mark in expected {
        assert!(marks.contains(&mark), "no round reached {mark}: {marks:?}");
    }
}
