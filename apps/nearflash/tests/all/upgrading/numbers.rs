//! Tests that a connection cannot reach a new namespace by the number of a removed one, whichever
//! process gave the number away again.

use crate::support::{Launch, Server, ServerFolder, V2, pattern};
use contract::{Command, Range, Status};
use control::admin::{NamespaceStatus, NewNamespace, RemoveNamespace};

/// Size in bytes of each namespace.
const BYTES: u64 = 1 << 20;

/// Maximum number of namespaces that are added and removed until one gets a number again.
const TRIES: usize = 100;

fn add(place: &ServerFolder, name: &str) -> NamespaceStatus {
    let new = NewNamespace {
        name: name.to_owned(),
        bytes: BYTES,
        device: None,
        read_only: false,
        uuid: None,
        subsystems: None,
    };
    place.client().send(&new).unwrap()
}

fn remove(place: &ServerFolder, name: &str) {
    place.client().send_to(name, &RemoveNamespace::default()).unwrap();
}

/// Adds and removes namespaces until one gets this number, which a removed namespace had.
fn give_again(place: &ServerFolder, number: u16) {
    for n in 0..TRIES {
        let name = format!("again{number}-{n}");
        if add(place, &name).number == number {
            return;
        }
        remove(place, &name);
    }
    panic!("number {number} was not given again");
}

fn write(client: &mut V2, number: u16, seed: u8) -> Status {
    let range = Range::new(0, 8);
    client.call_in(number, Command::Write { range, fua: false }, &pattern(0, 8, seed)).0
}

fn start(place: &ServerFolder) -> Server {
    place.crewed(Launch::device(&place.file("device"))).start()
}

#[test]
fn a_removed_namespaces_number_is_refused_to_who_knew_it_before_and_after_an_upgrade() {
    let place = ServerFolder::in_memory();
    let mut old = start(&place);
    let number = add(&place, "first").number;
    let mut client = V2::connect(old.address());
    assert_eq!(write(&mut client, number, 1), Status::Ok);
    remove(&place, "first");
    assert_eq!(write(&mut client, number, 2), Status::NoNamespace);
    let upgraded = place.crewed(Launch::device(&place.file("device"))).with("--upgrade").start();
    assert!(old.wait().success(), "the older process ends in order");
    assert_eq!(write(&mut client, number, 3), Status::NoNamespace, "it came along");
    give_again(&place, number);
    assert_eq!(write(&mut client, number, 4), Status::NoNamespace, "it is another one");
    let read = client.call_in(number, Command::Read(Range::new(0, 8)), &[]);
    assert_eq!(read.0, Status::NoNamespace);
    // Who comes later means the one that is there, and finds nothing of anybody else.
    let mut later = V2::connect(upgraded.address());
    let read = later.call_in(number, Command::Read(Range::new(0, 8)), &[]);
    assert_eq!(read, (Status::Ok, vec![0; 8 * 512]));
    // Who asks means it from then on.
    assert_eq!(client.info(number).unwrap().blocks, BYTES / 512);
    assert_eq!(write(&mut client, number, 5), Status::Ok);
    // A new number was never anybody's, and is served on open connections.
    let new = add(&place, "new").number;
    assert_eq!(write(&mut client, new, 6), Status::Ok);
    // The same within one process.
    remove(&place, "new");
    give_again(&place, new);
    assert_eq!(write(&mut client, new, 7), Status::NoNamespace);
}
