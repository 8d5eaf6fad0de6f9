//! Fuzzes NVMe over TCP. Both ends, joined by a pipe that cuts at any byte, understand each other.
//! Damaged streams, and random bytes, make neither end panic or hang.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::BTreeSet;

use crate::nvme_tcp_pair::{BLOCKS, DEPTH, Pair, Target, any_digests, feed_cut, ranged};
use crate::support::{Chance, Damage, rounds, variant_name as name};
use contract::{BLOCK_BYTES, Status, UnsolicitedOutput};
use nearflash_proto::nvme_tcp::{HostEvent, TransferSizes};
use wire::nvme::{DiscardRange, NvmOpcode, SglDescriptor, Submission};
use zerocopy::IntoBytes;

/// The number of rounds if no time is given.
const ROUNDS: u64 = 300;

/// The number of commands in a round.
const COMMANDS: usize = 60;

/// The kinds of damage that the tests do to streams.
const DAMAGE: Damage =
    Damage { places_least: 1, telling: [0, 1, 2, 3, 4, 6, 7, 8, 9, 0x18, 0x48, 0xff], copied: 96 };

/// Calls `round` with one seed after the other.
fn rounds(mut round: impl FnMut(&mut Chance)) {
    rounds::rounds(ROUNDS, |seed| round(&mut Chance(seed)));
}

/// The host's record of a command in progress.
struct SentCommand {
    opcode: NvmOpcode,
    from: usize,
    data: Vec<u8>,
    good: bool,
}

/// Checks that the event has the data which the host expected next (identifier, offset, length), if
/// `here` bytes of the input have come.
fn check_expected(
    expected: Option<(u16, usize, usize)>,
    here: usize,
    event: Option<&HostEvent<'_>>,
) {
    if let (Some((cid, at, bytes)), 1..) = (expected, here) {
        let found = match event {
            Some(HostEvent::Data { cid, offset, bytes }) => Some((*cid, *offset, bytes.len())),
            _ => None,
        };
        assert_eq!(found, Some((cid, at, bytes.min(here))), "{event:?}");
    }
}

/// A host and a target, with a model of what the host has written. Each command in progress uses
/// its own blocks, so their order does not matter.
struct Conversation {
    pair: Pair,
    model: Vec<u8>,
    sent: Vec<Option<SentCommand>>,
    ended: usize,
}

impl Conversation {
    fn begin(chance: &mut Chance) -> Conversation {
        let digests = any_digests(chance);
        Conversation {
            pair: Pair::connect(chance, digests),
            model: vec![0; BLOCKS * BLOCK_BYTES],
            sent: (0..DEPTH).map(|_| None).collect(),
            ended: 0,
        }
    }

    /// Sends a random command, if an identifier is free.
    fn command(&mut self, chance: &mut Chance, out: &mut Vec<u8>) {
        let Some(cid) = (0..DEPTH).find(|cid| self.sent[usize::from(*cid)].is_none()) else {
            return;
        };
        let blocks = [1, 2, 8, 16, 17, 64][chance.below(6)];
        let lba = u64::from(cid) * 64 + chance.below(65 - blocks) as u64;
        let good = chance.below(12) > 0;
        let lba = if good { lba } else { 1 << 30 };
        let opcodes = [
            NvmOpcode::READ,
            NvmOpcode::WRITE,
            NvmOpcode::WRITE,
            NvmOpcode::FLUSH,
            NvmOpcode::WRITE_ZEROES,
            NvmOpcode::VERIFY,
            NvmOpcode::DATASET_MANAGEMENT,
        ];
        let opcode = opcodes[chance.below(opcodes.len())];
        let mut entry = ranged(opcode, cid, lba, blocks as u32);
        let bytes = blocks * BLOCK_BYTES;
        let mut carried = TransferSizes::default();
        let mut data = Vec::new();
        match opcode {
            NvmOpcode::READ => carried.receives = bytes,
            NvmOpcode::WRITE => data = chance.bytes(bytes),
            NvmOpcode::DATASET_MANAGEMENT => {
                entry = Submission::new(opcode.0, cid, 1);
                entry.dword11 = 4.into();
                let first = (blocks as u32).div_ceil(2);
                let mut push = |lba: u64, blocks: u32| {
                    let range = DiscardRange {
                        attributes: 0.into(),
                        blocks: blocks.into(),
                        lba: lba.into(),
                    };
                    data.extend_from_slice(range.as_bytes());
                };
                push(lba, first);
                if blocks > 1 {
                    push(lba + u64::from(first), blocks as u32 - first);
                    entry.dword10 = 1.into();
                }
            }
            _ => {}
        }
        let travels = !data.is_empty() && data.len() <= 8192 && chance.flip();
        let length = data.len().max(carried.receives) as u32;
        entry.data = match travels {
            true => SglDescriptor::in_capsule(0, length),
            false => SglDescriptor::transport(length),
        };
        let capsule = if travels { &data[..] } else { &[] };
        carried.sends = if travels { 0 } else { data.len() };
        self.pair.host.command(&entry, carried, capsule, out);
        let is_write = opcode == NvmOpcode::WRITE;
        let clears = [NvmOpcode::WRITE_ZEROES, NvmOpcode::DATASET_MANAGEMENT].contains(&opcode);
        let from = lba as usize * BLOCK_BYTES;
        if good && is_write {
            self.model[from..from + bytes].copy_from_slice(&data);
        } else if good && clears {
            self.model[from..from + bytes].fill(0);
        }
        if opcode == NvmOpcode::READ {
            data = vec![0; bytes];
        }
        self.sent[usize::from(cid)] = Some(SentCommand { opcode, from, data, good });
    }

    /// Passes the target's output to the host, in pieces of any length.
    fn hear(&mut self, chance: &mut Chance, out: &mut Vec<u8>) {
        let heard = std::mem::take(&mut self.pair.target.out);
        let mut rest = &heard[..];
        while !rest.is_empty() {
            let (mut piece, left) = rest.split_at((1 + chance.below(9000)).min(rest.len()));
            loop {
                let (expected, here) = (self.pair.host.expects(), piece.len());
                let event = self.pair.host.next_event(&mut piece).expect("it speaks well");
                check_expected(expected, here, event.as_ref());
                let Some(event) = event else { break };
                match event {
                    HostEvent::Data { cid, offset, bytes } => {
                        let sent = self.sent[usize::from(cid)].as_mut().expect("it was sent");
                        sent.data[offset..offset + bytes.len()].copy_from_slice(bytes);
                    }
                    HostEvent::Ready(ready) => {
                        let sent = self.sent[usize::from(ready.cid)].as_ref().expect("it was sent");
                        let mut data = &sent.data[ready.offset..ready.offset + ready.bytes];
                        while !data.is_empty() {
                            let (head, bytes) = self.pair.host.data(&ready, data);
                            out.extend_from_slice(head.bytes());
                            out.extend_from_slice(&data[..bytes]);
                            out.extend_from_slice(head.tail());
                            data = &data[bytes..];
                        }
                    }
                    HostEvent::Ended { completion, data } => {
                        let cid = usize::from(completion.cid.get());
                        let sent = self.sent[cid].take().expect("it was sent");
                        let has_range = sent.opcode != NvmOpcode::FLUSH;
                        let expected = sent.good || !has_range;
                        assert_eq!(completion.status().is_ok(), expected, "{completion:?}");
                        assert_eq!(data, Status::Ok);
                        if sent.opcode == NvmOpcode::READ && sent.good {
                            let is = &self.model[sent.from..sent.from + sent.data.len()];
                            assert!(sent.data == is, "something else was read");
                        }
                        self.ended += 1;
                    }
                    HostEvent::Open => panic!("it was open"),
                }
            }
            rest = left;
        }
    }

    /// Passes the host's output to the target, and keeps a copy.
    fn say(&mut self, chance: &mut Chance, out: &mut Vec<u8>) {
        self.pair.said.extend_from_slice(out);
        feed_cut(&mut self.pair.target, chance, out);
        assert_eq!(self.pair.target.ended, None);
        out.clear();
    }

    fn run(&mut self, chance: &mut Chance, commands: usize) {
        let mut out = Vec::new();
        let mut left = commands;
        while self.ended < commands {
            for _ in 0..chance.below(5).min(left) {
                let before = out.len();
                self.command(chance, &mut out);
                left -= usize::from(out.len() > before);
            }
            self.say(chance, &mut out);
            for _ in 0..chance.below(6) {
                self.pair.target.work(chance);
            }
            self.hear(chance, &mut out);
            self.say(chance, &mut out);
        }
        assert!(self.pair.target.is_at_rest() && self.pair.target.session.unsaid() == 0);
    }
}

#[test]
fn both_ends_understand_each_other() {
    rounds(|chance| Conversation::begin(chance).run(chance, COMMANDS));
}

#[test]
fn targets_stand_tampered_streams() {
    let mut marks = BTreeSet::new();
    rounds(|chance| {
        let mut conversation = Conversation::begin(chance);
        let mut bytes = Vec::new();
        for _ in 0..1 + chance.below(8) {
            conversation.command(chance, &mut bytes);
        }
        chance.replace(&mut bytes, 300);
        DAMAGE.tamper(chance, &mut bytes);
        if chance.below(12) == 0 {
            bytes.splice(0..0, conversation.pair.host.greeting());
        }
        let target = &mut conversation.pair.target;
        // R2Ts come in between, so that damaged bytes may be data, too.
        for piece in bytes.chunks(1 + chance.below(2000)) {
            target.feed(piece);
            while chance.below(4) > 0 && target.work(chance) {}
        }
        marks.insert(target.ended.as_ref().map_or("goes on".to_owned(), name));
    });
    for mark in ["goes on", "BadField", "OutOfOrder", "TooMuch", "BadHeader"] {
        assert!(marks.contains(mark), "no round reached {mark}: {marks:?}");
    }
}

#[test]
fn targets_stand_tampered_beginnings() {
    rounds(|chance| {
        let (mut target, _) = Target::new();
        let host = nearflash_proto::nvme_tcp::HostSession::new(any_digests(chance), DEPTH);
        let mut bytes = host.greeting().to_vec();
        let len = chance.below(200);
        bytes.extend(chance.bytes(len));
        DAMAGE.tamper(chance, &mut bytes);
        feed_cut(&mut target, chance, &bytes);
    });
}

#[test]
fn hosts_stand_tampered_streams() {
    let mut marks = BTreeSet::new();
    rounds(|chance| {
        let mut conversation = Conversation::begin(chance);
        let mut out = Vec::new();
        for _ in 0..1 + chance.below(8) {
            conversation.command(chance, &mut out);
        }
        conversation.say(chance, &mut out);
        while conversation.pair.target.work(chance) {}
        let mut bytes = std::mem::take(&mut conversation.pair.target.out);
        chance.replace(&mut bytes, 300);
        DAMAGE.tamper(chance, &mut bytes);
        let mut input = &bytes[..];
        let host = &mut conversation.pair.host;
        loop {
            let (expected, here) = (host.expects(), input.len());
            match host.next_event(&mut input) {
                Ok(Some(event)) => check_expected(expected, here, Some(&event)),
                Ok(None) => {
                    check_expected(expected, here, None);
                    assert!(input.is_empty(), "bytes left behind");
                    marks.insert("goes on".to_owned());
                    break;
                }
                Err(fatal) => {
                    assert!(expected.is_none() || here == 0, "data cannot be wrong");
                    marks.insert(name(&fatal));
                    assert!(host.last_words().len() <= 152);
                    break;
                }
            }
        }
    });
    for mark in ["goes on", "BadField", "OutOfRange", "BadHeader"] {
        assert!(marks.contains(mark), "no round reached {mark}: {marks:?}");
    }
}
