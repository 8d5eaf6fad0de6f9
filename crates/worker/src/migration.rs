//! The departure of connections to other workers (docs/adr/0007-moving-connections.md).
//!
//! The steps: let the connection send what it was asked for, stop receiving, withdraw the requests
//! that wait for tokens, wait for the requests at the device and for the replies to leave, pack the
//! rest into a parcel. The arrival is in `arrival.rs`. Deliberately not here: the choice of
//! connections, which the control plane makes.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{
    ConnId, Device, Instant, Mailbox, MigratingConnection, MigratingRequest, MoveRefusal, Report,
    Scheduler, Session, Slot, Status, TenantId, Ticket, Transport, WorkerMessage,
};

use crate::connections::{
    Connection, ConnectionStage, Membership, NameClaim, PayloadDestination, STREAMS,
};
use crate::drains::Drains;
use crate::engine::Engine;
use crate::frontend::Frontend;
use crate::reader::Reader;
use crate::rebalance::RebalanceOrder;
use crate::requests::Payment;
use crate::{ControlPlaneLink, Grant, SessionFactory};

/// Maximum number of connections of a worker that are leaving or away: the number of queues of an
/// NVMe controller, which go to another process together.
const LEAVING_MAX: usize = 256;

/// Number of places of the connections' table that a turn searches for connections that may leave.
const GIVE_BATCH: usize = 256;

/// The time to send the payloads that were asked for, as a multiple of the time to become quiet.
/// Meanwhile the connection is served as usual.
const SETTLING: u32 = 10;

/// The pause before a message to a full mailbox, or a parcel without room here, is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// The connections of a worker that are leaving, and those that have left and have not yet landed
/// elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Migration {
    /// Connections that are leaving and not yet quiet.
    leaving: Vec<LeavingConnection>,
    /// Connections that were sent to other workers and whose arrival is not confirmed. Together
    /// with `leaving`, at most [`LEAVING_MAX`] connections.
    away: Vec<DepartedConnection>,
    /// Messages that did not fit into the mailboxes of other workers, with their receivers. At most
    /// one for each connection that is away or came.
    outbox: VecDeque<(u16, WorkerMessage)>,
    /// Parcels that other workers returned and that this worker now has no room for, either.
    pub(crate) stranded: Vec<MigratingConnection>,
    /// Parcels from other workers that can only be unpacked in a later turn.
    pub(crate) early: Vec<MigratingConnection>,
    /// Orders to give connections away, at most one for each receiving worker.
    orders: Vec<RebalanceOrder>,
    /// Recent number of messages of all connections between two scans of housekeeping.
    pub(crate) messages_lately: u64,
}

/// A connection that is leaving. Completions of the network and of devices end its wait, or a
/// time-out.
#[derive(Debug)]
struct LeavingConnection {
    conn: ConnId,
    to: u16,
    /// `true` if the control plane chose the connection to move, and so receives the outcome.
    is_ordered: bool,
    /// The time at which the present stage began: when the worker stopped asking for the
    /// connection's payloads, or when it stopped receiving from the connection.
    since: Instant,
    stage: LeavingStage,
}

/// The stage of a connection that is to leave.
#[derive(Debug)]
enum LeavingStage {
    /// The worker asks for no more payloads on the connection. The arrival of the last payload that
    /// was asked for ends the stage.
    Settling,
    /// The connection is not received from. The last bytes that the kernel had delivered end the
    /// stage.
    Stilled,
    /// The requests that waited in schedulers were taken out, in order. The last reply to the other
    /// requests ends the stage.
    Withdrawn(Vec<Slot>),
}

impl LeavingConnection {
    /// Returns the time at which the move is given up, and the connection stays here, if the
    /// connection still has requests or bytes under way.
    fn due(&self, quieting: Duration) -> Instant {
        match self.stage {
            LeavingStage::Settling => self.since + SETTLING * quieting,
            LeavingStage::Stilled | LeavingStage::Withdrawn(_) => self.since + quieting,
        }
    }

    /// Returns the requests that were withdrawn from the schedulers, in order; none before that
    /// stage.
    fn into_withdrawn(self) -> Vec<Slot> {
        match self.stage {
            LeavingStage::Settling | LeavingStage::Stilled => Vec::new(),
            LeavingStage::Withdrawn(slots) => slots,
        }
    }
}

/// A connection that was sent to another worker and counts as this worker's until it has arrived.
#[derive(Debug)]
pub(crate) struct DepartedConnection {
    ticket: Ticket,
    conn: ConnId,
    to: u16,
    is_ordered: bool,
    /// The number of orders to end the connection that came meanwhile. Each is answered with the
    /// connection's new place.
    asked_for: u16,
    /// The charged tenant of each of the connection's requests.
    charged: Vec<TenantId>,
    membership: Membership,
    /// The connection's place among the holders of its client's name, kept so that the name stays
    /// known.
    _place: Option<NameClaim>,
    /// The tenant that was charged for the connection's unparsed bytes, and the number of these
    /// bytes.
    carried: (TenantId, usize),
}

/// The parts of a worker that a migration touches.
pub(crate) struct MigrationContext<'a, T, D, S, P, M, N> {
    pub(crate) engine: &'a mut Engine<T, D, S, P>,
    pub(crate) reader: &'a mut Reader,
    pub(crate) line: &'a mut ControlPlaneLink<M>,
    pub(crate) sessions: &'a mut N,
    pub(crate) drains: &'a Drains,
}

impl Migration {
    /// Returns whether no connection is leaving or away and no message waits for a mailbox.
    pub(crate) fn is_idle(&self) -> bool {
        // Asked twice a turn: without a branch for each.
        let leaving = self.leaving.len() | self.away.len() | self.orders.len();
        leaving | self.outbox.len() | self.stranded.len() | self.early.len() == 0
    }

    /// Returns whether no more connections may leave now.
    fn is_full(&self) -> bool {
        self.leaving.len() + self.away.len() >= LEAVING_MAX
    }

    /// Returns whether as many connections leave now as the first order allows.
    fn gives_enough(&self) -> bool {
        let at_once = self.orders.first().map_or(0, RebalanceOrder::at_once);
        self.leaving.len() + self.away.len() >= at_once.min(LEAVING_MAX)
    }

    /// Returns the time at which migrations continue if nothing else happens; `None` if none is in
    /// progress.
    pub(crate) fn wake_at(&self, now: Instant, quieting: Duration) -> Option<Instant> {
        if self.is_idle() {
            return None;
        }
        let parcels = self.stranded.len() + self.early.len();
        let retry = !self.outbox.is_empty() || parcels > 0;
        let gives = !self.orders.is_empty() && !self.gives_enough();
        let late = self.leaving.iter().map(|leaving| leaving.due(quieting)).min();
        [retry.then(|| now + RETRY), gives.then_some(now), late].into_iter().flatten().min()
    }

    /// Notes an order to end a connection that is away. The order is answered with the connection's
    /// place once it has landed. Returns `false` if the connection is not away.
    pub(crate) fn asks_for_away(&mut self, conn: ConnId) -> bool {
        let found = self.away.iter_mut().find(|away| away.conn == conn);
        found.map(|away| away.asked_for = away.asked_for.saturating_add(1)).is_some()
    }

    /// Sends a message to another worker, or queues it if the mailbox is full.
    pub(crate) fn post(&mut self, mailbox: &mut impl Mailbox, to: u16, tell: WorkerMessage) {
        if let Err(tell) = mailbox.pass(to, tell) {
            self.outbox.push_back((to, tell));
        }
    }

    /// Removes and returns the connections that are away, and the parcels that no worker has taken.
    /// Both are lost.
    fn give_up(&mut self) -> (Vec<DepartedConnection>, Vec<MigratingConnection>) {
        let mut lost = std::mem::take(&mut self.stranded);
        lost.append(&mut self.early);
        for (_, tell) in self.outbox.drain(..) {
            if let WorkerMessage::Arrive(parcel) | WorkerMessage::Returned(parcel) = tell {
                lost.push(*parcel);
            }
        }
        (std::mem::take(&mut self.away), lost)
    }

    pub(crate) fn take_away(&mut self, ticket: Ticket) -> Option<DepartedConnection> {
        let n = self.away.iter().position(|away| away.ticket == ticket)?;
        Some(self.away.swap_remove(n))
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox, N: SessionFactory<P>>
    MigrationContext<'_, T, D, S, P, M, N>
{
    /// Begins the departure of a connection. If the connection stays, the control plane is notified
    /// at once.
    pub(crate) fn order_move(&mut self, migration: &mut Migration, conn: ConnId, to: u16) {
        if let Err(why) = self.begin_move(migration, conn, to, true) {
            self.report_move(conn, Err(why));
        }
    }

    /// Begins to move `count` connections, which the worker chooses itself, to another worker.
    pub(crate) fn order_gift(
        &mut self,
        migration: &mut Migration,
        count: u32,
        to: u16,
        at_once: u16,
    ) {
        migration.orders.retain(|order| order.to != to);
        if count > 0 && to != self.line.worker {
            migration.orders.push(RebalanceOrder::of_count(count, to, at_once));
        }
    }

    /// Begins to give connections, which make `permille` thousandths of all messages, to another
    /// worker.
    pub(crate) fn order_relief(
        &mut self,
        migration: &mut Migration,
        permille: u16,
        to: u16,
        at_once: u16,
    ) {
        migration.orders.retain(|order| order.to != to);
        let wanted = migration.messages_lately * u64::from(permille) / 1_000;
        if wanted > 0 && to != self.line.worker {
            migration.orders.push(RebalanceOrder::of_messages(wanted, to, at_once));
        }
    }

    /// Marks a connection as leaving. It goes as soon as it is quiet.
    fn begin_move(
        &mut self,
        migration: &mut Migration,
        id: ConnId,
        to: u16,
        is_ordered: bool,
    ) -> Result<(), MoveRefusal> {
        let front = &mut self.engine.front;
        let (draining, now) = (front.is_draining(), front.now);
        let conn = front.conns.find(id).filter(|conn| !conn.life.is_ending() && !draining);
        let conn = conn.ok_or(MoveRefusal::Gone)?;
        if !conn.session.moves_to(to) || !front.net.moves_to(id, to) {
            return Err(MoveRefusal::Session);
        }
        if to == self.line.worker {
            return Err(MoveRefusal::NoRoom);
        }
        if conn.life.is_moving() || migration.is_full() {
            return Err(MoveRefusal::TooMany);
        }
        conn.life = ConnectionStage::Settling;
        let owes_nothing = conn.outstanding.awaited == 0;
        self.reader.invitations.ask_no_more(id, &mut conn.put_off);
        let stage = LeavingStage::Settling;
        let mut leaving = LeavingConnection { conn: id, to, is_ordered, since: now, stage };
        if owes_nothing {
            still(front, &mut leaving);
        }
        migration.leaving.push(leaving);
        Ok(())
    }

    /// Continues all moves. Called in every turn while moves are in progress.
    pub(crate) fn move_on(&mut self, migration: &mut Migration) {
        for _ in 0..migration.outbox.len() {
            let (to, tell) = migration.outbox.pop_front().expect("it was just counted");
            migration.post(&mut self.line.mailbox, to, tell);
        }
        for _ in 0..migration.stranded.len() {
            let parcel = Box::new(migration.stranded.swap_remove(0));
            let _still_nowhere = self.come_home(migration, parcel);
        }
        for parcel in std::mem::take(&mut migration.early) {
            self.arrive(migration, Box::new(parcel));
        }
        self.carry_out_orders(migration);
        for n in (0..migration.leaving.len()).rev() {
            match self.is_quiet(&mut migration.leaving[n]) {
                Ok(true) => self.go(migration, n),
                Ok(false) => {}
                Err(why) => self.stay(migration, n, why),
            }
        }
    }

    /// Carries out the orders to give connections away, by a search of the connections' table.
    fn carry_out_orders(&mut self, migration: &mut Migration) {
        while let Some(&(mut order)) = migration.orders.first() {
            let places = self.engine.front.conns.places();
            let end = (order.next + GIVE_BATCH).min(places);
            while order.next < end && order.is_counting() && !migration.gives_enough() {
                let conn = self.engine.front.conns.at(order.next);
                order.next += 1;
                let Some(conn) = conn else { continue };
                let (id, messages) = (conn.id, conn.progress.messages_lately);
                if let Some(after) = order.with(messages)
                    && self.begin_move(migration, id, order.to, false).is_ok()
                {
                    order = after;
                }
            }
            let draining = self.engine.front.is_draining();
            if order.is_left() && order.next < places && !draining {
                migration.orders[0] = order;
                return;
            }
            migration.orders.remove(0);
        }
    }

    /// Returns whether everything that must end before the connection goes has ended. The first
    /// time that no more bytes come, the connection's requests are withdrawn from the schedulers.
    ///
    /// # Errors
    /// Fails with the reason that the connection stays.
    fn is_quiet(&mut self, leaving: &mut LeavingConnection) -> Result<bool, MoveRefusal> {
        let front = &mut self.engine.front;
        let (id, is_late) = (leaving.conn, front.now >= leaving.due(front.limits.quieting));
        let draining = front.is_draining();
        let conn = front.conns.find(id).filter(|conn| !conn.life.is_ending() && !draining);
        let conn = conn.ok_or(MoveRefusal::Gone)?;
        if conn.life == ConnectionStage::Settling {
            match conn.outstanding.awaited {
                0 => still(front, leaving),
                _ if is_late => return Err(MoveRefusal::Busy),
                _ => {}
            }
            return Ok(false);
        }
        let waits = conn.greeting.is_under_way() || conn.intake.filling.is_some();
        let waits = waits || !conn.arrived.is_empty();
        let comes = !front.net.is_still(id) || front.conns.inbox.iter().any(|c| c.conn == id);
        if waits || comes {
            return if is_late { Err(MoveRefusal::Busy) } else { Ok(false) };
        }
        let withdrawn = match &leaving.stage {
            LeavingStage::Withdrawn(slots) => slots.len(),
            LeavingStage::Settling | LeavingStage::Stilled => {
                let slots = withdraw(self.engine, id);
                let count = slots.len();
                leaving.stage = LeavingStage::Withdrawn(slots);
                count
            }
        };
        let front = &mut self.engine.front;
        let conn = front.conns.get(id);
        let held: usize = conn.streams.iter().map(|s| s.held.len(front.requests.table())).sum();
        let begun = usize::from(matches!(conn.intake.receiving, PayloadDestination::Into(_)));
        let ends_here = conn.outstanding.count - withdrawn - held - begun;
        let has_said_all = conn.session.is_settled() && front.net.unsent(id) == 0;
        let is_quiet = ends_here == 0 && has_said_all;
        if !is_quiet && is_late { Err(MoveRefusal::Busy) } else { Ok(is_quiet) }
    }

    /// Lets a leaving connection stay and continue here.
    fn stay(&mut self, migration: &mut Migration, n: usize, why: MoveRefusal) {
        let leaving = migration.leaving.swap_remove(n);
        let (id, is_ordered) = (leaving.conn, leaving.is_ordered);
        let was_stilled = !matches!(leaving.stage, LeavingStage::Settling);
        for slot in leaving.into_withdrawn() {
            if self.engine.enqueue(slot).is_err() {
                self.engine.end(slot, Status::Retry, None);
            }
        }
        if let Some(conn) = self.engine.front.conns.find(id) {
            conn.life.stay();
            let is_stalled = conn.intake.stalled.is_some();
            self.reader.invitations.ask_again(self.engine, id);
            (0..STREAMS).for_each(|stream| self.engine.release_held(id, stream));
            let front = &mut self.engine.front;
            match (is_stalled, was_stilled) {
                (true, true) => front.net.pause(id),
                (false, true) => front.net.resume(id),
                (_, false) => {}
            }
            if is_stalled {
                front.conns.call(id);
            }
            front.finish_if_idle(id);
        }
        if is_ordered {
            self.report_move(id, Err(why));
        }
    }

    /// Forgets a leaving connection that closed before it could go.
    pub(crate) fn forget_leaving(&mut self, migration: &mut Migration, id: ConnId) {
        let n = migration.leaving.iter().position(|leaving| leaving.conn == id);
        let Some(n) = n else { return };
        let leaving = migration.leaving.swap_remove(n);
        let is_ordered = leaving.is_ordered;
        let withdrawn = leaving.into_withdrawn();
        withdrawn.into_iter().for_each(|slot| self.engine.front.forget(slot));
        if is_ordered {
            self.report_move(id, Err(MoveRefusal::Gone));
        }
    }

    /// Sends the parcel of a connection without work under way to the other worker. Waits for a
    /// later turn if the connection's session cannot be packed now.
    fn go(&mut self, migration: &mut Migration, n: usize) {
        let front = &mut self.engine.front;
        let Some(session) = front.conns.get(migration.leaving[n].conn).session.pack() else {
            return;
        };
        let leaving = migration.leaving.swap_remove(n);
        let LeavingConnection { conn: id, to, is_ordered, since, .. } = leaving;
        let conn = front.conns.take(id, front.gauges.meters());
        let mut conn = *conn.expect("it was just looked at");
        let (requests, discards) = unload(front, &mut conn, leaving.into_withdrawn());
        let unparsed = conn.intake.stalled.take().map_or(Vec::new(), |mut stalled| {
            stalled.bytes.drain(..stalled.taken);
            stalled.bytes
        });
        let waiting = match conn.intake.receiving {
            PayloadDestination::Waiting(request) => Some(request),
            PayloadDestination::Nothing
            | PayloadDestination::Into(_)
            | PayloadDestination::Discard => None,
        };
        let ticket = front.net.detach(id, to);
        let removals = self.engine.namespaces.removals();
        let membership = conn.membership;
        let parcel = Box::new(MigratingConnection {
            from: self.line.worker,
            ticket,
            peer: conn.peer,
            listener: conn.listener,
            view: conn.view.at_departure(removals),
            session,
            grant: membership.grant.as_deref().map(Grant::to_parcel),
            entered: membership.entered,
            handles: membership.handles.clone(),
            place: conn.place.as_ref().map(NameClaim::to_parcel),
            requests,
            waiting,
            put_off: conn.put_off,
            discards,
            unparsed,
            paused_at: since,
        });
        migration.away.push(DepartedConnection {
            ticket,
            conn: id,
            to,
            is_ordered,
            asked_for: 0,
            charged: parcel.requests.iter().map(|request| request.tenant).collect(),
            membership,
            _place: conn.place,
            carried: (conn.intake.account, parcel.unparsed.len()),
        });
        tracing::debug!(peer = %parcel.peer, to, requests = parcel.requests.len(), "leaves");
        front.progressed = true;
        migration.post(&mut self.line.mailbox, to, WorkerMessage::Arrive(parcel));
    }

    /// Stops counting here the requests and bytes of a connection that counts elsewhere now.
    fn settle(&mut self, away: &DepartedConnection) {
        let front = &mut self.engine.front;
        away.charged.iter().for_each(|tenant| front.gauges.meter(*tenant).retire(1));
        away.membership.leave_all(front.gauges.meters());
        let (account, bytes) = away.carried;
        front.conns.carried.remove(account, bytes);
    }

    /// Records that a connection has arrived at the other worker.
    pub(crate) fn landed(
        &mut self,
        migration: &mut Migration,
        ticket: Ticket,
        conn: ConnId,
        pause: Duration,
    ) {
        // One that was given up is nobody's any more.
        let Some(away) = migration.take_away(ticket) else { return };
        self.settle(&away);
        self.engine.front.gauges.meters().worker.count_moved(pause);
        self.report_whereabouts(&away, MoveRefusal::Elsewhere { worker: away.to, conn });
        if away.is_ordered {
            self.report_move(away.conn, Ok((conn, pause)));
        }
    }

    /// Takes back a connection that the other worker returned because it had no room.
    pub(crate) fn returned(&mut self, migration: &mut Migration, parcel: Box<MigratingConnection>) {
        let away = migration.take_away(parcel.ticket);
        if let Some(away) = &away {
            self.settle(away);
            if away.is_ordered {
                self.report_move(away.conn, Err(MoveRefusal::NoRoom));
            }
        }
        let home = self.come_home(migration, parcel);
        if let Some(away) = away {
            let worker = self.line.worker;
            let found =
                home.map_or(MoveRefusal::NoRoom, |conn| MoveRefusal::Elsewhere { worker, conn });
            self.report_whereabouts(&away, found);
        }
    }

    /// Gives up the connections that are away, because the receiving workers may be gone.
    pub(crate) fn give_up(&mut self, migration: &mut Migration) {
        let (away, lost) = migration.give_up();
        for away in &away {
            self.settle(away);
            self.report_whereabouts(away, MoveRefusal::Gone);
        }
        lost.iter().for_each(|parcel| self.sessions.lost(&parcel.session));
    }

    /// Answers orders to end a connection that came while the connection was moving, with the
    /// connection's new place.
    fn report_whereabouts(&mut self, away: &DepartedConnection, found: MoveRefusal) {
        let worker = self.line.worker;
        for _ in 0..away.asked_for {
            self.line.mailbox.report(Report::Ends { worker, conn: away.conn, begun: Err(found) });
        }
    }

    fn report_move(&mut self, conn: ConnId, ended: Result<(ConnId, Duration), MoveRefusal>) {
        if ended.is_err() {
            self.engine.front.gauges.meters().worker.count_stayed();
        }
        let worker = self.line.worker;
        self.line.mailbox.report(Report::Moved { worker, conn, ended });
    }
}

/// Stops receiving from a connection that is to move, once all payloads that were asked for have
/// arrived.
fn still<T: Transport, P: Session>(front: &mut Frontend<T, P>, leaving: &mut LeavingConnection) {
    front.conns.get(leaving.conn).life = ConnectionStage::Leaving;
    front.net.still(leaving.conn);
    (leaving.since, leaving.stage) = (front.now, LeavingStage::Stilled);
}

/// Removes the connection's requests from the schedulers, if they are charged to a tenant that the
/// connection belongs to or has a handle on.
pub(crate) fn withdraw<T: Transport, D: Device, S: Scheduler, P: Session>(
    engine: &mut Engine<T, D, S, P>,
    id: ConnId,
) -> Vec<Slot> {
    let Frontend { conns, requests, shared, limits, .. } = &mut engine.front;
    let Membership { grant, entered, handles } = &conns.peek(id).membership;
    let own = grant.as_ref().map(|grant| grant.tenant);
    let others = entered.iter().chain(handles.iter().flatten());
    let mut tenants: Vec<TenantId> = own.into_iter().chain(others.map(|m| m.tenant)).collect();
    tenants.sort();
    tenants.dedup();
    let mut taken = Vec::new();
    if shared.fences.holds_exclusives() {
        // What waits for another process could wait longer than anybody for us.
        for lane in engine.lanes.iter_mut() {
            let first = taken.len();
            lane.unpark(requests, |entry| entry.conn == id, &mut taken);
            for slot in &taken[first..] {
                let entry = requests.get(*slot);
                if std::mem::replace(&mut entry.payment, Payment::Paid) != Payment::Refunded {
                    lane.refund(limits.part_of(entry.command));
                }
            }
        }
    }
    let mut is_its = |slot: Slot| requests.get(slot).conn == id;
    for lane in engine.lanes.iter_mut().filter(|lane| lane.scheduler().queued() > 0) {
        for tenant in &tenants {
            lane.scheduler_mut().withdraw(*tenant, &mut is_its, &mut taken);
        }
    }
    taken
}

/// Removes a connection's requests from the table, and returns them. The second value is `true` if
/// the payload that is being received belongs to a refused request.
fn unload<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    conn: &mut Connection<P>,
    withdrawn: Vec<Slot>,
) -> (Vec<MigratingRequest>, bool) {
    let mut requests: Vec<MigratingRequest> =
        withdrawn.into_iter().map(|slot| pack(front, slot, true)).collect();
    for stream in &mut conn.streams {
        while let Some(slot) = stream.held.pop(front.requests.table()) {
            requests.push(pack(front, slot, true));
        }
    }
    match conn.intake.receiving {
        PayloadDestination::Nothing | PayloadDestination::Waiting(_) => {}
        PayloadDestination::Discard => return (requests, true),
        PayloadDestination::Into(slot) => requests.push(pack(front, slot, false)),
    }
    (requests, false)
}

/// Removes a request from the table into a parcel. Its tenant stays charged for it here.
fn pack<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    slot: Slot,
    is_whole: bool,
) -> MigratingRequest {
    let (parcel, buf) = front.take_out(slot).into_parcel(is_whole);
    front.give_back(buf);
    parcel
}
