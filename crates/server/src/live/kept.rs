//! The state kept besides operators' changes: tenants, which the registry holds, and reservations,
//! which hosts make.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;

use contract::Promise;
use control::admin::{Problem, in_batch};
use control::{Admission, Origin, Refusal, State, TenantChange, TenantInfo, TenantRegistry};
use proto::nvme::{HostId, Nqn, Registrant, Reserved};
use serde::{Deserialize, Serialize};
use spec::{Changed, Tenant, diff};
use wire::nvme::ReservationKind;

use super::{Changes, Inner, Live};

/// A reservation that persists through power loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptReservation {
    subsystem: String,
    nsid: u32,
    /// Which namespace that was: another one may get its number.
    uuid: [u8; 16],
    generation: u32,
    registrants: Vec<(KeptHost, u64)>,
    /// The kind by its number; the holder, unless all registrants are.
    held: Option<(u8, Option<KeptHost>)>,
}

/// A registrant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptHost {
    host: String,
    id: [u8; 16],
}

impl KeptHost {
    fn of(registrant: &Registrant) -> KeptHost {
        KeptHost { host: registrant.host.to_string(), id: registrant.id.0 }
    }

    fn registrant(&self) -> Option<Registrant> {
        Some(Registrant { host: Nqn::new(&self.host).ok()?, id: HostId(self.id) })
    }
}

impl KeptReservation {
    fn of(reserved: &Reserved, uuid: [u8; 16]) -> KeptReservation {
        let registrants = reserved.registrants.iter();
        let held = reserved.held.as_ref();
        KeptReservation {
            subsystem: reserved.subsystem.to_string(),
            nsid: reserved.nsid,
            uuid,
            generation: reserved.generation,
            registrants: registrants.map(|(whom, key)| (KeptHost::of(whom), *key)).collect(),
            held: held.map(|(kind, holder)| (kind.0, holder.as_ref().map(KeptHost::of))),
        }
    }

    fn reserved(&self) -> Option<Reserved> {
        let registrants = self.registrants.iter();
        let held = match &self.held {
            None => None,
            Some((kind, None)) => Some((ReservationKind(*kind), None)),
            Some((kind, Some(holder))) => {
                Some((ReservationKind(*kind), Some(holder.registrant()?)))
            }
        };
        Some(Reserved {
            subsystem: Nqn::new(&self.subsystem).ok()?,
            nsid: self.nsid,
            generation: self.generation,
            registrants: registrants
                .map(|(whom, key)| Some((whom.registrant()?, *key)))
                .collect::<Option<_>>()?,
            held,
            persists: true,
        })
    }
}

impl Inner {
    /// Keeps these tenants, as far as they are not as the configuration says.
    pub(super) fn keep_tenants(&mut self, list: &[TenantInfo]) -> Result<(), Problem> {
        let tenants = changed_tenants(&self.base.tenant, list, self.first_device().as_deref());
        if tenants == self.changes.tenants && !self.is_in_doubt() {
            return Ok(());
        }
        let changes = Changes { tenants, ..self.changes.clone() };
        self.keep(changes)
    }

    /// Keeps these reservations.
    pub(super) fn keep_those(&mut self, reservations: Vec<KeptReservation>) -> Result<(), Problem> {
        if reservations == self.changes.reservations && !self.is_in_doubt() {
            return Ok(());
        }
        let changes = Changes { reservations, ..self.changes.clone() };
        self.keep(changes)
    }

    /// Keeps a tenant; `None` for one that is gone.
    fn keep_tenant(&mut self, name: &str, info: Option<&TenantInfo>) -> Result<(), Problem> {
        let now = self.to_keep(name, info);
        self.keep_few(vec![(name.to_owned(), now)])
    }

    /// Returns the state of a tenant to keep; `None` if it is as configured.
    fn to_keep(&self, name: &str, info: Option<&TenantInfo>) -> Option<Option<Tenant>> {
        let said = self.places.get(name).map(|n| slice::from_ref(&self.base.tenant[*n]));
        let info = info.map(slice::from_ref).unwrap_or_default();
        let first = self.first_device();
        changed_tenants(said.unwrap_or_default(), info, first.as_deref()).remove(name)
    }

    /// Returns the name of the first device that the configuration has.
    fn first_device(&self) -> Option<String> {
        self.base.device_names().into_iter().next()
    }
}

impl Live {
    /// Ends a tenant that nothing names any more. What cannot be kept does not happen.
    pub(super) fn end_tenant(&self, name: &str) -> Result<(), Problem> {
        let tenants = &self.ground.tenants;
        let mut inner = self.lock_for_change()?;
        inner.check_thawed()?;
        if let Some(by) = self.namer_of(&inner, name) {
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

    /// Makes changes of tenants, all of them or none. Those end last that are removed, as that cannot be
    /// undone.
    pub(super) fn change_tenants_now(&self, changes: &[TenantChange]) -> Result<(), Problem> {
        self.change_all(changes, |n, refusal| in_batch(n, &changes[n], refusal), |_| Ok(()))
    }

    /// Makes or changes one tenant.
    pub(super) fn change_tenant_now(&self, change: &TenantChange) -> Result<Admission, Problem> {
        let admission = |registry: &TenantRegistry| registry.admission_of(change.name());
        self.change_all(slice::from_ref(change), |_, refusal| refusal.into(), admission)
    }

    /// Makes all, and says what is `told` of that before anybody else can change anything.
    fn change_all<T>(
        &self,
        changes: &[TenantChange],
        refused: impl Fn(usize, Refusal) -> Problem,
        told: impl FnOnce(&TenantRegistry) -> Result<T, Refusal>,
    ) -> Result<T, Problem> {
        let tenants = &self.ground.tenants;
        let mut inner = self.lock_for_change()?;
        inner.check_thawed()?;
        let is_gone = |change: &TenantChange| matches!(change, TenantChange::Remove { .. });
        for (n, change) in changes.iter().enumerate().filter(|(_, change)| is_gone(change)) {
            if let Some(by) = self.namer_of(&inner, change.name()) {
                return Err(refused(n, Refusal::InUse { name: change.name().to_owned(), by }));
            }
        }
        let (undo, told) = {
            let mut registry = tenants.registry();
            let begun = registry.begin_batch(changes, tenants.now());
            (begun.map_err(|(n, refusal)| refused(n, refusal))?, told(&registry))
        };
        let kept = changes.iter().map(|change| {
            let info = tenants.get(change.name()).filter(|_| !is_gone(change));
            (change.name().to_owned(), inner.to_keep(change.name(), info.as_ref()))
        });
        let kept = kept.collect();
        if let Err(problem) = inner.keep_few(kept) {
            tenants.registry().undo_batch(undo, tenants.now());
            return Err(problem);
        }
        tenants.registry().end_batch(changes, tenants.now());
        Ok(told?)
    }

    /// Starts the thread that keeps reservations, if they are to be kept.
    pub(super) fn start_keeper(self: &Arc<Live>) -> Result<(), String> {
        if self.lock().store.is_none() {
            return Ok(());
        }
        let keeper = Arc::downgrade(self);
        let keep = move || {
            if let Some(live) = keeper.upgrade() {
                live.keep_reservations_now();
            }
        };
        self.ground.wakers.start_keeper(keep)
    }

    /// Puts back the reservations that were kept, and has them kept from now on.
    pub(super) fn keep_reservations(&self, inner: &Inner) {
        let Some(fabric) = self.fabric() else { return };
        for kept in &inner.changes.reservations {
            let is_it = inner.world.uuid_of(&kept.subsystem, kept.nsid) == Some(kept.uuid);
            let reserved = kept.reserved().filter(|_| is_it);
            let restored = reserved.map(|reserved| fabric.restore_reservation(reserved));
            if !matches!(restored, Some(Ok(()))) {
                let (subsystem, nsid) = (&kept.subsystem, kept.nsid);
                tracing::warn!(subsystem, nsid, "a kept reservation fits no namespace any more");
            }
        }
        if inner.store.is_some() {
            fabric.keep_reservations();
        }
    }

    /// Keeps the reservations as they are now, and lets those hosts know who wait for that.
    pub(super) fn keep_reservations_now(&self) {
        let Some(fabric) = self.fabric() else { return };
        let mut inner = self.lock();
        if inner.is_frozen {
            inner.keeps_later = true;
            return;
        }
        let (change, reserved) = fabric.reservations_to_keep();
        let kept = |reserved: &Reserved| {
            let uuid = inner.world.uuid_of(reserved.subsystem.as_str(), reserved.nsid)?;
            Some(KeptReservation::of(reserved, uuid))
        };
        let reservations: Vec<KeptReservation> = reserved.iter().filter_map(kept).collect();
        let outcome = inner.keep_those(reservations);
        if let Err(problem) = &outcome {
            tracing::error!(error = problem.message, "a reservation is not kept");
        }
        fabric.kept_reservations(change, outcome.is_ok());
    }
}

/// Returns true if a tenant outlives the client that registered it.
fn is_lasting(info: &TenantInfo) -> bool {
    info.state == State::Active && !matches!(info.origin, Origin::Client(_))
}

/// Returns the difference between the tenants that the configuration has, `said`, and those that
/// there are. `first` is the first device.
fn changed_tenants(
    said: &[Tenant],
    list: &[TenantInfo],
    first: Option<&str>,
) -> Changed<String, Tenant> {
    let said: Vec<Tenant> = said.iter().map(|said| said.clone().on(first)).collect();
    let names: HashSet<&str> = said.iter().map(|said| said.name.as_str()).collect();
    // Made because a rule, a listener or nobody names it.
    let is_made = |info: &TenantInfo| {
        let is_default = info.name == TenantRegistry::DEFAULT;
        (info.origin == Origin::Configured || is_default) && info.promise == Promise::default()
    };
    let counts = |info: &&TenantInfo| names.contains(info.name.as_str()) || !is_made(info);
    let lasting = list.iter().filter(|info| is_lasting(info)).filter(counts);
    diff(&said, &lasting.map(TenantInfo::spec).collect::<Vec<_>>(), |one| one.name.clone())
}
