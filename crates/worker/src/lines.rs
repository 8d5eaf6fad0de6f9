//! Requests that wait to ask for their payloads: a line for each tenant, and the tenants take turns.
//!
//! What one tenant waits for (its part of the slots, a buffer of a size of which there is none) is
//! no reason for another to wait. In front of each line is who came first.

use std::collections::VecDeque;

use contract::{ConnId, Member, Request, SlotTable, TenantId};

use crate::chain::{Chain, Chained, Links};
use crate::quota::SHARE;

/// A request that was put off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutOff {
    pub(crate) conn: ConnId,
    pub(crate) request: Request,
    /// Whom the connection belonged to when it came.
    pub(crate) charged: Member,
}

/// The lines of a worker's tenants.
#[derive(Debug)]
pub(crate) struct Lines {
    places: SlotTable<Place>,
    /// By tenant.
    lines: Box<[Line]>,
    /// Tenants whose lines are not empty, each once; it is the first one's turn.
    turns: VecDeque<TenantId>,
}

#[derive(Debug)]
struct Place {
    put_off: PutOff,
    links: Links,
}

impl Chained for Place {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    chain: Chain,
    len: usize,
}

impl Lines {
    /// Lines of so many requests in all.
    pub(crate) fn new(requests_max: usize, tenants_max: usize) -> Self {
        Lines {
            places: SlotTable::new(requests_max),
            lines: vec![Line::default(); tenants_max].into(),
            turns: VecDeque::with_capacity(tenants_max),
        }
    }

    /// How many tenants have somebody waiting.
    pub(crate) fn tenants(&self) -> usize {
        self.turns.len()
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether somebody of this tenant waits.
    pub(crate) fn has(&self, tenant: TenantId) -> bool {
        self.lines[tenant.0 as usize].len > 0
    }

    /// Puts a request behind its tenant's others. `false`: the tenant has as many waiting as it may,
    /// which is [`SHARE`] times as many as places are free, so that everybody finds one.
    #[must_use]
    pub(crate) fn push(&mut self, tenant: TenantId, put_off: PutOff) -> bool {
        let line = &mut self.lines[tenant.0 as usize];
        let free = self.places.room();
        if free == 0 || (line.len > 0 && line.len >= SHARE * free) {
            return false;
        }
        let place = Place { put_off, links: Links::default() };
        let place = self.places.insert(place).expect("it was counted");
        line.chain.push(&mut self.places, place);
        line.len += 1;
        if line.len == 1 {
            self.turns.push_back(tenant);
        }
        true
    }

    /// The first request of the tenant whose turn it is.
    pub(crate) fn front(&mut self) -> Option<PutOff> {
        let tenant = self.turns.front()?;
        let first = self.lines[tenant.0 as usize].chain.front().expect("its line is not empty");
        Some(self.places.get(first).put_off)
    }

    /// The front waits no more; it is the next tenant's turn.
    pub(crate) fn pop(&mut self) {
        let tenant = self.turns.pop_front().expect("there is a front");
        let line = &mut self.lines[tenant.0 as usize];
        let first = line.chain.pop(&mut self.places).expect("its line is not empty");
        self.places.remove(first);
        line.len -= 1;
        if line.len > 0 {
            self.turns.push_back(tenant);
        }
    }

    /// Takes the requests of a connection out, wherever they stand; those of a line in their order.
    pub(crate) fn withdraw(&mut self, conn: ConnId, taken: &mut Vec<(Request, Member)>) {
        for line in self.lines.iter_mut().filter(|line| line.len > 0) {
            let mut next = line.chain.front();
            while let Some(slot) = next {
                next = Chain::behind(&mut self.places, slot);
                let PutOff { conn: own, request, charged } = self.places.get(slot).put_off;
                if own == conn {
                    line.chain.remove(&mut self.places, slot);
                    self.places.remove(slot);
                    line.len -= 1;
                    taken.push((request, charged));
                }
            }
        }
        let lines = &self.lines;
        self.turns.retain(|tenant| lines[tenant.0 as usize].len > 0);
    }

    /// The front goes on waiting; it is the next tenant's turn.
    pub(crate) fn pass(&mut self) {
        let tenant = self.turns.pop_front().expect("there is a front");
        self.turns.push_back(tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Command, Range, Status};

    fn put_off(tag: u64) -> PutOff {
        let command = Command::Write { range: Range::new(0, 1), fua: false };
        let request = Request {
            tag,
            stream: 0,
            namespace: None,
            tenant: 0,
            command,
            payload_bytes: 512,
            verdict: Status::Ok,
        };
        let charged = Member { tenant: TenantId(0), epoch: 0 };
        PutOff { conn: ConnId { index: 0, generation: 0 }, request, charged }
    }

    #[test]
    fn tenants_take_turns_and_keep_their_own_order() {
        let mut lines = Lines::new(16, 4);
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
        let mut lines = Lines::new(9, 2);
        while lines.push(TenantId(0), put_off(0)) {}
        assert_eq!(lines.places.room(), 3);
        assert!(lines.push(TenantId(1), put_off(1)));
    }
}
