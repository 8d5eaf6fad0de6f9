//! Who gets which tokens, gives away and lends: the arithmetic of Algorithm 1 on shared balances.
//!
//! What is deliberately not here: the order of visits (`token_scheduler.rs`).

use core::cmp::Reverse;

use contract::TenantId;

use crate::Class;
use crate::cost_model::Line;
use crate::express::AHEAD_MAX;
use crate::shared::Shared;
use crate::tenant::Tenant;
use crate::token_scheduler::{Phase, Place, TokenScheduler};
use crate::units::{
    NEG_LIMIT, ROUND_NANOS_MAX, STALL_NANOS_MAX, credit, donation, generated, nano,
};

impl TokenScheduler {
    /// The worker serves the tenant from now on. Whoever is the first to hold it takes its rate out
    /// of its idle pool; what the pool has not made yet, the tenant makes itself.
    pub(crate) fn hold(&mut self, tenant: u32) -> Class {
        let cell = &self.shared.tenants[tenant as usize];
        let terms = cell.hold();
        if terms.holders == 0 {
            let made_to = match terms.class {
                Class::LatencyCritical => {
                    self.shared.idle_critical.change(-(terms.rate as i64), self.now)
                }
                Class::BestEffort | Class::Leaving => {
                    self.shared.idle_shares.change(-(terms.rate as i64), self.now)
                }
                Class::Vacant => self.now,
            };
            cell.balance.skip_to(made_to);
            if terms.class == Class::LatencyCritical {
                cell.remember_until(made_to, terms.rate);
                let debt = cell.take_debt(self.now, terms.rate, AHEAD_MAX);
                cell.balance.add(-debt);
                self.shared.bucket.give(debt);
                self.totals.donated += i128::from(debt);
            }
        }
        terms.class
    }

    /// The last worker that holds the tenant lets go: its rate goes to its idle pool, and what it
    /// makes until the pool takes over goes to the bucket.
    fn release(&mut self, tenant: u32) {
        self.locals[tenant as usize].place = Place::Away;
        let shared = &self.shared;
        let cell = &shared.tenants[tenant as usize];
        let terms = cell.release();
        if terms.holders > 1 {
            return;
        }
        let pool = match terms.class {
            Class::LatencyCritical => &shared.idle_critical,
            Class::BestEffort | Class::Leaving => &shared.idle_shares,
            Class::Vacant => return,
        };
        let taken_over = pool.change(terms.rate as i64, self.now);
        let time = cell.balance.claim_time(taken_over).min(ROUND_NANOS_MAX);
        let made = match terms.class {
            Class::LatencyCritical => {
                cell.begin_idle(taken_over);
                generated(terms.rate, time)
            }
            _ => generated(self.share, terms.rate * time),
        };
        shared.bucket.give(made);
        self.totals.generated += i128::from(made);
        self.totals.donated += i128::from(made);
    }

    /// Puts what a tenant has no use for into the bucket.
    fn give(&mut self, tenant: u32, tokens: i64) {
        if tokens > 0 {
            self.shared.bucket.give(tokens);
            self.shared.tenants[tenant as usize].count_donated(tokens);
            self.totals.donated += i128::from(tokens);
        }
    }

    /// Takes what a tenant lacks out of the bucket, as far as it has that: how much.
    fn borrow(&mut self, tenant: u32, missing: i64) -> i64 {
        let taken = self.shared.bucket.take(missing);
        if taken > 0 {
            let cell = &self.shared.tenants[tenant as usize];
            cell.balance.add(taken);
            cell.count_borrowed(taken);
            self.totals.borrowed += i128::from(taken);
        }
        taken
    }

    /// Whether a latency-critical tenant's next request, behind all that it has queued here, would
    /// wait longer for tokens than its latency, by its promised rate alone.
    #[inline(never)]
    pub(crate) fn is_hopeless(&self, tenant: TenantId, line: Line) -> bool {
        let Some(cell) = self.shared.tenants.get(tenant.0 as usize) else { return false };
        let terms = cell.terms();
        if terms.class != Class::LatencyCritical {
            return false;
        }
        let ahead = self.locals[tenant.0 as usize].queue.sum.under(self.load);
        let units = ahead + self.priced(line).under(self.load);
        // Who is not held repays nothing until it is, so a debt refuses it nothing before.
        let least = if terms.holders == 0 { 0 } else { i64::MIN };
        let balance = cell.balance.tokens().max(least);
        let missing = nano(units).saturating_sub(balance.saturating_sub(NEG_LIMIT));
        time_to_make(missing, terms.rate) > cell.latency_nanos()
    }

    /// Lines 5 to 7, or 14 to 17: the visited tenant gets its tokens.
    pub(crate) fn open(&mut self, tenant: u32) {
        let terms = self.shared.tenants[tenant as usize].terms();
        self.visit.terms = Some(terms);
        match (self.phase, terms.class == Class::LatencyCritical) {
            (Phase::Critical, true) => self.earn(tenant, terms.rate),
            (Phase::BestEffort | Phase::Again, false) => self.collect(tenant, terms.rate),
            _ => {}
        }
    }

    /// Lines 5 to 7 for a latency-critical tenant. For as long as its requests waited it gets all, up
    /// to the longest stall; what it does not get it may have back.
    fn earn(&mut self, tenant: u32, rate: u64) {
        let cell = &self.shared.tenants[tenant as usize];
        let time = cell.balance.claim_time(self.now);
        let stalled = generated(rate, time.min(STALL_NANOS_MAX));
        let demand = nano(self.locals[tenant as usize].queue.sum.under(self.load));
        let full = generated(rate, self.three_rounds()).max(demand.min(stalled));
        let made = credit(cell.balance.tokens(), full, rate, time);
        cell.balance.add(made);
        cell.remember(stalled - made, rate);
        self.totals.generated += i128::from(made);
        if cell.balance.tokens() < NEG_LIMIT {
            cell.count_deficit();
        }
    }

    /// Lines 14 to 17 for a best-effort tenant: its share, less what it pays back, and what it lacks
    /// from the bucket. What exceeds its demand goes to the bucket (lines 19 to 21 would find it after
    /// submitting).
    fn collect(&mut self, tenant: u32, weight: u64) {
        let shared = &self.shared;
        let balance = &shared.tenants[tenant as usize].balance;
        let time = balance.claim_time(self.now).min(STALL_NANOS_MAX);
        let made = generated(self.share, weight * time);
        let repaid = shared.loan.repay(self.part_due(made));
        balance.add(made - repaid);
        self.totals.generated += i128::from(made);
        let mut demand = nano(self.locals[tenant as usize].queue.sum.under(self.load));
        self.visit.cap = shared.tenants[tenant as usize].cap();
        if let Some(cap) = self.visit.cap {
            demand = demand.min(self.allow(tenant, cap.get()));
        }
        let missing = demand.saturating_sub(balance.tokens());
        if missing > 0 {
            let taken = self.borrow(tenant, missing);
            self.visit.turn_used |= taken > 0 && tenant == self.visit.first;
            return;
        }
        let cell = &self.shared.tenants[tenant as usize];
        let kept = match self.visit.cap {
            _ if cell.terms().holders == 1 => demand,
            // What exceeds its allowance is of no use to its other workers, either.
            Some(_) => demand.max(cell.allowance.tokens()),
            None => return,
        };
        let given = cell.balance.take(|tokens| tokens - kept);
        self.give(tenant, given);
    }

    /// What best-effort tenants pay back in a round at most.
    pub(crate) fn lendable(&self) -> i64 {
        spare(generated(self.share * self.shared.best_effort(), self.last_round()))
    }

    /// The part of what is due that a best-effort tenant pays which makes so many nano-units: all pay
    /// the same part of what they make, rounded up.
    fn part_due(&self, made: i64) -> i64 {
        if self.due == 0 {
            return 0;
        }
        part(spare(made), self.due, self.lendable())
    }

    /// Makes the allowance of a tenant with a cap: how much of its demand counts in this visit. As
    /// long as there is an allowance its first request may exceed it, and is made up for later. It
    /// grows to that of a round, or of the request that the tenant still collects the tokens for.
    fn allow(&self, tenant: u32, cap: u64) -> i64 {
        let allowance = &self.shared.tenants[tenant as usize].allowance;
        let time = allowance.claim_time(self.now);
        let first = self.next_cost(tenant).map_or(0, nano);
        let full = generated(cap, ROUND_NANOS_MAX).max(first);
        let missing = full.saturating_sub(allowance.tokens()).max(0);
        allowance.add(generated(cap, time).min(missing));
        match allowance.tokens() {
            allowed @ 1.. if first > 0 => allowed.max(first),
            _ => 0,
        }
    }

    /// Whether the visited tenant's whole queue is paid at once, which saves paying one by one. Only
    /// where every single request would be paid.
    pub(crate) fn pay_all(&mut self, tenant: u32, units: u64) -> bool {
        let Some(terms) = self.visit.terms else { return false };
        let balance = &self.shared.tenants[tenant as usize].balance;
        let cost = nano(units);
        let paid = match (self.phase, terms.class == Class::LatencyCritical) {
            (Phase::Critical, true) => balance.spend(cost, NEG_LIMIT),
            (Phase::BestEffort | Phase::Again, false) => {
                self.is_allowed(tenant, cost) && balance.spend(cost, 0)
            }
            _ => false,
        };
        if paid {
            self.book(tenant, cost);
        }
        paid
    }

    /// Whether the visited tenant's cap, if it has one, leaves room for so many nano-units.
    fn is_allowed(&self, tenant: u32, most: i64) -> bool {
        let allowance = &self.shared.tenants[tenant as usize].allowance;
        self.visit.cap.is_none() || allowance.tokens() >= most
    }

    /// Notes that the visited tenant has paid so many nano-units.
    fn book(&mut self, tenant: u32, cost: i64) {
        self.totals.spent += i128::from(cost);
        if self.visit.cap.is_some() {
            self.shared.tenants[tenant as usize].allowance.add(-cost);
        }
    }

    /// Takes back what a tenant has paid for.
    pub(crate) fn pay_back(&mut self, tenant: u32, units: u64) {
        let cost = nano(units);
        self.shared.tenants[tenant as usize].balance.add(cost);
        self.book(tenant, -cost);
    }

    /// Whether the visited tenant's request of this price is paid.
    pub(crate) fn pay(&mut self, tenant: u32, units: u64) -> bool {
        let Some(terms) = self.visit.terms else { return false };
        let balance = &self.shared.tenants[tenant as usize].balance;
        let cost = nano(units);
        let paid = match (self.phase, terms.class == Class::LatencyCritical) {
            (Phase::Critical, true) => {
                balance.overdraw(cost, NEG_LIMIT)
                    || self.pay_arrears(tenant) && {
                        self.shared.tenants[tenant as usize].balance.overdraw(cost, NEG_LIMIT)
                    }
            }
            (Phase::BestEffort | Phase::Again, false) => {
                self.is_allowed(tenant, 1) && balance.spend(cost, 0)
            }
            (Phase::Leftovers, true) => {
                let missing = (NEG_LIMIT + 1).saturating_sub(balance.tokens());
                self.borrow(tenant, missing);
                self.shared.tenants[tenant as usize].balance.overdraw(cost, NEG_LIMIT)
            }
            _ => false,
        };
        if paid {
            self.book(tenant, cost);
        }
        paid
    }

    /// Lets the visited tenant have so much of its arrears as it lacks for its next request: from the
    /// bucket, and then at the cost of best effort. Whether it had any.
    fn pay_arrears(&mut self, tenant: u32) -> bool {
        let Shared { tenants, bucket, loan, .. } = &*self.shared;
        let loan_max = self.shared.loan_max();
        if loan_max == 0 {
            return false;
        }
        let Tenant { balance, arrears, .. } = &tenants[tenant as usize];
        let missing = (NEG_LIMIT + 1).saturating_sub(balance.tokens());
        let wanted = arrears.take(|unused| unused.min(missing));
        if wanted == 0 {
            return false;
        }
        let taken = bucket.take(wanted);
        let paid = taken + loan.lend(wanted - taken, loan_max);
        arrears.add(wanted - paid);
        balance.add(paid);
        if paid > 0 {
            tenants[tenant as usize].count_borrowed(paid);
        }
        self.totals.borrowed += i128::from(taken);
        paid > 0
    }

    /// The visited tenant can submit no more in this round: lines 10 to 12, or 19 to 21.
    pub(crate) fn close(&mut self, tenant: u32) {
        let Some(terms) = self.visit.terms else { return };
        let critical = terms.class == Class::LatencyCritical;
        let place = self.locals[tenant as usize].place;
        if critical != (place == Place::Critical) {
            // The tenant was changed from one class into the other: it moves to the other ring.
            self.exit(tenant, Place::Away);
            self.enter(tenant, terms.class);
        } else if critical {
            self.close_critical(tenant, terms.rate);
        } else {
            self.close_best_effort(tenant, terms.rate);
        }
    }

    /// Lines 10 to 12; without demand the tenant rests, or leaves once it has donated.
    fn close_critical(&mut self, tenant: u32, rate: u64) {
        let donated = self.phase == Phase::Critical && self.donate(tenant, rate);
        let tokens = self.shared.tenants[tenant as usize].balance.tokens();
        if self.next_cost(tenant).is_some() {
            self.wait = self.wait.min(time_to_make(NEG_LIMIT - tokens, rate));
            if self.phase == Phase::Critical {
                self.shared.tenants[tenant as usize].count_throttled(self.last_round());
            }
        } else {
            self.exit(tenant, Place::Resting);
            self.rest(tenant, rate, donated);
        }
    }

    /// Lines 10 to 12: whether it had more than its limit, and gave most of it away.
    fn donate(&mut self, tenant: u32, rate: u64) -> bool {
        let full = generated(rate, self.three_rounds());
        let balance = &self.shared.tenants[tenant as usize].balance;
        let given = balance.take(|tokens| if tokens > full { donation(tokens) } else { 0 });
        self.give(tenant, given);
        self.shared.tenants[tenant as usize].remember(given, rate);
        given > 0
    }

    /// A held latency-critical tenant has no demand here. If others hold it, it is theirs; if it has
    /// donated, the pool goes on donating for it; otherwise it is due when it will be full.
    fn rest(&mut self, tenant: u32, rate: u64, donated: bool) {
        let cell = &self.shared.tenants[tenant as usize];
        if cell.release_to_others() {
            self.locals[tenant as usize].place = Place::Away;
            return;
        }
        if donated {
            self.release(tenant);
            return;
        }
        let local = &mut self.locals[tenant as usize];
        if !local.has_due {
            local.has_due = true;
            let missing = generated(rate, self.three_rounds()) - cell.balance.tokens();
            let due = self.now.saturating_add(time_to_make(missing, rate));
            self.dues.push(Reverse((due, tenant)));
        }
    }

    /// Visits the resting tenants whose balances should be full by now.
    pub(crate) fn visit_dues(&mut self) {
        while let Some(&Reverse((due, tenant))) = self.dues.peek() {
            if due > self.now {
                return;
            }
            self.dues.pop();
            self.locals[tenant as usize].has_due = false;
            if self.locals[tenant as usize].place != Place::Resting {
                continue;
            }
            let terms = self.shared.tenants[tenant as usize].terms();
            if terms.class == Class::LatencyCritical {
                self.earn(tenant, terms.rate);
                let donated = self.donate(tenant, terms.rate);
                self.rest(tenant, terms.rate, donated);
            } else {
                self.give_up(tenant);
            }
        }
    }

    /// Lines 19 to 21; without demand the tenant is held no more.
    fn close_best_effort(&mut self, tenant: u32, weight: u64) {
        let tokens = self.shared.tenants[tenant as usize].balance.tokens();
        match self.next_cost(tenant) {
            Some(units) => {
                let missing = nano(units) - tokens;
                let mut wait = time_to_make(missing, self.share * weight);
                if let Some(cap) = self.visit.cap {
                    let debt = -self.shared.tenants[tenant as usize].allowance.tokens();
                    wait = wait.max(time_to_make(debt, cap.get()));
                }
                self.wait = self.wait.min(wait);
            }
            None => {
                self.exit(tenant, Place::Resting);
                self.give_up(tenant);
            }
        }
    }

    /// A held best-effort tenant has no demand here: what it has goes to the bucket, unless another
    /// worker serves it.
    fn give_up(&mut self, tenant: u32) {
        let cell = &self.shared.tenants[tenant as usize];
        if cell.release_to_others() {
            self.locals[tenant as usize].place = Place::Away;
            return;
        }
        let given = cell.balance.take(|tokens| tokens);
        self.give(tenant, given);
        self.release(tenant);
    }
}

/// A worker that lets go of its device serves nobody there any more. Those that it holds it lets go of as
/// well: their rates are pooled again, and the numbers of those that leave become free.
impl Drop for TokenScheduler {
    fn drop(&mut self) {
        for tenant in 0..self.locals.len() as u32 {
            match self.locals[tenant as usize].place {
                Place::Away | Place::Newcomer => continue,
                Place::Critical | Place::BestEffort | Place::Resting => {}
            }
            let terms = self.shared.tenants[tenant as usize].terms();
            match terms.class {
                Class::LatencyCritical => self.release(tenant),
                Class::BestEffort | Class::Leaving | Class::Vacant => self.give_up(tenant),
            }
        }
    }
}

/// What best effort can do without of what it makes. It keeps an eighth, so that it does not starve
/// where workers are stalled for ever.
pub(crate) fn spare(made: i64) -> i64 {
    made / 8 * 7
}

/// `of · due / all`, rounded up.
pub(crate) fn part(of: i64, due: i64, all: i64) -> i64 {
    let product = i128::from(of) * i128::from(due);
    ((product + i128::from(all) - 1) / i128::from(all)) as i64
}

/// Nanoseconds until a rate has made more than this many nano-units.
fn time_to_make(missing: i64, rate: u64) -> u64 {
    match (u64::try_from(missing), rate) {
        (Err(_), _) => 1,
        (Ok(_), 0) => u64::MAX,
        (Ok(missing), rate) => missing / rate + 1,
    }
}
