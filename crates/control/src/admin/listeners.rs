//! Changes of an open listener: whether it accepts connections.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::routing::put;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::audit::Note;
use super::extract::Path;
use super::inventory::{Listener, ListenerState};
use super::inventory_routes::{Inventory, change};
use super::problem::{Code, Failure, Problem};
use super::routes::{Api, Body};
use super::workers::DEADLINE_MS_MAX;

/// A change of a listener; omitted members keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetListener {
    /// `open`: the listener accepts connections. `draining` or `drained`: it refuses connections,
    /// and its connections end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ListenerState>,
    /// Deadline of a drain in milliseconds, at which connections with requests in flight end in any
    /// case; ten seconds by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Number of the listener, which cannot change: any other number is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// URL of the listener with its access rules, which cannot change: any other URL is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/listeners/{name}", put(set_listener))
}

/// Opens or drains a listener.
#[utoipa::path(
    put,
    path = "/v1/listeners/{name}",
    params(("name" = String, Path, description = "The listener's number or address")),
    request_body = SetListener,
    responses(
        (status = 200, body = Listener),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 409, description = "It cannot change while it is open", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn set_listener(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(to): Body<SetListener>,
) -> Result<Json<Listener>, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| inventory.listener(&known).ok();
    let limit = Duration::from_millis(to.deadline_ms.unwrap_or(10_000).min(DEADLINE_MS_MAX));
    let set = move |inventory: &dyn Inventory| {
        let listener = inventory.listener(&name)?;
        check_fixed(&listener, &to)?;
        match to.state {
            None => Ok(listener),
            Some(ListenerState::Open) => inventory.resume_listener(&name),
            Some(_) => inventory.drain_listener(&name, limit),
        }
    };
    change(api, note, before, set).await.map(Json)
}

/// Checks the members that cannot change while a listener is open.
///
/// # Errors
/// Fails if one of these members would change.
fn check_fixed(listener: &Listener, to: &SetListener) -> Result<(), Problem> {
    let what = match to {
        SetListener { number: Some(number), .. } if *number != listener.number => "number",
        SetListener { url: Some(url), .. } if *url != listener.url => {
            "address, namespace, tenant or mode"
        }
        _ => return Ok(()),
    };
    let Listener { number, url, .. } = listener;
    let message = format!(
        "another {what} for listener {number} ({url}) takes another listener: add it (`nearflash listener \
         add`) and remove this one (`nearflash listener rm {number}`); connections that came by it stay"
    );
    Err(Problem::new(Code::Fixed, message))
}

/// The OpenAPI document of this module.
#[derive(OpenApi)]
#[openapi(paths(set_listener))]
pub(super) struct Document;
