//! Checks that docs/reference/protocols/reflex-v2.md has the status codes and opcodes of the code.

use contract::Status;
use wire::reflex_v2::{Opcode, ReplyOpcode};

const DOCUMENT: &str = include_str!("../../../../docs/reference/protocols/reflex-v2.md");

#[test]
fn every_status_is_documented_with_its_code() {
    let (_, section) = DOCUMENT.split_once("### Status codes").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let documented: Vec<String> =
        rows.map(|row| row.split('|').skip(1).take(2).collect::<Vec<_>>().join("|")).collect();
    let ours = Status::ALL.map(|status| format!(" {} | `{status:?}` ", status.code()));
    assert_eq!(documented, ours);
}

#[test]
fn every_message_has_a_heading_with_its_opcode() {
    let requests = [
        ("Read", Opcode::READ),
        ("Write", Opcode::WRITE),
        ("Flush", Opcode::FLUSH),
        ("Discard", Opcode::DISCARD),
        ("Write zeroes", Opcode::WRITE_ZEROES),
        ("Compare-and-write", Opcode::COMPARE_AND_WRITE),
        ("Atomic write", Opcode::WRITE_ATOMIC),
        ("Barrier", Opcode::BARRIER),
        ("Ping", Opcode::PING),
        ("Info", Opcode::INFO),
        ("Register", Opcode::REGISTER),
        ("Renegotiate", Opcode::RENEGOTIATE),
        ("Unregister", Opcode::UNREGISTER),
    ];
    let replies = [
        ("Done", ReplyOpcode::DONE),
        ("Reply to a hello", ReplyOpcode::HELLO),
        ("Pong", ReplyOpcode::PONG),
        ("Reply to an info", ReplyOpcode::INFO),
        ("Reply to register, renegotiate and unregister", ReplyOpcode::TENANT),
        ("Draining", ReplyOpcode::NOTICE_DRAINING),
        ("Renegotiation", ReplyOpcode::NOTICE_RENEGOTIATE),
    ];
    let requests = requests.map(|(name, opcode)| (name, opcode.0));
    let all = requests.into_iter().chain(replies.map(|(name, opcode)| (name, opcode.0)));
    for (name, opcode) in all {
        let heading = format!("\n### {name}, {opcode:#04x}");
        let (_, section) = DOCUMENT.split_once(&heading).expect(&heading);
        let diagram = section.split("\n### ").next().unwrap_or_default();
        let first = format!("\n  0 |  {opcode:#04x} |");
        assert!(diagram.contains(&first), "the diagram of {name} begins with {opcode:#04x}");
    }
}
