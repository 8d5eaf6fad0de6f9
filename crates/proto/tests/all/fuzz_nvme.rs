//! Fuzzes the NVMe controller with arbitrary commands while its fabric changes. The controller
//! never panics and answers with statuses of the specification. No host ever gets a namespace, a
//! log page, an event or a name that is not for it. A model tracks what each host may see.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::nvme_host::*;
use crate::support::{Chance, rounds};
use contract::{Command, Instant, Status as Ended};
use nearflash_proto::nvme::{
    Action, Config, ExecutionOutcome, Fabric, FusedPart, Hosts, PortId, Queue, SubmissionStep,
    Subsystem,
};
use wire::nvme::{
    AdminOpcode, AnaState, Event, FABRICS_OPCODE, Feature, IdentifyCns, LogPage, NvmOpcode,
    SglDescriptor, Status, Submission,
};
use zerocopy::{FromBytes, IntoBytes};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 1000;

/// The number of steps in a round.
const STEPS: usize = 200;

#[test]
fn hosts_say_anything() {
    let mut reached = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| World::new(Chance(seed)).run(&mut reached));
    let marks = ["device", "controller", "refused", "event", "reservation", "changed", "closed"];
    let missed: Vec<_> = marks.iter().filter(|mark| !reached.contains(*mark)).collect();
    assert!(rounds::is_replay() || missed.is_empty(), "never happened: {missed:?}");
}

/// A namespace as the test's model of the fabric knows it.
#[derive(Clone)]
struct ModelNamespace {
    blocks: u64,
    hosts: Vec<u8>,
    marker: [u8; 16],
}

/// A host's controller, with its I/O queue.
struct Party {
    host: u8,
    subsystem: usize,
    session: Session,
    queue: Option<Queue>,
    /// Namespaces that changed, as the log has to report them.
    changed: BTreeSet<u32>,
    /// Events that the host may be told, as results of its event requests.
    may_hear: BTreeSet<u32>,
}

/// The fabric, its model, and the hosts that are connected.
struct World {
    chance: Chance,
    fabric: Arc<Fabric>,
    /// The hosts and namespaces of each subsystem.
    model: Vec<(Vec<u8>, BTreeMap<u32, ModelNamespace>)>,
    access: BTreeMap<(usize, u16), AnaState>,
    parties: Vec<Party>,
    next_conn: u32,
    now: Instant,
}

const NAMES: [&str; 2] = [SUBSYSTEM, OTHER_SUBSYSTEM];

fn hosts(numbers: &[u8]) -> Hosts {
    Hosts::Only(numbers.iter().map(|number| nqn(&host(*number).nqn)).collect())
}

impl World {
    fn new(chance: Chance) -> World {
        let config = Config { subsystems: Vec::new(), hosts: Vec::new(), ..config() };
        let fabric = fabric(&config);
        let model = vec![(vec![1, 2], BTreeMap::new()), (vec![2, 3], BTreeMap::new())];
        for (name, (allowed, _)) in NAMES.iter().zip(&model) {
            let empty = Subsystem { namespaces: Vec::new(), ..subsystem(name) };
            fabric.add_subsystem(Subsystem { hosts: hosts(allowed), ..empty }).unwrap();
        }
        let (access, now) = (BTreeMap::new(), Instant::ZERO);
        World { chance, fabric, model, access, parties: Vec::new(), next_conn: 0, now }
    }

    fn run(&mut self, reached: &mut BTreeSet<&'static str>) {
        for _ in 0..STEPS {
            match self.chance.below(12) {
                0 => self.arrive(),
                1 => self.change_namespaces(),
                2 => self.change_hosts(reached),
                3 => self.change_access(),
                4 if !self.parties.is_empty() => {
                    let at = self.chance.below(self.parties.len());
                    self.parties.swap_remove(at);
                }
                5 => self.now = self.now + Duration::from_millis(self.chance.next() % 3000),
                _ if self.parties.is_empty() => self.arrive(),
                _ => self.speak(reached),
            }
            self.listen(reached);
        }
        self.parties.clear();
        assert!(self.fabric.controllers().is_empty(), "controllers outlive their connections");
    }

    fn arrive(&mut self) {
        let (who, at) = (self.chance.below(3) as u8 + 1, self.chance.below(2));
        let port = self.chance.below(2) as u16 + 1;
        let conn = self.next_conn;
        self.next_conn += 2;
        let opened = open(&self.fabric, &host(who), NAMES[at], port, place(0, conn));
        let allowed = self.model[at].0.contains(&who);
        assert_eq!(opened.is_ok(), allowed);
        let Ok(mut session) = opened else { return };
        session.enable();
        let queue = session.io(1, place(1, conn + 1)).unwrap();
        if self.chance.below(2) == 0 {
            session.set_feature(Feature::EVENTS, u32::MAX).unwrap();
        }
        (0..self.chance.below(3)).for_each(|_| _ = session.await_event());
        self.parties.push(Party {
            host: who,
            subsystem: at,
            session,
            queue: Some(queue),
            changed: BTreeSet::new(),
            may_hear: BTreeSet::new(),
        });
    }

    fn change_namespaces(&mut self) {
        let at = self.chance.below(2);
        let nsid = self.chance.below(5) as u32 + 1;
        let blocks = self.chance.next() % 5000 + 1;
        let name = nqn(NAMES[at]);
        let told: Vec<u8> = match (self.model[at].1.get(&nsid).cloned(), self.chance.below(3)) {
            (Some(ns), 0) => {
                self.fabric.remove_namespace(&name, nsid).unwrap();
                self.model[at].1.remove(&nsid);
                ns.hosts
            }
            (Some(ns), 1) => {
                self.fabric.set_namespace_geometry(&name, nsid, geometry(blocks)).unwrap();
                self.model[at].1.get_mut(&nsid).unwrap().blocks = blocks;
                ns.hosts
            }
            (Some(ns), _) => {
                let seen = self.some_hosts();
                self.fabric.set_namespace_hosts(&name, nsid, hosts(&seen)).unwrap();
                self.model[at].1.get_mut(&nsid).unwrap().hosts = seen.clone();
                (1..=3).filter(|who| ns.hosts.contains(who) != seen.contains(who)).collect()
            }
            (None, _) => {
                let mut marker = [0; 16];
                marker[..8].copy_from_slice(&self.chance.next().to_le_bytes());
                marker[8..].copy_from_slice(&self.chance.next().to_le_bytes());
                let seen = self.some_hosts();
                let mut new = namespace(nsid, blocks);
                new.id.0 = (at * 100) as u16 + nsid as u16;
                new.identifiers.uuid = marker;
                new.hosts = hosts(&seen);
                self.fabric.add_namespace(&name, new).unwrap();
                self.model[at]
                    .1
                    .insert(nsid, ModelNamespace { blocks, hosts: seen.clone(), marker });
                seen
            }
        };
        for party in self.parties.iter_mut().filter(|party| party.subsystem == at) {
            if told.contains(&party.host) {
                party.changed.insert(nsid);
                party.may_hear.insert(Event::NAMESPACE.to_result());
            }
        }
    }

    fn some_hosts(&mut self) -> Vec<u8> {
        let bits = self.chance.next();
        (1..=3).filter(|who| bits >> who & 1 != 0).collect()
    }

    fn change_hosts(&mut self, reached: &mut BTreeSet<&'static str>) {
        let (at, allowed) = (self.chance.below(2), self.some_hosts());
        self.fabric.set_hosts(&nqn(NAMES[at]), hosts(&allowed)).unwrap();
        self.listen(reached);
        for party in self.parties.iter().filter(|party| party.subsystem == at) {
            assert!(allowed.contains(&party.host), "a host that was removed stays connected");
        }
        self.model[at].0 = allowed;
    }

    fn change_access(&mut self) {
        let states = [AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED, AnaState::INACCESSIBLE];
        let (at, port) = (self.chance.below(2), self.chance.below(2) as u16 + 1);
        let state = self.chance.of(&states);
        self.fabric.set_access(&nqn(NAMES[at]), PortId(port), 1, state).unwrap();
        self.access.insert((at, port), state);
        for party in self.parties.iter_mut() {
            let sees = self.model[at].1.values().any(|ns| ns.hosts.contains(&party.host));
            if sees && party.subsystem == at && party.session.port == PortId(port) {
                party.may_hear.insert(Event::ANA.to_result());
            }
        }
    }

    /// Sends a command from some host: a sensible, a damaged or a random one.
    fn speak(&mut self, reached: &mut BTreeSet<&'static str>) {
        let at = self.chance.below(self.parties.len());
        let on_admin = self.chance.below(2) == 0;
        let mut entry = match self.chance.below(5) {
            0 => {
                let mut bytes = [0; 64];
                bytes.iter_mut().for_each(|byte| *byte = self.chance.next() as u8);
                bytes[1] = Submission::FLAGS_SGL | bytes[1] & 3;
                Submission::read_from_bytes(&bytes).unwrap()
            }
            _ => self.sensible(on_admin),
        };
        if self.chance.below(4) == 0 {
            let at = self.chance.below(64);
            entry.as_mut_bytes()[at] = self.chance.of(&[0, 1, 2, 0x40, 0x7f, 0x80, 0xff]);
        }
        let World { chance, parties, now, .. } = self;
        let party = &mut parties[at];
        let queue = match (on_admin, &mut party.queue) {
            (false, Some(queue)) => queue,
            _ => &mut party.session.admin,
        };
        let step = queue.begin(&entry);
        queue.orphan();
        match step {
            SubmissionStep::Refused(answer) => {
                reached.insert("refused");
                check_status(answer.status);
            }
            SubmissionStep::Device(io) => {
                reached.insert("device");
                let ns = &self.model[party.subsystem].1[&io.nsid];
                assert!(ns.hosts.contains(&party.host), "another host's namespace");
                let own = (party.subsystem * 100) as u16 + io.nsid as u16;
                assert_eq!(io.namespace.0, own);
                assert!(io.command.range().is_none_or(|range| range.fits(ns.blocks)));
                let key = (party.subsystem, party.session.port.0);
                assert_ne!(self.access.get(&key), Some(&AnaState::INACCESSIBLE));
                let ended = [Ended::Ok, Ended::MediaError, Ended::Retry, Ended::NoSpace];
                match io.fused {
                    FusedPart::First => {}
                    FusedPart::Second { .. } => _ = queue.complete_fused(&io, chance.of(&ended)),
                    FusedPart::None => check_status(queue.complete(&io, chance.of(&ended)).status),
                }
            }
            SubmissionStep::Controller { payload_bytes } => {
                reached.insert("controller");
                let mut payload = vec![0; payload_bytes];
                payload.iter_mut().for_each(|byte| *byte = chance.of(&[0, 0, 0, 1, 0xff]));
                let mut out = Vec::new();
                let outcome = queue.execute(&entry, &payload, *now, &mut out);
                let ranges = queue.ranges().to_vec();
                self.judge(at, &entry, outcome, &ranges, &out, reached);
            }
            SubmissionStep::Busy => unreachable!("no other thread is there"),
        }
    }

    /// Returns a random command of a known kind, for the admin or an I/O queue.
    fn sensible(&mut self, on_admin: bool) -> Submission {
        let chance = &mut self.chance;
        let nsid = chance.of(&[0, 1, 2, 3, 4, 5, u32::MAX]);
        let cid = chance.next() as u16;
        if !on_admin {
            let opcodes = [0, 1, 2, 5, 8, 9, 0x0c, 0x0d, 0x0e, 0x11, 0x15, FABRICS_OPCODE];
            let opcode = NvmOpcode(chance.of(&opcodes));
            let mut entry = Submission::new(opcode.0, cid, nsid);
            entry.flags |= chance.of(&[0, 0, 0, 1, 2]);
            entry.dword10 = (chance.next() as u32 % 5000).into();
            let blocks = chance.below(8) as u32;
            let (bytes, dword10) = match opcode {
                NvmOpcode::DATASET_MANAGEMENT => ((blocks + 1) * 16, Some(blocks)),
                NvmOpcode::RESERVATION_REGISTER => (16, Some(blocks % 3)),
                NvmOpcode::RESERVATION_ACQUIRE => (16, Some((blocks % 3) | 0x300)),
                NvmOpcode::RESERVATION_RELEASE => (8, Some((blocks % 2) | 0x300)),
                NvmOpcode::RESERVATION_REPORT => (4096, Some(1023)),
                NvmOpcode::FLUSH | NvmOpcode::WRITE_ZEROES | NvmOpcode::VERIFY => (0, None),
                _ => ((blocks + 1) * 512, None),
            };
            entry.dword10 = dword10.unwrap_or(entry.dword10.get()).into();
            entry.dword11 = if dword10.is_some() { 5 } else { 0 }.into();
            entry.dword12 = blocks.into();
            entry.data = SglDescriptor::transport(bytes);
            return entry;
        }
        match chance.below(4) {
            0 => {
                let mut entry = Submission::new(AdminOpcode::IDENTIFY.0, cid, nsid);
                entry.dword10 = (chance.below(0x20) as u32).into();
                entry.data = SglDescriptor::transport(4096);
                entry
            }
            1 => {
                let page = LogPage(chance.of(&[0, 1, 2, 3, 4, 5, 0x0c, 0x12, 0x70, 0x80]));
                let bytes = chance.of(&[4, 64, 512, 4096]);
                let offset = chance.of(&[0, 0, 0, 4, 64, 1 << 40]);
                log_entry(cid, page, bytes, offset)
            }
            2 => {
                let opcode = chance.of(&[AdminOpcode::GET_FEATURES, AdminOpcode::SET_FEATURES]);
                let mut entry = Submission::new(opcode.0, cid, nsid);
                let feature = chance.of(&[1, 2, 4, 5, 6, 7, 0x0a, 0x0e, 0x0f, 0x16, 0x81, 0x82]);
                entry.dword10 = (feature | (chance.below(5) as u32) << 8).into();
                let mask = chance.of(&[0x00ff_00ff, 0xfff]);
                entry.dword11 = (chance.next() as u32 & mask).into();
                let bytes = [0, 8, 16, 512][chance.below(4)];
                entry.data = SglDescriptor::transport(bytes);
                entry
            }
            _ => {
                let opcodes = [AdminOpcode::ABORT, AdminOpcode::KEEP_ALIVE, AdminOpcode(0x0c)];
                Submission::new(chance.of(&opcodes).0, cid, 0)
            }
        }
    }

    /// Checks the controller's answer against the model.
    fn judge(
        &mut self,
        at: usize,
        entry: &Submission,
        outcome: ExecutionOutcome,
        ranges: &[contract::Range],
        out: &[u8],
        reached: &mut BTreeSet<&'static str>,
    ) {
        let party = &mut self.parties[at];
        for (number, (_, namespaces)) in self.model.iter().enumerate() {
            for ns in namespaces.values() {
                let visible = number == party.subsystem && ns.hosts.contains(&party.host);
                let told = out.windows(16).any(|window| window == ns.marker);
                assert!(visible || !told, "{entry:?} told of another host's namespace");
            }
        }
        let other = NAMES[1 - party.subsystem].as_bytes();
        assert!(!out.windows(other.len()).any(|window| window == other));
        let is_admin = party.queue.is_none() || entry.opcode != FABRICS_OPCODE;
        match outcome {
            ExecutionOutcome::Done(answer) => {
                check_status(answer.status);
                assert!(answer.status.is_ok() || out.is_empty());
                let opcode = AdminOpcode(entry.opcode);
                if answer.status.is_ok() && is_admin && opcode == AdminOpcode::GET_LOG_PAGE {
                    let page = LogPage(entry.dword10.get() as u8);
                    let offset = entry.dword12.get() | entry.dword13.get();
                    // Opcode 02h is Read on an I/O queue, and Read is for devices.
                    if page == LogPage::CHANGED_NAMESPACES && offset == 0 && out.len() >= 64 {
                        reached.insert("changed");
                        let told: BTreeSet<u32> = words(out).into_iter().collect();
                        assert_eq!(told, party.changed);
                    }
                    if page == LogPage::CHANGED_NAMESPACES && entry.dword10.get() >> 15 & 1 == 0 {
                        party.changed.clear();
                    }
                }
                let is_list = opcode == AdminOpcode::IDENTIFY
                    && IdentifyCns(entry.dword10.get() as u8) == IdentifyCns::ACTIVE_NAMESPACES;
                if answer.status.is_ok() && is_list && out.len() == 4096 {
                    let own = self.model[party.subsystem].1.iter();
                    let visible = own.filter(|(_, ns)| ns.hosts.contains(&party.host));
                    let after = entry.nsid.get();
                    let expected: Vec<u32> =
                        visible.map(|(nsid, _)| *nsid).filter(|nsid| *nsid > after).collect();
                    assert_eq!(words(out), expected);
                }
                if entry.opcode == NvmOpcode::RESERVATION_REPORT.0 && answer.status.is_ok() {
                    reached.insert("reservation");
                }
            }
            ExecutionOutcome::Discard(io) => {
                let ns = &self.model[party.subsystem].1[&io.nsid];
                assert!(ns.hosts.contains(&party.host));
                assert!(ranges.iter().all(|range| range.fits(ns.blocks)));
                assert!(matches!(io.command, Command::Discard(_)));
            }
            ExecutionOutcome::Parked => {}
            ExecutionOutcome::Closing(_) => {
                reached.insert("closed");
                party.queue = None;
            }
            ExecutionOutcome::Busy => unreachable!("no other thread is there"),
        }
    }

    /// Checks the actions of the fabric against the model.
    fn listen(&mut self, reached: &mut BTreeSet<&'static str>) {
        for worker in 0..2 {
            for action in poll(&self.fabric, worker, self.now) {
                match action {
                    Action::Complete { conn, answer, .. } if answer.status.is_ok() => {
                        let own = |party: &&mut Party| party.session.place.conn == conn;
                        let party = self.parties.iter_mut().find(own);
                        let party = party.expect("somebody who is there");
                        let event = answer.result as u32;
                        // A threshold of temperature is the controller's own.
                        let own = [Event::RESERVATION, Event::TEMPERATURE].map(Event::to_result);
                        let asked = party.may_hear.contains(&event);
                        assert!(asked || own.contains(&event), "an event of others: {event:#x}");
                        reached.insert("event");
                    }
                    Action::Complete { answer, .. } => {
                        assert_eq!(answer.status, Status::ABORTED);
                    }
                    Action::Close { conn, .. } => {
                        reached.insert("closed");
                        self.parties.retain(|party| party.session.place.conn != conn);
                        for party in &mut self.parties {
                            let place = party.session.place.conn.index + 1;
                            if worker == 1 && conn.index == place {
                                party.queue = None;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Checks that the specification has this status.
fn check_status(status: Status) {
    assert!(status.name().is_some(), "{status:?}");
}
