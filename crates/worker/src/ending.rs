//! The second step's second half: requests end, are counted and answered, and let go what waited for
//! them.

use contract::{
    Buf, COUNTED, Command, ConnId, Device, Mailbox, Range, Reply, Scheduler, Session, Slot, Status,
    Tag, TenantId, Transport,
};

use crate::connection::Life;
use crate::inflight::InFlight;
use crate::metering::Ended;
use crate::quota::Stand;
use crate::worker::Worker;

/// Connections that wait for a tenant with nothing in flight and are called in a turn.
const CALLS_MAX: usize = 256;

/// What is known of a request that is in flight no more.
struct Gone {
    conn: ConnId,
    tag: Tag,
    stream: usize,
    command: Command,
    /// Its payload, if no device has had that.
    buf: Option<Buf>,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A request that was started has ended: answers it and lets go what waited for it.
    pub(crate) fn end(&mut self, slot: Slot, status: Status, buf: Option<Buf>) {
        let waited_for = match self.in_flight.get(slot).command {
            Command::Read(range) if status.is_ok() => self.answer_read(slot, range, buf),
            _ => self.answer_started(slot, status, buf),
        };
        if let Some((id, stream)) = waited_for {
            self.release_held(id, stream);
        }
    }

    /// What [`answer_started`](Worker::answer_started) does, for a read that was carried out. Most
    /// requests are that, and they have neither payload nor fence to let go.
    fn answer_read(
        &mut self,
        slot: Slot,
        range: Range,
        buf: Option<Buf>,
    ) -> Option<(ConnId, usize)> {
        let entry = self.in_flight.get(slot);
        debug_assert!(entry.buf.is_none() && entry.payload_class.is_none());
        debug_assert!(entry.fence.is_none(), "only what changes data is behind one");
        let (id, tag, stream) = (entry.conn, entry.tag, usize::from(entry.stream));
        let (tenant, bytes) = (entry.tenant, range.bytes());
        let came = (tenant, entry.namespace, entry.received_at);
        if COUNTED {
            self.tally.add(&self.line.meters, self.now, came, bytes);
        } else {
            self.meter(tenant).retire(1);
        }
        self.in_flight.discard(slot);
        if self.quotas.release(tenant, None) {
            self.call_next(tenant);
        }
        let reply = Reply::Done { tag, command: Command::Read(range), status: Status::Ok };
        self.reply(id, &reply, buf.map(|buf| (buf, bytes)));
        self.note_answered(id, stream, bytes)
    }

    /// Answers a request that was started. Where others wait for it, they go on waiting: of which
    /// connection, in which stream.
    fn answer_started(
        &mut self,
        slot: Slot,
        status: Status,
        buf: Option<Buf>,
    ) -> Option<(ConnId, usize)> {
        let Gone { conn: id, tag, stream, command, buf: payload } = self.remove(slot, Some(status));
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

    /// A connection is owed so many bytes less, for a request of a stream; where others wait for
    /// that, they go on waiting.
    #[inline(always)]
    fn note_answered(
        &mut self,
        id: ConnId,
        stream: usize,
        reply_bytes: usize,
    ) -> Option<(ConnId, usize)> {
        let conn = self.find(id)?;
        let order = &mut conn.streams[stream];
        order.running -= 1;
        let is_waited_for = !order.held.is_empty();
        conn.outstanding.owed -= reply_bytes;
        conn.outstanding.count -= 1;
        if conn.intake.stalled.is_some() || conn.life.is_finishing() {
            self.retired(id);
        }
        is_waited_for.then_some((id, stream))
    }

    /// A request is not in flight any more, and is answered with a status unless nobody waits for
    /// the answer: the next connection in its tenant's line may go on.
    // Entries are large: one is looked at where it is.
    #[inline(always)]
    fn remove(&mut self, slot: Slot, answer: Option<Status>) -> Gone {
        let entry = self.in_flight.get(slot);
        let gone = Gone {
            conn: entry.conn,
            tag: entry.tag,
            stream: usize::from(entry.stream),
            command: entry.command,
            buf: entry.buf.take(),
        };
        let (tenant, payload_class) = (entry.tenant, entry.payload_class);
        if let Some((fence, epoch)) = entry.fence.take() {
            fence.end(usize::from(entry.device), epoch);
        }
        let ended = Ended::of(entry);
        self.count_end(&ended, answer);
        self.in_flight.discard(slot);
        if self.quotas.release(tenant, payload_class) {
            self.call_next(tenant);
        }
        gone
    }

    /// A request that no device has leaves the table, and its tenant's meter goes on counting it.
    pub(crate) fn take_out(&mut self, slot: Slot) -> InFlight {
        let entry = self.in_flight.remove(slot);
        if self.quotas.release(entry.tenant, entry.payload_class) {
            self.call_next(entry.tenant);
        }
        entry
    }

    /// The next connection in a tenant's line may go on. All may if the tenant has nothing in flight:
    /// the next might not ask for anything of it any more, and no other end would call those behind. Of
    /// these the first go on now, and [others](Worker::call_on) later.
    #[inline(never)]
    fn call_next(&mut self, tenant: TenantId) {
        if self.quotas.holds_nothing(tenant) {
            self.quotas.call_all(tenant);
            while self.called < CALLS_MAX {
                let Some(next) = self.quotas.next_called(tenant) else { return };
                self.call(next);
                self.called += 1;
            }
            return;
        }
        while let Some(next) = self.quotas.next_in_line(tenant) {
            if self.call(next) {
                return;
            }
        }
    }

    /// Goes on calling those who wait for tenants that had nothing in flight, a bounded number of them
    /// in a turn; the tenants take turns.
    #[inline(never)]
    pub(crate) fn call_on(&mut self) {
        while self.called < CALLS_MAX {
            let Some(tenant) = self.quotas.next_calling() else { return };
            if let Some(next) = self.quotas.next_called(tenant) {
                self.call(next);
            }
            self.called += 1;
        }
    }

    /// A connection may go on, if it stands in that place still and waits; whether it does.
    fn call(&mut self, (id, stand): (ConnId, Stand)) -> bool {
        let Some(conn) = self.find(id).filter(|conn| conn.intake.stand == Some(stand)) else {
            return false;
        };
        conn.intake.stand = None;
        let waits = conn.intake.stalled.is_some();
        if waits {
            self.look_again(id);
        }
        waits
    }

    /// Answers a request that no stream counts as running: a barrier, or one whose payload was bad.
    pub(crate) fn answer_unstarted(&mut self, slot: Slot, status: Status) {
        let Gone { conn, tag, command, buf, .. } = self.remove(slot, Some(status));
        self.give_back(buf);
        if status.is_ok() {
            self.look_at_barrier(conn);
        }
        self.reply(conn, &Reply::Done { tag, command, status }, None);
        self.retire(conn);
    }

    /// One request less is in flight on the connection.
    pub(crate) fn retire(&mut self, id: ConnId) {
        let Some(conn) = self.find(id) else { return };
        conn.outstanding.count -= 1;
        if conn.intake.stalled.is_some() || conn.life.is_finishing() {
            self.retired(id);
        }
    }

    /// One is less in flight on a connection that is stalled, or ends when none is.
    #[inline(never)]
    fn retired(&mut self, id: ConnId) {
        if self.find(id).is_some_and(|conn| conn.intake.stalled.is_some()) {
            self.look_again(id);
        } else {
            self.finish_if_idle(id);
        }
    }

    /// Starts what waited behind a barrier of the stream, up to the next barrier that must wait.
    pub(crate) fn release_held(&mut self, id: ConnId, stream: usize) {
        while let Some(conn) = self.conns[id.index as usize].as_mut().filter(|c| c.id == id) {
            let order = &mut conn.streams[stream];
            let Some(front) = order.held.front() else { return };
            if conn.life == Life::Leaving {
                return;
            }
            let is_barrier = self.in_flight.get(front).command == Command::Barrier;
            if is_barrier && order.running > 0 {
                return;
            }
            order.held.pop(&mut self.in_flight);
            if is_barrier {
                self.answer_unstarted(front, Status::Ok);
            } else {
                order.running += 1;
                if self.enqueue(front).is_err() {
                    // All that waited may be refused: the next is this loop's, not a deeper call's.
                    let _still_waited_for = self.answer_started(front, Status::Retry, None);
                }
            }
        }
    }

    /// Drops a request of a connection that is gone and that no device has.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let gone = self.remove(slot, None);
        self.give_back(gone.buf);
    }
}
