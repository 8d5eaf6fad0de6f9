//! Tests of the queues without a ledger.

use alloc::vec::Vec;

use contract::SlotTable;

use super::*;
use crate::Load;

const LIMITS: QueueLimits = QueueLimits { slots: 64, of_tenant: 10 };

struct QueuesFixture {
    queues: Queues,
    slots: SlotTable<()>,
}

impl QueuesFixture {
    fn new() -> QueuesFixture {
        let cost = CostModel::linear(1_000, 50).unwrap();
        QueuesFixture { queues: Queues::new(5, cost, LIMITS), slots: SlotTable::new(LIMITS.slots) }
    }

    /// Queues reads of 4 KiB of a latency-critical (even) or best-effort (odd) tenant, as a worker
    /// does.
    fn push(&mut self, tenant: u32, count: usize) -> Vec<Slot> {
        let class =
            if tenant.is_multiple_of(2) { Class::LatencyCritical } else { Class::BestEffort };
        let mut one = |_| {
            let slot = self.slots.insert(()).unwrap();
            let is_queued = self.queues.extend_run(tenant, IoKind::Read, 4096, slot)
                || self.queues.push((tenant, class), IoKind::Read, 4096, slot).is_ok();
            is_queued.then_some(slot)
        };
        (0..count).filter_map(&mut one).collect()
    }

    fn newcomers(&self) -> Vec<u32> {
        (0..self.queues.newcomers()).map(|nth| self.queues.newcomer(nth)).collect()
    }

    fn walk(&self, class: Class) -> Vec<u32> {
        let ring = self.queues.ring(class);
        let next = |tenant: &u32| Some(self.queues.behind(*tenant));
        core::iter::successors(ring.head(), next).take(ring.len as usize).collect()
    }

    fn pop_all(&mut self, mut paid: PaidRequests) -> Vec<Slot> {
        (0..paid.left).map(|_| self.queues.pop_paid(&mut paid)).collect()
    }
}

#[test]
fn a_queue_is_bounded_and_keeps_its_order() {
    let mut bed = QueuesFixture::new();
    let first = bed.push(0, 3);
    let others = bed.push(1, 2);
    let more = bed.push(0, 20);
    assert_eq!((first.len(), others.len(), more.len()), (3, 2, 7));
    bed.queues.end_run();
    assert_eq!((bed.queues.len(), bed.queues.len_of(0), bed.queues.queued_of(0)), (12, 10, 10));
    assert_eq!(bed.queues.sum(0).under(Load::Mixed), 1_000);
    let one = *bed.queues.first(0).unwrap();
    let paid = bed.queues.take_first(0, &one);
    assert_eq!(bed.pop_all(paid), first[..1]);
    let paid = bed.queues.take_all(0);
    assert_eq!(bed.queues.len(), 2);
    assert_eq!(bed.pop_all(paid), [&first[1..], &more].concat());
    assert!(bed.queues.first(0).is_none());
}

#[test]
fn newcomers_are_named_once_in_the_order_in_which_they_came() {
    let mut bed = QueuesFixture::new();
    bed.push(3, 1);
    bed.push(0, 2);
    bed.push(3, 1);
    bed.push(1, 1);
    assert_eq!(bed.newcomers(), [3, 0, 1]);
    let mut taken = Vec::new();
    bed.queues.end_run();
    bed.queues.withdraw(0, &mut |_| true, &mut taken);
    assert_eq!((taken.len(), bed.queues.len()), (2, 3));
    assert_eq!(bed.newcomers(), [3, 1]);
    bed.queues.withdraw(9, &mut |_| true, &mut taken);
    assert_eq!(bed.queues.serve_short(3, |count, _| Some(count)), Some(2));
    assert_eq!(bed.queues.serve_short(1, |_, _| None::<()>), None);
    bed.queues.enter(1, Class::BestEffort);
    bed.queues.clear_newcomers();
    assert_eq!(bed.newcomers(), [0; 0]);
    bed.push(1, 1);
    bed.push(3, 1);
    assert_eq!(bed.newcomers(), [3], "1 is in a ring, 3 is away");
}

#[test]
fn a_round_starts_where_the_ring_is_told_to_start() {
    let mut bed = QueuesFixture::new();
    for tenant in [0, 2, 4] {
        bed.queues.enter(tenant, Class::LatencyCritical);
    }
    for tenant in [1, 3] {
        bed.queues.enter(tenant, Class::Leaving);
    }
    assert_eq!(bed.walk(Class::BestEffort), [1, 3]);
    bed.queues.rotate(Class::LatencyCritical, 0);
    bed.queues.rotate(Class::LatencyCritical, 0);
    assert_eq!(bed.walk(Class::LatencyCritical), [2, 4, 0]);
    bed.queues.start_at(Class::LatencyCritical, 0);
    assert_eq!(bed.walk(Class::LatencyCritical), [0, 2, 4]);
    bed.queues.change_ring(2, Class::BestEffort);
    assert!(bed.queues.is_critical(4) && !bed.queues.is_critical(2));
    assert_eq!((bed.walk(Class::BestEffort), bed.queues.active()), ([1, 3, 2].to_vec(), 5));
    bed.queues.rest(4);
    assert_eq!(bed.queues.held().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    bed.queues.leave(4);
    assert_eq!(bed.queues.held().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_resting_tenant_is_due_once_and_not_when_it_came_back() {
    let mut bed = QueuesFixture::new();
    for tenant in [0, 2, 4] {
        bed.queues.enter(tenant, Class::LatencyCritical);
        bed.queues.rest(tenant);
    }
    bed.queues.add_due(0, 300);
    bed.queues.add_due(2, 200);
    bed.queues.add_due(4, 100);
    bed.queues.add_due(2, 50);
    assert_eq!((bed.queues.first_due(), bed.queues.take_due(99)), (Some(100), None));
    bed.push(4, 1);
    assert_eq!(bed.walk(Class::LatencyCritical), [4], "a request ends the rest");
    assert_eq!([bed.queues.take_due(200), bed.queues.take_due(200)], [Some(2), None]);
    assert_eq!((bed.queues.first_due(), bed.queues.take_due(300)), (Some(300), Some(0)));
    assert_eq!(bed.queues.first_due(), None);
}

#[test]
fn requests_that_a_round_had_no_room_for_count_again() {
    let mut bed = QueuesFixture::new();
    let (short, long) = (bed.push(1, 2), bed.push(0, 3));
    bed.queues.end_run();
    bed.queues.serve_short(1, |_, _| Some(()));
    let mut ready = bed.queues.take_ready();
    assert_eq!((ready.left, bed.queues.len()), (2, 3));
    assert_eq!(bed.queues.pop_paid(&mut ready), short[0]);
    bed.queues.put_ready(ready);
    assert_eq!(bed.queues.len(), 4);
    let mut paid = bed.queues.take_all(0);
    assert_eq!((bed.queues.len(), bed.queues.pop_paid(&mut paid)), (1, long[0]));
    assert_eq!(bed.queues.put_back(0, paid).reads(), 2);
    assert_eq!(bed.queues.len(), 3);
    assert_eq!(bed.queues.discard(), Some(long[1]));
    let ready = bed.queues.take_ready();
    assert_eq!(bed.pop_all(ready), short[1..]);
}

#[test]
fn other_prices_count_for_what_waits() {
    let mut bed = QueuesFixture::new();
    let slot = bed.slots.insert(()).unwrap();
    bed.queues.push((1, Class::BestEffort), IoKind::Write, 4096, slot).unwrap();
    bed.queues.reprice(Prices { write: 3_000, read_only_read: 50, tax: 0 });
    assert_eq!(bed.queues.sum(1).under(Load::Mixed), 3_000);
    assert_eq!(bed.queues.price(IoKind::Write, 8192).under(Load::Mixed), 6_000);
}
