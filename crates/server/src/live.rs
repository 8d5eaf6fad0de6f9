//! Changes of a running server, by the admin API and by a reload, made in one way.
//!
//! The served state is the configuration with the [`Changes`] that were made at run time. A further
//! change is first tried: the whole new state is derived and checked as at a start. Then devices
//! get the room that they need, then the change is stored, and only then workers and hosts are
//! told. So a restart at any instant finds the state before or after a change, and no client was
//! told of a change that is not stored.
//!
//! [`LiveConfig`] has the locks and the entry points, [`LiveState`] the locked state, and the
//! [`Reconciler`] applies a change. Each kind of object has a type for its changes:
//! [`Tenants`](tenants::Tenants), [`Devices`](disks::Devices),
//! [`Namespaces`](namespaces::Namespaces), [`Subsystems`](subsystems::Subsystems) and
//! [`Listeners`](listeners::Listeners).
//!
//! Deliberately not here: how workers and controllers take a change (`worker::Namespaces`,
//! `proto::nvme::Fabric`, `serve::duty`).

mod api;
mod change_log;
mod changes;
mod disks;
mod drain;
mod files;
mod fixed_parts;
mod growth;
mod import;
mod inner;
mod kept_reservation;
mod listen_plan;
mod listeners;
mod models;
mod namespaces;
mod open;
mod overruled;
mod reconcile;
mod reconciler;
mod reload;
mod reservations;
mod reshape;
mod seen;
mod settings;
mod setup;
mod store;
mod subsystems;
mod tenants;
mod world;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use contract::NamespaceRemovals;
use control::admin::{Journal, Problem};
use proto::nvme::Fabric;

use crate::audit::AuditFile;
use crate::config::{Config, ServerNamespace};
use crate::listen::ListenAt;
use crate::recalibrate::Recalibrations;
use crate::wait;

pub use changes::Changes;
use drain::Drains;
pub(crate) use fixed_parts::FixedParts;
use inner::{LiveState, places_of};
pub(crate) use open::OpenListener;
use reconciler::Reconciler;
pub(crate) use reconciler::WorkerAccess;
use reload::Reload;
pub(crate) use reload::ReloadReport;
pub use setup::Setup;
pub(crate) use store::StateFileIdentity;
pub use store::Store;
use world::ServerSnapshot;

/// The configuration of a running server, which operators and reloads change.
pub(crate) struct LiveConfig {
    /// Applies changes to the workers, the NVMe fabric and the other parts of the server.
    reconciler: Reconciler,
    /// `true` if changes are kept across restarts.
    keeps_changes: bool,
    /// The audit log of changes, set shortly before the server runs.
    audit: OnceLock<Option<Arc<AuditFile>>>,
    /// The changing state, locked while a change is made, and so while the disk stores it.
    inner: Mutex<LiveState>,
    /// `true` if an operator has waited for the lock of `inner` in vain. The next one then gives up
    /// soon.
    is_stuck: AtomicBool,
    drains: Drains,
}

impl LiveConfig {
    /// Creates the live state of a server with this configuration and these changes. Further
    /// changes are kept in `store`, or in memory only if it is `None`.
    pub(crate) fn new(
        ground: FixedParts,
        open: Vec<OpenListener>,
        base: Config,
        changes: Changes,
        store: Option<Store>,
    ) -> Result<Arc<LiveConfig>, String> {
        let changes = changes.of(&base);
        let world = ServerSnapshot::of(changes.made_to(&base), &ground, &open, false)?;
        let world = Arc::new(world);
        let (removals, departed) = (NamespaceRemovals::default(), Vec::new());
        let (is_frozen, keeps_later, keeps_changes) = (false, false, store.is_some());
        let places = places_of(&base);
        let inner = LiveState {
            base,
            places,
            changes,
            store,
            world,
            open,
            departed,
            removals,
            freeing: Vec::new(),
            is_frozen,
            keeps_later,
        };
        let live = Arc::new(LiveConfig {
            reconciler: Reconciler::new(ground, &inner),
            keeps_changes,
            audit: OnceLock::new(),
            inner: Mutex::new(inner),
            is_stuck: AtomicBool::new(false),
            drains: Drains::default(),
        });
        let ground = &live.reconciler.ground;
        ground.wakers.start_calculator(ground.fabric.clone())?;
        live.start_keeper()?;
        live.reconciler.make_fabric(&live.lock())?;
        Ok(live)
    }

    /// Records whether the predecessor process may still have requests at the devices (`true`), or
    /// has none.
    pub(crate) fn set_older(&self, is_there: bool) {
        self.reconciler.set_older(is_there);
    }

    /// Stores the identities of the disks that serve, which the next start compares.
    pub(crate) fn keep_disks(&self) {
        disks::keep_identities(&self.reconciler.ground.places, &mut self.lock());
    }

    /// Returns the NVMe fabric; `None` if no listener ever spoke NVMe.
    pub(crate) fn fabric(&self) -> Option<Arc<Fabric>> {
        self.reconciler.fabric()
    }

    /// Sets the access to workers, once the server runs.
    pub(crate) fn set_gate(&self, gate: WorkerAccess) {
        self.reconciler.set_gate(gate);
    }

    /// Sets the recalibrations, which must know of changes to namespaces.
    pub(crate) fn set_recalibrations(&self, recalibrations: &Arc<Recalibrations>) {
        self.reconciler.set_recalibrations(recalibrations);
    }

    /// Sets the audit log of operators' changes.
    pub(crate) fn set_audit(&self, audit: Option<Arc<AuditFile>>) {
        assert!(self.audit.set(audit).is_ok(), "said once");
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Locks the state for an operator's change, and fails if that takes long, as
    /// [`lock_soon`](wait::lock_soon) does.
    fn lock_for_change(&self) -> Result<MutexGuard<'_, LiveState>, Problem> {
        wait::lock_soon(&self.reconciler.ground.clock, &self.inner, &self.is_stuck)
    }

    /// Locks the state for an operator's change. Fails while another process takes over.
    fn lock_thawed(&self) -> Result<MutexGuard<'_, LiveState>, Problem> {
        let inner = self.lock_for_change()?;
        inner.check_thawed()?;
        Ok(inner)
    }

    /// Locks the state for a change that must not be made while the predecessor has requests at the
    /// devices. Waits for those first.
    fn begin(&self) -> Result<MutexGuard<'_, LiveState>, Problem> {
        self.reconciler.await_older()?;
        self.lock_thawed()
    }

    /// Returns the sockets of the open listeners, for a successor, and the closed listeners that
    /// may still have connections.
    pub(crate) fn open_sockets(&self) -> (Vec<Arc<crate::upgrade::Socket>>, Vec<ListenAt>) {
        let inner = self.lock();
        let sockets = inner.open.iter().map(|open| open.socket.clone()).collect();
        (sockets, inner.departed.clone())
    }

    /// Sets the record of removed namespaces to the predecessor's.
    pub(crate) fn set_removals(&self, removals: NamespaceRemovals) {
        self.lock().removals = removals;
    }

    /// Returns the record of the namespaces that this server and its predecessors have removed.
    pub(crate) fn removals(&self) -> NamespaceRemovals {
        self.lock().removals.clone()
    }

    /// Adds closed listeners whose connections came from the predecessor.
    pub(crate) fn set_departed(&self, departed: Vec<ListenAt>) {
        let mut inner = self.lock();
        inner.departed.extend(departed);
        self.reconciler.show(&inner);
    }

    /// Stores pending tenants and forbids further changes, because another process may take over.
    ///
    /// # Errors
    /// Fails, and freezes nothing, if the server drains, if space is being given back, if a change
    /// cannot be stored, or if a record of a change is owed to the audit log and would be lost with
    /// this process.
    pub(crate) fn freeze(&self) -> Result<(), String> {
        if let Some(audit) = self.audit.get().and_then(Option::as_ref) {
            audit.ready()?;
        }
        self.halt_recalibrations(true);
        // Behind the lock, so that a change which is under way ends first, as a whole.
        let frozen = self.lock_for_change().and_then(|mut inner| {
            // The successor could give the blocks to a new namespace.
            inner.check_not_freeing(None)?;
            self.reconciler.ground.tenants.registry().freeze(true);
            let kept = inner
                .keep_tenants(&self.reconciler.ground.tenants.list())
                .and_then(|()| self.drains.forbid(&self.reconciler));
            inner.is_frozen = kept.is_ok();
            kept.inspect_err(|_| self.reconciler.ground.tenants.registry().freeze(false))
        });
        frozen.map_err(|problem| {
            self.halt_recalibrations(false);
            problem.message
        })
    }

    /// Allows changes again after [`freeze`](LiveConfig::freeze), because no other process takes
    /// over.
    pub(crate) fn thaw(&self) {
        let keeps_later = {
            let mut inner = self.lock();
            inner.is_frozen = false;
            std::mem::take(&mut inner.keeps_later)
        };
        self.drains.allow();
        self.reconciler.ground.tenants.registry().freeze(false);
        self.halt_recalibrations(false);
        if keeps_later {
            self.keep_reservations();
        }
    }

    /// Returns the identity of the state file; `None` if changes are not kept.
    pub(crate) fn state_at(&self) -> Option<StateFileIdentity> {
        self.lock().store.as_ref().map(Store::at)
    }

    fn halt_recalibrations(&self, is_halted: bool) {
        if let Some(recalibrations) = self.reconciler.recalibrations() {
            recalibrations.halt(is_halted);
        }
    }

    /// Returns the namespaces that the server serves, sorted by number.
    pub(crate) fn spaces(&self) -> Vec<ServerNamespace> {
        self.lock().world.spaces.clone()
    }

    /// Returns the live changes so far.
    ///
    /// # Errors
    /// The disk that keeps the changes does not answer.
    pub(crate) fn changes(&self) -> Result<Changes, Problem> {
        Ok(self.lock_for_change()?.changes.clone())
    }

    /// Applies another configuration as far as possible. Returns the differences that remain.
    ///
    /// # Errors
    /// The configuration has a mistake; then nothing has changed.
    pub(crate) fn reload(&self, new: Config) -> Result<ReloadReport, Problem> {
        let mut inner = self.begin()?;
        self.reconciler.check_stays()?;
        Reload::of_file(&self.reconciler).take(&mut inner, new)
    }

    /// Starts the thread that stores reservations, if they are to be kept.
    fn start_keeper(self: &Arc<LiveConfig>) -> Result<(), String> {
        if !self.keeps_changes {
            return Ok(());
        }
        let keeper = Arc::downgrade(self);
        let keep = move || {
            if let Some(live) = keeper.upgrade() {
                live.keep_reservations();
            }
        };
        self.reconciler.ground.wakers.start_keeper(keep)
    }

    /// Stores the present reservations, and answers the hosts whose commands wait until the
    /// reservations are durable.
    fn keep_reservations(&self) {
        let Some(fabric) = self.fabric() else { return };
        reservations::keep(&fabric, &mut self.lock());
    }
}
