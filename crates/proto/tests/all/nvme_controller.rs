//! Tests of the NVMe controller as a Linux host uses it: connect, enable, identify, do I/O, receive
//! events, disconnect.

use std::time::Duration;

use crate::nvme_host::*;
use contract::{Command, Geometry, Instant, Range, Status as Ended};
use nearflash_proto::nvme::{
    Action, CloseReason, DeviceRequest, ExecutionOutcome, FusedPart, Hosts, Origin, PortId,
    SubmissionStep,
};
use wire::nvme::{
    AdminOpcode, AnaState, DiscardRange, DiscoveryEntry, DiscoveryHeader, ErrorEntry, Event,
    Feature, Fuse, IdentifyCns, IdentifyController, IdentifyNamespace, IdentifyNamespaceCommon,
    LogPage, NvmOpcode, Property, SglDescriptor, SmartLog, Status, Submission, SubsystemKind,
    notice,
};
use zerocopy::IntoBytes;

fn io_entry(opcode: NvmOpcode, cid: u16, nsid: u32, lba: u64, blocks: u32) -> Submission {
    let mut entry = Submission::new(opcode.0, cid, nsid);
    entry.dword10 = (lba as u32).into();
    entry.dword11 = ((lba >> 32) as u32).into();
    entry.dword12 = (blocks - 1).into();
    let bytes = match opcode {
        NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE => blocks * 512,
        _ => 0,
    };
    entry.data = SglDescriptor::transport(bytes);
    entry
}

fn device(step: SubmissionStep) -> DeviceRequest {
    match step {
        SubmissionStep::Device(io) => io,
        other => panic!("{other:?}"),
    }
}

fn refused(step: SubmissionStep) -> Status {
    match step {
        SubmissionStep::Refused(answer) => answer.status,
        other => panic!("{other:?}"),
    }
}

/// Checks details for which conformance tests of other projects ask one by one.
#[test]
fn features_and_logs_answer_as_the_specification_says() {
    let fabric = fabric(&config());
    let mut host = open(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0)).unwrap();
    host.enable();
    let mut effects = log_entry(host.cid(), LogPage::EFFECTS, 4096, 0);
    effects.dword14 = (2 << 24).into();
    assert_eq!(host.run(&effects, &[]), Err(Status::INVALID_FIELD.dnr()), "of zoned namespaces");
    assert_eq!(host.log(LogPage::EFFECTS, 4096).map(|log| log.len()), Ok(4096));
    let mut identifier = Submission::new(AdminOpcode::SET_FEATURES.0, host.cid(), 0);
    identifier.dword10 = u32::from(Feature::HOST_IDENTIFIER.0).into();
    identifier.data = SglDescriptor::transport(16);
    assert_eq!(host.run(&identifier, &[0; 16]), Err(Status::SEQUENCE_ERROR.dnr()));
    // Default of the threshold, then the value now.
    let id: IdentifyController = read(&host.identify(IdentifyCns::CONTROLLER, 0).unwrap());
    let mut threshold = Submission::new(AdminOpcode::GET_FEATURES.0, host.cid(), 0);
    threshold.dword10 = (u32::from(Feature::TEMPERATURE.0) | 1 << 8).into();
    let warned = u64::from(id.temperature_warning.get());
    assert_eq!(host.run(&threshold, &[]).map(|(value, _)| value), Ok(warned));
    assert_eq!(host.get_feature(Feature::TEMPERATURE), Ok(warned));
    let warning =
        |host: &mut Session| read::<SmartLog>(&host.log(LogPage::SMART, 512).unwrap()).warning;
    host.set_feature(Feature::EVENTS, u32::MAX).unwrap();
    let served = notice::SMART | notice::NAMESPACE | notice::ANA;
    assert_eq!(host.get_feature(Feature::EVENTS), Ok(u64::from(served)));
    assert_eq!(warning(&mut host), 0);
    let cid = host.await_event();
    host.set_feature(Feature::TEMPERATURE, 256).unwrap();
    let told = [(place(0, 0).conn, cid, u64::from(Event::TEMPERATURE.to_result()))];
    assert_eq!(events(&poll(&fabric, 0, Instant::ZERO)), told);
    assert_eq!(warning(&mut host), 1 << 1);
    host.set_feature(Feature::TEMPERATURE, 0xffff).unwrap();
    assert_eq!(warning(&mut host), 0);
}

/// Checks that a host without a name may connect only where every host may.
#[test]
fn a_host_without_a_name_is_let_in_where_everybody_is() {
    let mut config = config();
    let mut listed = subsystem("nqn.2026-01.io.nearflash:listed");
    listed.hosts = Hosts::Only(vec![nqn(&host(1).nqn)]);
    let mut locked = subsystem("nqn.2026-01.io.nearflash:locked");
    locked.must_authenticate = true;
    config.subsystems.extend([listed, locked]);
    let fabric = fabric(&config);
    let nobody = Host { nqn: String::new(), ..host(1) };
    let mut session = open(&fabric, &nobody, SUBSYSTEM, 1, place(0, 0)).unwrap();
    session.enable();
    assert_eq!(session.namespaces(), [1, 2]);
    assert!(session.io(1, place(0, 1)).is_ok());
    for refused in ["listed", "locked"] {
        let name = format!("nqn.2026-01.io.nearflash:{refused}");
        let done = open(&fabric, &nobody, &name, 1, place(0, 2)).unwrap_err();
        assert_eq!(done.status(), Status::CONNECT_INVALID_HOST.dnr());
    }
    // Another one without a name is another host.
    let another = Host { nqn: String::new(), ..host(2) };
    let mut other = open(&fabric, &another, SUBSYSTEM, 1, place(0, 3)).unwrap();
    other.enable();
    let list = other.identify(IdentifyCns(0x13), 0).unwrap();
    assert_eq!(u16::from_le_bytes([list[0], list[1]]), 1, "only its own controller");
    let broken = Host { nqn: "foo".to_owned(), ..host(1) };
    assert!(open(&fabric, &broken, SUBSYSTEM, 1, place(0, 4)).is_err());
}

#[test]
fn a_host_comes_up_as_linux_does() {
    let fabric = fabric(&config());
    let mut host = open(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0)).unwrap();
    assert_eq!(host.identify(IdentifyCns::CONTROLLER, 0), Err(Status::SEQUENCE_ERROR.dnr()));
    let capabilities = host.get(Property::CAPABILITIES, 8).unwrap();
    assert_eq!(capabilities & 0xffff, 127);
    assert_eq!(host.get(Property::VERSION, 4), Ok(0x2_0000));
    assert_eq!(host.get(Property::STATE, 4), Ok(0));
    host.enable();
    let id: IdentifyController = read(&host.identify(IdentifyCns::CONTROLLER, 0).unwrap());
    assert_eq!(id.cntlid.get(), host.admin.cntlid());
    assert_eq!(&id.subsystem_nqn[..SUBSYSTEM.len()], SUBSYSTEM.as_bytes());
    assert_eq!((id.transfer_max_shift, id.kind, id.multi_path), (8, 1, 0b1011));
    assert!(id.command_capsule.get() >= 4 && id.response_capsule.get() >= 1);
    assert!(id.sgl.get() & 3 != 0 && id.keep_alive_granularity.get() > 0);
    assert_eq!(host.set_feature(Feature::QUEUES, 3 | 3 << 16), Ok(3 | 3 << 16));
    assert_eq!(host.namespaces(), [1, 2]);
    let ns: IdentifyNamespace = read(&host.identify(IdentifyCns::NAMESPACE, 2).unwrap());
    assert_eq!((ns.size.get(), ns.lba_formats[0].data_shift), (4096, 9));
    assert_eq!(ns.write_granularity.get(), 7);
    assert_eq!((ns.atomic_blocks.get(), ns.atomic_blocks_power_fail.get()), (0, 0));
    let common: IdentifyNamespaceCommon =
        read(&host.identify(IdentifyCns::NAMESPACE_COMMON, 2).unwrap());
    assert_eq!((common.state, common.ana_group.get()), (1, 1));
    let descriptors = host.identify(IdentifyCns::NAMESPACE_DESCRIPTORS, 2).unwrap();
    assert_eq!(descriptors[..4], [3, 16, 0, 0]);
    assert_eq!(descriptors[20..25], [4, 1, 0, 0, 0]);
    let queues: Vec<_> = (1..=4).map(|queue| host.io(queue, place(1, queue.into()))).collect();
    assert!(queues.iter().all(Result::is_ok));
    assert_eq!(host.io(5, place(1, 9)).unwrap_err().status(), Status::CONNECT_INVALID.dnr());
    assert_eq!(fabric.controllers()[0].queues.len(), 5);
}

#[test]
fn reads_and_writes_become_the_contracts() {
    let fabric = fabric(&config());
    let host = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = host.io(1, place(1, 1)).unwrap();
    let io = device(queue.begin(&io_entry(NvmOpcode::READ, 7, 1, 8, 16)));
    assert_eq!(io.command, Command::Read(Range::new(8, 16)));
    assert_eq!((io.payload_bytes, io.reply_bytes, io.namespace.0), (0, 8192, 1));
    let answer = queue.complete(&io, Ended::Ok);
    let done = queue.seal(answer);
    assert_eq!((done.cid.get(), done.sq_head.get(), done.status()), (7, 2, Status::SUCCESS));
    let mut write = io_entry(NvmOpcode::WRITE, 8, 2, 4088, 8);
    write.dword12.set(7 | 1 << 30);
    let io = device(queue.begin(&write));
    assert_eq!(io.command, Command::Write { range: Range::new(4088, 8), fua: true });
    assert_eq!(queue.complete(&io, Ended::MediaError).status, Status::WRITE_FAULT);
    let flush = device(queue.begin(&Submission::new(NvmOpcode::FLUSH.0, 9, 2)));
    assert_eq!(flush.command, Command::Flush);
    let verify = device(queue.begin(&io_entry(NvmOpcode::VERIFY, 9, 2, 0, 8)));
    assert_eq!((verify.command, verify.reply_bytes), (Command::Read(Range::new(0, 8)), 0));
    let mut zeroes = io_entry(NvmOpcode::WRITE_ZEROES, 9, 1, 0, 65536);
    let io = device(queue.begin(&zeroes));
    assert_eq!(io.command, Command::WriteZeroes { range: Range::new(0, 65536), fua: false });
    zeroes.dword12.set(0xffff | 1 << 25);
    let io = device(queue.begin(&zeroes));
    assert_eq!(io.command, Command::Discard(Range::new(0, 65536)));
}

#[test]
fn commands_that_cannot_be_are_refused_with_their_status() {
    let fabric = fabric(&config());
    let host = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = host.io(1, place(1, 1)).unwrap();
    let cases = [
        (io_entry(NvmOpcode::READ, 1, 2, 4095, 2), Status::LBA_OUT_OF_RANGE),
        (io_entry(NvmOpcode::READ, 1, 2, u64::MAX, 2), Status::LBA_OUT_OF_RANGE),
        (io_entry(NvmOpcode::READ, 1, 3, 0, 1), Status::INVALID_NAMESPACE),
        (io_entry(NvmOpcode::READ, 1, 0, 0, 1), Status::INVALID_NAMESPACE),
        (io_entry(NvmOpcode::FLUSH, 1, u32::MAX, 0, 1), Status::INVALID_NAMESPACE),
        (io_entry(NvmOpcode::READ, 1, 1, 0, 2049), Status::INVALID_FIELD),
        (io_entry(NvmOpcode::WRITE_UNCORRECTABLE, 1, 1, 0, 1), Status::INVALID_OPCODE),
        (io_entry(NvmOpcode::COPY, 1, 1, 0, 1), Status::INVALID_OPCODE),
        (io_entry(NvmOpcode(0xc0), 1, 1, 0, 1), Status::INVALID_OPCODE),
    ];
    for (entry, status) in cases {
        assert_eq!(refused(queue.begin(&entry)), status.dnr(), "{entry:?}");
    }
    let mut short = io_entry(NvmOpcode::READ, 1, 1, 0, 2);
    short.data = SglDescriptor::transport(512);
    assert_eq!(refused(queue.begin(&short)), Status::DATA_SGL_LENGTH.dnr());
    assert_eq!(fabric.controllers()[0].errors, cases.len() as u64 + 1);
}

#[test]
fn a_fused_pair_is_one_compare_and_write() {
    let fabric = fabric(&config());
    let host = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = host.io(1, place(1, 1)).unwrap();
    let half = |opcode, cid, lba, fuse: Fuse| {
        let mut entry = io_entry(opcode, cid, 1, lba, 8);
        entry.flags |= fuse.0;
        entry
    };
    let first = device(queue.begin(&half(NvmOpcode::COMPARE, 1, 8, Fuse::FIRST)));
    let range = Range::new(8, 8);
    assert_eq!((first.command, first.fused), (Command::CompareAndWrite(range), FusedPart::First));
    let second = device(queue.begin(&half(NvmOpcode::WRITE, 2, 8, Fuse::SECOND)));
    assert_eq!((second.command, second.payload_bytes), (first.command, 4096));
    assert_eq!(second.fused, FusedPart::Second { first: 1 });
    assert_eq!(queue.orphan(), None);
    let [compare, write] = queue.complete_fused(&second, Ended::CompareFailed);
    assert_eq!((compare.cid, compare.status), (1, Status::COMPARE_FAILURE.dnr()));
    assert_eq!((write.cid, write.status), (2, Status::FAILED_FUSED));
    // Another command comes between the two.
    device(queue.begin(&half(NvmOpcode::COMPARE, 3, 8, Fuse::FIRST)));
    device(queue.begin(&io_entry(NvmOpcode::READ, 4, 1, 0, 1)));
    let orphan = queue.orphan().unwrap();
    assert_eq!((orphan.cid, orphan.status.plain()), (3, Status::MISSING_FUSED));
    let late = queue.begin(&half(NvmOpcode::WRITE, 5, 8, Fuse::SECOND));
    assert_eq!(refused(late).plain(), Status::MISSING_FUSED);
    // The second command has another range.
    device(queue.begin(&half(NvmOpcode::COMPARE, 6, 8, Fuse::FIRST)));
    let other = queue.begin(&half(NvmOpcode::WRITE, 7, 16, Fuse::SECOND));
    assert_eq!(refused(other), Status::INVALID_FIELD.dnr());
    assert_eq!(queue.orphan().map(|answer| answer.cid), Some(6));
}

#[test]
fn a_discard_has_many_ranges() {
    let fabric = fabric(&config());
    let host = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = host.io(1, place(1, 1)).unwrap();
    let range = |lba: u64, blocks: u32| DiscardRange {
        attributes: 0.into(),
        blocks: blocks.into(),
        lba: lba.into(),
    };
    let mut entry = Submission::new(NvmOpcode::DATASET_MANAGEMENT.0, 3, 1);
    entry.dword10 = 2.into();
    entry.dword11 = 4.into();
    entry.data = SglDescriptor::in_capsule(0, 48);
    assert_eq!(queue.begin(&entry), SubmissionStep::Controller { payload_bytes: 48 });
    let payload = [range(0, 8), range(100, 0), range(64, 16)];
    let mut out = Vec::new();
    let outcome = queue.execute(&entry, payload.as_bytes(), Instant::ZERO, &mut out);
    let ExecutionOutcome::Discard(io) = outcome else { panic!("{outcome:?}") };
    assert_eq!(queue.ranges(), [Range::new(0, 8), Range::new(64, 16)]);
    assert_eq!(io.cid, 3);
    let payload = [range(0, 8), range(1 << 20, 1), range(64, 16)];
    let outcome = queue.execute(&entry, payload.as_bytes(), Instant::ZERO, &mut out);
    let ExecutionOutcome::Done(answer) = outcome else { panic!("{outcome:?}") };
    assert_eq!(answer.status, Status::LBA_OUT_OF_RANGE.dnr());
    assert!(queue.ranges().is_empty());
}

/// Sends a page of payload that begins with the ranges, as Linux does.
#[test]
fn a_discard_may_describe_more_than_its_ranges() {
    let fabric = fabric(&config());
    let host = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = host.io(1, place(1, 1)).unwrap();
    let mut entry = Submission::new(NvmOpcode::DATASET_MANAGEMENT.0, 3, 1);
    entry.dword11 = 4.into();
    entry.data = SglDescriptor::in_capsule(0, 4096);
    assert_eq!(queue.begin(&entry), SubmissionStep::Controller { payload_bytes: 4096 });
    let range = DiscardRange { attributes: 0.into(), blocks: 8.into(), lba: 16.into() };
    let mut payload = range.as_bytes().to_vec();
    payload.resize(4096, 0xff);
    let outcome = queue.execute(&entry, &payload, Instant::ZERO, &mut Vec::new());
    assert!(matches!(outcome, ExecutionOutcome::Discard(_)), "{outcome:?}");
    assert_eq!(queue.ranges(), [Range::new(16, 8)]);
    entry.data = SglDescriptor::in_capsule(0, 8);
    assert_eq!(refused(queue.begin(&entry)), Status::DATA_SGL_LENGTH.dnr());
    entry.data = SglDescriptor::in_capsule(0, 4112);
    assert_eq!(refused(queue.begin(&entry)), Status::INVALID_FIELD.dnr());
}

#[test]
fn connects_that_cannot_be_say_why() {
    let mut config = config();
    config.subsystems[0].hosts = Hosts::Only(vec![nqn(&host(1).nqn), nqn(&host(2).nqn)]);
    config.subsystems[0].ports = vec![PortId(1)];
    let fabric = fabric(&config);
    let attempt = |host: &Host, subsystem: &str, port| {
        let done = open(&fabric, host, subsystem, port, place(0, 9)).map(drop).unwrap_err();
        (done.status(), done.result.get())
    };
    let wrong_name = (Status::CONNECT_INVALID.dnr(), 1 << 16 | 256);
    assert_eq!(attempt(&host(1), OTHER_SUBSYSTEM, 1), wrong_name);
    assert_eq!(attempt(&host(1), SUBSYSTEM, 2), wrong_name);
    assert_eq!(attempt(&host(3), SUBSYSTEM, 1), (Status::CONNECT_INVALID_HOST.dnr(), 0));
    let nobody = Host { nqn: "nobody".to_owned(), ..host(1) };
    let wrong_host = (Status::CONNECT_INVALID.dnr(), 1 << 16 | 512);
    assert_eq!(attempt(&nobody, SUBSYSTEM, 1), wrong_host);

    let own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 1));
    let queue = own.io(1, place(0, 2)).unwrap();
    assert_eq!(own.io(1, place(0, 3)).unwrap_err().status(), Status::SEQUENCE_ERROR.dnr());
    let join = |data: &wire::nvme::ConnectData, size: u16| {
        let entry = connect_entry(2, size, 0);
        let (port, at) = (PortId(1), place(0, 4));
        let done = fabric
            .connect(Origin::plain(port, at), entry.entry(), data.as_bytes(), Instant::ZERO)
            .unwrap();
        let done = done.map(drop).unwrap_err();
        (done.status(), done.result.get())
    };
    let cntlid = own.admin.cntlid();
    let invalid = Status::CONNECT_INVALID.dnr();
    let good = connect_data(&host(1), SUBSYSTEM, cntlid);
    // A controller of another host is treated as absent.
    assert_eq!(join(&connect_data(&host(2), SUBSYSTEM, cntlid), 32), (invalid, 1 << 16 | 16));
    assert_eq!(join(&connect_data(&host(1), SUBSYSTEM, cntlid + 1), 32), (invalid, 1 << 16 | 16));
    assert_eq!(join(&good, 129), (invalid, 44));
    assert_eq!(join(&good, 1), (invalid, 44));
    let stranger = wire::nvme::ConnectData { host_id: [9; 16], ..good };
    assert_eq!(join(&stranger, 32), (invalid, 1 << 16));
    drop(queue);
    assert!(own.io(1, place(0, 3)).is_ok(), "a queue that is gone makes room");
}

#[test]
fn a_silent_host_loses_its_controller() {
    let fabric = fabric(&config());
    let entry = connect_entry(0, 32, 5000);
    let data = connect_data(&host(1), SUBSYSTEM, 0xffff);
    let (port, now) = (PortId(1), Instant::ZERO);
    let connected = fabric
        .connect(Origin::plain(port, place(1, 1)), entry.entry(), data.as_bytes(), now)
        .unwrap();
    let (mut admin, _) = connected.unwrap();
    assert_eq!(fabric.wake_at(0), Some(at(1250)), "it looks four times in a timeout");
    assert_eq!(fabric.wake_at(1), None);
    let keep_alive = Submission::new(AdminOpcode::KEEP_ALIVE.0, 1, 0);
    assert_eq!(refused(admin.begin(&keep_alive)), Status::SEQUENCE_ERROR.dnr());
    poll(&fabric, 0, at(1250));
    assert_eq!(fabric.wake_at(0), Some(at(2500)));
    for silent_ms in [2500, 3750, 5000] {
        assert!(poll(&fabric, 0, at(silent_ms)).is_empty(), "it said something");
    }
    assert_eq!(fabric.wake_at(0), Some(at(6250)));
    poll(&fabric, 0, at(6250));
    let reason = CloseReason::KeepAliveExpired;
    assert_eq!(poll(&fabric, 1, at(6250)), [Action::Close { conn: place(1, 1).conn, reason }]);
    assert!(fabric.controllers().is_empty());
    assert_eq!(refused(admin.begin(&keep_alive)), Status::QUEUE_DELETED);
}

#[test]
fn a_reset_ends_the_io_queues_and_a_shutdown_completes() {
    let fabric = fabric(&config());
    let mut own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = own.io(1, place(1, 1)).unwrap();
    assert_eq!(own.set(Property::CONFIGURATION, 0x46_4001), Ok(0));
    assert_eq!(own.get(Property::STATE, 4), Ok(1 | 2 << 2));
    assert_eq!(own.set(Property::CONFIGURATION, 0x46_0000), Ok(0));
    assert_eq!(own.get(Property::STATE, 4), Ok(0));
    let reason = CloseReason::ShutDown;
    assert_eq!(poll(&fabric, 1, Instant::ZERO), [Action::Close { conn: place(1, 1).conn, reason }]);
    let read = io_entry(NvmOpcode::READ, 1, 1, 0, 1);
    assert_eq!(refused(queue.begin(&read)), Status::SEQUENCE_ERROR.dnr());
    own.enable();
    drop(queue);
    assert!(own.io(1, place(1, 2)).is_ok());
    assert_eq!(own.set(Property::CONFIGURATION, 0x46_0000), Ok(0));
    assert_eq!(own.set(Property::CONFIGURATION, 0x45_0001), Ok(0), "entries of 32 bytes");
    assert_eq!(own.get(Property::STATE, 4), Ok(2));
}

#[test]
fn changes_of_namespaces_are_told() {
    let fabric = fabric(&config());
    let mut own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = own.io(1, place(1, 1)).unwrap();
    own.set_feature(Feature::EVENTS, notice::NAMESPACE | notice::ANA).unwrap();
    let cid = own.await_event();
    fabric.set_namespace_geometry(&nqn(SUBSYSTEM), 2, geometry(8192)).unwrap();
    let told = events(&poll(&fabric, 0, Instant::ZERO));
    assert_eq!(told, [(place(0, 0).conn, cid, u64::from(Event::NAMESPACE.to_result()))]);
    assert_eq!(Event::NAMESPACE.to_result(), 0x04_00_02);
    device(queue.begin(&io_entry(NvmOpcode::READ, 1, 2, 8191, 1)));
    own.await_event();
    fabric.add_namespace(&nqn(SUBSYSTEM), namespace(7, 8)).unwrap();
    assert!(poll(&fabric, 0, Instant::ZERO).is_empty(), "masked until the log is read");
    assert_eq!(words(&own.log(LogPage::CHANGED_NAMESPACES, 4096).unwrap()), [2, 7]);
    assert_eq!(words(&own.log(LogPage::CHANGED_NAMESPACES, 4096).unwrap()), []);
    fabric.remove_namespace(&nqn(SUBSYSTEM), 7).unwrap();
    assert_eq!(events(&poll(&fabric, 0, Instant::ZERO)).len(), 1);
    assert_eq!(own.namespaces(), [1, 2]);
    let gone = refused(queue.begin(&io_entry(NvmOpcode::READ, 1, 7, 0, 1)));
    assert_eq!(gone, Status::INVALID_NAMESPACE.dnr());
}

#[test]
fn an_identifier_given_again_is_refused_until_the_host_has_identified_it() {
    let fabric = fabric(&config());
    let mut own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = own.io(1, place(1, 1)).unwrap();
    let write = io_entry(NvmOpcode::WRITE_ZEROES, 1, 2, 0, 1);
    device(queue.begin(&write));
    fabric.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap();
    // An empty structure shows nothing.
    own.identify(IdentifyCns::NAMESPACE, 2).unwrap();
    let mut other = namespace(2, 8192);
    other.identifiers.uuid[0] ^= 1;
    fabric.add_namespace(&nqn(SUBSYSTEM), other).unwrap();
    assert_eq!(refused(queue.begin(&write)), Status::INVALID_NAMESPACE.dnr());
    assert_eq!(own.namespaces(), [1, 2], "the list does not say that it is another");
    assert_eq!(refused(queue.begin(&write)), Status::INVALID_NAMESPACE.dnr());
    let new = connect(&fabric, &host(2), SUBSYSTEM, 1, place(0, 2));
    device(new.io(1, place(1, 3)).unwrap().begin(&write));
    own.identify(IdentifyCns::NAMESPACE_DESCRIPTORS, 2).unwrap();
    device(queue.begin(&write));
    // A reset forgets what the host knew, so everything is new to it.
    fabric.remove_namespace(&nqn(SUBSYSTEM), 2).unwrap();
    fabric.add_namespace(&nqn(SUBSYSTEM), namespace(2, 8192)).unwrap();
    assert_eq!(refused(queue.begin(&write)), Status::INVALID_NAMESPACE.dnr());
}

#[test]
fn a_namespace_that_is_closed_to_writes_tells_its_hosts_and_refuses_them() {
    let fabric = fabric(&config());
    let mut own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = own.io(1, place(1, 1)).unwrap();
    own.set_feature(Feature::EVENTS, notice::NAMESPACE).unwrap();
    let attributes = |own: &mut Session| {
        let ns: IdentifyNamespace = read(&own.identify(IdentifyCns::NAMESPACE, 2).unwrap());
        let common: IdentifyNamespaceCommon =
            read(&own.identify(IdentifyCns::NAMESPACE_COMMON, 2).unwrap());
        assert_eq!(ns.attributes, common.attributes);
        ns.attributes
    };
    let write = io_entry(NvmOpcode::WRITE_ZEROES, 1, 2, 0, 1);
    for read_only in [true, false] {
        own.await_event();
        let geometry = Geometry { read_only, ..geometry(4096) };
        fabric.set_namespace_geometry(&nqn(SUBSYSTEM), 2, geometry).unwrap();
        assert_eq!(events(&poll(&fabric, 0, Instant::ZERO)).len(), 1);
        assert_eq!(words(&own.log(LogPage::CHANGED_NAMESPACES, 4096).unwrap()), [2]);
        assert_eq!(attributes(&mut own), u8::from(read_only));
        match read_only {
            true => assert_eq!(refused(queue.begin(&write)), Status::WRITE_PROTECTED.dnr()),
            false => drop(device(queue.begin(&write))),
        }
        device(queue.begin(&io_entry(NvmOpcode::READ, 2, 2, 0, 1)));
        device(queue.begin(&io_entry(NvmOpcode::WRITE_ZEROES, 3, 1, 0, 1)));
    }
}

#[test]
fn access_through_one_port_changes_live() {
    let fabric = fabric(&config());
    let mut one = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let two = connect(&fabric, &host(1), SUBSYSTEM, 2, place(0, 1));
    let (mut by_one, mut by_two) =
        (one.io(1, place(1, 1)).unwrap(), two.io(1, place(1, 2)).unwrap());
    one.set_feature(Feature::EVENTS, notice::ANA).unwrap();
    let cid = one.await_event();
    let read = io_entry(NvmOpcode::READ, 1, 1, 0, 1);
    device(by_one.begin(&read));
    fabric.set_access(&nqn(SUBSYSTEM), PortId(1), 1, AnaState::INACCESSIBLE).unwrap();
    assert_eq!(refused(by_one.begin(&read)), Status::ANA_INACCESSIBLE);
    device(by_two.begin(&read));
    assert_eq!(events(&poll(&fabric, 0, Instant::ZERO)), [(place(0, 0).conn, cid, 0x0c_03_02)]);
    let log = one.log(LogPage::ANA, 56).unwrap();
    assert_eq!((log[0], log[8]), (1, 1), "one change, one group");
    assert_eq!((log[16], log[20], log[32]), (1, 2, 3), "group 1, two namespaces, inaccessible");
    assert_eq!((log[48], log[52]), (1, 2));
    // The log can be read in pieces up to its greatest length.
    let rest = log_entry(one.cid(), LogPage::ANA, 1040, 260_000);
    assert_eq!(one.run(&rest, &[]), Ok((0, vec![0; 1040])));
    fabric.set_access(&nqn(SUBSYSTEM), PortId(1), 1, AnaState::NON_OPTIMIZED).unwrap();
    device(by_one.begin(&read));
}

#[test]
fn discovery_tells_each_host_what_it_may_use() {
    let mut config = config();
    config.subsystems.push(subsystem(OTHER_SUBSYSTEM));
    config.subsystems[1].hosts = Hosts::Only(vec![nqn(&host(2).nqn)]);
    config.subsystems[1].ports = vec![PortId(2)];
    let fabric = fabric(&config);
    let mut discovery = connect(&fabric, &host(1), DISCOVERY, 1, place(0, 0));
    let log = discovery.log(LogPage::DISCOVERY, 16 * 1024).unwrap();
    let head: DiscoveryHeader = read(&log);
    assert_eq!((head.generation.get(), head.entries.get()), (1, 4));
    let entry = |log: &[u8], n: usize| read::<DiscoveryEntry>(&log[1024 * (n + 1)..]);
    assert_eq!(entry(&log, 0).kind, SubsystemKind::DISCOVERY);
    assert_eq!(&entry(&log, 0).address[..10], b"127.0.0.1 ");
    assert_eq!(entry(&log, 1).nqn[..SUBSYSTEM.len()], *SUBSYSTEM.as_bytes());
    // Secure channels are not mentioned, since hosts that have them would ask for one.
    assert_eq!(entry(&log, 1).requirements, 1 << 2);
    discovery.set_feature(Feature::EVENTS, notice::DISCOVERY).unwrap();
    let cid = discovery.await_event();
    fabric.set_hosts(&nqn(OTHER_SUBSYSTEM), Hosts::Any).unwrap();
    let told = events(&poll(&fabric, 0, Instant::ZERO));
    assert_eq!(told, [(place(0, 0).conn, cid, 0x70_f0_02)]);
    let log = discovery.log(LogPage::DISCOVERY, 16 * 1024).unwrap();
    assert_eq!((read::<DiscoveryHeader>(&log)).entries.get(), 5);
    assert_eq!(discovery.log(LogPage::SMART, 512), Err(Status::INVALID_LOG_PAGE.dnr()));
    let refused = discovery.io(1, place(0, 1)).unwrap_err();
    assert_eq!((refused.status(), refused.result.get()), (Status::CONNECT_INVALID.dnr(), 42));
}

#[test]
fn health_counts_what_was_done_and_survives_a_reconnect() {
    let fabric = fabric(&config());
    for _ in 0..2 {
        let own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
        let mut queue = own.io(1, place(1, 1)).unwrap();
        let io = device(queue.begin(&io_entry(NvmOpcode::READ, 1, 1, 0, 2048)));
        queue.complete(&io, Ended::Ok);
        let io = device(queue.begin(&io_entry(NvmOpcode::WRITE, 1, 1, 0, 8)));
        queue.complete(&io, Ended::Ok);
        let io = device(queue.begin(&io_entry(NvmOpcode::READ, 1, 1, 0, 8)));
        queue.complete(&io, Ended::MediaError);
    }
    let mut own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut entry = log_entry(3, LogPage::SMART, 512, 0);
    entry.nsid = u32::MAX.into();
    let later = Instant::ZERO + Duration::from_secs(2 * 3600);
    let (_, log) = own.run_at(&entry, &[], later).unwrap();
    let health: SmartLog = read(&log);
    assert_eq!((health.reads.get(), health.writes.get()), (2, 2));
    assert_eq!((health.units_read.get(), health.units_written.get()), (5, 1));
    assert_eq!((health.media_errors.get(), health.power_on_hours.get()), (2, 2));
    let mut other = connect(&fabric, &host(2), SUBSYSTEM, 1, place(0, 1));
    let (_, log) = other.run_at(&entry, &[], later).unwrap();
    assert_eq!(read::<SmartLog>(&log).reads.get(), 0, "another host's counts are not told");
}

#[test]
fn the_error_log_has_the_first_block_as_the_host_counts() {
    let mut config = config();
    let namespace = &mut config.subsystems[0].namespaces[0];
    (namespace.block_bytes, namespace.geometry.blocks) = (4096, 1 << 40);
    let fabric = fabric(&config);
    let mut own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let mut queue = own.io(1, place(1, 1)).unwrap();
    let lba = (1 << 36) + 5;
    let mut entry = io_entry(NvmOpcode::READ, 1, 1, lba, 1);
    entry.data = SglDescriptor::transport(4096);
    let io = device(queue.begin(&entry));
    queue.complete(&io, Ended::MediaError);
    let error: ErrorEntry = read(&own.log(LogPage::ERROR, 64).unwrap());
    assert_eq!((error.nsid.get(), error.lba.get()), (1, lba));
}

#[test]
fn a_host_that_may_not_any_more_is_disconnected() {
    let fabric = fabric(&config());
    let _own = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    let _other = connect(&fabric, &host(2), SUBSYSTEM, 1, place(1, 0));
    fabric.set_hosts(&nqn(SUBSYSTEM), Hosts::Only(vec![nqn(&host(2).nqn)])).unwrap();
    let reason = CloseReason::HostRemoved;
    let closed = [Action::Close { conn: place(0, 0).conn, reason }];
    assert_eq!(poll(&fabric, 0, Instant::ZERO), closed);
    assert!(poll(&fabric, 1, Instant::ZERO).is_empty());
    fabric.remove_subsystem(&nqn(SUBSYSTEM)).unwrap();
    assert_eq!(poll(&fabric, 1, Instant::ZERO).len(), 1);
}
