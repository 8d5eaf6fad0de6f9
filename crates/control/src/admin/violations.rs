//! The JSON body of the admin API for the log of violations: `/v1/violations`.

use contract::Instant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::Slo;
use crate::controller::WINDOW;
use crate::violations;

/// A violation of a promise: seconds in which the reads of a tenant that kept to its rate exceeded
/// their bound. Seconds with less than ten between them are one violation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violation {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the device of the promise.
    pub device: String,
    /// The promise that was broken.
    pub slo: Slo,
    /// The highest latency of a second, at the percentile of the promise, in microseconds.
    pub worst_us: f64,
    /// Number of late seconds.
    pub late_seconds: u32,
    /// Number of late seconds in which workers waited for processors: the machine was overcommitted.
    pub starved_seconds: u32,
    /// Time since the first late second, in seconds.
    pub age: f64,
    /// Time from the first late second to the end of the last one, in seconds.
    pub duration: f64,
    /// `true` if the last late second is less than ten seconds ago.
    pub goes_on: bool,
}

/// The latest violations of promises since the start of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violations {
    /// The violations, the latest first.
    pub violations: Vec<Violation>,
}

impl Violation {
    pub(super) fn of(found: &violations::Violation, goes_on: bool, now: Instant) -> Violation {
        Violation {
            tenant: found.tenant.clone(),
            device: found.device.clone(),
            slo: found.slo.into(),
            worst_us: found.worst_us,
            late_seconds: found.windows,
            starved_seconds: found.starved,
            age: (now.since(found.began_at) + WINDOW).as_secs_f64(),
            duration: (found.late_at.since(found.began_at) + WINDOW).as_secs_f64(),
            goes_on,
        }
    }
}
