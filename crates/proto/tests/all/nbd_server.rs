//! Tests of NBD at the server: the negotiation byte for byte, and the replies to requests.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::{Instant, ProtocolError, Range, Status};
use nearflash_proto::nbd::{HANDSHAKE_TIME, OPTIONS_BYTES_MAX};
use wire::nbd::{CommandKind, OptionKind, OptionReply, command_flag, errno, export_flag};

use crate::nbd_client::{Answer, answers, hello, named, option, option_replies, request};
use crate::nbd_rig::Rig;
use crate::support::{Chance, cut};

const MIB: u32 = 1 << 20;

/// Returns a server with a client that has chosen the first export.
fn chosen(blocks: usize, structured: bool) -> Rig {
    let mut rig = Rig::new(blocks);
    rig.receive(&hello("first", structured));
    rig.output.clear();
    rig
}

/// Returns the answer to one request, whose data follows if it is a write.
fn ask(rig: &mut Rig, command: CommandKind, flags: u16, offset: u64, bytes: u32) -> Answer {
    rig.output.clear();
    rig.receive(&request(command, flags, 7, offset, bytes));
    if command == CommandKind::WRITE {
        rig.receive(&vec![9; bytes as usize]);
    }
    rig.answer_all();
    let reads = match command {
        CommandKind::READ => BTreeMap::from([(7, (offset, bytes))]),
        _ => BTreeMap::new(),
    };
    let mut all = answers(&rig.output, &reads);
    let answer = all.remove(&7).expect("it is answered");
    assert!(answer.is_done && all.is_empty(), "{answer:?} {all:?}");
    answer
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_negotiation_byte_for_byte() {
    let mut rig = Rig::new(2048);
    assert_eq!(hex(&rig.output), "4e42444d41474943 49484156454f5054 0003".replace(' ', ""));
    rig.output.clear();
    rig.receive(&[0, 0, 0, 3]);
    rig.receive(&option(OptionKind::GO, &named("first")));
    let export = "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 0d6d";
    let sizes = "0003e889045565a9 00000007 00000003 0000000e 0003 00000200 00001000 00100000";
    let ack = "0003e889045565a9 00000007 00000001 00000000";
    assert_eq!(hex(&rig.output), [export, sizes, ack].concat().replace(' ', ""));
    rig.output.clear();
    rig.volume[512] = 0xab;
    rig.receive(&request(CommandKind::READ, 0, 0x0102, 512, 512));
    rig.answer_all();
    let reply = "67446698 00000000 0000000000000102 ab".replace(' ', "");
    assert_eq!((hex(&rig.output[..17]), rig.output.len()), (reply, 16 + 512));
}

#[test]
fn a_structured_read_byte_for_byte() {
    let mut rig = chosen(2048, true);
    rig.receive(&request(CommandKind::READ, command_flag::DF, 5, 1024, 512));
    rig.answer_all();
    let head = "668e33ef 0001 0001 0000000000000005 00000208 0000000000000400".replace(' ', "");
    assert_eq!((hex(&rig.output[..28]), rig.output.len()), (head, 28 + 512));
    rig.output.clear();
    rig.receive(&request(CommandKind::READ, 0, 6, 1 << 20, 512));
    rig.answer_all();
    let error = "668e33ef 0001 8001 0000000000000006 00000006 00000016 0000".replace(' ', "");
    assert_eq!(hex(&rig.output), error);
}

#[test]
fn the_old_way_to_choose_has_zeroes_unless_they_are_left_out() {
    for (flags, bytes) in [(1, 10 + 124), (3, 10)] {
        let mut rig = Rig::new(8);
        rig.output.clear();
        rig.receive(&[0, 0, 0, flags]);
        rig.receive(&option(OptionKind::EXPORT_NAME, b""));
        assert_eq!(rig.output.len(), bytes);
        assert_eq!(hex(&rig.output[..10]), "0000000000001000 0d6d".replace(' ', ""));
        assert_eq!(ask(&mut rig, CommandKind::READ, 0, 0, 512).error, 0);
    }
    let mut rig = Rig::new(8);
    rig.receive(&[0, 0, 0, 3]);
    rig.receive(&option(OptionKind::EXPORT_NAME, b"none"));
    assert_eq!(rig.ended, Some(ProtocolError::Unanswerable(Status::NoNamespace)));
}

#[test]
fn options_are_answered_in_their_order() {
    let mut rig = Rig::new(8);
    rig.output.clear();
    let none = [0, 0, 0, 0, 0];
    let options = [
        option(OptionKind::STARTTLS, &[]),
        option(OptionKind::LIST, &[]),
        option(OptionKind::LIST, b"x"),
        option(OptionKind::GO, &named("none")),
        option(OptionKind::GO, &named("third")),
        option(OptionKind::GO, &none),
        option(OptionKind::SET_META_CONTEXT, &none),
        option(OptionKind::STRUCTURED_REPLY, b"x"),
        option(OptionKind::INFO, &named("second")),
        option(OptionKind(77), b"data"),
    ];
    rig.receive(&[0, 0, 0, 3]);
    rig.receive(&options.concat());
    let mut bytes = &rig.output[..];
    let replies = option_replies(&mut bytes, 14);
    assert!(bytes.is_empty());
    let kinds: Vec<OptionReply> = replies.iter().map(|reply| reply.1).collect();
    let (ack, server, info) = (OptionReply::ACK, OptionReply::SERVER, OptionReply::INFO);
    let (unsupported, invalid) = (OptionReply::UNSUPPORTED, OptionReply::INVALID);
    let (unknown, policy) = (OptionReply::UNKNOWN, OptionReply::POLICY);
    let said = [unsupported, server, server, ack, invalid, unknown, policy, invalid];
    let then = [invalid, invalid, info, info, ack, unsupported];
    assert_eq!(kinds, [&said[..], &then].concat());
    assert_eq!(replies[1].2, b"\0\0\0\x05first");
    let flags = u16::from_be_bytes(replies[10].2[10..].try_into().unwrap());
    assert!(flags & export_flag::READ_ONLY != 0 && flags & export_flag::SEND_TRIM == 0);
    rig.output.clear();
    rig.receive(&option(OptionKind::ABORT, &[]));
    assert_eq!(option_replies(&mut &rig.output[..], 1)[0].1, ack);
    rig.attend();
    assert_eq!(rig.ended, Some(ProtocolError::Ended(0)));
}

#[test]
fn a_negotiation_has_bounds() {
    let mut rig = Rig::new(8);
    rig.receive(&[0, 0, 0, 3]);
    rig.receive(&option(OptionKind(77), &vec![0; OPTIONS_BYTES_MAX / 2]));
    assert_eq!(rig.ended, None);
    rig.receive(&option(OptionKind(77), &vec![0; OPTIONS_BYTES_MAX / 2]));
    assert_eq!(rig.ended, Some(ProtocolError::TooMuch));
    let mut rig = Rig::new(8);
    rig.receive(&[0, 0, 0, 4]);
    assert_eq!(rig.ended, Some(ProtocolError::BadField(0)));
    let mut rig = Rig::new(8);
    rig.now = rig.now + HANDSHAKE_TIME;
    rig.attend();
    assert_eq!(rig.ended, None);
    rig.now = rig.now + Duration::from_nanos(1);
    rig.attend();
    assert_eq!(rig.ended, Some(ProtocolError::Ended(1)));
    let mut rig = chosen(8, true);
    rig.now = Instant::from_nanos(u64::MAX);
    rig.attend();
    assert_eq!(rig.ended, None, "whoever has chosen may wait");
}

#[test]
fn what_cannot_be_is_refused_and_the_connection_stays() {
    let mut rig = chosen(4096, true);
    let refused = [
        (CommandKind::READ, 0, 0, 0, errno::EINVAL),
        (CommandKind::READ, 0, 1, 512, errno::EINVAL),
        (CommandKind::READ, 0, 0, 513, errno::EINVAL),
        (CommandKind::READ, 0, 0, 33 * MIB, errno::EINVAL),
        (CommandKind::READ, 0x20, 0, 512, errno::EINVAL),
        (CommandKind::READ, command_flag::DF, 0, 2 * MIB, errno::EOVERFLOW),
        (CommandKind::READ, 0, 2 << 20, 512, errno::EINVAL),
        (CommandKind::WRITE, 0, 2 << 20, 512, errno::ENOSPC),
        (CommandKind::WRITE, 0, 0, 100, errno::EINVAL),
        (CommandKind::WRITE, 0, 0, 33 * MIB, errno::EINVAL),
        (CommandKind::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512, errno::ENOTSUP),
        (CommandKind::TRIM, command_flag::NO_HOLE, 0, 512, errno::EINVAL),
        (CommandKind::CACHE, 0, 2 << 20, 512, errno::EINVAL),
        (CommandKind::FLUSH, 0, 512, 0, errno::EINVAL),
        (CommandKind::BLOCK_STATUS, 0, 0, 512, errno::EINVAL),
        (CommandKind(99), 0, 0, 512, errno::EINVAL),
    ];
    for (command, flags, offset, bytes, error) in refused {
        let answer = ask(&mut rig, command, flags, offset, bytes);
        assert_eq!((answer.error, answer.data.len()), (error, 0), "{command:?} {offset} {bytes}");
    }
    assert!(rig.volume.iter().all(|byte| *byte == 0));
    let fua = command_flag::FUA;
    let taken = [
        (CommandKind::READ, fua, 0, MIB),
        (CommandKind::WRITE, fua, 0, 512),
        (CommandKind::TRIM, fua, 0, 2 * MIB),
        (CommandKind::WRITE_ZEROES, command_flag::NO_HOLE | fua, 0, 2 * MIB),
        (CommandKind::CACHE, 0, 0, 512),
        (CommandKind::FLUSH, 0, 0, 0),
    ];
    for (command, flags, offset, bytes) in taken {
        assert_eq!(ask(&mut rig, command, flags, offset, bytes).error, 0, "{command:?}");
    }
    let mut simple = chosen(4096, false);
    assert_eq!(ask(&mut simple, CommandKind::READ, command_flag::DF, 0, 512).error, errno::EINVAL);
}

#[test]
fn a_stranger_to_the_protocol_is_cut_off() {
    let mut rig = chosen(8, true);
    rig.receive(&[0x55; 28]);
    assert_eq!(rig.ended, Some(ProtocolError::BadMagic(0x5555)));
    let mut rig = chosen(8192, true);
    rig.receive(&request(CommandKind::TRIM, 0, 7, 0, 2 * MIB));
    rig.receive(&request(CommandKind::READ, 0, 7, 0, 512));
    assert_eq!(rig.ended, Some(ProtocolError::UnknownTag(7)), "two requests have one cookie");
}

#[test]
fn a_goodbye_waits_for_what_came_before() {
    let mut rig = chosen(8192, true);
    rig.receive(&request(CommandKind::READ, 0, 1, 0, 3 * MIB));
    rig.receive(&request(CommandKind::DISC, 0, 2, 0, 0));
    for _ in 0..3 {
        assert_eq!(rig.ended, None);
        assert!(rig.answer(false));
    }
    assert_eq!(rig.ended, Some(ProtocolError::Ended(0)));
    let all = answers(&rig.output, &BTreeMap::new());
    assert_eq!(all[&1].bytes().len(), 3 << 20);
}

#[test]
fn a_large_read_with_a_broken_part_fails_as_a_whole() {
    for (broken, pieces) in [(0, 2), (1, 2), (2, 2)] {
        for newest in [false, true] {
            let mut rig = chosen(8192, true);
            rig.broken = Range::new(broken * 2048, 1);
            rig.receive(&request(CommandKind::READ, 0, 1, 0, 3 * MIB));
            while rig.answer(newest) {}
            let answer = &answers(&rig.output, &BTreeMap::new())[&1];
            assert!(answer.is_done);
            assert_eq!((answer.error, answer.data.len()), (errno::EIO, pieces));
        }
    }
    // A simple reply can report an error of its first piece alone.
    let mut rig = chosen(8192, false);
    rig.broken = Range::new(0, 1);
    assert_eq!(ask(&mut rig, CommandKind::READ, 0, 0, 3 * MIB).error, errno::EIO);
    assert_eq!(ask(&mut rig, CommandKind::READ, 0, 1 << 20, 3 * MIB).error, 0);
    rig.broken = Range::new(4096, 1);
    rig.receive(&request(CommandKind::READ, 0, 1, 0, 3 * MIB));
    rig.answer_all();
    assert_eq!(rig.ended, Some(ProtocolError::Unanswerable(Status::MediaError)));
}

#[test]
fn a_large_write_with_a_broken_part_fails_once() {
    let mut rig = chosen(8192, true);
    rig.broken = Range::new(2048, 1);
    assert_eq!(ask(&mut rig, CommandKind::WRITE, 0, 0, 3 * MIB).error, errno::EIO);
    assert_eq!((rig.volume[0], rig.volume[1 << 20], rig.volume[2 << 20]), (9, 0, 9));
}

/// Checks that the refusal of a write is sent only after the client has sent all its data, since
/// clients read no reply before.
#[test]
fn a_refusal_waits_for_the_data() {
    for (offset, bytes) in [(4 << 20, 4096), (0, 100), (0, 33 * MIB), ((4 << 20) - 512, 3 * MIB)] {
        let mut rig = chosen(8192, true);
        rig.receive(&request(CommandKind::READ, 0, 1, 0, 512));
        rig.receive(&request(CommandKind::WRITE, 0, 7, offset, bytes));
        rig.moves = true;
        rig.receive(&vec![1; bytes as usize - 1]);
        rig.answer_all();
        let all = answers(&rig.output, &BTreeMap::new());
        assert_eq!(all.keys().collect::<Vec<_>>(), [&1], "{offset} {bytes}");
        rig.receive(&[1]);
        rig.answer_all();
        let all = answers(&rig.output, &BTreeMap::new());
        assert!(all[&7].error != 0, "{offset} {bytes}");
        assert_eq!(ask(&mut rig, CommandKind::READ, 0, 0, 512).error, 0);
    }
}

#[test]
fn sixteen_requests_are_cut_at_a_time() {
    let mut rig = chosen(1 << 17, true);
    for cookie in 0..40 {
        rig.receive(&request(CommandKind::TRIM, 0, cookie, 0, 2 * MIB));
    }
    assert_eq!(rig.in_flight_max, 32);
    rig.answer_all();
    assert_eq!(answers(&rig.output, &BTreeMap::new()).len(), 40);
}

/// A request of a random conversation.
#[derive(Clone, Copy, Debug)]
struct Planned {
    command: CommandKind,
    flags: u16,
    offset: u64,
    bytes: u32,
    fill: u8,
}

fn planned(chance: &mut Chance, blocks: usize) -> Vec<Planned> {
    let commands = [
        CommandKind::READ,
        CommandKind::READ,
        CommandKind::WRITE,
        CommandKind::WRITE,
        CommandKind::TRIM,
        CommandKind::WRITE_ZEROES,
        CommandKind::FLUSH,
        CommandKind::CACHE,
    ];
    let count = 1 + chance.below(12);
    let wish = |chance: &mut Chance| {
        let command = chance.of(&commands);
        let first = chance.below(blocks);
        let most = if chance.flip() { 16 } else { blocks };
        let length = 1 + chance.below((blocks - first).min(most));
        let is_zeroes = command == CommandKind::WRITE_ZEROES && chance.flip();
        let (offset, bytes) = match command {
            CommandKind::FLUSH => (0, 0),
            _ => (first as u64 * 512, length as u32 * 512),
        };
        let flags = if is_zeroes { command_flag::NO_HOLE } else { 0 };
        Planned { command, flags, offset, bytes, fill: 1 + chance.below(255) as u8 }
    };
    (0..count).map(|_| wish(chance)).collect()
}

/// Compares the volume and the data read with a model that carries out one request after the other,
/// for random requests, cuts of the bytes and moves of the session.
#[test]
fn conversations_end_as_they_would_one_by_one() {
    const BLOCKS: usize = 5 * 2048 + 7;
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let planned = planned(&mut chance, BLOCKS);
        let structured = chance.flip();
        let mut rig = chosen(BLOCKS, structured);
        rig.moves = chance.flip();
        let mut model = vec![0; BLOCKS * 512];
        for (cookie, wish) in (0..).zip(&planned) {
            let mut bytes = request(wish.command, wish.flags, cookie, wish.offset, wish.bytes);
            let place = wish.offset as usize..wish.offset as usize + wish.bytes as usize;
            if wish.command == CommandKind::WRITE {
                bytes.resize(bytes.len() + wish.bytes as usize, wish.fill);
                model[place.clone()].fill(wish.fill);
            } else if matches!(wish.command, CommandKind::TRIM | CommandKind::WRITE_ZEROES) {
                model[place.clone()].fill(0);
            }
            rig.output.clear();
            for piece in cut(&mut chance, &bytes) {
                rig.receive(piece);
            }
            while rig.answer(chance.flip() && structured) {}
            let reads = match wish.command {
                CommandKind::READ => BTreeMap::from([(cookie, (wish.offset, wish.bytes))]),
                _ => BTreeMap::new(),
            };
            let all = answers(&rig.output, &reads);
            assert_eq!(all.len(), 1, "seed {seed}: {wish:?}");
            let answer = &all[&cookie];
            assert!(answer.is_done && answer.error == 0, "seed {seed}: {wish:?} {}", answer.error);
            if wish.command == CommandKind::READ {
                assert!(answer.bytes() == model[place], "seed {seed}: {wish:?}");
            }
        }
        assert!(rig.volume == model, "seed {seed}");
        assert!(rig.blocks_max <= 2048 && rig.ended.is_none());
    }
}

/// Checks that requests which are sent without waiting are all answered, also where a simple reply
/// delays others.
#[test]
fn requests_without_waiting_are_all_answered() {
    const BLOCKS: usize = 5 * 2048;
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let structured = chance.flip();
        let planned = planned(&mut chance, BLOCKS);
        let mut rig = chosen(BLOCKS, structured);
        rig.moves = chance.flip();
        let (mut stream, mut reads) = (Vec::new(), BTreeMap::new());
        for (cookie, wish) in (0..).zip(&planned) {
            stream.extend(request(wish.command, wish.flags, cookie, wish.offset, wish.bytes));
            match wish.command {
                CommandKind::WRITE => stream.resize(stream.len() + wish.bytes as usize, wish.fill),
                CommandKind::READ => drop(reads.insert(cookie, (wish.offset, wish.bytes))),
                _ => {}
            }
        }
        for piece in cut(&mut chance, &stream) {
            rig.receive(piece);
            if chance.below(4) == 0 {
                rig.answer(chance.flip());
            }
        }
        while rig.answer(chance.flip()) {}
        let all = answers(&rig.output, &reads);
        assert_eq!(all.len(), planned.len(), "seed {seed}");
        for (cookie, answer) in &all {
            assert!(answer.is_done && answer.error == 0, "seed {seed}: {cookie}");
            let length = reads.get(cookie).map_or(0, |(_, bytes)| *bytes as usize);
            assert_eq!(answer.bytes().len(), length, "seed {seed}: {cookie}");
        }
    }
}

#[test]
fn what_is_no_session_is_refused() {
    use contract::{MigratableSession, RestorableSession};
    use nearflash_proto::nbd::NbdSession;
    let mut rig = chosen(8192, true);
    rig.receive(&request(CommandKind::WRITE, 0, 7, 0, 3 * MIB));
    rig.receive(&[1; 700]);
    let good = rig.session.pack().unwrap();
    assert!(NbdSession::unpack(&good).is_some());
    for length in 0..good.len() {
        assert!(NbdSession::unpack(&good[..length]).is_none(), "the first {length} bytes");
    }
    let longer = [&good[..], &[0]].concat();
    assert!(NbdSession::unpack(&longer).is_none());
    for (place, value) in [(0, b'r'), (1, 2), (12, 3), (17, 2), (30, 2), (35, 200)] {
        let mut bad = good.clone();
        bad[place] = value;
        assert!(NbdSession::unpack(&bad).is_none(), "{value} at {place}");
    }
}
