//! Makes requests, and measures them.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{BLOCK_BYTES, Buf, BufPool, Command, Instant, Kind, Range, Status};

use super::arrivals::{Arrival, Arrivals};
use super::path::{Ended, Path};
use super::pattern::{Pattern, Places};
use super::tally::Tally;
use super::verify::{Failure, SpanTooLarge, Verifier, unit_bytes};
use crate::Random;

/// When a request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each place in flight sends its next request when the last one has ended.
    Closed,
    /// Open loop: at times that do not depend on how the requests fare.
    Open {
        /// Arrivals a second, above zero.
        per_second: f64,
        /// How they follow one another.
        arrival: Arrival,
    },
}

/// What load to make.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Bytes of a request, a multiple of 512.
    pub request_bytes: usize,
    /// Connections.
    pub lanes: usize,
    /// Requests in flight on each.
    pub queue_depth: usize,
    /// When requests are sent.
    pub pace: Pace,
    /// Which addresses they name.
    pub pattern: Pattern,
    /// First block of the span.
    pub first_lba: u64,
    /// Bytes of the span; at least one request.
    pub span_bytes: u64,
    /// Writes are durable before they are acknowledged.
    pub fua: bool,
    /// Write contents that tell who they are, and check what is read; the number tells this run
    /// from earlier ones.
    pub verify: Option<u32>,
    /// A lane of its own, behind the others, on which a read is sent this long after the last one
    /// ended: what a client that makes no load sees.
    pub probe: Option<Duration>,
    /// Requests that end before this are not measured.
    pub warmup: Duration,
    /// How long requests are measured, after the warm-up.
    pub duration: Duration,
    /// Seed of addresses, kinds and arrivals.
    pub seed: u64,
}

impl Shape {
    /// Requests in flight at most, the probe's included.
    pub fn in_flight_max(&self) -> usize {
        self.lanes * self.queue_depth + usize::from(self.probe.is_some())
    }

    fn units(&self) -> usize {
        self.request_bytes / unit_bytes(self.request_bytes)
    }
}

/// How long requests that are still in flight at the end are waited for.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Failures that are kept to be shown.
const FAILURES_KEPT: usize = 8;

/// Makes requests on a [`Path`] and measures them.
#[derive(Debug)]
pub struct Generator<P> {
    path: P,
    shape: Shape,
    pool: BufPool,
    random: Random,
    places: Places,
    arrivals: Option<Arrivals>,
    verifier: Option<Verifier>,
    /// What is in flight, by the path's index.
    flights: Vec<Option<Flight>>,
    in_flight: usize,
    /// One entry for each free place in flight: the lane it is on. Taken from the front, so that
    /// lanes take turns.
    free: VecDeque<usize>,
    probe_at: Option<Instant>,
    /// For each index, the oldest generations that its read may find.
    oldest: Vec<u32>,
    /// Hundredths of a write that are due in an even mix; below 100 after each choice.
    writes_owed: u32,
    measured_from: Instant,
    until: Instant,
    tally: Tally,
    failures: Vec<Failure>,
    ended: Vec<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    /// When it was meant to be sent.
    intended: Instant,
    command: Command,
    lane: usize,
}

impl<P: Path> Generator<P> {
    /// A generator that starts at `now`. The pool has a buffer for each request in flight that
    /// needs one (all of them, or without verification on a path whose reads need none, the
    /// writes).
    ///
    /// # Errors
    /// The span is too large to be verified.
    ///
    /// # Panics
    /// If the shape makes no sense (no lanes, no span) or the path takes fewer requests than it
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
        let oldest = if verifier.is_some() { in_flight_max * shape.units() } else { 0 };
        Ok(Generator {
            places: Places::new(shape.pattern, shape.span_bytes / shape.request_bytes as u64),
            arrivals,
            verifier,
            flights: vec![None; in_flight_max],
            in_flight: 0,
            free: (0..shape.queue_depth).flat_map(|_| 0..shape.lanes).collect(),
            probe_at: shape.probe.map(|_| now),
            oldest: vec![0; oldest],
            writes_owed: 0,
            measured_from: now + shape.warmup,
            until: now + shape.warmup + shape.duration,
            tally: Tally::new(),
            failures: Vec::with_capacity(FAILURES_KEPT),
            ended: Vec::with_capacity(in_flight_max),
            path,
            pool,
            random,
            shape,
        })
    }

    /// Takes what has ended and sends what is due. Returns whether anything happened.
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

    /// Whether the time is over and everything has ended, or was waited for long enough.
    pub fn is_finished(&self, now: Instant) -> bool {
        now >= self.until && (self.in_flight == 0 || now >= self.until + DRAIN_MAX)
    }

    /// When the next turn is worth while without an event.
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

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Ends the time now, if it is not over: nothing is sent any more.
    pub fn stop(&mut self, now: Instant) {
        self.until = self.until.min(now);
    }

    /// The pool, when nothing is in flight.
    ///
    /// # Panics
    /// If something is in flight.
    pub fn into_pool(self) -> BufPool {
        assert!(self.in_flight == 0, "buffers are in flight");
        self.pool
    }

    /// When the measured time begins and ends.
    pub fn measured(&self) -> (Instant, Instant) {
        (self.measured_from, self.until)
    }

    /// Arrivals of the measured time that were never sent, because no place in flight became free:
    /// above a few, the rate is more than the target can do.
    pub fn unsent(&self) -> u64 {
        self.arrivals.as_ref().map_or(0, |arrivals| arrivals.overdue(self.until))
    }

    /// Adds what was measured since the last call to `sum`.
    pub fn report(&mut self, sum: &mut Tally) {
        sum.add(&self.tally);
        self.tally.reset();
    }

    /// The first few verification failures.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The path, for whoever made it.
    pub fn path(&mut self) -> &mut P {
        &mut self.path
    }

    fn send(&mut self, now: Instant) -> bool {
        let before = self.in_flight;
        if self.probe_at.is_some_and(|at| at <= now) && self.path.room() > 0 {
            self.probe_at = None;
            let range = self.draw();
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
                    arrivals.advance(&mut self.random);
                    intended
                }
            };
            let lane = self.free.pop_front().expect("there is a free place");
            let command = self.choose();
            self.submit(now, intended, lane, command);
        }
        self.in_flight > before
    }

    fn draw(&mut self) -> Range {
        let blocks = (self.shape.request_bytes / BLOCK_BYTES) as u32;
        let place = self.places.draw(&mut self.random);
        Range::new(self.shape.first_lba + place * u64::from(blocks), blocks)
    }

    fn choose(&mut self) -> Command {
        let range = self.draw();
        let read = self.choose_read();
        // Two writes of one place at once could not be verified: the second becomes a read.
        let taken = |verifier: &Verifier| !verifier.may_write(range.lba, self.shape.request_bytes);
        if read || self.verifier.as_ref().is_some_and(taken) {
            Command::Read(range)
        } else {
            Command::Write { range, fua: self.shape.fua }
        }
    }

    /// Evenly mixed where arrivals are evenly spaced, else at random.
    fn choose_read(&mut self) -> bool {
        let percent = u32::from(self.shape.read_percent);
        if let Pace::Open { arrival: Arrival::Constant, .. } = self.shape.pace {
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

    fn submit(&mut self, now: Instant, intended: Instant, lane: usize, command: Command) {
        let bytes = self.shape.request_bytes;
        let lba = command.range().expect("reads and writes have a range").lba;
        let is_read = command.kind() == Kind::Read;
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
        if flight.command.kind() != Kind::Read {
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

/// Fills every buffer with chance, so that what is written does not compress.
fn fill(pool: BufPool, bytes: usize, random: &mut Random) -> BufPool {
    BufPool::new(pool.into_bufs().map(|mut buf| {
        let len = bytes.min(buf.capacity());
        for piece in buf.prefix_mut(len).chunks_exact_mut(8) {
            piece.copy_from_slice(&random.bits().to_le_bytes());
        }
        buf
    }))
}
