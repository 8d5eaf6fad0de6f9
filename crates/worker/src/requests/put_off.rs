//! Requests that wait to ask for their payloads: a line for each tenant. The tenants take turns.
//!
//! A tenant waits for its part of the slots, or for a buffer of a size of which none is free; other
//! tenants do not wait with it. Each line is in order of arrival.

use std::collections::VecDeque;

use contract::{ConnId, Member, Request, SlotTable, TenantId};

use super::chain::{ListEntry, ListLinks, SlotList};
use super::quota::SHARE;

/// A request whose payload the worker has not asked the peer for yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutOffRequest {
    pub(crate) conn: ConnId,
    pub(crate) request: Request,
    /// The tenant to which the connection belonged when the request came.
    pub(crate) charged: Member,
}

/// The put-off requests of a worker, in a line for each tenant.
#[derive(Debug)]
pub(crate) struct PutOffQueues {
    entries: SlotTable<Entry>,
    /// The lines, by tenant.
    lines: Box<[PutOffQueue]>,
    /// Tenants whose lines are not empty, each once. The front tenant has the next turn.
    turns: VecDeque<TenantId>,
}

#[derive(Debug)]
struct Entry {
    put_off: PutOffRequest,
    links: ListLinks,
}

impl ListEntry for Entry {
    fn links(&mut self) -> &mut ListLinks {
        &mut self.links
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PutOffQueue {
    chain: SlotList,
    len: usize,
}

impl PutOffQueues {
    /// Creates lines for so many requests in all.
    pub(crate) fn new(requests_max: usize, tenants_max: usize) -> Self {
        PutOffQueues {
            entries: SlotTable::new(requests_max),
            lines: vec![PutOffQueue::default(); tenants_max].into(),
            turns: VecDeque::with_capacity(tenants_max),
        }
    }

    /// Returns the number of tenants with waiting requests.
    pub(crate) fn tenants(&self) -> usize {
        self.turns.len()
    }

    /// Returns how many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether a request of this tenant waits.
    pub(crate) fn has(&self, tenant: TenantId) -> bool {
        self.lines[tenant.0 as usize].len > 0
    }

    /// Puts a request at the end of its tenant's line. Returns `false` if no place is free, or if
    /// the tenant has [`SHARE`] times as many waiting requests as places are free, so that every
    /// tenant finds a place.
    #[must_use]
    pub(crate) fn push(&mut self, tenant: TenantId, put_off: PutOffRequest) -> bool {
        let line = &mut self.lines[tenant.0 as usize];
        let free = self.entries.room();
        if free == 0 || (line.len > 0 && line.len >= SHARE * free) {
            return false;
        }
        let place = Entry { put_off, links: ListLinks::default() };
        let place = self.entries.insert(place).expect("it was counted");
        line.chain.push(&mut self.entries, place);
        line.len += 1;
        if line.len == 1 {
            self.turns.push_back(tenant);
        }
        true
    }

    /// Returns the first request of the tenant whose turn it is; `None` if no request waits.
    pub(crate) fn front(&mut self) -> Option<PutOffRequest> {
        let tenant = self.turns.front()?;
        let first = self.lines[tenant.0 as usize].chain.front().expect("its line is not empty");
        Some(self.entries.get(first).put_off)
    }

    /// Removes the first request of the tenant whose turn it is, and gives the turn to the next
    /// tenant.
    pub(crate) fn pop(&mut self) {
        let tenant = self.turns.pop_front().expect("there is a front");
        let line = &mut self.lines[tenant.0 as usize];
        let first = line.chain.pop(&mut self.entries).expect("its line is not empty");
        self.entries.remove(first);
        line.len -= 1;
        if line.len > 0 {
            self.turns.push_back(tenant);
        }
    }

    /// Moves the requests of a connection to `taken`, in the order of each line.
    pub(crate) fn withdraw(&mut self, conn: ConnId, taken: &mut Vec<(Request, Member)>) {
        for line in self.lines.iter_mut().filter(|line| line.len > 0) {
            let mut next = line.chain.front();
            while let Some(slot) = next {
                next = SlotList::behind(&mut self.entries, slot);
                let PutOffRequest { conn: own, request, charged } = self.entries.get(slot).put_off;
                if own == conn {
                    line.chain.remove(&mut self.entries, slot);
                    self.entries.remove(slot);
                    line.len -= 1;
                    taken.push((request, charged));
                }
            }
        }
        let lines = &self.lines;
        self.turns.retain(|tenant| lines[tenant.0 as usize].len > 0);
    }

    /// Leaves the first request in its line, and gives the turn to the next tenant.
    pub(crate) fn pass(&mut self) {
        let tenant = self.turns.pop_front().expect("there is a front");
        self.turns.push_back(tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Command, Range};

    fn put_off(tag: u64) -> PutOffRequest {
        let command = Command::Write { range: Range::new(0, 1), fua: false };
        let request = Request::plain(tag, command);
        let charged = Member { tenant: TenantId(0), epoch: 0 };
        PutOffRequest { conn: ConnId { index: 0, generation: 0 }, request, charged }
    }

    #[test]
    fn tenants_take_turns_and_keep_their_own_order() {
        let mut lines = PutOffQueues::new(16, 4);
        for (tenant, tags) in [(0, 0..4), (2, 20..22), (3, 30..31)] {
            for tag in tags {
                assert!(lines.push(TenantId(tenant), put_off(tag)));
            }
        }
        lines.pass(); // Tenant 0 cannot go on now.
        let mut order = Vec::new();
        while let Some(front) = lines.front() {
            order.push(front.request.tag);
            lines.pop();
        }
        assert_eq!(order, [20, 30, 0, 21, 1, 2, 3]);
        assert!(lines.tenants() == 0 && !lines.has(TenantId(0)));
    }

    #[test]
    fn one_that_takes_all_places_leaves_some() {
        let mut lines = PutOffQueues::new(9, 2);
        while lines.push(TenantId(0), put_off(0)) {}
        assert_eq!(lines.entries.room(), 3);
        assert!(lines.push(TenantId(1), put_off(1)));
    }
}
