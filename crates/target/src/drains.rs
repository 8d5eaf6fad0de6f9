//! Connections that are told to end, a bounded number of them in a turn.

use contract::{ConnId, Device, Instant, ListenerId, Mailbox, Scheduler, Session, Transport};

use crate::worker::Worker;

/// Drains that go on at a time; of more, the oldest is forgotten, whose connections have been told.
const DRAINS_MAX: usize = 16;

/// Places of the connections' table that a turn looks at.
const BATCH: usize = 256;

/// A drain that has begun and whose time is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    listener: Option<ListenerId>,
    until: Instant,
    /// The first place that was not looked at.
    next: usize,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Connections are to end, or not any more.
    pub(crate) fn order_drain(&mut self, listener: Option<ListenerId>, until: Option<Instant>) {
        self.drains.retain(|drain| drain.listener != listener);
        let Some(until) = until else { return };
        if self.drains.len() == DRAINS_MAX {
            self.drains.remove(0);
        }
        self.drains.push(Drain { listener, until, next: 0 });
    }

    /// Whether connections that come by this listener are to end.
    pub(crate) fn is_drained_at(&self, listener: Option<ListenerId>) -> bool {
        listener.is_some() && self.drains.iter().any(|drain| drain.listener == listener)
    }

    /// Tells the next connections, and ends those whose time is over.
    pub(crate) fn drain_on(&mut self) {
        for n in 0..self.drains.len() {
            let Drain { listener, until, next } = self.drains[n];
            let end = (next + BATCH).min(self.conns.len());
            for place in next..end {
                if let Some(id) = self.drained_id(place, listener) {
                    self.progressed = true;
                    self.dismiss(id, true);
                }
            }
            self.drains[n].next = end;
            if until <= self.now {
                for place in 0..self.conns.len() {
                    if let Some(id) = self.drained_id(place, listener) {
                        self.disconnect(id, "the drain took too long");
                    }
                }
            }
        }
        let now = self.now;
        self.drains.retain(|drain| drain.until > now);
    }

    /// The connection at a place, if it is to end.
    fn drained_id(&self, place: usize, listener: Option<ListenerId>) -> Option<ConnId> {
        let conn = self.conns[place].as_ref()?;
        let is_meant = listener.is_none_or(|own| conn.listener == own);
        is_meant.then_some(conn.id)
    }

    /// When there is more to do of drains.
    pub(crate) fn drains_due(&self) -> Option<Instant> {
        let places = self.conns.len();
        let due = |drain: &Drain| if drain.next < places { self.now } else { drain.until };
        self.drains.iter().map(due).min()
    }
}
