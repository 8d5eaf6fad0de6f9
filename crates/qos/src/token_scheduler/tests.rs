//! Tests of large requests of best effort: which of them are at the device at the same time.

use contract::{Feedback, Instant, IoKind, Scheduler, Slo, Slot, TenantId};

use super::TokenScheduler;
use crate::{DeviceModel, QueueLimits, Registry};

/// A size of which two requests exceed half of what device A does in 500 µs: 105 tokens.
const LARGE: usize = 256 << 10;

/// Registers one tenant with an SLO and two best-effort tenants, and opens `N` workers.
fn open<const N: usize>(slo: Option<Slo>) -> (Registry, [TenantId; 3], [TokenScheduler; N]) {
    let mut registry = Registry::new(DeviceModel::device_a(), 4);
    let ids = [slo, None, None]
        .map(|slo| registry.register(slo, Instant::ZERO).expect("there is room").tenant);
    let limits = QueueLimits { slots: 64, of_tenant: 64 };
    let workers = core::array::from_fn(|worker| registry.scheduler(worker, limits));
    (registry, ids, workers)
}

fn promise() -> Option<Slo> {
    Some(Slo::new(500, 20_000, 100))
}

/// A worker at whose device requests stay until they are ended.
struct Device<'a> {
    scheduler: &'a mut TokenScheduler,
    now: u64,
    slots: u32,
    at: alloc::vec::Vec<(Slot, TenantId, usize)>,
    asked: alloc::vec::Vec<(Slot, TenantId, usize)>,
}

impl Device<'_> {
    fn new(scheduler: &mut TokenScheduler) -> Device<'_> {
        let nothing = alloc::vec::Vec::new();
        Device { scheduler, now: 0, slots: 0, at: nothing.clone(), asked: nothing }
    }

    fn read(&mut self, tenant: TenantId, bytes: usize) {
        let slot = Slot::from_bits(self.slots);
        self.slots += 1;
        self.scheduler.enqueue(tenant, IoKind::Read, bytes, slot).unwrap();
        self.asked.push((slot, tenant, bytes));
    }

    /// Runs rounds for 10 ms, in which every tenant earns what its requests cost.
    fn wait(&mut self) {
        for _ in 0..100 {
            self.now += 100_000;
            self.scheduler.begin_round(Instant::from_nanos(self.now));
            while let Some(slot) = self.scheduler.next() {
                let request = *self.asked.iter().find(|(asked, ..)| *asked == slot).unwrap();
                let (_, tenant, bytes) = request;
                if bytes > contract::LARGE_REQUEST_BYTES && self.scheduler.yields(tenant) {
                    self.scheduler.began_large(IoKind::Read, bytes);
                }
                self.at.push(request);
            }
        }
    }

    fn tenants(&self) -> alloc::vec::Vec<TenantId> {
        self.at.iter().map(|(_, tenant, _)| *tenant).collect()
    }

    fn end_first(&mut self) -> TenantId {
        let (_, tenant, bytes) = self.at.remove(0);
        if bytes > contract::LARGE_REQUEST_BYTES && self.scheduler.yields(tenant) {
            self.scheduler.ended_large(IoKind::Read, bytes);
        }
        tenant
    }
}

#[test]
fn beside_a_promise_large_requests_go_one_after_the_other_in_turns() {
    let (_registry, [_, one, other], [mut scheduler]) = open(promise());
    let mut device = Device::new(&mut scheduler);
    for _ in 0..4 {
        device.read(one, LARGE);
        device.read(other, LARGE);
    }
    device.wait();
    assert_eq!(device.at.len(), 1, "both have paid long ago, and one of them goes");
    let mut ended = alloc::vec::Vec::new();
    for _ in 0..8 {
        ended.push(device.end_first());
        device.wait();
        assert!(device.at.len() <= 1);
    }
    let of_one = ended.iter().take(6).filter(|tenant| **tenant == one).count();
    assert!((2..=4).contains(&of_one), "they take turns: {ended:?}");
    assert_eq!(device.scheduler.queued(), 0);
}

#[test]
fn what_is_small_or_promised_does_not_wait_for_large_requests() {
    let (_registry, [promised, one, other], [mut scheduler]) = open(promise());
    let mut device = Device::new(&mut scheduler);
    device.read(one, LARGE);
    device.read(other, LARGE);
    device.wait();
    assert_eq!(device.at.len(), 1);
    device.read(promised, LARGE);
    device.read(one, 4_096);
    device.read(other, 4_096);
    device.wait();
    let tenants = device.tenants();
    assert!(tenants.contains(&promised), "{tenants:?}");
    assert_eq!(tenants.len(), 3, "one best-effort tenant waits behind its own: {tenants:?}");
    while !device.at.is_empty() {
        device.end_first();
        device.wait();
    }
    assert_eq!(device.scheduler.queued(), 0);
}

#[test]
fn several_go_within_the_bound_and_any_number_without_a_promise() {
    let (_registry, [_, one, other], [mut scheduler]) = open(promise());
    let mut device = Device::new(&mut scheduler);
    for _ in 0..4 {
        device.read(one, 64 << 10);
        device.read(other, 64 << 10);
    }
    device.wait();
    assert_eq!(device.at.len(), 6, "of 16 tokens each, of 105");
    let (_registry, [_, one, other], [mut scheduler]) = open(None);
    let mut device = Device::new(&mut scheduler);
    for _ in 0..4 {
        device.read(one, LARGE);
        device.read(other, LARGE);
    }
    device.wait();
    assert_eq!(device.at.len(), 8);
}

#[test]
fn the_bound_is_of_all_workers_and_a_worker_that_stops_leaves_it() {
    let (_registry, [_, one, other], [mut first, mut second]) = open(promise());
    let mut device = Device::new(&mut first);
    device.read(one, LARGE);
    device.wait();
    assert_eq!(device.at.len(), 1);
    let now = device.now;
    let mut elsewhere = Device::new(&mut second);
    elsewhere.now = now;
    elsewhere.read(other, LARGE);
    elsewhere.wait();
    assert_eq!(elsewhere.at.len(), 0);
    drop(first);
    elsewhere.wait();
    assert_eq!(elsewhere.at.len(), 1);
}
