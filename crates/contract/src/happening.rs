//! What happens to a server or to a connection so rarely that it is counted one by one: what operators
//! alarm on.
//!
//! Why connections end is counted by their workers ([`WorkerMeter`](crate::WorkerMeter)). What happens to
//! the process, to whichever part of it, is counted in one table of it: those who see it (accept loops,
//! the log, reloads) are made before the control plane or know nothing of it. Nothing on the way of a
//! request is counted there.

use core::sync::atomic::{AtomicU64, Ordering};

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its peer closed it.
    Peer,
    /// Its peer reset it, or the network failed.
    Network,
    /// Its peer broke the protocol.
    Protocol,
    /// A request failed, and its protocol has no word for that (version 1 of `reflex`).
    Unsayable,
    /// Its protocol ended it: an NVMe controller was shut down, missed its keep-alives, was not let in
    /// or is not any more.
    Session,
    /// Its peer left a message or its credentials half sent, or replies unread, for too long.
    Stuck,
    /// No access rule lets it in, or the tenant that it names is not there.
    NotLetIn,
    /// The server, its worker or its listener was drained.
    Drained,
    /// An operator ended it.
    Ordered,
    /// Its client has a newer connection.
    Superseded,
    /// Too much was kept for stopped connections already (`limits.carried`).
    BackPressure,
}

impl End {
    /// All of them, in their order.
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

    /// What metrics call it.
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

/// What a peer proves who it is by.
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

/// Something that happens to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A connection was not let in: there are as many as may be.
    RefusedFull,
    /// A connection was not let in: its listener is drained.
    RefusedDrained,
    /// A client's token was wrong.
    TokenFailed,
    /// A client's token was looked at late, because of wrong ones from its address.
    TokenDelayed,
    /// An NVMe host did not prove who it is, or broke off.
    KeyFailed,
    /// An NVMe host's proof was looked at late.
    KeyDelayed,
    /// An operator's token was wrong.
    AdminTokenFailed,
    /// Whoever had a wrong operator's token was told to come later.
    AdminTokenDelayed,
    /// A record is in the audit log.
    AuditKept,
    /// A record could not be written to the audit log when it was due.
    AuditOwed,
    /// An event was left out of the log.
    LogLeftOut,
    /// The configuration was read again.
    ReloadDone,
    /// The configuration was read again, and nothing of it was taken.
    ReloadRefused,
    /// This process has taken over from another.
    UpgradeDone,
    /// Another process was to take over, and did not.
    UpgradeFailed,
}

/// Of how many kinds things happen.
const KINDS: usize = Happening::UpgradeFailed as usize + 1;

static COUNTS: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

impl Happening {
    /// It has happened once more.
    #[cold]
    pub fn count(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has happened in this process.
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
