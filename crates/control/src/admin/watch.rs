//! The resources that show what a server does: `/v1/flows`, `/v1/tenants/NAME/stages` and
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

use super::asked::{Path, Query};
use super::problem::{Code, Failure, Problem};
use crate::flows::TokenFlow;
use crate::traces::chrome;

/// Seconds of a trace at most: a request takes no longer than ten.
const SECONDS_MAX: f64 = 5.0;

/// Requests of a trace at most.
const TRACES_MAX: usize = 20_000;

/// How often rings of traces are emptied.
const PERIOD: Duration = Duration::from_millis(20);

/// What every handler has.
#[derive(Clone)]
struct Watched {
    tenants: crate::Tenants,
    /// One trace at a time, by whatever door: a router that is cloned has the same.
    tracing: Arc<Mutex<()>>,
}

/// The resources as a service.
pub(super) fn watch_router<S: Clone + Send + Sync + 'static>(tenants: crate::Tenants) -> Router<S> {
    Router::new()
        .route("/v1/flows", get(get_flows))
        .route("/v1/tenants/{name}/stages", get(get_stages))
        .route("/v1/trace", get(get_trace))
        .with_state(Watched { tenants, tracing: Arc::default() })
}

/// Tokens a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenRates {
    /// Made.
    pub generated: f64,
    /// Spent on requests.
    pub spent: f64,
    /// Put into the bucket by tenants that had too many, and for idle ones.
    pub donated: f64,
    /// Taken out of the bucket.
    pub borrowed: f64,
    /// Thrown away when the bucket was emptied.
    pub expired: f64,
}

/// A device in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowOfDevice {
    /// Its name.
    pub name: String,
    /// Requests carried out a second.
    pub iops: f64,
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Bytes written a second.
    pub written_bytes: f64,
    /// p95 of sampled reads at the device, in microseconds: the upper edge of a bucket that is twice
    /// as wide as the one below it; `null` without samples.
    pub p95_us: Option<f64>,
    /// Requests at it.
    pub depth: u32,
    /// Requests that wait in its schedulers.
    pub queued: u32,
    /// Its tokens.
    pub tokens: TokenRates,
}

/// How long sampled reads of the last second spent in each stage, p95 in microseconds: the upper edge
/// of a bucket that is twice as wide as the one below it; `null` without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageTails {
    /// From the last byte of a request to its submission.
    pub scheduler_us: Option<f64>,
    /// At the device.
    pub device_us: Option<f64>,
    /// From the socket to when the network has taken the reply.
    pub reply_us: Option<f64>,
}

/// A worker in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowOfWorker {
    /// Its number.
    pub number: usize,
    /// The share of the time in which it had something to do, in percent.
    pub busy_percent: f64,
    /// Turns a second that did something.
    pub turns: f64,
    /// Requests carried out a second.
    #[serde(default)]
    pub iops: f64,
    /// Bytes read a second.
    #[serde(default)]
    pub read_bytes: f64,
    /// Bytes written a second.
    #[serde(default)]
    pub written_bytes: f64,
    /// Where its reads spent their time.
    #[serde(default)]
    pub stages: StageTails,
    /// Connections that are open.
    pub connections: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Buffers in use.
    pub buffers: u32,
    /// What its busy time went into, in percent: network, protocol, scheduling, device, kernel,
    /// upkeep.
    pub parts: [f64; Part::ALL.len()],
}

/// A namespace in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowOfNamespace {
    /// Its number.
    pub number: u16,
    /// Requests carried out a second.
    pub iops: f64,
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Bytes written a second.
    pub written_bytes: f64,
    /// Where its reads spent their time.
    #[serde(default)]
    pub stages: StageTails,
}

/// What the server did in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Flows {
    /// The devices, in the order of configuration.
    pub devices: Vec<FlowOfDevice>,
    /// The workers, by number.
    pub workers: Vec<FlowOfWorker>,
    /// The namespaces that were ever used, by number.
    pub namespaces: Vec<FlowOfNamespace>,
}

/// What the server did in the last second.
#[utoipa::path(get, path = "/v1/flows", responses((status = 200, body = Flows)))]
async fn get_flows(State(watched): State<Watched>) -> Json<Flows> {
    let (devices, (_, workers, namespaces)) = {
        let book = watched.tenants.book();
        (book.device_flows(), book.flows())
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

/// Where the requests of a tenant spent their time since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stages {
    /// The upper edges of the buckets in microseconds; one more bucket has none.
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

/// Where the reads of a tenant spent their time since it was made.
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
    let book = watched.tenants.book();
    let Some(tenant) = book.find(&name) else {
        return Err(book.no_tenant(&name).into());
    };
    let tally = book.tally(tenant);
    let [scheduler, device, reply] = &tally.samples[0];
    let edges = (0..).map_while(contract::coarse_edge).map(|nanos| nanos as f64 / 1e3);
    Ok(Json(Stages {
        edges_us: edges.collect(),
        latency: tally.latency.to_vec(),
        scheduler: scheduler.to_vec(),
        device: device.to_vec(),
        reply: reply.to_vec(),
    }))
}

/// How much is traced.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// For how long; at most 5.
    seconds: f64,
    /// One request in so many; 1 for all.
    one_in: u32,
}

/// Traces some requests on their way, and then tells of them in the trace-event format of Chrome.
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
        return Err(Problem::new(Code::Taken, "somebody else traces now"));
    };
    let rings: Vec<Arc<Traces>> = watched.tenants.book().all_traces();
    let running = Running { rings: &rings };
    let mut found = Vec::new();
    // What an earlier trace that broke off has left.
    rings.iter().for_each(|ring| while ring.take().is_some() {});
    rings.iter().for_each(|ring| ring.set_one_in(wanted.one_in));
    let ends = tokio::time::Instant::now() + Duration::from_secs_f64(wanted.seconds);
    while tokio::time::Instant::now() < ends && found.len() < TRACES_MAX {
        tokio::time::sleep(PERIOD).await;
        running.empty(&mut found);
    }
    drop(running);
    // Those that had begun end.
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

/// Workers trace while this lives: also if whoever asked goes away.
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

/// The part of the document.
#[derive(OpenApi)]
#[openapi(paths(get_flows, get_stages, get_trace))]
pub(super) struct Document;
