//! Connections leave for other workers and arrive from them (docs/adr/0007-moving-connections.md).
//!
//! This file is the way out: let it send what it was asked for, stop receiving, withdraw what waits for tokens, wait for what is at the
//! device and for the replies to leave, make a parcel of the rest. The way in is in `landing.rs`.
//! What is deliberately not here: who should move, which the control plane decides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Buf, ConnId, Device, Instant, Mailbox, Member, Parcel, ParcelRequest, Payload, Report,
    Scheduler, Session, Slot, Stays, Tell, TenantId, Ticket, Transport,
};

use crate::Grant;
use crate::connection::{Connection, Life, Receiving};
use crate::fence::Place;
use crate::inflight::InFlight;
use crate::worker::Worker;

/// Connections that leave a worker, or are away, at the same time: as many as an NVMe controller has
/// queues, which go to another process together.
const LEAVING_MAX: usize = 256;

/// Places of connections that a turn looks at for one that may leave.
const GIVE_BATCH: usize = 256;

/// Places of connections that a turn tells of.
const LIST_MAX: usize = 256;

/// How many times as long as a connection may take to become quiet it may take to send what it was
/// asked for: meanwhile it is served like any other.
const SETTLING: u32 = 10;

/// How soon to try again what somebody's box, or our table, had no room for.
const RETRY: Duration = Duration::from_millis(1);

/// A worker's moves.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Connections that are to leave and are not quiet yet.
    leaving: Vec<Leaving>,
    /// Connections that have left and that nobody has said to have taken; with those that leave at
    /// most [`LEAVING_MAX`].
    pub(crate) away: Vec<Away>,
    /// Messages that the boxes of others had no room for, with whom they are for: one for each
    /// connection that is away or came.
    outbox: VecDeque<(u16, Tell)>,
    /// Parcels that came back and find no place, either.
    pub(crate) stranded: Vec<Parcel>,
    /// At most one for each worker.
    errands: Vec<Errand>,
    /// Messages of all connections between two housekeepings lately.
    pub(crate) messages_lately: u64,
}

/// A connection that is to leave. Who ends its wait: completions of the network and of devices, or
/// the time.
#[derive(Debug)]
struct Leaving {
    conn: ConnId,
    to: u16,
    /// The control plane named it, and is told how that ended.
    is_ordered: bool,
    /// Since when it is asked for nothing more, and then not received from.
    since: Instant,
    stage: Stage,
}

/// How far a connection is that is to leave.
#[derive(Debug)]
enum Stage {
    /// It is asked for no more payloads; the last that it was asked for ends this.
    Settling,
    /// It is not received from; the last bytes that the kernel had delivered end this.
    Stilled,
    /// Its requests that waited in schedulers were taken out, in their order; the last reply to the
    /// others ends this.
    Withdrawn(Vec<Slot>),
}

impl Leaving {
    /// When it stays.
    fn due(&self, quieting: Duration) -> Instant {
        match self.stage {
            Stage::Settling => self.since + SETTLING * quieting,
            Stage::Stilled | Stage::Withdrawn(_) => self.since + quieting,
        }
    }

    /// Its requests that were withdrawn.
    fn into_withdrawn(self) -> Vec<Slot> {
        match self.stage {
            Stage::Settling | Stage::Stilled => Vec::new(),
            Stage::Withdrawn(slots) => slots,
        }
    }
}

/// What a connection that has left counts for here until it has landed.
#[derive(Debug)]
pub(crate) struct Away {
    pub(crate) ticket: Ticket,
    pub(crate) conn: ConnId,
    to: u16,
    is_ordered: bool,
    /// So often it was to end meanwhile: as often it is told where it is.
    pub(crate) asked_for: u16,
    /// Of each of its requests.
    charged: Vec<TenantId>,
    grant: Option<Arc<Grant>>,
    entered: Option<Member>,
    handles: Vec<Option<Member>>,
    /// Keeps its name known.
    _place: Option<Place>,
    /// Bytes of it that were kept here.
    carried: usize,
}

/// Connections that are to be given to another worker, whichever.
#[derive(Clone, Copy, Debug)]
struct Errand {
    to: u16,
    left: u32,
    /// How many may leave or be away meanwhile.
    at_once: u16,
    /// The first place of the connections' table that has not been looked at.
    next: usize,
    /// What they are to take with them; `None`: whatever that is.
    load: Option<Load>,
}

/// Messages between two housekeepings that leave with those who make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    wanted: u64,
    taken: u64,
}

impl Load {
    /// Whether there is some left to be taken.
    fn is_left(self) -> bool {
        self.taken < self.wanted
    }

    /// With whoever makes so many; `None` if he is not to go. More than was wanted may go, but less than
    /// would make the other worker the one that has too much: where half of a difference is wanted, half
    /// of that difference is what is left at most.
    fn with(self, messages: u32) -> Option<Load> {
        let taken = self.taken + u64::from(messages);
        let goes = messages > 0 && self.is_left() && 2 * taken <= 3 * self.wanted;
        goes.then_some(Load { taken, ..self })
    }
}

impl Moves {
    /// Whether nothing leaves, is away or waits for a box.
    pub(crate) fn is_idle(&self) -> bool {
        // Asked twice a turn: without a branch for each.
        let leaving = self.leaving.len() | self.away.len() | self.errands.len();
        leaving | self.outbox.len() | self.stranded.len() == 0
    }

    /// Whether no more may leave now.
    fn is_full(&self) -> bool {
        self.leaving.len() + self.away.len() >= LEAVING_MAX
    }

    /// Whether as many leave now as were named, or as may.
    fn gives_enough(&self) -> bool {
        let at_once = self.errands.first().map_or(0, |errand| usize::from(errand.at_once));
        self.leaving.len() + self.away.len() >= at_once.min(LEAVING_MAX)
    }

    /// When to go on without anything else having happened.
    pub(crate) fn wake_at(&self, now: Instant, quieting: Duration) -> Option<Instant> {
        let retry = !self.outbox.is_empty() || !self.stranded.is_empty();
        let gives = !self.errands.is_empty() && !self.gives_enough();
        let late = self.leaving.iter().map(|leaving| leaving.due(quieting)).min();
        [retry.then(|| now + RETRY), gives.then_some(now), late].into_iter().flatten().min()
    }

    /// Whether a connection that is to end is away: then that is told when it has landed.
    pub(crate) fn asks_for_away(&mut self, conn: ConnId) -> bool {
        let found = self.away.iter_mut().find(|away| away.conn == conn);
        found.map(|away| away.asked_for = away.asked_for.saturating_add(1)).is_some()
    }

    /// Sends to another worker, now or later.
    pub(crate) fn post(&mut self, mailbox: &mut impl Mailbox, to: u16, tell: Tell) {
        if let Err(tell) = mailbox.pass(to, tell) {
            self.outbox.push_back((to, tell));
        }
    }

    /// Nobody waits any more for what is away, nor for whom nobody has room: these are lost.
    pub(crate) fn give_up(&mut self) -> (Vec<Away>, Vec<Parcel>) {
        let mut lost = std::mem::take(&mut self.stranded);
        for (_, tell) in self.outbox.drain(..) {
            if let Tell::Arrive(parcel) | Tell::Returned(parcel) = tell {
                lost.push(*parcel);
            }
        }
        (std::mem::take(&mut self.away), lost)
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Lets a connection leave; the control plane is told at once if it stays.
    pub(crate) fn order_move(&mut self, conn: ConnId, to: u16) {
        if let Err(why) = self.begin_move(conn, to, true) {
            self.report_move(conn, Err(why));
        }
    }

    /// Lets so many connections leave, whichever.
    pub(crate) fn order_gift(&mut self, count: u32, to: u16, at_once: u16) {
        self.moves.errands.retain(|errand| errand.to != to);
        if count > 0 && to != self.line.worker {
            let errand = Errand { to, left: count, at_once, next: 0, load: None };
            self.moves.errands.push(errand);
        }
    }

    /// Lets connections leave that make such a part of all messages.
    pub(crate) fn order_relief(&mut self, permille: u16, to: u16, at_once: u16) {
        self.moves.errands.retain(|errand| errand.to != to);
        let load =
            Load { wanted: self.moves.messages_lately * u64::from(permille) / 1_000, taken: 0 };
        if load.is_left() && to != self.line.worker {
            let errand = Errand { to, left: u32::MAX, at_once, next: 0, load: Some(load) };
            self.moves.errands.push(errand);
        }
    }

    /// A connection is to leave as soon as it is quiet.
    fn begin_move(&mut self, id: ConnId, to: u16, is_ordered: bool) -> Result<(), Stays> {
        let (draining, now, me) = (self.is_draining(), self.now, self.line.worker);
        let many = self.moves.is_full();
        let conn = self.find(id).filter(|conn| !conn.life.is_ending() && !draining);
        let conn = conn.ok_or(Stays::Gone)?;
        if !conn.session.moves_to(to) {
            return Err(Stays::Session);
        }
        if to == me {
            return Err(Stays::NoRoom);
        }
        if conn.life.is_moving() || many {
            return Err(Stays::TooMany);
        }
        conn.life = Life::Settling;
        let owes_nothing = conn.outstanding.awaited == 0;
        self.ask_no_more(id);
        let stage = Stage::Settling;
        self.moves.leaving.push(Leaving { conn: id, to, is_ordered, since: now, stage });
        if owes_nothing {
            self.still(self.moves.leaving.len() - 1);
        }
        Ok(())
    }

    /// Stops receiving from a connection, once it has sent all that it was asked for.
    fn still(&mut self, n: usize) {
        let id = self.moves.leaving[n].conn;
        let conn = self.find(id).expect("the caller looked");
        conn.life = Life::Leaving;
        self.transport.still(id);
        let leaving = &mut self.moves.leaving[n];
        (leaving.since, leaving.stage) = (self.now, Stage::Stilled);
    }

    /// Goes on with all moves: called in every turn in which there are any.
    pub(crate) fn move_on(&mut self) {
        for _ in 0..self.moves.outbox.len() {
            let (to, tell) = self.moves.outbox.pop_front().expect("it was just counted");
            self.moves.post(&mut self.line.mailbox, to, tell);
        }
        for _ in 0..self.moves.stranded.len() {
            let parcel = Box::new(self.moves.stranded.swap_remove(0));
            let _still_nowhere = self.come_home(parcel);
        }
        self.run_errands();
        for n in (0..self.moves.leaving.len()).rev() {
            match self.is_quiet(n) {
                Ok(true) => self.go(n),
                Ok(false) => {}
                Err(why) => self.stay(n, why),
            }
        }
    }

    /// Finds connections that may leave for whoever shall have some.
    fn run_errands(&mut self) {
        while let Some(&(mut errand)) = self.moves.errands.first() {
            let end = (errand.next + GIVE_BATCH).min(self.conns.len());
            while errand.next < end && errand.left > 0 && !self.moves.gives_enough() {
                let conn = self.conns[errand.next].as_ref();
                errand.next += 1;
                let Some(conn) = conn else { continue };
                let (id, messages) = (conn.id, conn.progress.messages_lately);
                let load = errand.load.map(|load| load.with(messages));
                if load != Some(None) && self.begin_move(id, errand.to, false).is_ok() {
                    errand.left -= 1;
                    errand.load = load.flatten();
                }
            }
            let goes_on = errand.left > 0 && errand.load.is_none_or(Load::is_left);
            if goes_on && errand.next < self.conns.len() && !self.is_draining() {
                self.moves.errands[0] = errand;
                return;
            }
            self.moves.errands.remove(0);
        }
    }

    /// Whether everything that has to end here has ended. The first time that nothing more comes, its
    /// requests are withdrawn.
    ///
    /// # Errors
    /// Why it stays.
    fn is_quiet(&mut self, n: usize) -> Result<bool, Stays> {
        let leaving = &self.moves.leaving[n];
        let (id, is_late) = (leaving.conn, self.now >= leaving.due(self.limits.quieting));
        let draining = self.is_draining();
        let conn = self.conns.get(id.index as usize).and_then(Option::as_deref);
        let conn = conn.filter(|conn| conn.id == id && !conn.life.is_ending());
        let conn = conn.filter(|_| !draining).ok_or(Stays::Gone)?;
        if conn.life == Life::Settling {
            match conn.outstanding.awaited {
                0 => self.still(n),
                _ if is_late => return Err(Stays::Busy),
                _ => {}
            }
            return Ok(false);
        }
        let greeted = conn.greeting.is_under_way();
        let comes = !self.transport.is_still(id) || self.inbox.iter().any(|c| c.conn == id);
        if greeted || comes || conn.intake.filling.is_some() || !conn.arrived.is_empty() {
            return if is_late { Err(Stays::Busy) } else { Ok(false) };
        }
        let withdrawn = match &self.moves.leaving[n].stage {
            Stage::Withdrawn(slots) => slots.len(),
            Stage::Settling | Stage::Stilled => {
                let slots = self.withdraw(id);
                let count = slots.len();
                self.moves.leaving[n].stage = Stage::Withdrawn(slots);
                count
            }
        };
        let conn = self.conns[id.index as usize].as_deref().expect("looked at above");
        let held: usize = conn.streams.iter().map(|s| s.held.len(&mut self.in_flight)).sum();
        let begun = usize::from(matches!(conn.intake.receiving, Receiving::Into(_)));
        let ends_here = conn.outstanding.count - withdrawn - held - begun;
        let has_said_all = conn.session.is_settled() && self.transport.unsent(id) == 0;
        let is_quiet = ends_here == 0 && has_said_all;
        if !is_quiet && is_late { Err(Stays::Busy) } else { Ok(is_quiet) }
    }

    /// Takes the connection's requests out of the schedulers, as far as they are charged to a tenant
    /// that it belongs to or has a handle on.
    fn withdraw(&mut self, id: ConnId) -> Vec<Slot> {
        let conn = self.conns[id.index as usize].as_deref().expect("the caller looked");
        let own = conn.membership.grant.as_ref().map(|grant| grant.tenant);
        let others = conn.membership.entered.iter().chain(conn.membership.handles.iter().flatten());
        let mut tenants: Vec<TenantId> = own.into_iter().chain(others.map(|m| m.tenant)).collect();
        tenants.sort();
        tenants.dedup();
        let (mut taken, in_flight) = (Vec::new(), &mut self.in_flight);
        if self.shared.fences.holds_exclusives() {
            // What waits for another process could wait longer than anybody for us.
            for attached in &mut self.devices {
                let first = taken.len();
                attached.unpark(|slot| in_flight.get(slot).conn == id, &mut taken);
                for slot in &taken[first..] {
                    let command = in_flight.get(*slot).command;
                    attached.scheduler.refund(command.work(), command.work_bytes());
                }
            }
        }
        let mut is_its = |slot: Slot| in_flight.get(slot).conn == id;
        for attached in self.devices.iter_mut().filter(|a| a.scheduler.queued() > 0) {
            for tenant in &tenants {
                attached.scheduler.withdraw(*tenant, &mut is_its, &mut taken);
            }
        }
        taken
    }

    /// The connection goes on here.
    fn stay(&mut self, n: usize, why: Stays) {
        let leaving = self.moves.leaving.swap_remove(n);
        let (id, is_ordered) = (leaving.conn, leaving.is_ordered);
        let was_stilled = !matches!(leaving.stage, Stage::Settling);
        for slot in leaving.into_withdrawn() {
            if self.enqueue(slot).is_err() {
                self.end(slot, contract::Status::Retry, None);
            }
        }
        if let Some(conn) = self.find(id) {
            conn.life.stay();
            let is_stalled = conn.intake.stalled.is_some();
            self.ask_again(id);
            (0..crate::connection::STREAMS).for_each(|stream| self.release_held(id, stream));
            match (is_stalled, was_stilled) {
                (true, true) => self.transport.pause(id),
                (false, true) => self.transport.resume(id),
                (_, false) => {}
            }
            if is_stalled {
                self.look_again(id);
            }
            self.finish_if_idle(id);
        }
        if is_ordered {
            self.report_move(id, Err(why));
        }
    }

    /// A connection is gone before it could leave.
    pub(crate) fn forget_leaving(&mut self, id: ConnId) {
        let Some(n) = self.moves.leaving.iter().position(|leaving| leaving.conn == id) else {
            return;
        };
        let leaving = self.moves.leaving.swap_remove(n);
        let is_ordered = leaving.is_ordered;
        leaving.into_withdrawn().into_iter().for_each(|slot| self.forget(slot));
        if is_ordered {
            self.report_move(id, Err(Stays::Gone));
        }
    }

    /// The connection is quiet: it leaves.
    fn go(&mut self, n: usize) {
        let leaving = self.moves.leaving.swap_remove(n);
        let Leaving { conn: id, to, is_ordered, since, .. } = leaving;
        let mut conn = self.conns[id.index as usize].take().expect("it was just looked at");
        self.open_connections -= 1;
        self.line.meters.worker.set_connections(self.open_connections);
        let (requests, discards) = self.unload(&mut conn, leaving.into_withdrawn());
        let unparsed = conn.intake.stalled.take().map_or(Vec::new(), |mut stalled| {
            stalled.bytes.drain(..stalled.taken);
            stalled.bytes
        });
        let waiting = match conn.intake.receiving {
            Receiving::Waiting(request) => Some(request),
            Receiving::Nothing | Receiving::Into(_) | Receiving::Discard => None,
        };
        let ticket = self.transport.detach(id, to);
        let parcel = Box::new(Parcel {
            from: self.line.worker,
            ticket,
            peer: conn.peer,
            listener: conn.listener,
            namespace: conn.namespace,
            session: conn.session.pack(),
            grant: conn.membership.grant.as_deref().map(Grant::to_parcel),
            entered: conn.membership.entered,
            handles: conn.membership.handles.clone(),
            place: conn.place.as_ref().map(Place::to_parcel),
            requests,
            waiting,
            put_off: std::mem::take(&mut conn.put_off),
            discards,
            unparsed,
            paused_at: since,
        });
        self.moves.away.push(Away {
            ticket,
            conn: id,
            to,
            is_ordered,
            asked_for: 0,
            charged: parcel.requests.iter().map(|request| request.tenant).collect(),
            grant: conn.membership.grant.take(),
            entered: conn.membership.entered,
            handles: std::mem::take(&mut conn.membership.handles),
            _place: conn.place.take(),
            carried: parcel.unparsed.len(),
        });
        tracing::debug!(peer = %parcel.peer, to, requests = parcel.requests.len(), "leaves");
        self.progressed = true;
        self.moves.post(&mut self.line.mailbox, to, Tell::Arrive(parcel));
    }

    /// Takes a connection's requests out of the table; whether the payload that is coming is of
    /// nobody.
    fn unload(
        &mut self,
        conn: &mut Connection<P>,
        withdrawn: Vec<Slot>,
    ) -> (Vec<ParcelRequest>, bool) {
        let mut requests: Vec<ParcelRequest> =
            withdrawn.into_iter().map(|slot| self.pack_request(slot, true)).collect();
        for stream in &mut conn.streams {
            while let Some(slot) = stream.held.pop(&mut self.in_flight) {
                requests.push(self.pack_request(slot, true));
            }
        }
        match conn.intake.receiving {
            Receiving::Nothing | Receiving::Waiting(_) => {}
            Receiving::Discard => return (requests, true),
            Receiving::Into(slot) => requests.push(self.pack_request(slot, false)),
        }
        (requests, false)
    }

    /// A request leaves the table; its tenant is still charged for it here. All bytes of a payload may
    /// be here, and not yet what they are checked against: then it is not whole.
    fn pack_request(&mut self, slot: Slot, is_whole: bool) -> ParcelRequest {
        let InFlight {
            tag,
            stream,
            tenant,
            command,
            namespace,
            device,
            lba,
            buf,
            filled,
            received_at,
            ..
        } = self.take_out(slot);
        let total = command.payload_bytes();
        let bytes = buf.as_ref().map_or(&[][..], Buf::bytes);
        let payload = match is_whole {
            true => Payload::Whole(bytes[..total].to_vec()),
            false => Payload::Begun(bytes[..filled].to_vec()),
        };
        self.give_back(buf);
        ParcelRequest { tag, stream, tenant, command, namespace, device, lba, payload, received_at }
    }

    /// What a connection that left counted for here, it counts for elsewhere.
    pub(crate) fn settle(&mut self, away: &Away) {
        away.charged.iter().for_each(|tenant| self.meter(*tenant).retire(1));
        self.leave_all(away.grant.as_ref(), away.entered, &away.handles);
        self.carried -= away.carried;
    }

    /// A connection that was given away has landed.
    pub(crate) fn landed(&mut self, ticket: Ticket, conn: ConnId, pause: Duration) {
        // One that was given up is nobody's any more.
        let Some(away) = self.take_away(ticket) else { return };
        self.settle(&away);
        self.line.meters.worker.count_moved(pause);
        self.report_whereabouts(&away, Stays::Elsewhere { worker: away.to, conn });
        if away.is_ordered {
            self.report_move(away.conn, Ok((conn, pause)));
        }
    }

    pub(crate) fn take_away(&mut self, ticket: Ticket) -> Option<Away> {
        let n = self.moves.away.iter().position(|away| away.ticket == ticket)?;
        Some(self.moves.away.swap_remove(n))
    }

    /// A connection that was given away came back.
    pub(crate) fn returned(&mut self, parcel: Box<Parcel>) {
        let away = self.take_away(parcel.ticket);
        if let Some(away) = &away {
            self.settle(away);
            if away.is_ordered {
                self.report_move(away.conn, Err(Stays::NoRoom));
            }
        }
        let home = self.come_home(parcel);
        if let Some(away) = away {
            let worker = self.line.worker;
            let found = home.map_or(Stays::NoRoom, |conn| Stays::Elsewhere { worker, conn });
            self.report_whereabouts(&away, found);
        }
    }

    /// Says what some of its connections are.
    pub(crate) fn list(&mut self, from: u32) {
        let first = (from as usize).min(self.conns.len());
        let end = (first + LIST_MAX).min(self.conns.len());
        let worker = self.line.worker;
        let found = self.conns[first..end].iter().flatten();
        let connections = found.map(|conn| conn.listed(worker)).collect();
        let next = (end < self.conns.len()).then_some(end as u32);
        self.line.mailbox.report(Report::Listed { worker, from, connections, next });
    }

    fn report_move(&mut self, conn: ConnId, ended: Result<(ConnId, Duration), Stays>) {
        if ended.is_err() {
            self.line.meters.worker.count_stayed();
        }
        let worker = self.line.worker;
        self.line.mailbox.report(Report::Moved { worker, conn, ended });
    }
}
