//! Fuzzes the server's end of NBD with damaged streams and random bytes. It neither panics nor
//! hangs nor breaks the contract, and holds no more requests than it may.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::BTreeSet;

use contract::PreludeOutcome;
use nearflash_proto::nbd::{NbdSession, ServerPrelude};
use wire::nbd::{BASE_ALLOCATION, CommandKind, OptionKind};

use crate::nbd_client::{hello, hello_with_status, named, option, queries, request};
use crate::nbd_prelude::play;
use crate::nbd_rig::{NAMES, Rig};
use crate::support::{Chance, Damage, cut, rounds, variant_name as name};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 1000;

/// The kinds of damage that the tests do to streams.
const DAMAGE: Damage = Damage {
    places_least: 0,
    telling: [0, 1, 2, 3, 4, 6, 7, 8, 0x10, 0x25, 0x7f, 0xff],
    copied: 44,
};

/// The first bytes of a reply with a block status: the magic, flags and kind of its chunk.
const STATUS: [u8; 8] = [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5];

/// Has the server's end before TLS take a damaged stream. Nothing is taken that is not for it, what
/// it answers stays in bounds, and a session goes on with whatever comes out of it.
#[test]
fn what_comes_before_tls_stands_tampered_streams() {
    let mut marks = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| {
        let chance = &mut Chance(seed);
        let kinds = [1, 2, 3, 5, 5, 6, 7, 8, 10, 99];
        let mut bytes = vec![0, 0, 0, chance.below(4) as u8];
        for _ in 0..chance.below(5) {
            let length = chance.of(&[0, 0, 0, 9, 700]);
            let data = chance.bytes(length);
            bytes.extend(option(OptionKind(chance.of(&kinds)), &data));
        }
        if chance.flip() {
            DAMAGE.tamper(chance, &mut bytes);
        }
        let is_required = chance.flip();
        let mut prelude = ServerPrelude::new(is_required);
        let most = 1 + chance.below(800);
        let outcome = play(&mut prelude, &bytes, most);
        let taken = bytes.len() - outcome.left.len();
        // An answer has 20 bytes, and an option 16 at least.
        assert!(outcome.said.len() <= 18 + taken / 16 * 20, "{} of {taken}", outcome.said.len());
        let opening = match outcome.end {
            Ok(None) => return marks.extend(["waits".to_owned()]),
            Err(why) => return marks.extend([name(&why)]),
            Ok(Some(PreludeOutcome::Secure(opening))) => opening,
            Ok(Some(PreludeOutcome::Plain(opening))) => {
                assert!(!is_required, "whoever has to use TLS was let by");
                opening
            }
        };
        marks.insert(format!("secured: {}", opening.is_secured));
        assert!(opening.heard.len() == if opening.is_secured { 4 } else { 20 });
        let mut rig = Rig::of(NbdSession::after(&opening), 10 << 11);
        for piece in cut(chance, outcome.left) {
            rig.receive(piece);
        }
        while rig.answer(chance.flip()) {}
    });
    for mark in ["waits", "Plain", "Misbehaved", "secured: true", "secured: false"] {
        assert!(marks.contains(mark), "no round reached {mark}: {marks:?}");
    }
}

fn stream(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = match chance.below(5) {
        0 => {
            let kinds = [1, 2, 3, 5, 6, 7, 8, 9, 10, 99];
            let mut bytes = vec![0, 0, 0, chance.below(4) as u8];
            for _ in 0..chance.below(5) {
                let kind = OptionKind(chance.of(&kinds));
                let known = ["", NAMES[0], NAMES[1], NAMES[2], "none"];
                let contexts = ["base:", BASE_ALLOCATION, "", "qemu:dirty-bitmap:x"];
                let data = match chance.below(3) {
                    0 => Vec::new(),
                    1 => named(chance.of(&known)),
                    _ => queries(chance.of(&known), &contexts[chance.below(4)..]),
                };
                bytes.extend(option(kind, &data));
            }
            bytes
        }
        1 => hello("first", false),
        2 => hello_with_status("first"),
        _ => hello("first", true),
    };
    for cookie in 0..chance.below(8) as u64 {
        let command = CommandKind(chance.of(&[0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 9]));
        let flags = if chance.flip() { 0 } else { 1 << chance.below(6) };
        let length = chance.of(&[0, 512, 4096, 65536, (1 << 20) + 512, 5 << 20, 100, 40 << 20]);
        let offset = chance.below(12 << 11) as u64 * 512;
        bytes.extend(request(command, flags, cookie, offset, length));
        if command == CommandKind::WRITE && length < 70_000 {
            bytes.resize(bytes.len() + length as usize, cookie as u8);
        }
    }
    bytes
}

#[test]
fn servers_stand_tampered_streams() {
    let mut marks = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| {
        let chance = &mut Chance(seed);
        let mut bytes = stream(chance);
        chance.replace(&mut bytes, 200);
        DAMAGE.tamper(chance, &mut bytes);
        let mut rig = Rig::new(10 << 11);
        rig.moves = chance.flip();
        for piece in cut(chance, &bytes) {
            rig.receive(piece);
            if chance.below(3) == 0 {
                rig.answer(chance.flip());
            }
        }
        while rig.answer(chance.flip()) {}
        marks.extend(rig.ended.iter().map(name));
        if rig.output.windows(STATUS.len()).any(|bytes| bytes == STATUS) {
            marks.insert("status".to_owned());
        }
        if rig.output.len() > 1000 {
            marks.insert("answered".to_owned());
        }
    });
    for mark in ["BadMagic", "BadField", "Unanswerable", "Ended", "TooMuch", "answered", "status"] {
        assert!(marks.contains(mark), "no round reached {mark}: {marks:?}");
    }
}
