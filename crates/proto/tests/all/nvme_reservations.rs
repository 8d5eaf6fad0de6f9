//! Tests of reservations with two hosts and a namespace, after the specification's tables.

use crate::nvme_host::*;
use contract::{Instant, StartOutcome};
use nearflash_proto::nvme::{
    Config, DeviceRequest, ExecutionOutcome, Hosts, Queue, Refusal, StoredReservation,
    SubmissionStep,
};
use wire::nvme::{
    Event, Feature, IdentifyCns, LogPage, NvmOpcode, RegistrantExtended, ReservationAcquire,
    ReservationHead, ReservationNotice, ReservationNoticeKind, ReservationRegister,
    ReservationRelease, SglDescriptor, Status, Submission,
};
use zerocopy::IntoBytes;

type Fabric = std::sync::Arc<nearflash_proto::nvme::Fabric>;

const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

/// A host with an I/O queue.
struct Party {
    session: Session,
    queue: Queue,
}

impl Party {
    fn new(fabric: &Fabric, number: u8) -> Party {
        let at = u32::from(number) * 2;
        let session = connect(fabric, &host(number), SUBSYSTEM, 1, place(0, at));
        let queue = session.io(1, place(1, at + 1)).unwrap();
        Party { session, queue }
    }

    fn command(&mut self, opcode: NvmOpcode, dword10: u32, payload: &[u8]) -> Result<(), Status> {
        let mut entry = Submission::new(opcode.0, 5, 1);
        entry.dword10 = dword10.into();
        entry.data = SglDescriptor::in_capsule(0, payload.len() as u32);
        run(&mut self.queue, &entry, payload, Instant::ZERO).map(drop)
    }

    fn register(&mut self, action: u32, current: u64, new: u64) -> Result<(), Status> {
        let keys = ReservationRegister { current_key: current.into(), new_key: new.into() };
        self.command(NvmOpcode::RESERVATION_REGISTER, action, keys.as_bytes())
    }

    fn acquire(&mut self, action: u32, kind: u8, key: u64, other: u64) -> Result<(), Status> {
        let keys = ReservationAcquire { current_key: key.into(), preempt_key: other.into() };
        let dword10 = action | u32::from(kind) << 8;
        self.command(NvmOpcode::RESERVATION_ACQUIRE, dword10, keys.as_bytes())
    }

    fn release(&mut self, action: u32, kind: u8, key: u64) -> Result<(), Status> {
        let keys = ReservationRelease { current_key: key.into() };
        let dword10 = action | u32::from(kind) << 8;
        self.command(NvmOpcode::RESERVATION_RELEASE, dword10, keys.as_bytes())
    }

    fn may(&mut self, opcode: NvmOpcode) -> bool {
        let mut entry = Submission::new(opcode.0, 6, 1);
        entry.data = SglDescriptor::transport(512);
        match self.queue.begin(&entry) {
            SubmissionStep::Device(_) => true,
            SubmissionStep::Refused(answer) => {
                assert_eq!(answer.status, CONFLICT);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether the host may read, and whether it may write. A flush is one of the commands
    /// that write.
    fn rights(&mut self) -> (bool, bool) {
        let (reads, writes) = (self.may(NvmOpcode::READ), self.may(NvmOpcode::WRITE));
        assert_eq!(self.may(NvmOpcode::FLUSH), writes);
        (reads, writes)
    }

    fn report(&mut self) -> (ReservationHead, Vec<RegistrantExtended>) {
        let mut entry = Submission::new(NvmOpcode::RESERVATION_REPORT.0, 7, 1);
        entry.dword10 = 1023.into();
        entry.dword11 = 1.into();
        entry.data = SglDescriptor::transport(4096);
        let (_, report) = run(&mut self.queue, &entry, &[], Instant::ZERO).unwrap();
        let head: ReservationHead = read(&report);
        let count = usize::from(head.registrants.get());
        let registrants = report[64..].chunks(64).take(count).map(read).collect();
        (head, registrants)
    }

    fn notice(&mut self) -> ReservationNotice {
        read(&self.session.log(LogPage::RESERVATION, 64).unwrap())
    }
}

fn three(config: &Config) -> (Fabric, [Party; 3]) {
    let fabric = fabric(config);
    let mut parties = [1, 2, 3].map(|number| Party::new(&fabric, number));
    parties[0].register(0, 0, 0xa).unwrap();
    parties[1].register(0, 0, 0xb).unwrap();
    (fabric, parties)
}

#[test]
fn each_kind_keeps_out_whom_it_says() {
    // By kind: what the holder, another registrant and a stranger may read and write.
    let (all, read_only, nothing) = ((true, true), (true, false), (false, false));
    for (kind, registrant, stranger) in [
        (1, read_only, read_only),
        (2, nothing, nothing),
        (3, all, read_only),
        (4, all, nothing),
        (5, all, read_only),
        (6, all, nothing),
    ] {
        let (_fabric, [mut holder, mut other, mut third]) = three(&config());
        assert_eq!(third.rights(), all, "there is no reservation yet");
        holder.acquire(0, kind, 0xa, 0).unwrap();
        let rights = (holder.rights(), other.rights(), third.rights());
        assert_eq!(rights, (all, registrant, stranger), "kind {kind}");
        assert_eq!(third.acquire(0, kind, 0, 0), Err(CONFLICT), "not registered");
        let by_all = kind >= 5;
        assert_eq!(other.acquire(0, kind, 0xb, 0).is_ok(), by_all, "kind {kind}");
        let (head, registrants) = other.report();
        assert_eq!((head.kind.0, head.generation.get()), (kind, 2));
        let holders: Vec<u8> = registrants.iter().map(|registrant| registrant.state).collect();
        assert_eq!(holders, [1, u8::from(by_all)]);
        assert_eq!(holder.release(0, kind % 6 + 1, 0xa), Err(Status::INVALID_FIELD.dnr()));
        holder.release(0, kind, 0xa).unwrap();
        assert_eq!(third.rights(), all);
    }
}

#[test]
fn keys_are_registered_replaced_and_given_up() {
    let (_fabric, [mut one, mut two, _]) = three(&config());
    assert_eq!(one.register(0, 0, 0xa), Ok(()), "the same key again");
    assert_eq!(one.register(0, 0, 0xc), Err(CONFLICT));
    assert_eq!(one.register(2, 0xb, 0xc), Err(CONFLICT));
    assert_eq!(one.register(2, 0xa, 0xc), Ok(()));
    assert_eq!(one.register(2 | 1 << 3, 0, 0xd), Ok(()), "the existing key is ignored");
    one.acquire(0, 1, 0xd, 0).unwrap();
    assert_eq!(two.rights(), (true, false));
    assert_eq!(one.register(1, 0xd, 0), Ok(()));
    assert_eq!(two.rights(), (true, true), "the reservation went with its holder");
    assert_eq!(one.register(1, 0xd, 0), Err(CONFLICT));
    assert_eq!(one.register(3, 0, 0), Err(Status::INVALID_FIELD.dnr()));
    assert_eq!(one.register(1 << 30, 0, 0), Err(Status::INVALID_FIELD.dnr()));
    assert_eq!(two.acquire(1 << 3, 1, 0xb, 0), Err(Status::INVALID_FIELD.dnr()));
    assert_eq!(two.acquire(0, 7, 0xb, 0), Err(Status::INVALID_FIELD.dnr()));
}

#[test]
fn a_survivor_preempts_and_the_others_hear_of_it() {
    let (fabric, [mut one, mut two, mut three]) = three(&config());
    three.register(0, 0, 0xc).unwrap();
    one.acquire(0, 3, 0xa, 0).unwrap();
    let cid = one.session.await_event();
    three.session.set_feature(Feature::EVENTS, 0).unwrap();
    let released = three.session.await_event();
    two.acquire(1, 1, 0xb, 0xa).unwrap();
    assert_eq!((one.rights(), two.rights()), ((true, false), (true, true)));
    let told = events(&poll(&fabric, 0, Instant::ZERO));
    let event = u64::from(Event::RESERVATION.to_result());
    let expected =
        [(one.session.place.conn, cid, event), (three.session.place.conn, released, event)];
    assert_eq!(told, expected);
    let kinds: Vec<_> = (0..2).map(|_| one.notice().kind).collect();
    let expected = [ReservationNoticeKind::REGISTRATION_PREEMPTED, ReservationNoticeKind::EMPTY];
    assert_eq!(kinds, expected);
    assert_eq!(three.notice().kind, ReservationNoticeKind::RELEASED);
    assert_eq!(two.notice().kind, ReservationNoticeKind::EMPTY);
    let (head, registrants) = two.report();
    assert_eq!((head.kind.0, registrants.len()), (1, 2));
    assert_eq!(two.acquire(1, 1, 0xb, 0x77), Err(CONFLICT), "nobody has that key");
    assert_eq!(two.acquire(1, 1, 0xb, 0), Err(Status::INVALID_FIELD.dnr()));
    two.release(1, 0, 0xb).unwrap();
    assert_eq!(two.report().1.len(), 0);
    assert_eq!(three.notice().kind, ReservationNoticeKind::PREEMPTED);
}

#[test]
fn a_host_that_names_its_own_key_loses_its_own_registration() {
    let (_fabric, [mut one, mut two, mut three]) = three(&config());
    three.register(0, 0, 0xb).unwrap();
    one.acquire(0, 1, 0xa, 0).unwrap();
    two.acquire(1, 1, 0xb, 0xb).unwrap();
    assert_eq!(one.report().1.len(), 1, "two and three are registered no more");
    assert_eq!(two.acquire(1, 1, 0xb, 0xa), Err(CONFLICT));
    assert_eq!((one.rights(), two.rights()), ((true, true), (true, false)));
    // The holder may preempt itself with another kind, and stays registered.
    one.acquire(1, 2, 0xa, 0xa).unwrap();
    assert_eq!((one.report().0.kind.0, one.report().1.len()), (2, 1));
    one.release(0, 2, 0xa).unwrap();
    one.acquire(0, 6, 0xa, 0).unwrap();
    one.acquire(1, 6, 0xa, 0xa).unwrap();
    assert_eq!(one.report().0.kind.0, 0, "the last of all that hold it");
    assert_eq!(two.rights(), (true, true));
}

#[test]
fn who_stays_registered_hears_that_the_kind_has_changed() {
    let (_fabric, [mut one, mut two, mut three]) = three(&config());
    three.register(0, 0, 0xc).unwrap();
    one.acquire(0, 1, 0xa, 0).unwrap();
    two.acquire(1, 3, 0xb, 0xa).unwrap();
    assert_eq!(one.notice().kind, ReservationNoticeKind::REGISTRATION_PREEMPTED);
    assert_eq!(three.notice().kind, ReservationNoticeKind::RELEASED);
    three.acquire(1, 3, 0xc, 0xb).unwrap();
    assert_eq!(two.notice().kind, ReservationNoticeKind::REGISTRATION_PREEMPTED);
    assert_eq!(three.notice().kind, ReservationNoticeKind::EMPTY);
}

#[test]
fn notices_can_be_masked() {
    let (fabric, [mut one, mut two, _third]) = three(&config());
    let mut mask = Submission::new(0x09, 1, 1);
    mask.dword10 = u32::from(Feature::RESERVATION_MASK.0).into();
    mask.dword11 = 0b1110.into();
    one.session.run(&mask, &[]).unwrap();
    one.session.await_event();
    two.acquire(1, 1, 0xb, 0xa).unwrap();
    assert!(poll(&fabric, 0, Instant::ZERO).is_empty());
    assert_eq!(one.notice().kind, ReservationNoticeKind::EMPTY);
}

#[test]
fn reservations_outlive_connections_and_restarts() {
    let (fabric, [mut one, two, third]) = three(&config());
    one.register(3 << 30, 0, 0xa).unwrap();
    one.acquire(0, 2, 0xa, 0).unwrap();
    drop((one, two, third));
    assert!(fabric.controllers().is_empty());
    assert_eq!(Party::new(&fabric, 1).rights(), (true, true));
    assert_eq!(Party::new(&fabric, 2).rights(), (false, false));
    let kept = fabric.reservations();
    assert!(kept.len() == 1 && kept[0].persists);
    let restarted = crate::nvme_host::fabric(&config());
    kept.iter().cloned().for_each(|kept| restarted.restore_reservation(kept).unwrap());
    assert_eq!(Party::new(&restarted, 1).rights(), (true, true));
    assert_eq!(Party::new(&restarted, 2).rights(), (false, false));
    let twice = StoredReservation {
        registrants: [&kept[0].registrants[..], &kept[0].registrants[..]].concat(),
        ..kept[0].clone()
    };
    assert_eq!(restarted.restore_reservation(twice), Err(Refusal::Restore));
    let nobodys = StoredReservation { registrants: Vec::new(), ..kept[0].clone() };
    assert_eq!(restarted.restore_reservation(nobodys), Err(Refusal::Restore));
}

#[test]
fn another_host_with_the_same_identifier_is_another_registrant() {
    let (fabric, [mut one, _two, _third]) = three(&config());
    one.acquire(0, 2, 0xa, 0).unwrap();
    let liar = Host { id: host(1).id, ..host(4) };
    let session = connect(&fabric, &liar, SUBSYSTEM, 1, place(0, 90));
    let queue = session.io(1, place(1, 91)).unwrap();
    assert_eq!(Party { session, queue }.rights(), (false, false));
}

/// Returns the answers for the connections of worker 1.
fn answers(fabric: &Fabric) -> Vec<Status> {
    let actions = poll(fabric, 1, Instant::ZERO);
    let status = |action| match action {
        nearflash_proto::nvme::Action::Complete { answer, .. } => answer.status,
        other => panic!("{other:?}"),
    };
    actions.into_iter().map(status).collect()
}

#[test]
fn what_is_to_persist_is_answered_when_it_is_kept() {
    let fabric = fabric(&config());
    let mut party = Party::new(&fabric, 1);
    fabric.keep_reservations();
    // The reservation does not persist, so the command does not wait.
    party.register(0, 0, 0xa).unwrap();
    let waits = |party: &mut Party, action: u32, key: u64| {
        let keys = ReservationRegister { current_key: 0xa.into(), new_key: key.into() };
        let mut entry = Submission::new(NvmOpcode::RESERVATION_REGISTER.0, 9, 1);
        entry.dword10 = action.into();
        entry.data = SglDescriptor::in_capsule(0, 16);
        let step = party.queue.begin(&entry);
        assert!(matches!(step, SubmissionStep::Controller { payload_bytes: 16 }));
        let outcome = party.queue.execute(&entry, keys.as_bytes(), Instant::ZERO, &mut Vec::new());
        assert_eq!(outcome, ExecutionOutcome::Parked);
    };
    waits(&mut party, 2 | 3 << 30, 0xb);
    let (change, kept) = fabric.reservations_to_keep();
    assert_eq!((kept.len(), kept[0].registrants[0].1), (1, 0xb));
    assert_eq!(answers(&fabric), []);
    // A later change is not included.
    let keys = ReservationRegister { current_key: 0xb.into(), new_key: 0xc.into() };
    let mut entry = Submission::new(NvmOpcode::RESERVATION_REGISTER.0, 10, 1);
    entry.dword10 = 2.into();
    entry.data = SglDescriptor::in_capsule(0, 16);
    party.queue.begin(&entry);
    party.queue.execute(&entry, keys.as_bytes(), Instant::ZERO, &mut Vec::new());
    fabric.kept_reservations(change, true);
    assert_eq!(answers(&fabric), [Status::SUCCESS]);
    let (change, kept) = fabric.reservations_to_keep();
    assert_eq!(kept[0].registrants[0].1, 0xc);
    fabric.kept_reservations(change, false);
    assert_eq!(answers(&fabric), [Status::INTERNAL], "it could not be kept");
}

/// Checks that the number of waiting commands stays bounded if a host sends more commands than its
/// queue has entries.
#[test]
fn no_more_commands_wait_to_be_kept_than_a_queue_has_entries() {
    let fabric = fabric(&config());
    let mut party = Party::new(&fabric, 1);
    fabric.keep_reservations();
    let keys = ReservationRegister { current_key: 0.into(), new_key: 0xa.into() };
    let outcomes: Vec<_> = (0..1000)
        .map(|cid| {
            let mut entry = Submission::new(NvmOpcode::RESERVATION_REGISTER.0, cid, 1);
            entry.dword10 = (3 << 30).into();
            entry.data = SglDescriptor::in_capsule(0, 16);
            party.queue.begin(&entry);
            party.queue.execute(&entry, keys.as_bytes(), Instant::ZERO, &mut Vec::new())
        })
        .collect();
    let entries = usize::from(party.queue.size());
    let (parked, refused) = outcomes.split_at(entries);
    assert!(parked.iter().all(|outcome| *outcome == ExecutionOutcome::Parked));
    let is_refused = |outcome: &ExecutionOutcome| matches!(outcome, ExecutionOutcome::Done(answer) if answer.status == Status::INTERRUPTED);
    assert!(refused.iter().all(is_refused));
    let (change, _) = fabric.reservations_to_keep();
    fabric.kept_reservations(change, true);
    assert_eq!(answers(&fabric), vec![Status::SUCCESS; entries]);
}

/// Checks that the end of a namespace is stored, or a restart would find the reservation again for
/// a later namespace with the same identifiers.
#[test]
fn the_end_of_a_namespace_is_a_change_of_its_reservation() {
    let config = config();
    let fabric = fabric(&config);
    let mut party = Party::new(&fabric, 1);
    party.register(0, 0, 0xa).unwrap();
    let (before, _) = fabric.reservations_to_keep();
    config.subsystems.iter().for_each(|one| fabric.remove_subsystem(&one.nqn).unwrap());
    let (after, _) = fabric.reservations_to_keep();
    assert!(after > before, "{after} after {before}");
    assert_eq!(fabric.reservations(), []);
}

/// The index of the device that all writes go to.
const DEVICE: usize = 3;

/// Sends a Reservation Acquire that may have to wait. Returns `true` if it does.
fn preempt(party: &mut Party, action: u32, kind: u8, key: u64, other: u64) -> bool {
    let keys = ReservationAcquire { current_key: key.into(), preempt_key: other.into() };
    let mut entry = Submission::new(NvmOpcode::RESERVATION_ACQUIRE.0, 9, 1);
    entry.dword10 = (action | u32::from(kind) << 8).into();
    entry.data = SglDescriptor::in_capsule(0, 16);
    party.queue.begin(&entry);
    let outcome = party.queue.execute(&entry, keys.as_bytes(), Instant::ZERO, &mut Vec::new());
    match outcome {
        ExecutionOutcome::Parked => true,
        ExecutionOutcome::Done(answer) => {
            assert_eq!(answer.status, Status::SUCCESS);
            false
        }
        other => panic!("{other:?}"),
    }
}

fn write_of(party: &mut Party) -> DeviceRequest {
    let mut entry = Submission::new(NvmOpcode::WRITE.0, 6, 1);
    entry.data = SglDescriptor::transport(512);
    let SubmissionStep::Device(io) = party.queue.begin(&entry) else { panic!("it may write") };
    io
}

/// Returns the answers for worker 1 after this many milliseconds.
fn answers_at(fabric: &Fabric, millis: u64) -> Vec<Status> {
    poll(fabric, 0, at(millis));
    answers(fabric)
}

#[test]
fn who_preempts_waits_for_what_the_preempted_has_at_devices() {
    for abort in [1, 2] {
        let (fabric, [mut one, mut two, _]) = three(&config());
        one.acquire(0, 1, 0xa, 0).unwrap();
        let (at_device, waiting) = (write_of(&mut one), write_of(&mut one));
        let fence = one.queue.fence().clone();
        assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
        assert!(preempt(&mut two, abort, 1, 0xb, 0xa), "a write of the preempted is at a device");
        assert_eq!(answers_at(&fabric, 1), []);
        // A write that has not started is refused with the reason.
        assert_eq!(fence.start(DEVICE, 0), StartOutcome::Stale);
        assert_eq!(one.queue.permits(&waiting), Err(CONFLICT));
        assert_eq!(one.queue.complete(&waiting, contract::Status::Retry).status, CONFLICT);
        assert_eq!(two.rights(), (true, true), "it may write, as of now");
        fence.end(DEVICE, 0);
        assert_eq!(one.queue.complete(&at_device, contract::Status::Ok).status, Status::SUCCESS);
        assert_eq!(answers_at(&fabric, 2), [Status::SUCCESS]);
        assert_eq!(answers_at(&fabric, 3), []);
    }
}

#[test]
fn who_preempts_waits_for_connections_that_the_preempted_has_lost() {
    let (fabric, [mut one, mut two, _]) = three(&config());
    one.acquire(0, 1, 0xa, 0).unwrap();
    let fence = one.queue.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    drop(one);
    assert!(preempt(&mut two, 2, 1, 0xb, 0xa));
    assert_eq!(answers_at(&fabric, 1), []);
    fence.end(DEVICE, 0);
    assert_eq!(answers_at(&fabric, 2), [Status::SUCCESS]);
}

#[test]
fn only_abort_waits_for_hosts_that_may_go_on() {
    let (fabric, [mut one, mut two, _]) = three(&config());
    let fence = one.queue.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    // Without a reservation, unregistered hosts may write, too.
    assert!(!preempt(&mut two, 1, 1, 0xb, 0xa));
    one.register(0, 0, 0xa).unwrap();
    assert!(preempt(&mut two, 2, 1, 0xb, 0xa));
    // Further writes belong to the next epoch, and are not waited for.
    assert_eq!(one.rights(), (true, true));
    let now = fence.epoch();
    assert_eq!(fence.start(DEVICE, now), StartOutcome::Started);
    fence.end(DEVICE, 0);
    assert_eq!(answers_at(&fabric, 1), [Status::SUCCESS]);
    fence.end(DEVICE, now);
}

#[test]
fn data_does_not_go_to_a_host_that_was_shut_out_while_it_was_read() {
    let (_fabric, [mut one, mut two, _]) = three(&config());
    let mut entry = Submission::new(NvmOpcode::READ.0, 6, 1);
    entry.data = SglDescriptor::transport(512);
    let SubmissionStep::Device(io) = one.queue.begin(&entry) else { panic!("it may read") };
    assert!(!preempt(&mut two, 0, 2, 0xb, 0));
    assert_eq!(one.queue.complete(&io, contract::Status::Ok).status, CONFLICT);
}

#[test]
fn who_wants_to_preempt_and_goes_leaves_nothing_behind() {
    let (fabric, [mut one, mut two, mut three]) = three(&config());
    one.acquire(0, 1, 0xa, 0).unwrap();
    let fence = one.queue.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    assert!(preempt(&mut two, 2, 1, 0xb, 0xa));
    drop(two);
    three.register(0, 0, 0xc).unwrap();
    assert!(!preempt(&mut three, 2, 1, 0xc, 0xb), "the new holder has nothing at a device");
    fence.end(DEVICE, 0);
    assert_eq!(answers_at(&fabric, 1), []);
}

#[test]
fn a_reservation_is_the_namespaces_through_whatever_subsystem() {
    let mut config = config();
    config.subsystems.push(subsystem(OTHER_SUBSYSTEM));
    let (fabric, [mut one, mut two, _]) = three(&config);
    let session = connect(&fabric, &host(4), OTHER_SUBSYSTEM, 1, place(0, 80));
    let queue = session.io(1, place(1, 81)).unwrap();
    let mut elsewhere = Party { session, queue };
    let fence = elsewhere.queue.fence().clone();
    assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started);
    assert!(preempt(&mut one, 0, 2, 0xa, 0), "it waits for writes through the other subsystem");
    fence.end(DEVICE, 0);
    assert_eq!(answers_at(&fabric, 1), [Status::SUCCESS]);
    assert_eq!(elsewhere.rights(), (false, false));
    assert_eq!(elsewhere.report().0.kind.0, 2);
    // The reservation lasts as long as one of them has the namespace.
    fabric.remove_subsystem(&nqn(OTHER_SUBSYSTEM)).unwrap();
    assert_eq!(two.rights(), (false, false));
    fabric.remove_namespace(&nqn(SUBSYSTEM), 1).unwrap();
    fabric.add_namespace(&nqn(SUBSYSTEM), namespace(1, 1 << 20)).unwrap();
    two.session.identify(IdentifyCns::NAMESPACE_DESCRIPTORS, 1).unwrap();
    assert_eq!(two.rights(), (true, true));
}

#[test]
fn what_operators_take_away_is_over_when_nothing_of_it_is_at_a_device() {
    let (fabric, [one, two, three]) = three(&config());
    let fences = [&one, &two, &three].map(|party| party.queue.fence().clone());
    fences.iter().for_each(|fence| assert_eq!(fence.start(DEVICE, 0), StartOutcome::Started));
    let others = Hosts::Only(vec![nqn(&host(2).nqn), nqn(&host(3).nqn)]);
    fabric.set_hosts(&nqn(SUBSYSTEM), others.clone()).unwrap();
    let mut denied = fabric.take_withdrawal();
    assert!(!fabric.is_over(&mut denied));
    fences[0].end(DEVICE, 0);
    assert!(fabric.is_over(&mut denied));
    fabric.set_namespace_hosts(&nqn(SUBSYSTEM), 1, others).unwrap();
    assert!(fabric.is_over(&mut fabric.take_withdrawal()), "they see it still");
    let only = Hosts::Only(vec![nqn(&host(3).nqn)]);
    fabric.set_namespace_hosts(&nqn(SUBSYSTEM), 1, only).unwrap();
    let mut hidden = fabric.take_withdrawal();
    assert!(!fabric.is_over(&mut hidden) && fences[1].start(DEVICE, 0) == StartOutcome::Stale);
    fences[1].end(DEVICE, 0);
    assert!(fabric.is_over(&mut hidden));
    fabric.remove_namespace(&nqn(SUBSYSTEM), 1).unwrap();
    let mut removed = fabric.take_withdrawal();
    assert!(!fabric.is_over(&mut removed));
    fences[2].end(DEVICE, 0);
    assert!(fabric.is_over(&mut removed));
}
