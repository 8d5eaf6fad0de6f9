//! Tests of valid requests of every shape, over real sockets, and of the bytes of version 1 on the
//! wire.

use std::time::Duration;

use crate::support::{Answer, Launch, Server, V1, V2, pattern, v1_head as head};
use contract::{Command, ControlRequest, Hello, Range, Status};

fn server() -> Server {
    Launch::device("mem:8MiB").start()
}

#[test]
fn version_1_answers_with_the_bytes_of_the_original() {
    let server = server();
    let mut v1 = V1::connect(server.address());
    // SET, handle 0x0102030405060708, sector 8, one sector of 0xab.
    #[rustfmt::skip]
    let set = [
        0x18, 0x00, 0x01, 0x00,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
        0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x01, 0x00, 0x00, 0x00,
    ];
    v1.send(&[&set[..], &[0xab; 512]].concat());
    #[rustfmt::skip]
    assert_eq!(v1.receive(24), [
        0x18, 0x00, 0x01, 0x00,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
        0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00,
    ]);
    // GET of two sectors from there; the reply repeats the head, then comes the data.
    #[rustfmt::skip]
    let get = [
        0x18, 0x00, 0x00, 0x00,
        0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88,
        0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x02, 0x00, 0x00, 0x00,
    ];
    v1.send(&get);
    assert_eq!(v1.receive(24), get);
    assert_eq!(v1.receive(512), [0xab; 512]);
    assert_eq!(v1.receive(512), [0; 512]);
    assert!(v1.stays(Duration::from_millis(200)), "not a byte more");
}

#[test]
fn handles_come_back_unchanged() {
    let server = server();
    let mut v1 = V1::connect(server.address());
    for handle in [1, 0, u64::MAX, 0x8000_0000_0000_0000, 0x0123_4567_89ab_cdef] {
        v1.get(handle, 0, 1);
        v1.expect_data(handle, 0, 1);
        v1.set(handle, 9, &[1; 512]);
        v1.expect_written(handle, 9);
    }
    let mut v2 = V2::connect(server.address());
    for tag in [0, 1, u64::MAX] {
        v2.send(tag, Command::Flush, &[]);
        assert_eq!(v2.answer(), Answer::Done { tag, status: Status::Ok, data: Vec::new() });
    }
}

#[test]
fn requests_cut_at_every_byte_are_served() {
    let server = server();
    let mut v1 = V1::connect(server.address());
    // A write of 512 bytes, a read of it and a write behind it: 24 + 512 + 24 + 24 + 512 bytes.
    let data = pattern(5, 2, 3);
    let stream = [
        &head(1, 11, 5, 1)[..],
        &data[..512],
        &head(0, 12, 4, 1),
        &head(1, 13, 6, 1),
        &data[512..],
    ]
    .concat();
    for cut in 1..stream.len() {
        v1.send(&stream[..cut]);
        // The server must have seen the first piece alone; at the interesting places at least.
        if cut <= 30 || (530..600).contains(&cut) {
            std::thread::sleep(Duration::from_millis(2));
        }
        v1.send(&stream[cut..]);
        let mut replies: Vec<Vec<u8>> = Vec::new();
        for _ in 0..3 {
            let head = v1.receive(24);
            if head[2] == 0 {
                assert_eq!(v1.receive(512), [0; 512]);
            }
            replies.push(head);
        }
        replies.sort();
        let expected = [head(0, 12, 4, 1), head(1, 11, 5, 0), head(1, 13, 6, 0)];
        let mut expected = expected.map(|head| head.to_vec());
        expected.sort();
        assert_eq!(replies, expected, "cut at {cut}");
    }
    v1.get(1, 5, 2);
    assert_eq!(v1.expect_data(1, 5, 2), data);
}

#[test]
fn version_2_cut_at_every_byte_is_served() {
    let server = server();
    let hello = Hello { checksums: true, ..Hello::default() };
    let mut v2 = V2::hello(server.address(), hello).unwrap();
    assert!(v2.limits().checksums);
    let data = pattern(5, 1, 3);
    let range = Range::new(5, 1);
    let stream = [
        v2.encode(1, 0, 0, Command::Write { range, fua: true }, &data),
        v2.encode(2, 0, 0, Command::Barrier, &[]),
        v2.encode(3, 0, 0, Command::Read(range), &[]),
    ]
    .concat();
    for cut in 1..stream.len() {
        v2.send_bytes(&stream[..cut]);
        if cut <= 50 || cut > 540 {
            std::thread::sleep(Duration::from_millis(1));
        }
        v2.send_bytes(&stream[cut..]);
        for tag in [1, 2] {
            assert_eq!(v2.answer(), Answer::Done { tag, status: Status::Ok, data: Vec::new() });
        }
        let expected = Answer::Done { tag: 3, status: Status::Ok, data: data.clone() };
        assert_eq!(v2.answer(), expected, "cut at {cut}");
    }
}

#[test]
fn several_requests_in_one_segment_are_all_answered() {
    let server = server();
    let mut v1 = V1::connect(server.address());
    let requests: Vec<u8> = (1..=100u64).flat_map(|n| head(0, n, n, 1)).collect();
    v1.send(&requests);
    let mut handles: Vec<u64> = (1..=100)
        .map(|_| {
            let head = v1.receive(24);
            v1.receive(512);
            u64::from_le_bytes(head[4..12].try_into().unwrap())
        })
        .collect();
    handles.sort_unstable();
    assert!(handles.iter().copied().eq(1..=100), "{handles:?}");
}

#[test]
fn blocks_of_512_bytes_do_not_touch_their_neighbours() {
    let server = server();
    let mut v2 = V2::connect(server.address());
    v2.write_blocks(0, &pattern(0, 16, 1), false);
    for lba in [0, 1, 7, 8, 15] {
        v2.write_blocks(lba, &pattern(lba, 1, 9), false);
        assert_eq!(v2.read_blocks(lba, 1), pattern(lba, 1, 9));
    }
    for lba in [2, 6, 9, 14] {
        assert_eq!(v2.read_blocks(lba, 1), pattern(lba, 1, 1));
    }
}

#[test]
fn a_mebibyte_is_written_and_read_by_both_versions() {
    let server = server();
    let (first, second) = (pattern(100, 2048, 4), pattern(5000, 2048, 5));
    let mut v1 = V1::connect(server.address());
    v1.set(1, 100, &first);
    v1.expect_written(1, 100);
    let mut v2 = V2::connect(server.address());
    assert_eq!(v2.limits().request_bytes_max, 1 << 20);
    v2.write_blocks(5000, &second, true);
    assert_eq!(v2.read_blocks(100, 2048), first);
    v1.get(2, 5000, 2048);
    assert_eq!(v1.expect_data(2, 5000, 2048), second);
}

#[test]
fn discard_and_zeroes_make_zeroes() {
    let server = server();
    let mut v2 = V2::connect(server.address());
    v2.write_blocks(0, &[1; 8192], false);
    assert_eq!(v2.call(Command::Discard(Range::new(0, 8)), &[]).0, Status::Ok);
    let zeroes = Command::WriteZeroes { range: Range::new(9, 3), fua: true };
    assert_eq!(v2.call(zeroes, &[]).0, Status::Ok);
    let data = v2.read_blocks(0, 16);
    assert!(data[..4096].iter().all(|byte| *byte == 0));
    assert_eq!(data[4096..4608], [1; 512]);
    assert!(data[4608..6144].iter().all(|byte| *byte == 0));
    assert!(data[6144..].iter().all(|byte| *byte == 1));
}

#[test]
fn a_terabyte_is_discarded_by_one_request() {
    let server = Launch::device("null:1TiB").start();
    let mut v2 = V2::connect(server.address());
    assert_eq!(v2.call(Command::Discard(Range::new(0, 1 << 31)), &[]).0, Status::Ok);
    let behind = Command::Discard(Range::new(1, 1 << 31));
    assert_eq!(v2.call(behind, &[]).0, Status::OutOfRange);
}

#[test]
fn compare_and_write_writes_only_what_compares() {
    let server = server();
    let mut v2 = V2::connect(server.address());
    let range = Range::new(3, 1);
    let swap = |old: u8, new: u8| [[old; 512], [new; 512]].concat();
    assert_eq!(v2.call(Command::CompareAndWrite(range), &swap(0, 1)).0, Status::Ok);
    assert_eq!(v2.call(Command::CompareAndWrite(range), &swap(0, 2)).0, Status::CompareFailed);
    assert_eq!(v2.read_blocks(3, 1), [1; 512]);
    assert_eq!(v2.call(Command::CompareAndWrite(range), &swap(1, 2)).0, Status::Ok);
    assert_eq!(v2.read_blocks(3, 1), [2; 512]);
}

#[test]
fn compare_and_write_from_many_connections_loses_no_step() {
    let server = Launch::device("mem:1MiB").with("--workers").with("2").start();
    let address = server.address();
    let counter = move || {
        let mut v2 = V2::connect(address);
        let mut steps = 0;
        while steps < 50 {
            let old = v2.read_blocks(7, 1);
            let mut new = old.clone();
            let count = u32::from_le_bytes(old[..4].try_into().unwrap());
            new[..4].copy_from_slice(&(count + 1).to_le_bytes());
            let both = [old, new].concat();
            match v2.call(Command::CompareAndWrite(Range::new(7, 1)), &both).0 {
                Status::Ok => steps += 1,
                Status::CompareFailed => {}
                other => panic!("{other}"),
            }
        }
    };
    let counters: Vec<_> = (0..4).map(|_| std::thread::spawn(counter)).collect();
    counters.into_iter().for_each(|counter| counter.join().unwrap());
    let data = V2::connect(address).read_blocks(7, 1);
    assert_eq!(u32::from_le_bytes(data[..4].try_into().unwrap()), 200);
}

#[test]
fn a_barrier_keeps_what_is_behind_it_behind() {
    // The delays vary, so that without the barrier the order would.
    let server = Launch::device("mem:1MiB?delay=0us..3ms&seed=5").start();
    let mut v2 = V2::connect(server.address());
    for round in 0..30u8 {
        let mut bytes = Vec::new();
        for (n, tag) in [0u64, 10, 20].into_iter().enumerate() {
            for lba in 0..4 {
                let range = Range::new(lba, 1);
                let data = [3 * round + n as u8; 512];
                let write = Command::Write { range, fua: false };
                bytes.extend(v2.encode(tag + lba, 0, 0, write, &data));
            }
            bytes.extend(v2.encode(tag + 9, 0, 0, Command::Barrier, &[]));
        }
        bytes.extend(v2.encode(30, 0, 0, Command::Read(Range::new(0, 4)), &[]));
        v2.send_bytes(&bytes);
        let mut order = Vec::new();
        while order.last() != Some(&30) {
            match v2.answer() {
                Answer::Done { tag, status: Status::Ok, data } => {
                    if tag == 30 {
                        assert_eq!(data, [3 * round + 2; 2048]);
                    }
                    order.push(tag);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(order.len(), 16);
        let barriers = [order[4], order[9], order[14]];
        assert_eq!(barriers, [9, 19, 29], "{order:?}");
    }
}

#[test]
fn a_barrier_of_one_stream_does_not_hold_another() {
    let server = Launch::device("null:1MiB?delay=400ms").start();
    let mut v2 = V2::connect(server.address());
    let read = Command::Read(Range::new(0, 1));
    let mut bytes = v2.encode(1, 1, 0, read, &[]);
    bytes.extend(v2.encode(2, 1, 0, Command::Barrier, &[]));
    bytes.extend(v2.encode(3, 1, 0, read, &[]));
    bytes.extend(v2.encode(4, 2, 0, read, &[]));
    v2.send_bytes(&bytes);
    let order: Vec<u64> = (0..4)
        .map(|_| match v2.answer() {
            Answer::Done { tag, status: Status::Ok, .. } => tag,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order[3], 3, "{order:?}");
    assert!(order.iter().position(|tag| *tag == 4) < order.iter().position(|tag| *tag == 3));
}

#[test]
fn an_atomic_write_is_all_or_nothing_to_readers() {
    let server = Launch::device("mem:4MiB").with("--workers").with("2").start();
    let address = server.address();
    let writer = std::thread::spawn(move || {
        let mut v2 = V2::connect(address);
        for version in 1..=60u8 {
            let data = vec![version; 64 << 10];
            assert_eq!(v2.call(Command::WriteAtomic(Range::new(0, 128)), &data).0, Status::Ok);
        }
    });
    let mut v2 = V2::connect(address);
    while !writer.is_finished() {
        let data = v2.read_blocks(0, 128);
        assert!(data.iter().all(|byte| *byte == data[0]), "a torn read");
    }
    writer.join().unwrap();
    assert_eq!(v2.read_blocks(0, 128), vec![60; 64 << 10]);
}

#[test]
fn questions_about_the_connection_are_answered() {
    let server = server();
    let mut v2 = V2::connect(server.address());
    v2.control(&ControlRequest::Ping { tag: 9 });
    assert_eq!(v2.answer(), Answer::Pong { tag: 9 });
    let info = v2.info(1).unwrap();
    assert_eq!((info.blocks, info.rights), (16_384, contract::Rights::ALL));
    assert_eq!(v2.info(2), Err(Status::NoNamespace));
}
