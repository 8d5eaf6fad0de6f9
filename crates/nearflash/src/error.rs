//! The errors of the library, with messages for the caller.

use std::fmt;

use contract::Status;

use crate::slo::Refused;

/// The reason that a request, or a connection to a server, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The server's address is invalid or unknown.
    Address(String),
    /// The server could not be reached, or refused the connection.
    Connect(String),
    /// The client's machine lacks something that the client needs (io_uring, memory), named in the
    /// text.
    System(String),
    /// The data's length is not a multiple of 512 bytes, or is zero.
    Length {
        /// The length in bytes.
        bytes: usize,
    },
    /// The request is larger than one request can be. An atomic request cannot be cut.
    TooLarge {
        /// Maximum length in bytes.
        bytes_max: usize,
    },
    /// A compare found different data; nothing was written.
    CompareFailed,
    /// The connection was lost before the outcome was known, and the request could not be repeated.
    /// The request may have been carried out or not.
    ConnectionLost,
    /// The server answered with this status; nothing was done unless the status says otherwise.
    Failed(Status),
    /// The server refused the SLO of a tenant.
    Refused(Refused),
    /// All streams that the client has for barriers are in use.
    NoStreams,
    /// The maximum number of requests is in flight, or a request about the tenant is in progress.
    Full,
    /// The client's thread has ended.
    Closed,
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        match status {
            Status::CompareFailed => Error::CompareFailed,
            Status::ConnectionLost => Error::ConnectionLost,
            other => Error::Failed(other),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Address(text) | Error::Connect(text) | Error::System(text) => f.write_str(text),
            Error::Length { bytes } => {
                write!(f, "{bytes} bytes are not a whole number of 512-byte blocks")
            }
            Error::TooLarge { bytes_max } => {
                write!(f, "larger than one request can be ({bytes_max} bytes)")
            }
            Error::CompareFailed => f.write_str("the compare found other data"),
            Error::ConnectionLost => {
                f.write_str("the connection was lost before the outcome was known")
            }
            Error::Failed(status) => write!(f, "the server answered: {status}"),
            Error::Refused(refused) => refused.fmt(f),
            Error::Full => f.write_str("the maximum number of requests is in flight"),
            Error::NoStreams => f.write_str("all streams are in use"),
            Error::Closed => f.write_str("the client is closed"),
        }
    }
}

impl std::error::Error for Error {}
