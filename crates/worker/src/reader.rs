//! Turns received bytes into requests in flight: the first step of a turn.

use contract::{
    Buf, ConnId, Device, EndCause, Mailbox, Request, Scheduler, Session, SessionEvent, TenantId,
    Transport, TurnPart,
};

use crate::connections::{
    Chunk, ConnectionStage, OutstandingRequests, PayloadDestination, StalledBytes,
};
use crate::direct::DirectReceives;
use crate::engine::Engine;
use crate::frontend::Frontend;
use crate::invitations::PutOffRequests;
use crate::namespaces::verdict;
use crate::requests::{InFlightRequest, QueuePosition, Shortage};
use crate::tenancy::{self, Registrar};
use crate::{ControlPlaneLink, Limits};

/// The reason that the reader stops taking bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// All received bytes were parsed.
    Empty,
    /// The turn's batch is full; the next turn continues.
    Batch,
    /// The worker has too few free slots, frames or buffers. A completion, a sent frame or the end
    /// of a payload ends the shortage.
    Shortage,
    /// Unsent replies of the connection's tenant hold too many of the frames. Frames that are sent
    /// end the stall.
    Clogged,
    /// The connection must stop: it is over its limits or waits for its fence, its tenant holds too
    /// much, or its session takes no more bytes for now. Its own progress, its tenant's, or news
    /// for its session ends the stall.
    Stall,
    /// The connection is gone.
    Gone,
}

impl From<Shortage> for StopReason {
    fn from(shortage: Shortage) -> StopReason {
        match shortage {
            Shortage::OfTenant => StopReason::Stall,
            Shortage::Clogged => StopReason::Clogged,
            Shortage::OfWorker => StopReason::Shortage,
        }
    }
}

/// The part of a worker that parses the bytes of its connections into requests.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) invitations: PutOffRequests,
    pub(crate) direct: DirectReceives,
    /// Number of requests that were parsed in this turn.
    batch: usize,
}

impl Reader {
    /// Creates a reader with an empty batch.
    pub(crate) fn new(invitations: PutOffRequests) -> Self {
        Reader { invitations, direct: DirectReceives::new(), batch: 0 }
    }

    /// Begins a turn: empties the batch.
    pub(crate) fn begin_turn(&mut self) {
        self.batch = 0;
    }

    /// Returns whether the turn's batch of requests is full.
    pub(crate) fn is_full(&self, batch_max: usize) -> bool {
        self.batch >= batch_max
    }

    /// Parses received bytes, oldest first, until the batch is full or a resource is short.
    pub(crate) fn read<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
    ) {
        self.read_called(engine, line);
        while let Some(mut chunk) = engine.front.conns.inbox.pop_front() {
            let stop = self.take_chunk(engine, line, &mut chunk);
            if stop == StopReason::Batch {
                engine.front.conns.inbox.push_front(chunk);
                break;
            }
            engine.front.net.give(chunk.buf);
        }
        self.direct.lend(&mut engine.front);
        let clock = &mut engine.front.gauges.clock;
        clock.mark(TurnPart::Protocol);
        if clock.is_tracing() {
            clock.trace_queued();
        }
    }

    /// Parses as much as possible of a chunk. Bytes that a stalled connection cannot take yet are
    /// copied, so that the receive buffer is returned.
    fn take_chunk<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
        chunk: &mut Chunk,
    ) -> StopReason {
        let id = chunk.conn;
        let Some(conn) = engine.front.conns.find(id) else { return StopReason::Gone };
        let bytes = &chunk.buf.bytes()[chunk.taken..chunk.len];
        if conn.intake.stalled.is_some() {
            return carry(&mut engine.front, id, bytes);
        }
        let mut rest = bytes;
        let stop = self.parse(engine, line, id, &mut rest);
        let front = &mut engine.front;
        match stop {
            StopReason::Stall => {
                pause(front, id);
                return carry(front, id, rest);
            }
            // Behind these lie bytes of others, who do not wait for this connection.
            StopReason::Shortage | StopReason::Clogged => {
                pause(front, id);
                front.is_short |= stop == StopReason::Shortage;
                front.conns.starve(id);
                return carry(front, id, rest);
            }
            StopReason::Batch => chunk.taken = chunk.len - rest.len(),
            StopReason::Empty => self.direct.look_for_payload(front, id),
            StopReason::Gone => {}
        }
        stop
    }

    /// Resumes connections whose stall may be over. Connections that wait for a resource of the
    /// worker come first, in their order.
    fn read_called<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
    ) {
        if engine.front.conns.starving_tenants() > 0 && self.read_starving(engine, line) {
            return;
        }
        for _ in 0..engine.front.conns.called() {
            let Some(id) = engine.front.conns.next_called() else { continue };
            match self.go_on(engine, line, id) {
                stop @ (StopReason::Shortage | StopReason::Clogged) => {
                    engine.front.is_short |= stop == StopReason::Shortage;
                    engine.front.conns.starve(id);
                }
                StopReason::Batch => return engine.front.conns.call(id),
                StopReason::Empty | StopReason::Stall | StopReason::Gone => {}
            }
        }
    }

    /// Resumes connections that wait for a resource of the worker, until no tenant's first
    /// connection finds any. Returns whether the turn's batch is full.
    fn read_starving<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
    ) -> bool {
        let mut without = 0;
        while without < engine.front.conns.starving_tenants() {
            if !engine.front.has_room() {
                engine.front.is_short = true;
                break;
            }
            let Some(id) = engine.front.conns.next_starving() else { break };
            match self.go_on(engine, line, id) {
                stop @ (StopReason::Shortage | StopReason::Clogged) => {
                    engine.front.is_short |= stop == StopReason::Shortage;
                    engine.front.conns.starve_first(id);
                    without += 1;
                }
                StopReason::Batch => {
                    engine.front.conns.call(id);
                    return true;
                }
                StopReason::Empty | StopReason::Stall | StopReason::Gone => without = 0,
            }
        }
        false
    }

    /// Resumes parsing on a connection that was stalled. Returns why the parsing stops again;
    /// `StopReason::Empty` if the connection is not stalled.
    fn go_on<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
        id: ConnId,
    ) -> StopReason {
        let conn = engine.front.conns.get(id);
        let account = conn.intake.account;
        let Some(mut stalled) = conn.intake.stalled.take() else { return StopReason::Empty };
        if !conn.arrived.is_empty()
            && let Err(stop) = self.unpack(engine, id)
        {
            // Whoever is gone is still in the table until the transport says so.
            engine.front.conns.get(id).intake.stalled = Some(stalled);
            return stop;
        }
        let conn = engine.front.conns.find(id);
        if conn.is_some_and(|conn| !conn.put_off.is_empty() && !conn.life.is_moving()) {
            self.invitations.ask_again(engine, id);
        }
        let mut rest = &stalled.bytes[stalled.taken..];
        let before = rest.len();
        let stop = self.parse(engine, line, id, &mut rest);
        let left = rest.len();
        stalled.taken = stalled.bytes.len() - left;
        let front = &mut engine.front;
        // A hello among the bytes may have made the connection another tenant's.
        front.conns.carried.remove(account, before);
        match stop {
            StopReason::Empty => {
                if front.conns.find(id).is_some_and(|conn| conn.life != ConnectionStage::Leaving) {
                    front.net.resume(id);
                }
                // Its last request may have ended while it was stalled.
                front.finish_if_idle(id);
            }
            StopReason::Gone => {}
            StopReason::Batch | StopReason::Shortage | StopReason::Clogged | StopReason::Stall => {
                let intake = &mut front.conns.get(id).intake;
                intake.stalled = Some(stalled);
                let account = intake.account;
                front.conns.carried.add(account, left);
            }
        }
        stop
    }

    /// Parses and admits requests off the front of `input`. Returns the reason for which it stops;
    /// `input` then has the bytes that are left.
    fn parse<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
        id: ConnId,
        input: &mut &[u8],
    ) -> StopReason {
        loop {
            let conn = engine.front.conns.find(id).filter(|conn| !conn.life.is_broken());
            let Some(conn) = conn else { return StopReason::Gone };
            let account = conn.intake.account;
            if let PayloadDestination::Waiting(request) = conn.intake.receiving {
                if let Some(shortage) = engine.front.shortage(account) {
                    return shortage.into(); // others took the last slots meanwhile
                }
                engine.front.conns.get(id).intake.receiving = PayloadDestination::Nothing;
                if let Err(shortage) = admit(engine, id, request) {
                    return shortage.into();
                }
                continue;
            }
            if input.is_empty() && !conn.session.has_more() {
                return StopReason::Empty;
            }
            if matches!(conn.intake.receiving, PayloadDestination::Nothing) {
                if conn.life.is_finishing() {
                    *input = &[];
                    return StopReason::Empty;
                }
                let unsent = engine.front.net.unsent(id);
                let is_over = is_over_limits(&conn.outstanding, unsent, &engine.front.limits);
                if conn.greeting.is_under_way() || is_over {
                    return StopReason::Stall;
                }
                if self.batch >= engine.front.limits.batch {
                    return StopReason::Batch;
                }
                if let Some(shortage) = engine.front.shortage(account) {
                    return shortage.into();
                }
            }
            let conn = engine.front.conns.get(id);
            match conn.session.next_event(input) {
                Ok(Some(SessionEvent::Request(request))) => {
                    self.batch += 1;
                    conn.progress.messages = conn.progress.messages.wrapping_add(1);
                    if let Err(shortage) = admit(engine, id, request) {
                        return shortage.into();
                    }
                }
                Ok(Some(SessionEvent::Payload { bytes, end })) => {
                    engine.payload(id, None, bytes, end)
                }
                Ok(Some(event)) => self.take_event(engine, line, id, event),
                Ok(None) => {
                    let waits = !input.is_empty() || engine.front.conns.get(id).session.has_more();
                    return if waits { StopReason::Stall } else { StopReason::Empty };
                }
                Err(fatal) => {
                    engine.front.disconnect(id, EndCause::Protocol, &fatal.to_string());
                    return StopReason::Gone;
                }
            }
        }
    }

    /// Processes a session's event, except a request and a payload right behind one, which have
    /// their own path.
    fn take_event<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        line: &mut ControlPlaneLink<M>,
        id: ConnId,
        event: SessionEvent<'_>,
    ) {
        match event {
            SessionEvent::Request(_) | SessionEvent::Payload { .. } => {
                unreachable!("taken where they came")
            }
            SessionEvent::Piece { slot, offset, bytes, end } => {
                engine.payload(id, Some((slot, offset)), bytes, end);
            }
            SessionEvent::Awaited(request) => {
                self.batch += 1;
                let progress = &mut engine.front.conns.get(id).progress;
                progress.messages = progress.messages.wrapping_add(1);
                self.invitations.await_payload(engine, id, request);
            }
            SessionEvent::Attached(tenant) => tenancy::attach(&mut engine.front, id, tenant),
            SessionEvent::Fenced(fence) => engine.front.conns.get(id).fence = Some(fence),
            SessionEvent::Own => {
                self.batch += 1;
                engine.front.attend(id);
            }
            SessionEvent::Control(control) => {
                self.batch += 1;
                Registrar { engine, line }.control(id, *control);
            }
        }
    }

    /// Continues the requests that arrived with a migrated connection, in their order.
    ///
    /// # Errors
    /// Fails with the shortage for which some requests still wait.
    fn unpack<T: Transport, D: Device, S: Scheduler, P: Session>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        id: ConnId,
    ) -> Result<(), StopReason> {
        loop {
            let conn = engine.front.conns.find(id).filter(|conn| !conn.life.is_broken());
            let conn = conn.ok_or(StopReason::Gone)?;
            let Some(request) = conn.arrived.front() else { return Ok(()) };
            let (charged, bytes) =
                ((request.tenant, usize::from(request.device)), request.command.payload_bytes());
            if self.batch >= engine.front.limits.batch {
                return Err(StopReason::Batch);
            }
            if !engine.front.has_room() {
                return Err(StopReason::Shortage);
            }
            let buf = supply_in_line(engine, id, charged, bytes)?;
            self.batch += 1;
            admit_arrived(engine, id, buf);
        }
    }
}

/// Checks a request and allocates its slot and, for its payload, a buffer.
///
/// # Errors
/// Fails if there is no buffer now, or if the tenant holds too much. The request then waits in its
/// connection.
fn admit<T: Transport, D: Device, S: Scheduler, P: Session>(
    engine: &mut Engine<T, D, S, P>,
    id: ConnId,
    request: Request,
) -> Result<(), Shortage> {
    let charged = engine.front.tenant_of(id, request.tenant);
    let placed = match engine.judge(id, &request, charged) {
        Ok(placed) => placed,
        Err(status) => {
            if request.payload_bytes > 0 {
                engine.front.conns.get(id).intake.receiving = PayloadDestination::Discard;
            }
            engine.front.refuse(id, &request, charged, status);
            return Ok(());
        }
    };
    let charged = (placed.tenant, usize::from(placed.device));
    let supplied = supply_in_line(engine, id, charged, request.payload_bytes);
    let front = &mut engine.front;
    let buf = match supplied {
        Ok(buf) => buf,
        Err(shortage) => {
            front.conns.get(id).intake.receiving = PayloadDestination::Waiting(request);
            return Err(shortage);
        }
    };
    let (now, class) = (front.now, buf.as_ref().map(Buf::class));
    let conn = front.conns.get(id);
    conn.intake.position = None;
    conn.outstanding.count += 1;
    conn.outstanding.owed += request.command.reply_bytes();
    let make = || InFlightRequest::new(id, &request, placed, buf, false, now);
    let slot = front.insert(placed.tenant, class, make);
    match request.payload_bytes {
        0 => engine.start(id, slot),
        _ => front.conns.get(id).intake.receiving = PayloadDestination::Into(slot),
    }
    Ok(())
}

/// Starts the first request that came along with a migrated connection, or continues with its
/// payload.
fn admit_arrived<T: Transport, D: Device, S: Scheduler, P: Session>(
    engine: &mut Engine<T, D, S, P>,
    id: ConnId,
    buf: Option<Buf>,
) {
    let front = &mut engine.front;
    let conn = front.conns.get(id);
    let admitted = conn.view.admitted;
    conn.intake.position = None;
    let request = conn.arrived.pop_front().expect("the caller has just seen it");
    let class = buf.as_ref().map(Buf::class);
    let mut entry = InFlightRequest::of_parcel(id, &request, buf);
    // The namespace may have changed on the way.
    let namespace = engine.namespaces.find_as_of(request.namespace, admitted);
    entry.verdict = verdict(&entry, namespace);
    front.requests.quotas.hold(request.tenant, class);
    let slot = front.insert_held(|| entry);
    match request.payload {
        contract::MigratingPayload::Whole(_) => engine.start(id, slot),
        contract::MigratingPayload::Begun(_) => {
            front.conns.get(id).intake.receiving = PayloadDestination::Into(slot);
        }
    }
}

/// Checks that the tenant may have one of the free slots, and takes a buffer for a payload of so
/// many bytes. If the tenant holds too much, the connection gets a position in the tenant's line;
/// the caller gives it up after a later success.
///
/// # Errors
/// Fails with the resource that is short.
#[inline(always)]
fn supply_in_line<T: Transport, D: Device, S: Scheduler, P: Session>(
    engine: &mut Engine<T, D, S, P>,
    id: ConnId,
    (tenant, device): (TenantId, usize),
    bytes: usize,
) -> Result<Option<Buf>, Shortage> {
    let Engine { front, lanes, .. } = engine;
    let yields = || lanes.peek(device).scheduler().yields(tenant);
    let supplied = front.requests.supply(tenant, bytes, yields);
    if matches!(supplied, Err(Shortage::OfTenant)) {
        queue_up(front, id, tenant);
    }
    supplied
}

#[cold]
fn queue_up<T: Transport, P: Session>(front: &mut Frontend<T, P>, id: ConnId, tenant: TenantId) {
    let conns = &front.conns;
    let waits = |id: ConnId, position: QueuePosition| {
        conns.look(id).is_some_and(|conn| conn.intake.position == Some(position))
    };
    let before = conns.peek(id).intake.position;
    let most = 2 * conns.open();
    let position = front.requests.quotas.queue_up(tenant, id, before, most, waits);
    front.conns.get(id).intake.position = Some(position);
}

#[inline]
fn is_over_limits(outstanding: &OutstandingRequests, unsent: usize, limits: &Limits) -> bool {
    outstanding.count - outstanding.awaited >= limits.in_flight_of_connection
        || unsent + outstanding.owed > limits.unsent_of_connection
}

/// Continues reading from a connection whose session has had news: the session may take bytes
/// again, or have events of its own.
pub(crate) fn read_on<T: Transport, P: Session>(front: &mut Frontend<T, P>, id: ConnId) {
    let Some(conn) = front.conns.find(id).filter(|conn| !conn.life.is_broken()) else { return };
    if conn.intake.stalled.is_none() {
        if !conn.session.has_more() {
            return;
        }
        conn.intake.stalled = Some(StalledBytes::default());
        pause(front, id);
    }
    front.conns.call(id);
}

/// Stops receiving from a connection, unless it is leaving and so has stopped already.
fn pause<T: Transport, P: Session>(front: &mut Frontend<T, P>, id: ConnId) {
    if front.conns.find(id).is_some_and(|conn| conn.life != ConnectionStage::Leaving) {
        front.net.pause(id);
    }
}

/// Keeps the unparsed bytes of a stalled connection, or ends the connection if they are too many.
fn carry<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    bytes: &[u8],
) -> StopReason {
    let account = front.conns.peek(id).intake.account;
    if !front.conns.carried.allows(account, bytes.len()) {
        let why = "too many stopped connections had sent too much already";
        front.disconnect(id, EndCause::BackPressure, why);
        return StopReason::Gone;
    }
    front.conns.carried.add(account, bytes.len());
    let stalled = &mut front.conns.get(id).intake.stalled;
    stalled.get_or_insert_default().bytes.extend_from_slice(bytes);
    StopReason::Stall
}
