//! The connections of a worker: their table, and the queues in which they wait for attention.
//!
//! Deliberately not here: the processing of requests (`crate::requests`), and how connections are
//! admitted, moved and ended (the modules above the engine).

mod carried;
mod connection;
mod fence;
mod starving;
mod throttle;

use std::collections::VecDeque;

use contract::{Buf, ConnId, Meters};

use carried::CarriedBytes;
pub(crate) use connection::{
    AcceptedHello, ClientConnection, Connection, ConnectionStage, HelloStage, Membership,
    OutstandingRequests, PayloadDestination, ReceiveState, STREAMS, StalledBytes,
};
pub(crate) use fence::NameClaim;
pub use fence::{FenceName, Fences, HeldHellos, NameReservation};
use starving::StarvingConnections;
use throttle::Throttle;

/// Received bytes that are not parsed yet.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) conn: ConnId,
    pub(crate) buf: Buf,
    /// The number of bytes that were parsed: `taken ≤ len`.
    pub(crate) taken: usize,
    pub(crate) len: usize,
}

/// A line of connections is cleared of closed ones when it is twice as long as the number of open
/// ones, and at least this long.
const LINE_MIN: usize = 64;

/// The connections of a worker.
#[derive(Debug)]
pub(crate) struct Connections<P> {
    /// The connections by index.
    table: Vec<Option<Box<Connection<P>>>>,
    open: usize,
    /// Received bytes, oldest first; at most as many chunks as the transport has receive buffers.
    pub(crate) inbox: VecDeque<Chunk>,
    /// Connections whose stall may be over, each once.
    called: VecDeque<ConnId>,
    /// Connections that wait for a resource of the worker, each once.
    starving: StarvingConnections,
    /// Connections whose sessions could not send all of their own messages for lack of room. They
    /// continue when frames have left or buffers were returned.
    pub(crate) speakers: Vec<ConnId>,
    /// Bytes kept for stalled connections.
    pub(crate) carried: CarriedBytes,
    pub(crate) hellos: PendingHellos,
}

/// The hellos and questions of a worker that are not answered yet. Each is answered in the end.
#[derive(Debug)]
pub(crate) struct PendingHellos {
    /// Connections whose hello waits for a fence or for the control plane.
    pub(crate) greeted: Vec<ConnId>,
    /// Hellos whose tokens are checked with a delay.
    pub(crate) throttle: Throttle,
    /// Questions to the control plane that are not answered yet.
    pub(crate) asked: usize,
}

impl PendingHellos {
    /// Returns the number of answers that are due to hellos and questions.
    #[inline]
    pub(crate) fn owed(&self) -> usize {
        self.greeted.len() + self.throttle.waiting() + self.asked
    }
}

impl<P> Connections<P> {
    /// Creates an empty table, which keeps at most so many bytes for stalled connections.
    pub(crate) fn new(carried_max: usize) -> Self {
        Connections {
            table: Vec::new(),
            open: 0,
            inbox: VecDeque::with_capacity(1024),
            called: VecDeque::new(),
            starving: StarvingConnections::default(),
            speakers: Vec::with_capacity(64),
            carried: CarriedBytes::new(carried_max),
            hellos: PendingHellos { greeted: Vec::new(), throttle: Throttle::new(), asked: 0 },
        }
    }

    /// Returns a connection for changes; `None` if it is closed.
    #[inline]
    pub(crate) fn find(&mut self, id: ConnId) -> Option<&mut Connection<P>> {
        let found = self.table.get_mut(id.index as usize)?.as_deref_mut()?;
        (found.id.generation == id.generation).then_some(found)
    }

    /// Returns a connection for reading; `None` if it is closed.
    #[inline]
    pub(crate) fn look(&self, id: ConnId) -> Option<&Connection<P>> {
        let found = self.table.get(id.index as usize)?.as_deref()?;
        (found.id.generation == id.generation).then_some(found)
    }

    /// Returns an existing connection.
    ///
    /// # Panics
    /// Panics if the connection does not exist.
    #[inline]
    pub(crate) fn get(&mut self, id: ConnId) -> &mut Connection<P> {
        self.table[id.index as usize].as_deref_mut().expect("the caller has just seen it")
    }

    /// Returns an existing connection, for reading.
    ///
    /// # Panics
    /// Panics if the connection does not exist.
    #[inline]
    pub(crate) fn peek(&self, id: ConnId) -> &Connection<P> {
        self.table[id.index as usize].as_deref().expect("the caller has just seen it")
    }

    /// Returns the number of places in the table, of which some are empty.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        self.table.len()
    }

    /// Returns the connection in a place of the table; `None` if the place is empty.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<&Connection<P>> {
        self.table[place].as_deref()
    }

    /// Returns all connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection<P>> {
        self.table.iter().flatten().map(|conn| &**conn)
    }

    /// Returns how many connections are open.
    #[inline]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Puts a connection into the place of the table that its identifier names.
    ///
    /// # Panics
    /// Panics if the place is taken.
    pub(crate) fn seat(&mut self, conn: Connection<P>, meters: &Meters) {
        let index = conn.id.index as usize;
        if index >= self.table.len() {
            self.table.resize_with(index + 1, || None);
        }
        assert!(self.table[index].is_none(), "the transport reused a place too early");
        self.table[index] = Some(Box::new(conn));
        self.open += 1;
        meters.worker.set_connections(self.open);
    }

    /// Removes a connection from the table, unless it is gone already.
    pub(crate) fn take(&mut self, id: ConnId, meters: &Meters) -> Option<Box<Connection<P>>> {
        let place = self.table.get_mut(id.index as usize)?;
        let conn = place.take_if(|conn| conn.id == id)?;
        self.open -= 1;
        meters.worker.set_connections(self.open);
        Some(conn)
    }

    /// Marks a connection as called, since its stall may be over. It is queued once.
    pub(crate) fn call(&mut self, id: ConnId) {
        let Some(conn) = self.find(id) else { return };
        let is_stalled = conn.intake.stalled.is_some();
        if is_stalled && !std::mem::replace(&mut conn.intake.is_called, true) {
            self.called.push_back(id);
        }
    }

    /// Returns how many connections are called.
    pub(crate) fn called(&self) -> usize {
        self.called.len()
    }

    /// Takes the next connection that was called; `None` if it is gone, or waits in the
    /// line of starving connections.
    ///
    /// # Panics
    /// Panics if no connection is called.
    pub(crate) fn next_called(&mut self) -> Option<ConnId> {
        let id = self.called.pop_front().expect("the caller counted");
        let conn = self.find(id)?;
        conn.intake.is_called = false;
        (!conn.intake.is_starving).then_some(id)
    }

    /// Queues a connection that is stalled because the worker lacks slots, frames or buffers,
    /// unless the connection is queued already.
    pub(crate) fn starve(&mut self, id: ConnId) {
        let intake = &mut self.get(id).intake;
        if std::mem::replace(&mut intake.is_starving, true) {
            return;
        }
        let account = intake.account;
        let Connections { starving, table, open, .. } = self;
        let stands =
            |id: ConnId| table[id.index as usize].as_deref().is_some_and(|conn| conn.id == id);
        starving.push(account, id, LINE_MIN.max(2 * *open), stands);
    }

    /// Puts a connection back to the front of its tenant's line of starving connections.
    pub(crate) fn starve_first(&mut self, id: ConnId) {
        let intake = &mut self.get(id).intake;
        intake.is_starving = true;
        let account = intake.account;
        self.starving.push_first(account, id);
    }

    /// Removes and returns the first open connection in the queue of stalled ones, of the tenant
    /// whose turn it is; `None` if the queue is empty.
    pub(crate) fn next_starving(&mut self) -> Option<ConnId> {
        while let Some(id) = self.starving.take() {
            if let Some(conn) = self.find(id) {
                conn.intake.is_starving = false;
                return Some(id);
            }
        }
        None
    }

    /// Returns the number of tenants with starving connections.
    #[inline]
    pub(crate) fn starving_tenants(&self) -> usize {
        self.starving.tenants()
    }
}
