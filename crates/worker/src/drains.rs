//! Connections that are told to end, a bounded number of them in a turn.

use contract::{
    ConnId, Device, End, Instant, Listed, ListenerId, Mailbox, Report, Scheduler, Session, Stays,
    Transport,
};

use crate::moving::Away;
use crate::worker::Worker;

/// Drains of listeners, or of all, that go on at a time; of more, the oldest is forgotten, whose
/// connections have been told.
const DRAINS_MAX: usize = 16;

/// Connections that end one by one at a time; more are refused.
const ENDS_MAX: usize = 64;

/// Places of the connections' table that a turn looks at.
const BATCH: usize = 256;

/// Which connections are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// All that there are.
    All,
    /// Those that came by this listener.
    By(ListenerId),
    /// This one.
    One(ConnId),
}

/// A drain that has begun and whose time is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    which: Which,
    until: Instant,
    /// The first place that was not looked at.
    next: usize,
}

impl Drain {
    fn is_of_one(&self) -> bool {
        matches!(self.which, Which::One(_))
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Connections are to end, or not any more.
    pub(crate) fn order_drain(&mut self, listener: Option<ListenerId>, until: Option<Instant>) {
        let which = listener.map_or(Which::All, Which::By);
        self.drains.retain(|drain| drain.which != which);
        let Some(until) = until else { return };
        if self.drains.iter().filter(|drain| !drain.is_of_one()).count() == DRAINS_MAX {
            let oldest = self.drains.iter().position(|drain| !drain.is_of_one());
            self.drains.remove(oldest.expect("they were just counted"));
        }
        self.drains.push(Drain { which, until, next: 0 });
    }

    /// A connection is to end; the control plane is told at once whether it does, or when it is known
    /// where one is that is between two workers.
    pub(crate) fn order_end(&mut self, conn: ConnId, until: Instant) {
        if self.moves.asks_for_away(conn) {
            return;
        }
        let begun = match self.begin_end(conn, until) {
            Ok(()) => {
                let ending = self.conns[conn.index as usize].as_deref();
                Ok(ending.expect("its end has begun").listed(self.line.worker))
            }
            Err(why) => Err(why),
        };
        self.report_end(conn, begun);
    }

    /// Whoever wanted a connection to end while it was away learns where it is.
    pub(crate) fn report_whereabouts(&mut self, away: &Away, found: Stays) {
        (0..away.asked_for).for_each(|_| self.report_end(away.conn, Err(found)));
    }

    fn report_end(&mut self, conn: ConnId, begun: Result<Listed, Stays>) {
        self.line.mailbox.report(Report::Ends { worker: self.line.worker, conn, begun });
    }

    fn begin_end(&mut self, id: ConnId, until: Instant) -> Result<(), Stays> {
        let conn = self.find(id).ok_or(Stays::Gone)?;
        let ends_already = conn.life.is_ending();
        let which = Which::One(id);
        self.drains.retain(|drain| drain.which != which);
        if self.drains.iter().filter(|drain| drain.is_of_one()).count() == ENDS_MAX {
            return Err(Stays::TooMany);
        }
        self.drains.push(Drain { which, until, next: usize::MAX });
        if !ends_already {
            self.dismiss(id, End::Ordered);
        }
        Ok(())
    }

    /// Whether connections that come by this listener are to end.
    pub(crate) fn is_drained_at(&self, listener: Option<ListenerId>) -> bool {
        let is_meant = |own| self.drains.iter().any(|drain| drain.which == Which::By(own));
        listener.is_some_and(is_meant)
    }

    /// Tells the next connections, and ends those whose time is over.
    pub(crate) fn drain_on(&mut self) {
        for n in 0..self.drains.len() {
            let Drain { which, until, next } = self.drains[n];
            if let Which::One(id) = which {
                if until <= self.now {
                    self.disconnect(id, End::Ordered, "its end, which was ordered, took too long");
                }
                continue;
            }
            let end = (next + BATCH).min(self.conns.len());
            for place in next..end {
                if let Some(id) = self.drained_id(place, which) {
                    self.progressed = true;
                    self.dismiss(id, End::Drained);
                }
            }
            self.drains[n].next = end;
            if until <= self.now {
                for place in 0..self.conns.len() {
                    if let Some(id) = self.drained_id(place, which) {
                        self.disconnect(id, End::Drained, "the drain took too long");
                    }
                }
            }
        }
        let (now, conns) = (self.now, &self.conns);
        let is_there = |id: ConnId| {
            let conn = conns.get(id.index as usize).and_then(Option::as_deref);
            conn.is_some_and(|conn| conn.id == id)
        };
        self.drains.retain(|drain| {
            let goes_on = !matches!(drain.which, Which::One(id) if !is_there(id));
            goes_on && drain.until > now
        });
    }

    /// The connection at a place, if it is to end.
    fn drained_id(&self, place: usize, which: Which) -> Option<ConnId> {
        let conn = self.conns[place].as_ref()?;
        let is_meant = match which {
            Which::All => true,
            Which::By(own) => conn.listener == own,
            Which::One(id) => conn.id == id,
        };
        is_meant.then_some(conn.id)
    }

    /// When there is more to do of drains.
    pub(crate) fn drains_due(&self) -> Option<Instant> {
        let places = self.conns.len();
        let due = |drain: &Drain| if drain.next < places { self.now } else { drain.until };
        self.drains.iter().map(due).min()
    }
}
