//! Fuzzes the text form of configured keys, which operators paste, and the identities that peers
//! send before anything is known of them. Neither panics, and what is taken is taken for what it is.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::BTreeSet;

use nearflash_proto::nvme::auth::Hash;
use nearflash_proto::nvme::psk::{TlsIdentity, TlsKey};

use crate::support::{Chance, Damage, rounds, variant_name as name};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 3000;

/// The kinds of damage that the tests do to texts.
const DAMAGE: Damage = Damage { places_least: 0, telling: *b" :=012NRv.A\xff", copied: 44 };

fn key(chance: &mut Chance) -> TlsKey {
    let retain = chance.of(&[None, Some(Hash::Sha256), Some(Hash::Sha384)]);
    let bytes = retain.map_or(chance.of(&[32, 48]), Hash::bytes);
    TlsKey::new(&chance.bytes(bytes), retain).unwrap()
}

#[test]
fn texts_of_keys_stand_damage() {
    let mut marks = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| {
        let chance = &mut Chance(seed);
        let right = key(chance);
        let mut text = right.to_text().into_bytes();
        if chance.below(8) == 0 {
            text[14] = chance.of(b"012"); // the digit of the hash
        } else {
            DAMAGE.tamper(chance, &mut text);
        }
        match TlsKey::parse(&String::from_utf8_lossy(&text)) {
            // The checksum covers the key, and the hash has a digit of its own.
            Ok(taken) => {
                let is_right = taken.to_text()[16..] == right.to_text()[16..];
                assert!(is_right, "a damaged key was taken");
                marks.insert("taken".to_owned());
            }
            Err(why) => drop(marks.insert(name(&why))),
        }
    });
    if !rounds::is_replay() {
        for mark in ["taken", "Form", "Hash", "Length", "Checksum"] {
            assert!(marks.contains(mark), "no round reached {mark}");
        }
    }
}

#[test]
fn identities_stand_damage() {
    let mut marks = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| {
        let chance = &mut Chance(seed);
        let key = key(chance);
        let who = TlsIdentity::parse(b"NVMe0R01 nqn.2026-11.x:host nqn.2026-11.x:subsystem");
        let who = who.unwrap();
        let mut identity = key.offered(&who).identity.into_bytes();
        if chance.flip() {
            DAMAGE.tamper(chance, &mut identity);
        }
        let Some(parsed) = TlsIdentity::parse(&identity) else {
            marks.insert("refused");
            return;
        };
        assert!(parsed.host.as_str().starts_with("nqn."));
        let found = key.psks(&parsed, &identity).count();
        assert!(found < 3);
        marks.insert(match found {
            0 => "unknown",
            // Identities of version 0 have no digest: they fit every key of the host they name.
            _ if parsed == who || identity.starts_with(b"NVMe0") => "right",
            _ => panic!("a key was found under an identity that was not made for it"),
        });
    });
    if !rounds::is_replay() {
        assert_eq!(marks.len(), 3, "{marks:?}");
    }
}
