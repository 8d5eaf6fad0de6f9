//! The paper's QoS scheduler (Algorithm 1): whose request is submitted next.
//!
//! | lines | what happens | where |
//! |---|---|---|
//! | 2, 3 | the clock is read, once a round | [`Round::begin`] |
//! | 4 to 7 | each latency-critical tenant gets its tokens | `open`, [`Ledger::earn`] |
//! | 8, 9 | … and submits while its balance is above NEG_LIMIT | `submit`, [`Ledger::pay`] |
//! | 10 to 12 | … and gives most of a balance above POS_LIMIT to the bucket | `close`, [`Ledger::donate`] |
//! | 13 to 17 | each best-effort tenant gets its share, and what it lacks from the bucket | `open`, [`Ledger::collect`] |
//! | 18 | … and submits what it can pay in full | `submit`, [`Ledger::pay`] |
//! | 19 to 21 | … and gives the rest to the bucket | `close`, [`Ledger::give_up`] |
//! | 22, 23 | the bucket expires when every worker has had a round | `end_round`, [`Ledger::close_round`] |
//!
//! This file is the *order*: the walk of a round over the queues. A round visits tenants with
//! demand only; those without are in `idle.rs` of this folder. What a worker asks for is at the
//! end. docs/explanation/scheduler.md has the derivation and what differs from the published code.

mod idle;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{Feedback, Instant, IoKind, QueueFull, Scheduler, Slot, TenantId, Tokens};

use crate::backlog::LargeRequestCount;
use crate::cost_model::{CostModel, PriceSum};
use crate::ledger::{Demand, Ledger, Totals};
use crate::queues::{QueueLimits, Queues};
use crate::round::{PaymentSource, Phase, Round};
use crate::shared::Shared;
use crate::tenant::Class;
use crate::units::nano;

/// The shortest time that a worker with waiting requests is told to sleep, in nanoseconds: a round
/// sooner than that finds nothing new (paper, section 3.2.2: rounds of 0.5 to 100 µs).
const WAKE_NANOS_MIN: u64 = 1_000;

/// The token scheduler of one worker at one device: Algorithm 1 of the ReFlex paper.
#[derive(Debug)]
pub struct TokenScheduler {
    queues: Queues,
    ledger: Ledger,
    round: Round,
    /// The large requests of best effort that this worker has at the device.
    large: LargeRequestCount,
}

impl TokenScheduler {
    /// Creates the scheduler of worker number `worker` (below [`WORKERS_MAX`](crate::WORKERS_MAX))
    /// for the device of `shared`. Requests have the prices of `cost`.
    pub fn new(
        shared: Arc<Shared>,
        cost: CostModel,
        worker: usize,
        limits: QueueLimits,
    ) -> TokenScheduler {
        let large = LargeRequestCount::new(cost.write());
        let queues = Queues::new(shared.tenants_max(), cost, limits);
        TokenScheduler { queues, ledger: Ledger::new(shared, worker), round: Round::new(), large }
    }

    /// Returns the counts of where this worker's tokens went.
    pub fn totals(&self) -> Totals {
        self.ledger.totals()
    }

    /// Returns the number of a tenant's requests that this scheduler has queued and not released.
    pub fn queued_of(&self, tenant: TenantId) -> u32 {
        self.round.paid_of(tenant.0) + self.queues.len_of(tenant.0)
    }

    /// Returns the number of tenants in this scheduler's rings, which the next round visits.
    pub fn active(&self) -> u32 {
        self.queues.active()
    }

    /// Returns the number of tenants that the last round served the short way, without a visit.
    pub fn short(&self) -> u32 {
        self.round.short()
    }

    /// Returns the state of the round.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn round(&self) -> &Round {
        &self.round
    }

    /// Advances to the next requests that may be submitted, and pays for them. Returns `false` at
    /// the end of the round.
    #[inline(never)]
    fn find_paid(&mut self) -> bool {
        self.queues.end_run();
        while !self.round.is_over() {
            let Some(tenant) = self.round.visited() else {
                self.end_phase();
                continue;
            };
            if self.round.terms().is_none() {
                self.open(tenant);
            }
            if self.submit(tenant) {
                return true;
            }
            self.count_visit(tenant);
            let behind = self.queues.behind(tenant);
            self.close(tenant);
            self.round.visit_next(behind);
        }
        false
    }

    /// Gives the visited tenant its tokens (lines 5 to 7, or 14 to 17).
    fn open(&mut self, tenant: u32) {
        let terms = self.ledger.terms(tenant);
        let is_critical = terms.class == Class::LatencyCritical;
        let load = self.round.load();
        let all = nano(self.queues.sum(tenant).under(load));
        let means = match (self.round.phase(), is_critical) {
            (Phase::Critical, true) => {
                self.ledger.earn(tenant, terms.rate, all, &self.round);
                PaymentSource::Overdraft
            }
            (Phase::BestEffort | Phase::Again, false) => {
                let first = self.queues.first(tenant).map_or(0, |first| nano(first.under(load)));
                let (cap, demand) = (self.ledger.cap(tenant), Demand { all, first });
                if self.ledger.collect(tenant, terms.rate, cap, demand, &self.round) {
                    self.round.use_turn();
                }
                PaymentSource::Share(cap)
            }
            (Phase::Leftovers, true) => PaymentSource::Leftovers,
            _ => PaymentSource::Nothing,
        };
        self.round.open(terms, means);
    }

    /// Pays for all requests of the visited tenant, or for the first one (lines 8 and 9, or 18).
    /// Returns `false` if it cannot pay, or has none.
    fn submit(&mut self, tenant: u32) -> bool {
        if self.queues.queued_of(tenant) == 0 {
            return false;
        }
        let (load, means) = (self.round.load(), self.round.means());
        let all = *self.queues.sum(tenant);
        let may_exceed = self.round.is_sharing() && self.ledger.may_exceed(&all, &self.round);
        let may_all_go = !may_exceed && !self.round.holds(&all);
        if may_all_go && self.ledger.pay_all(tenant, all.under(load), means) {
            self.round.add_paid(self.queues.take_all(tenant), all);
            return true;
        }
        let Some(&one) = self.queues.first(tenant) else { return false };
        if self.is_held(tenant, &one) || !self.ledger.pay(tenant, one.under(load), means) {
            return false;
        }
        self.round.add_paid(self.queues.take_first(tenant, &one), one);
        true
    }

    /// Returns `true` if the visited tenant's first request waits, for space in the device or for
    /// the end of other large requests.
    fn is_held(&self, tenant: u32, first: &PriceSum) -> bool {
        let most = self.round.large_max();
        let is_large_held = || {
            let size = self.queues.first_size(tenant);
            let work = size.map_or(0, |(kind, bytes)| self.large.work(kind, bytes));
            work > 0 && self.ledger.shared().backlog.is_full(work, most)
        };
        self.round.holds(first) || most < u64::MAX && self.round.is_sharing() && is_large_held()
    }

    /// Ends a visit: the tenant submits no more in this round (lines 10 to 12, or 19 to 21).
    fn close(&mut self, tenant: u32) {
        let Some(terms) = self.round.terms() else { return };
        let is_critical = terms.class == Class::LatencyCritical;
        if is_critical != self.queues.is_critical(tenant) {
            self.queues.change_ring(tenant, terms.class);
        } else if is_critical {
            self.close_critical(tenant, terms.rate);
        } else {
            self.close_best_effort(tenant, terms.rate);
        }
    }

    fn close_critical(&mut self, tenant: u32, rate: u64) {
        let is_in_turn = self.round.phase() == Phase::Critical;
        let has_donated = is_in_turn && self.ledger.donate(tenant, rate, &self.round);
        if self.queues.queued_of(tenant) == 0 {
            self.queues.rest(tenant);
            self.rest(tenant, rate, has_donated);
            return;
        }
        self.round.wait_for(self.ledger.wait_of_critical(tenant, rate));
        if is_in_turn {
            self.ledger.count_throttled(tenant, &self.round);
        }
    }

    fn close_best_effort(&mut self, tenant: u32, weight: u64) {
        let Some(first) = self.queues.first(tenant) else {
            self.queues.rest(tenant);
            self.give_up(tenant);
            return;
        };
        if self.is_held(tenant, first) {
            return;
        }
        let units = first.under(self.round.load());
        let wait = self.ledger.wait_of_best_effort(tenant, weight, units, &self.round);
        self.round.wait_for(wait);
    }

    /// Publishes the counts of the visited tenant's submitted requests.
    fn count_visit(&mut self, tenant: u32) {
        let submitted = self.round.count_visit();
        if submitted.units > 0 {
            self.ledger.count(tenant, submitted);
        }
    }

    fn start(&mut self, phase: Phase) {
        let ring = self.queues.ring(phase.class());
        if phase == Phase::BestEffort {
            self.round.set_due(self.ledger.due(&self.round));
        }
        self.round.start(phase, ring.head().unwrap_or(0), ring.len);
    }

    /// Begins the next phase after every tenant of the present phase was visited. In the next round
    /// the ring starts with its second tenant if the first tenant profited from being first.
    fn end_phase(&mut self) {
        let phase = self.round.phase();
        if phase == Phase::Express {
            return self.start(Phase::Critical);
        }
        if let Some(first) = self.round.turn_used() {
            self.queues.rotate(phase.class(), first);
        }
        let is_waiting = self.queues.ring(Class::BestEffort).len > 0;
        match phase {
            Phase::Critical => self.start(Phase::BestEffort),
            Phase::BestEffort if is_waiting && self.ledger.shared().bucket.held() > 0 => {
                self.start(Phase::Again);
            }
            Phase::BestEffort if self.ledger.shared().best_effort() == 0 => {
                self.start(Phase::Leftovers);
            }
            _ => self.end_round(),
        }
    }

    fn end_round(&mut self) {
        self.ledger.close_round(&self.round, self.queues.len() == 0);
        self.round.end();
    }

    /// Ends a round early because the device is full; the next round starts where this one stopped.
    fn cut_round(&mut self) {
        self.queues.end_run();
        if self.round.is_over() {
            return;
        }
        let (phase, paid) = (self.round.phase(), self.round.take_paid());
        if phase == Phase::Express {
            self.queues.put_ready(paid);
        } else if let Some(tenant) = self.round.visited() {
            if paid.left > 0 {
                let back = self.queues.put_back(tenant, paid);
                let units = back.under(self.round.load());
                self.ledger.pay_back(tenant, units, self.round.means());
                self.round.take_back(back);
            }
            self.count_visit(tenant);
            self.queues.start_at(phase.class(), tenant);
        }
        self.end_round();
    }
}

impl TokenScheduler {
    /// Queues a request that does not continue the present run.
    #[inline(never)]
    fn push(
        &mut self,
        tenant: TenantId,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        let class = self.ledger.shared().class(tenant);
        if !class.takes_requests() {
            return Err(QueueFull);
        }
        if self.round.is_failing_fast() {
            return self.push_in_time((tenant, class), kind, bytes, slot);
        }
        self.queues.push((tenant.0, class), kind, bytes, slot)
    }

    /// Queues a request unless it would miss its tenant's latency.
    #[inline(never)]
    fn push_in_time(
        &mut self,
        (tenant, class): (TenantId, Class),
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        self.queues.end_run();
        let load = self.round.load();
        let ahead = self.queues.sum(tenant.0).under(load);
        let units = ahead + self.queues.price(kind, bytes).under(load);
        if self.ledger.is_hopeless(tenant, units) {
            return Err(QueueFull);
        }
        self.queues.append((tenant.0, class), kind, bytes, slot, false)
    }
}

impl Scheduler for TokenScheduler {
    /// Refuses requests of tenants that are unregistered or leaving, requests beyond the bounds,
    /// and, with [`Registry::fail_fast`](crate::Registry::fail_fast), requests that would not get
    /// tokens before their latency has passed; queues all others.
    #[inline]
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        if self.queues.extend_run(tenant.0, kind, bytes, slot) {
            return Ok(());
        }
        self.push(tenant, kind, bytes, slot)
    }

    fn begin_round(&mut self, now: Instant) {
        self.cut_round();
        self.ledger.join();
        self.round.begin(now, self.ledger.shared());
        self.queues.reprice(self.ledger.shared().prices());
        // The pools make what the short way spends.
        self.ledger.settle(self.round.now());
        self.take_newcomers();
        self.visit_dues();
        self.round.start_express(self.queues.take_ready());
    }

    #[inline]
    fn next(&mut self) -> Option<Slot> {
        if self.round.paid() == 0 && !self.find_paid() {
            return None;
        }
        Some(self.queues.pop_paid(self.round.paid_mut()))
    }

    fn refund(&mut self, kind: IoKind, bytes: usize) {
        let price = self.queues.price(kind, bytes);
        self.ledger.refund(price.under(self.round.load()), price.tax());
    }

    fn discard(&mut self) -> Option<Slot> {
        self.cut_round();
        self.queues.discard()
    }

    fn withdraw(
        &mut self,
        tenant: TenantId,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        self.cut_round();
        self.queues.withdraw(tenant.0, wanted, taken);
    }

    fn queued(&self) -> usize {
        self.queues.len() + self.round.paid() as usize
    }

    /// Returns when the first waiting request can be paid, at the latest after the longest round;
    /// without waiting requests, when the first resting tenant starts to donate.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let due = self.queues.first_due().map(Instant::from_nanos);
        if self.queued() == 0 {
            return due;
        }
        if self.queues.newcomers() > 0 {
            return Some(now);
        }
        let longest = self.ledger.shared().round_nanos().max(WAKE_NANOS_MIN);
        let wait = self.round.wait().clamp(WAKE_NANOS_MIN, longest);
        let round = self.round.instant() + Duration::from_nanos(wait);
        Some(due.map_or(round, |due| round.min(due)))
    }
}

impl Feedback for TokenScheduler {
    #[inline]
    fn depth_max(&self) -> usize {
        self.round.depth_max()
    }

    fn tokens(&self) -> Tokens {
        self.totals().into()
    }

    fn yields(&self, tenant: TenantId) -> bool {
        self.ledger.shared().yields(tenant)
    }

    #[inline]
    fn measures(&self) -> bool {
        self.round.is_measuring()
    }

    fn began_large(&mut self, kind: IoKind, bytes: usize) {
        self.large.begin(&self.ledger.shared().backlog, kind, bytes);
        self.round.use_turn();
    }

    fn ended_large(&mut self, kind: IoKind, bytes: usize) {
        self.large.end(&self.ledger.shared().backlog, kind, bytes);
    }

    fn ended(&mut self, kind: IoKind, delay: Duration) {
        if self.round.is_measuring() && kind == IoKind::Read {
            self.ledger.record_delay(delay);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
