//! The controller: the control plane's side of the workers' mailboxes. It answers their requests,
//! tells them which tenants leave and which get a notice, and ends tenants without handles.
//!
//! The controller works when it is called. On a server, a thread of its own calls it. In the
//! simulated world, the controller is one of the world's parties.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use contract::{
    Instant, LimitedBy, Member, Promise, Report, Status, TenancyAnswer, TenancyOperation,
    TenancyRequest, TenantId, WorkerMessage,
};

use crate::commands::WorkerCommands;
use crate::info::{Origin, Refusal, State};
use crate::mailboxes::{ControlMessage, Mailboxes, WaitOutcome, Wake, WorkerMailbox, mailboxes};
use crate::memory_trim::MemoryTrim;
use crate::registry::{Entry, TenantRegistry};
use crate::tenants::Tenants;

/// Duration of a measurement window.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Minimum time between two notices to a tenant.
pub const NOTICE_PERIOD: Duration = Duration::from_secs(10);

/// Minimum share of a window in which a tenant's requests waited for tokens, for a notice.
const NOTICE_SHARE: f64 = 0.5;

/// Time after which a client's tenant ends if no connection holds a handle on it.
pub const GRACE: Duration = Duration::from_secs(10);

/// Maximum number of workers' reports that wait to be taken. A further report replaces the oldest.
const REPORTS_MAX: usize = 1024;

/// Period at which leaving tenants, and messages that found no room, are checked again.
const PERIOD: Duration = Duration::from_millis(50);

/// The kernel's account of a worker's thread: returns the total time for which the thread waited
/// for a processor, or `None` if the kernel has no account.
pub type WaitTimeReader = Box<dyn FnMut() -> Option<Duration> + Send>;

/// A function that returns unused memory to the system.
pub type MemoryReturn = Box<dyn Fn() + Send>;

/// The controller's access to the machine: the accounts of the workers' threads, by worker, and the
/// return of memory.
#[derive(Default)]
struct Machine {
    accounts: Vec<(usize, WaitTimeReader)>,
    give_back: Option<MemoryReturn>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers: Vec<usize> = self.accounts.iter().map(|(worker, _)| *worker).collect();
        f.debug_struct("Machine").field("accounts", &workers).finish_non_exhaustive()
    }
}

/// The control plane's end of the workers' mailboxes: answers their requests, sends them changes,
/// and closes the measurement windows.
#[derive(Debug)]
pub struct WorkerController {
    tenants: Tenants,
    mail: Mailboxes,
    /// Messages that a worker's queue had no room for, by worker. There are at most as many answers
    /// as requests, and as many leaves as tenants; notices are dropped instead.
    outgoing: Vec<VecDeque<WorkerMessage>>,
    /// Reports of workers that were not yet taken, at most [`REPORTS_MAX`].
    reports: VecDeque<Report>,
    commands: WorkerCommands,
    machine: Machine,
    memory_trim: MemoryTrim,
}

impl WorkerController {
    /// Returns a controller for `workers` workers, and a mailbox for each worker.
    pub fn new(tenants: Tenants, workers: usize) -> (WorkerController, Vec<WorkerMailbox>) {
        let (mail, boxes) = mailboxes(workers);
        (WorkerController::at(tenants, mail, workers), boxes)
    }

    /// Returns a controller like [`new`](WorkerController::new), and a mailbox for the hand-over
    /// thread, which moves connections to and from another process. The number of the hand-over
    /// thread follows the last worker's.
    pub fn with_hand_over(
        tenants: Tenants,
        workers: usize,
    ) -> (WorkerController, Vec<WorkerMailbox>, WorkerMailbox) {
        let (mail, mut boxes) = mailboxes(workers + 1);
        let hand_over = boxes.pop().expect("there is one more");
        (WorkerController::at(tenants, mail, workers), boxes, hand_over)
    }

    fn at(tenants: Tenants, mail: Mailboxes, workers: usize) -> WorkerController {
        let outgoing = (0..workers).map(|_| VecDeque::new()).collect();
        let commands = WorkerCommands::new(tenants.clone(), mail.senders(), workers);
        let (machine, memory_trim) = (Machine::default(), MemoryTrim::default());
        let reports = VecDeque::new();
        WorkerController { tenants, mail, outgoing, reports, commands, machine, memory_trim }
    }

    /// Returns the operators' commands for workers.
    pub fn commands(&self) -> WorkerCommands {
        self.commands.clone()
    }

    /// Sets the function that wakes a worker, or the hand-over thread, when messages arrive in its
    /// mailbox.
    pub fn set_wake(&mut self, worker: usize, wake: Wake) {
        self.mail.set_wake(worker, wake);
    }

    /// Sets the account of a worker's thread, which is read at each observation of the devices.
    pub fn set_account(&mut self, worker: usize, account: WaitTimeReader) {
        self.machine.accounts.push((worker, account));
    }

    /// Sets the function that returns memory to the system, called when many connections have
    /// closed.
    pub fn set_give_back(&mut self, give_back: MemoryReturn) {
        self.machine.give_back = Some(give_back);
    }

    /// Queues a message to a worker, which is sent with the next
    /// [`serve`](WorkerController::serve).
    pub fn order(&mut self, worker: usize, tell: WorkerMessage) {
        self.outgoing[worker].push_back(tell);
    }

    /// Takes the workers' reports since the last call for which no command waited. If there were
    /// more than 1024, only the latest are left.
    pub fn take_reports(&mut self) -> impl Iterator<Item = Report> {
        self.reports.drain(..)
    }

    /// Processes the messages of all workers, until the last worker has ended.
    pub fn run(mut self) {
        loop {
            match self.mail.wait(PERIOD) {
                WaitOutcome::Came(mail) => self.open(mail, self.tenants.now()),
                WaitOutcome::Nothing => {}
                WaitOutcome::Deserted => return,
            }
            self.serve(self.tenants.now());
        }
    }

    /// Answers the workers' messages and does the periodic work that is due. Returns `true` if
    /// there was any.
    pub fn serve(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(mail) = self.mail.take() {
            self.open(mail, now);
            busy = true;
        }
        busy |= self.housekeep(now);
        for worker in 0..self.outgoing.len() {
            while let Some(tell) = self.outgoing[worker].pop_front() {
                if let Err(tell) = self.mail.tell(worker, tell) {
                    self.outgoing[worker].push_front(tell);
                    break;
                }
                busy = true;
            }
        }
        busy
    }

    /// Returns the time at which [`serve`](WorkerController::serve) is due if no message comes
    /// before.
    pub fn wake_at(&self, now: Instant) -> Instant {
        now + PERIOD
    }

    fn open(&mut self, mail: ControlMessage, now: Instant) {
        match mail {
            ControlMessage::Tenancy(ask) => self.answer(ask, now),
            ControlMessage::Report(report) => {
                let Some(report) = self.commands.hear(report) else { return };
                if self.reports.len() == REPORTS_MAX {
                    self.reports.pop_front();
                }
                self.reports.push_back(report);
            }
        }
    }

    fn answer(&mut self, ask: TenancyRequest, now: Instant) {
        let TenancyRequest { worker, conn, tag, handle, asker, wish } = ask;
        let answer = decide(&mut self.tenants.registry(), asker, wish, now);
        self.outgoing[usize::from(worker)].push_back(WorkerMessage::Answer {
            conn,
            tag,
            handle,
            answer,
        });
    }

    /// Returns memory to the system if many connections have closed.
    fn save_memory(&mut self, now: Instant) {
        let Some(give_back) = &self.machine.give_back else { return };
        if self.memory_trim.look(self.commands.connection_count() as u32, now) {
            give_back();
        }
    }

    /// Does the periodic work: frees the numbers of tenants that have left, ends windows, sends
    /// notices, ends clients' tenants. Returns `true` if a message was sent to workers.
    fn housekeep(&mut self, now: Instant) -> bool {
        let mut registry = self.tenants.registry();
        let mut tells: Vec<WorkerMessage> = Vec::new();
        let window_ends = registry.activity().age(now) >= WINDOW;
        if window_ends || registry.is_observation_due(now) {
            for (worker, account) in &mut self.machine.accounts {
                let Some(waited) = account() else { continue };
                registry.meters(*worker).worker.set_waited(waited);
            }
        }
        registry.observe(now);
        let mut strain = 0.0;
        if window_ends {
            registry.measure(now);
            tells.extend(notices(&mut registry, now));
            end_orphans(&mut registry, now);
            // More workers help nobody whose workers wait for processors.
            strain =
                if registry.activity().starvation().is_some() { 0.0 } else { strain_of(&registry) };
        }
        tells.extend(registry.take_news());
        registry.settle(now);
        drop(registry);
        if window_ends {
            self.commands.look(now, strain);
            self.save_memory(now);
        }
        for (worker, outgoing) in self.outgoing.iter_mut().enumerate() {
            for tell in &tells {
                match tell {
                    WorkerMessage::Renegotiate { .. } => drop(self.mail.tell(worker, tell.clone())),
                    _ => outgoing.push_back(tell.clone()),
                }
            }
        }
        !tells.is_empty()
    }
}

/// Returns the highest latency in the last window of a latency-critical tenant, relative to its
/// bound: 1 is exactly the bound. Tenants that wait for their own tokens do not count: they demand
/// too much, and more workers would not help.
fn strain_of(registry: &TenantRegistry) -> f64 {
    let of = |entry: &Entry| {
        let measured = &entry.window.measured;
        let waits = measured.throttled >= NOTICE_SHARE;
        let slo = entry.promise.slo().filter(|_| entry.state == State::Active && !waits);
        let tail = slo.zip(measured.slo_percentile_us);
        tail.map_or(0.0, |(slo, us)| us / f64::from(slo.latency_us))
    };
    registry.tenants.iter().map(|(_, entry)| of(entry)).fold(0.0, f64::max)
}

/// Returns messages with a notice for each tenant whose requests waited for tokens for at least
/// [`NOTICE_SHARE`] of the last window, at most one in [`NOTICE_PERIOD`].
fn notices(registry: &mut TenantRegistry, now: Instant) -> Vec<WorkerMessage> {
    let mut tells = Vec::new();
    for tenant in registry.tenants.numbers() {
        let member = registry.tenants.member(tenant);
        let Some(entry) = registry.tenants.get_mut(tenant).filter(|entry| entry.is_active()) else {
            continue;
        };
        let measured = &entry.window.measured;
        let recent = entry.noticed_at.is_some_and(|at| now.since(at) < NOTICE_PERIOD);
        if measured.throttled < NOTICE_SHARE || recent {
            continue;
        }
        entry.noticed_at = Some(now);
        let (iops, read_percent) = (measured.iops, measured.read_percent.unwrap_or(0.0));
        let slo = entry.promise.slo();
        tracing::warn!(
            tenant = entry.name,
            iops = iops.round(),
            read_percent = read_percent.round(),
            promised_iops = slo.map_or(0, |slo| slo.iops),
            promised_read_percent = slo.map_or(0, |slo| slo.read_percent),
            "exceeds its SLO"
        );
        tells.push(WorkerMessage::Renegotiate {
            member,
            iops: iops.round() as u32,
            read_percent: read_percent.round() as u8,
        });
    }
    tells
}

/// Ends clients' tenants on which no connection has held a handle for [`GRACE`].
fn end_orphans(registry: &mut TenantRegistry, now: Instant) {
    for tenant in registry.tenants.numbers() {
        let Some(entry) = registry.tenants.get_mut(tenant) else { continue };
        let of_client = matches!(entry.origin, Origin::Client(_)) && entry.is_active();
        if !of_client || registry.meters.connections(tenant) > 0 {
            entry.alone_since = None;
            continue;
        }
        let since = *entry.alone_since.get_or_insert(now);
        if now.since(since) >= GRACE {
            tracing::info!(tenant = entry.name, "ended: no connection holds a handle on it");
            registry.dismiss(tenant, now);
        }
    }
}

/// Carries out a connection's request and returns the answer.
fn decide(
    registry: &mut TenantRegistry,
    asker: TenantId,
    wish: TenancyOperation,
    now: Instant,
) -> TenancyAnswer {
    match wish {
        TenancyOperation::Register { name, slo, device } => {
            register(registry, asker, &name, slo.into(), usize::from(device), now)
        }
        TenancyOperation::Enter { name } => match registry.find(&name) {
            Some(tenant) if registry.tenants.entry(tenant).origin == Origin::Operator => {
                admitted(registry, tenant)
            }
            _ => TenancyAnswer::bare(Status::Denied),
        },
        TenancyOperation::Change { member, slo } => {
            if !is_current(registry, member) {
                return TenancyAnswer::bare(Status::NoTenant);
            }
            if !may_change(registry, asker, member.tenant) {
                return TenancyAnswer::bare(Status::Denied);
            }
            match registry.change_of(member.tenant, slo.into(), None, now) {
                Ok(admission) => admitted(registry, admission.tenant),
                Err(refusal) => refused(registry, &refusal),
            }
        }
        TenancyOperation::Unregister { member } => {
            let of_client = |registry: &TenantRegistry| {
                matches!(registry.tenants.entry(member.tenant).origin, Origin::Client(_))
                    && !registry.is_being_told(member.tenant)
                    && registry.meters.connections(member.tenant) == 0
            };
            if is_current(registry, member) && of_client(registry) {
                registry.dismiss(member.tenant, now);
            }
            TenancyAnswer::bare(Status::Ok)
        }
    }
}

fn register(
    registry: &mut TenantRegistry,
    asker: TenantId,
    name: &str,
    promise: Promise,
    device: usize,
    now: Instant,
) -> TenancyAnswer {
    if let Some(tenant) = registry.find(name) {
        return match may_change(registry, asker, tenant) {
            true => {
                registry.tenants.entry_mut(tenant).alone_since = None;
                admitted(registry, tenant)
            }
            false => TenancyAnswer::bare(Status::Denied),
        };
    }
    match registry.register_on(name, promise, device, Origin::Client(asker), now) {
        Ok(admission) => {
            tracing::info!(
                tenant = name,
                tokens = admission.tokens_needed,
                "registered by a client"
            );
            admitted(registry, admission.tenant)
        }
        Err(refusal) => {
            tracing::info!(tenant = name, %refusal, "a client's tenant was refused");
            refused(registry, &refusal)
        }
    }
}

/// Returns `true` if a member is the current tenant of its number, and not leaving.
fn is_current(registry: &TenantRegistry, member: Member) -> bool {
    registry.tenants.current(member).is_some()
}

/// Returns `true` if connections of `asker` may share and change `tenant`: itself, unless it is the
/// default tenant, and the tenants that it made.
fn may_change(registry: &TenantRegistry, asker: TenantId, tenant: TenantId) -> bool {
    let is_own = asker == tenant && tenant != TenantId::DEFAULT;
    is_own || registry.tenants.entry(tenant).origin == Origin::Client(asker)
}

/// Returns the answer to a connection that may get a handle on a tenant.
fn admitted(registry: &mut TenantRegistry, tenant: TenantId) -> TenancyAnswer {
    let entry = registry.tenants.entry_mut(tenant);
    entry.answers = entry.answers.wrapping_add(1);
    let tokens_needed = entry.tokens_needed;
    TenancyAnswer {
        status: Status::Ok,
        member: Some(registry.tenants.member(tenant)),
        tokens_needed,
        tokens_free: registry.tokens_left(tenant).unwrap_or(0),
        limited_by: LimitedBy::Nobody,
        limit_latency_us: 0,
    }
}

fn refused(registry: &TenantRegistry, refusal: &Refusal) -> TenancyAnswer {
    let bare = |status| TenancyAnswer::bare(status);
    match refusal {
        Refusal::Invalid(_) => bare(Status::Invalid),
        Refusal::NoTenant { .. } => bare(Status::NoTenant),
        Refusal::Taken(_) | Refusal::InUse { .. } | Refusal::DeviceInUse { .. } => {
            bare(Status::Denied)
        }
        Refusal::NoModel { .. } | Refusal::NotMeasured { .. } | Refusal::NoDevice { .. } => {
            bare(Status::Unsupported)
        }
        Refusal::TableFull { .. } | Refusal::TooMany { .. } => bare(Status::NoResources),
        Refusal::Upgrading => bare(Status::Retry),
        Refusal::TooTight { latency_us, .. } => TenancyAnswer {
            limited_by: LimitedBy::ThisSlo,
            limit_latency_us: *latency_us,
            ..bare(Status::NoResources)
        },
        Refusal::TooMuch { tokens_needed, tokens_available, latency_us, limited_by, .. } => {
            let tenant = limited_by.as_deref().and_then(|name| registry.find(name));
            TenancyAnswer {
                tokens_needed: *tokens_needed,
                tokens_free: *tokens_available,
                limited_by: tenant.map_or(LimitedBy::ThisSlo, LimitedBy::Tenant),
                limit_latency_us: *latency_us,
                ..bare(Status::NoResources)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::{DeviceSetup, Switches};
    use contract::{ConnId, Mailbox, Slo};
    use qos::DeviceModel;

    const CONN: ConnId = ConnId { index: 3, generation: 1 };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn slo(latency_us: u32, iops: u32) -> Option<Slo> {
        (latency_us > 0).then(|| Slo::new(latency_us, iops, 100))
    }

    fn controller() -> (WorkerController, WorkerMailbox) {
        let model = Some(DeviceModel::device_a());
        let device = DeviceSetup { name: "disk".to_owned(), model, switches: Switches::default() };
        let tenants = Tenants::new(vec![device], 1, 8, Arc::new(|| Instant::ZERO));
        let (controller, mut boxes) = WorkerController::new(tenants, 1);
        (controller, boxes.pop().unwrap())
    }

    /// Sends a request, and takes the answer.
    fn ask(
        controller: &mut WorkerController,
        worker: &mut WorkerMailbox,
        asker: u32,
        wish: TenancyOperation,
        now: Instant,
    ) -> TenancyAnswer {
        let asker = TenantId(asker);
        assert!(worker.ask(TenancyRequest {
            worker: 0,
            conn: CONN,
            tag: 9,
            handle: 0,
            asker,
            wish
        }));
        assert!(controller.serve(now));
        match worker.poll() {
            Some(WorkerMessage::Answer { conn: CONN, tag: 9, answer, .. }) => {
                if let Some(member) = answer.member {
                    controller.tenants.meters(0).get(member.tenant).unwrap().note_answer();
                }
                answer
            }
            other => panic!("{other:?}"),
        }
    }

    fn register(name: &str, slo: Option<Slo>) -> TenancyOperation {
        TenancyOperation::Register { name: name.into(), slo, device: 0 }
    }

    #[test]
    fn strangers_cannot_share_or_change() {
        let (mut controller, mut worker) = controller();
        let mut ask = |asker, wish| ask(&mut controller, &mut worker, asker, wish, at(0));
        let first = ask(0, register("a", slo(500, 1_000)));
        assert_eq!((first.status, first.tokens_needed), (Status::Ok, 1_000));
        assert_eq!(ask(0, register("a", slo(0, 0))), first, "the first one's SLO stands");
        assert_eq!(ask(5, register("a", slo(0, 0))).status, Status::Denied);
        let member = first.member.unwrap();
        let change = || TenancyOperation::Change { member, slo: slo(500, 2_000) };
        assert_eq!(ask(5, change()).status, Status::Denied);
        assert_eq!(ask(0, change()).tokens_needed, 2_000);
        let much = ask(5, register("b", slo(2_000, 500_000)));
        assert_eq!((much.status, much.tokens_free), (Status::NoResources, 418_000));
        assert_eq!(much.limited_by, LimitedBy::Tenant(member.tenant));
    }

    #[test]
    fn a_tenant_stays_while_somebody_is_being_told_of_it() {
        let (mut controller, mut worker) = controller();
        let given = ask(&mut controller, &mut worker, 0, register("a", slo(500, 1)), at(0));
        let member = given.member.unwrap();
        let meters = controller.tenants.meters(0);
        let meter = meters.get(member.tenant).unwrap();
        meter.join();
        let wish = register("a", slo(0, 0));
        let second =
            TenancyRequest { worker: 0, conn: CONN, tag: 10, handle: 0, asker: TenantId(0), wish };
        assert!(worker.ask(second) && controller.serve(at(0)));
        // The worker has not processed that answer when the first handle ends.
        meter.leave();
        let wish = TenancyOperation::Unregister { member };
        let last =
            TenancyRequest { worker: 0, conn: CONN, tag: 11, handle: 1, asker: TenantId(0), wish };
        assert!(worker.ask(last) && controller.serve(at(0)));
        assert_eq!(controller.tenants.find("a"), Some(member.tenant));
        assert!(matches!(worker.poll(), Some(WorkerMessage::Answer { tag: 10, .. })));
        meter.note_answer();
        assert!(matches!(worker.poll(), Some(WorkerMessage::Answer { tag: 11, .. })));
        assert_eq!(worker.poll(), None, "nobody was told to leave");
        ask(&mut controller, &mut worker, 0, TenancyOperation::Unregister { member }, at(0));
        assert_eq!(controller.tenants.find("a"), None, "the second handle was given back, too");
    }

    #[test]
    fn a_worker_that_waits_for_a_processor_is_named_and_no_tenant_strains() {
        let (mut controller, _worker) = controller();
        let waited = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let read = waited.clone();
        let account = move || Some(Duration::from_millis(read.load(Ordering::Relaxed)));
        controller.set_account(0, Box::new(account));
        let tenants = controller.tenants.clone();
        let verdict =
            move || tenants.registry().activity().starvation().map(|found| found.to_string());
        controller.serve(at(1));
        assert_eq!(verdict(), None);
        waited.store(20, Ordering::Relaxed);
        controller.serve(at(2));
        assert_eq!(verdict(), None, "2 % of a second is nothing");
        waited.store(420, Ordering::Relaxed);
        controller.serve(at(3));
        let said = verdict().expect("it waited for 40 %");
        assert!(said.contains("worker 0 was ready to run and did not for 40 %"), "{said}");
        controller.serve(at(4));
        assert_eq!(verdict(), None, "it waits no more");
    }

    #[test]
    fn memory_is_given_back_when_a_flood_of_connections_has_gone() {
        let (mut controller, _worker) = controller();
        let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let given = count.clone();
        controller.set_give_back(Box::new(move || {
            given.fetch_add(1, Ordering::Relaxed);
        }));
        let meters = controller.tenants.meters(0);
        let mut serve = |connections, second| {
            meters.worker.set_connections(connections);
            controller.serve(at(second));
            count.load(Ordering::Relaxed)
        };
        assert_eq!([serve(2_000, 1), serve(2_000, 2), serve(5, 3)], [0; 3]);
        assert_eq!([serve(5, 4), serve(5, 5)], [1; 2]);
    }

    #[test]
    fn the_clients_of_a_tenant_leave_room_in_the_table() {
        let (mut controller, mut worker) = controller();
        let mut ask = |asker, name| {
            ask(&mut controller, &mut worker, asker, register(name, slo(0, 0)), at(0)).status
        };
        assert_eq!([ask(0, "a"), ask(0, "b")], [Status::Ok; 2]);
        assert_eq!(ask(0, "c"), Status::NoResources, "two of eight are a quarter");
        assert_eq!([ask(0, "a"), ask(5, "c")], [Status::Ok; 2]);
    }

    #[test]
    fn the_last_handle_ends_a_clients_tenant_and_so_does_time() {
        let (mut controller, mut worker) = controller();
        let meters = controller.tenants.meters(0);
        let given = ask(&mut controller, &mut worker, 0, register("a", slo(500, 1)), at(0));
        let member = given.member.unwrap();
        meters.get(member.tenant).unwrap().join();
        let unregister = || TenancyOperation::Unregister { member };
        ask(&mut controller, &mut worker, 0, unregister(), at(0));
        assert!(controller.tenants.find("a").is_some(), "somebody else holds a handle");
        meters.get(member.tenant).unwrap().leave();
        ask(&mut controller, &mut worker, 0, unregister(), at(0));
        assert_eq!(worker.poll(), Some(WorkerMessage::Leave { tenant: member.tenant }));
        assert_eq!(controller.tenants.find("a"), None);
        meters.get(member.tenant).unwrap().end_epoch();
        controller.serve(at(0));
        let again = ask(&mut controller, &mut worker, 0, register("a", slo(500, 1)), at(0));
        let next = again.member.unwrap();
        assert_eq!((next.tenant, next.epoch), (member.tenant, member.epoch + 1));
        controller.serve(at(9));
        assert!(controller.tenants.find("a").is_some());
        controller.serve(at(11));
        assert_eq!(controller.tenants.find("a"), None, "nobody held it for ten seconds");
    }
}
