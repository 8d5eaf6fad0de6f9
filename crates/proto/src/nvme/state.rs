//! Everything that the fabric's lock guards: ports, subsystems, controllers, mail to the workers.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{ConnId, Credential, Failures, Instant, NamespaceId};
use wire::nvme::{AnaState, CommandId, Event, Status};

use super::arriving::Expected;
use super::auth::Methods;
use super::auth_commands::{FORGET, Job, PROOFS_MAX};
use super::config::{Config, Host, Hosts, Limits, Namespace, Nqn, Port, PortId, Referral};
use super::controller::{Controller, Kind};
use super::counts::Sum;
use super::fences::{Families, Withdrawal};
use super::leaving::LetGo;
use super::link::{Seen, View};
use super::reservation::{Registrant, Reservation};
use super::seam::{Action, Answer, CloseReason, Place};
use super::transit::{NOWHERE, Transit};

/// A namespace and what hosts have done with it.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) config: Namespace,
}

impl Attached {
    /// Blocks as hosts see them.
    pub(super) fn blocks(&self) -> u64 {
        self.config.geometry.blocks >> self.shift()
    }

    /// Contract's blocks in one of the host's, as a power of two.
    pub(super) fn shift(&self) -> u8 {
        (self.config.block_bytes.trailing_zeros() - contract::BLOCK_BYTES.trailing_zeros()) as u8
    }
}

/// A subsystem.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) nqn: Nqn,
    pub(super) serial: String,
    pub(super) hosts: Hosts,
    /// Empty: all.
    pub(super) ports: Vec<PortId>,
    pub(super) tenant: Option<contract::TenantId>,
    pub(super) must_authenticate: bool,
    pub(super) namespaces: BTreeMap<u32, Attached>,
    /// State and changes of a group through a port; what is not here is optimized. Each counts for
    /// itself: who sees one group does not learn of another.
    pub(super) ana: BTreeMap<(PortId, u32), (AnaState, u64)>,
    /// Counts of queues that are gone, by host; of at most [`RETIRED_MAX`] hosts.
    pub(super) retired: BTreeMap<Nqn, Sum>,
}

impl Served {
    /// Whether a port leads here.
    pub(super) fn is_at(&self, port: PortId) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// How a group is reached through a port.
    pub(super) fn access(&self, port: PortId, group: u32) -> (AnaState, u64) {
        self.ana.get(&(port, group)).copied().unwrap_or((AnaState::OPTIMIZED, 0))
    }
}

/// What the workers have to be told.
#[derive(Debug)]
pub(super) struct Mail {
    boxes: Vec<Vec<Action>>,
    /// Of those that are on their way between workers.
    kept: Vec<Action>,
    /// Workers to wake when the lock is released.
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

    /// The box of a worker, or of those that are nowhere.
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

    /// Moves what waits for a worker to `out`.
    pub(super) fn take(&mut self, worker: u16, out: &mut Vec<Action>) {
        out.append(&mut self.boxes[usize::from(worker)]);
    }

    /// A connection is gone: what was meant for it goes nowhere.
    fn forget(&mut self, worker: u16, gone: ConnId) {
        self.at(worker).retain(|action| action.conn() != gone);
    }
}

/// A command that changed a reservation and was not answered yet.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// The change that has to be kept first, if it has.
    pub(super) change: Option<u64>,
    /// What has to end first.
    pub(super) withdrawal: Withdrawal,
    /// Where the answer goes, while its connection is there.
    pub(super) to: Option<(Place, CommandId)>,
}

/// See the module.
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
    /// What the queues of each host share.
    pub(super) families: Families,
    /// Powers that authentications wait for, the oldest first; at most one for each queue.
    pub(super) jobs: VecDeque<Job>,
    /// Reservations are their namespaces', through whichever subsystems those are reached.
    pub(super) reservations: BTreeMap<NamespaceId, Reservation>,
    /// Authentications that failed, by where they came from.
    pub(super) failures: Failures,
    /// Changes of reservations.
    pub(super) reservation_changes: u64,
    /// Whether somebody keeps reservations over a restart.
    pub(super) keeps: bool,
    /// Commands that changed reservations: they are answered when that is kept, where it persists, and
    /// nothing is at a device any more that it forbids. Of a queue at most as many as it has entries.
    pub(super) unanswered: Vec<Unanswered>,
    /// What operators have taken away, until they ask.
    pub(super) lost: Withdrawal,
    pub(super) mail: Mail,
    /// Queues whose connections are between two workers.
    pub(super) transit: Transit,
    /// Controllers on their way to another process, and from one.
    pub(super) let_go: LetGo,
    pub(super) expected: Expected,
    /// When the fabric began.
    pub(super) started: Instant,
    /// The identifier that the next controller tries first.
    next_cntlid: u16,
}

/// Hosts of a subsystem whose counts are kept when their controllers end.
const RETIRED_MAX: usize = 4096;

/// How soon to look again whether what was forbidden has ended.
const WITHDRAWAL_PERIOD: Duration = Duration::from_micros(200);

/// Identifiers of controllers are below; those above mean something else (Base 3.1.1).
pub(super) const CNTLID_END: u16 = 0xfff0;

impl State {
    /// A fabric of nothing but its limits and names.
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

    /// An identifier that no controller has; they are used in turn, so that a host's late command
    /// does not meet another's controller.
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

    /// Identifiers behind this one are tried first.
    pub(super) fn pass_over(&mut self, cntlid: u16) {
        if self.next_cntlid <= cntlid {
            self.next_cntlid = if cntlid + 1 == CNTLID_END { 1 } else { cntlid + 1 };
        }
    }

    /// The controller of a queue. It is there as long as the admin queue is.
    ///
    /// # Errors
    /// It is not, and neither is the queue.
    pub(super) fn controller(&mut self, cntlid: u16) -> Result<&mut Controller, Status> {
        self.controllers.get_mut(&cntlid).ok_or(Status::QUEUE_DELETED)
    }

    /// The subsystem of an I/O controller.
    pub(super) fn subsystem_of(&self, controller: &Controller) -> Option<&Served> {
        self.subsystems.get(&controller.subsystem)
    }

    /// The namespaces that a controller may know of, in the order of their identifiers.
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

    /// A namespace that a controller may know of.
    pub(super) fn namespace_of(&self, controller: &Controller, nsid: u32) -> Option<&Attached> {
        let attached = self.subsystem_of(controller)?.namespaces.get(&nsid)?;
        attached.config.hosts.contain(&controller.host).then_some(attached)
    }

    /// What a controller may reach now.
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

    /// Keeps the counts of queues that end.
    fn retire(&mut self, subsystem: &Nqn, host: &Nqn, sum: Sum) {
        let Some(subsystem) = self.subsystems.get_mut(subsystem) else { return };
        if subsystem.retired.len() < RETIRED_MAX || subsystem.retired.contains_key(host) {
            subsystem.retired.entry(host.clone()).or_default().add(sum);
        }
    }

    /// What a host read and wrote of a subsystem since the fabric began.
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

    /// A connection has ended, and its queue with it; with the admin queue, the controller.
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

    /// Tells controllers of an event.
    pub(super) fn raise(&mut self, event: Event, whom: impl Fn(&Controller) -> bool) {
        let State { controllers, mail, .. } = self;
        for controller in controllers.values_mut().filter(|controller| whom(controller)) {
            controller.events.raise(event);
            controller.send_events(mail);
        }
    }

    /// What discovery tells has changed, for these hosts.
    pub(super) fn discovery_changed(&mut self, whom: impl Fn(&Nqn) -> bool) {
        let State { controllers, mail, .. } = self;
        let told = |own: &&mut Controller| own.kind == Kind::Discovery && whom(&own.host);
        for controller in controllers.values_mut().filter(told) {
            controller.discovery_changes += 1;
            controller.events.raise(Event::DISCOVERY);
            controller.send_events(mail);
        }
    }

    /// A namespace was attached, detached or changed, for these hosts.
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

    /// Who may do what with a subsystem's namespaces has changed.
    pub(super) fn access_changed(&mut self, subsystem: &Nqn) {
        self.controllers
            .values()
            .filter(|controller| controller.subsystem == *subsystem)
            .for_each(|controller| controller.link.change());
    }

    /// The subsystems through which a namespace is reached, and its numbers there.
    pub(super) fn exports_of(&self, id: NamespaceId) -> Vec<(Nqn, u32)> {
        let all = self.subsystems.iter().flat_map(|(nqn, served)| {
            served.namespaces.iter().map(move |(nsid, attached)| (nqn, *nsid, attached.config.id))
        });
        all.filter(|(_, _, own)| *own == id).map(|(nqn, nsid, _)| (nqn.clone(), nsid)).collect()
    }

    /// Reservations of namespaces that no host can reach any more are no more.
    pub(super) fn forget_reservations(&mut self) {
        let State { reservations, subsystems, .. } = self;
        reservations.retain(|id, _| {
            let mut all = subsystems.values().flat_map(|served| served.namespaces.values());
            all.any(|attached| attached.config.id == *id)
        });
    }

    /// Takes from hosts of which `whom` says so what their queues at a subsystem were allowed until now;
    /// their views have changed already.
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

    /// Answers commands whose changes of reservations hold everywhere.
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

    /// Identifiers of the controllers of a subsystem, in order.
    pub(super) fn controllers_in(&self, subsystem: &Nqn) -> BTreeSet<u16> {
        self.controllers
            .values()
            .filter(|controller| controller.subsystem == *subsystem)
            .map(|controller| controller.link.cntlid)
            .collect()
    }

    /// Ends controllers whose hosts said nothing for too long, and queues whose hosts did not prove
    /// who they are; when to look again.
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

    /// Without its admin queue a controller ends, too.
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

/// What reservation and write protection say to commands that read, to those that write, and to a
/// flush: to reservations it is one that writes, to protection it is not.
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

/// What commands are told through a path in this state, if they may not pass (Base 8.1.3).
pub(super) fn path_status(state: AnaState) -> Option<Status> {
    match state {
        AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
        AnaState::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
        AnaState::CHANGE => Some(Status::ANA_TRANSITION),
        _ => Some(Status::ANA_INACCESSIBLE),
    }
}

/// Shared counts of a queue.
pub(super) type SharedCounts = Arc<super::counts::Counts>;
