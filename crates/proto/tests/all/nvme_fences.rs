//! Tests of requests that may still take effect after their controller has ended, was reset or shut
//! down, and of commands that wait for them.

use crate::nvme_host::{Session, at, config, fabric, host, place, poll, subsystem};
use contract::{Instant, ProtocolError, StartOutcome, TenantId, UnsolicitedOutput as _};
use nearflash_proto::nvme::{Hosts, Subsystem};
use nearflash_proto::nvme_tcp::{Digests, HostEvent, TransferSizes};
use wire::nvme::{
    ControllerState, FABRICS_OPCODE, FabricsCommand, FabricsKind, NvmOpcode, Property, Status,
    Submission,
};
use zerocopy::FromZeros;

/// Values of Controller Configuration: enabled, reset, shut down.
const ENABLED: u64 = 0x46_0001;
const RESET: u64 = 0x46_0000;
const SHUT_DOWN: u64 = 0x46_4001;

/// The index of the device that all requests go to.
const DEVICE: usize = 2;

fn connect(fabric: &std::sync::Arc<nearflash_proto::nvme::Fabric>, n: u8, index: u32) -> Session {
    crate::nvme_host::connect(fabric, &host(n), crate::nvme_host::SUBSYSTEM, 1, place(0, index))
}

fn state(session: &mut Session) -> u32 {
    session.get(Property::STATE, 4).unwrap() as u32
}

#[test]
fn writes_wait_for_those_of_the_hosts_lost_controller() {
    let fabric = fabric(&config());
    let old = connect(&fabric, 1, 0);
    let old_io = old.io(1, place(1, 1)).unwrap();
    let old_fence = old_io.fence().clone();
    assert_eq!(old_fence.start(DEVICE, 0), StartOutcome::Started);
    // While both controllers live, neither waits for the other.
    let new = connect(&fabric, 1, 2);
    let new_io = new.io(1, place(1, 3)).unwrap();
    assert_eq!(new_io.fence().start(DEVICE, 0), StartOutcome::Started);
    new_io.fence().end(DEVICE, 0);
    let stranger = connect(&fabric, 2, 4);
    let stranger_io = stranger.io(1, place(0, 5)).unwrap();
    // The connection of the admin queue is lost; the other, at another worker, is still open.
    drop(old);
    assert_eq!(old_fence.start(DEVICE, 0), StartOutcome::Superseded);
    assert_eq!(new_io.fence().start(DEVICE, 0), StartOutcome::Held);
    assert_eq!(new_io.fence().start(DEVICE + 1, 0), StartOutcome::Started, "the device is another");
    assert_eq!(stranger_io.fence().start(DEVICE, 0), StartOutcome::Started, "the host is another");
    drop(old_io);
    assert_eq!(new_io.fence().start(DEVICE, 0), StartOutcome::Held);
    let late = connect(&fabric, 1, 6);
    let late_io = late.io(1, place(1, 7)).unwrap();
    assert_eq!(late_io.fence().start(DEVICE, 0), StartOutcome::Held);
    old_fence.end(DEVICE, 0);
    assert_eq!(new_io.fence().start(DEVICE, 0), StartOutcome::Started);
    assert_eq!(late_io.fence().start(DEVICE, 0), StartOutcome::Started);
}

#[test]
fn one_lost_queue_holds_up_its_controllers_others() {
    let fabric = fabric(&config());
    let session = connect(&fabric, 1, 0);
    let [one, two] = [1, 2].map(|n| session.io(n, place(0, u32::from(n))).unwrap());
    let fence = one.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    drop(one);
    assert_eq!(two.fence().start(DEVICE, 0), StartOutcome::Held);
    fence.end(DEVICE, 0);
    assert_eq!(two.fence().start(DEVICE, 0), StartOutcome::Started);
}

#[test]
fn another_subsystem_is_another_disk() {
    let mut config = config();
    config.subsystems.push(Subsystem {
        hosts: Hosts::Any,
        tenant: Some(TenantId(3)),
        ..subsystem(crate::nvme_host::OTHER_SUBSYSTEM)
    });
    // The same namespaces have other identifiers here.
    for namespace in &mut config.subsystems[1].namespaces {
        namespace.identifiers.uuid[15] = 1;
    }
    let fabric = fabric(&config);
    let old = connect(&fabric, 1, 0);
    let fence = old.io(1, place(0, 1)).unwrap().fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Superseded, "it was dropped at once");
    let io = old.io(2, place(0, 2)).unwrap();
    assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Started);
    drop((old, io));
    let other = crate::nvme_host::connect(
        &fabric,
        &host(1),
        crate::nvme_host::OTHER_SUBSYSTEM,
        1,
        place(0, 3),
    );
    let other_io = other.io(1, place(0, 4)).unwrap();
    assert_eq!(other_io.fence().start(DEVICE, 0), StartOutcome::Started);
}

#[test]
fn a_reset_is_complete_when_nothing_of_it_can_land() {
    let fabric = fabric(&config());
    let mut session = connect(&fabric, 1, 0);
    let io = session.io(1, place(1, 1)).unwrap();
    assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Started);
    assert_eq!(session.set(Property::CONFIGURATION, RESET), Ok(0));
    assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Superseded);
    assert_eq!(state(&mut session), ControllerState::READY, "the reset goes on");
    assert_eq!(
        session.set(Property::CONFIGURATION, ENABLED),
        Err(Status::SEQUENCE_ERROR.dnr()),
        "it may not be enabled before the reset is complete"
    );
    io.fence().end(DEVICE, 0);
    assert_eq!(state(&mut session), 0);
    session.enable();
    let again = session.io(1, place(1, 2)).unwrap();
    assert_eq!(again.fence().start(DEVICE, 0), StartOutcome::Started);
}

#[test]
fn a_shutdown_is_complete_when_nothing_of_it_can_land() {
    let fabric = fabric(&config());
    let mut session = connect(&fabric, 1, 0);
    let lost = session.io(1, place(1, 1)).unwrap();
    let live = session.io(2, place(1, 2)).unwrap();
    let fence = lost.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    assert_eq!(live.fence().start(DEVICE, 0), StartOutcome::Started);
    // Linux closes the connections first.
    drop(lost);
    assert_eq!(session.set(Property::CONFIGURATION, SHUT_DOWN), Ok(0));
    let shutdown = |session: &mut Session| state(session) & ControllerState::SHUTDOWN;
    assert_eq!(shutdown(&mut session), ControllerState::SHUTDOWN_OCCURRING);
    live.fence().end(DEVICE, 0);
    assert_eq!(shutdown(&mut session), ControllerState::SHUTDOWN_OCCURRING);
    fence.end(DEVICE, 0);
    assert_eq!(shutdown(&mut session), ControllerState::SHUTDOWN_COMPLETE);
}

#[test]
fn a_silent_host_is_missed_within_a_quarter_more_than_its_timeout() {
    for heard_ms in [0, 900, 1_001, 1_999, 2_001] {
        let fabric = fabric(&config());
        let mut session = connect(&fabric, 1, 0);
        let io = session.io(1, place(0, 1)).unwrap();
        assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Started);
        session.set_feature(wire::nvme::Feature::KEEP_ALIVE, 4_000).unwrap();
        let mut gone_ms = None;
        for now_ms in (0..20_000).step_by(10) {
            if now_ms == heard_ms / 10 * 10 {
                session.get(Property::STATE, 4).unwrap();
            }
            poll(&fabric, 0, at(now_ms));
            if fabric.controllers().is_empty() {
                gone_ms = Some(now_ms);
                break;
            }
        }
        let silent_ms = gone_ms.unwrap() - heard_ms;
        assert!((3_990..=5_010).contains(&silent_ms), "{heard_ms}: {silent_ms}");
        assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Superseded);
        io.fence().end(DEVICE, 0);
    }
}

#[test]
fn a_disconnect_is_answered_when_nothing_of_its_queue_can_land() {
    let mut chance = crate::support::Chance(5);
    let mut pair = crate::nvme_tcp_pair::Pair::connect(&mut chance, Digests::default());
    let fence = pair.target.fence.clone().expect("it is an I/O queue's");
    let mut said = Vec::new();
    let flush = Submission::new(NvmOpcode::FLUSH.0, 6, 1);
    pair.host.command(&flush, TransferSizes::default(), &[], &mut said);
    pair.target.feed(&said);
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started, "what changes data is at a device");
    let disconnect = FabricsCommand {
        opcode: FABRICS_OPCODE,
        cid: 7.into(),
        kind: FabricsKind::DISCONNECT,
        ..FabricsCommand::new_zeroed()
    };
    said.clear();
    pair.host.command(disconnect.entry(), TransferSizes::default(), &[], &mut said);
    pair.target.feed(&said);
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Superseded);
    let attend = |pair: &mut crate::nvme_tcp_pair::Pair| {
        let attended = pair.target.session.attend(Instant::ZERO);
        pair.target.say();
        attended
    };
    assert_eq!(attend(&mut pair), Ok(()));
    assert!(pair.target.out.is_empty() && pair.target.ended.is_none(), "it has not ended");
    assert!(!pair.target.hears_news());
    fence.end(DEVICE, 0);
    assert!(pair.target.work(&mut chance), "it is answered");
    assert!(pair.target.hears_news(), "it has to go on");
    assert_eq!(attend(&mut pair), Err(ProtocolError::Ended(0)));
    let mut out = &pair.target.out[..];
    for cid in [6, 7] {
        let event = pair.host.next_event(&mut out).unwrap();
        let Some(HostEvent::Ended { completion, .. }) = event else { panic!("{event:?}") };
        assert!(completion.cid.get() == cid && completion.status().is_ok());
    }
}

#[test]
fn whoever_breaks_the_protocol_is_gone_before_its_connection_is() {
    let fabric = fabric(&config());
    let old = connect(&fabric, 1, 0);
    let io = old.io(1, place(1, 1)).unwrap();
    assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Started);
    let new = connect(&fabric, 1, 2);
    let new_io = new.io(1, place(1, 3)).unwrap();
    old.admin.leave();
    assert_eq!(io.fence().start(DEVICE, 0), StartOutcome::Superseded);
    assert_eq!(new_io.fence().start(DEVICE, 0), StartOutcome::Held);
    assert_eq!(fabric.controllers().len(), 1);
    drop((old, io.fence().end(DEVICE, 0)));
    assert_eq!(new_io.fence().start(DEVICE, 0), StartOutcome::Started, "its end comes once");
    assert_eq!(fabric.controllers().len(), 1);

    let mut chance = crate::support::Chance(6);
    let mut pair = crate::nvme_tcp_pair::Pair::connect(&mut chance, Digests::default());
    let fence = pair.target.fence.clone().expect("it is an I/O queue's");
    pair.target.session.leave();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Superseded);
}
