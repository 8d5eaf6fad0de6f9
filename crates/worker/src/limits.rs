//! The maxima of a worker.

use std::time::Duration;

use contract::{BLOCK_BYTES, Command, DIRECT_BYTES_MIN, REQUEST_BYTES_MAX};

/// The maxima of a worker. Every number is a maximum that is enforced; none is a target.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in one turn: the paper's batch (§4.1).
    pub batch: usize,
    /// Requests in flight over all connections; at most 65 536.
    pub in_flight: usize,
    /// The number of tenants that the tables have room for; tenants' numbers are below it.
    pub tenants: usize,
    /// Requests in flight on one connection, without those whose payload is awaited; at the limit the
    /// connection is not read from.
    pub in_flight_of_connection: usize,
    /// Bytes of replies of one connection, unsent or still to come from requests in flight; above the
    /// limit the connection is not read from.
    pub unsent_of_connection: usize,
    /// The bytes from which on the rest of a payload is received directly into its buffer.
    pub direct_min: usize,
    /// Bytes that the worker keeps for connections which it has stopped reading, over all
    /// connections. A connection that would exceed the limit is ended.
    pub carried: usize,
    /// Blocks of one device command of a discard. A longer request goes to its device in parts,
    /// each in its turn of the scheduler, so that other requests do not wait long.
    pub discard_blocks: u32,
    /// Blocks of one device command of a write of zeroes, which may cost a drive as much as data.
    pub zeroes_blocks: u32,
    /// The time within which a message must arrive completely, and replies must be read.
    pub stuck: Duration,
    /// The value of [`stuck`](Limits::stuck) while buffers, slots or frames are short and stuck
    /// connections hold them.
    pub stuck_under_pressure: Duration,
    /// The time in which a migrating connection must become quiet; otherwise it stays.
    pub quieting: Duration,
    /// The time for which a drain waits for requests in flight.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            batch: 64,
            in_flight: 8192,
            tenants: 1024,
            in_flight_of_connection: 1024,
            unsent_of_connection: 4 << 20,
            direct_min: DIRECT_BYTES_MIN,
            carried: 64 << 20,
            discard_blocks: (64 << 20) / BLOCK_BYTES as u32,
            zeroes_blocks: (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32,
            stuck: Duration::from_secs(30),
            stuck_under_pressure: Duration::from_secs(2),
            quieting: Duration::from_millis(20),
            drain: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the first part of a command, which goes to its device by itself.
    pub(crate) const fn part_of(&self, command: Command) -> Command {
        self.split(command).0
    }

    /// Returns the first part of a command, which goes to its device by itself, and the rest.
    pub(crate) const fn split(&self, command: Command) -> (Command, Option<Command>) {
        match command {
            Command::Discard(_) => command.split(self.discard_blocks),
            Command::WriteZeroes { .. } => command.split(self.zeroes_blocks),
            _ => (command, None),
        }
    }
}
