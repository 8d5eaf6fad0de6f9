//! The waiting requests in one table that the in-flight table's slots index: a queue is a few
//! numbers, and queueing allocates nothing. An entry stores the kind of its request, not the price,
//! so that prices may change while it waits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::Slot;

use crate::CostModel;
use crate::cost_model::{PriceIndex, PriceSum};

/// A waiting request, at the index of its slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The next request; unused for the last of a list, since lists count their requests.
    next: Slot,
    /// The request's line in the price list.
    line: PriceIndex,
}

/// The waiting requests of a scheduler, as linked lists in a table indexed by slot.
#[derive(Debug)]
pub(crate) struct Requests {
    entries: Box<[Entry]>,
}

/// A tenant's queue, first come, first served; its requests lie in [`Requests`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// The first request; `tail` is the last. Neither is used while the queue is empty.
    head: Slot,
    tail: Slot,
    /// Number of requests in the queue.
    pub(crate) len: u32,
    /// The price of all requests together.
    pub(crate) sum: PriceSum,
}

impl Queue {
    pub(crate) const EMPTY: Queue =
        Queue { head: NOBODY, tail: NOBODY, len: 0, sum: PriceSum::NOTHING };
}

/// A list of requests that are paid and not submitted yet; they lie in [`Requests`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaidRequests {
    head: Slot,
    tail: Slot,
    /// Number of requests in the list.
    pub(crate) left: u32,
}

impl PaidRequests {
    pub(crate) const NONE: PaidRequests = PaidRequests { head: NOBODY, tail: NOBODY, left: 0 };
}

/// The value that ends a list of slots.
const NOBODY: Slot = Slot::from_bits(u32::MAX);

impl Requests {
    /// Creates a table for slots with indices below `slots`.
    pub(crate) fn new(slots: usize) -> Requests {
        let vacant = Entry { next: NOBODY, line: PriceIndex::NONE };
        Requests { entries: alloc::vec![vacant; slots].into() }
    }

    /// Returns `true` if the table is large enough for the slot.
    #[inline]
    pub(crate) fn has_place(&self, slot: Slot) -> bool {
        slot.index() < self.entries.len()
    }

    /// Puts a request at the end of a queue; `priced` is its cost.
    #[inline]
    pub(crate) fn push(
        &mut self,
        queue: &mut Queue,
        slot: Slot,
        line: PriceIndex,
        priced: &PriceSum,
    ) {
        if queue.len == 0 {
            *queue = self.queue_of(slot, line, priced);
            return;
        }
        self.link(queue.tail, slot, line);
        queue.tail = slot;
        queue.len += 1;
        queue.sum += *priced;
    }

    /// Returns a queue of one request; `priced` is its cost.
    #[inline]
    pub(crate) fn queue_of(&mut self, slot: Slot, line: PriceIndex, priced: &PriceSum) -> Queue {
        self.put(slot, line);
        Queue { head: slot, tail: slot, len: 1, sum: *priced }
    }

    #[inline]
    fn put(&mut self, slot: Slot, line: PriceIndex) {
        let entry = &mut self.entries[slot.index()];
        debug_assert!(entry.line == PriceIndex::NONE, "a slot waits already");
        entry.line = line;
    }

    /// Links a request behind another one, without updating the queue.
    #[inline]
    pub(crate) fn link(&mut self, tail: Slot, slot: Slot, line: PriceIndex) {
        self.put(slot, line);
        self.entries[tail.index()].next = slot;
    }

    /// Adds `count` requests that were linked behind a queue's last one, up to `tail`, to the
    /// queue's counts; `priced` is the cost of each.
    pub(crate) fn append_run(
        &mut self,
        queue: &mut Queue,
        tail: Slot,
        count: u32,
        priced: &PriceSum,
    ) {
        queue.tail = tail;
        queue.len += count;
        queue.sum += priced.times(count);
    }

    /// Returns the price-list line of a queue's first request; `None` if the queue is empty.
    pub(crate) fn first(&self, queue: &Queue) -> Option<PriceIndex> {
        (queue.len > 0).then(|| self.entries[queue.head.index()].line)
    }

    /// Removes the first request of a queue; `priced` is its cost.
    pub(crate) fn pop(&mut self, queue: &mut Queue, priced: &PriceSum) -> Slot {
        let mut first = self.take_first(queue, priced);
        self.pop_paid(&mut first)
    }

    /// Removes and returns the first request of a queue whose tenant has paid for it; `priced` is
    /// the request's cost.
    pub(crate) fn take_first(&self, queue: &mut Queue, priced: &PriceSum) -> PaidRequests {
        assert!(queue.len > 0, "nobody is first in an empty queue");
        let first = PaidRequests { head: queue.head, tail: queue.head, left: 1 };
        queue.head = self.entries[queue.head.index()].next;
        queue.len -= 1;
        queue.sum -= *priced;
        first
    }

    /// Moves the `wanted` requests of a queue to `taken`, in order. The others keep their order.
    pub(crate) fn withdraw(
        &mut self,
        queue: &mut Queue,
        cost: &CostModel,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        let (mut before, mut at) = (None, queue.head);
        for _ in 0..queue.len {
            let Entry { next, line } = self.entries[at.index()];
            if wanted(at) {
                self.vacate(at);
                queue.len -= 1;
                queue.sum -= *cost.priced(line);
                taken.push(at);
            } else {
                match before.replace(at) {
                    None => queue.head = at,
                    Some(before) => self.entries[before.index()].next = at,
                }
                queue.tail = at;
            }
            at = next;
        }
    }

    /// Removes and returns all requests of a queue whose tenant has paid for all of them.
    pub(crate) fn take_paid(&self, queue: &mut Queue) -> PaidRequests {
        let paid = PaidRequests { head: queue.head, tail: queue.tail, left: queue.len };
        *queue = Queue::EMPTY;
        paid
    }

    /// Moves all requests of a queue to the end of the list of paid requests. The queue may be
    /// empty, if its requests were withdrawn.
    #[inline]
    pub(crate) fn append_paid(&mut self, paid: &mut PaidRequests, queue: &mut Queue) {
        if queue.len == 0 {
            return;
        }
        match paid.left {
            0 => paid.head = queue.head,
            _ => self.entries[paid.tail.index()].next = queue.head,
        }
        paid.tail = queue.tail;
        paid.left += queue.len;
        *queue = Queue::EMPTY;
    }

    /// Pops the first paid request; there must be one.
    #[inline]
    pub(crate) fn pop_paid(&mut self, paid: &mut PaidRequests) -> Slot {
        debug_assert!(paid.left > 0, "nobody is behind the last");
        let first = paid.head;
        paid.head = self.entries[first.index()].next;
        paid.left -= 1;
        self.vacate(first);
        first
    }

    /// Marks a slot's entry as vacant, for the debug assertion against queueing a slot twice.
    #[inline]
    fn vacate(&mut self, slot: Slot) {
        if cfg!(debug_assertions) {
            self.entries[slot.index()].line = PriceIndex::NONE;
        }
    }

    /// Puts paid but unsubmitted requests back to the front of their queue. Returns their cost.
    pub(crate) fn put_back(
        &mut self,
        queue: &mut Queue,
        paid: PaidRequests,
        cost: &CostModel,
    ) -> PriceSum {
        let mut sum = PriceSum::NOTHING;
        let (mut at, mut last) = (paid.head, None);
        for _ in 0..paid.left {
            let entry = &self.entries[at.index()];
            sum += *cost.priced(entry.line);
            (last, at) = (Some(at), entry.next);
        }
        if let Some(last) = last {
            match queue.len {
                0 => queue.tail = last,
                _ => self.entries[last.index()].next = queue.head,
            }
            queue.head = paid.head;
            queue.len += paid.left;
            queue.sum += sum;
        }
        sum
    }

    /// Computes the price of a queue's requests anew.
    pub(crate) fn reprice(&self, queue: &mut Queue, cost: &CostModel) {
        queue.sum = PriceSum::NOTHING;
        let mut at = queue.head;
        for _ in 0..queue.len {
            let entry = &self.entries[at.index()];
            queue.sum += *cost.priced(entry.line);
            at = entry.next;
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::Load;
    use contract::{IoKind, SlotTable};

    #[test]
    fn what_is_withdrawn_is_as_if_it_had_never_come() {
        let cost = CostModel::linear(1_000, 50).unwrap();
        let mut table = SlotTable::new(5);
        let slots = [(); 5].map(|()| table.insert(()).unwrap());
        for wanted in 0..32_u32 {
            let mut requests = Requests::new(5);
            let mut queue = Queue::EMPTY;
            let line = PriceIndex::of(IoKind::Write, 4096);
            for slot in slots {
                requests.push(&mut queue, slot, line, cost.priced(line));
            }
            let is_wanted = |slot: &Slot| wanted >> slot.index() & 1 == 1;
            let mut taken = Vec::new();
            requests.withdraw(&mut queue, &cost, &mut |slot| is_wanted(&slot), &mut taken);
            let expected: Vec<Slot> = slots.into_iter().filter(is_wanted).collect();
            assert_eq!(taken, expected);
            // One that comes again stands behind those that stayed.
            let back = taken.first().copied();
            if let Some(slot) = back {
                requests.push(&mut queue, slot, line, cost.priced(line));
            }
            let stayed = slots.into_iter().filter(|slot| !is_wanted(slot)).chain(back);
            for slot in stayed {
                assert_eq!(requests.pop(&mut queue, cost.priced(line)), slot);
            }
            assert_eq!((queue.len, queue.sum), (0, PriceSum::NOTHING));
        }
    }

    #[test]
    fn a_queue_that_was_emptied_adds_nothing_to_what_is_paid() {
        let cost = CostModel::linear(1_000, 50).unwrap();
        let (mut slots, line) = (SlotTable::new(2), PriceIndex::of(IoKind::Read, 4096));
        let (mut requests, mut paid) = (Requests::new(2), PaidRequests::NONE);
        let mut expected = Vec::new();
        for _ in 0..2 {
            let slot = slots.insert(()).unwrap();
            let mut queue = Queue::EMPTY;
            requests.push(&mut queue, slot, line, cost.priced(line));
            requests.append_paid(&mut paid, &mut queue);
            requests.append_paid(&mut paid, &mut queue);
            expected.push(slot);
        }
        assert_eq!([(); 2].map(|()| requests.pop_paid(&mut paid)).to_vec(), expected);
        assert_eq!(paid.left, 0);
    }

    #[test]
    fn what_is_put_back_comes_first_and_counts_again() {
        let cost = CostModel::linear(1_000, 50).unwrap();
        let mut slots = SlotTable::new(4);
        let mut requests = Requests::new(4);
        let mut queue = Queue::EMPTY;
        let mut push = |requests: &mut Requests, queue: &mut Queue, kind| {
            let (slot, line) = (slots.insert(()).unwrap(), PriceIndex::of(kind, 4096));
            requests.push(queue, slot, line, cost.priced(line));
            slot
        };
        let first = push(&mut requests, &mut queue, IoKind::Read);
        let second = push(&mut requests, &mut queue, IoKind::Write);
        let mut paid = requests.take_paid(&mut queue);
        let third = push(&mut requests, &mut queue, IoKind::Read);
        assert_eq!(requests.pop_paid(&mut paid), first);
        let back = requests.put_back(&mut queue, paid, &cost);
        assert_eq!((back.under(Load::Mixed), back.reads(), back.writes()), (1_000, 0, 1));
        assert_eq!((queue.len, queue.sum.under(Load::ReadOnly)), (2, 1_050));
        let dearer = CostModel::linear(2_000, 50).unwrap();
        requests.reprice(&mut queue, &dearer);
        assert_eq!(queue.sum.under(Load::Mixed), 2_100);
        let mut pop = |queue: &mut Queue| {
            let line = requests.first(queue).unwrap();
            requests.pop(queue, dearer.priced(line))
        };
        assert_eq!([pop(&mut queue), pop(&mut queue)], [second, third]);
        assert_eq!((queue.len, queue.sum), (0, PriceSum::NOTHING));
        assert!(requests.first(&queue).is_none());
    }
}
