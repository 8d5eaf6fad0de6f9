//! The resources of one device: `/v1/devices/NAME`, its recalibration, and the resulting model.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::audit::Note;
use super::blocking::blocking;
use super::extract::Path;
use super::model::Device;
use super::problem::{Code, Failure, Problem};
use super::routes::{Api, Body, shown_devices};
use crate::info::Refusal;

/// Recalibrates devices beside their tenants. All methods return at once. Each reports the reason
/// if it does not do what was asked; then nothing has changed.
#[allow(clippy::missing_errors_doc, reason = "it is said once for all of them")]
pub trait Recalibrator: Send + Sync {
    /// Starts a recalibration of a device, now or when the device is idle.
    fn start(&self, device: &str, how: &StartRecalibration) -> Result<Recalibration, Problem>;

    /// Returns the state or result of a device's last recalibration; `None` if there was none.
    fn recalibration(&self, device: &str) -> Result<Option<Recalibration>, Problem>;

    /// Accepts the result although not all tenants fit into it.
    fn accept(&self, device: &str) -> Result<Recalibration, Problem>;

    /// Ends a recalibration. A result that is not yet in use is discarded.
    fn cancel(&self, device: &str) -> Result<(), Problem>;

    /// Restores the model that the configuration names.
    fn reset_model(&self, device: &str) -> Result<(), Problem>;
}

/// The start condition of a recalibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Immediately, whatever the load of its tenants.
    #[default]
    Now,
    /// After a period of low load; the recalibration pauses when load returns.
    Idle,
}

/// The parameters of a recalibration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartRecalibration {
    /// The start condition.
    pub when: When,
    /// The scratch namespace, by name or number, that may be overwritten: all its data is lost.
    /// Without a scratch namespace, the device is only read, and the price of writes stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    /// `true` to use the new model even if the tenants' SLOs do not fit into it.
    pub accept: bool,
}

/// A decision on the result of a recalibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRecalibration {
    /// Accepts the result; must be `true`.
    pub accept: bool,
}

/// The phase of a recalibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Waits until the device is idle, or until the recalibration of another device has ended.
    Waiting,
    /// Probes are running.
    Measuring,
    /// Ended with a model, which is held back since not all tenants fit into it.
    Held,
    /// Ended with a model, which is in use.
    Accepted,
    /// Ended without a model.
    Refused,
    /// Ended by an operator, an upgrade or the loss of the scratch namespace.
    Cancelled,
}

impl Phase {
    /// Returns `true` if the recalibration continues by itself.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Waiting | Phase::Measuring)
    }
}

/// A row of the model, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundRate {
    /// Latency in microseconds.
    pub latency_us: u32,
    /// Tokens per second of any mix, before.
    pub mixed_before: u64,
    /// Tokens per second of any mix, as found.
    pub mixed: u64,
    /// Reads per second of a read-only load, before.
    pub read_only_before: u64,
    /// Reads per second of a read-only load, as found.
    pub read_only: u64,
    /// `true` if the row was measured. Otherwise it was scaled like the measured rows, and never
    /// up.
    pub measured: bool,
}

/// The model that a recalibration has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Found {
    /// Price of a write in tokens, before.
    pub write_price_before: f64,
    /// Price of a write in tokens.
    pub write_price: f64,
    /// `true` if the price was measured; otherwise it is unchanged.
    pub write_price_measured: bool,
    /// The rates by p95 latency.
    pub rates: Vec<FoundRate>,
    /// Deviation of the worst point from the fitted curve, in percent.
    pub off_percent: f64,
}

/// A recalibration of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recalibration {
    /// The device.
    pub device: String,
    /// The phase.
    pub phase: Phase,
    /// The requested parameters.
    pub asked: StartRecalibration,
    /// `true` if the server started the recalibration by itself.
    pub automatic: bool,
    /// The reason that it waits, or that it ended.
    pub why: Option<String>,
    /// Progress in percent.
    pub progress_percent: f64,
    /// Number of steps so far: loads that were measured.
    pub steps: u32,
    /// p95 of all reads at the device in the last step, in microseconds.
    pub p95_us: Option<f64>,
    /// Number of times that it paused for load and started anew.
    pub gave_way: u32,
    /// The model that was found.
    pub found: Option<Found>,
    /// Tenants that would have to go for the other SLOs to fit.
    pub displaced: Vec<String>,
}

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/devices/{name}", get(get_device))
        .route(
            "/v1/devices/{name}/recalibration",
            get(get_recalibration)
                .post(start_recalibration)
                .put(accept_recalibration)
                .delete(cancel_recalibration),
        )
        // The dashboard's module has its GET.
        .route("/v1/devices/{name}/model", delete(reset_model))
}

/// Runs an operation of the recalibrator, which may block on a lock.
async fn ask<T: Send + 'static>(
    api: &Api,
    what: impl FnOnce(&dyn Recalibrator) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let Some(recalibrator): Option<Arc<dyn Recalibrator>> = api.parts.recalibrator() else {
        return Err(Problem::new(Code::Unsupported, "this server does not measure devices"));
    };
    blocking(move || what(&*recalibrator)).await
}

/// Returns one device.
#[utoipa::path(
    get,
    path = "/v1/devices/{name}",
    params(("name" = String, Path, description = "The device's name")),
    responses(
        (status = 200, body = Device),
        (status = 422, description = "There is no such device", body = Failure),
    )
)]
async fn get_device(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Device>, Problem> {
    let devices = shown_devices(&api);
    let known = devices.iter().map(|device| device.name.clone()).collect();
    let found = devices.into_iter().find(|device| device.name == name);
    found.map(Json).ok_or_else(|| Refusal::NoDevice { name, known }.into())
}

/// Returns the last recalibration of a device.
#[utoipa::path(
    get,
    path = "/v1/devices/{name}/recalibration",
    params(("name" = String, Path, description = "The device's name")),
    responses(
        (status = 200, body = Recalibration),
        (status = 404, description = "There was none since the server started", body = Failure),
        (status = 422, description = "There is no such device", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn get_recalibration(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Recalibration>, Problem> {
    let asked = name.clone();
    let last = ask(&api, move |recalibrator| recalibrator.recalibration(&asked)).await?;
    let none = || {
        let message = format!("device {name:?} was not measured since the server started");
        Problem::new(Code::NotFound, message)
    };
    last.map(Json).ok_or_else(none)
}

/// Starts a recalibration of a device beside its tenants. Its probes spend only spare tokens.
#[utoipa::path(
    post,
    path = "/v1/devices/{name}/recalibration",
    params(("name" = String, Path, description = "The device's name")),
    request_body = StartRecalibration,
    responses(
        (status = 202, body = Recalibration),
        (status = 400, body = Failure),
        (status = 404, description = "There is no such namespace", body = Failure),
        (status = 409, description = "It is being measured already, or another process takes over",
         body = Failure),
        (status = 422, description = "There is no such device, or it has no model", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn start_recalibration(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(how): Body<StartRecalibration>,
) -> Result<Response, Problem> {
    note.after(&how);
    let begun = ask(&api, move |recalibrator| recalibrator.start(&name, &how)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}

/// Accepts a model that was held back, since not all tenants fit into it. Each tenant gets its part
/// of the device's rate.
#[utoipa::path(
    put,
    path = "/v1/devices/{name}/recalibration",
    params(("name" = String, Path, description = "The device's name")),
    request_body = SetRecalibration,
    responses(
        (status = 200, body = Recalibration),
        (status = 400, body = Failure),
        (status = 404, description = "Nothing is held back", body = Failure),
        (status = 409, description = "Another process takes over", body = Failure),
        (status = 422, description = "There is no such device", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn accept_recalibration(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(to): Body<SetRecalibration>,
) -> Result<Json<Recalibration>, Problem> {
    if !to.accept {
        let message = "expected `accept` to be true; DELETE forgets what was found";
        return Err(Problem::new(Code::Invalid, message));
    }
    let used = ask(&api, move |recalibrator| recalibrator.accept(&name)).await?;
    note.after(&used.found);
    Ok(Json(used))
}

/// Ends a recalibration, or discards a model that is not in use.
#[utoipa::path(
    delete,
    path = "/v1/devices/{name}/recalibration",
    params(("name" = String, Path, description = "The device's name")),
    responses(
        (status = 204),
        (status = 404, description = "There is nothing to end", body = Failure),
        (status = 422, description = "There is no such device", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn cancel_recalibration(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    ask(&api, move |recalibrator| recalibrator.cancel(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restores the model that the configuration names.
#[utoipa::path(
    delete,
    path = "/v1/devices/{name}/model",
    params(("name" = String, Path, description = "The device's name")),
    responses(
        (status = 204),
        (status = 409, description = "It is being measured, or another process takes over",
         body = Failure),
        (status = 422, description = "There is no such device, or it has no model", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn reset_model(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    ask(&api, move |recalibrator| recalibrator.reset_model(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The OpenAPI document of this module.
#[derive(OpenApi)]
#[openapi(paths(
    get_device,
    get_recalibration,
    start_recalibration,
    accept_recalibration,
    cancel_recalibration,
    reset_model,
))]
pub(super) struct Document;
