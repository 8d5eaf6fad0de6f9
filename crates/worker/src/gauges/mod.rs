//! The counters of a worker (`contract::Meters`), and the samples it looks at more closely.
//!
//! Of each request the worker counts the tenant, the namespace, the bytes and how long a read took.
//! Sums over turns are told once in a while. The worker looks where the time of a request went for one
//! in 64, by chance, so that no pattern of the load falls into step with the samples; a sampled
//! request is counted for its protocol, too. Deliberately not here: a clock (`clock.rs` has
//! one).

mod clock;
mod load;
mod reads;
mod sampler;
mod samples;

use std::sync::Arc;

use contract::{
    Completion, ConnId, Device, Instant, Kind, Meter, Meters, NamespaceId, Part, Protocol,
    Scheduler, Stage, Status, TenantId,
};

pub(crate) use clock::TurnClock;
pub use clock::Watch;
pub use load::Load;
use reads::ReadRow;
use sampler::Sampler;
pub(crate) use samples::Ended;
use samples::Picked;

use crate::lanes::Lanes;
use crate::requests::InFlight;

/// The number of requests of which one is sampled.
const SAMPLED_ONE_IN: u32 = 64;

/// Sums over turns are told once in so many turns that do something, and by the first that does
/// nothing: before a worker sleeps.
const TOLD_TURNS: u32 = 16;

/// A worker's counters, samples and times.
#[derive(Debug)]
pub(crate) struct Gauges {
    meters: Arc<Meters>,
    pub(crate) clock: TurnClock,
    reads: ReadRow,
    sampler: Sampler,
    /// Turns that did something since the meters were told.
    untold: u32,
    /// Open connections by what they speak, as housekeeping last counted them.
    protocols: [u32; Protocol::ALL.len()],
    /// Nanoseconds of turns that did something, with the system call behind each.
    busy_nanos: u64,
}

impl Gauges {
    /// Makes gauges that write to these meters.
    pub(crate) fn new(meters: Arc<Meters>, watch: Option<Watch>) -> Gauges {
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

    /// Returns the counters.
    #[inline]
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Returns a tenant's counters.
    #[inline]
    pub(crate) fn meter(&self, tenant: TenantId) -> &Meter {
        self.meters.get(tenant).expect("tenants' numbers lie below the maximum")
    }

    /// Begins a turn. `last` is the beginning of the turn before, if that did something: nobody
    /// sleeps between such a turn and the next.
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

    /// Counts a request that is in flight no more, and the status of its answer; `None`: nobody
    /// waits for the answer. Reads that were carried out are counted by [`Gauges::count_read`].
    #[inline(always)]
    pub(crate) fn count_end(&mut self, now: Instant, ended: &Ended, answer: Option<Status>) {
        match answer {
            Some(Status::Ok) => self.count_other(now, ended),
            None => {}
            Some(status) => self.count_failure(ended.tenant, status),
        }
        self.meter(ended.tenant).retire(1);
    }

    /// Counts a request that is no read, was carried out, and is answered now.
    #[inline(never)]
    fn count_other(&self, now: Instant, ended: &Ended) {
        let (kind, bytes) = (ended.command.kind(), ended.command.payload_bytes());
        let nanos = now.since(ended.received_at).as_nanos() as u64;
        self.meter(ended.tenant).record(kind, bytes, nanos);
        if let Some(namespace) = self.meters.namespace(ended.namespace) {
            namespace.work.record(kind, bytes);
        }
    }

    /// Counts a request of a tenant that was not carried out.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_failure(&self, tenant: TenantId, status: Status) {
        self.meter(tenant).fail(status);
        self.meters.worker.fail(status);
    }

    /// Counts a request that was refused before it was admitted, for the tenant that was to be
    /// charged, if there is one.
    #[cold]
    pub(crate) fn count_refusal(&self, charged: Result<TenantId, Status>, status: Status) {
        match charged {
            Ok(tenant) => self.count_failure(tenant, status),
            Err(_) => self.meters.worker.fail(status),
        }
    }

    /// Returns the place of the next request that is sampled among `ended`.
    #[inline]
    pub(crate) fn next_sample(&mut self, ended: usize) -> Option<usize> {
        self.sampler.skip(ended)
    }

    /// Counts a sampled request that its device has ended and that is still in flight. `protocol`
    /// is that of its connection; `None`: the connection is gone.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        completion: &Completion,
        entry: &InFlight,
        protocol: Option<Protocol>,
    ) {
        let InFlight { conn, tenant, namespace, command, .. } = *entry;
        let submitted_at = entry.submitted_at.expect("the device got it");
        let queued = submitted_at.since(entry.received_at).as_nanos() as u64;
        let delay = now.since(submitted_at).as_nanos() as u64;
        let kind = command.kind();
        let picked = Picked { tenant, namespace, protocol, kind };
        picked.count(&self.meters, [(Stage::Scheduler, queued), (Stage::Device, delay)]);
        let Some(protocol) = protocol else { return };
        if completion.status.is_ok() {
            self.meters.protocol(protocol).record(kind, command.buffer_bytes());
        }
        if kind == Kind::Read {
            self.clock.await_leaving(now, conn, picked);
        }
    }

    /// Counts a barrier that has ended, if it is sampled. No device has seen it: who asks for
    /// barriers is the only thing to divide them by.
    pub(crate) fn sample_barrier(&mut self, protocol: impl FnOnce() -> Option<Protocol>) {
        if self.sampler.skip(1).is_none() {
            return;
        }
        let Some(protocol) = protocol() else { return };
        self.meters.protocol(protocol).record(Kind::Other, 0);
    }

    /// Counts the replies that have left since the last turn.
    #[inline]
    pub(crate) fn look_what_left(&mut self, now: Instant, left: impl Fn(ConnId) -> Option<u64>) {
        if self.clock.awaits_leaving() {
            self.clock.look_what_left(&self.meters, now, left);
        }
    }

    /// Settles the turn's counts, whose replies had been written at `answered`. Returns whether the
    /// meters are to be told.
    pub(crate) fn settle_turn(
        &mut self,
        progressed: bool,
        answered: Instant,
        given: impl Fn(ConnId) -> Option<u64>,
    ) -> bool {
        self.clock.mark(Part::Network);
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

    /// Replaces the number of connections by protocol; returns whether the numbers are others than
    /// before.
    pub(crate) fn set_protocols(&mut self, counted: [u32; Protocol::ALL.len()]) -> bool {
        std::mem::replace(&mut self.protocols, counted) != counted
    }

    /// Tells the meters what the turns came to since the last time.
    pub(crate) fn tell<D: Device, S: Scheduler>(
        &mut self,
        load: &Load,
        open: usize,
        lanes: &Lanes<D, S>,
    ) {
        self.reads.tell(&self.meters);
        for (n, lane) in lanes.iter().enumerate() {
            let meter = self.meters.device(n);
            meter.tell(lane.submitted(), lane.scheduler().queued());
            meter.tell_tokens(lane.tokens());
        }
        let gauges = contract::Gauges {
            protocols: if open > 0 { self.protocols } else { [0; Protocol::ALL.len()] },
            in_flight: load.in_flight as u32,
            buffers: load.buffers as u32,
            carried: load.carried as u32,
        };
        self.meters.worker.tell(std::mem::take(&mut self.untold), self.busy_nanos, gauges);
    }

    /// Gives the watch back.
    pub(crate) fn into_watch(self) -> Option<Watch> {
        self.clock.into_watch()
    }
}
