//! Tests of controllers that move to another process: one fabric lets them go, another continues
//! them, and their hosts are not affected (docs/adr/0015-moving-controllers.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::nvme_host::{
    Host, SUBSYSTEM, Session, at, attach, config, fabric, host, nqn, place, poll,
};
use crate::nvme_tcp_pair::{Pair, ranged};
use crate::support::Chance;
use contract::{
    Instant, MigratableSession as _, RevocablePermissions as _, Session as _, StartOutcome,
};
use nearflash_proto::nvme::{
    Action, CloseReason, Config, ExportError, ExportedController, Fabric, HeldCommands,
    ImportError, Nqn, Queue,
};
use nearflash_proto::nvme_tcp::{ControllerSession, Digests, TransferSizes};
use wire::nvme::{Event, Feature, NvmOpcode, Property, notice};

/// The configuration that a host writes to reset its controller.
const RESET: u64 = 0x46_0000;

/// The index of the device that all requests go to.
const DEVICE: usize = 2;

/// The time of the hand-over in both processes.
const NOW: Instant = Instant::from_nanos(1 << 40);

fn connect(fabric: &Arc<Fabric>, n: u8, index: u32) -> Session {
    crate::nvme_host::connect(fabric, &host(n), SUBSYSTEM, 1, place(0, index))
}

/// Returns the fabric's actions for a worker.
fn mail(fabric: &Arc<Fabric>, worker: u16) -> Vec<Action> {
    poll(fabric, worker, NOW)
}

/// A controller whose queues have left their workers.
struct Moving {
    cntlid: u16,
    numbers: Vec<u64>,
    host: Host,
}

impl Moving {
    /// Detaches all queues of a controller.
    fn of(session: Session, io: Vec<Queue>) -> Moving {
        let Session { admin, fabric, host, .. } = session;
        let cntlid = admin.cntlid();
        assert!(fabric.set_exporting(cntlid, true) && admin.is_exporting());
        let numbers =
            [admin].into_iter().chain(io).map(|mut queue| queue.detach().unwrap()).collect();
        Moving { cntlid, numbers, host }
    }

    /// Moves the controller to the other process, as bytes. Returns the new numbers of its queues.
    fn go(&self, from: &Fabric, to: &Fabric) -> BTreeMap<u16, u64> {
        let exported = from.export(self.cntlid, &self.numbers).unwrap();
        let bytes = exported.encode(NOW).unwrap();
        let arrived = ExportedController::decode(&bytes, NOW).unwrap();
        assert_eq!(arrived.encode(NOW).unwrap(), bytes, "nothing is lost on the way");
        let numbers = to.prepare_import(arrived).unwrap();
        assert!(to.controllers().is_empty(), "it is the other's still");
        from.hand_over(self.cntlid, &self.numbers).unwrap();
        from.forget_exported(self.cntlid);
        assert!(to.import(self.cntlid, NOW) && !to.import(self.cntlid, NOW));
        numbers
    }

    /// Attaches the queues of the moved controller to worker 1.
    fn attach(self, to: &Arc<Fabric>, numbers: &BTreeMap<u16, u64>) -> (Session, Vec<Queue>) {
        let attach = |(id, number): (&u16, &u64)| {
            let queue = attach(to, *number, 1, place(1, 10 + u32::from(*id)).conn).unwrap();
            assert_eq!((queue.id(), queue.cntlid()), (*id, self.cntlid));
            queue
        };
        let mut queues: Vec<Queue> = numbers.iter().map(attach).collect();
        let admin = queues.remove(0);
        (Session::again(to, &self.host, SUBSYSTEM, admin, place(1, 10)), queues)
    }
}

fn two(config: &Config) -> (Arc<Fabric>, Arc<Fabric>) {
    (fabric(config), fabric(config))
}

#[test]
fn a_controller_goes_on_where_it_has_landed() {
    let (old, new) = two(&config());
    let (mut first, _second) = (connect(&old, 1, 0), connect(&old, 2, 5));
    first.set_feature(Feature::EVENTS, notice::NAMESPACE).unwrap();
    let event = first.await_event();
    let io = vec![first.io(1, place(0, 1)).unwrap(), first.io(2, place(1, 2)).unwrap()];
    let fence = io[0].fence().clone();
    let moving = Moving::of(first, io);
    let numbers = moving.go(&old, &new);
    assert_eq!(old.controllers().len(), 1, "the other host's");
    assert_eq!((mail(&old, 0), mail(&old, 1)), (Vec::new(), Vec::new()), "nobody is ended");
    assert!(!fence.is_running());
    let cntlid = moving.cntlid;
    let (mut again, queues) = moving.attach(&new, &numbers);
    assert_eq!(again.get(Property::CONFIGURATION, 4), Ok(0x46_0001));
    assert_eq!(queues[0].fence().start(DEVICE, queues[0].fence().epoch()), StartOutcome::Started);
    queues[0].fence().end(DEVICE, 0);
    assert!(!queues[0].fence().may_be_elsewhere(), "it was its host's only one");
    assert!(again.io(2, place(0, 3)).is_err(), "it is there");
    assert!(again.io(3, place(0, 3)).is_ok());
    let other = connect(&new, 3, 20);
    assert_ne!(other.admin.cntlid(), cntlid);
    assert!(other.io(1, place(0, 21)).unwrap().fence().may_be_elsewhere());
    new.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap();
    let [Action::Complete { conn, answer, .. }] = &mail(&new, 1)[..] else {
        panic!("the event was lost");
    };
    assert_eq!((*conn, answer.cid), (place(1, 10).conn, event));
    assert_eq!(answer.result as u32, Event::NAMESPACE.to_result());
    assert_eq!(again.set(Property::CONFIGURATION, RESET), Ok(0));
    assert_eq!(queues[0].fence().start(DEVICE, 0), StartOutcome::Superseded);
}

#[test]
fn what_is_not_whole_or_waits_does_not_leave() {
    let (old, _) = two(&config());
    let session = connect(&old, 1, 0);
    let (fabric, cntlid) = (session.fabric.clone(), session.admin.cntlid());
    let mut io = session.io(1, place(0, 1)).unwrap();
    let Session { mut admin, .. } = session;
    let number = admin.detach().unwrap();
    assert_eq!(fabric.export(cntlid, &[number]).unwrap_err(), ExportError::Queues);
    assert_eq!(fabric.export(cntlid, &[number, 99]).unwrap_err(), ExportError::Gone);
    assert_eq!(fabric.export(99, &[number]).unwrap_err(), ExportError::Gone);
    let numbers = [number, io.detach().unwrap()];
    fabric.export(cntlid, &numbers).unwrap();
    // The host continues here, with its timer as if it had just sent a command.
    fabric.cancel_export(cntlid, NOW);
    let [admin, io] =
        [0, 1].map(|n| attach(&fabric, numbers[n], 0, place(0, n as u32).conn).unwrap());
    assert!(!admin.is_exporting() && io.fence().start(DEVICE, 0) == StartOutcome::Started);
    // A reset with a write at the device is not over before that write.
    let mut session = Session::again(&fabric, &host(1), SUBSYSTEM, admin, place(0, 0));
    assert_eq!(session.set(Property::CONFIGURATION, RESET), Ok(0));
    let number = session.admin.detach().unwrap();
    assert_eq!(fabric.export(cntlid, &[number]).unwrap_err(), ExportError::Ending);
    io.fence().end(DEVICE, 0);
    assert!(fabric.export(cntlid, &[number]).is_ok());
}

#[test]
fn what_happens_to_one_that_was_shown_keeps_it() {
    let (old, new) = two(&config());
    let mut session = connect(&old, 1, 0);
    session.set_feature(Feature::KEEP_ALIVE, 1000).unwrap();
    let io = session.io(1, place(0, 1)).unwrap();
    let moving = Moving::of(session, vec![io]);
    let exported = old.export(moving.cntlid, &moving.numbers).unwrap();
    // The timer is suspended as long as nobody can hear the host.
    for n in 0..20 {
        poll(&old, 0, at(n * 1000));
    }
    assert_eq!(old.controllers().len(), 1);
    new.prepare_import(exported).unwrap();
    old.remove_subsystem(&nqn(SUBSYSTEM)).unwrap();
    let gone = old.hand_over(moving.cntlid, &moving.numbers);
    assert_eq!(gone, Err(ExportError::Gone));
    new.cancel_import(moving.cntlid);
    assert!(!new.import(moving.cntlid, NOW));
    let landed = attach(&old, moving.numbers[1], 1, place(1, 9).conn).unwrap();
    let reason = CloseReason::SubsystemRemoved;
    assert_eq!(mail(&old, 1), [Action::Close { conn: place(1, 9).conn, reason }]);
    drop(landed);
}

/// Checks that timers rest while some queues of a controller have left, and so are not read, and
/// others are not quiet yet.
#[test]
fn a_controller_does_not_expire_while_it_is_gathered() {
    let (old, _) = two(&config());
    let mut session = connect(&old, 1, 0);
    session.set_feature(Feature::KEEP_ALIVE, 1000).unwrap();
    let _other = connect(&old, 2, 5);
    let io = session.io(1, place(0, 1)).unwrap();
    let (cntlid, started) = (session.admin.cntlid(), 10_000);
    poll(&old, 0, at(started));
    assert!(old.set_exporting(cntlid, true));
    let Session { mut admin, .. } = session;
    let number = admin.detach().unwrap();
    for n in 0..20 {
        assert_eq!(poll(&old, 0, at(started + n * 1000)), [], "nobody could hear it");
    }
    assert_eq!(old.controllers().len(), 2);
    // The controller stays, and has its whole timeout again. A host that stays silent then expires.
    let back = started + 20_000;
    old.cancel_export(cntlid, at(back));
    let admin = attach(&old, number, 0, place(0, 0).conn).unwrap();
    poll(&old, 0, at(back + 900));
    assert_eq!(old.controllers().len(), 2);
    for n in 1..20 {
        poll(&old, 0, at(back + n * 1000));
    }
    assert_eq!(old.controllers().len(), 1, "the other one has no such timer");
    drop((admin, io));
}

#[test]
fn one_that_was_let_go_can_be_taken_back() {
    let (old, _) = two(&config());
    let session = connect(&old, 1, 0);
    let io = session.io(1, place(0, 1)).unwrap();
    let moving = Moving::of(session, vec![io]);
    old.export(moving.cntlid, &moving.numbers).unwrap();
    old.hand_over(moving.cntlid, &moving.numbers).unwrap();
    assert!(old.controllers().is_empty());
    old.cancel_export(moving.cntlid, NOW);
    let numbers = (0..).zip(moving.numbers.iter().copied()).collect();
    let (mut again, queues) = moving.attach(&old, &numbers);
    assert_eq!(again.get(Property::CONFIGURATION, 4), Ok(0x46_0001));
    assert_eq!(queues[0].fence().start(DEVICE, 0), StartOutcome::Started);
}

#[test]
fn a_configuration_that_would_not_serve_it_so_refuses_it() {
    let old = fabric(&config());
    let session = connect(&old, 1, 0);
    let moving = Moving::of(session, Vec::new());
    let exported = old.export(moving.cntlid, &moving.numbers).unwrap();
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut other = config();
        change(&mut other);
        fabric(&other).prepare_import(exported.clone()).unwrap_err()
    };
    assert_eq!(refused(&|other| other.subsystems.clear()), ImportError::Subsystem);
    assert_eq!(refused(&|other| drop(other.ports.remove(0))), ImportError::Subsystem);
    let nobody = nearflash_proto::nvme::Hosts::Only(Vec::<Nqn>::new());
    assert_eq!(refused(&|other| other.subsystems[0].hosts = nobody.clone()), ImportError::Host);
    assert_eq!(refused(&|other| other.subsystems[0].must_authenticate = true), ImportError::Host);
    let of = |other: &mut Config| other.subsystems[0].namespaces[1].clone();
    let another = |other: &mut Config| {
        let mut namespace = of(other);
        namespace.id = contract::NamespaceId(9);
        other.subsystems[0].namespaces[1] = namespace;
    };
    assert_eq!(refused(&another), ImportError::Namespace(2));
    let taken = fabric(&config());
    let _first = connect(&taken, 7, 0);
    assert_eq!(
        taken.prepare_import(exported.clone()),
        Err(ImportError::Full),
        "its identifier is taken"
    );
}

#[test]
fn the_host_is_told_what_the_new_configuration_changes() {
    let old = fabric(&config());
    let mut more = config();
    more.subsystems[0].namespaces.remove(1);
    let new = fabric(&more);
    let mut session = connect(&old, 1, 0);
    session.set_feature(Feature::EVENTS, notice::NAMESPACE).unwrap();
    let cid = session.await_event();
    let moving = Moving::of(session, Vec::new());
    let numbers = moving.go(&old, &new);
    let _landed = moving.attach(&new, &numbers);
    let [Action::Complete { answer, .. }] = &mail(&new, 1)[..] else { panic!("no event") };
    assert_eq!((answer.cid, answer.result as u32), (cid, Event::NAMESPACE.to_result()));
}

/// Moves a session to another process while a write waits for its payload to be requested.
#[test]
fn a_write_that_was_not_asked_for_goes_on_and_is_looked_at_again() {
    let (mut pair, data) = Pair::with_a_write();
    pair.target.export(HeldCommands::Nothing);
    let fence = pair.target.fence.clone().expect("it is an I/O queue");
    assert_ne!(pair.target.session.allowed_as_of(0), fence.epoch(), "it is of no epoch here");
    assert_eq!(pair.target.session.allow_again(0), Ok(fence.epoch()));
    pair.end_write(&data);
}

#[test]
fn commands_that_change_reservations_wait_while_two_processes_have_hosts() {
    let mut pair = Pair::connect(&mut Chance(3), Digests::default());
    let fabric = pair.target.fabric();
    fabric.hold(HeldCommands::Connects);
    let mut entry = ranged(NvmOpcode::RESERVATION_REGISTER, 4, 0, 1);
    (entry.dword10, entry.dword11, entry.dword12) = (0.into(), 0.into(), 0.into());
    let keys = [[0; 8], 77_u64.to_le_bytes()].concat();
    entry.data = wire::nvme::SglDescriptor::in_capsule(0, keys.len() as u32);
    let mut out = Vec::new();
    pair.host.command(&entry, TransferSizes::default(), &keys, &mut out);
    pair.target.feed(&out);
    assert!(pair.target.out.is_empty() && pair.target.session.is_settled(), "it may leave so");
    assert!(fabric.reservations().is_empty());
    pair.target.export(HeldCommands::Reservations);
    let there = pair.target.fabric();
    pair.target.attend();
    assert!(there.reservations().is_empty() && pair.target.out.is_empty());
    there.hold(HeldCommands::Nothing);
    assert!(pair.target.hears_news(), "whoever waits is named");
    pair.target.attend();
    assert_eq!(there.reservations().len(), 1);
    assert!(!pair.target.out.is_empty());
}

#[test]
fn reservations_go_over_whether_they_persist_or_not() {
    let (old, new) = two(&config());
    let kept = nearflash_proto::nvme::StoredReservation {
        subsystem: nqn(SUBSYSTEM),
        nsid: 1,
        generation: 3,
        registrants: vec![(
            nearflash_proto::nvme::Registrant { host: nqn(&host(1).nqn), id: host(1).id },
            77,
        )],
        held: None,
        persists: false,
    };
    old.restore_reservation(kept.clone()).unwrap();
    let bytes = old.export_reservations().unwrap();
    new.import_reservations(&bytes).unwrap();
    assert_eq!(new.reservations(), [kept]);
    for cut in 0..bytes.len() {
        assert!(new.import_reservations(&bytes[..cut]).is_err(), "the first {cut} bytes");
    }
    let mut chance = Chance(1);
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        let (at, bit) = (chance.below(bytes.len()), chance.below(8));
        bytes[at] ^= 1 << bit;
        let _ = new.import_reservations(&bytes);
    }
}

/// Checks that any bytes of a controller are refused, or can be taken over so that its queues land.
#[test]
fn changed_controllers_are_refused_or_make_sense() {
    let old = fabric(&config());
    let mut session = connect(&old, 1, 0);
    session.set_feature(Feature::EVENTS, notice::NAMESPACE).unwrap();
    session.await_event();
    let io = vec![session.io(1, place(0, 1)).unwrap(), session.io(2, place(0, 2)).unwrap()];
    let moving = Moving::of(session, io);
    let exported = old.export(moving.cntlid, &moving.numbers).unwrap();
    let good = exported.encode(NOW).unwrap();
    for cut in 0..good.len() {
        assert!(ExportedController::decode(&good[..cut], NOW).is_err(), "the first {cut} bytes");
    }
    let (mut chance, mut believed, mut admitted) = (Chance(11), 0, 0);
    for _ in 0..30_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + chance.below(3) {
            let (at, bit) = (14 + chance.below(bytes.len() - 14), chance.below(8));
            bytes[at] ^= 1 << bit;
        }
        let Ok(arrived) = ExportedController::decode(&bytes, NOW) else { continue };
        believed += 1;
        let again = ExportedController::decode(&arrived.encode(NOW).unwrap(), NOW).unwrap();
        assert_eq!(again.encode(NOW).unwrap(), arrived.encode(NOW).unwrap());
        let (new, cntlid) = (fabric(&config()), arrived.cntlid());
        let Ok(numbers) = new.prepare_import(arrived) else { continue };
        assert!(new.import(cntlid, NOW));
        let attach = |(id, number): (&u16, &u64)| {
            attach(&new, *number, 1, place(1, u32::from(*id)).conn).expect("it was admitted")
        };
        let queues: Vec<Queue> = numbers.iter().map(attach).collect();
        poll(&new, 0, NOW);
        drop(queues);
        assert!(new.controllers().is_empty());
        admitted += 1;
    }
    println!("{believed} changed controllers were believed, {admitted} admitted");
    assert!(admitted > 0);
}

#[test]
fn bytes_that_are_no_session_are_refused() {
    let mut pair = Pair::connect(&mut Chance(7), Digests::default());
    let entry = ranged(NvmOpcode::WRITE, 3, 8, 32);
    let mut out = Vec::new();
    let carried = TransferSizes { sends: 32 * 512, ..TransferSizes::default() };
    pair.host.command(&entry, carried, &[], &mut out);
    pair.target.feed(&out);
    let packed = pair.target.session.pack().unwrap();
    assert!(ControllerSession::number(&packed).is_some());
    let mut chance = Chance(5);
    for _ in 0..20_000 {
        let mut bytes = packed.clone();
        for _ in 0..1 + chance.below(3) {
            let (at, bit) = (10 + chance.below(bytes.len() - 10), chance.below(8));
            bytes[at] ^= 1 << bit;
        }
        if let Some(session) = pair.target.unpack(&bytes) {
            let _ = session.answers([0, 1, u64::MAX].into_iter());
            let _ = session.expects();
        }
    }
}
