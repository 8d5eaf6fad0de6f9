//! Tests of version 2: the bytes of every message (docs/reference/protocols/reflex-v2.md), spelled
//! out once, and the events that each end makes of them.

use contract::{
    Command, ControlRequest, Hello, HelloReply, NamespaceId, NamespaceInfo, Notice, ProtocolError,
    Range, Reply, Request, Rights, Session, SessionEvent, Slo, Status, TenantRegistration,
    TenantReply,
};
use nearflash_proto::reflex::{ClientEvent, ClientSession, ServerSession};

/// Parses bytes from text: hexadecimal digits with blanks between them; `;` starts a comment.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split(';').next().unwrap_or_default().chars())
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const HELLO: &str = "
    4e46 5232 0200 0200          ; NFR2, versions 2 to 2
    0807060504030201             ; tag
    100f0e0d0c0b0a09 0807060504030201 ; client
    03000000 80000000            ; connection 3, 128 requests
    01000000 03 02 0000          ; checksums, 3 bytes of token, 2 of name
    6b6579 6c63                  ; key, lc";

const HELLO_REPLY: &str = "
    ce 00 0000 18000000          ; ok, 24 bytes
    0807060504030201             ; tag
    00000000 00000000
    0200 0300 0100 0000          ; version 2, 3 namespaces, the default is 1
    40000000 00001000            ; 64 requests, 1 MiB
    01000000 78563412            ; checksums, the storage epoch";

fn hello() -> Hello {
    Hello {
        tag: 0x0102_0304_0506_0708,
        client: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        connection: 3,
        queue_depth: 128,
        checksums: true,
        token: b"key"[..].into(),
        tenant: "lc".into(),
    }
}

fn limits() -> HelloReply {
    HelloReply {
        queue_depth: 64,
        request_bytes_max: 1 << 20,
        checksums: true,
        namespaces: 3,
        namespace: 1,
        storage_epoch: 0x1234_5678,
    }
}

/// Returns both ends after the hello, with or without checksums.
fn open(checksums: bool) -> (ClientSession, ServerSession) {
    let mut client = ClientSession::v2(Hello { checksums, ..hello() });
    let mut server = ServerSession::new();
    for head in client.greeting() {
        server.next_event(&mut head.bytes()).unwrap();
    }
    let reply = Reply::Hello { tag: hello().tag, status: Status::Ok, reply: limits() };
    let head = server.reply(&reply, &[]).unwrap();
    client.next_event(&mut head.bytes()).unwrap().unwrap();
    assert_eq!(client.checksums(), checksums);
    (client, server)
}

#[test]
fn hello_and_its_reply() {
    let mut client = ClientSession::v2(hello());
    assert_eq!((client.version(), client.checksums()), (2, false));
    let bytes: Vec<u8> = client.greeting().iter().flat_map(|head| head.bytes().to_vec()).collect();
    assert_eq!(bytes, hex(HELLO));

    let mut server = ServerSession::new();
    let mut input = &bytes[..];
    let Some(SessionEvent::Control(control)) = server.next_event(&mut input).unwrap() else {
        panic!()
    };
    assert_eq!(*control, ControlRequest::Hello(hello()));
    assert_eq!(server.version(), Some(2));
    assert!(!server.takes_notices(), "not before the hello is answered");

    let reply = Reply::Hello { tag: hello().tag, status: Status::Ok, reply: limits() };
    let head = server.reply(&reply, &[]).unwrap();
    assert_eq!(head.bytes(), hex(HELLO_REPLY));
    assert!(server.takes_notices());
    assert_eq!(
        client.next_event(&mut head.bytes()),
        Ok(Some(ClientEvent::Hello { tag: hello().tag, status: Status::Ok, reply: limits() }))
    );
    assert!(client.checksums());
}

/// Checks each command without checksums: its bytes, and that the server reads what the client
/// meant.
#[test]
fn requests() {
    let range = Range::new(0x0102_0304_0506_0708, 2);
    let write = |fua| Command::Write { range, fua };
    let zeroes = |fua| Command::WriteZeroes { range, fua };
    let cases = [
        (Command::Read(range), "01 00", "00000000", true),
        (write(false), "02 00", "00040000", true),
        (write(true), "02 01", "00040000", true),
        (Command::Flush, "03 00", "00000000", false),
        (Command::Discard(range), "04 00", "00000000", true),
        (zeroes(false), "05 00", "00000000", true),
        (zeroes(true), "05 01", "00000000", true),
        (Command::CompareAndWrite(range), "06 00", "00080000", true),
        (Command::WriteAtomic(range), "07 00", "00040000", true),
        (Command::Barrier, "08 00", "00000000", false),
    ];
    let (mut client, mut server) = open(false);
    for (command, opcode_and_flags, payload_bytes, has_range) in cases {
        let place =
            if has_range { "0807060504030201 02000000" } else { "0000000000000000 00000000" };
        let expected = hex(&format!(
            "{opcode_and_flags} 07 00 {payload_bytes}  ; stream 7
             f0debc9a78563412                          ; tag
             {place} 0500 0000                         ; lba, blocks, namespace 5
             00000000 00000000"
        ));
        let tag = 0x1234_5678_9abc_def0;
        let payload = vec![0x5a; command.payload_bytes()];
        let head = client.request(tag, 7, Some(NamespaceId(5)), command, &payload).unwrap();
        assert_eq!(head.bytes(), expected, "{command:?}");

        let request = Request {
            tag,
            stream: 7,
            namespace: Some(NamespaceId(5)),
            tenant: 0,
            command,
            payload_bytes: payload.len(),
            verdict: Status::Ok,
        };
        let event = server.next_event(&mut head.bytes()).unwrap();
        assert!(matches!(event, Some(SessionEvent::Request(r)) if r == request), "{event:?}");
        if !payload.is_empty() {
            assert!(server.is_mid_message());
            let event = server.next_event(&mut &payload[..]).unwrap();
            assert!(matches!(event, Some(SessionEvent::Payload { bytes, end: Some(Status::Ok) })
                if bytes == payload));
        }
        assert!(!server.is_mid_message());
    }
}

#[test]
fn a_request_with_a_checksum() {
    let (mut client, mut server) = open(true);
    let command = Command::Write { range: Range::new(0, 1), fua: false };
    let mut payload = [0; 512];
    payload[..9].copy_from_slice(b"123456789");
    let head = client.request(1, 0, None, command, &payload).unwrap();
    let expected = hex("
        02 00 00 00 00020000
        0100000000000000
        0000000000000000 01000000 0000 0000
        ff64110a 00000000 ; CRC-32C");
    assert_eq!(head.bytes(), expected);
    for (byte, end) in [(0, Status::Ok), (1, Status::BadChecksum)] {
        payload[511] = byte;
        assert!(matches!(server.next_event(&mut head.bytes()), Ok(Some(SessionEvent::Request(_)))));
        let mut input = &payload[..];
        let Some(SessionEvent::Payload { end: Some(verdict), .. }) =
            server.next_event(&mut input).unwrap()
        else {
            panic!()
        };
        assert_eq!(verdict, end);
    }
    let head = client.request(1, 0, None, Command::Read(Range::new(0, 1)), &[]).unwrap();
    assert_eq!(head.bytes()[32..36], [0; 4], "nothing to check in a read");
}

/// Checks every request about the connection.
#[test]
fn controls() {
    let slo = Slo {
        latency_us: 500,
        percentile_tenths: 950,
        iops: 120_000,
        read_percent: 80,
        request_bytes: 4096,
    };
    let register = |tenant| TenantRegistration { tag: 9, tenant, name: "b".into(), slo: Some(slo) };
    let rest = "0900000000000000 0000000000000000 00000000";
    let slo_bytes = "f4010000 c0d40100 00100000 b603 50 01 62";
    let cases = [
        (
            ControlRequest::Ping { tag: 9 },
            format!("40000000 00000000 {rest} 0000 0000 0000000000000000"),
        ),
        (
            ControlRequest::Info { tag: 9, namespace: Some(NamespaceId(2)) },
            format!("41000000 00000000 {rest} 0200 0000 0000000000000000"),
        ),
        (
            ControlRequest::Info { tag: 9, namespace: None },
            format!("41000000 00000000 {rest} 0000 0000 0000000000000000"),
        ),
        (
            ControlRequest::Register(register(0)),
            format!("42000000 11000000 {rest} 0000 0000 0000000000000000 {slo_bytes}"),
        ),
        (
            ControlRequest::Renegotiate(register(7)),
            format!("43000000 11000000 {rest} 0000 0700 0000000000000000 {slo_bytes}"),
        ),
        (
            ControlRequest::Unregister { tag: 9, tenant: 7 },
            format!("44000000 00000000 {rest} 0000 0700 0000000000000000"),
        ),
    ];
    let (mut client, mut server) = open(true);
    for (control, text) in cases {
        let heads = client.control(&control).unwrap();
        let bytes: Vec<u8> = heads.iter().flat_map(|head| head.bytes().to_vec()).collect();
        assert_eq!(bytes, hex(&text), "{control:?}");
        let Some(SessionEvent::Control(heard)) = server.next_event(&mut &bytes[..]).unwrap() else {
            panic!("{control:?}")
        };
        assert_eq!(*heard, control);
    }
    assert_eq!(client.control(&ControlRequest::Hello(hello())).unwrap_err(), Status::Invalid);
}

/// Checks every reply and notice.
#[test]
fn replies() {
    let info = NamespaceInfo {
        namespace: NamespaceId(2),
        blocks: 1 << 21,
        physical_block_bytes: 4096,
        atomic_blocks_max: 8,
        rights: Rights { read: true, write: false },
        volatile_cache: true,
    };
    let figures = TenantReply {
        tenant: 7,
        tokens_needed: 400_000,
        tokens_free: 20_000,
        limited_by: TenantReply::LIMITED_BY_OTHER,
        limit_latency_us: 500,
    };
    let command = Command::Flush;
    let zeroes = "000000000000000000000000000000000000000000000000";
    let crc = "0000000000000000";
    let tag = "0900000000000000";
    let cases = [
        (
            Reply::Done { tag: 9, command, status: Status::Ok },
            format!("80 00 0000 00000000 {tag} {crc}"),
            ClientEvent::Reply { tag: 9, status: Status::Ok, body_bytes: 0 },
        ),
        (
            Reply::Done { tag: 9, command, status: Status::AtomicTooLarge },
            format!("80 00 0f00 00000000 {tag} {crc}"),
            ClientEvent::Reply { tag: 9, status: Status::AtomicTooLarge, body_bytes: 0 },
        ),
        (
            Reply::Pong { tag: 9 },
            format!("c0 00 0000 00000000 {tag} {crc}"),
            ClientEvent::Pong { tag: 9 },
        ),
        (
            Reply::Info { tag: 9, info: Ok(info) },
            format!(
                "c1 00 0000 18000000 {tag} {crc}
                 0000200000000000 00100000 08000000 0200 01 01 00000000"
            ),
            ClientEvent::Info { tag: 9, info: Ok(info) },
        ),
        (
            Reply::Info { tag: 9, info: Err(Status::NoNamespace) },
            format!("c1 00 0600 18000000 {tag} {crc} {zeroes}"),
            ClientEvent::Info { tag: 9, info: Err(Status::NoNamespace) },
        ),
        (
            Reply::Tenant { tag: 9, status: Status::NoResources, reply: figures },
            format!(
                "c2 00 0800 18000000 {tag} {crc}
                 801a060000000000 204e000000000000 0700 feff f4010000"
            ),
            ClientEvent::Tenant { tag: 9, status: Status::NoResources, reply: figures },
        ),
        (
            Reply::Notice(Notice::Draining),
            format!("f0 00 0000 00000000 0000000000000000 {crc}"),
            ClientEvent::Notice(Notice::Draining),
        ),
        (
            Reply::Notice(Notice::Renegotiate { tenant: 7, iops: 150_000, read_percent: 60 }),
            format!("f1 00 0000 08000000 0000000000000000 {crc} f0490200 0700 3c 00"),
            ClientEvent::Notice(Notice::Renegotiate { tenant: 7, iops: 150_000, read_percent: 60 }),
        ),
    ];
    let (mut client, mut server) = open(false);
    for (reply, text, event) in cases {
        let head = server.reply(&reply, &[]).unwrap();
        assert_eq!(head.bytes(), hex(&text), "{reply:?}");
        assert_eq!(client.next_event(&mut head.bytes()), Ok(Some(event)));
    }
}

#[test]
fn the_data_of_a_read() {
    let mut data = [0; 512];
    data[..9].copy_from_slice(b"123456789");
    let command = Command::Read(Range::new(0, 1));
    for (checksums, crc) in [(false, "00000000"), (true, "ff64110a")] {
        let (mut client, mut server) = open(checksums);
        let reply = Reply::Done { tag: 9, command, status: Status::Ok };
        let head = server.reply(&reply, &data).unwrap();
        let text = format!("80 00 0000 00020000 0900000000000000 {crc} 00000000");
        assert_eq!(head.bytes(), hex(&text));
        for broken in [false, true] {
            let event = client.next_event(&mut head.bytes());
            let reply = ClientEvent::Reply { tag: 9, status: Status::Ok, body_bytes: 512 };
            assert_eq!(event, Ok(Some(reply)));
            assert!(client.is_mid_message());
            data[9] = u8::from(broken);
            let verdict = if checksums && broken { Status::BadChecksum } else { Status::Ok };
            let event = client.next_event(&mut &data[..]);
            assert_eq!(event, Ok(Some(ClientEvent::Body { bytes: &data, end: Some(verdict) })));
        }
        data[9] = 0;
    }
}

/// Returns a copy of `base` with these bytes changed: pairs of an offset and the new value.
fn changed(base: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    for (at, value) in changes {
        bytes[*at] = *value;
    }
    bytes
}

/// Checks that a well-framed but invalid request is answered, its payload is skipped, and the
/// connection continues.
#[test]
fn a_refused_request_is_answered() {
    let (mut client, mut server) = open(true);
    let read = client.request(9, 0, None, Command::Read(Range::new(0, 1)), &[]).unwrap();
    let read = read.bytes();
    let cases: [(&[(usize, u8)], Status); 16] = [
        (&[(0, 0)], Status::Invalid),
        (&[(0, 0x09)], Status::Invalid),
        (&[(0, 0x45)], Status::Invalid),
        (&[(0, 0x80)], Status::Invalid),
        (&[(0, 0xff), (4, 200)], Status::Invalid),
        (&[(1, 1)], Status::Invalid),
        (&[(0, 4), (1, 1)], Status::Invalid),
        (&[(0, 0x40), (1, 1)], Status::Invalid),
        (&[(2, 8)], Status::Invalid),
        (&[(3, 1)], Status::Invalid),
        (&[(39, 1)], Status::Invalid),
        (&[(24, 0)], Status::BadLength),
        (&[(25, 8)], Status::BadLength),
        (&[(4, 100)], Status::BadLength),
        (&[(0, 2)], Status::BadLength),
        (&[(0, 3), (4, 1)], Status::BadLength),
    ];
    for (changes, verdict) in cases {
        let head = changed(read, changes);
        let payload_bytes = usize::from(head[4]);
        let bytes = [&head[..], &[1; 200][..payload_bytes], read].concat();
        let mut input = &bytes[..];
        let Some(SessionEvent::Request(request)) = server.next_event(&mut input).unwrap() else {
            panic!("{changes:?}")
        };
        assert_eq!((request.tag, request.verdict), (9, verdict), "{changes:?}");
        assert_eq!(request.payload_bytes, payload_bytes);
        if payload_bytes > 0 {
            let event = server.next_event(&mut input).unwrap();
            assert!(matches!(event, Some(SessionEvent::Payload { bytes, end: Some(Status::Ok) })
                if bytes.len() == payload_bytes));
        }
        let event = server.next_event(&mut input).unwrap();
        assert!(matches!(event, Some(SessionEvent::Request(r)) if r.verdict == Status::Ok));
        assert!(input.is_empty());
    }
}

#[test]
fn a_malformed_register_is_answered() {
    let (mut client, mut server) = open(false);
    let register = TenantRegistration { tag: 9, tenant: 0, name: "b".into(), slo: None };
    let heads = client.control(&ControlRequest::Register(register)).unwrap();
    let base: Vec<u8> = heads.iter().flat_map(|head| head.bytes().to_vec()).collect();
    let long = changed(&[&base[..], &[0; 64]].concat(), &[(4, 81)]);
    let cases = [
        (changed(&base, &[(1, 1)]), Status::Invalid, 0),
        (changed(&base, &[(3, 1)]), Status::Invalid, 0),
        (changed(&base, &[(53, 4)]), Status::Invalid, 0),
        (changed(&base, &[(54, 101)]), Status::Invalid, 0),
        (changed(&base, &[(55, 2)]), Status::BadLength, 0),
        (changed(&base, &[(56, 0xff)]), Status::Invalid, 0),
        (changed(&base[..55], &[(4, 15)]), Status::Invalid, 15),
        (long, Status::Invalid, 81),
    ];
    for (bytes, verdict, skipped) in cases {
        let mut input = &bytes[..];
        let Some(SessionEvent::Request(request)) = server.next_event(&mut input).unwrap() else {
            panic!("{bytes:?}")
        };
        assert_eq!((request.tag, request.verdict, request.payload_bytes), (9, verdict, skipped));
        assert_eq!(input.len(), skipped, "{bytes:?}");
        while !input.is_empty() {
            server.next_event(&mut input).unwrap();
        }
        assert!(!server.is_mid_message());
    }
}

#[test]
fn what_ends_a_connection() {
    let hello = hex(HELLO);
    let cases: [(&[(usize, u8)], ProtocolError); 8] = [
        (&[(0, b'G')], ProtocolError::BadMagic(0x4647)),
        (&[(3, b'3')], ProtocolError::BadMagic(0x3352)),
        (&[(4, 3), (6, 4)], ProtocolError::BadVersion(3)),
        (&[(4, 1), (6, 1)], ProtocolError::BadVersion(1)),
        (&[(4, 3), (6, 1)], ProtocolError::BadVersion(3)),
        (&[(44, 65)], ProtocolError::BadLength(65)),
        (&[(45, 65)], ProtocolError::BadLength(65)),
        (&[(45, 255)], ProtocolError::BadLength(255)),
    ];
    for (changes, fatal) in cases {
        let bytes = changed(&hello, changes);
        assert_eq!(ServerSession::new().next_event(&mut &bytes[..]).unwrap_err(), fatal);
    }
    let newer = changed(&hello, &[(4, 1), (6, 9), (43, 0x80), (47, 1)]);
    let event = ServerSession::new().next_event(&mut &newer[..]).unwrap();
    assert!(matches!(event, Some(SessionEvent::Control(_))), "a newer client that still speaks 2");

    let (mut client, mut server) = open(false);
    let read = client.request(9, 0, None, Command::Read(Range::new(0, 1)), &[]).unwrap();
    let huge = changed(read.bytes(), &[(4, 1), (6, 0x20)]);
    assert_eq!(
        server.next_event(&mut &huge[..]).unwrap_err(),
        ProtocolError::BadLength((2 << 20) + 1)
    );
    let (_, mut server) = open(false);
    assert_eq!(server.next_event(&mut &hello[..]).unwrap_err(), ProtocolError::OutOfOrder);

    let unanswered = [&hello[..], read.bytes()].concat();
    let mut server = ServerSession::new();
    let mut input = &unanswered[..];
    server.next_event(&mut input).unwrap();
    assert!(server.next_event(&mut &input[..0]).unwrap().is_none());
    assert_eq!(server.next_event(&mut input).unwrap_err(), ProtocolError::OutOfOrder);
}

#[test]
fn after_a_refused_hello_nothing_may_come() {
    let mut client = ClientSession::v2(hello());
    let mut server = ServerSession::new();
    server.next_event(&mut &hex(HELLO)[..]).unwrap();
    let refusal = Reply::Hello { tag: 1, status: Status::Denied, reply: HelloReply::default() };
    let head = server.reply(&refusal, &[]).unwrap();
    let event = client.next_event(&mut head.bytes()).unwrap().unwrap();
    assert!(matches!(event, ClientEvent::Hello { status: Status::Denied, .. }));
    assert!(!server.takes_notices() && !client.checksums());
    let read = Command::Read(Range::new(0, 1));
    assert_eq!(client.request(1, 0, None, read, &[]).unwrap_err(), Status::Retry);
    assert_eq!(client.control(&ControlRequest::Ping { tag: 1 }).unwrap_err(), Status::Retry);
    assert_eq!(server.next_event(&mut &[1][..]).unwrap_err(), ProtocolError::OutOfOrder);
    assert_eq!(server.reply(&Reply::Pong { tag: 1 }, &[]).unwrap_err(), ProtocolError::OutOfOrder);
}

#[test]
fn a_client_refuses_impossible_replies() {
    let done = hex("80 00 0000 00020000 0900000000000000 0000000000000000");
    let cases: [(&[(usize, u8)], ProtocolError); 5] = [
        (&[(0, 0x81)], ProtocolError::BadOpcode(0x81)),
        (&[(0, 0x01)], ProtocolError::BadOpcode(1)),
        (&[(4, 1), (6, 0x10)], ProtocolError::BadLength((1 << 20) + 1 + 512)),
        (&[(2, 11)], ProtocolError::BadLength(512)),
        (&[(0, 0xc0)], ProtocolError::BadLength(512)),
    ];
    for (changes, fatal) in cases {
        let (mut client, _) = open(false);
        let bytes = changed(&done, changes);
        assert_eq!(client.next_event(&mut &bytes[..]), Err(fatal), "{changes:?}");
    }
    let early = |bytes: &[u8]| ClientSession::v2(hello()).next_event(&mut &bytes[..]).err();
    assert_eq!(early(&done), Some(ProtocolError::OutOfOrder));
    assert_eq!(
        early(&hex("c0 000000 00000000 0000000000000000 0000000000000000")),
        Some(ProtocolError::OutOfOrder)
    );
    assert_eq!(early(&changed(&hex(HELLO_REPLY), &[(24, 3)])), Some(ProtocolError::BadVersion(3)));
    let (mut client, _) = open(false);
    assert_eq!(client.next_event(&mut &hex(HELLO_REPLY)[..]), Err(ProtocolError::OutOfOrder));
}

#[test]
fn a_client_skips_notices_it_does_not_know() {
    let (mut client, _) = open(false);
    let bytes = hex("f7 00 0000 03000000 0000000000000000 0000000000000000 aabbcc
        c0 00 0000 00000000 0900000000000000 0000000000000000");
    let mut input = &bytes[..];
    assert_eq!(client.next_event(&mut input), Ok(Some(ClientEvent::Pong { tag: 9 })));
    let long = hex("f7 00 0000 29000000 0000000000000000 0000000000000000");
    assert_eq!(client.next_event(&mut &long[..]), Err(ProtocolError::BadLength(41)));
}

#[test]
fn a_status_that_only_clients_make_is_not_believed() {
    let (mut client, _) = open(false);
    for code in ["1000", "ffff"] {
        let bytes = hex(&format!("80 00 {code} 00000000 0900000000000000 0000000000000000"));
        let reply = ClientEvent::Reply { tag: 9, status: Status::Internal, body_bytes: 0 };
        assert_eq!(client.next_event(&mut &bytes[..]), Ok(Some(reply)));
    }
}

#[test]
fn a_client_refuses_what_the_server_would() {
    let (mut client, _) = open(false);
    let read = |blocks| Command::Read(Range::new(0, blocks));
    assert_eq!(client.request(0, 8, None, read(1), &[]).unwrap_err(), Status::Invalid);
    assert_eq!(client.request(0, 0, None, read(0), &[]).unwrap_err(), Status::BadLength);
    assert_eq!(client.request(0, 0, None, read(2049), &[]).unwrap_err(), Status::BadLength);
    assert_eq!(client.request(0, 0, None, read(1), &[0; 512]).unwrap_err(), Status::BadLength);
    let name = "n".repeat(65).into();
    let register = TenantRegistration { tag: 0, tenant: 0, name, slo: None };
    assert_eq!(client.control(&ControlRequest::Register(register)).unwrap_err(), Status::BadLength);
}

#[test]
#[should_panic(expected = "a token longer than 64")]
fn a_token_that_is_too_long_is_the_callers_fault() {
    ClientSession::v2(Hello { token: [0; 65].into(), ..Hello::default() });
}

#[test]
fn sessions_are_small() {
    assert!(size_of::<ServerSession>() <= 256, "{}", size_of::<ServerSession>());
    assert!(size_of::<ClientSession>() <= 128, "{}", size_of::<ClientSession>());
}
