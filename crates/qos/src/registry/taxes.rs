//! The taxes by which a registry's tenants pay for the device's background work (chores).

use contract::{ChoreCounters, ChoreRate, Instant, IoKind, Slo};

use super::Registry;
use crate::cost_model::CostModel;
use crate::shared::Prices;
use crate::tax::ChoreView;
use crate::tenant::Tenant;

/// Sets how much a tenant may owe. While writes have a tax, it may submit while it owes less than
/// the dearest request of its SLO, at the prices `promised`.
pub(super) fn limit_debt(tenant: &Tenant, slo: &Slo, promised: &CostModel) {
    let kind = if slo.read_percent < 100 { IoKind::Write } else { IoKind::Read };
    let dearest = promised.cost(kind, slo.request_bytes as usize).mixed;
    tenant.owe_at_most(if promised.tax() > 0 { dearest.into() } else { 0 });
}

/// Access to the taxes of a registry's device, to set and to charge them.
#[derive(Debug)]
pub struct Taxes<'a>(pub(super) &'a mut Registry);

impl Taxes<'_> {
    /// Returns the background work of a registry's device; `None` for a device without any.
    pub fn view(registry: &Registry) -> Option<ChoreView> {
        registry.treasury.view(&registry.cost, &registry.promised_cost)
    }

    /// Prices the background work of a device of `pages` pages from now on: promises include the
    /// work of `uniform` writes, and each write pays for the measured work.
    pub fn expect(self, uniform: ChoreRate, pages: u64, now: Instant) {
        self.0.treasury.expect(uniform, pages);
        self.0.adjust(self.0.adjustment, now);
    }

    /// Pays for the device's background work since the last call from the account for it, and has
    /// the tax on writes follow the measured work. While writes wait in the device for space, more
    /// writes of best-effort tenants wait here.
    pub fn charge(self, done: ChoreCounters, now: Instant) {
        let registry = self.0;
        let rate = registry.device_rate();
        let tax = registry.treasury.charge(done, rate, &registry.shared, &mut registry.totals);
        if tax != registry.cost.tax() {
            registry.settle(now.as_nanos());
            registry.cost.set_tax(tax);
            registry.shared.set_prices(Prices::of(&registry.cost));
        }
    }

    /// Turns the tax off or on again. Without the tax, chores are not paid for, and promises do not
    /// take them into account. On by default.
    pub fn turn(self, on: bool, now: Instant) {
        self.0.treasury.turn(on);
        self.0.adjust(self.0.adjustment, now);
    }
}
