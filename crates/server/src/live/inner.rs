//! The configuration of a running server while it changes: everything that the lock of
//! [`LiveConfig`](super::LiveConfig) protects.

use std::collections::HashMap;
use std::sync::Arc;

use contract::NamespaceRemovals;
use control::UPGRADING;
use control::admin::{Code, Problem};
use worker::Namespace;

use super::changes::Changes;
use super::kept_reservation::KeptReservation;
use super::open::OpenListener;
use super::store::Store;
use super::world::ServerSnapshot;
use crate::config::{Config, ServerNamespace};
use crate::listen::ListenAt;

/// The message of a change that is refused because it concerns blocks that are being given back.
const FREEING: &str = "the space of a removed namespace is still being given back; try again";

/// A server's configuration with its live changes, and the state derived from them.
pub(super) struct LiveState {
    /// The configuration without live changes.
    pub(super) base: Config,
    /// The index of each tenant in the tenants of `base`, by name.
    pub(super) places: HashMap<String, usize>,
    pub(super) changes: Changes,
    /// The state file, if changes are kept.
    pub(super) store: Option<Store>,
    /// The served state: the configuration with its changes, the namespaces and the configuration
    /// of the NVMe fabric.
    pub(super) world: Arc<ServerSnapshot>,
    /// The open listeners, sorted by number.
    pub(super) open: Vec<OpenListener>,
    /// Closed listeners that may still have connections.
    pub(super) departed: Vec<ListenAt>,
    /// The removals of namespaces so far, by which workers refuse requests that mean a removed
    /// namespace.
    pub(super) removals: NamespaceRemovals,
    /// The places of removed namespaces whose space is being given back, without the lock.
    pub(super) freeing: Vec<Namespace>,
    /// `true` while another process takes over, and this one may not change the state file.
    pub(super) is_frozen: bool,
    /// `true` if reservations must be stored after a failed take-over.
    pub(super) keeps_later: bool,
}

impl LiveState {
    /// Stores these live changes, and makes them the current changes of the server.
    pub(super) fn keep(&mut self, changes: Changes) -> Result<(), Problem> {
        self.check_thawed()?;
        let changes = changes.of(&self.base);
        if let Some(store) = &mut self.store {
            store.save(&changes).map_err(|error| not_kept(store, &error))?;
        }
        self.changes = changes;
        Ok(())
    }

    /// Returns `true` if the stored state may differ from the state that was reported to operators.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.store.as_ref().is_some_and(Store::is_in_doubt)
    }

    /// Stores the new state of these tenants: `None` as configured, `Some(None)` removed. The cost
    /// does not depend on the number of other tenants.
    pub(super) fn keep_few(
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

    /// Checks that changes are allowed.
    ///
    /// # Errors
    /// Another process is taking over.
    pub(super) fn check_thawed(&self) -> Result<(), Problem> {
        match self.is_frozen {
            true => Err(Problem::new(Code::Busy, UPGRADING)),
            false => Ok(()),
        }
    }

    /// Checks that no space is being given back on a device, or on any of them (`None`).
    ///
    /// # Errors
    /// Blocks of the device are being given back.
    pub(super) fn check_not_freeing(&self, device: Option<usize>) -> Result<(), Problem> {
        let is_meant = |place: &Namespace| device.is_none_or(|device| place.device == device);
        match self.freeing.iter().any(is_meant) {
            true => Err(Problem::new(Code::Busy, FREEING)),
            false => Ok(()),
        }
    }

    /// Checks that no namespace of a new state has blocks that are being given back.
    ///
    /// # Errors
    /// A namespace has such blocks, which would become zeroes.
    pub(super) fn check_not_freed(&self, after: &ServerSnapshot) -> Result<(), Problem> {
        let meets = |space: &ServerNamespace| {
            self.freeing.iter().any(|place| {
                place.device == space.place.device
                    && place.first < space.end()
                    && space.place.first < place.first + place.blocks
            })
        };
        match after.spaces.iter().any(meets) {
            true => Err(Problem::new(Code::Busy, FREEING)),
            false => Ok(()),
        }
    }

    /// Derives the configuration of the served state anew, from `base` and the changes. The
    /// namespaces and the NVMe fabric of the state stay as they are.
    pub(super) fn refresh_config(&mut self) {
        let config = self.changes.made_to(&self.base);
        let ServerSnapshot { spaces, nvme, .. } = &*self.world;
        let (spaces, nvme) = (spaces.clone(), nvme.clone());
        self.world = Arc::new(ServerSnapshot { config, spaces, nvme });
    }

    /// Stores these NVMe reservations, with all other live changes unchanged.
    pub(super) fn keep_those(&mut self, reservations: Vec<KeptReservation>) -> Result<(), Problem> {
        if reservations == self.changes.reservations && !self.is_in_doubt() {
            return Ok(());
        }
        let changes = Changes { reservations, ..self.changes.clone() };
        self.keep(changes)
    }
}

/// Replaces the changes of some tenants, and returns their former values.
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
pub(super) fn places_of(config: &Config) -> HashMap<String, usize> {
    config.tenant.iter().enumerate().map(|(n, tenant)| (tenant.name.clone(), n)).collect()
}

pub(super) fn not_kept(store: &Store, error: &std::io::Error) -> Problem {
    let path = store.path().display();
    Problem::new(Code::NotKept, format!("cannot keep the change in {path}: {error}"))
}
