//! The registry's views for pages and scrapes. A view returns a limited number of tenants at a
//! time, so that the registry is never locked for long.

use contract::TenantId;

use crate::TenantRegistry;
use crate::info::TenantInfo;
use crate::totals::TenantTotals;

/// The tenants of one number: the current one, and the sums of the earlier ones.
#[derive(Debug)]
pub(crate) struct TenantDetail {
    pub(crate) number: usize,
    /// The current tenant of the number, and its sums.
    pub(crate) tenant: Option<(TenantInfo, TenantTotals)>,
    /// The sums over the earlier tenants that had this number; `None` if they did nothing.
    pub(crate) departed: Option<TenantTotals>,
}

/// Returns the details of the used numbers among the `count` numbers from `from` on, and the number
/// to continue with; `None` if there are no more.
pub(crate) fn detailed(
    registry: &TenantRegistry,
    from: usize,
    count: usize,
) -> (Vec<TenantDetail>, Option<usize>) {
    let (some, next) = numbers(registry, from, count);
    let each = some.map(|tenant| TenantDetail {
        number: tenant.0 as usize,
        tenant: registry
            .tenants
            .get(tenant)
            .map(|entry| (registry.info_of(tenant, entry), entry.window.totals.clone())),
        departed: registry.tenants.departed(tenant).cloned(),
    });
    (each.filter(|of| of.tenant.is_some() || of.departed.is_some()).collect(), next)
}

/// Returns the tenants that have one of the `count` numbers from `from` on, and the number to
/// continue with; `None` if there are no more.
pub(crate) fn listed(
    registry: &TenantRegistry,
    from: usize,
    count: usize,
) -> (Vec<TenantInfo>, Option<usize>) {
    let (some, next) = numbers(registry, from, count);
    let info = |tenant| Some(registry.info_of(tenant, registry.tenants.get(tenant)?));
    (some.filter_map(info).collect(), next)
}

/// Returns the `count` tenant numbers from `from` on, and the number to continue with; `None` if
/// there are no more.
fn numbers(
    registry: &TenantRegistry,
    from: usize,
    count: usize,
) -> (impl Iterator<Item = TenantId> + use<>, Option<usize>) {
    let tenants_max = registry.tenants.tenants_max();
    let end = tenants_max.min(from + count);
    ((from..end).map(|n| TenantId(n as u32)), Some(end).filter(|end| *end < tenants_max))
}
