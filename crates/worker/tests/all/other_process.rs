//! Requests that wait while another process of the server, older or newer, has requests at the
//! devices.

use std::sync::Arc;

use crate::rig::{Rig, UNIT};
use contract::{Fence, FenceGroup, Status};

fn answered(conn: u32, tag: u8, status: Status) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, status as u8])
}

fn group() -> Fence {
    Fence::among(Arc::new(FenceGroup::default()))
}

#[test]
fn hosts_that_the_other_process_may_have_lost_write_when_it_is_at_rest() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    let own = rig.connect_fenced(0, group());
    rig.connect(1, 2);
    rig.fences().hold_groups(true);
    rig.say(0, b"W\x01");
    assert_eq!(rig.say(0, b"P\x00"), []);
    assert!(!own.is_running() && rig.worker.load().fenced == 1);
    assert_eq!(rig.say(0, b"R\x01"), [answered(0, 1, Status::Ok)], "reads do not wait");
    rig.say(1, b"W\x01");
    assert_eq!(rig.say(1, b"P\x00"), [answered(1, 0, Status::Ok)], "nor who was taken over");
    rig.fences().hold_groups(false);
    assert_eq!(rig.turns(), [answered(0, 0, Status::Ok)]);
    assert!(rig.worker.is_at_rest() && !own.is_running());
}

#[test]
fn whoever_waits_for_the_other_process_holds_up_nobody() {
    let mut rig = Rig::new(64, &[(UNIT, 2), (2 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.fences().hold_exclusives(true);
    rig.say(0, b"C\x01");
    assert_eq!(rig.say(0, b"P\x00"), []);
    let said = rig.say(0, &b"R\x01".repeat(8));
    assert_eq!(said.len(), 8, "there are fewer buffers than reads");
    assert_eq!(rig.worker.load().fenced, 1);
    rig.fences().hold_exclusives(false);
    assert_eq!(rig.turns(), [answered(0, 0, Status::Unsupported)], "the device was asked");
    assert!(rig.worker.is_at_rest());
}

#[test]
fn what_waits_looks_again_without_being_woken() {
    let mut rig = Rig::new(64, &[(UNIT, 2), (2 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.fences().hold_exclusives(true);
    rig.say(0, b"C\x01");
    rig.say(0, b"P\x00");
    let now = contract::Instant::ZERO + std::time::Duration::from_millis(1);
    let turn = rig.worker.turn(now);
    let soon = now + std::time::Duration::from_millis(1);
    assert!(!turn.progressed && turn.wake_at.is_some_and(|at| now < at && at < soon));
}

#[test]
fn what_waits_is_sent_away_by_a_process_that_stops() {
    let mut rig = Rig::new(64, &[(UNIT, 2), (2 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.connect_fenced(1, group());
    rig.fences().hold_exclusives(true);
    rig.fences().hold_groups(true);
    rig.say(0, b"C\x01");
    rig.say(1, b"W\x01");
    assert_eq!([rig.say(0, b"P\x00"), rig.say(1, b"P\x00")], [[], []]);
    assert_eq!(rig.drain(), [0, 1].map(|conn| answered(conn, 0, Status::Retry)));
    assert!(rig.worker.is_drained() && rig.paid() == 0);
}
