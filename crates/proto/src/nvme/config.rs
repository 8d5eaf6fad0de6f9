//! What a fabric is made of: ports, subsystems, namespaces, hosts.
//!
//! What is deliberately not here: files and their syntax. Names and numbers are checked where they
//! enter the [`Fabric`](super::Fabric).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::auth::{Methods, Secret};
use contract::{Geometry, NamespaceId, TenantId};
use wire::nvme::{AddressFamily, AnaState, DISCOVERY_NQN, NQN_BYTES};

/// The longest qualified name in bytes (Base 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// The largest ANA group's number.
pub const ANA_GROUPS_MAX: u32 = 32;

/// An NVMe qualified name (Base 4.5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Box<str>);

impl Nqn {
    /// The name, if it can be one.
    ///
    /// # Errors
    /// [`Refusal::Name`]: it does not begin with `nqn.`, has control characters, or is too long.
    pub fn new(text: &str) -> Result<Nqn, Refusal> {
        let good = text.starts_with("nqn.")
            && text.len() > "nqn.".len()
            && text.len() <= NQN_BYTES_MAX
            && !text.chars().any(char::is_control);
        if good { Ok(Nqn(text.into())) } else { Err(Refusal::Name(text.into())) }
    }

    /// The name in a zero-terminated field.
    pub fn from_field(field: &[u8; NQN_BYTES]) -> Option<Nqn> {
        let end = field.iter().position(|byte| *byte == 0)?;
        Nqn::new(core::str::from_utf8(&field[..end]).ok()?).ok()
    }

    /// The zero-terminated field.
    pub fn to_field(&self) -> [u8; NQN_BYTES] {
        let mut field = [0; NQN_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    /// The name of every discovery subsystem.
    pub fn discovery() -> Nqn {
        Nqn(DISCOVERY_NQN.into())
    }

    /// Whether it is the name of every discovery subsystem.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// The text.
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

/// A host's identifier: the same on all its connections (Base 5.27.1.25).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Names a port. A listener is one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// An address at which subsystems are reached over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub id: PortId,
    /// Form of `address`.
    pub family: AddressFamily,
    /// The address that hosts are told, as text.
    pub address: String,
    /// The TCP port that hosts are told, as text.
    pub service: String,
}

/// Another discovery subsystem that hosts are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Its port's name; no port of our own.
    pub id: PortId,
    /// Form of `address`.
    pub family: AddressFamily,
    /// Its address, as text.
    pub address: String,
    /// Its TCP port, as text.
    pub service: String,
}

/// Which hosts something is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All.
    Any,
    /// These.
    Only(Vec<Nqn>),
}

impl Hosts {
    /// Whether this host is among them.
    pub fn contain(&self, host: &Nqn) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Only(list) => list.contains(host),
        }
    }
}

/// Identifiers of a namespace, told to hosts; the same forever. At least one is not zero.
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
    /// The subsystem's name for it, from 1 to [`Limits::namespaces_max`].
    pub nsid: u32,
    /// The server's name for it.
    pub id: NamespaceId,
    /// What it is; `blocks` is the namespace's own number of blocks of 512 bytes.
    pub geometry: Geometry,
    /// Bytes of a block as hosts see it: 512 or 4 096.
    pub block_bytes: u32,
    /// Its identifiers.
    pub identifiers: Identifiers,
    /// Its ANA group, from 1 to [`ANA_GROUPS_MAX`].
    pub ana_group: u32,
    /// Which of the subsystem's hosts see it.
    pub hosts: Hosts,
    /// Whom its I/O is charged to; `None`: the host's or the subsystem's tenant.
    pub tenant: Option<TenantId>,
}

/// A host that the fabric knows something about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub nqn: Nqn,
    /// Whom its I/O is charged to, where the namespace does not say.
    pub tenant: Option<TenantId>,
    /// Its key: with one, it has to prove on each queue that it has it.
    pub key: Option<Secret>,
    /// The key by which controllers prove to this host who they are, if it asks.
    pub controller_key: Option<Secret>,
}

/// A subsystem: namespaces under a name, for some hosts, through some ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number: at most 20 characters of ASCII.
    pub serial: String,
    /// Which hosts may connect.
    pub hosts: Hosts,
    /// The ports that lead to it; empty: all.
    pub ports: Vec<PortId>,
    /// Its namespaces.
    pub namespaces: Vec<Namespace>,
    /// How groups of namespaces are reached through ports; where nothing is said: optimized.
    pub ana: Vec<(PortId, u32, AnaState)>,
    /// Whom I/O is charged to, where neither namespace nor host say.
    pub tenant: Option<TenantId>,
    /// Whether hosts without a key are refused.
    pub must_authenticate: bool,
}

/// The most of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Controllers of all subsystems, discovery included.
    pub controllers_max: u16,
    /// Subsystems.
    pub subsystems_max: usize,
    /// Largest identifier of a namespace.
    pub namespaces_max: u32,
    /// I/O queues of a controller.
    pub io_queues_max: u16,
    /// Entries of a queue.
    pub queue_entries_max: u16,
    /// Bytes of data that a command's capsule may carry: a multiple of 16.
    pub in_capsule_bytes: u32,
    /// Hosts that may register for reservations of a namespace.
    pub registrants_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            controllers_max: 4096,
            subsystems_max: 1024,
            namespaces_max: 1024,
            io_queues_max: 128,
            queue_entries_max: 128,
            in_capsule_bytes: 8192,
            registrants_max: 256,
        }
    }
}

/// A fabric at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Workers that carry connections.
    pub workers: u16,
    /// Model that hosts are told: at most 40 characters of ASCII.
    pub model: String,
    /// Revision that hosts are told: at most 8 characters of ASCII.
    pub firmware: String,
    /// The most of everything.
    pub limits: Limits,
    /// The ports.
    pub ports: Vec<Port>,
    /// The subsystems.
    pub subsystems: Vec<Subsystem>,
    /// Hosts of which more is known than their name.
    pub hosts: Vec<Host>,
    /// How they may prove who they are.
    pub methods: Methods,
    /// Other discovery subsystems.
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

/// Why a configuration or a change of it is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// This is no qualified name.
    Name(String),
    /// This text is too long or not printable ASCII.
    Text(String),
    /// There is a subsystem of this name.
    SubsystemExists(Nqn),
    /// There is no subsystem of this name.
    NoSubsystem(Nqn),
    /// There is a port of this number.
    PortExists(PortId),
    /// There is no port of this number.
    NoPort(PortId),
    /// The subsystem has a namespace of this number.
    NamespaceExists(u32),
    /// The subsystem has no namespace of this number.
    NoNamespace(u32),
    /// The number is zero or too large.
    NamespaceNumber(u32),
    /// The namespace has no identifier, or one that another namespace has.
    Identifiers(u32),
    /// Blocks have 512 or 4 096 bytes, and a namespace has whole ones, at least one.
    Blocks(u32),
    /// No ANA group has this number.
    AnaGroup(u32),
    /// A table of this many is full.
    Full(usize),
    /// A number of [`Limits`] or of workers cannot be served.
    Limits,
    /// What is to be restored contradicts itself or names what does not exist.
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
