//! The resources that the dashboard needs beyond what operators ask for: `/v1/history`,
//! `/v1/standing` and `/v1/devices/NAME/model`. Each is bounded, however many tenants there are.

use std::cmp::Ordering;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use qos::{DeviceModel, Percentile, RatePoint};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::asked::{Path, Query};
use super::model::Tenant;
use super::problem::{Failure, Problem};
use super::watch::TokenRates;
use crate::book::TOKEN;
use crate::history;
use crate::tail_share;
use crate::words::TenantInfo;

/// Tenants that are looked at while the book is locked.
const CHUNK: usize = 128;

/// Tenants that are shown unless told, and at most.
const SHOWN_DEFAULT: usize = 50;
const SHOWN_MAX: usize = 500;

/// The resources as a service.
pub(super) fn dashboard_router<S: Clone + Send + Sync + 'static>(
    tenants: crate::Tenants,
) -> Router<S> {
    Router::new()
        .route("/v1/history", get(get_history))
        .route("/v1/standing", get(get_standing))
        .route("/v1/devices/{name}/model", get(get_model))
        .with_state(tenants)
}

/// How many tenants stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standings {
    /// Their reads took longer than promised.
    pub late: u32,
    /// They asked for more than was promised, so their latency was not promised.
    pub over: u32,
    /// Their promises were kept.
    pub kept: u32,
    /// They have no promise, and did something.
    pub best_effort: u32,
    /// They did nothing.
    pub idle: u32,
    /// They were removed.
    pub leaving: u32,
}

/// Reads by latency, without the empty buckets at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reads {
    /// The bucket of the first count.
    pub from: usize,
    /// Reads in it and those that follow.
    pub counts: Vec<u32>,
}

/// A device in a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SecondOfDevice {
    /// Tokens a second that it makes; `null` without a model.
    pub made: Option<u64>,
    /// Tokens a second that are reserved for promises.
    pub promised: u64,
    /// What became of its tokens.
    pub tokens: TokenRates,
    /// The strictest promised latency in microseconds.
    pub bound_us: Option<u32>,
    /// p95 of sampled reads at the device, in microseconds, as in `/v1/flows`.
    pub p95_us: Option<f64>,
}

/// A second of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Second {
    /// Seconds are numbered from the start of the server.
    pub number: u64,
    /// How long ago it ended, in seconds.
    pub age: f64,
    /// Requests answered a second.
    pub requests: f64,
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Bytes written a second.
    pub written_bytes: f64,
    /// Requests that were not carried out, a second, without those that were told to try again.
    pub failures: f64,
    /// How the tenants stood.
    pub standings: Standings,
    /// Reads by latency.
    pub reads: Reads,
    /// The devices, in the order of configuration.
    pub devices: Vec<SecondOfDevice>,
}

/// The last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The version of the server.
    pub version: String,
    /// The upper edges of the buckets of latency in microseconds; one more bucket has none.
    pub edges_us: Vec<f64>,
    /// The names of the devices.
    pub devices: Vec<String>,
    /// The oldest first.
    pub seconds: Vec<Second>,
}

/// Which part of the history is wanted.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Since {
    /// The number of the last second that is known already; all unless told.
    #[serde(default)]
    after: u64,
}

/// The last five minutes, second by second.
#[utoipa::path(get, path = "/v1/history", params(Since), responses((status = 200, body = History)))]
async fn get_history(
    State(tenants): State<crate::Tenants>,
    Query(since): Query<Since>,
) -> Json<History> {
    let (devices, windows) = {
        let book = tenants.book();
        let windows: Vec<_> = book.history().after(since.after).cloned().collect();
        (book.device_infos().into_iter().map(|info| info.name).collect(), windows)
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
    /// In the order of [`crate::Standing::ALL`].
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

/// How a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Its reads took longer than promised.
    Late,
    /// It asked for more than was promised, so its latency was not promised.
    Over,
    /// Its promise was kept.
    Kept,
    /// It has no promise, and did something.
    BestEffort,
    /// It did nothing.
    Idle,
    /// It was removed.
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

/// A tenant, and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StandingOf {
    /// How it stood in the last second.
    pub standing: Standing,
    /// The measured tail latency as a share of its bound; `null` without reads or promise.
    pub tail_share: Option<f64>,
    /// The tenant.
    pub tenant: Tenant,
}

/// How tenants stand beside their promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stood {
    /// How many tenants there are.
    pub total: usize,
    /// How many have the text that was searched for in their names.
    pub matched: usize,
    /// How many stand how, of all.
    pub standings: Standings,
    /// The first of those that match, in the order that was asked for.
    pub tenants: Vec<StandingOf>,
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// Those in trouble: late, over, kept, best effort, idle; the longest tail beside its bound
    /// first.
    #[default]
    Worst,
    /// By name.
    Name,
    /// Most requests a second.
    Requests,
    /// Most tokens a second.
    Tokens,
    /// The longest tail latency.
    Latency,
}

/// Which tenants are shown.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Shown {
    /// So many at most: 50 unless told, and 500 at most.
    limit: Option<usize>,
    /// What comes first; `worst` unless told.
    #[serde(default)]
    order: Order,
    /// Those with this text in their names, in capitals or not.
    search: Option<String>,
}

/// How tenants stand beside their promises: the first so many of an order.
#[utoipa::path(
    get,
    path = "/v1/standing",
    params(Shown),
    responses(
        (status = 200, body = Stood),
        (status = 400, description = "There is no such order, or the limit is no number"),
    )
)]
async fn get_standing(
    State(tenants): State<crate::Tenants>,
    Query(shown): Query<Shown>,
) -> Json<Stood> {
    let limit = shown.limit.unwrap_or(SHOWN_DEFAULT).min(SHOWN_MAX);
    let text = shown.search.unwrap_or_default().to_lowercase();
    let mut counts = [0; crate::Standing::ALL.len()];
    let (mut total, mut matched, mut first) = (0, 0, Vec::new());
    let mut next = Some(0);
    while let Some(from) = next {
        let (chunk, then) = tenants.book().listed(from, CHUNK);
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
        // Others of this thread may want something.
        tokio::task::yield_now().await;
    }
    let of = |(standing, info): (crate::Standing, TenantInfo)| StandingOf {
        standing: standing.into(),
        tail_share: tail_share(&info),
        tenant: info.into(),
    };
    let tenants = first.into_iter().map(of).collect();
    Json(Stood { total, matched, standings: counts.into(), tenants })
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

/// How many tokens a device serves at a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rate {
    /// The tail latency of reads in microseconds.
    pub latency_us: u32,
    /// Tokens a second of a mixed load.
    pub mixed: u64,
    /// Tokens a second of reads alone, at the price of a read among others.
    pub read_only: u64,
}

/// What a device is known to do: as it was measured, before corrections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// The rates at latencies of the 95th percentile, by latency.
    pub p95: Vec<Rate>,
    /// The same of the 99th percentile; none where it was not measured.
    pub p99: Vec<Rate>,
    /// Tokens a second without any bound of latency.
    pub tokens_max: u64,
    /// What a write of 4 KiB costs, in tokens.
    pub write_price: f64,
    /// What a read of 4 KiB costs while there are no writes, in tokens.
    pub read_only_price: f64,
}

/// The model of a device.
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
    let book = tenants.book();
    Ok(Json(book.model(&name)?.into()))
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

/// The part of the document.
#[derive(OpenApi)]
#[openapi(paths(get_history, get_standing, get_model), components(schemas(Order)))]
pub(super) struct Document;
