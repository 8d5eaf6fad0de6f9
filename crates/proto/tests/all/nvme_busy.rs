//! Tests of workers that find another thread inside the fabric: the call changes nothing, and
//! succeeds when it is repeated later.

use std::sync::Arc;

use crate::nvme_host::{Session, config, connect_data, connect_entry, fabric, host, place};
use crate::nvme_tcp_pair::{Pair, ranged};
use contract::{ConnId, Instant, Status as Ended};
use nearflash_proto::nvme::{ExecutionOutcome, Fabric, LockBusy, Origin, PortId, SubmissionStep};
use nearflash_proto::nvme_tcp::{Digests, HostEvent, TransferSizes, WorkerFabric};
use wire::nvme::{AdminOpcode, NvmOpcode, Status, Submission};
use zerocopy::IntoBytes;

use crate::nvme_host::{self, SUBSYSTEM, nqn};
use crate::support::Chance;

const NOW: Instant = Instant::ZERO;

fn session(fabric: &Arc<Fabric>) -> Session {
    nvme_host::connect(fabric, &host(1), SUBSYSTEM, 1, place(0, 0))
}

/// Charges the subsystem's I/O to the default tenant (`is_charged`), or to the connections' own.
/// The queues of the subsystem have to fetch their views again.
fn change(fabric: &Fabric, is_charged: bool) {
    let tenant = is_charged.then_some(contract::TenantId::DEFAULT);
    fabric.set_subsystem_tenant(&nqn(SUBSYSTEM), tenant).unwrap();
}

#[test]
fn a_connect_is_repeated() {
    let fabric = fabric(&config());
    let (entry, data) = (connect_entry(0, 32, 0), connect_data(&host(1), SUBSYSTEM, 0xffff));
    let connect = || {
        fabric.connect(Origin::plain(PortId(1), place(0, 0)), entry.entry(), data.as_bytes(), NOW)
    };
    let busy = fabric.shut_while(|| {
        let busy = connect();
        assert!(fabric.is_waiting(0) && !fabric.is_waiting(1) && fabric.wake_at(0).is_none());
        busy
    });
    assert!(matches!(busy, Err(LockBusy)) && fabric.controllers().is_empty());
    assert!(!fabric.is_waiting(0), "it was answered");
    assert!(connect().unwrap().is_ok());
}

#[test]
fn a_command_of_the_controller_is_repeated() {
    let fabric = fabric(&config());
    let mut session = session(&fabric);
    let entry = Submission::new(AdminOpcode::KEEP_ALIVE.0, 7, 0);
    let mut out = vec![1];
    assert!(matches!(session.admin.begin(&entry), SubmissionStep::Controller { payload_bytes: 0 }));
    let busy = fabric.shut_while(|| session.admin.execute(&entry, &[], NOW, &mut out));
    assert_eq!(busy, ExecutionOutcome::Busy);
    assert!(matches!(session.admin.execute(&entry, &[], NOW, &mut out), ExecutionOutcome::Done(_)));
    assert_eq!(fabric.controllers()[0].errors, 0);
}

#[test]
fn a_read_waits_for_a_new_view_and_an_ended_one_is_sent_again_only_if_a_right_was_lost() {
    let fabric = fabric(&config());
    let session = session(&fabric);
    let mut io = session.io(1, place(1, 1)).unwrap();
    let read = ranged(NvmOpcode::READ, 3, 8, 8);
    let begun = |step| {
        let SubmissionStep::Device(io) = step else { panic!("{step:?}") };
        io
    };
    let first = begun(io.begin(&read));
    // Nothing has changed: nobody looks.
    let second = fabric.shut_while(|| begun(io.begin(&read)));
    change(&fabric, true);
    assert_eq!(fabric.shut_while(|| io.begin(&read)), SubmissionStep::Busy);
    let ended = fabric.shut_while(|| io.complete(&first, Ended::Ok));
    assert_eq!(ended.status, Status::SUCCESS, "who pays for it does not concern it");
    let third = begun(io.begin(&read));
    // Another namespace of the host is gone: it has lost a right.
    fabric.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap();
    let ended = fabric.shut_while(|| io.complete(&second, Ended::Ok));
    assert_eq!(ended.status, Status::INTERRUPTED);
    assert_eq!(io.complete(&third, Ended::Ok).status, Status::SUCCESS);
}

#[test]
fn a_queue_that_ends_is_ended_by_whoever_is_inside() {
    let fabric = fabric(&config());
    let session = session(&fabric);
    let cntlid = session.admin.cntlid();
    let io = session.io(1, place(1, 1)).unwrap();
    let fence = io.fence().clone();
    fabric.shut_while(|| {
        drop(io);
        assert!(fence.is_superseded());
    });
    assert_eq!(fabric.queues_of(cntlid), 1);
    let again = session.io(1, place(1, 2)).unwrap();
    fabric.shut_while(|| drop(session));
    assert!(fabric.controllers().is_empty(), "the controller ends with its admin queue");
    assert!(again.fence().is_superseded());
}

#[test]
fn a_queue_moves_when_nobody_is_inside() {
    let fabric = fabric(&config());
    let session = session(&fabric);
    let mut io = session.io(1, place(0, 1)).unwrap();
    assert_eq!(fabric.shut_while(|| io.detach()), Err(LockBusy));
    let number = io.detach().unwrap();
    drop(io);
    assert!(matches!(fabric.shut_while(|| fabric.claim(number, 1)), Err(LockBusy)));
    let mut io = fabric.claim(number, 1).unwrap().expect("it has not gone");
    let to = ConnId { index: 5, generation: 0 };
    assert_eq!(fabric.shut_while(|| io.settle(to)), Err(LockBusy));
    io.settle(to).unwrap();
    let number = io.detach().unwrap();
    let desk = WorkerFabric::new(fabric.clone(), 1);
    assert_eq!(fabric.shut_while(|| fabric.try_drop_queue(number, 1)), Err(LockBusy));
    assert_eq!(desk.wake_at(), None);
    fabric.try_drop_queue(number, 1).unwrap();
    assert_eq!(fabric.queues_of(session.admin.cntlid()), 1);
}

#[test]
fn a_session_takes_no_more_until_its_command_has_a_view() {
    let mut pair = Pair::connect(&mut Chance(7), Digests { header: true, data: true });
    let mut out = Vec::new();
    for cid in [3, 4] {
        // With the data in its capsule, behind the command that waits.
        let mut entry = ranged(NvmOpcode::WRITE, cid, u64::from(cid) * 8, 8);
        entry.data = wire::nvme::SglDescriptor::in_capsule(0, 8 * 512);
        pair.host.command(&entry, TransferSizes::default(), &[cid as u8; 8 * 512], &mut out);
    }
    change(&pair.target.fabric(), true);
    let said = pair.target.out.len();
    pair.target.feed_shut(&out);
    assert!(pair.target.ended.is_none() && pair.target.charged.len() == 1);
    while pair.target.work(&mut Chance(1)) {}
    let said = pair.target.out.split_off(said);
    let mut said = &said[..];
    for _ in 0..2 {
        let event = pair.host.next_event(&mut said).unwrap();
        let Some(HostEvent::Ended { completion, .. }) = event else { panic!("{event:?}") };
        assert!(completion.status().is_ok(), "{completion:?}");
    }
}
