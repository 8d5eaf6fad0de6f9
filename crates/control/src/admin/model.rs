//! The words of the admin API, as they stand in JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::crew::WorkerState;
use super::settings::DeviceSettings;

/// What a tenant is promised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Bound of the tail latency of its reads, in microseconds; more than zero.
    pub latency_us: u32,
    /// The percentile that it bounds, in percent.
    #[serde(default = "p95")]
    pub percentile: f64,
    /// Requests a second that it may issue and count on.
    pub iops: u32,
    /// Share of reads among them, in percent.
    #[serde(default = "all_reads")]
    pub read_percent: u8,
    /// Bytes of a typical request.
    #[serde(default = "a_page")]
    pub request_bytes: u32,
}

fn p95() -> f64 {
    95.0
}

fn all_reads() -> u8 {
    100
}

fn a_page() -> u32 {
    4096
}

/// What a tenant gets of what the promises leave, while it is best effort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its part beside those of the others, from 1 to 1000.
    #[serde(default = "one")]
    pub weight: u32,
    /// Tokens a second that it gets at most, whatever others leave; `null` for no cap.
    #[serde(default)]
    pub cap_tokens: Option<u64>,
}

fn one() -> u32 {
    1
}

/// A tenant to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddTenant {
    /// Its name: 1 to 64 bytes.
    pub name: String,
    /// The device that its promise is about; the first unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What it is promised; best effort without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// What it gets of the rest, for best effort; an equal part without a cap unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// Another promise for a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetTenant {
    /// What it is promised from now on; `null`: best effort.
    // A field that may be left out would turn a mistyped one into the loss of a promise.
    #[schema(required = true)]
    #[serde(deserialize_with = "Option::deserialize")]
    pub slo: Option<Slo>,
    /// What it gets of the rest from now on, for best effort; stays as it is unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// Changes of tenants that are made together, or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTenants {
    /// One for each tenant, at most 10 000, in the order in which they are made. Tenants that are removed
    /// go last: what they free is for the next request.
    #[schema(max_items = 10_000)]
    pub changes: Vec<ChangeTenant>,
}

/// One of several changes of tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeTenant {
    /// Make a tenant.
    Add(AddTenant),
    /// Change what a tenant is promised.
    Set(SetNamed),
    /// Remove a tenant.
    Remove(RemoveNamed),
}

/// Another promise for the tenant of a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetNamed {
    /// The tenant's name.
    pub name: String,
    /// What it is promised from now on; `null`: best effort.
    #[schema(required = true)]
    #[serde(deserialize_with = "Option::deserialize")]
    pub slo: Option<Slo>,
    /// What it gets of the rest from now on, for best effort; stays as it is unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// The tenant that is to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveNamed {
    /// The tenant's name.
    pub name: String,
}

/// How many tenants were changed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedTenants {
    /// Tenants that were made.
    pub added: usize,
    /// Tenants that are promised something else.
    pub changed: usize,
    /// Tenants that are gone.
    pub removed: usize,
}

/// A question: would this SLO be admitted? Of a tenant that is there: could its SLO become this one?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The device of a new tenant; the first unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The tenant that would change; a new one unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The SLO.
    pub slo: Slo,
}

/// The answer to a [`Check`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// Whether it would be admitted.
    pub admitted: bool,
    /// Tokens a second that the SLO needs, if that is known.
    pub tokens_needed: Option<u64>,
    /// Tokens a second that would be left for best effort; when refused, those that are available.
    pub tokens_left: Option<u64>,
    /// Why it would be refused.
    pub refusal: Option<super::Problem>,
}

/// What would have to give for a refused SLO: each way on its own is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ways {
    /// Requests a second that would be admitted at the asked latency and mix.
    pub iops: Option<u32>,
    /// The tightest latency in microseconds at which the asked rate would be admitted.
    pub latency_us: Option<u32>,
    /// Tenants that would have to go.
    pub leave: Vec<String>,
}

/// What a tenant was admitted with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Admitted {
    /// Its name.
    pub name: String,
    /// Its number, which workers' logs use.
    pub number: u32,
    /// The device that its promise is about.
    pub device: String,
    /// Tokens a second that its SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// Tokens a second of the device that are left for best effort.
    pub tokens_left: u64,
}

/// What kind of promise a tenant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A tail latency and a rate.
    LatencyCritical,
    /// A share of what is left.
    BestEffort,
}

/// Where a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is served as promised.
    Active,
    /// It was removed; what it had in flight is still being served.
    Leaving,
}

/// Who made a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The configuration.
    Configured,
    /// An operator, while the server ran.
    Operator,
    /// A client of protocol version 2. Such a tenant goes with its last connection.
    Client,
}

/// How a tenant fared in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Measured {
    /// Requests answered a second.
    pub iops: f64,
    /// Share of reads among them, in percent; `null` without requests.
    pub read_percent: Option<f64>,
    /// Tokens spent a second, on all devices.
    pub tokens: f64,
    /// Tokens that it put into the buckets of devices because it had more than it could use, a second.
    #[serde(default)]
    pub donated: f64,
    /// Tokens that it took out of them, a second.
    #[serde(default)]
    pub borrowed: f64,
    /// p95 of its reads in microseconds, from the last byte of the request to the reply handed to
    /// the socket; `null` without reads.
    pub p95_us: Option<f64>,
    /// The same at the percentile that its SLO bounds.
    pub slo_percentile_us: Option<f64>,
    /// Share of the second in which requests of it waited for tokens, 0 to 1.
    pub throttled: f64,
    /// Rounds below the deficit limit since it was made.
    pub deficits: u64,
    /// Requests carried out since it was made.
    pub requests_total: u64,
    /// Bytes that its reads carried, a second.
    #[serde(default)]
    pub read_bytes: f64,
    /// Bytes that its writes carried, a second.
    #[serde(default)]
    pub written_bytes: f64,
    /// Requests that were not carried out, a second, without those that were told to try again.
    #[serde(default)]
    pub failures: f64,
    /// Requests that were told to try again, a second.
    #[serde(default)]
    pub retries: f64,
    /// How well its promise is kept.
    #[serde(default)]
    pub compliance: Compliance,
}

/// How well a promise is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compliance {
    /// Share of the reads of the last second that were within the bound, 0 to 1; `null` without
    /// reads, and without a promise.
    pub second: Option<f64>,
    /// The same of the last minute.
    pub minute: Option<f64>,
    /// Of the seconds of the last minute with reads in which the tenant spent no more than 1.05 times
    /// the tokens that it was promised, the share in which the bound held at its percentile.
    pub kept: Option<f64>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its number, which workers' logs use.
    pub number: u32,
    /// Whether it is leaving.
    pub state: State,
    /// Who made it.
    pub origin: Origin,
    /// What kind of promise it has.
    pub class: Class,
    /// The device that its promise is about.
    pub device: String,
    /// Its promise; `null` for best effort.
    pub slo: Option<Slo>,
    /// Tokens a second that its SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// What it gets of the rest while it is best effort.
    pub share: Share,
    /// How it fared.
    pub measured: Measured,
    /// Connections that belong to it.
    pub connections: u32,
    /// Requests admitted and not answered yet.
    pub in_flight: u32,
}

/// All tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenants {
    /// By number.
    pub tenants: Vec<Tenant>,
}

/// The latency that limits a device's rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Strictest {
    /// In microseconds.
    pub latency_us: u32,
    /// Whose it is.
    pub tenant: String,
}

/// What a device's model is multiplied with, by what is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Correction {
    /// The tokens a second that it makes, in percent of the model's.
    pub rate_percent: f64,
    /// The price of a write, in percent of the model's.
    pub write_price_percent: f64,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Whether it has a model; without one nothing is promised on it and nothing is limited.
    pub has_model: bool,
    /// Tokens a second that it makes with the tenants as they are; `null` without a model.
    pub tokens: Option<u64>,
    /// Tokens a second that are promised.
    pub tokens_promised: u64,
    /// Tokens a second that are left for best effort; `null` without a model.
    pub tokens_left: Option<u64>,
    /// The strictest promised latency; `null` without promises.
    pub strictest: Option<Strictest>,
    /// How its model is corrected now; `null` where `correct_online` is off.
    pub correction: Option<Correction>,
    /// How it stands beside its model; `null` without one.
    #[serde(default)]
    pub drift: Option<Drift>,
    /// Whether a recalibration has given it another model than the configuration names.
    #[serde(default)]
    pub recalibrated: bool,
    /// What was said of it, by the configuration or since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<DeviceSettings>,
}

/// Whether a device is what its model says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftState {
    /// It is not known; `why` says why.
    Unknown,
    /// It serves what the model says.
    Fits,
    /// It serves another rate.
    Drifted,
}

/// How a device stands beside its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drift {
    /// Whether it is what its model says.
    pub state: DriftState,
    /// What it serves at the p95 that its reads have at it, in percent of what the model says that
    /// it serves there: the median of some windows; `null` where it is not known.
    pub percent: Option<f64>,
    /// For how many seconds it is known to have drifted; `null` unless it has.
    pub seconds: Option<f64>,
    /// Why it is not known.
    pub why: Option<String>,
}

/// All devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Devices {
    /// In the order of configuration.
    pub devices: Vec<Device>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its number.
    pub number: usize,
    /// The processor that it is pinned to.
    pub cpu: Option<usize>,
    /// Whether it takes connections.
    pub state: WorkerState,
    /// Its connections.
    pub connections: usize,
    /// The share of the last second in which it had something to do.
    pub busy_percent: f64,
    /// Connections that have left it for other workers.
    pub moved: u32,
    /// Connections that were to leave it and stayed.
    pub stayed: u32,
    /// Connections that came to it from other workers.
    pub arrived: u32,
    /// The longest time, in microseconds, that a connection which left it was not received from.
    pub pause_us_max: u32,
}

/// All workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Workers {
    /// By number.
    pub workers: Vec<Worker>,
}

/// From the control plane's words to those of the API, and back.
mod translation {
    use super::*;
    use crate::words;

    impl Slo {
        /// In the words of the contract.
        ///
        /// # Errors
        /// Says which field makes no sense.
        pub(crate) fn to_contract(&self) -> Result<contract::Slo, String> {
            if self.latency_us == 0 {
                return Err("slo.latency_us is 0; leave `slo` out for best effort".to_owned());
            }
            if !(0.1..=99.9).contains(&self.percentile) {
                return Err(format!(
                    "slo.percentile is {}; expected a number from 0.1 to 99.9, such as 95",
                    self.percentile
                ));
            }
            Ok(contract::Slo {
                latency_us: self.latency_us,
                percentile_tenths: (self.percentile * 10.0).round() as u16,
                iops: self.iops,
                read_percent: self.read_percent,
                request_bytes: self.request_bytes,
            })
        }

        /// `None` for best effort.
        pub(crate) fn from_contract(slo: &contract::Slo) -> Option<Slo> {
            let or = |n: u32, default: u32| if n == 0 { default } else { n };
            (slo.latency_us > 0).then(|| Slo {
                latency_us: slo.latency_us,
                percentile: f64::from(or(slo.percentile_tenths.into(), 950)) / 10.0,
                iops: slo.iops,
                read_percent: slo.read_percent,
                request_bytes: or(slo.request_bytes, a_page()),
            })
        }
    }

    impl From<words::TenantInfo> for Tenant {
        fn from(info: words::TenantInfo) -> Tenant {
            let slo = Slo::from_contract(&info.slo);
            Tenant {
                name: info.name,
                number: info.tenant.0,
                state: match info.state {
                    words::State::Active => State::Active,
                    words::State::Leaving => State::Leaving,
                },
                origin: match info.origin {
                    crate::Origin::Configured => Origin::Configured,
                    crate::Origin::Operator => Origin::Operator,
                    crate::Origin::Client(_) => Origin::Client,
                },
                class: if slo.is_some() { Class::LatencyCritical } else { Class::BestEffort },
                device: info.device,
                slo,
                tokens_needed: info.tokens_needed,
                share: Share { weight: info.share.weight, cap_tokens: info.share.cap_tokens },
                measured: info.measured.into(),
                connections: info.connections,
                in_flight: info.in_flight,
            }
        }
    }

    impl From<Share> for words::Share {
        fn from(share: Share) -> words::Share {
            words::Share { weight: share.weight, cap_tokens: share.cap_tokens }
        }
    }

    impl Drift {
        /// As it stands now.
        pub(crate) fn at(drift: qos::Drift, now: contract::Instant) -> Drift {
            let percent = |ratio: f64| Some((ratio * 1_000.0).round() / 10.0);
            match drift {
                qos::Drift::Unknown(why) => Drift {
                    state: DriftState::Unknown,
                    percent: None,
                    seconds: None,
                    why: Some(why.to_string()),
                },
                qos::Drift::Fits { ratio } => Drift {
                    state: DriftState::Fits,
                    percent: percent(ratio),
                    seconds: None,
                    why: None,
                },
                qos::Drift::Drifted { ratio, since } => Drift {
                    state: DriftState::Drifted,
                    percent: percent(ratio),
                    seconds: Some(now.since(since).as_secs_f64()),
                    why: None,
                },
            }
        }
    }

    impl From<qos::Adjustment> for Correction {
        fn from(adjustment: qos::Adjustment) -> Correction {
            Correction {
                rate_percent: f64::from(adjustment.rate_permille) / 10.0,
                write_price_percent: f64::from(adjustment.write_permille) / 10.0,
            }
        }
    }

    impl From<crate::Measured> for Measured {
        fn from(measured: crate::Measured) -> Measured {
            Measured {
                iops: measured.iops,
                read_percent: measured.read_percent,
                tokens: measured.tokens,
                donated: measured.donated,
                borrowed: measured.borrowed,
                p95_us: measured.p95_us,
                slo_percentile_us: measured.slo_percentile_us,
                throttled: measured.throttled,
                deficits: measured.deficits,
                requests_total: measured.requests_total,
                read_bytes: measured.read_bytes,
                written_bytes: measured.written_bytes,
                failures: measured.failures,
                retries: measured.retries,
                compliance: Compliance {
                    second: measured.compliance.second,
                    minute: measured.compliance.minute,
                    kept: measured.compliance.kept,
                },
            }
        }
    }

    impl From<words::Admission> for Admitted {
        fn from(admission: words::Admission) -> Admitted {
            Admitted {
                name: admission.name,
                number: admission.tenant.0,
                device: admission.device,
                tokens_needed: admission.tokens_needed,
                tokens_left: admission.tokens_left,
            }
        }
    }

    impl From<words::Ways> for Ways {
        fn from(ways: words::Ways) -> Ways {
            Ways { iops: ways.iops, latency_us: ways.latency_us, leave: ways.leave }
        }
    }
}
