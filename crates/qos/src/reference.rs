//! Algorithm 1 of the paper, line by line, for one worker: the oracle of the fast scheduler's tests.
//!
//! It keeps all tenants in vectors, visits every one of them in every round and knows nothing of
//! pools, rings, heaps or atomics. What the paper leaves open is fixed here as docs/scheduler.md
//! says: tenants without demand come first among the best-effort ones, those with demand take turns
//! in the order in which they became active.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::units::{NEG_LIMIT, ROUND_NANOS_MAX, credit, donation, generated, nano};
use crate::{Cost, Load};

/// A tenant of the oracle; requests are their prices.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefTenant {
    /// Of a latency-critical tenant.
    pub(crate) rate: Option<u64>,
    pub(crate) tokens: i64,
    pub(crate) queue: VecDeque<Cost>,
    pub(crate) deficits: u64,
}

impl RefTenant {
    fn demand(&self, load: Load) -> i64 {
        nano(self.queue.iter().map(|cost| u64::from(cost.under(load))).sum())
    }

    /// What the first request costs, in nano-units.
    fn first(&self, load: Load) -> Option<i64> {
        self.queue.front().map(|cost| nano(u64::from(cost.under(load))))
    }

    /// Spends the first request's price (`submit_next_req` of lines 9 and 18).
    fn submit_first(&mut self, load: Load) {
        self.tokens -= self.first(load).unwrap();
        self.queue.pop_front();
    }
}

#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) tenants: Vec<RefTenant>,
    /// Units a second that are not promised to latency-critical tenants.
    unallocated: u64,
    /// Tenants in the order of their visits.
    critical: Vec<usize>,
    best_effort: Vec<usize>,
    previous: Option<u64>,
    rounds: [u64; 3],
    load: Load,
    pub(crate) bucket: i64,
}

impl Reference {
    pub(crate) fn new(rates: &[Option<u64>], unallocated: u64) -> Reference {
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
        }
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

    /// A round: who submits, in order.
    pub(crate) fn schedule(&mut self, time: u64, load: Load) -> Vec<usize> {
        // Lines 2 and 3.
        self.load = load;
        let time = time.max(self.previous.unwrap_or(0));
        let time_delta = time - self.previous.unwrap_or(time);
        self.previous = Some(time);
        let delta = time_delta.min(ROUND_NANOS_MAX);
        self.rounds = [delta, self.rounds[0], self.rounds[1]];
        let mut submitted = Vec::new();
        // Lines 4 to 12.
        for n in self.critical.clone() {
            self.schedule_critical(n, time_delta, &mut submitted);
        }
        // Lines 13 to 21.
        let count = self.tenants.iter().filter(|t| t.rate.is_none()).count() as u64;
        let made = generated(self.unallocated / count.max(1), delta);
        self.bucket += generated(self.unallocated % count.max(1), delta);
        if count == 0 {
            self.bucket += made;
        }
        for n in 0..self.tenants.len() {
            if self.tenants[n].rate.is_none() && self.tenants[n].queue.is_empty() {
                self.bucket += made;
            }
        }
        if !self.critical.is_empty() {
            self.critical.rotate_left(1);
        }
        self.serve_best_effort(made, &mut submitted);
        // Once more for those who came before a donor.
        if self.bucket > 0 {
            self.serve_best_effort(0, &mut submitted);
        }
        // What is left serves latency-critical tenants when there are no others.
        if count == 0 {
            for n in self.critical.clone() {
                self.schedule_leftovers(n, &mut submitted);
            }
        }
        // Lines 22 and 23, with one thread.
        self.bucket = 0;
        submitted
    }

    fn schedule_critical(&mut self, n: usize, time_delta: u64, submitted: &mut Vec<usize>) {
        let pos_limit = {
            let t = &self.tenants[n];
            generated(t.rate.unwrap(), self.rounds.iter().sum())
        };
        let t = &mut self.tenants[n];
        t.tokens += credit(t.tokens, pos_limit, t.rate.unwrap(), time_delta);
        if t.tokens < NEG_LIMIT {
            t.deficits += 1;
        }
        while !t.queue.is_empty() && t.tokens > NEG_LIMIT {
            t.submit_first(self.load);
            submitted.push(n);
        }
        if t.tokens > pos_limit {
            let given = donation(t.tokens);
            self.bucket += given;
            t.tokens -= given;
        }
    }

    /// What it got from the bucket.
    fn schedule_best_effort(&mut self, n: usize, made: i64, submitted: &mut Vec<usize>) -> i64 {
        let mut claimed = 0;
        let t = &mut self.tenants[n];
        t.tokens += made;
        let d = t.demand(self.load) - t.tokens;
        if d > 0 {
            claimed = d.min(self.bucket);
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

    /// Lines 13 to 21 in order. Who was first and got something from the bucket is last the next
    /// time; those without demand drop out of the order.
    fn serve_best_effort(&mut self, made: i64, submitted: &mut Vec<usize>) {
        let order = self.best_effort.clone();
        let mut claims = Vec::new();
        for n in &order {
            claims.push(self.schedule_best_effort(*n, made, submitted));
        }
        let tenants = &self.tenants;
        self.best_effort.retain(|n| !tenants[*n].queue.is_empty());
        let turn_used = claims.first().is_some_and(|claimed| *claimed > 0);
        if turn_used && self.best_effort.first() == order.first() {
            self.best_effort.rotate_left(1);
        }
    }

    fn schedule_leftovers(&mut self, n: usize, submitted: &mut Vec<usize>) {
        let t = &mut self.tenants[n];
        while !t.queue.is_empty() {
            let taken = (NEG_LIMIT + 1 - t.tokens).max(0).min(self.bucket);
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
