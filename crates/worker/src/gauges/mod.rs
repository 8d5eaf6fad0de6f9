//! The counters of a worker (`contract::Meters`), and the requests that it samples.
//!
//! The worker counts each request's tenant, namespace and bytes, and the latency of reads. Sums
//! over turns are added to the meters every few turns. For one request in 64, by chance, the worker
//! measures the time in each stage; a sampled request is counted for its protocol, too.
//! Deliberately not here: a clock (`clock.rs` has one).

mod clock;
mod load;
mod reads;
mod sampler;
mod samples;

use std::sync::Arc;

use contract::{
    Completion, ConnId, Device, DeviceError, Instant, IoKind, Meters, NamespaceId, Protocol,
    Scheduler, Stage, Status, TenantId, TenantMeter, TurnPart,
};

pub use clock::TraceClock;
pub(crate) use clock::TurnClock;
pub use load::ResourceUse;
use reads::ReadRow;
use sampler::Sampler;
use samples::SampleLabels;

use crate::lanes::Lanes;
use crate::requests::InFlightRequest;

/// Number of requests of which one is sampled.
const SAMPLED_ONE_IN: u32 = 64;

/// Number of turns with work after which the worker adds its sums to the shared meters. The first
/// turn without work adds them, too, before the worker sleeps.
const TOLD_TURNS: u32 = 16;

/// A worker's counters, samples and times.
#[derive(Debug)]
pub(crate) struct Gauges {
    meters: Arc<Meters>,
    pub(crate) clock: TurnClock,
    reads: ReadRow,
    sampler: Sampler,
    /// Turns with work since the last update of the meters.
    untold: u32,
    /// Open connections by protocol, as housekeeping last counted them.
    protocols: [u32; Protocol::ALL.len()],
    /// Nanoseconds of turns with work, including the system call behind each.
    busy_nanos: u64,
}

impl Gauges {
    /// Creates gauges that write to these meters.
    pub(crate) fn new(meters: Arc<Meters>, watch: Option<TraceClock>) -> Gauges {
        Gauges {
            meters,
            clock: TurnClock::new(watch),
            reads: ReadRow::default(),
            sampler: Sampler::new(SAMPLED_ONE_IN),
            untold: 0,
            protocols: [0; Protocol::ALL.len()],
            busy_nanos: 0,
        }
    }

    /// Counts the completion of a request by a device, if its status is an error of the device.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_device_error(&self, device: u8, status: Status) {
        if let Some(error) = DeviceError::of(status) {
            self.meters.device(device.into()).count_error(error);
        }
    }

    /// Returns the counters that the worker writes and the control plane reads.
    #[inline]
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Returns a tenant's counters.
    #[inline]
    pub(crate) fn meter(&self, tenant: TenantId) -> &TenantMeter {
        self.meters.get(tenant).expect("tenants' numbers lie below the maximum")
    }

    /// Begins a turn. `last` is the beginning of the previous turn if that did work: the worker
    /// does not sleep between two such turns.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Instant, last: Option<Instant>) {
        if let Some(last) = last {
            self.busy_nanos += now.as_nanos().saturating_sub(last.as_nanos());
        }
        self.clock.begin(&self.meters, now);
        self.reads.begin_turn(now);
    }

    /// Counts a read of a tenant that was carried out, with its namespace and arrival.
    #[inline(always)]
    pub(crate) fn count_read(
        &mut self,
        now: Instant,
        came: (TenantId, NamespaceId, Instant),
        bytes: usize,
    ) {
        self.reads.add(&self.meters, now, came, bytes);
    }

    /// Counts the end of a request and the status of its answer; `None` if it had no answer.
    /// Successful reads are counted by [`WorkerGauges::count_read`].
    #[inline(always)]
    pub(crate) fn count_end(
        &mut self,
        now: Instant,
        ended: &InFlightRequest,
        answer: Option<Status>,
    ) {
        match answer {
            Some(Status::Ok) => self.count_other(now, ended),
            None => {}
            Some(status) => self.count_failure(ended.tenant, status),
        }
        self.meter(ended.tenant).retire(1);
    }

    /// Counts a successful request other than a read at its answer.
    #[inline(never)]
    fn count_other(&self, now: Instant, ended: &InFlightRequest) {
        let (kind, bytes) = (ended.command.kind(), ended.command.payload_bytes());
        let nanos = now.since(ended.received_at).as_nanos() as u64;
        self.meter(ended.tenant).record(kind, bytes, nanos);
        if let Some(namespace) = self.meters.namespace(ended.namespace) {
            namespace.work.record(kind, bytes);
        }
    }

    /// Counts a failed request of a tenant.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_failure(&self, tenant: TenantId, status: Status) {
        self.meter(tenant).fail(status);
        self.meters.worker.fail(status);
    }

    /// Counts a request that was refused before its admission, for the tenant to be charged, if
    /// there is one.
    #[cold]
    pub(crate) fn count_refusal(&self, charged: Result<TenantId, Status>, status: Status) {
        match charged {
            Ok(tenant) => self.count_failure(tenant, status),
            Err(_) => self.meters.worker.fail(status),
        }
    }

    /// Returns the index of the first request to be sampled among the next `ended` ones; `None` if
    /// none of them is.
    #[inline]
    pub(crate) fn next_sample(&mut self, ended: usize) -> Option<usize> {
        self.sampler.skip(ended)
    }

    /// Counts a sampled request that its device has completed and that is still in flight.
    /// `protocol` is the protocol of its connection; `None` if the connection is gone.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        completion: &Completion,
        entry: &InFlightRequest,
        protocol: Option<Protocol>,
    ) {
        let InFlightRequest { conn, tenant, namespace, command, .. } = *entry;
        let submitted_at = entry.submitted_at.expect("the device got it");
        let queued = submitted_at.since(entry.received_at).as_nanos() as u64;
        let delay = now.since(submitted_at).as_nanos() as u64;
        let kind = command.kind();
        let picked = SampleLabels { tenant, namespace, protocol, kind };
        picked.count(&self.meters, [(Stage::Scheduler, queued), (Stage::Device, delay)]);
        let Some(protocol) = protocol else { return };
        if completion.status.is_ok() {
            self.meters.protocol(protocol).record(kind, command.buffer_bytes());
        }
        if kind == IoKind::Read {
            self.clock.await_leaving(now, conn, picked);
        }
    }

    /// Counts a barrier that has ended, if it is sampled. No device takes part in it, so only its
    /// tenant and protocol are known.
    pub(crate) fn sample_barrier(&mut self, protocol: impl FnOnce() -> Option<Protocol>) {
        if self.sampler.skip(1).is_none() {
            return;
        }
        let Some(protocol) = protocol() else { return };
        self.meters.protocol(protocol).record(IoKind::Other, 0);
    }

    /// Counts the replies that the network has transmitted since the last turn, for the sampled
    /// latencies.
    #[inline]
    pub(crate) fn look_what_left(&mut self, now: Instant, left: impl Fn(ConnId) -> Option<u64>) {
        if self.clock.awaits_leaving() {
            self.clock.look_what_left(&self.meters, now, left);
        }
    }

    /// Adds up the counts of a turn whose replies were written at `answered`. Returns whether the
    /// meters are to be updated.
    pub(crate) fn settle_turn(
        &mut self,
        progressed: bool,
        answered: Instant,
        given: impl Fn(ConnId) -> Option<u64>,
    ) -> bool {
        self.clock.mark(TurnPart::Network);
        self.reads.settle(&self.meters);
        if self.clock.awaits_leaving() {
            self.clock.note_positions(answered, given);
        }
        self.untold += u32::from(progressed);
        self.untold > 0 && (!progressed || self.untold >= TOLD_TURNS)
    }

    /// Ends the turn.
    #[inline]
    pub(crate) fn end_turn(&mut self, progressed: bool) {
        self.clock.end(&self.meters, progressed);
    }

    /// Replaces the number of connections by protocol; returns whether a number has changed.
    pub(crate) fn set_protocols(&mut self, counted: [u32; Protocol::ALL.len()]) -> bool {
        std::mem::replace(&mut self.protocols, counted) != counted
    }

    /// Adds the sums since the last update to the meters.
    pub(crate) fn tell<D: Device, S: Scheduler>(
        &mut self,
        load: &ResourceUse,
        open: usize,
        lanes: &Lanes<D, S>,
    ) {
        self.reads.tell(&self.meters);
        for (n, lane) in lanes.iter().enumerate() {
            let meter = self.meters.device(n);
            meter.tell(lane.submitted(), lane.scheduler().queued());
            meter.tell_tokens(lane.tokens());
        }
        let gauges = contract::WorkerGauges {
            protocols: if open > 0 { self.protocols } else { [0; Protocol::ALL.len()] },
            in_flight: load.in_flight as u32,
            buffers: load.buffers as u32,
            carried: load.carried as u32,
        };
        self.meters.worker.tell(std::mem::take(&mut self.untold), self.busy_nanos, gauges);
    }

    /// Returns the clock and the buffer for traces.
    pub(crate) fn into_watch(self) -> Option<TraceClock> {
        self.clock.into_watch()
    }
}
