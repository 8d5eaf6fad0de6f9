//! Rare events of a server or of a connection, which are counted one by one, and which operators
//! alarm on.
//!
//! Workers count the causes of ended connections ([`WorkerMeter`](crate::WorkerMeter)). Events of
//! the process are counted in one table of the process. Their sources (accept loops, the log,
//! reloads) exist before the control plane, or know nothing of it. No request on its regular path
//! is counted here.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Insecurity;

/// The cause of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
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

impl End {
    /// All causes of a connection's end, in the order of the enumeration.
    pub const ALL: [End; 11] = [
        End::Peer,
        End::Network,
        End::Protocol,
        End::Unsayable,
        End::Session,
        End::Stuck,
        End::NotLetIn,
        End::Drained,
        End::Ordered,
        End::Superseded,
        End::BackPressure,
    ];

    /// Returns the cause's name in metrics.
    pub fn word(self) -> &'static str {
        match self {
            End::Peer => "peer",
            End::Network => "network",
            End::Protocol => "protocol_error",
            End::Unsayable => "failed_request",
            End::Session => "session",
            End::Stuck => "stuck",
            End::NotLetIn => "not_let_in",
            End::Drained => "drained",
            End::Ordered => "ordered",
            End::Superseded => "superseded",
            End::BackPressure => "back_pressure",
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
    pub(crate) fn failed(self) -> Happening {
        match self {
            Credential::Token => Happening::TokenFailed,
            Credential::Key => Happening::KeyFailed,
            Credential::AdminToken => Happening::AdminTokenFailed,
        }
    }

    pub(crate) fn delayed(self) -> Happening {
        match self {
            Credential::Token => Happening::TokenDelayed,
            Credential::Key => Happening::KeyDelayed,
            Credential::AdminToken => Happening::AdminTokenDelayed,
        }
    }
}

/// A rare event of the server's process, counted since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
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
const KINDS: usize = Happening::TlsProtocol as usize + 1;

static COUNTS: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

impl Happening {
    /// The failures of TLS handshakes, in the order of [`Insecurity::WORDS`].
    pub const INSECURE: [Happening; Insecurity::WORDS.len()] = [
        Happening::TlsPlain,
        Happening::TlsBrokenOff,
        Happening::TlsLate,
        Happening::TlsCrowd,
        Happening::TlsCertificate,
        Happening::TlsKey,
        Happening::TlsProtocol,
    ];

    /// Returns the event of a TLS handshake that failed for this reason.
    pub fn insecure(why: Insecurity) -> Happening {
        Happening::INSECURE[why.class()]
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
        let before = (Happening::ReloadDone.so_far(), Happening::UpgradeFailed.so_far());
        Happening::UpgradeFailed.count();
        Happening::UpgradeFailed.count();
        assert_eq!(Happening::ReloadDone.so_far(), before.0);
        assert_eq!(Happening::UpgradeFailed.so_far(), before.1 + 2);
    }

    #[test]
    fn ends_are_in_their_order_and_have_words_of_their_own() {
        for (n, end) in End::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, n);
            assert!(End::ALL[..n].iter().all(|other| other.word() != end.word()));
        }
    }
}
