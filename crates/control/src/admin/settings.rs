//! What an operator has said of a device and may say otherwise while it serves.

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::routing::put;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::asked::Path;
use super::audit::Note;
use super::estate_routes::{Estate, change};
use super::problem::{Failure, Problem};
use super::routes::{Api, Body};

/// When a device is measured anew by itself, once it differs from its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Automatic {
    /// Never.
    Off,
    /// When it has little to do.
    Idle,
}

/// What was said of a device, by the configuration or since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceSettings {
    /// Its name.
    pub name: String,
    /// What it is.
    pub spec: String,
    /// Its device model, as it is named; `null`: that of its spec, or none.
    pub model: Option<String>,
    /// Whether its model is corrected by measured delays.
    pub correct_online: bool,
    /// Whether no more requests are at it at a time than the strictest latency allows.
    pub bound_depth: bool,
    /// Whether requests that would miss their latency are refused at once.
    pub fail_fast: bool,
    /// When it is measured anew by itself.
    pub recalibrate: Automatic,
    /// For how many seconds it must have had little to do for that.
    pub recalibrate_idle_seconds: u32,
    /// The namespace that this may overwrite; `null`: it is only read.
    pub recalibrate_scratch: Option<String>,
}

/// What is to be another about a device; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDevice {
    /// Its device model: a file of the server's machine, `a` or `cloud`. Named again, the file is read
    /// again. Only for a device that has one, and one into which all fits that tenants are promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether its model is corrected by measured delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct_online: Option<bool>,
    /// Whether no more requests are at it at a time than the strictest latency allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_depth: Option<bool>,
    /// Whether requests that would miss their latency are refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
    /// When it is measured anew by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate: Option<Automatic>,
    /// For how many seconds it must have had little to do for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate_idle_seconds: Option<u32>,
    /// The namespace, by name or number, that this may overwrite: all data in it is lost. Empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate_scratch: Option<String>,
    /// Its name, which cannot change: refused unless it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is, which cannot change: refused unless it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/devices/{name}", put(set_device))
}

/// Says other things of a device, while it serves.
#[utoipa::path(
    put,
    path = "/v1/devices/{name}",
    params(("name" = String, Path, description = "The device's name")),
    request_body = SetDevice,
    responses(
        (status = 200, body = DeviceSettings),
        (status = 400, body = Failure),
        (status = 404, description = "There is no such namespace", body = Failure),
        (status = 409, description = "It cannot change while the server runs, or what tenants are promised \
         does not fit", body = Failure),
        (status = 422, description = "There is no such device, or it has no model", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn set_device(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(body): Body<SetDevice>,
) -> Result<Json<DeviceSettings>, Problem> {
    let known = name.clone();
    let before = move |estate: &dyn Estate| {
        estate.device_settings().into_iter().find(|device| device.name == known)
    };
    change(api, note, before, move |estate| estate.set_device(&name, &body)).await.map(Json)
}

/// The part of the document.
#[derive(OpenApi)]
#[openapi(paths(set_device))]
pub(super) struct Document;
