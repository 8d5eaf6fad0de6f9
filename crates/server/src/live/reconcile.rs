//! From one fabric to another, by the changes that controllers and their hosts are told of.

use proto::nvme::{self, Fabric, Host, Namespace, Nqn, Port, Refusal, Subsystem};
use wire::nvme::AnaState;

/// Makes a fabric that is as one configuration says what another says, and tells the hosts. Both
/// were checked, so what is refused all the same is a mistake of ours.
pub(super) fn reconcile(fabric: &Fabric, from: &nvme::Config, to: &nvme::Config) {
    // What is said of a port is said while it is there.
    let is_new = |port: &&Port| from.ports.iter().all(|known| known.id != port.id);
    to.ports.iter().filter(is_new).for_each(|new| said(fabric.add_port(new.clone())));
    for host in &to.hosts {
        if !from.hosts.contains(host) {
            said(fabric.set_host(host.clone()));
        }
    }
    for subsystem in &from.subsystems {
        match to.subsystems.iter().find(|now| now.nqn == subsystem.nqn) {
            Some(now) if now == subsystem => {}
            Some(now) => said(change(fabric, subsystem, now)),
            None => said(fabric.remove_subsystem(&subsystem.nqn)),
        }
    }
    let is_new = |now: &&Subsystem| from.subsystems.iter().all(|known| known.nqn != now.nqn);
    to.subsystems.iter().filter(is_new).for_each(|new| said(fabric.add_subsystem(new.clone())));
    let is_gone = |was: &&Host| to.hosts.iter().all(|known| known.nqn != was.nqn);
    from.hosts.iter().filter(is_gone).for_each(|gone| fabric.forget_host(&gone.nqn));
    let is_gone = |was: &&Port| to.ports.iter().all(|known| known.id != was.id);
    from.ports.iter().filter(is_gone).for_each(|gone| said(fabric.withdraw_port(gone.id)));
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
    for was in from {
        match to.iter().find(|now| is_same(was, now)) {
            Some(now) if now.geometry == was.geometry => {}
            Some(now) => fabric.set_namespace_geometry(nqn, now.nsid, now.geometry)?,
            None => fabric.remove_namespace(nqn, was.nsid)?,
        }
    }
    let is_new = |now: &&Namespace| !from.iter().any(|was| is_same(was, now));
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
