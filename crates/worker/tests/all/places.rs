//! Namespaces that change while requests are on their way to the device.

use crate::rig::{Rig, UNIT};
use contract::{ConnId, Namespace, NamespaceId, Status, WorkerMessage};

/// Returns the message that replaces the worker's only namespace, or removes it.
fn place(change: u64, namespace: Option<Namespace>) -> WorkerMessage {
    WorkerMessage::Place { change, number: NamespaceId(1), namespace, name: "ns1".into() }
}

fn of(blocks: u64) -> Option<Namespace> {
    Some(Namespace { device: 0, first: 0, blocks, read_only: false })
}

fn answered(tag: u8, status: Status) -> (u32, Vec<u8>) {
    (0, vec![b'R', tag, status as u8])
}

/// Creates a worker with one connection, whose scheduler releases no requests.
fn held() -> Rig {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.open_gate(false);
    rig
}

#[test]
fn what_waits_for_a_namespace_that_goes_is_told_so() {
    let mut rig = held();
    rig.say(0, b"W\x01W\x01W\x01");
    rig.say(0, b"P\x00P\x01");
    assert_eq!(rig.tell(place(1, None)), [], "their turn has not come");
    // Nothing is at the device, so its blocks are free at once.
    assert_eq!(rig.meters.placed(), 1);
    assert_eq!(rig.say(0, b"W\x01"), [answered(3, Status::NoNamespace)]);
    rig.say(0, b"P\x02");
    let gone = [0, 1, 2].map(|tag| answered(tag, Status::NoNamespace));
    assert_eq!(rig.open_gate(true), gone);
    assert!(rig.worker.is_at_rest());
    // Another of its number is served to whoever comes after that, and to nobody else.
    rig.tell(place(2, of(64)));
    assert_eq!(rig.meters.placed(), 2);
    assert_eq!(rig.say(0, b"W\x01"), [answered(4, Status::NoNamespace)]);
    rig.connect(1, 1);
    assert_eq!(rig.say(1, b"W\x01"), [(1, vec![b'I', 0])]);
    assert_eq!(rig.say(1, b"P\x00"), [(1, vec![b'R', 0, Status::Ok as u8])]);
}

#[test]
fn what_is_on_its_way_while_its_number_goes_to_another_is_refused_and_so_is_what_comes_later() {
    let mut rig = held();
    rig.say(0, b"W\x01R\x01");
    rig.say(0, b"P\x00");
    rig.tell(WorkerMessage::Move { conn: ConnId { index: 0, generation: 0 }, to: 1 });
    let parcel = rig.departed().expect("nothing of it is at the device");
    assert_eq!(parcel.requests.len(), 2);
    rig.tell(place(1, None));
    rig.tell(place(2, of(64)));
    rig.open_gate(true);
    let told = |tag: u8| (1, vec![b'R', tag, Status::NoNamespace as u8]);
    let mut answers = rig.tell(WorkerMessage::Returned(parcel));
    answers.sort();
    assert_eq!(answers, [0, 1].map(told));
    assert_eq!(rig.say(1, b"R\x01"), [told(2)]);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn only_what_lies_behind_the_new_end_is_refused() {
    let mut rig = held();
    rig.say(0, b"W\x01W\x02");
    rig.say(0, b"P\x00P\x01");
    rig.tell(place(1, of(8)));
    // What goes to no device is answered before what does.
    assert_eq!(rig.open_gate(true), [answered(1, Status::OutOfRange), answered(0, Status::Ok)]);
    assert_eq!(rig.say(0, b"W\x02"), [answered(2, Status::OutOfRange)]);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn a_namespace_that_is_closed_to_writes_takes_none_that_waits_and_still_reads() {
    let mut rig = held();
    rig.say(0, b"W\x01R\x01");
    rig.say(0, b"P\x00");
    let closed = of(64).map(|open| Namespace { read_only: true, ..open });
    assert_eq!(rig.tell(place(1, closed)), [], "its turn has not come");
    assert_eq!(rig.meters.placed(), 1, "nothing that writes is at the device");
    assert_eq!(rig.open_gate(true)[0], answered(0, Status::ReadOnly));
    assert_eq!(rig.say(0, b"W\x01"), [answered(2, Status::ReadOnly)]);
    rig.tell(place(2, of(64)));
    assert_eq!(rig.say(0, b"W\x01"), [(0, vec![b'I', 3])]);
    assert_eq!(rig.say(0, b"P\x03"), [answered(3, Status::Ok)]);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn what_was_withheld_stays_withheld_when_the_namespace_grows_again() {
    let mut rig = held();
    rig.say(0, b"W\x02");
    rig.say(0, b"P\x00");
    rig.tell(place(1, of(8)));
    rig.tell(place(2, of(64)));
    assert_eq!(rig.meters.placed(), 2);
    assert_eq!(rig.open_gate(true), [answered(0, Status::OutOfRange)]);
}
