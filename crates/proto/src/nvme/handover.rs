//! The hand-over of queues between workers (docs/adr/0007-moving-connections.md), and of controllers
//! and reservations between processes (docs/adr/0015-moving-controllers.md).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use contract::{ConnId, Instant};

use super::binding::Place;
use super::export::{self, Held, Unready};
use super::exported::Emigrant;
use super::fabric::Fabric;
use super::import::{self, Unwelcome};
use super::migration::nowhere;
use super::queue::Queue;
use super::reservation_transfer;
use crate::takeover::Unfit;

/// Queues between workers.
impl Fabric {
    /// Attaches the queue of this number to a connection. Returns `None` if there is no such queue.
    pub fn land(self: &Arc<Fabric>, number: u64, worker: u16, conn: ConnId) -> Option<Queue> {
        let (traveller, place) = self.with(|state| state.land(number, worker, conn))?;
        Some(Queue::landed(Arc::clone(self), traveller, place))
    }

    /// Ends the queue of this number, because its connection is lost.
    pub fn lose(self: &Arc<Fabric>, number: u64) {
        let Place { worker, conn, .. } = nowhere(number, None);
        drop(self.land(number, worker, conn));
    }

    /// Returns the controller and the identifier of the queue that left under this number.
    pub fn departed(&self, number: u64) -> Option<(u16, u16)> {
        self.with(|state| {
            let made = &state.migrations.find(number)?.made;
            Some((made.link.cntlid, made.id))
        })
    }
}

/// Controllers to another process.
impl Fabric {
    /// Sets the commands that sessions hold back from now on.
    pub fn hold(&self, held: Held) {
        self.held.store(held as u8, Ordering::SeqCst);
        if held == Held::Connects {
            self.with(|state| state.families.forget_where());
        }
    }

    /// Returns the commands that sessions hold back.
    pub fn held(&self) -> Held {
        Held::from_number(self.held.load(Ordering::SeqCst))
    }

    /// Allows or forbids the queues of a controller to leave for another process. While they may,
    /// the controller's timers are suspended, since queues that have left are not read. The caller
    /// soon exports the controller or [takes it back](Fabric::take_back). Returns `false` if there
    /// is no such controller.
    pub fn call(&self, cntlid: u16, is_called: bool) -> bool {
        self.with(|state| {
            let own = state.controllers.find(cntlid);
            own.inspect(|own| own.link.set_called(is_called)).is_some()
        })
    }

    /// Returns the number of a controller's queues; zero if there is no such controller.
    pub fn queues_of(&self, cntlid: u16) -> usize {
        self.with(|state| state.controllers.find(cntlid).map_or(0, |own| own.queues.len()))
    }

    /// Exports a controller whose queues have left under these numbers. The controller does not
    /// change any more until it is [let go](Fabric::let_go) or [taken back](Fabric::take_back).
    ///
    /// # Errors
    /// Returns an [`Unready`] if the controller cannot be handed over now.
    pub fn emigrate(&self, cntlid: u16, numbers: &[u64]) -> Result<Emigrant, Unready> {
        self.with(|state| export::export(state, cntlid, numbers))
    }

    /// Removes an exported controller from this process.
    ///
    /// # Errors
    /// Returns an [`Unready`] if the controller has changed since it was exported.
    pub fn let_go(&self, cntlid: u16, numbers: &[u64]) -> Result<(), Unready> {
        self.with(|state| export::let_go(state, cntlid, numbers))
    }

    /// Forgets a controller that was let go: it now belongs to another process for good.
    pub fn forget(&self, cntlid: u16) {
        self.with(|state| state.migrations.forget(cntlid));
    }

    /// Keeps a controller that was called, exported or let go.
    pub fn take_back(&self, cntlid: u16, now: Instant) {
        self.with(|state| export::take_back(state, cntlid, now));
        self.watch(now);
    }

    /// Encodes the reservations.
    ///
    /// # Errors
    /// Returns an [`Unfit`] if they are too large.
    pub fn bequeath(&self) -> Result<Vec<u8>, Unfit> {
        self.with(|state| reservation_transfer::encode(&state.reservations))
    }
}

/// Controllers from another process.
impl Fabric {
    /// Prepares for a controller from another process. Returns the numbers of its queues, by queue
    /// identifier.
    ///
    /// # Errors
    /// Returns an [`Unwelcome`] if the controller cannot be taken over.
    pub fn expect(&self, emigrant: Emigrant) -> Result<BTreeMap<u16, u64>, Unwelcome> {
        self.with(|state| {
            import::check_welcome(state, &emigrant)?;
            Ok(state.migrations.expect(emigrant))
        })
    }

    /// Drops an expected controller that does not arrive.
    pub fn disappoint(&self, cntlid: u16) {
        self.with(|state| drop(state.migrations.take_expected(cntlid)));
    }

    /// Makes an expected controller part of this fabric. Returns `false` if it was not expected.
    pub fn admit(&self, cntlid: u16, now: Instant) -> bool {
        let is_there = self.with(|state| {
            let expected = state.migrations.take_expected(cntlid);
            let Some((emigrant, numbers)) = expected else { return false };
            import::admit(state, emigrant, &numbers, now);
            true
        });
        self.watch(now);
        is_there
    }

    /// Replaces the reservations by the encoded ones. They are stored with the next change, or when
    /// [`Fabric::keep_inherited`] asks for it. Reservations of namespaces that no subsystem exports
    /// here are dropped.
    ///
    /// # Errors
    /// Returns an [`Unfit`] if the bytes are foreign, of another version, truncated, or inconsistent.
    /// Nothing has changed then.
    pub fn inherit(&self, bytes: &[u8]) -> Result<(), Unfit> {
        let most = self.with(|state| state.inventory.limits().registrants_max);
        let reservations = reservation_transfer::decode(bytes, most)?;
        self.with(|state| {
            state.reservations.replace_all(reservations);
            state.forget_reservations();
            state.controllers.iter().for_each(|own| own.link.change());
        });
        Ok(())
    }

    /// Has the replaced reservations stored from now on.
    pub fn keep_inherited(&self) {
        self.with(|state| state.reservations.count_change());
    }
}
