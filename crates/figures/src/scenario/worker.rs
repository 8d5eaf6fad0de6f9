//! A simulated worker with its own processor. Turns take time, and the submissions and replies of a
//! turn leave at its end.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Completion, Device, Feedback, Geometry, Instant, IoKind, QueueFull, Scheduler, Slot, Status,
    Submission, Tag, TenantId,
};
use ftl::Report;
use proto::reflex::ServerSession;
use qos::{PassThrough, TokenScheduler};
use worker::{DeviceLane, Limits, SharedState, Worker};

use super::disk::DiskQueue;
use super::memory::Memory;
use super::stalls::Stalls;
use super::wire::{Message, Wire};

/// The scheduler of a worker: first come, first served, or by tokens.
pub(crate) enum SchedulerKind {
    PassThrough(PassThrough),
    Tokens(Box<TokenScheduler>),
}

contract::variants!(each, SchedulerKind: PassThrough, Tokens);

/// The work of a token scheduler in a turn: rounds, tenants visited in them, requests queued.
#[derive(Debug, Default)]
struct Rounds {
    rounds: Cell<u64>,
    served: Cell<u64>,
    queued: Cell<u64>,
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

/// A scheduler wrapper that counts the work of a token scheduler in each turn.
pub(crate) struct CountingScheduler {
    order: SchedulerKind,
    rounds: Rc<Rounds>,
}

impl Scheduler for CountingScheduler {
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        match &mut self.order {
            SchedulerKind::PassThrough(order) => order.enqueue(tenant, kind, bytes, slot),
            SchedulerKind::Tokens(order) => {
                add(&self.rounds.queued, 1);
                order.enqueue(tenant, kind, bytes, slot)
            }
        }
    }

    fn begin_round(&mut self, now: Instant) {
        if let SchedulerKind::Tokens(order) = &mut self.order {
            order.begin_round(now);
            add(&self.rounds.rounds, 1);
            add(&self.rounds.served, u64::from(order.active()) + u64::from(order.short()));
        }
    }

    fn next(&mut self) -> Option<Slot> {
        each!(&mut self.order, order => order.next())
    }

    fn refund(&mut self, kind: IoKind, bytes: usize) {
        if let SchedulerKind::Tokens(tokens) = &mut self.order {
            tokens.refund(kind, bytes);
        }
    }

    fn discard(&mut self) -> Option<Slot> {
        each!(&mut self.order, order => order.discard())
    }

    fn queued(&self) -> usize {
        each!(&self.order, order => order.queued())
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        each!(&self.order, order => order.wake_at(now))
    }
}

impl Feedback for CountingScheduler {
    fn measures(&self) -> bool {
        each!(&self.order, order => order.measures())
    }

    fn ended(&mut self, kind: IoKind, delay: Duration) {
        each!(&mut self.order, order => order.ended(kind, delay))
    }

    fn began_large(&mut self, kind: IoKind, bytes: usize) {
        if let SchedulerKind::Tokens(order) = &mut self.order {
            order.began_large(kind, bytes);
        }
    }

    fn ended_large(&mut self, kind: IoKind, bytes: usize) {
        if let SchedulerKind::Tokens(order) = &mut self.order {
            order.ended_large(kind, bytes);
        }
    }

    fn depth_max(&self) -> usize {
        each!(&self.order, order => order.depth_max())
    }

    fn yields(&self, tenant: TenantId) -> bool {
        each!(&self.order, order => order.yields(tenant))
    }
}

/// A device queue wrapper that holds submissions back until the turn ends.
pub(crate) struct DeferredQueue {
    queue: DiskQueue,
    kicked: bool,
}

impl Device for DeferredQueue {
    fn geometry(&self) -> Geometry {
        self.queue.geometry()
    }

    fn room(&self) -> usize {
        self.queue.room()
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        self.queue.submit(now, submission);
    }

    fn kick(&mut self, _now: Instant) {
        self.kicked = true;
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.queue.poll(now, done);
    }

    fn wake_at(&self) -> Option<Instant> {
        self.queue.wake_at()
    }
}

type ServedWorker = Worker<Wire, DeferredQueue, CountingScheduler, ServerSession>;

/// A worker, its processor and its connections.
pub(crate) struct SimWorker {
    worker: ServedWorker,
    rounds: Rc<Rounds>,
    /// The virtual time in nanoseconds at which the processor becomes free from its turn or stall.
    free_at: u64,
    stalls: Stalls,
    /// `true` while a turn is under way, which ends at `free_at`.
    is_turning: bool,
    wake_at: Option<u64>,
    /// The processor time of turns that progressed, in nanoseconds since the stage began.
    /// `scheduling` is the part of the schedulers in it.
    pub(crate) busy: u64,
    pub(crate) scheduling: u64,
}

impl SimWorker {
    pub(crate) fn new(
        queue: DiskQueue,
        order: SchedulerKind,
        parts: Arc<SharedState>,
        tenants: usize,
        stalls: Stalls,
    ) -> SimWorker {
        let memory = Memory::take();
        let rounds = Rc::new(Rounds::default());
        let order = CountingScheduler { order, rounds: rounds.clone() };
        let device = DeferredQueue { queue, kicked: false };
        let worker = Worker::new(
            Wire::new(memory.receive),
            vec![DeviceLane::new(device, order)],
            memory.pool,
            parts,
            Limits { tenants, ..Limits::default() },
            |_, _| ServerSession::new(),
        );
        SimWorker {
            worker,
            rounds,
            free_at: 0,
            stalls,
            is_turning: false,
            wake_at: None,
            busy: 0,
            scheduling: 0,
        }
    }

    pub(crate) fn open(&mut self, uid: u32) -> u32 {
        self.worker.ports().0.open(uid)
    }

    pub(crate) fn arrive(&mut self, line: u32, message: Message) {
        self.worker.ports().0.arrive(line, message);
        self.wake_at = Some(0);
    }

    /// Returns the counters of the flash translation below the worker; `None` for bare flash.
    pub(crate) fn report(&mut self) -> Option<Report> {
        let (_, mut devices) = self.worker.ports();
        devices.next().and_then(|device| device.queue.report())
    }

    /// Drops requests of which the worker has received no byte.
    pub(crate) fn forget(&mut self) {
        self.worker.ports().0.forget();
    }

    /// Returns `true` if the worker is between turns, has nothing to receive, and has no request in
    /// flight.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        !self.is_turning && self.worker.is_at_rest() && !self.worker.ports().0.has_news()
    }

    /// Gives the buffers of a worker at rest to the next stage.
    pub(crate) fn take_apart(mut self) {
        let receive = self.worker.ports().0.take_buffers();
        Memory { pool: self.worker.into_pool(), receive }.give();
    }

    /// Returns the time of the worker's next event in nanoseconds, which may be past; `None` if the
    /// worker sleeps until a request comes.
    pub(crate) fn next(&self) -> Option<u64> {
        if self.is_turning {
            return Some(self.free_at);
        }
        self.wake_at.map(|at| at.max(self.free_at))
    }

    /// Ends the present turn, or begins one. Adds the replies of a turn that begins to `replies`,
    /// with the time at which they leave: the end of the turn.
    pub(crate) fn step(&mut self, now: u64, replies: &mut Vec<(u64, Tag, Status)>) {
        if self.is_turning {
            self.end_turn(now);
        } else {
            self.begin_turn(now, replies);
        }
    }

    fn begin_turn(&mut self, now: u64, replies: &mut Vec<(u64, Tag, Status)>) {
        let resumed = self.stalls.resume(now);
        if resumed > now {
            self.free_at = resumed;
            return;
        }
        let turn = self.worker.turn(Instant::from_nanos(now));
        let (sent, mut work) = self.worker.ports().0.end_turn();
        work.rounds = self.rounds.rounds.take();
        work.served = self.rounds.served.take();
        work.queued = self.rounds.queued.take();
        let took = work.nanos(turn.progressed);
        self.free_at = self.stalls.done(now, took);
        self.is_turning = true;
        if turn.progressed {
            self.busy += took;
            self.scheduling += work.scheduling();
        }
        let leaves = self.free_at;
        replies.extend(sent.map(|(tag, status)| (leaves, tag, status)));
        // A productive worker may find more to do.
        self.wake_at = if turn.progressed { Some(0) } else { turn.wake_at.map(Instant::as_nanos) };
    }

    fn end_turn(&mut self, now: u64) {
        self.is_turning = false;
        let (wire, mut devices) = self.worker.ports();
        let device = devices.next().expect("it has one device");
        if std::mem::take(&mut device.kicked) {
            device.queue.kick(Instant::from_nanos(now));
        }
        let done = device.wake_at().map(Instant::as_nanos);
        let news = wire.has_news().then_some(0);
        self.wake_at = [self.wake_at, done, news].into_iter().flatten().min();
    }
}
