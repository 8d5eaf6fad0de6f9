//! The queues of one worker: the waiting requests of tenants, and the rings of tenants to be
//! visited.
//!
//! A tenant is away, a newcomer, in the ring of its class, or resting; its requests lie in one
//! table with those of all others (`requests.rs`). This module deliberately leaves out tokens
//! (`ledger.rs`), and when a tenant is visited (`token_scheduler.rs`).

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use contract::{IoKind, QueueFull, Slot};

use crate::cost_model::{CostModel, PriceIndex, PriceSum};
use crate::requests::{PaidRequests, Queue, Requests};
use crate::ring::{Links, Ring};
use crate::run::Run;
use crate::shared::Prices;
use crate::tenant::Class;

/// The maximum numbers of requests that may wait in one worker's scheduler for a device.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Maximum number of waiting requests. Slots have indices below this.
    pub slots: usize,
    /// Maximum number of waiting requests of one tenant; the next is answered with
    /// [`contract::Status::Retry`]. Equal to `slots` for tenants of protocol version 1, which lacks
    /// that status: their connections end.
    pub of_tenant: u32,
}

/// The state of a tenant on this worker: in which list it waits for a visit, if in any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VisitState {
    /// The worker does not hold the tenant.
    Away,
    /// A request came to the idle tenant; the next round begins with it.
    Newcomer,
    /// The tenant waits for its visit in the ring of latency-critical tenants.
    Critical,
    /// The tenant waits for its visit in the ring of best-effort tenants.
    BestEffort,
    /// The worker holds the tenant without demand, until the tenant's balance would be full.
    Resting,
}

/// A worker's state of a tenant: its queue of requests, and the list in which it waits.
#[derive(Clone, Copy, Debug)]
struct LocalTenant {
    queue: Queue,
    place: VisitState,
    /// `true` if `dues` has an entry of the tenant, possibly an outdated one.
    has_due: bool,
}

/// All waiting requests of a worker at one device, in a queue for each tenant.
#[derive(Debug)]
pub(crate) struct Queues {
    cost: CostModel,
    of_tenant: u32,
    locals: Box<[LocalTenant]>,
    requests: Requests,
    /// The run of equal requests that were queued last, stored as one request and a count. The
    /// queue's counts include only the first request of the run.
    run: Run,
    /// `true` if the last run had more than one request, so that the next request is expected to
    /// begin a run of equal requests.
    expects_runs: bool,
    /// Requests that were paid the short way, and wait to be submitted at the beginning of a round.
    ready: PaidRequests,
    links: Links,
    critical: Ring,
    best_effort: Ring,
    /// The first `coming` entries are the idle tenants to which requests came since the last round,
    /// each once.
    newcomers: Box<[u32]>,
    coming: usize,
    /// Resting tenants by the time at which their balances would be full.
    dues: BinaryHeap<Reverse<(u64, u32)>>,
    /// Number of requests in the tenants' queues and in `ready`, without those that the run adds.
    queued: usize,
}

impl Queues {
    /// Creates empty queues for `tenants` tenants, with the prices of `cost`.
    pub(crate) fn new(tenants: usize, cost: CostModel, limits: QueueLimits) -> Queues {
        assert!(limits.of_tenant > 0, "a tenant may have a request waiting");
        let away = LocalTenant { queue: Queue::EMPTY, place: VisitState::Away, has_due: false };
        Queues {
            cost,
            of_tenant: limits.of_tenant,
            locals: alloc::vec![away; tenants].into(),
            requests: Requests::new(limits.slots),
            run: Run::OVER,
            expects_runs: false,
            ready: PaidRequests::NONE,
            links: Links::new(tenants),
            critical: Ring::EMPTY,
            best_effort: Ring::EMPTY,
            newcomers: alloc::vec![0; tenants].into(),
            coming: 0,
            dues: BinaryHeap::with_capacity(tenants),
            queued: 0,
        }
    }

    /// Queues a request if it continues the present run. Returns `false`, without queueing the
    /// request, if it does not continue the run.
    #[inline]
    pub(crate) fn extend_run(
        &mut self,
        tenant: u32,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> bool {
        self.run.extend(&mut self.requests, tenant, kind, bytes, slot)
    }

    /// Queues a request of a tenant of this class that does not continue the run.
    #[inline]
    pub(crate) fn push(
        &mut self,
        (tenant, class): (u32, Class),
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        let local = &mut self.locals[tenant as usize];
        if local.place != VisitState::Away || self.run.is_open() || self.expects_runs {
            self.end_run();
            return self.append((tenant, class), kind, bytes, slot, true);
        }
        // The first request of a tenant that had none is most often the only one.
        if !self.requests.has_place(slot) {
            return Err(QueueFull);
        }
        let line = PriceIndex::of(kind, bytes);
        local.queue = self.requests.queue_of(slot, line, self.cost.priced(line));
        local.place = VisitState::Newcomer;
        self.queued += 1;
        self.welcome(tenant);
        Ok(())
    }

    /// Queues a request behind those of its tenant. Begins a run if more alike are expected and
    /// `may_run` allows it.
    #[inline(never)]
    pub(crate) fn append(
        &mut self,
        (tenant, class): (u32, Class),
        kind: IoKind,
        bytes: usize,
        slot: Slot,
        may_run: bool,
    ) -> Result<(), QueueFull> {
        let line = PriceIndex::of(kind, bytes);
        let local = &mut self.locals[tenant as usize];
        if local.queue.len >= self.of_tenant || !self.requests.has_place(slot) {
            return Err(QueueFull);
        }
        self.requests.push(&mut local.queue, slot, line, self.cost.priced(line));
        self.queued += 1;
        // The first one of a queue is often the only one, or never.
        if (local.queue.len > 1 || self.expects_runs) && may_run {
            let room = self.of_tenant - local.queue.len;
            self.run = Run::new(tenant, (kind, bytes, line), slot, room);
        }
        match local.place {
            VisitState::Newcomer | VisitState::Critical | VisitState::BestEffort => {}
            VisitState::Away => {
                local.place = VisitState::Newcomer;
                self.welcome(tenant);
            }
            VisitState::Resting => self.enter(tenant, class),
        }
        Ok(())
    }

    #[inline]
    fn welcome(&mut self, tenant: u32) {
        self.newcomers[self.coming] = tenant;
        self.coming += 1;
    }

    /// Ends the run, before a queue is read.
    #[inline]
    pub(crate) fn end_run(&mut self) {
        if self.run.is_open() {
            self.append_run();
        }
    }

    /// Adds the ended run to the counts of its queue.
    #[inline(never)]
    fn append_run(&mut self) {
        self.expects_runs = self.run.has_followers();
        if self.expects_runs {
            let (run, count) = (&self.run, self.run.len());
            let queue = &mut self.locals[run.tenant as usize].queue;
            self.requests.append_run(queue, run.tail, count, self.cost.priced(run.line));
            self.queued += count as usize;
        }
        self.run.close();
    }

    /// Puts a held tenant into the ring of its class.
    pub(crate) fn enter(&mut self, tenant: u32, class: Class) {
        let (ring, place) = match class {
            Class::LatencyCritical => (&mut self.critical, VisitState::Critical),
            _ => (&mut self.best_effort, VisitState::BestEffort),
        };
        ring.push(&mut self.links, tenant);
        self.locals[tenant as usize].place = place;
    }

    fn exit(&mut self, tenant: u32, to: VisitState) {
        let local = &mut self.locals[tenant as usize];
        let ring = match local.place {
            VisitState::Critical => &mut self.critical,
            VisitState::BestEffort => &mut self.best_effort,
            place => panic!("tenant {tenant} is in no ring but {place:?}"),
        };
        ring.remove(&mut self.links, tenant);
        local.place = to;
    }

    /// Moves a tenant whose class has changed to the ring of tenants of `class`.
    pub(crate) fn change_ring(&mut self, tenant: u32, class: Class) {
        self.exit(tenant, VisitState::Away);
        self.enter(tenant, class);
    }

    /// Removes a tenant without demand from its ring. The worker still holds the tenant.
    pub(crate) fn rest(&mut self, tenant: u32) {
        self.exit(tenant, VisitState::Resting);
    }

    /// Notes that the worker no longer holds a resting tenant.
    pub(crate) fn leave(&mut self, tenant: u32) {
        self.locals[tenant as usize].place = VisitState::Away;
    }

    /// Notes the time at which a resting tenant's balance will be full, in nanoseconds, unless an
    /// earlier entry of the tenant exists.
    pub(crate) fn add_due(&mut self, tenant: u32, due: u64) {
        let local = &mut self.locals[tenant as usize];
        if !local.has_due {
            local.has_due = true;
            self.dues.push(Reverse((due, tenant)));
        }
    }

    /// Removes the first resting tenant whose balance should be full by `now` (nanoseconds).
    /// Returns `None` if there is none.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<u32> {
        while let Some(&Reverse((due, tenant))) = self.dues.peek() {
            if due > now {
                return None;
            }
            self.dues.pop();
            let local = &mut self.locals[tenant as usize];
            local.has_due = false;
            if local.place == VisitState::Resting {
                return Some(tenant);
            }
        }
        None
    }

    /// Returns the earliest time, in nanoseconds, at which a resting tenant may be due; `None` if
    /// no tenant rests.
    pub(crate) fn first_due(&self) -> Option<u64> {
        self.dues.peek().map(|Reverse((due, _))| *due)
    }

    /// Returns how many newcomers the next round begins with.
    #[inline]
    pub(crate) fn newcomers(&self) -> usize {
        self.coming
    }

    /// Returns a newcomer by its index in order of arrival.
    #[inline]
    pub(crate) fn newcomer(&self, nth: usize) -> u32 {
        self.newcomers[nth]
    }

    /// Clears the list of newly active tenants, after each of them was added to a ring or served.
    pub(crate) fn clear_newcomers(&mut self) {
        self.coming = 0;
    }

    /// Calls `pay` with the number and the total price of a newcomer's requests. If `pay` returns a
    /// value, moves the requests behind the ready ones, and returns that value.
    #[inline]
    pub(crate) fn serve_short<R>(
        &mut self,
        tenant: u32,
        pay: impl FnOnce(u32, &PriceSum) -> Option<R>,
    ) -> Option<R> {
        let local = &mut self.locals[tenant as usize];
        let paid = pay(local.queue.len, &local.queue.sum)?;
        local.place = VisitState::Away;
        self.requests.append_paid(&mut self.ready, &mut local.queue);
        Some(paid)
    }

    /// Removes the requests that are paid and ready.
    pub(crate) fn take_ready(&mut self) -> PaidRequests {
        self.queued -= self.ready.left as usize;
        core::mem::replace(&mut self.ready, PaidRequests::NONE)
    }

    /// Puts back the ready requests that a round had no room for.
    pub(crate) fn put_ready(&mut self, paid: PaidRequests) {
        self.queued += paid.left as usize;
        self.ready = paid;
    }

    /// Removes and returns all waiting requests of a tenant that has paid for all of them.
    pub(crate) fn take_all(&mut self, tenant: u32) -> PaidRequests {
        let paid = self.requests.take_paid(&mut self.locals[tenant as usize].queue);
        self.queued -= paid.left as usize;
        paid
    }

    /// Removes and returns the first waiting request of a tenant that has paid for it; `priced` is
    /// the request's cost.
    pub(crate) fn take_first(&mut self, tenant: u32, priced: &PriceSum) -> PaidRequests {
        self.queued -= 1;
        self.requests.take_first(&mut self.locals[tenant as usize].queue, priced)
    }

    /// Removes the first of the paid requests; there must be one.
    #[inline]
    pub(crate) fn pop_paid(&mut self, paid: &mut PaidRequests) -> Slot {
        self.requests.pop_paid(paid)
    }

    /// Puts requests that were paid but not submitted back to the front of their tenant's queue,
    /// and returns their cost.
    pub(crate) fn put_back(&mut self, tenant: u32, paid: PaidRequests) -> PriceSum {
        self.queued += paid.left as usize;
        self.requests.put_back(&mut self.locals[tenant as usize].queue, paid, &self.cost)
    }

    /// Removes one waiting request of any tenant; `None` if none waits. Requests that were paid the
    /// short way stay.
    pub(crate) fn discard(&mut self) -> Option<Slot> {
        let waiting = self.locals.iter_mut().find(|local| local.queue.len > 0)?;
        let line = self.requests.first(&waiting.queue).expect("a queue with a length has a first");
        self.queued -= 1;
        Some(self.requests.pop(&mut waiting.queue, self.cost.priced(line)))
    }

    /// Moves the `wanted` requests of a tenant to `taken`, in order of arrival. The next round
    /// releases the tenant if it has none left.
    pub(crate) fn withdraw(
        &mut self,
        tenant: u32,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        let Some(local) = self.locals.get_mut(tenant as usize) else { return };
        let before = local.queue.len;
        self.requests.withdraw(&mut local.queue, &self.cost, wanted, taken);
        self.queued -= (before - local.queue.len) as usize;
        if local.queue.len == 0 && local.place == VisitState::Newcomer {
            local.place = VisitState::Away;
            let coming = &mut self.newcomers[..self.coming];
            let place = coming.iter().position(|newcomer| *newcomer == tenant);
            let place = place.expect("a newcomer is among the newcomers");
            coming.copy_within(place + 1.., place);
            self.coming -= 1;
        }
    }

    /// Prices all waiting requests anew, if `prices` have changed.
    pub(crate) fn reprice(&mut self, prices: Prices) {
        if prices != Prices::of(&self.cost) {
            self.set_prices(prices);
        }
    }

    #[cold]
    fn set_prices(&mut self, prices: Prices) {
        self.cost.set_write(prices.write);
        self.cost.set_tax(prices.tax);
        self.cost.set_read_only_read(prices.read_only_read);
        for local in self.locals.iter_mut().filter(|local| local.queue.len > 0) {
            self.requests.reprice(&mut local.queue, &self.cost);
        }
    }

    /// Starts the next round's walk of a ring with this tenant.
    pub(crate) fn start_at(&mut self, class: Class, tenant: u32) {
        match class {
            Class::LatencyCritical => self.critical.start_at(tenant),
            _ => self.best_effort.start_at(tenant),
        }
    }

    /// Makes the next round begin with the tenant after `tenant`, if the ring begins with `tenant`
    /// now.
    pub(crate) fn rotate(&mut self, class: Class, tenant: u32) {
        if self.ring(class).head() == Some(tenant) {
            self.start_at(class, self.links.behind(tenant));
        }
    }

    /// Returns the ring of a class.
    pub(crate) fn ring(&self, class: Class) -> Ring {
        match class {
            Class::LatencyCritical => self.critical,
            _ => self.best_effort,
        }
    }

    /// Returns the tenant that follows `tenant` in its ring.
    pub(crate) fn behind(&self, tenant: u32) -> u32 {
        self.links.behind(tenant)
    }

    /// Returns `true` if a tenant is in the ring of latency-critical tenants.
    pub(crate) fn is_critical(&self, tenant: u32) -> bool {
        self.locals[tenant as usize].place == VisitState::Critical
    }

    /// Returns the number of tenants in the rings.
    pub(crate) fn active(&self) -> u32 {
        self.critical.len + self.best_effort.len
    }

    /// Returns the tenants that the worker holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = u32> {
        let is_held = |place| !matches!(place, VisitState::Away | VisitState::Newcomer);
        let of = move |(tenant, local): (usize, &LocalTenant)| {
            is_held(local.place).then_some(tenant as u32)
        };
        self.locals.iter().enumerate().filter_map(of)
    }

    /// Returns the cost of all requests of a tenant.
    #[inline]
    pub(crate) fn sum(&self, tenant: u32) -> &PriceSum {
        &self.locals[tenant as usize].queue.sum
    }

    /// Returns the cost of a tenant's first request; `None` without requests.
    pub(crate) fn first(&self, tenant: u32) -> Option<&PriceSum> {
        let first = self.requests.first(&self.locals[tenant as usize].queue);
        first.map(|line| self.cost.priced(line))
    }

    /// Returns the kind and the size, in bytes of whole pages, of a tenant's first request; `None`
    /// without requests.
    pub(crate) fn first_size(&self, tenant: u32) -> Option<(IoKind, usize)> {
        self.requests.first(&self.locals[tenant as usize].queue).map(PriceIndex::size)
    }

    /// Returns the price of a request of this kind and size.
    pub(crate) fn price(&self, kind: IoKind, bytes: usize) -> &PriceSum {
        self.cost.priced(PriceIndex::of(kind, bytes))
    }

    /// Returns the number of a tenant's waiting requests, without those of the run.
    #[inline]
    pub(crate) fn queued_of(&self, tenant: u32) -> u32 {
        self.locals[tenant as usize].queue.len
    }

    /// Returns the number of a tenant's waiting requests, with those of the run.
    pub(crate) fn len_of(&self, tenant: u32) -> u32 {
        let run = if self.run.tenant == tenant { self.run.len() } else { 0 };
        run + self.locals.get(tenant as usize).map_or(0, |local| local.queue.len)
    }

    /// Returns the number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.queued + self.run.len() as usize
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
