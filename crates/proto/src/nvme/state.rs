//! State that the fabric's lock guards: ports, subsystems, hosts, controllers, and mail to the
//! workers.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{ConnId, Credential, Failures, Instant, NamespaceId};
use wire::nvme::{AnaState, CommandId, Event, Status};

use super::auth::Methods;
use super::auth_commands::{FORGET, Job, PROOFS_MAX};
use super::binding::{Action, Answer, CloseReason, Place};
use super::config::{Config, Host, Hosts, Limits, Namespace, Nqn, Port, PortId, Referral};
use super::controller::{Controller, Kind};
use super::counts::Sum;
use super::export::LetGo;
use super::fences::{Families, Withdrawal};
use super::import::Expected;
use super::link::{Seen, View};
use super::migration::{NOWHERE, Transit};
use super::reservation::{Registrant, Reservation};

/// A namespace attached to a subsystem.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) config: Namespace,
}

impl Attached {
    /// Returns the namespace's size in blocks of the size that hosts see.
    pub(super) fn blocks(&self) -> u64 {
        self.config.geometry.blocks >> self.shift()
    }

    /// Returns log2 of the number of contract blocks in one block of the host's size.
    pub(super) fn shift(&self) -> u8 {
        (self.config.block_bytes.trailing_zeros() - contract::BLOCK_BYTES.trailing_zeros()) as u8
    }
}

/// A subsystem and its namespaces.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) nqn: Nqn,
    pub(super) serial: String,
    pub(super) hosts: Hosts,
    /// The ports that lead to the subsystem; empty means all ports.
    pub(super) ports: Vec<PortId>,
    pub(super) tenant: Option<contract::TenantId>,
    pub(super) must_authenticate: bool,
    pub(super) namespaces: BTreeMap<u32, Attached>,
    /// The state of an ANA group through a port, with the number of its changes. A group that is
    /// absent is optimized. Each group has its own count, so a host learns nothing of groups that
    /// it cannot see.
    pub(super) ana: BTreeMap<(PortId, u32), (AnaState, u64)>,
    /// The I/O counts of queues that have ended, by host, for at most [`RETIRED_MAX`] hosts.
    pub(super) retired: BTreeMap<Nqn, Sum>,
}

impl Served {
    /// Returns `true` if the subsystem is reachable through the port.
    pub(super) fn is_at(&self, port: PortId) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// Returns the state of an ANA group through a port, and the number of its changes.
    pub(super) fn access(&self, port: PortId, group: u32) -> (AnaState, u64) {
        self.ana.get(&(port, group)).copied().unwrap_or((AnaState::OPTIMIZED, 0))
    }
}

/// Actions that wait for the workers to fetch them.
#[derive(Debug)]
pub(super) struct Mail {
    boxes: Vec<Vec<Action>>,
    /// Actions for connections that are moving between workers.
    kept: Vec<Action>,
    /// Workers to wake after the lock is released.
    pub(super) woken: Vec<u16>,
}

impl Mail {
    pub(super) fn new(workers: u16) -> Mail {
        Mail {
            boxes: (0..workers).map(|_| Vec::new()).collect(),
            kept: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Returns the queue of a worker, or for [`NOWHERE`] the queue of connections that are moving.
    pub(super) fn at(&mut self, worker: u16) -> &mut Vec<Action> {
        match worker {
            NOWHERE => &mut self.kept,
            _ => &mut self.boxes[usize::from(worker)],
        }
    }

    pub(super) fn post(&mut self, worker: u16, action: Action) {
        self.at(worker).push(action);
        if worker != NOWHERE && !self.woken.contains(&worker) {
            self.woken.push(worker);
        }
    }

    pub(super) fn close(&mut self, place: Place, reason: CloseReason) {
        self.post(place.worker, Action::Close { conn: place.conn, reason });
    }

    pub(super) fn complete(&mut self, place: Place, answer: Answer, data: Vec<u8>) {
        self.post(place.worker, Action::Complete { conn: place.conn, answer, data });
    }

    /// Moves the actions that wait for a worker to `out`.
    pub(super) fn take(&mut self, worker: u16, out: &mut Vec<Action>) {
        out.append(&mut self.boxes[usize::from(worker)]);
    }

    /// Discards the actions for a connection that is gone.
    fn forget(&mut self, worker: u16, gone: ConnId) {
        self.at(worker).retain(|action| action.conn() != gone);
    }
}

/// A command that changed a reservation and is not answered yet.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// The number of the change that has to be stored first; `None` once it is stored or if it need
    /// not be.
    pub(super) change: Option<u64>,
    /// The requests that have to end first.
    pub(super) withdrawal: Withdrawal,
    /// The destination of the answer; `None` once the connection is gone.
    pub(super) to: Option<(Place, CommandId)>,
}

/// The state of a fabric.
#[derive(Debug)]
pub(super) struct State {
    pub(super) limits: Limits,
    pub(super) model: String,
    pub(super) firmware: String,
    pub(super) ports: BTreeMap<PortId, Port>,
    pub(super) subsystems: BTreeMap<Nqn, Served>,
    pub(super) hosts: BTreeMap<Nqn, Host>,
    pub(super) methods: Methods,
    pub(super) referrals: Vec<Referral>,
    pub(super) controllers: BTreeMap<u16, Controller>,
    /// The kin that the queues of each host at each subsystem share.
    pub(super) families: Families,
    /// Modular exponentiations that authentications wait for, oldest first; at most one for each
    /// queue.
    pub(super) jobs: VecDeque<Job>,
    /// The reservations, by namespace. Every subsystem that exports a namespace shares its
    /// reservation.
    pub(super) reservations: BTreeMap<NamespaceId, Reservation>,
    /// Failed authentications, by source address.
    pub(super) failures: Failures,
    /// The number of changes of reservations so far.
    pub(super) reservation_changes: u64,
    /// `true` if an owner stores reservations persistently.
    pub(super) keeps: bool,
    /// Commands that changed a reservation and wait for their answer. A command is answered once
    /// its change is stored (if it persists) and no request that it forbids is at a device. A queue
    /// has at most as many as it has entries.
    pub(super) unanswered: Vec<Unanswered>,
    /// Rights that operators have withdrawn since the last
    /// [`Fabric::take_withdrawal`](super::Fabric::take_withdrawal).
    pub(super) lost: Withdrawal,
    pub(super) mail: Mail,
    /// Queues whose connections are moving between workers.
    pub(super) transit: Transit,
    /// Controllers on their way to another process, and controllers on their way from one.
    pub(super) let_go: LetGo,
    pub(super) expected: Expected,
    /// The time at which the fabric was created.
    pub(super) started: Instant,
    /// The identifier that the next controller tries first.
    next_cntlid: u16,
}

/// The most hosts of a subsystem whose counts are kept after their controllers end.
const RETIRED_MAX: usize = 4096;

/// The interval of checks for the end of requests that have lost their right.
const WITHDRAWAL_PERIOD: Duration = Duration::from_micros(200);

/// The end of the range of controller identifiers; larger values have other meanings (Base 3.1.1).
pub(super) const CNTLID_END: u16 = 0xfff0;

impl State {
    /// Creates a fabric with limits and names, but without ports, hosts or subsystems.
    pub(super) fn new(config: &Config, started: Instant) -> State {
        State {
            limits: config.limits,
            model: config.model.clone(),
            firmware: config.firmware.clone(),
            ports: BTreeMap::new(),
            subsystems: BTreeMap::new(),
            hosts: BTreeMap::new(),
            methods: config.methods.clone(),
            referrals: Vec::new(),
            controllers: BTreeMap::new(),
            families: Families::default(),
            jobs: VecDeque::new(),
            reservations: BTreeMap::new(),
            failures: Failures::new(Credential::Key, PROOFS_MAX, FORGET),
            reservation_changes: 0,
            keeps: false,
            unanswered: Vec::new(),
            lost: Withdrawal::default(),
            mail: Mail::new(config.workers),
            transit: Transit::default(),
            let_go: LetGo::default(),
            expected: Expected::default(),
            started,
            next_cntlid: 1,
        }
    }

    /// Returns an unused controller identifier, or `None` if there are too many controllers.
    /// Identifiers are used in turn, so that a host's late command does not reach another host's
    /// controller.
    pub(super) fn new_cntlid(&mut self) -> Option<u16> {
        if self.controllers.len() >= usize::from(self.limits.controllers_max) {
            return None;
        }
        loop {
            let id = self.next_cntlid;
            self.next_cntlid = if id + 1 == CNTLID_END { 1 } else { id + 1 };
            if !self.controllers.contains_key(&id) && !self.expected.contains(id) {
                return Some(id);
            }
        }
    }

    /// Makes [`State::new_cntlid`] continue behind this identifier.
    pub(super) fn pass_over(&mut self, cntlid: u16) {
        if self.next_cntlid <= cntlid {
            self.next_cntlid = if cntlid + 1 == CNTLID_END { 1 } else { cntlid + 1 };
        }
    }

    /// Returns a queue's controller, which exists as long as its admin queue does.
    ///
    /// # Errors
    /// Returns [`Status::QUEUE_DELETED`] if the controller, and thus the queue, has ended.
    pub(super) fn controller(&mut self, cntlid: u16) -> Result<&mut Controller, Status> {
        self.controllers.get_mut(&cntlid).ok_or(Status::QUEUE_DELETED)
    }

    /// Returns the subsystem of an I/O controller.
    pub(super) fn subsystem_of(&self, controller: &Controller) -> Option<&Served> {
        self.subsystems.get(&controller.subsystem)
    }

    /// Returns the namespaces that a controller's host may see, ordered by identifier.
    pub(super) fn namespaces_of<'a>(
        &'a self,
        controller: &'a Controller,
    ) -> impl Iterator<Item = (u32, &'a Attached)> {
        let namespaces = self.subsystem_of(controller).map(|subsystem| &subsystem.namespaces);
        namespaces
            .into_iter()
            .flatten()
            .filter(|(_, attached)| attached.config.hosts.contain(&controller.host))
            .map(|(nsid, attached)| (*nsid, attached))
    }

    /// Returns a namespace if the controller's host may see it.
    pub(super) fn namespace_of(&self, controller: &Controller, nsid: u32) -> Option<&Attached> {
        let attached = self.subsystem_of(controller)?.namespaces.get(&nsid)?;
        attached.config.hosts.contain(&controller.host).then_some(attached)
    }

    /// Returns the namespaces that a controller may reach now, with what each permits.
    pub(super) fn view(&self, cntlid: u16) -> View {
        let Some(controller) = self.controllers.get(&cntlid) else { return View::default() };
        let generation = controller.link.generation();
        let tenant = self.hosts.get(&controller.host).and_then(|host| host.tenant);
        let Some(subsystem) = self.subsystem_of(controller) else {
            return View { generation, ..View::default() };
        };
        let registrant = controller.registrant();
        let seen = |(nsid, attached): (u32, &Attached)| {
            let (state, _) = subsystem.access(controller.port, attached.config.ana_group);
            let reservation = self.reservations.get(&attached.config.id);
            let (reads, writes, flushes) = statuses(attached, reservation, &registrant);
            let path = path_status(state);
            Seen {
                nsid,
                namespace: attached.config.id,
                tenant: attached.config.tenant.or(tenant).or(subsystem.tenant),
                blocks: attached.blocks(),
                shift: attached.shift(),
                reads: path.unwrap_or(reads),
                writes: path.unwrap_or(writes),
                flushes: path.unwrap_or(flushes),
            }
        };
        View { generation, namespaces: self.namespaces_of(controller).map(seen).collect() }
    }

    /// Ends a controller and its connections.
    pub(super) fn remove_controller(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.remove(&cntlid) else { return };
        controller.link.set_gone();
        controller.link.change();
        for record in controller.queues.values() {
            record.fence.supersede();
            record.count_abandoned(&mut self.failures);
            self.mail.close(record.place, reason);
        }
        self.lost.is_over();
        self.lost.add_gone(&controller.kin);
        self.retire(&controller.subsystem, &controller.host, controller.sum());
    }

    /// Adds the counts of queues that end to their host's counts.
    fn retire(&mut self, subsystem: &Nqn, host: &Nqn, sum: Sum) {
        let Some(subsystem) = self.subsystems.get_mut(subsystem) else { return };
        if subsystem.retired.len() < RETIRED_MAX || subsystem.retired.contains_key(host) {
            subsystem.retired.entry(host.clone()).or_default().add(sum);
        }
    }

    /// Returns what a host has read from and written to a subsystem since the fabric was created.
    pub(super) fn sum_of(&self, subsystem: &Nqn, host: &Nqn) -> Sum {
        let served = self.subsystems.get(subsystem);
        let retired = served.and_then(|served| served.retired.get(host));
        let mut sum = retired.copied().unwrap_or_default();
        self.controllers
            .values()
            .filter(|own| own.subsystem == *subsystem && own.host == *host)
            .for_each(|own| sum.add(own.sum()));
        sum
    }

    /// Ends the queue of a connection that has ended. An admin queue takes its controller with it.
    pub(super) fn leave(&mut self, cntlid: u16, queue: u16, place: Place) {
        self.mail.forget(place.worker, place.conn);
        self.jobs.retain(|job| job.place != place);
        for waiting in &mut self.unanswered {
            waiting.to.take_if(|(at, _)| *at == place);
        }
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        if controller.queues.get(&queue).is_none_or(|record| record.place != place) {
            return;
        }
        let record = controller.queues.remove(&queue).expect("looked at above");
        record.count_abandoned(&mut self.failures);
        controller.ending.end(&record.fence);
        let (subsystem, host) = (controller.subsystem.clone(), controller.host.clone());
        self.retire(&subsystem, &host, record.counts.sum());
        if queue == 0 {
            self.remove_controller(cntlid, CloseReason::AdminGone);
        }
    }

    /// Ends the I/O queues of a controller that was reset or shut down.
    pub(super) fn close_io_queues(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        let queues = core::mem::take(&mut controller.queues);
        let (admin, io): (BTreeMap<_, _>, BTreeMap<_, _>) =
            queues.into_iter().partition(|(queue, _)| *queue == 0);
        controller.queues = admin;
        io.values().for_each(|record| controller.ending.end(&record.fence));
        let (subsystem, host) = (controller.subsystem.clone(), controller.host.clone());
        for record in io.values() {
            self.mail.close(record.place, reason);
            self.retire(&subsystem, &host, record.counts.sum());
        }
    }

    /// Raises an event at every controller that `whom` selects.
    pub(super) fn raise(&mut self, event: Event, whom: impl Fn(&Controller) -> bool) {
        let State { controllers, mail, .. } = self;
        for controller in controllers.values_mut().filter(|controller| whom(controller)) {
            controller.events.raise(event);
            controller.send_events(mail);
        }
    }

    /// Raises a discovery log change at the discovery controllers of the hosts that `whom` selects.
    pub(super) fn discovery_changed(&mut self, whom: impl Fn(&Nqn) -> bool) {
        let State { controllers, mail, .. } = self;
        let told = |own: &&mut Controller| own.kind == Kind::Discovery && whom(&own.host);
        for controller in controllers.values_mut().filter(told) {
            controller.discovery_changes += 1;
            controller.events.raise(Event::DISCOVERY);
            controller.send_events(mail);
        }
    }

    /// Tells these hosts' controllers that a namespace was attached, detached or changed.
    pub(super) fn namespace_changed(&mut self, subsystem: &Nqn, nsid: u32, hosts: &Hosts) {
        let State { controllers, mail, .. } = self;
        for controller in controllers.values_mut() {
            if controller.subsystem == *subsystem && hosts.contain(&controller.host) {
                controller.link.change();
                controller.changed.insert(nsid);
                controller.events.raise(Event::NAMESPACE);
                controller.send_events(mail);
            }
        }
    }

    /// Makes the queues of a subsystem's controllers fetch their view of the namespaces anew.
    pub(super) fn access_changed(&mut self, subsystem: &Nqn) {
        self.controllers
            .values()
            .filter(|controller| controller.subsystem == *subsystem)
            .for_each(|controller| controller.link.change());
    }

    /// Returns the subsystems that export a namespace, each with the namespace's identifier there.
    pub(super) fn exports_of(&self, id: NamespaceId) -> Vec<(Nqn, u32)> {
        let all = self.subsystems.iter().flat_map(|(nqn, served)| {
            served.namespaces.iter().map(move |(nsid, attached)| (nqn, *nsid, attached.config.id))
        });
        all.filter(|(_, _, own)| *own == id).map(|(nqn, nsid, _)| (nqn.clone(), nsid)).collect()
    }

    /// Drops the reservations of namespaces that no subsystem exports any more.
    pub(super) fn forget_reservations(&mut self) {
        let State { reservations, subsystems, .. } = self;
        reservations.retain(|id, _| {
            let mut all = subsystems.values().flat_map(|served| served.namespaces.values());
            all.any(|attached| attached.config.id == *id)
        });
    }

    /// Adds to `withdrawal` the requests that were started at a subsystem by the hosts that `whom`
    /// selects. The hosts' views must have changed already.
    pub(super) fn withdraw(
        &self,
        subsystem: &Nqn,
        whom: impl Fn(&Registrant) -> bool,
        withdrawal: &mut Withdrawal,
    ) {
        let own = self.controllers.values().filter(|own| own.subsystem == *subsystem);
        for controller in own.filter(|own| whom(&own.registrant())) {
            let io = controller.queues.iter().filter(|(queue, _)| **queue != 0);
            io.for_each(|(_, record)| withdrawal.add_queue(&record.fence));
        }
        let lost = self.families.at(subsystem).filter(|(host, _)| whom(host));
        lost.for_each(|(_, kin)| withdrawal.add_gone(kin));
    }

    /// Answers the commands whose changes of reservations hold everywhere.
    pub(super) fn settle(&mut self) {
        let State { unanswered, mail, .. } = self;
        unanswered.retain_mut(|one| {
            let is_settled = one.withdrawal.is_over() && one.change.is_none();
            if is_settled && let Some((place, cid)) = one.to {
                mail.complete(place, Answer::ok(cid), Vec::new());
            }
            !is_settled
        });
    }

    /// Returns the identifiers of a subsystem's controllers, in order.
    pub(super) fn controllers_in(&self, subsystem: &Nqn) -> BTreeSet<u16> {
        self.controllers
            .values()
            .filter(|controller| controller.subsystem == *subsystem)
            .map(|controller| controller.link.cntlid)
            .collect()
    }

    /// Ends controllers whose hosts were silent for too long, and queues whose hosts did not
    /// authenticate in time. Returns when to check again.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let expired: Vec<u16> = self
            .controllers
            .values_mut()
            .filter_map(|controller| controller.has_expired(now).then_some(controller.link.cntlid))
            .collect();
        for cntlid in expired {
            self.remove_controller(cntlid, CloseReason::KeepAliveExpired);
        }
        self.end_unproven(now);
        self.take_put_off(now);
        self.settle();
        let waits = self.unanswered.iter().any(|one| !one.withdrawal.is_empty());
        let soon = waits.then(|| now + WITHDRAWAL_PERIOD);
        self.controllers.values().filter_map(Controller::expires_at).chain(soon).min()
    }

    /// Ends the queues whose hosts did not authenticate in time; an admin queue takes its
    /// controller with it.
    fn end_unproven(&mut self, now: Instant) {
        let of = |own: &Controller| {
            let cntlid = own.link.cntlid;
            own.unproven(now).map(move |(queue, place)| (cntlid, queue, place)).collect::<Vec<_>>()
        };
        let late: Vec<(u16, u16, Place)> = self.controllers.values().flat_map(of).collect();
        for (cntlid, queue, place) in late {
            if queue == 0 {
                self.remove_controller(cntlid, CloseReason::NotAuthenticated);
            } else {
                self.leave(cntlid, queue, place);
                self.mail.close(place, CloseReason::NotAuthenticated);
            }
        }
    }
}

/// Returns what reservation and write protection answer to reads, to writes, and to flushes. For
/// reservations a flush is a write; for write protection it is not.
fn statuses(
    attached: &Attached,
    reservation: Option<&Reservation>,
    registrant: &Registrant,
) -> (Status, Status, Status) {
    let allowed = |allowed: bool| match allowed {
        true => Status::SUCCESS,
        false => Status::RESERVATION_CONFLICT.dnr(),
    };
    let (reads, writes) =
        reservation.map_or((true, true), |reservation| reservation.allows(registrant));
    let flushes = allowed(writes);
    let writes = match attached.config.geometry.read_only {
        true => Status::WRITE_PROTECTED.dnr(),
        false => flushes,
    };
    (allowed(reads), writes, flushes)
}

/// Returns the status of commands through a path in this state, if the path forbids them (Base
/// 8.1.3).
pub(super) fn path_status(state: AnaState) -> Option<Status> {
    match state {
        AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
        AnaState::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
        AnaState::CHANGE => Some(Status::ANA_TRANSITION),
        _ => Some(Status::ANA_INACCESSIBLE),
    }
}

/// The counts of a queue, shared with its controller's record.
pub(super) type SharedCounts = Arc<super::counts::Counts>;
