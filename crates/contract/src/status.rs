//! How a request ended.

use core::fmt;

/// The outcome of a request, in protocol-neutral words. The numbers are those of protocol
/// `reflex` version 2 (docs/protocol/reflex-v2.md, "Status codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The command is known but this server, namespace or device does not serve it.
    Unsupported = 1,
    /// The message is well framed but a field of it makes no sense (an unknown opcode, a flag).
    Invalid = 2,
    /// Zero blocks, more than the largest request, or a payload that does not match the range.
    BadLength = 3,
    /// The range does not lie within the namespace.
    OutOfRange = 4,
    /// The access rules do not let this connection do that.
    Denied = 5,
    /// There is no such namespace.
    NoNamespace = 6,
    /// There is no such tenant, or it was unregistered.
    NoTenant = 7,
    /// An SLO cannot be promised, or a table of the server is full.
    NoResources = 8,
    /// A compare found other data; nothing was written.
    CompareFailed = 9,
    /// The payload's checksum does not match its bytes; nothing was written.
    BadChecksum = 10,
    /// The device could not read or write the range.
    MediaError = 11,
    /// The device has no space left for the write.
    NoSpace = 12,
    /// The namespace or device is read-only.
    ReadOnly = 13,
    /// Not done and safe to send again: the server is busy, draining or could not meet a deadline.
    Retry = 14,
    /// An atomic write is larger than what the device can write atomically.
    AtomicTooLarge = 15,
    /// The connection ended before the outcome was known (made by clients, never on the wire).
    ConnectionLost = 16,
    /// Something went wrong inside the server; its log says what.
    Internal = 17,
}

impl Status {
    /// Every status, in the order of its number.
    pub const ALL: [Status; 18] = [
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
    ];

    /// The number on the wire (protocol `reflex` version 2).
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The status with this number; a number that a newer peer made up is `Internal`.
    pub fn from_code(code: u16) -> Status {
        Status::ALL.get(usize::from(code)).copied().unwrap_or(Status::Internal)
    }

    /// Whether the request was carried out.
    pub const fn is_ok(self) -> bool {
        matches!(self, Status::Ok)
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
}
