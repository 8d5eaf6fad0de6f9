//! The settings of a device that an operator can change while the device is in use.

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::routing::put;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::audit::Note;
use super::extract::Path;
use super::inventory_routes::{Inventory, change};
use super::problem::{Failure, Problem};
use super::routes::{Api, Body};

/// The start condition of automatic recalibration, after a drift from the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Automatic {
    /// No automatic recalibration.
    Off,
    /// After a period of low load.
    Idle,
}

/// The settings of a device, from the configuration or changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceSettings {
    /// Name of the device.
    pub name: String,
    /// Spec of the device.
    pub spec: String,
    /// Name of the model; `null` for the model of the spec, or none.
    pub model: Option<String>,
    /// `true` if the model is corrected by measured delays.
    pub correct_online: bool,
    /// `true` if the requests at the device are limited to what the strictest latency bound allows.
    pub bound_depth: bool,
    /// `true` if requests that would miss their latency bound are refused at once.
    pub fail_fast: bool,
    /// Start condition of automatic recalibration.
    pub recalibrate: Automatic,
    /// Period of low load before an automatic recalibration, in seconds.
    pub recalibrate_idle_seconds: u32,
    /// The scratch namespace that automatic recalibration may overwrite; `null`: the device is only
    /// read.
    pub recalibrate_scratch: Option<String>,
}

/// A change of a device's settings; omitted members keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDevice {
    /// The model: a file on the server's machine, `a` or `cloud`. The same name reads the file
    /// again. The device must have a model, and the new model must fit all SLOs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `true` to correct the model by measured delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct_online: Option<bool>,
    /// `true` to limit the requests at the device to what the strictest latency bound allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_depth: Option<bool>,
    /// `true` to refuse at once requests that would miss their latency bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
    /// Start condition of automatic recalibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate: Option<Automatic>,
    /// Period of low load before an automatic recalibration, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate_idle_seconds: Option<u32>,
    /// The scratch namespace, by name or number, that automatic recalibration may overwrite: all
    /// its data is lost. Empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate_scratch: Option<String>,
    /// Name of the device, which cannot change: any other name is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Spec of the device, which cannot change: any other spec is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/devices/{name}", put(set_device))
}

/// Changes the settings of a device while it is in use.
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
    let before = move |inventory: &dyn Inventory| {
        inventory.device_settings().into_iter().find(|device| device.name == known)
    };
    change(api, note, before, move |inventory| inventory.set_device(&name, &body)).await.map(Json)
}

/// The OpenAPI document of this module.
#[derive(OpenApi)]
#[openapi(paths(set_device))]
pub(super) struct Document;
