//! Where the control plane meets the workers: it answers what they ask, tells them who leaves and
//! who must be given notice, and ends tenants that nobody holds.
//!
//! A desk does one piece of work at a time, when it is told to. On a server a thread of its own
//! does so; the simulated world takes it for one of its parties.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{
    Answer, Ask, Instant, LimitedBy, Member, Report, Slo, Status, Tell, TenantId, Wish,
};

use crate::book::{Book, Entry, Origin};
use crate::foreman::Foreman;
use crate::post::{Mail, Post, PostBox, Waited, Wake, posts};
use crate::tenants::Tenants;
use crate::words::{Refusal, State};

/// How long tenants are measured at a time.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Between two notices to a tenant at least.
pub const NOTICE_PERIOD: Duration = Duration::from_secs(10);

/// The share of a window in which a tenant's requests waited for tokens, from which on it is given
/// notice.
const NOTICE_SHARE: f64 = 0.5;

/// How long a tenant that clients made stays when no connection holds a handle on it.
pub const GRACE: Duration = Duration::from_secs(10);

/// Reports that are kept for whoever wants to know.
const REPORTS_MAX: usize = 1024;

/// How soon to look again whether leaving tenants have left, and at messages that did not fit.
const PERIOD: Duration = Duration::from_millis(50);

/// The control plane's desk.
#[derive(Debug)]
pub struct Desk {
    tenants: Tenants,
    post: Post,
    /// By worker: what its queue had no room for. Answers are as many as asks, and leaves as
    /// tenants; notices are dropped instead.
    outgoing: Vec<VecDeque<Tell>>,
    /// What workers have reported and nobody has taken, at most [`REPORTS_MAX`].
    reports: VecDeque<Report>,
    foreman: Foreman,
}

impl Desk {
    /// A desk for so many workers, and a mailbox for each.
    pub fn new(tenants: Tenants, workers: usize) -> (Desk, Vec<PostBox>) {
        let (post, boxes) = posts(workers);
        (Desk::at(tenants, post, workers), boxes)
    }

    /// The same, with a mailbox for the courier that connections go to and come from another process
    /// by: it has the number behind the last worker's.
    pub fn with_courier(tenants: Tenants, workers: usize) -> (Desk, Vec<PostBox>, PostBox) {
        let (post, mut boxes) = posts(workers + 1);
        let courier = boxes.pop().expect("there is one more");
        (Desk::at(tenants, post, workers), boxes, courier)
    }

    fn at(tenants: Tenants, post: Post, workers: usize) -> Desk {
        let outgoing = (0..workers).map(|_| VecDeque::new()).collect();
        let foreman = Foreman::new(tenants.clone(), post.ways(), workers);
        Desk { tenants, post, outgoing, reports: VecDeque::new(), foreman }
    }

    /// Who tells workers what operators want of them.
    pub fn foreman(&self) -> Foreman {
        self.foreman.clone()
    }

    /// How a worker, or the courier, is told that it has mail.
    pub fn set_wake(&mut self, worker: usize, wake: Wake) {
        self.post.set_wake(worker, wake);
    }

    /// Tells a worker to do something, with the next [`serve`](Desk::serve).
    pub fn order(&mut self, worker: usize, tell: Tell) {
        self.outgoing[worker].push_back(tell);
    }

    /// What workers have reported since this was asked last.
    pub fn take_reports(&mut self) -> impl Iterator<Item = Report> {
        self.reports.drain(..)
    }

    /// Works until there are no workers any more.
    pub fn run(mut self) {
        loop {
            match self.post.wait(PERIOD) {
                Waited::Came(mail) => self.open(mail, self.tenants.now()),
                Waited::Nothing => {}
                Waited::Deserted => return,
            }
            self.serve(self.tenants.now());
        }
    }

    /// Does everything that there is to do; whether there was something.
    pub fn serve(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(mail) = self.post.take() {
            self.open(mail, now);
            busy = true;
        }
        busy |= self.housekeep(now);
        for worker in 0..self.outgoing.len() {
            while let Some(tell) = self.outgoing[worker].pop_front() {
                if let Err(tell) = self.post.tell(worker, tell) {
                    self.outgoing[worker].push_front(tell);
                    break;
                }
                busy = true;
            }
        }
        busy
    }

    /// When it has something to do although nobody asks.
    pub fn wake_at(&self, now: Instant) -> Instant {
        now + PERIOD
    }

    fn open(&mut self, mail: Mail, now: Instant) {
        match mail {
            Mail::Ask(ask) => self.answer(ask, now),
            Mail::Report(report) => {
                let Some(report) = self.foreman.hear(report) else { return };
                if self.reports.len() == REPORTS_MAX {
                    self.reports.pop_front();
                }
                self.reports.push_back(report);
            }
        }
    }

    fn answer(&mut self, ask: Ask, now: Instant) {
        let Ask { worker, conn, tag, handle, asker, wish } = ask;
        let answer = decide(&mut self.tenants.book(), asker, wish, now);
        self.outgoing[usize::from(worker)].push_back(Tell::Answer { conn, tag, handle, answer });
    }

    /// What time brings: numbers become free, windows end, notices are due, clients' tenants end.
    fn housekeep(&mut self, now: Instant) -> bool {
        let mut book = self.tenants.book();
        let mut tells: Vec<Tell> = Vec::new();
        book.observe(now);
        let window_ends = book.window(now) >= WINDOW;
        let mut strain = 0.0;
        if window_ends {
            book.measure(now);
            tells.extend(notices(&mut book, now));
            end_orphans(&mut book, now);
            strain = strain_of(&book);
        }
        let leaves = book.leaves.drain(..).map(|tenant| Tell::Leave { tenant });
        tells.extend(leaves);
        tells.append(&mut book.places);
        book.settle(now);
        drop(book);
        if window_ends {
            self.foreman.look(now, strain);
        }
        for (worker, outgoing) in self.outgoing.iter_mut().enumerate() {
            for tell in &tells {
                match tell {
                    Tell::Renegotiate { .. } => drop(self.post.tell(worker, tell.clone())),
                    _ => outgoing.push_back(tell.clone()),
                }
            }
        }
        !tells.is_empty()
    }
}

/// How near the latency-critical tenant that is nearest to missing its latency was to that in the
/// last window: 1 is just so. Whoever waits for tokens of its own asks for too much, not the workers
/// for too little.
fn strain_of(book: &Book) -> f64 {
    let of = |entry: &Entry| {
        let measured = &entry.window.measured;
        let waits = measured.throttled >= NOTICE_SHARE;
        let counts = entry.state == State::Active && entry.slo.latency_us > 0 && !waits;
        let latency = measured.slo_percentile_us.filter(|_| counts);
        latency.map_or(0.0, |us| us / f64::from(entry.slo.latency_us))
    };
    book.entries.iter().flatten().map(of).fold(0.0, f64::max)
}

/// Notices to tenants whose requests waited for tokens for much of the last window.
fn notices(book: &mut Book, now: Instant) -> Vec<Tell> {
    let mut tells = Vec::new();
    for (n, (entry, epoch)) in book.entries.iter_mut().zip(&book.epochs).enumerate() {
        let Some(entry) = entry.as_mut().filter(|entry| entry.state == State::Active) else {
            continue;
        };
        let measured = &entry.window.measured;
        let recent = entry.noticed_at.is_some_and(|at| now.since(at) < NOTICE_PERIOD);
        if measured.throttled < NOTICE_SHARE || recent {
            continue;
        }
        entry.noticed_at = Some(now);
        let (iops, read_percent) = (measured.iops, measured.read_percent.unwrap_or(0.0));
        tracing::warn!(
            tenant = entry.name,
            iops = iops.round(),
            read_percent = read_percent.round(),
            promised_iops = entry.slo.iops,
            promised_read_percent = entry.slo.read_percent,
            "exceeds its SLO"
        );
        tells.push(Tell::Renegotiate {
            member: Member { tenant: TenantId(n as u32), epoch: *epoch },
            iops: iops.round() as u32,
            read_percent: read_percent.round() as u8,
        });
    }
    tells
}

/// Ends tenants of clients that no connection has held a handle on for long.
fn end_orphans(book: &mut Book, now: Instant) {
    for n in 0..book.entries.len() {
        let tenant = TenantId(n as u32);
        let alone = book.entries[n].is_some() && book.connections(tenant) == 0;
        let Some(entry) = &mut book.entries[n] else { continue };
        let of_client = matches!(entry.origin, Origin::Client(_)) && entry.state == State::Active;
        if !alone || !of_client {
            entry.alone_since = None;
            continue;
        }
        let since = *entry.alone_since.get_or_insert(now);
        if now.since(since) >= GRACE {
            tracing::info!(tenant = entry.name, "ended: no connection holds a handle on it");
            book.unregister_of(tenant, now);
        }
    }
}

/// What a connection's wish comes to.
fn decide(book: &mut Book, asker: TenantId, wish: Wish, now: Instant) -> Answer {
    match wish {
        Wish::Register { name, slo, device } => {
            register(book, asker, &name, &slo, usize::from(device), now)
        }
        Wish::Enter { name } => match book.find(&name) {
            Some(tenant) if book.entry(tenant).origin == Origin::Operator => admitted(book, tenant),
            _ => Answer::bare(Status::Denied),
        },
        Wish::Change { member, slo } => {
            if !is_current(book, member) {
                return Answer::bare(Status::NoTenant);
            }
            if !may_change(book, asker, member.tenant) {
                return Answer::bare(Status::Denied);
            }
            match book.change_of(member.tenant, &slo, now) {
                Ok(admission) => admitted(book, admission.tenant),
                Err(refusal) => refused(book, &refusal),
            }
        }
        Wish::Unregister { member } => {
            let of_client = |book: &Book| {
                matches!(book.entry(member.tenant).origin, Origin::Client(_))
                    && !book.is_being_told(member.tenant)
                    && book.connections(member.tenant) == 0
            };
            if is_current(book, member) && of_client(book) {
                book.unregister_of(member.tenant, now);
            }
            Answer::bare(Status::Ok)
        }
    }
}

fn register(
    book: &mut Book,
    asker: TenantId,
    name: &str,
    slo: &Slo,
    device: usize,
    now: Instant,
) -> Answer {
    if let Some(tenant) = book.find(name) {
        return match may_change(book, asker, tenant) {
            true => {
                book.entry_mut(tenant).alone_since = None;
                admitted(book, tenant)
            }
            false => Answer::bare(Status::Denied),
        };
    }
    match book.register_on(name, slo, device, Origin::Client(asker), now) {
        Ok(admission) => {
            tracing::info!(
                tenant = name,
                tokens = admission.tokens_needed,
                "registered by a client"
            );
            admitted(book, admission.tenant)
        }
        Err(refusal) => {
            tracing::info!(tenant = name, %refusal, "a client's tenant was refused");
            refused(book, &refusal)
        }
    }
}

/// Whether a member is the tenant that has the number now, and not leaving.
fn is_current(book: &Book, member: Member) -> bool {
    let n = member.tenant.0 as usize;
    let entry = book.entries[n].as_ref();
    book.epochs[n] == member.epoch && entry.is_some_and(|entry| entry.state == State::Active)
}

/// Whether connections of a tenant may share and change another: itself, unless it is everybody's,
/// and what it made.
fn may_change(book: &Book, asker: TenantId, tenant: TenantId) -> bool {
    let is_own = asker == tenant && tenant != TenantId::DEFAULT;
    is_own || book.entry(tenant).origin == Origin::Client(asker)
}

/// The answer to whoever may have a handle on a tenant.
fn admitted(book: &mut Book, tenant: TenantId) -> Answer {
    let entry = book.entry_mut(tenant);
    entry.answers = entry.answers.wrapping_add(1);
    let entry = book.entry(tenant);
    Answer {
        status: Status::Ok,
        member: Some(Member { tenant, epoch: book.epochs[tenant.0 as usize] }),
        tokens_needed: entry.tokens_needed,
        tokens_free: book.tokens_left(entry.device).unwrap_or(0),
        limited_by: LimitedBy::Nobody,
        limit_latency_us: 0,
    }
}

fn refused(book: &Book, refusal: &Refusal) -> Answer {
    let bare = |status| Answer::bare(status);
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
        Refusal::TooTight { latency_us, .. } => Answer {
            limited_by: LimitedBy::ThisSlo,
            limit_latency_us: *latency_us,
            ..bare(Status::NoResources)
        },
        Refusal::TooMuch { tokens_needed, tokens_available, latency_us, limited_by, .. } => {
            let tenant = limited_by.as_deref().and_then(|name| book.find(name));
            Answer {
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

    use super::*;
    use crate::book::{DeviceSetup, Switches};
    use contract::{ConnId, Mailbox};
    use qos::DeviceModel;

    const CONN: ConnId = ConnId { index: 3, generation: 1 };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn slo(latency_us: u32, iops: u32) -> Slo {
        Slo { latency_us, iops, read_percent: 100, ..Slo::default() }
    }

    fn desk() -> (Desk, PostBox) {
        let model = Some(DeviceModel::device_a());
        let device = DeviceSetup { name: "disk".to_owned(), model, switches: Switches::default() };
        let tenants = Tenants::new(vec![device], 1, 8, Arc::new(|| Instant::ZERO));
        let (desk, mut boxes) = Desk::new(tenants, 1);
        (desk, boxes.pop().unwrap())
    }

    /// Asks, and takes the answer.
    fn ask(desk: &mut Desk, worker: &mut PostBox, asker: u32, wish: Wish, now: Instant) -> Answer {
        let asker = TenantId(asker);
        assert!(worker.ask(Ask { worker: 0, conn: CONN, tag: 9, handle: 0, asker, wish }));
        assert!(desk.serve(now));
        match worker.poll() {
            Some(Tell::Answer { conn: CONN, tag: 9, answer, .. }) => {
                if let Some(member) = answer.member {
                    desk.tenants.meters(0).get(member.tenant).unwrap().note_answer();
                }
                answer
            }
            other => panic!("{other:?}"),
        }
    }

    fn register(name: &str, slo: Slo) -> Wish {
        Wish::Register { name: name.into(), slo, device: 0 }
    }

    #[test]
    fn strangers_cannot_share_or_change() {
        let (mut desk, mut worker) = desk();
        let mut ask = |asker, wish| ask(&mut desk, &mut worker, asker, wish, at(0));
        let first = ask(0, register("a", slo(500, 1_000)));
        assert_eq!((first.status, first.tokens_needed), (Status::Ok, 1_000));
        assert_eq!(ask(0, register("a", slo(0, 0))), first, "the first one's SLO stands");
        assert_eq!(ask(5, register("a", slo(0, 0))).status, Status::Denied);
        let member = first.member.unwrap();
        let change = || Wish::Change { member, slo: slo(500, 2_000) };
        assert_eq!(ask(5, change()).status, Status::Denied);
        assert_eq!(ask(0, change()).tokens_needed, 2_000);
        let much = ask(5, register("b", slo(2_000, 500_000)));
        assert_eq!((much.status, much.tokens_free), (Status::NoResources, 418_000));
        assert_eq!(much.limited_by, LimitedBy::Tenant(member.tenant));
    }

    #[test]
    fn a_tenant_stays_while_somebody_is_being_told_of_it() {
        let (mut desk, mut worker) = desk();
        let given = ask(&mut desk, &mut worker, 0, register("a", slo(500, 1)), at(0));
        let member = given.member.unwrap();
        let meters = desk.tenants.meters(0);
        let meter = meters.get(member.tenant).unwrap();
        meter.join();
        let wish = register("a", slo(0, 0));
        let second = Ask { worker: 0, conn: CONN, tag: 10, handle: 0, asker: TenantId(0), wish };
        assert!(worker.ask(second) && desk.serve(at(0)));
        // The worker has not looked at that answer when the first handle goes.
        meter.leave();
        let wish = Wish::Unregister { member };
        let last = Ask { worker: 0, conn: CONN, tag: 11, handle: 1, asker: TenantId(0), wish };
        assert!(worker.ask(last) && desk.serve(at(0)));
        assert_eq!(desk.tenants.find("a"), Some(member.tenant));
        assert!(matches!(worker.poll(), Some(Tell::Answer { tag: 10, .. })));
        meter.note_answer();
        assert!(matches!(worker.poll(), Some(Tell::Answer { tag: 11, .. })));
        assert_eq!(worker.poll(), None, "nobody was told to leave");
        ask(&mut desk, &mut worker, 0, Wish::Unregister { member }, at(0));
        assert_eq!(desk.tenants.find("a"), None, "the second handle was given back, too");
    }

    #[test]
    fn the_clients_of_a_tenant_leave_room_in_the_table() {
        let (mut desk, mut worker) = desk();
        let mut ask = |asker, name| {
            ask(&mut desk, &mut worker, asker, register(name, slo(0, 0)), at(0)).status
        };
        assert_eq!([ask(0, "a"), ask(0, "b")], [Status::Ok; 2]);
        assert_eq!(ask(0, "c"), Status::NoResources, "two of eight are a quarter");
        assert_eq!([ask(0, "a"), ask(5, "c")], [Status::Ok; 2]);
    }

    #[test]
    fn the_last_handle_ends_a_clients_tenant_and_so_does_time() {
        let (mut desk, mut worker) = desk();
        let meters = desk.tenants.meters(0);
        let given = ask(&mut desk, &mut worker, 0, register("a", slo(500, 1)), at(0));
        let member = given.member.unwrap();
        meters.get(member.tenant).unwrap().join();
        let unregister = || Wish::Unregister { member };
        ask(&mut desk, &mut worker, 0, unregister(), at(0));
        assert!(desk.tenants.find("a").is_some(), "somebody else holds a handle");
        meters.get(member.tenant).unwrap().leave();
        ask(&mut desk, &mut worker, 0, unregister(), at(0));
        assert_eq!(worker.poll(), Some(Tell::Leave { tenant: member.tenant }));
        assert_eq!(desk.tenants.find("a"), None);
        meters.get(member.tenant).unwrap().end_epoch();
        desk.serve(at(0));
        let again = ask(&mut desk, &mut worker, 0, register("a", slo(500, 1)), at(0));
        let next = again.member.unwrap();
        assert_eq!((next.tenant, next.epoch), (member.tenant, member.epoch + 1));
        desk.serve(at(9));
        assert!(desk.tenants.find("a").is_some());
        desk.serve(at(11));
        assert_eq!(desk.tenants.find("a"), None, "nobody held it for ten seconds");
    }
}
