//! The ledger of one worker: the tokens that tenants earn, donate, borrow and pay.
//!
//! The ledger does the arithmetic of Algorithm 1 on state that all workers share, and counts where
//! this worker's tokens went. This module deliberately leaves out requests and their prices
//! (`queues.rs`), and the order of visits (`token_scheduler.rs`).

use alloc::sync::Arc;
use core::num::NonZeroU64;
use core::time::Duration;

use contract::{TenantId, Tokens};

use crate::Class;
use crate::cost_model::{Load, PriceSum};
use crate::round::{PaymentSource, Round, SubmittedCounts};
use crate::rounds::CycleState;
use crate::shared::Shared;
use crate::tenant::{Tenant, Terms};
use crate::units::{
    AHEAD_MAX, ROUND_NANOS_MAX, STALL_NANOS_MAX, credit, donation, generated, nano,
};

/// Counts of where a worker's tokens went, in nano-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Nano-units generated for tenants or for the bucket.
    pub generated: i128,
    /// Nano-units paid for requests, without the tax, and for the device's background work.
    pub spent: i128,
    /// Nano-units paid as tax on writes into the account of the device's background work.
    pub taxed: i128,
    /// Nano-units donated to the bucket: those that tenants cannot use, and those generated for
    /// idle tenants.
    pub donated: i128,
    /// Nano-units that tenants borrowed from the device's bucket, or that were charged to the
    /// bucket for requests of idle tenants.
    pub borrowed: i128,
    /// Nano-units that expired when the bucket was emptied.
    pub expired: i128,
}

impl From<Totals> for Tokens {
    fn from(totals: Totals) -> Tokens {
        let Totals { generated, spent, taxed, donated, borrowed, expired } = totals;
        let [generated, spent, taxed, donated, borrowed, expired] =
            [generated, spent, taxed, donated, borrowed, expired].map(|nanos| nanos as u64);
        Tokens { generated, spent, taxed, donated, borrowed, expired }
    }
}

/// The prices of a best-effort tenant's waiting requests, in nano-units (billionths of a cost
/// unit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The price of all waiting requests of the tenant.
    pub(crate) all: i64,
    /// The price of the first waiting request; zero without requests.
    pub(crate) first: i64,
}

/// The waiting requests of an idle tenant that could be submitted at once, without a turn in the
/// scheduler's rounds (the "short way").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImmediateDemand {
    /// The price and the number of the submitted requests.
    pub(crate) requests: SubmittedCounts,
    /// `true` if exactly one request waits.
    pub(crate) is_single: bool,
}

/// The ledger of one worker at one device: the state that the device's workers share, and the
/// counts of where this worker's tokens went.
#[derive(Debug)]
pub(crate) struct Ledger {
    shared: Arc<Shared>,
    worker: usize,
    totals: Totals,
}

impl Ledger {
    /// Opens the ledger of worker number `worker` (below [`WORKERS_MAX`](crate::WORKERS_MAX)).
    pub(crate) fn new(shared: Arc<Shared>, worker: usize) -> Ledger {
        assert!(worker < crate::WORKERS_MAX, "worker {worker} of at most {}", crate::WORKERS_MAX);
        Ledger { shared, worker, totals: Totals::default() }
    }

    /// Returns the state that all workers of the device share.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the counts of where this worker's tokens went.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    #[inline]
    fn tenant(&self, tenant: u32) -> &Tenant {
        self.shared.tenant(tenant)
    }

    /// Reads a tenant's class, number of holders, and rate or weight.
    #[inline]
    pub(crate) fn terms(&self, tenant: u32) -> Terms {
        self.tenant(tenant).terms()
    }

    /// Reads a tenant's cap in units a second; `None` without a cap.
    pub(crate) fn cap(&self, tenant: u32) -> Option<NonZeroU64> {
        self.tenant(tenant).cap()
    }

    /// Generates the tokens of idle tenants into the bucket.
    pub(crate) fn settle(&mut self, now: u64) {
        let made = i128::from(self.shared.settle(now));
        self.totals.generated += made;
        self.totals.donated += made;
    }

    /// Begins to serve a tenant, and returns its class. The first worker that holds a tenant takes
    /// its rate out of the idle pool. From the pool's last settlement on, the tenant earns its
    /// tokens itself.
    pub(crate) fn hold(&mut self, tenant: u32, now: u64) -> Class {
        let cell = self.shared.tenant(tenant);
        let terms = cell.hold();
        if terms.holders > 0 {
            return terms.class;
        }
        let pool = self.shared.idle_pool(terms.class);
        let made_to = pool.map_or(now, |pool| pool.change(-(terms.rate as i64), now));
        cell.balance.skip_to(made_to);
        if terms.class == Class::LatencyCritical {
            cell.remember_until(made_to, terms.rate);
            let debt = cell.take_debt(now, terms.rate, AHEAD_MAX);
            cell.balance.add(-debt);
            self.shared.bucket.give(debt);
            self.totals.donated += i128::from(debt);
        }
        terms.class
    }

    /// Stops serving a tenant. The last worker that releases it returns the tenant's rate to its
    /// idle pool, and donates what the tenant earns until the pool takes over.
    pub(crate) fn release(&mut self, tenant: u32, round: &Round) {
        let cell = self.shared.tenant(tenant);
        let terms = cell.release();
        if terms.holders > 1 {
            return;
        }
        let Some(pool) = self.shared.idle_pool(terms.class) else { return };
        let taken_over = pool.change(terms.rate as i64, round.now());
        let time = cell.balance.claim_time(taken_over).min(ROUND_NANOS_MAX);
        let made = if terms.class == Class::LatencyCritical {
            cell.begin_idle(taken_over);
            generated(terms.rate, time)
        } else {
            generated(round.share(), terms.rate * time)
        };
        self.shared.bucket.give(made);
        self.totals.generated += i128::from(made);
        self.totals.donated += i128::from(made);
    }

    /// Stops serving a best-effort tenant that has no waiting requests. Its balance goes to the
    /// bucket unless another worker serves the tenant.
    pub(crate) fn give_up(&mut self, tenant: u32, round: &Round) {
        let cell = self.shared.tenant(tenant);
        if cell.release_to_others() {
            return;
        }
        let given = cell.balance.take(|tokens| tokens);
        self.give(tenant, given);
        self.release(tenant, round);
    }

    /// Keeps serving a latency-critical tenant without demand until its balance is full, and
    /// returns the time until then in nanoseconds. Returns `None` if the tenant is released:
    /// another worker serves it, or it has donated, and the pool continues to donate for it.
    pub(crate) fn rest(
        &mut self,
        tenant: u32,
        rate: u64,
        has_donated: bool,
        round: &Round,
    ) -> Option<u64> {
        let cell = self.shared.tenant(tenant);
        if cell.release_to_others() {
            return None;
        }
        if has_donated {
            self.release(tenant, round);
            return None;
        }
        let missing = generated(rate, round.three_rounds()) - cell.balance.tokens();
        Some(round.now().saturating_add(time_to_make(missing, rate)))
    }

    /// Releases a tenant because the worker stops scheduling.
    pub(crate) fn abandon(&mut self, tenant: u32, round: &Round) {
        match self.terms(tenant).class {
            Class::LatencyCritical => self.release(tenant, round),
            Class::BestEffort | Class::Leaving | Class::Vacant => self.give_up(tenant, round),
        }
    }

    /// Donates tokens that a tenant cannot use to the bucket.
    fn give(&mut self, tenant: u32, tokens: i64) {
        if tokens > 0 {
            self.shared.bucket.give(tokens);
            self.tenant(tenant).count_donated(tokens);
            self.totals.donated += i128::from(tokens);
        }
    }

    /// Borrows from the bucket the tokens that a tenant lacks, as far as there are any, and returns
    /// the amount.
    fn borrow(&mut self, tenant: u32, missing: i64) -> i64 {
        let taken = self.shared.bucket.take(missing);
        if taken > 0 {
            let cell = self.shared.tenant(tenant);
            cell.balance.add(taken);
            cell.count_borrowed(taken);
            self.totals.borrowed += i128::from(taken);
        }
        taken
    }

    /// Generates a latency-critical tenant's tokens (lines 5 to 7). For the time that its requests
    /// waited, up to the longest stall, the tenant gets its full rate; for the rest of the time
    /// only as many tokens as fill its balance. The remainder is recorded as arrears.
    pub(crate) fn earn(&mut self, tenant: u32, rate: u64, demand: i64, round: &Round) {
        let cell = self.shared.tenant(tenant);
        let time = cell.balance.claim_time(round.now());
        let stalled = generated(rate, time.min(STALL_NANOS_MAX));
        let full = generated(rate, round.three_rounds()).max(demand.min(stalled));
        let made = credit(cell.balance.tokens(), full, rate, time);
        cell.balance.add(made);
        cell.remember(stalled - made, rate);
        self.totals.generated += i128::from(made);
        if cell.balance.tokens() < cell.limit() {
            cell.count_deficit();
        }
    }

    /// Donates most of a balance that exceeds its limit (lines 10 to 12). Returns `true` if the
    /// balance exceeded it.
    pub(crate) fn donate(&mut self, tenant: u32, rate: u64, round: &Round) -> bool {
        let full = generated(rate, round.three_rounds());
        let balance = &self.tenant(tenant).balance;
        let given = balance.take(|tokens| if tokens > full { donation(tokens) } else { 0 });
        self.give(tenant, given);
        self.tenant(tenant).remember(given, rate);
        given > 0
    }

    /// Generates a best-effort tenant's share, less its repayment of the loan, and borrows what it
    /// lacks (lines 14 to 17). The share beyond the demand goes to the bucket at once, where lines
    /// 19 to 21 would put it after submitting. Returns `true` if the tenant borrowed.
    pub(crate) fn collect(
        &mut self,
        tenant: u32,
        weight: u64,
        cap: Option<NonZeroU64>,
        demand: Demand,
        round: &Round,
    ) -> bool {
        let cell = self.shared.tenant(tenant);
        let time = cell.balance.claim_time(round.now()).min(STALL_NANOS_MAX);
        let made = generated(round.share(), weight * time);
        let repaid = self.shared.loan.repay(self.part_due(made, round));
        cell.balance.add(made - repaid);
        self.totals.generated += i128::from(made);
        let wanted = match cap {
            Some(cap) => demand.all.min(allow(cell, cap.get(), demand.first, round.now())),
            None => demand.all,
        };
        let missing = wanted.saturating_sub(cell.balance.tokens());
        if missing > 0 {
            return self.borrow(tenant, missing) > 0;
        }
        let kept = match cap {
            _ if cell.terms().holders == 1 => wanted,
            // What exceeds its allowance is of no use to its other workers, either.
            Some(_) => wanted.max(cell.allowance.tokens()),
            None => return false,
        };
        let given = cell.balance.take(|tokens| tokens - kept);
        self.give(tenant, given);
        false
    }

    /// Returns the nano-units of the loan that best-effort tenants are to pay back in this round.
    pub(crate) fn due(&self, round: &Round) -> i64 {
        self.shared.loan.owed().min(self.lendable(round))
    }

    /// Returns the most nano-units of the loan that best-effort tenants can pay back in a round.
    fn lendable(&self, round: &Round) -> i64 {
        spare(generated(round.share() * self.shared.best_effort(), round.last_round()))
    }

    /// Returns the part of the round's repayment that falls to a best-effort tenant that generates
    /// `made` nano-units in the round. Every tenant pays an equal fraction, rounded up.
    fn part_due(&self, made: i64, round: &Round) -> i64 {
        match round.due() {
            0 => 0,
            due => part(spare(made), due, self.lendable(round)),
        }
    }

    /// Returns `true` if these requests of best effort must not all be submitted at once, because
    /// large ones among them could exceed the bound on large requests at the device.
    #[inline]
    pub(crate) fn may_exceed(&self, requests: &PriceSum, round: &Round) -> bool {
        let (most, units) = (round.large_max(), requests.under(Load::Mixed));
        let is_bounded = most < u64::MAX && !requests.is_single_pages();
        is_bounded && (units > most || self.shared.backlog.is_full(units, most))
    }

    /// Pays for the visited tenant's whole queue at once, if every single request would be paid.
    /// Returns `false` if nothing is paid.
    pub(crate) fn pay_all(&mut self, tenant: u32, units: u64, means: PaymentSource) -> bool {
        let cell = self.shared.tenant(tenant);
        let cost = nano(units);
        let is_paid = match means {
            PaymentSource::Overdraft => cell.balance.spend(cost, cell.limit()),
            PaymentSource::Share(cap) => is_allowed(cell, cap, cost) && cell.balance.spend(cost, 0),
            PaymentSource::Nothing | PaymentSource::Leftovers => false,
        };
        if is_paid {
            self.book(tenant, cost, means);
        }
        is_paid
    }

    /// Pays for one request of the visited tenant. Returns `false` if the request is not paid.
    pub(crate) fn pay(&mut self, tenant: u32, units: u64, means: PaymentSource) -> bool {
        let cost = nano(units);
        let limit = self.tenant(tenant).limit();
        let overdraws = |this: &Ledger| this.tenant(tenant).balance.overdraw(cost, limit);
        let is_paid = match means {
            PaymentSource::Nothing => false,
            PaymentSource::Overdraft => {
                overdraws(self) || self.pay_arrears(tenant) && overdraws(self)
            }
            PaymentSource::Share(cap) => {
                let cell = self.tenant(tenant);
                is_allowed(cell, cap, 1) && cell.balance.spend(cost, 0)
            }
            PaymentSource::Leftovers => {
                let tokens = self.tenant(tenant).balance.tokens();
                self.borrow(tenant, (limit + 1).saturating_sub(tokens));
                overdraws(self)
            }
        };
        if is_paid {
            self.book(tenant, cost, means);
        }
        is_paid
    }

    /// Refunds a payment of the visited tenant.
    pub(crate) fn pay_back(&mut self, tenant: u32, units: u64, means: PaymentSource) {
        let cost = nano(units);
        self.tenant(tenant).balance.add(cost);
        self.book(tenant, -cost, means);
    }

    /// Notes that the visited tenant has paid so many nano-units.
    fn book(&mut self, tenant: u32, cost: i64, means: PaymentSource) {
        self.totals.spent += i128::from(cost);
        if let PaymentSource::Share(Some(_)) = means {
            self.tenant(tenant).allowance.add(-cost);
        }
    }

    /// Pays the visited tenant as much of its arrears as its next request lacks: from the bucket,
    /// and then from a loan at the cost of best-effort tenants. Returns `true` if the tenant got
    /// any.
    fn pay_arrears(&mut self, tenant: u32) -> bool {
        let Shared { bucket, loan, .. } = &*self.shared;
        let loan_max = self.shared.loan_max();
        if loan_max == 0 {
            return false;
        }
        let cell = self.shared.tenant(tenant);
        let missing = (cell.limit() + 1).saturating_sub(cell.balance.tokens());
        let wanted = cell.arrears.take(|unused| unused.min(missing));
        if wanted == 0 {
            return false;
        }
        let taken = bucket.take(wanted);
        let paid = taken + loan.lend(wanted - taken, loan_max);
        cell.arrears.add(wanted - paid);
        cell.balance.add(paid);
        if paid > 0 {
            cell.count_borrowed(paid);
        }
        self.totals.borrowed += i128::from(taken);
        paid > 0
    }

    /// Refunds a request that the scheduler released but the worker did not submit. The refund goes
    /// to the bucket and not to the tenant, who must not profit from leaving. `tax` is the part of
    /// the request's price that was tax.
    pub(crate) fn refund(&mut self, units: u64, tax: u64) {
        let cost = nano(units);
        self.tax(-nano(tax));
        self.shared.bucket.give(cost);
        self.totals.spent -= i128::from(cost);
        self.totals.donated += i128::from(cost);
    }

    /// Moves `cost` nano-units of spent tokens to the account that pays for the device's background
    /// work, or back if `cost` is negative.
    fn tax(&mut self, cost: i64) {
        if cost == 0 {
            return;
        }
        self.shared.chores.add(cost);
        self.totals.spent -= i128::from(cost);
        self.totals.taxed += i128::from(cost);
    }

    /// Spends the rate of a tenant that no worker holds, if its requests may be submitted at once
    /// (the "short way" in docs/explanation/scheduler.md). The bucket has `spare` nano-units left.
    /// Returns `false` if the requests may not go.
    #[inline(always)]
    pub(crate) fn spend_short(
        &self,
        tenant: u32,
        ask: ImmediateDemand,
        spare: i64,
        round: &Round,
    ) -> bool {
        let cell = self.shared.tenant(tenant);
        let terms = cell.terms();
        let SubmittedCounts { units, reads, writes, .. } = ask.requests;
        let now = round.now();
        if terms.holders > 0 || units > AHEAD_MAX {
            return false;
        }
        let goes = if terms.class == Class::LatencyCritical {
            // A debt that it has of its own (it was another class once) is repaid the long way.
            cell.balance.tokens() >= 0 && cell.spend_ahead(now, units, terms.rate, AHEAD_MAX)
        } else {
            // Only what its own share has made since the last time, if nobody else took it; as far
            // as it asks for more than one request, made up for no longer than by the long way.
            let longest = if ask.is_single { u64::MAX } else { ROUND_NANOS_MAX };
            terms.class == Class::BestEffort
                && !(writes > 0 && round.is_holding_writes())
                && nano(units) <= spare
                && cell.cap().is_none()
                && cell.spend_behind(now, units, round.share() * terms.rate, longest)
        };
        if goes {
            cell.count(units, reads, writes);
        }
        goes
    }

    /// Charges the bucket for the requests of idle tenants that were submitted at once in a round.
    pub(crate) fn charge(&mut self, units: u64) {
        let cost = nano(units);
        self.shared.bucket.charge(cost);
        self.totals.spent += i128::from(cost);
        self.totals.borrowed += i128::from(cost);
    }

    /// Publishes the counts of the visited tenant's submitted requests.
    pub(crate) fn count(&self, tenant: u32, submitted: SubmittedCounts) {
        let SubmittedCounts { units, reads, writes, .. } = submitted;
        self.tenant(tenant).count(units, reads, writes);
    }

    /// Publishes that a latency-critical tenant had requests left at the end of a round.
    pub(crate) fn count_throttled(&self, tenant: u32, round: &Round) {
        self.tenant(tenant).count_throttled(round.last_round());
    }

    /// Returns the nanoseconds until a latency-critical tenant can pay for a request.
    pub(crate) fn wait_of_critical(&self, tenant: u32, rate: u64) -> u64 {
        let cell = self.tenant(tenant);
        time_to_make(cell.limit() - cell.balance.tokens(), rate)
    }

    /// Returns the nanoseconds until a best-effort tenant of this weight can pay `units`.
    pub(crate) fn wait_of_best_effort(
        &self,
        tenant: u32,
        weight: u64,
        units: u64,
        round: &Round,
    ) -> u64 {
        let cell = self.tenant(tenant);
        let wait = time_to_make(nano(units) - cell.balance.tokens(), round.share() * weight);
        match round.means() {
            PaymentSource::Share(Some(cap)) => {
                wait.max(time_to_make(-cell.allowance.tokens(), cap.get()))
            }
            _ => wait,
        }
    }

    /// Returns `true` if a latency-critical tenant's request would wait longer for tokens than the
    /// tenant's latency, by its promised rate alone. `units` is the price of the request and of all
    /// before it.
    #[inline(never)]
    pub(crate) fn is_hopeless(&self, tenant: TenantId, units: u64) -> bool {
        let cell = self.tenant(tenant.0);
        let terms = cell.terms();
        if terms.class != Class::LatencyCritical {
            return false;
        }
        // A tenant that is not held repays nothing until it is, so a debt refuses it nothing
        // before.
        let least = if terms.holders == 0 { 0 } else { i64::MIN };
        let balance = cell.balance.tokens().max(least);
        let missing = nano(units).saturating_sub(balance.saturating_sub(cell.limit()));
        time_to_make(missing, terms.rate) > cell.latency_nanos()
    }

    /// Joins the rounds of the device's workers.
    pub(crate) fn join(&self) {
        self.shared.rounds.join(self.worker);
    }

    /// Closes a round (lines 22 and 23). Tokens in the bucket expire when every worker has had a
    /// round. A worker without demand leaves the set of workers in rounds, so that the other
    /// workers do not wait for it while it sleeps.
    pub(crate) fn close_round(&mut self, round: &Round, leaves: bool) {
        let SubmittedCounts { units, reads, writes, tax } = round.submitted();
        self.tax(nano(tax));
        self.shared.read_ratio.record(round.instant(), reads, writes);
        if round.is_measuring() {
            self.shared.delays.count(self.worker, reads, writes, units);
        }
        let turn = self.shared.rounds.mark(self.worker);
        self.expire(turn);
        if leaves {
            let turn = self.shared.rounds.leave(self.worker);
            self.expire(turn);
        }
    }

    fn expire(&mut self, turn: CycleState) {
        let expired = match turn {
            CycleState::Running => 0,
            CycleState::Over => self.shared.bucket.age(),
            CycleState::Alone => self.shared.bucket.empty(),
        };
        self.totals.expired += i128::from(expired);
    }

    /// Records the time that a read spent at the device.
    pub(crate) fn record_delay(&self, delay: Duration) {
        self.shared.delays.record(self.worker, delay);
    }
}

/// Generates the allowance of a tenant with a cap, and returns the part of its demand that counts
/// in this visit. While there is an allowance, the first request may exceed it and is paid off
/// later. The allowance is limited to that of a round, or of the request for which the tenant still
/// saves.
fn allow(cell: &Tenant, cap: u64, first: i64, now: u64) -> i64 {
    let allowance = &cell.allowance;
    let time = allowance.claim_time(now);
    let full = generated(cap, ROUND_NANOS_MAX).max(first);
    let missing = full.saturating_sub(allowance.tokens()).max(0);
    allowance.add(generated(cap, time).min(missing));
    match allowance.tokens() {
        allowed @ 1.. if first > 0 => allowed.max(first),
        _ => 0,
    }
}

/// Returns `true` if a tenant's cap, if it has one, allows so many nano-units.
fn is_allowed(cell: &Tenant, cap: Option<NonZeroU64>, nano_units: i64) -> bool {
    cap.is_none() || cell.allowance.tokens() >= nano_units
}

/// Returns the part of the best-effort tenants' tokens that may repay the loan. An eighth stays
/// with them, so that they do not starve if workers stall again and again.
pub(crate) fn spare(made: i64) -> i64 {
    made / 8 * 7
}

/// Returns `of · due / all`, rounded up.
pub(crate) fn part(of: i64, due: i64, all: i64) -> i64 {
    let product = i128::from(of) * i128::from(due);
    ((product + i128::from(all) - 1) / i128::from(all)) as i64
}

/// Returns the nanoseconds in which a rate generates more than `missing` nano-units: 1 if none are
/// missing, `u64::MAX` for a rate of zero.
fn time_to_make(missing: i64, rate: u64) -> u64 {
    match (u64::try_from(missing), rate) {
        (Err(_), _) => 1,
        (Ok(_), 0) => u64::MAX,
        (Ok(missing), rate) => missing / rate + 1,
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
