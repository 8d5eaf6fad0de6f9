//! Changes of a fabric. The first change is its configuration; later ones come while hosts are
//! connected, and are announced to them.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use contract::{Geometry, Instant, TenantId};
use wire::nvme::{AnaState, Event};

use super::binding::CloseReason;
use super::config::{
    ANA_GROUPS_MAX, Config, Host, Hosts, Identifiers, Limits, Namespace, Nqn, Port, PortId,
    Referral, Refusal, Subsystem,
};
use super::controller::Kind;
use super::fabric::Fabric;
use super::fences::Withdrawal;
use super::state::{Attached, Served, State};

/// The sizes of text fields in Identify Controller, in bytes.
const SERIAL_BYTES: usize = 20;
const MODEL_BYTES: usize = 40;
const FIRMWARE_BYTES: usize = 8;

/// The most ports of a fabric.
const PORTS_MAX: usize = 256;

/// The most hosts with an entry of their own.
const HOSTS_MAX: usize = 4096;

impl Fabric {
    /// Adds a port.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the number is taken, a text is invalid, or there are too many
    /// ports.
    pub fn add_port(&self, port: Port) -> Result<(), Refusal> {
        self.with(|state| {
            state.add_port(port)?;
            state.discovery_changed(|_| true);
            Ok(())
        })
    }

    /// Removes a port, and keeps the controllers that were reached through it for as long as their
    /// connections last.
    ///
    /// # Errors
    /// Returns [`Refusal::NoPort`] if there is no port of this number.
    pub fn withdraw_port(&self, id: PortId) -> Result<(), Refusal> {
        self.with(|state| {
            state.ports.remove(&id).ok_or(Refusal::NoPort(id))?;
            state.discovery_changed(|_| true);
            Ok(())
        })
    }

    /// Removes a port, and ends the controllers that were reached through it.
    ///
    /// # Errors
    /// Returns [`Refusal::NoPort`] if there is no port of this number.
    pub fn remove_port(&self, id: PortId) -> Result<(), Refusal> {
        self.with(|state| {
            state.ports.remove(&id).ok_or(Refusal::NoPort(id))?;
            let gone: Vec<u16> = state
                .controllers
                .values()
                .filter(|controller| controller.port == id)
                .map(|controller| controller.link.cntlid)
                .collect();
            for cntlid in gone {
                state.remove_controller(cntlid, CloseReason::SubsystemRemoved);
            }
            state.discovery_changed(|_| true);
            Ok(())
        })
    }

    /// Replaces the referrals.
    pub fn set_referrals(&self, referrals: Vec<Referral>) {
        self.with(|state| {
            state.referrals = referrals;
            state.discovery_changed(|_| true);
        });
    }

    /// Adds a subsystem with its namespaces.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the subsystem.
    pub fn add_subsystem(&self, subsystem: Subsystem) -> Result<(), Refusal> {
        self.with(|state| {
            let hosts = subsystem.hosts.clone();
            state.add_subsystem(subsystem)?;
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
            for cntlid in state.controllers_in(nqn) {
                state.remove_controller(cntlid, CloseReason::SubsystemRemoved);
            }
            let gone = state.subsystems.remove(nqn);
            let gone = gone.ok_or_else(|| Refusal::NoSubsystem(nqn.clone()))?;
            state.forget_reservations();
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
            let before = core::mem::replace(&mut state.subsystem(nqn)?.hosts, hosts.clone());
            for cntlid in state.controllers_in(nqn) {
                if !hosts.contain(&state.controllers[&cntlid].host) {
                    state.remove_controller(cntlid, CloseReason::HostRemoved);
                }
            }
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
            state.subsystem(nqn)?.tenant = tenant;
            state.access_changed(nqn);
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
            state.subsystem(nqn)?.must_authenticate = must;
            state.end_strangers();
            Ok(())
        })
    }

    /// Removes a host's entry, with its tenant and keys. Ends the host's controllers in subsystems
    /// that require a key.
    pub fn forget_host(&self, nqn: &Nqn) {
        self.with(|state| {
            state.hosts.remove(nqn);
            let own = state.controllers.values().filter(|controller| controller.host == *nqn);
            own.for_each(|controller| controller.link.change());
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
            state.set_host(host)?;
            let own = state.controllers.values().filter(|controller| controller.host == nqn);
            own.for_each(|controller| controller.link.change());
            state.end_strangers();
            Ok(())
        })
    }

    /// Adds a namespace to a subsystem, and tells the hosts that see it.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the namespace.
    pub fn add_namespace(&self, nqn: &Nqn, namespace: Namespace) -> Result<(), Refusal> {
        self.with(|state| {
            let (nsid, hosts) = (namespace.nsid, namespace.hosts.clone());
            state.add_namespace(nqn, namespace)?;
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
            let attached = state.namespace(nqn, nsid)?;
            let changed = Namespace { geometry, ..attached.config.clone() };
            check_blocks(&changed)?;
            let hosts = changed.hosts.clone();
            attached.config = changed;
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
            let attached = state.namespace(nqn, nsid)?;
            let before = core::mem::replace(&mut attached.config.hosts, hosts.clone());
            state.namespace_changed_if(nqn, nsid, |host| {
                before.contain(host) != hosts.contain(host)
            });
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
            state.namespace(nqn, nsid)?.config.tenant = tenant;
            state.access_changed(nqn);
            Ok(())
        })
    }

    /// Removes a namespace from a subsystem, and tells the hosts that saw it.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace.
    pub fn remove_namespace(&self, nqn: &Nqn, nsid: u32) -> Result<(), Refusal> {
        self.with(|state| {
            let gone = state.subsystem(nqn)?.namespaces.remove(&nsid);
            let gone = gone.ok_or(Refusal::NoNamespace(nsid))?;
            state.namespace_changed(nqn, nsid, &gone.config.hosts);
            state.forget_reservations();
            state.lose(nqn, |host| gone.config.hosts.contain(host));
            Ok(())
        })
    }

    /// Takes the requests that earlier changes have deprived of their right. The caller waits until
    /// they [have ended](Fabric::is_over).
    pub fn take_withdrawal(&self) -> Withdrawal {
        self.with(|state| core::mem::take(&mut state.lost))
    }

    /// Returns `true` once none of the withdrawn requests is at a device.
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
        self.with(|state| {
            state.set_access(nqn, port, group, access)?;
            state.access_changed(nqn);
            let affected: Vec<u16> = state
                .controllers
                .values()
                .filter(|own| own.subsystem == *nqn && own.port == port)
                .filter(|own| state.namespaces_of(own).any(|(_, a)| a.config.ana_group == group))
                .map(|own| own.link.cntlid)
                .collect();
            state.raise(Event::ANA, |controller| affected.contains(&controller.link.cntlid));
            Ok(())
        })
    }
}

impl State {
    /// Creates the state of a fabric from its configuration.
    pub(super) fn configured(config: &Config, now: Instant) -> Result<State, Refusal> {
        check_limits(config)?;
        check_text(&config.model, MODEL_BYTES)?;
        check_text(&config.firmware, FIRMWARE_BYTES)?;
        let mut state = State::new(config, now);
        config.ports.iter().cloned().try_for_each(|port| state.add_port(port))?;
        config.hosts.iter().cloned().try_for_each(|host| state.set_host(host))?;
        config.subsystems.iter().cloned().try_for_each(|one| state.add_subsystem(one))?;
        state.referrals = config.referrals.clone();
        Ok(state)
    }

    fn add_port(&mut self, port: Port) -> Result<(), Refusal> {
        if self.ports.contains_key(&port.id) {
            return Err(Refusal::PortExists(port.id));
        }
        room(self.ports.len(), PORTS_MAX)?;
        check_text(&port.address, 256)?;
        check_text(&port.service, 32)?;
        self.ports.insert(port.id, port);
        Ok(())
    }

    fn set_host(&mut self, host: Host) -> Result<(), Refusal> {
        if !self.hosts.contains_key(&host.nqn) {
            room(self.hosts.len(), HOSTS_MAX)?;
        }
        self.hosts.insert(host.nqn.clone(), host);
        Ok(())
    }

    fn add_subsystem(&mut self, subsystem: Subsystem) -> Result<(), Refusal> {
        let nqn = subsystem.nqn.clone();
        if nqn.is_discovery() || self.subsystems.contains_key(&nqn) {
            return Err(Refusal::SubsystemExists(nqn));
        }
        room(self.subsystems.len(), self.limits.subsystems_max)?;
        check_text(&subsystem.serial, SERIAL_BYTES)?;
        if let Some(port) = subsystem.ports.iter().find(|port| !self.ports.contains_key(port)) {
            return Err(Refusal::NoPort(*port));
        }
        let served = Served {
            nqn: nqn.clone(),
            serial: subsystem.serial,
            hosts: subsystem.hosts,
            ports: subsystem.ports,
            tenant: subsystem.tenant,
            must_authenticate: subsystem.must_authenticate,
            namespaces: BTreeMap::new(),
            ana: BTreeMap::new(),
            retired: BTreeMap::new(),
        };
        self.subsystems.insert(nqn.clone(), served);
        let ana = subsystem.ana.into_iter();
        let filled = subsystem
            .namespaces
            .into_iter()
            .try_for_each(|namespace| self.add_namespace(&nqn, namespace))
            .and_then(|()| {
                let mut ana = ana;
                ana.try_for_each(|(port, group, state)| self.set_access(&nqn, port, group, state))
            });
        if filled.is_err() {
            self.subsystems.remove(&nqn);
        }
        filled
    }

    fn subsystem(&mut self, nqn: &Nqn) -> Result<&mut Served, Refusal> {
        self.subsystems.get_mut(nqn).ok_or_else(|| Refusal::NoSubsystem(nqn.clone()))
    }

    pub(super) fn namespace(&mut self, nqn: &Nqn, nsid: u32) -> Result<&mut Attached, Refusal> {
        self.subsystem(nqn)?.namespaces.get_mut(&nsid).ok_or(Refusal::NoNamespace(nsid))
    }

    fn add_namespace(&mut self, nqn: &Nqn, namespace: Namespace) -> Result<(), Refusal> {
        let nsid = namespace.nsid;
        if nsid == 0 || nsid > self.limits.namespaces_max {
            return Err(Refusal::NamespaceNumber(nsid));
        }
        check_blocks(&namespace)?;
        check_group(namespace.ana_group)?;
        let subsystem = self.subsystem(nqn)?;
        if subsystem.namespaces.contains_key(&nsid) {
            return Err(Refusal::NamespaceExists(nsid));
        }
        let taken = subsystem
            .namespaces
            .values()
            .any(|other| is_same(&other.config.identifiers, &namespace.identifiers));
        if taken || namespace.identifiers == Identifiers::default() {
            return Err(Refusal::Identifiers(nsid));
        }
        subsystem.namespaces.insert(nsid, Attached { config: namespace });
        Ok(())
    }

    fn set_access(
        &mut self,
        nqn: &Nqn,
        port: PortId,
        group: u32,
        access: AnaState,
    ) -> Result<(), Refusal> {
        check_group(group)?;
        if !self.ports.contains_key(&port) {
            return Err(Refusal::NoPort(port));
        }
        if !matches!(access.0, 1..=4 | 15) {
            return Err(Refusal::AnaGroup(group));
        }
        let subsystem = self.subsystem(nqn)?;
        let (_, changes) = subsystem.access(port, group);
        subsystem.ana.insert((port, group), (access, changes + 1));
        Ok(())
    }

    /// Withdraws the rights of these hosts at a subsystem, on behalf of an operator.
    fn lose(&mut self, nqn: &Nqn, whom: impl Fn(&Nqn) -> bool) {
        let mut lost = core::mem::take(&mut self.lost);
        self.withdraw(nqn, |host| whom(&host.host), &mut lost);
        lost.is_over();
        self.lost = lost;
    }

    /// Ends controllers in subsystems that require a key, if their host has no key or had none when
    /// it connected. Such a host may be anybody.
    fn end_strangers(&mut self) {
        let strangers: Vec<u16> = self
            .controllers
            .values()
            .filter(|own| {
                let served = self.subsystems.get(&own.subsystem);
                let known = self.hosts.get(&own.host);
                let was_let_in = own.queues.values().any(|record| !record.must_prove);
                served.is_some_and(|served| served.must_authenticate)
                    && (was_let_in || known.is_none_or(|host| host.key.is_none()))
            })
            .map(|own| own.link.cntlid)
            .collect();
        for cntlid in strangers {
            self.remove_controller(cntlid, CloseReason::HostRemoved);
        }
    }

    /// Calls [`State::namespace_changed`] for the hosts that `whom` selects.
    fn namespace_changed_if(&mut self, nqn: &Nqn, nsid: u32, whom: impl Fn(&Nqn) -> bool) {
        let told: Vec<Nqn> = self
            .controllers
            .values()
            .filter(|own| own.kind == Kind::Io && own.subsystem == *nqn && whom(&own.host))
            .map(|own| own.host.clone())
            .collect();
        self.namespace_changed(nqn, nsid, &Hosts::Only(told));
    }
}

fn room(len: usize, most: usize) -> Result<(), Refusal> {
    if len < most { Ok(()) } else { Err(Refusal::Full(most)) }
}

fn check_text(text: &str, most: usize) -> Result<(), Refusal> {
    let good = text.len() <= most && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if good { Ok(()) } else { Err(Refusal::Text(text.to_string())) }
}

fn check_group(group: u32) -> Result<(), Refusal> {
    match group {
        1..=ANA_GROUPS_MAX => Ok(()),
        _ => Err(Refusal::AnaGroup(group)),
    }
}

/// Checks that a namespace has whole blocks of its host's size, and no more than 64 bits can count.
fn check_blocks(namespace: &Namespace) -> Result<(), Refusal> {
    let good = matches!(namespace.block_bytes, 512 | 4096);
    let per_block = u64::from(namespace.block_bytes / contract::BLOCK_BYTES as u32);
    let blocks = namespace.geometry.blocks;
    if good && blocks > 0 && blocks.is_multiple_of(per_block) && blocks < 1 << 60 {
        return Ok(());
    }
    Err(Refusal::Blocks(namespace.nsid))
}

/// Returns `true` if two namespaces share an identifier.
fn is_same(one: &Identifiers, other: &Identifiers) -> bool {
    let is = |a: &[u8], b: &[u8]| a == b && a.iter().any(|byte| *byte != 0);
    is(&one.uuid, &other.uuid) || is(&one.nguid, &other.nguid) || is(&one.eui64, &other.eui64)
}

fn check_limits(config: &Config) -> Result<(), Refusal> {
    let Limits {
        controllers_max,
        subsystems_max,
        namespaces_max,
        io_queues_max,
        queue_entries_max,
        in_capsule_bytes,
        registrants_max,
    } = config.limits;
    let good = config.workers > 0
        && (1..0xfff0).contains(&controllers_max)
        && subsystems_max > 0
        && (1..=1024).contains(&namespaces_max)
        && (1..u16::MAX).contains(&io_queues_max)
        && (32..=4096).contains(&queue_entries_max)
        && in_capsule_bytes % 16 == 0
        && (1..=4096).contains(&registrants_max);
    if good { Ok(()) } else { Err(Refusal::Limits) }
}
