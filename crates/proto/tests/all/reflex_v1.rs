//! Tests of version 1 with the bytes of the original (docs/reference/protocols/reflex-v1.md), as
//! traces.

use contract::{Command, ProtocolError, Range, Reply, Request, Session, SessionEvent, Status};
use nearflash_proto::reflex::{ClientEvent, ClientSession, ServerSession};

/// GET: handle 0x1122334455667788, 8 sectors from 0x0102030405060708.
const GET: [u8; 24] = [
    24, 0, // magic
    0, 0, // GET
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // handle
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, // lba
    8, 0, 0, 0, // sectors
];

/// SET: handle 5, one sector from 9.
const SET: [u8; 24] = [
    24, 0, // magic
    1, 0, // SET
    5, 0, 0, 0, 0, 0, 0, 0, // handle
    9, 0, 0, 0, 0, 0, 0, 0, // lba
    1, 0, 0, 0, // sectors
];

/// The reply to [`SET`]; no sectors follow.
const SET_DONE: [u8; 24] = [
    24, 0, // magic
    1, 0, // SET
    5, 0, 0, 0, 0, 0, 0, 0, // handle
    9, 0, 0, 0, 0, 0, 0, 0, // lba
    0, 0, 0, 0, // sectors
];

const GET_COMMAND: Command = Command::Read(Range::new(0x0102_0304_0506_0708, 8));
const SET_COMMAND: Command = Command::Write { range: Range::new(9, 1), fua: false };

/// Returns the request that `bytes` begin with.
fn parse(session: &mut ServerSession, bytes: &[u8]) -> Result<Request, ProtocolError> {
    let mut input = bytes;
    match session.next_event(&mut input)? {
        Some(SessionEvent::Request(request)) => Ok(request),
        other => panic!("{other:?} instead of a request"),
    }
}

#[test]
fn a_server_reads_and_answers_a_get() {
    let mut server = ServerSession::new();
    assert_eq!(server.version(), None);
    let handle = 0x1122_3344_5566_7788;
    assert_eq!(parse(&mut server, &GET), Ok(Request::plain(handle, GET_COMMAND)));
    assert_eq!(server.version(), Some(1));
    assert!(!server.is_mid_message() && !server.takes_notices());

    let reply = Reply::Done { tag: handle, command: GET_COMMAND, status: Status::Ok };
    let head = server.reply(&reply, &[0; 8 * 512]).unwrap();
    assert_eq!(head.bytes(), GET, "the request's own head, then the data");
}

#[test]
fn a_server_reads_and_answers_a_set() {
    let mut server = ServerSession::new();
    let bytes = [&SET[..], &[7; 512], &GET].concat();
    let mut input = &bytes[..24 + 100];
    let event = server.next_event(&mut input).unwrap();
    assert!(matches!(event, Some(SessionEvent::Request(r)) if r == Request::plain(5, SET_COMMAND)));
    assert!(server.is_mid_message());
    let event = server.next_event(&mut input).unwrap();
    assert!(matches!(event, Some(SessionEvent::Payload { bytes, end: None }) if bytes == [7; 100]));
    assert!(server.next_event(&mut input).unwrap().is_none());
    let mut input = &bytes[24 + 100..];
    let event = server.next_event(&mut input).unwrap();
    assert!(
        matches!(event, Some(SessionEvent::Payload { bytes, end: Some(Status::Ok) }) if bytes == [7; 412])
    );
    assert!(!server.is_mid_message());
    assert!(matches!(server.next_event(&mut input), Ok(Some(SessionEvent::Request(_)))));
    assert!(input.is_empty());

    let reply = Reply::Done { tag: 5, command: SET_COMMAND, status: Status::Ok };
    assert_eq!(server.reply(&reply, &[]).unwrap().bytes(), SET_DONE);
}

#[test]
fn what_cannot_be_served_ends_the_connection() {
    let cases: [(usize, &[u8], ProtocolError); 7] = [
        (0, &[25, 0], ProtocolError::BadMagic(25)),
        (0, &[0, 0], ProtocolError::BadMagic(0)),
        (0, b"GE", ProtocolError::BadMagic(0x4547)),
        (2, &[2, 0], ProtocolError::BadOpcode(2)),
        (2, &[0, 1], ProtocolError::BadOpcode(256)),
        (20, &[0, 0, 0, 0], ProtocolError::BadLength(0)),
        (20, &[1, 8, 0, 0], ProtocolError::BadLength((1 << 20) + 512)),
    ];
    for (at, bytes, fatal) in cases {
        let mut head = GET;
        head[at..at + bytes.len()].copy_from_slice(bytes);
        let mut server = ServerSession::new();
        assert_eq!(server.next_event(&mut &head[..]).unwrap_err(), fatal, "{head:?}");
        let mut server = ServerSession::new();
        parse(&mut server, &GET).unwrap();
        assert_eq!(server.next_event(&mut &head[..]).unwrap_err(), fatal, "as second: {head:?}");
    }
    let mut largest = GET;
    largest[20..].copy_from_slice(&[0, 8, 0, 0]);
    assert_eq!(parse(&mut ServerSession::new(), &largest).unwrap().command.reply_bytes(), 1 << 20);
}

#[test]
fn an_error_has_no_words() {
    let mut server = ServerSession::new();
    parse(&mut server, &GET).unwrap();
    let reply = Reply::Done { tag: 1, command: GET_COMMAND, status: Status::OutOfRange };
    assert_eq!(
        server.reply(&reply, &[]).unwrap_err(),
        ProtocolError::Unanswerable(Status::OutOfRange)
    );
    assert_eq!(
        server.reply(&Reply::Pong { tag: 1 }, &[]).unwrap_err(),
        ProtocolError::Unanswerable(Status::Unsupported)
    );
}

#[test]
fn a_client_says_and_hears_the_same_bytes() {
    let mut client = ClientSession::v1();
    assert_eq!(client.version(), 1);
    assert!(client.greeting().is_empty() && !client.checksums());
    let tag = 0x1122_3344_5566_7787;
    assert_eq!(client.request(tag, 0, None, GET_COMMAND, &[]).unwrap().bytes(), GET);
    assert_eq!(client.request(4, 0, None, SET_COMMAND, &[7; 512]).unwrap().bytes(), SET);

    let bytes = [&SET_DONE[..], &GET, &[3; 8 * 512]].concat();
    let mut input = &bytes[..];
    let mut next = || client.next_event(&mut input).unwrap().unwrap();
    assert_eq!(next(), ClientEvent::Reply { tag: 4, status: Status::Ok, body_bytes: 0 });
    assert_eq!(next(), ClientEvent::Reply { tag, status: Status::Ok, body_bytes: 4096 });
    assert_eq!(next(), ClientEvent::Body { bytes: &[3; 4096], end: Some(Status::Ok) });
    assert_eq!(client.next_event(&mut input), Ok(None));
}

#[test]
fn a_client_does_not_say_what_version_1_cannot() {
    let mut client = ClientSession::v1();
    let range = Range::new(0, 1);
    let mut refused = |tag, namespace, command, payload: &[u8]| {
        client.request(tag, 0, namespace, command, payload).unwrap_err()
    };
    let fua = Command::Write { range, fua: true };
    assert_eq!(refused(0, None, fua, &[0; 512]), Status::Unsupported);
    assert_eq!(refused(0, None, Command::Flush, &[]), Status::Unsupported);
    assert_eq!(refused(0, None, Command::Discard(range), &[]), Status::Unsupported);
    let namespace = Some(contract::NamespaceId(1));
    assert_eq!(refused(0, namespace, Command::Read(range), &[]), Status::Unsupported);
    assert_eq!(refused(u64::MAX, None, Command::Read(range), &[]), Status::Invalid);
    assert_eq!(refused(0, None, Command::Read(Range::new(0, 0)), &[]), Status::BadLength);
    assert_eq!(refused(0, None, Command::Read(Range::new(0, 2049)), &[]), Status::BadLength);
    assert_eq!(refused(0, None, SET_COMMAND, &[0; 511]), Status::BadLength);
    let ping = contract::ControlRequest::Ping { tag: 1 };
    assert_eq!(client.control(&ping).unwrap_err(), Status::Unsupported);
}

#[test]
fn a_client_refuses_impossible_replies() {
    let cases: [(&[u8; 24], usize, &[u8], ProtocolError); 6] = [
        (&GET, 0, &[23, 0], ProtocolError::BadMagic(23)),
        (&GET, 2, &[2, 0], ProtocolError::BadOpcode(2)),
        (&GET, 4, &[0; 8], ProtocolError::UnknownTag(0)),
        (&GET, 20, &[0; 4], ProtocolError::BadLength(0)),
        (&GET, 20, &[1, 8, 0, 0], ProtocolError::BadLength((1 << 20) + 512)),
        (&SET_DONE, 20, &[1, 0, 0, 0], ProtocolError::BadLength(1)),
    ];
    for (head, at, bytes, fatal) in cases {
        let mut head = *head;
        head[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(ClientSession::v1().next_event(&mut &head[..]), Err(fatal), "{head:?}");
    }
}
