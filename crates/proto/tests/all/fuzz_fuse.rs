//! Fuzzes the parser of the kernel's requests for a file system with damaged messages and random
//! bytes. It neither panics nor takes anything that is not in the message.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::BTreeSet;

use nearflash_proto::fuse::{
    Agreement, HEAD_BYTES, NAME_BYTES_MAX, Operation, WRITE_BYTES_MAX, is_write, parse,
};

use crate::support::{Chance, Damage, rounds, variant_name as name};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 20_000;

/// The kinds of damage that the tests do to messages.
const DAMAGE: Damage = Damage {
    places_least: 0,
    telling: [0, 1, 2, 3, 4, 7, 8, 16, 0x2e, 0x2f, 0x7f, 0xff],
    copied: 44,
};

/// The opcodes of the kernel's requests, and the sizes in bytes of their fixed bodies.
const OPERATIONS: [(u32, usize); 45] = [
    (1, 0),
    (2, 8),
    (3, 16),
    (4, 88),
    (5, 0),
    (6, 0),
    (8, 16),
    (9, 8),
    (10, 0),
    (11, 0),
    (12, 8),
    (13, 8),
    (14, 8),
    (15, 40),
    (16, 40),
    (17, 0),
    (18, 24),
    (20, 16),
    (21, 8),
    (22, 8),
    (23, 8),
    (24, 0),
    (25, 24),
    (26, 64),
    (27, 8),
    (28, 40),
    (29, 24),
    (30, 16),
    (31, 48),
    (32, 48),
    (33, 48),
    (34, 8),
    (35, 16),
    (36, 8),
    (37, 16),
    (38, 0),
    (39, 32),
    (40, 24),
    (42, 8),
    (43, 32),
    (44, 40),
    (45, 16),
    (46, 24),
    (47, 56),
    (50, 8),
];

/// Returns a request of a random operation with random contents, whose head is well formed.
fn message(chance: &mut Chance) -> Vec<u8> {
    let (opcode, body) = chance.of(&OPERATIONS);
    let mut bytes = vec![0; 40 + body];
    bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
    bytes[8] = 6;
    bytes[16] = 1;
    for _ in 0..chance.below(6) {
        let at = 40 + chance.below(body.max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = chance.of(&[1, 2, 4, 7, 0x40, 0xff]);
        }
    }
    for _ in 0..chance.below(3) {
        let length = chance.of(&[1, 4, 255, 256, 300]);
        bytes.extend((0..length).map(|_| b'a' + chance.below(26) as u8));
        bytes.push(0);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Checks that a name of a parsed request keeps the promise of [`Operation`].
fn check_name(name: &[u8]) {
    assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "{name:?}");
    assert!(name != b"." && name != b".." && !name.contains(&0) && !name.contains(&b'/'));
}

fn check(operation: &Operation<'_>, behind: usize) {
    match operation {
        Operation::Lookup(name) | Operation::Unlink(name) | Operation::RmDir(name) => {
            check_name(name);
        }
        Operation::Symlink { name, target } => {
            check_name(name);
            assert!(!target.is_empty() && !target.contains(&0));
        }
        Operation::MkNod { name, .. }
        | Operation::MkDir { name, .. }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. } => check_name(name),
        Operation::Rename { name, new_name, .. } => {
            check_name(name);
            check_name(new_name);
        }
        Operation::Write { bytes, offset, .. } => {
            assert_eq!(*bytes as usize, behind);
            assert!(offset + u64::from(*bytes) <= i64::MAX as u64);
        }
        Operation::Forget(forgets) => assert!(forgets.iter().count() < 1000),
        Operation::Init(greeting) => {
            if let Ok(Some(agreed)) = Agreement::with(greeting) {
                assert!(agreed.minor >= 31 && agreed.reply(1).bytes().len() == 80);
            }
        }
        _ => {}
    }
}

#[test]
fn the_parser_stands_tampered_messages() {
    let mut marks = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| {
        let chance = &mut Chance(seed);
        let mut bytes = message(chance);
        chance.replace(&mut bytes, 200);
        if chance.flip() {
            DAMAGE.tamper(chance, &mut bytes);
        }
        if chance.flip() && bytes.len() >= 4 {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
        }
        let is_split = is_write(&bytes) && bytes.len() >= HEAD_BYTES;
        let (head, rest) = bytes.split_at(if is_split { HEAD_BYTES } else { bytes.len() });
        let mut head = head.to_vec();
        if is_split && chance.flip() {
            head[56..60].copy_from_slice(&(rest.len() as u32).to_ne_bytes());
        }
        assert!(rest.len() <= WRITE_BYTES_MAX as usize);
        match parse(&head, rest.len()) {
            Ok(request) => {
                check(&request.operation, rest.len());
                marks.insert(name(&request.operation));
            }
            Err(mistake) => {
                marks.insert(format!("{:?}", mistake.errno));
                marks.insert(format!("has reply: {}", mistake.unique.is_some()));
            }
        }
    });
    let reached = [
        "Init",
        "Lookup",
        "Forget",
        "SetAttr",
        "Symlink",
        "Rename",
        "Create",
        "Read",
        "Write",
        "ReadDir",
        "SetXattr",
        "Copy",
        "Other",
        "Errno(22)",
        "Errno(27)",
        "Errno(36)",
        "has reply: true",
        "has reply: false",
    ];
    for mark in reached {
        assert!(marks.contains(mark), "no round reached {mark}: {marks:?}");
    }
}
