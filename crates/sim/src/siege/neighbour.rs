//! A tenant beside the attackers: it sends small requests at an even pace, and times them from the
//! moment at which each was due.

use std::collections::VecDeque;
use std::time::Duration;

use client::{Done, Initiator, Op, Options};
use contract::{BLOCK_BYTES, BufPool, Command, Instant, Range};
use flash::Rng;

use super::plan::{NeighbourPlan, VOLUME_BLOCKS};
use crate::port::Port;

/// The most requests of a neighbour in flight.
const IN_FLIGHT_MAX: usize = 16;

/// A tenant beside the attackers.
pub(super) struct Neighbour {
    initiator: Initiator<Port>,
    plan: NeighbourPlan,
    chance: Rng,
    bufs: BufPool,
    /// The time of the next request, and the time from which on there are no more.
    next_at: Instant,
    until: Instant,
    /// The times at which requests were due that have not been sent.
    due: VecDeque<Instant>,
    /// The times at which requests in flight were due, by the ticket's index.
    pending: Vec<Option<Instant>>,
    done: Vec<Done>,
    /// The latency of each read, with the time at which it was due.
    pub(super) reads: Vec<(Instant, Duration)>,
}

impl Neighbour {
    pub(super) fn new(
        port: Port,
        plan: NeighbourPlan,
        seed: u64,
        bufs: BufPool,
        until: Instant,
    ) -> Self {
        let options = Options {
            connections: plan.connections,
            in_flight_max: IN_FLIGHT_MAX,
            seed,
            ..Options::default()
        };
        Neighbour {
            initiator: Initiator::new(port, options),
            plan,
            chance: Rng::new(seed),
            bufs,
            next_at: Instant::ZERO + Duration::from_millis(20),
            until,
            due: VecDeque::new(),
            pending: vec![None; IN_FLIGHT_MAX],
            done: Vec::new(),
            reads: Vec::new(),
        }
    }

    pub(super) fn port(&mut self) -> &mut Port {
        self.initiator.transport()
    }

    /// Returns `true` if every request has been sent and answered.
    pub(super) fn is_done(&self) -> bool {
        self.next_at >= self.until && self.due.is_empty() && self.initiator.in_flight() == 0
    }

    /// Returns the time since which the oldest request has waited; `None` if no request waits.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.pending.iter().flatten().chain(self.due.front()).min().copied()
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let own = (self.next_at < self.until).then_some(self.next_at);
        [self.initiator.wake_at(), own].into_iter().flatten().min()
    }

    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let mut done = std::mem::take(&mut self.done);
        let mut progressed = self.initiator.turn(now, &mut done);
        self.initiator.reports().for_each(drop);
        for end in done.drain(..) {
            self.take(now, end);
        }
        self.done = done;
        while self.next_at <= now && self.next_at < self.until {
            self.due.push_back(self.next_at);
            self.next_at = self.next_at + self.plan.period;
        }
        while let Some(&due) = self.due.front()
            && self.initiator.room() > 0
            && self.send(now, due)
        {
            self.due.pop_front();
            progressed = true;
        }
        self.initiator.flush(now);
        progressed
    }

    /// Sends the request that was due at `due`. Returns `false` if there is no buffer for it.
    fn send(&mut self, now: Instant, due: Instant) -> bool {
        let blocks = self.plan.blocks[self.chance.within(0..=1) as usize];
        let lba = self.chance.within(0..=VOLUME_BLOCKS - u64::from(blocks));
        let range = Range::new(lba, blocks);
        let writes = self.chance.happens(self.plan.writes);
        let buf = if writes { self.bufs.take(blocks as usize * BLOCK_BYTES) } else { None };
        if writes && buf.is_none() {
            return false;
        }
        let command = match writes {
            true => Command::Write { range, fua: false },
            false => Command::Read(range),
        };
        let ticket = self.initiator.submit(now, Op::new(command, buf)).expect("it had room");
        self.pending[ticket.index()] = Some(due);
        true
    }

    fn take(&mut self, now: Instant, end: Done) {
        let Done { ticket, command, status, buf } = end;
        assert!(status.is_ok(), "{command:?} of a neighbour: {status}");
        let due = self.pending[ticket.index()].take().expect("it was sent");
        if let Command::Read(_) = command {
            self.reads.push((due, now.since(due)));
        }
        if let Some(buf) = buf {
            self.bufs.give(buf);
        }
    }

    /// Takes the buffers and the latencies of a neighbour that is done.
    pub(super) fn into_parts(self) -> (BufPool, Vec<(Instant, Duration)>) {
        assert!(self.bufs.is_whole(), "a neighbour's buffer did not come back");
        (self.bufs, self.reads)
    }
}
