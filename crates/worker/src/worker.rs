//! The hub: one turn receives, dispatches and completes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Buf, BufPool, Command, Completion, ConnId, DEVICES_MAX, Device, End, Geometry, Instant, Kind,
    ListenerId, Mailbox, NetEvent, NoMailbox, Part, Peer, Protocol, Range, Scheduler, Session,
    Slot, SlotTable, Start, Status, Submission, TenantId, Transport, Turn,
};

use crate::awaited::Awaited;
use crate::connection::Connection;
use crate::drains::Drain;
use crate::fence::Fences;
use crate::guesses::Guesses;
use crate::inflight::InFlight;
use crate::metering::{SAMPLED_ONE_IN, Sampler};
use crate::moving::Moves;
use crate::quota::{CLASSES_MAX, Quotas};
use crate::sessions::{Sessions, WithoutNews};
use crate::tally::Tally;
use crate::tenancy::Talks;
use crate::watch::Laps;
use crate::{Access, Limits, Line, Listeners, Namespaces};

/// How soon to look again whether a fence is clear.
const FENCE_PERIOD: Duration = Duration::from_micros(200);

/// What all workers of a server share.
#[derive(Debug)]
pub struct Parts {
    /// The namespaces at the start of a worker, which is told of changes.
    pub namespaces: Namespaces,
    /// The access rules.
    pub access: Access,
    /// Where the listeners lead.
    pub listeners: Listeners,
    /// The fences.
    pub fences: Fences,
}

/// A device queue with its scheduler.
#[derive(Debug)]
pub struct Attached<D, S> {
    pub(crate) device: D,
    pub(crate) scheduler: S,
    pub(crate) geometry: Geometry,
    /// Requests that the device has.
    pub(crate) submitted: usize,
    /// Requests that the scheduler let go and that wait for buffers, oldest first; a buffer that
    /// comes back ends this for the first. At most as many as are in flight.
    parked: VecDeque<Slot>,
    /// Requests that the scheduler let go and that their fence, or another process, holds, oldest
    /// first; the ends of requests at the device end this, or the other process's. At most as many as
    /// are in flight.
    fenced: VecDeque<Slot>,
    /// Requests were queued since the last round.
    pub(crate) is_fresh: bool,
    /// The device had no room for all that the last round let go.
    is_cut: bool,
}

impl<D: Device, S: Scheduler> Attached<D, S> {
    /// Whether it has no request in hand.
    pub(crate) fn is_idle(&self) -> bool {
        let waiting = self.scheduler.queued() + self.parked.len() + self.fenced.len();
        self.submitted + waiting == 0
    }

    /// Makes room for as many requests as there may be.
    pub(crate) fn reserve(&mut self, in_flight: usize) {
        self.parked.reserve(in_flight);
        self.fenced.reserve(in_flight);
    }

    /// Joins the two.
    pub fn new(device: D, scheduler: S) -> Self {
        let geometry = device.geometry();
        Attached {
            device,
            scheduler,
            geometry,
            submitted: 0,
            parked: VecDeque::new(),
            fenced: VecDeque::new(),
            is_fresh: false,
            is_cut: false,
        }
    }

    /// When a round would find something to do: new requests, new room, or new tokens. Also without
    /// waiting requests, when the scheduler asks for it: it has tokens to give away. While the
    /// device takes no more, a completion ends the wait.
    fn due(&self, now: Instant) -> Option<Instant> {
        let has_room = self.has_room();
        match self.scheduler.queued() {
            1.. if !has_room => None,
            _ if has_room && (self.is_fresh || self.is_cut) => Some(now),
            _ => self.scheduler.wake_at(now),
        }
    }

    /// Whether a command, of the device's blocks, needs its range for itself.
    fn excludes(&self, command: Command) -> bool {
        self.device.excludes(command)
    }

    /// Takes the requests that wait for buffers, or for another process, and of which this is true.
    pub(crate) fn unpark(&mut self, mut is_meant: impl FnMut(Slot) -> bool, taken: &mut Vec<Slot>) {
        for queue in [&mut self.parked, &mut self.fenced] {
            queue.retain(|slot| {
                let is_meant = is_meant(*slot);
                taken.extend(is_meant.then_some(*slot));
                !is_meant
            });
        }
    }

    /// Whether the device takes one more, and the scheduler wants it to.
    fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many more the device takes, as far as the scheduler wants it to.
    fn room(&self) -> usize {
        let wanted = self.scheduler.depth_max().saturating_sub(self.submitted);
        self.device.room().min(wanted)
    }
}

/// What a worker holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests in flight.
    pub in_flight: usize,
    /// Buffers that are out of the pool.
    pub buffers: usize,
    /// Bytes kept for stopped connections, at most [`Limits::carried`].
    pub carried: usize,
    /// Requests that wait to ask for their payloads.
    pub put_off: usize,
    /// Requests that their fences, or another process, hold.
    pub fenced: usize,
    /// Connections that are to be looked at, as what they waited for may be over.
    pub called: usize,
}

/// Received bytes that have not been taken yet.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) conn: ConnId,
    pub(crate) buf: Buf,
    /// `taken ≤ len`
    pub(crate) taken: usize,
    pub(crate) len: usize,
}

/// One thread's server. It is driven by [`turn`](Worker::turn) and never blocks.
#[derive(Debug)]
pub struct Worker<T, D, S, P, M = NoMailbox> {
    pub(crate) transport: T,
    pub(crate) devices: Vec<Attached<D, S>>,
    pub(crate) shared: Arc<Parts>,
    /// As this worker has been told.
    pub(crate) namespaces: Namespaces,
    /// The last change of a namespace, until it holds for all that is at devices.
    pub(crate) placing: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) line: Line<M>,
    pub(crate) talks: Talks,
    pub(crate) moves: Moves,
    pub(crate) pool: BufPool,
    /// One of the largest buffers, for a request at the front of a scheduler that finds none: the
    /// others may all be with writes behind it, which wait for it. A buffer that comes back is the
    /// next.
    pub(crate) spare: Option<Buf>,
    pub(crate) sessions: Box<dyn Sessions<P>>,
    /// By the connection's index.
    pub(crate) conns: Vec<Option<Box<Connection<P>>>>,
    pub(crate) open_connections: usize,
    pub(crate) in_flight: SlotTable<InFlight>,
    pub(crate) awaited: Awaited,
    pub(crate) quotas: Quotas,
    /// At most as many as the transport has receive buffers.
    pub(crate) inbox: VecDeque<Chunk>,
    /// Connections whose next bytes may be payload of a request, to be received into its buffer.
    pub(crate) fillable: Vec<ConnId>,
    /// Connections whose stall may be over.
    pub(crate) stalled: VecDeque<ConnId>,
    /// Connections that were called in this turn though nothing of their tenant's had ended for them.
    pub(crate) called: usize,
    /// Connections that wait for what the worker is short of, each once, the first in front.
    pub(crate) starving: VecDeque<ConnId>,
    /// Bytes kept for stalled connections.
    pub(crate) carried: usize,
    /// Connections whose hello waits for a fence.
    pub(crate) greetings: Vec<ConnId>,
    /// Wrong tokens, and hellos whose tokens are looked at late.
    pub(crate) guesses: Guesses,
    pub(crate) events: Vec<NetEvent>,
    completions: Vec<Completion>,
    pub(crate) tally: Tally,
    /// Turns that did something since the meters were told.
    pub(crate) untold: u32,
    pub(crate) sampler: Sampler,
    pub(crate) laps: Laps,
    /// Open connections by what they speak, as housekeeping last counted them.
    pub(crate) protocols: [u32; Protocol::ALL.len()],
    /// Nanoseconds of turns that did something, with the system call behind each.
    pub(crate) busy_nanos: u64,
    pub(crate) now: Instant,
    /// Requests parsed in this turn.
    pub(crate) batch: usize,
    pub(crate) progressed: bool,
    /// Slots, frames or buffers did not suffice in this turn.
    pub(crate) short: bool,
    pub(crate) housekeep_at: Instant,
    pub(crate) drain_until: Option<Instant>,
    /// Of some of its connections, or of all that there were.
    pub(crate) drains: Vec<Drain>,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session> Worker<T, D, S, P> {
    /// A worker without a control plane: whoever wants to register is told to try again.
    /// [`with_line`](Worker::with_line) has the rest.
    pub fn new(
        transport: T,
        devices: Vec<Attached<D, S>>,
        pool: BufPool,
        shared: Arc<Parts>,
        limits: Limits,
        new_session: impl Fn(Option<ListenerId>, &Peer) -> P + 'static,
    ) -> Self {
        let line = Line::none(limits.tenants);
        Worker::with_line(transport, devices, pool, shared, limits, new_session, line)
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A worker over these ports. Each connection gets a session of `new_session`, which is told the
    /// listener that accepted it and who is at the other end. One of the pool's largest buffers is
    /// set aside, so there must be two; for sessions that await payloads of that size, three.
    pub fn with_line(
        transport: T,
        devices: Vec<Attached<D, S>>,
        pool: BufPool,
        shared: Arc<Parts>,
        limits: Limits,
        new_session: impl Fn(Option<ListenerId>, &Peer) -> P + 'static,
        line: Line<M>,
    ) -> Self {
        let sessions = Box::new(WithoutNews(new_session));
        Worker::with_sessions(transport, devices, pool, shared, limits, sessions, line)
    }

    /// The same with sessions that have news.
    pub fn with_sessions(
        transport: T,
        mut devices: Vec<Attached<D, S>>,
        mut pool: BufPool,
        shared: Arc<Parts>,
        limits: Limits,
        sessions: Box<dyn Sessions<P>>,
        line: Line<M>,
    ) -> Self {
        let spare = pool.take(pool.largest());
        assert!(pool.has(pool.largest()), "a pool has two of its largest buffers");
        assert!(pool.classes() <= CLASSES_MAX, "buffers have a few sizes");
        assert!(devices.len() <= DEVICES_MAX, "at most {DEVICES_MAX} devices");
        devices.iter_mut().for_each(|attached| attached.reserve(limits.in_flight));
        shared.namespaces.tell_places(&line.meters);
        Worker {
            transport,
            devices,
            namespaces: shared.namespaces.clone(),
            placing: None,
            shared,
            line,
            talks: Talks::default(),
            moves: Moves::default(),
            pool,
            spare,
            sessions,
            conns: Vec::new(),
            open_connections: 0,
            in_flight: SlotTable::new(limits.in_flight),
            awaited: Awaited::new(&limits),
            quotas: Quotas::default(),
            inbox: VecDeque::with_capacity(1024),
            fillable: Vec::with_capacity(64),
            stalled: VecDeque::new(),
            called: 0,
            starving: VecDeque::new(),
            carried: 0,
            greetings: Vec::new(),
            guesses: Guesses::new(),
            events: Vec::with_capacity(1024),
            completions: Vec::with_capacity(1024),
            tally: Tally::default(),
            untold: 0,
            sampler: Sampler::new(SAMPLED_ONE_IN),
            laps: Laps::default(),
            protocols: [0; Protocol::ALL.len()],
            busy_nanos: 0,
            now: Instant::ZERO,
            batch: 0,
            progressed: false,
            short: false,
            housekeep_at: Instant::ZERO,
            drain_until: None,
            drains: Vec::new(),
            limits,
        }
    }

    /// One turn: takes what arrived, submits what may be submitted, answers what has ended.
    pub fn turn(&mut self, now: Instant) -> Turn {
        if self.progressed {
            // Nobody sleeps between such a turn and the next.
            self.busy_nanos += now.as_nanos().saturating_sub(self.now.as_nanos());
        }
        self.begin_laps(now);
        self.now = now;
        self.tally.begin_turn(now);
        self.batch = 0;
        self.progressed = false;
        self.short = false;
        self.take_mail();
        while let Some(id) = self.sessions.news(now) {
            self.attend(id);
        }
        self.lap(Part::Upkeep);
        self.receive();
        self.dispatch();
        self.complete();
        let answered = self.lapped_at();
        if self.placing.is_some() {
            self.settle_places();
        }
        if self.guesses.waiting() > 0 {
            self.look_at_tokens();
        }
        if !self.greetings.is_empty() {
            self.answer_greetings();
        }
        if !self.drains.is_empty() {
            self.drain_on();
        }
        self.housekeep();
        if !self.moves.is_idle() {
            self.move_on();
        }
        self.lap(Part::Upkeep);
        self.transport.kick(now);
        self.end_metering(answered);
        Turn { progressed: self.progressed, wake_at: self.wake_at() }
    }

    /// Submits what the schedulers let go, while the devices have room. Requests that wait for
    /// buffers go first, in their order; those that find a buffer do not wait behind them.
    fn dispatch(&mut self) {
        let due = self.lapped_at();
        for n in 0..self.devices.len() {
            let attached = &mut self.devices[n];
            if attached.due(self.now).is_some_and(|at| at <= self.now) {
                attached.scheduler.begin_round(self.now);
                (attached.is_fresh, attached.is_cut) = (false, true);
            } else if attached.parked.is_empty() && attached.fenced.is_empty() {
                continue;
            }
            let room = attached.room();
            let mut left = room;
            for _ in 0..self.devices[n].fenced.len().min(room) {
                let slot = self.devices[n].fenced.pop_front().expect("it was just counted");
                let held = self.devices[n].fenced.len();
                // Those that are held still go to the end, and keep their order.
                if !self.submit(n, slot, false) {
                    self.devices[n].parked.push_back(slot);
                } else if self.devices[n].fenced.len() == held {
                    left -= 1;
                }
            }
            while left > 0 {
                let Some(&slot) = self.devices[n].parked.front() else { break };
                if !self.submit(n, slot, true) {
                    break;
                }
                self.devices[n].parked.pop_front();
                left -= 1;
            }
            while left > 0 {
                let attached = &mut self.devices[n];
                let is_first = attached.parked.is_empty();
                let Some(slot) = attached.scheduler.next() else {
                    attached.is_cut = false;
                    break;
                };
                if self.submit(n, slot, is_first) {
                    left -= 1;
                } else {
                    self.devices[n].parked.push_back(slot);
                }
            }
            self.short |= !self.devices[n].parked.is_empty();
            if left < room {
                self.progressed = true;
                self.devices[n].device.kick(self.now);
            }
        }
        self.lap(Part::Scheduling);
        if self.laps.is_tracing {
            self.trace_submitted(due);
        }
    }

    /// Gives a request to its device. `false`: there is no buffer for its reply now. The buffer
    /// that is set aside is for the `first` in the order of the device alone.
    fn submit(&mut self, n: usize, slot: Slot, first: bool) -> bool {
        let entry = self.in_flight.get(slot);
        if !entry.verdict.is_ok() {
            self.withhold(n, slot);
            return true;
        }
        match self.conns.get(entry.conn.index as usize) {
            Some(Some(conn)) if conn.id == entry.conn => {}
            _ => {
                self.refund(n, slot);
                self.forget(slot);
                return true;
            }
        }
        let (command, buf) = match entry.command {
            // Most requests are reads; for them this is all.
            Command::Read(range) => {
                let spare = || self.spare.take_if(|_| first);
                let Some(buf) = self.pool.take(range.bytes()).or_else(spare) else { return false };
                entry.submitted_at = Some(self.now);
                (Command::Read(Range { lba: entry.lba, ..range }), Some(buf))
            }
            other => {
                let command = other.with_lba(entry.lba);
                if command.kind() == Kind::Write && !self.may_change(n, slot, command) {
                    return true;
                }
                let entry = self.in_flight.get(slot);
                entry.submitted_at = Some(self.now);
                (command, entry.buf.take())
            }
        };
        let attached = &mut self.devices[n];
        attached.submitted += 1;
        attached.device.submit(self.now, Submission { slot, command, buf });
        true
    }

    /// Whether a request that changes data may go to its device now. Otherwise it waits for its fence
    /// or another process, or has ended.
    fn may_change(&mut self, n: usize, slot: Slot, command: Command) -> bool {
        let entry = self.in_flight.get(slot);
        let conn = self.conns[entry.conn.index as usize].as_mut().expect("the caller looked");
        let fences = &self.shared.fences;
        if fences.holds_writes() {
            let is_kin = conn.fence.as_ref().is_some_and(|fence| fence.may_be_elsewhere());
            let excludes = fences.holds_exclusives() && self.devices[n].excludes(command);
            if excludes || is_kin && fences.holds_kin() {
                self.hold_back(n, slot);
                return false;
            }
        }
        let Some(fence) = &conn.fence else { return true };
        let mut epoch = conn.session.allowed_as_of(entry.tag);
        let mut start = fence.start(n, epoch);
        if start == Start::Stale {
            match conn.session.allow_again(entry.tag) {
                Ok(now) => (epoch, start) = (now, fence.start(n, now)),
                Err(status) => {
                    entry.verdict = status;
                    self.withhold(n, slot);
                    return false;
                }
            }
        }
        match start {
            Start::Started => {
                entry.fence = Some((fence.clone(), epoch));
                return true;
            }
            Start::Held | Start::Stale => self.devices[n].fenced.push_back(slot),
            Start::Superseded => self.supersede(n, slot),
        }
        false
    }

    /// A request may not start, because of what another process may have at the devices. One that
    /// drains sends it away: the other may be waiting for this one to end.
    fn hold_back(&mut self, n: usize, slot: Slot) {
        if self.is_draining() {
            self.refund(n, slot);
            self.end(slot, Status::Retry, None);
        } else {
            self.devices[n].fenced.push_back(slot);
        }
    }

    /// A request may not start, because its connection was superseded.
    fn supersede(&mut self, n: usize, slot: Slot) {
        let id = self.in_flight.get(slot).conn;
        self.refund(n, slot);
        self.end(slot, Status::Retry, None);
        // Whose session gave the fence, that ends the connection itself.
        if self.find(id).is_some_and(|conn| conn.place.is_some()) {
            self.disconnect(id, End::Superseded, "its client has a newer connection");
        }
    }

    /// Gives back what a request has cost that no device gets.
    pub(crate) fn refund(&mut self, n: usize, slot: Slot) {
        let command = self.in_flight.get(slot).command;
        self.devices[n].scheduler.refund(command.work(), command.work_bytes());
    }

    /// Answers what the devices have ended.
    fn complete(&mut self) {
        let polled = self.lapped_at();
        let mut completions = std::mem::take(&mut self.completions);
        for attached in &mut self.devices {
            if attached.submitted > 0 {
                let before = completions.len();
                attached.device.poll(self.now, &mut completions);
                attached.submitted -= completions.len() - before;
                if attached.scheduler.measures() {
                    for completion in &completions[before..] {
                        let entry = self.in_flight.get(completion.slot);
                        let submitted_at = entry.submitted_at.expect("the device got it");
                        let delay = self.now.since(submitted_at);
                        attached.scheduler.ended(entry.command.kind(), delay);
                    }
                }
            }
        }
        if !completions.is_empty() {
            self.progressed = true;
            self.look_at(polled, &completions);
        }
        for completion in completions.drain(..) {
            self.end(completion.slot, completion.status, completion.buf);
        }
        self.completions = completions;
        self.lap(Part::Protocol);
    }

    /// A request of the tenant, with a payload of this class, is in flight from now on.
    // Entries are large: they are made where they stay.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        tenant: TenantId,
        payload_class: Option<usize>,
        make: impl FnOnce() -> InFlight,
    ) -> Slot {
        self.meter(tenant).admit();
        self.quotas.hold(tenant, payload_class);
        self.insert_held(make)
    }

    /// The same for one that its tenant's meter and quota count already.
    #[inline(always)]
    pub(crate) fn insert_held(&mut self, make: impl FnOnce() -> InFlight) -> Slot {
        let slot = self.in_flight.insert_with(make);
        if self.laps.is_tracing {
            self.trace(slot);
        }
        slot
    }

    /// Ends a connection, whose peer broke the protocol or a limit; the session's last words, if it
    /// has any, leave before.
    pub(crate) fn disconnect(&mut self, id: ConnId, cause: End, why: &str) {
        let Some(conn) = self.find(id) else { return };
        tracing::warn!(peer = %conn.peer, why, "connection ended");
        self.part(id, cause);
    }

    /// Ends a connection: nothing more is taken from it, and nothing sent but last words.
    pub(crate) fn part(&mut self, id: ConnId, cause: End) {
        let Some(conn) = self.find(id) else { return };
        conn.life.break_off(cause);
        // Its peer may take a while to let go, and what it sends elsewhere meanwhile is the later.
        conn.session.leave();
        let has_words = conn.session.unsaid() > 0;
        if has_words && self.utter(id) {
            self.transport.finish(id);
        } else {
            self.transport.close(id);
        }
    }

    pub(crate) fn find(&mut self, id: ConnId) -> Option<&mut Connection<P>> {
        let found = self.conns.get_mut(id.index as usize)?.as_deref_mut()?;
        (found.id == id).then_some(found)
    }

    fn wake_at(&self) -> Option<Instant> {
        if self.batch >= self.limits.batch || self.quotas.is_calling() {
            return Some(self.now);
        }
        let devices = self
            .devices
            .iter()
            .flat_map(|attached| [attached.device.wake_at(), attached.due(self.now)]);
        let is_held = self.devices.iter().any(|attached| !attached.fenced.is_empty());
        let fenced = (is_held || !self.greetings.is_empty()).then(|| self.now + FENCE_PERIOD);
        let moves = match self.moves.is_idle() {
            true => None,
            false => self.moves.wake_at(self.now, self.limits.quieting),
        };
        let keeps = self.open_connections > 0 || !self.moves.is_idle();
        let housekeeping = keeps.then_some(self.housekeep_at);
        let late = [self.guesses.due(), self.drains_due()];
        let others =
            [self.transport.wake_at(), self.sessions.wake_at(), fenced, housekeeping, moves];
        devices.chain(others).chain(late).flatten().min()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.open_connections
    }

    /// Their names.
    pub fn connection_ids(&self) -> impl Iterator<Item = ConnId> {
        self.conns.iter().flatten().map(|conn| conn.id)
    }

    /// What it holds now.
    pub fn load(&self) -> Load {
        let buffers = self.pool.taken() - usize::from(self.spare.is_some());
        let put_off = self.awaited.put_off();
        let fenced = self.devices.iter().map(|attached| attached.fenced.len()).sum();
        let (in_flight, called) = (self.in_flight.len(), self.stalled.len());
        Load { in_flight, buffers, carried: self.carried, put_off, fenced, called }
    }

    /// Whether nothing is in flight and every buffer is in its pool: what the simulated world
    /// checks at rest.
    pub fn is_at_rest(&self) -> bool {
        self.in_flight.is_empty()
            && self.talks.asked == 0
            && self.load().buffers == 0
            && self.inbox.is_empty()
            && self.moves.is_idle()
    }

    /// The ports, for the world that drives them.
    pub fn ports(&mut self) -> (&mut T, impl Iterator<Item = &mut D>) {
        (&mut self.transport, self.devices.iter_mut().map(|attached| &mut attached.device))
    }

    /// The schedulers, by device: what the simulated world counts.
    pub fn schedulers(&self) -> impl Iterator<Item = &S> {
        self.devices.iter().map(|attached| &attached.scheduler)
    }

    /// Requests in flight of one tenant, counted by looking at all.
    pub fn in_flight_of(&self, tenant: TenantId) -> usize {
        self.in_flight.iter().filter(|(_, entry)| entry.tenant == tenant).count()
    }

    /// Takes the worker apart, to use its buffers again.
    pub fn into_pool(self) -> BufPool {
        self.into_parts().0
    }

    /// Takes the worker apart, to use its buffers, its line to the control plane and its schedulers
    /// again.
    pub fn into_parts(mut self) -> (BufPool, Line<M>, Vec<S>) {
        self.pool.give(self.spare.take().expect("a worker at rest"));
        let schedulers = self.devices.into_iter().map(|attached| attached.scheduler);
        (self.pool, self.line, schedulers.collect())
    }
}
