//! Writes wait for those that a lost connection of the same client has at the device.

use std::sync::Arc;

use crate::rig::{Rig, UNIT};
use contract::{Fence, FenceGroup, StartOutcome, Status};

/// The place of the worker's only device.
const DEVICE: usize = 0;

fn answered(conn: u32, tag: u8, status: Status) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, status as u8])
}

/// Creates a worker with one connection of a client. Returns it with the connection's fence, and
/// the fence of a connection that the client lost with a write at the device.
fn haunted() -> (Rig, Arc<Fence>, Fence) {
    let group = Arc::new(FenceGroup::default());
    let lost = Fence::among(group.clone());
    assert_eq!(lost.start(DEVICE, 0), StartOutcome::Started);
    lost.supersede();
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    let own = rig.connect_fenced(0, Fence::among(group));
    (rig, own, lost)
}

#[test]
fn writes_are_held_until_the_lost_connections_have_ended() {
    let (mut rig, own, lost) = haunted();
    rig.connect_fenced(1, Fence::among(Arc::new(FenceGroup::default())));
    rig.say(0, b"W\x01W\x01");
    assert_eq!(rig.say(0, b"P\x00P\x01"), []);
    assert_eq!(rig.worker.load().fenced, 2);
    assert!(!own.is_running(), "what is held has not started");
    rig.say(1, b"W\x01");
    assert_eq!(rig.say(1, b"P\x00"), [answered(1, 0, Status::Ok)], "it is another client's");
    assert_eq!(rig.turns(), []);
    lost.end(DEVICE, 0);
    assert_eq!(rig.turns(), [0, 1].map(|tag| answered(0, tag, Status::Ok)));
    assert!(rig.worker.is_at_rest() && !own.is_running());
}

#[test]
fn whoever_is_held_looks_again_without_being_woken() {
    let (mut rig, _own, lost) = haunted();
    rig.say(0, b"W\x01");
    rig.say(0, b"P\x00");
    let now = contract::Instant::ZERO + std::time::Duration::from_millis(1);
    let turn = rig.worker.turn(now);
    assert!(!turn.progressed, "a worker does not spin for what it holds");
    let soon = now + std::time::Duration::from_millis(1);
    assert!(turn.wake_at.is_some_and(|at| now < at && at < soon));
    lost.end(DEVICE, 0);
    assert!(rig.worker.turn(soon).progressed);
}

#[test]
fn what_is_held_goes_with_its_connection() {
    let (mut rig, own, lost) = haunted();
    rig.say(0, b"W\x01W\x04");
    rig.say(0, b"P\x00P\x01");
    rig.hang_up(0);
    assert_eq!(rig.turns(), []);
    assert!(rig.worker.is_at_rest() && rig.worker.load().fenced == 0);
    lost.end(DEVICE, 0);
    assert_eq!(own.start(DEVICE, 0), StartOutcome::Started);
}

#[test]
fn what_is_superseded_is_answered_and_its_session_ends_the_connection() {
    let (mut rig, own, lost) = haunted();
    rig.say(0, b"W\x01W\x01");
    rig.say(0, b"P\x00");
    own.supersede();
    assert_eq!(rig.turns(), [answered(0, 0, Status::Retry)], "held, then superseded");
    assert_eq!(rig.say(0, b"P\x01"), [answered(0, 1, Status::Retry)]);
    assert_eq!((rig.worker.connections(), rig.paid()), (1, 0), "nothing was served, nothing costs");
    assert!(rig.worker.is_at_rest() && !own.is_running());
    lost.end(DEVICE, 0);
}

#[test]
fn whoever_breaks_the_protocol_starts_nothing_more() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    let own = rig.connect_fenced(0, Fence::among(Arc::new(FenceGroup::default())));
    rig.let_linger();
    rig.open_gate(false);
    rig.say(0, b"W\x01W\x01");
    rig.say(0, b"P\x00P\x01");
    rig.say(0, b"X\x00");
    assert!(own.is_superseded(), "it is gone, though the peer holds on to its end");
    assert_eq!(rig.open_gate(true), []);
    assert_eq!((rig.paid(), rig.worker.connections()), (0, 1), "no device saw them");
    rig.hang_up(0);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn what_was_allowed_before_a_right_was_taken_is_looked_at_again() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    let own = rig.connect_fenced(0, Fence::default());
    rig.open_gate(false);
    rig.say(0, b"W\x01W\x01");
    rig.say(0, b"P\x00P\x01");
    own.revoke().expect("nothing runs");
    let told = [answered(0, 0, Status::Denied), answered(0, 1, Status::Ok)];
    assert_eq!(rig.open_gate(true), told);
    assert_eq!(rig.paid(), 1, "one of them has cost nothing");
    assert!(rig.worker.is_at_rest() && !own.is_running());
}
