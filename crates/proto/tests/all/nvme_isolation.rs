//! Checks that no host learns anything of another host's namespaces, subsystems, connections or
//! changes.
//!
//! A host sends every command with every number, and records the answers. It does so in a fabric of
//! its own, and in one with a stranger. The stranger has namespaces in the same subsystem, a
//! subsystem of its own and busy connections, and all of its things change. The answers must be the
//! same. Deliberately left out: whether a subsystem with a name that the host knows exists, since
//! Connect has a status for that.

use std::sync::Arc;

use crate::nvme_host::*;
use contract::{Command, Instant, NamespaceId, Status as Ended};
use nearflash_proto::nvme::{
    ExecutionOutcome, Fabric, Hosts, Origin, PortId, Queue, QueueAddress, SubmissionStep,
};
use wire::nvme::{
    AdminOpcode, AnaState, DiscoveryHeader, FABRICS_OPCODE, Feature, LogPage, NvmOpcode, Property,
    PropertyCommand, ReservationKind, SglDescriptor, Status, Submission, notice,
};
use zerocopy::IntoBytes;

/// The host's own namespace, and the stranger's in the same subsystem.
const OWN: u32 = 1;
const HIDDEN: u32 = 2;
/// A namespace that exists only while the stranger's things change.
const PASSING: u32 = 3;
/// Namespace identifiers of every meaning: none, all, the existing ones, the largest valid one, and
/// one above it.
const NSIDS: [u32; 7] = [0, OWN, HIDDEN, PASSING, 65_000, 65_001, u32::MAX];
/// The server's identifiers of namespaces that are not the host's.
const NOT_OWN: std::ops::Range<u16> = 100..200;

/// Creates a fabric with the things of the host alone, or also with those of the stranger.
fn world(is_alone: bool) -> Arc<Fabric> {
    let only = |number| Hosts::Only(vec![nqn(&host(number).nqn)]);
    let mut config = config();
    let shared = &mut config.subsystems[0];
    shared.namespaces = vec![namespace(OWN, 4096)];
    shared.namespaces[0].hosts = only(1);
    if !is_alone {
        let mut hidden = namespace(HIDDEN, 8192);
        (hidden.hosts, hidden.id, hidden.ana_group) = (only(2), NamespaceId(100), 2);
        hidden.geometry.volatile_cache = true;
        shared.namespaces.push(hidden);
        let mut others = subsystem(OTHER_SUBSYSTEM);
        others.hosts = only(2);
        others.namespaces[0].id = NamespaceId(101);
        others.namespaces[1].id = NamespaceId(102);
        config.subsystems.push(others);
    }
    fabric(&config)
}

/// The host whose answers are compared: an I/O controller with a queue, and a discovery controller.
struct Host1 {
    session: Session,
    queue: Queue,
    discovery: Session,
}

impl Host1 {
    fn new(fabric: &Arc<Fabric>) -> Host1 {
        let mut session = connect(fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
        let queue = session.io(1, place(1, 1)).unwrap();
        let mut discovery = connect(fabric, &host(1), DISCOVERY, 1, place(0, 2));
        session.set_feature(Feature::EVENTS, notice::NAMESPACE | notice::ANA).unwrap();
        discovery.set_feature(Feature::EVENTS, notice::DISCOVERY).unwrap();
        session.await_event();
        discovery.await_event();
        Host1 { session, queue, discovery }
    }

    /// Sends every command that the host can send, and returns the answers.
    fn ask_everything(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for (who, session) in [("io", &mut self.session), ("discovery", &mut self.discovery)] {
            for nsid in NSIDS {
                ask_admin(who, &mut session.admin, nsid, &mut told);
            }
            for cntlid in (0..64).chain([0xfff0, 0xfffe]) {
                told.push(join(session, cntlid));
            }
        }
        for nsid in NSIDS {
            ask_io(&mut self.queue, nsid, &mut told);
        }
        told
    }

    fn is_told_nothing(&self, after: &str) {
        for worker in 0..2 {
            let own = [self.session.place, self.discovery.place, place(1, 1)].map(|at| at.conn);
            let actions = poll(&self.session.fabric, worker, Instant::ZERO);
            let told: Vec<_> = events(&actions);
            assert!(told.iter().all(|(conn, ..)| !own.contains(conn)), "{after}: {told:?}");
        }
    }
}

/// Sends every admin command with every selector that it has, and appends the answers to `told`.
fn ask_admin(who: &str, queue: &mut Queue, nsid: u32, told: &mut Vec<String>) {
    for opcode in (0..=0xff).filter(|opcode| *opcode != AdminOpcode::ASYNC_EVENT_REQUEST.0) {
        // Commands that end or reset the connection are left out; Connect has a test of its own.
        if opcode == FABRICS_OPCODE {
            continue;
        }
        let (selectors, bytes): (Vec<u32>, u32) = match AdminOpcode(opcode) {
            AdminOpcode::IDENTIFY => ((0..=0xff).collect(), 4096),
            AdminOpcode::GET_FEATURES => ((0..=0x7ff).collect(), 0),
            AdminOpcode::SET_FEATURES => ((0..=0xff).filter(|n| is_harmless(*n)).collect(), 0),
            AdminOpcode::GET_LOG_PAGE => {
                ((0..=0xff).map(|page| page | 1 << 15 | 1023 << 16).collect(), 4096)
            }
            _ => (vec![0, 1 << 16, 1], 0),
        };
        for selector in selectors {
            let mut entry = Submission::new(opcode, 77, nsid);
            entry.dword10 = selector.into();
            let bytes = match (AdminOpcode(opcode), Feature(selector as u8)) {
                (AdminOpcode::GET_FEATURES, Feature::TIMESTAMP) => 8,
                (AdminOpcode::GET_FEATURES, Feature::HOST_BEHAVIOUR) => 512,
                (AdminOpcode::GET_FEATURES, Feature::HOST_IDENTIFIER) => {
                    entry.dword11 = 1.into();
                    16
                }
                _ => bytes,
            };
            entry.data = SglDescriptor::transport(bytes);
            let answer = say(queue, &entry, &[]);
            told.push(format!("{who} {opcode:#x} {selector:#x} {nsid:#x}: {answer}"));
        }
    }
}

/// Returns `true` if setting a feature to zero changes neither events nor the keep-alive timer.
fn is_harmless(feature: u32) -> bool {
    !matches!(Feature(feature as u8), Feature::EVENTS | Feature::KEEP_ALIVE)
}

/// Sends every command of an I/O queue with payloads of the host, and appends the answers to
/// `told`.
fn ask_io(queue: &mut Queue, nsid: u32, told: &mut Vec<String>) {
    for opcode in (0..=0xff).filter(|opcode| *opcode != FABRICS_OPCODE) {
        for (lba, kind) in [(0, 0), (4095, 1), (8191, 2)] {
            let mut entry = Submission::new(opcode, 78, nsid);
            let is_block = matches!(
                NvmOpcode(opcode),
                NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE
            );
            let payload = match NvmOpcode(opcode) {
                NvmOpcode::RESERVATION_REGISTER | NvmOpcode::RESERVATION_ACQUIRE => vec![7; 16],
                NvmOpcode::RESERVATION_RELEASE => vec![7; 8],
                NvmOpcode::DATASET_MANAGEMENT => vec![0; 16],
                _ => Vec::new(),
            };
            entry.dword10 = match NvmOpcode(opcode) {
                NvmOpcode::RESERVATION_REGISTER => kind.into(),
                NvmOpcode::RESERVATION_ACQUIRE | NvmOpcode::RESERVATION_RELEASE => {
                    (kind | 1 << 8).into()
                }
                NvmOpcode::RESERVATION_REPORT => 1023.into(),
                NvmOpcode::DATASET_MANAGEMENT => 0.into(),
                _ => lba.into(),
            };
            entry.dword11 = u32::from(NvmOpcode(opcode) == NvmOpcode::RESERVATION_REPORT).into();
            entry.data = match opcode {
                _ if is_block => SglDescriptor::transport(512),
                _ if payload.is_empty() => SglDescriptor::transport(4096),
                _ => SglDescriptor::in_capsule(0, payload.len() as u32),
            };
            let answer = say(queue, &entry, &payload);
            told.push(format!("io queue {opcode:#x} {lba} {nsid:#x}: {answer}"));
        }
    }
}

/// Returns the answer to a command. A command for a device must be for the host's own namespace.
fn say(queue: &mut Queue, entry: &Submission, payload: &[u8]) -> String {
    let mut out = Vec::new();
    let answer = match queue.begin(entry) {
        SubmissionStep::Refused(answer) => format!("{:?} {}", answer.status, answer.result),
        SubmissionStep::Busy => unreachable!("no other thread is there"),
        SubmissionStep::Device(io) => {
            assert!(!NOT_OWN.contains(&io.namespace.0), "{io:?}");
            let answer = queue.complete(&io, Ended::Ok);
            format!("{io:?} {:?}", answer.status)
        }
        SubmissionStep::Controller { payload_bytes } => {
            let mut payload = payload.to_vec();
            payload.resize(payload_bytes, 0);
            match queue.execute(entry, &payload, Instant::ZERO, &mut out) {
                ExecutionOutcome::Done(answer) => {
                    queue.seal(answer);
                    let end = out.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                    format!("{:?} {} {:x?}", answer.status, answer.result, &out[..end])
                }
                other => format!("{other:?}"),
            }
        }
    };
    if let Some(orphan) = queue.orphan() {
        return format!("{answer} and {orphan:?}");
    }
    answer
}

/// Returns the answers to a Connect of queue 200, which no controller grants.
fn join(session: &Session, cntlid: u16) -> String {
    let mut all = String::new();
    for (subsystem, port) in [(SUBSYSTEM, 1), (SUBSYSTEM, 2), (DISCOVERY, 1)] {
        let entry = connect_entry(200, 32, 0);
        let data = connect_data(&session.host, subsystem, cntlid);
        let at = place(0, 50);
        let joined = session
            .fabric
            .connect(Origin::plain(PortId(port), at), entry.entry(), data.as_bytes(), Instant::ZERO)
            .unwrap();
        let done = joined.map(drop).unwrap_err();
        all += &format!("{cntlid} {subsystem} {port}: {:?} {}; ", done.status(), done.result.get());
    }
    all
}

/// The stranger, who has controllers everywhere, does I/O and holds reservations.
struct Stranger {
    sessions: Vec<Session>,
    queues: Vec<Queue>,
}

impl Stranger {
    fn new(fabric: &Arc<Fabric>) -> Stranger {
        let subsystems = [(SUBSYSTEM, 1), (SUBSYSTEM, 2), (OTHER_SUBSYSTEM, 1), (DISCOVERY, 1)];
        let at = |worker, index| -> QueueAddress { place(worker, 20 + index) };
        let connect_at = |(n, (subsystem, port)): (usize, (&str, u16))| {
            connect(fabric, &host(2), subsystem, port, at(0, n as u32))
        };
        let sessions: Vec<Session> = subsystems.into_iter().enumerate().map(connect_at).collect();
        let queues = (0..3).map(|n| sessions[n as usize].io(1, at(1, n)).unwrap()).collect();
        Stranger { sessions, queues }
    }

    /// Does I/O and causes errors of its own.
    fn work(&mut self) {
        let mut told = Vec::new();
        for queue in &mut self.queues {
            NSIDS.iter().for_each(|nsid| ask_io_of_stranger(queue, *nsid, &mut told));
        }
        assert!(told.contains(&true), "it has something of its own");
    }

    /// Registers and reserves the stranger's own namespaces.
    fn reserve(&mut self) {
        let queue = &mut self.queues[0];
        let mut register = Submission::new(NvmOpcode::RESERVATION_REGISTER.0, 1, HIDDEN);
        register.data = SglDescriptor::in_capsule(0, 16);
        let mut keys = [0; 16];
        keys[8] = 5;
        run(queue, &register, &keys, Instant::ZERO).expect("it registers");
        let mut acquire = Submission::new(NvmOpcode::RESERVATION_ACQUIRE.0, 1, HIDDEN);
        acquire.dword10 = (u32::from(ReservationKind(1).0) << 8).into();
        acquire.data = SglDescriptor::in_capsule(0, 16);
        keys = [0; 16];
        keys[0] = 5;
        run(queue, &acquire, &keys, Instant::ZERO).expect("it reserves");
    }
}

/// Reads a block, and appends `true` to `told` if the stranger may read it.
fn ask_io_of_stranger(queue: &mut Queue, nsid: u32, told: &mut Vec<bool>) {
    let mut entry = Submission::new(NvmOpcode::READ.0, 5, nsid);
    entry.data = SglDescriptor::transport(512);
    match queue.begin(&entry) {
        SubmissionStep::Device(io) => {
            assert!(NOT_OWN.contains(&io.namespace.0), "{io:?}");
            assert!(matches!(io.command, Command::Read(_)));
            queue.complete(&io, Ended::MediaError);
            told.push(true);
        }
        SubmissionStep::Refused(answer) => told.push(answer.status.is_ok()),
        other => panic!("{other:?}"),
    }
}

/// A change of the stranger's namespaces, subsystem or entry, with a text that describes it.
type Change = (&'static str, fn(&Fabric));

const CHANGES: [Change; 11] = [
    ("a hidden namespace grows", |fabric| {
        fabric.set_namespace_geometry(&nqn(SUBSYSTEM), HIDDEN, geometry(16384)).unwrap();
    }),
    ("a hidden namespace comes", |fabric| {
        let mut passing = namespace(PASSING, 64);
        passing.hosts = Hosts::Only(vec![nqn(&host(2).nqn)]);
        (passing.id, passing.ana_group) = (NamespaceId(103), 3);
        fabric.add_namespace(&nqn(SUBSYSTEM), passing).unwrap();
    }),
    ("a hidden namespace is shown to a third", |fabric| {
        let hosts = Hosts::Only(vec![nqn(&host(2).nqn), nqn(&host(3).nqn)]);
        fabric.set_namespace_hosts(&nqn(SUBSYSTEM), PASSING, hosts).unwrap();
    }),
    ("access to a hidden namespace changes", |fabric| {
        for port in [1, 2, 1] {
            let access = AnaState::NON_OPTIMIZED;
            fabric.set_access(&nqn(SUBSYSTEM), PortId(port), 3, access).unwrap();
        }
    }),
    ("a hidden namespace goes", |fabric| {
        fabric.remove_namespace(&nqn(SUBSYSTEM), PASSING).unwrap();
    }),
    ("a hidden namespace is another tenant's", |fabric| {
        let tenant = Some(contract::TenantId(3));
        fabric.set_namespace_tenant(&nqn(SUBSYSTEM), HIDDEN, tenant).unwrap();
    }),
    ("a hidden subsystem changes", |fabric| {
        fabric.set_namespace_geometry(&nqn(OTHER_SUBSYSTEM), 1, geometry(16)).unwrap();
        fabric.set_access(&nqn(OTHER_SUBSYSTEM), PortId(1), 1, AnaState::INACCESSIBLE).unwrap();
    }),
    ("a hidden subsystem lets a third in", |fabric| {
        let hosts = Hosts::Only(vec![nqn(&host(2).nqn), nqn(&host(3).nqn)]);
        fabric.set_hosts(&nqn(OTHER_SUBSYSTEM), hosts).unwrap();
    }),
    ("a hidden subsystem goes", |fabric| {
        fabric.remove_subsystem(&nqn(OTHER_SUBSYSTEM)).unwrap();
    }),
    ("a hidden subsystem comes", |fabric| {
        let mut again = subsystem(OTHER_SUBSYSTEM);
        again.hosts = Hosts::Only(vec![nqn(&host(2).nqn)]);
        fabric.add_subsystem(again).unwrap();
    }),
    ("the stranger is forgotten", |fabric| fabric.forget_host(&nqn(&host(2).nqn))),
];

fn assert_same(alone: &[String], beside: &[String], when: &str) {
    assert_eq!(alone.len(), beside.len(), "{when}");
    for (one, other) in alone.iter().zip(beside) {
        assert_eq!(one, other, "{when}");
    }
}

#[test]
fn a_host_is_told_the_same_whether_or_not_there_are_others() {
    let (alone, beside) = (world(true), world(false));
    let mut first = Host1::new(&alone);
    let mut second = Host1::new(&beside);
    let mut stranger = Stranger::new(&beside);
    assert_same(&first.ask_everything(), &second.ask_everything(), "at first");
    stranger.work();
    stranger.reserve();
    second.is_told_nothing("its work");
    assert_same(&first.ask_everything(), &second.ask_everything(), "behind its work");
    for (what, change) in CHANGES {
        change(&beside);
        second.is_told_nothing(what);
        assert_same(&first.ask_everything(), &second.ask_everything(), what);
    }
    drop(stranger.queues);
    drop(stranger.sessions);
    second.is_told_nothing("it goes");
    assert_same(&first.ask_everything(), &second.ask_everything(), "when it is gone");
    // The host does hear of changes of its own things, so the silence above means something.
    for fabric in [&alone, &beside] {
        fabric.set_namespace_geometry(&nqn(SUBSYSTEM), OWN, geometry(8192)).unwrap();
        assert_eq!(events(&poll(fabric, 0, Instant::ZERO)).len(), 1);
        fabric.set_hosts(&nqn(SUBSYSTEM), Hosts::Only(vec![nqn(&host(1).nqn)])).unwrap();
        assert!(poll(fabric, 0, Instant::ZERO).is_empty(), "it was on the list before");
    }
    assert_same(&first.ask_everything(), &second.ask_everything(), "with news of its own");
}

#[test]
fn who_cannot_see_a_namespace_any_more_hears_nothing_of_its_reservation() {
    let mut config = config();
    config.subsystems[0].hosts = Hosts::Any;
    let fabric = fabric(&config);
    let mut parties: Vec<(Session, Queue)> = (1..=2)
        .map(|number| {
            let index = u32::from(number);
            let session = connect(&fabric, &host(number), SUBSYSTEM, 1, place(0, index));
            let queue = session.io(1, place(1, index)).unwrap();
            (session, queue)
        })
        .collect();
    let mut command = |party: usize, opcode: NvmOpcode, dword10: u32, current: u8, other: u8| {
        let mut entry = Submission::new(opcode.0, 1, HIDDEN);
        entry.dword10 = dword10.into();
        entry.data = SglDescriptor::in_capsule(0, 16);
        let mut keys = [0; 16];
        (keys[0], keys[8]) = (current, other);
        run(&mut parties[party].1, &entry, &keys, Instant::ZERO).map(drop)
    };
    command(0, NvmOpcode::RESERVATION_REGISTER, 0, 0, 1).unwrap();
    command(1, NvmOpcode::RESERVATION_REGISTER, 0, 0, 2).unwrap();
    let only = Hosts::Only(vec![nqn(&host(2).nqn)]);
    fabric.set_namespace_hosts(&nqn(SUBSYSTEM), HIDDEN, only).unwrap();
    command(1, NvmOpcode::RESERVATION_ACQUIRE, 1 | 1 << 8, 2, 1).unwrap();
    let hidden = command(0, NvmOpcode::RESERVATION_REGISTER, 0, 0, 1);
    assert_eq!(hidden, Err(Status::INVALID_NAMESPACE.dnr()));
    let (session, _) = &mut parties[0];
    let cid = session.await_event();
    assert!(poll(&fabric, 0, Instant::ZERO).is_empty(), "{cid} waits");
    assert_eq!(session.log(LogPage::RESERVATION, 64), Ok(vec![0; 64]));
}

#[test]
fn what_discovery_tells_is_numbered_by_its_changes() {
    let fabric = world(false);
    let generation = |who: &Host, millis: u64| {
        let (entry, data) = (connect_entry(0, 32, 0), connect_data(who, DISCOVERY, 0xffff));
        let (here, now) = (place(0, 70), at(millis));
        let connected = fabric
            .connect(Origin::plain(PortId(1), here), entry.entry(), data.as_bytes(), now)
            .unwrap();
        let (mut admin, _) = connected.expect("it connects");
        let enable = PropertyCommand::set(Property::CONFIGURATION, 0x46_0001);
        run(&mut admin, enable.entry(), &[], now).expect("it is enabled");
        let log = log_entry(2, LogPage::DISCOVERY, 1024, 0);
        let (_, log) = run(&mut admin, &log, &[], now).expect("it is read");
        read::<DiscoveryHeader>(&log).generation.get()
    };
    let (one, other) = (host(1), host(2));
    assert_eq!([generation(&one, 1), generation(&one, 2), generation(&other, 3)], [1, 1, 1]);
    let mut hidden = subsystem("nqn.2026-01.io.nearflash:late");
    hidden.hosts = Hosts::Only(vec![nqn(&one.nqn)]);
    fabric.add_subsystem(hidden).unwrap();
    assert_eq!([generation(&one, 4), generation(&one, 5)], [2, 2]);
    assert_eq!(generation(&other, 6), 1, "it learns nothing of a change for another");
}
