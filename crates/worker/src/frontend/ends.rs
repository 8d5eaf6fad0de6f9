//! Ends of requests: answers, counts, and calls of the connections that waited for the ends.

use contract::{
    Buf, Command, Completion, ConnId, Instant, Reply, Session, Slot, Status, Tag, TenantId,
    Transport, TurnPart,
};

use super::Frontend;
use crate::requests::{InFlightRequest, QueuePosition, SlotList};

/// Maximum number of connections, waiting for a tenant without requests in flight, that are called
/// in a turn.
const CALLS_MAX: usize = 256;

/// A request that is no longer in flight.
struct EndedRequest {
    conn: ConnId,
    tag: Tag,
    stream: usize,
    command: Command,
    /// The buffer of the request's payload; `None` without a payload, or if the device had the
    /// buffer.
    buf: Option<Buf>,
}

/// The step after the end of a part of a request.
pub(crate) enum NextStep {
    /// No further step, because no request of the stream waited for the one that ended.
    Nothing,
    /// The start of the requests that a stream of the connection holds behind a barrier.
    Held(ConnId, usize),
    /// The next device command of the same request must start, because the request was split and
    /// has parts left.
    Part,
}

/// Ends of requests.
impl<T: Transport, P: Session> Frontend<T, P> {
    /// Puts a request of the tenant into a slot, and counts it. `payload_class` is the size class
    /// of its payload's buffer; `None` without a payload.
    // Entries are large: they are made where they stay.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        tenant: TenantId,
        payload_class: Option<u32>,
        make: impl FnOnce() -> InFlightRequest,
    ) -> Slot {
        self.gauges.meter(tenant).admit();
        self.requests.quotas.hold(tenant, payload_class);
        self.insert_held(make)
    }

    /// Puts a request into a slot after its tenant's meter and quota have counted it.
    #[inline(always)]
    pub(crate) fn insert_held(&mut self, make: impl FnOnce() -> InFlightRequest) -> Slot {
        let slot = self.requests.insert(make);
        if self.gauges.clock.is_tracing() {
            self.gauges.clock.trace(slot, self.requests.get(slot));
        }
        slot
    }

    /// Removes a request from the table, and counts its end with the status of its answer; `None`
    /// if it is not answered. The next connection in its tenant's line may continue.
    // Entries are large: one is looked at where it is.
    #[inline(always)]
    fn remove(&mut self, slot: Slot, answer: Option<Status>) -> EndedRequest {
        let entry = self.requests.get(slot);
        let gone = EndedRequest {
            conn: entry.conn,
            tag: entry.tag,
            stream: usize::from(entry.stream),
            command: entry.command,
            buf: entry.buf.take(),
        };
        let (tenant, payload_class) = (entry.tenant, entry.payload.class);
        if let Some((fence, epoch)) = entry.fence.take() {
            fence.end(usize::from(entry.device), epoch);
        }
        self.gauges.count_end(self.now, entry, answer);
        if self.requests.discard(slot, tenant, payload_class) {
            self.call_next(tenant);
        }
        gone
    }

    /// Removes a request that is at no device from the table. Its tenant's meter goes on counting
    /// it.
    pub(crate) fn take_out(&mut self, slot: Slot) -> InFlightRequest {
        let (entry, is_waited_for) = self.requests.remove(slot);
        if is_waited_for {
            self.call_next(entry.tenant);
        }
        entry
    }

    /// Returns a buffer to the pool. The next connection in the line of the tenant whose read had
    /// it may continue.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, buf: Option<Buf>) {
        let Some(buf) = buf else { return };
        if let Some(tenant) = self.requests.give_back(buf) {
            self.call_next(tenant);
        }
    }

    /// Drops a request of a closed connection that is at no device.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let gone = self.remove(slot, None);
        self.give_back(gone.buf);
    }

    /// Drops the requests of a connection whose payloads will not come any more. The caller has
    /// closed the connection, or receives nothing more from it.
    pub(crate) fn forget_awaited(&mut self, mut asked: SlotList) {
        while let Some(slot) = asked.pop(self.requests.table()) {
            self.requests.end_awaiting(slot);
            self.forget(slot);
        }
    }

    /// Answers a request that no stream counts as running: a barrier, or a request with an invalid
    /// payload.
    pub(crate) fn answer_unstarted(&mut self, slot: Slot, status: Status) {
        let EndedRequest { conn, tag, command, buf, .. } = self.remove(slot, Some(status));
        self.give_back(buf);
        if status.is_ok() {
            let conns = &self.conns;
            let protocol = || conns.look(conn).map(|conn| conn.session.protocol());
            self.gauges.sample_barrier(protocol);
        }
        self.reply(conn, &Reply::Done { tag, command, status }, None);
        self.retire(conn);
    }

    /// Answers a request that was started, if its last part has ended.
    #[inline]
    pub(crate) fn answer_started(
        &mut self,
        slot: Slot,
        status: Status,
        buf: Option<Buf>,
    ) -> NextStep {
        let entry = self.requests.get(slot);
        // Most requests are reads that were carried out. They have neither payload nor fence to let
        // go.
        let Command::Read(range) = entry.command else {
            return self.answer_other(slot, status, buf);
        };
        if !status.is_ok() {
            return self.answer_other(slot, status, buf);
        }
        debug_assert!(entry.buf.is_none() && entry.payload.class.is_none());
        debug_assert!(entry.fence.is_none(), "only what changes data is behind one");
        let (id, tag, stream) = (entry.conn, entry.tag, usize::from(entry.stream));
        let (tenant, bytes) = (entry.tenant, range.bytes());
        let came = (tenant, entry.namespace, entry.received_at);
        self.gauges.count_read(self.now, came, bytes);
        if self.requests.discard(slot, tenant, None) {
            self.call_next(tenant);
        }
        let reply = Reply::Done { tag, command: Command::Read(range), status };
        self.reply(id, &reply, buf.map(|buf| (buf, bytes)));
        self.note_answered(id, stream, bytes)
    }

    /// Answers a request that is not a read, or that failed, if its last part has ended.
    #[inline(never)]
    fn answer_other(&mut self, slot: Slot, status: Status, buf: Option<Buf>) -> NextStep {
        if status.is_ok() && self.has_next_part(slot) {
            return NextStep::Part;
        }
        let EndedRequest { conn: id, tag, stream, command, buf: payload } =
            self.remove(slot, Some(status));
        self.give_back(payload);
        let body_len = if status.is_ok() { command.reply_bytes() } else { 0 };
        let body = match buf {
            Some(buf) if body_len > 0 => Some((buf, body_len)),
            other => {
                self.give_back(other);
                None
            }
        };
        let reply = Reply::Done { tag, command, status };
        self.reply(id, &reply, body);
        self.note_answered(id, stream, command.reply_bytes())
    }

    /// Advances a split request to its next device command. Returns `false` if there is none.
    fn has_next_part(&mut self, slot: Slot) -> bool {
        let entry = self.requests.get(slot);
        let (done, Some(rest)) = self.limits.split(entry.command) else { return false };
        entry.lba += done.range().map_or(0, |range| u64::from(range.blocks));
        entry.command = rest;
        if let Some((fence, epoch)) = entry.fence.take() {
            fence.end(usize::from(entry.device), epoch);
        }
        true
    }

    /// Counts the answer to a request of a stream. Returns [`NextStep::Held`] if requests of the
    /// stream wait behind a barrier.
    #[inline(always)]
    fn note_answered(&mut self, id: ConnId, stream: usize, reply_bytes: usize) -> NextStep {
        let Some(conn) = self.conns.find(id) else { return NextStep::Nothing };
        let order = &mut conn.streams[stream];
        order.running -= 1;
        let is_waited_for = !order.held.is_empty();
        conn.outstanding.owed -= reply_bytes;
        conn.outstanding.count -= 1;
        if conn.intake.stalled.is_some() || conn.life.is_finishing() {
            self.retired(id);
        }
        if is_waited_for { NextStep::Held(id, stream) } else { NextStep::Nothing }
    }

    /// Counts one request in flight less on a connection.
    pub(crate) fn retire(&mut self, id: ConnId) {
        let Some(conn) = self.conns.find(id) else { return };
        conn.outstanding.count -= 1;
        if conn.intake.stalled.is_some() || conn.life.is_finishing() {
            self.retired(id);
        }
    }

    /// Resumes a stalled connection after the end of one of its requests, or closes the connection
    /// if it is finishing.
    #[inline(never)]
    fn retired(&mut self, id: ConnId) {
        if self.conns.find(id).is_some_and(|conn| conn.intake.stalled.is_some()) {
            self.conns.call(id);
        } else {
            self.finish_if_idle(id);
        }
    }

    /// Samples some of the requests that the devices have completed. `polled` is the time at which
    /// the turn polled the devices.
    pub(crate) fn sample(&mut self, polled: Instant, ended: &[Completion]) {
        self.gauges.clock.mark(TurnPart::Device);
        let mut rest = ended;
        while let Some(place) = self.gauges.next_sample(rest.len()) {
            let entry = self.requests.get(rest[place].slot);
            let protocol = self.conns.look(entry.conn).map(|conn| conn.session.protocol());
            self.gauges.sample(self.now, &rest[place], entry, protocol);
            rest = &rest[place + 1..];
        }
        if self.gauges.clock.is_tracing() {
            self.gauges.clock.trace_ended(polled, ended, self.requests.table());
        }
    }
}

/// Calls of connections whose tenant holds less.
impl<T: Transport, P: Session> Frontend<T, P> {
    /// Calls the next connection in a tenant's line. If the tenant has nothing in flight, all of
    /// its waiting connections are called, because no end of a request would call them: the first
    /// in this turn, the [rest](Frontend::call_on) in later turns.
    #[inline(never)]
    fn call_next(&mut self, tenant: TenantId) {
        if self.requests.is_idle(tenant) {
            self.requests.quotas.call_all(tenant);
            while self.called < CALLS_MAX {
                let Some(next) = self.requests.quotas.next_called(tenant) else { return };
                self.call(next);
                self.called += 1;
            }
            return;
        }
        while let Some(next) = self.requests.quotas.next_in_line(tenant) {
            if self.call(next) {
                return;
            }
        }
    }

    /// Begins the count of a turn's calls, and calls more of the connections that wait for tenants
    /// without requests in flight, at most [`CALLS_MAX`] in a turn. The tenants take turns.
    pub(crate) fn call_on(&mut self) {
        self.called = 0;
        if self.requests.quotas.is_calling() {
            self.call_others();
        }
    }

    #[inline(never)]
    fn call_others(&mut self) {
        while self.called < CALLS_MAX {
            let Some(tenant) = self.requests.quotas.next_calling() else { return };
            if let Some(next) = self.requests.quotas.next_called(tenant) {
                self.call(next);
            }
            self.called += 1;
        }
    }

    /// Resumes a waiting connection, if it still has this position in its tenant's line. Returns
    /// whether it was resumed.
    fn call(&mut self, (id, position): (ConnId, QueuePosition)) -> bool {
        let conn = self.conns.find(id).filter(|conn| conn.intake.position == Some(position));
        let Some(conn) = conn else { return false };
        conn.intake.position = None;
        let waits = conn.intake.stalled.is_some();
        if waits {
            self.conns.call(id);
        }
        waits
    }
}
