//! The worker: one turn receives, dispatches and completes.
//!
//! [`Worker`] joins the parts and says in which order they have their turn. Deliberately not here:
//! the work of each part.

mod between;

use std::sync::Arc;
use std::time::Duration;

use contract::{
    BufPool, CloseReason, CompletedPrelude, ConnId, Device, EndCause, Instant, ListenerId, Mailbox,
    NamespaceId, NamespaceView, NetEvent, NoMailbox, Peer, Protocol, Report, RestorableSession,
    Scheduler, Session, Transport, TurnOutcome, TurnPart, WorkerMessage,
};

use crate::connections::{Chunk, Connection, HelloStage, PayloadDestination};
use crate::drains::Drains;
use crate::engine::Engine;
use crate::frontend::Frontend;
use crate::gauges::Gauges;
use crate::housekeeping::{self, Housekeeping};
use crate::invitations::PutOffRequests;
use crate::lanes::Lanes;
use crate::migration::{self, Migration, MigrationContext};
use crate::reader::{self, Reader};
use crate::requests::Requests;
use crate::tenancy::{self, PendingNotices, Registrar};
use crate::{ControlPlaneLink, DeviceLane, FnSessionFactory, Limits, SessionFactory, SharedState};

/// The period at which waiting hellos check whether their fences are clear.
const FENCE_PERIOD: Duration = Duration::from_micros(200);

/// Maximum number of messages taken from the mailbox in one turn.
const MAIL_MAX: usize = 16;

/// Number of places in the table of connections that one list for the control plane covers.
const LIST_MAX: usize = 256;

/// The connections, requests and devices of one thread of the server. [`turn`](Worker::turn) does a
/// piece of their work and never blocks.
#[derive(Debug)]
pub struct Worker<T, D, S, P, M = NoMailbox, N = FnSessionFactory<P>> {
    engine: Engine<T, D, S, P>,
    reader: Reader,
    notices: PendingNotices,
    migration: Migration,
    drains: Drains,
    housekeeping: Housekeeping,
    sessions: N,
    line: ControlPlaneLink<M>,
    events: Vec<NetEvent>,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session + RestorableSession> Worker<T, D, S, P> {
    /// Creates a worker without a control plane: requests to register are answered with "try
    /// again". Each connection gets a session of `new_session`. See
    /// [`with_sessions`](Worker::with_sessions) for the other arguments.
    pub fn new(
        transport: T,
        devices: Vec<DeviceLane<D, S>>,
        pool: BufPool,
        shared: Arc<SharedState>,
        limits: Limits,
        new_session: fn(Option<ListenerId>, &Peer) -> P,
    ) -> Self {
        let (sessions, line) =
            (FnSessionFactory(new_session), ControlPlaneLink::none(limits.tenants));
        Worker::with_sessions(transport, devices, pool, shared, limits, sessions, line)
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox, N: SessionFactory<P>>
    Worker<T, D, S, P, M, N>
{
    /// Creates a worker over these ports. The worker keeps one of the pool's largest buffers as a
    /// spare, so the pool needs two of them, or three for sessions that await payloads of that
    /// size.
    pub fn with_sessions(
        transport: T,
        devices: Vec<DeviceLane<D, S>>,
        pool: BufPool,
        shared: Arc<SharedState>,
        limits: Limits,
        sessions: N,
        mut line: ControlPlaneLink<M>,
    ) -> Self {
        shared.namespaces.tell_places(&line.meters);
        let namespaces = shared.namespaces.clone();
        let gauges = Gauges::new(line.meters.clone(), line.watch.take());
        let requests = Requests::new(pool, &limits);
        let front = Frontend::new(transport, requests, gauges, shared, limits);
        let lanes = Lanes::new(devices, &limits);
        Worker {
            engine: Engine::new(front, lanes, namespaces),
            reader: Reader::new(PutOffRequests::new(&limits)),
            notices: PendingNotices::default(),
            migration: Migration::default(),
            drains: Drains::default(),
            housekeeping: Housekeeping::new(),
            sessions,
            line,
            events: Vec::with_capacity(1024),
        }
    }

    /// Runs one turn: receives requests, submits those that may go, answers those that have ended.
    pub fn turn(&mut self, now: Instant) -> TurnOutcome {
        self.engine.front.begin_turn(now);
        self.reader.begin_turn();
        self.take_mail();
        while let Some(id) = self.sessions.news(now) {
            self.engine.front.attend(id);
            reader::read_on(&mut self.engine.front, id);
        }
        self.mark(TurnPart::Upkeep);
        self.receive();
        self.engine.dispatch();
        self.engine.complete();
        let answered = self.engine.front.gauges.clock.marked_at();
        self.keep_up();
        self.mark(TurnPart::Upkeep);
        self.engine.front.net.kick(now);
        self.end_turn(answered)
    }

    /// Charges the time since the previous mark to `part` of the turn, for the worker's time
    /// statistics.
    #[inline]
    fn mark(&mut self, part: TurnPart) {
        self.engine.front.gauges.clock.mark(part);
    }

    /// Receives bytes, new connections and closed ones from the transport.
    fn receive(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let front = &mut self.engine.front;
        front.net.poll(front.now, &mut events, usize::MAX);
        front.gauges.clock.mark(TurnPart::Network);
        let Frontend { gauges, conns, net, now, .. } = front;
        gauges.look_what_left(*now, |id| {
            let conn = conns.look(id)?;
            Some(conn.progress.queued - net.unsent(id) as u64)
        });
        front.progressed |= !events.is_empty();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        self.reader.invitations.go_on(&mut self.engine);
        self.engine.front.say_on();
        self.engine.front.call_on();
        self.reader.read(&mut self.engine, &mut self.line);
    }

    /// Does the turn's work beside requests: mail, drains, moves, hellos, housekeeping.
    fn keep_up(&mut self) {
        self.engine.settle_namespaces();
        if self.engine.front.conns.hellos.throttle.waiting() > 0 {
            Registrar { engine: &mut self.engine, line: &mut self.line }.look_at_tokens();
        }
        let front = &mut self.engine.front;
        if !front.conns.hellos.greeted.is_empty() {
            tenancy::answer_greetings(front);
        }
        self.drains.go_on(front);
        if self.housekeeping.begin(front.now) {
            let (mut around, migration) = self.around();
            if housekeeping::look_at_all(&mut around, migration) {
                self.tell_meters();
            }
        }
        if !self.migration.is_idle() {
            let (mut around, migration) = self.around();
            around.move_on(migration);
        }
    }

    /// Counts the turn, whose replies were written at `answered`, and returns when the next turn
    /// has work.
    fn end_turn(&mut self, answered: Instant) -> TurnOutcome {
        let Frontend { gauges, conns, progressed, .. } = &mut self.engine.front;
        let progressed = *progressed;
        let given = |id| conns.look(id).map(|conn| conn.progress.queued);
        if gauges.settle_turn(progressed, answered, given) {
            self.tell_meters();
        }
        self.engine.front.gauges.end_turn(progressed);
        TurnOutcome { progressed, wake_at: self.wake_at() }
    }

    fn tell_meters(&mut self) {
        let load = self.load();
        let open = self.engine.front.conns.open();
        self.engine.front.gauges.tell(&load, open, &self.engine.lanes);
    }

    fn wake_at(&self) -> Option<Instant> {
        let front = &self.engine.front;
        let now = front.now;
        if self.reader.is_full(front.limits.batch) || front.requests.quotas.is_calling() {
            return Some(now);
        }
        let is_held = self.engine.lanes.fenced() > 0 || !front.conns.hellos.greeted.is_empty();
        let keeps = front.conns.open() > 0 || !self.migration.is_idle();
        let times = [
            self.engine.lanes.wake_at(now),
            front.net.wake_at(),
            self.sessions.wake_at(),
            is_held.then(|| now + FENCE_PERIOD),
            keeps.then_some(self.housekeeping.due()),
            self.migration.wake_at(now, front.limits.quieting),
            front.conns.hellos.throttle.due(),
            self.drains.due(now, &front.conns),
        ];
        times.into_iter().flatten().min()
    }

    fn around(&mut self) -> (MigrationContext<'_, T, D, S, P, M, N>, &mut Migration) {
        let Worker { engine, reader, line, sessions, drains, migration, .. } = self;
        (MigrationContext { engine, reader, line, sessions, drains }, migration)
    }
}

/// Events of the network, and messages of the control plane.
impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox, N: SessionFactory<P>>
    Worker<T, D, S, P, M, N>
{
    fn handle(&mut self, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer, listener, opening } => {
                self.open(conn, peer, listener, opening.as_deref());
            }
            NetEvent::Received { conn, buf, len } => {
                let chunk = Chunk { conn, buf, taken: 0, len };
                self.engine.front.conns.inbox.push_back(chunk);
            }
            NetEvent::Filled { conn, buf, at, len } => {
                self.reader.direct.filled(&mut self.engine, conn, buf, (at, len));
            }
            NetEvent::Sent { conn, buf } => {
                self.engine.front.give_back(Some(buf));
                self.engine.front.conns.call(conn);
            }
            NetEvent::Closed { conn, reason } => self.closed(conn, reason),
        }
    }

    /// Adds a connection that the transport has opened.
    fn open(
        &mut self,
        id: ConnId,
        peer: Peer,
        listener: Option<ListenerId>,
        opening: Option<&CompletedPrelude>,
    ) {
        let session = self.sessions.open(id, listener, &peer, opening);
        let mut conn = Connection::new(id, peer, session);
        let removals = self.engine.namespaces.removals();
        let front = &mut self.engine.front;
        conn.view = NamespaceView::new(NamespaceId(1), removals);
        conn.view.follows = conn.session.protocol() == Protocol::NvmeTcp;
        conn.listener = listener.unwrap_or(conn.listener);
        let lead = front.shared.listeners.find(conn.listener);
        // Its listener was closed while it was on its way, and another one has the place.
        let is_late = front.shared.listeners.is_gone(conn.listener);
        if let Some(lead) = lead.filter(|_| listener.is_some()) {
            conn.view.namespace = lead.namespace;
        }
        let own = lead.and_then(|lead| lead.stands.as_ref());
        // What it may do without saying who it is: all that version 1 ever may.
        let grant = front.shared.access.open(&peer, b"", "", own).ok().filter(|_| !is_late);
        conn.membership.set_grant(grant, front.gauges.meters());
        front.conns.seat(conn, front.gauges.meters());
        front.settle_account(id);
        tracing::debug!(%peer, "connection opened");
        if front.is_draining() || is_late {
            front.finish(id);
        } else if listener.is_some_and(|listener| self.drains.includes(listener)) {
            // It was on its way already.
            front.dismiss(id, EndCause::Drained);
        } else if front.conns.peek(id).session.unsaid() > 0 {
            front.attend(id); // it has the first word
        } else if opening.is_some() {
            reader::read_on(front, id); // its peer may have said all that it waits for
        }
    }

    /// Removes a connection that the transport has closed.
    fn closed(&mut self, id: ConnId, reason: CloseReason) {
        self.drop_queued(id);
        let front = &mut self.engine.front;
        let Some(mut conn) = front.conns.take(id, front.gauges.meters()) else { return };
        tracing::debug!(peer = %conn.peer, ?reason, "connection closed");
        let cause = conn.life.cause().unwrap_or(match reason {
            CloseReason::Peer => EndCause::Peer,
            CloseReason::Insecure(why) => {
                tracing::warn!(peer = %conn.peer, %why, "connection ended");
                EndCause::Protocol
            }
            CloseReason::Reset(_) | CloseReason::Local | CloseReason::Unreachable(_) => {
                EndCause::Network
            }
        });
        front.gauges.meters().worker.end(cause);
        if let PayloadDestination::Into(slot) = conn.intake.receiving {
            front.forget(slot);
        }
        front.forget_awaited(conn.outstanding.asked);
        for stream in &mut conn.streams {
            while let Some(slot) = stream.held.pop(front.requests.table()) {
                front.forget(slot);
            }
        }
        if let Some(stalled) = &conn.intake.stalled {
            front.conns.carried.remove(conn.intake.account, stalled.left());
        }
        if conn.greeting == HelloStage::Throttled {
            front.conns.hellos.throttle.forget(id);
        }
        if let Some(place) = conn.place.take() {
            front.shared.fences.leave(place);
        }
        let (mut around, migration) = self.around();
        around.forget_leaving(migration, id);
        let gauges = &self.engine.front.gauges;
        conn.arrived.iter().for_each(|request| gauges.meter(request.tenant).retire(1));
        conn.membership.leave_all(gauges.meters());
        self.engine.discard_unwanted();
    }

    /// Drops the requests that a closed connection has queued at the schedulers. Its client sends
    /// them again on its next connection. If both copies ran, a server too slow for its clients'
    /// patience would spend tokens on unwanted requests and stay slow for ever.
    fn drop_queued(&mut self, id: ConnId) {
        let Some(conn) = self.engine.front.conns.look(id) else { return };
        if conn.outstanding.count > 0 {
            let queued = migration::withdraw(&mut self.engine, id);
            queued.into_iter().for_each(|slot| self.engine.front.forget(slot));
        }
    }

    /// Processes messages from the control plane and other workers.
    fn take_mail(&mut self) {
        for _ in 0..MAIL_MAX {
            let Some(tell) = self.line.mailbox.poll() else { break };
            self.engine.front.progressed = true;
            self.take_letter(tell);
        }
        self.notices.deliver(&mut self.engine.front);
    }

    fn take_letter(&mut self, tell: WorkerMessage) {
        let front = &mut self.engine.front;
        match tell {
            WorkerMessage::Answer { conn, tag, handle, answer } => {
                tenancy::take_answer(front, conn, (tag, handle), answer);
            }
            WorkerMessage::List { from } => self.list(from),
            WorkerMessage::Leave { tenant } => front.gauges.meter(tenant).end_epoch(),
            WorkerMessage::Place { change, number, namespace, name } => {
                self.engine.change_namespace(change, number, namespace, name);
            }
            WorkerMessage::Drain { listener, until } => self.drains.order(listener, until),
            WorkerMessage::End { conn, until } => self.order_end(conn, until),
            WorkerMessage::Renegotiate { member, iops, read_percent } => {
                self.notices.take(member, iops, read_percent);
            }
            other => self.migrate(other),
        }
    }

    /// Processes a message about connections that are migrating.
    fn migrate(&mut self, tell: WorkerMessage) {
        let (mut around, migration) = self.around();
        match tell {
            WorkerMessage::Move { conn, to } => around.order_move(migration, conn, to),
            WorkerMessage::Give { count, to, at_once } => {
                around.order_gift(migration, count, to, at_once)
            }
            WorkerMessage::Relieve { permille, to, at_once } => {
                around.order_relief(migration, permille, to, at_once);
            }
            WorkerMessage::Arrive(parcel) => around.arrive(migration, parcel),
            WorkerMessage::Landed { ticket, conn, pause } => {
                around.landed(migration, ticket, conn, pause)
            }
            WorkerMessage::Returned(parcel) => around.returned(migration, parcel),
            other => unreachable!("{other:?} is about no migration"),
        }
    }

    /// Begins to end a connection, and tells the control plane the outcome: at once, or, for a
    /// connection between two workers, once its new place is known.
    fn order_end(&mut self, conn: ConnId, until: Instant) {
        if self.migration.asks_for_away(conn) {
            return;
        }
        let (front, worker) = (&mut self.engine.front, self.line.worker);
        let begun = self.drains.order_end(front, conn, until);
        let begun = begun.map(|()| front.conns.peek(conn).listed(worker, &front.net));
        self.line.mailbox.report(Report::Ends { worker, conn, begun });
    }

    /// Reports the connections in up to [`LIST_MAX`] places of the table, from place `from` on, to
    /// the control plane.
    fn list(&mut self, from: u32) {
        let (front, worker) = (&self.engine.front, self.line.worker);
        let conns = &front.conns;
        let first = (from as usize).min(conns.places());
        let end = (first + LIST_MAX).min(conns.places());
        let found = (first..end).filter_map(|place| conns.at(place));
        let connections = found.map(|conn| conn.listed(worker, &front.net)).collect();
        let next = (end < conns.places()).then_some(end as u32);
        self.line.mailbox.report(Report::Listed { worker, from, connections, next });
    }
}
