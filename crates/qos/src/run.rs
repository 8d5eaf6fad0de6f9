//! Runs: successive requests of one tenant, one kind and one size.
//!
//! A connection's requests are often alike. The first of a run is queued like any other. The others
//! are only linked, and are counted, priced and checked against bounds together when the run ends,
//! before a queue is read. This module deliberately leaves out the queues (`requests.rs`).

use contract::{IoKind, Slot};

use crate::cost_model::PriceIndex;
use crate::requests::Requests;

/// The run of the requests that a scheduler queued last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) tenant: u32,
    /// The price-list line of each request.
    pub(crate) line: PriceIndex,
    /// Kind and size of the requests, as [`key`] encodes them; [`NO_KEY`] when no request may
    /// follow.
    key: u64,
    /// The last request of the run.
    pub(crate) tail: Slot,
    /// The number of requests that may still follow, of at most `most` behind the first.
    room: u32,
    most: u32,
}

impl Run {
    /// A run that has ended.
    pub(crate) const OVER: Run = Run {
        tenant: 0,
        line: PriceIndex::NONE,
        key: NO_KEY,
        tail: Slot::from_bits(u32::MAX),
        room: 0,
        most: 0,
    };

    /// Creates a run whose first request, of this kind and size, was just queued. At most `most`
    /// requests may follow.
    pub(crate) fn new(
        tenant: u32,
        (kind, bytes, line): (IoKind, usize, PriceIndex),
        first: Slot,
        most: u32,
    ) -> Run {
        let key = if most > 0 { key(kind, bytes) } else { NO_KEY };
        Run { tenant, line, key, tail: first, room: most, most }
    }

    /// Returns `true` if requests may have followed the first.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.most > 0
    }

    /// Returns `true` if requests have followed the first.
    pub(crate) fn has_followers(&self) -> bool {
        self.room < self.most
    }

    /// Closes the run: no more requests follow.
    pub(crate) fn close(&mut self) {
        (self.key, self.room, self.most) = (NO_KEY, 0, 0);
    }

    /// Returns the number of requests behind the first.
    pub(crate) fn len(&self) -> u32 {
        self.most - self.room
    }

    /// Links a request that belongs to the run behind its last one. Returns `false` if the request
    /// does not belong to the run.
    #[inline]
    pub(crate) fn extend(
        &mut self,
        requests: &mut Requests,
        tenant: u32,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> bool {
        if self.tenant != tenant || self.key != key(kind, bytes) || !requests.has_place(slot) {
            return false;
        }
        requests.link(self.tail, slot, self.line);
        self.tail = slot;
        self.room -= 1;
        if self.room == 0 {
            self.key = NO_KEY;
        }
        true
    }
}

/// The key of no request.
const NO_KEY: u64 = u64::MAX;

/// Returns kind and size as one number.
#[inline]
fn key(kind: IoKind, bytes: usize) -> u64 {
    (bytes as u64) << 2 | kind as u64
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use alloc::vec::Vec;

    use contract::{Instant, IoKind, Scheduler, Slot, SlotTable, TenantId};

    use crate::{DeviceModel, QueueLimits, Registry, TokenScheduler};

    const OF_TENANT: u32 = 10;

    /// Creates a scheduler with two best-effort tenants, and the slots of requests.
    fn bed() -> (Registry, TokenScheduler, SlotTable<()>) {
        let mut registry = Registry::new(DeviceModel::device_a(), 2);
        for _ in 0..2 {
            registry.register(None, Instant::ZERO).unwrap();
        }
        let limits = QueueLimits { slots: 64, of_tenant: OF_TENANT };
        let scheduler = registry.scheduler(0, limits);
        (registry, scheduler, SlotTable::new(64))
    }

    fn queue(
        scheduler: &mut TokenScheduler,
        slots: &mut SlotTable<()>,
        tenant: u32,
        kind: IoKind,
        count: usize,
    ) -> Vec<Slot> {
        let mut enqueue = |_| {
            let slot = slots.insert(()).unwrap();
            scheduler.enqueue(TenantId(tenant), kind, 4096, slot).ok().map(|()| slot)
        };
        (0..count).filter_map(&mut enqueue).collect()
    }

    #[test]
    fn requests_of_a_run_are_counted_bounded_and_kept_in_their_order() {
        let (registry, mut scheduler, mut slots) = bed();
        let mut ours = queue(&mut scheduler, &mut slots, 0, IoKind::Read, 5);
        assert_eq!((scheduler.queued(), scheduler.queued_of(TenantId(0))), (5, 5));
        ours.extend(queue(&mut scheduler, &mut slots, 0, IoKind::Write, 3));
        let others = queue(&mut scheduler, &mut slots, 1, IoKind::Read, 4);
        // As many as its bound leaves, whatever comes between.
        ours.extend(queue(&mut scheduler, &mut slots, 0, IoKind::Read, 9));
        assert_eq!((ours.len(), others.len()), (OF_TENANT as usize, 4));
        assert_eq!((scheduler.queued(), scheduler.queued_of(TenantId(1))), (14, 4));
        let mut left = Vec::new();
        for round in 1..1_000 {
            scheduler.begin_round(Instant::from_nanos(round * 100_000));
            left.extend(core::iter::from_fn(|| scheduler.next()));
        }
        let of = |all: &[Slot]| -> Vec<Slot> {
            left.iter().filter(|slot| all.contains(slot)).copied().collect()
        };
        assert_eq!((of(&ours), of(&others)), (ours.clone(), others.clone()));
        // Seven reads and three writes of one, four reads of the other.
        let spent = [0, 1].map(|tenant| registry.shared().usage(TenantId(tenant)).spent);
        assert_eq!(spent, [7 * 100 + 3 * 1_000, 400]);
    }

    #[test]
    fn a_run_that_begins_behind_a_round_waits_for_the_next() {
        let (_, mut scheduler, mut slots) = bed();
        scheduler.begin_round(Instant::from_nanos(1_000_000));
        scheduler.begin_round(Instant::from_nanos(2_000_000));
        let first = queue(&mut scheduler, &mut slots, 0, IoKind::Read, 1);
        scheduler.begin_round(Instant::from_nanos(3_000_000));
        assert_eq!(scheduler.next(), Some(first[0]));
        let more = queue(&mut scheduler, &mut slots, 0, IoKind::Read, 4);
        assert_eq!(scheduler.queued(), 4);
        assert_eq!(core::iter::from_fn(|| scheduler.next()).count(), 0, "it was not held");
        scheduler.begin_round(Instant::from_nanos(4_000_000));
        assert_eq!(core::iter::from_fn(|| scheduler.next()).collect::<Vec<_>>(), more);
    }
}
