//! The resources that show the server's activity: `/v1/flows`, `/v1/tenants/NAME/stages` and
//! `/v1/trace`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use contract::{Part, Stage, Traces};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use utoipa::{OpenApi, ToSchema};

use super::extract::{Path, Query};
use super::problem::{Code, Failure, Problem};
use crate::flows::TokenFlow;
use crate::traces::chrome;

/// Maximum duration of a trace in seconds: a request takes at most ten.
const SECONDS_MAX: f64 = 5.0;

/// Maximum number of requests in a trace.
const TRACES_MAX: usize = 20_000;

/// Period at which the rings of traces are emptied.
const PERIOD: Duration = Duration::from_millis(20);

/// The state that every handler receives.
#[derive(Clone)]
struct Watched {
    tenants: crate::Tenants,
    /// Admits one trace at a time, on all endpoints: clones of the router share the lock.
    tracing: Arc<Mutex<()>>,
}

/// Returns the router of these resources.
pub(super) fn watch_router<S: Clone + Send + Sync + 'static>(tenants: crate::Tenants) -> Router<S> {
    Router::new()
        .route("/v1/flows", get(get_flows))
        .route("/v1/tenants/{name}/stages", get(get_stages))
        .route("/v1/trace", get(get_trace))
        .with_state(Watched { tenants, tracing: Arc::default() })
}

/// The flow of tokens, in tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenRates {
    /// Tokens generated.
    pub generated: f64,
    /// Spent on requests.
    pub spent: f64,
    /// Tokens that tenants with a surplus put into the bucket, also on behalf of idle tenants.
    pub donated: f64,
    /// Taken out of the bucket.
    pub borrowed: f64,
    /// Discarded when the bucket was emptied.
    pub expired: f64,
}

/// The activity of a device in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowOfDevice {
    /// Name of the device.
    pub name: String,
    /// Successful requests per second.
    pub iops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// p95 of sampled reads at the device in microseconds: the upper edge of a bucket that is twice
    /// as wide as the one below it; `null` without samples.
    pub p95_us: Option<f64>,
    /// Number of requests at the device.
    pub depth: u32,
    /// Number of requests that wait in its schedulers.
    pub queued: u32,
    /// The flow of its tokens.
    pub tokens: TokenRates,
}

/// The time per stage of the last second's sampled reads: p95 in microseconds, the upper edge of a
/// bucket that is twice as wide as the one below it; `null` without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageTails {
    /// From the last byte of a request to its submission.
    pub scheduler_us: Option<f64>,
    /// At the device.
    pub device_us: Option<f64>,
    /// From the socket to the time when the network has taken the reply.
    pub reply_us: Option<f64>,
}

/// The activity of a worker in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowOfWorker {
    /// Number of the worker.
    pub number: usize,
    /// Share of the time in which the worker was busy, in percent.
    pub busy_percent: f64,
    /// Turns per second that did something.
    pub turns: f64,
    /// Successful requests per second.
    #[serde(default)]
    pub iops: f64,
    /// Bytes read per second.
    #[serde(default)]
    pub read_bytes: f64,
    /// Bytes written per second.
    #[serde(default)]
    pub written_bytes: f64,
    /// The time per stage of its reads.
    #[serde(default)]
    pub stages: StageTails,
    /// Number of open connections.
    pub connections: u32,
    /// Number of requests in flight.
    pub in_flight: u32,
    /// Number of buffers in use.
    pub buffers: u32,
    /// Parts of its busy time in percent: network, protocol, scheduling, device, kernel, upkeep.
    pub parts: [f64; Part::ALL.len()],
}

/// The activity of a namespace in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowOfNamespace {
    /// Number of the namespace.
    pub number: u16,
    /// Successful requests per second.
    pub iops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// The time per stage of its reads.
    #[serde(default)]
    pub stages: StageTails,
}

/// The server's activity in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Flows {
    /// The devices, in the order of configuration.
    pub devices: Vec<FlowOfDevice>,
    /// The workers, by number.
    pub workers: Vec<FlowOfWorker>,
    /// The namespaces that were ever used, by number.
    pub namespaces: Vec<FlowOfNamespace>,
}

/// Returns the server's activity in the last second.
#[utoipa::path(get, path = "/v1/flows", responses((status = 200, body = Flows)))]
async fn get_flows(State(watched): State<Watched>) -> Json<Flows> {
    let (devices, (_, workers, namespaces)) = {
        let registry = watched.tenants.registry();
        (registry.device_flows(), registry.flows())
    };
    let devices = devices.into_iter().map(|(info, flow)| FlowOfDevice {
        name: info.name,
        iops: flow.iops,
        read_bytes: flow.byte_rates[0],
        written_bytes: flow.byte_rates[1],
        p95_us: flow.recent_percentile_us(950),
        depth: flow.submitted,
        queued: flow.queued,
        tokens: flow.token_rates.into(),
    });
    let workers = workers.into_iter().enumerate().map(|(number, flow)| FlowOfWorker {
        number,
        busy_percent: flow.busy_share * 100.0,
        turns: flow.turn_rate,
        iops: flow.iops,
        read_bytes: flow.byte_rates[0],
        written_bytes: flow.byte_rates[1],
        stages: flow.recent_percentiles_us(950).into(),
        connections: flow.gauges.protocols.iter().sum(),
        in_flight: flow.gauges.in_flight,
        buffers: flow.gauges.buffers,
        parts: flow.shares.map(|share| share * 100.0),
    });
    let namespaces = namespaces.into_iter().map(|(number, flow)| FlowOfNamespace {
        number: number.0,
        iops: flow.iops,
        read_bytes: flow.byte_rates[0],
        written_bytes: flow.byte_rates[1],
        stages: flow.recent_percentiles_us(950).into(),
    });
    let (devices, workers) = (devices.collect(), workers.collect());
    Json(Flows { devices, workers, namespaces: namespaces.collect() })
}

impl From<TokenFlow> for TokenRates {
    fn from(flow: TokenFlow) -> TokenRates {
        let TokenFlow { generated, spent, donated, borrowed, expired } = flow;
        TokenRates { generated, spent, donated, borrowed, expired }
    }
}

impl From<[Option<f64>; Stage::ALL.len()]> for StageTails {
    fn from([scheduler_us, device_us, reply_us]: [Option<f64>; Stage::ALL.len()]) -> StageTails {
        StageTails { scheduler_us, device_us, reply_us }
    }
}

/// The time per stage of a tenant's requests since the tenant was added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stages {
    /// Upper edges of the buckets in microseconds; one more bucket has no edge.
    pub edges_us: Vec<f64>,
    /// Reads by latency.
    pub latency: Vec<u64>,
    /// Sampled reads by their time in the scheduler.
    pub scheduler: Vec<u64>,
    /// Sampled reads by their time at the device.
    pub device: Vec<u64>,
    /// Sampled reads by the time that the network took for their replies.
    pub reply: Vec<u64>,
}

/// Returns the time per stage of a tenant's reads since the tenant was added.
#[utoipa::path(
    get,
    path = "/v1/tenants/{name}/stages",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 200, body = Stages), (status = 404, body = Failure))
)]
async fn get_stages(
    State(watched): State<Watched>,
    Path(name): Path<String>,
) -> Result<Json<Stages>, Problem> {
    let registry = watched.tenants.registry();
    let Some(tenant) = registry.find(&name) else {
        return Err(registry.no_tenant(&name).into());
    };
    let totals = registry.totals(tenant);
    let [scheduler, device, reply] = &totals.samples[0];
    let edges = (0..).map_while(contract::coarse_edge).map(|nanos| nanos as f64 / 1e3);
    Ok(Json(Stages {
        edges_us: edges.collect(),
        latency: totals.latency.to_vec(),
        scheduler: scheduler.to_vec(),
        device: device.to_vec(),
        reply: reply.to_vec(),
    }))
}

/// The parameters of a trace.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Duration in seconds; at most 5.
    seconds: f64,
    /// Sampling interval: one request in `one_in` is traced; 1 for all.
    one_in: u32,
}

/// Traces some requests, and returns them in the trace-event format of Chrome.
#[utoipa::path(
    get,
    path = "/v1/trace",
    description = "It costs workers time, so a token has to be one that may change things, and the audit \
                   log has a line of it.",
    params(Wanted),
    responses(
        (status = 200, description = "Trace events in JSON"),
        (status = 400, body = Failure),
        (status = 409, description = "Somebody else traces", body = Failure),
    )
)]
async fn get_trace(
    State(watched): State<Watched>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    if !(0.0..=SECONDS_MAX).contains(&wanted.seconds) || wanted.one_in == 0 {
        let message = format!("expected seconds from 0 to {SECONDS_MAX}, and one_in of at least 1");
        return Err(Problem::new(Code::Invalid, message));
    }
    let Ok(_alone) = watched.tracing.try_lock() else {
        return Err(Problem::new(
            Code::Taken,
            "another trace is running; try again when it has ended",
        ));
    };
    let rings: Vec<Arc<Traces>> = watched.tenants.registry().all_traces();
    let running = Running { rings: &rings };
    let mut found = Vec::new();
    // Discards the rest of an earlier trace that broke off.
    rings.iter().for_each(|ring| while ring.take().is_some() {});
    rings.iter().for_each(|ring| ring.set_one_in(wanted.one_in));
    let ends = tokio::time::Instant::now() + Duration::from_secs_f64(wanted.seconds);
    while tokio::time::Instant::now() < ends && found.len() < TRACES_MAX {
        tokio::time::sleep(PERIOD).await;
        running.empty(&mut found);
    }
    drop(running);
    // Waits for the traced requests that have begun.
    tokio::time::sleep(2 * PERIOD).await;
    Running { rings: &rings }.empty(&mut found);
    found.truncate(TRACES_MAX);
    let names = watched.tenants.list();
    let text = chrome(&found, |tenant| {
        let known = names.iter().find(|info| info.tenant == tenant);
        known.map_or_else(|| format!("number {}", tenant.0), |info| info.name.clone())
    });
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Makes workers trace while this value lives, also if the caller disconnects.
struct Running<'a> {
    rings: &'a [Arc<Traces>],
}

impl Running<'_> {
    fn empty(&self, found: &mut Vec<(usize, contract::Trace)>) {
        for (worker, ring) in self.rings.iter().enumerate() {
            while let Some(trace) = ring.take() {
                found.push((worker, trace));
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.rings.iter().for_each(|ring| ring.set_one_in(0));
    }
}

/// The OpenAPI document of this module.
#[derive(OpenApi)]
#[openapi(paths(get_flows, get_stages, get_trace))]
pub(super) struct Document;
