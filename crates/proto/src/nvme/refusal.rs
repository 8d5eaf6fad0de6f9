//! The reasons for refusing a configuration.

use alloc::string::String;
use core::fmt;

use super::nqn::Nqn;

/// The largest ANA group number.
pub const ANA_GROUPS_MAX: u32 = 32;

/// The number of a port. Each listener is one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

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
    /// A number in [`Limits`](super::Limits), or the number of workers, is not supported.
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
