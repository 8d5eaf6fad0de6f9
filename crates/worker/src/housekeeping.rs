//! What a worker does once a second, and when it is told to stop.

use std::time::Duration;

use contract::{
    COUNTED, ConnId, Device, End, Instant, Mailbox, Notice, Protocol, Reply, Scheduler, Session,
    Stays, Transport,
};

use crate::connection::{Greeting, Receiving};
use crate::worker::Worker;

/// How often stuck connections are looked for.
const PERIOD: Duration = Duration::from_secs(1);

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Takes no new connections and requests; those in flight finish and their replies leave, for which
    /// they have as long as the limits say.
    pub fn drain(&mut self, now: Instant) {
        if !self.is_draining() {
            self.drain_by(now, now + self.limits.drain);
        }
    }

    /// The same; they have until then. Said again, the time is another.
    pub fn drain_by(&mut self, now: Instant, until: Instant) {
        if self.drain_until.replace(until).is_some() {
            return;
        }
        self.now = now;
        self.transport.stop_listening();
        for index in 0..self.conns.len() {
            if let Some(id) = self.open_id(index) {
                self.finish(id);
            }
        }
        self.discard_unwanted();
        self.transport.kick(now);
    }

    /// Once it drains and its connections are gone, nobody waits for what still waits for tokens,
    /// which could take long to come.
    pub(crate) fn discard_unwanted(&mut self) {
        if !self.is_draining() || self.open_connections > 0 {
            return;
        }
        for n in 0..self.devices.len() {
            while let Some(slot) = self.devices[n].scheduler.discard() {
                self.forget(slot);
            }
        }
    }

    /// Whether [`drain`](Worker::drain) was called and nothing is left.
    pub fn is_drained(&self) -> bool {
        self.is_draining()
            && self.open_connections == 0
            && self.in_flight.is_empty()
            && self.talks.asked == 0
            && self.moves.is_idle()
    }

    /// Whether [`drain`](Worker::drain) was called and nothing of it will be at a device any more,
    /// though connections may still be there.
    pub fn is_inert(&self) -> bool {
        let mut conns = self.conns.iter().flatten();
        // What is away may come back with requests.
        let is_alone = self.is_draining() && self.moves.is_idle() && self.in_flight.is_empty();
        is_alone && conns.all(|conn| conn.outstanding.count == 0)
    }

    /// Whether [`drain`](Worker::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    /// Takes no more requests from a connection, which was not let in or whose worker drains; ends it
    /// when those in flight have ended.
    pub(crate) fn finish(&mut self, id: ConnId) {
        self.dismiss(id, if self.is_draining() { End::Drained } else { End::NotLetIn });
    }

    /// The same for a cause; one that did nothing to deserve it is told beforehand.
    pub(crate) fn dismiss(&mut self, id: ConnId, cause: End) {
        let is_drained = matches!(cause, End::Drained | End::Ordered);
        let Some(conn) = self.find(id) else { return };
        conn.life.finish(cause);
        conn.outstanding.count -= std::mem::take(&mut conn.outstanding.awaited);
        let asked = std::mem::take(&mut conn.outstanding.asked);
        self.forget_awaited(asked);
        let Some(conn) = self.find(id) else { return };
        let tell = is_drained && conn.session.takes_notices();
        if tell && self.transport.room() > self.owed() {
            self.reply(id, &Reply::Notice(Notice::Draining), None);
        }
        self.finish_if_idle(id);
    }

    /// Ends a finishing connection whose requests have all ended.
    pub(crate) fn finish_if_idle(&mut self, id: ConnId) {
        if self.find(id).is_some_and(|conn| conn.life.is_finishing() && conn.outstanding.count == 0)
        {
            self.transport.finish(id);
        }
    }

    /// Ends connections whose peers leave a message half sent or replies unread for too long, and
    /// a drain that takes too long.
    pub(crate) fn housekeep(&mut self) {
        if self.housekeep_at > self.now {
            return;
        }
        self.housekeep_at = self.now + PERIOD;
        let limit = if self.short { self.limits.stuck_under_pressure } else { self.limits.stuck };
        let periods = limit.as_secs().max(1) as u32;
        let overdue = self.drain_until.is_some_and(|until| until <= self.now);
        if overdue {
            // Their workers may be gone.
            let (away, lost) = self.moves.give_up();
            for away in &away {
                self.settle(away);
                self.report_whereabouts(away, Stays::Gone);
            }
            lost.iter().for_each(|parcel| self.sessions.lost(&parcel.session));
        }
        let told = std::mem::replace(&mut self.protocols, [0; Protocol::ALL.len()]);
        self.moves.messages_lately = 0;
        for index in 0..self.conns.len() {
            let Some(id) = self.open_id(index) else { continue };
            let unsent = self.transport.unsent(id);
            let conn = self.conns[index].as_mut().expect("it is open");
            self.protocols[conn.session.protocol() as usize] += 1;
            let progress = &mut conn.progress;
            let is_waiting = matches!(conn.intake.receiving, Receiving::Waiting(_));
            let half_received =
                conn.session.is_mid_message() && conn.intake.stalled.is_none() && !is_waiting;
            let news = progress.messages.wrapping_sub(progress.messages_seen);
            let received = news > 0;
            progress.messages_lately = progress.messages_lately / 2 + news.div_ceil(2);
            self.moves.messages_lately += u64::from(progress.messages_lately);
            let left = progress.queued - unsent as u64;
            let sent = left != progress.left_seen;
            // Whoever has no right to anything, and is not kept waiting for one, may not stay either.
            let is_stranger =
                conn.membership.grant.is_none() && conn.greeting != Greeting::Throttled;
            let owes = is_stranger || (half_received && !received);
            progress.idle_receiving = if owes { progress.idle_receiving + 1 } else { 0 };
            progress.idle_sending = if unsent > 0 && !sent { progress.idle_sending + 1 } else { 0 };
            (progress.messages_seen, progress.left_seen) = (progress.messages, left);
            let stalled = conn.intake.stalled.is_some();
            let (idle_receiving, idle_sending) = (progress.idle_receiving, progress.idle_sending);
            self.attend(id);
            if stalled {
                // Frames without a body leave without an event.
                self.look_again(id);
            }
            if idle_receiving > periods {
                let why = "its message, or its credentials, took too long to arrive";
                self.disconnect(id, End::Stuck, why);
            } else if idle_sending > periods {
                self.disconnect(id, End::Stuck, "replies were not read for too long");
            } else if overdue {
                self.disconnect(id, End::Drained, "the drain took too long");
            }
        }
        // Connections that do nothing are told of, too.
        if COUNTED && self.protocols != told && !self.progressed {
            self.tell_meters();
        }
    }

    /// The connection at this place of the table, if there is one.
    fn open_id(&self, index: usize) -> Option<ConnId> {
        self.conns[index].as_ref().map(|conn| conn.id)
    }
}
