//! The scheduler without promises: first come, first served.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use contract::{Feedback, Instant, IoKind, QueueFull, Scheduler, Slot, TenantId};

/// A scheduler that submits every request at once, in the order of arrival. Devices without SLOs
/// get this scheduler, and it is the baseline for the cost of scheduling.
#[derive(Debug)]
pub struct PassThrough {
    queue: VecDeque<Slot>,
    queue_max: usize,
}

impl PassThrough {
    /// Makes a scheduler that holds at most `queue_max` requests.
    pub fn new(queue_max: usize) -> Self {
        PassThrough { queue: VecDeque::with_capacity(queue_max), queue_max }
    }
}

impl Feedback for PassThrough {}

impl Scheduler for PassThrough {
    fn enqueue(&mut self, _: TenantId, _: IoKind, _: usize, slot: Slot) -> Result<(), QueueFull> {
        if self.queue.len() == self.queue_max {
            return Err(QueueFull);
        }
        self.queue.push_back(slot);
        Ok(())
    }

    fn begin_round(&mut self, _: Instant) {}

    fn next(&mut self) -> Option<Slot> {
        self.queue.pop_front()
    }

    fn discard(&mut self) -> Option<Slot> {
        self.queue.pop_front()
    }

    /// Withdraws all requests for which the filter is true, under the first tenant that is asked
    /// for, since this scheduler does not know the tenants of requests.
    fn withdraw(
        &mut self,
        _: TenantId,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        self.queue.retain(|slot| {
            let goes = wanted(*slot);
            if goes {
                taken.push(*slot);
            }
            !goes
        });
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn wake_at(&self, _: Instant) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::SlotTable;

    #[test]
    fn what_is_withdrawn_leaves_the_others_in_their_order() {
        let mut table = SlotTable::new(4);
        let slots = [(); 4].map(|()| table.insert(()).unwrap());
        let mut scheduler = PassThrough::new(4);
        for slot in slots {
            scheduler.enqueue(TenantId::DEFAULT, IoKind::Read, 4096, slot).unwrap();
        }
        let mut taken = Vec::new();
        let mut wanted = |slot: Slot| slot.index() % 2 == 1;
        scheduler.withdraw(TenantId::DEFAULT, &mut wanted, &mut taken);
        assert_eq!(taken, [slots[1], slots[3]]);
        assert_eq!([scheduler.next(), scheduler.next()], [Some(slots[0]), Some(slots[2])]);
        assert_eq!(scheduler.next(), None);
    }

    #[test]
    fn first_come_first_served_up_to_the_bound() {
        let mut table = SlotTable::new(3);
        let slots = [(); 3].map(|()| table.insert(()).unwrap());
        let mut scheduler = PassThrough::new(2);
        let mut enqueue = |slot| scheduler.enqueue(TenantId::DEFAULT, IoKind::Read, 4096, slot);
        assert_eq!([enqueue(slots[0]), enqueue(slots[1])], [Ok(()), Ok(())]);
        assert_eq!(enqueue(slots[2]), Err(QueueFull));
        scheduler.begin_round(Instant::ZERO);
        assert_eq!(scheduler.next(), Some(slots[0]));
        assert_eq!(scheduler.next(), Some(slots[1]));
        assert_eq!(scheduler.next(), None);
    }
}
