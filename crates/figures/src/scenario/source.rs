//! Sources of requests. Open loops send at given times, whatever becomes of their requests. Closed
//! loops keep a number of requests in flight.

use contract::{BLOCK_BYTES, Command, Range};
use flash::Rng;

use super::meter::Meter;

/// The rule for the times at which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SendingRule {
    /// An open loop of this many requests a second, at random and independent of each other
    /// (Poisson).
    Random(f64),
    /// An open loop of this many requests a second, evenly spaced, as from a client that keeps to
    /// its SLO.
    Paced(f64),
    /// A closed loop with this many requests in flight on each connection: each reply triggers the
    /// next request.
    Closed(u32),
}

/// The load of a tenant, or of several tenants with equal loads.
#[derive(Clone, Debug)]
pub struct Load {
    /// The rule for the times at which requests are sent.
    pub arrivals: SendingRule,
    /// The share of reads, from 0 to 1. A paced loop mixes reads and writes evenly, other loops at
    /// random.
    pub reads: f64,
    /// The size of a request in bytes: whole blocks of 512.
    pub bytes: u32,
}

/// A connection of a load: the worker that serves the connection, and its index at that worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadConnection {
    pub(crate) worker: usize,
    /// The connection's number at its worker.
    pub(crate) line: u32,
}

/// A load on the simulated server: its connections, measurements and state.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) load: Load,
    pub(crate) lines: Vec<LoadConnection>,
    pub(crate) meter: Meter,
    pub(crate) is_on: bool,
    /// `true` if a request refused with `Retry` is dropped instead of sent again.
    pub(crate) gives_up: bool,
    /// The number of starts and stops so far. Events that an earlier start planned are recognized
    /// by it and ignored.
    pub(crate) epoch: u32,
    /// The virtual time of the next arrival of an open loop, in nanoseconds with a fraction.
    next: f64,
    /// The writes that are due in an evenly mixed load, with a fraction; at 1 the next request is a
    /// write.
    owed_writes: f64,
    turn: usize,
}

impl Source {
    pub(crate) fn new(load: Load, lines: Vec<LoadConnection>) -> Source {
        assert!(!lines.is_empty(), "a source needs a connection");
        Source {
            load,
            lines,
            meter: Meter::default(),
            is_on: false,
            gives_up: false,
            epoch: 0,
            next: 0.0,
            owed_writes: 0.0,
            turn: 0,
        }
    }

    /// Starts an open loop at `now`. Returns the time at which its first request is due, in
    /// nanoseconds.
    pub(crate) fn begin(&mut self, now: u64, chance: &mut Rng) -> u64 {
        let gap = 1e9 / self.rate();
        self.next = now as f64 + gap * unit(chance);
        self.next as u64
    }

    /// Plans the next request of an open loop. Returns the time at which it is due, in nanoseconds.
    pub(crate) fn advance(&mut self, chance: &mut Rng) -> u64 {
        let gap = 1e9 / self.rate();
        self.next += match self.load.arrivals {
            SendingRule::Random(_) => -libm::log(1.0 - unit(chance)) * gap,
            SendingRule::Paced(_) | SendingRule::Closed(_) => gap,
        };
        self.next as u64
    }

    fn rate(&self) -> f64 {
        match self.load.arrivals {
            SendingRule::Random(rate) | SendingRule::Paced(rate) => rate,
            SendingRule::Closed(_) => panic!("a closed loop has no rate of its own"),
        }
    }

    /// Picks the connection of the next request of an open loop: at random, or in turn for a paced
    /// loop. Returns its index in `lines`.
    pub(crate) fn pick(&mut self, chance: &mut Rng) -> usize {
        if let SendingRule::Random(_) = self.load.arrivals {
            return chance.within(0..=self.lines.len() as u64 - 1) as usize;
        }
        self.turn = (self.turn + 1) % self.lines.len();
        self.turn
    }

    /// Returns the next request of the load: a read or a write at a random place on a device of
    /// `blocks` blocks.
    pub(crate) fn command(&mut self, blocks: u64, chance: &mut Rng) -> Command {
        let is_read = match self.load.arrivals {
            SendingRule::Paced(_) => {
                self.owed_writes += 1.0 - self.load.reads;
                let write = self.owed_writes >= 1.0 - 1e-9;
                self.owed_writes -= if write { 1.0 } else { 0.0 };
                !write
            }
            SendingRule::Random(_) | SendingRule::Closed(_) => unit(chance) < self.load.reads,
        };
        let blocks_each = self.load.bytes / BLOCK_BYTES as u32;
        let step = u64::from(blocks_each).max(8);
        let range = Range::new(chance.within(0..=blocks / step - 1) * step, blocks_each);
        if is_read { Command::Read(range) } else { Command::Write { range, fua: false } }
    }
}

/// Returns a random number in [0, 1), whose value for a seed is equal on every machine.
pub(crate) fn unit(chance: &mut Rng) -> f64 {
    (chance.number() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}
