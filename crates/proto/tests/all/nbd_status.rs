//! Tests of the block status over NBD (`base:allocation`): its negotiation, byte for byte, and its
//! answers. No device reports its holes, so all blocks are allocated.

use std::collections::BTreeMap;

use wire::nbd::{BASE_ALLOCATION, CommandKind, OptionKind, OptionReply, command_flag, errno};

use crate::nbd_client::{
    Answer, answers, hello, hello_with_status, named, option, option_replies, queries, request,
};
use crate::nbd_rig::Rig;

/// The size of the export in blocks: more than one command of a device can have.
const BLOCKS: usize = 8192;

/// Returns a server with a client that has chosen the first export and its block status.
fn chosen() -> Rig {
    let mut rig = Rig::new(BLOCKS);
    rig.receive(&hello_with_status("first"));
    rig.output.clear();
    rig
}

/// Returns the answer to a request for the block status of a range.
fn status(rig: &mut Rig, flags: u16, offset: u64, bytes: u32) -> Answer {
    rig.output.clear();
    rig.receive(&request(CommandKind::BLOCK_STATUS, flags, 7, offset, bytes));
    rig.answer_all();
    let mut all = answers(&rig.output, &BTreeMap::new());
    let answer = all.remove(&7).expect("it is answered");
    assert!(answer.is_done && all.is_empty(), "{answer:?} {all:?}");
    answer
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the types and the data of the replies to an option that follows the options `before`.
fn replies(before: &[Vec<u8>], kind: OptionKind, data: &[u8]) -> Vec<(OptionReply, Vec<u8>)> {
    let mut rig = Rig::new(8);
    rig.receive(&[0, 0, 0, 3]);
    rig.receive(&before.concat());
    rig.output.clear();
    rig.receive(&option(kind, data));
    let (mut bytes, mut all) = (&rig.output[..], Vec::new());
    while !bytes.is_empty() {
        let (option, reply, data) = option_replies(&mut bytes, 1).remove(0);
        assert_eq!(option, kind.0);
        all.push((reply, data));
    }
    all
}

#[test]
fn the_status_of_blocks_byte_for_byte() {
    let mut rig = Rig::new(2048);
    rig.receive(&[0, 0, 0, 3]);
    rig.receive(&option(OptionKind::STRUCTURED_REPLY, &[]));
    rig.output.clear();
    rig.receive(&option(OptionKind::SET_META_CONTEXT, &queries("first", &[BASE_ALLOCATION])));
    let context = "0003e889045565a9 0000000a 00000004 00000013 00000001
                   626173653a616c6c6f636174696f6e";
    let ack = "0003e889045565a9 0000000a 00000001 00000000";
    let said = [context, ack].concat().replace([' ', '\n'], "");
    assert_eq!(hex(&rig.output), said);
    rig.receive(&option(OptionKind::GO, &named("first")));
    rig.output.clear();
    rig.receive(&request(CommandKind::BLOCK_STATUS, command_flag::REQ_ONE, 5, 512, 4096));
    let chunk = "668e33ef 0001 0005 0000000000000005 0000000c 00000001 00001000 00000000";
    assert_eq!(hex(&rig.output), chunk.replace(' ', ""));
}

#[test]
fn contexts_are_listed_and_chosen_by_their_names() {
    let structured = [option(OptionKind::STRUCTURED_REPLY, &[])];
    let (list, set) = (OptionKind::LIST_META_CONTEXT, OptionKind::SET_META_CONTEXT);
    let (context, ack) = (OptionReply::META_CONTEXT, OptionReply::ACK);
    let found: &[OptionReply] = &[context, ack];
    let cases: [(OptionKind, &str, &[&str], &[OptionReply]); 10] = [
        (list, "first", &[], found),
        (list, "first", &["base:"], found),
        (list, "second", &["x:y", BASE_ALLOCATION], found),
        (list, "first", &["qemu:"], &[ack]),
        (list, "none", &[], &[OptionReply::UNKNOWN]),
        (set, "first", &[], &[ack]),
        (set, "first", &["base:"], &[ack]),
        (set, "first", &["x:y", BASE_ALLOCATION, BASE_ALLOCATION], found),
        (set, "third", &[BASE_ALLOCATION], &[OptionReply::POLICY]),
        (set, "none", &[BASE_ALLOCATION], &[OptionReply::UNKNOWN]),
    ];
    for (kind, name, names, expected) in cases {
        let all = replies(&structured, kind, &queries(name, names));
        let kinds: Vec<OptionReply> = all.iter().map(|reply| reply.0).collect();
        assert_eq!(kinds, expected, "{kind:?} {name} {names:?}");
        // Lists have no numbers.
        let number = [0, 0, 0, u8::from(kind == set)];
        assert!(all[0].1.is_empty() || all[0].1[..4] == number, "{all:?}");
    }
    let simple = replies(&[], set, &queries("first", &[BASE_ALLOCATION]));
    assert_eq!(simple[0].0, OptionReply::INVALID, "structured replies come first");
    let good = queries("first", &[BASE_ALLOCATION]);
    let longer = [&good[..], &[0]].concat();
    let unreal = [&queries("first", &[])[..9], &[0xff; 4]].concat();
    for bad in [&good[..good.len() - 1], &longer, &unreal, &[], &[0xff; 8]] {
        assert_eq!(replies(&structured, set, bad), [(OptionReply::INVALID, Vec::new())]);
    }
}

#[test]
fn all_blocks_are_allocated() {
    let mut rig = chosen();
    for (offset, bytes) in [(0, 512), (512, 4096), (0, BLOCKS as u32 * 512)] {
        for flags in [0, command_flag::REQ_ONE] {
            let answer = status(&mut rig, flags, offset, bytes);
            assert_eq!((answer.error, answer.extents), (0, vec![(bytes, 0)]));
        }
    }
    for (flags, offset, bytes) in
        [(0, 0, 0), (0, 1, 512), (0, 0, 100), (0, (BLOCKS as u64 - 1) * 512, 1024), (0x20, 0, 512)]
    {
        let answer = status(&mut rig, flags, offset, bytes);
        assert_eq!((answer.error, answer.extents.len()), (errno::EINVAL, 0), "{offset} {bytes}");
    }
}

#[test]
fn a_status_needs_a_choice_of_the_same_export() {
    let set = |name, names: &[&str]| option(OptionKind::SET_META_CONTEXT, &queries(name, names));
    let all = &[BASE_ALLOCATION];
    let cases: [(&[Vec<u8>], bool); 6] = [
        (&[], false),
        (&[set("first", all)], true),
        (&[set("", all)], true),
        (&[set("second", all)], false),
        (&[set("first", all), set("first", &[])], false),
        (&[set("first", all), set("none", all)], false),
    ];
    for (sets, has_status) in cases {
        let mut rig = Rig::new(8);
        rig.receive(&[0, 0, 0, 3]);
        rig.receive(&option(OptionKind::STRUCTURED_REPLY, &[]));
        rig.receive(&sets.concat());
        rig.receive(&option(OptionKind::GO, &named("first")));
        let error = if has_status { 0 } else { errno::EINVAL };
        assert_eq!(status(&mut rig, 0, 0, 512).error, error, "{sets:?}");
    }
    let mut rig = Rig::new(8);
    rig.receive(&hello("first", true));
    assert_eq!(status(&mut rig, 0, 0, 512).error, errno::EINVAL);
}

/// Asks for the block status many times without waiting for answers, between other requests, on a
/// connection that moves.
#[test]
fn a_status_passes_what_the_device_is_busy_with() {
    let mut rig = chosen();
    rig.moves = true;
    let mut stream = request(CommandKind::READ, 0, 1, 0, 3 << 20);
    for cookie in 10..30 {
        stream.extend(request(CommandKind::BLOCK_STATUS, 0, cookie, 0, 1 << 20));
    }
    stream.extend(request(CommandKind::READ, 0, 2, 0, 512));
    stream.extend(request(CommandKind::DISC, 0, 3, 0, 0));
    for byte in stream {
        rig.receive(&[byte]);
    }
    let first = answers(&rig.output, &BTreeMap::new());
    assert_eq!(first.keys().copied().collect::<Vec<_>>(), (10..30).collect::<Vec<_>>());
    rig.answer_all();
    let all = answers(&rig.output, &BTreeMap::new());
    assert_eq!(all.len(), 22);
    assert!(all.values().all(|answer| answer.is_done && answer.error == 0), "{all:?}");
    assert!(all[&20].extents == [(1 << 20, 0)] && all[&2].data[&0].len() == 512);
}
