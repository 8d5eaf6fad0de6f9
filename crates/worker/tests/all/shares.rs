//! Slots and buffers of connections that cannot continue count for their tenants: other tenants
//! find their part, and do not wait behind them.

use crate::rig::{Rig, UNIT};

fn answered(conn: u32, tag: u8) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, 0])
}

/// Returns the number of answers on a connection.
fn answers(said: &[(u32, Vec<u8>)], conn: u32) -> usize {
    said.iter().filter(|(of, head)| *of == conn && head[0] == b'R').count()
}

#[test]
fn who_reads_no_replies_delays_no_other_tenant() {
    let mut rig = Rig::new(64, &[(UNIT, 9), (4 * UNIT, 7)]);
    (0..3).for_each(|conn| rig.connect(conn, 1));
    rig.connect(3, 2);
    (0..3).for_each(|conn| rig.leave_unread(conn));
    let said = rig.say(0, &b"R\x04".repeat(10));
    assert_eq!(answers(&said, 0), 4, "of six, as long as it has fewer than two thirds");
    let said = rig.say(1, &b"R\x01".repeat(20));
    assert_eq!(answers(&said, 1), 6, "of nine; it has had its part of the larger ones");
    assert_eq!(rig.say(2, b"R\x04R\x01"), [], "what its tenant has is not read");
    // Another tenant finds buffers of either size, as often as it wants.
    for n in 0..20 {
        assert_eq!(rig.say(3, b"R\x04R\x01"), [answered(3, 2 * n), answered(3, 2 * n + 1)]);
    }
    rig.read_on(0);
    let said = rig.read_on(1);
    assert!(said.contains(&answered(2, 0)), "buffers that came back are for who waits: {said:?}");
    rig.read_on(2);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn small_reads_do_not_wait_behind_large_ones_of_another_tenant() {
    let mut rig = Rig::new(64, &[(UNIT, 2), (4 * UNIT, 3)]);
    (0..4).for_each(|conn| rig.connect(conn, conn as u8 + 1));
    (0..3).for_each(|conn| rig.leave_unread(conn));
    // The last large one is for the first of those who find none.
    assert_eq!(answers(&rig.say(0, b"R\x04R\x01"), 0), 2);
    assert_eq!(answers(&rig.say(1, b"R\x04"), 1), 1);
    assert_eq!(answers(&rig.say(2, b"R\x01R\x04"), 2), 2);
    assert_eq!(rig.say(1, b"R\x04"), [], "there is none");
    assert_eq!(rig.say(3, b"R\x01"), [], "nor a small one");
    assert_eq!(rig.read_some(2, 1), [answered(3, 0)], "a small one came back");
    assert_eq!(rig.read_on(0), [], "the next one for the first of those who find none");
    assert_eq!(rig.read_on(2), [], "the last one is for a tenant that has none");
    assert_eq!(rig.read_on(1), [answered(1, 1)]);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn a_write_without_a_buffer_does_not_stop_what_came_behind_it() {
    let mut rig = Rig::keeping(64, &[(UNIT, 4), (4 * UNIT, 2)], 64);
    (0..3).for_each(|conn| rig.connect(conn, conn as u8 + 1));
    assert_eq!(rig.say(0, b"Q\x04"), [], "half of a message, which has the large buffer");
    let whole = [&b"Q\x04B\x04E\x00"[..], &b"R\x01".repeat(20)].concat();
    assert_eq!(rig.say(1, &whole), [], "it finds none");
    assert_eq!(rig.say(2, b"R\x01"), [answered(2, 0)], "which stops no other tenant");
    let said = rig.say(0, b"B\x04E\x00");
    assert_eq!((answers(&said, 0), answers(&said, 1)), (1, 21), "{said:?}");
    assert!(rig.worker.is_at_rest());
}

#[test]
fn what_is_kept_in_reserve_is_for_promises() {
    let mut rig = Rig::new(32, &[(UNIT, 16), (4 * UNIT, 3)]);
    (0..4).for_each(|conn| rig.connect(conn, conn as u8 + 1));
    rig.promise(&[4]);
    rig.impoverish(&[1, 2, 3, 4]);
    (0..3).for_each(|conn| drop(rig.say(conn, &b"R\x01".repeat(32))));
    let held = rig.worker.load().in_flight;
    assert!(held <= 30, "{held} of 32, of which two are kept");
    assert_eq!(rig.say(0, b"R\x01"), []);
    assert_eq!(rig.worker.load().in_flight, held);
    assert_eq!(rig.say(3, b"R\x01R\x01"), []);
    assert_eq!(rig.worker.load().in_flight, held + 2, "there is room for the promised ones");
    rig.impoverish(&[]);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn a_read_that_waited_for_a_buffer_pays_once_it_has_one() {
    let mut rig = Rig::new(64, &[(UNIT, 9), (4 * UNIT, 7)]);
    (0..2).for_each(|conn| rig.connect(conn, conn as u8 + 1));
    rig.promise(&[2]);
    rig.leave_unread(0);
    let said = rig.say(0, &b"R\x04".repeat(10));
    let first = answers(&said, 0);
    assert!((1..10).contains(&first), "{said:?}");
    assert_eq!(rig.paid(), first, "those that wait for buffers have their tokens back");
    rig.set_poor(&[1]);
    assert_eq!(rig.read_on(0), [], "buffers came back, and tokens did not");
    assert_eq!(rig.paid(), first);
    let said = rig.impoverish(&[]);
    assert_eq!((answers(&said, 0), rig.paid()), (10 - first, 10));
    assert!(rig.worker.is_at_rest());
}

#[test]
fn a_connection_that_ends_while_its_reads_have_buffers_and_no_tokens_gives_them_back() {
    let mut rig = Rig::new(64, &[(UNIT, 9), (4 * UNIT, 7)]);
    (0..3).for_each(|conn| rig.connect(conn, conn as u8 + 1));
    rig.promise(&[2]);
    rig.leave_unread(0);
    let first = answers(&rig.say(0, &b"R\x04".repeat(10)), 0);
    rig.set_poor(&[1]);
    rig.read_on(0);
    rig.hang_up(0);
    rig.impoverish(&[]);
    assert_eq!(rig.paid(), first, "nobody pays for what goes to no device");
    assert!(rig.worker.is_at_rest());
    assert_eq!(answers(&rig.say(2, &b"R\x04".repeat(5)), 2), 5);
}
