//! Tests of malformed messages: each gets its answer or ends its connection, and other clients
//! notice nothing.

use std::io::Write;
use std::time::Duration;

use crate::support::v1_head as head;
use crate::support::{Answer, Launch, PATIENCE, PoliteClient, Server, V1, V2, now};
use contract::{Command, Hello, Range, Status};

/// Starts a server of a small device, which ends a connection whose message stays incomplete for
/// `stuck_seconds` seconds.
fn server(stuck_seconds: u32) -> Server {
    Launch::config(&format!(
        "[[device]]\nname = \"m\"\nspec = \"mem:8MiB\"\n[limits]\nstuck_seconds = {stuck_seconds}"
    ))
    .start()
}

const DEVICE_BLOCKS: u64 = (8 << 20) / 512;

/// Sends bytes of protocol version 1 that must end their connection soon, while a polite client is
/// served. Returns the server.
fn ends_v1(bytes: &[u8]) -> Server {
    let server = server(30);
    let polite = PoliteClient::start(server.address());
    let mut v1 = V1::connect(server.address());
    v1.send(bytes);
    v1.expect_end(PATIENCE);
    polite.dismiss();
    server
}

#[test]
fn a_wrong_magic_ends_the_connection() {
    let mut bytes = head(0, 1, 0, 8);
    bytes[0] = 25;
    ends_v1(&bytes).await_log("bad magic");
    ends_v1(b"GET / HTTP/1.1\r\n\r\n").await_log("bad magic");
    // The first bytes of version 2, and then not.
    ends_v1(b"NFRX").await_log("bad magic");
}

#[test]
fn a_wrong_magic_after_good_requests_ends_the_connection() {
    let server = server(30);
    let polite = PoliteClient::start(server.address());
    let mut v1 = V1::connect(server.address());
    v1.get(1, 0, 1);
    v1.expect_data(1, 0, 1);
    v1.send(&[0; 24]);
    v1.expect_end(PATIENCE);
    polite.dismiss();
}

#[test]
fn an_unknown_opcode_of_version_1_ends_the_connection() {
    ends_v1(&head(7, 1, 0, 8)).await_log("unknown opcode 7");
    // Named by the original, never served.
    ends_v1(&head(2, 1, 0, 8)).await_log("unknown opcode 2");
}

#[test]
fn a_zero_length_of_version_1_ends_the_connection() {
    ends_v1(&head(0, 1, 0, 0)).await_log("impossible length 0");
    ends_v1(&head(1, 1, 0, 0)).await_log("impossible length 0");
}

#[test]
fn a_huge_length_of_version_1_ends_the_connection() {
    ends_v1(&head(0, 1, 0, u32::MAX)).await_log("impossible length");
    ends_v1(&head(1, 1, 0, u32::MAX)).await_log("impossible length");
    ends_v1(&head(0, 1, 0, 2049)).await_log("impossible length");
}

#[test]
fn a_range_outside_ends_the_connection_of_version_1() {
    for (lba, count) in [(u64::MAX, 8), (u64::MAX - 7, 8), (DEVICE_BLOCKS - 7, 8)] {
        ends_v1(&head(0, 1, lba, count)).await_log("outside the namespace");
    }
}

#[test]
fn a_write_outside_ends_the_connection_of_version_1_and_touches_nothing() {
    let server = server(30);
    let mut witness = V2::connect(server.address());
    witness.write_blocks(DEVICE_BLOCKS - 8, &[3; 4096], false);
    for lba in [u64::MAX, u64::MAX - 7, DEVICE_BLOCKS - 7] {
        let mut v1 = V1::connect(server.address());
        v1.set(1, lba, &[9; 4096]);
        v1.expect_end(PATIENCE);
    }
    assert_eq!(witness.read_blocks(DEVICE_BLOCKS - 8, 8), [3; 4096]);
    assert_eq!(witness.read_blocks(0, 8), [0; 4096]);
}

/// Sends a read of version 2 whose head `change` has edited, and expects this status. Does so
/// twice, to see that the connection goes on.
fn status_of(change: impl Fn(&mut Vec<u8>), expected: Status) {
    let server = server(30);
    let polite = PoliteClient::start(server.address());
    let mut v2 = V2::connect(server.address());
    for tag in [1, 2] {
        let mut bytes = v2.encode(tag, 0, 0, Command::Read(Range::new(0, 8)), &[]);
        change(&mut bytes);
        v2.send_bytes(&bytes);
        assert_eq!(v2.answer(), Answer::Done { tag, status: expected, data: Vec::new() });
    }
    assert_eq!(v2.read_blocks(64, 1).len(), 512);
    polite.dismiss();
}

#[test]
fn an_unknown_opcode_of_version_2_gets_a_status() {
    for opcode in [0x00, 0x3f, 0x4f, 0x7f, 0xff] {
        status_of(|bytes| bytes[0] = opcode, Status::Invalid);
    }
}

#[test]
fn unknown_flags_and_streams_of_version_2_get_a_status() {
    status_of(|bytes| bytes[1] = 0x80, Status::Invalid);
    status_of(|bytes| bytes[2] = 8, Status::Invalid);
    status_of(|bytes| bytes[30] = 9, Status::NoTenant);
}

#[test]
fn a_bad_length_of_version_2_gets_a_status() {
    for blocks in [0u32, 2049, u32::MAX] {
        let change = |bytes: &mut Vec<u8>| bytes[24..28].copy_from_slice(&blocks.to_le_bytes());
        status_of(change, Status::BadLength);
    }
}

#[test]
fn a_payload_that_does_not_match_its_range_gets_a_status_and_is_skipped() {
    let change = |bytes: &mut Vec<u8>| {
        bytes[0] = 2;
        bytes[4..8].copy_from_slice(&512u32.to_le_bytes());
        bytes.extend_from_slice(&[0xee; 512]);
    };
    status_of(change, Status::BadLength);
}

#[test]
fn a_payload_without_end_of_version_2_ends_the_connection() {
    let server = server(30);
    let polite = PoliteClient::start(server.address());
    let mut v2 = V2::connect(server.address());
    let range = Range::new(0, 8);
    let mut bytes = v2.encode(1, 0, 0, Command::Write { range, fua: false }, &[0; 4096]);
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    v2.send_bytes(&bytes[..40]);
    v2.expect_end(PATIENCE);
    server.await_log("impossible length");
    polite.dismiss();
}

#[test]
fn a_range_outside_of_version_2_gets_a_status() {
    for (lba, blocks) in [(u64::MAX, 8u32), (u64::MAX - 7, 8), (DEVICE_BLOCKS - 7, 8)] {
        let change = |bytes: &mut Vec<u8>| {
            bytes[16..24].copy_from_slice(&lba.to_le_bytes());
            bytes[24..28].copy_from_slice(&blocks.to_le_bytes());
        };
        status_of(change, Status::OutOfRange);
    }
}

#[test]
fn a_second_hello_ends_the_connection() {
    let server = server(30);
    let polite = PoliteClient::start(server.address());
    let mut v2 = V2::connect(server.address());
    let mut again = proto::reflex::ClientSession::v2(Hello::default());
    for head in again.greeting() {
        v2.send_bytes(head.bytes());
    }
    v2.expect_end(PATIENCE);
    polite.dismiss();
}

#[test]
fn half_a_head_then_silence_is_waited_for_a_bounded_time() {
    let server = server(1);
    let polite = PoliteClient::start(server.address());
    let mut v1 = V1::connect(server.address());
    v1.send(&head(0, 1, 0, 8)[..11]);
    let mut hello = V1::connect(server.address());
    hello.send(b"NFR2\x02\0\x02\0");
    let mut payload = V2::connect(server.address());
    let range = Range::new(64, 8);
    let bytes = payload.encode(1, 0, 0, Command::Write { range, fua: false }, &[7; 4096]);
    payload.send_bytes(&bytes[..1000]);
    let mut silent = V1::connect(server.address());
    let started = now();
    v1.expect_end(PATIENCE);
    hello.expect_end(PATIENCE);
    payload.expect_end(PATIENCE);
    // Without the limit of this server it would be thirty seconds.
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
    server.await_log("took too long to arrive");
    // Who owes nothing may be silent for as long as he likes.
    assert!(silent.stays(Duration::from_secs(2)));
    silent.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    silent.get(4, 64, 8);
    assert_eq!(silent.expect_data(4, 64, 8), [0; 4096], "half a write was carried out");
    polite.dismiss();
}

#[test]
fn one_byte_a_second_is_waited_for_a_bounded_time() {
    let server = server(1);
    let polite = PoliteClient::start(server.address());
    let mut v1 = V1::connect(server.address());
    let bytes = head(0, 1, 0, 8);
    let started = now();
    let sent = bytes.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_secs(1));
        v1.stream.write_all(&[**byte]).is_ok()
    });
    let sent = sent.count();
    assert!(sent < 16, "{sent} bytes in {:?}", started.elapsed());
    v1.expect_end(PATIENCE);
    polite.dismiss();
}
