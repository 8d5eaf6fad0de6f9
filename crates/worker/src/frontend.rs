//! The connections, their requests and the network together: messages to peers, and the ends of
//! connections and of requests.
//!
//! Deliberately not here: devices and schedulers (`engine.rs` adds them), and the meaning of a
//! connection's bytes (`reader.rs`).

mod ends;

pub(crate) use ends::NextStep;

use std::sync::Arc;

use contract::{
    Buf, ConnId, EndCause, Frame, FrameHead, Instant, Member, Notice, ProtocolError, Reply,
    Request, SPEECH_BYTES_MAX, Session, Status, TenantId, Transport,
};

use crate::Limits;
use crate::connections::{ConnectionStage, Connections, StalledBytes};
use crate::gauges::Gauges;
use crate::parts::SharedState;
use crate::requests::{Requests, SHARE, Shortage};

/// The connections of a worker with their requests and the network.
#[derive(Debug)]
pub(crate) struct Frontend<T, P> {
    pub(crate) net: T,
    pub(crate) conns: Connections<P>,
    pub(crate) requests: Requests,
    pub(crate) gauges: Gauges,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) limits: Limits,
    /// The time at which the current turn began.
    pub(crate) now: Instant,
    /// `true` if the turn did any work.
    pub(crate) progressed: bool,
    /// `true` if request slots, frames or buffers ran short in this turn.
    pub(crate) is_short: bool,
    /// The time at which a draining worker cuts its last connections; `None` if the worker does not
    /// drain.
    pub(crate) drain_until: Option<Instant>,
    /// Number of stalled connections that were resumed in this turn because their tenant has no
    /// request in flight. The end of a request would otherwise resume them.
    called: usize,
}

impl<T: Transport, P: Session> Frontend<T, P> {
    /// Joins the connections, requests and transport of a worker.
    pub(crate) fn new(
        net: T,
        requests: Requests,
        gauges: Gauges,
        shared: Arc<SharedState>,
        limits: Limits,
    ) -> Self {
        Frontend {
            net,
            conns: Connections::new(limits.carried),
            requests,
            gauges,
            shared,
            limits,
            now: Instant::ZERO,
            progressed: false,
            is_short: false,
            drain_until: None,
            called: 0,
        }
    }

    /// Begins a turn at `now`: clears the flags of the last turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        let last = self.progressed.then_some(self.now);
        self.gauges.begin_turn(now, last);
        (self.now, self.progressed, self.is_short) = (now, false, false);
    }

    /// Returns whether the worker drains: it takes no new requests, and stops when those in flight
    /// have ended.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    /// Returns the number of frames that are reserved: one for each request in flight, each hello
    /// and each question to the control plane, since each is answered in the end.
    #[inline]
    pub(crate) fn owed(&self) -> usize {
        self.requests.len() + self.conns.hellos.owed()
    }

    /// Returns `true` if a frame may be sent beside the reserved ones.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        self.net.room() > self.owed()
    }

    /// Returns `true` if there is room for one more request and its reply.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.requests.room() > 0 && self.net.room() > self.owed() + 1
    }

    /// Returns the shortage that stops one more request on a connection of this account, or its
    /// reply; `None` if there is room. Of the frames that are not reserved, an account may have
    /// [`SHARE`] times as many as are free.
    #[inline]
    pub(crate) fn shortage(&self, account: TenantId) -> Option<Shortage> {
        let free = self.net.room().saturating_sub(self.owed() + 1);
        if free == 0 || self.requests.room() == 0 {
            return Some(Shortage::OfWorker);
        }
        if free > self.limits.in_flight {
            return None; // as many as there are slots are left
        }
        let queued = self.net.queued(account);
        let is_its = queued == 0 || queued < free.saturating_mul(SHARE);
        (!is_its).then_some(Shortage::Clogged)
    }

    /// Charges a connection's kept bytes and queued frames to the tenant of its grant. Connections
    /// without a grant are charged together.
    pub(crate) fn settle_account(&mut self, id: ConnId) {
        let strangers = TenantId(self.limits.tenants as u32);
        let conn = self.conns.get(id);
        let account = conn.membership.grant.as_ref().map_or(strangers, |grant| grant.tenant);
        let before = std::mem::replace(&mut conn.intake.account, account);
        let kept = conn.intake.stalled.as_ref().map_or(0, StalledBytes::left);
        self.conns.carried.remove(before, kept);
        self.conns.carried.add(account, kept);
        self.net.charge(id, account);
    }

    /// Returns the tenant that a connection's requests with this handle are charged to.
    ///
    /// # Errors
    /// Fails with the status to refuse such a request with.
    #[inline(always)]
    pub(crate) fn tenant_of(&self, id: ConnId, handle: u16) -> Result<TenantId, Status> {
        let membership = &self.conns.peek(id).membership;
        let member = match (handle, membership.entered) {
            (0, None) => {
                return membership.grant.as_ref().map(|grant| grant.tenant).ok_or(Status::Denied);
            }
            (0, Some(member)) => member,
            (n, _) => {
                let held = membership.handles.get(usize::from(n) - 1).copied().flatten();
                held.ok_or(Status::NoTenant)?
            }
        };
        self.tenant_as(member)
    }

    /// Returns the tenant of a member, unless the tenant's number was reused.
    ///
    /// # Errors
    /// Fails with [`Status::NoTenant`] if the number means another tenant by now.
    #[inline]
    pub(crate) fn tenant_as(&self, member: Member) -> Result<TenantId, Status> {
        if self.gauges.meter(member.tenant).epoch() == member.epoch {
            Ok(member.tenant)
        } else {
            Err(Status::NoTenant)
        }
    }

    /// Returns a tenant's number with its present epoch.
    pub(crate) fn member(&self, tenant: TenantId) -> Member {
        Member { tenant, epoch: self.gauges.meter(tenant).epoch() }
    }
}

/// Messages to peers.
impl<T: Transport, P: Session> Frontend<T, P> {
    /// Encodes a reply and queues it. A reply that the protocol's version cannot express ends the
    /// connection.
    pub(crate) fn reply(&mut self, id: ConnId, reply: &Reply, body: Option<(Buf, usize)>) {
        let (buf, body_len) = match body {
            Some((buf, len)) => (Some(buf), len),
            None => (None, 0),
        };
        let Some(conn) = self.conns.find(id).filter(|conn| !conn.life.is_broken()) else {
            return self.give_back(buf);
        };
        let bytes = buf.as_ref().map_or(&[][..], |buf| &buf.bytes()[..body_len]);
        let head = conn.session.reply(reply, bytes);
        if let Ok(head) = &head {
            conn.progress.queued += (head.wire_bytes() + body_len) as u64;
        }
        match head {
            Ok(head) if head.is_empty() => self.give_back(buf),
            Ok(head) if body_len > 0 && !head.leaves_body() => {
                self.net.send(self.now, id, Frame { head, body: buf, body_len });
            }
            Ok(head) => {
                self.net.send(self.now, id, Frame::bare(head));
                self.give_back(buf);
            }
            Err(fatal) => {
                self.give_back(buf);
                self.disconnect(id, EndCause::Unsayable, &fatal.to_string());
            }
        }
    }

    /// Refuses a request, which would have been charged to this tenant.
    pub(crate) fn refuse(
        &mut self,
        id: ConnId,
        request: &Request,
        charged: Result<TenantId, Status>,
        status: Status,
    ) {
        self.gauges.count_refusal(charged, status);
        let reply = Reply::Done { tag: request.tag, command: request.command, status };
        self.reply(id, &reply, None);
    }

    /// Sends a message without a body.
    pub(crate) fn send_bare(&mut self, id: ConnId, head: FrameHead) {
        self.conns.get(id).progress.queued += head.bytes().len() as u64;
        self.net.send(self.now, id, Frame::bare(head));
    }

    /// Lets the session of a connection do its own work, and sends the messages that result from
    /// it.
    pub(crate) fn attend(&mut self, id: ConnId) {
        let now = self.now;
        let Some(conn) = self.conns.find(id).filter(|conn| !conn.life.is_broken()) else { return };
        let attended = conn.session.attend(now);
        let is_quiet = conn.session.unsaid() == 0;
        match attended {
            Ok(()) if is_quiet => {}
            Ok(()) => self.say(id),
            Err(ProtocolError::Ended(why)) => {
                tracing::debug!(peer = %conn.peer, why, "connection ended by its protocol");
                self.part(id, EndCause::Session);
            }
            Err(fatal) => self.disconnect(id, EndCause::Protocol, &fatal.to_string()),
        }
    }

    /// Sends the messages that a session wants to send on its own, as far as there is room. Queues
    /// the connection to continue in a later turn if some messages are left.
    fn say(&mut self, id: ConnId) {
        if !self.say_all(id) && !self.conns.speakers.contains(&id) {
            self.conns.speakers.push(id);
        }
    }

    /// Sends the session's own messages. Returns `false` if there is no room for all of them.
    fn say_all(&mut self, id: ConnId) -> bool {
        while let Some(conn) = self.conns.find(id).filter(|conn| !conn.life.is_broken()) {
            if conn.session.unsaid() == 0 {
                return true;
            }
            if !self.utter(id) {
                return false;
            }
        }
        true
    }

    /// Continues the connections that had no room for their sessions' messages.
    pub(crate) fn say_on(&mut self) {
        for n in (0..self.conns.speakers.len()).rev() {
            let id = self.conns.speakers[n];
            if self.say_all(id) {
                self.conns.speakers.swap_remove(n);
            }
        }
    }

    /// Sends one piece of the messages that a session wants to send on its own. Returns `false` if
    /// there is no frame or buffer for it.
    fn utter(&mut self, id: ConnId) -> bool {
        if !self.has_frame() {
            return false;
        }
        let conn = self.conns.get(id);
        let bytes = conn.session.unsaid().min(SPEECH_BYTES_MAX);
        let account = conn.intake.account;
        let Some(mut buf) = self.requests.take_for_speech(account, bytes) else { return false };
        let body_len = conn.session.speak(buf.prefix_mut(bytes));
        assert!(0 < body_len && body_len <= bytes, "what was announced is said");
        conn.progress.queued += body_len as u64;
        let frame = Frame { head: FrameHead::new(&[]), body: Some(buf), body_len };
        self.net.send(self.now, id, frame);
        true
    }
}

/// Ends of connections.
impl<T: Transport, P: Session> Frontend<T, P> {
    /// Ends a connection at once for this cause, and logs `why`. The session's last message, if it
    /// has one, is sent before.
    pub(crate) fn disconnect(&mut self, id: ConnId, cause: EndCause, why: &str) {
        let Some(conn) = self.conns.find(id) else { return };
        tracing::warn!(peer = %conn.peer, why, "connection ended");
        self.part(id, cause);
    }

    /// Closes a connection: nothing more is received from it, and nothing sent but its last
    /// message.
    pub(crate) fn part(&mut self, id: ConnId, cause: EndCause) {
        let Some(conn) = self.conns.find(id) else { return };
        conn.life.break_off(cause);
        // Its peer may take a while to let go, and what it sends elsewhere meanwhile is the later.
        conn.session.leave();
        let has_words = conn.session.unsaid() > 0;
        if has_words && self.utter(id) {
            self.net.finish(id);
        } else {
            self.net.close(id);
        }
    }

    /// Stops taking requests from a connection that was refused or whose worker drains, and closes
    /// the connection when its requests in flight have ended.
    pub(crate) fn finish(&mut self, id: ConnId) {
        self.dismiss(id, if self.is_draining() { EndCause::Drained } else { EndCause::NotLetIn });
    }

    /// Stops taking requests from a connection, for the reason `cause`, and closes the connection
    /// when its requests in flight have ended. If the peer is not at fault, it is notified
    /// beforehand.
    pub(crate) fn dismiss(&mut self, id: ConnId, cause: EndCause) {
        let is_drained = matches!(cause, EndCause::Drained | EndCause::Ordered);
        let Some(conn) = self.conns.find(id) else { return };
        conn.life.finish(cause);
        conn.outstanding.count -= std::mem::take(&mut conn.outstanding.awaited);
        let asked = std::mem::take(&mut conn.outstanding.asked);
        self.forget_awaited(asked);
        let Some(conn) = self.conns.find(id) else { return };
        let tell = is_drained && conn.session.takes_notices();
        if tell && self.has_frame() {
            self.reply(id, &Reply::Notice(Notice::Draining), None);
        }
        self.finish_if_idle(id);
    }

    /// Closes a finishing connection whose requests have all ended.
    pub(crate) fn finish_if_idle(&mut self, id: ConnId) {
        let is_idle = |life: ConnectionStage, count| life.is_finishing() && count == 0;
        if self.conns.find(id).is_some_and(|conn| is_idle(conn.life, conn.outstanding.count)) {
            self.net.finish(id);
        }
    }
}
