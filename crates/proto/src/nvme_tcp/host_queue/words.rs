//! The options of a host's queues, the properties of a server, and the reasons for refusals.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use contract::ProtocolError;
use wire::nvme::Status;

use crate::nvme::auth::{ProofFailure, Secret};
use crate::nvme_tcp::Digests;

/// The identity of a host, the subsystem that it connects to, and its settings.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The subsystem's qualified name.
    pub subsystem: String,
    /// The host's own qualified name.
    pub host: String,
    /// The host's 128-bit identifier, which the host uses on all of its connections.
    pub host_id: [u8; 16],
    /// The identifier of the namespace to use.
    pub nsid: u32,
    /// The number of I/O queues, each a connection of its own. With none, the host only identifies
    /// the server.
    pub queues: usize,
    /// The most commands in flight on each I/O queue.
    pub queue_depth: u16,
    /// The digests of headers and data that the host asks for.
    pub digests: Digests,
    /// `true` if writes travel in the command's capsule if they fit; otherwise the server requests
    /// them.
    pub in_capsule: bool,
    /// The time without commands after which the server ends the controller; zero for no limit. The
    /// host sends Keep Alive twice in that time.
    pub keep_alive: Duration,
    /// The host's key, for servers that require authentication; `None` if the host has no key.
    pub key: Option<Secret>,
    /// The server's key. With it, the server has to authenticate, too; `None` lets it do without.
    pub controller_key: Option<Secret>,
    /// Secret random bytes, from which each authentication of each attempt derives its own. They
    /// must be unique to these options.
    pub chance: [u8; 32],
}

/// The properties of the controller and of the namespace that the host has connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The namespace's size in blocks of 512 bytes.
    pub blocks: u64,
    /// The namespace's block size in bytes.
    pub block_bytes: u32,
    /// The most bytes of data in one request.
    pub request_bytes_max: usize,
    /// The most commands in flight on one queue.
    pub queue_depth_max: u16,
    /// The number of I/O queues that the controller grants.
    pub queues: u16,
    /// The largest write that may travel in its command's capsule, in bytes.
    pub(super) capsule_bytes: usize,
    /// The controller's identifier.
    pub(super) cntlid: u16,
    /// The number of the attempt that created the controller.
    pub(super) attempt: u64,
}

/// The reason why a queue could not be set up, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server broke the protocol.
    Protocol(ProtocolError),
    /// No such subsystem exists at this address.
    NoSubsystem,
    /// The subsystem does not admit this host.
    NotAllowed,
    /// The server requires authentication, and there is no key.
    KeyNeeded,
    /// The host has a controller's key, but the server requires no authentication.
    NotAuthenticated,
    /// The authentication failed.
    NotProven(ProofFailure),
    /// The namespace does not exist. The list has the identifiers of the first existing namespaces.
    NoNamespace(Vec<u32>),
    /// The controller grants fewer I/O queues than the host asked for.
    Queues {
        /// The number of queues that the host asked for.
        wanted: usize,
        /// The number of queues that the controller grants.
        granted: u16,
    },
    /// The controller permits fewer commands in flight on a queue than the host asked for.
    Depth {
        /// The number of commands in flight that the host asked for.
        wanted: u16,
        /// The most commands that the controller permits.
        most: u16,
    },
    /// The server requests data in pieces, which this host does not support.
    Pieces,
    /// The server refused a step of the setup, which the text names, with this status.
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
