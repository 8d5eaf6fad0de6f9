//! The recalibration of devices: its port and its JSON bodies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::Problem;

/// Recalibrates devices beside their tenants. All methods return at once. Each reports the reason
/// if it does not do what was asked; then nothing has changed.
#[allow(clippy::missing_errors_doc, reason = "it is said once for all of them")]
pub trait Recalibrator: Send + Sync {
    /// Starts a recalibration of a device, now or when the device is idle.
    fn start(&self, device: &str, how: &StartRecalibration) -> Result<Recalibration, Problem>;

    /// Returns the state or result of a device's last recalibration; `None` if there was none.
    fn recalibration(&self, device: &str) -> Result<Option<Recalibration>, Problem>;

    /// Accepts the result of a device's recalibration although not all tenants fit it.
    fn accept(&self, device: &str) -> Result<Recalibration, Problem>;

    /// Ends a recalibration. A result that is not yet in use is discarded.
    fn cancel(&self, device: &str) -> Result<(), Problem>;

    /// Restores the model that the configuration names.
    fn reset_model(&self, device: &str) -> Result<(), Problem>;
}

/// The start condition of a recalibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Immediately, whatever the load of its tenants.
    #[default]
    Now,
    /// After a period of low load; the recalibration pauses when load returns.
    Idle,
}

/// The parameters of a recalibration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRecalibration {
    /// Accepts the result; must be `true`.
    pub accept: bool,
}

/// The phase of a recalibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Returns `true` if the recalibration waits or measures, so that it continues by itself.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Waiting | Phase::Measuring)
    }
}

/// A row of the model, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
