//! Single connections that an operator ends.

use std::time::Duration;

use crate::rig::{Rig, UNIT};
use contract::{ConnId, Instant, MoveRefusal, Report, WorkerMessage};

const LATER: Duration = Duration::from_secs(10);

fn name(index: u32, generation: u32) -> ConnId {
    ConnId { index, generation }
}

/// Creates a worker with connections 0 and 1, whose scheduler releases no requests.
fn held() -> Rig {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.connect(1, 1);
    rig.open_gate(false);
    rig
}

/// Orders the end of a connection by `until`. Returns the number of its requests in flight, as the
/// worker reports it, or the reason why the connection does not end.
fn end(rig: &mut Rig, conn: ConnId, until: Instant) -> Result<u32, MoveRefusal> {
    rig.tell(WorkerMessage::End { conn, until });
    match rig.reported() {
        Some(Report::Ends { worker: 0, conn: told, begun }) if told == conn => {
            begun.map(|listed| {
                assert!(listed.is_ending && listed.conn == conn);
                listed.in_flight
            })
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_in_flight_ends_first_and_others_stay() {
    let mut rig = held();
    rig.say(0, b"R\x01R\x01");
    assert_eq!(end(&mut rig, name(0, 0), Instant::ZERO + LATER), Ok(2));
    assert_eq!(rig.worker.connections(), 2, "its requests are in flight");
    assert_eq!(rig.say(0, b"R\x01"), [], "no more are taken");
    let answered = rig.open_gate(true);
    assert_eq!(answered, [(0, vec![b'R', 0, 0]), (0, vec![b'R', 1, 0])]);
    assert_eq!(rig.worker.connection_ids().collect::<Vec<_>>(), [name(1, 0)]);
    assert_eq!(rig.say(1, b"R\x01"), [(1, vec![b'R', 0, 0])]);
    // Nothing is left to be done at its time.
    rig.pass(2 * LATER);
    assert_eq!(rig.worker.connections(), 1);
}

#[test]
fn one_whose_requests_do_not_end_is_closed_when_its_time_is_over() {
    let mut rig = held();
    rig.say(0, b"R\x01");
    assert_eq!(end(&mut rig, name(0, 0), Instant::ZERO + LATER), Ok(1));
    rig.pass(LATER / 2);
    assert_eq!(rig.worker.connections(), 2);
    // A later word is about another time.
    assert_eq!(end(&mut rig, name(0, 0), Instant::ZERO + 3 * LATER), Ok(1));
    rig.pass(LATER);
    assert_eq!(rig.worker.connections(), 2);
    rig.pass(2 * LATER);
    assert_eq!(rig.worker.connections(), 1);
}

#[test]
fn a_name_whose_generation_has_passed_is_nobodys() {
    let mut rig = held();
    for gone in [name(0, 1), name(7, 0), name(u32::MAX, 0)] {
        assert_eq!(end(&mut rig, gone, Instant::ZERO + LATER), Err(MoveRefusal::Gone));
    }
    assert_eq!(end(&mut rig, name(0, 0), Instant::ZERO + LATER), Ok(0));
    assert_eq!(end(&mut rig, name(0, 0), Instant::ZERO + LATER), Err(MoveRefusal::Gone));
    assert_eq!(rig.worker.connections(), 1);
}

#[test]
fn one_that_leaves_for_another_worker_ends_here() {
    let mut rig = held();
    rig.say(0, b"Q\x01B\x01");
    rig.tell(WorkerMessage::Move { conn: name(0, 0), to: 1 });
    // It has half a request, so it is away; its name is nobody's once it has landed.
    let parcel = rig.departed().expect("it is quiet");
    let landed =
        WorkerMessage::Landed { ticket: parcel.ticket, conn: name(3, 2), pause: Duration::ZERO };
    rig.tell(landed);
    assert!(matches!(rig.reported(), Some(Report::Moved { .. })));
    assert_eq!(end(&mut rig, name(0, 0), Instant::ZERO + LATER), Err(MoveRefusal::Gone));
    assert_eq!(rig.reported(), None, "one report follows");
    rig.say(1, b"W\x01");
    rig.tell(WorkerMessage::Move { conn: name(1, 0), to: 1 });
    assert!(rig.departed().is_none(), "it owes a payload");
    assert_eq!(end(&mut rig, name(1, 0), Instant::ZERO + LATER), Ok(0));
    assert_eq!(rig.worker.connections(), 0);
    let stayed = Report::Moved { worker: 0, conn: name(1, 0), ended: Err(MoveRefusal::Gone) };
    assert_eq!(rig.reported(), Some(stayed));
}

/// Checks that an order to end a connection that is between two workers is answered with the
/// connection's new place, once it has landed.
#[test]
fn of_one_that_is_between_two_workers_is_told_where_it_is_once_it_has_landed() {
    for comes_back in [false, true] {
        let mut rig = held();
        rig.hang_up(1);
        rig.tell(WorkerMessage::Move { conn: name(0, 0), to: 1 });
        let parcel = rig.departed().expect("it is quiet");
        let until = Instant::ZERO + LATER;
        (0..2).for_each(|_| drop(rig.tell(WorkerMessage::End { conn: name(0, 0), until })));
        assert_eq!(rig.reported(), None, "nobody knows yet");
        let ticket = parcel.ticket;
        let landed = WorkerMessage::Landed { ticket, conn: name(3, 2), pause: Duration::ZERO };
        rig.tell(if comes_back { WorkerMessage::Returned(parcel) } else { landed });
        let (worker, conn) = if comes_back { (0, name(1, 0)) } else { (1, name(3, 2)) };
        let mut told: Vec<Report> = std::iter::from_fn(|| rig.reported()).collect();
        told.retain(|report| !matches!(report, Report::Moved { .. }));
        let begun = Err(MoveRefusal::Elsewhere { worker, conn });
        let ends = Report::Ends { worker: 0, conn: name(0, 0), begun };
        assert_eq!(told, [ends.clone(), ends], "each who asked");
        if comes_back {
            assert_eq!(end(&mut rig, conn, until), Ok(0));
        }
    }
}

#[test]
fn a_bounded_number_ends_at_a_time() {
    let mut rig = Rig::new(128, &[(UNIT, 100), (4 * UNIT, 3)]);
    rig.open_gate(false);
    for index in 0..65 {
        rig.connect(index, 1);
        rig.say(index, b"R\x01");
    }
    let until = Instant::ZERO + LATER;
    for index in 0..64 {
        assert_eq!(end(&mut rig, name(index, 0), until), Ok(1), "{index}");
    }
    assert_eq!(end(&mut rig, name(64, 0), until), Err(MoveRefusal::TooMany));
    assert_eq!(end(&mut rig, name(3, 0), until), Ok(1), "it ends already");
    rig.hang_up(5);
    assert_eq!(end(&mut rig, name(64, 0), until), Ok(1), "another is gone");
}

/// Checks that a lost connection's requests are dropped from the queue. Its client sends them again
/// when it connects again, and would otherwise pay for them twice.
#[test]
fn what_a_lost_connection_has_in_a_queue_is_dropped_and_costs_nothing() {
    let mut rig = Rig::new(12, &[(UNIT, 4)]);
    rig.connect(0, 1);
    rig.connect(1, 1);
    rig.impoverish(&[1]);
    assert_eq!(rig.say(0, b"R\x01R\x01R\x01"), []);
    assert_eq!(rig.say(1, b"R\x01"), []);
    assert_eq!(rig.worker.load().in_flight, 4, "all wait for tokens");
    rig.reset(0);
    assert_eq!(rig.worker.load().in_flight, 1);
    assert_eq!(rig.impoverish(&[]), [(1, vec![b'R', 0, 0])]);
    assert_eq!(rig.paid(), 1, "of the four, only the one that was answered");
    assert!(rig.worker.is_at_rest());
}
