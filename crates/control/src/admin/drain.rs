//! The drain of the whole server, which ends once no connection is left, as on SIGTERM.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit::Note;
use super::inventory_routes::{Inventory, ask, change};
use super::problem::{Failure, Problem};
use super::routes::{Api, Body};
use super::workers::DEADLINE_MS_MAX;

/// The parameters of a drain of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainServer {
    /// Time in milliseconds, at most a day, after which connections with requests in flight end in
    /// any case. The default is `limits.drain_seconds` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// The state of the server's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// The state.
    pub state: DrainState,
    /// Number of connections.
    pub connections: usize,
    /// Number of requests in flight, as last reported by the workers.
    pub in_flight: u64,
    /// Remaining time in milliseconds until connections end in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// The state of a server that may drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DrainState {
    /// The server accepts connections.
    Serving,
    /// The server refuses new connections, and ends once no connection is left.
    Draining,
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/drain", get(get_drain).post(drain_server))
}

/// Returns the state of the server's drain.
#[utoipa::path(
    get,
    path = "/v1/drain",
    responses((status = 200, body = Drain), (status = 501, body = Failure))
)]
async fn get_drain(State(api): State<Api>) -> Result<Json<Drain>, Problem> {
    ask(api, |inventory| inventory.drain_of_server()).await.map(Json)
}

/// Drains the server. The server refuses new connections and requests, and ends when its requests
/// in flight have ended, or at the deadline. Returns without waiting for the end. A drain cannot be
/// cancelled. Another request changes the deadline.
#[utoipa::path(
    post,
    path = "/v1/drain",
    request_body = DrainServer,
    responses(
        (status = 202, description = "It drains", body = Drain),
        (status = 400, description = "The body makes no sense", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn drain_server(
    State(api): State<Api>,
    note: Note,
    Body(DrainServer { deadline_ms }): Body<DrainServer>,
) -> Result<Response, Problem> {
    let how = DrainServer { deadline_ms: deadline_ms.map(|limit| limit.min(DEADLINE_MS_MAX)) };
    let before = |inventory: &dyn Inventory| inventory.drain_of_server().ok();
    let drain = change(api, note, before, move |inventory| inventory.drain_server(how)).await?;
    Ok((StatusCode::ACCEPTED, Json(drain)).into_response())
}

/// The OpenAPI document of this module.
pub(super) mod documented {
    use super::*;
    use utoipa::OpenApi;

    #[derive(OpenApi)]
    #[openapi(paths(get_drain, drain_server))]
    pub(in crate::admin) struct Document;
}
