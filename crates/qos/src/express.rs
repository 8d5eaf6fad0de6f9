//! The short way of a tenant that had nothing to do: its few requests are submitted at the begin of
//! the round, and it stays in its idle pool.
//!
//! What it spends is charged to the bucket, where the pool puts what its rate makes. A
//! latency-critical tenant may be ahead of its rate by the deficit that Algorithm 1 allows; how far
//! it is, is one number: the time until which its rate is spent. Who asks for more is held, takes
//! that debt along, and goes the long way. See docs/scheduler.md, "The short way".

use contract::TenantId;

use crate::Class;
use crate::token_scheduler::{IdleRule, Place, TokenScheduler};
use crate::units::{NANO, NEG_LIMIT, nano};

/// The most that a tenant may be ahead of its rate, in units.
pub(crate) const AHEAD_MAX: u64 = NEG_LIMIT.unsigned_abs() / NANO as u64;

impl TokenScheduler {
    /// Serves the newcomers that may go the short way, and holds the others.
    pub(crate) fn take_newcomers(&mut self) {
        let mut newcomer = self.newcomers.take().map(|(first, _)| first);
        let mut charged = 0;
        while let Some(tenant) = newcomer {
            newcomer = self.locals[tenant as usize].newcomer.take();
            match self.express(tenant) {
                Some(units) => charged += units,
                None => {
                    let class = self.hold(tenant);
                    self.enter(tenant, class);
                }
            }
        }
        if charged > 0 {
            self.shared.bucket.charge(nano(charged));
        }
    }

    /// Lets all requests of a newcomer go, if that is within its rate: what is to be charged.
    fn express(&mut self, tenant: u32) -> Option<u64> {
        if self.idle == IdleRule::Visit {
            return None;
        }
        let cell = &self.shared.tenants[tenant as usize];
        let terms = cell.terms();
        let local = &mut self.locals[tenant as usize];
        let sum = local.queue.sum;
        let units = sum.under(self.load);
        if terms.holders > 0 || units > AHEAD_MAX {
            return None;
        }
        let charged = match terms.class {
            // A debt that it has of its own (it was another class once) is repaid the long way.
            Class::LatencyCritical if cell.balance.tokens() >= 0 => {
                cell.spend_ahead(self.now, units, terms.rate, AHEAD_MAX).then_some(units)?
            }
            // Only what its own share has made since the last time, if nobody else took it.
            Class::BestEffort if local.queue.len == 1 && cell.cap().is_none() => {
                let share = self.share * terms.rate;
                cell.spend_behind(self.now, units, share).then_some(())?;
                let cost = nano(units);
                let taken = self.shared.bucket.take(cost);
                if taken < cost {
                    self.shared.bucket.give(taken);
                    return None;
                }
                0
            }
            _ => return None,
        };
        local.place = Place::Away;
        self.requests.append_paid(&mut self.ready, &mut local.queue);
        self.count_for(TenantId(tenant), units, sum);
        Some(charged)
    }
}
