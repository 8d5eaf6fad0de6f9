//! The reconciler: it brings a running server from one state to the next. Workers are told of
//! additions before hosts are, and of removals after them.
//!
//! Callers hold the lock of the configuration ([`LiveState`]) and pass the locked state.
//! Methods that wait without the lock say so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use control::WorkerCommands;
use control::admin::{Code, Problem};
use dataplane::WorkerOrders;
use io::Waker;
use proto::nvme::Fabric;

use super::growth::{self, RequiredBlocks};
use super::seen::ReportedState;
use super::world::{self, ServerSnapshot};
use super::{Changes, FixedParts, LiveState, OpenListener, reconcile, reservations};
use crate::recalibrate::Recalibrations;
use crate::wait::{self, SETTLE_MAX};

/// The time that a change waits for the predecessor to have no more requests at the devices, which
/// usually takes milliseconds.
const OLDER_MAX: Duration = Duration::from_secs(2);

/// The message of a change that is refused because the predecessor still has requests at the
/// devices.
const OLDER: &str = "the process before this one, which was upgraded, has not ended its last \
                     requests yet, and nothing changes meanwhile; try again in a second";

/// The means by which live changes reach a running server's workers and connections.
pub(crate) struct WorkerAccess {
    pub(crate) orders: Arc<WorkerOrders>,
    pub(crate) wakers: Vec<Waker>,
    pub(crate) commands: WorkerCommands,
}

/// Applies changes to a running server: to its tables, its workers and its NVMe fabric.
pub(super) struct Reconciler {
    pub(super) ground: FixedParts,
    /// The access to workers, set once the server runs.
    gate: OnceLock<WorkerAccess>,
    /// The recalibrations, whose probes may write to a namespace.
    recalibrations: OnceLock<Weak<Recalibrations>>,
    /// `true` while the predecessor may have requests at the devices.
    has_older: AtomicBool,
    /// The state that readers see while a change is being made.
    seen: Mutex<Arc<ReportedState>>,
}

impl Reconciler {
    /// Returns the reconciler of a server that is in this state.
    pub(super) fn new(ground: FixedParts, inner: &LiveState) -> Reconciler {
        Reconciler {
            ground,
            gate: OnceLock::new(),
            recalibrations: OnceLock::new(),
            has_older: AtomicBool::new(false),
            seen: Mutex::new(ReportedState::of(inner)),
        }
    }

    /// Sets the access to workers, once the server runs.
    pub(super) fn set_gate(&self, gate: WorkerAccess) {
        assert!(self.gate.set(gate).is_ok(), "a server starts once");
    }

    /// Returns the access to workers.
    ///
    /// # Errors
    /// Fails while the server starts.
    pub(super) fn gate(&self) -> Result<&WorkerAccess, Problem> {
        let starting = || Problem::new(Code::Busy, "this server is still starting; try again");
        self.gate.get().ok_or_else(starting)
    }

    /// Sets the recalibrations, which must know of changes to namespaces.
    pub(super) fn set_recalibrations(&self, recalibrations: &Arc<Recalibrations>) {
        // It has a handle on this.
        let _ = self.recalibrations.set(Arc::downgrade(recalibrations));
    }

    /// Returns the recalibrations of devices; `None` before they are set and after the server has
    /// ended.
    pub(super) fn recalibrations(&self) -> Option<Arc<Recalibrations>> {
        self.recalibrations.get().and_then(Weak::upgrade)
    }

    /// Records whether the predecessor process may still have requests at the devices. While that
    /// is so, no namespace, subsystem or host changes, and no device can be removed.
    pub(super) fn set_older(&self, is_there: bool) {
        self.has_older.store(is_there, Ordering::Release);
    }

    /// Returns `true` if the predecessor may still have requests at the devices.
    pub(super) fn has_older(&self) -> bool {
        self.has_older.load(Ordering::Acquire)
    }

    /// Returns the NVMe fabric, if a listener ever spoke NVMe.
    pub(super) fn fabric(&self) -> Option<Arc<Fabric>> {
        self.ground.fabric.get().cloned()
    }

    /// Creates the fabric, if there is none and a listener speaks NVMe.
    pub(super) fn make_fabric(&self, inner: &LiveState) -> Result<(), String> {
        if self.ground.fabric.get().is_some() || inner.world.nvme.is_none() {
            return Ok(());
        }
        let fabric = inner.world.fabric(&self.ground)?;
        reservations::restore(&fabric, inner);
        assert!(self.ground.fabric.set(fabric).is_ok(), "it is made under a lock");
        Ok(())
    }

    /// Makes a live change: checks, stores and applies it. `edit` edits the changes, and returns
    /// the room that they need on devices.
    pub(super) fn change(
        &self,
        inner: &mut LiveState,
        edit: impl FnOnce(&LiveState, &mut Changes) -> Result<Vec<RequiredBlocks>, Problem>,
    ) -> Result<(), Problem> {
        let mut changes = inner.changes.clone();
        let needs = edit(inner, &mut changes)?;
        let world = self.world(inner, &changes, &inner.open)?;
        inner.check_not_freed(&world)?;
        self.clear_probes(&world)?;
        let growth = growth::write_sizes_down(&self.ground.places, inner, &needs)?;
        if let Err(problem) = self.prepare(&needs).and_then(|()| inner.keep(changes)) {
            growth.take_back(inner);
            return Err(problem);
        }
        self.adopt(inner, world);
        Ok(())
    }

    /// Derives and checks the state that the server would have with these live changes and these
    /// listeners.
    ///
    /// # Errors
    /// Fails with the mistakes of that configuration.
    pub(super) fn world(
        &self,
        inner: &LiveState,
        changes: &Changes,
        open: &[OpenListener],
    ) -> Result<ServerSnapshot, Problem> {
        let world = ServerSnapshot::of(changes.made_to(&inner.base), &self.ground, open, true);
        world.map_err(|error| Problem::new(Code::Invalid, error))
    }

    /// Ends the recalibration probes whose blocks are moved or taken in the state `after`. To be
    /// called before the change is stored.
    pub(super) fn clear_probes(&self, after: &ServerSnapshot) -> Result<(), Problem> {
        self.recalibrations().map_or(Ok(()), |probing| probing.clear_for(&after.spaces))
    }

    /// Enlarges devices for the blocks that a change needs, and makes these blocks read as zeroes.
    fn prepare(&self, needs: &[RequiredBlocks]) -> Result<(), Problem> {
        if !needs.is_empty() && !self.settle() {
            let message = "requests of a namespace that was removed or made smaller are still at \
                           its device; try again";
            return Err(Problem::new(Code::Busy, message));
        }
        for need in needs {
            let volume = self.ground.places.get(need.device).expect("it was just found");
            let made = volume
                .grow(need.first + need.blocks)
                .and_then(|()| volume.blank(need.first, need.blocks));
            made.map_err(|error| Problem::new(Code::NoRoom, error))?;
        }
        Ok(())
    }

    /// Tells workers of added and grown namespaces, then hosts of all changes, then workers of
    /// shrunk and removed namespaces.
    pub(super) fn adopt(&self, inner: &mut LiveState, after: ServerSnapshot) {
        let before = &inner.world;
        let (more, less) = world::moves(&before.spaces, &after.spaces);
        self.place(&more);
        if let (Some(fabric), Some(from), Some(to)) = (self.fabric(), &before.nvme, &after.nvme) {
            reconcile::reconcile(&fabric, from, to);
            let mut withdrawal = fabric.take_withdrawal();
            if !self.wait_until(|| fabric.is_over(&mut withdrawal)) {
                tracing::warn!("hosts that were shut out still have requests at a device");
            }
        }
        self.place(&less);
        let gone = less.iter().filter(|(_, namespace, _)| namespace.is_none());
        gone.for_each(|(number, ..)| inner.removals.note(*number));
        inner.world = Arc::new(after);
        self.show(inner);
    }

    fn place(&self, moves: &[world::NamespaceChange]) {
        if moves.is_empty() {
            return;
        }
        {
            let mut registry = self.ground.tenants.registry();
            for (number, namespace, name) in moves {
                registry.place(*number, *namespace, Arc::clone(name));
            }
        }
        if !self.settle() {
            tracing::warn!("a worker has not taken a change of a namespace yet");
        }
    }

    /// Waits until no device has a request that a change forbids. Returns `false` after a time-out.
    pub(super) fn settle(&self) -> bool {
        self.wait_until(|| !self.has_older() && self.ground.tenants.registry().is_placed())
    }

    /// Waits a little until the predecessor has no requests at the devices, since writes that the
    /// change forbids could be among them. Called without the lock, so that others need not wait.
    ///
    /// # Errors
    /// The predecessor still has requests, and nothing was changed.
    pub(super) fn await_older(&self) -> Result<(), Problem> {
        match wait::until(&self.ground.clock, OLDER_MAX, || !self.has_older()) {
            true => Ok(()),
            false => Err(Problem::new(Code::Busy, OLDER)),
        }
    }

    /// Waits for a condition for as long as a change may take; returns `false` after a time-out.
    pub(super) fn wait_until(&self, is_so: impl FnMut() -> bool) -> bool {
        wait::until(&self.ground.clock, SETTLE_MAX, is_so)
    }

    /// Waits until all workers have carried out their orders.
    pub(super) fn await_orders(&self) -> Result<(), Problem> {
        let gate = self.gate()?;
        match self.wait_until(|| gate.orders.are_done()) {
            true => Ok(()),
            false => Err(Problem::new(Code::TimeOut, "a worker does not answer")),
        }
    }

    /// Checks that the server does not drain.
    ///
    /// # Errors
    /// Fails if the server drains, and so ends soon.
    pub(super) fn check_stays(&self) -> Result<(), Problem> {
        match self.gate.get().is_some_and(|gate| gate.orders.stops()) {
            true => Err(Problem::new(Code::Busy, "this server is draining, and ends after that")),
            false => Ok(()),
        }
    }

    /// Returns the state that the server reports, without waiting for a change in progress.
    pub(super) fn seen(&self) -> Arc<ReportedState> {
        self.seen.lock().expect("no holder of this lock panics").clone()
    }

    /// Makes this state the one that the admin API and the metrics report.
    pub(super) fn show(&self, inner: &LiveState) {
        *self.seen.lock().expect("no holder of this lock panics") = ReportedState::of(inner);
    }
}
