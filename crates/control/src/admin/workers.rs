//! The JSON bodies of the admin API for workers and connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::commands::WorkerState;

/// A connection of a client or host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Identifier of the connection, `WORKER:PLACE.GENERATION`. A move changes it.
    pub id: String,
    /// Number of the worker that serves the connection.
    pub worker: usize,
    /// Address of the peer.
    pub peer: String,
    /// The transport by which the peer came: `tcp` (with TLS or without), `udp` or `unix`.
    #[serde(default)]
    pub transport: String,
    /// The connection's tenant; `null` while it has no rights.
    pub tenant: Option<String>,
    /// Number of the listener that accepted the connection.
    #[serde(default)]
    pub listener: u16,
    /// Number of its requests in flight.
    pub in_flight: u32,
    /// Number of messages received on it at this worker; wraps at 2³².
    pub messages: u32,
    /// `true` if the connection's session can move.
    pub can_move: bool,
    /// `true` if its end has begun: it accepts no more requests.
    #[serde(default)]
    pub ending: bool,
}

/// The list of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// The connections, ordered by worker.
    pub connections: Vec<Connection>,
    /// Number of all connections, including those not listed.
    #[serde(default)]
    pub total: usize,
}

/// The destination of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveTo {
    /// Number of the worker that is to serve the connection.
    pub to: usize,
}

/// The deadline for a connection's requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndConnection {
    /// Time in milliseconds, at most a day, after which the connection ends in any case; 10 000 by
    /// default.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
}

/// The result of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HasMoved {
    /// New identifier of the connection.
    pub id: String,
    /// Number of the worker that serves the connection now.
    pub worker: usize,
    /// Time in microseconds during which the connection was not received from.
    pub pause_us: u64,
}

/// A change of a worker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWorker {
    /// `active`, or `parked`. A parked worker is first `retiring`, until it has moved its
    /// connections away.
    pub state: WorkerState,
    /// For `parked`: time in milliseconds after which connections end that cannot move; none by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Maximum deadline of a drain: a day, in milliseconds.
pub(super) const DEADLINE_MS_MAX: u64 = 86_400_000;

/// The filter for a list of connections.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ConnectionFilter {
    /// Maximum number of connections; all by default.
    pub(super) limit: Option<usize>,
    /// Text that the tenant or the peer must contain.
    pub(super) search: Option<String>,
}
