//! The functions of the API's operations that show the server's activity, and the handler of
//! traces.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use contract::Traces;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::admin::input::Query;
use crate::admin::operation::{Api, Call};
use crate::admin::problem::{Code, Problem};
use crate::admin::watch::{FlowOfDevice, FlowOfNamespace, FlowOfWorker, Flows};
use crate::traces::chrome;

/// Maximum duration of a trace in seconds. A request to the API, which waits for the trace, may
/// take ten.
pub(crate) const TRACE_SECONDS_MAX: f64 = 5.0;

/// Maximum number of requests in a trace.
const TRACES_MAX: usize = 20_000;

/// Period at which the workers' rings of traces are emptied during a trace.
const PERIOD: Duration = Duration::from_millis(20);

pub(super) fn flows(call: &Call, (): ()) -> Result<Flows, Problem> {
    let (devices, (_, workers, namespaces), starvation) = {
        let registry = call.api.tenants.registry();
        (registry.device_flows(), registry.activity().flows(), registry.activity().starvation())
    };
    let overcommitted = starvation.map(|found| found.to_string());
    let devices = devices.into_iter().map(|(info, flow)| FlowOfDevice {
        name: info.name,
        iops: flow.iops,
        read_bytes: flow.byte_rates[0],
        written_bytes: flow.byte_rates[1],
        p95_us: flow.recent_percentile_us(950),
        depth: flow.submitted,
        queued: flow.queued,
        tokens: flow.token_rates,
    });
    let workers = workers.into_iter().enumerate().map(|(number, flow)| FlowOfWorker {
        number,
        busy_percent: flow.last.busy_share * 100.0,
        waited_percent: flow.last.waited_share * 100.0,
        turns: flow.last.turn_rate,
        iops: flow.last.iops,
        read_bytes: flow.last.byte_rates[0],
        written_bytes: flow.last.byte_rates[1],
        stages: flow.recent_percentiles_us(950).into(),
        connections: flow.gauges.protocols.iter().sum(),
        in_flight: flow.gauges.in_flight,
        buffers: flow.gauges.buffers,
        parts: flow.last.shares.map(|share| share * 100.0),
    });
    let namespaces = namespaces.into_iter().map(|(number, flow)| FlowOfNamespace {
        number: number.0,
        iops: flow.iops,
        read_bytes: flow.byte_rates[0],
        written_bytes: flow.byte_rates[1],
        stages: flow.recent_percentiles_us(950).into(),
    });
    let (devices, workers) = (devices.collect(), workers.collect());
    Ok(Flows { devices, workers, namespaces: namespaces.collect(), overcommitted })
}

/// The parameters of a trace.
#[derive(Deserialize, JsonSchema)]
pub(super) struct TraceQuery {
    /// Duration in seconds; at most 5.
    #[schemars(range(min = 0.0, max = 5.0))]
    seconds: f64,
    /// Sampling interval: one request in `one_in` is traced; 1 for all.
    #[schemars(range(min = 1))]
    one_in: u32,
}

pub(super) async fn get_trace(
    State(api): State<Api>,
    Query(wanted): Query<TraceQuery>,
) -> Result<Response, Problem> {
    if !(0.0..=TRACE_SECONDS_MAX).contains(&wanted.seconds) || wanted.one_in == 0 {
        let message =
            format!("expected seconds from 0 to {TRACE_SECONDS_MAX}, and one_in of at least 1");
        return Err(Problem::new(Code::Invalid, message));
    }
    let Ok(_alone) = api.tracing.try_lock() else {
        return Err(Problem::new(
            Code::Taken,
            "another trace is running; try again when it has ended",
        ));
    };
    let rings: Vec<Arc<Traces>> = api.tenants.registry().meters.traces().to_vec();
    let running = TraceGuard { rings: &rings };
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
    TraceGuard { rings: &rings }.empty(&mut found);
    found.truncate(TRACES_MAX);
    let names = api.tenants.list();
    let text = chrome(&found, |tenant| {
        let known = names.iter().find(|info| info.tenant == tenant);
        known.map_or_else(|| format!("number {}", tenant.0), |info| info.name.clone())
    });
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Makes workers trace while this value lives, also if the caller disconnects.
struct TraceGuard<'a> {
    rings: &'a [Arc<Traces>],
}

impl TraceGuard<'_> {
    fn empty(&self, found: &mut Vec<(usize, contract::Trace)>) {
        for (worker, ring) in self.rings.iter().enumerate() {
            while let Some(trace) = ring.take() {
                found.push((worker, trace));
            }
        }
    }
}

impl Drop for TraceGuard<'_> {
    fn drop(&mut self) {
        self.rings.iter().for_each(|ring| ring.set_one_in(0));
    }
}
