//! `[limits]`: limits on resources and times.

use contract::BLOCK_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mistake, size_in_blocks};

/// Limits on resources and times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Most requests in flight on a worker.
    pub in_flight: Option<usize>,
    /// Most tenants of the whole server, including tenants that are leaving.
    pub tenants: Option<usize>,
    /// Most requests in flight on one connection.
    pub in_flight_of_connection: Option<usize>,
    /// Bytes of unread replies of a connection at which the server stops reading from it.
    pub unsent_of_connection: Option<String>,
    /// Most bytes that a worker keeps of connections that it has stopped reading from. A connection
    /// that would exceed the limit is ended.
    pub carried: Option<String>,
    /// Most connections of all workers together. A lower limit of descriptors takes precedence.
    pub connections: Option<usize>,
    /// Seconds that a message may take to arrive, and that a client may take to read its replies.
    pub stuck_seconds: Option<usize>,
    /// Seconds that a drain waits for requests in flight.
    pub drain_seconds: Option<usize>,
}

impl Limits {
    /// Returns the number of bytes of a limit that is a size.
    ///
    /// # Errors
    /// Fails with the key if the text is no size.
    pub fn bytes(key: &'static str, text: &str) -> Result<usize, Mistake> {
        let blocks = size_in_blocks(text).map_err(|error| (key, format!("limits.{key}: {error}")));
        Ok(blocks? as usize * BLOCK_BYTES)
    }
}
