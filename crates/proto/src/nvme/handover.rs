//! The hand-over of queues between workers (docs/adr/0007-moving-connections.md), and of
//! controllers and reservations between processes (docs/adr/0015-moving-controllers.md).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use contract::Instant;

use super::entrance::LockBusy;
use super::export::{self, ExportError, HeldCommands};
use super::exported::ExportedController;
use super::fabric::Fabric;
use super::import::{self, ImportError};
use super::migration::moving_place;
use super::queue::Queue;
use super::reservation_transfer;
use crate::takeover::TakeoverRefusal;

/// The operations by which queues move between workers.
impl Fabric {
    /// Gives the moving queue with this number to `worker`, whose connection must then be set with
    /// [`settle`](Queue::settle). Returns `None` if there is no such queue.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub fn claim(self: &Arc<Fabric>, number: u64, worker: u16) -> Result<Option<Queue>, LockBusy> {
        let claimed = self.try_with(worker, |state| state.claim(number))?;
        Ok(claimed.map(|(queue, view)| {
            let place = moving_place(number, queue.address);
            Queue::claimed(Arc::clone(self), queue, view, place, worker)
        }))
    }

    /// Ends the moving queue of this number, because its connection is lost.
    pub fn drop_queue(&self, number: u64) {
        self.with(|state| state.abandon(number));
    }

    /// Ends the moving queue of this number, like [`drop_queue`](Fabric::drop_queue), from a
    /// worker.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub fn try_drop_queue(&self, number: u64, worker: u16) -> Result<(), LockBusy> {
        self.try_with(worker, |state| state.abandon(number))
    }

    /// Returns the identifiers of the controller and of the queue that moves under this number;
    /// `None` if no queue does.
    pub fn moving_queue(&self, number: u64) -> Option<(u16, u16)> {
        self.with(|state| {
            let made = &state.migrations.find(number)?.made;
            Some((made.link.cntlid, made.id))
        })
    }
}

/// The operations by which controllers move to another process.
impl Fabric {
    /// Sets which commands sessions hold back from now on.
    pub fn hold(&self, held: HeldCommands) {
        self.held.store(held as u8, Ordering::SeqCst);
        if held == HeldCommands::Connects {
            self.with(|state| state.families.forget_where());
        }
    }

    /// Returns which commands sessions hold back while another process takes over.
    pub fn held(&self) -> HeldCommands {
        HeldCommands::from_number(self.held.load(Ordering::SeqCst))
    }

    /// Allows or forbids the queues of a controller to leave for another process. While they may,
    /// the controller's timers are suspended, since queues that have left are not read. The caller
    /// soon exports the controller or [cancels the export](Fabric::cancel_export). Returns `false`
    /// if there is no such controller.
    pub fn set_exporting(&self, cntlid: u16, is_exporting: bool) -> bool {
        self.with(|state| {
            let own = state.controllers.find(cntlid);
            own.inspect(|own| own.link.set_exporting(is_exporting)).is_some()
        })
    }

    /// Returns the number of a controller's queues; zero if there is no such controller.
    pub fn queues_of(&self, cntlid: u16) -> usize {
        self.with(|state| state.controllers.find(cntlid).map_or(0, |own| own.queues.len()))
    }

    /// Exports a controller. `numbers` are those under which its queues have left their workers.
    /// From then on the controller does not change until it is [handed over](Fabric::hand_over) or
    /// [cancelled](Fabric::cancel_export).
    ///
    /// # Errors
    /// Returns an [`ExportError`] if the controller cannot be handed over now.
    pub fn export(&self, cntlid: u16, numbers: &[u64]) -> Result<ExportedController, ExportError> {
        self.with(|state| export::export(state, cntlid, numbers))
    }

    /// Removes an exported controller from this process, and keeps it until it is
    /// [forgotten](Fabric::forget_exported) or [taken back](Fabric::cancel_export).
    ///
    /// # Errors
    /// Returns an [`ExportError`] if the controller has changed since it was exported.
    pub fn hand_over(&self, cntlid: u16, numbers: &[u64]) -> Result<(), ExportError> {
        self.with(|state| export::hand_over(state, cntlid, numbers))
    }

    /// Forgets a controller that was handed over: it now belongs to another process for good.
    pub fn forget_exported(&self, cntlid: u16) {
        self.with(|state| state.migrations.forget_exported(cntlid));
    }

    /// Cancels the export of a controller, which stays in this process.
    pub fn cancel_export(&self, cntlid: u16, now: Instant) {
        self.with(|state| export::cancel(state, cntlid, now));
        self.watch(now);
    }

    /// Encodes all reservations and registrations for another process.
    ///
    /// # Errors
    /// Returns a [`TakeoverRefusal`] if they are too large.
    pub fn export_reservations(&self) -> Result<Vec<u8>, TakeoverRefusal> {
        self.with(|state| reservation_transfer::encode(&state.reservations))
    }
}

/// The operations by which controllers arrive from another process.
impl Fabric {
    /// Expects a controller from another process. Returns the numbers under which its queues will
    /// arrive, by queue identifier.
    ///
    /// # Errors
    /// Returns an [`ImportError`] if the controller cannot be taken over.
    pub fn prepare_import(
        &self,
        exported: ExportedController,
    ) -> Result<BTreeMap<u16, u64>, ImportError> {
        self.with(|state| {
            import::check_importable(state, &exported)?;
            Ok(state.migrations.prepare_import(exported))
        })
    }

    /// Stops expecting a controller that does not arrive.
    pub fn cancel_import(&self, cntlid: u16) {
        self.with(|state| drop(state.migrations.take_expected(cntlid)));
    }

    /// Makes an expected controller part of this fabric. Returns `false` if it was not expected.
    pub fn import(&self, cntlid: u16, now: Instant) -> bool {
        let is_there = self.with(|state| {
            let expected = state.migrations.take_expected(cntlid);
            let Some((exported, numbers)) = expected else { return false };
            import::import(state, exported, &numbers, now);
            true
        });
        self.watch(now);
        is_there
    }

    /// Replaces the reservations by the encoded ones. They are stored with the next change, or when
    /// [`Fabric::store_imported_reservations`] asks for it. Reservations of namespaces that no
    /// subsystem exports here are dropped.
    ///
    /// # Errors
    /// Returns a [`TakeoverRefusal`] if the bytes are foreign, of another version, truncated, or
    /// inconsistent. Nothing has changed then.
    pub fn import_reservations(&self, bytes: &[u8]) -> Result<(), TakeoverRefusal> {
        let most = self.with(|state| state.inventory.limits().registrants_max);
        let reservations = reservation_transfer::decode(bytes, most)?;
        self.with(|state| {
            state.reservations.replace_all(reservations);
            state.forget_reservations();
            state.controllers.iter().for_each(|own| {
                own.link.change();
                own.link.lose();
            });
        });
        Ok(())
    }

    /// Makes the program store imported reservations, as it does after a change of reservations.
    pub fn store_imported_reservations(&self) {
        self.with(|state| state.reservations.count_change());
    }
}
