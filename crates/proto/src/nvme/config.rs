//! The configuration of a fabric: ports, subsystems, namespaces, hosts.
//!
//! Deliberately left out: files and their syntax. Names and numbers are checked when they enter the
//! [`Fabric`](super::Fabric).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::auth::{Methods, Secret};
pub use super::nqn::{HostId, NQN_BYTES_MAX, Nqn};
use super::psk::TlsKey;
pub use super::refusal::{ANA_GROUPS_MAX, PortId, Refusal};
use contract::{Geometry, NamespaceId, TenantId};
use wire::nvme::{AddressFamily, AnaState};

/// An address at which subsystems are reached over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's number.
    pub id: PortId,
    /// The address family of `address`.
    pub family: AddressFamily,
    /// The address in the discovery log, as text.
    pub address: String,
    /// The TCP port in the discovery log, as text.
    pub service: String,
    /// The use of TLS by connections to the port.
    pub security: Security,
}

impl Port {
    /// Returns a port without TLS at an IPv4 address, with the service that NVMe/TCP is assigned.
    pub fn plain(id: PortId, address: impl Into<String>) -> Port {
        Port {
            id,
            family: AddressFamily::IPV4,
            address: address.into(),
            service: "4420".to_owned(),
            security: Security::None,
        }
    }
}

/// The use of TLS by connections to a port, as the discovery log states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// The port has no TLS.
    None,
    /// A connection may use TLS.
    Possible,
    /// Every connection must use TLS.
    Required,
}

/// A referral: another discovery subsystem that hosts are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// The number of the referred port; no port of this fabric has it.
    pub id: PortId,
    /// The address family of `address`.
    pub family: AddressFamily,
    /// The address of the other discovery subsystem, as text.
    pub address: String,
    /// The TCP port of the other discovery subsystem, as text.
    pub service: String,
    /// The use of TLS by connections to the other discovery subsystem.
    pub security: Security,
}

/// A set of hosts that see or may use something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All hosts, also those without a name.
    Any,
    /// The hosts whose names are in this list.
    Only(Vec<Nqn>),
}

impl Hosts {
    /// Returns `true` if the set contains this host.
    pub fn contain(&self, host: &Nqn) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Only(list) => list.contains(host),
        }
    }
}

/// The globally unique identifiers of a namespace. They never change, and at least one is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    /// UUID (RFC 9562); zero for none.
    pub uuid: [u8; 16],
    /// Globally unique identifier; zero for none.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zero for none.
    pub eui64: [u8; 8],
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The subsystem's identifier of the namespace, from 1 to [`Limits::namespaces_max`].
    pub nsid: u32,
    /// The server's identifier of the namespace.
    pub id: NamespaceId,
    /// The geometry; `blocks` is the namespace's own number of blocks of 512 bytes.
    pub geometry: Geometry,
    /// The size in bytes of a block as hosts see it: 512 or 4 096.
    pub block_bytes: u32,
    /// The globally unique identifiers of the namespace.
    pub identifiers: Identifiers,
    /// The number of the namespace's ANA group, from 1 to [`ANA_GROUPS_MAX`].
    pub ana_group: u32,
    /// The hosts that see the namespace, among the hosts that the subsystem admits.
    pub hosts: Hosts,
    /// The tenant to charge; `None` means the host's tenant, or else the subsystem's.
    pub tenant: Option<TenantId>,
}

/// A host with a tenant or keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The host's name.
    pub nqn: Nqn,
    /// The tenant to charge if the namespace has none.
    pub tenant: Option<TenantId>,
    /// The host's key. With a key, the host has to authenticate each queue.
    pub key: Option<Secret>,
    /// The host's previous key, which it may still use while operators change keys. Ignored without
    /// `key`.
    pub former_key: Option<Secret>,
    /// The key with which controllers authenticate to this host, if it asks.
    pub controller_key: Option<Secret>,
    /// The methods by which this host may authenticate; `None` means the fabric's.
    pub methods: Option<Methods>,
    /// The key from which those for TLS are derived; `None` if the host cannot use TLS.
    pub tls_key: Option<TlsKey>,
    /// The host's previous key for TLS, which it may still use while operators change keys.
    pub former_tls_key: Option<TlsKey>,
}

/// A subsystem: namespaces under one name, for some hosts, through some ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// The subsystem's name.
    pub nqn: Nqn,
    /// The serial number: at most 20 characters of ASCII.
    pub serial: String,
    /// The hosts that may connect to the subsystem.
    pub hosts: Hosts,
    /// The ports that lead to the subsystem; empty means all ports.
    pub ports: Vec<PortId>,
    /// The namespaces of the subsystem.
    pub namespaces: Vec<Namespace>,
    /// The states of ANA groups through ports. A group is optimized through each port for which
    /// there is no state.
    pub ana: Vec<(PortId, u32, AnaState)>,
    /// The tenant to charge if neither namespace nor host has one.
    pub tenant: Option<TenantId>,
    /// `true` if hosts without a key are refused.
    pub must_authenticate: bool,
}

impl Subsystem {
    /// Returns a subsystem that all hosts may use through all ports, without a key, and whose
    /// namespaces are optimized through each.
    pub fn open_to_all(
        nqn: Nqn,
        serial: impl Into<String>,
        namespaces: Vec<Namespace>,
    ) -> Subsystem {
        Subsystem {
            nqn,
            serial: serial.into(),
            hosts: Hosts::Any,
            ports: Vec::new(),
            namespaces,
            ana: Vec::new(),
            tenant: None,
            must_authenticate: false,
        }
    }
}

/// The upper limits of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most controllers of all subsystems together, including discovery controllers.
    pub controllers_max: u16,
    /// The most subsystems, discovery aside.
    pub subsystems_max: usize,
    /// The largest identifier of a namespace in a subsystem.
    pub namespaces_max: u32,
    /// The most I/O queues of a controller.
    pub io_queues_max: u16,
    /// The most entries of a queue, admin or I/O.
    pub queue_entries_max: u16,
    /// The most bytes of data in a command's capsule: a multiple of 16.
    pub in_capsule_bytes: u32,
    /// The most hosts that may register for the reservation of a namespace.
    pub registrants_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            controllers_max: 4096,
            subsystems_max: 1024,
            namespaces_max: contract::NAMESPACES_MAX as u32,
            io_queues_max: 128,
            queue_entries_max: 128,
            in_capsule_bytes: 8192,
            registrants_max: 256,
        }
    }
}

/// The configuration of a fabric at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of workers that carry connections.
    pub workers: u16,
    /// The model number for hosts: at most 40 characters of ASCII.
    pub model: String,
    /// The firmware revision for hosts: at most 8 characters of ASCII.
    pub firmware: String,
    /// The upper limits of the fabric.
    pub limits: Limits,
    /// The ports of the fabric, at most one with each number.
    pub ports: Vec<Port>,
    /// The subsystems that the fabric serves, without the discovery subsystem.
    pub subsystems: Vec<Subsystem>,
    /// The hosts with a tenant or keys.
    pub hosts: Vec<Host>,
    /// The methods by which hosts without methods of their own may authenticate.
    pub methods: Methods,
    /// Other discovery subsystems, listed in the discovery log.
    pub referrals: Vec<Referral>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            workers: 1,
            model: String::from("nearflash"),
            firmware: String::from("1"),
            limits: Limits::default(),
            ports: Vec::new(),
            subsystems: Vec::new(),
            hosts: Vec::new(),
            methods: Methods::default(),
            referrals: Vec::new(),
        }
    }
}
