//! Changes of a running server: what the admin API and a reload ask for, made in one way.
//!
//! A server is what its configuration says with the [`Changes`] made that were asked for while it
//! ran. Each further change is tried on that first: the whole of what is to be is worked out and
//! checked as at a start. Then devices get the room that is needed, then the change is kept, and only
//! then workers and hosts learn of it. So at any instant a restart finds the state before or after a
//! change, and nobody was told of one that is not kept.
//!
//! What is deliberately not here: how workers and controllers take a change (`worker::Namespaces`,
//! `proto::nvme::Fabric`, `serve::duty`).

mod api;
mod change_log;
mod changes;
mod disks;
mod drain;
mod files;
mod freeze;
mod growth;
mod kept;
mod listeners;
mod models;
mod namespaces;
mod open;
mod overruled;
mod reconcile;
mod reload;
mod reshape;
mod seen;
mod settings;
mod store;
mod subsystems;
mod world;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::Duration;

use contract::NamespaceId;
use control::Tenants;
use control::admin::{Code, Problem};
use io::{Clock, TcpOptions};
use proto::nvme::Fabric;
use worker::Parts;

use crate::audit::AuditFile;
use crate::config::Config;
use crate::fabric::Wakers;
use crate::listen::ListenAt;
use crate::places::Places;
use crate::recalibrate::Recalibrations;

pub use changes::Changes;
pub(crate) use listeners::Gate;
pub(crate) use models::KeptModel;
pub(crate) use open::Open;
pub(crate) use reload::Reloaded;
use seen::Seen;
pub(crate) use store::StateAt;
pub use store::Store;
use world::World;

/// The time limit for devices to finish the requests that a change forbids.
const SETTLE_MAX: Duration = Duration::from_secs(8);

/// The time that a change waits for one that another change has waited for in vain.
const STUCK_MAX: Duration = Duration::from_millis(10);

/// The time that a change waits for the predecessor's end, which usually takes milliseconds.
const OLDER_MAX: Duration = Duration::from_secs(2);

/// The refusal of a change while the predecessor has not ended.
const OLDER: &str = "the process before this one, which was upgraded, has not ended its last \
                     requests yet, and nothing changes meanwhile; try again in a second";

/// Between two looks whether that is so.
const SETTLE_PAUSE: Duration = Duration::from_millis(2);

/// The parts of a running server that never change.
pub(crate) struct Ground {
    pub(crate) places: Arc<Places>,
    /// The tables in which workers look up listeners.
    pub(crate) shared: Arc<Parts>,
    /// The NVMe fabric, created once a listener speaks NVMe.
    pub(crate) fabric: Arc<OnceLock<Arc<Fabric>>>,
    pub(crate) wakers: Wakers,
    pub(crate) workers: usize,
    pub(crate) clock: Clock,
    pub(crate) tenants: Tenants,
    pub(crate) tcp: TcpOptions,
    /// Everybody may be let in from everywhere.
    pub(crate) insecure: bool,
    /// The default time limit of a drain.
    pub(crate) drain_limit: Duration,
}

/// A server's configuration, which changes.
pub(crate) struct Live {
    ground: Ground,
    /// If set, changes are kept across restarts.
    keeps_changes: bool,
    /// The audit log of changes, set shortly before the server runs.
    audit: OnceLock<Option<Arc<AuditFile>>>,
    /// The access to workers, set once the server runs.
    gate: OnceLock<Gate>,
    /// The recalibrations, whose probes may write to a namespace.
    recalibrations: OnceLock<Weak<Recalibrations>>,
    /// The process before this one may still have requests at the devices.
    has_older: AtomicBool,
    /// Locked while a change is made, and so for as long as the disk takes that keeps it.
    inner: Mutex<Inner>,
    /// Somebody has waited for that in vain.
    is_stuck: AtomicBool,
    /// Another process may take over, so that this one may not drain. Nothing is waited for while it is
    /// locked: who stops a server may do so because its disk hangs.
    is_given: Mutex<bool>,
    /// The state that readers see while a change is being made.
    seen: Mutex<Arc<Seen>>,
}

struct Inner {
    /// Without the changes.
    base: Config,
    /// The index of each tenant in the configuration, by name.
    places: HashMap<String, usize>,
    changes: Changes,
    /// The state file, if changes are kept.
    store: Option<Store>,
    /// The served state.
    world: Arc<World>,
    /// The listeners, by number.
    open: Vec<Open>,
    /// Listeners that are gone, by whom connections may have come that stay.
    departed: Vec<ListenAt>,
    /// Numbers of namespaces that are gone: in this process requests of them may still be under way
    /// between workers.
    retired: Vec<NamespaceId>,
    /// Another process takes over: what is kept is not this one's to change.
    is_frozen: bool,
    /// Reservations wait for the end of that.
    keeps_later: bool,
}

/// The blocks of a device that a change needs: a range that nobody else uses and that reads as
/// zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    device: usize,
    first: u64,
    blocks: u64,
}

impl Inner {
    /// Keeps what the changes are to be.
    fn keep(&mut self, changes: Changes) -> Result<(), Problem> {
        self.check_thawed()?;
        let changes = changes.of(&self.base);
        if let Some(store) = &mut self.store {
            store.save(&changes).map_err(|error| not_kept(store, &error))?;
        }
        self.changes = changes;
        Ok(())
    }

    /// Returns true if the kept state may differ from what operators were told.
    fn is_in_doubt(&self) -> bool {
        self.store.as_ref().is_some_and(Store::is_in_doubt)
    }

    /// Keeps what tenants are to be; `None` for as the configuration says. Costs what these do, however
    /// many others there are.
    fn keep_few(
        &mut self,
        mut now: Vec<(String, Option<Option<spec::Tenant>>)>,
    ) -> Result<(), Problem> {
        self.check_thawed()?;
        now.retain(|(name, now)| self.changes.tenants.get(name) != now.as_ref());
        if now.is_empty() && !self.is_in_doubt() {
            return Ok(());
        }
        let is_of_base = self.changes.is_of(&self.base);
        let names: Vec<String> = now.iter().map(|(name, _)| name.clone()).collect();
        let before = put(&mut self.changes, now);
        if !is_of_base {
            self.changes = std::mem::take(&mut self.changes).of(&self.base);
        }
        let Some(store) = &mut self.store else { return Ok(()) };
        let saved = match is_of_base {
            true => store.save_tenants(&self.changes, &names),
            false => store.save(&self.changes),
        };
        if saved.is_err() {
            put(&mut self.changes, before);
        }
        saved.map_err(|error| not_kept(store, &error))
    }
}

/// Changes tenants, and says what they were.
fn put(
    changes: &mut Changes,
    now: Vec<(String, Option<Option<spec::Tenant>>)>,
) -> Vec<(String, Option<Option<spec::Tenant>>)> {
    let each = now.into_iter().map(|(name, now)| {
        let before = match now {
            Some(now) => changes.tenants.insert(name.clone(), now),
            None => changes.tenants.remove(&name),
        };
        (name, before)
    });
    each.collect()
}

/// Returns the index of each tenant in a configuration, by name.
fn places_of(config: &Config) -> HashMap<String, usize> {
    config.tenant.iter().enumerate().map(|(n, tenant)| (tenant.name.clone(), n)).collect()
}

fn not_kept(store: &Store, error: &std::io::Error) -> Problem {
    let path = store.path().display();
    Problem::new(Code::NotKept, format!("cannot keep the change in {path}: {error}"))
}

impl Live {
    /// A server of this configuration with these changes made, which are kept in `store`.
    pub(crate) fn new(
        ground: Ground,
        open: Vec<Open>,
        base: Config,
        changes: Changes,
        store: Option<Store>,
    ) -> Result<Arc<Live>, String> {
        let changes = changes.of(&base);
        let world = World::of(base.with(&changes), &ground, &open, false)?;
        let world = Arc::new(world);
        let (retired, departed) = (Vec::new(), Vec::new());
        let (is_frozen, keeps_later, keeps_changes) = (false, false, store.is_some());
        let places = places_of(&base);
        let inner = Inner {
            base,
            places,
            changes,
            store,
            world,
            open,
            departed,
            retired,
            is_frozen,
            keeps_later,
        };
        let (seen, is_stuck) = (Mutex::new(Seen::of(&inner)), AtomicBool::new(false));
        let inner = Mutex::new(inner);
        let (audit, gate, recalibrations) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let has_older = AtomicBool::new(false);
        let live = Live {
            ground,
            keeps_changes,
            audit,
            gate,
            recalibrations,
            has_older,
            inner,
            is_stuck,
            is_given: Mutex::new(false),
            seen,
        };
        let live = Arc::new(live);
        live.ground.wakers.start_calculator(live.ground.fabric.clone())?;
        live.start_keeper()?;
        live.make_fabric(&live.lock())?;
        Ok(live)
    }

    /// Records that the predecessor may still have requests at the devices, or that it has none.
    /// While it may, no namespace, subsystem or host changes, and no device can be removed.
    pub(crate) fn set_older(&self, is_there: bool) {
        self.has_older.store(is_there, Ordering::Release);
    }

    fn has_older(&self) -> bool {
        self.has_older.load(Ordering::Acquire)
    }

    /// Returns the NVMe fabric, if a listener speaks NVMe or ever has.
    pub(crate) fn fabric(&self) -> Option<Arc<Fabric>> {
        self.ground.fabric.get().cloned()
    }

    /// Makes the fabric, if there is none and a listener speaks NVMe.
    fn make_fabric(&self, inner: &Inner) -> Result<(), String> {
        if self.ground.fabric.get().is_some() || inner.world.nvme.is_none() {
            return Ok(());
        }
        let fabric = inner.world.fabric(&self.ground)?;
        assert!(self.ground.fabric.set(fabric).is_ok(), "it is made under a lock");
        self.keep_reservations(inner);
        Ok(())
    }

    /// Sets the audit log of operators' changes.
    pub(crate) fn set_audit(&self, audit: Option<Arc<AuditFile>>) {
        assert!(self.audit.set(audit).is_ok(), "said once");
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Takes the lock for an operator's change. Waits as [`lock_soon`](Live::lock_soon) does.
    fn lock_for_change(&self) -> Result<MutexGuard<'_, Inner>, Problem> {
        self.lock_soon(&self.inner, &self.is_stuck)
    }

    /// Locks what is locked while a change is made: waits for the one that is being made, but not for long, and
    /// hardly at all where somebody has waited in vain (`is_stuck`). So a disk that hangs holds few threads.
    ///
    /// # Errors
    /// It is locked for long.
    pub(crate) fn lock_soon<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        is_stuck: &AtomicBool,
    ) -> Result<MutexGuard<'a, T>, Problem> {
        let try_lock = || match mutex.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            locked => Some(locked.expect("no holder of this lock panics")),
        };
        let mut locked = try_lock();
        if locked.is_none() {
            // Whoever was slow may be done since.
            let was_stuck = is_stuck.load(Ordering::Acquire);
            self.wait_so_long(if was_stuck { STUCK_MAX } else { SETTLE_MAX }, || {
                locked = try_lock();
                locked.is_some()
            });
        }
        is_stuck.store(locked.is_none(), Ordering::Release);
        locked.ok_or_else(|| {
            let seconds = SETTLE_MAX.as_secs();
            let message = format!(
                "another change has been under way for {seconds} s: the disk of the state file, or of a \
                 device, does not answer; nothing was changed"
            );
            Problem::new(Code::Busy, message)
        })
    }

    /// Makes a change: `edit` says what is to be another and what that needs of devices.
    fn change(
        &self,
        edit: impl FnOnce(&Inner, &mut Changes) -> Result<Vec<Need>, Problem>,
    ) -> Result<(), Problem> {
        self.await_older()?;
        let mut inner = self.lock_for_change()?;
        inner.check_thawed()?;
        let mut changes = inner.changes.clone();
        let needs = edit(&inner, &mut changes)?;
        let config = inner.base.with(&changes);
        let world = World::of(config, &self.ground, &inner.open, true)
            .map_err(|error| Problem::new(Code::Invalid, error))?;
        self.clear_probes(&world)?;
        let growth = self.write_sizes_down(&mut inner, &needs)?;
        if let Err(problem) = self.prepare(&needs).and_then(|()| inner.keep(changes)) {
            growth.take_back(&mut inner);
            return Err(problem);
        }
        self.adopt(&mut inner, world);
        Ok(())
    }

    /// Has no probes where a change takes their place away or gives it to somebody. To be called before
    /// that is kept.
    fn clear_probes(&self, after: &World) -> Result<(), Problem> {
        self.recalibrations().map_or(Ok(()), |probing| probing.clear_for(&after.spaces))
    }

    /// Gives a change the room that it needs.
    fn prepare(&self, needs: &[Need]) -> Result<(), Problem> {
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

    /// Lets workers and hosts know: workers first of what there is more, hosts first of what there is
    /// less.
    fn adopt(&self, inner: &mut Inner, after: World) {
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
        let gone = less.iter().filter(|(_, namespace)| namespace.is_none());
        inner.retired.extend(gone.map(|(number, _)| *number));
        inner.world = Arc::new(after);
        self.show(inner);
    }

    fn place(&self, moves: &[world::Move]) {
        if moves.is_empty() {
            return;
        }
        {
            let mut registry = self.ground.tenants.registry();
            moves.iter().for_each(|(number, namespace)| registry.place(*number, *namespace));
        }
        if !self.settle() {
            tracing::warn!("a worker has not taken a change of a namespace yet");
        }
    }

    /// Waits until no device has a request that a change forbids; `false`: it takes too long.
    fn settle(&self) -> bool {
        self.wait_until(|| !self.has_older() && self.ground.tenants.registry().is_placed())
    }

    /// Waits a little until the process before this one has nothing at the devices any more: who is shut
    /// out, and what is taken away, may have writes there that this one knows nothing of. To be called
    /// without the lock, so that nobody else waits.
    ///
    /// # Errors
    /// It has, and nothing was changed.
    fn await_older(&self) -> Result<(), Problem> {
        match self.wait_so_long(OLDER_MAX, || !self.has_older()) {
            true => Ok(()),
            false => Err(Problem::new(Code::Busy, OLDER)),
        }
    }

    fn wait_until(&self, is_so: impl FnMut() -> bool) -> bool {
        self.wait_so_long(SETTLE_MAX, is_so)
    }

    fn wait_so_long(&self, most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let end = self.ground.clock.now() + most;
        while !is_so() {
            if self.ground.clock.now() >= end {
                return false;
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
        true
    }
}
