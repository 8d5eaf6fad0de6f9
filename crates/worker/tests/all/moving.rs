//! Connections whose payloads are asked for move: what was asked for comes first, and what was not
//! is asked for where they land.

use crate::rig::{Rig, UNIT};
use contract::{
    ConnId, Fence, MigratingNameClaim, MigratingPayload, Report, Status, TenantId, WorkerMessage,
};

fn invited(conn: u32, tag: u8) -> (u32, Vec<u8>) {
    (conn, vec![b'I', tag])
}

fn answered(conn: u32, tag: u8, status: Status) -> (u32, Vec<u8>) {
    (conn, vec![b'R', tag, status as u8])
}

fn leave(rig: &mut Rig) {
    let conn = ConnId { index: 0, generation: 0 };
    assert_eq!(rig.tell(WorkerMessage::Move { conn, to: 1 }), []);
}

#[test]
fn a_connection_brings_whole_payloads_requests_to_ask_for_and_its_fence() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    let fence = rig.connect_fenced(0, Fence::default());
    rig.open_gate(false);
    assert_eq!(rig.say(0, b"W\x01"), [invited(0, 0)]);
    leave(&mut rig);
    assert_eq!(rig.say(0, b"W\x01"), [], "it is asked for no more");
    assert!(rig.departed().is_none(), "what it was asked for is on its way");
    assert_eq!(rig.say(0, b"P\x00"), []);
    let parcel = rig.departed().expect("it owes nothing and says nothing");
    let payloads: Vec<_> = parcel.requests.iter().map(|request| &request.payload).collect();
    assert_eq!(payloads, [&MigratingPayload::Whole(vec![0; UNIT])]);
    assert_eq!(parcel.put_off.len(), 1);
    assert_eq!(rig.tell(WorkerMessage::Returned(parcel)), [invited(1, 1)]);
    assert_eq!(rig.say(1, b"P\x01"), []);
    assert!(!fence.is_running());
    fence.supersede();
    let gone = [0, 1].map(|tag| answered(1, tag, Status::Retry));
    assert_eq!(rig.open_gate(true), gone, "the requests have the fence that they had");
    rig.hang_up(1);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn a_connection_that_the_network_cannot_move_is_not_counted_among_those_that_leave() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.bind(0);
    leave(&mut rig);
    assert!(rig.departed().is_none());
    let is_refusal = |report: &Report| matches!(report, Report::Moved { ended: Err(_), .. });
    assert!(rig.reported().is_some_and(|report| is_refusal(&report)));
    rig.tell(WorkerMessage::List { from: 0 });
    let Some(Report::Listed { connections, .. }) = rig.reported() else { panic!("no list") };
    assert_eq!([connections[0].can_move, connections[0].can_leave], [false, false]);
}

#[test]
fn a_connection_whose_name_cannot_be_looked_up_lands_in_a_later_turn() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    leave(&mut rig);
    let mut parcel = rig.departed().expect("it has nothing to wait for");
    let (tenant, client, connection) = (TenantId::DEFAULT, 7, 0);
    let is_superseded = false;
    parcel.place =
        Some(MigratingNameClaim { tenant, client, connection, serial: 1, is_superseded });
    assert_eq!(rig.tell_shut(WorkerMessage::Returned(parcel)), []);
    assert_eq!(rig.worker.connections(), 0);
    assert_eq!(rig.pass(std::time::Duration::from_millis(1)), []);
    assert_eq!(rig.worker.connections(), 1);
    rig.hang_up(1);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn a_payload_is_whole_when_it_was_checked_and_not_when_all_of_it_is_here() {
    for (end, status) in [(b"E\x00", Status::Ok), (b"E\x01", Status::BadChecksum)] {
        let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
        rig.connect(0, 1);
        assert_eq!(rig.say(0, b"Q\x01B\x01"), []);
        leave(&mut rig);
        let parcel = rig.departed().expect("a half payload travels");
        let payloads: Vec<_> = parcel.requests.iter().map(|request| &request.payload).collect();
        assert_eq!(payloads, [&MigratingPayload::Begun(vec![0; UNIT])]);
        assert_eq!(rig.tell(WorkerMessage::Returned(parcel)), []);
        assert_eq!(rig.say(1, end), [answered(1, 0, status)]);
        assert_eq!(rig.paid(), usize::from(status == Status::Ok), "no device saw a bad one");
    }
}

#[test]
fn a_connection_that_does_not_send_what_it_was_asked_for_stays() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    assert_eq!(rig.say(0, b"W\x01"), [invited(0, 0)]);
    leave(&mut rig);
    assert_eq!(rig.say(0, b"W\x01"), []);
    assert_eq!(rig.pass(std::time::Duration::from_secs(1)), [invited(0, 1)]);
    assert!(rig.departed().is_none());
    let answers = [0, 1].map(|tag| answered(0, tag, Status::Ok));
    assert_eq!(rig.say(0, b"P\x00P\x01"), answers);
    rig.hang_up(0);
    assert!(rig.worker.is_at_rest());
}

#[test]
fn requests_that_wait_for_slots_are_taken_out_of_their_lines() {
    let mut rig = Rig::new(4, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.connect(2, 1);
    assert_eq!(rig.say(2, b"W\x01W\x01"), [invited(2, 0), invited(2, 1)]);
    assert_eq!(rig.say(0, b"W\x01W\x01"), [], "there is no slot for them");
    assert_eq!(rig.say(2, b"W\x01"), []);
    leave(&mut rig);
    let parcel = rig.departed().expect("it is quiet");
    assert_eq!(parcel.put_off.iter().map(|(request, _)| request.tag).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rig.worker.load().put_off, 1, "others of its tenant wait on");
    assert_eq!(rig.tell(WorkerMessage::Returned(parcel)), []);
    assert_eq!(rig.say(2, b"P\x00"), [answered(2, 0, Status::Ok), invited(2, 2)]);
}

/// Checks that an order for a part of the load moves neither a connection with more load than is to
/// leave nor one without any. Load is counted in messages.
#[test]
fn a_part_of_the_load_leaves_and_not_the_connection_that_is_nearly_all_of_it() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    (0..4).for_each(|index| rig.connect(index, 1));
    let second = std::time::Duration::from_secs(1);
    // Until nobody knows any more that they said hello.
    (0..3).for_each(|_| drop(rig.pass(2 * second)));
    for (conn, requests) in [(0, 12), (1, 2), (3, 2)] {
        for n in 0..requests {
            assert_eq!(rig.say(conn, b"R\x01"), [answered(conn, n, Status::Ok)]);
        }
    }
    rig.pass(2 * second);
    assert_eq!(rig.tell(WorkerMessage::Relieve { permille: 380, to: 1, at_once: 16 }), []);
    let mut left = Vec::new();
    while let Some(parcel) = rig.departed() {
        left.push(parcel.peer);
        let conn = ConnId { index: 0, generation: 0 };
        let landed =
            WorkerMessage::Landed { ticket: parcel.ticket, conn, pause: Default::default() };
        assert_eq!(rig.tell(landed), []);
    }
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(rig.say(0, b"R\x01"), [answered(0, 12, Status::Ok)], "the heavy one is there");
    rig.pass(2 * second);
    assert_eq!(rig.tell(WorkerMessage::Relieve { permille: 500, to: 1, at_once: 16 }), []);
    assert!(rig.departed().is_none(), "it is all that there is");
}

/// Checks that, of more connections than may leave at the same time, the later ones leave when
/// others have landed.
#[test]
fn whoever_is_given_away_behind_many_is_not_forgotten() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    (0..70).for_each(|index| rig.connect(index, 1));
    assert_eq!(rig.tell(WorkerMessage::Give { count: 70, to: 1, at_once: 100 }), []);
    let mut left = 0;
    while let Some(parcel) = rig.departed() {
        left += 1;
        let conn = ConnId { index: left, generation: 0 };
        let landed =
            WorkerMessage::Landed { ticket: parcel.ticket, conn, pause: Default::default() };
        assert_eq!(rig.tell(landed), []);
    }
    assert_eq!(left, 70);
    assert!(rig.worker.is_at_rest());
}
