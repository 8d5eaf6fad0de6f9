//! Sources of requests: open loops, which ignore the fate of their requests, and closed loops,
//! which keep a number of requests in flight.

use contract::{BLOCK_BYTES, Command, Range};
use flash::Chance;

use super::meter::Meter;

/// The times at which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loop {
    /// Requests a second, at random and independent of each other (Poisson).
    Random(f64),
    /// Requests a second, evenly spaced, as from a client that keeps to its SLO.
    Paced(f64),
    /// Requests in flight on each connection; each reply triggers the next request.
    Closed(u32),
}

/// The load of a tenant, or of several tenants with equal loads.
#[derive(Clone, Debug)]
pub struct Load {
    /// The times at which requests are sent.
    pub arrivals: Loop,
    /// The share of reads, from 0 to 1. A paced loop mixes evenly, others at random.
    pub reads: f64,
    /// The size of a request in bytes: whole blocks of 512.
    pub bytes: u32,
}

/// A tenant's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) worker: usize,
    /// The connection's number at that worker.
    pub(crate) line: u32,
}

/// A load on its connections.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) load: Load,
    pub(crate) lines: Vec<Line>,
    pub(crate) meter: Meter,
    pub(crate) is_on: bool,
    /// `true` if a request refused with `Retry` is dropped instead of sent again.
    pub(crate) gives_up: bool,
    /// The number of starts and stops, by which events of earlier starts are recognized and
    /// ignored.
    pub(crate) epoch: u32,
    /// The nanoseconds of the next arrival, with the fraction.
    next: f64,
    /// Fractional writes that are due in an even mix.
    owed_writes: f64,
    turn: usize,
}

impl Source {
    pub(crate) fn new(load: Load, lines: Vec<Line>) -> Source {
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

    /// Starts an open loop at `now`. Returns when its first request arrives.
    pub(crate) fn begin(&mut self, now: u64, chance: &mut Chance) -> u64 {
        let gap = 1e9 / self.rate();
        self.next = now as f64 + gap * unit(chance);
        self.next as u64
    }

    /// Returns when the next request of an open loop arrives.
    pub(crate) fn advance(&mut self, chance: &mut Chance) -> u64 {
        let gap = 1e9 / self.rate();
        self.next += match self.load.arrivals {
            Loop::Random(_) => -libm::log(1.0 - unit(chance)) * gap,
            Loop::Paced(_) | Loop::Closed(_) => gap,
        };
        self.next as u64
    }

    fn rate(&self) -> f64 {
        match self.load.arrivals {
            Loop::Random(rate) | Loop::Paced(rate) => rate,
            Loop::Closed(_) => panic!("a closed loop has no rate of its own"),
        }
    }

    /// Picks the connection of the next request of an open loop.
    pub(crate) fn pick(&mut self, chance: &mut Chance) -> usize {
        if let Loop::Random(_) = self.load.arrivals {
            return chance.within(0..=self.lines.len() as u64 - 1) as usize;
        }
        self.turn = (self.turn + 1) % self.lines.len();
        self.turn
    }

    /// Returns the next request, at a random place on a device of this many blocks.
    pub(crate) fn command(&mut self, blocks: u64, chance: &mut Chance) -> Command {
        let is_read = match self.load.arrivals {
            Loop::Paced(_) => {
                self.owed_writes += 1.0 - self.load.reads;
                let write = self.owed_writes >= 1.0 - 1e-9;
                self.owed_writes -= if write { 1.0 } else { 0.0 };
                !write
            }
            Loop::Random(_) | Loop::Closed(_) => unit(chance) < self.load.reads,
        };
        let blocks_each = self.load.bytes / BLOCK_BYTES as u32;
        let step = u64::from(blocks_each).max(8);
        let range = Range::new(chance.within(0..=blocks / step - 1) * step, blocks_each);
        if is_read { Command::Read(range) } else { Command::Write { range, fua: false } }
    }
}

/// Returns a number in [0, 1), the same on every machine.
pub(crate) fn unit(chance: &mut Chance) -> f64 {
    (chance.number() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}
