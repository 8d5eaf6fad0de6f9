//! Tests of queues whose connections move between workers. Their controller is not affected, and
//! events during the move reach the queues when they land.

use std::sync::Arc;

use crate::nvme_host::{Session, attach, config, fabric, host, place, poll};
use crate::nvme_tcp_pair::Pair;
use contract::{Instant, MigratableSession as _, StartOutcome};
use nearflash_proto::nvme::{Action, CloseReason, Fabric};
use wire::nvme::{Event, Feature, Property, notice};

/// The configuration that a host writes to reset its controller.
const RESET: u64 = 0x46_0000;

/// The index of the device that all requests go to.
const DEVICE: usize = 2;

fn connect(fabric: &Arc<Fabric>, n: u8, index: u32) -> Session {
    crate::nvme_host::connect(fabric, &host(n), crate::nvme_host::SUBSYSTEM, 1, place(0, index))
}

/// Returns the fabric's actions for a worker.
fn mail(fabric: &Arc<Fabric>, worker: u16) -> Vec<Action> {
    poll(fabric, worker, Instant::ZERO)
}

#[test]
fn a_queue_lands_with_its_head_and_its_fence() {
    let fabric = fabric(&config());
    let session = connect(&fabric, 1, 0);
    let mut io = session.io(1, place(0, 1)).unwrap();
    let fence = io.fence().clone();
    let number = io.detach().unwrap();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started, "it is a queue like any other");
    fence.end(DEVICE, 0);
    let at = place(1, 9);
    let landed = attach(&fabric, number, at.worker, at.conn).unwrap();
    assert!(Arc::ptr_eq(landed.fence(), &fence));
    assert_eq!(fabric.controllers()[0].queues[1].place, at);
    assert!(attach(&fabric, number, at.worker, at.conn).is_none(), "nothing lands twice");
    assert!(session.io(1, place(0, 2)).is_err(), "its number was taken all the time");
    drop(landed);
    assert!(session.io(1, place(0, 2)).is_ok());
}

#[test]
fn a_queue_whose_controller_was_reset_on_its_way_ends_when_it_lands() {
    let fabric = fabric(&config());
    let mut session = connect(&fabric, 1, 0);
    let mut io = session.io(1, place(0, 1)).unwrap();
    let fence = io.fence().clone();
    let number = io.detach().unwrap();
    assert_eq!(session.set(Property::CONFIGURATION, RESET), Ok(0));
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Superseded, "at once, not when it lands");
    // The controller continues, and has another queue of that identifier.
    session.enable();
    let newer = session.io(1, place(1, 2)).unwrap();
    assert_eq!(newer.fence().start(DEVICE, 0), StartOutcome::Started);
    assert_eq!((mail(&fabric, 0), mail(&fabric, 1)), (Vec::new(), Vec::new()));
    let at = place(1, 9);
    let landed = attach(&fabric, number, at.worker, at.conn).unwrap();
    let close = Action::Close { conn: at.conn, reason: CloseReason::Reset };
    assert_eq!(mail(&fabric, 1), [close]);
    drop(landed);
    assert_eq!(fabric.controllers()[0].queues.len(), 2, "the newer one is not its own");
}

#[test]
fn a_queue_whose_controller_is_gone_ends_when_it_lands() {
    let fabric = fabric(&config());
    let session = connect(&fabric, 1, 0);
    let number = session.io(1, place(0, 1)).unwrap().detach().unwrap();
    drop(session);
    let landed = attach(&fabric, number, 1, place(1, 9).conn).unwrap();
    let reason = CloseReason::AdminGone;
    assert_eq!(mail(&fabric, 1), [Action::Close { conn: place(1, 9).conn, reason }]);
    assert_eq!(landed.fence().start(DEVICE, 0), StartOutcome::Superseded);
}

#[test]
fn a_queue_that_is_lost_on_its_way_leaves_its_ghosts() {
    let fabric = fabric(&config());
    let session = connect(&fabric, 1, 0);
    let [mut lost, other] = [1, 2].map(|n| session.io(n, place(0, u32::from(n))).unwrap());
    let fence = lost.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    fabric.drop_queue(lost.detach().unwrap());
    assert_eq!(other.fence().start(DEVICE, 0), StartOutcome::Held);
    fence.end(DEVICE, 0);
    assert_eq!(other.fence().start(DEVICE, 0), StartOutcome::Started);
    other.fence().end(DEVICE, 0);
    let Session { mut admin, fabric, .. } = session;
    fabric.drop_queue(admin.detach().unwrap());
    assert!(fabric.controllers().is_empty(), "without its admin queue a controller ends");
}

#[test]
fn an_event_finds_the_admin_queue_where_it_has_landed() {
    let fabric = fabric(&config());
    let mut session = connect(&fabric, 1, 0);
    session.set_feature(Feature::EVENTS, notice::NAMESPACE).unwrap();
    let cid = session.await_event();
    let Session { mut admin, .. } = session;
    let number = admin.detach().unwrap();
    fabric.remove_namespace(&crate::nvme_host::nqn(crate::nvme_host::SUBSYSTEM), 2).unwrap();
    assert_eq!((mail(&fabric, 0), mail(&fabric, 1)), (Vec::new(), Vec::new()));
    let at = place(1, 9);
    let _landed = attach(&fabric, number, at.worker, at.conn).unwrap();
    let [Action::Complete { conn, answer, .. }] = &mail(&fabric, 1)[..] else {
        panic!("the event was lost");
    };
    assert_eq!((*conn, answer.cid), (at.conn, cid));
    assert_eq!(answer.result as u32, Event::NAMESPACE.to_result());
}

#[test]
fn a_write_is_asked_for_where_its_connection_has_landed() {
    let (mut pair, data) = Pair::with_a_write();
    let moves = pair.target.moves;
    pair.target.travel();
    assert_eq!(pair.target.moves, moves + 1, "it may move before it was asked for");
    pair.end_write(&data);
}

#[test]
fn bytes_that_are_no_session_of_this_protocol_are_refused() {
    let (mut pair, _) = Pair::with_a_write();
    let packed = pair.target.session.pack().unwrap();
    for cut in 0..packed.len() {
        assert!(pair.target.unpack(&packed[..cut]).is_none(), "the first {cut} bytes");
    }
    assert!(pair.target.unpack(&[&packed[..], &[0]].concat()).is_none());
    assert!(pair.target.unpack(&packed).is_some());
}
