//! The functions of the API's operations for the dashboard. The size of each answer is bounded,
//! however many tenants there are.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::admin::dashboard::{History, Second, StandingList, TenantStanding};
use crate::admin::input::Query;
use crate::admin::operation::Call;
use crate::admin::problem::Problem;
use crate::admin::violations::{Violation, Violations};
use crate::history;
use crate::info::TenantInfo;
use crate::{Standing, tail_share, views};

/// Maximum number of tenants that are copied from the registry under one lock, so that it is locked
/// briefly.
const CHUNK: usize = 128;

/// Number of tenants that are listed if the request gives no limit, and the maximum of the limit.
const SHOWN_DEFAULT: usize = 50;
const SHOWN_MAX: usize = 500;

/// The wanted part of the history.
#[derive(Deserialize, JsonSchema)]
pub(super) struct HistoryQuery {
    /// Number of the last second, or minute, that the client has; all by default.
    #[serde(default)]
    after: u64,
    /// The length of the windows; seconds by default.
    #[serde(default)]
    step: history::Step,
}

pub(super) fn history(call: &Call, Query(since): Query<HistoryQuery>) -> Result<History, Problem> {
    let tenants = &call.api.tenants;
    let (devices, windows) = {
        let registry = tenants.registry();
        let history = registry.activity().history();
        let windows: Vec<_> = history.after(since.step, since.after).cloned().collect();
        (registry.devices().infos().into_iter().map(|info| info.name).collect(), windows)
    };
    let now = tenants.now();
    let seconds = windows.into_iter().map(|window| {
        let age = now.since(window.ended_at).as_secs_f64();
        Second { age, ..window.into() }
    });
    Ok(History {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edges_us: (0..).map_while(history::heat_edge_us).collect(),
        devices,
        seconds: seconds.collect(),
    })
}

pub(super) fn violations(call: &Call, (): ()) -> Result<Violations, Problem> {
    let latest = call.api.tenants.registry().activity().violations().latest();
    let now = call.api.tenants.now();
    let each = latest.iter().map(|(violation, goes_on)| Violation::of(violation, *goes_on, now));
    Ok(Violations { violations: each.collect() })
}

/// The order of a list of tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// Order by standing: late, over, kept, best effort, idle; within a standing, tenants with an
    /// SLO first, and the longest tail latency relative to its bound first.
    #[default]
    Worst,
    /// Order by name.
    Name,
    /// Most requests a second.
    Requests,
    /// Most tokens a second.
    Tokens,
    /// Longest tail latency.
    Latency,
}

/// The filter for a list of tenants.
#[derive(Deserialize, JsonSchema)]
pub(super) struct TenantFilter {
    /// Maximum number of tenants: 50 by default, and at most 500.
    limit: Option<usize>,
    /// The order; `worst` by default.
    #[serde(default)]
    order: Order,
    /// Text that the name must contain, in upper or lower case.
    search: Option<String>,
}

pub(super) fn standing(
    call: &Call,
    Query(shown): Query<TenantFilter>,
) -> Result<StandingList, Problem> {
    let limit = shown.limit.unwrap_or(SHOWN_DEFAULT).min(SHOWN_MAX);
    let text = shown.search.unwrap_or_default().to_lowercase();
    let mut counts = [0; Standing::ALL.len()];
    let (mut total, mut matched, mut first) = (0, 0, Vec::new());
    let mut next = Some(0);
    while let Some(from) = next {
        let (chunk, then) = views::listed(&call.api.tenants.registry(), from, CHUNK);
        total += chunk.len();
        for info in chunk {
            let standing = Standing::of(&info);
            counts[standing as usize] += 1;
            if text.is_empty() || info.name.to_lowercase().contains(&text) {
                matched += 1;
                first.push((standing, info));
            }
        }
        first.sort_by(|a, b| shown.order.compare(a, b));
        first.truncate(limit);
        next = then;
    }
    let of = |(standing, info): Ranked| TenantStanding {
        standing,
        tail_share: tail_share(&info),
        tenant: info.into(),
    };
    let tenants = first.into_iter().map(of).collect();
    Ok(StandingList { total, matched, standings: counts.into(), tenants })
}

type Ranked = (Standing, TenantInfo);

impl Order {
    fn compare(self, a: &Ranked, b: &Ranked) -> Ordering {
        let largest = |of: fn(&TenantInfo) -> f64| of(&b.1).total_cmp(&of(&a.1));
        let order = match self {
            Order::Worst => {
                let plain = |of: &Ranked| of.1.promise.slo().is_none();
                a.0.cmp(&b.0).then_with(|| plain(a).cmp(&plain(b))).then_with(|| {
                    largest(|info| tail_share(info).unwrap_or(info.measured.iops / 1e12))
                })
            }
            Order::Name => Ordering::Equal,
            Order::Requests => largest(|info| info.measured.iops),
            Order::Tokens => largest(|info| info.measured.tokens),
            Order::Latency => largest(|info| {
                info.measured.slo_percentile_us.or(info.measured.p95_us).unwrap_or(-1.0)
            }),
        };
        order.then_with(|| a.1.name.cmp(&b.1.name))
    }
}
