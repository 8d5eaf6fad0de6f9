//! Verdicts of a device's admission, with names and tokens instead of numbers and units.

use qos::admission;

use super::table::TenantTable;
use crate::info::{Refusal, Verdict, Ways};
use crate::totals::TOKEN;

/// Converts units (hundredths of a token) to tokens, rounded up.
pub(super) fn tokens_up(units: u64) -> u64 {
    units.div_ceil(TOKEN)
}

/// Converts a device's verdict to names and tokens.
pub(super) fn verdict(tenants: &TenantTable, verdict: admission::Verdict) -> Verdict {
    match verdict {
        admission::Verdict::Admitted { needed, left, headroom } => {
            let more = left.checked_div(needed).map_or(usize::MAX, |more| more as usize);
            let fits = more.saturating_add(1).min(tenants.vacancies());
            let (tokens_needed, tokens_left) = (tokens_up(needed), left / TOKEN);
            let tokens_headroom = headroom / TOKEN;
            Verdict::Admitted { tokens_needed, tokens_left, tokens_headroom, fits }
        }
        admission::Verdict::Refused { refusal, ways } => Verdict::Refused {
            refusal: named(tenants, refusal),
            ways: Ways {
                iops: ways.iops,
                latency_us: ways.latency_us,
                leave: ways.leave.iter().map(|tenant| tenants.name(*tenant)).collect(),
            },
        },
    }
}

/// Converts a device's refusal to names and tokens.
pub(super) fn named(tenants: &TenantTable, refusal: admission::Refusal) -> Refusal {
    use admission::Refusal as Numbered;
    match refusal {
        Numbered::Invalid(what) => Refusal::Invalid(format!("the SLO makes no sense: {what}")),
        Numbered::TableFull => Refusal::TableFull { tenants_max: tenants.tenants_max() },
        Numbered::NoTenant => unreachable!("a tenant is known to every device"),
        Numbered::TooTight { latency_us, tightest_us, percentile } => {
            Refusal::TooTight { latency_us, tightest_us, percentile }
        }
        Numbered::TooMuch(shortage) => Refusal::TooMuch {
            tokens_needed: tokens_up(shortage.needed),
            tokens_available: shortage.available / TOKEN,
            tokens_device: shortage.device / TOKEN,
            tokens_headroom: shortage.headroom / TOKEN,
            latency_us: shortage.latency_us,
            percentile: shortage.percentile,
            limited_by: shortage.limited_by.map(|tenant| tenants.name(tenant)),
        },
    }
}
