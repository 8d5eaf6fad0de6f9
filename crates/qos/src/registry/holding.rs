//! The holdings of tenants, for the scheduler of another process that takes over
//! (docs/adr/0009-upgrade.md).
//!
//! For a while both processes schedule the tenants. A credit is in one process at a time: it is
//! [taken](Registry::bequeath) before it is reported. A debt is in both, so that each process
//! collects it; further spending in the older process follows as [another
//! debt](Registry::spent_since). So no tenant profits from the take-over, and a tenant in deficit
//! stays there.
//!
//! This module deliberately leaves out the bucket, which is empty two rounds later, and arrears and
//! the loan, which are bounded by what a device makes in a twentieth of its strictest latency.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use contract::{Instant, IoKind, REQUEST_BYTES_MAX, TenantId};

use super::Registry;
use crate::Class;
use crate::tenant::Tenant;
use crate::units::{AHEAD_MAX, ROUND_NANOS_MAX, generated, nano};

/// The holding of a tenant at a device, in nano-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The tenant's tokens; a negative number is a debt.
    pub balance: i64,
    /// The nano-units that a best-effort tenant has spent beyond its cap, as a negative number;
    /// zero without such a debt.
    pub allowance: i64,
}

impl Registry {
    /// Takes the credits of the registered tenants away, and returns them. The debts of tenants are
    /// returned, too, and also stay here. Tenants with neither are left out.
    pub fn bequeath(&mut self, now: Instant) -> Vec<(TenantId, Holding)> {
        let mut taken = 0;
        let tell = |tenant: TenantId| {
            let cell = &self.shared.tenant(tenant.0);
            let credit = cell.balance.take(|tokens| tokens);
            taken += i128::from(credit);
            let debt = debt(self.shared.tenant(tenant.0), now);
            // One that a worker has made since then is told later.
            let balance = if credit > 0 { credit } else { debt.balance };
            (tenant, Holding { balance, ..debt })
        };
        let told = self.table.tenants().map(tell).filter(|(_, held)| *held != Holding::default());
        let told = told.collect();
        self.totals.expired += taken;
        told
    }

    /// Gives back to tenants the credits that were [taken](Registry::bequeath) from them.
    pub fn keep(&mut self, told: &[(TenantId, Holding)]) {
        for (tenant, held) in told {
            let credit = held.balance.max(0);
            self.shared.tenant(tenant.0).balance.add(credit);
            // As counters do not go back, it is made once more.
            self.totals.generated += i128::from(credit);
        }
    }

    /// Returns the increase of tenants' debts since they were [reported](Registry::bequeath).
    pub fn spent_since(
        &self,
        told: &[(TenantId, Holding)],
        now: Instant,
    ) -> Vec<(TenantId, Holding)> {
        let told: BTreeMap<TenantId, Holding> = told.iter().copied().collect();
        let more = |tenant: TenantId| {
            let (debt, before) =
                (debt(self.shared.tenant(tenant.0), now), told.get(&tenant).copied());
            let before = before.unwrap_or_default();
            let deeper = |now: i64, before: i64| (now - before.min(0)).min(0);
            let balance = deeper(debt.balance, before.balance);
            (tenant, Holding { balance, allowance: deeper(debt.allowance, before.allowance) })
        };
        self.table.tenants().map(more).filter(|(_, held)| *held != Holding::default()).collect()
    }

    /// Adds the holdings that another process has reported for a tenant, limited to what the tenant
    /// could have reached here. Returns `false` if there is no such tenant.
    pub fn inherit(&mut self, tenant: TenantId, held: Holding, now: Instant) -> bool {
        let is_there = self.table.registered(tenant).is_ok();
        if !is_there {
            return false;
        }
        let cell = &self.shared.tenant(tenant.0);
        let dearest = nano(u64::from(self.cost.cost(IoKind::Exchange, REQUEST_BYTES_MAX).mixed));
        let terms = cell.terms();
        let most = match terms.class {
            Class::LatencyCritical => generated(terms.rate, 3 * ROUND_NANOS_MAX),
            _ => dearest,
        };
        let change = cell.balance.adopt(held.balance, cell.limit() - dearest, most);
        self.totals.generated += i128::from(change.max(0));
        // The other process has counted it, but for what is repaid here.
        self.totals.spent += i128::from(-change.min(0));
        if held.allowance < 0 {
            // Or it would be made up for by the time before.
            cell.allowance.skip_to(now.as_nanos());
            cell.allowance.adopt(held.allowance, -dearest, 0);
        }
        true
    }
}

/// Returns a tenant's debt, including what it has spent ahead of its rate.
fn debt(cell: &Tenant, now: Instant) -> Holding {
    let terms = cell.terms();
    let ahead = match terms.class {
        Class::LatencyCritical if terms.holders == 0 => {
            cell.debt(now.as_nanos(), terms.rate, AHEAD_MAX)
        }
        _ => 0,
    };
    let balance = cell.balance.tokens().min(0) - ahead;
    Holding { balance, allowance: cell.allowance.tokens().min(0) }
}
