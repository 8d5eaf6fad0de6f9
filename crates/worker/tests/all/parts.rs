//! Discards that go to their device in parts. The rig's parts have four units.

use crate::rig::{Rig, UNIT};

fn answered(conn: u32, tag: u8) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, 0])
}

fn rig() -> Rig {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.connect(1, 2);
    rig
}

#[test]
fn each_part_is_paid_for_and_the_last_answers() {
    let mut rig = rig();
    assert_eq!(rig.say(0, b"D\x0a"), [answered(0, 0)]);
    assert_eq!(rig.paid(), 3);
    assert_eq!(rig.say(0, b"D\x04"), [answered(0, 1)]);
    assert_eq!(rig.paid(), 4, "four units are one part");
    assert!(rig.worker.is_at_rest());
}

#[test]
fn others_have_their_turns_between_two_parts() {
    let mut rig = rig();
    rig.open_gate(false);
    rig.say(0, b"D\x0a");
    rig.say(1, b"R\x01");
    assert_eq!(rig.open_gate(true), [answered(1, 0), answered(0, 0)]);
}

#[test]
fn what_waits_behind_a_barrier_waits_for_the_last_part() {
    let mut rig = rig();
    rig.open_gate(false);
    rig.say(0, b"D\x0aO\x00R\x01");
    assert_eq!(rig.open_gate(true), [answered(0, 0), answered(0, 1), answered(0, 2)]);
}
