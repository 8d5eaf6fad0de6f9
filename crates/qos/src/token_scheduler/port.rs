//! The ports of a worker to its scheduler: [`Scheduler`] and [`Feedback`].

use alloc::vec::Vec;
use core::time::Duration;

use contract::{Feedback, Instant, Kind, QueueFull, Scheduler, Slot, TenantId, Tokens};

use super::TokenScheduler;
use crate::tenant::Class;

/// The shortest time that a worker with waiting requests is told to sleep, in nanoseconds: a round
/// sooner than that finds nothing new (paper, section 3.2.2: rounds of 0.5 to 100 µs).
const WAKE_NANOS_MIN: u64 = 1_000;

impl TokenScheduler {
    /// Queues a request that does not continue the run of requests before it.
    #[inline(never)]
    fn push(
        &mut self,
        tenant: TenantId,
        kind: Kind,
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
        kind: Kind,
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
    /// Refuses requests of tenants that are not registered or leaving, requests beyond the bounds,
    /// and, where [`Registry::fail_fast`](crate::Registry::fail_fast) was asked for, requests that
    /// their tenant's rate would not let go before their latency has passed.
    #[inline]
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: Kind,
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

    fn refund(&mut self, kind: Kind, bytes: usize) {
        self.ledger.refund(self.queues.price(kind, bytes).under(self.round.load()));
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

    /// Returns when the first of the waiting requests can be paid, at the latest after the longest
    /// round; without waiting requests, when the first of the resting tenants starts to donate.
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

    fn ended(&mut self, kind: Kind, delay: Duration) {
        if self.round.is_measuring() && kind == Kind::Read {
            self.ledger.record_delay(delay);
        }
    }
}
