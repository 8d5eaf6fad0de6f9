//! Where the time goes: in turns that are timed, and of requests that are traced.
//!
//! A server gives its workers a clock beside the time of the turn. One turn in 64, by chance, reads
//! it at its seams. While somebody traces, every turn does, and requests that are picked note when
//! they come to which seam. In all other turns each seam costs one test, and each request one. What
//! is deliberately not here: what is made of it (`control` does that).

use std::fmt;
use std::sync::Arc;

use contract::{
    Completion, ConnId, Device, Instant, Mailbox, Part, Scheduler, Seam, Session, Slot, Stage,
    Status, Trace, Traces, Transport,
};

use crate::metering::{Picked, Sampler};
use crate::worker::Worker;

/// Requests that are traced at the same time, at most.
const OPEN_MAX: usize = 64;

/// Replies whose leaving is waited for at the same time, at most.
const LEAVING_MAX: usize = 64;

/// One turn in so many is timed.
const TIMED_ONE_IN: u32 = 64;

/// What a worker needs to see where the time goes.
pub struct Watch {
    /// The clock of the turns' times.
    pub clock: Box<dyn Fn() -> Instant + Send>,
    /// Where traces go.
    pub traces: Arc<Traces>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// A request that is traced and that no device has ended.
#[derive(Debug)]
struct Open {
    slot: Slot,
    trace: Trace,
}

/// A reply that waits for the network to take it: of a sample, or of a request that is traced.
#[derive(Clone, Copy, Debug)]
struct Leaving<A> {
    conn: ConnId,
    /// Bytes that the connection had been given when the reply was its last; [`UNKNOWN`] in the turn
    /// that makes the reply, and for a connection that ended in it.
    position: u64,
    about: A,
}

/// A position that none is behind.
const UNKNOWN: u64 = u64::MAX;

/// What is told of a sampled read when it has left.
#[derive(Clone, Copy, Debug)]
struct Answered {
    at: Instant,
    picked: Picked,
}

/// What a worker keeps of it.
#[derive(Debug)]
pub(crate) struct Laps {
    /// This turn reads the clock.
    is_timed: bool,
    /// Requests are traced.
    pub(crate) is_tracing: bool,
    timed: Sampler,
    /// The last seam.
    at: Instant,
    nanos: [u64; Part::ALL.len()],
    /// The end of the last turn, if it was timed and did something.
    ended_at: Option<Instant>,
    /// Requests until the next that is traced.
    left: u32,
    open: Vec<Open>,
    sampled: Vec<Leaving<Answered>>,
    traced: Vec<Leaving<Trace>>,
}

impl Default for Laps {
    fn default() -> Self {
        Laps {
            is_timed: false,
            is_tracing: false,
            timed: Sampler::new(TIMED_ONE_IN),
            at: Instant::ZERO,
            nanos: [0; Part::ALL.len()],
            ended_at: None,
            left: 0,
            open: Vec::with_capacity(OPEN_MAX),
            sampled: Vec::with_capacity(LEAVING_MAX),
            traced: Vec::with_capacity(LEAVING_MAX),
        }
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A turn begins.
    #[inline]
    pub(crate) fn begin_laps(&mut self, now: Instant) {
        if let Some(watch) = &self.line.watch {
            let one_in = watch.traces.one_in();
            self.laps.is_tracing = one_in > 0;
            self.laps.is_timed = self.laps.timed.skip(1).is_some() || self.laps.is_tracing;
            if self.laps.is_timed || self.laps.ended_at.is_some() {
                self.begin_timed(now);
            }
        }
    }

    #[cold]
    fn begin_timed(&mut self, now: Instant) {
        if let Some(ended_at) = self.laps.ended_at.take() {
            let kernel = now.as_nanos().saturating_sub(ended_at.as_nanos());
            self.line.meters.worker.time(Part::Kernel, kernel);
        }
        self.laps.at = now;
        self.laps.nanos = [0; Part::ALL.len()];
    }

    /// What was done since the last seam was this.
    #[inline]
    pub(crate) fn lap(&mut self, part: Part) {
        if self.laps.is_timed {
            self.note_lap(part);
        }
    }

    #[cold]
    fn note_lap(&mut self, part: Part) {
        let watch = self.line.watch.as_ref().expect("a timed turn has a clock");
        let at = (watch.clock)();
        self.laps.nanos[part as usize] += at.as_nanos().saturating_sub(self.laps.at.as_nanos());
        self.laps.at = at;
    }

    /// The turn ends: what it took counts if it did something.
    #[inline]
    pub(crate) fn end_laps(&mut self) {
        if self.laps.is_timed && self.progressed {
            for (part, nanos) in Part::ALL.into_iter().zip(self.laps.nanos) {
                self.line.meters.worker.time(part, nanos);
            }
            self.laps.ended_at = Some(self.laps.at);
        }
    }

    /// A request was admitted while requests are traced: perhaps it is one of them.
    #[cold]
    pub(crate) fn trace(&mut self, slot: Slot) {
        let watch = self.line.watch.as_ref().expect("who traces has a clock");
        self.laps.left = self.laps.left.saturating_sub(1);
        if self.laps.left > 0 || self.laps.open.len() == OPEN_MAX {
            return;
        }
        self.laps.left = watch.traces.one_in();
        let entry = self.in_flight.get(slot);
        let mut at = [0; Seam::ALL.len()];
        at[Seam::Admitted as usize] = (watch.clock)().as_nanos();
        let trace = Trace {
            tenant: entry.tenant,
            connection: entry.conn.index,
            namespace: entry.namespace,
            kind: entry.command.kind(),
            status: Status::Ok,
            bytes: entry.command.buffer_bytes() as u32,
            at,
        };
        self.laps.open.push(Open { slot, trace });
    }

    /// All that came was queued.
    pub(crate) fn trace_queued(&mut self) {
        let at = self.laps.at.as_nanos();
        for Open { trace, .. } in &mut self.laps.open {
            let queued = &mut trace.at[Seam::Queued as usize];
            if *queued == 0 {
                *queued = at;
            }
        }
    }

    /// The schedulers, which the turn came to at `due`, have let go what they let go. Requests that
    /// are gone are traced no more.
    pub(crate) fn trace_submitted(&mut self, due: Instant) {
        let (now, at) = (self.now, self.laps.at.as_nanos());
        let in_flight = &mut self.in_flight;
        self.laps.open.retain_mut(|Open { slot, trace }| {
            let Some(entry) = in_flight.find(*slot) else { return false };
            if entry.submitted_at == Some(now) && trace.at[Seam::Submitted as usize] == 0 {
                trace.at[Seam::Received as usize] = entry.received_at.as_nanos();
                trace.at[Seam::Due as usize] = due.as_nanos();
                trace.at[Seam::Submitted as usize] = at;
            }
            true
        });
    }

    /// When the turn came to the seam that it was at last.
    pub(crate) fn lapped_at(&self) -> Instant {
        self.laps.at
    }

    /// The devices, which the turn came to at `polled`, have ended these; their requests are still
    /// in flight.
    pub(crate) fn trace_ended(&mut self, polled: Instant, ended: &[Completion]) {
        let at = self.laps.at.as_nanos();
        for Completion { slot, status, .. } in ended {
            let found = self.laps.open.iter().position(|open| open.slot == *slot);
            let Some(found) = found else { continue };
            let mut trace = self.laps.open.swap_remove(found).trace;
            trace.at[Seam::Polled as usize] = polled.as_nanos();
            trace.at[Seam::Ended as usize] = at;
            trace.status = *status;
            let conn = self.in_flight.get(*slot).conn;
            if self.laps.traced.len() < LEAVING_MAX {
                self.laps.traced.push(Leaving { conn, position: UNKNOWN, about: trace });
            }
        }
    }

    /// The reply of a sampled read will be given to the transport in this turn: when the network has
    /// taken it, is waited for.
    #[inline]
    pub(crate) fn await_leaving(&mut self, conn: ConnId, picked: Picked) {
        if self.laps.sampled.len() < LEAVING_MAX {
            let about = Answered { at: self.now, picked };
            self.laps.sampled.push(Leaving { conn, position: UNKNOWN, about });
        }
    }

    /// The turn has given its replies to the transport, which has started to send them.
    pub(crate) fn note_positions(&mut self, answered: Instant) {
        let conns = &self.conns;
        let given = |id: ConnId| match &conns[id.index as usize] {
            Some(conn) if conn.id == id => conn.progress.queued,
            _ => UNKNOWN,
        };
        // Those of this turn are the last.
        for leaving in self.laps.sampled.iter_mut().rev() {
            if leaving.position != UNKNOWN {
                break;
            }
            leaving.position = given(leaving.conn);
        }
        let handed = self.laps.at;
        for leaving in &mut self.laps.traced {
            if leaving.position == UNKNOWN {
                leaving.position = given(leaving.conn);
                leaving.about.at[Seam::Answered as usize] = answered.as_nanos();
                leaving.about.at[Seam::Handed as usize] = handed.as_nanos();
            }
        }
    }

    /// Whether replies are waited for.
    #[inline]
    pub(crate) fn awaits_leaving(&self) -> bool {
        !self.laps.sampled.is_empty() || !self.laps.traced.is_empty()
    }

    /// Looks which replies the network has taken.
    pub(crate) fn look_what_left(&mut self) {
        for n in (0..self.laps.sampled.len()).rev() {
            let Leaving { conn, position, about } = self.laps.sampled[n];
            let fate = self.fate(conn, position);
            if fate == Fate::Waits {
                continue;
            }
            self.laps.sampled.remove(n);
            if fate == Fate::Left {
                let nanos = self.now.since(about.at).as_nanos() as u64;
                about.picked.count(&self.line.meters, [(Stage::Reply, nanos)]);
            }
        }
        if !self.laps.traced.is_empty() {
            self.look_what_traced_left();
        }
    }

    #[cold]
    fn look_what_traced_left(&mut self) {
        for n in (0..self.laps.traced.len()).rev() {
            let Leaving { conn, position, .. } = self.laps.traced[n];
            let fate = self.fate(conn, position);
            if fate == Fate::Waits {
                continue;
            }
            let mut trace = self.laps.traced.remove(n).about;
            if let Some(watch) = &self.line.watch {
                let sent = if fate == Fate::Left { self.now.as_nanos() } else { 0 };
                trace.at[Seam::Sent as usize] = sent;
                watch.traces.put(&trace);
            }
        }
    }

    /// What has become of a reply that the connection's bytes up to this position ended with.
    #[inline]
    fn fate(&mut self, id: ConnId, position: u64) -> Fate {
        let conn = self.conns[id.index as usize].as_ref().filter(|conn| conn.id == id);
        match conn.map(|conn| conn.progress.queued) {
            None => Fate::Lost,
            Some(queued) if queued - (self.transport.unsent(id) as u64) < position => Fate::Waits,
            Some(_) => Fate::Left,
        }
    }
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The network has not taken it.
    Waits,
    /// The network has taken it.
    Left,
    /// Its connection is gone.
    Lost,
}
