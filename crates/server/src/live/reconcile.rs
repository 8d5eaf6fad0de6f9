//! The transition of an NVMe fabric from one configuration to another, in changes that controllers
//! report to their hosts.

use std::collections::HashMap;

use proto::nvme::{self, Fabric, Namespace, Nqn, Port, Refusal, Subsystem};
use spec::diff;
use wire::nvme::AnaState;

/// Changes a fabric from one configuration to another, and tells the hosts. Both configurations
/// were checked, so a refusal is a bug.
pub(super) fn reconcile(fabric: &Fabric, from: &nvme::Config, to: &nvme::Config) {
    let ports = diff(&from.ports, &to.ports, |port| port.id);
    let hosts = diff(&from.hosts, &to.hosts, |host| host.nqn.clone());
    let subsystems = diff(&from.subsystems, &to.subsystems, |one| one.nqn.clone());
    // What is said of a port is said while it is there.
    let is_new = |port: &&Port| from.ports.iter().all(|known| known.id != port.id);
    to.ports.iter().filter(is_new).for_each(|new| said(fabric.add_port(new.clone())));
    if from.methods != to.methods {
        fabric.set_methods(to.methods.clone());
    }
    hosts.values().flatten().for_each(|host| said(fabric.set_host(host.clone())));
    for subsystem in &from.subsystems {
        match subsystems.get(&subsystem.nqn) {
            None => {}
            Some(Some(now)) => said(change(fabric, subsystem, now)),
            Some(None) => said(fabric.remove_subsystem(&subsystem.nqn)),
        }
    }
    let is_new = |now: &&Subsystem| from.subsystems.iter().all(|known| known.nqn != now.nqn);
    to.subsystems.iter().filter(is_new).for_each(|new| said(fabric.add_subsystem(new.clone())));
    let gone = hosts.iter().filter(|(_, host)| host.is_none());
    gone.for_each(|(nqn, _)| fabric.forget_host(nqn));
    let gone = ports.iter().filter(|(_, port)| port.is_none());
    gone.for_each(|(id, _)| said(fabric.withdraw_port(*id)));
}

fn said(outcome: Result<(), Refusal>) {
    if let Err(refusal) = outcome {
        tracing::error!(%refusal, "a checked change was refused");
    }
}

fn change(fabric: &Fabric, from: &Subsystem, to: &Subsystem) -> Result<(), Refusal> {
    let nqn = &from.nqn;
    if to.hosts != from.hosts {
        fabric.set_hosts(nqn, to.hosts.clone())?;
    }
    if to.tenant != from.tenant {
        fabric.set_subsystem_tenant(nqn, to.tenant)?;
    }
    if to.must_authenticate != from.must_authenticate {
        fabric.set_must_authenticate(nqn, to.must_authenticate)?;
    }
    change_namespaces(fabric, nqn, &from.namespaces, &to.namespaces)?;
    change_access(fabric, from, to)
}

fn change_namespaces(
    fabric: &Fabric,
    nqn: &Nqn,
    from: &[Namespace],
    to: &[Namespace],
) -> Result<(), Refusal> {
    // Another size, and whether it can be written to, is a change of a namespace; anything else makes
    // it another one.
    let is_same = |one: &Namespace, other: &Namespace| {
        Namespace { geometry: other.geometry, ..one.clone() } == *other
    };
    let by_nsid = |all: &'_ [Namespace]| -> HashMap<u32, usize> {
        all.iter().enumerate().map(|(n, one)| (one.nsid, n)).collect()
    };
    let (places_before, places_after) = (by_nsid(from), by_nsid(to));
    for was in from {
        let now = places_after.get(&was.nsid).map(|n| &to[*n]);
        match now.filter(|now| is_same(was, now)) {
            Some(now) if now.geometry == was.geometry => {}
            Some(now) => fabric.set_namespace_geometry(nqn, now.nsid, now.geometry)?,
            None => fabric.remove_namespace(nqn, was.nsid)?,
        }
    }
    let is_new = |now: &&Namespace| {
        let was = places_before.get(&now.nsid).map(|n| &from[*n]);
        was.is_none_or(|was| !is_same(was, now))
    };
    to.iter().filter(is_new).try_for_each(|new| fabric.add_namespace(nqn, new.clone()))
}

fn change_access(fabric: &Fabric, from: &Subsystem, to: &Subsystem) -> Result<(), Refusal> {
    for (port, group, state) in to.ana.iter().filter(|ana| !from.ana.contains(ana)) {
        fabric.set_access(&to.nqn, *port, *group, *state)?;
    }
    let still = |port, group| to.ana.iter().any(|now| (now.0, now.1) == (port, group));
    for (port, group, _) in from.ana.iter().filter(|was| !still(was.0, was.1)) {
        fabric.set_access(&to.nqn, *port, *group, AnaState::OPTIMIZED)?;
    }
    Ok(())
}
