//! The reload of a changed configuration file. Everything that can change at run time does, in the
//! same way as by the admin API; the rest is named in the answer.

use std::collections::{HashMap, HashSet};

use control::admin::{Code, Problem};
use control::{Batch, Origin, Refusal, TenantChange, TenantRegistry, Tenants};
use flash::Spec;
use spec::{Tenant, diff};

use super::disks::{Devices, keep_identities};
use super::growth::{self, GrowthRollback};
use super::listeners::Listeners;
use super::reconciler::Reconciler;
use super::setup::located;
use super::world::ServerSnapshot;
use super::{LiveState, overruled};
use crate::config::Config;
use crate::tenancy;

/// The differences in the file that a reload did not apply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadReport {
    /// The differences that need a restart.
    pub(crate) later: Vec<String>,
    /// The differences that operators' changes override.
    pub(crate) overruled: Vec<String>,
    /// The faults of certificates that could not be read again.
    pub(crate) unread: Vec<String>,
}

/// Applies a new configuration to a running server.
pub(super) struct Reload<'a> {
    reconciler: &'a Reconciler,
    /// The origin that new tenants get: the configuration, or an operator.
    origin: Origin,
    /// Stores a configuration that is about to be served.
    keep: ConfigSaver<'a>,
}

/// A function that stores the configuration which is about to be served.
type ConfigSaver<'a> = &'a dyn Fn(&Config) -> Result<(), Problem>;

impl<'a> Reload<'a> {
    /// Creates the reload of a configuration file, which stores nothing.
    pub(super) fn of_file(reconciler: &'a Reconciler) -> Reload<'a> {
        Reload { reconciler, origin: Origin::Configured, keep: &|_| Ok(()) }
    }

    /// Creates the reload of a state that an operator imports and that `keep` stores.
    pub(super) fn of_operator(reconciler: &'a Reconciler, keep: ConfigSaver<'a>) -> Reload<'a> {
        Reload { reconciler, origin: Origin::Operator, keep }
    }

    /// Applies another configuration as far as possible; returns the differences that remain.
    pub(super) fn take(&self, inner: &mut LiveState, new: Config) -> Result<ReloadReport, Problem> {
        inner.check_not_freeing(None)?;
        let (devices, listeners) = (Devices(self.reconciler), Listeners(self.reconciler));
        let overruled = overruled::overruled(&inner.base, &new, &inner.changes);
        let (mut base, mut later) = new.live_over(&inner.base);
        let (before_devices, wanted) = (inner.world.config.all_devices(), base.all_devices());
        // Tenants may be on those that are new.
        let (opened, refused) = devices.open_devices(inner, &mut base)?;
        later.extend(refused);
        // Hosts may be charged to those who are new.
        let (refused, begun) = self.take_tenants(inner, &mut base);
        later.extend(refused);
        let taken = self.take_rest(inner, &listeners, base);
        match taken {
            Ok(more) => later.extend(more),
            Err(problem) => {
                let tenants = &self.reconciler.ground.tenants;
                begun.undo(&mut tenants.registry(), tenants.now());
                devices.close_again(&opened);
                return Err(problem);
            }
        }
        later.extend(devices.close_devices(inner, &wanted));
        let unread = inner.open.iter().filter_map(|open| open.renew().err()).collect();
        devices.follow_devices(&before_devices, &inner.world.config.all_devices());
        let dormant = inner.changes.dormant(&inner.base);
        dormant.into_iter().for_each(|line| tracing::warn!("{line}"));
        keep_identities(&self.reconciler.ground.places, inner);
        self.reconciler.show(inner);
        Ok(ReloadReport { later, overruled, unread })
    }

    /// Applies the listeners, namespaces, subsystems and hosts of a configuration, and removes the
    /// tenants that it lacks. Returns the differences that were not applied.
    fn take_rest(
        &self,
        inner: &mut LiveState,
        listeners: &Listeners<'_>,
        mut base: Config,
    ) -> Result<Vec<String>, Problem> {
        let mut later = Vec::new();
        let invalid = |error| Problem::new(Code::Invalid, error);
        let plan = listeners.listeners_to(inner, &base).unwrap_or_else(|why| {
            later.push(format!("[[listen]] ({why})"));
            base.listen = inner.base.listen.clone();
            Default::default()
        });
        // They may lead to namespaces that are new.
        let (ready, open) = listeners.make_ready(inner, &inner.changes.made_to(&base), plan)?;
        let wanted = |base: &Config| {
            ServerSnapshot::of(inner.changes.made_to(base), &self.reconciler.ground, &open, true)
        };
        let mut world = wanted(&base).map_err(invalid)?;
        if let Some(name) = moved(&inner.world, &world) {
            if self.origin == Origin::Operator {
                let message = format!(
                    "namespace {name:?} would move or become smaller, which loses its data: shrink it with \
                     `nearflash namespace resize --shrink`, or remove it first"
                );
                return Err(Problem::new(Code::Invalid, message));
            }
            later.push(format!("[[namespace]] (namespace {name:?} has moved or become smaller)"));
            base.namespace = inner.base.namespace.clone();
            world = wanted(&base).map_err(invalid)?;
        }
        if let Some(name) = moved(&inner.world, &world) {
            return Err(Problem::new(
                Code::Invalid,
                format!(
                    "namespace {name:?} would be on another device: without [[namespace]], namespaces are \
                 numbered as the devices stand; put new devices behind the others, or write the \
                 namespaces down with their numbers"
                ),
            ));
        }
        self.reconciler.clear_probes(&world)?;
        ready.check_leads(&world)?;
        let growth = self.enlarge(inner, &world)?;
        if let Err(problem) = (self.keep)(&base) {
            growth.take_back(inner);
            return Err(problem);
        }
        if let Err(problem) = listeners.serve(inner, world, ready) {
            later.push(format!("[[listen]] ({})", problem.message));
            // Hosts are told of no listener that a worker has refused.
            match ServerSnapshot::of(
                inner.changes.made_to(&base),
                &self.reconciler.ground,
                &inner.open,
                true,
            ) {
                Ok(world) => self.reconciler.adopt(inner, world),
                Err(error) => later.push(format!("[[listen]] ({error})")),
            }
        }
        let before = std::mem::replace(&mut inner.base, base);
        later.extend(self.remove_tenants(inner, &before));
        Ok(later)
    }

    /// Enlarges the devices that are too small for the namespaces of a state. The result shrinks
    /// them again if the change fails.
    fn enlarge(
        &self,
        inner: &mut LiveState,
        world: &ServerSnapshot,
    ) -> Result<GrowthRollback, Problem> {
        let places = &self.reconciler.ground.places;
        growth::check_rests(places, world)?;
        let mut growth = GrowthRollback::default();
        for space in &world.spaces {
            let volume = places.get(space.place.device).expect("it was just found");
            if let Err(error) = growth.grow(volume, space.end()) {
                growth.take_back(inner);
                return Err(Problem::new(Code::NoRoom, error));
            }
        }
        Ok(growth)
    }

    /// Creates and changes the tenants of the configuration, except those with live changes.
    /// Returns a message for each refused tenant, which stays as it was, and the batch of the
    /// changes, which can be undone.
    fn take_tenants(&self, inner: &LiveState, base: &mut Config) -> (Vec<String>, Batch) {
        let (mut later, mut begun) = (Vec::new(), Batch::default());
        let mut kept: Vec<Tenant> = Vec::new();
        let (tenants, now) =
            (&self.reconciler.ground.tenants, self.reconciler.ground.tenants.now());
        let (old, new) = (located(&inner.base), located(base));
        let different = diff(&old, &new, |one| one.name.clone());
        let old: HashMap<&str, &Tenant> = old.iter().map(|old| (old.name.as_str(), old)).collect();
        for (tenant, said) in new.iter().zip(&base.tenant) {
            let name = tenant.name.clone();
            if inner.changes.tenants.contains_key(&name) || !different.contains_key(&name) {
                kept.push(said.clone());
                continue;
            }
            let before = old.get(name.as_str()).copied();
            let made = change_of(before, tenant).and_then(|change| {
                let made = begun.add(&mut tenants.registry(), &change, self.origin, now);
                made.map_err(|refusal| refused(&name, &refusal))
            });
            match made {
                Ok(()) => kept.push(said.clone()),
                Err(why) => {
                    later.push(why);
                    kept.extend(before.cloned());
                }
            }
        }
        base.tenant = kept;
        (later, begun)
    }

    /// Removes the tenants that only the configuration `before` had, once no served object names
    /// them any more. Returns, for each tenant that stays, the reason.
    fn remove_tenants(&self, inner: &mut LiveState, before: &Config) -> Vec<String> {
        let mut later = Vec::new();
        let stay: HashSet<String> =
            inner.base.tenant.iter().map(|tenant| tenant.name.clone()).collect();
        for old in &before.tenant {
            if stay.contains(&old.name) || inner.changes.tenants.contains_key(&old.name) {
                continue;
            }
            let refusal = match Listeners(self.reconciler).namer_of(inner, &old.name) {
                Some(by) => Some(format!("tenant {:?}: {by} names it", old.name)),
                None => self
                    .reconciler
                    .ground
                    .tenants
                    .unregister(&old.name)
                    .err()
                    .map(|r| r.to_string()),
            };
            if let Some(refusal) = refusal {
                later.push(refusal);
                inner.base.tenant.push(old.clone());
            }
        }
        inner.places = super::places_of(&inner.base);
        inner.refresh_config();
        later
    }
}

/// Returns the change by which the tenant `before` of the old configuration becomes `tenant`.
/// Without `before`, the old configuration has no such tenant.
///
/// # Errors
/// Fails if only a restart can make the change.
fn change_of(before: Option<&Tenant>, tenant: &Tenant) -> Result<TenantChange, String> {
    let name = tenant.name.clone();
    if before.is_some_and(|before| before.device != tenant.device) {
        return Err(format!("tenant {name:?} (its device would be another)"));
    }
    // The default tenant is there without an entry, too.
    let is_there = before.is_some() || name == TenantRegistry::DEFAULT;
    Ok(match is_there {
        true => {
            let note = Some(tenant.note.clone().unwrap_or_default());
            TenantChange::Set { name, to: tenant.promise.into(), note, device: None }
        }
        false => TenantChange::Add(tenant.clone()),
    })
}

fn refused(name: &str, refusal: &Refusal) -> String {
    format!("tenant {name:?}: {refusal}")
}

/// Returns a line for each new device and each tenant of the configuration `wanted` that a server
/// would not take as it is. `now` is the configuration that the server has.
pub(super) fn foresee(tenants: &Tenants, now: &Config, wanted: &Config) -> Vec<String> {
    let (mut lines, mut changes, mut new) = (Vec::new(), Vec::new(), Vec::new());
    let known = now.device_names();
    for device in wanted.all_devices().iter().filter(|device| !known.contains(&device.name)) {
        let spec = device.spec.parse::<Spec>().map_err(|error| error.to_string());
        match spec.and_then(|spec| tenancy::setup(device, &spec)) {
            Ok(setup) => new.push(setup),
            Err(why) => lines.push(format!("device {:?}: {why}", device.name)),
        }
    }
    let (old, all) = (located(now), located(wanted));
    let old: HashMap<&str, &Tenant> = old.iter().map(|old| (old.name.as_str(), old)).collect();
    for tenant in &all {
        let before = old.get(tenant.name.as_str()).copied();
        if before == Some(tenant) {
            continue;
        }
        match change_of(before, tenant) {
            Ok(change) => changes.push(change),
            Err(why) => lines.push(why),
        }
    }
    let foreseen = control::foresee(&tenants.registry(), &new, &changes);
    lines.extend(foreseen.iter().map(|(n, refusal)| refused(changes[*n].name(), refusal)));
    lines
}

/// Returns the name of a namespace that the configuration would move or shrink without saying so;
/// `None` if there is none.
fn moved(before: &ServerSnapshot, after: &ServerSnapshot) -> Option<String> {
    let is_moved = |(was, is): (&worker::Namespace, &worker::Namespace)| {
        (was.device, was.first) != (is.device, is.first) || is.blocks < was.blocks
    };
    let pairs = before.spaces.iter().filter_map(|was| {
        let is = after.spaces.iter().find(|is| is.number == was.number)?;
        Some((was, is))
    });
    let mut moved = pairs.filter(|(was, is)| is_moved((&was.place, &is.place)));
    moved.next().map(|(was, _)| was.name.clone())
}
