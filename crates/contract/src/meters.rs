//! What a worker tells of its tenants: counters that it alone writes and the control plane reads.
//!
//! Nothing is sent and nothing is locked: a worker adds with plain loads and stores, and whoever
//! reads takes differences between two readings. What is deliberately not here: tokens, which the
//! scheduler counts, and names.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::{Kind, TenantId};

/// Whole microseconds below this have a bucket each.
const FINE_US: u64 = 32;

/// Buckets of each doubling above that: they are at most 1/16 of their value wide.
const PER_OCTAVE: usize = 16;

/// The highest doubling that is told apart: 2¹⁹ µs, half a second, up to a second.
const OCTAVE_MAX: u32 = 19;

/// Buckets of a [`Meter`]'s latencies.
pub const LATENCY_BUCKETS: usize =
    FINE_US as usize + (OCTAVE_MAX - FINE_US.ilog2() + 1) as usize * PER_OCTAVE;

/// One worker's counters of one tenant. They wrap; differences between readings do not mind.
#[derive(Debug)]
pub struct Meter {
    /// How often the worker has let go of the tenant's number: a handle of an earlier epoch names
    /// nobody any more. Written before nothing of that epoch can be admitted.
    epoch: AtomicU32,
    /// Requests admitted and not answered yet.
    in_flight: AtomicU32,
    /// Connections that belong to it or hold a handle on it.
    connections: AtomicU32,
    /// Answers of the control plane that named it and have been acted on; wraps.
    answers: AtomicU32,
    /// Requests answered that were no reads.
    others: AtomicU32,
    /// Reads answered, by latency from the last byte received to the reply handed to the socket.
    reads: [AtomicU32; LATENCY_BUCKETS],
}

/// A [`Meter`]'s counters, added up over workers and read at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Requests admitted and not answered yet.
    pub in_flight: u32,
    /// Connections that belong to the tenant or hold a handle on it.
    pub connections: u32,
    /// Requests answered that were no reads; wraps.
    pub others: u32,
    /// Reads answered, by latency; each wraps.
    pub reads: Vec<u32>,
}

/// One worker's meters of all tenants, by number.
#[derive(Debug)]
pub struct Meters {
    cells: Box<[Meter]>,
    /// The worker itself.
    pub worker: WorkerMeter,
}

/// A worker's counters of itself. They wrap, like those of a [`Meter`].
#[derive(Debug, Default)]
pub struct WorkerMeter {
    /// Microseconds in which it had something to do.
    busy_us: AtomicU32,
    /// Its connections.
    connections: AtomicU32,
    /// Connections that have left for other workers and landed there.
    moved: AtomicU32,
    /// Connections that were to leave and stayed.
    stayed: AtomicU32,
    /// Connections that came from other workers.
    arrived: AtomicU32,
    /// The longest pause of a connection that left, in microseconds.
    pause_us_max: AtomicU32,
}

impl WorkerMeter {
    /// Worker: it had something to do for so many microseconds.
    pub fn count_busy(&self, us: u32) {
        bump(&self.busy_us, us);
    }

    /// Worker: it has so many connections.
    pub fn set_connections(&self, count: usize) {
        self.connections.store(count as u32, Ordering::Relaxed);
    }

    /// Its connections.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Worker: a connection has landed elsewhere, which was not received from for that long.
    pub fn count_moved(&self, pause: Duration) {
        bump(&self.moved, 1);
        let us = u32::try_from(pause.as_micros()).unwrap_or(u32::MAX);
        self.pause_us_max.fetch_max(us, Ordering::Relaxed);
    }

    /// Worker: a connection that was to leave stays.
    pub fn count_stayed(&self) {
        bump(&self.stayed, 1);
    }

    /// Worker: a connection came from another worker.
    pub fn count_arrived(&self) {
        bump(&self.arrived, 1);
    }

    /// Microseconds in which it had something to do.
    pub fn busy_us(&self) -> u32 {
        self.busy_us.load(Ordering::Relaxed)
    }

    /// Connections that left, stayed although they were to leave, and arrived.
    pub fn moves(&self) -> [u32; 3] {
        [&self.moved, &self.stayed, &self.arrived].map(|count| count.load(Ordering::Relaxed))
    }

    /// The longest pause of a connection that left, in microseconds.
    pub fn pause_us_max(&self) -> u32 {
        self.pause_us_max.load(Ordering::Relaxed)
    }
}

impl Meters {
    /// Meters of tenants whose numbers are below `tenants_max`.
    pub fn new(tenants_max: usize) -> Meters {
        let cells = (0..tenants_max).map(|_| Meter::new()).collect();
        Meters { cells, worker: WorkerMeter::default() }
    }

    /// A tenant's meter, if the number is below the maximum.
    pub fn get(&self, tenant: TenantId) -> Option<&Meter> {
        self.cells.get(tenant.0 as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

/// Adds where nobody else writes.
fn bump(counter: &AtomicU32, by: u32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Meter {
    fn new() -> Meter {
        let zero = || AtomicU32::new(0);
        Meter {
            epoch: zero(),
            in_flight: zero(),
            connections: zero(),
            answers: zero(),
            others: zero(),
            reads: core::array::from_fn(|_| zero()),
        }
    }

    /// The epoch whose handles are good.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Worker: no handle that was given until now is good any more, so nobody holds one.
    pub fn end_epoch(&self) {
        self.connections.store(0, Ordering::Relaxed);
        self.epoch.store(self.epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Worker: a request was admitted.
    pub fn admit(&self) {
        bump(&self.in_flight, 1);
    }

    /// Worker: a request that was admitted is gone, answered or not. What it did before is seen by
    /// whoever sees the count.
    pub fn retire(&self) {
        let before = self.in_flight.load(Ordering::Relaxed);
        assert!(before > 0, "a request ended that was not admitted");
        self.in_flight.store(before - 1, Ordering::Release);
    }

    /// Worker: a request was answered, `latency` after its last byte had arrived.
    pub fn record(&self, kind: Kind, latency: Duration) {
        match kind {
            Kind::Read => bump(&self.reads[bucket(latency)], 1),
            Kind::Write | Kind::Exchange | Kind::Other => bump(&self.others, 1),
        }
    }

    /// Worker: a connection belongs to the tenant, or got a handle on it.
    pub fn join(&self) {
        bump(&self.connections, 1);
    }

    /// Worker: a connection or handle is gone.
    pub fn leave(&self) {
        let before = self.connections.load(Ordering::Relaxed);
        assert!(before > 0, "a connection left that had not joined");
        self.connections.store(before - 1, Ordering::Release);
    }

    /// Worker: an answer that names the tenant has been acted on: whoever got a handle by it is among
    /// the [connections](Meter::connections) of whoever sees the count.
    pub fn note_answer(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        self.answers.store(before.wrapping_add(1), Ordering::Release);
    }

    /// Answers that have been acted on; wraps.
    pub fn answers(&self) -> u32 {
        self.answers.load(Ordering::Acquire)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Connections.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// Adds what it says to `reading`.
    pub fn add_to(&self, reading: &mut Reading) {
        reading.in_flight += self.in_flight();
        reading.connections += self.connections();
        let add = |to: &mut u32, from: &AtomicU32| {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        };
        add(&mut reading.others, &self.others);
        for (to, from) in reading.reads.iter_mut().zip(&self.reads) {
            add(to, from);
        }
    }
}

impl Default for Reading {
    fn default() -> Reading {
        let reads = alloc::vec![0; LATENCY_BUCKETS];
        Reading { in_flight: 0, connections: 0, others: 0, reads }
    }
}

impl Reading {
    /// What was counted since an `earlier` reading; the gauges are as they are now.
    pub fn since(&self, earlier: &Reading) -> Reading {
        let pairs = self.reads.iter().zip(&earlier.reads);
        Reading {
            in_flight: self.in_flight,
            connections: self.connections,
            others: self.others.wrapping_sub(earlier.others),
            reads: pairs.map(|(now, then)| now.wrapping_sub(*then)).collect(),
        }
    }

    /// Reads counted.
    pub fn reads_total(&self) -> u64 {
        self.reads.iter().map(|count| u64::from(*count)).sum()
    }

    /// The latency in microseconds below which a share of the reads lies, `tenths` of a percent of
    /// them, interpolated within its bucket (at most 1/16 of the value wide); `None` without reads.
    pub fn percentile_us(&self, tenths: u16) -> Option<f64> {
        let wanted = self.reads_total() as f64 * f64::from(tenths.min(1_000)) / 1_000.0;
        let mut below = 0.0;
        for (n, count) in self.reads.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if below + count >= wanted {
                let (from, to) = bounds_us(n);
                return Some(from + (to - from) * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            below += count;
        }
        None
    }
}

/// The bucket of a latency. Latencies above the range are in the last one.
fn bucket(latency: Duration) -> usize {
    let us = (latency.as_nanos() as u64) / 1_000;
    if us < FINE_US {
        return us as usize;
    }
    let octave = us.ilog2();
    if octave > OCTAVE_MAX {
        return LATENCY_BUCKETS - 1;
    }
    let within = (us >> (octave - PER_OCTAVE.ilog2())) as usize % PER_OCTAVE;
    FINE_US as usize + (octave - FINE_US.ilog2()) as usize * PER_OCTAVE + within
}

/// From where to where a bucket reaches, in microseconds.
fn bounds_us(bucket: usize) -> (f64, f64) {
    let Some(coarse) = bucket.checked_sub(FINE_US as usize) else {
        return (bucket as f64, bucket as f64 + 1.0);
    };
    let start = FINE_US << (coarse / PER_OCTAVE);
    let width = start as f64 / PER_OCTAVE as f64;
    let from = start as f64 + (coarse % PER_OCTAVE) as f64 * width;
    (from, from + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_their_bounds_say() {
        for us in (0..3_000).chain([499_999, 524_288, 1_048_575]) {
            let (from, to) = bounds_us(bucket(Duration::from_micros(us)));
            assert!(from <= us as f64 && (us as f64) < to, "{us} in {from}..{to}");
            assert!(us < FINE_US || to - from <= from / 16.0);
        }
        assert_eq!(bucket(Duration::from_secs(3600)), LATENCY_BUCKETS - 1);
        assert_eq!(bucket(Duration::from_micros(1_048_575)), LATENCY_BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_what_came_between_two_readings() {
        let meters = Meters::new(2);
        let meter = meters.get(TenantId(1)).unwrap();
        let reading = || {
            let mut reading = Reading::default();
            meter.add_to(&mut reading);
            reading
        };
        meter.record(Kind::Read, Duration::from_millis(900));
        let before = reading();
        assert_eq!(before.since(&before).percentile_us(950), None);
        (1..=1_000).for_each(|us| meter.record(Kind::Read, Duration::from_micros(us)));
        meter.record(Kind::Write, Duration::from_secs(9));
        let between = reading().since(&before);
        let p95 = between.percentile_us(950).unwrap();
        assert!((940.0..960.0).contains(&p95), "{p95}");
        assert_eq!((between.reads_total(), between.others), (1_000, 1));
        assert!(meters.get(TenantId(2)).is_none());
    }

    #[test]
    #[should_panic(expected = "was not admitted")]
    fn ending_twice_is_caught() {
        let meters = Meters::new(1);
        let meter = meters.get(TenantId(0)).unwrap();
        meter.admit();
        meter.retire();
        meter.retire();
    }
}
