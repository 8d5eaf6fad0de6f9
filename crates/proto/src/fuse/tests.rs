//! Messages as the kernel sends and takes them, in hexadecimal numbers on a machine with the lowest
//! byte first.

use alloc::vec::Vec;
use core::time::Duration;

use wire::fuse::{Errno, Opcode, capability, open_flag, set};

use super::*;

/// Returns the bytes that a text of hexadecimal digits stands for; other characters are skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Returns a request with this body from user 1000, group 100 and process 4242 about node 7.
fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let len = 40 + body.len() as u32;
    let mut bytes = Vec::new();
    bytes.extend(len.to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(6_u64.to_ne_bytes());
    bytes.extend(7_u64.to_ne_bytes());
    for word in [1000_u32, 100, 4242, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

fn operation(bytes: &[u8]) -> Result<Operation<'_>, Errno> {
    parse(bytes, 0).map(|request| request.operation).map_err(|mistake| mistake.errno)
}

#[test]
fn a_lookup_names_its_caller() {
    let bytes = hex(
        "2e000000 01000000 0600000000000000 0700000000000000 e8030000 64000000 92100000 0000 0000 \
         66696c65 31 00",
    );
    let caller = Caller { uid: 1000, gid: 100, pid: 4242 };
    let wanted = Request { unique: 6, node: 7, caller, operation: Operation::Lookup(b"file1") };
    assert_eq!(parse(&bytes, 0), Ok(wanted));
    assert_eq!(bytes, request(1, b"file1\0"));
}

#[test]
fn a_kernel_greets_and_is_answered() {
    let bytes = hex(
        "68000000 1a000000 0200000000000000 0000000000000000 00000000 00000000 00000000 0000 0000 \
         07000000 2d000000 00000200 fbfffff7 ff3f0000 \
         0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    );
    let request = parse(&bytes, 0).unwrap();
    let Operation::Init(greeting) = request.operation else { panic!("{request:?}") };
    assert_eq!((greeting.major, greeting.minor, greeting.readahead_max), (7, 45, 128 << 10));
    assert_eq!(greeting.capabilities, 0x3fff_f7ff_fffb);
    let agreed = Agreement::with(&greeting).unwrap().unwrap();
    assert_eq!((agreed.minor, agreed.readahead_max), (39, 128 << 10));
    assert!(agreed.has(capability::MAX_PAGES | capability::DIRECT_IO_ALLOW_MMAP));
    assert!(!agreed.has(capability::POSIX_ACL) && !agreed.has(capability::WRITEBACK_CACHE));
    let reply = agreed.reply(request.unique);
    let wanted =
        hex("50000000 00000000 0200000000000000 07000000 27000000 00000200 21e0c450 4000 3000 \
         00001000 01000000 0001 0000 10000000 \
         00000000 00000000 00000000 00000000 00000000 00000000 00000000");
    assert_eq!(reply.bytes(), wanted);
}

#[test]
fn kernels_of_other_versions_are_told_so() {
    let greeting = SessionProposal {
        major: 7,
        minor: 31,
        readahead_max: 0,
        capabilities: capability::MAX_PAGES | capability::ASYNC_READ,
    };
    let agreed = Agreement::with(&greeting).unwrap().unwrap();
    assert_eq!(agreed.capabilities, greeting.capabilities);
    assert_eq!(Agreement::with(&SessionProposal { minor: 30, ..greeting }), Err(Errno::PROTO));
    assert_eq!(
        Agreement::with(&SessionProposal { capabilities: 0, ..greeting }),
        Err(Errno::PROTO)
    );
    assert_eq!(Agreement::with(&SessionProposal { major: 6, ..greeting }), Err(Errno::PROTO));
    assert_eq!(Agreement::with(&SessionProposal { major: 8, ..greeting }), Ok(None));
    assert_eq!(&Agreement::reply_other_major(1).bytes()[16..24], hex("07000000 27000000"));
}

#[test]
fn the_data_of_a_write_is_not_in_its_head() {
    let body = hex(
        "0300000000000000 0010000000000000 00100000 04000000 0000000000000000 01840000 00000000",
    );
    let mut bytes = request(16, &body);
    bytes[..4].copy_from_slice(&(80 + 4096_u32).to_ne_bytes());
    assert!(is_write(&bytes) && bytes.len() == HEAD_BYTES);
    let wanted = Operation::Write {
        handle: 3,
        offset: 4096,
        bytes: 4096,
        from_cache: false,
        kill_suidgid: true,
        flags: 0x8401,
    };
    assert_eq!(parse(&bytes, 4096).map(|request| request.operation), Ok(wanted));
    let mistake = MalformedRequest { unique: Some(6), errno: Errno::INVAL };
    assert_eq!(parse(&bytes, 4095), Err(mistake));
    assert_eq!(parse(&bytes, 0), Err(mistake));
    bytes[48..56].copy_from_slice(&(i64::MAX as u64).to_ne_bytes());
    assert_eq!(parse(&bytes, 4096).map_err(|mistake| mistake.errno), Err(Errno::FBIG));
}

#[test]
fn names_are_checked() {
    assert_eq!(operation(&request(1, b"a/b\0")), Err(Errno::INVAL));
    for name in [&b"\0"[..], b".\0", b"..\0", b"endless"] {
        assert_eq!(operation(&request(1, name)), Err(Errno::INVAL), "{name:?}");
    }
    let mut long = [b'x'; 257];
    long[255] = 0;
    assert!(operation(&request(1, &long)).is_ok());
    long[255] = b'x';
    long[256] = 0;
    assert_eq!(operation(&request(1, &long)), Err(Errno::NAMETOOLONG));
    assert_eq!(operation(&request(6, b"name\0\0")), Err(Errno::NOENT), "an empty target");
}

#[test]
fn operations_with_names() {
    let cases: [(u32, &str, Operation<'_>); 9] = [
        (6, "6c00 2f746d7000", Operation::Symlink { name: b"l", target: b"/tmp" }),
        (
            8,
            "a4810000 03010000 12000000 00000000 6e00",
            Operation::MkNod { name: b"n", mode: 0o100_644, rdev: 0x103 },
        ),
        (9, "ed010000 12000000 6400", Operation::MkDir { name: b"d", mode: 0o755 }),
        (10, "6100", Operation::Unlink(b"a")),
        (11, "6100", Operation::RmDir(b"a")),
        (
            12,
            "0900000000000000 6100 6200",
            Operation::Rename { name: b"a", new_directory: 9, new_name: b"b", flags: 0 },
        ),
        (
            45,
            "0900000000000000 02000000 00000000 6100 6200",
            Operation::Rename { name: b"a", new_directory: 9, new_name: b"b", flags: 2 },
        ),
        (13, "0500000000000000 6800", Operation::Link { target: 5, name: b"h" }),
        (
            35,
            "42800000 a4810000 12000000 00000000 6300",
            Operation::Create { name: b"c", flags: 0x8042, mode: 0o100_644 },
        ),
    ];
    for (opcode, body, wanted) in cases {
        assert_eq!(operation(&request(opcode, &hex(body))), Ok(wanted), "{opcode}");
    }
}

#[test]
fn operations_on_files() {
    let handle = "0300000000000000";
    let zeroes = "0000000000000000";
    let cases: [(u32, &[&str], Operation<'_>); 16] = [
        (3, &["01000000 00000000", handle], Operation::GetAttr { handle: Some(3) }),
        (3, &[zeroes, handle], Operation::GetAttr { handle: None }),
        (5, &[], Operation::ReadLink),
        (14, &["02800000 00000000"], Operation::Open { flags: 0x8002 }),
        (
            15,
            &[handle, "0020000000000000 00001000 00000000", zeroes, zeroes],
            Operation::Read { handle: 3, offset: 8192, bytes: 1 << 20 },
        ),
        (17, &[], Operation::StatFs),
        (18, &[handle, zeroes, zeroes], Operation::Release { handle: 3 }),
        (20, &[handle, "01000000 00000000"], Operation::Fsync { handle: 3, data_only: true }),
        (25, &[handle, zeroes, zeroes], Operation::Flush { handle: 3 }),
        (
            44,
            &[handle, "0500000000000000 00100000 00000000", zeroes, zeroes],
            Operation::ReadDir { handle: 3, cookie: 5, bytes: 4096, with_attributes: true },
        ),
        (30, &[handle, zeroes], Operation::FsyncDir { handle: 3, data_only: false }),
        (34, &["04000000 00000000"], Operation::Access { mask: 4 }),
        (
            43,
            &[handle, zeroes, "0000100000000000 03000000 00000000"],
            Operation::Fallocate { handle: 3, offset: 0, length: 1 << 20, mode: 3 },
        ),
        (
            46,
            &[handle, "0010000000000000 03000000 00000000"],
            Operation::Seek { handle: 3, offset: 4096, whence: 3 },
        ),
        (50, &[zeroes], Operation::SyncFs),
        (39, &[], Operation::Other(Opcode::IOCTL)),
    ];
    for (opcode, body, wanted) in cases {
        let body: Vec<u8> = body.iter().flat_map(|part| hex(part)).collect();
        assert_eq!(operation(&request(opcode, &body)), Ok(wanted), "{opcode}");
    }
    assert_eq!(operation(&request(15, &hex(handle))), Err(Errno::INVAL), "too short");
}

#[test]
fn attributes_to_change_are_those_that_are_valid() {
    let mut body = [0; 88];
    let valid = set::SIZE | set::MTIME | set::ATIME_NOW | set::HANDLE | set::KILL_SUIDGID;
    body[..4].copy_from_slice(&valid.to_ne_bytes());
    body[8] = 3;
    body[17] = 2;
    body[40] = 9;
    body[60] = 8;
    let bytes = request(4, &body);
    let Ok(Operation::SetAttr { changes, handle }) = operation(&bytes) else { panic!() };
    let mtime = Time { seconds: 9, nanoseconds: 8 };
    let wanted = AttributeChanges {
        size: Some(512),
        atime: Some(TimeStampUpdate::Now),
        mtime: Some(TimeStampUpdate::At(mtime)),
        kill_suidgid: true,
        ..AttributeChanges::default()
    };
    assert_eq!((changes, handle), (wanted, Some(3)));
    body[60..64].copy_from_slice(&1_000_000_000_u32.to_ne_bytes());
    assert_eq!(operation(&request(4, &body)), Err(Errno::INVAL), "a second has fewer");
}

#[test]
fn extended_attributes() {
    let bytes = request(21, &hex("03000000 01000000 757365722e6100 616263"));
    let wanted = Operation::SetXattr { name: b"user.a", value: b"abc", flags: 1 };
    assert_eq!(operation(&bytes), Ok(wanted));
    let bytes = request(21, &hex("04000000 01000000 757365722e6100 616263"));
    assert_eq!(operation(&bytes), Err(Errno::INVAL), "less than it says");
    let bytes = request(22, &hex("00010000 00000000 757365722e6100"));
    assert_eq!(operation(&bytes), Ok(Operation::GetXattr { name: b"user.a", bytes: 256 }));
    let bytes = request(23, &hex("00000000 00000000"));
    assert_eq!(operation(&bytes), Ok(Operation::ListXattr { bytes: 0 }));
}

#[test]
fn references_are_given_back_without_a_reply() {
    let pairs = |bytes: &[u8]| -> Vec<(u64, u64)> {
        match parse(bytes, 0).unwrap().operation {
            Operation::Forget(forgets) => forgets.iter().collect(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(pairs(&request(2, &hex("0200000000000000"))), [(7, 2)]);
    let body = hex("02000000 00000000 05000000 00000000 01000000 00000000 06000000 00000000 \
                    03000000 00000000");
    assert_eq!(pairs(&request(42, &body)), [(5, 1), (6, 3)]);
    let short = parse(&request(42, &body[..24]), 0).map(|request| request.unique);
    assert_eq!(short, Err(MalformedRequest { unique: None, errno: Errno::INVAL }));
}

#[test]
fn messages_with_a_wrong_length_are_refused() {
    let mut bytes = request(17, &[]);
    bytes.push(0);
    let refused = MalformedRequest { unique: Some(6), errno: Errno::INVAL };
    assert_eq!(parse(&bytes, 0), Err(refused));
    assert_eq!(parse(&bytes[..39], 0), Err(MalformedRequest { unique: None, errno: Errno::INVAL }));
    let mut extended = request(17, &[0; 8]);
    extended[36] = 1;
    assert_eq!(operation(&extended), Ok(Operation::StatFs));
    extended[36] = 2;
    assert_eq!(parse(&extended, 0), Err(refused), "more extensions than bytes");
}

#[test]
fn replies_have_their_length_and_number() {
    assert_eq!(ReplyMessage::done(6).bytes(), hex("10000000 00000000 0600000000000000"));
    assert_eq!(
        ReplyMessage::error(6, Errno::NOENT).bytes(),
        hex("10000000 feffffff 0600000000000000")
    );
    assert_eq!(ReplyMessage::data(6, 4096).bytes(), hex("10100000 00000000 0600000000000000"));
    assert_eq!(
        ReplyMessage::size(6, 4096).bytes(),
        hex("18000000 00000000 0600000000000000 00100000 00000000")
    );
    let opened = OpenReply { handle: 3, flags: open_flag::KEEP_CACHE };
    assert_eq!(
        ReplyMessage::opened(6, opened).bytes(),
        hex("20000000 00000000 0600000000000000 0300000000000000 02000000 00000000")
    );
    let entry = NodeEntry { name_cached: Duration::from_millis(1500), ..NodeEntry::default() };
    let created = ReplyMessage::created(6, &entry, opened);
    assert_eq!(created.bytes().len(), 160);
    assert_eq!(&created.bytes()[..4], hex("a0000000"));
    let lookup = no_such_name(6, entry.name_cached);
    assert_eq!(&lookup.bytes()[16..52], &created.bytes()[16..52]);
    assert_eq!(
        &lookup.bytes()[16..52],
        hex("0000000000000000 0000000000000000 0100000000000000 0000000000000000 0065cd1d")
    );
    assert_eq!(ReplyMessage::sizes(6, &FileSystemSizes::default()).bytes().len(), 96);
    let changed = inode_changed(5, -1, 0);
    assert_eq!(
        changed.bytes(),
        hex("28000000 02000000 0000000000000000 0500000000000000 ffffffffffffffff \
             0000000000000000")
    );
}

#[test]
fn attributes_have_their_places() {
    let time = |seconds| Time { seconds, nanoseconds: seconds as u32 + 1 };
    let attributes = Attributes {
        ino: 7,
        size: 5000,
        blocks: 16,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        mode: 0o100_644,
        links: 2,
        uid: 1000,
        gid: 100,
        rdev: 0,
    };
    let head = ReplyMessage::attributes(6, &attributes, Duration::from_secs(1));
    let wanted = hex("78000000 00000000 0600000000000000 0100000000000000 00000000 00000000 \
         0700000000000000 8813000000000000 1000000000000000 \
         0100000000000000 0200000000000000 0300000000000000 02000000 03000000 04000000 \
         a4810000 02000000 e8030000 64000000 00000000 00100000 00000000");
    assert_eq!(head.bytes(), wanted);
}

#[test]
fn a_listing_ends_where_its_room_does() {
    let mut room = [0xee; 72];
    let place = ListingEntry { ino: 9, next: 1, mode: 0o040_755, name: b"dir" };
    let mut listing = Listing::new(&mut room);
    assert!(listing.is_empty());
    assert!(listing.add(&place, None));
    assert!(listing.add(&ListingEntry { next: 2, name: b"eightlet", ..place }, None));
    assert_eq!(listing.len(), 64);
    assert!(!listing.add(&ListingEntry { name: b"x", ..place }, None));
    let first = hex("0900000000000000 0100000000000000 03000000 04000000 646972 0000000000");
    assert_eq!(room[..32], first);
    let mut room = [0xee; 160];
    let mut listing = Listing::new(&mut room);
    assert!(listing.add(&place, Some(&NodeEntry::default())));
    assert_eq!(listing.len(), 160);
    assert_eq!(room[128..], first);
}
