//! The JSON bodies of the admin API for the dashboard: `/v1/history`, `/v1/standing` and
//! `/v1/devices/NAME/model`.

use qos::{DeviceModel, Percentile, RatePoint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::TenantStatus;
use crate::history::{self, SecondOfDevice};
use crate::standing::Standing;
use crate::totals::TOKEN;

/// The number of tenants by standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Standings {
    /// Tenants whose reads exceeded their latency bound.
    pub late: u32,
    /// Tenants that demanded more than their SLO, so that the latency bound did not hold.
    pub over: u32,
    /// Tenants whose SLO was met.
    pub kept: u32,
    /// Tenants without an SLO that were active.
    pub best_effort: u32,
    /// Tenants that were inactive.
    pub idle: u32,
    /// Tenants that were removed.
    pub leaving: u32,
}

/// A histogram of read latencies, without the empty buckets at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reads {
    /// Number of the first bucket.
    pub from: usize,
    /// Reads in this bucket and in the following ones.
    pub counts: Vec<u32>,
}

/// The server's figures of one second, or of one minute: then rates are means, and standings and
/// latencies of devices those of the worst second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Number of the second or minute, counted from the start of the server.
    pub number: u64,
    /// Time since its end, in seconds.
    pub age: f64,
    /// Requests answered per second.
    pub requests: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// Failed requests per second, without those that were refused as busy.
    pub failures: f64,
    /// The number of tenants by standing.
    pub standings: Standings,
    /// The latencies of reads.
    pub reads: Reads,
    /// The devices, in the order of configuration.
    pub devices: Vec<SecondOfDevice>,
}

/// The figures of the last five minutes, or of the last day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The version of the server.
    pub version: String,
    /// Upper edges of the latency buckets in microseconds; one more bucket has no edge.
    pub edges_us: Vec<f64>,
    /// Names of the devices.
    pub devices: Vec<String>,
    /// The seconds or minutes, oldest first.
    pub seconds: Vec<Second>,
}

impl From<history::Window> for Second {
    fn from(window: history::Window) -> Second {
        Second {
            number: window.number,
            age: 0.0,
            requests: window.requests,
            read_bytes: window.bytes[0],
            written_bytes: window.bytes[1],
            failures: window.failures,
            standings: window.standings.into(),
            reads: Reads::of(&window.reads),
            devices: window.devices,
        }
    }
}

impl From<[u32; Standing::ALL.len()]> for Standings {
    /// Converts counts in the order of [`Standing::ALL`].
    fn from(counts: [u32; Standing::ALL.len()]) -> Standings {
        let [late, over, kept, best_effort, idle, leaving] = counts;
        Standings { late, over, kept, best_effort, idle, leaving }
    }
}

impl Reads {
    fn of(counts: &[u32]) -> Reads {
        let Some(from) = counts.iter().position(|count| *count > 0) else {
            return Reads::default();
        };
        let to = counts.iter().rposition(|count| *count > 0).expect("there is one");
        Reads { from, counts: counts[from..=to].to_vec() }
    }
}

/// A tenant with its standing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantStanding {
    /// The tenant's standing in the last second.
    pub standing: Standing,
    /// Measured tail latency as a share of its bound; `null` without reads or SLO.
    pub tail_share: Option<f64>,
    /// The tenant.
    pub tenant: TenantStatus,
}

/// The list of tenants with their standings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StandingList {
    /// Number of all tenants.
    pub total: usize,
    /// Number of tenants whose name contains the search text.
    pub matched: usize,
    /// Number of tenants by standing, over all tenants.
    pub standings: Standings,
    /// The first matching tenants in the requested order.
    pub tenants: Vec<TenantStanding>,
}

/// The rate of a device at a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Tail latency of reads in microseconds.
    pub latency_us: u32,
    /// Tokens per second of a mixed load.
    pub mixed: u64,
    /// Tokens per second of a read-only load, at the price of a read in a mixed load.
    pub read_only: u64,
}

/// The model of a device: as measured, before corrections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// Rates by latency at the 95th percentile.
    pub p95: Vec<Rate>,
    /// Rates by latency at the 99th percentile; empty if not measured.
    pub p99: Vec<Rate>,
    /// Tokens per second without a latency bound.
    pub tokens_max: u64,
    /// Price of a write of 4 KiB in tokens.
    pub write_price: f64,
    /// Price of a read of 4 KiB in a read-only load, in tokens.
    pub read_only_price: f64,
}

impl From<&DeviceModel> for Model {
    fn from(model: &DeviceModel) -> Model {
        let rates = |percentile| model.points_at(percentile).iter().map(Rate::from).collect();
        let price = |units: u32| f64::from(units) / TOKEN as f64;
        Model {
            p95: rates(Percentile::P95),
            p99: rates(Percentile::P99),
            tokens_max: model.rate_max() / TOKEN,
            write_price: price(model.cost().write()),
            read_only_price: price(model.cost().read_only_read()),
        }
    }
}

impl From<&RatePoint> for Rate {
    fn from(point: &RatePoint) -> Rate {
        Rate {
            latency_us: point.latency_us,
            mixed: point.mixed / TOKEN,
            read_only: point.read_only / TOKEN,
        }
    }
}
