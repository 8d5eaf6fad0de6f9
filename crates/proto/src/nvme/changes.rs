//! Changes of a fabric. The first change is its configuration; later ones come while hosts are
//! connected, and are announced to them.

use contract::{Geometry, TenantId};
use wire::nvme::AnaState;

use super::auth::Methods;
use super::binding::CloseReason;
use super::config::{Host, Hosts, Namespace, Nqn, Port, PortId, Refusal, Subsystem};
use super::controller::Controller;
use super::fabric::Fabric;
use super::fences::Withdrawal;

impl Fabric {
    /// Adds a port, and tells all hosts that the discovery log has changed.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the number is taken, a text is invalid, or there are too many
    /// ports.
    pub fn add_port(&self, port: Port) -> Result<(), Refusal> {
        self.with(|state| {
            state.inventory.add_port(port)?;
            state.discovery_changed(|_| true);
            Ok(())
        })
    }

    /// Removes a port. Controllers that hosts reached through the port stay for as long as their
    /// connections last.
    ///
    /// # Errors
    /// Returns [`Refusal::NoPort`] if there is no port of this number.
    pub fn withdraw_port(&self, id: PortId) -> Result<(), Refusal> {
        self.with(|state| {
            state.inventory.remove_port(id)?;
            state.discovery_changed(|_| true);
            Ok(())
        })
    }

    /// Adds a subsystem with its namespaces.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the subsystem.
    pub fn add_subsystem(&self, subsystem: Subsystem) -> Result<(), Refusal> {
        self.with(|state| {
            let hosts = subsystem.hosts.clone();
            state.inventory.add_subsystem(subsystem)?;
            state.discovery_changed(|host| hosts.contain(host));
            Ok(())
        })
    }

    /// Removes a subsystem, and ends its controllers.
    ///
    /// # Errors
    /// Returns [`Refusal::NoSubsystem`] if there is no subsystem of this name.
    pub fn remove_subsystem(&self, nqn: &Nqn) -> Result<(), Refusal> {
        self.with(|state| {
            let is_its = |own: &Controller| own.association.subsystem == *nqn;
            state.remove_controllers(CloseReason::SubsystemRemoved, is_its);
            let gone = state.inventory.remove_subsystem(nqn)?;
            state.end_reservations();
            state.discovery_changed(|host| gone.hosts.contain(host));
            Ok(())
        })
    }

    /// Replaces the list of hosts that a subsystem admits, and ends the controllers of other hosts.
    ///
    /// # Errors
    /// Returns [`Refusal::NoSubsystem`] if there is no subsystem of this name.
    pub fn set_hosts(&self, nqn: &Nqn, hosts: Hosts) -> Result<(), Refusal> {
        self.with(|state| {
            let subsystem = state.inventory.subsystem_mut(nqn)?;
            let before = core::mem::replace(&mut subsystem.hosts, hosts.clone());
            state.remove_controllers(CloseReason::HostRemoved, |own| {
                own.association.subsystem == *nqn && !hosts.contain(&own.association.host)
            });
            state.discovery_changed(|host| before.contain(host) != hosts.contain(host));
            Ok(())
        })
    }

    /// Sets the tenant that is charged for a subsystem's I/O if neither namespace nor host has a
    /// tenant.
    ///
    /// # Errors
    /// Returns [`Refusal::NoSubsystem`] if there is no subsystem of this name.
    pub fn set_subsystem_tenant(&self, nqn: &Nqn, tenant: Option<TenantId>) -> Result<(), Refusal> {
        self.with(|state| {
            state.inventory.subsystem_mut(nqn)?.tenant = tenant;
            state.controllers.access_changed(nqn);
            Ok(())
        })
    }

    /// Sets whether a subsystem refuses hosts without a key. Setting it ends the controllers of
    /// such hosts, and those that were created before their host had a key.
    ///
    /// # Errors
    /// Returns [`Refusal::NoSubsystem`] if there is no subsystem of this name.
    pub fn set_must_authenticate(&self, nqn: &Nqn, must: bool) -> Result<(), Refusal> {
        self.with(|state| {
            state.inventory.subsystem_mut(nqn)?.must_authenticate = must;
            state.end_strangers();
            Ok(())
        })
    }

    /// Removes a host's entry, with its tenant and keys. Ends the host's controllers in subsystems
    /// that require a key.
    pub fn forget_host(&self, nqn: &Nqn) {
        self.with(|state| {
            state.inventory.remove_host(nqn);
            state.controllers.host_changed(nqn);
            state.end_strangers();
        });
    }

    /// Adds or replaces a host's entry. A changed key is required from the host's next queue on.
    ///
    /// # Errors
    /// Returns [`Refusal::Full`] if there are too many entries.
    pub fn set_host(&self, host: Host) -> Result<(), Refusal> {
        self.with(|state| {
            let nqn = host.nqn.clone();
            state.inventory.set_host(host)?;
            state.controllers.host_changed(&nqn);
            state.end_strangers();
            Ok(())
        })
    }

    /// Replaces the methods of hosts that have none of their own, from a host's next authentication on.
    pub fn set_methods(&self, methods: Methods) {
        self.with(|state| state.inventory.set_methods(methods));
    }

    /// Adds a namespace to a subsystem, and tells the hosts that see it.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the namespace.
    pub fn add_namespace(&self, nqn: &Nqn, namespace: Namespace) -> Result<(), Refusal> {
        self.with(|state| {
            let (nsid, hosts) = (namespace.nsid, namespace.hosts.clone());
            state.inventory.add_namespace(nqn, namespace)?;
            state.namespace_changed(nqn, nsid, &hosts);
            Ok(())
        })
    }

    /// Changes the size or the write protection of a namespace, and tells the hosts that see it.
    /// Refusing a write that a queue has passed on earlier is up to its worker.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace, or if it cannot have this size.
    pub fn set_namespace_geometry(
        &self,
        nqn: &Nqn,
        nsid: u32,
        geometry: Geometry,
    ) -> Result<(), Refusal> {
        self.with(|state| {
            let hosts = state.inventory.set_geometry(nqn, nsid, geometry)?;
            state.namespace_changed(nqn, nsid, &hosts);
            Ok(())
        })
    }

    /// Replaces the list of hosts that see a namespace, and tells the hosts that gain or lose it.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace.
    pub fn set_namespace_hosts(&self, nqn: &Nqn, nsid: u32, hosts: Hosts) -> Result<(), Refusal> {
        self.with(|state| {
            let attached = state.inventory.namespace_mut(nqn, nsid)?;
            let before = core::mem::replace(&mut attached.config.hosts, hosts.clone());
            let is_told = |host: &Nqn| before.contain(host) != hosts.contain(host);
            let own = state.controllers.of_subsystem(nqn);
            let own = own.map(|own| own.association.host.clone()).filter(is_told);
            let told = Hosts::Only(own.collect());
            state.namespace_changed(nqn, nsid, &told);
            state.lose(nqn, |host| before.contain(host) && !hosts.contain(host));
            Ok(())
        })
    }

    /// Sets the tenant that a namespace's I/O is charged to.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace.
    pub fn set_namespace_tenant(
        &self,
        nqn: &Nqn,
        nsid: u32,
        tenant: Option<TenantId>,
    ) -> Result<(), Refusal> {
        self.with(|state| {
            state.inventory.namespace_mut(nqn, nsid)?.config.tenant = tenant;
            state.controllers.access_changed(nqn);
            Ok(())
        })
    }

    /// Removes a namespace from a subsystem, and tells the hosts that saw it.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace.
    pub fn remove_namespace(&self, nqn: &Nqn, nsid: u32) -> Result<(), Refusal> {
        self.with(|state| {
            let gone = state.inventory.remove_namespace(nqn, nsid)?;
            state.controllers.namespace_removed(nqn, nsid, &gone.config.hosts);
            state.namespace_changed(nqn, nsid, &gone.config.hosts);
            state.end_reservations();
            state.lose(nqn, |host| gone.config.hosts.contain(host));
            Ok(())
        })
    }

    /// Takes the requests of hosts whose rights earlier changes have reduced. The caller waits
    /// until these requests [have ended](Fabric::is_over).
    pub fn take_withdrawal(&self) -> Withdrawal {
        self.with(|state| state.take_lost())
    }

    /// Returns `true` once none of the withdrawal's requests is at a device.
    pub fn is_over(&self, withdrawal: &mut Withdrawal) -> bool {
        self.with(|_| withdrawal.is_over())
    }

    /// Sets the state of an ANA group through a port.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such subsystem, port or group, or no such state.
    pub fn set_access(
        &self,
        nqn: &Nqn,
        port: PortId,
        group: u32,
        access: AnaState,
    ) -> Result<(), Refusal> {
        self.with(|state| state.set_access(nqn, port, group, access))
    }
}
