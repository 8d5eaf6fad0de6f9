//! Requests whose payload comes when it is asked for, and what sessions say by themselves
//! (docs/adr/0006-awaited-payloads.md).
//!
//! Whoever has been asked for a payload holds a slot and a buffer until it came, and behind it on the
//! same connection may lie requests of any number. Were those to wait for slots and buffers that only
//! what lies behind them can free, nobody would ever go on. So awaited payloads have no more than
//! half of the slots and never the last of the largest buffers, and a request that finds none stops
//! nothing: it is put off, and its peer is asked later.

use contract::{
    ConnId, Device, End, Fatal, Frame, FrameHead, Mailbox, Member, Reply, Request,
    SPEECH_BYTES_MAX, Scheduler, Session, Slot, Status, Transport,
};

use crate::Limits;
use crate::chain::{Chain, Links};
use crate::inflight::InFlight;
use crate::ingest::Placed;
use crate::lines::{Lines, PutOff};
use crate::quota::{Quotas, SHARE};
use crate::worker::Worker;

/// The requests of a worker that wait to ask for their payloads.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// Requests in flight that have asked and not got all.
    asked: usize,
    /// Those by their tenants. They do not count among what tenants hold otherwise, which their
    /// other requests give back by themselves.
    quotas: Quotas,
    /// Requests that found no slot or no buffer; one that comes back ends this. Those of connections
    /// that are gone are skipped.
    lines: Lines,
    /// Connections whose sessions have not said all that they had to say; frames that have left, or
    /// buffers that came back, end this.
    speakers: Vec<ConnId>,
}

/// What became of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The peer was asked, or the request was refused.
    Done,
    /// Its tenant has asked for too much already, or there is no buffer of its size: others may
    /// find what they want.
    Waits,
    /// There is no slot or frame now, for anybody.
    Short,
}

impl Awaited {
    /// Puts off so many requests that one tenant alone can put off as many as there are slots.
    pub(crate) fn new(limits: &Limits) -> Self {
        let requests_max = (limits.in_flight + limits.in_flight.div_ceil(SHARE)).min(1 << 16);
        Awaited {
            asked: 0,
            quotas: Quotas::default(),
            lines: Lines::new(requests_max, limits.tenants),
            speakers: Vec::with_capacity(64),
        }
    }

    /// Requests that wait to ask.
    pub(crate) fn put_off(&self) -> usize {
        self.lines.len()
    }

    /// Whether something waits for the next turn.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lines.tenants() > 0 || !self.speakers.is_empty()
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Asks for the payload of a request that has just come, or puts that off.
    pub(crate) fn await_payload(&mut self, id: ConnId, request: Request) {
        let Request { tag, command, .. } = request;
        let charged = self.tenant_of(id, request.tenant);
        let status = match charged {
            Err(status) => status,
            Ok(tenant) => {
                let charged = Member { tenant, epoch: self.meter(tenant).epoch() };
                let conn = self.find(id).expect("it sent a request");
                if conn.life.is_moving() {
                    return conn.put_off.push((request, charged));
                }
                if self.ask_in_line(PutOff { conn: id, request, charged }) {
                    return;
                }
                Status::Retry
            }
        };
        self.count_refusal(charged, status);
        self.reply(id, &Reply::Done { tag, command, status }, None);
    }

    /// Asks for the payload of a request, or puts that off behind its tenant's others. `false`: there
    /// are too many.
    fn ask_in_line(&mut self, put_off: PutOff) -> bool {
        let tenant = put_off.charged.tenant;
        let is_first = !self.awaited.lines.has(tenant);
        (is_first && self.ask(&put_off) == Asked::Done) || self.awaited.lines.push(tenant, put_off)
    }

    /// Takes back what was put off for a connection, because it is to leave.
    pub(crate) fn ask_no_more(&mut self, id: ConnId) {
        let mut taken = Vec::new();
        self.awaited.lines.withdraw(id, &mut taken);
        let conn = self.find(id).expect("the caller looked");
        conn.put_off.append(&mut taken);
    }

    /// Goes on with what was put off for a connection that has moved, or stays.
    pub(crate) fn ask_again(&mut self, id: ConnId) {
        let Some(conn) = self.find(id).filter(|conn| !conn.life.is_ending()) else {
            return;
        };
        for (request, charged) in std::mem::take(&mut conn.put_off) {
            if !self.ask_in_line(PutOff { conn: id, request, charged }) {
                let Request { tag, command, .. } = request;
                self.count_refusal(Ok(charged.tenant), Status::Retry);
                self.reply(id, &Reply::Done { tag, command, status: Status::Retry }, None);
            }
        }
    }

    /// Goes on with what was put off: asks until the turn's batch is full, or nobody finds anything.
    pub(crate) fn go_on_awaiting(&mut self) {
        let (mut asked, mut waiting) = (0, 0);
        while asked < self.limits.batch && waiting < self.awaited.lines.tenants() {
            let put_off = self.awaited.lines.front().expect("somebody waits");
            let conn = self.find(put_off.conn);
            let is_gone = conn.is_none_or(|conn| conn.life.is_ending());
            match if is_gone { Asked::Done } else { self.ask(&put_off) } {
                Asked::Done => {
                    self.awaited.lines.pop();
                    asked += 1;
                }
                Asked::Waits => {
                    self.awaited.lines.pass();
                    waiting += 1;
                }
                Asked::Short => break,
            }
        }
        self.progressed |= asked > 0;
        for n in (0..self.awaited.speakers.len()).rev() {
            let id = self.awaited.speakers.swap_remove(n);
            self.say(id);
        }
    }

    /// Gives the request a slot and a buffer and asks its peer for the payload, or refuses it.
    fn ask(&mut self, put_off: &PutOff) -> Asked {
        let PutOff { conn: id, request, charged } = *put_off;
        let Request { tag, command, .. } = request;
        let charged = self.tenant_as(charged);
        let Placed { namespace, device, lba, tenant } = match self.judge(id, &request, charged) {
            Ok(place) => place,
            Err(status) => {
                self.count_refusal(charged, status);
                self.reply(id, &Reply::Done { tag, command, status }, None);
                return Asked::Done;
            }
        };
        let left = (self.limits.in_flight / 2).saturating_sub(self.awaited.asked);
        if !self.has_room() || left == 0 {
            return Asked::Short;
        }
        // What came is held like any other request: who holds too much of that asks for no more.
        let (quotas, held) = (&mut self.awaited.quotas, &mut self.quotas);
        if !quotas.allows_slot(tenant, left) || !held.allows_slot(tenant, self.in_flight.room()) {
            return Asked::Waits;
        }
        let may = |class, free| {
            quotas.allows_payload(tenant, class, free) && held.allows_payload(tenant, class, free)
        };
        let buf = match self.pool.take_but_last_where(request.payload_bytes, may) {
            Some(buf) => buf,
            None => return Asked::Waits,
        };
        let payload_class = Some(self.pool.class_of(&buf));
        let now = self.now;
        // It counts as awaited, and not as held: see `count_as_held`.
        self.awaited.quotas.hold(tenant, payload_class);
        self.awaited.asked += 1;
        self.meter(tenant).admit();
        let slot = self.insert_held(|| InFlight {
            conn: id,
            tag,
            stream: request.stream,
            tenant,
            command,
            namespace,
            verdict: Status::Ok,
            device,
            lba,
            buf: Some(buf),
            payload_class,
            filled: 0,
            is_awaited: true,
            fence: None,
            received_at: now,
            submitted_at: None,
            links: Links::default(),
        });
        let conn = self.conns[id.index as usize].as_mut().expect("it sent a request");
        conn.outstanding.count += 1;
        conn.outstanding.awaited += 1;
        conn.outstanding.asked.push(&mut self.in_flight, slot);
        let buf = self.in_flight.get(slot).buf.as_mut().expect("it was just given one");
        let head = conn.session.invite(tag, slot, buf.prefix_mut(request.payload_bytes));
        match head.is_empty() {
            true => self.piece_was_last(id, slot, Status::Ok),
            false => self.send_bare(id, head),
        }
        Asked::Done
    }

    /// Puts a piece of an awaited payload where it belongs.
    pub(crate) fn piece(&mut self, id: ConnId, slot: Slot, offset: usize, bytes: &[u8]) {
        let entry = self.in_flight.get(slot);
        assert!(entry.conn == id && entry.is_awaited, "{slot:?} was not asked for here");
        let total = entry.command.payload_bytes();
        let buf = entry.buf.as_mut().expect("a request with a payload has a buffer");
        buf.prefix_mut(total)[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.piece_came(id);
    }

    /// A piece of an awaited payload is where it belongs.
    pub(crate) fn piece_came(&mut self, id: ConnId) {
        let conn = self.conns[id.index as usize].as_mut().expect("it sent a piece");
        conn.progress.messages = conn.progress.messages.wrapping_add(1);
    }

    /// An awaited payload is whole, or will not be.
    pub(crate) fn piece_was_last(&mut self, id: ConnId, slot: Slot, status: Status) {
        let conn = self.conns[id.index as usize].as_mut().expect("it sent a piece");
        conn.outstanding.awaited -= 1;
        conn.outstanding.asked.remove(&mut self.in_flight, slot);
        let entry = self.in_flight.get(slot);
        entry.is_awaited = false;
        entry.filled = entry.command.payload_bytes();
        entry.received_at = self.now;
        self.count_as_held(slot);
        if status.is_ok() {
            self.start(id, slot);
        } else {
            self.answer_unstarted(slot, status);
        }
    }

    /// Drops the requests of a connection whose payloads will not come any more. Who forgets them
    /// has closed the connection, or takes nothing more from it.
    pub(crate) fn forget_awaited(&mut self, mut asked: Chain) {
        while let Some(slot) = asked.pop(&mut self.in_flight) {
            self.count_as_held(slot);
            self.forget(slot);
        }
    }

    /// The request is not awaited any more.
    fn count_as_held(&mut self, slot: Slot) {
        let entry = self.in_flight.get(slot);
        let (tenant, class) = (entry.tenant, entry.payload_class);
        self.awaited.asked -= 1;
        self.awaited.quotas.release(tenant, class);
        self.quotas.hold(tenant, class);
    }

    /// Lets the session do its own work, and say what comes of it.
    pub(crate) fn attend(&mut self, id: ConnId) {
        let now = self.now;
        let Some(conn) = self.find(id).filter(|conn| !conn.life.is_broken()) else { return };
        let attended = conn.session.attend(now);
        let is_quiet = conn.session.unsaid() == 0;
        match attended {
            Ok(()) if is_quiet => {}
            Ok(()) => self.say(id),
            Err(Fatal::Ended(why)) => {
                tracing::debug!(peer = %conn.peer, why, "connection ended by its protocol");
                self.part(id, End::Session);
            }
            Err(fatal) => self.disconnect(id, End::Protocol, &fatal.to_string()),
        }
    }

    /// Sends what the session has to say by itself, as far as there is room.
    fn say(&mut self, id: ConnId) {
        while let Some(conn) = self.find(id).filter(|conn| !conn.life.is_broken()) {
            match conn.session.unsaid() {
                0 => return,
                _ if self.utter(id) => {}
                _ => {
                    if !self.awaited.speakers.contains(&id) {
                        self.awaited.speakers.push(id);
                    }
                    return;
                }
            }
        }
    }

    /// Sends a part of what the session has to say. `false`: there is no room.
    pub(crate) fn utter(&mut self, id: ConnId) -> bool {
        if self.transport.room() <= self.owed() {
            return false;
        }
        let conn = self.conns[id.index as usize].as_mut().expect("the caller looked");
        let bytes = conn.session.unsaid().min(SPEECH_BYTES_MAX);
        let Some(mut buf) = self.pool.take(bytes) else { return false };
        let body_len = conn.session.speak(buf.prefix_mut(bytes));
        assert!(0 < body_len && body_len <= bytes, "what was announced is said");
        conn.progress.queued += body_len as u64;
        let frame = Frame { head: FrameHead::new(&[]), body: Some(buf), body_len };
        self.transport.send(self.now, id, frame);
        true
    }

    /// Sends a message that has no body.
    fn send_bare(&mut self, id: ConnId, head: FrameHead) {
        let conn = self.conns[id.index as usize].as_mut().expect("it is spoken to");
        conn.progress.queued += head.bytes().len() as u64;
        self.transport.send(self.now, id, Frame::bare(head));
    }
}
