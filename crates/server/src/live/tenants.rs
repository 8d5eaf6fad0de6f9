//! The tenants of a server: how operators change them, and which of them are stored. The registry
//! holds them.

use std::collections::HashSet;
use std::slice;

use contract::Promise;
use control::admin::{Problem, in_batch};
use control::{Admission, Batch, Origin, Refusal, State, TenantChange, TenantInfo, TenantRegistry};
use spec::{ChangedValues, Tenant, diff};

use super::listeners::Listeners;
use super::reconciler::Reconciler;
use super::{Changes, LiveState};

impl LiveState {
    /// Stores these tenants, as far as they differ from the configuration.
    pub(super) fn keep_tenants(&mut self, list: &[TenantInfo]) -> Result<(), Problem> {
        let first = self.first_device();
        let is_changed = |name: &str| self.changes.tenants.contains_key(name);
        let tenants = changed_tenants(&self.base.tenant, list, first.as_deref(), is_changed);
        if tenants == self.changes.tenants && !self.is_in_doubt() {
            return Ok(());
        }
        let changes = Changes { tenants, ..self.changes.clone() };
        self.keep(changes)
    }

    /// Stores the state of a tenant; `None` for a removed one.
    fn keep_tenant(&mut self, name: &str, info: Option<&TenantInfo>) -> Result<(), Problem> {
        let now = self.to_keep(name, info);
        self.keep_few(vec![(name.to_owned(), now)])
    }

    /// Returns the state of a tenant to store: `None` as configured, `Some(None)` removed.
    fn to_keep(&self, name: &str, info: Option<&TenantInfo>) -> Option<Option<Tenant>> {
        let said = self.places.get(name).map(|n| slice::from_ref(&self.base.tenant[*n]));
        let info = info.map(slice::from_ref).unwrap_or_default();
        let first = self.first_device();
        changed_tenants(said.unwrap_or_default(), info, first.as_deref(), |_| true).remove(name)
    }

    /// Returns the name of the first device that the configuration has.
    fn first_device(&self) -> Option<String> {
        self.base.device_names().into_iter().next()
    }
}

/// Changes the tenants of a server, and stores them.
pub(super) struct Tenants<'a>(pub(super) &'a Reconciler);

impl Tenants<'_> {
    /// Removes a tenant that no other object names. If the change cannot be stored, the tenant
    /// stays.
    pub(super) fn end(&self, inner: &mut LiveState, name: &str) -> Result<(), Problem> {
        let tenants = &self.0.ground.tenants;
        if let Some(by) = Listeners(self.0).namer_of(inner, name) {
            return Err(Refusal::InUse { name: name.to_owned(), by }.into());
        }
        tenants.registry().check_end(name)?;
        inner.keep_tenant(name, None)?;
        if let Err(refusal) = tenants.unregister(name) {
            // Somebody else was faster, or is taking over: it is as the book has it.
            let _ = inner.keep_tenant(name, tenants.get(name).as_ref());
            return Err(refusal.into());
        }
        Ok(())
    }

    /// Changes several tenants, all of them or none. Removals come last, since they cannot be
    /// undone.
    pub(super) fn change_together(
        &self,
        inner: &mut LiveState,
        changes: &[TenantChange],
    ) -> Result<(), Problem> {
        self.change_all(inner, changes, |n, refusal| in_batch(n, &changes[n], refusal), |_| Ok(()))
    }

    /// Creates or changes one tenant.
    pub(super) fn change(
        &self,
        inner: &mut LiveState,
        change: &TenantChange,
    ) -> Result<Admission, Problem> {
        let admission = |registry: &TenantRegistry| registry.admission_of(change.name());
        self.change_all(inner, slice::from_ref(change), |_, refusal| refusal.into(), admission)
    }

    /// Makes several changes, all or none, and stores them. `told` reads the result before any
    /// other change can begin.
    fn change_all<T>(
        &self,
        inner: &mut LiveState,
        changes: &[TenantChange],
        refused: impl Fn(usize, Refusal) -> Problem,
        told: impl FnOnce(&TenantRegistry) -> Result<T, Refusal>,
    ) -> Result<T, Problem> {
        let tenants = &self.0.ground.tenants;
        let is_gone = |change: &TenantChange| matches!(change, TenantChange::Remove { .. });
        for (n, change) in changes.iter().enumerate().filter(|(_, change)| is_gone(change)) {
            if let Some(by) = Listeners(self.0).namer_of(inner, change.name()) {
                return Err(refused(n, Refusal::InUse { name: change.name().to_owned(), by }));
            }
        }
        let (begun, told) = {
            let mut registry = tenants.registry();
            let begun = Batch::begin(&mut registry, changes, tenants.now());
            (begun.map_err(|(n, refusal)| refused(n, refusal))?, told(&registry))
        };
        let kept = changes.iter().map(|change| {
            let info = tenants.get(change.name()).filter(|_| !is_gone(change));
            (change.name().to_owned(), inner.to_keep(change.name(), info.as_ref()))
        });
        let kept = kept.collect();
        if let Err(problem) = inner.keep_few(kept) {
            begun.undo(&mut tenants.registry(), tenants.now());
            return Err(problem);
        }
        begun.end(&mut tenants.registry(), tenants.now());
        Ok(told?)
    }
}

/// Returns `true` if a tenant is active and was not registered by a client, so that no client's end
/// removes it.
fn is_lasting(info: &TenantInfo) -> bool {
    info.state == State::Active && !matches!(info.origin, Origin::Client(_))
}

/// Returns the live changes that turn the configured tenants, `said`, into the present ones,
/// `list`. `first` is the name of the first device. A tenant that has no entry and only default
/// settings is left out. Its device counts as a change only if an operator has changed the tenant
/// (`is_changed`), since a reload that reorders the devices leaves the tenant where it is.
fn changed_tenants(
    said: &[Tenant],
    list: &[TenantInfo],
    first: Option<&str>,
    is_changed: impl Fn(&str) -> bool,
) -> ChangedValues<String, Tenant> {
    let said: Vec<Tenant> = said.iter().map(|said| said.clone().on(first)).collect();
    let names: HashSet<&str> = said.iter().map(|said| said.name.as_str()).collect();
    // Made because a rule, a listener or nobody names it.
    let is_made = |info: &TenantInfo| {
        let is_default = info.name == TenantRegistry::DEFAULT;
        let is_moved = first.is_some_and(|first| info.device != first) && is_changed(&info.name);
        let is_plain = info.promise == Promise::default() && info.note.is_none() && !is_moved;
        (info.origin == Origin::Configured || is_default) && is_plain
    };
    let counts = |info: &&TenantInfo| names.contains(info.name.as_str()) || !is_made(info);
    let lasting = list.iter().filter(|info| is_lasting(info)).filter(counts);
    diff(&said, &lasting.map(TenantInfo::spec).collect::<Vec<_>>(), |one| one.name.clone())
}
