//! What the control plane says of tenants, in names and tokens rather than numbers and units.

use std::fmt;

use contract::{Slo, TenantId};
use qos::{Adjustment, Class, Drift, Percentile, Portion};

use crate::book::TOKEN;
use crate::{Measured, Origin};

/// What a tenant was admitted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The tenant's name.
    pub name: String,
    /// Its number on the whole server.
    pub tenant: TenantId,
    /// The device that its promise is about.
    pub device: String,
    /// Tokens a second that its SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// Tokens a second of the device that are left for best effort.
    pub tokens_left: u64,
}

/// Why something is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The name or SLO makes no sense; why.
    Invalid(String),
    /// There is a tenant of this name.
    Taken(String),
    /// There is no tenant of this name.
    NoTenant {
        /// The name.
        name: String,
        /// The first names that there are.
        known: Vec<String>,
        /// How many more there are.
        others: usize,
    },
    /// There is no such device.
    NoDevice {
        /// Its name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Something is on the device, so it cannot go.
    DeviceInUse {
        /// Its name.
        name: String,
        /// What is.
        by: String,
    },
    /// The configuration names the tenant, so it cannot go while the server runs.
    InUse {
        /// Its name.
        name: String,
        /// What names it.
        by: String,
    },
    /// The table of tenants is full.
    TableFull {
        /// How many it takes.
        tenants_max: usize,
    },
    /// Clients of one tenant have made as many tenants as they may.
    TooMany {
        /// How many that is.
        tenants_max: usize,
    },
    /// Another process takes over: nothing changes until that has ended.
    Upgrading,
    /// The device has no model, so that no latency can be promised on it.
    NoModel {
        /// The device.
        device: String,
    },
    /// The device's model has no rates for this percentile.
    NotMeasured {
        /// The device.
        device: String,
        /// The percentile.
        percentile: Percentile,
    },
    /// The device is not known to serve anything at this latency.
    TooTight {
        /// What was asked, in microseconds.
        latency_us: u32,
        /// The tightest that the device's model knows.
        tightest_us: u32,
        /// Of which percentile both are.
        percentile: Percentile,
    },
    /// The device does not make as many tokens.
    TooMuch {
        /// Tokens a second that the SLO needs.
        tokens_needed: u64,
        /// Tokens a second that the others leave.
        tokens_available: u64,
        /// Tokens a second that the device makes at the strictest latency.
        tokens_device: u64,
        /// The strictest latency in microseconds.
        latency_us: u32,
        /// Of which percentile it is.
        percentile: Percentile,
        /// Whose latency that is; `None` for the SLO's that is asked for.
        limited_by: Option<String>,
    },
}

/// Why nothing changes just now.
pub const UPGRADING: &str = "a new process is taking over this server, and nothing changes meanwhile; try again in a second";

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
                write!(f, "device {name:?} cannot go: {by} is on it")
            }
            Refusal::InUse { name, by } => write!(
                f,
                "tenant {name:?} is named by {by}, so it cannot go while the server runs; it can be \
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
                "{percentile} ≤ {latency_us} µs is tighter than the {tightest_us} µs that the device is \
                 known for"
            ),
            Refusal::TooMuch {
                tokens_needed,
                tokens_available,
                tokens_device,
                latency_us,
                percentile,
                limited_by,
            } => {
                write!(
                    f,
                    "needs {tokens_needed} tokens/s of {tokens_available} available; the device \
                     makes {tokens_device} at {percentile} ≤ {latency_us} µs, the bound of "
                )?;
                match limited_by {
                    Some(name) => write!(f, "tenant {name:?}"),
                    None => f.write_str("this SLO itself"),
                }
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// What would have to give for a refused SLO: each way on its own is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Requests a second that would be admitted at the asked latency and mix; `None` when not one.
    pub iops: Option<u32>,
    /// The tightest latency in microseconds at which the asked rate would be admitted.
    pub latency_us: Option<u32>,
    /// Tenants that would have to go, few of them; empty when even that is not enough.
    pub leave: Vec<String>,
}

/// What a check finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It would be admitted.
    Admitted {
        /// Tokens a second that it needs.
        tokens_needed: u64,
        /// Tokens a second that would be left for best effort.
        tokens_left: u64,
    },
    /// It would be refused.
    Refused {
        /// Why.
        refusal: Refusal,
        /// What would have to give.
        ways: Ways,
    },
}

/// Where a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is served as promised.
    Active,
    /// It was unregistered; what it had in flight is still being served.
    Leaving,
}

/// One tenant, as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantInfo {
    /// Its name.
    pub name: String,
    /// Its number on the whole server; workers' logs use it.
    pub tenant: TenantId,
    /// Whether it is leaving.
    pub state: State,
    /// Who made it.
    pub origin: Origin,
    /// What it was promised.
    pub class: Class,
    /// The device that its promise is about.
    pub device: String,
    /// Its SLO.
    pub slo: Slo,
    /// Tokens a second that its SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// What it gets of the rest while it is best effort.
    pub share: Share,
    /// How it fares.
    pub measured: Measured,
    /// Connections that belong to it or hold a handle on it.
    pub connections: u32,
    /// Requests admitted and not answered yet, on all workers.
    pub in_flight: u32,
}

/// What a tenant gets of what the promises leave, while it is best effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part beside those of the others, from 1 to [`Share::WEIGHT_MAX`]; 1 unless told.
    pub weight: u32,
    /// Tokens a second that it gets at most, whatever others leave.
    pub cap_tokens: Option<u64>,
}

impl Share {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = Portion::WEIGHT_MAX;

    /// The largest cap.
    const CAP_TOKENS_MAX: u64 = 1_000_000_000;

    /// In units.
    ///
    /// # Errors
    /// Says which part makes no sense.
    pub(crate) fn portion(self) -> Result<Portion, Refusal> {
        let Share { weight, cap_tokens } = self;
        if !(1..=Share::WEIGHT_MAX).contains(&weight) {
            let most = Share::WEIGHT_MAX;
            let why = format!("weight is {weight}; expected a number from 1 to {most}");
            return Err(Refusal::Invalid(why));
        }
        if cap_tokens.is_some_and(|cap| !(1..=Share::CAP_TOKENS_MAX).contains(&cap)) {
            let (cap, most) = (cap_tokens.unwrap_or_default(), Share::CAP_TOKENS_MAX);
            let why = format!("cap_tokens is {cap}; expected a number from 1 to {most}");
            return Err(Refusal::Invalid(why));
        }
        Ok(Portion { weight, cap: cap_tokens.map(|tokens| tokens * TOKEN) })
    }
}

impl Default for Share {
    /// As much as any other, without a cap.
    fn default() -> Share {
        Share::from(Portion::default())
    }
}

impl From<Portion> for Share {
    fn from(portion: Portion) -> Share {
        Share { weight: portion.weight, cap_tokens: portion.cap.map(|units| units / TOKEN) }
    }
}

/// One device, as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Whether it has a model; without one nothing is promised on it and nothing is limited.
    pub has_model: bool,
    /// Tokens a second that it makes with the tenants as they are; `None` without a model.
    pub tokens: Option<u64>,
    /// Tokens a second that are promised.
    pub tokens_promised: u64,
    /// Tokens a second that are left for best effort; `None` without a model.
    pub tokens_left: Option<u64>,
    /// The strictest promised latency in microseconds.
    pub latency_us: Option<u32>,
    /// What the model is multiplied with at present; `None` where it is not corrected.
    pub correction: Option<Adjustment>,
    /// How it stands beside its model; `None` without one.
    pub drift: Option<Drift>,
    /// Whether it has another model than the configuration gives it.
    pub is_remodelled: bool,
}
