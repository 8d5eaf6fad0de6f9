//! The first step's first half: bytes of a connection become requests in flight.

use contract::{
    Buf, Command, ConnId, Device, End, Event, Kind, Mailbox, NamespaceId, NetEvent, Part,
    QueueFull, Reply, Request, Scheduler, Session, Slot, Status, TenantId, Transport,
};

use crate::chain::Links;
use crate::connection::{Life, Receiving, STREAMS};
use crate::inflight::InFlight;
use crate::quota::Stand;
use crate::worker::{Chunk, Worker};

/// Why taking bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Every byte was taken.
    Empty,
    /// The turn's batch is full; the next turn goes on.
    Batch,
    /// Slots, frames or buffers of the worker are short; a completion, a sent frame or the rest of
    /// somebody's payload ends this.
    Shortage,
    /// The connection is over its limits or waits for its fence, or its tenant holds too much; its
    /// own progress, or its tenant's, ends this.
    Stall,
    /// The connection is gone.
    Gone,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) namespace: NamespaceId,
    pub(crate) device: u8,
    /// Its first block on the device.
    pub(crate) lba: u64,
    /// Who is charged.
    pub(crate) tenant: TenantId,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Takes received bytes, oldest first, until the batch is full or something is short.
    pub(crate) fn receive(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.transport.poll(self.now, &mut events, usize::MAX);
        self.lap(Part::Network);
        if self.awaits_leaving() {
            self.look_what_left();
        }
        self.progressed |= !events.is_empty();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        if self.awaited.is_waiting() {
            self.go_on_awaiting();
        }
        self.called = 0;
        if self.quotas.is_calling() {
            self.call_on();
        }
        self.take_stalled();
        while let Some(mut chunk) = self.inbox.pop_front() {
            let stop = self.take_chunk(&mut chunk);
            match stop {
                Stop::Batch | Stop::Shortage => {
                    self.short |= stop == Stop::Shortage;
                    self.inbox.push_front(chunk);
                    break;
                }
                Stop::Empty | Stop::Stall | Stop::Gone => self.transport.give(chunk.buf),
            }
        }
        if !self.fillable.is_empty() {
            self.receive_directly();
        }
        self.lap(Part::Protocol);
        if self.laps.is_tracing {
            self.trace_queued();
        }
    }

    fn handle(&mut self, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer, listener } => self.open(conn, peer, listener),
            NetEvent::Received { conn, buf, len } => {
                self.inbox.push_back(Chunk { conn, buf, taken: 0, len });
            }
            NetEvent::Filled { conn, buf, at, len } => self.filled(conn, buf, at, len),
            NetEvent::Sent { conn, buf } => {
                self.give_back(Some(buf));
                self.look_again(conn);
            }
            NetEvent::Closed { conn, reason } => self.closed(conn, reason),
        }
    }

    /// Takes what it can of a chunk; what a stalled connection cannot take yet is copied, so that
    /// the lent buffer goes back.
    fn take_chunk(&mut self, chunk: &mut Chunk) -> Stop {
        let Some(conn) = self.find(chunk.conn) else { return Stop::Gone };
        let bytes = &chunk.buf.bytes()[chunk.taken..chunk.len];
        if conn.intake.stalled.is_some() {
            return self.carry(chunk.conn, bytes);
        }
        let mut rest = bytes;
        let stop = self.ingest(chunk.conn, &mut rest);
        match stop {
            Stop::Stall => {
                self.pause(chunk.conn);
                return self.carry(chunk.conn, rest);
            }
            // The bytes of others, which may end the shortage, lie behind these: they are carried
            // as long as that leaves room for connections over their limits.
            Stop::Shortage if self.carried + rest.len() <= self.limits.carried / 2 => {
                self.pause(chunk.conn);
                self.starve(chunk.conn);
                return self.carry(chunk.conn, rest);
            }
            Stop::Batch | Stop::Shortage => chunk.taken = chunk.len - rest.len(),
            Stop::Empty => self.look_for_payload(chunk.conn),
            Stop::Gone => {}
        }
        stop
    }

    /// Stops receiving from a connection. One that leaves is not received from already.
    fn pause(&mut self, id: ConnId) {
        if self.find(id).is_some_and(|conn| conn.life != Life::Leaving) {
            self.transport.pause(id);
        }
    }

    /// Queues a connection whose stall may be over, once.
    pub(crate) fn look_again(&mut self, id: ConnId) {
        let Some(conn) = self.find(id) else { return };
        if conn.intake.stalled.is_some() && !std::mem::replace(&mut conn.intake.is_queued, true) {
            self.stalled.push_back(id);
        }
    }

    /// Queues a connection, which is stalled for a shortage of the worker's.
    fn starve(&mut self, id: ConnId) {
        self.short = true;
        let conn = self.find(id).expect("its bytes were just looked at");
        if !std::mem::replace(&mut conn.intake.is_starving, true) {
            self.starving.push_back(id);
        }
    }

    /// Keeps bytes of a stalled connection.
    fn carry(&mut self, id: ConnId, bytes: &[u8]) -> Stop {
        if self.carried + bytes.len() > self.limits.carried {
            let why = "too many stopped connections had sent too much already";
            self.disconnect(id, End::BackPressure, why);
            return Stop::Gone;
        }
        self.carried += bytes.len();
        let conn = self.find(id).expect("a stalled connection is open");
        conn.intake.stalled.get_or_insert_default().bytes.extend_from_slice(bytes);
        Stop::Stall
    }

    /// Goes on with connections whose stall may be over: first those that wait for what the worker
    /// was short of, in their order.
    fn take_stalled(&mut self) {
        while self.has_room() {
            let Some(id) = self.starving.pop_front() else { break };
            let Some(conn) = self.find(id) else { continue };
            conn.intake.is_starving = false;
            match self.go_on(id) {
                Stop::Shortage => {
                    self.find(id).expect("it is open").intake.is_starving = true;
                    self.starving.push_front(id);
                    break;
                }
                Stop::Batch => return self.look_again(id),
                Stop::Empty | Stop::Stall | Stop::Gone => {}
            }
        }
        self.short = !self.starving.is_empty();
        for _ in 0..self.stalled.len() {
            let id = self.stalled.pop_front().expect("it was just counted");
            let Some(conn) = self.find(id) else { continue };
            conn.intake.is_queued = false;
            if conn.intake.is_starving {
                continue;
            }
            match self.go_on(id) {
                Stop::Shortage => self.starve(id),
                Stop::Batch => return self.look_again(id),
                Stop::Empty | Stop::Stall | Stop::Gone => {}
            }
        }
    }

    /// Goes on with a connection, if it is stalled.
    fn go_on(&mut self, id: ConnId) -> Stop {
        let conn = self.find(id).expect("the caller looked");
        let Some(mut stalled) = conn.intake.stalled.take() else { return Stop::Empty };
        if !conn.arrived.is_empty()
            && let Err(stop) = self.unpack(id)
        {
            // Whoever is gone is still in the table until the transport says so.
            self.find(id).expect("it is open").intake.stalled = Some(stalled);
            return stop;
        }
        if self.find(id).is_some_and(|conn| !conn.put_off.is_empty() && !conn.life.is_moving()) {
            self.ask_again(id);
        }
        let mut rest = &stalled.bytes[stalled.taken..];
        let before = rest.len();
        let stop = self.ingest(id, &mut rest);
        let left = rest.len();
        stalled.taken = stalled.bytes.len() - left;
        match stop {
            Stop::Empty => {
                self.carried -= before;
                if self.find(id).is_some_and(|conn| conn.life != Life::Leaving) {
                    self.transport.resume(id);
                }
                // Its last request may have ended while it was stalled.
                self.finish_if_idle(id);
            }
            Stop::Gone => self.carried -= before,
            Stop::Batch | Stop::Shortage | Stop::Stall => {
                self.carried -= before - left;
                self.find(id).expect("it is open").intake.stalled = Some(stalled);
            }
        }
        stop
    }

    /// Parses and admits requests off the front of `input`.
    fn ingest(&mut self, id: ConnId, input: &mut &[u8]) -> Stop {
        loop {
            let room = self.has_room();
            let Some(conn) = self.find(id).filter(|conn| !conn.life.is_broken()) else {
                return Stop::Gone;
            };
            if let Receiving::Waiting(request) = conn.intake.receiving {
                if !room {
                    return Stop::Shortage; // others took the last slots meanwhile
                }
                conn.intake.receiving = Receiving::Nothing;
                if let Err(stop) = self.admit(id, request) {
                    return stop;
                }
                continue;
            }
            if input.is_empty() && !conn.session.has_more() {
                return Stop::Empty;
            }
            if matches!(conn.intake.receiving, Receiving::Nothing) {
                if conn.life.is_finishing() {
                    *input = &[];
                    return Stop::Empty;
                }
                if conn.greeting.is_under_way() || self.is_over_limits(id) {
                    return Stop::Stall;
                }
                if self.batch >= self.limits.batch {
                    return Stop::Batch;
                }
                if !room {
                    return Stop::Shortage;
                }
            }
            let conn = self.find(id).expect("it was there");
            match conn.session.next_event(input) {
                Ok(Some(Event::Request(request))) => {
                    self.batch += 1;
                    let conn = self.find(id).expect("it was there");
                    conn.progress.messages = conn.progress.messages.wrapping_add(1);
                    if let Err(stop) = self.admit(id, request) {
                        return stop;
                    }
                }
                Ok(Some(Event::Payload { bytes, end })) => self.payload(id, bytes, end),
                Ok(Some(event)) => self.take_event(id, event),
                Ok(None) => return Stop::Empty,
                Err(fatal) => {
                    self.disconnect(id, End::Protocol, &fatal.to_string());
                    return Stop::Gone;
                }
            }
        }
    }

    /// Takes an event that is neither a request nor a payload right behind it.
    fn take_event(&mut self, id: ConnId, event: Event<'_>) {
        match event {
            Event::Request(_) | Event::Payload { .. } => unreachable!("taken where they came"),
            Event::Piece { slot, offset, bytes, end } => {
                self.piece(id, slot, offset, bytes);
                if let Some(status) = end {
                    self.piece_was_last(id, slot, status);
                }
            }
            Event::Awaited(request) => {
                self.batch += 1;
                let conn = self.find(id).expect("it was there");
                conn.progress.messages = conn.progress.messages.wrapping_add(1);
                self.await_payload(id, request);
            }
            Event::Attached(tenant) => self.attach(id, tenant),
            Event::Fenced(fence) => self.find(id).expect("it was there").fence = Some(fence),
            Event::Own => {
                self.batch += 1;
                self.attend(id);
            }
            Event::Control(control) => {
                self.batch += 1;
                self.control(id, *control);
            }
        }
    }

    /// Whether one more request, and its reply, find a place.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.room() > 0 && self.transport.room() > self.owed() + 1
    }

    /// Frames that are kept: each request in flight, each hello that waits and each question to the
    /// control plane needs one in the end.
    pub(crate) fn owed(&self) -> usize {
        let hellos = self.greetings.len() + self.guesses.waiting();
        self.in_flight.len() + hellos + self.talks.asked
    }

    fn is_over_limits(&mut self, id: ConnId) -> bool {
        let unsent = self.transport.unsent(id);
        let limits = self.limits;
        self.find(id).is_some_and(|conn| {
            conn.outstanding.count - conn.outstanding.awaited >= limits.in_flight_of_connection
                || unsent + conn.outstanding.owed > limits.unsent_of_connection
        })
    }

    /// Checks a request and gives it a slot and, for its payload, a buffer. Otherwise there is no
    /// buffer now, or its tenant holds too much, and the request waits in its connection.
    fn admit(&mut self, id: ConnId, request: Request) -> Result<(), Stop> {
        let charged = self.tenant_of(id, request.tenant);
        let Placed { namespace, device, lba, tenant } = match self.judge(id, &request, charged) {
            Ok(place) => place,
            Err(status) => {
                self.count_refusal(charged, status);
                let conn = self.find(id).expect("it sent a request");
                if request.payload_bytes > 0 {
                    conn.intake.receiving = Receiving::Discard;
                }
                let Request { tag, command, .. } = request;
                self.reply(id, &Reply::Done { tag, command, status }, None);
                return Ok(());
            }
        };
        let buf = match self.supply_in_line(id, tenant, request.payload_bytes) {
            Ok(buf) => buf,
            Err(stop) => {
                self.find(id).expect("it sent a request").intake.receiving =
                    Receiving::Waiting(request);
                return Err(stop);
            }
        };
        let now = self.now;
        let conn = self.conns[id.index as usize].as_mut().expect("it sent a request");
        conn.intake.stand = None;
        conn.outstanding.count += 1;
        conn.outstanding.owed += request.command.reply_bytes();
        let payload_class = buf.as_ref().map(|buf| self.pool.class_of(buf));
        let slot = self.insert(tenant, payload_class, || InFlight {
            conn: id,
            tag: request.tag,
            stream: request.stream,
            tenant,
            command: request.command,
            namespace,
            verdict: Status::Ok,
            device,
            lba,
            buf,
            payload_class,
            filled: 0,
            is_awaited: false,
            fence: None,
            received_at: now,
            submitted_at: None,
            links: Links::default(),
        });
        match request.payload_bytes {
            0 => self.start(id, slot),
            _ => self.find(id).expect("it is open").intake.receiving = Receiving::Into(slot),
        }
        Ok(())
    }

    /// What [`supply`](Worker::supply) says; a connection whose tenant holds too much stands in
    /// line for less. Whoever goes on with what was supplied takes it out of that.
    pub(crate) fn supply_in_line(
        &mut self,
        id: ConnId,
        tenant: TenantId,
        bytes: usize,
    ) -> Result<Option<Buf>, Stop> {
        let supplied = self.supply(tenant, bytes);
        if matches!(supplied, Err(Stop::Stall)) {
            let conns = &self.conns;
            let stands = |id: ConnId, stand: Stand| {
                let conn = conns[id.index as usize].as_deref();
                conn.is_some_and(|conn| conn.id == id && conn.intake.stand == Some(stand))
            };
            let before = conns[id.index as usize].as_ref().expect("it has a request").intake.stand;
            let most = 2 * self.open_connections;
            let stand = self.quotas.stand_in_line(tenant, id, before, most, stands);
            self.find(id).expect("looked at above").intake.stand = Some(stand);
        }
        supplied
    }

    /// A buffer for a payload of so many bytes, if there is one and the tenant may have it, and a
    /// slot.
    fn supply(&mut self, tenant: TenantId, bytes: usize) -> Result<Option<Buf>, Stop> {
        if !self.quotas.allows_slot(tenant, self.in_flight.room()) {
            return Err(Stop::Stall);
        }
        if bytes == 0 {
            return Ok(None);
        }
        let quotas = &mut self.quotas;
        let may = |class, free| quotas.allows_payload(tenant, class, free);
        match self.pool.take_where(bytes, may) {
            None if self.pool.has(bytes) => Err(Stop::Stall),
            None => Err(Stop::Shortage),
            some => Ok(some),
        }
    }

    /// Whether the connection may do that at this tenant's charge, and where it lies on which device.
    pub(crate) fn judge(
        &self,
        id: ConnId,
        request: &Request,
        charged: Result<TenantId, Status>,
    ) -> Result<Placed, Status> {
        let conn = self.conns[id.index as usize].as_ref().expect("it sent a request");
        if !request.verdict.is_ok() {
            return Err(request.verdict);
        }
        let tenant = charged?;
        if usize::from(request.stream) >= STREAMS {
            return Err(Status::Invalid);
        }
        let number = request.namespace.unwrap_or(conn.namespace);
        let namespace = self.namespaces.find(number).ok_or(Status::NoNamespace)?;
        let grant = conn.membership.grant.as_ref().ok_or(Status::Denied)?;
        let rights = grant.rights(number);
        let place = |lba| {
            let device = namespace.device as u8;
            Ok(Placed { namespace: number, device, lba, tenant })
        };
        // Most requests are reads; for them this is all.
        if let Command::Read(range) = request.command {
            return match namespace.translate(range) {
                _ if !rights.read => Err(Status::Denied),
                _ if range.bytes() > self.pool.largest() => Err(Status::BadLength),
                Some(lba) => place(lba),
                None => Err(Status::OutOfRange),
            };
        }
        let geometry = self.devices[namespace.device].geometry;
        match request.command.kind() {
            // Its outcome tells what is stored.
            _ if matches!(request.command, Command::CompareAndWrite(_)) && !rights.read => {
                return Err(Status::Denied);
            }
            Kind::Read if !rights.read => return Err(Status::Denied),
            Kind::Write if !rights.write => return Err(Status::Denied),
            Kind::Write if namespace.read_only || geometry.read_only => {
                return Err(Status::ReadOnly);
            }
            _ if !rights.read && !rights.write => return Err(Status::Denied),
            _ => {}
        }
        if request.command.buffer_bytes() > self.pool.largest() {
            return Err(Status::BadLength);
        }
        if let Command::WriteAtomic(range) = request.command {
            match geometry.atomic_blocks_max {
                0 => return Err(Status::Unsupported),
                most if range.blocks > most => return Err(Status::AtomicTooLarge),
                _ => {}
            }
        }
        match request.command.range() {
            Some(range) => place(namespace.translate(range).ok_or(Status::OutOfRange)?),
            None => place(0),
        }
    }

    /// Puts a piece of payload where it belongs.
    fn payload(&mut self, id: ConnId, bytes: &[u8], end: Option<Status>) {
        let conn = self.find(id).expect("it sent a payload");
        let receiving = conn.intake.receiving;
        if end.is_some() {
            conn.intake.receiving = Receiving::Nothing;
        }
        let Receiving::Into(slot) = receiving else { return };
        let entry = self.in_flight.get(slot);
        let total = entry.command.payload_bytes();
        let buf = entry.buf.as_mut().expect("a request with a payload has a buffer");
        buf.prefix_mut(total)[entry.filled..entry.filled + bytes.len()].copy_from_slice(bytes);
        self.payload_came(id, slot, bytes.len(), end);
    }

    /// So many bytes more of a payload are where they belong.
    pub(crate) fn payload_came(
        &mut self,
        id: ConnId,
        slot: Slot,
        bytes: usize,
        end: Option<Status>,
    ) {
        let now = self.now;
        let entry = self.in_flight.get(slot);
        let total = entry.command.payload_bytes();
        entry.filled += bytes;
        match end {
            None => {}
            Some(Status::Ok) => {
                assert!(entry.filled == total, "the session counted the payload");
                entry.received_at = now;
                self.start(id, slot);
            }
            Some(status) => self.answer_unstarted(slot, status),
        }
    }

    /// A request is whole: starts it, or holds it behind a barrier of its stream.
    pub(crate) fn start(&mut self, id: ConnId, slot: Slot) {
        let entry = self.in_flight.get(slot);
        let (stream, command) = (usize::from(entry.stream), entry.command);
        let conn = self.conns[id.index as usize].as_mut().expect("its connection is open");
        let order = &mut conn.streams[stream];
        match command {
            _ if !order.held.is_empty() => order.held.push(&mut self.in_flight, slot),
            Command::Barrier if order.running > 0 => order.held.push(&mut self.in_flight, slot),
            Command::Barrier => self.answer_unstarted(slot, Status::Ok),
            _ => {
                order.running += 1;
                if self.enqueue(slot).is_err() {
                    self.end(slot, Status::Retry, None);
                }
            }
        }
    }

    /// Hands a request to its device's scheduler, or is told that it takes no more of the tenant's.
    /// Where it is called, its entry was just looked at: to look again would be a quarter of it.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, slot: Slot) -> Result<(), QueueFull> {
        let entry = self.in_flight.get(slot);
        // Most requests are reads; for them this is all.
        let Command::Read(range) = entry.command else { return self.enqueue_other(slot) };
        let attached = &mut self.devices[usize::from(entry.device)];
        attached.scheduler.enqueue(entry.tenant, Kind::Read, range.bytes(), slot)?;
        attached.is_fresh = true;
        Ok(())
    }

    /// The same for one that is no read.
    #[inline(never)]
    fn enqueue_other(&mut self, slot: Slot) -> Result<(), QueueFull> {
        let entry = self.in_flight.get(slot);
        let (work, bytes) = (entry.command.work(), entry.command.work_bytes());
        let attached = &mut self.devices[usize::from(entry.device)];
        attached.scheduler.enqueue(entry.tenant, work, bytes, slot)?;
        attached.is_fresh = true;
        Ok(())
    }
}
