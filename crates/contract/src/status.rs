//! The outcome of a request.

use core::fmt;

/// The outcome of a request, independent of the protocol. The numbers are those of protocol
/// `reflex` version 2 (docs/reference/protocols/reflex-v2.md, "Status codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[non_exhaustive]
pub enum Status {
    /// The request succeeded.
    Ok = 0,
    /// The command is known but this server, namespace or device does not support it.
    Unsupported = 1,
    /// The message is well framed, but a field is invalid (an unknown opcode, a flag).
    Invalid = 2,
    /// Zero blocks, more than the largest request, or a payload that does not match the range.
    BadLength = 3,
    /// The range does not lie within the namespace.
    OutOfRange = 4,
    /// The access rules deny the request to this connection.
    Denied = 5,
    /// The namespace does not exist.
    NoNamespace = 6,
    /// The tenant does not exist, or was unregistered.
    NoTenant = 7,
    /// An SLO cannot be promised, or a table of the server is full.
    NoResources = 8,
    /// A compare found different data; nothing was written.
    CompareFailed = 9,
    /// The payload's checksum does not match its bytes; nothing was written.
    BadChecksum = 10,
    /// The device could not read or write the range.
    MediaError = 11,
    /// The device has no space left for the write.
    NoSpace = 12,
    /// The namespace or device is read-only.
    ReadOnly = 13,
    /// Not carried out, and safe to repeat: the server is busy, draining or could not meet a
    /// deadline.
    Retry = 14,
    /// An atomic write exceeds the device's atomic size.
    AtomicTooLarge = 15,
    /// The connection ended before the outcome was known (made by clients, never on the wire).
    ConnectionLost = 16,
    /// The server has an internal error, described in its log.
    Internal = 17,
    /// A flush came too late for changes that were acknowledged before: they were lost with the
    /// machine of the server (made by clients, never on the wire).
    WritesLost = 18,
}

impl Status {
    /// Every status, in the order of its number.
    pub const ALL: [Status; 19] = [
        Status::Ok,
        Status::Unsupported,
        Status::Invalid,
        Status::BadLength,
        Status::OutOfRange,
        Status::Denied,
        Status::NoNamespace,
        Status::NoTenant,
        Status::NoResources,
        Status::CompareFailed,
        Status::BadChecksum,
        Status::MediaError,
        Status::NoSpace,
        Status::ReadOnly,
        Status::Retry,
        Status::AtomicTooLarge,
        Status::ConnectionLost,
        Status::Internal,
        Status::WritesLost,
    ];

    /// Returns the number on the wire (protocol `reflex` version 2).
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Returns the status with this number. An unknown number, from a newer peer, is `Internal`.
    pub fn from_code(code: u16) -> Status {
        Status::ALL.get(usize::from(code)).copied().unwrap_or(Status::Internal)
    }

    /// Returns `true` if the request succeeded.
    pub const fn is_ok(self) -> bool {
        matches!(self, Status::Ok)
    }

    /// Returns the outcome of a request that changes data and was sent on an earlier connection too,
    /// whose last copy ended with this status. A refusal of the last copy says nothing of the earlier
    /// ones, which a device may still carry out: the outcome is then unknown.
    #[must_use]
    pub const fn of_repeated_change(self) -> Status {
        match self {
            Status::Retry
            | Status::NoResources
            | Status::NoTenant
            | Status::NoNamespace
            | Status::Denied
            | Status::ReadOnly => Status::ConnectionLost,
            told => told,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Ok => "ok",
            Status::Unsupported => "not supported here",
            Status::Invalid => "invalid field",
            Status::BadLength => "bad length",
            Status::OutOfRange => "outside the namespace",
            Status::Denied => "access denied",
            Status::NoNamespace => "no such namespace",
            Status::NoTenant => "no such tenant",
            Status::NoResources => "out of resources",
            Status::CompareFailed => "compare failed",
            Status::BadChecksum => "checksum mismatch",
            Status::MediaError => "media error",
            Status::NoSpace => "no space left on the device",
            Status::ReadOnly => "read-only",
            Status::Retry => "busy, try again",
            Status::AtomicTooLarge => "larger than the device writes atomically",
            Status::ConnectionLost => "connection lost",
            Status::Internal => "internal error",
            Status::WritesLost => {
                "writes that were not flushed are lost: the server's machine started anew"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for (number, status) in Status::ALL.iter().enumerate() {
            assert_eq!(usize::from(status.code()), number);
            assert_eq!(Status::from_code(status.code()), *status);
        }
        assert_eq!(Status::from_code(9999), Status::Internal);
    }

    #[test]
    fn a_refused_copy_says_nothing_of_earlier_ones() {
        for told in [Status::Retry, Status::Denied, Status::NoTenant] {
            assert_eq!(told.of_repeated_change(), Status::ConnectionLost);
        }
        for told in [Status::Ok, Status::MediaError, Status::OutOfRange, Status::CompareFailed] {
            assert_eq!(told.of_repeated_change(), told);
        }
    }
}
