//! What goes into an initiator and what comes out of it.

use core::fmt;
use core::time::Duration;

use contract::{
    Buf, CloseReason, Command, DIRECT_BYTES_MIN, Fatal, HelloReply, NamespaceId, NamespaceInfo,
    Notice, Slot, Status, TenantReply,
};

/// Names a request of an initiator from its submission to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) Slot);

impl Ticket {
    /// A small number, below [`Options::in_flight_max`], that no other request in flight has: the
    /// caller's place for what it wants to remember.
    pub const fn index(self) -> usize {
        self.0.index()
    }
}

/// A request.
#[derive(Debug)]
pub struct Op {
    /// The connection to send it on, below [`Options::connections`]; `None` for the one with the
    /// fewest requests.
    pub link: Option<usize>,
    /// The stream that barriers order (protocol version 2 has 8 a connection).
    pub stream: u8,
    /// The namespace; `None` for the connection's default.
    pub namespace: Option<NamespaceId>,
    /// What to do.
    pub command: Command,
    /// The payload, or room for a read's data; a read without a buffer throws its data away.
    pub buf: Option<Buf>,
}

impl Op {
    /// `command` on any connection, first stream, default namespace.
    pub fn new(command: Command, buf: Option<Buf>) -> Self {
        Op { link: None, stream: 0, namespace: None, command, buf }
    }
}

/// A request that was not taken, because as many as the table holds are in flight.
#[derive(Debug)]
pub struct QueueFull(pub Op);

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// Its name, free again from now on.
    pub ticket: Ticket,
    /// What it was.
    pub command: Command,
    /// How it ended.
    pub status: Status,
    /// Its buffer, on errors too; after a successful read the data are its first
    /// [`Command::reply_bytes`] bytes.
    pub buf: Option<Buf>,
}

/// What happened besides the end of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A connection is ready for requests; version 2 gives the server's limits.
    Connected {
        /// Which.
        link: usize,
        /// The limits.
        hello: Option<HelloReply>,
    },
    /// A connection, or an attempt to make one, ended. It is dialled again after a pause.
    Lost {
        /// Which.
        link: usize,
        /// Why.
        why: Loss,
    },
    /// The answer to an info request.
    Info(Ticket, Result<NamespaceInfo, Status>),
    /// The answer to a register, renegotiate or unregister request.
    Tenant(Ticket, Status, TenantReply),
    /// The answer to a ping: `Ok`, or why there is none.
    Pong(Ticket, Status),
    /// The server says something unasked.
    Notice {
        /// On which connection.
        link: usize,
        /// What.
        notice: Notice,
    },
}

/// Why a connection is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The network says so.
    Network(CloseReason),
    /// The server answered the hello with this status.
    Refused(Status),
    /// The server broke the protocol.
    Protocol(Fatal),
    /// The server said nothing for too long while it owed an answer.
    Silent,
}

impl Loss {
    /// Whether there was a connection before.
    pub const fn reached(self) -> bool {
        !matches!(self, Loss::Network(CloseReason::Unreachable(_)))
    }

    /// The system's error number, where there is one.
    pub const fn errno(self) -> Option<i32> {
        match self {
            Loss::Network(CloseReason::Reset(errno) | CloseReason::Unreachable(errno)) => {
                Some(errno)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Network(CloseReason::Peer) => f.write_str("the server closed the connection"),
            Loss::Network(CloseReason::Local) => f.write_str("the connection was closed here"),
            Loss::Network(CloseReason::Reset(errno)) => {
                write!(f, "the connection was reset (error {errno})")
            }
            Loss::Network(CloseReason::Unreachable(errno)) => {
                write!(f, "the server could not be reached (error {errno})")
            }
            Loss::Refused(status) => write!(f, "the server refused the connection: {status}"),
            Loss::Protocol(fatal) => write!(f, "the server broke the protocol: {fatal}"),
            Loss::Silent => f.write_str("the server did not answer in time"),
        }
    }
}

/// The protocol's version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The original's: reads and writes without status, tenants by port.
    One,
    /// Everything.
    #[default]
    Two,
}

/// How an initiator behaves. The bounds are allocated at start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections to the server.
    pub connections: usize,
    /// Requests in flight over all connections, at most 65 536.
    pub in_flight_max: usize,
    /// The protocol's version.
    pub version: Version,
    /// Names this initiator for its lifetime, so that a new connection waits until the server has
    /// ended the old one's requests. Must differ from every other initiator's; zero gives up the
    /// fence, and with it the re-issue of writes.
    pub client: u128,
    /// Ask for checksums of payloads (version 2).
    pub checksums: bool,
    /// Credentials (version 2); empty for none.
    pub token: Box<[u8]>,
    /// The tenant to belong to (version 2); empty for the server's choice.
    pub tenant: Box<str>,
    /// From so many bytes on, what is left of a read's data is received straight into its buffer.
    pub direct_min: usize,
    /// The first pause before dialling again; it doubles with each failure, with jitter.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// Failed attempts in a row after which waiting requests end as
    /// [`Status::ConnectionLost`]. Dialling goes on.
    pub attempts_max: u32,
    /// Time without a connection after which waiting requests end likewise.
    pub outage_max: Duration,
    /// How often a request is sent again before it ends likewise.
    pub reissues_max: u8,
    /// How long a dial and the hello may take, and how long a server may stay silent while it owes
    /// an answer.
    pub silence_max: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connections: 1,
            in_flight_max: 1024,
            version: Version::Two,
            client: 0,
            checksums: false,
            token: Box::default(),
            tenant: Box::default(),
            direct_min: DIRECT_BYTES_MIN,
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            attempts_max: u32::MAX,
            outage_max: Duration::from_secs(30),
            reissues_max: 8,
            silence_max: Duration::from_secs(30),
            seed: 0,
        }
    }
}
