//! The JSON bodies of the admin API for the server's activity: `/v1/flows` and
//! `/v1/tenants/NAME/stages`.

use contract::{Stage, TurnPart};
use qos::WAITS_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flows::TokenFlow;

/// The activity of a device in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowOfDevice {
    /// Name of the device.
    pub name: String,
    /// Successful requests per second.
    pub iops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// p95 of sampled reads at the device in microseconds: the upper edge of a bucket that is twice
    /// as wide as the one below it; `null` without samples.
    pub p95_us: Option<f64>,
    /// Number of requests at the device.
    pub depth: u32,
    /// Number of requests that wait in its schedulers.
    pub queued: u32,
    /// The flow of its tokens.
    pub tokens: TokenFlow,
}

/// The time per stage of the last second's sampled reads: p95 in microseconds, the upper edge of a
/// bucket that is twice as wide as the one below it; `null` without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageTails {
    /// From the last byte of a request to its submission.
    pub scheduler_us: Option<f64>,
    /// At the device.
    pub device_us: Option<f64>,
    /// From the socket to the time when the network has taken the reply.
    pub reply_us: Option<f64>,
}

/// The activity of a worker in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowOfWorker {
    /// Number of the worker.
    pub number: usize,
    /// Share of the time in which the worker was busy, in percent.
    pub busy_percent: f64,
    /// Share of the time for which the worker's thread was ready to run and did not, in percent.
    #[serde(default)]
    pub waited_percent: f64,
    /// Turns per second that did something.
    pub turns: f64,
    /// Successful requests per second.
    #[serde(default)]
    pub iops: f64,
    /// Bytes read per second.
    #[serde(default)]
    pub read_bytes: f64,
    /// Bytes written per second.
    #[serde(default)]
    pub written_bytes: f64,
    /// The time per stage of its reads.
    #[serde(default)]
    pub stages: StageTails,
    /// Number of open connections.
    pub connections: u32,
    /// Number of requests in flight.
    pub in_flight: u32,
    /// Number of buffers in use.
    pub buffers: u32,
    /// Parts of its busy time in percent: network, protocol, scheduling, device, kernel, upkeep.
    pub parts: [f64; TurnPart::ALL.len()],
}

/// The activity of a namespace in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowOfNamespace {
    /// Number of the namespace.
    pub number: u16,
    /// Successful requests per second.
    pub iops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// The time per stage of its reads.
    #[serde(default)]
    pub stages: StageTails,
}

/// The server's activity in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flows {
    /// The devices, in the order of configuration.
    pub devices: Vec<FlowOfDevice>,
    /// The workers, by number.
    pub workers: Vec<FlowOfWorker>,
    /// The namespaces that were ever used, by number.
    pub namespaces: Vec<FlowOfNamespace>,
    /// The verdict on a machine whose workers wait for processors, so that latencies are not those
    /// of the devices; `null` if the workers get the time that they need.
    #[serde(default)]
    pub overcommitted: Option<String>,
}

impl FlowOfWorker {
    /// Returns `true` if the worker waited for a processor for a larger share of the last second
    /// than [`WAITS_MAX`].
    pub fn is_starved(&self) -> bool {
        self.waited_percent > 100.0 * WAITS_MAX
    }
}

impl From<[Option<f64>; Stage::ALL.len()]> for StageTails {
    fn from([scheduler_us, device_us, reply_us]: [Option<f64>; Stage::ALL.len()]) -> StageTails {
        StageTails { scheduler_us, device_us, reply_us }
    }
}

/// The time per stage of a tenant's requests since the tenant was added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stages {
    /// Upper edges of the buckets in microseconds; one more bucket has no edge.
    pub edges_us: Vec<f64>,
    /// Reads by latency.
    pub latency: Vec<u64>,
    /// Sampled reads by their time in the scheduler.
    pub scheduler: Vec<u64>,
    /// Sampled reads by their time at the device.
    pub device: Vec<u64>,
    /// Sampled reads by the time that the network took for their replies.
    pub reply: Vec<u64>,
}
