//! Tests of access to namespaces, as clients of both protocol versions see it.

use std::time::Duration;

use crate::support::{Launch, PATIENCE, PoliteClient, Server, V1, V2, now};
use contract::{Command, Hello, Range, Rights, Status};

/// The configuration of two namespaces of 1 MiB on one device, and of a read-only third.
const TWO: &str = r#"
[[device]]
name = "shared"
spec = "mem:8MiB"

[[namespace]]
device = "shared"
size = "1MiB"

[[namespace]]
device = "shared"
offset = "1MiB"
size = "1MiB"

[[namespace]]
device = "shared"
offset = "2MiB"
size = "1MiB"
read_only = true

[[listen]]
url = "reflex://127.0.0.1:0"

[[listen]]
url = "reflex://127.0.0.1:0?namespace=2"

[[listen]]
url = "reflex://127.0.0.1:0?namespace=3"
"#;

/// Access rules: local clients may read all namespaces, the token `keeper` may write to the second
/// namespace, `all` may write to every one, and nobody else may do anything.
const RULES: &str = r#"
[[access]]
from = "127.0.0.0/8"
rights = "read"

[[access]]
token = "keeper"
namespaces = [2]
rights = "write"

[[access]]
token = "all"
rights = "read-write"

[[access]]
token = "batch-secret"
tenant = "batch"
rights = "read-write"
"#;

const BLOCKS: u64 = 2048;

fn write(lba: u64) -> Command {
    Command::Write { range: Range::new(lba, 1), fua: false }
}

fn two(rules: &str) -> Server {
    Launch::config(&format!("{TWO}\n{rules}")).start()
}

#[test]
fn namespaces_of_one_device_do_not_see_each_other() {
    let server = two("");
    let mut v2 = V2::connect(server.address());
    assert_eq!(v2.limits().namespaces, 3);
    for namespace in [1, 2] {
        assert_eq!(v2.info(namespace).unwrap().blocks, BLOCKS);
        let data = [namespace as u8; 512];
        for lba in [0, BLOCKS - 1] {
            assert_eq!(v2.call_in(namespace, write(lba), &data).0, Status::Ok);
        }
    }
    for namespace in [1, 2] {
        for lba in [0, BLOCKS - 1] {
            let read = Command::Read(Range::new(lba, 1));
            let expected = vec![namespace as u8; 512];
            assert_eq!(v2.call_in(namespace, read, &[]), (Status::Ok, expected));
        }
        let past = Command::Read(Range::new(BLOCKS - 1, 2));
        assert_eq!(v2.call_in(namespace, past, &[]), (Status::OutOfRange, Vec::new()));
        assert_eq!(v2.call_in(namespace, write(BLOCKS), &[9; 512]).0, Status::OutOfRange);
    }
    assert_eq!(v2.call_in(4, write(0), &[0; 512]).0, Status::NoNamespace);
}

#[test]
fn a_listener_says_which_namespace_version_1_means() {
    let server = two("");
    let mut second = V1::connect(server.listener(1));
    second.set(1, 0, &[2; 512]);
    second.expect_written(1, 0);
    let mut first = V1::connect(server.listener(0));
    first.get(1, 0, 1);
    assert_eq!(first.expect_data(1, 0, 1), [0; 512]);
    let mut v2 = V2::connect(server.listener(1));
    assert_eq!(v2.limits().namespace, 2);
    assert_eq!(v2.read_blocks(0, 1), [2; 512]);
    // The end of its namespace is not the end of the device.
    second.set(2, BLOCKS - 1, &[7; 1024]);
    second.expect_end(PATIENCE);
    assert_eq!(v2.read_blocks(BLOCKS - 1, 1), [0; 512]);
    assert_eq!(v2.call_in(3, Command::Read(Range::new(0, 1)), &[]).1, [0; 512]);
}

#[test]
fn a_read_only_namespace_takes_no_writes() {
    let server = two("");
    let polite = PoliteClient::start(server.address());
    let mut v2 = V2::connect(server.address());
    assert_eq!(v2.info(3).unwrap().rights, Rights { read: true, write: false });
    let range = Range::new(0, 1);
    for (command, payload) in [
        (write(0), 512),
        (Command::WriteAtomic(range), 512),
        (Command::CompareAndWrite(range), 1024),
        (Command::Discard(range), 0),
        (Command::WriteZeroes { range, fua: false }, 0),
    ] {
        let status = v2.call_in(3, command, &vec![1; payload]).0;
        assert_eq!(status, Status::ReadOnly, "{command:?}");
    }
    let mut v1 = V1::connect(server.listener(2));
    v1.set(1, 0, &[1; 512]);
    v1.expect_end(PATIENCE);
    let mut v1 = V1::connect(server.listener(2));
    v1.get(2, 0, 1);
    assert_eq!(v1.expect_data(2, 0, 1), [0; 512]);
    polite.dismiss();
}

#[test]
fn an_address_gives_rights() {
    let server = two(RULES);
    let mut v2 = V2::connect(server.address());
    assert_eq!(v2.info(1).unwrap().rights, Rights { read: true, write: false });
    assert_eq!(v2.read_blocks(0, 1), [0; 512]);
    assert_eq!(v2.call(write(0), &[1; 512]).0, Status::Denied);
    assert_eq!(v2.call(Command::Discard(Range::new(0, 1)), &[]).0, Status::Denied);
    assert_eq!(v2.read_blocks(0, 1), [0; 512], "a refused write left something");
    // Version 1 has no status: a request without the right ends the connection.
    let mut v1 = V1::connect(server.address());
    v1.get(1, 0, 1);
    v1.expect_data(1, 0, 1);
    v1.set(2, 0, &[1; 512]);
    v1.expect_end(PATIENCE);
    assert_eq!(v2.read_blocks(0, 1), [0; 512], "a refused write left something");
}

#[test]
fn a_token_gives_rights() {
    let server = two(RULES);
    let mut all = V2::with_token(server.address(), "all").unwrap();
    assert_eq!(all.call(write(0), &[1; 512]).0, Status::Ok);
    let mut keeper = V2::with_token(server.address(), "keeper").unwrap();
    assert_eq!(keeper.call_in(2, write(0), &[2; 512]).0, Status::Ok);
    assert_eq!(keeper.call_in(1, write(0), &[2; 512]).0, Status::Denied);
    // A wrong token gives what the address alone gives.
    let mut wrong = V2::with_token(server.address(), "kee").unwrap();
    assert_eq!(wrong.call_in(2, write(0), &[3; 512]).0, Status::Denied);
    assert_eq!(all.call_in(1, Command::Read(Range::new(0, 1)), &[]).1, [1; 512]);
    assert_eq!(all.call_in(2, Command::Read(Range::new(0, 1)), &[]).1, [2; 512]);
}

#[test]
fn who_asks_for_a_tenant_needs_its_rule() {
    let server = two(RULES);
    let hello = |token: &str, tenant: &str| Hello {
        token: token.as_bytes().into(),
        tenant: tenant.into(),
        ..Hello::default()
    };
    assert!(V2::hello(server.address(), hello("batch-secret", "batch")).is_ok());
    assert_eq!(V2::hello(server.address(), hello("all", "batch")).err(), Some(Status::Denied));
    assert_eq!(V2::hello(server.address(), hello("all", "none")).err(), Some(Status::Denied));
    server.await_log("no access rule gives it the tenant that it asks for");
}

#[test]
fn nobody_gets_in_where_no_rule_lets_him() {
    let rules = "[[access]]\nfrom = \"192.0.2.0/24\"\nrights = \"read-write\"\n\
                 [[access]]\ntoken = \"all\"\nrights = \"read-write\"\n";
    let server = two(rules);
    let mut all = V2::with_token(server.address(), "all").unwrap();
    assert_eq!(V2::with_token(server.address(), "other").err(), Some(Status::Denied));
    let mut v1 = V1::connect(server.address());
    v1.set(1, 0, &[1; 512]);
    v1.expect_end(PATIENCE);
    let mut v1 = V1::connect(server.address());
    v1.get(1, 0, 1);
    v1.expect_end(PATIENCE);
    assert_eq!(all.read_blocks(0, 1), [0; 512]);
    server.await_log("access denied");
    server.await_log("hello refused: its token is that of no access rule");
    assert!(!server.log().contains("other"), "tokens stay out of the log");
}

#[test]
fn an_address_that_guesses_is_looked_at_late_and_gets_in_with_the_token() {
    let server = two("[[access]]\ntoken = \"all\"\nrights = \"read-write\"\n");
    let mut all = V2::with_token(server.address(), "all").unwrap();
    let is_late = (0..200).any(|n| {
        let begun = now();
        let guess = V2::with_token(server.address(), &format!("guess {n}"));
        assert_eq!(guess.err(), Some(Status::Denied));
        // On a busy machine any guess may take as long.
        let is_late = now() - begun >= Duration::from_millis(900);
        is_late && server.log().contains("too many wrong tokens came from this address")
    });
    assert!(is_late, "one can go on guessing");
    server.await_log("too many wrong tokens came from this address");
    // Who is in already notices nothing, and a neighbour with the right one gets in while others
    // guess.
    assert_eq!(all.call(write(0), &[1; 512]).0, Status::Ok);
    let address = server.address();
    let guesses: Vec<_> = (0..8)
        .map(|n| std::thread::spawn(move || V2::with_token(address, &format!("{n}")).err()))
        .collect();
    assert!(V2::with_token(address, "all").is_ok());
    for guess in guesses {
        assert_eq!(guess.join().unwrap(), Some(Status::Denied));
    }
}
