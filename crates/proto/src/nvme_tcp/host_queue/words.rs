//! What a host's queues go by, and what becomes of them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use contract::Fatal;
use wire::nvme::Status;

use crate::nvme::auth::{ProofFailure, Secret};
use crate::nvme_tcp::Digests;

/// Who the host is and what it wants.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The subsystem's qualified name.
    pub subsystem: String,
    /// The host's own qualified name.
    pub host: String,
    /// The host's identifier: the same for one host on all its connections.
    pub host_id: [u8; 16],
    /// The namespace.
    pub nsid: u32,
    /// I/O queues, each a connection of its own; with none the host only looks around.
    pub queues: usize,
    /// Commands in flight on each.
    pub queue_depth: u16,
    /// Digests to ask for.
    pub digests: Digests,
    /// Writes travel in the command's capsule where they fit; otherwise the server asks for them.
    pub in_capsule: bool,
    /// How long the server may hear nothing before it gives the host up. The host says that it lives
    /// twice in that time.
    pub keep_alive: Duration,
    /// The host's key, for servers that ask for authentication.
    pub key: Option<Secret>,
    /// The server's key; with it the server has to prove who it is, too.
    pub controller_key: Option<Secret>,
    /// Secret random bytes, from which each authentication of each attempt draws its own. No other
    /// options have the same.
    pub chance: [u8; 32],
}

/// What the server turned out to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks of 512 bytes of the namespace.
    pub blocks: u64,
    /// Bytes of a block as the namespace counts.
    pub block_bytes: u32,
    /// Largest data of one request in bytes.
    pub request_bytes_max: usize,
    /// Most commands in flight on one queue.
    pub queue_depth_max: u16,
    /// I/O queues that the controller grants.
    pub queues: u16,
    /// Bytes that a write may have to travel in its command's capsule.
    pub(super) capsule_bytes: usize,
    /// The controller's number.
    pub(super) cntlid: u16,
    /// Which attempt it was found in.
    pub(super) attempt: u64,
}

/// Why there is no queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server broke the protocol.
    Protocol(Fatal),
    /// There is no such subsystem at this address.
    NoSubsystem,
    /// The subsystem lets this host not in.
    NotAllowed,
    /// The server asks for authentication and there is no key.
    KeyNeeded,
    /// The host has a controller's key, but the server asks for no authentication.
    NotAuthenticated,
    /// The authentication failed.
    NotProven(ProofFailure),
    /// There is no such namespace; these are there, the first few of them.
    NoNamespace(Vec<u32>),
    /// More I/O queues than the controller grants.
    Queues {
        /// What was asked for.
        wanted: usize,
        /// What it grants.
        granted: u16,
    },
    /// Deeper queues than the controller has.
    Depth {
        /// What was asked for.
        wanted: u16,
        /// What it has.
        most: u16,
    },
    /// The server asks for data in pieces, which this host does not send.
    Pieces,
    /// The server refused a step with this status.
    Step(&'static str, Status),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Protocol(fatal) => write!(f, "the server broke the protocol: {fatal}"),
            Refusal::NoSubsystem => f.write_str("there is no such subsystem at this address"),
            Refusal::NotAllowed => f.write_str("the subsystem does not let this host in"),
            Refusal::KeyNeeded => f.write_str("the server asks this host to authenticate"),
            Refusal::NotAuthenticated => f.write_str("the server does not authenticate"),
            Refusal::NotProven(why) => write!(f, "authentication failed: {why}"),
            Refusal::NoNamespace(there) if there.is_empty() => {
                f.write_str("there is no such namespace, nor any other for this host")
            }
            Refusal::NoNamespace(there) => {
                f.write_str("there is no such namespace; there are:")?;
                there.iter().try_for_each(|number| write!(f, " {number}"))
            }
            Refusal::Queues { wanted, granted } => {
                write!(f, "{wanted} I/O queues are more than the controller grants ({granted})")
            }
            Refusal::Depth { wanted, most } => {
                write!(f, "{wanted} commands on a queue are more than it takes ({most})")
            }
            Refusal::Pieces => f.write_str("the server asks for the data of one write in pieces"),
            Refusal::Step(step, status) => write!(f, "the server refused to {step}: {status}"),
        }
    }
}
