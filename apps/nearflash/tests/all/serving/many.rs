//! Tests of as many namespaces as their numbers on the wire allow.

use std::fmt::Write;

use crate::support::{NvmeQueue, Operator, Server, ServerFolder, V2, pattern};
use contract::{Command, Range, Status};

const SUBSYSTEM: &str = "nqn.2026-11.org.example:many";

/// The largest number that a namespace can have.
const MOST: u16 = 65_000;

const BYTES: u64 = 4096;
const ALL: Range = Range::new(0, 8);

/// Starts a server of namespaces with these numbers.
fn start(place: &ServerFolder, numbers: impl Iterator<Item = u16>) -> Server {
    let mut config = format!(
        "[[device]]\nname = \"d\"\nspec = \"mem:255MiB\"\n[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n"
    );
    for number in numbers {
        let offset = u64::from(number - 1) * BYTES;
        let at = format!("offset = \"{offset}\"\nsize = \"{BYTES}\"");
        writeln!(config, "[[namespace]]\ndevice = \"d\"\nnumber = {number}\n{at}").unwrap();
    }
    place.write_configuration(&config);
    place.configured().start()
}

/// Checks that each of these namespaces has blocks of its own, for clients and for NVMe hosts.
fn are_served(server: &Server, numbers: &[u16]) {
    let mut client = V2::connect(server.address());
    for &number in numbers {
        let write = Command::Write { range: ALL, fua: false };
        assert_eq!(client.call_in(number, write, &pattern(0, 8, number as u8)).0, Status::Ok);
    }
    let mut host = NvmeQueue::admin(server.listener(1), 1, SUBSYSTEM).unwrap();
    let mut io = host.io(server.listener(1), 1, SUBSYSTEM);
    for &number in numbers {
        let written = pattern(0, 8, number as u8);
        assert_eq!(client.call_in(number, Command::Read(ALL), &[]), (Status::Ok, written));
        assert_eq!(host.blocks(number.into()), Ok(8));
        assert_eq!(io.read(number.into(), 7).unwrap(), pattern(7, 1, number as u8));
    }
    assert_eq!(client.call_in(MOST + 1, Command::Read(ALL), &[]).0, Status::NoNamespace);
}

#[test]
fn the_largest_number_of_a_namespace_is_served() {
    let place = ServerFolder::in_memory();
    let server = start(&place, [1, 1024, 1025, MOST].into_iter());
    are_served(&server, &[1, 1024, 1025, MOST]);
}

#[test]
#[ignore = "full: a server of so many namespaces takes a while to start"]
fn sixty_five_thousand_namespaces_are_served_and_no_more() {
    let place = ServerFolder::in_memory();
    let server = start(&place, 1..=MOST);
    are_served(&server, &[1, MOST / 2, MOST]);
    let said = place.refused(&["namespace", "add", "more", "4KiB"]);
    assert!(said.contains("65000"), "{said}");
    assert!(place.told(&["namespace", "list"]).lines().count() > usize::from(MOST));
}
