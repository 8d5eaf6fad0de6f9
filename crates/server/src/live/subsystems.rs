//! Subsystems, hosts and how listeners lead to namespaces, changed while hosts are connected.

use control::admin::{
    self, Ana, Code, Contained, Controller, HostPatch, KeyState, NewSubsystem, Problem,
    SubsystemPatch,
};
use proto::nvme::{ControllerInfo, ControllerKind};

use super::namespaces::{exports, vacant_nsid};
use super::reconciler::Reconciler;
use super::seen::ReportedState;
use super::world::ServerSnapshot;
use super::{LiveState, namespaces};

/// Creates, changes and describes the subsystems and hosts of a server.
pub(super) struct Subsystems<'a>(pub(super) &'a Reconciler);

impl Subsystems<'_> {
    pub(super) fn told(&self) -> Result<admin::Subsystems, Problem> {
        let (seen, controllers) = (self.0.seen(), self.controllers()?);
        let all = seen.world.config.subsystem.iter();
        let subsystems = all.map(|one| told(&seen, one, &controllers)).collect();
        Ok(admin::Subsystems { subsystems })
    }

    pub(super) fn told_one(&self, nqn: &str) -> Result<admin::SubsystemStatus, Problem> {
        let (seen, controllers) = (self.0.seen(), self.controllers()?);
        Ok(told(&seen, find(&seen.world, nqn)?, &controllers))
    }

    pub(super) fn add(
        &self,
        inner: &mut LiveState,
        wanted: &NewSubsystem,
    ) -> Result<admin::SubsystemStatus, Problem> {
        self.controllers()?;
        check(std::iter::once(&wanted.nqn).chain(wanted.hosts.iter().flatten()))?;
        self.0.change(inner, |inner, changes| {
            let world = &inner.world;
            if find(world, &wanted.nqn).is_ok() {
                let message = format!("there is a subsystem {:?} already", wanted.nqn);
                return Err(Problem::new(Code::Taken, message));
            }
            let listed = wanted.namespaces.as_ref().map(|names| {
                let each = names.iter().zip(1..).map(|(name, nsid)| {
                    let namespace = namespaces::find(world, name)?.number.0;
                    Ok(spec::Exported::As { nsid, namespace })
                });
                each.collect::<Result<Vec<_>, Problem>>()
            });
            let config = spec::Subsystem {
                nqn: Some(wanted.nqn.clone()),
                namespaces: listed.transpose()?,
                hosts: wanted.hosts.clone(),
                tenant: wanted.tenant.clone(),
                authenticate: wanted.authenticate,
                ..spec::Subsystem::default()
            };
            changes.subsystems.insert(wanted.nqn.clone(), Some(config));
            Ok(Vec::new())
        })?;
        tracing::info!(subsystem = wanted.nqn, "subsystem made");
        self.told_one(&wanted.nqn)
    }

    pub(super) fn set(
        &self,
        inner: &mut LiveState,
        nqn: &str,
        to: &SubsystemPatch,
    ) -> Result<admin::SubsystemStatus, Problem> {
        self.0.change(inner, |inner, changes| {
            let config = changed(&inner.world, find(&inner.world, nqn)?, to)?;
            changes.subsystems.insert(nqn.to_owned(), Some(config));
            Ok(Vec::new())
        })?;
        tracing::info!(subsystem = nqn, "subsystem changed");
        self.told_one(nqn)
    }

    pub(super) fn remove(&self, inner: &mut LiveState, nqn: &str) -> Result<(), Problem> {
        self.0.change(inner, |inner, changes| {
            find(&inner.world, nqn)?;
            changes.subsystems.insert(nqn.to_owned(), None);
            Ok(Vec::new())
        })?;
        tracing::info!(subsystem = nqn, "subsystem removed");
        Ok(())
    }

    pub(super) fn told_hosts(&self) -> admin::Hosts {
        let seen = self.0.seen();
        admin::Hosts { hosts: seen.world.config.host.iter().map(told_host).collect() }
    }

    pub(super) fn set_host(
        &self,
        inner: &mut LiveState,
        nqn: &str,
        to: &HostPatch,
    ) -> Result<admin::HostStatus, Problem> {
        self.controllers()?;
        let mut now = None;
        self.0.change(inner, |inner, changes| {
            let known = inner.world.config.host.iter().find(|host| host.nqn == nqn).cloned();
            if known.is_none() {
                check([&nqn.to_owned()])?;
            }
            let host = known.unwrap_or_else(|| spec::Host::of_name(nqn.to_owned()));
            let HostPatch { key, controller_key, tenant, overlap, .. } = to;
            let HostPatch { hashes, groups, tls_key, tls_overlap, .. } = to;
            let (mut host, mut key) = (host, key.as_deref());
            if *overlap == Some(true) {
                let told = host.overlapping(key.take().unwrap_or_default());
                host = told.map_err(|why| Problem::new(Code::Invalid, why))?;
            }
            let mut host = host.with(key, controller_key.as_deref(), tenant.as_deref());
            host = host.with_methods(hashes.clone(), groups.clone());
            host.former_key.take_if(|_| *overlap == Some(false));
            let told = match (tls_key.as_deref(), *tls_overlap) {
                (None, Some(true)) => Err("an overlap needs a new key".to_owned()),
                (None, _) => Ok(host),
                (Some(key), overlap) => host.with_tls_key(key, overlap == Some(true)),
            };
            let mut host = told.map_err(|why| Problem::new(Code::Invalid, why))?;
            host.former_tls_key.take_if(|_| *tls_overlap == Some(false));
            now = Some(told_host(&host));
            changes.hosts.insert(nqn.to_owned(), Some(host));
            Ok(Vec::new())
        })?;
        tracing::info!(host = nqn, "host changed");
        Ok(now.expect("the change was made"))
    }

    pub(super) fn remove_host(&self, inner: &mut LiveState, nqn: &str) -> Result<(), Problem> {
        self.0.change(inner, |inner, changes| {
            let hosts = &inner.world.config.host;
            if hosts.iter().all(|host| host.nqn != nqn) {
                let known = hosts.iter().map(|host| host.nqn.clone()).collect();
                return Err(Problem::unknown(Code::NoHost, "host", nqn, known));
            }
            changes.hosts.insert(nqn.to_owned(), None);
            Ok(Vec::new())
        })?;
        tracing::info!(host = nqn, "host forgotten");
        Ok(())
    }

    /// Returns the NVMe controllers of connected hosts. Fails if no listener ever spoke NVMe.
    fn controllers(&self) -> Result<Vec<ControllerInfo>, Problem> {
        match self.0.fabric() {
            Some(fabric) => Ok(fabric.controllers()),
            None => {
                let message = "no listener of this server speaks nvme-tcp; open one with \
                               `nearflash listener add nvme-tcp://ADDRESS:PORT`";
                Err(Problem::new(Code::Unsupported, message))
            }
        }
    }
}

pub(super) fn find<'a>(
    world: &'a ServerSnapshot,
    nqn: &str,
) -> Result<&'a spec::Subsystem, Problem> {
    let all = &world.config.subsystem;
    all.iter().find(|one| one.nqn.as_deref() == Some(nqn)).ok_or_else(|| {
        let known = all.iter().filter_map(|one| one.nqn.clone()).collect();
        Problem::unknown(Code::NoSubsystem, "subsystem", nqn, known)
    })
}

/// Checks the NQNs of new hosts and subsystems for obvious slips: an invalid UUID, blanks, or the
/// dots of an example.
fn check<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), Problem> {
    let slip = names.into_iter().find_map(|nqn| spec::check_nqn(nqn).err());
    slip.map_or(Ok(()), |why| Err(Problem::new(Code::Invalid, why)))
}

/// Returns a subsystem with the changes of a patch.
fn changed(
    world: &ServerSnapshot,
    subsystem: &spec::Subsystem,
    to: &SubsystemPatch,
) -> Result<spec::Subsystem, Problem> {
    let mut config = subsystem.clone();
    if let Some(tenant) = &to.tenant {
        config.tenant = (!tenant.is_empty()).then(|| tenant.clone());
    }
    config.authenticate = to.authenticate.unwrap_or(config.authenticate);
    if to.allow_all {
        config.hosts = None;
    }
    if !to.allow.is_empty() {
        let hosts = config.hosts.get_or_insert_default();
        let new = to.allow.iter().filter(|host| !hosts.contains(host)).cloned();
        let new: Vec<String> = new.collect();
        check(&new)?;
        hosts.extend(new);
    }
    if !to.deny.is_empty() {
        let Some(hosts) = &mut config.hosts else {
            let message = "it lets all hosts in; allow those first that are to be let in, which then \
                           are the only ones";
            return Err(Problem::new(Code::Invalid, message));
        };
        hosts.retain(|host| !to.deny.contains(host));
    }
    if !to.attach.is_empty() || !to.detach.is_empty() {
        let mut listed = exports(world, subsystem);
        for name in &to.detach {
            let number = namespaces::find(world, name)?.number.0;
            listed.retain(|(_, listed)| *listed != number);
        }
        for name in &to.attach {
            let number = namespaces::find(world, name)?.number.0;
            if listed.iter().all(|(_, listed)| *listed != number) {
                listed.push((vacant_nsid(&listed, number), number));
            }
        }
        config = config.with_namespaces(listed);
    }
    Ok(config)
}

fn told(
    seen: &ReportedState,
    subsystem: &spec::Subsystem,
    controllers: &[ControllerInfo],
) -> admin::SubsystemStatus {
    let world = &seen.world;
    let nqn = subsystem.name();
    let name = |number: u16| {
        let space = world.spaces.iter().find(|space| space.number.0 == number);
        space.map_or_else(String::new, |space| space.name.clone())
    };
    let contained = exports(world, subsystem);
    let contained =
        contained.into_iter().map(|(nsid, number)| Contained { nsid, number, name: name(number) });
    let own = controllers
        .iter()
        .filter(|one| one.kind == ControllerKind::Io && one.subsystem.as_str() == nqn)
        .map(|one| Controller {
            cntlid: one.cntlid,
            host: one.host.to_string(),
            listener: seen.number_of(one.port.0),
            queues: one.queues.iter().filter(|queue| queue.id > 0).count(),
        });
    admin::SubsystemStatus {
        hosts: subsystem.hosts.clone(),
        tenant: subsystem.tenant.clone(),
        authenticate: subsystem.authenticate,
        namespaces: contained.collect(),
        ana: told_ana(subsystem).collect(),
        controllers: own.collect(),
        nqn,
    }
}

pub(super) fn told_ana(subsystem: &spec::Subsystem) -> impl Iterator<Item = Ana> {
    subsystem.ana.iter().map(|ana| Ana {
        subsystem: subsystem.name(),
        listener: ana.listener,
        group: ana.group,
        state: ana.state,
    })
}

fn told_host(host: &spec::Host) -> admin::HostStatus {
    admin::HostStatus {
        nqn: host.nqn.clone(),
        tenant: host.tenant.clone(),
        has_key: host.key.is_some(),
        overlaps: host.former_key.is_some(),
        has_controller_key: host.controller_key.is_some(),
        hashes: host.hashes.clone(),
        groups: host.groups.clone(),
        tls_key: match (&host.tls_key, &host.former_tls_key) {
            (None, _) => KeyState::None,
            (Some(_), None) => KeyState::Known,
            (Some(_), Some(_)) => KeyState::Overlaps,
        },
    }
}
