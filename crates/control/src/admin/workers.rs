//! The resources of workers and connections: reading, moving and ending them.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use contract::ConnId;

use super::audit::Note;
use super::blocking::blocking;
use super::extract::{Path, Query};
use super::model::Worker;
use super::problem::{Code, Failure, Problem};
use super::routes::{Api, Body, shown_workers};
use crate::commands::{self, CommandRefused};

/// A connection of a client or host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// Identifier of the connection, `WORKER:PLACE.GENERATION`. A move changes it.
    pub id: String,
    /// Number of the worker that serves the connection.
    pub worker: usize,
    /// Address of the peer.
    pub peer: String,
    /// The connection's tenant; `null` while it has no rights.
    pub tenant: Option<String>,
    /// Number of the listener that accepted the connection.
    #[serde(default)]
    pub listener: u16,
    /// Number of its requests in flight.
    pub in_flight: u32,
    /// Number of messages received on it at this worker; wraps at 2³².
    pub messages: u32,
    /// `true` if the connection's session can move.
    pub can_move: bool,
    /// `true` if its end has begun: it accepts no more requests.
    #[serde(default)]
    pub ending: bool,
}

/// The list of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connections {
    /// The connections, ordered by worker.
    pub connections: Vec<Connection>,
    /// Number of all connections, including those not listed.
    #[serde(default)]
    pub total: usize,
}

/// The destination of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveTo {
    /// Number of the worker that is to serve the connection.
    pub to: usize,
}

/// The deadline for a connection's requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EndConnection {
    /// Time in milliseconds, at most a day, after which the connection ends in any case; 10 000 by
    /// default.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
}

/// The result of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HasMoved {
    /// New identifier of the connection.
    pub id: String,
    /// Number of the worker that serves the connection now.
    pub worker: usize,
    /// Time in microseconds during which the connection was not received from.
    pub pause_us: u64,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerState {
    /// The worker accepts connections.
    Active,
    /// The worker moves its connections away, and parks once it has none.
    Retiring,
    /// The worker has no connections and uses no processor time.
    Parked,
}

/// A change of a worker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWorker {
    /// `active`, or `parked`. A parked worker is first `retiring`, until it has moved its
    /// connections away.
    pub state: WorkerState,
    /// For `parked`: time in milliseconds after which connections end that cannot move; none by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Maximum deadline of a drain: a day, in milliseconds.
pub(super) const DEADLINE_MS_MAX: u64 = 86_400_000;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/connections", get(list_connections))
        .route("/v1/connections/{id}", get(get_connection).delete(end_connection))
        .route("/v1/connections/{id}/move", post(move_connection))
        .route("/v1/workers/{number}", get(get_worker).put(set_worker))
}

fn name(worker: usize, conn: ConnId) -> String {
    format!("{worker}:{}.{}", conn.index, conn.generation)
}

/// Parses the identifier of a connection in a path.
fn named(id: &str) -> Result<(usize, ConnId), Problem> {
    parse(id).ok_or_else(|| {
        let message = format!("{id:?} is no name of a connection, such as 0:17.3");
        Problem::new(Code::Invalid, message)
    })
}

fn parse(id: &str) -> Option<(usize, ConnId)> {
    let (worker, conn) = id.split_once(':')?;
    let (index, generation) = conn.split_once('.')?;
    let conn = ConnId { index: index.parse().ok()?, generation: generation.parse().ok()? };
    Some((worker.parse().ok()?, conn))
}

impl From<CommandRefused> for Problem {
    fn from(refused: CommandRefused) -> Problem {
        let code = match refused {
            CommandRefused::NoWorker(_) => Code::NoWorker,
            CommandRefused::NoConnection(..) => Code::NoConnection,
            CommandRefused::Stays(contract::Stays::Gone) => Code::NoConnection,
            CommandRefused::ManyEnd | CommandRefused::Upgrading => Code::Busy,
            CommandRefused::Stays(_)
            | CommandRefused::Listens
            | CommandRefused::AllServe
            | CommandRefused::NotActive(_) => Code::InUse,
            CommandRefused::NoAnswer => Code::TimeOut,
        };
        Problem::new(code, refused.to_string())
    }
}

/// The filter for a list of connections.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Which {
    /// Maximum number of connections; all by default.
    limit: Option<usize>,
    /// Text that the tenant or the peer must contain.
    search: Option<String>,
}

/// Lists the connections of all workers.
#[utoipa::path(
    get,
    path = "/v1/connections",
    params(Which),
    responses(
        (status = 200, body = Connections),
        (status = 408, description = "A worker did not answer in time", body = Failure),
    )
)]
async fn list_connections(
    State(api): State<Api>,
    Query(which): Query<Which>,
) -> Result<Json<Connections>, Problem> {
    let (infos, numbers) =
        blocking(move || api.commands.connections().map(|infos| (infos, numbers(&api)))).await?;
    let total = infos.len();
    let wanted = |info: &commands::ConnectionInfo| {
        let Some(text) = &which.search else { return true };
        let has = |of: &str| of.to_lowercase().contains(&text.to_lowercase());
        info.tenant.as_deref().is_some_and(has) || has(&info.listed.peer.to_string())
    };
    let found = infos.into_iter().filter(wanted).take(which.limit.unwrap_or(usize::MAX));
    let each = found.map(|info| shown(info, &numbers));
    Ok(Json(Connections { connections: each.collect(), total }))
}

/// Returns the numbers of the listeners whose number differs from their position.
fn numbers(api: &Api) -> Vec<(u16, u16)> {
    api.parts.inventory().map(|inventory| inventory.listener_numbers()).unwrap_or_default()
}

fn shown(info: commands::ConnectionInfo, numbers: &[(u16, u16)]) -> Connection {
    let listener = info.listed.listener;
    let other = numbers.iter().find(|(called, _)| *called == listener);
    Connection {
        id: name(info.worker, info.listed.conn),
        worker: info.worker,
        peer: info.listed.peer.to_string(),
        tenant: info.tenant,
        listener: other.map_or(listener + 1, |(_, number)| *number),
        in_flight: info.listed.in_flight,
        messages: info.listed.messages,
        can_move: info.listed.can_move,
        ending: info.listed.is_ending,
    }
}

/// Returns one connection.
#[utoipa::path(
    get,
    path = "/v1/connections/{id}",
    params(("id" = String, Path, description = "The connection's name")),
    responses(
        (status = 200, body = Connection),
        (status = 400, description = "The name makes no sense", body = Failure),
        (status = 404, description = "There is no such connection (any more), or worker", body = Failure),
        (status = 408, description = "The worker did not answer in time", body = Failure),
    )
)]
async fn get_connection(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Connection>, Problem> {
    let (worker, conn) = named(&id)?;
    let ask = move || api.commands.connection(worker, conn).map(|info| shown(info, &numbers(&api)));
    Ok(Json(blocking(ask).await?))
}

/// Ends a connection. The connection accepts no more requests, and ends when its requests in flight
/// have ended, or at the deadline. Returns without waiting for the end. The client may connect
/// again.
#[utoipa::path(
    delete,
    path = "/v1/connections/{id}",
    params(("id" = String, Path, description = "The connection's name"), EndConnection),
    responses(
        (status = 200, description = "Its end has begun", body = Connection),
        (status = 400, description = "The name makes no sense", body = Failure),
        (status = 404, description = "There is no such connection (any more), or worker", body = Failure),
        (status = 408, description = "The worker did not answer in time", body = Failure),
        (status = 409, description = "Too many are ending already, or another process takes over", body = Failure),
    )
)]
async fn end_connection(
    State(api): State<Api>,
    note: Note,
    Path(id): Path<String>,
    Query(EndConnection { deadline_ms }): Query<EndConnection>,
) -> Result<Json<Connection>, Problem> {
    let (worker, conn) = named(&id)?;
    let limit = Duration::from_millis(deadline_ms.unwrap_or(10_000).min(DEADLINE_MS_MAX));
    let order = move || {
        let ended = api.commands.end_connection(worker, conn, limit);
        ended.map(|info| shown(info, &numbers(&api)))
    };
    let ending = blocking(order).await?;
    note.before(&ending);
    tracing::info!(id, peer = ending.peer, in_flight = ending.in_flight, "connection ends");
    Ok(Json(ending))
}

/// Moves a connection to another worker while it is in use. The client notices only a pause.
#[utoipa::path(
    post,
    path = "/v1/connections/{id}/move",
    params(("id" = String, Path, description = "The connection's name")),
    request_body = MoveTo,
    responses(
        (status = 200, body = HasMoved),
        (status = 400, description = "The name or the body makes no sense", body = Failure),
        (status = 404, description = "There is no such connection (any more), or worker", body = Failure),
        (status = 408, description = "A worker did not answer in time", body = Failure),
        (status = 409, description = "It stays where it is; the message says why", body = Failure),
    )
)]
async fn move_connection(
    State(api): State<Api>,
    note: Note,
    Path(id): Path<String>,
    Body(MoveTo { to }): Body<MoveTo>,
) -> Result<Json<HasMoved>, Problem> {
    let (worker, conn) = named(&id)?;
    note.before(&serde_json::json!({ "worker": worker }));
    let commands::Moved { worker, conn, pause } =
        blocking(move || api.commands.move_connection(worker, conn, to)).await?;
    note.after(&serde_json::json!({ "worker": worker, "id": name(worker, conn) }));
    let pause_us = pause.as_micros() as u64;
    tracing::info!(from = id, worker, pause_us, "connection moved");
    Ok(Json(HasMoved { id: name(worker, conn), worker, pause_us }))
}

/// Returns one worker.
#[utoipa::path(
    get,
    path = "/v1/workers/{number}",
    params(("number" = usize, Path, description = "The worker's number")),
    responses(
        (status = 200, body = Worker),
        (status = 400, description = "That is no number", body = Failure),
        (status = 404, description = "There is no such worker", body = Failure),
    )
)]
async fn get_worker(
    State(api): State<Api>,
    Path(number): Path<usize>,
) -> Result<Json<Worker>, Problem> {
    let worker = shown_workers(&api).into_iter().find(|worker| worker.number == number);
    worker.map(Json).ok_or_else(|| CommandRefused::NoWorker(number).into())
}

/// Activates a worker, or retires it. The sizing does not change the number of workers for a
/// minute.
#[utoipa::path(
    put,
    path = "/v1/workers/{number}",
    params(("number" = usize, Path, description = "The worker's number")),
    request_body = SetWorker,
    responses(
        (status = 204),
        (status = 400, description = "The body makes no sense", body = Failure),
        (status = 404, description = "There is no such worker", body = Failure),
        (status = 409, description = "It is the one that listens, or another process takes over", body = Failure),
    )
)]
async fn set_worker(
    State(api): State<Api>,
    note: Note,
    Path(number): Path<usize>,
    Body(SetWorker { state, deadline_ms }): Body<SetWorker>,
) -> Result<StatusCode, Problem> {
    match state {
        WorkerState::Active => drop(api.commands.add(Some(number))?),
        WorkerState::Retiring | WorkerState::Parked => {
            let limit = deadline_ms.map(|ms| Duration::from_millis(ms.min(DEADLINE_MS_MAX)));
            api.commands.retire(number, limit)?;
        }
    }
    note.after(&SetWorker { state, deadline_ms });
    tracing::info!(worker = number, ?state, "worker set");
    Ok(StatusCode::NO_CONTENT)
}

/// The OpenAPI document of this module.
pub(super) mod documented {
    use super::*;
    use utoipa::OpenApi;

    #[derive(OpenApi)]
    #[openapi(paths(
        list_connections,
        get_connection,
        end_connection,
        move_connection,
        get_worker,
        set_worker
    ))]
    pub(in crate::admin) struct Document;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_connections_are_understood_again() {
        let conn = ConnId { index: 17, generation: 3 };
        assert_eq!(parse(&name(2, conn)), Some((2, conn)));
        for bad in ["", "1", "1:2", "1:2.", "a:1.2", "1:2.3.4", "1:-2.3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
