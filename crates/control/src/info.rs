//! The public descriptions of tenants and devices, with names and tokens instead of numbers and
//! units.

use std::fmt;

use contract::{ChoreCounters, Promise, Share, TenantId};
use qos::{Adjustment, Class, Drift, Percentile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::{TablePosition, Tenant};

use crate::measured::Measured;

/// The figures of an admitted tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Name of the tenant.
    pub name: String,
    /// Number of the tenant on the whole server.
    pub tenant: TenantId,
    /// The device on which the SLO holds.
    pub device: String,
    /// Tokens per second that the SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// Tokens per second of the device that are left for best effort.
    pub tokens_left: u64,
    /// `false` if the device has no model, and so limits nobody.
    pub has_model: bool,
    /// The share that the tenant has while it is best effort.
    pub share: Share,
}

/// The reason that a change of tenants or devices is refused, or that an SLO would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The name or SLO is invalid, for the contained reason.
    Invalid(String),
    /// There is a tenant of this name.
    Taken(String),
    /// There is no tenant of this name.
    NoTenant {
        /// The name that no tenant has.
        name: String,
        /// The first names of existing tenants.
        known: Vec<String>,
        /// Number of existing tenants beyond those in `known`.
        others: usize,
    },
    /// There is no such device.
    NoDevice {
        /// The name that no device has.
        name: String,
        /// The names of all devices.
        known: Vec<String>,
    },
    /// The device is in use, so it cannot be removed.
    DeviceInUse {
        /// Name of the device that is in use.
        name: String,
        /// Description of the device's user.
        by: String,
    },
    /// The configuration names the tenant, so it cannot be removed while the server runs.
    InUse {
        /// Name of the tenant that is in use.
        name: String,
        /// The configuration item that names it.
        by: String,
    },
    /// The table of tenants is full.
    TableFull {
        /// Capacity of the table, in tenants.
        tenants_max: usize,
    },
    /// Clients of one tenant have made the maximum number of tenants.
    TooMany {
        /// The maximum number of tenants that the clients of one tenant may make.
        tenants_max: usize,
    },
    /// Another process takes over: nothing changes until the hand-over has ended.
    Upgrading,
    /// The device has no model, so it cannot promise a latency.
    NoModel {
        /// Name of the device without a model.
        device: String,
    },
    /// The device's model has no rates for this percentile.
    NotMeasured {
        /// Name of the device whose model lacks the rates.
        device: String,
        /// The percentile of the requested SLO.
        percentile: Percentile,
    },
    /// The device's model has no rate for such a low latency.
    TooTight {
        /// The requested latency in microseconds.
        latency_us: u32,
        /// The lowest latency in the model, in microseconds.
        tightest_us: u32,
        /// The percentile of both latencies.
        percentile: Percentile,
    },
    /// The device does not deliver as many tokens.
    TooMuch {
        /// Tokens per second that the SLO needs.
        tokens_needed: u64,
        /// Tokens per second that the other tenants leave.
        tokens_available: u64,
        /// Tokens per second that the device delivers at the strictest latency.
        tokens_device: u64,
        /// Tokens per second beyond these that are kept back, so that SLOs hold in windows.
        tokens_headroom: u64,
        /// The strictest latency in microseconds.
        latency_us: u32,
        /// The percentile of the strictest latency.
        percentile: Percentile,
        /// The tenant with the strictest latency; `None` for the requested SLO.
        limited_by: Option<String>,
    },
}

/// The message while another process takes over.
pub const UPGRADING: &str = "a new process is taking over this server, and nothing changes meanwhile; try again in a second";

/// Returns a number as text with a blank between groups of three digits, as commands print numbers.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Returns a latency in microseconds as text, in the unit in which it is a short number.
pub(crate) fn time(us: u32) -> String {
    match us {
        0..10_000 => format!("{us} µs"),
        10_000..10_000_000 => format!("{} ms", f64::from(us) / 1e3),
        _ => format!("{} s", f64::from(us) / 1e6),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(why) => f.write_str(why),
            Refusal::Taken(name) => write!(f, "there is a tenant {name:?} already"),
            Refusal::NoTenant { name, known, others } => {
                write!(f, "there is no tenant {name:?}; there are: {}", known.join(", "))?;
                match others {
                    0 => Ok(()),
                    others => write!(f, " and {others} more"),
                }
            }
            Refusal::NoDevice { name, known } => {
                write!(f, "there is no device {name:?}; there are: {}", known.join(", "))
            }
            Refusal::DeviceInUse { name, by } => {
                write!(f, "device {name:?} cannot be removed: {by} is on it")
            }
            Refusal::InUse { name, by } => write!(
                f,
                "tenant {name:?} is named by {by}, so it cannot be removed while the server runs; it can be \
                 made best effort"
            ),
            Refusal::TableFull { tenants_max } => {
                write!(f, "the table of {tenants_max} tenants is full")
            }
            Refusal::TooMany { tenants_max } => write!(
                f,
                "clients of this tenant have made {tenants_max} tenants, a quarter of what the table \
                 takes, and may make no more: unregister one, or raise limits.tenants"
            ),
            Refusal::Upgrading => f.write_str(UPGRADING),
            Refusal::NoModel { device } => write!(
                f,
                "device {device:?} has no model, so no latency can be promised on it; measure one \
                 with `nearflash calibrate` and name it with `model` or `--model`"
            ),
            Refusal::NotMeasured { device, percentile } => write!(
                f,
                "the model of device {device:?} has no rates for {percentile}, so only p95 can be \
                 promised on it; `nearflash calibrate` without `--quick` measures them"
            ),
            Refusal::TooTight { latency_us, tightest_us, percentile } => write!(
                f,
                "{percentile} ≤ {} is below the lowest latency of the device's model, {}: ask for that \
                 or more, or measure the device anew with `nearflash device recalibrate`",
                time(*latency_us),
                time(*tightest_us)
            ),
            Refusal::TooMuch {
                tokens_needed,
                tokens_available,
                tokens_device,
                latency_us,
                percentile,
                limited_by,
                ..
            } => {
                let [needed, available, device] =
                    [tokens_needed, tokens_available, tokens_device].map(|n| grouped(*n));
                let latency = time(*latency_us);
                let bound = limited_by.as_ref().map(|name| format!("tenant {name:?}"));
                let bound = bound.unwrap_or_else(|| "this SLO itself".to_owned());
                write!(
                    f,
                    "needs {needed} tokens/s of {available} available; the device makes {device} at \
                     {percentile} ≤ {latency}, the bound of {bound}"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Remedies for a refused SLO: each one on its own is sufficient.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ways {
    /// Requests per second that would be admitted at the requested latency and mix.
    pub iops: Option<u32>,
    /// The lowest latency in microseconds at which the requested rate would be admitted.
    pub latency_us: Option<u32>,
    /// Tenants whose removal would free enough.
    pub leave: Vec<String>,
}

/// The result of a check whether an SLO would be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The SLO would be admitted.
    Admitted {
        /// Tokens per second that the SLO needs.
        tokens_needed: u64,
        /// Tokens per second that would be left for best effort.
        tokens_left: u64,
        /// Tokens per second beyond these that would be kept back, so that SLOs hold in windows.
        tokens_headroom: u64,
        /// The number of such tenants that there is room for, this one included.
        fits: usize,
    },
    /// The SLO would be refused.
    Refused {
        /// The reason why the SLO would be refused.
        refusal: Refusal,
        /// Ways in which the operator can make the request succeed.
        ways: Ways,
    },
}

/// The origin of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The tenant is in the configuration file of the server.
    Configured,
    /// The tenant was registered by an operator, while the server ran.
    Operator,
    /// A client of protocol version 2, which belongs to the contained tenant by its access rule.
    /// The new tenant ends when no connection holds a handle on it any more.
    Client(TenantId),
}

/// The state of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The tenant is served.
    Active,
    /// The tenant was removed; its requests in flight are still served.
    Leaving,
}

/// The description of a tenant for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantInfo {
    /// Name of the tenant.
    pub name: String,
    /// Number of the tenant on the whole server, as in workers' logs.
    pub tenant: TenantId,
    /// State of the tenant.
    pub state: State,
    /// Origin of the tenant.
    pub origin: Origin,
    /// Class of the tenant.
    pub class: Class,
    /// The device on which the SLO holds.
    pub device: String,
    /// The promise to the tenant: an SLO, or a share.
    pub promise: Promise,
    /// Tokens per second that the SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// Free text of the operators.
    pub note: Option<String>,
    /// The measurements of the last window.
    pub measured: Measured,
    /// Connections that belong to the tenant or hold a handle on it.
    pub connections: u32,
    /// Requests admitted and not yet answered, on all workers.
    pub in_flight: u32,
}

impl TenantInfo {
    /// Returns the tenant in the form in which configurations and the state file have it.
    pub fn spec(&self) -> Tenant {
        Tenant {
            name: self.name.clone(),
            promise: self.promise,
            device: Some(self.device.clone()),
            note: self.note.clone(),
            nth: TablePosition::default(),
        }
    }
}

/// The background work of a device, such as garbage collection, and the tenants that pay for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoreInfo {
    /// The work since the device was opened.
    pub done: ChoreCounters,
    /// The present tax on a 4 KiB write, and the tax with which promises are priced, in hundredths
    /// of a token; `None` without a model.
    pub taxes: Option<[u32; 2]>,
}

/// The description of a device for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Name of the device.
    pub name: String,
    /// `true` if the device has a model. Without a model, the device admits no SLO and limits no
    /// tenant.
    pub has_model: bool,
    /// Tokens per second that the device delivers with its current tenants; `None` without a model.
    pub tokens: Option<u64>,
    /// Tokens per second that are promised.
    pub tokens_promised: u64,
    /// Tokens per second that are left for best effort; `None` without a model.
    pub tokens_left: Option<u64>,
    /// Tokens per second beyond `tokens` that are kept back, so that SLOs hold in windows.
    pub tokens_headroom: u64,
    /// The strictest latency bound of the device's tenants in microseconds; `None` without one.
    pub latency_us: Option<u32>,
    /// The current correction of the model; `None` if it is not corrected.
    pub correction: Option<Adjustment>,
    /// The device's drift from its model; `None` without a model.
    pub drift: Option<Drift>,
    /// `true` if the device's model is not the configured one.
    pub is_remodelled: bool,
    /// The work that the device does of its own accord; `None` if it does none.
    pub chores: Option<ChoreInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_the_unit_in_which_they_are_short() {
        let short = [500, 9_999, 10_000, 12_500, 2_000_000, 10_000_000].map(time);
        assert_eq!(short, ["500 µs", "9999 µs", "10 ms", "12.5 ms", "2000 ms", "10 s"]);
        let (latency_us, tightest_us) = (500, 10_000);
        let tight = Refusal::TooTight { latency_us, tightest_us, percentile: Percentile::P95 };
        assert!(tight.to_string().starts_with(
            "p95 ≤ 500 µs is below the lowest latency of the device's model, 10 ms: ask for that"
        ));
    }
}
