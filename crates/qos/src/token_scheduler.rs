//! The paper's QoS scheduler (Algorithm 1): whose request is submitted next.
//!
//! This file is the *order*: queues, rings, and the walk of a round. The *rates* (who gets which
//! tokens, gives away and lends) are in `rates.rs`; I/O is the worker's. A round visits tenants with
//! demand only; what the others would get is in the idle pools (`idle_pool.rs`). docs/scheduler.md
//! has the derivation and what differs from the published code.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use core::cmp::Reverse;
use core::num::NonZeroU64;
use core::time::Duration;

use contract::{Instant, Kind, QueueFull, Scheduler, Slot, TenantId, Tokens};

use crate::cost_model::{Line, Priced};
use crate::requests::{Paid, Queue, Requests};
use crate::ring::{Links, Ring};
use crate::rounds::Turn;
use crate::run::Run;
use crate::shared::{Prices, Shared};
use crate::tenant::Terms;
use crate::units::{ROUND_NANOS_MAX, nano};
use crate::{Class, CostModel, Load};

/// The shortest time that a worker with waiting requests is told to sleep, in nanoseconds: a round
/// sooner than that finds nothing new (paper, section 3.2.2: rounds of 0.5 to 100 µs).
const WAKE_NANOS_MIN: u64 = 1_000;

/// How much a worker's scheduler holds.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Requests waiting in all: slots that are enqueued have an index below this.
    pub slots: usize,
    /// Requests waiting of one tenant; the next is answered with [`contract::Status::Retry`]. As many
    /// as `slots` for tenants of protocol version 1, which cannot be told: their connections end.
    pub of_tenant: u32,
}

/// What became of all tokens that this worker made, in nano-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Made, for tenants or for the bucket.
    pub generated: i128,
    /// Paid for requests.
    pub spent: i128,
    /// Put into the bucket: what tenants have no use for, and what is made for idle ones.
    pub donated: i128,
    /// Taken out of the bucket: what tenants lack, and what those spend that go the short way.
    pub borrowed: i128,
    /// Thrown away when the bucket was emptied.
    pub expired: i128,
}

impl From<Totals> for Tokens {
    fn from(totals: Totals) -> Tokens {
        let Totals { generated, spent, donated, borrowed, expired } = totals;
        let [generated, spent, donated, borrowed, expired] =
            [generated, spent, donated, borrowed, expired].map(|nanos| nanos as u64);
        Tokens { generated, spent, donated, borrowed, expired }
    }
}

/// Where a tenant stands on this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The worker does not hold it.
    Away,
    /// It has a request; the next round begins with holding it.
    Newcomer,
    /// In the ring of latency-critical tenants.
    Critical,
    /// In the ring of best-effort tenants.
    BestEffort,
    /// Held, without demand: it is due when its balance would be full.
    Resting,
}

/// One worker's part of a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) queue: Queue,
    pub(crate) place: Place,
    /// Whether the heap has an entry of it (perhaps an old one).
    pub(crate) has_due: bool,
}

/// What a round is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing: the next round has not begun.
    Over,
    /// What went the short way goes to the device.
    Express,
    /// Algorithm 1, lines 4 to 12.
    Critical,
    /// Lines 13 to 21.
    BestEffort,
    /// Lines 15 to 18 once more, when tenants donated after others had found the bucket empty.
    Again,
    /// Without best-effort tenants, what is left serves latency-critical ones.
    Leftovers,
}

/// The tenant that is being visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) tenant: u32,
    /// Tenants of the ring that are still to be visited, this one included.
    left: u32,
    /// The first of the round.
    pub(crate) first: u32,
    /// Whether the round was of use to the first one.
    pub(crate) turn_used: bool,
    /// Its terms, once it was opened.
    pub(crate) terms: Option<Terms>,
    /// What bounds it, if anything, while it is best effort.
    pub(crate) cap: Option<NonZeroU64>,
    /// Its requests that are paid, but not submitted yet.
    paid: Paid,
    /// What it has paid for.
    spent: Priced,
}

/// One worker's scheduler for one device.
#[derive(Debug)]
pub struct TokenScheduler {
    pub(crate) shared: Arc<Shared>,
    cost: CostModel,
    /// Those of `cost` that may change.
    prices: Prices,
    worker: usize,
    of_tenant: u32,
    /// The latest time that was ever passed in, in nanoseconds.
    pub(crate) now: u64,
    started: bool,
    /// Times between the last rounds, clamped.
    last_rounds: [u64; 3],
    pub(crate) locals: Box<[Local]>,
    pub(crate) requests: Requests,
    /// The last requests that were queued, if they are alike: their queue knows of the first.
    run: Run,
    /// The last run had more than its first request: the first of a queue begins one.
    expects_runs: bool,
    /// Requests that are paid, and that no round had room for yet.
    pub(crate) ready: Paid,
    pub(crate) links: Links,
    pub(crate) critical: Ring,
    pub(crate) best_effort: Ring,
    /// The first `coming` are the tenants that have a request since the last round and had none
    /// before, each once.
    pub(crate) newcomers: Box<[u32]>,
    pub(crate) coming: usize,
    /// How many of them the last round served the short way.
    pub(crate) short: u32,
    /// Resting tenants by the time at which their balances would be full.
    pub(crate) dues: BinaryHeap<Reverse<(u64, u32)>>,
    /// Requests that wait, but for those that the visit has paid for and those of the run.
    queued: usize,
    pub(crate) phase: Phase,
    pub(crate) visit: Visit,
    /// What the device serves, in this round.
    pub(crate) load: Load,
    /// Units a second of a best-effort tenant for each of its weight, in this round.
    pub(crate) share: u64,
    /// What best effort is to pay back in this round, of [`lendable`](Self::lendable).
    pub(crate) due: i64,
    /// Until the first of the blocked tenants can submit, in nanoseconds.
    pub(crate) wait: u64,
    /// Submitted in this round, and units paid for it.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) spent: u64,
    /// Whether delays are recorded, in this round.
    measuring: bool,
    /// Whether requests that would miss their latency are refused, in this round.
    failing_fast: bool,
    /// Requests of this worker that should be at the device at a time, in this round.
    depth_max: usize,
    pub(crate) totals: Totals,
}

const NOBODY: Visit = Visit {
    tenant: 0,
    left: 0,
    first: 0,
    turn_used: false,
    terms: None,
    cap: None,
    paid: Paid::NONE,
    spent: Priced::NOTHING,
};

impl TokenScheduler {
    /// The scheduler of worker `worker` (below [`WORKERS_MAX`](crate::WORKERS_MAX)) for the device
    /// that `shared` is of; requests cost what `cost` says.
    pub fn new(
        shared: Arc<Shared>,
        cost: CostModel,
        worker: usize,
        limits: QueueLimits,
    ) -> TokenScheduler {
        assert!(worker < crate::WORKERS_MAX, "worker {worker} of at most {}", crate::WORKERS_MAX);
        assert!(limits.of_tenant > 0, "a tenant may have a request waiting");
        let tenants = shared.tenants.len();
        let away = Local { queue: Queue::EMPTY, place: Place::Away, has_due: false };
        TokenScheduler {
            shared,
            prices: Prices::of(&cost),
            cost,
            worker,
            of_tenant: limits.of_tenant,
            now: 0,
            started: false,
            last_rounds: [0; 3],
            locals: alloc::vec![away; tenants].into(),
            requests: Requests::new(limits.slots),
            run: Run::OVER,
            expects_runs: false,
            ready: Paid::NONE,
            links: Links::new(tenants),
            critical: Ring::EMPTY,
            best_effort: Ring::EMPTY,
            newcomers: alloc::vec![0; tenants].into(),
            coming: 0,
            short: 0,
            dues: BinaryHeap::with_capacity(tenants),
            queued: 0,
            phase: Phase::Over,
            visit: NOBODY,
            load: Load::Mixed,
            share: 0,
            due: 0,
            wait: u64::MAX,
            reads: 0,
            writes: 0,
            spent: 0,
            measuring: false,
            failing_fast: false,
            depth_max: usize::MAX,
            totals: Totals::default(),
        }
    }

    /// What became of the tokens that this worker made.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Requests of one tenant that wait here.
    pub fn queued_of(&self, tenant: TenantId) -> u32 {
        let visited = self.visit.tenant == tenant.0 && self.phase != Phase::Express;
        let paid = if visited { self.visit.paid.left } else { 0 };
        let run = if self.run.tenant == tenant.0 { self.run.len() } else { 0 };
        paid + run + self.locals.get(tenant.0 as usize).map_or(0, |local| local.queue.len)
    }

    /// Tenants that the next round visits.
    pub fn active(&self) -> u32 {
        self.critical.len + self.best_effort.len
    }

    /// Tenants that the round that was begun last serves without visiting them, the short way.
    pub fn short(&self) -> u32 {
        self.short
    }

    /// Nanoseconds that the last three rounds took together (Algorithm 1's POS_LIMIT is what they
    /// made).
    pub(crate) fn three_rounds(&self) -> u64 {
        self.last_rounds.iter().sum()
    }

    /// Nanoseconds that the last round took.
    pub(crate) fn last_round(&self) -> u64 {
        self.last_rounds[0]
    }

    /// Moves the clock: backwards counts as standing still.
    fn tick(&mut self, now: Instant) {
        let now = now.as_nanos().max(self.now);
        let passed = if self.started { now - self.now } else { 0 };
        self.started = true;
        self.now = now;
        self.last_rounds.rotate_right(1);
        self.last_rounds[0] = passed.min(ROUND_NANOS_MAX);
    }

    /// Puts a held tenant into the ring of its class.
    pub(crate) fn enter(&mut self, tenant: u32, class: Class) {
        let critical = class == Class::LatencyCritical;
        let ring = if critical { &mut self.critical } else { &mut self.best_effort };
        ring.push(&mut self.links, tenant);
        let place = if critical { Place::Critical } else { Place::BestEffort };
        self.locals[tenant as usize].place = place;
    }

    /// Takes a tenant out of the ring that it is in.
    pub(crate) fn exit(&mut self, tenant: u32, to: Place) {
        let local = &mut self.locals[tenant as usize];
        let ring = match local.place {
            Place::Critical => &mut self.critical,
            Place::BestEffort => &mut self.best_effort,
            place => panic!("tenant {tenant} is in no ring but {place:?}"),
        };
        ring.remove(&mut self.links, tenant);
        local.place = to;
    }

    fn ring(&mut self) -> &mut Ring {
        match self.phase {
            Phase::BestEffort | Phase::Again => &mut self.best_effort,
            Phase::Critical | Phase::Leftovers | Phase::Express | Phase::Over => &mut self.critical,
        }
    }

    fn start(&mut self, phase: Phase) {
        self.phase = phase;
        let ring = *self.ring();
        let first = ring.head().unwrap_or(0);
        // The bucket is all that its first one may get before others.
        let turn_used = phase == Phase::Critical;
        if phase == Phase::BestEffort {
            self.due = self.shared.loan.owed().min(self.lendable());
        }
        self.visit = Visit { tenant: first, first, left: ring.len, turn_used, ..NOBODY };
    }

    /// Every tenant of the phase was visited: its ring starts with the next one in the next round,
    /// if being first was of use to this one.
    fn end_phase(&mut self) {
        if self.phase == Phase::Express {
            return self.start(Phase::Critical);
        }
        let Visit { first, turn_used, .. } = self.visit;
        if turn_used && self.ring().head() == Some(first) {
            let second = self.links.behind(first);
            self.ring().start_at(second);
        }
        let waiting = self.best_effort.len > 0;
        match self.phase {
            Phase::Critical => self.start(Phase::BestEffort),
            Phase::BestEffort if waiting && self.shared.bucket.held() > 0 => {
                self.start(Phase::Again);
            }
            Phase::BestEffort if self.shared.best_effort() == 0 => self.start(Phase::Leftovers),
            _ => self.end_round(),
        }
    }

    /// Other prices count from this round on, also for what waits already.
    #[cold]
    fn reprice(&mut self, prices: Prices) {
        self.prices = prices;
        self.cost.set_write(prices.write);
        self.cost.set_read_only_read(prices.read_only_read);
        for local in self.locals.iter_mut().filter(|local| local.queue.len > 0) {
            self.requests.reprice(&mut local.queue, &self.cost);
        }
    }

    /// The worker has had its round (lines 22 and 23). With nothing left to do it leaves the round
    /// set, so that it may sleep at nobody's cost.
    fn end_round(&mut self) {
        self.phase = Phase::Over;
        let now = Instant::from_nanos(self.now);
        self.shared.read_ratio.record(now, self.reads, self.writes);
        if self.measuring {
            self.shared.delays.count(self.worker, self.reads, self.writes, self.spent);
        }
        (self.reads, self.writes, self.spent) = (0, 0, 0);
        let turn = self.shared.rounds.mark(self.worker);
        self.expire(turn);
        if self.queued == 0 {
            let turn = self.shared.rounds.leave(self.worker);
            self.expire(turn);
        }
    }

    fn expire(&mut self, turn: Turn) {
        let expired = match turn {
            Turn::Running => 0,
            Turn::Over => self.shared.bucket.age(),
            Turn::Alone => self.shared.bucket.empty(),
        };
        self.totals.expired += i128::from(expired);
    }

    /// The device had no room for all of the round: the next one starts where this one stopped.
    fn cut_round(&mut self) {
        if self.phase == Phase::Express {
            self.ready = core::mem::replace(&mut self.visit.paid, Paid::NONE);
            self.queued += self.ready.left as usize;
            return self.end_round();
        }
        self.refund();
        self.count_visit();
        if self.visit.left > 0 {
            let tenant = self.visit.tenant;
            self.ring().start_at(tenant);
        }
        self.end_round();
    }

    /// Walks on to the next requests that may be submitted, and has them paid; whether there are any.
    #[inline(never)]
    fn find_paid(&mut self) -> bool {
        self.end_run();
        while self.phase != Phase::Over {
            if self.visit.left == 0 {
                self.end_phase();
                continue;
            }
            let tenant = self.visit.tenant;
            if self.visit.terms.is_none() {
                self.open(tenant);
            }
            if self.pay_some() {
                return true;
            }
            self.count_visit();
            self.visit.tenant = self.links.behind(tenant);
            self.close(tenant);
            self.visit.left -= 1;
            self.visit.terms = None;
            self.visit.cap = None;
        }
        false
    }

    /// Queues a request that belongs to no run. The first of a tenant that had none is most often the
    /// only one.
    #[inline(never)]
    fn begin_run(
        &mut self,
        tenant: TenantId,
        kind: Kind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        let Some(local) = self.locals.get_mut(tenant.0 as usize) else { return Err(QueueFull) };
        let is_alone = local.place == Place::Away && !self.run.is_open();
        if !is_alone || self.expects_runs || self.failing_fast {
            return self.begin_other_run(tenant, kind, bytes, slot);
        }
        if !self.shared.tenants[tenant.0 as usize].takes_requests()
            || !self.requests.has_place(slot)
        {
            return Err(QueueFull);
        }
        let line = Line::of(kind, bytes);
        local.queue = self.requests.queue_of(slot, line, self.cost.priced(line));
        self.queued += 1;
        local.place = Place::Newcomer;
        self.newcomers[self.coming] = tenant.0;
        self.coming += 1;
        Ok(())
    }

    /// The same where it may be one of several, or where not every request is taken.
    #[inline(never)]
    fn begin_other_run(
        &mut self,
        tenant: TenantId,
        kind: Kind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        self.end_run();
        if self.failing_fast && self.is_hopeless(tenant, Line::of(kind, bytes)) {
            return Err(QueueFull);
        }
        self.append(tenant, kind, bytes, slot)
    }

    /// Queues a request behind those of its tenant, and begins a run with it where more are expected.
    fn append(
        &mut self,
        tenant: TenantId,
        kind: Kind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        let line = Line::of(kind, bytes);
        let Some(local) = self.locals.get_mut(tenant.0 as usize) else { return Err(QueueFull) };
        if !self.shared.tenants[tenant.0 as usize].takes_requests()
            || local.queue.len >= self.of_tenant
            || !self.requests.has_place(slot)
        {
            return Err(QueueFull);
        }
        self.requests.push(&mut local.queue, slot, line, self.cost.priced(line));
        self.queued += 1;
        // The first one of a queue is often the only one, or never.
        if (local.queue.len > 1 || self.expects_runs) && !self.failing_fast {
            let room = self.of_tenant - local.queue.len;
            self.run = Run::new(tenant.0, (kind, bytes, line), slot, room);
        }
        match local.place {
            Place::Newcomer | Place::Critical | Place::BestEffort => {}
            Place::Away => {
                local.place = Place::Newcomer;
                self.newcomers[self.coming] = tenant.0;
                self.coming += 1;
            }
            Place::Resting => self.enter(tenant.0, self.shared.class(tenant)),
        }
        Ok(())
    }

    /// Nothing more belongs to the run.
    #[inline]
    fn end_run(&mut self) {
        if self.run.is_open() {
            self.append_run();
        }
    }

    /// Tells its queue of the run, which is over.
    #[inline(never)]
    fn append_run(&mut self) {
        self.expects_runs = self.run.has_followers();
        if self.expects_runs {
            let queue = &mut self.locals[self.run.tenant as usize].queue;
            self.requests.append_run(queue, &self.run, self.cost.priced(self.run.line));
            self.queued += self.run.len() as usize;
        }
        self.run.close();
    }

    /// Lines 8 and 9, or 18: pays for all of the tenant's requests or for the next one, if it may be
    /// submitted.
    fn pay_some(&mut self) -> bool {
        let tenant = self.visit.tenant as usize;
        let Some(line) = self.requests.first(&self.locals[tenant].queue) else { return false };
        let all = self.locals[tenant].queue.sum;
        if self.pay_all(self.visit.tenant, all.under(self.load)) {
            self.visit.paid = self.requests.take_paid(&mut self.locals[tenant].queue);
            self.visit.spent += all;
            self.queued -= self.visit.paid.left as usize;
            return true;
        }
        let one = *self.cost.priced(line);
        if !self.pay(self.visit.tenant, one.under(self.load)) {
            return false;
        }
        self.visit.paid = self.requests.take_first(&mut self.locals[tenant].queue, &one);
        self.visit.spent += one;
        self.queued -= 1;
        true
    }

    /// The round is cut: what the visited tenant has paid for and not submitted is not paid.
    fn refund(&mut self) {
        let Visit { tenant, paid, .. } = self.visit;
        if paid.left == 0 {
            return;
        }
        let queue = &mut self.locals[tenant as usize].queue;
        let back = self.requests.put_back(queue, paid, &self.cost);
        self.queued += paid.left as usize;
        self.pay_back(tenant, back.under(self.load));
        self.visit.paid = Paid::NONE;
        self.visit.spent -= back;
    }

    /// Puts what idle tenants made into the bucket.
    fn settle(&mut self) {
        let made = i128::from(self.shared.settle(self.now));
        self.totals.generated += made;
        self.totals.donated += made;
    }

    /// Publishes what the visited tenant has submitted.
    fn count_visit(&mut self) {
        let Visit { tenant, spent, .. } = self.visit;
        let units = spent.under(self.load);
        if units > 0 {
            self.shared.tenants[tenant as usize].count(units, spent.reads(), spent.writes());
            self.reads += spent.reads();
            self.writes += spent.writes();
            self.spent += units;
        }
        self.visit.spent = Priced::NOTHING;
    }

    /// What a request costs.
    pub(crate) fn priced(&self, line: Line) -> &Priced {
        self.cost.priced(line)
    }

    /// What the tenant's first request costs, in units; `None` without demand.
    pub(crate) fn next_cost(&self, tenant: u32) -> Option<u64> {
        let first = self.requests.first(&self.locals[tenant as usize].queue);
        first.map(|line| self.cost.priced(line).under(self.load))
    }
}

impl Scheduler for TokenScheduler {
    /// Refused for tenants that are not registered or leaving, at the bounds, and, where
    /// [`Registry::fail_fast`](crate::Registry::fail_fast) was asked for, for requests that their
    /// tenant's rate would not let go before their latency has passed.
    #[inline]
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: Kind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        if self.run.extend(&mut self.requests, tenant.0, kind, bytes, slot) {
            return Ok(());
        }
        self.begin_run(tenant, kind, bytes, slot)
    }

    fn begin_round(&mut self, now: Instant) {
        self.end_run();
        if self.phase != Phase::Over {
            self.cut_round();
        }
        self.tick(now);
        self.shared.rounds.join(self.worker);
        self.measuring = self.shared.measuring();
        self.failing_fast = self.shared.failing_fast();
        self.depth_max = match self.shared.depth() {
            None => usize::MAX,
            // Each worker that takes part has its part of the device.
            Some(depth) => depth.div_ceil(self.shared.rounds.members().max(1)) as usize,
        };
        let prices = self.shared.prices();
        if prices != self.prices {
            self.reprice(prices);
        }
        self.load = self.shared.read_ratio.load();
        self.share = self.shared.share();
        self.wait = u64::MAX;
        // The pools make what whoever goes the short way spends.
        self.settle();
        self.take_newcomers();
        self.visit_dues();
        self.phase = Phase::Express;
        self.queued -= self.ready.left as usize;
        self.visit = Visit { paid: self.ready, ..NOBODY };
        self.ready = Paid::NONE;
    }

    #[inline]
    fn next(&mut self) -> Option<Slot> {
        if self.visit.paid.left == 0 && !self.find_paid() {
            return None;
        }
        Some(self.requests.pop_paid(&mut self.visit.paid))
    }

    /// What it cost goes to the bucket: whoever went away may be made no better off by that.
    fn refund(&mut self, kind: Kind, bytes: usize) {
        let cost = nano(self.priced(Line::of(kind, bytes)).under(self.load));
        self.shared.bucket.give(cost);
        self.totals.spent -= i128::from(cost);
        self.totals.donated += i128::from(cost);
    }

    /// Looks at all tenants for one.
    fn discard(&mut self) -> Option<Slot> {
        self.end_run();
        if self.phase != Phase::Over {
            self.cut_round();
        }
        let waiting = self.locals.iter_mut().find(|local| local.queue.len > 0)?;
        let line = self.requests.first(&waiting.queue).expect("it has one");
        self.queued -= 1;
        Some(self.requests.pop(&mut waiting.queue, self.cost.priced(line)))
    }

    /// A tenant that has nothing left is let go of by the next round, like one that was served.
    fn withdraw(
        &mut self,
        tenant: TenantId,
        wanted: &mut dyn FnMut(Slot) -> bool,
        taken: &mut alloc::vec::Vec<Slot>,
    ) {
        self.end_run();
        if self.phase != Phase::Over {
            self.cut_round();
        }
        let Some(local) = self.locals.get_mut(tenant.0 as usize) else { return };
        let before = local.queue.len;
        self.requests.withdraw(&mut local.queue, &self.cost, wanted, taken);
        self.queued -= (before - local.queue.len) as usize;
        if local.queue.len == 0 && local.place == Place::Newcomer {
            local.place = Place::Away;
            let coming = &mut self.newcomers[..self.coming];
            let place = coming.iter().position(|newcomer| *newcomer == tenant.0);
            let place = place.expect("a newcomer is among them");
            coming.copy_within(place + 1.., place);
            self.coming -= 1;
        }
    }

    fn queued(&self) -> usize {
        self.queued + (self.run.len() + self.visit.paid.left) as usize
    }

    /// When the first of the waiting requests can be paid, at the latest after the longest round;
    /// without waiting requests, when the first of the resting tenants starts to donate.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let due = self.dues.peek().map(|Reverse((due, _))| Instant::from_nanos(*due));
        if self.queued() == 0 {
            return due;
        }
        if self.coming > 0 {
            return Some(now);
        }
        let longest = self.shared.round_nanos().max(WAKE_NANOS_MIN);
        let wait = self.wait.clamp(WAKE_NANOS_MIN, longest);
        let round = Instant::from_nanos(self.now) + Duration::from_nanos(wait);
        Some(due.map_or(round, |due| round.min(due)))
    }

    #[inline]
    fn depth_max(&self) -> usize {
        self.depth_max
    }

    fn tokens(&self) -> Tokens {
        self.totals.into()
    }

    #[inline]
    fn measures(&self) -> bool {
        self.measuring
    }

    fn ended(&mut self, kind: Kind, delay: Duration) {
        if self.measuring && kind == Kind::Read {
            self.shared.delays.record(self.worker, delay);
        }
    }
}
