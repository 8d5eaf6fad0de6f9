//! Measurement of where the time goes: in timed turns, and for traced requests.
//!
//! A server gives its workers a clock beside the time of the turn. One turn in 64, by chance, reads
//! the clock between its parts. While requests are traced, every turn does, and the chosen requests
//! note when they pass from one part to the next. In all other turns each mark costs one test, and
//! each request one. Deliberately not here: the use of the times (`control` has it).

use std::sync::Arc;

use contract::{
    Completion, ConnId, Instant, Meters, Slot, SlotTable, Stage, Status, Trace, TracePoint, Traces,
    TurnPart,
};

use super::sampler::Sampler;
use super::samples::SampleLabels;
use crate::requests::InFlightRequest;

/// Maximum number of requests traced at the same time.
const OPEN_MAX: usize = 64;

/// Maximum number of sampled replies whose transmission by the network is awaited at the same time.
const LEAVING_MAX: usize = 64;

/// Number of turns of which one is timed.
const TIMED_ONE_IN: u32 = 64;

/// A clock and a buffer for traces, with which a worker measures its time.
#[derive(Debug)]
pub struct TraceClock {
    /// The function that reads the clock, given the clock's origin in nanoseconds.
    pub clock: fn(origin: u64) -> Instant,
    /// The origin of the clock, in nanoseconds of the machine's clock.
    pub origin: u64,
    /// The buffer that takes the traces.
    pub traces: Arc<Traces>,
}

impl TraceClock {
    fn now(&self) -> Instant {
        (self.clock)(self.origin)
    }
}

/// A traced request that no device has completed.
#[derive(Debug)]
struct OpenTrace {
    slot: Slot,
    trace: Trace,
}

/// A reply that the network has not taken yet, of a sampled or traced request.
#[derive(Clone, Copy, Debug)]
struct UnsentReply<A> {
    conn: ConnId,
    /// The position of the reply's end in the bytes of its connection; [`UNKNOWN`] in the turn that
    /// makes the reply, and for a connection that ended in that turn.
    position: u64,
    about: A,
}

/// A position that no connection ever reaches.
const UNKNOWN: u64 = u64::MAX;

/// A sampled read whose reply was made.
#[derive(Clone, Copy, Debug)]
struct AnsweredRead {
    at: Instant,
    picked: SampleLabels,
}

/// The fate of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyFate {
    /// The network has not taken the reply.
    Waits,
    /// The network has taken the reply.
    Left,
    /// The reply's connection closed before.
    Lost,
}

/// The times of a worker's turns and of its traced requests.
#[derive(Debug)]
pub(crate) struct TurnClock {
    /// The clock and the traces; `None` without measuring.
    watch: Option<TraceClock>,
    /// `true` if the worker measures how long each part of this turn takes.
    is_timed: bool,
    /// `true` if requests are traced.
    is_tracing: bool,
    timed: Sampler,
    /// The time of the last mark.
    at: Instant,
    nanos: [u64; TurnPart::ALL.len()],
    /// The end of the last turn, if that turn was timed and did work.
    ended_at: Option<Instant>,
    /// Requests until the next that is traced.
    left: u32,
    open: Vec<OpenTrace>,
    sampled: Vec<UnsentReply<AnsweredRead>>,
    traced: Vec<UnsentReply<Trace>>,
}

impl TurnClock {
    /// Creates a clock that times and traces as `watch` says.
    pub(crate) fn new(watch: Option<TraceClock>) -> TurnClock {
        TurnClock {
            watch,
            is_timed: false,
            is_tracing: false,
            timed: Sampler::new(TIMED_ONE_IN),
            at: Instant::ZERO,
            nanos: [0; TurnPart::ALL.len()],
            ended_at: None,
            left: 0,
            open: Vec::with_capacity(OPEN_MAX),
            sampled: Vec::with_capacity(LEAVING_MAX),
            traced: Vec::with_capacity(LEAVING_MAX),
        }
    }

    /// Returns the clock and the buffer for traces.
    pub(crate) fn into_watch(self) -> Option<TraceClock> {
        self.watch
    }

    /// Returns whether requests are traced in this turn.
    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        self.is_tracing
    }

    /// Begins a turn at `now`, and decides whether its parts are timed.
    #[inline]
    pub(crate) fn begin(&mut self, meters: &Meters, now: Instant) {
        if let Some(watch) = &self.watch {
            let one_in = watch.traces.one_in();
            self.is_tracing = one_in > 0;
            self.is_timed = self.timed.skip(1).is_some() || self.is_tracing;
            if self.is_timed || self.ended_at.is_some() {
                self.begin_timed(meters, now);
            }
        }
    }

    #[cold]
    fn begin_timed(&mut self, meters: &Meters, now: Instant) {
        if let Some(ended_at) = self.ended_at.take() {
            let kernel = now.as_nanos().saturating_sub(ended_at.as_nanos());
            meters.worker.time(TurnPart::Kernel, kernel);
        }
        self.at = now;
        self.nanos = [0; TurnPart::ALL.len()];
    }

    /// Charges the time since the last mark to this part of the turn.
    #[inline]
    pub(crate) fn mark(&mut self, part: TurnPart) {
        if self.is_timed {
            self.note_mark(part);
        }
    }

    #[cold]
    fn note_mark(&mut self, part: TurnPart) {
        let watch = self.watch.as_ref().expect("a timed turn has a clock");
        let at = watch.now();
        self.nanos[part as usize] += at.as_nanos().saturating_sub(self.at.as_nanos());
        self.at = at;
    }

    /// Returns the time of the last mark.
    #[inline]
    pub(crate) fn marked_at(&self) -> Instant {
        self.at
    }

    /// Ends a turn. Its times count if the turn did work.
    #[inline]
    pub(crate) fn end(&mut self, meters: &Meters, progressed: bool) {
        if self.is_timed && progressed {
            for (part, nanos) in TurnPart::ALL.into_iter().zip(self.nanos) {
                meters.worker.time(part, nanos);
            }
            self.ended_at = Some(self.at);
        }
    }

    /// Begins to trace an admitted request, if it is one of the chosen ones.
    #[cold]
    pub(crate) fn trace(&mut self, slot: Slot, entry: &InFlightRequest) {
        let watch = self.watch.as_ref().expect("who traces has a clock");
        self.left = self.left.saturating_sub(1);
        if self.left > 0 || self.open.len() == OPEN_MAX {
            return;
        }
        self.left = watch.traces.one_in();
        let mut at = [0; TracePoint::ALL.len()];
        at[TracePoint::Admitted as usize] = watch.now().as_nanos();
        let trace = Trace {
            tenant: entry.tenant,
            connection: entry.conn.index,
            namespace: entry.namespace,
            kind: entry.command.kind(),
            status: Status::Ok,
            bytes: entry.command.buffer_bytes() as u32,
            at,
        };
        self.open.push(OpenTrace { slot, trace });
    }

    /// Notes in the traces that all new requests were queued.
    pub(crate) fn trace_queued(&mut self) {
        let at = self.at.as_nanos();
        for OpenTrace { trace, .. } in &mut self.open {
            let queued = &mut trace.at[TracePoint::Queued as usize];
            if *queued == 0 {
                *queued = at;
            }
        }
    }

    /// Notes in the traces which requests the schedulers released in the round at `due`. Requests
    /// that are gone are traced no more.
    pub(crate) fn trace_submitted(
        &mut self,
        now: Instant,
        due: Instant,
        in_flight: &mut SlotTable<InFlightRequest>,
    ) {
        let at = self.at.as_nanos();
        self.open.retain_mut(|OpenTrace { slot, trace }| {
            let Some(entry) = in_flight.find(*slot) else { return false };
            if entry.submitted_at == Some(now) && trace.at[TracePoint::Submitted as usize] == 0 {
                trace.at[TracePoint::Received as usize] = entry.received_at.as_nanos();
                trace.at[TracePoint::Due as usize] = due.as_nanos();
                trace.at[TracePoint::Submitted as usize] = at;
            }
            true
        });
    }

    /// Notes in the traces which requests the devices have completed; the turn polled them at
    /// `polled`. The requests are still in flight.
    pub(crate) fn trace_ended(
        &mut self,
        polled: Instant,
        ended: &[Completion],
        in_flight: &mut SlotTable<InFlightRequest>,
    ) {
        let at = self.at.as_nanos();
        for Completion { slot, status, .. } in ended {
            let found = self.open.iter().position(|open| open.slot == *slot);
            let Some(found) = found else { continue };
            let mut trace = self.open.swap_remove(found).trace;
            trace.at[TracePoint::Polled as usize] = polled.as_nanos();
            trace.at[TracePoint::Ended as usize] = at;
            trace.status = *status;
            let conn = in_flight.get(*slot).conn;
            if self.traced.len() < LEAVING_MAX {
                self.traced.push(UnsentReply { conn, position: UNKNOWN, about: trace });
            }
        }
    }

    /// Begins to follow the reply of a sampled read, which this turn will hand to the transport.
    #[inline]
    pub(crate) fn await_leaving(&mut self, now: Instant, conn: ConnId, picked: SampleLabels) {
        if self.sampled.len() < LEAVING_MAX {
            let about = AnsweredRead { at: now, picked };
            self.sampled.push(UnsentReply { conn, position: UNKNOWN, about });
        }
    }

    /// Returns whether replies are waited for.
    #[inline]
    pub(crate) fn awaits_leaving(&self) -> bool {
        !self.sampled.is_empty() || !self.traced.is_empty()
    }

    /// Notes the positions of the turn's replies, which the transport has started to send. `given`
    /// returns the bytes handed to the transport for a connection, or `None` if it is gone.
    pub(crate) fn note_positions(
        &mut self,
        answered: Instant,
        given: impl Fn(ConnId) -> Option<u64>,
    ) {
        let given = |conn| given(conn).unwrap_or(UNKNOWN);
        // The replies of this turn are the last.
        for leaving in self.sampled.iter_mut().rev() {
            if leaving.position != UNKNOWN {
                break;
            }
            leaving.position = given(leaving.conn);
        }
        let handed = self.at;
        for leaving in &mut self.traced {
            if leaving.position == UNKNOWN {
                leaving.position = given(leaving.conn);
                leaving.about.at[TracePoint::Answered as usize] = answered.as_nanos();
                leaving.about.at[TracePoint::Handed as usize] = handed.as_nanos();
            }
        }
    }

    /// Counts the replies that the network has taken. `left` returns the bytes of a connection that
    /// the network took, or `None` if it is gone.
    pub(crate) fn look_what_left(
        &mut self,
        meters: &Meters,
        now: Instant,
        left: impl Fn(ConnId) -> Option<u64>,
    ) {
        for n in (0..self.sampled.len()).rev() {
            let UnsentReply { conn, position, about } = self.sampled[n];
            let fate = fate(left(conn), position);
            if fate == ReplyFate::Waits {
                continue;
            }
            self.sampled.remove(n);
            if fate == ReplyFate::Left {
                let nanos = now.since(about.at).as_nanos() as u64;
                about.picked.count(meters, [(Stage::Reply, nanos)]);
            }
        }
        if !self.traced.is_empty() {
            self.look_what_traced_left(now, left);
        }
    }

    #[cold]
    fn look_what_traced_left(&mut self, now: Instant, left: impl Fn(ConnId) -> Option<u64>) {
        for n in (0..self.traced.len()).rev() {
            let UnsentReply { conn, position, .. } = self.traced[n];
            let fate = fate(left(conn), position);
            if fate == ReplyFate::Waits {
                continue;
            }
            let mut trace = self.traced.remove(n).about;
            if let Some(watch) = &self.watch {
                let sent = if fate == ReplyFate::Left { now.as_nanos() } else { 0 };
                trace.at[TracePoint::Sent as usize] = sent;
                watch.traces.put(&trace);
            }
        }
    }
}

/// Returns the state of a reply that ended at this position of its connection's bytes.
#[inline]
fn fate(left: Option<u64>, position: u64) -> ReplyFate {
    match left {
        None => ReplyFate::Lost,
        Some(left) if left < position => ReplyFate::Waits,
        Some(_) => ReplyFate::Left,
    }
}
