//! Fuzzes an endpoint with random bytes, damaged and repeated packets, and a peer that knows the
//! cookie and lies. The endpoint does not panic, and all of its memory comes back.

use std::time::Duration;

use nearflash_packets::{Counters, Settings};
use wire::packets::{PacketHead, RecordHead, RecordKind};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::chance::Chance;
use crate::pair::{Arena, Pair, SMALL, peer_address, sealed};
use crate::rounds::rounds;

/// The number of rounds if the environment sets no time.
const ROUNDS: u64 = 600;

/// Returns a small number half of the time, otherwise a small negative number or any number.
fn telling(chance: &mut Chance) -> u32 {
    match chance.below(4) {
        0 => chance.next() as u32,
        1 => (chance.below(260) as u32).wrapping_neg(),
        _ => chance.below(140) as u32,
    }
}

/// Writes the length and the checksum into a packet's head.
pub(crate) fn seal(packet: &mut [u8]) {
    let bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&bytes.to_le_bytes());
    packet[36..40].fill(0);
    let crc = crc::Crc32c::of(packet);
    packet[36..40].copy_from_slice(&crc.to_le_bytes());
}

/// Returns a packet of a peer that knows the cookie: the head of a real packet with changed fields,
/// and random records.
fn lie(chance: &mut Chance, real: &[u8]) -> Vec<u8> {
    let (mut head, _) = PacketHead::read_from_prefix(real).unwrap();
    if chance.below(8) == 0 {
        head.version_kind = 0x10 | chance.below(8) as u8;
    }
    head.flags = chance.next() as u8 & !4;
    head.number = head.number.get().wrapping_add(telling(chance)).into();
    if chance.below(2) == 0 {
        head.highest = head.highest.get().wrapping_add(telling(chance)).into();
        head.before = chance.next().into();
    }
    head.held_us = (chance.next() as u16).into();
    head.credits = (chance.next() as u16).into();
    let mut packet = head.as_bytes().to_vec();
    for _ in 0..chance.below(12) {
        let bytes = [0, 1, 8, 100, 1000][chance.below(5)];
        let mut record = RecordHead::new_zeroed();
        record.channel = (telling(chance) as u16 % 40).into();
        record.kind = RecordKind(chance.below(8) as u8);
        record.flags = chance.below(2) as u8;
        record.message = telling(chance).into();
        record.behind = (telling(chance) as u16).into();
        record.offset = [0, telling(chance)][chance.below(2)].into();
        let bytes = if record.kind == RecordKind::DATA { bytes } else { 0 };
        record.bytes = (bytes as u16).into();
        if packet.len() + 16 + bytes > 9000 {
            break;
        }
        packet.extend_from_slice(record.as_bytes());
        packet.resize((packet.len() + bytes).next_multiple_of(8), 0xee);
    }
    seal(&mut packet);
    packet
}

/// Returns a packet made from real ones: random bytes, a repeated, cut or damaged packet, or a
/// [`lie`].
fn attack(chance: &mut Chance, tape: &[Vec<u8>]) -> Vec<u8> {
    let mut packet = tape[chance.below(tape.len())].clone();
    match chance.below(10) {
        0 => (0..chance.below(200)).map(|_| chance.next() as u8).collect(),
        1 => packet,
        2 => {
            packet.truncate(chance.below(packet.len()));
            packet
        }
        3 | 4 => {
            for _ in 0..=chance.below(4) {
                let at = chance.below(packet.len());
                packet[at] = chance.next() as u8;
            }
            // Half of them come with the right checksum.
            if chance.below(2) == 0 {
                packet[1] &= !4;
                seal(&mut packet);
            }
            packet
        }
        _ => lie(chance, &packet),
    }
}

/// Attacks one end of a pair while both talk, and returns the end's counters.
fn round(seed: u64, arena: &mut Arena) -> Counters {
    let mut chance = Chance(seed);
    let (holds_max, chunks_max) = [(128, 64), (6, 3)][chance.below(2)];
    // Every third pair is sealed, with keys that are soon used up.
    let sealed = if seed.is_multiple_of(3) { sealed(20) } else { None };
    let settings = Settings { holds_max, chunks_max, sealed, ..SMALL };
    let mut pair = Pair::new(&settings, arena);
    let victim = chance.below(2);
    let mut tape = Vec::new();
    for _ in 0..120 {
        let conn = pair.conn;
        if pair.ends[0].room() > 0 && chance.below(4) == 0 {
            let bytes = chance.below(12_000);
            pair.send(0, conn, bytes, arena);
        }
        match chance.below(12) {
            0 => pair.ends[0].pause(conn),
            1 => pair.ends[0].resume(conn),
            2 if chance.below(10) == 0 => pair.ends[0].finish(conn),
            3 if chance.below(10) == 0 => pair.ends[0].close(conn),
            _ => {}
        }
        for end in 0..2 {
            pair.ends[end].advance(pair.now);
            pair.follow(end, arena);
            for _ in 0..chance.below(4) {
                if pair.fetch(end) {
                    let wire = pair.wire.clone();
                    pair.hand(1 - end, peer_address(end), &wire, arena);
                    if end != victim {
                        tape.push(wire);
                    }
                }
            }
        }
        if !tape.is_empty() {
            let packet = attack(&mut chance, &tape);
            let from = peer_address([1 - victim, 7][usize::from(chance.below(6) == 0)]);
            pair.hand(victim, from, &packet, arena);
        }
        pair.now = pair.now + Duration::from_micros([10, 100, 3_000][chance.below(3)]);
    }
    let counters = pair.ends[victim].counters();
    for _ in 0..10 {
        let association = pair.association;
        pair.ends[0].hang_up(association);
        pair.now = pair.now + Duration::from_secs(26);
        pair.settle(arena);
    }
    for end in &pair.ends {
        assert!(end.is_at_rest(), "nothing is taken of an endpoint without associations");
    }
    assert!(arena.is_whole(), "every buffer is back");
    counters
}

#[test]
fn endpoints_stand_liars_and_noise() {
    let mut arena = Arena::default();
    let mut sum = [0; 4];
    rounds(ROUNDS, |seed| {
        let counters = round(seed, &mut arena);
        let reached = [counters.malformed, counters.unknown, counters.repeated, counters.refused];
        sum.iter_mut().zip(reached).for_each(|(sum, reached)| *sum += reached);
    });
    assert!(sum.iter().all(|reached| *reached > 0), "the rounds reach every refusal: {sum:?}");
}
