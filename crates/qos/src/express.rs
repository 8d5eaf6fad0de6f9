//! The short way of a tenant that had nothing to do: its few requests are submitted at the begin of
//! the round, and it stays in its idle pool.
//!
//! What it spends is charged to the bucket, where the pool puts what its rate makes. A
//! latency-critical tenant may be ahead of its rate by the deficit that Algorithm 1 allows; how far
//! it is, is one number: the time until which its rate is spent. Who asks for more is held, takes
//! that debt along, and goes the long way. See docs/scheduler.md, "The short way".

use crate::Class;
use crate::cost_model::Priced;
use crate::requests::Paid;
use crate::token_scheduler::{Place, TokenScheduler};
use crate::units::{NANO, NEG_LIMIT, ROUND_NANOS_MAX, nano};

/// The most that a tenant may be ahead of its rate, in units.
pub(crate) const AHEAD_MAX: u64 = NEG_LIMIT.unsigned_abs() / NANO as u64;

impl TokenScheduler {
    /// Serves the newcomers that may go the short way, and holds the others.
    pub(crate) fn take_newcomers(&mut self) {
        let newcomers = core::mem::take(&mut self.newcomers);
        self.express_all(&newcomers[..self.coming]);
        self.newcomers = newcomers;
        self.coming = 0;
    }

    fn express_all(&mut self, coming: &[u32]) {
        // What the bucket may owe when several workers look at once is made up for like any debt.
        let spare = self.shared.bucket.held();
        let (mut spent, mut served, mut short) = (0, Priced::NOTHING, 0);
        let mut ready = self.ready;
        for &tenant in coming {
            match self.express(tenant, spare - nano(spent), &mut ready) {
                Some(sum) => {
                    spent += sum.under(self.load);
                    served += sum;
                    short += 1;
                }
                None => self.hold_and_enter(tenant),
            }
        }
        (self.short, self.ready) = (short, ready);
        if spent > 0 {
            self.shared.bucket.charge(nano(spent));
            self.totals.spent += i128::from(nano(spent));
            self.totals.borrowed += i128::from(nano(spent));
            self.spent += spent;
            self.reads += served.reads();
            self.writes += served.writes();
        }
    }

    /// The long way.
    #[inline(never)]
    fn hold_and_enter(&mut self, tenant: u32) {
        let class = self.hold(tenant);
        self.enter(tenant, class);
    }

    /// Puts all requests of a newcomer behind those that are ready, if that is within its rate: what
    /// they come to. The bucket has so much to spare.
    #[inline(always)]
    fn express(&mut self, tenant: u32, spare: i64, ready: &mut Paid) -> Option<Priced> {
        let cell = &self.shared.tenants[tenant as usize];
        let terms = cell.terms();
        let local = &mut self.locals[tenant as usize];
        let sum = local.queue.sum;
        let units = sum.under(self.load);
        if terms.holders > 0 || units > AHEAD_MAX {
            return None;
        }
        let goes = if terms.class == Class::LatencyCritical {
            // A debt that it has of its own (it was another class once) is repaid the long way.
            cell.balance.tokens() >= 0 && cell.spend_ahead(self.now, units, terms.rate, AHEAD_MAX)
        } else {
            // Only what its own share has made since the last time, if nobody else took it; as far as
            // it asks for more than one request, made up for no longer than by the long way.
            let longest = if local.queue.len == 1 { u64::MAX } else { ROUND_NANOS_MAX };
            terms.class == Class::BestEffort
                && nano(units) <= spare
                && cell.cap().is_none()
                && cell.spend_behind(self.now, units, self.share * terms.rate, longest)
        };
        if !goes {
            return None;
        }
        local.place = Place::Away;
        self.requests.append_paid(ready, &mut local.queue);
        cell.count(units, sum.reads(), sum.writes());
        Some(sum)
    }
}
