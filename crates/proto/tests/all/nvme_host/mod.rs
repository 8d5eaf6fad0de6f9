//! A host without a transport, for tests of the controller. It sends what a Linux host sends.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::{ConnId, Geometry, Instant, NamespaceId};
use nearflash_proto::nvme::{
    Action, CommandResult, Config, Environment, ExecutionOutcome, Fabric, HostId, Hosts,
    Identifiers, Namespace, Nqn, Origin, Port, PortId, Queue, QueueAddress, SubmissionStep,
    Subsystem,
};
use wire::nvme::{
    AdminOpcode, AuthCommand, Completion, ConnectCommand, ConnectData, FabricsKind, Feature,
    IdentifyCns, LogPage, Property, PropertyCommand, SglDescriptor, Status, Submission,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

pub const SUBSYSTEM: &str = "nqn.2026-01.io.nearflash:disks";
pub const OTHER_SUBSYSTEM: &str = "nqn.2026-01.io.nearflash:others";
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// An environment that counts wakes and jobs. Its unpredictable bytes are derived from a counter.
#[derive(Debug, Default)]
pub struct CountingEnvironment {
    pub wakes: Arc<AtomicU64>,
    pub jobs: Arc<AtomicU64>,
}

impl Environment for CountingEnvironment {
    fn wake(&self, _worker: u16) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn compute(&self) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
    }

    fn random(&self, bytes: &mut [u8]) {
        let word = self.wakes.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bytes.iter_mut().zip(word.to_le_bytes().iter().cycle()).for_each(|(to, from)| *to = *from);
    }
}

pub fn nqn(text: &str) -> Nqn {
    Nqn::new(text).unwrap()
}

pub fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

pub fn geometry(blocks: u64) -> Geometry {
    Geometry { volatile_cache: true, ..Geometry::new(blocks, 4096) }
}

pub fn namespace(nsid: u32, blocks: u64) -> Namespace {
    let mut uuid = [0x80; 16];
    uuid[..4].copy_from_slice(&nsid.to_le_bytes());
    Namespace {
        nsid,
        id: NamespaceId(nsid as u16),
        geometry: geometry(blocks),
        block_bytes: 512,
        identifiers: Identifiers { uuid, ..Identifiers::default() },
        ana_group: 1,
        hosts: Hosts::Any,
        tenant: None,
    }
}

pub fn subsystem(name: &str) -> Subsystem {
    let namespaces = vec![namespace(1, 1 << 20), namespace(2, 4096)];
    Subsystem::open_to_all(nqn(name), "serial", namespaces)
}

pub fn port(number: u16) -> Port {
    Port::plain(PortId(number), format!("127.0.0.{number}"))
}

pub fn config() -> Config {
    Config {
        workers: 2,
        ports: vec![port(1), port(2)],
        subsystems: vec![subsystem(SUBSYSTEM)],
        ..Config::default()
    }
}

pub fn fabric(config: &Config) -> Arc<Fabric> {
    Fabric::new(config, Instant::ZERO, Box::<CountingEnvironment>::default()).unwrap()
}

/// The name and the identifier of a host that connects.
#[derive(Clone, Debug)]
pub struct Host {
    pub nqn: String,
    pub id: HostId,
}

pub fn host(number: u8) -> Host {
    Host { nqn: format!("nqn.2026-01.io.nearflash:host{number}"), id: HostId([number; 16]) }
}

fn field(text: &str) -> [u8; 256] {
    let mut field = [0; 256];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}

/// Returns the Connect command of a queue with `size` entries.
pub fn connect_entry(queue: u16, size: u16, keep_alive_ms: u32) -> ConnectCommand {
    ConnectCommand { keep_alive_ms: keep_alive_ms.into(), ..ConnectCommand::new(queue, size) }
}

pub fn connect_data(host: &Host, subsystem: &str, cntlid: u16) -> ConnectData {
    ConnectData {
        host_id: host.id.0,
        cntlid: cntlid.into(),
        subsystem_nqn: field(subsystem),
        host_nqn: field(&host.nqn),
        ..ConnectData::new_zeroed()
    }
}

/// A controller from its host's side, with the admin queue.
#[derive(Debug)]
pub struct Session {
    pub fabric: Arc<Fabric>,
    pub host: Host,
    pub subsystem: String,
    pub port: PortId,
    pub admin: Queue,
    pub place: QueueAddress,
    next_cid: u16,
}

pub fn place(worker: u16, index: u32) -> QueueAddress {
    QueueAddress { worker, conn: ConnId { index, generation: 0 }, address: None }
}

/// Connects an admin queue and enables the controller, as Linux does.
pub fn connect(
    fabric: &Arc<Fabric>,
    host: &Host,
    subsystem: &str,
    port: u16,
    at: QueueAddress,
) -> Session {
    let mut session = open(fabric, host, subsystem, port, at).expect("connects");
    session.enable();
    session
}

/// Attaches a queue that has left its worker to a connection; `None` if no queue moves under this
/// number.
pub fn attach(fabric: &Arc<Fabric>, number: u64, worker: u16, conn: ConnId) -> Option<Queue> {
    let mut queue = fabric.claim(number, worker).unwrap()?;
    queue.settle(conn).unwrap();
    Some(queue)
}

/// Connects an admin queue, whose controller is not enabled yet. Returns the completion if it is
/// refused.
pub fn open(
    fabric: &Arc<Fabric>,
    host: &Host,
    subsystem: &str,
    port: u16,
    place: QueueAddress,
) -> Result<Session, Completion> {
    open_from(fabric, host, subsystem, Origin::plain(PortId(port), place))
}

/// Connects an admin queue from an origin.
pub fn open_from(
    fabric: &Arc<Fabric>,
    host: &Host,
    subsystem: &str,
    origin: Origin,
) -> Result<Session, Completion> {
    let entry = connect_entry(0, 32, 0);
    let data = connect_data(host, subsystem, 0xffff);
    let Origin { port, place, .. } = origin;
    let now = Instant::ZERO;
    let (admin, done) = fabric.connect(origin, entry.entry(), data.as_bytes(), now).unwrap()?;
    assert!(done.status().is_ok());
    assert_eq!(done.result.get() as u16, admin.cntlid());
    let subsystem = subsystem.to_owned();
    let (fabric, host) = (Arc::clone(fabric), host.clone());
    Ok(Session { fabric, host, subsystem, port, admin, place, next_cid: 1 })
}

impl Session {
    /// Wraps an existing controller by its admin queue.
    pub fn again(
        fabric: &Arc<Fabric>,
        host: &Host,
        subsystem: &str,
        admin: Queue,
        place: QueueAddress,
    ) -> Session {
        let (fabric, host) = (Arc::clone(fabric), host.clone());
        let (subsystem, port) = (subsystem.to_owned(), PortId(1));
        Session { fabric, host, subsystem, port, admin, place, next_cid: 100 }
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// Carries out a command of the admin queue that ends at once. Returns its result and its data.
    pub fn run(&mut self, entry: &Submission, payload: &[u8]) -> Result<(u64, Vec<u8>), Status> {
        self.run_at(entry, payload, Instant::ZERO)
    }

    pub fn run_at(
        &mut self,
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<(u64, Vec<u8>), Status> {
        run(&mut self.admin, entry, payload, now)
    }

    /// Connects an I/O queue of the controller. Returns the completion if it is refused.
    pub fn io(&self, queue: u16, place: QueueAddress) -> Result<Queue, Completion> {
        self.io_from(queue, Origin::plain(self.port, place))
    }

    /// Connects an I/O queue of the controller from an origin.
    pub fn io_from(&self, queue: u16, origin: Origin) -> Result<Queue, Completion> {
        let entry = connect_entry(queue, 32, 0);
        let data = connect_data(&self.host, &self.subsystem, self.admin.cntlid());
        let connected =
            self.fabric.connect(origin, entry.entry(), data.as_bytes(), Instant::ZERO).unwrap();
        connected.map(|(queue, done)| {
            assert!(done.status().is_ok());
            queue
        })
    }

    pub fn get(&mut self, property: Property, bytes: u8) -> Result<u64, Status> {
        self.property(PropertyCommand::get(property, bytes))
    }

    pub fn set(&mut self, property: Property, value: u64) -> Result<u64, Status> {
        self.property(PropertyCommand::set(property, value))
    }

    fn property(&mut self, mut command: PropertyCommand) -> Result<u64, Status> {
        command.cid = self.cid().into();
        self.run(command.entry(), &[]).map(|(value, _)| value)
    }

    pub fn enable(&mut self) {
        assert_eq!(self.set(Property::CONFIGURATION, 0x46_0001), Ok(0));
        assert_eq!(self.get(Property::STATE, 4), Ok(1));
    }

    pub fn identify(&mut self, cns: IdentifyCns, nsid: u32) -> Result<Vec<u8>, Status> {
        let mut entry = Submission::new(AdminOpcode::IDENTIFY.0, self.cid(), nsid);
        entry.dword10 = u32::from(cns.0).into();
        entry.data = SglDescriptor::transport(4096);
        self.run(&entry, &[]).map(|(_, data)| data)
    }

    pub fn log(&mut self, page: LogPage, bytes: u32) -> Result<Vec<u8>, Status> {
        let entry = log_entry(self.cid(), page, bytes, 0);
        self.run(&entry, &[]).map(|(_, data)| data)
    }

    pub fn get_feature(&mut self, feature: Feature) -> Result<u64, Status> {
        let mut entry = Submission::new(AdminOpcode::GET_FEATURES.0, self.cid(), 0);
        entry.dword10 = u32::from(feature.0).into();
        self.run(&entry, &[]).map(|(value, _)| value)
    }

    pub fn set_feature(&mut self, feature: Feature, value: u32) -> Result<u64, Status> {
        let mut entry = Submission::new(AdminOpcode::SET_FEATURES.0, self.cid(), 0);
        entry.dword10 = u32::from(feature.0).into();
        entry.dword11 = value.into();
        self.run(&entry, &[]).map(|(value, _)| value)
    }

    /// Sends an event request, and returns its identifier.
    pub fn await_event(&mut self) -> u16 {
        let cid = self.cid();
        let entry = Submission::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, cid, 0);
        assert_eq!(self.admin.begin(&entry), SubmissionStep::Controller { payload_bytes: 0 });
        let mut out = Vec::new();
        let outcome = self.admin.execute(&entry, &[], Instant::ZERO, &mut out);
        assert_eq!(outcome, ExecutionOutcome::Parked);
        cid
    }

    /// Returns the identifiers of the active namespaces.
    pub fn namespaces(&mut self) -> Vec<u32> {
        let list = self.identify(IdentifyCns::ACTIVE_NAMESPACES, 0).unwrap();
        words(&list)
    }
}

/// Returns the numbers of a zero-terminated list.
pub fn words(list: &[u8]) -> Vec<u32> {
    let words = list.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    words.take_while(|word| *word != 0).collect()
}

pub fn log_entry(cid: u16, page: LogPage, bytes: u32, offset: u64) -> Submission {
    let mut entry = Submission::new(AdminOpcode::GET_LOG_PAGE.0, cid, 0);
    let dwords = bytes / 4 - 1;
    entry.dword10 = (u32::from(page.0) | (dwords & 0xffff) << 16).into();
    entry.dword11 = (dwords >> 16).into();
    entry.dword12 = (offset as u32).into();
    entry.dword13 = ((offset >> 32) as u32).into();
    entry.data = SglDescriptor::transport(bytes);
    entry
}

/// Carries out a command of the controller that ends at once. Returns its result and its data.
pub fn run(
    queue: &mut Queue,
    entry: &Submission,
    payload: &[u8],
    now: Instant,
) -> Result<(u64, Vec<u8>), Status> {
    let answer = match queue.begin(entry) {
        SubmissionStep::Refused(answer) => return Err(answer.status),
        SubmissionStep::Device(io) => panic!("{io:?} is for a device"),
        SubmissionStep::Busy => panic!("no other thread is there"),
        SubmissionStep::Controller { payload_bytes } => {
            assert_eq!(payload_bytes, payload.len());
            let mut out = vec![0xaa; 7];
            match queue.execute(entry, payload, now, &mut out) {
                ExecutionOutcome::Done(answer) if answer.status.is_ok() => {
                    queue.seal(answer);
                    return Ok((answer.result, out));
                }
                ExecutionOutcome::Done(answer) => {
                    assert!(out.is_empty(), "data with an error");
                    answer
                }
                other => panic!("{other:?}"),
            }
        }
    };
    Err(answer.status)
}

/// Returns the fabric's actions for a worker.
pub fn poll(fabric: &Arc<Fabric>, worker: u16, now: Instant) -> Vec<Action> {
    let mut actions = Vec::new();
    fabric.poll(worker, now, &mut actions);
    actions
}

/// Returns the events among the actions: connection, command, result.
pub fn events(actions: &[Action]) -> Vec<(ConnId, u16, u64)> {
    let events = actions.iter().filter_map(|action| match action {
        Action::Complete { conn, answer: CommandResult { cid, status, result }, .. } => {
            assert!(status.is_ok());
            Some((*conn, *cid, *result))
        }
        Action::Close { .. } => None,
    });
    events.collect()
}

/// Returns an Authentication Send or Receive.
pub fn auth_entry(kind: FabricsKind, cid: u16, length: u32) -> AuthCommand {
    let command = AuthCommand::new(kind, length, SglDescriptor::transport(length));
    AuthCommand { cid: cid.into(), ..command }
}

/// Returns the structure at the beginning of `data`.
pub fn read<T: FromBytes + KnownLayout + Immutable>(data: &[u8]) -> T {
    T::read_from_prefix(data).expect("data is long enough").0
}
