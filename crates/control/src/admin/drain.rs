//! The drain of the whole server, which ends once no connection is left, as on SIGTERM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameters of a drain of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainServer {
    /// Time in milliseconds, at most a day, after which connections with requests in flight end in
    /// any case. The default is `limits.drain_seconds` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// The state of the server's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// The state.
    pub state: DrainState,
    /// Number of connections.
    pub connections: usize,
    /// Number of requests in flight, as last reported by the workers.
    pub in_flight: u64,
    /// Remaining time in milliseconds until connections end in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// The state of a server that may drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DrainState {
    /// The server accepts connections.
    Serving,
    /// The server refuses new connections, and ends once no connection is left.
    Draining,
}
