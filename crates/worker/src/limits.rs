//! The maxima of a worker.

use std::time::Duration;

use contract::{BLOCK_BYTES, Command, DIRECT_BYTES_MIN, REQUEST_BYTES_MAX};

/// The maxima of a worker. Every number is a maximum that is enforced; none is a target.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of requests that are parsed in one turn: the paper's batch (§4.1).
    pub batch: usize,
    /// Maximum number of requests in flight over all connections, itself at most 65 536.
    pub in_flight: usize,
    /// The number of tenants that the tables have room for; tenants' numbers are below it.
    pub tenants: usize,
    /// Maximum number of requests in flight on one connection, without those whose payload is
    /// awaited. At the limit, the connection is not read from.
    pub in_flight_of_connection: usize,
    /// Maximum bytes of replies of one connection, unsent or still to come from requests in flight.
    /// Above the limit, the connection is not read from.
    pub unsent_of_connection: usize,
    /// If at least so many bytes of a payload are still to come, the transport receives them
    /// directly into the payload's buffer.
    pub direct_min: usize,
    /// Maximum bytes that the worker keeps for connections which it has stopped reading, over all
    /// connections. A connection that would exceed the limit is ended.
    pub carried: usize,
    /// Maximum number of blocks of one device command of a discard. A longer request goes to its
    /// device in parts, each in its turn of the scheduler, so that other requests do not wait long.
    pub discard_blocks: u32,
    /// Maximum number of blocks of one device command of a write of zeroes, which may cost a drive
    /// as much as data. A longer request goes to its device in parts.
    pub zeroes_blocks: u32,
    /// The time within which a message must arrive completely, and replies must be read.
    pub stuck: Duration,
    /// The value of [`stuck`](Limits::stuck) while buffers, slots or frames are short and stuck
    /// connections hold them.
    pub stuck_under_pressure: Duration,
    /// The time in which a migrating connection must become quiet; otherwise it stays.
    pub quieting: Duration,
    /// The time for which a drain waits for requests in flight, before it cuts their connections.
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
    /// Returns the first device command of a request: the beginning of a large discard or write of
    /// zeroes, or else the whole command.
    pub(crate) const fn part_of(&self, command: Command) -> Command {
        self.split(command).0
    }

    /// Splits a large discard or write of zeroes into the first device command and the remainder.
    /// The remainder of every other command is `None`.
    pub(crate) const fn split(&self, command: Command) -> (Command, Option<Command>) {
        match command {
            Command::Discard(_) => command.split(self.discard_blocks),
            Command::WriteZeroes { .. } => command.split(self.zeroes_blocks),
            _ => (command, None),
        }
    }
}
