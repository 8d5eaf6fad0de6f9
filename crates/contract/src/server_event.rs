//! Rare events of a server or of a connection, which are counted one by one, and which operators
//! alarm on.
//!
//! Workers count the causes of ended connections ([`WorkerMeter`](crate::WorkerMeter)). Events of
//! the process are counted in one table of the process. Their sources (accept loops, the log,
//! reloads) exist before the control plane, or know nothing of it. No request on its regular path
//! is counted here.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::TlsFailure;

/// The cause of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The peer closed the connection.
    Peer,
    /// The peer reset the connection, or the network failed.
    Network,
    /// The peer broke the protocol.
    Protocol,
    /// A request failed, and its protocol cannot report that (version 1 of `reflex`).
    Unsayable,
    /// The protocol ended the connection. For example, an NVMe controller was shut down, missed its
    /// keep-alives, was not admitted or no longer exists.
    Session,
    /// The peer left a message or its credentials incomplete, or replies unread, for too long.
    Stuck,
    /// No access rule admits the peer, or the tenant that the peer has named does not exist.
    NotLetIn,
    /// The server, the worker or the listener was drained.
    Drained,
    /// An operator ordered the end of the connection.
    Ordered,
    /// The client has a newer connection.
    Superseded,
    /// Too much data was kept for stopped connections already (`limits.carried`).
    BackPressure,
}

impl EndCause {
    /// All causes of a connection's end, in the order of the enumeration.
    pub const ALL: [EndCause; 11] = [
        EndCause::Peer,
        EndCause::Network,
        EndCause::Protocol,
        EndCause::Unsayable,
        EndCause::Session,
        EndCause::Stuck,
        EndCause::NotLetIn,
        EndCause::Drained,
        EndCause::Ordered,
        EndCause::Superseded,
        EndCause::BackPressure,
    ];

    /// Returns the cause's name in metrics.
    pub fn word(self) -> &'static str {
        match self {
            EndCause::Peer => "peer",
            EndCause::Network => "network",
            EndCause::Protocol => "protocol_error",
            EndCause::Unsayable => "failed_request",
            EndCause::Session => "session",
            EndCause::Stuck => "stuck",
            EndCause::NotLetIn => "not_let_in",
            EndCause::Drained => "drained",
            EndCause::Ordered => "ordered",
            EndCause::Superseded => "superseded",
            EndCause::BackPressure => "back_pressure",
        }
    }
}

/// The type of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The token of a client of protocol `reflex`.
    Token,
    /// The key of an NVMe host.
    Key,
    /// The token of an operator, by the admin API.
    AdminToken,
}

impl Credential {
    pub(crate) fn failed(self) -> ServerEvent {
        match self {
            Credential::Token => ServerEvent::TokenFailed,
            Credential::Key => ServerEvent::KeyFailed,
            Credential::AdminToken => ServerEvent::AdminTokenFailed,
        }
    }

    pub(crate) fn delayed(self) -> ServerEvent {
        match self {
            Credential::Token => ServerEvent::TokenDelayed,
            Credential::Key => ServerEvent::KeyDelayed,
            Credential::AdminToken => ServerEvent::AdminTokenDelayed,
        }
    }
}

/// A rare event of the server's process, counted since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A connection was refused: the maximum number of connections is reached.
    RefusedFull,
    /// A connection was refused: its listener is drained.
    RefusedDrained,
    /// A client's token was wrong.
    TokenFailed,
    /// A client's token was checked late, because of wrong tokens from its address.
    TokenDelayed,
    /// An NVMe host failed to authenticate, or broke off.
    KeyFailed,
    /// An NVMe host's proof was checked late.
    KeyDelayed,
    /// An operator's token was wrong.
    AdminTokenFailed,
    /// A caller with a wrong operator token was asked to retry later.
    AdminTokenDelayed,
    /// A record was written to the audit log.
    AuditKept,
    /// A record could not be written to the audit log in time.
    AuditOwed,
    /// An event was omitted from the log.
    LogLeftOut,
    /// The configuration was read again.
    ReloadDone,
    /// The configuration was read again, and rejected as a whole.
    ReloadRefused,
    /// The process has taken over connections and listeners from another process.
    UpgradeDone,
    /// Another process began to take over from this one, and the take-over failed.
    UpgradeFailed,
    /// A TLS handshake ended well.
    TlsDone,
    /// A connection did not speak TLS, which its listener requires.
    TlsPlain,
    /// A TLS handshake was broken off.
    TlsBrokenOff,
    /// A TLS handshake did not end in time.
    TlsLate,
    /// A TLS handshake was ended because too many ran at the same time.
    TlsCrowd,
    /// A TLS handshake failed because of a certificate.
    TlsCertificate,
    /// A TLS handshake failed because of a pre-shared key.
    TlsKey,
    /// A TLS handshake failed for another reason.
    TlsProtocol,
}

/// Number of events in the enumeration.
const KINDS: usize = ServerEvent::TlsProtocol as usize + 1;

static COUNTS: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

impl ServerEvent {
    /// The failures of TLS handshakes, in the order of [`TlsFailure::WORDS`].
    pub const INSECURE: [ServerEvent; TlsFailure::WORDS.len()] = [
        ServerEvent::TlsPlain,
        ServerEvent::TlsBrokenOff,
        ServerEvent::TlsLate,
        ServerEvent::TlsCrowd,
        ServerEvent::TlsCertificate,
        ServerEvent::TlsKey,
        ServerEvent::TlsProtocol,
    ];

    /// Returns the event of a TLS handshake that failed for this reason.
    pub fn insecure(why: TlsFailure) -> ServerEvent {
        ServerEvent::INSECURE[why.class()]
    }

    /// Counts the event once in the table of the process.
    #[cold]
    pub fn count(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the event has occurred in this process.
    pub fn so_far(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_for_itself() {
        let before = (ServerEvent::ReloadDone.so_far(), ServerEvent::UpgradeFailed.so_far());
        ServerEvent::UpgradeFailed.count();
        ServerEvent::UpgradeFailed.count();
        assert_eq!(ServerEvent::ReloadDone.so_far(), before.0);
        assert_eq!(ServerEvent::UpgradeFailed.so_far(), before.1 + 2);
    }

    #[test]
    fn ends_are_in_their_order_and_have_words_of_their_own() {
        for (n, end) in EndCause::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, n);
            assert!(EndCause::ALL[..n].iter().all(|other| other.word() != end.word()));
        }
    }
}
