//! Checks that both sessions send the bytes of the worked example in
//! docs/reference/protocols/reflex-v2.md.

use contract::{
    Command, ControlRequest, Hello, HelloReply, REQUEST_BYTES_MAX, Range, Reply, Session,
    SessionEvent, Status,
};
use nearflash_proto::reflex::{ClientSession, ServerSession};

const DOCUMENT: &str = include_str!("../../../../docs/reference/protocols/reflex-v2.md");

/// Returns the hex blocks of the document, in their order.
fn documented() -> Vec<String> {
    DOCUMENT
        .split("```hex\n")
        .skip(1)
        .map(|text| text.split("```").next().unwrap_or_default().trim_end().to_owned())
        .collect()
}

/// Returns the bytes in hexadecimal, as rows of 16 with their decimal offsets.
fn rows(bytes: &[u8]) -> String {
    let row = |(n, row): (usize, &[u8])| {
        let bytes: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:3} | {}", n * 16, bytes.join(" "))
    };
    bytes.chunks(16).enumerate().map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_is_what_both_ends_say() {
    let wanted = Hello { tag: 1, queue_depth: 32, ..Hello::default() };
    let mut client = ClientSession::v2(wanted.clone());
    let mut server = ServerSession::new();

    let greeting = client.greeting();
    let hello = greeting.iter().flat_map(|head| head.bytes()).copied().collect::<Vec<u8>>();
    let heard = server.next_event(&mut &hello[..]).expect("a hello").expect("all of it");
    assert!(matches!(heard, SessionEvent::Control(said) if *said == ControlRequest::Hello(wanted)));

    let reply = HelloReply {
        queue_depth: 32,
        request_bytes_max: REQUEST_BYTES_MAX as u32,
        checksums: false,
        namespaces: 1,
        namespace: 1,
        storage_epoch: 0x9ab4_03d1,
    };
    let reply = Reply::Hello { tag: 1, status: Status::Ok, reply };
    let welcome = server.reply(&reply, &[]).expect("a reply");
    client.next_event(&mut welcome.bytes()).expect("a reply").expect("all of it");

    let command = Command::Read(Range::new(16, 8));
    let read = client.request(2, 0, None, command, &[]).expect("a read");
    server.next_event(&mut read.bytes()).expect("a read").expect("all of it");
    let reply = Reply::Done { tag: 2, status: Status::Ok, command };
    let done = server.reply(&reply, &[0; 4096]).expect("a reply");

    let said = [&hello[..], welcome.bytes(), read.bytes(), done.bytes()].map(rows);
    assert_eq!(documented(), said, "\n{}", said.join("\n\n"));
}
