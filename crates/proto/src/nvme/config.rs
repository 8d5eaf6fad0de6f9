//! The configuration of a fabric: ports, subsystems, namespaces, hosts.
//!
//! Deliberately left out: files and their syntax. Names and numbers are checked when they enter the
//! [`Fabric`](super::Fabric).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::auth::{Methods, Secret};
use contract::{Geometry, NamespaceId, TenantId};
use wire::nvme::{AddressFamily, AnaState, DISCOVERY_NQN, NQN_BYTES};

/// The longest qualified name in bytes (Base 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// The largest ANA group number.
pub const ANA_GROUPS_MAX: u32 = 32;

/// The prefix of the name that stands for a host which connects without a name.
const ANONYMOUS: &str = "anonymous:";

/// An NVMe qualified name (Base 4.5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Box<str>);

impl Nqn {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// Returns [`Refusal::Name`] if the text does not begin with `nqn.`, has control characters, or
    /// is too long.
    pub fn new(text: &str) -> Result<Nqn, Refusal> {
        let good = text.starts_with("nqn.")
            && text.len() > "nqn.".len()
            && text.len() <= NQN_BYTES_MAX
            && !text.chars().any(char::is_control);
        if good { Ok(Nqn(text.into())) } else { Err(Refusal::Name(text.into())) }
    }

    /// Returns the name of a host that gives none, and this identifier. No list of hosts has it, so
    /// only subsystems that admit every host admit this one.
    pub fn anonymous(id: HostId) -> Nqn {
        Nqn(format!("{ANONYMOUS}{id:?}").into())
    }

    /// Checks and wraps the name of a host, which may be [`anonymous`](Nqn::anonymous).
    ///
    /// # Errors
    /// Fails like [`new`](Nqn::new).
    pub fn of_host(text: &str) -> Result<Nqn, Refusal> {
        let id = text.strip_prefix(ANONYMOUS);
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if id.is_some_and(is_id) { Ok(Nqn(text.into())) } else { Nqn::new(text) }
    }

    /// Returns the name in a zero-terminated field, if it is valid.
    pub fn from_field(field: &[u8; NQN_BYTES]) -> Option<Nqn> {
        let end = field.iter().position(|byte| *byte == 0)?;
        Nqn::new(core::str::from_utf8(&field[..end]).ok()?).ok()
    }

    /// Returns the name as a zero-terminated field.
    pub fn to_field(&self) -> [u8; NQN_BYTES] {
        let mut field = [0; NQN_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// Returns the name of every discovery subsystem.
    pub fn discovery() -> Nqn {
        Nqn(DISCOVERY_NQN.into())
    }

    /// Returns `true` if this is the name of every discovery subsystem.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A host's identifier, the same on all its connections (Base 5.27.1.25).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The number of a port. Each listener is one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// An address at which subsystems are reached over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's number.
    pub id: PortId,
    /// The address family of `address`.
    pub family: AddressFamily,
    /// The address that hosts are told, as text.
    pub address: String,
    /// The TCP port that hosts are told, as text.
    pub service: String,
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
    /// Other discovery subsystems, which hosts are told.
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

/// The reason for refusing a configuration or a change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The text is no NVMe qualified name.
    Name(String),
    /// The text is too long or not printable ASCII.
    Text(String),
    /// A subsystem of this name exists.
    SubsystemExists(Nqn),
    /// No subsystem has this name.
    NoSubsystem(Nqn),
    /// A port of this number exists.
    PortExists(PortId),
    /// No port has this number.
    NoPort(PortId),
    /// The subsystem has a namespace of this identifier.
    NamespaceExists(u32),
    /// The subsystem has no namespace of this identifier.
    NoNamespace(u32),
    /// The identifier of a namespace is zero or too large.
    NamespaceNumber(u32),
    /// The namespace has no unique identifier, or one that another namespace has.
    Identifiers(u32),
    /// The blocks do not have 512 or 4 096 bytes, or the namespace does not have whole blocks, at
    /// least one.
    Blocks(u32),
    /// No ANA group has this number.
    AnaGroup(u32),
    /// A table is full with this many entries.
    Full(usize),
    /// A number in [`Limits`], or the number of workers, is not supported.
    Limits,
    /// A saved reservation is inconsistent: it has too many or repeated registrants, or its holder
    /// is not one of them.
    Restore,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Name(text) => {
                write!(f, "{text:?} is no NVMe qualified name (nqn.…, at most 223 bytes)")
            }
            Refusal::Text(text) => write!(f, "{text:?} is too long or not printable ASCII"),
            Refusal::SubsystemExists(nqn) => write!(f, "there is a subsystem {nqn} already"),
            Refusal::NoSubsystem(nqn) => write!(f, "there is no subsystem {nqn}"),
            Refusal::PortExists(port) => write!(f, "there is a port {} already", port.0),
            Refusal::NoPort(port) => write!(f, "there is no port {}", port.0),
            Refusal::NamespaceExists(nsid) => write!(f, "there is a namespace {nsid} already"),
            Refusal::NoNamespace(nsid) => write!(f, "there is no namespace {nsid}"),
            Refusal::NamespaceNumber(nsid) => write!(f, "{nsid} cannot number a namespace"),
            Refusal::Identifiers(nsid) => {
                write!(f, "namespace {nsid} has no identifier, or one that another has")
            }
            Refusal::Blocks(nsid) => write!(
                f,
                "namespace {nsid} needs blocks of 512 or 4096 bytes, and a whole number of them"
            ),
            Refusal::AnaGroup(group) => {
                write!(f, "{group} is no ANA group (1 to {ANA_GROUPS_MAX})")
            }
            Refusal::Full(most) => write!(f, "there are {most} already, which is the most"),
            Refusal::Limits => f.write_str("these limits cannot be served"),
            Refusal::Restore => f.write_str("the saved reservations do not fit this fabric"),
        }
    }
}

impl core::error::Error for Refusal {}
