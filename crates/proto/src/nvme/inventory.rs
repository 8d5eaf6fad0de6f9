//! The inventory of a fabric: ports, subsystems with their namespaces, hosts, and upper limits.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use contract::{Geometry, NAMESPACES_MAX, NamespaceId};
use wire::nvme::AnaState;

use super::auth::Methods;
use super::config::{
    ANA_GROUPS_MAX, Config, Host, Hosts, Identifiers, Limits, Namespace, Nqn, Port, PortId,
    Referral, Refusal, Subsystem,
};
use super::counts::QueueCounts;
use super::psk::TlsKey;
use super::record::Association;

/// The sizes in bytes of the text fields in Identify Controller.
const SERIAL_BYTES: usize = 20;
const MODEL_BYTES: usize = 40;
const FIRMWARE_BYTES: usize = 8;

/// The most ports of a fabric.
const PORTS_MAX: usize = 256;

/// The most hosts with an entry of their own.
const HOSTS_MAX: usize = 4096;

/// The most hosts of a subsystem whose counts are kept after their controllers end.
const RETIRED_MAX: usize = 4096;

/// A namespace attached to a subsystem.
#[derive(Debug)]
pub(super) struct AttachedNamespace {
    pub(super) config: Namespace,
}

impl AttachedNamespace {
    /// Returns the namespace's size, in blocks as hosts see them.
    pub(super) fn blocks(&self) -> u64 {
        self.config.geometry.blocks >> self.shift()
    }

    /// Returns the base-2 logarithm of the number of 512-byte blocks in one logical block of the
    /// namespace.
    pub(super) fn shift(&self) -> u8 {
        (self.config.block_bytes.trailing_zeros() - contract::BLOCK_BYTES.trailing_zeros()) as u8
    }
}

/// A subsystem that the fabric serves, with its namespaces and counts.
#[derive(Debug)]
pub(super) struct ServedSubsystem {
    pub(super) nqn: Nqn,
    pub(super) serial: String,
    pub(super) hosts: Hosts,
    /// The ports that lead to the subsystem; empty means all ports.
    pub(super) ports: Vec<PortId>,
    pub(super) tenant: Option<contract::TenantId>,
    pub(super) must_authenticate: bool,
    pub(super) namespaces: BTreeMap<u32, AttachedNamespace>,
    /// The globally unique identifiers (such as UUIDs) of all namespaces of the subsystem, each
    /// used once.
    taken: BTreeSet<NamespaceUid>,
    /// The state of an ANA group through a port, with the number of its changes. An absent group is
    /// optimized. Each group has its own count, so that a host learns nothing of groups that it
    /// cannot see.
    ana: BTreeMap<(PortId, u32), (AnaState, u64)>,
    /// The I/O counts of queues that have ended, by host, for at most [`RETIRED_MAX`] hosts.
    retired: BTreeMap<Nqn, QueueCounts>,
}

impl ServedSubsystem {
    /// Returns `true` if the subsystem is reachable through the port.
    pub(super) fn is_at(&self, port: PortId) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// Returns the state of an ANA group through a port, and the number of its changes.
    pub(super) fn access(&self, port: PortId, group: u32) -> (AnaState, u64) {
        self.ana.get(&(port, group)).copied().unwrap_or((AnaState::OPTIMIZED, 0))
    }
}

/// The inventory of a fabric: limits, names, ports, subsystems and hosts.
#[derive(Debug)]
pub(super) struct Inventory {
    limits: Limits,
    model: String,
    firmware: String,
    ports: BTreeMap<PortId, Port>,
    subsystems: BTreeMap<Nqn, ServedSubsystem>,
    hosts: BTreeMap<Nqn, Host>,
    methods: Methods,
    referrals: Vec<Referral>,
}

impl Inventory {
    /// Creates the inventory from a fabric's configuration.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the configuration.
    pub(super) fn new(config: &Config) -> Result<Inventory, Refusal> {
        check_limits(config)?;
        check_text(&config.model, MODEL_BYTES)?;
        check_text(&config.firmware, FIRMWARE_BYTES)?;
        let mut inventory = Inventory {
            limits: config.limits,
            model: config.model.clone(),
            firmware: config.firmware.clone(),
            ports: BTreeMap::new(),
            subsystems: BTreeMap::new(),
            hosts: BTreeMap::new(),
            methods: config.methods.clone(),
            referrals: config.referrals.clone(),
        };
        config.ports.iter().cloned().try_for_each(|port| inventory.add_port(port))?;
        config.hosts.iter().cloned().try_for_each(|host| inventory.set_host(host))?;
        config.subsystems.iter().cloned().try_for_each(|one| inventory.add_subsystem(one))?;
        Ok(inventory)
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the model number for hosts.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Returns the firmware revision for hosts.
    pub(super) fn firmware(&self) -> &str {
        &self.firmware
    }

    /// Returns the methods by which a host may authenticate: its own, or the fabric's.
    pub(super) fn methods_of(&self, nqn: &Nqn) -> &Methods {
        self.host(nqn).and_then(|host| host.methods.as_ref()).unwrap_or(&self.methods)
    }

    /// Replaces the methods by which hosts without methods of their own may authenticate.
    pub(super) fn set_methods(&mut self, methods: Methods) {
        self.methods = methods;
    }

    /// Returns the other discovery subsystems that hosts are referred to.
    pub(super) fn referrals(&self) -> &[Referral] {
        &self.referrals
    }

    /// Returns the ports, ordered by number.
    pub(super) fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.values()
    }

    /// Returns `true` if there is a port of this number.
    pub(super) fn has_port(&self, id: PortId) -> bool {
        self.ports.contains_key(&id)
    }

    /// Adds a port.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the number is taken, a text is invalid, or there are too
    /// many ports.
    pub(super) fn add_port(&mut self, port: Port) -> Result<(), Refusal> {
        if self.ports.contains_key(&port.id) {
            return Err(Refusal::PortExists(port.id));
        }
        room(self.ports.len(), PORTS_MAX)?;
        check_text(&port.address, 256)?;
        check_text(&port.service, 32)?;
        self.ports.insert(port.id, port);
        Ok(())
    }

    /// Removes the port of this number.
    ///
    /// # Errors
    /// Returns [`Refusal::NoPort`] if there is no port of this number.
    pub(super) fn remove_port(&mut self, id: PortId) -> Result<(), Refusal> {
        self.ports.remove(&id).map(drop).ok_or(Refusal::NoPort(id))
    }

    /// Returns a host's entry, with its tenant and keys; `None` if it has no entry.
    pub(super) fn host(&self, nqn: &Nqn) -> Option<&Host> {
        self.hosts.get(nqn)
    }

    /// Returns `true` if a host has a key, and so has to authenticate.
    pub(super) fn has_key(&self, nqn: &Nqn) -> bool {
        self.hosts.get(nqn).is_some_and(|known| known.key.is_some())
    }

    /// Returns the keys from which a host's pre-shared keys of TLS are derived, the current key
    /// first.
    pub(super) fn tls_keys(&self, nqn: &Nqn) -> impl Iterator<Item = &TlsKey> {
        let known = self.hosts.get(nqn);
        known.into_iter().flat_map(|known| known.tls_key.iter().chain(&known.former_tls_key))
    }

    /// Adds or replaces a host's entry, which has its tenant and keys.
    ///
    /// # Errors
    /// Returns [`Refusal::Full`] if there are too many entries.
    pub(super) fn set_host(&mut self, host: Host) -> Result<(), Refusal> {
        if !self.hosts.contains_key(&host.nqn) {
            room(self.hosts.len(), HOSTS_MAX)?;
        }
        self.hosts.insert(host.nqn.clone(), host);
        Ok(())
    }

    /// Removes a host's entry, if it has one.
    pub(super) fn remove_host(&mut self, nqn: &Nqn) {
        self.hosts.remove(nqn);
    }

    /// Returns the subsystems, ordered by name.
    pub(super) fn subsystems(&self) -> impl Iterator<Item = &ServedSubsystem> {
        self.subsystems.values()
    }

    /// Returns the subsystem of this name; `None` if there is none.
    pub(super) fn subsystem(&self, nqn: &Nqn) -> Option<&ServedSubsystem> {
        self.subsystems.get(nqn)
    }

    /// Returns the subsystem of this name for changes.
    ///
    /// # Errors
    /// Returns [`Refusal::NoSubsystem`] if there is no subsystem of this name.
    pub(super) fn subsystem_mut(&mut self, nqn: &Nqn) -> Result<&mut ServedSubsystem, Refusal> {
        self.subsystems.get_mut(nqn).ok_or_else(|| Refusal::NoSubsystem(nqn.clone()))
    }

    /// Adds a subsystem with all of its namespaces, or changes nothing if any part is invalid.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the subsystem.
    pub(super) fn add_subsystem(&mut self, subsystem: Subsystem) -> Result<(), Refusal> {
        let nqn = subsystem.nqn.clone();
        if nqn.is_discovery() || self.subsystems.contains_key(&nqn) {
            return Err(Refusal::SubsystemExists(nqn));
        }
        room(self.subsystems.len(), self.limits.subsystems_max)?;
        check_text(&subsystem.serial, SERIAL_BYTES)?;
        if let Some(port) = subsystem.ports.iter().find(|port| !self.ports.contains_key(port)) {
            return Err(Refusal::NoPort(*port));
        }
        let served = ServedSubsystem {
            nqn: nqn.clone(),
            serial: subsystem.serial,
            hosts: subsystem.hosts,
            ports: subsystem.ports,
            tenant: subsystem.tenant,
            must_authenticate: subsystem.must_authenticate,
            namespaces: BTreeMap::new(),
            taken: BTreeSet::new(),
            ana: BTreeMap::new(),
            retired: BTreeMap::new(),
        };
        self.subsystems.insert(nqn.clone(), served);
        let mut ana = subsystem.ana.into_iter();
        let filled = subsystem
            .namespaces
            .into_iter()
            .try_for_each(|namespace| self.add_namespace(&nqn, namespace))
            .and_then(|()| {
                ana.try_for_each(|(port, group, state)| self.set_access(&nqn, port, group, state))
            });
        if filled.is_err() {
            self.subsystems.remove(&nqn);
        }
        filled
    }

    /// Removes the subsystem of this name, and returns it.
    ///
    /// # Errors
    /// Returns [`Refusal::NoSubsystem`] if there is no subsystem of this name.
    pub(super) fn remove_subsystem(&mut self, nqn: &Nqn) -> Result<ServedSubsystem, Refusal> {
        self.subsystems.remove(nqn).ok_or_else(|| Refusal::NoSubsystem(nqn.clone()))
    }

    /// Returns a namespace of a subsystem for changes.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace.
    pub(super) fn namespace_mut(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
    ) -> Result<&mut AttachedNamespace, Refusal> {
        self.subsystem_mut(nqn)?.namespaces.get_mut(&nsid).ok_or(Refusal::NoNamespace(nsid))
    }

    /// Adds a namespace to a subsystem.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the namespace.
    pub(super) fn add_namespace(&mut self, nqn: &Nqn, namespace: Namespace) -> Result<(), Refusal> {
        let nsid = namespace.nsid;
        if nsid == 0 || nsid > self.limits.namespaces_max {
            return Err(Refusal::NamespaceNumber(nsid));
        }
        check_blocks(&namespace)?;
        check_group(namespace.ana_group)?;
        let subsystem = self.subsystem_mut(nqn)?;
        if subsystem.namespaces.contains_key(&nsid) {
            return Err(Refusal::NamespaceExists(nsid));
        }
        let names = names_of(&namespace.identifiers);
        let is_taken = names.clone().any(|name| subsystem.taken.contains(&name));
        if is_taken || namespace.identifiers == Identifiers::default() {
            return Err(Refusal::Identifiers(nsid));
        }
        subsystem.taken.extend(names);
        subsystem.namespaces.insert(nsid, AttachedNamespace { config: namespace });
        Ok(())
    }

    /// Changes the size or the write protection of a namespace, and returns its hosts.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace, or if it cannot have this size.
    pub(super) fn set_geometry(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        geometry: Geometry,
    ) -> Result<Hosts, Refusal> {
        let attached = self.namespace_mut(nqn, nsid)?;
        let changed = Namespace { geometry, ..attached.config.clone() };
        check_blocks(&changed)?;
        attached.config = changed;
        Ok(attached.config.hosts.clone())
    }

    /// Removes a namespace from a subsystem, and returns it.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such namespace.
    pub(super) fn remove_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
    ) -> Result<AttachedNamespace, Refusal> {
        let subsystem = self.subsystem_mut(nqn)?;
        let gone = subsystem.namespaces.remove(&nsid).ok_or(Refusal::NoNamespace(nsid))?;
        names_of(&gone.config.identifiers).for_each(|name| {
            subsystem.taken.remove(&name);
        });
        Ok(gone)
    }

    /// Sets the state of an ANA group through a port.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such subsystem, port or group, or no such state.
    pub(super) fn set_access(
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
        let subsystem = self.subsystem_mut(nqn)?;
        let (_, changes) = subsystem.access(port, group);
        subsystem.ana.insert((port, group), (access, changes + 1));
        Ok(())
    }

    /// Returns the namespaces that the host of an association may see, ordered by identifier.
    pub(super) fn namespaces_of<'a>(
        &'a self,
        association: &'a Association,
    ) -> impl Iterator<Item = (u32, &'a AttachedNamespace)> {
        let subsystem = self.subsystems.get(&association.subsystem);
        subsystem
            .map(|subsystem| &subsystem.namespaces)
            .into_iter()
            .flatten()
            .filter(|(_, attached)| attached.config.hosts.contain(&association.host))
            .map(|(nsid, attached)| (*nsid, attached))
    }

    /// Returns a namespace by its identifier; `None` if it does not exist, or the association's
    /// host may not see it.
    pub(super) fn namespace_of(
        &self,
        association: &Association,
        nsid: u32,
    ) -> Option<&AttachedNamespace> {
        let attached = self.subsystems.get(&association.subsystem)?.namespaces.get(&nsid)?;
        attached.config.hosts.contain(&association.host).then_some(attached)
    }

    /// Returns the subsystems that export a namespace, each with the namespace's identifier there.
    pub(super) fn exports_of(&self, id: NamespaceId) -> Vec<(Nqn, u32)> {
        let all = self.subsystems.iter().flat_map(|(nqn, served)| {
            served.namespaces.iter().map(move |(nsid, attached)| (nqn, *nsid, attached.config.id))
        });
        all.filter(|(_, _, own)| *own == id).map(|(nqn, nsid, _)| (nqn.clone(), nsid)).collect()
    }

    /// Returns `true` if a subsystem exports the namespace.
    pub(super) fn is_exported(&self, id: NamespaceId) -> bool {
        let mut all = self.subsystems.values().flat_map(|served| served.namespaces.values());
        all.any(|attached| attached.config.id == id)
    }

    /// Adds the counts of a queue or controller that ends to the counts kept for its host.
    pub(super) fn retire(&mut self, association: &Association, sum: QueueCounts) {
        let Some(subsystem) = self.subsystems.get_mut(&association.subsystem) else { return };
        let retired = &mut subsystem.retired;
        if retired.len() < RETIRED_MAX || retired.contains_key(&association.host) {
            retired.entry(association.host.clone()).or_default().add(sum);
        }
    }

    /// Returns the summed counts of the ended queues that an association's host had at its
    /// subsystem.
    pub(super) fn retired_of(&self, association: &Association) -> QueueCounts {
        let served = self.subsystems.get(&association.subsystem);
        let retired = served.and_then(|served| served.retired.get(&association.host));
        retired.copied().unwrap_or_default()
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

/// Checks that a namespace has at least one block, whole blocks as hosts see them, and fewer than
/// 2^60 blocks of 512 bytes.
fn check_blocks(namespace: &Namespace) -> Result<(), Refusal> {
    let good = matches!(namespace.block_bytes, 512 | 4096);
    let per_block = u64::from(namespace.block_bytes / contract::BLOCK_BYTES as u32);
    let blocks = namespace.geometry.blocks;
    if good && blocks > 0 && blocks.is_multiple_of(per_block) && blocks < 1 << 60 {
        return Ok(());
    }
    Err(Refusal::Blocks(namespace.nsid))
}

/// A globally unique identifier of a namespace: its kind (0 UUID, 1 NGUID, 2 EUI-64) and its value.
type NamespaceUid = (u8, u128);

/// Returns the globally unique identifiers that a namespace has. No two namespaces of a subsystem
/// share one.
fn names_of(of: &Identifiers) -> impl Iterator<Item = NamespaceUid> + Clone + use<> {
    let numbers = [u128::from_be_bytes(of.uuid), u128::from_be_bytes(of.nguid)];
    let last = u128::from(u64::from_be_bytes(of.eui64));
    (0..).zip(numbers.into_iter().chain([last])).filter(|(_, number)| *number != 0)
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
        && (1..=NAMESPACES_MAX as u32).contains(&namespaces_max)
        && (1..u16::MAX).contains(&io_queues_max)
        && (32..=4096).contains(&queue_entries_max)
        && in_capsule_bytes % 16 == 0
        && (1..=4096).contains(&registrants_max);
    if good { Ok(()) } else { Err(Refusal::Limits) }
}
