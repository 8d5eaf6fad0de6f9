//! The additional resources of the dashboard: `/v1/history`, `/v1/standing` and
//! `/v1/devices/NAME/model`. The size of each is bounded, however many tenants there are.

use std::cmp::Ordering;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use qos::{DeviceModel, Percentile, RatePoint};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::extract::{Path, Query};
use super::model::Tenant;
use super::problem::{Failure, Problem};
use super::watch::TokenRates;
use crate::history;
use crate::info::TenantInfo;
use crate::tail_share;
use crate::totals::TOKEN;

/// Number of tenants that are read while the registry is locked.
const CHUNK: usize = 128;

/// Number of listed tenants: the default, then the maximum.
const SHOWN_DEFAULT: usize = 50;
const SHOWN_MAX: usize = 500;

/// Returns the router of these resources.
pub(super) fn dashboard_router<S: Clone + Send + Sync + 'static>(
    tenants: crate::Tenants,
) -> Router<S> {
    Router::new()
        .route("/v1/history", get(get_history))
        .route("/v1/standing", get(get_standing))
        .route("/v1/devices/{name}/model", get(get_model))
        .with_state(tenants)
}

/// The number of tenants by standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standings {
    /// Tenants whose reads exceeded their latency bound.
    pub late: u32,
    /// Tenants that demanded more than their SLO, so that the latency bound did not hold.
    pub over: u32,
    /// Tenants whose SLO was met.
    pub kept: u32,
    /// Tenants without an SLO that were active.
    pub best_effort: u32,
    /// Tenants that were inactive.
    pub idle: u32,
    /// Tenants that were removed.
    pub leaving: u32,
}

/// A histogram of read latencies, without the empty buckets at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reads {
    /// Number of the first bucket.
    pub from: usize,
    /// Reads in this bucket and in the following ones.
    pub counts: Vec<u32>,
}

/// A device's figures of one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SecondOfDevice {
    /// Tokens per second that the device delivers; `null` without a model.
    pub made: Option<u64>,
    /// Tokens per second that are reserved for SLOs.
    pub promised: u64,
    /// The flow of the device's tokens.
    pub tokens: TokenRates,
    /// The strictest latency bound in microseconds.
    pub bound_us: Option<u32>,
    /// p95 of sampled reads at the device in microseconds, as in `/v1/flows`.
    pub p95_us: Option<f64>,
}

/// The server's figures of one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Second {
    /// Number of the second, counted from the start of the server.
    pub number: u64,
    /// Time since the end of the second, in seconds.
    pub age: f64,
    /// Requests answered per second.
    pub requests: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// Failed requests per second, without those that were told to try again.
    pub failures: f64,
    /// The number of tenants by standing.
    pub standings: Standings,
    /// The latencies of reads.
    pub reads: Reads,
    /// The devices, in the order of configuration.
    pub devices: Vec<SecondOfDevice>,
}

/// The figures of the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The version of the server.
    pub version: String,
    /// Upper edges of the latency buckets in microseconds; one more bucket has no edge.
    pub edges_us: Vec<f64>,
    /// Names of the devices.
    pub devices: Vec<String>,
    /// The seconds, oldest first.
    pub seconds: Vec<Second>,
}

/// The wanted part of the history.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Since {
    /// Number of the last second that the client has; all seconds by default.
    #[serde(default)]
    after: u64,
}

/// Returns the figures of the last five minutes, second by second.
#[utoipa::path(get, path = "/v1/history", params(Since), responses((status = 200, body = History)))]
async fn get_history(
    State(tenants): State<crate::Tenants>,
    Query(since): Query<Since>,
) -> Json<History> {
    let (devices, windows) = {
        let registry = tenants.registry();
        let windows: Vec<_> = registry.history().after(since.after).cloned().collect();
        (registry.device_infos().into_iter().map(|info| info.name).collect(), windows)
    };
    let now = tenants.now();
    let seconds = windows.into_iter().map(|window| {
        let age = now.since(window.ended_at).as_secs_f64();
        Second { age, ..window.into() }
    });
    Json(History {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        edges_us: (0..).map_while(history::heat_edge_us).collect(),
        devices,
        seconds: seconds.collect(),
    })
}

impl From<history::Window> for Second {
    fn from(window: history::Window) -> Second {
        Second {
            number: window.number,
            age: 0.0,
            requests: window.requests,
            read_bytes: window.bytes[0],
            written_bytes: window.bytes[1],
            failures: window.failures,
            standings: window.standings.into(),
            reads: Reads::of(&window.reads),
            devices: window.devices.into_iter().map(SecondOfDevice::from).collect(),
        }
    }
}

impl From<history::OfDevice> for SecondOfDevice {
    fn from(of: history::OfDevice) -> SecondOfDevice {
        SecondOfDevice {
            made: of.made,
            promised: of.promised,
            tokens: of.tokens.into(),
            bound_us: of.bound_us,
            p95_us: of.p95_us,
        }
    }
}

impl From<[u32; crate::Standing::ALL.len()]> for Standings {
    /// Converts counts in the order of [`crate::Standing::ALL`].
    fn from(counts: [u32; crate::Standing::ALL.len()]) -> Standings {
        let [late, over, kept, best_effort, idle, leaving] = counts;
        Standings { late, over, kept, best_effort, idle, leaving }
    }
}

impl Reads {
    fn of(counts: &[u32]) -> Reads {
        let Some(from) = counts.iter().position(|count| *count > 0) else {
            return Reads::default();
        };
        let to = counts.iter().rposition(|count| *count > 0).expect("there is one");
        Reads { from, counts: counts[from..=to].to_vec() }
    }
}

/// The standing of a tenant: a comparison of its demand and latency with its SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Reads exceeded the latency bound.
    Late,
    /// The tenant demanded more than its SLO, so the latency bound did not hold.
    Over,
    /// The SLO was met.
    Kept,
    /// The tenant has no SLO, and was active.
    BestEffort,
    /// The tenant was inactive.
    Idle,
    /// The tenant was removed.
    Leaving,
}

impl From<crate::Standing> for Standing {
    fn from(standing: crate::Standing) -> Standing {
        match standing {
            crate::Standing::Late => Standing::Late,
            crate::Standing::Over => Standing::Over,
            crate::Standing::Kept => Standing::Kept,
            crate::Standing::BestEffort => Standing::BestEffort,
            crate::Standing::Idle => Standing::Idle,
            crate::Standing::Leaving => Standing::Leaving,
        }
    }
}

/// A tenant with its standing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantStanding {
    /// The tenant's standing in the last second.
    pub standing: Standing,
    /// Measured tail latency as a share of its bound; `null` without reads or SLO.
    pub tail_share: Option<f64>,
    /// The tenant.
    pub tenant: Tenant,
}

/// The list of tenants with their standings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StandingList {
    /// Number of all tenants.
    pub total: usize,
    /// Number of tenants whose name contains the search text.
    pub matched: usize,
    /// Number of tenants by standing, over all tenants.
    pub standings: Standings,
    /// The first matching tenants in the requested order.
    pub tenants: Vec<TenantStanding>,
}

/// The order of a list of tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// Order by standing: late, over, kept, best effort, idle; within a standing, the longest tail
    /// latency relative to its bound first.
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
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Shown {
    /// Maximum number of tenants: 50 by default, and at most 500.
    limit: Option<usize>,
    /// The order; `worst` by default.
    #[serde(default)]
    order: Order,
    /// Text that the name must contain, in upper or lower case.
    search: Option<String>,
}

/// Lists the first tenants of an order, with their standings.
#[utoipa::path(
    get,
    path = "/v1/standing",
    params(Shown),
    responses(
        (status = 200, body = StandingList),
        (status = 400, description = "There is no such order, or the limit is no number"),
    )
)]
async fn get_standing(
    State(tenants): State<crate::Tenants>,
    Query(shown): Query<Shown>,
) -> Json<StandingList> {
    let limit = shown.limit.unwrap_or(SHOWN_DEFAULT).min(SHOWN_MAX);
    let text = shown.search.unwrap_or_default().to_lowercase();
    let mut counts = [0; crate::Standing::ALL.len()];
    let (mut total, mut matched, mut first) = (0, 0, Vec::new());
    let mut next = Some(0);
    while let Some(from) = next {
        let (chunk, then) = tenants.registry().listed(from, CHUNK);
        total += chunk.len();
        for info in chunk {
            let standing = crate::Standing::of(&info);
            counts[standing as usize] += 1;
            if text.is_empty() || info.name.to_lowercase().contains(&text) {
                matched += 1;
                first.push((standing, info));
            }
        }
        first.sort_by(|a, b| shown.order.compare(a, b));
        first.truncate(limit);
        next = then;
        // Yields to other tasks of this thread.
        tokio::task::yield_now().await;
    }
    let of = |(standing, info): (crate::Standing, TenantInfo)| TenantStanding {
        standing: standing.into(),
        tail_share: tail_share(&info),
        tenant: info.into(),
    };
    let tenants = first.into_iter().map(of).collect();
    Json(StandingList { total, matched, standings: counts.into(), tenants })
}

type Ranked = (crate::Standing, TenantInfo);

impl Order {
    fn compare(self, a: &Ranked, b: &Ranked) -> Ordering {
        let largest = |of: fn(&TenantInfo) -> f64| of(&b.1).total_cmp(&of(&a.1));
        let order = match self {
            Order::Worst => a.0.cmp(&b.0).then_with(|| {
                largest(|info| tail_share(info).unwrap_or(info.measured.iops / 1e12))
            }),
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

/// The rate of a device at a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rate {
    /// Tail latency of reads in microseconds.
    pub latency_us: u32,
    /// Tokens per second of a mixed load.
    pub mixed: u64,
    /// Tokens per second of a read-only load, at the price of a read in a mixed load.
    pub read_only: u64,
}

/// The model of a device: as measured, before corrections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// Rates by latency at the 95th percentile.
    pub p95: Vec<Rate>,
    /// Rates by latency at the 99th percentile; empty if not measured.
    pub p99: Vec<Rate>,
    /// Tokens per second without a latency bound.
    pub tokens_max: u64,
    /// Price of a write of 4 KiB in tokens.
    pub write_price: f64,
    /// Price of a read of 4 KiB in a read-only load, in tokens.
    pub read_only_price: f64,
}

/// Returns the model of a device.
#[utoipa::path(
    get,
    path = "/v1/devices/{name}/model",
    params(("name" = String, Path, description = "The device's name")),
    responses(
        (status = 200, body = Model),
        (status = 422, description = "There is no such device, or it has no model", body = Failure),
    )
)]
async fn get_model(
    State(tenants): State<crate::Tenants>,
    Path(name): Path<String>,
) -> Result<Json<Model>, Problem> {
    let registry = tenants.registry();
    Ok(Json(registry.model(&name)?.into()))
}

impl From<&DeviceModel> for Model {
    fn from(model: &DeviceModel) -> Model {
        let rates = |percentile| model.points_at(percentile).iter().map(Rate::from).collect();
        let price = |units: u32| f64::from(units) / TOKEN as f64;
        Model {
            p95: rates(Percentile::P95),
            p99: rates(Percentile::P99),
            tokens_max: model.rate_max() / TOKEN,
            write_price: price(model.cost().write()),
            read_only_price: price(model.cost().read_only_read()),
        }
    }
}

impl From<&RatePoint> for Rate {
    fn from(point: &RatePoint) -> Rate {
        Rate {
            latency_us: point.latency_us,
            mixed: point.mixed / TOKEN,
            read_only: point.read_only / TOKEN,
        }
    }
}

/// The OpenAPI document of this module.
#[derive(OpenApi)]
#[openapi(paths(get_history, get_standing, get_model), components(schemas(Order)))]
pub(super) struct Document;
