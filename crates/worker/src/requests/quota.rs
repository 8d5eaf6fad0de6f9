//! Shares of a worker's slots and buffers that a tenant may hold, so that a tenant with thousands
//! of connections, or with requests that wait long for tokens, leaves some to others.
//!
//! A tenant may hold [`SHARE`] times as many slots as are free, and of each size of buffers
//! [`SHARE`] times as many payloads as buffers of that size are free (dynamic thresholds: Choudhury
//! and Hahne, IEEE/ACM Transactions on Networking 1998). A tenant that takes all it can leaves a
//! third free, and two such tenants leave a fifth. So the number of tenants need not be known, and
//! a tenant can use what no other tenant needs. A connection whose tenant holds too much waits in
//! the tenant's line. When a request of the tenant ends, the first connection continues. A position
//! becomes void once the connection got its resources in another way, since it may wait for another
//! tenant by then.
//!
//! While there are tenants with a promise, every [`PART`]th slot and buffer is kept for them.

use std::collections::VecDeque;

use contract::{BufPool, ConnId, TenantId};

/// A tenant may hold this many times as many slots or buffers as are free.
pub(crate) const SHARE: usize = 2;

/// Divisor for the reserve: one of this many slots or buffers is kept back.
const PART: usize = 16;

/// Maximum number of buffer sizes that are counted apart; a pool has fewer.
pub(crate) const CLASSES_MAX: usize = 8;

/// A connection's position in the line of a tenant. Each number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    tenant: TenantId,
    number: u64,
}

/// The slots and payloads that one tenant holds.
#[derive(Debug, Default)]
struct TenantHolding {
    /// The number of the tenant's requests in flight.
    slots: usize,
    /// The number of the tenant's payloads, by the size of their buffers.
    payloads: [usize; CLASSES_MAX],
    /// Connections that wait until the tenant holds fewer slots and buffers, oldest first. Some
    /// entries may no longer wait. At most twice as many as the worker has connections.
    line: VecDeque<(ConnId, QueuePosition)>,
    /// Connections up to this position of the line are being called; `None` if none are.
    called_to: Option<u64>,
}

/// The slots and payloads of all tenants of a worker, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    holdings: Vec<TenantHolding>,
    /// Number of positions in waiting lines that were assigned since the start.
    positions: u64,
    /// Number of positions in waiting lines that are assigned at present.
    taken: usize,
    /// Tenants whose [`TenantHolding::called_to`] is set, each once. The front tenant has the next
    /// turn.
    calling: VecDeque<TenantId>,
}

impl Quotas {
    #[inline]
    fn of(&mut self, tenant: TenantId) -> &mut TenantHolding {
        let index = tenant.0 as usize;
        if self.holdings.len() <= index {
            self.make_room(index);
        }
        &mut self.holdings[index]
    }

    /// Reserves memory for the counts of a tenant at its first request.
    #[cold]
    fn make_room(&mut self, index: usize) {
        self.holdings.resize_with(index + 1, TenantHolding::default);
    }

    /// Returns whether the tenant may have one more slot when so many are free.
    #[inline]
    pub(crate) fn allows_slot(&mut self, tenant: TenantId, free: usize) -> bool {
        let held = self.of(tenant).slots;
        held == 0 || held < SHARE * free
    }

    /// Returns whether the tenant may have one more payload in a buffer of this class when so many
    /// are free. `others` is the number of the class's buffers that the tenant's reads hold. The
    /// first payload may have any buffer, except the last one if the tenant's reads hold some.
    pub(crate) fn allows_payload(
        &mut self,
        tenant: TenantId,
        class: usize,
        free: usize,
        others: usize,
    ) -> bool {
        match (self.of(tenant).payloads[class], others) {
            (0, 0) => free > 0,
            (0, _) => free > 1,
            (own, others) => free > 1 && own + others < SHARE * free,
        }
    }

    /// Returns the number of payloads that the tenant has in buffers of this class.
    pub(crate) fn payloads(&self, tenant: TenantId, class: usize) -> usize {
        self.holdings.get(tenant.0 as usize).map_or(0, |holding| holding.payloads[class])
    }

    /// Counts one more request of the tenant. `class` is the size class of its payload's buffer;
    /// `None` without a payload.
    #[inline]
    pub(crate) fn hold(&mut self, tenant: TenantId, class: Option<u32>) {
        let holding = self.of(tenant);
        holding.slots += 1;
        if let Some(class) = class {
            holding.payloads[class as usize] += 1;
        }
    }

    /// Counts one request less of the tenant. Returns whether connections of the tenant wait for
    /// the release.
    #[inline]
    pub(crate) fn release(&mut self, tenant: TenantId, class: Option<u32>) -> bool {
        let holding = &mut self.holdings[tenant.0 as usize];
        let less = |count: usize| count.checked_sub(1).expect("what is released was held");
        holding.slots = less(holding.slots);
        if let Some(class) = class {
            let payloads = &mut holding.payloads[class as usize];
            *payloads = less(*payloads);
        }
        self.is_waited_for(tenant)
    }

    /// Puts a connection into the line of its tenant, which holds too much. Returns the
    /// connection's position, which is `before` if the connection is in the line already. Before
    /// the line gets longer than `most`, connections for which `stand` is false are removed.
    pub(crate) fn queue_up(
        &mut self,
        tenant: TenantId,
        conn: ConnId,
        before: Option<QueuePosition>,
        most: usize,
        stand: impl Fn(ConnId, QueuePosition) -> bool,
    ) -> QueuePosition {
        if let Some(position) = before.filter(|position| position.tenant == tenant) {
            return position;
        }
        self.positions += 1;
        let position = QueuePosition { tenant, number: self.positions };
        let line = &mut self.of(tenant).line;
        let before = line.len();
        if before >= most {
            line.retain(|(id, position)| stand(*id, *position));
        }
        line.push_back((conn, position));
        let after = line.len();
        self.taken += after;
        self.taken -= before;
        position
    }

    /// Removes and returns the first position of the tenant's line, and its connection; `None` if
    /// the line is empty.
    pub(crate) fn next_in_line(&mut self, tenant: TenantId) -> Option<(ConnId, QueuePosition)> {
        let first = self.of(tenant).line.pop_front()?;
        self.taken -= 1;
        Some(first)
    }

    /// Begins to call all connections in the tenant's line, a few at a time.
    pub(crate) fn call_all(&mut self, tenant: TenantId) {
        let last = self.positions;
        if self.of(tenant).called_to.replace(last).is_none() {
            self.calling.push_back(tenant);
        }
    }

    /// Returns whether some connections are still to be called.
    #[inline]
    pub(crate) fn is_calling(&self) -> bool {
        !self.calling.is_empty()
    }

    /// Removes a tenant's next position that is to be called, and its connection; `None` if there
    /// are no more.
    pub(crate) fn next_called(&mut self, tenant: TenantId) -> Option<(ConnId, QueuePosition)> {
        let holding = self.of(tenant);
        let to = holding.called_to?;
        let first = holding.line.pop_front_if(|(_, position)| position.number <= to);
        if first.is_some() {
            self.taken -= 1;
            return first;
        }
        holding.called_to = None;
        // As a rule it is the last: its turn was just now.
        if self.calling.pop_back_if(|last| *last == tenant).is_none() {
            self.calling.retain(|other| *other != tenant);
        }
        None
    }

    /// Returns the tenant whose turn it is to have a connection called, and gives the turn to the
    /// next tenant.
    pub(crate) fn next_calling(&mut self) -> Option<TenantId> {
        let tenant = self.calling.pop_front()?;
        self.calling.push_back(tenant);
        Some(tenant)
    }

    /// Returns whether connections wait for the tenant to hold less.
    #[inline]
    pub(crate) fn is_waited_for(&self, tenant: TenantId) -> bool {
        let is_its = |holding: &TenantHolding| !holding.line.is_empty();
        self.taken > 0 && self.holdings.get(tenant.0 as usize).is_some_and(is_its)
    }

    /// Returns whether the tenant has nothing in flight, so that no end of a request would call its
    /// waiting connections.
    pub(crate) fn holds_nothing(&mut self, tenant: TenantId) -> bool {
        self.of(tenant).slots == 0
    }
}

/// The slots and buffers that tenants without a promise leave to tenants with one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    slots: usize,
    /// The number of reserved buffers of each size class.
    buffers: [usize; CLASSES_MAX],
}

impl Reserve {
    /// Computes how many of `slots` slots, and of each size of the pool's buffers, are kept in
    /// reserve.
    pub(super) fn new(slots: usize, pool: &BufPool) -> Reserve {
        let mut buffers = [0; CLASSES_MAX];
        for (class, reserve) in buffers[..pool.classes()].iter_mut().enumerate() {
            *reserve = part_of(pool.count(class));
        }
        Reserve { slots: part_of(slots), buffers }
    }

    /// Returns the number of free slots that a tenant may use: all of them, or those beside the
    /// reserve if the tenant `yields`.
    #[inline]
    pub(super) fn left_of_slots(&self, free: usize, yields: impl Fn() -> bool) -> usize {
        left(free, self.slots, yields)
    }

    /// Returns the number of free buffers of a size that a tenant may use: all of them, or those
    /// beside the reserve if the tenant `yields`.
    #[inline]
    pub(super) fn left(&self, class: usize, free: usize, yields: impl Fn() -> bool) -> usize {
        left(free, self.buffers[class], yields)
    }
}

/// Returns how many of `count` slots or buffers are reserved: one in [`PART`], rounded down.
fn part_of(count: usize) -> usize {
    count / PART
}

/// Returns the number of free slots or buffers that the tenant may use: `free` less the reserve, if
/// the tenant has to leave the reserve to others. The test `yields` is skipped while many are free.
#[inline]
fn left(free: usize, reserve: usize, yields: impl Fn() -> bool) -> usize {
    if free > 4 * reserve || !yields() { free } else { free.saturating_sub(reserve) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_takes_all_leaves_a_third_and_two_a_fifth() {
        let mut quotas = Quotas::default();
        let mut free = 900;
        let mut fill = |quotas: &mut Quotas, tenant| {
            while quotas.allows_slot(tenant, free) {
                quotas.hold(tenant, None);
                free -= 1;
            }
            free
        };
        assert_eq!(fill(&mut quotas, TenantId(0)), 300);
        assert_eq!(fill(&mut quotas, TenantId(1)), 100);
        quotas.release(TenantId(0), None);
        assert!(!quotas.allows_slot(TenantId(0), 101), "first it has to come down to its part");
    }

    #[test]
    fn whoever_holds_nothing_may_have_the_last() {
        let mut quotas = Quotas::default();
        assert!(quotas.allows_payload(TenantId(0), 3, 1, 0));
        assert!(!quotas.allows_payload(TenantId(0), 3, 1, 2), "its reads count as well");
        assert!(quotas.allows_payload(TenantId(0), 3, 2, 2), "it does not wait for them");
        quotas.hold(TenantId(0), Some(3));
        assert!(!quotas.allows_payload(TenantId(0), 3, 0, 0));
        assert!(quotas.allows_payload(TenantId(0), 2, 1, 0));
        quotas.release(TenantId(0), Some(3));
        assert!(quotas.allows_payload(TenantId(0), 3, 1, 0));
    }

    #[test]
    fn those_who_left_do_not_make_the_line_longer() {
        let mut quotas = Quotas::default();
        let conn = |index| ConnId { index, generation: 1 };
        for index in 0..1_000 {
            quotas.queue_up(TenantId(0), conn(index), None, 8, |id, _| id.index == 0);
        }
        assert!(quotas.of(TenantId(0)).line.len() <= 8);
        let first = quotas.next_in_line(TenantId(0)).map(|(id, _)| id);
        assert_eq!(first, Some(conn(0)), "who stayed is still the first");
    }

    #[test]
    fn tenants_that_call_all_take_turns_and_call_nobody_who_came_later() {
        let mut quotas = Quotas::default();
        let conn = |index| ConnId { index, generation: 1 };
        let tenants = [TenantId(0), TenantId(1)];
        for (tenant, index) in [(0, 0), (0, 1), (0, 2), (1, 3)] {
            quotas.queue_up(tenants[tenant], conn(index), None, 8, |_, _| true);
        }
        tenants.iter().for_each(|tenant| quotas.call_all(*tenant));
        quotas.queue_up(tenants[0], conn(4), None, 8, |_, _| true);
        let mut called = Vec::new();
        while let Some(tenant) = quotas.next_calling() {
            called.extend(quotas.next_called(tenant).map(|(id, _)| id.index));
        }
        assert_eq!(called, [0, 3, 1, 2]);
        assert!(!quotas.is_calling());
        quotas.call_all(tenants[0]);
        assert_eq!(quotas.next_called(tenants[0]).map(|(id, _)| id.index), Some(4));
        assert!(quotas.is_calling() && quotas.next_called(tenants[0]).is_none());
        assert!(!quotas.is_calling());
    }

    #[test]
    fn a_place_is_one_in_one_line() {
        let mut quotas = Quotas::default();
        let (conn, tenants) = (ConnId { index: 1, generation: 1 }, [TenantId(0), TenantId(1)]);
        let mut position = |tenant, before| quotas.queue_up(tenant, conn, before, 8, |_, _| true);
        let first = position(tenants[0], None);
        assert_eq!(position(tenants[0], Some(first)), first, "it stands there");
        let second = position(tenants[1], Some(first));
        let third = position(tenants[0], Some(second));
        assert!(first != second && second != third && third != first);
        assert_eq!(quotas.next_in_line(tenants[0]), Some((conn, first)));
        assert_eq!(quotas.next_in_line(tenants[0]), Some((conn, third)));
        assert_eq!(quotas.next_in_line(tenants[0]), None);
        assert_eq!(quotas.next_in_line(tenants[1]), Some((conn, second)));
    }
}
