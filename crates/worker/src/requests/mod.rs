//! The requests of a worker: their slots, the buffers of their payloads, and the limits of both for
//! each tenant

mod buffers;
mod chain;
mod in_flight;
mod parked;
mod put_off;
mod quota;

use contract::{Buf, BufPool, Slot, SlotTable, TenantId};

pub(crate) use buffers::Buffers;
pub(crate) use chain::SlotList;
pub(crate) use in_flight::{InFlightRequest, Payment, RequestPlacement};
pub(crate) use parked::ParkedReads;
pub(crate) use put_off::{PutOffQueues, PutOffRequest};
pub(crate) use quota::{QueuePosition, Quotas, SHARE};

use crate::Limits;

/// The reason that a request finds no slot, frame or buffer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The tenant holds more than its share, or the free slots and buffers are reserved for other
    /// tenants. The end of one of the tenant's requests ends the shortage.
    OfTenant,
    /// The tenant's unsent replies hold too many of the frames. Frames that leave end the shortage,
    /// without an event.
    Clogged,
    /// The worker has no free slot, frame or buffer, or none for tenants without a promise. The end
    /// of any request ends the shortage.
    OfWorker,
}

/// The slots, buffers and quotas of a worker's requests.
#[derive(Debug)]
pub(crate) struct Requests {
    slots: SlotTable<InFlightRequest>,
    /// The number of free slots above which no tenant can hold too many and the reserve is not
    /// touched.
    plenty: usize,
    buffers: Buffers,
    pub(crate) quotas: Quotas,
    /// The number of requests whose awaited payloads have not arrived completely.
    awaited: usize,
    /// The quotas of requests with awaited payloads. They are counted apart, because a tenant's
    /// other requests end without its peers' help.
    awaited_quotas: Quotas,
    /// Maximum number of requests that may await payloads at the same time.
    awaited_max: usize,
}

impl Requests {
    /// Creates a table for the number of requests in the limits, with the buffers of this pool, one
    /// of which becomes the spare.
    ///
    /// # Panics
    /// Panics if the pool has fewer than two of its largest buffers.
    pub(crate) fn new(pool: BufPool, limits: &Limits) -> Requests {
        Requests {
            slots: SlotTable::new(limits.in_flight),
            plenty: limits.in_flight / 2,
            buffers: Buffers::new(pool, limits.in_flight),
            quotas: Quotas::default(),
            awaited: 0,
            awaited_quotas: Quotas::default(),
            awaited_max: limits.in_flight / 2,
        }
    }

    /// Returns the request of a slot.
    ///
    /// # Panics
    /// Panics if the slot has no request.
    #[inline]
    pub(crate) fn get(&mut self, slot: Slot) -> &mut InFlightRequest {
        self.slots.get(slot)
    }

    /// Returns the request of a slot, the buffers, and the holdings of the tenants.
    ///
    /// # Panics
    /// Panics if there is no such request.
    #[inline]
    pub(crate) fn get_with_buffers(
        &mut self,
        slot: Slot,
    ) -> (&mut InFlightRequest, &mut Buffers, &Quotas) {
        (self.slots.get(slot), &mut self.buffers, &self.quotas)
    }

    /// Returns the request of a slot, unless it has ended.
    #[inline]
    pub(crate) fn find(&mut self, slot: Slot) -> Option<&mut InFlightRequest> {
        self.slots.find(slot)
    }

    /// Returns the table of requests, which holds the links of lists of requests.
    #[inline]
    pub(crate) fn table(&mut self) -> &mut SlotTable<InFlightRequest> {
        &mut self.slots
    }

    /// Returns all requests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &InFlightRequest> {
        self.slots.iter().map(|(_, entry)| entry)
    }

    /// Returns all requests to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut InFlightRequest> {
        self.slots.iter_mut()
    }

    /// Returns how many requests are in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of free slots.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.slots.room()
    }

    /// Puts a request into a free slot after its tenant's quota has counted it.
    #[inline(always)]
    pub(crate) fn insert(&mut self, make: impl FnOnce() -> InFlightRequest) -> Slot {
        self.slots.insert_with(make)
    }

    /// Drops a request; returns whether connections wait for its tenant to hold less.
    #[inline(always)]
    pub(crate) fn discard(
        &mut self,
        slot: Slot,
        tenant: TenantId,
        payload_class: Option<u32>,
    ) -> bool {
        self.slots.discard(slot, |_| ());
        self.quotas.release(tenant, payload_class)
    }

    /// Removes and returns a request, with whether connections wait for its tenant to hold less.
    pub(crate) fn remove(&mut self, slot: Slot) -> (InFlightRequest, bool) {
        let entry = self.slots.remove(slot);
        let is_waited_for = self.quotas.release(entry.tenant, entry.payload.class);
        (entry, is_waited_for)
    }

    /// Checks that the tenant may have one of the free slots, and takes a buffer for a payload of
    /// so many bytes (`None` without a payload), if the tenant may have one. The tenant leaves the
    /// reserve to others if it `yields`.
    #[inline(always)]
    pub(crate) fn supply(
        &mut self,
        tenant: TenantId,
        bytes: usize,
        yields: impl Fn() -> bool,
    ) -> Result<Option<Buf>, Shortage> {
        // While more than half of all are free, every tenant is allowed one more.
        if self.slots.room() > self.plenty {
            if bytes == 0 {
                return Ok(None);
            }
            if let Some(buf) = self.buffers.pool.take_plentiful(bytes) {
                return Ok(Some(buf));
            }
        }
        self.supply_counted(tenant, bytes, yields)
    }

    /// Checks that the tenant's quota allows a slot and a buffer, and takes the buffer.
    #[inline(never)]
    fn supply_counted(
        &mut self,
        tenant: TenantId,
        bytes: usize,
        yields: impl Fn() -> bool,
    ) -> Result<Option<Buf>, Shortage> {
        let reserve = self.buffers.reserve;
        let left = reserve.left_of_slots(self.slots.room(), &yields);
        if left == 0 {
            return Err(Shortage::OfWorker);
        }
        if !self.quotas.allows_slot(tenant, left) {
            return Err(Shortage::OfTenant);
        }
        if bytes == 0 {
            return Ok(None);
        }
        let (pool, reads) = self.buffers.pool_beside_reads(tenant);
        let quotas = &mut self.quotas;
        let mut holds_too_much = false;
        let may = |class, free| {
            let left = reserve.left(class, free, &yields);
            let is_its = left > 0 && quotas.allows_payload(tenant, class, left, reads(class));
            holds_too_much |= !is_its && quotas.payloads(tenant, class) > 0;
            is_its
        };
        match pool.take_where(bytes, may) {
            None if holds_too_much => Err(Shortage::OfTenant),
            None => Err(Shortage::OfWorker),
            Some(buf) => Ok(Some(buf)),
        }
    }

    /// Takes a buffer for a payload that will be asked for, if a slot is free, and counts both for
    /// the tenant, which leaves the reserve to others if it `yields`.
    pub(crate) fn supply_awaited(
        &mut self,
        tenant: TenantId,
        bytes: usize,
        yields: impl Fn() -> bool,
    ) -> Result<Buf, Shortage> {
        let reserve = self.buffers.reserve;
        let left = self.awaited_max.saturating_sub(self.awaited);
        let slots = reserve.left_of_slots(self.slots.room(), &yields);
        if left == 0 || slots == 0 {
            return Err(Shortage::OfWorker);
        }
        let (pool, reads) = self.buffers.pool_beside_reads(tenant);
        // What came is held like any other request: who holds too much of that asks for no more.
        let (quotas, held) = (&mut self.awaited_quotas, &mut self.quotas);
        if !quotas.allows_slot(tenant, left) || !held.allows_slot(tenant, slots) {
            return Err(Shortage::OfTenant);
        }
        let may = |class, free| {
            let left = reserve.left(class, free, &yields);
            left > 0
                && quotas.allows_payload(tenant, class, left, 0)
                && held.allows_payload(tenant, class, left, reads(class))
        };
        let buf = pool.take_but_last_where(bytes, may);
        let buf = buf.ok_or(Shortage::OfTenant)?;
        // The request counts as awaited, and not as held: see `end_awaiting`.
        self.awaited_quotas.hold(tenant, Some(buf.class()));
        self.awaited += 1;
        Ok(buf)
    }

    /// Returns whether the tenant has nothing that ends by itself: no request in flight, and no
    /// data of a read on its way to a peer.
    pub(crate) fn is_idle(&mut self, tenant: TenantId) -> bool {
        self.quotas.holds_nothing(tenant) && self.buffers.has_no_reads(tenant)
    }

    /// Moves a request that no longer awaits its payload to the tenant's usual quota.
    pub(crate) fn end_awaiting(&mut self, slot: Slot) {
        let entry = self.slots.get(slot);
        let (tenant, class) = (entry.tenant, entry.payload.class);
        self.awaited -= 1;
        self.awaited_quotas.release(tenant, class);
        self.quotas.hold(tenant, class);
    }

    /// Takes a buffer for a message that a session sends by itself; `None` if there is none for the
    /// tenant. The buffer is charged to the tenant like the data of a read.
    pub(crate) fn take_for_speech(&mut self, tenant: TenantId, bytes: usize) -> Option<Buf> {
        self.buffers.take_for_read(&self.quotas, (tenant, bytes), false, || false)
    }

    /// Returns a buffer to the pool. The result is the tenant whose read had it, if connections
    /// wait for that tenant to hold less; `None` otherwise.
    pub(crate) fn give_back(&mut self, buf: Buf) -> Option<TenantId> {
        let tenant = self.buffers.give_back(buf)?;
        self.quotas.is_waited_for(tenant).then_some(tenant)
    }

    /// Returns the bytes of the largest buffers.
    #[inline]
    pub(crate) fn largest(&self) -> usize {
        self.buffers.pool.largest()
    }

    /// Returns the number of buffers that are out of the pool, without the spare.
    pub(crate) fn buffers_taken(&self) -> usize {
        self.buffers.pool.taken() - usize::from(self.buffers.spare.is_some())
    }

    /// Ends the table and returns its buffers.
    ///
    /// # Panics
    /// Panics if a buffer is out of the pool.
    pub(crate) fn into_pool(mut self) -> BufPool {
        let Buffers { pool, spare, .. } = &mut self.buffers;
        pool.give(spare.take().expect("a worker at rest"));
        self.buffers.pool
    }
}
