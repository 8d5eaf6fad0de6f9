//! The reason that a connection with TLS ended, or never began.

use core::fmt;

/// The reason that a connection over TLS ended, or never began. The other end is called the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFailure {
    /// The peer sent something that is not TLS.
    Plain,
    /// The peer wants TLS, which this end does not speak.
    Wanted,
    /// The peer closed the connection during the handshake, or reset it.
    BrokenOff,
    /// The TLS handshake did not end in time.
    Late,
    /// Too many TLS handshakes ran at the same time.
    Crowd,
    /// The peer offers no version or cipher that this end has.
    NothingInCommon,
    /// No trusted authority has issued the peer's certificate.
    UnknownAuthority,
    /// The peer's certificate has expired.
    Expired,
    /// The peer's certificate is not valid yet.
    NotYetValid,
    /// The peer's certificate is for other names.
    WrongName,
    /// The peer's certificate has another fingerprint than the expected one.
    WrongFingerprint,
    /// The peer's certificate is malformed.
    BadCertificate,
    /// The peer offers no pre-shared key that this end knows.
    UnknownKey,
    /// The peer does not have the pre-shared key whose identity was agreed on in the handshake.
    WrongKey,
    /// The peer sent a fatal alert of this number (RFC 8446, section 6).
    Alert(u8),
    /// A record was tampered with, or is malformed.
    BadRecord,
    /// The peer violated the TLS protocol in a way that has no value of its own here.
    Misbehaved,
    /// An internal error of this end.
    Internal,
}

impl TlsFailure {
    /// The fatal alert "unexpected message", sent by a listener that requires TLS to a peer that
    /// does not speak it.
    pub const REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

    /// The names of the reasons in metrics. Several reasons have the same name, and are counted
    /// together.
    pub const WORDS: [&'static str; 7] =
        ["plain", "broken_off", "late", "crowd", "certificate", "key", "protocol"];

    /// Returns the index of the reason's name in [`WORDS`](TlsFailure::WORDS).
    pub fn class(self) -> usize {
        match self {
            TlsFailure::Plain | TlsFailure::Wanted => 0,
            TlsFailure::BrokenOff => 1,
            TlsFailure::Late => 2,
            TlsFailure::Crowd => 3,
            TlsFailure::UnknownAuthority
            | TlsFailure::Expired
            | TlsFailure::NotYetValid
            | TlsFailure::WrongName
            | TlsFailure::WrongFingerprint
            | TlsFailure::BadCertificate => 4,
            // A peer that does not like this end's certificate says so with one of these.
            TlsFailure::Alert(42..=49 | 113 | 116) => 4,
            TlsFailure::UnknownKey | TlsFailure::WrongKey | TlsFailure::Alert(115) => 5,
            TlsFailure::NothingInCommon
            | TlsFailure::Alert(_)
            | TlsFailure::BadRecord
            | TlsFailure::Misbehaved
            | TlsFailure::Internal => 6,
        }
    }
}

/// Returns the meaning of a TLS alert, for the log.
fn alert(number: u8) -> &'static str {
    match number {
        10 => "unexpected message",
        20 => "damaged record",
        22 => "too large a record",
        40 => "nothing in common",
        42 | 43 => "bad certificate",
        44 => "revoked certificate",
        45 => "expired certificate",
        46 => "unusable certificate",
        47 => "value that does not fit, such as the proof of a wrong pre-shared key",
        48 => "unknown authority of the certificate",
        49 => "access denied",
        50 => "message that makes no sense",
        51 => "failed proof",
        70 => "unsupported version",
        80 => "internal error",
        112 => "unknown name",
        115 => "unknown pre-shared key",
        116 => "missing certificate",
        _ => "another alert",
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsFailure::Plain => "the other end does not speak TLS",
            TlsFailure::Wanted => "the other end wants TLS",
            TlsFailure::BrokenOff => "the other end broke the TLS handshake off",
            TlsFailure::Late => "the TLS handshake did not end in time",
            TlsFailure::Crowd => "there were too many TLS handshakes at the same time",
            TlsFailure::NothingInCommon => "the other end offers no version or cipher of TLS 1.3",
            TlsFailure::UnknownAuthority => "no trusted authority has issued its certificate",
            TlsFailure::Expired => "its certificate has expired",
            TlsFailure::NotYetValid => "its certificate is not valid yet (is the clock right?)",
            TlsFailure::WrongName => "its certificate is for another name",
            TlsFailure::WrongFingerprint => "its certificate has another fingerprint",
            TlsFailure::BadCertificate => {
                "its certificate makes no sense, or is an authority's own (CA:TRUE)"
            }
            TlsFailure::UnknownKey => "the other end offers no pre-shared key that is known here",
            TlsFailure::WrongKey => "the other end does not have the pre-shared key",
            TlsFailure::Alert(number) => {
                return write!(
                    f,
                    "the other end ended TLS with alert {number} ({})",
                    alert(*number)
                );
            }
            TlsFailure::BadRecord => "a TLS record was changed on the way, or is not one",
            TlsFailure::Misbehaved => "the other end broke the TLS protocol",
            TlsFailure::Internal => "TLS could not go on at this end",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_count_under_their_names() {
        let word = |reason: TlsFailure| TlsFailure::WORDS[reason.class()];
        assert_eq!(word(TlsFailure::Alert(48)), "certificate");
        assert_eq!(word(TlsFailure::Alert(70)), "protocol");
        assert_eq!(word(TlsFailure::Expired), "certificate");
        assert_eq!(word(TlsFailure::WrongKey), "key");
        assert_eq!(word(TlsFailure::Plain), "plain");
    }
}
