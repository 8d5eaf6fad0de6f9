//! Tenants without demand: how they enter a round, rest, and leave it.
//!
//! If a tenant without demand gets a few requests, these go *the short way*: they are submitted at
//! the beginning of the round, and the tenant stays in its idle pool. The price is charged to the
//! bucket, into which the pool generates the tenant's tokens. A latency-critical tenant may be
//! ahead of its rate by the deficit that Algorithm 1 allows; one number records it, the time until
//! which its rate is spent. A tenant with more requests is held, takes that debt along, and is
//! visited. See docs/explanation/scheduler.md, "Tenants without demand".

use super::TokenScheduler;
use crate::ledger::ImmediateDemand;
use crate::round::SubmittedCounts;
use crate::tenant::Class;
use crate::units::nano;

impl TokenScheduler {
    /// Serves the newcomers that may go the short way, and holds the others.
    pub(super) fn take_newcomers(&mut self) {
        // What the bucket may owe when several workers look at once is made up for like any debt.
        let spare = self.ledger.shared().bucket.held();
        let (mut served, mut short) = (SubmittedCounts::default(), 0);
        for nth in 0..self.queues.newcomers() {
            let tenant = self.queues.newcomer(nth);
            match self.express(tenant, spare - nano(served.units)) {
                Some(submitted) => {
                    served += submitted;
                    short += 1;
                }
                None => self.hold(tenant),
            }
        }
        self.queues.clear_newcomers();
        self.round.set_short(short);
        if served.units > 0 {
            self.ledger.charge(served.units);
            self.round.add(served);
        }
    }

    /// Serves all requests of a newcomer the short way, if its rate allows them, and returns their
    /// cost; `None` if the newcomer is to be held. The bucket has `spare` nano-units left.
    #[inline(always)]
    fn express(&mut self, tenant: u32, spare: i64) -> Option<SubmittedCounts> {
        let (ledger, round) = (&self.ledger, &self.round);
        self.queues.serve_short(tenant, |count, sum| {
            // In the ring, large requests of best effort wait for each other.
            if ledger.may_exceed(sum, round) && ledger.terms(tenant).class == Class::BestEffort {
                return None;
            }
            let requests = round.sum_of(sum);
            let ask = ImmediateDemand { requests, is_single: count == 1 };
            ledger.spend_short(tenant, ask, spare, round).then_some(requests)
        })
    }

    /// Holds a newcomer, so that the round visits it.
    #[inline(never)]
    fn hold(&mut self, tenant: u32) {
        let class = self.ledger.hold(tenant, self.round.now());
        self.queues.enter(tenant, class);
    }

    /// Visits the resting tenants whose balances should be full by now.
    pub(super) fn visit_dues(&mut self) {
        while let Some(tenant) = self.queues.take_due(self.round.now()) {
            let terms = self.ledger.terms(tenant);
            if terms.class == Class::LatencyCritical {
                let demand = nano(self.queues.sum(tenant).under(self.round.load()));
                self.ledger.earn(tenant, terms.rate, demand, &self.round);
                let has_donated = self.ledger.donate(tenant, terms.rate, &self.round);
                self.rest(tenant, terms.rate, has_donated);
            } else {
                self.give_up(tenant);
            }
        }
    }

    /// Keeps a held latency-critical tenant without demand until its balance is full, or releases
    /// it if it has donated.
    pub(super) fn rest(&mut self, tenant: u32, rate: u64, has_donated: bool) {
        match self.ledger.rest(tenant, rate, has_donated, &self.round) {
            Some(due) => self.queues.add_due(tenant, due),
            None => self.queues.leave(tenant),
        }
    }

    /// Releases a held best-effort tenant without demand.
    pub(super) fn give_up(&mut self, tenant: u32) {
        self.queues.leave(tenant);
        self.ledger.give_up(tenant, &self.round);
    }
}

/// Releases all tenants that the worker holds. Their rates return to the pools, and the numbers of
/// leaving tenants can be freed.
impl Drop for TokenScheduler {
    fn drop(&mut self) {
        for tenant in self.queues.held() {
            self.ledger.abandon(tenant, &self.round);
        }
        self.large.leave(&self.ledger.shared().backlog);
    }
}
