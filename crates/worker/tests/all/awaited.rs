//! Requests whose payloads are asked for: what one tenant waits for holds up nobody else, and what
//! it was given counts against its part.

use crate::rig::{Rig, UNIT};
use contract::{Status, TenantId, WorkerMessage};

fn invited(conn: u32, tag: u8) -> (u32, Vec<u8>) {
    (conn, vec![b'I', tag])
}

fn answered(conn: u32, tag: u8) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, 0])
}

/// The rig's buffers, as bytes and counts. Of the three largest one is set aside, one is not for
/// awaited payloads, and one is left.
const POOL: [(usize, u32); 2] = [(UNIT, 16), (16 * UNIT, 3)];

#[test]
fn one_tenant_out_of_buffers_does_not_delay_another() {
    let mut rig = Rig::new(64, &POOL);
    rig.connect(0, 1);
    rig.connect(1, 2);
    assert_eq!(rig.say(0, b"W\x10W\x10W\x01"), [invited(0, 0)], "the second finds no buffer");
    assert_eq!(rig.say(1, b"W\x01"), [invited(1, 0)], "another tenant wants a small one");
    assert_eq!(rig.say(1, b"W\x10"), [], "or, as the first tenant, what is not there");
    assert_eq!(rig.say(1, b"P\x00"), [answered(1, 0)]);
    // The buffer comes back: it is the first tenant's turn, whose small write comes behind.
    assert_eq!(rig.say(0, b"P\x00"), [answered(0, 0), invited(0, 1), invited(0, 2)]);
    assert_eq!(rig.say(0, b"P\x01"), [answered(0, 1), invited(1, 1)]);
    rig.say(0, b"P\x02");
    rig.say(1, b"P\x01");
    assert!(rig.worker.is_at_rest());
}

#[test]
fn tenants_take_turns_when_slots_are_short() {
    let mut rig = Rig::new(8, &[(UNIT, 16), (2 * UNIT, 3)]);
    (0..3).for_each(|n| rig.connect(n, n as u8 + 1));
    // Half of the slots are for payloads that are awaited; three are this tenant's part of them.
    let first = rig.say(0, b"W\x01W\x01W\x01W\x01W\x01W\x01");
    assert_eq!(first, [invited(0, 0), invited(0, 1), invited(0, 2)]);
    assert_eq!(rig.say(1, b"W\x01W\x01"), [invited(1, 0)]);
    assert_eq!(rig.say(2, b"W\x01W\x01"), [], "there is none left");
    let next = rig.say(0, b"P\x00");
    assert_eq!(next, [answered(0, 0), invited(1, 1)], "the first still has its part");
    assert_eq!(rig.say(1, b"P\x00"), [answered(1, 0), invited(2, 0)]);
    assert_eq!(rig.say(2, b"P\x00"), [answered(2, 0), invited(2, 1)]);
    assert_eq!(rig.say(1, b"P\x01"), [answered(1, 1)]);
    assert_eq!(rig.say(2, b"P\x01"), [answered(2, 1), invited(0, 3)], "now it has less");
}

#[test]
fn payloads_that_came_count_while_their_requests_wait() {
    let mut rig = Rig::new(12, &[(UNIT, 64), (2 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.connect(1, 2);
    rig.open_gate(false);
    let mut asked = rig.say(0, &b"W\x01".repeat(16));
    let mut tag = 0;
    while let Some((conn, head)) = asked.get(tag).cloned() {
        assert_eq!((conn, head[0]), (0, b'I'), "nothing is let go");
        asked.extend(rig.say(0, &[b'P', head[1]]));
        tag += 1;
    }
    // All have come, and wait for tokens: two thirds of the slots, and one that was asked for when
    // fewer had come.
    assert_eq!((tag, rig.worker.load().in_flight), (9, 9));
    assert_eq!(rig.say(1, b"W\x01"), [invited(1, 0)], "something is left to others");
    rig.say(1, b"P\x00");
    let said = rig.open_gate(true);
    assert_eq!(said.iter().filter(|(_, head)| head[0] == b'R').count(), 10);
    assert!(said.contains(&invited(0, 9)), "what ended counts no more");
}

#[test]
fn whoever_hangs_up_leaves_nothing_behind() {
    let mut rig = Rig::new(64, &POOL);
    rig.connect(0, 1);
    rig.connect(1, 1);
    assert_eq!(rig.say(0, b"W\x01W\x01W\x10W\x10").len(), 3);
    assert_eq!(rig.say(0, b"P\x01"), [answered(0, 1)], "from the middle");
    assert_eq!(rig.say(1, b"W\x10"), [], "behind the first's last, which finds no buffer");
    assert_eq!(rig.hang_up(0), [invited(1, 0)]);
    assert_eq!(rig.worker.load().in_flight, 1);
    rig.say(1, b"P\x00");
    assert!(rig.worker.is_at_rest());
}

#[test]
fn who_was_charged_when_it_was_put_off_is_charged() {
    let mut rig = Rig::new(64, &POOL);
    rig.connect(0, 1);
    assert_eq!(rig.say(0, b"W\x10W\x10"), [invited(0, 0)], "the second finds no buffer");
    rig.say(0, b"T\x02");
    rig.tell(WorkerMessage::Leave { tenant: TenantId(2) });
    assert_eq!(rig.say(0, b"P\x00"), [answered(0, 0), invited(0, 1)]);
    let charged = [1, 2].map(|tenant| rig.worker.in_flight_of(TenantId(tenant)));
    assert_eq!(charged, [1, 0], "whoever the connection belongs to by now");
    rig.say(0, b"P\x01");
    assert!(rig.worker.is_at_rest());
}

#[test]
fn what_was_put_off_ends_with_its_tenant() {
    let mut rig = Rig::new(64, &POOL);
    rig.connect(0, 1);
    assert_eq!(rig.say(0, b"W\x10W\x10"), [invited(0, 0)]);
    rig.say(0, b"T\x02");
    let refused = (0, vec![b'R', 1, Status::NoTenant as u8]);
    assert_eq!(rig.tell(WorkerMessage::Leave { tenant: TenantId(1) }), [refused]);
    assert_eq!(rig.say(0, b"P\x00"), [answered(0, 0)]);
    assert!(rig.worker.is_at_rest());
}
