//! Checks that violations of NVMe over TCP, and nothing else, end the connection with the error
//! that the specification names.

use crate::nvme_tcp_pair::{DEPTH, Pair, Target, connect_entry, ranged};
use crate::support::Chance;
use contract::{ProtocolError, TenantId};
use nearflash_proto::nvme_tcp::{Digests, HostEvent, HostSession, TransferSizes};
use wire::nvme::{Completion, NvmOpcode, SglDescriptor, Status as NvmeStatus, Submission};
use wire::nvme_tcp::Terminate;
use zerocopy::{FromBytes, IntoBytes};

const PLAIN: Digests = Digests { header: false, data: false };
const BOTH: Digests = Digests { header: true, data: true };

/// Creates a connected queue.
fn pair(digests: Digests) -> Pair {
    Pair::connect(&mut Chance(7), digests)
}

/// Returns the PDU of a command, with its data in the capsule.
fn capsule(pair: &mut Pair, entry: &Submission, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let receives = if entry.opcode == NvmOpcode::READ.0 { 512 } else { 0 };
    let sends = if data.is_empty() && entry.sends_data() { 1 << 20 } else { 0 };
    pair.host.command(
        entry,
        TransferSizes { receives, sends, ..TransferSizes::default() },
        data,
        &mut out,
    );
    out
}

/// Feeds bytes that must end the connection. Returns the status and the information of the TermReq.
#[track_caller]
fn ends(target: &mut Target, bytes: &[u8], fatal: ProtocolError) -> (u16, u32) {
    target.out.clear();
    target.feed(bytes);
    assert_eq!(target.ended, Some(fatal));
    let (head, rest) = Terminate::read_from_prefix(&target.out).expect("it says why");
    assert_eq!(head.common.pdu_type.0, 3);
    assert_eq!(head.common.pdu_bytes.get() as usize, target.out.len());
    assert!(rest.len() <= 128 && bytes.starts_with(&rest[..rest.len().min(8)]));
    (head.status.0.get(), head.information.get())
}

/// Carries out all waiting requests. Returns the identifiers and statuses of the completions.
fn completions(pair: &mut Pair) -> Vec<(u16, NvmeStatus)> {
    while pair.target.work(&mut Chance(1)) {}
    let said = std::mem::take(&mut pair.target.out);
    let mut input = &said[..];
    let mut ended = Vec::new();
    while let Some(event) = pair.host.next_event(&mut input).expect("it speaks well") {
        if let HostEvent::Ended { completion, .. } = event {
            ended.push((completion.cid.get(), completion.status().plain()));
        }
    }
    ended
}

#[test]
fn nothing_may_come_before_the_greeting() {
    let mut lent = pair(PLAIN);
    let read = capsule(&mut lent, &ranged(NvmOpcode::READ, 0, 0, 1), &[]);
    let (mut target, _) = Target::new();
    assert_eq!(ends(&mut target, &read, ProtocolError::OutOfOrder).0, 2);
    let (mut target, _) = Target::new();
    let mut data = [0u8; 28];
    data[..8].copy_from_slice(&[6, 4, 24, 24, 28, 0, 0, 0]);
    data[16] = 4;
    assert_eq!(ends(&mut target, &data, ProtocolError::OutOfOrder).0, 2);
}

#[test]
fn a_greeting_comes_once_and_is_sound() {
    let greeting = HostSession::new(PLAIN, DEPTH).greeting();
    let mut open = pair(PLAIN);
    assert_eq!(ends(&mut open.target, &greeting, ProtocolError::OutOfOrder).0, 2);
    for (at, value, fatal, expected) in [
        (2, 24, ProtocolError::BadField(2), (1, 2)),
        (4, 0, ProtocolError::BadField(4), (1, 4)),
        (8, 1, ProtocolError::BadField(8), (6, 8)),
        (10, 32, ProtocolError::BadField(10), (1, 10)),
        (10, 31, ProtocolError::BadField(10), (6, 10)),
    ] {
        let (mut target, _) = Target::new();
        let mut bytes = greeting;
        bytes[at] = value;
        assert_eq!(ends(&mut target, &bytes, fatal), expected, "byte {at} = {value}");
    }
}

#[test]
fn pdus_of_controllers_and_unknown_ones_are_refused() {
    for kind in [1, 3, 5, 7, 8, 9, 10, 0xff] {
        let mut open = pair(PLAIN);
        let bytes = [kind, 0, 24, 0, 24, 0, 0, 0];
        assert_eq!(
            ends(&mut open.target, &bytes, ProtocolError::BadField(0)),
            (1, 0),
            "type {kind}"
        );
    }
}

#[test]
fn lengths_and_offsets_of_capsules_are_checked() {
    type Changes = &'static [(usize, u8)];
    let cases: [(Changes, ProtocolError, (u16, u32)); 6] = [
        (&[(2, 71)], ProtocolError::BadField(2), (1, 2)),
        (&[(4, 71)], ProtocolError::BadField(3), (1, 3)),
        (&[(3, 70), (4, 76)], ProtocolError::BadField(3), (1, 3)),
        (&[(3, 73), (4, 80)], ProtocolError::BadField(3), (1, 3)),
        (&[(3, 80), (4, 80)], ProtocolError::BadField(4), (1, 4)),
        (&[(3, 72), (4, 0x4c), (5, 0x20)], ProtocolError::TooMuch, (5, 0)),
    ];
    for (changes, fatal, expected) in cases {
        let mut open = pair(PLAIN);
        let mut bytes = capsule(&mut open, &ranged(NvmOpcode::READ, 0, 0, 1), &[]);
        changes.iter().for_each(|(at, value)| bytes[*at] = *value);
        assert_eq!(ends(&mut open.target, &bytes, fatal), expected, "{changes:?}");
    }
}

#[test]
fn data_that_was_not_announced_is_skipped() {
    let mut open = pair(PLAIN);
    let mut bytes = capsule(&mut open, &ranged(NvmOpcode::READ, 0, 0, 1), &[]);
    bytes[3] = 72;
    bytes[5] = 1;
    bytes.extend([0; 256]);
    open.target.feed(&bytes);
    assert_eq!(completions(&mut open), [(0, NvmeStatus::SUCCESS)]);
}

#[test]
fn data_pointers_that_lie_are_told_so() {
    for (descriptor, data, expected) in [
        (SglDescriptor::in_capsule(0, 512), 256, NvmeStatus::DATA_SGL_LENGTH),
        (SglDescriptor::in_capsule(4, 512), 516, NvmeStatus::SGL_OFFSET),
        (SglDescriptor::in_capsule(0, 256), 256, NvmeStatus::DATA_SGL_LENGTH),
        (SglDescriptor::transport(1024), 0, NvmeStatus::DATA_SGL_LENGTH),
    ] {
        let mut open = pair(PLAIN);
        let mut entry = ranged(NvmOpcode::WRITE, 3, 0, 1);
        entry.data = descriptor;
        let bytes = capsule(&mut open, &entry, &vec![1; data]);
        open.target.feed(&bytes);
        assert_eq!(completions(&mut open), [(3, expected)], "{descriptor:?} with {data}");
        let flush = capsule(&mut open, &Submission::new(0, 4, 1), &[]);
        open.target.feed(&flush);
        assert_eq!(completions(&mut open), [(4, NvmeStatus::SUCCESS)], "it goes on");
    }
}

/// Creates a pair with a write of 4 KiB whose data was requested. Also returns the PDU with the
/// data, as the host would send it.
fn asked(digests: Digests) -> (Pair, Vec<u8>) {
    let mut open = pair(digests);
    let write = capsule(&mut open, &ranged(NvmOpcode::WRITE, 5, 0, 8), &[]);
    open.target.feed(&write);
    open.target.work(&mut Chance(1));
    let said = std::mem::take(&mut open.target.out);
    let event = open.host.next_event(&mut &said[..]).unwrap();
    let Some(HostEvent::Ready(ready)) = event else { panic!("{event:?}") };
    assert_eq!((ready.offset, ready.bytes), (0, 4096));
    let data = vec![9; 4096];
    let (head, _) = open.host.data(&ready, &data);
    let bytes = [head.bytes(), &data, head.tail()].concat();
    (open, bytes)
}

#[test]
fn data_that_was_asked_for_is_taken_once() {
    let (mut open, bytes) = asked(PLAIN);
    open.target.feed(&bytes);
    assert_eq!(completions(&mut open), [(5, NvmeStatus::SUCCESS)]);
    assert_eq!(ends(&mut open.target, &bytes, ProtocolError::BadField(10)), (1, 10));
}

#[test]
fn data_keeps_to_its_invitation() {
    for (at, value, fatal, expected) in [
        (8, 6, ProtocolError::BadField(8), (1, 8)),
        (10, 9, ProtocolError::BadField(10), (1, 10)),
        (13, 2, ProtocolError::OutOfRange, (4, 0)),
        (17, 8, ProtocolError::BadField(16), (1, 16)),
        (1, 0, ProtocolError::BadField(1), (1, 1)),
        (3, 20, ProtocolError::BadField(3), (1, 3)),
        (7, 1, ProtocolError::TooMuch, (5, 0)),
    ] {
        let (mut open, mut bytes) = asked(PLAIN);
        bytes[at] = value;
        assert_eq!(ends(&mut open.target, &bytes, fatal), expected, "byte {at} = {value}");
    }
    // Half of the data, and then the data from the start again.
    let (mut open, bytes) = asked(PLAIN);
    let mut half = bytes[..24 + 2048].to_vec();
    half[1] = 0;
    half[4..8].copy_from_slice(&2072u32.to_le_bytes());
    half[16..20].copy_from_slice(&2048u32.to_le_bytes());
    open.target.feed(&half);
    assert_eq!(open.target.ended, None);
    assert!(open.target.session_owes_bytes());
    assert_eq!(ends(&mut open.target, &bytes, ProtocolError::OutOfRange), (4, 0));
}

#[test]
fn a_header_that_does_not_match_its_digest_ends_the_connection() {
    let mut open = pair(BOTH);
    let mut bytes = capsule(&mut open, &ranged(NvmOpcode::READ, 0, 0, 1), &[]);
    bytes[20] ^= 1;
    let digest = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
    assert_eq!(ends(&mut open.target, &bytes, ProtocolError::BadHeader), (3, digest));
    let mut open = pair(BOTH);
    let mut bytes = capsule(&mut open, &ranged(NvmOpcode::READ, 0, 0, 1), &[]);
    bytes[1] = 0;
    assert_eq!(ends(&mut open.target, &bytes, ProtocolError::BadField(1)), (1, 1));
}

#[test]
fn data_that_does_not_match_its_digest_ends_the_command_alone() {
    let (mut open, mut bytes) = asked(BOTH);
    bytes[100] ^= 1;
    open.target.feed(&bytes);
    assert_eq!(completions(&mut open), [(5, NvmeStatus::TRANSIENT_TRANSPORT)]);
    let mut entry = ranged(NvmOpcode::WRITE, 6, 0, 1);
    entry.data = SglDescriptor::in_capsule(0, 512);
    let mut bytes = capsule(&mut open, &entry, &[3; 512]);
    bytes[100] ^= 1;
    open.target.feed(&bytes);
    assert_eq!(completions(&mut open), [(6, NvmeStatus::TRANSIENT_TRANSPORT)]);
    let mut bytes = capsule(&mut open, &entry, &[3; 512]);
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    open.target.feed(&bytes);
    assert_eq!(completions(&mut open), [(6, NvmeStatus::TRANSIENT_TRANSPORT)]);
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_connection() {
    let mut open = pair(PLAIN);
    let mut bytes = capsule(&mut open, &ranged(NvmOpcode::READ, 0, 0, 1), &[]);
    for cid in 0..32u16 {
        bytes[10..12].copy_from_slice(&cid.to_le_bytes());
        open.target.feed(&bytes);
        assert_eq!(open.target.ended, None, "command {cid}");
    }
    assert_eq!(ends(&mut open.target, &bytes, ProtocolError::OutOfOrder).0, 2);
}

#[test]
fn before_a_connect_commands_are_refused_and_a_bad_connect_ends_it() {
    let (mut target, data) = Target::new();
    let mut host = HostSession::new(PLAIN, DEPTH);
    target.feed(&host.greeting());
    let said = std::mem::take(&mut target.out);
    host.next_event(&mut &said[..]).unwrap();
    let mut out = Vec::new();
    host.command(&ranged(NvmOpcode::READ, 1, 0, 1), TransferSizes::default(), &[], &mut out);
    target.feed(&out);
    let said = std::mem::take(&mut target.out);
    let event = host.next_event(&mut &said[..]).unwrap();
    let Some(HostEvent::Ended { completion, .. }) = event else { panic!("{event:?}") };
    assert_eq!(completion.status().plain(), NvmeStatus::SEQUENCE_ERROR);
    let mut unknown = data;
    unknown.subsystem_nqn[4] = b'x';
    let mut out = Vec::new();
    host.command(&connect_entry(false), TransferSizes::default(), unknown.as_bytes(), &mut out);
    target.feed(&out);
    assert_eq!(
        target.ended,
        Some(ProtocolError::Ended(0)),
        "the connection is closed behind the answer"
    );
    let said = std::mem::take(&mut target.out);
    let event = host.next_event(&mut &said[..]).unwrap();
    let Some(HostEvent::Ended { completion, .. }) = event else { panic!("{event:?}") };
    assert_eq!(completion.status().plain(), NvmeStatus::CONNECT_INVALID);
}

#[test]
fn a_host_that_says_goodbye_is_heard_and_not_answered() {
    let mut open = pair(BOTH);
    let mut bytes = [0u8; 24];
    bytes[..8].copy_from_slice(&[2, 0, 24, 0, 24, 0, 0, 0]);
    bytes[8] = 4;
    open.target.feed(&bytes);
    assert_eq!(open.target.ended, Some(ProtocolError::Ended(4)));
    assert!(open.target.out.is_empty());
}

#[test]
fn hosts_refuse_what_controllers_may_not_say() {
    let mut open = pair(PLAIN);
    capsule(&mut open, &ranged(NvmOpcode::READ, 1, 0, 1), &[]);
    let completion = Completion { cid: 9.into(), ..Completion::read_from_bytes(&[0; 16]).unwrap() };
    let unknown = [&[5, 0, 24, 0, 24, 0, 0, 0][..], completion.as_bytes()].concat();
    assert_eq!(open.host.next_event(&mut &unknown[..]), Err(ProtocolError::BadField(20)));
    let words = open.host.last_words();
    assert_eq!((words[0], words[8], words.len()), (2, 1, 48));
    let mut open = pair(PLAIN);
    capsule(&mut open, &ranged(NvmOpcode::READ, 1, 0, 1), &[]);
    let mut ready = [0u8; 24];
    ready[..12].copy_from_slice(&[9, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0, 0]);
    ready[16] = 1;
    assert_eq!(open.host.next_event(&mut &ready[..]), Err(ProtocolError::OutOfRange));
}

/// Carries out a fused compare and write of two blocks, each payload in its capsule or on request.
/// Returns the identifiers and statuses of the completions.
fn fused(pair: &mut Pair, in_capsule: [bool; 2], datas: [&[u8]; 2]) -> Vec<(u16, NvmeStatus)> {
    let opcodes = [NvmOpcode::COMPARE, NvmOpcode::WRITE];
    for n in 0..2 {
        let mut entry = ranged(opcodes[n], 10 + n as u16, 8, 2);
        entry.flags |= n as u8 + 1;
        let mut out = Vec::new();
        let (data, mut sends) = (datas[n], datas[n].len());
        if in_capsule[n] {
            entry.data = SglDescriptor::in_capsule(0, data.len() as u32);
            sends = 0;
        }
        let capsule = if in_capsule[n] { data } else { &[] };
        pair.host.command(
            &entry,
            TransferSizes { sends, ..TransferSizes::default() },
            capsule,
            &mut out,
        );
        pair.target.feed(&out);
    }
    let mut ended = Vec::new();
    for _ in 0..4 {
        while pair.target.work(&mut Chance(3)) {}
        let said = std::mem::take(&mut pair.target.out);
        let (mut input, mut out) = (&said[..], Vec::new());
        while let Some(event) = pair.host.next_event(&mut input).expect("it speaks well") {
            match event {
                HostEvent::Ready(ready) => {
                    let data = datas[usize::from(ready.cid) - 10];
                    let (head, bytes) = pair.host.data(&ready, data);
                    out.extend([head.bytes(), &data[..bytes], head.tail()].concat());
                }
                HostEvent::Ended { completion, .. } => {
                    ended.push((completion.cid.get(), completion.status().plain()));
                }
                other => panic!("{other:?}"),
            }
        }
        pair.target.feed(&out);
    }
    ended
}

#[test]
fn a_fused_compare_and_write_is_one_however_its_halves_travel() {
    let (old, new) = (&[0u8; 1024][..], &[7u8; 1024][..]);
    let done = [(10, NvmeStatus::SUCCESS), (11, NvmeStatus::SUCCESS)];
    let failed = [(10, NvmeStatus::COMPARE_FAILURE), (11, NvmeStatus::FAILED_FUSED)];
    for in_capsule in [[true, true], [true, false], [false, true], [false, false]] {
        for digests in [PLAIN, BOTH] {
            let mut open = pair(digests);
            assert_eq!(fused(&mut open, in_capsule, [old, new]), done, "{in_capsule:?}");
            assert_eq!(fused(&mut open, in_capsule, [old, new]), failed, "{in_capsule:?}");
            assert_eq!(fused(&mut open, in_capsule, [new, old]), done, "{in_capsule:?}");
            assert!(!open.target.session_owes_bytes());
        }
    }
}

#[test]
fn a_fused_compare_and_write_is_charged_to_whom_its_queue_says() {
    let mut open = pair(PLAIN);
    let (gold, silver) = (Some(TenantId(5)), Some(TenantId(6)));
    for (tenant, in_capsule) in [(gold, [true, true]), (silver, [false, true]), (None, [true; 2])] {
        open.target.charge(tenant);
        fused(&mut open, in_capsule, [&[0; 1024], &[0; 1024]]);
        fused(&mut open, in_capsule, [&[0; 1024], &[0; 1024]]);
    }
    assert_eq!(open.target.charged, [gold, silver, None]);
}

#[test]
fn a_compare_whose_write_does_not_come_is_ended() {
    let mut open = pair(PLAIN);
    let mut compare = ranged(NvmOpcode::COMPARE, 10, 8, 1);
    compare.flags |= 1;
    compare.data = SglDescriptor::in_capsule(0, 512);
    let bytes = capsule(&mut open, &compare, &[0; 512]);
    open.target.feed(&bytes);
    assert_eq!(completions(&mut open), []);
    let flush = capsule(&mut open, &Submission::new(0, 11, 1), &[]);
    open.target.feed(&flush);
    let expected = [(10, NvmeStatus::MISSING_FUSED), (11, NvmeStatus::SUCCESS)];
    assert_eq!(completions(&mut open), expected);
}
