//! The JSON bodies of the admin API.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::settings::DeviceSettings;
use crate::commands::WorkerState;
use crate::info::State;
use crate::measured::Measured;

/// A service level objective (SLO): the promise to a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Bound of the tail latency of reads in microseconds; more than zero.
    #[schemars(range(min = 1))]
    pub latency_us: u32,
    /// Percentile that the bound applies to, in percent.
    #[serde(default = "p95")]
    #[schemars(range(min = 0.1, max = 99.9))]
    pub percentile: f64,
    /// Guaranteed requests per second.
    #[schemars(range(min = 1))]
    pub iops: u32,
    /// Share of reads in percent.
    #[serde(default = "all_reads")]
    #[schemars(range(max = 100))]
    pub read_percent: u8,
    /// Size of a typical request in bytes.
    #[serde(default = "a_page")]
    #[schemars(range(max = 1_048_576))]
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

/// A best-effort tenant's share of the tokens that SLOs leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Weight relative to the other tenants, from 1 to 1000.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000))]
    pub weight: u32,
    /// Maximum tokens per second, whatever others leave; `null` for no cap.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub cap_tokens: Option<u64>,
}

fn one() -> u32 {
    1
}

impl Share {
    /// Returns the weight and the cap in words, with numbers as `number` writes them.
    pub fn text(&self, number: impl Fn(f64) -> String) -> String {
        let cap = |tokens: u64| format!(", {} tokens/s at most", number(tokens as f64));
        format!("weight {}{}", self.weight, self.cap_tokens.map_or_else(String::new, cap))
    }
}

impl Default for Share {
    fn default() -> Share {
        Share { weight: one(), cap_tokens: None }
    }
}

/// Returns the schema of a member that must be there, although it may be `null`.
fn slo_or_null(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Option<Slo>>()
}

/// A tenant to add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddTenant")]
pub struct NewTenant {
    /// Name of the tenant: 1 to 64 bytes.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The device of the SLO; the first device by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The SLO; without it, the tenant is best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// The share of a best-effort tenant; by default, an equal share without a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Free text about the tenant, at most 200 characters.
    #[schemars(length(max = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A change of a tenant's SLO, its device, share and note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetTenant")]
pub struct TenantPatch {
    /// The new SLO; `null`: best effort.
    // An optional member would turn a misspelt one into the loss of a promise.
    #[schemars(schema_with = "slo_or_null")]
    #[serde(deserialize_with = "Option::deserialize")]
    pub slo: Option<Slo>,
    /// The share of a best-effort tenant; unchanged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Free text about the tenant, at most 200 characters; unchanged by default. An empty text
    /// removes it.
    #[schemars(length(max = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The device of the SLO; unchanged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// Changes of tenants that are made together, or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTenants {
    /// The changes, one per tenant, at most 10 000, made in this order. Removals are made last:
    /// the tokens that they free are there for the next request.
    #[schemars(length(max = 10_000))]
    pub changes: Vec<ChangeTenant>,
}

/// A change within a batch of changes of tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeTenant {
    /// Adds a tenant.
    Add(NewTenant),
    /// Changes the SLO, its device, the share and the note of a tenant.
    Set(SetNamed),
    /// Removes a tenant.
    Remove(RemoveNamed),
}

/// A change of a named tenant's SLO, its device, share and note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetNamed {
    /// The tenant's name.
    pub name: String,
    /// The new SLO; `null`: best effort.
    #[schemars(schema_with = "slo_or_null")]
    #[serde(deserialize_with = "Option::deserialize")]
    pub slo: Option<Slo>,
    /// The share of a best-effort tenant; unchanged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Free text about the tenant, at most 200 characters; unchanged by default. An empty text
    /// removes it.
    #[schemars(length(max = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The device of the SLO; unchanged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// A tenant to remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveNamed {
    /// The tenant's name.
    pub name: String,
}

/// The counts of a batch of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedTenants {
    /// Number of added tenants.
    pub added: usize,
    /// Number of changed tenants.
    pub changed: usize,
    /// Number of removed tenants.
    pub removed: usize,
}

/// A question whether an SLO would be admitted, for a new or for an existing tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The device of a new tenant; the first device by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The tenant that would change; a new one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The SLO in question.
    pub slo: Slo,
}

/// The answer to a [`Check`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// `true` if the SLO would be admitted.
    pub admitted: bool,
    /// Tokens per second that the SLO needs, if known.
    pub tokens_needed: Option<u64>,
    /// Tokens per second that would be left for best effort; on refusal, the available tokens.
    pub tokens_left: Option<u64>,
    /// Tokens per second that are kept back with this SLO, so that SLOs hold in windows: the device
    /// would deliver them if SLOs held on average only. Zero if promises hold on average.
    #[serde(default)]
    pub tokens_headroom: u64,
    /// The number of new tenants with this SLO that would be admitted one after another; `null` if
    /// the question is about a tenant that exists.
    #[serde(default)]
    pub fits: Option<usize>,
    /// The reason for a refusal.
    pub refusal: Option<super::Problem>,
}

/// The figures of an admitted tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Admitted {
    /// Name of the tenant.
    pub name: String,
    /// Number of the tenant, as in workers' logs.
    pub number: u32,
    /// The device of the SLO.
    pub device: String,
    /// Tokens per second that the SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// Tokens per second of the device that are left for best effort.
    pub tokens_left: u64,
    /// `false` if the device has no model, and so limits nobody.
    #[serde(default = "yes")]
    pub has_model: bool,
    /// The share of a best-effort tenant.
    #[serde(default)]
    pub share: Share,
}

fn yes() -> bool {
    true
}

/// The class of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A tenant with a tail latency and a rate.
    LatencyCritical,
    /// A tenant with a share of the rest.
    BestEffort,
}

/// The origin of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The configuration.
    Configured,
    /// An operator, while the server ran.
    Operator,
    /// A client of protocol version 2. Such a tenant ends with its last connection.
    Client,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tenant")]
pub struct TenantStatus {
    /// Name of the tenant.
    pub name: String,
    /// Number of the tenant, as in workers' logs.
    pub number: u32,
    /// State of the tenant.
    pub state: State,
    /// Origin of the tenant.
    pub origin: Origin,
    /// Class of the tenant.
    pub class: Class,
    /// The device of the SLO.
    pub device: String,
    /// The SLO; `null` for best effort.
    pub slo: Option<Slo>,
    /// Tokens per second that the SLO needs; zero for best effort.
    pub tokens_needed: u64,
    /// The share of a best-effort tenant.
    pub share: Share,
    /// Free text about the tenant; left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The measurements of the last second.
    pub measured: Measured,
    /// Number of its connections.
    pub connections: u32,
    /// Number of requests admitted and not yet answered.
    pub in_flight: u32,
}

/// The list of tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tenants {
    /// The tenants, ordered by number.
    pub tenants: Vec<TenantStatus>,
    /// The verdict on a machine whose workers wait for processors, as in `/v1/flows`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommitted: Option<String>,
}

impl Tenants {
    /// Returns the verdict on the machine as a line to append to a table; empty without a verdict.
    pub fn verdict(&self) -> String {
        self.overcommitted.iter().map(|verdict| format!("\n{verdict}")).collect()
    }
}

/// The latency bound that limits a device's rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Strictest {
    /// The bound in microseconds.
    pub latency_us: u32,
    /// The tenant with this bound.
    pub tenant: String,
}

/// The measured correction of a device's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Correction {
    /// Tokens per second, in percent of the model's.
    pub rate_percent: f64,
    /// Price of a write, in percent of the model's.
    pub write_price_percent: f64,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Device")]
pub struct DeviceStatus {
    /// Name of the device.
    pub name: String,
    /// `true` if the device has a model. Without a model, the device admits no SLO and limits no
    /// tenant.
    pub has_model: bool,
    /// Tokens per second that the device delivers with its current tenants; `null` without a model.
    pub tokens: Option<u64>,
    /// Tokens per second that are promised.
    pub tokens_promised: u64,
    /// Tokens per second that are left for best effort; `null` without a model.
    pub tokens_left: Option<u64>,
    /// Tokens per second that are kept back, so that SLOs hold in windows: the device would deliver
    /// them, beyond `tokens`, if its strictest SLO held on average only. Zero if promises hold on
    /// average.
    #[serde(default)]
    pub tokens_headroom: u64,
    /// The strictest latency bound; `null` without SLOs.
    pub strictest: Option<Strictest>,
    /// The current correction of the model; `null` if `correct_online` is off.
    pub correction: Option<Correction>,
    /// The device's drift from its model; `null` without a model.
    #[serde(default)]
    pub drift: Option<Drift>,
    /// `true` if the model comes from a recalibration, not from the configuration.
    #[serde(default)]
    pub recalibrated: bool,
    /// The device's settings, from the configuration or changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<DeviceSettings>,
}

/// The state of a device's drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftState {
    /// Unknown; `why` has the reason.
    Unknown,
    /// The device delivers the model's rate.
    Fits,
    /// The device delivers another rate.
    Drifted,
}

/// The drift of a device from its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// The state of the drift.
    pub state: DriftState,
    /// Delivered rate in percent of the model's rate at the measured p95 of reads: the median of
    /// five to eight measurements of half a second each; `null` if unknown.
    pub percent: Option<f64>,
    /// Time since the drift is known, in seconds; `null` without drift.
    pub seconds: Option<f64>,
    /// The reason that the drift is unknown.
    pub why: Option<String>,
}

/// The list of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Devices {
    /// The devices, in the order of configuration.
    pub devices: Vec<DeviceStatus>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// Number of the worker.
    pub number: usize,
    /// The processor that the worker is pinned to.
    pub cpu: Option<usize>,
    /// State of the worker.
    pub state: WorkerState,
    /// Number of its connections.
    pub connections: usize,
    /// Share of the last second in which the worker was busy, in percent.
    pub busy_percent: f64,
    /// Share of the last second for which the worker's thread was ready to run and did not, in
    /// percent.
    #[serde(default)]
    pub waited_percent: f64,
    /// Connections that have left for other workers.
    pub moved: u32,
    /// Connections that were to leave and stayed.
    pub stayed: u32,
    /// Connections that came from other workers.
    pub arrived: u32,
    /// Longest time in microseconds during which a leaving connection was not received from.
    pub pause_us_max: u32,
}

/// The list of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workers {
    /// The workers, ordered by number.
    pub workers: Vec<Worker>,
}

/// Conversions between the control plane's types and those of the API.
mod translation {
    use contract::Promise;

    use super::{
        Admitted, ChangeTenant, Class, Correction, Drift, DriftState, NewTenant, Origin,
        RemoveNamed, SetNamed, Share, Slo, TenantStatus,
    };
    use crate::{TenantChange, info};

    impl Slo {
        /// Converts to the contract's type.
        ///
        /// # Errors
        /// Fails with the name of an invalid field, and the reason.
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
                request_bytes: match self.request_bytes {
                    0 => contract::Slo::REQUEST_BYTES,
                    bytes => bytes,
                },
            })
        }
    }

    impl From<contract::Slo> for Slo {
        fn from(slo: contract::Slo) -> Slo {
            Slo {
                latency_us: slo.latency_us,
                percentile: f64::from(slo.percentile_tenths) / 10.0,
                iops: slo.iops,
                read_percent: slo.read_percent,
                request_bytes: slo.request_bytes,
            }
        }
    }

    impl From<info::TenantInfo> for TenantStatus {
        fn from(info: info::TenantInfo) -> TenantStatus {
            let (slo, share) = (info.promise.slo().map(Slo::from), info.promise.share());
            TenantStatus {
                name: info.name,
                number: info.tenant.0,
                state: info.state,
                origin: match info.origin {
                    crate::Origin::Configured => Origin::Configured,
                    crate::Origin::Operator => Origin::Operator,
                    crate::Origin::Client(_) => Origin::Client,
                },
                class: if slo.is_some() { Class::LatencyCritical } else { Class::BestEffort },
                device: info.device,
                slo,
                tokens_needed: info.tokens_needed,
                share: Share { weight: share.weight, cap_tokens: share.cap_tokens },
                note: info.note,
                measured: info.measured,
                connections: info.connections,
                in_flight: info.in_flight,
            }
        }
    }

    /// Returns the promise that a request with this SLO or share asks for.
    fn promise(
        slo: Option<&Slo>,
        share: Option<Share>,
    ) -> Result<Promise<Option<contract::Share>>, String> {
        let slo = slo.map(Slo::to_contract).transpose()?;
        let share =
            share.map(|Share { weight, cap_tokens }| contract::Share { weight, cap_tokens });
        Ok(Promise::of(slo, share)?)
    }

    /// Returns the note of a request if it is valid.
    fn checked(note: Option<String>) -> Result<Option<String>, String> {
        note.as_deref().map_or(Ok(()), spec::Tenant::check_note)?;
        Ok(note)
    }

    impl TryFrom<ChangeTenant> for TenantChange {
        type Error = String;

        /// Converts a change to the registry's form.
        fn try_from(change: ChangeTenant) -> Result<TenantChange, String> {
            Ok(match change {
                ChangeTenant::Add(NewTenant { name, device, slo, share, note }) => {
                    let promise = promise(slo.as_ref(), share)?.over(contract::Share::default());
                    let note = checked(note)?.filter(|note| !note.is_empty());
                    let plain = spec::Tenant::new(&name);
                    TenantChange::Add(spec::Tenant { promise, device, note, ..plain })
                }
                ChangeTenant::Set(SetNamed { name, slo, share, note, device }) => {
                    let to = promise(slo.as_ref(), share)?;
                    TenantChange::Set { name, to, note: checked(note)?, device }
                }
                ChangeTenant::Remove(RemoveNamed { name }) => TenantChange::Remove { name },
            })
        }
    }

    impl Drift {
        /// Converts a device's drift, with its age at `now`.
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

    impl From<info::Admission> for Admitted {
        fn from(admission: info::Admission) -> Admitted {
            Admitted {
                name: admission.name,
                number: admission.tenant.0,
                device: admission.device,
                tokens_needed: admission.tokens_needed,
                tokens_left: admission.tokens_left,
                has_model: admission.has_model,
                share: Share {
                    weight: admission.share.weight,
                    cap_tokens: admission.share.cap_tokens,
                },
            }
        }
    }
}
