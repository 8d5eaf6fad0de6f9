//! How much of a worker's slots and buffers one tenant may hold, so that a tenant with thousands of
//! connections, or with requests that wait long for tokens, leaves something to others.
//!
//! A tenant may hold [`SHARE`] times as many slots as are free, and of each size of buffers [`SHARE`]
//! times as many payloads as buffers of that size are free (dynamic thresholds: Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 1998). One that takes all it can leaves a third, two of them
//! leave a fifth: nobody has to say who the tenants are, and what nobody else wants is not kept from
//! the one that does. A connection whose tenant holds too much stands in line: each request of the
//! tenant that ends lets the first go on.

use std::collections::VecDeque;

use contract::{ConnId, TenantId};

/// How many times what is free one tenant may hold.
pub(crate) const SHARE: usize = 2;

/// Sizes of buffers that are told apart; a pool has fewer.
pub(crate) const CLASSES_MAX: usize = 8;

/// What one tenant holds.
#[derive(Debug, Default)]
struct Holding {
    /// Requests in flight.
    slots: usize,
    /// Payloads among them, by the size of their buffers.
    payloads: [usize; CLASSES_MAX],
    /// Its connections that wait for less of that, the first in front, and some that are gone: at
    /// most twice as many as the worker has connections.
    line: VecDeque<ConnId>,
}

/// What the tenants of a worker hold, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    holdings: Vec<Holding>,
}

impl Quotas {
    #[inline]
    fn of(&mut self, tenant: TenantId) -> &mut Holding {
        let index = tenant.0 as usize;
        if self.holdings.len() <= index {
            self.make_room(index);
        }
        &mut self.holdings[index]
    }

    /// The first request of a tenant with this number.
    #[cold]
    fn make_room(&mut self, index: usize) {
        self.holdings.resize_with(index + 1, Holding::default);
    }

    /// Whether the tenant may have one more slot, of so many that are free.
    #[inline]
    pub(crate) fn allows_slot(&mut self, tenant: TenantId, free: usize) -> bool {
        let held = self.of(tenant).slots;
        held == 0 || held < SHARE * free
    }

    /// Whether it may have one more payload in a buffer of this class, of so many that are free.
    pub(crate) fn allows_payload(&mut self, tenant: TenantId, class: usize, free: usize) -> bool {
        let held = self.of(tenant).payloads[class];
        held == 0 || held < SHARE * free
    }

    /// It holds one request more, with a payload of this class.
    #[inline]
    pub(crate) fn hold(&mut self, tenant: TenantId, class: Option<usize>) {
        let holding = self.of(tenant);
        holding.slots += 1;
        if let Some(class) = class {
            holding.payloads[class] += 1;
        }
    }

    /// It holds one less; whether connections of it wait for that.
    #[inline]
    pub(crate) fn release(&mut self, tenant: TenantId, class: Option<usize>) -> bool {
        let holding = &mut self.holdings[tenant.0 as usize];
        let less = |count: usize| count.checked_sub(1).expect("what is released was held");
        holding.slots = less(holding.slots);
        if let Some(class) = class {
            holding.payloads[class] = less(holding.payloads[class]);
        }
        !holding.line.is_empty()
    }

    /// A connection waits until its tenant holds less. (It holds something, or it were allowed.)
    /// Whoever no longer `stands` there is struck off before the line gets longer than `most`.
    pub(crate) fn stand_in_line(
        &mut self,
        tenant: TenantId,
        conn: ConnId,
        most: usize,
        stands: impl Fn(ConnId) -> bool,
    ) {
        let line = &mut self.of(tenant).line;
        if line.len() >= most {
            line.retain(|id| stands(*id));
        }
        line.push_back(conn);
    }

    /// The first of the tenant's connections that wait.
    pub(crate) fn next_in_line(&mut self, tenant: TenantId) -> Option<ConnId> {
        self.of(tenant).line.pop_front()
    }
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
        assert!(quotas.allows_payload(TenantId(0), 3, 1));
        quotas.hold(TenantId(0), Some(3));
        assert!(!quotas.allows_payload(TenantId(0), 3, 0));
        assert!(quotas.allows_payload(TenantId(0), 2, 1));
        quotas.release(TenantId(0), Some(3));
        assert!(quotas.allows_payload(TenantId(0), 3, 1));
    }

    #[test]
    fn those_who_left_do_not_make_the_line_longer() {
        let mut quotas = Quotas::default();
        let conn = |index| ConnId { index, generation: 1 };
        for index in 0..1_000 {
            quotas.stand_in_line(TenantId(0), conn(index), 8, |id| id.index == 0);
        }
        assert!(quotas.of(TenantId(0)).line.len() <= 8);
        assert_eq!(
            quotas.next_in_line(TenantId(0)),
            Some(conn(0)),
            "who stayed is still the first"
        );
    }
}
