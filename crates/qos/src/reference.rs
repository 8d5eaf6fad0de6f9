//! Algorithm 1 of the paper, line by line, for one worker: the oracle of the fast scheduler's
//! tests.
//!
//! The oracle keeps all tenants in vectors, visits every tenant in every round and knows nothing of
//! pools, rings, heaps or atomics. Where the paper leaves something open,
//! docs/explanation/scheduler.md fixes it: tenants without demand come first among the best-effort
//! tenants, and tenants with demand take turns in the order in which they became active. The rules
//! for tenants that are not visited because they have no demand are in `reference_idle.rs`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ledger::{part, spare};
use crate::reference_idle::Idle;
use crate::units::{
    NEG_LIMIT, ROUND_NANOS_MAX, STALL_NANOS_MAX, credit, donation, generated, nano,
};
use crate::{Cost, Load};

/// A tenant of the oracle. A price stands for each of its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefTenant {
    /// The rate of a latency-critical tenant in units a second; `None` for best effort.
    pub(crate) rate: Option<u64>,
    pub(crate) tokens: i64,
    pub(crate) queue: VecDeque<Cost>,
    pub(crate) deficits: u64,
    /// Tokens that the tenant was promised and did not use.
    pub(crate) arrears: i64,
    /// `true` if the tenant had demand at the end of the last round.
    waited: bool,
    pub(crate) idle: Idle,
}

impl RefTenant {
    pub(crate) fn demand(&self, load: Load) -> i64 {
        nano(self.queue.iter().map(|cost| u64::from(cost.under(load))).sum())
    }

    /// Returns the price of the tenant's first request, in nano-units.
    fn first(&self, load: Load) -> Option<i64> {
        self.queue.front().map(|cost| nano(u64::from(cost.under(load))))
    }

    /// Pays for the first request (`submit_next_req` of lines 9 and 18).
    fn submit_first(&mut self, load: Load) {
        self.tokens -= self.first(load).unwrap();
        self.queue.pop_front();
    }

    pub(crate) fn remember(&mut self, unused: i64) {
        let most = generated(self.rate.unwrap(), STALL_NANOS_MAX);
        if unused > 0 && self.arrears < most {
            self.arrears = self.arrears.saturating_add(unused).min(most);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) tenants: Vec<RefTenant>,
    /// Units a second that are not promised to latency-critical tenants.
    pub(crate) unallocated: u64,
    /// Latency-critical tenants in the order of their visits.
    pub(crate) critical: Vec<usize>,
    pub(crate) best_effort: Vec<usize>,
    previous: Option<u64>,
    pub(crate) rounds: [u64; 3],
    pub(crate) load: Load,
    pub(crate) bucket: i64,
    /// The nano-units that best-effort tenants have to pay back, at most `loan_max`.
    pub(crate) loan: i64,
    loan_max: i64,
    /// Idle tenants to which a request came since the last round.
    pub(crate) newcomers: Vec<usize>,
    /// The time up to which the tokens of idle tenants are in the bucket.
    pub(crate) settled_to: u64,
}

impl Reference {
    pub(crate) fn new(rates: &[Option<u64>], unallocated: u64, loan_max: i64) -> Reference {
        let tenants = rates.iter().map(|rate| RefTenant { rate: *rate, ..RefTenant::default() });
        Reference {
            tenants: tenants.collect(),
            unallocated,
            critical: Vec::new(),
            best_effort: Vec::new(),
            previous: None,
            rounds: [0; 3],
            load: Load::Mixed,
            bucket: 0,
            loan: 0,
            loan_max,
            newcomers: Vec::new(),
            settled_to: 0,
        }
    }

    /// Begins a round (lines 2 and 3). Returns, in nanoseconds, the time, the time since the last
    /// round began, and the part of that for which the round counts.
    pub(crate) fn begin(&mut self, time: u64, load: Load) -> (u64, u64, u64) {
        self.load = load;
        let time = time.max(self.previous.unwrap_or(0));
        let time_delta = time - self.previous.unwrap_or(time);
        self.previous = Some(time);
        let delta = time_delta.min(ROUND_NANOS_MAX);
        self.rounds = [delta, self.rounds[0], self.rounds[1]];
        (time, time_delta, delta)
    }

    pub(crate) fn enqueue(&mut self, tenant: usize, cost: Cost) {
        let order = match self.tenants[tenant].rate {
            Some(_) => &mut self.critical,
            None => &mut self.best_effort,
        };
        if !order.contains(&tenant) {
            order.push(tenant);
        }
        self.tenants[tenant].queue.push_back(cost);
    }

    /// Runs a round, and returns the tenants of the submitted requests in order.
    pub(crate) fn schedule(&mut self, time: u64, load: Load) -> Vec<usize> {
        let (_, time_delta, delta) = self.begin(time, load);
        let mut submitted = Vec::new();
        // Lines 13 to 21 for those without demand.
        let count = self.tenants.iter().filter(|t| t.rate.is_none()).count() as u64;
        let share = self.unallocated / count.max(1);
        self.bucket += generated(self.unallocated % count.max(1), delta);
        if count == 0 {
            self.bucket += generated(share, delta);
        }
        for n in 0..self.tenants.len() {
            if self.tenants[n].rate.is_none() && self.tenants[n].queue.is_empty() {
                self.bucket += generated(share, delta);
            }
        }
        // Lines 4 to 12.
        for n in self.critical.clone() {
            self.earn(n, time_delta);
            self.submit_critical(n, &mut submitted);
            self.donate(n);
        }
        if !self.critical.is_empty() {
            self.critical.rotate_left(1);
        }
        // Lines 13 to 21 for the others.
        let lendable = spare(generated(share * count, delta));
        let due = self.loan.min(lendable);
        for n in self.best_effort.clone() {
            let waited = self.tenants[n].waited;
            let time = if waited { time_delta.min(STALL_NANOS_MAX) } else { delta };
            self.collect(n, generated(share, time), due, lendable);
        }
        self.serve_best_effort(&mut submitted);
        // Once more for those who came before a donor.
        if self.bucket > 0 {
            self.serve_best_effort(&mut submitted);
        }
        // What is left serves latency-critical tenants when there are no others.
        if count == 0 {
            for n in self.critical.clone() {
                self.schedule_leftovers(n, &mut submitted);
            }
        }
        // Lines 22 and 23, with one thread.
        self.bucket = 0;
        for t in &mut self.tenants {
            t.waited = !t.queue.is_empty();
        }
        submitted
    }

    /// Adds a best-effort tenant's generated tokens (line 14), less its part of the repayment.
    pub(crate) fn collect(&mut self, n: usize, made: i64, due: i64, lendable: i64) {
        let repaid = if due > 0 { part(spare(made), due, lendable).min(self.loan) } else { 0 };
        self.loan -= repaid;
        self.tenants[n].tokens += made - repaid;
    }

    /// Returns Algorithm 1's POS_LIMIT in nano-units: the tokens of the last three rounds.
    pub(crate) fn pos_limit(&self, rate: u64) -> i64 {
        generated(rate, self.rounds.iter().sum())
    }

    /// Generates a latency-critical tenant's tokens (lines 5 to 7).
    pub(crate) fn earn(&mut self, n: usize, time_delta: u64) {
        let rate = self.tenants[n].rate.unwrap();
        let pos_limit = self.pos_limit(rate);
        let t = &mut self.tenants[n];
        let stalled = generated(rate, time_delta.min(STALL_NANOS_MAX));
        let full = pos_limit.max(t.demand(self.load).min(stalled));
        let made = credit(t.tokens, full, rate, time_delta);
        t.tokens += made;
        t.remember(stalled - made);
        if t.tokens < NEG_LIMIT {
            t.deficits += 1;
        }
    }

    /// Submits a latency-critical tenant's requests as far as its balance and its arrears allow
    /// (lines 8 and 9).
    pub(crate) fn submit_critical(&mut self, n: usize, submitted: &mut Vec<usize>) {
        let t = &mut self.tenants[n];
        while !t.queue.is_empty() {
            if t.tokens <= NEG_LIMIT && self.loan_max > 0 {
                let wanted = (NEG_LIMIT + 1 - t.tokens).min(t.arrears);
                let taken = wanted.min(self.bucket.max(0));
                let lent = (wanted - taken).min(self.loan_max - self.loan);
                self.bucket -= taken;
                self.loan += lent;
                t.arrears -= taken + lent;
                t.tokens += taken + lent;
            }
            if t.tokens <= NEG_LIMIT {
                break;
            }
            t.submit_first(self.load);
            submitted.push(n);
        }
    }

    /// Donates most of a latency-critical tenant's balance above its limit (lines 10 to 12).
    /// Returns `true` if the tenant donated.
    pub(crate) fn donate(&mut self, n: usize) -> bool {
        let pos_limit = self.pos_limit(self.tenants[n].rate.unwrap());
        let t = &mut self.tenants[n];
        let given = if t.tokens > pos_limit { donation(t.tokens) } else { 0 };
        t.remember(given);
        self.bucket += given;
        t.tokens -= given;
        given > 0
    }

    /// Serves a best-effort tenant, and returns the amount that it borrowed from the bucket.
    fn schedule_best_effort(&mut self, n: usize, submitted: &mut Vec<usize>) -> i64 {
        let mut claimed = 0;
        let t = &mut self.tenants[n];
        let d = t.demand(self.load) - t.tokens;
        if d > 0 {
            claimed = d.min(self.bucket.max(0));
            self.bucket -= claimed;
            t.tokens += claimed;
        }
        while t.first(self.load).is_some_and(|cost| cost <= t.tokens) {
            t.submit_first(self.load);
            submitted.push(n);
        }
        if t.tokens > 0 && t.queue.is_empty() {
            self.bucket += t.tokens;
            t.tokens = 0;
        }
        claimed
    }

    /// Serves the active best-effort tenants in order (lines 13 to 21). If the first tenant
    /// borrowed from the bucket, it is last in the next round. Tenants without demand leave the
    /// order.
    pub(crate) fn serve_best_effort(&mut self, submitted: &mut Vec<usize>) {
        let order = self.best_effort.clone();
        let mut claims = Vec::new();
        for n in &order {
            claims.push(self.schedule_best_effort(*n, submitted));
        }
        let tenants = &self.tenants;
        self.best_effort.retain(|n| !tenants[*n].queue.is_empty());
        let turn_used = claims.first().is_some_and(|claimed| *claimed > 0);
        if turn_used && self.best_effort.first() == order.first() {
            self.best_effort.rotate_left(1);
        }
    }

    pub(crate) fn schedule_leftovers(&mut self, n: usize, submitted: &mut Vec<usize>) {
        let t = &mut self.tenants[n];
        while !t.queue.is_empty() {
            let taken = (NEG_LIMIT + 1 - t.tokens).max(0).min(self.bucket.max(0));
            self.bucket -= taken;
            t.tokens += taken;
            if t.tokens <= NEG_LIMIT {
                return;
            }
            t.submit_first(self.load);
            submitted.push(n);
        }
    }
}
