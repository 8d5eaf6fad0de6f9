//! The load generator: sends requests and measures them.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{BLOCK_BYTES, Buf, BufPool, Command, Instant, IoKind, Range, Status};

use super::arrivals::{Arrival, Arrivals};
use super::path::{Ended, Path};
use super::pattern::{Pattern, Places};
use super::tally::Tally;
use super::verify::{Failure, SpanTooLarge, Verifier, unit_bytes};
use crate::Random;

/// The rule for the send times of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each place in flight sends its next request when its last request has ended.
    Closed,
    /// Open loop: send times do not depend on the progress of requests.
    Open {
        /// Arrivals per second, above zero.
        per_second: f64,
        /// The distribution of the gaps between arrivals.
        arrival: Arrival,
    },
}

/// The parameters of a load.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Share of reads in percent, 0 to 100.
    pub read_percent: u8,
    /// Size of a request in bytes, a multiple of 512.
    pub request_bytes: usize,
    /// Number of lanes: connections, if the path has connections.
    pub lanes: usize,
    /// Number of requests in flight on each connection.
    pub queue_depth: usize,
    /// The rule for the send times.
    pub pace: Pace,
    /// The order in which requests visit the addresses of the span.
    pub pattern: Pattern,
    /// First block of the span.
    pub first_lba: u64,
    /// Size of the span in bytes; at least one request.
    pub span_bytes: u64,
    /// If `true`, writes must be durable before they are acknowledged (forced unit access).
    pub fua: bool,
    /// If set, writes carry identifying contents, and reads are checked. The number distinguishes
    /// this run from earlier ones.
    pub verify: Option<u32>,
    /// If set, an additional lane sends a read this long after its last read has ended. Its latency
    /// is that of a client that makes no load.
    pub probe: Option<Duration>,
    /// Warm-up time: requests that end before are not measured.
    pub warmup: Duration,
    /// Measured time after the warm-up.
    pub duration: Duration,
    /// Seed of the addresses, kinds and arrivals.
    pub seed: u64,
}

impl Shape {
    /// Returns the maximum number of requests in flight, the probe's included.
    pub fn in_flight_max(&self) -> usize {
        self.lanes * self.queue_depth + usize::from(self.probe.is_some())
    }

    fn units(&self) -> usize {
        self.request_bytes / unit_bytes(self.request_bytes)
    }
}

/// Maximum time to wait for requests that are in flight at the end.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Maximum number of failures kept for display.
const FAILURES_KEPT: usize = 8;

/// A load generator: sends requests on a [`Path`] and measures them.
#[derive(Debug)]
pub struct Generator<P> {
    path: P,
    shape: Shape,
    pool: BufPool,
    chooser: Chooser,
    arrivals: Option<Arrivals>,
    verifier: Option<Verifier>,
    /// Requests in flight, by the path's index.
    flights: Vec<Option<Flight>>,
    in_flight: usize,
    /// The lane of each free place in flight. Entries are taken from the front, so that lanes take
    /// turns.
    free: VecDeque<usize>,
    probe_at: Option<Instant>,
    /// For each request in flight, by its index: the oldest generation of contents that the read
    /// may find in each of its units, as [`Verifier::begin_read`] records it.
    oldest: Vec<u32>,
    measured_from: Instant,
    until: Instant,
    tally: Tally,
    failures: Vec<Failure>,
    ended: Vec<Ended>,
}

/// The random choices of a load: addresses, and reads or writes.
#[derive(Debug)]
struct Chooser {
    random: Random,
    places: Places,
    /// Writes that are due in an even mix, in hundredths of a write; below 100 after each choice.
    writes_owed: u32,
}

impl Chooser {
    fn range(&mut self, shape: &Shape) -> Range {
        let blocks = (shape.request_bytes / BLOCK_BYTES) as u32;
        let place = self.places.draw(&mut self.random);
        Range::new(shape.first_lba + place * u64::from(blocks), blocks)
    }

    /// Returns `true` for a read. Kinds are evenly mixed if arrivals are evenly spaced, else
    /// random.
    fn is_read(&mut self, shape: &Shape) -> bool {
        let percent = u32::from(shape.read_percent);
        if let Pace::Open { arrival: Arrival::Constant, .. } = shape.pace {
            self.writes_owed += 100 - percent;
            let write = self.writes_owed >= 100;
            self.writes_owed -= if write { 100 } else { 0 };
            return !write;
        }
        match percent {
            100 => true,
            0 => false,
            percent => self.random.below(100) < u64::from(percent),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    /// The time at which the request was to be sent, from which its latency counts.
    intended: Instant,
    command: Command,
    lane: usize,
}

impl<P: Path> Generator<P> {
    /// Returns a generator that starts at `now`. The pool needs a buffer for each request in
    /// flight. If reads on this path need no buffers and are not verified, buffers for the writes
    /// suffice.
    ///
    /// # Errors
    /// The span is too large to be verified.
    ///
    /// # Panics
    /// If the shape is invalid (no lanes, no span), or the path takes fewer requests than the shape
    /// asks for.
    pub fn new(now: Instant, shape: Shape, path: P, pool: BufPool) -> Result<Self, SpanTooLarge> {
        assert!(shape.lanes > 0 && shape.queue_depth > 0, "there is a place in flight");
        assert!(shape.in_flight_max() <= path.in_flight_max(), "the path takes what is asked for");
        assert!(shape.request_bytes > 0 && shape.request_bytes.is_multiple_of(BLOCK_BYTES));
        let mut random = Random::new(shape.seed);
        let verifier = match shape.verify {
            None => None,
            Some(run) => {
                let lingers = path.lost_writes_linger();
                let (first, span) = (shape.first_lba, shape.span_bytes);
                Some(Verifier::new(run, first, span, shape.request_bytes, lingers)?)
            }
        };
        let arrivals = match shape.pace {
            Pace::Closed => None,
            Pace::Open { per_second, arrival } => {
                Some(Arrivals::new(arrival, per_second, now, &mut random))
            }
        };
        let pool = match shape.read_percent {
            100 => pool,
            _ => fill(pool, shape.request_bytes, &mut random),
        };
        let in_flight_max = path.in_flight_max();
        let places = Places::new(shape.pattern, shape.span_bytes / shape.request_bytes as u64);
        let oldest = if verifier.is_some() { in_flight_max * shape.units() } else { 0 };
        Ok(Generator {
            chooser: Chooser { random, places, writes_owed: 0 },
            arrivals,
            verifier,
            flights: vec![None; in_flight_max],
            in_flight: 0,
            free: (0..shape.queue_depth).flat_map(|_| 0..shape.lanes).collect(),
            probe_at: shape.probe.map(|_| now),
            oldest: vec![0; oldest],
            measured_from: now + shape.warmup,
            until: now + shape.warmup + shape.duration,
            tally: Tally::new(),
            failures: Vec::with_capacity(FAILURES_KEPT),
            ended: Vec::with_capacity(in_flight_max),
            path,
            pool,
            shape,
        })
    }

    /// Handles ended requests and sends due ones. Returns `true` if anything happened.
    pub fn turn(&mut self, now: Instant) -> bool {
        let mut ended = std::mem::take(&mut self.ended);
        let mut progressed = self.path.turn(now, &mut ended);
        for request in ended.drain(..) {
            self.take(now, request);
        }
        self.ended = ended;
        if now < self.until {
            progressed |= self.send(now);
        }
        self.path.flush(now);
        progressed
    }

    /// Returns `true` once the measured time is over, and all requests have ended or the time to
    /// wait for them has passed.
    pub fn is_finished(&self, now: Instant) -> bool {
        now >= self.until && (self.in_flight == 0 || now >= self.until + DRAIN_MAX)
    }

    /// Returns the time at which the next turn is due if no event comes first.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let mut at = self.path.wake_at().unwrap_or(Instant::from_nanos(u64::MAX));
        if now >= self.until {
            return Some(at.min(self.until + DRAIN_MAX));
        }
        at = at.min(self.until);
        if let Some(arrivals) = &self.arrivals
            && !self.free.is_empty()
        {
            at = at.min(arrivals.next());
        }
        if let Some(probe_at) = self.probe_at {
            at = at.min(probe_at);
        }
        Some(at)
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Ends the measured time now, if it is not over: no further requests are sent.
    pub fn stop(&mut self, now: Instant) {
        self.until = self.until.min(now);
    }

    /// Returns the pool once nothing is in flight.
    ///
    /// # Panics
    /// If a request is in flight.
    pub fn into_pool(self) -> BufPool {
        assert!(self.in_flight == 0, "buffers are in flight");
        self.pool
    }

    /// Returns the beginning and the end of the measured time.
    pub fn measured(&self) -> (Instant, Instant) {
        (self.measured_from, self.until)
    }

    /// Returns the number of arrivals in the measured time that were never sent, because no place
    /// became free. More than a few mean that the target cannot sustain the rate.
    pub fn unsent(&self) -> u64 {
        self.arrivals.as_ref().map_or(0, |arrivals| arrivals.overdue(self.until))
    }

    /// Adds the counts and latencies measured since the last call to `sum`.
    pub fn report(&mut self, sum: &mut Tally) {
        sum.add(&self.tally);
        self.tally.reset();
    }

    /// Returns the first few verification failures.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the path on which the generator sends its requests.
    pub fn path(&mut self) -> &mut P {
        &mut self.path
    }

    fn send(&mut self, now: Instant) -> bool {
        let before = self.in_flight;
        if self.probe_at.is_some_and(|at| at <= now) && self.path.room() > 0 {
            self.probe_at = None;
            let range = self.chooser.range(&self.shape);
            self.submit(now, now, self.shape.lanes, Command::Read(range));
        }
        while !self.free.is_empty() && self.path.room() > 0 {
            let intended = match &mut self.arrivals {
                None => now,
                Some(arrivals) => {
                    let intended = arrivals.next();
                    if intended > now {
                        break;
                    }
                    arrivals.advance(&mut self.chooser.random);
                    intended
                }
            };
            let lane = self.free.pop_front().expect("there is a free place");
            let command = self.choose();
            self.submit(now, intended, lane, command);
        }
        self.in_flight > before
    }

    fn choose(&mut self) -> Command {
        let range = self.chooser.range(&self.shape);
        let read = self.chooser.is_read(&self.shape);
        // Two concurrent writes of one place could not be verified: the second becomes a read.
        let taken = |verifier: &Verifier| !verifier.may_write(range.lba, self.shape.request_bytes);
        if read || self.verifier.as_ref().is_some_and(taken) {
            Command::Read(range)
        } else {
            Command::Write { range, fua: self.shape.fua }
        }
    }

    fn submit(&mut self, now: Instant, intended: Instant, lane: usize, command: Command) {
        let bytes = self.shape.request_bytes;
        let lba = command.range().expect("reads and writes have a range").lba;
        let is_read = command.kind() == IoKind::Read;
        let needs_buffer =
            !is_read || self.verifier.is_some() || self.path.reads_need_buffers(bytes);
        let mut buf = needs_buffer
            .then(|| self.pool.take(bytes).expect("the pool has a buffer for each request"));
        if let (Some(verifier), Some(buf), false) = (&mut self.verifier, &mut buf, is_read) {
            verifier.begin_write(lba, buf.prefix_mut(bytes));
        }
        let index = self.path.submit(now, lane, command, buf);
        if let (Some(verifier), true) = (&self.verifier, is_read) {
            let units = self.shape.units();
            verifier.begin_read(lba, bytes, &mut self.oldest[index * units..][..units]);
        }
        let before = self.flights[index].replace(Flight { intended, command, lane });
        assert!(before.is_none(), "an index names one request");
        self.in_flight += 1;
    }

    fn take(&mut self, now: Instant, ended: Ended) {
        let Ended { index, status, buf } = ended;
        let flight = self.flights[index].take().expect("only what is in flight ends");
        self.in_flight -= 1;
        if self.verifier.is_some() {
            self.verify(index, &flight, status, buf.as_ref());
        }
        if let Some(buf) = buf {
            self.pool.give(buf);
        }
        let is_probe = flight.lane == self.shape.lanes;
        if is_probe {
            self.probe_at = self.shape.probe.map(|gap| now + gap);
        } else {
            self.free.push_back(flight.lane);
        }
        if now < self.measured_from {
            return;
        }
        if !status.is_ok() {
            self.tally.errors += 1;
            return;
        }
        let side = match is_probe {
            true => &mut self.tally.probe,
            false => self.tally.side(flight.command.kind()),
        };
        side.record(now.since(flight.intended), now < self.until);
    }

    fn verify(&mut self, index: usize, flight: &Flight, status: Status, buf: Option<&Buf>) {
        let Some(verifier) = &mut self.verifier else { return };
        let bytes = self.shape.request_bytes;
        let lba = flight.command.range().expect("reads and writes have a range").lba;
        if flight.command.kind() != IoKind::Read {
            verifier.end_write(lba, bytes, status);
        } else if status.is_ok() {
            let data = &buf.expect("verified reads have a buffer").bytes()[..bytes];
            let units = self.shape.units();
            verifier.end_read(lba, data, &self.oldest[index * units..][..units], |failure| {
                self.tally.verify_failures += 1;
                if self.failures.len() < FAILURES_KEPT {
                    self.failures.push(failure);
                }
            });
        }
    }
}

/// Fills every buffer with random bytes, so that written data does not compress.
fn fill(pool: BufPool, bytes: usize, random: &mut Random) -> BufPool {
    BufPool::new(pool.into_bufs().map(|mut buf| {
        let len = bytes.min(buf.capacity());
        for piece in buf.prefix_mut(len).chunks_exact_mut(8) {
            piece.copy_from_slice(&random.bits().to_le_bytes());
        }
        buf
    }))
}
