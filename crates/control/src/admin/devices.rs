//! The resources of one device: `/v1/devices/NAME`, its recalibration, and the model that came of
//! one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::aside::aside;
use super::asked::Path;
use super::audit::Note;
use super::model::Device;
use super::problem::{Code, Failure, Problem};
use super::routes::{Api, Body, shown_devices};
use crate::words::Refusal;

/// Measures devices anew beside their tenants. Its methods return at once; each says why it does not
/// do what was asked, and then nothing has changed.
#[allow(clippy::missing_errors_doc, reason = "it is said once for all of them")]
pub trait Recalibrator: Send + Sync {
    /// Measures a device, now or when it has little to do.
    fn start(&self, device: &str, how: &StartRecalibration) -> Result<Recalibration, Problem>;

    /// How far the last one of a device is, or what came of it; `None` if there was none.
    fn recalibration(&self, device: &str) -> Result<Option<Recalibration>, Problem>;

    /// Uses what was found although not all tenants fit into it.
    fn accept(&self, device: &str) -> Result<Recalibration, Problem>;

    /// Ends it. What was found is forgotten, if it is not used yet.
    fn cancel(&self, device: &str) -> Result<(), Problem>;

    /// Goes back to the model that the configuration names.
    fn reset_model(&self, device: &str) -> Result<(), Problem>;
}

/// When a device is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// At once, beside whatever its tenants do.
    #[default]
    Now,
    /// When it has had little to do for a while; it gives way when load comes.
    Idle,
}

/// What a recalibration may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartRecalibration {
    /// When it is to be.
    pub when: When,
    /// The namespace that may be written to, by name or number: all data in it is lost. Without one
    /// the device is only read, and the price of writes stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    /// Whether the new model is used although what tenants were promised does not fit into it.
    pub accept: bool,
}

/// What is to become of a model that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRecalibration {
    /// Use it; must be `true`.
    pub accept: bool,
}

/// How far a recalibration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It waits until the device has little to do, or until another device's has ended.
    Waiting,
    /// Probes are offered.
    Measuring,
    /// It has ended with a model, which is not used since not all tenants fit into it.
    Held,
    /// It has ended with a model, which is used.
    Accepted,
    /// It has ended without a model.
    Refused,
    /// An operator, an upgrade or the loss of the scratch namespace ended it.
    Cancelled,
}

impl Phase {
    /// Whether there is more to come by itself.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Waiting | Phase::Measuring)
    }
}

/// A row of the model, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundRate {
    /// The latency, in microseconds.
    pub latency_us: u32,
    /// Tokens a second of any mix, before.
    pub mixed_before: u64,
    /// The same, as found.
    pub mixed: u64,
    /// Reads a second of reads alone, before.
    pub read_only_before: u64,
    /// The same, as found.
    pub read_only: u64,
    /// Whether it was measured; otherwise it was scaled with what was, and never up.
    pub measured: bool,
}

/// A model that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Found {
    /// Tokens of a write before.
    pub write_price_before: f64,
    /// Tokens of a write.
    pub write_price: f64,
    /// Whether that was measured; otherwise it is what it was.
    pub write_price_measured: bool,
    /// The rates by p95.
    pub rates: Vec<FoundRate>,
    /// By how many percent the worst point is off the fitted curve.
    pub off_percent: f64,
}

/// A recalibration of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recalibration {
    /// The device.
    pub device: String,
    /// How far it is.
    pub phase: Phase,
    /// What was asked for.
    pub asked: StartRecalibration,
    /// Whether the server began it by itself.
    pub automatic: bool,
    /// What it waits for, or why it ended as it did.
    pub why: Option<String>,
    /// How much is done, in percent.
    pub progress_percent: f64,
    /// Steps so far: loads that were looked at.
    pub steps: u32,
    /// p95 of all reads at the device in the last step, in microseconds.
    pub p95_us: Option<f64>,
    /// How often it gave way to load and began anew.
    pub gave_way: u32,
    /// What was found.
    pub found: Option<Found>,
    /// Tenants that would have to go for the others' promises to fit.
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
        // Its GET is with the dashboard's.
        .route("/v1/devices/{name}/model", delete(reset_model))
}

/// Has the recalibrator do something, which may wait for a lock.
async fn ask<T: Send + 'static>(
    api: &Api,
    what: impl FnOnce(&dyn Recalibrator) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let Some(recalibrator): Option<Arc<dyn Recalibrator>> = api.site.recalibrator() else {
        return Err(Problem::new(Code::Unsupported, "this server does not measure devices"));
    };
    aside(move || what(&*recalibrator)).await
}

/// One device.
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

/// The last recalibration of a device.
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

/// Measures a device anew beside its tenants, with probes that spend spare tokens alone.
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

/// Uses a model that was found and held back, since not all tenants fit into it: each of them gets
/// its part of what the device makes.
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

/// Ends a recalibration, or forgets what it found and is not used.
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

/// Goes back to the model that the configuration names.
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

/// The part of the document.
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
