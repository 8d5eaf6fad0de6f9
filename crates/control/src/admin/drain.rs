//! The drain of the whole server: it ends when nobody is connected any more, as on SIGTERM.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit::Note;
use super::crew::DEADLINE_MS_MAX;
use super::estate_routes::{Estate, ask, change};
use super::problem::{Failure, Problem};
use super::routes::{Api, Body};

/// How the server is to be drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainServer {
    /// How long, in milliseconds, connections may have requests in flight before they end all the same, a day
    /// at most; what `limits.drain_seconds` of the configuration says unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Whether the server drains, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// Whether it does.
    pub state: DrainState,
    /// Connections that are there.
    pub connections: usize,
    /// Requests that are in flight, as workers have told of them last.
    pub in_flight: u64,
    /// How many milliseconds these have before their connections end all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// Whether a server drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DrainState {
    /// It does not.
    Serving,
    /// It lets nobody in, and ends when nobody is connected any more.
    Draining,
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/drain", get(get_drain).post(drain_server))
}

/// Whether the server drains, and how far it is.
#[utoipa::path(
    get,
    path = "/v1/drain",
    responses((status = 200, body = Drain), (status = 501, body = Failure))
)]
async fn get_drain(State(api): State<Api>) -> Result<Json<Drain>, Problem> {
    ask(api, |estate| estate.drain_of_server()).await.map(Json)
}

/// Drains the server: it lets nobody in any more, takes no more requests, and ends when those in flight
/// have ended, or when the time is over. Does not wait for that, and cannot be taken back. Asked again, the
/// time is another.
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
    let before = |estate: &dyn Estate| estate.drain_of_server().ok();
    let drain = change(api, note, before, move |estate| estate.drain_server(how)).await?;
    Ok((StatusCode::ACCEPTED, Json(drain)).into_response())
}

/// The document of all this.
pub(super) mod documented {
    use super::*;
    use utoipa::OpenApi;

    #[derive(OpenApi)]
    #[openapi(paths(get_drain, drain_server))]
    pub(in crate::admin) struct Document;
}
