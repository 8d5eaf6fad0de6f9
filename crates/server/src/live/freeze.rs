//! While another process takes over, nothing changes, and nothing of what is kept is written.

use control::admin::Journal;

use super::{Live, StateAt, Store, reservations};
use crate::config::Space;

impl Live {
    /// Keeps what is to be kept so far, and nothing any more.
    ///
    /// # Errors
    /// Fails, and freezes nothing, if the server drains, if a change cannot be stored, or if a record of
    /// a change is owed to the audit log and would be lost with this process.
    pub(crate) fn freeze(&self) -> Result<(), String> {
        if let Some(audit) = self.audit.get().and_then(Option::as_ref) {
            audit.ready()?;
        }
        self.halt_recalibrations(true);
        // Behind the lock, so that a change which is under way ends first, as a whole.
        let frozen = self.lock_for_change().and_then(|mut inner| {
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

    /// Allows changes again.
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
            reservations::keep(self);
        }
    }

    /// Returns the identity of the state file, if changes are kept.
    pub(crate) fn state_at(&self) -> Option<StateAt> {
        self.lock().store.as_ref().map(Store::at)
    }

    fn halt_recalibrations(&self, is_halted: bool) {
        if let Some(recalibrations) = self.reconciler.recalibrations() {
            recalibrations.halt(is_halted);
        }
    }

    /// The namespaces.
    pub(crate) fn spaces(&self) -> Vec<Space> {
        self.lock().world.spaces.clone()
    }
}
