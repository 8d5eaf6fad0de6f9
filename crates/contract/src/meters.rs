//! A worker's counters of its tenants, namespaces, devices and of itself. Only the worker writes
//! them, and the control plane reads them.
//!
//! Nothing is sent and nothing is locked: a worker adds with plain loads and stores, and a reader
//! takes the difference of two readings. This module determines the cost per request, so each
//! request only counts what cannot be obtained otherwise: its latency, if it is a read, and its
//! bytes. The time per [`Stage`] is only sampled ([`TenantMeter::sample`]).
//!
//! This module deliberately leaves out tenants' tokens, which the scheduler counts, and names.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::FromZeros;

use crate::counter::{bump, bump_u64};
use crate::latency::{
    COARSE_BUCKETS, CoarseBucket, LATENCY_BUCKETS, LatencyBucket, coarse_of_fine, fine_edge,
};
use crate::stages::{self, CoarseHistogram, Stage, StageHistograms, StageMeter};
use crate::work_meter::{NAMESPACES_MAX, NamespaceMeter, WorkMeter};
use crate::worker_meter::{DEVICES_MAX, DeviceMeter, Protocol, WorkerMeter};
use crate::{IoKind, NamespaceId, Status, TenantId};

/// A worker's counters of one tenant. The counters wrap; differences of readings stay correct.
#[derive(Debug)]
pub struct TenantMeter {
    /// Number of times that the worker has ended the tenant's epoch. A handle of an earlier epoch
    /// is invalid. Written before any request of the new epoch can be admitted.
    epoch: AtomicU32,
    /// Requests admitted and not answered yet.
    in_flight: AtomicU32,
    /// Connections that belong to the tenant or hold a handle on it.
    connections: AtomicU32,
    /// Answers of the control plane that named the tenant and were processed; wraps.
    answers: AtomicU32,
    /// Successful requests that change data.
    writes: AtomicU32,
    /// Successful requests that neither read nor change data.
    others: AtomicU32,
    /// Bytes of successful reads.
    read_bytes: AtomicU64,
    /// Bytes of successful writes.
    written_bytes: AtomicU64,
    /// Failed requests of the tenant; the index is the status's number.
    failures: [AtomicU32; Status::ALL.len()],
    /// Times per stage of the sampled requests.
    stages: StageMeter,
    /// Successful reads by latency, from the last byte received to the reply handed to the socket.
    reads: [AtomicU32; LATENCY_BUCKETS],
}

/// The counters of [`TenantMeter`]s, summed over workers and read at one time. All but the first
/// two wrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantReading {
    /// Requests admitted and not answered yet.
    pub in_flight: u32,
    /// Connections that belong to the tenant or hold a handle on it.
    pub connections: u32,
    /// Successful requests that change data.
    pub writes: u32,
    /// Successful requests that neither read nor change data.
    pub others: u32,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Failed requests of the tenant; the index is the status's number.
    pub failures: [u32; Status::ALL.len()],
    /// Times per stage of the sampled requests.
    pub samples: StageHistograms<u32>,
    /// Successful reads by the narrow bucket of their latency.
    pub reads: Vec<u32>,
}

/// The counters of one worker: in total and by tenant, namespace and protocol.
#[derive(Debug)]
pub struct Meters {
    /// Meters of tenants; the index is the tenant's number.
    cells: Box<[TenantMeter]>,
    /// Meters of namespaces; the index is the namespace's number less one.
    namespaces: Box<[NamespaceMeter]>,
    /// The largest number of a namespace that the worker knows or knew.
    namespaces_end: AtomicU32,
    devices: Box<[DeviceMeter]>,
    protocols: [WorkMeter; Protocol::ALL.len()],
    /// The meter of the worker itself.
    pub worker: WorkerMeter,
    /// Number of the last namespace change that is in force for all of the worker's requests at
    /// devices.
    placed: AtomicU64,
}

impl Meters {
    /// Returns meters of tenants whose numbers are below `tenants_max`.
    pub fn new(tenants_max: usize) -> Meters {
        // Zeroed by the system: what no namespace uses takes no memory.
        let namespaces = <[NamespaceMeter]>::new_box_zeroed_with_elems(NAMESPACES_MAX);
        let namespaces = namespaces.expect("the address space has room for them");
        Meters {
            cells: (0..tenants_max).map(|_| TenantMeter::new()).collect(),
            namespaces,
            namespaces_end: AtomicU32::new(0),
            devices: (0..DEVICES_MAX).map(|_| DeviceMeter::default()).collect(),
            protocols: Default::default(),
            worker: WorkerMeter::default(),
            placed: AtomicU64::new(0),
        }
    }

    /// Returns a tenant's meter; `None` if its number is not below the maximum.
    pub fn get(&self, tenant: TenantId) -> Option<&TenantMeter> {
        self.cells.get(tenant.0 as usize)
    }

    /// Worker: returns a namespace's meter like [`namespace`](Meters::namespace), and raises
    /// [`namespaces_end`](Meters::namespaces_end) so that readers include it.
    pub fn know_namespace(&self, number: NamespaceId) -> Option<&NamespaceMeter> {
        let meter = self.namespace(number)?;
        let end = self.namespaces_end().max(number.0);
        self.namespaces_end.store(end.into(), Ordering::Release);
        Some(meter)
    }

    /// Returns the largest number of a namespace that the worker knows or knew.
    pub fn namespaces_end(&self) -> u16 {
        self.namespaces_end.load(Ordering::Acquire) as u16
    }

    /// Returns a namespace's meter; `None` if its number is zero or above [`NAMESPACES_MAX`].
    pub fn namespace(&self, number: NamespaceId) -> Option<&NamespaceMeter> {
        self.namespaces.get(usize::from(number.0).wrapping_sub(1))
    }

    /// Returns the meter of the device with this number.
    ///
    /// # Panics
    /// Panics if the number is not below [`DEVICES_MAX`].
    pub fn device(&self, number: usize) -> &DeviceMeter {
        &self.devices[number]
    }

    /// Returns the meter of a protocol, which counts only the sampled requests of the protocol's
    /// connections.
    pub fn protocol(&self, protocol: Protocol) -> &WorkMeter {
        &self.protocols[protocol as usize]
    }

    /// Returns the maximum number of tenants.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns `true` if the maximum number of tenants is zero.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Worker: records that this change of a namespace
    /// ([`WorkerMessage::Place`](crate::WorkerMessage::Place)) and all earlier ones are in force.
    /// No device has a request of the worker any more that they forbid.
    pub fn set_placed(&self, change: u64) {
        self.placed.store(change, Ordering::Release);
    }

    /// Returns the number of the last namespace change that is in force.
    pub fn placed(&self) -> u64 {
        self.placed.load(Ordering::Acquire)
    }
}

impl TenantMeter {
    fn new() -> TenantMeter {
        let zero = || AtomicU32::new(0);
        let zeroes = |_| zero();
        TenantMeter {
            epoch: zero(),
            in_flight: zero(),
            connections: zero(),
            answers: zero(),
            writes: zero(),
            others: zero(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            failures: core::array::from_fn(zeroes),
            stages: StageMeter::default(),
            reads: core::array::from_fn(zeroes),
        }
    }

    /// Returns the epoch whose handles are valid.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Worker: ends the epoch. All handles given so far become invalid, so no connection holds one.
    pub fn end_epoch(&self) {
        self.connections.store(0, Ordering::Relaxed);
        self.epoch.store(self.epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Worker: counts an admitted request.
    pub fn admit(&self) {
        bump(&self.in_flight, 1);
    }

    /// Worker: removes `requests` admitted requests, answered or not. A reader that sees the count
    /// also sees all earlier effects of the worker.
    #[inline]
    pub fn retire(&self, requests: u32) {
        let before = self.in_flight.load(Ordering::Relaxed);
        assert!(before >= requests, "a request ended that was not admitted");
        self.in_flight.store(before - requests, Ordering::Release);
    }

    /// Worker: records a successful request of `bytes` bytes, answered `nanos` nanoseconds after
    /// its last byte had arrived.
    pub fn record(&self, kind: IoKind, bytes: usize, nanos: u64) {
        match kind {
            IoKind::Read => self.record_reads(1, bytes as u64, LatencyBucket::of(nanos)),
            IoKind::Write | IoKind::Exchange => {
                bump(&self.writes, 1);
                bump_u64(&self.written_bytes, bytes as u64);
            }
            IoKind::Other => bump(&self.others, 1),
        }
    }

    /// Worker: records `reads` successful reads of `bytes` bytes in total, all in one latency
    /// bucket.
    #[inline]
    pub fn record_reads(&self, reads: u32, bytes: u64, latency: LatencyBucket) {
        bump(&self.reads[latency.index()], reads);
        bump_u64(&self.read_bytes, bytes);
    }

    /// Worker: counts a request of the tenant that failed with this status.
    pub fn fail(&self, status: Status) {
        bump(&self.failures[usize::from(status.code())], 1);
    }

    /// Worker: records the time that a sampled request spent in a stage.
    #[inline]
    pub fn sample(&self, kind: IoKind, stage: Stage, time: CoarseBucket) {
        self.stages.sample(kind, stage, time);
    }

    /// Worker: adds one to the connections that belong to the tenant or hold a handle on it.
    pub fn join(&self) {
        bump(&self.connections, 1);
    }

    /// Worker: subtracts one from the connections that belong to the tenant or hold a handle on it.
    pub fn leave(&self) {
        let before = self.connections.load(Ordering::Relaxed);
        assert!(before > 0, "a connection left that had not joined");
        self.connections.store(before - 1, Ordering::Release);
    }

    /// Worker: records that an answer that names the tenant was processed. A reader that sees the
    /// count also sees the handle's owner among the [connections](TenantMeter::connections).
    pub fn note_answer(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        self.answers.store(before.wrapping_add(1), Ordering::Release);
    }

    /// Returns the number of processed answers of the control plane that named the tenant; wraps.
    pub fn answers(&self) -> u32 {
        self.answers.load(Ordering::Acquire)
    }

    /// Returns the number of requests that were admitted and are not answered yet.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Returns the number of connections that belong to the tenant or hold a handle on it.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// Adds the counters to `reading`.
    pub fn add_to(&self, reading: &mut TenantReading) {
        reading.in_flight += self.in_flight();
        reading.connections += self.connections();
        let add = |to: &mut u32, from: &AtomicU32| {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        };
        let add_bytes = |to: &mut u64, from: &AtomicU64| {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        };
        add(&mut reading.writes, &self.writes);
        add(&mut reading.others, &self.others);
        add_bytes(&mut reading.read_bytes, &self.read_bytes);
        add_bytes(&mut reading.written_bytes, &self.written_bytes);
        reading.failures.iter_mut().zip(&self.failures).for_each(|(to, from)| add(to, from));
        self.stages.add_to(&mut reading.samples);
        reading.reads.iter_mut().zip(&self.reads).for_each(|(to, from)| add(to, from));
    }
}

impl Default for TenantReading {
    fn default() -> TenantReading {
        TenantReading {
            in_flight: 0,
            connections: 0,
            writes: 0,
            others: 0,
            read_bytes: 0,
            written_bytes: 0,
            failures: [0; Status::ALL.len()],
            samples: StageHistograms::default(),
            reads: alloc::vec![0; LATENCY_BUCKETS],
        }
    }
}

impl TenantReading {
    /// Returns the difference to an `earlier` reading; gauges keep their current value.
    pub fn since(&self, earlier: &TenantReading) -> TenantReading {
        let mut since = self.clone();
        let less = |now: &mut u32, then: &u32| *now = now.wrapping_sub(*then);
        less(&mut since.writes, &earlier.writes);
        less(&mut since.others, &earlier.others);
        since.read_bytes = self.read_bytes.wrapping_sub(earlier.read_bytes);
        since.written_bytes = self.written_bytes.wrapping_sub(earlier.written_bytes);
        since.failures.iter_mut().zip(&earlier.failures).for_each(|(now, then)| less(now, then));
        since.samples = stages::since(&self.samples, &earlier.samples);
        since.reads.iter_mut().zip(&earlier.reads).for_each(|(now, then)| less(now, then));
        since
    }

    /// Returns the number of successful reads.
    pub fn reads_total(&self) -> u64 {
        self.reads.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the number of successful reads by coarse bucket of their latency.
    pub fn reads_coarse(&self) -> CoarseHistogram<u64> {
        let mut sums = [0; COARSE_BUCKETS];
        for (n, count) in self.reads.iter().enumerate() {
            sums[coarse_of_fine(n)] += u64::from(*count);
        }
        sums
    }

    /// Returns the number of successful reads that took at most `latency_us` microseconds,
    /// interpolated within a bucket.
    pub fn reads_within(&self, latency_us: u32) -> f64 {
        let bound = u64::from(latency_us) * 1_000;
        let edges = (0..).map(|n| (fine_edge(n), fine_edge(n + 1)));
        let within = self.reads.iter().zip(edges).map(|(count, (from, to))| {
            let share = bound.saturating_sub(from) as f64 / (to - from) as f64;
            f64::from(*count) * share.min(1.0)
        });
        within.sum()
    }

    /// Returns the latency in microseconds below which `tenths` of a percent of the reads lie,
    /// interpolated within its bucket (at most 1/16 of the value wide). Returns `None` without
    /// reads.
    pub fn percentile_us(&self, tenths: u16) -> Option<f64> {
        let wanted = self.reads_total() as f64 * f64::from(tenths.min(1_000)) / 1_000.0;
        let mut below = 0.0;
        for (n, count) in self.reads.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if below + count >= wanted {
                let (from, to) = (fine_edge(n) as f64, fine_edge(n + 1) as f64);
                let nanos = from + (to - from) * ((wanted - below) / count).clamp(0.0, 1.0);
                return Some(nanos / 1_000.0);
            }
            below += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(meter: &TenantMeter) -> TenantReading {
        let mut reading = TenantReading::default();
        meter.add_to(&mut reading);
        reading
    }

    #[test]
    fn percentiles_of_what_came_between_two_readings() {
        let meters = Meters::new(2);
        let meter = meters.get(TenantId(1)).unwrap();
        meter.record(IoKind::Read, 4096, 900_000_000);
        let before = reading(meter);
        assert_eq!(before.since(&before).percentile_us(950), None);
        (1..=1_000).for_each(|us| meter.record(IoKind::Read, 4096, us * 1_000));
        meter.record(IoKind::Write, 512, 9_000_000_000);
        meter.record(IoKind::Other, 0, 1);
        let between = reading(meter).since(&before);
        let p95 = between.percentile_us(950).unwrap();
        assert!((940.0..960.0).contains(&p95), "{p95}");
        let within = between.reads_within(500);
        assert!((495.0..=505.0).contains(&within), "{within}");
        assert_eq!((between.reads_total(), between.writes, between.others), (1_000, 1, 1));
        assert_eq!((between.read_bytes, between.written_bytes), (4_096_000, 512));
        assert_eq!(between.reads_coarse().iter().sum::<u64>(), 1_000);
        assert!(meters.get(TenantId(2)).is_none());
    }

    #[test]
    fn samples_and_failures_keep_apart() {
        let meters = Meters::new(1);
        let meter = meters.get(TenantId(0)).unwrap();
        let (long, short) = (CoarseBucket::of(100_000), CoarseBucket::of(1));
        meter.sample(IoKind::Read, Stage::Device, long);
        meter.sample(IoKind::Write, Stage::Scheduler, short);
        meter.fail(Status::Retry);
        let reading = reading(meter);
        assert_eq!(reading.samples[0][Stage::Device as usize][long.index()], 1);
        assert_eq!(reading.samples[1][Stage::Scheduler as usize][short.index()], 1);
        let all = reading.samples.as_flattened().as_flattened().iter();
        assert_eq!((all.sum::<u32>(), reading.failures[14]), (2, 1));
    }

    #[test]
    #[should_panic(expected = "was not admitted")]
    fn ending_twice_is_caught() {
        let meters = Meters::new(1);
        let meter = meters.get(TenantId(0)).unwrap();
        meter.admit();
        meter.retire(1);
        meter.retire(1);
    }
}
