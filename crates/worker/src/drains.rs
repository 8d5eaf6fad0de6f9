//! Drains: orders to end connections, which reach a bounded number of connections in a turn.

use contract::{ConnId, EndCause, Instant, ListenerId, MoveRefusal, Session, Transport};

use crate::connections::{Connection, Connections};
use crate::frontend::Frontend;

/// Maximum number of simultaneous drains of listeners or of the whole worker. One more drain
/// replaces the oldest, whose connections have been notified.
const DRAINS_MAX: usize = 16;

/// Maximum number of simultaneous drains of single connections; more are refused.
const ENDS_MAX: usize = 64;

/// Places of the connections' table that a drain visits in a turn.
const BATCH: usize = 256;

/// The connections that are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainTarget {
    /// All connections of the worker.
    All,
    /// The connections that came by this listener.
    By(ListenerId),
    /// A single connection.
    One(ConnId),
}

impl DrainTarget {
    fn includes<P>(self, conn: &Connection<P>) -> bool {
        match self {
            DrainTarget::All => true,
            DrainTarget::By(own) => conn.listener == own,
            DrainTarget::One(id) => conn.id == id,
        }
    }
}

/// A drain that has begun and whose time is not over.
#[derive(Clone, Copy, Debug)]
struct Drain {
    which: DrainTarget,
    until: Instant,
    /// The first place of the connections' table that the drain has not visited.
    next: usize,
}

impl Drain {
    fn is_of_one(&self) -> bool {
        matches!(self.which, DrainTarget::One(_))
    }
}

/// The drains of a worker: of single connections, of listeners, or of all connections.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    drains: Vec<Drain>,
}

impl Drains {
    /// Begins a drain of a listener's connections, or of all connections if `listener` is `None`,
    /// or begins that drain again with another deadline. Without a deadline, cancels the drain.
    pub(crate) fn order(&mut self, listener: Option<ListenerId>, until: Option<Instant>) {
        let which = listener.map_or(DrainTarget::All, DrainTarget::By);
        self.drains.retain(|drain| drain.which != which);
        let Some(until) = until else { return };
        if self.drains.iter().filter(|drain| !drain.is_of_one()).count() == DRAINS_MAX {
            let oldest = self.drains.iter().position(|drain| !drain.is_of_one());
            self.drains.remove(oldest.expect("they were just counted"));
        }
        self.drains.push(Drain { which, until, next: 0 });
    }

    /// Tells a connection to end when its requests have ended. If it is still open at `until`, it
    /// is cut.
    ///
    /// # Errors
    /// Fails if the connection is gone, or too many end already.
    pub(crate) fn order_end<T: Transport, P: Session>(
        &mut self,
        front: &mut Frontend<T, P>,
        id: ConnId,
        until: Instant,
    ) -> Result<(), MoveRefusal> {
        let ends_already = front.conns.find(id).ok_or(MoveRefusal::Gone)?.life.is_ending();
        let which = DrainTarget::One(id);
        self.drains.retain(|drain| drain.which != which);
        if self.drains.iter().filter(|drain| drain.is_of_one()).count() == ENDS_MAX {
            return Err(MoveRefusal::TooMany);
        }
        self.drains.push(Drain { which, until, next: usize::MAX });
        if !ends_already {
            front.dismiss(id, EndCause::Ordered);
        }
        Ok(())
    }

    /// Returns whether connections that come by this listener are to end.
    pub(crate) fn includes(&self, listener: ListenerId) -> bool {
        self.drains.iter().any(|drain| drain.which == DrainTarget::By(listener))
    }

    /// Tells the next connections of each drain to end, and cuts the ones whose time is over.
    #[inline]
    pub(crate) fn go_on<T: Transport, P: Session>(&mut self, front: &mut Frontend<T, P>) {
        if self.drains.is_empty() {
            return;
        }
        for drain in &mut self.drains {
            drain_on(drain, front);
        }
        let Frontend { now, conns, .. } = front;
        self.drains.retain(|drain| {
            let is_over = matches!(drain.which, DrainTarget::One(id) if conns.look(id).is_none());
            !is_over && drain.until > *now
        });
    }

    /// Returns the time at which a drain has more to do; `None` without drains.
    pub(crate) fn due<P>(&self, now: Instant, conns: &Connections<P>) -> Option<Instant> {
        let places = conns.places();
        let due = |drain: &Drain| if drain.next < places { now } else { drain.until };
        self.drains.iter().map(due).min()
    }
}

/// Tells the connections of a drain in the next [`BATCH`] places of the table to end. Once the
/// drain's time is over, cuts all of its connections.
fn drain_on<T: Transport, P: Session>(drain: &mut Drain, front: &mut Frontend<T, P>) {
    let Drain { which, until, next } = *drain;
    let is_late = until <= front.now;
    if let DrainTarget::One(id) = which {
        if is_late {
            front.disconnect(id, EndCause::Ordered, "its end, which was ordered, took too long");
        }
        return;
    }
    drain.next = (next + BATCH).min(front.conns.places());
    for place in next..drain.next {
        if let Some(id) = find(&front.conns, place, which) {
            front.progressed = true;
            front.dismiss(id, EndCause::Drained);
        }
    }
    if is_late {
        for place in 0..front.conns.places() {
            if let Some(id) = find(&front.conns, place, which) {
                front.disconnect(id, EndCause::Drained, "the drain took too long");
            }
        }
    }
}

/// Returns the connection in a place of the table, if the drain includes it; `None` otherwise.
fn find<P>(conns: &Connections<P>, place: usize, which: DrainTarget) -> Option<ConnId> {
    conns.at(place).filter(|conn| which.includes(conn)).map(|conn| conn.id)
}
