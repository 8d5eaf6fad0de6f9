//! The inputs and outputs of an initiator: options, requests, ended requests and reports.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use contract::{
    Buf, CloseReason, Command, DIRECT_BYTES_MIN, HelloReply, NamespaceId, NamespaceInfo, Notice,
    ProtocolError, Slot, Status, TenantReply, TlsFailure,
};

use crate::Durability;

/// The identifier of a request, valid from its submission until its end is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) Slot);

impl Ticket {
    /// Returns a small number, below [`Options::in_flight_max`], that no other request in flight
    /// has. The caller can use it as an index for its own data.
    pub const fn index(self) -> usize {
        self.0.index()
    }
}

/// A request to submit.
#[derive(Debug)]
pub struct Op {
    /// Index of the connection to use, below [`Options::connections`]; `None` for the connection
    /// with the fewest requests.
    pub link: Option<usize>,
    /// The stream in which barriers order the request (protocol version 2 has 8 per connection).
    pub stream: u8,
    /// The namespace; `None` for the connection's default.
    pub namespace: Option<NamespaceId>,
    /// The command to carry out.
    pub command: Command,
    /// The payload, or room for a read's data. A read without a buffer discards its data.
    pub buf: Option<Buf>,
}

impl Op {
    /// Returns a request of `command` on any connection, with the first stream and the default
    /// namespace.
    pub fn new(command: Command, buf: Option<Buf>) -> Self {
        Op { link: None, stream: 0, namespace: None, command, buf }
    }
}

/// The error of [`Initiator::submit`](crate::Initiator::submit), with the request: the maximum
/// number of requests is in flight.
#[derive(Debug)]
pub struct QueueFull(pub Op);

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// The request's ticket, free again from now on.
    pub ticket: Ticket,
    /// The command of the request.
    pub command: Command,
    /// The status of the request.
    pub status: Status,
    /// The request's buffer, on errors too. After a successful read, its first
    /// [`Command::reply_bytes`] bytes are the data.
    pub buf: Option<Buf>,
}

/// An event of an initiator, except the end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A connection is ready for requests; version 2 gives the server's limits.
    Connected {
        /// Index of the connection, below [`Options::connections`].
        link: usize,
        /// The server's answer to the hello; `None` with version 1.
        hello: Option<HelloReply>,
    },
    /// A connection, or an attempt to make one, ended. The initiator dials again after a pause.
    Lost {
        /// Index of the connection, below [`Options::connections`].
        link: usize,
        /// The reason for the loss.
        why: Loss,
    },
    /// The answer to an info request.
    Info(Ticket, Result<NamespaceInfo, Status>),
    /// The answer to a register, renegotiate or unregister request.
    Tenant(Ticket, Status, TenantReply),
    /// The answer to a ping: `Ok`, or the reason for a missing answer.
    Pong(Ticket, Status),
    /// The server sent a notice.
    Notice {
        /// Index of the connection on which the notice came.
        link: usize,
        /// The notice of the server.
        notice: Notice,
    },
}

/// The reason that a connection was lost or could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The network reported the end.
    Network(CloseReason),
    /// The server answered the hello with this status.
    Refused(Status),
    /// The server broke the protocol.
    Protocol(ProtocolError),
    /// The server has sent nothing for too long although requests were unanswered.
    Silent,
}

impl Loss {
    /// Returns `false` if the network reported that the dial failed, and `true` for every other
    /// loss.
    pub const fn reached(self) -> bool {
        !matches!(self, Loss::Network(CloseReason::Unreachable(_)))
    }

    /// Returns the operating system's error number; `None` if the loss has another reason.
    pub const fn errno(self) -> Option<i32> {
        match self {
            Loss::Network(CloseReason::Reset(errno) | CloseReason::Unreachable(errno)) => {
                Some(errno)
            }
            _ => None,
        }
    }

    /// Returns the explanation of a dial that failed because of the key of packets; `None` for any
    /// other loss.
    pub const fn refused_seal(self) -> Option<&'static str> {
        let Loss::Network(CloseReason::Unreachable(errno)) = self else { return None };
        match errno {
            ENOKEY => Some("the server takes sealed packets alone; name its key by ?key=FILE"),
            EKEYREJECTED => Some("the server has another key than the file that ?key= names"),
            EPROTONOSUPPORT => Some("the server has no key for packets; leave ?key= out"),
            _ => None,
        }
    }
}

/// The Linux error numbers by which the packet transport reports a refusal.
const ENOKEY: i32 = 126;
const EKEYREJECTED: i32 = 129;
const EPROTONOSUPPORT: i32 = 93;

/// Returns advice for a TLS connection that could not be opened; `None` if there is none for this
/// reason.
const fn advice(why: TlsFailure) -> Option<&'static str> {
    match why {
        // Not where a handshake was broken off: whoever is on the way can do that.
        TlsFailure::Plain => {
            Some("does its listener have TLS? without TLS, its address begins with reflex://")
        }
        TlsFailure::Wanted => Some("with TLS, its address begins with reflexs://"),
        TlsFailure::UnknownAuthority => Some("name the authority by ?ca=FILE, in PEM"),
        TlsFailure::WrongName => Some("say by ?name=NAME which one it has"),
        _ => None,
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
            Loss::Network(CloseReason::Insecure(why)) => {
                write!(f, "{why}")?;
                match advice(*why) {
                    Some(advice) => write!(f, "; {advice}"),
                    None => Ok(()),
                }
            }
            Loss::Refused(status) => write!(f, "the server refused the connection: {status}"),
            Loss::Protocol(fatal) => write!(f, "the server broke the protocol: {fatal}"),
            Loss::Silent => f.write_str("the server did not answer in time"),
        }
    }
}

/// A version of protocol `reflex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The original version: reads and writes without status, tenants by port.
    One,
    /// The current version, with all features.
    #[default]
    Two,
}

/// The options of an initiator. Memory for the bounds is allocated at start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of connections to the server.
    pub connections: usize,
    /// Maximum number of requests in flight over all connections, at most 65 536.
    pub in_flight_max: usize,
    /// The version of protocol `reflex` to speak.
    pub version: Version,
    /// The initiator's identifier for its lifetime, so that a new connection waits until the server
    /// has ended the old one's requests. The identifier must differ from every other initiator's.
    /// Zero gives up the fence, and with it the repetition of writes.
    pub client: u128,
    /// If `true`, the initiator asks for checksums of payloads, which need version 2 of the
    /// protocol.
    pub checksums: bool,
    /// Credentials (version 2); empty for none.
    pub token: Box<[u8]>,
    /// The tenant of the connections (version 2); empty for the server's choice.
    pub tenant: Box<str>,
    /// Minimum number of outstanding bytes of a read's data at which they are received directly
    /// into the read's buffer, without a copy.
    pub direct_min: usize,
    /// The first pause before dialling again. The pause doubles with each failure, with jitter.
    pub backoff_min: Duration,
    /// The longest pause before dialling again.
    pub backoff_max: Duration,
    /// Number of connections, and of attempts to make one, that may end without an answer to a
    /// request in between. Then waiting requests end as [`Status::ConnectionLost`]; dialling goes
    /// on.
    pub attempts_max: u32,
    /// Time without a connection after which waiting requests end as [`Status::ConnectionLost`].
    pub outage_max: Duration,
    /// Maximum number of times that a request is sent again after lost connections. After them, it
    /// ends as [`Status::ConnectionLost`].
    pub reissues_max: u8,
    /// Maximum time for a dial and for the hello. Also the maximum time that a server may stay
    /// silent while it owes an answer.
    pub silence_max: Duration,
    /// Seed of the random part of the pauses before the initiator connects again.
    pub seed: u64,
    /// The record of which changes are durable, shared by all initiators of one volume.
    pub durability: Arc<Durability>,
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
            durability: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stranger on the way can break a handshake off, and would have the next one go without TLS.
    #[test]
    fn nobody_is_advised_to_go_without_tls_because_a_handshake_broke_off() {
        let said = |why| Loss::Network(CloseReason::Insecure(why)).to_string();
        assert!(said(TlsFailure::Plain).contains("reflex://"));
        for why in [TlsFailure::BrokenOff, TlsFailure::Late, TlsFailure::BadRecord] {
            assert!(!said(why).contains("reflex://"), "{}", said(why));
        }
    }
}
