//! The version and the limits of take-over messages, and the reasons for refusing a message.

use core::fmt;

/// The version of all messages between two processes in a take-over. A process with another version
/// is refused.
pub const VERSION: u16 = 4;

/// The largest message body in bytes.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// The reason why a message, or a connection, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeoverRefusal {
    /// The magic number is not that of the expected content.
    Foreign,
    /// The message is of this version, which is not [`VERSION`].
    Version(u16),
    /// The length is wrong: bytes are missing or left over.
    Length,
    /// A field has an invalid value; the text names the field.
    Value(&'static str),
    /// A tenant of this name is unknown; empty if the tenant has no name.
    Tenant(alloc::string::String),
    /// The content is larger than a message may be.
    TooLarge,
}

impl fmt::Display for TakeoverRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeoverRefusal::Foreign => f.write_str("it is not from a nearflash server"),
            TakeoverRefusal::Version(version) => write!(
                f,
                "it is of version {version} of the take-over, and this server speaks {VERSION}"
            ),
            TakeoverRefusal::Length => f.write_str("it is cut, or longer than it says"),
            TakeoverRefusal::Value(what) => write!(f, "its {what} makes no sense"),
            TakeoverRefusal::Tenant(name) => write!(f, "there is no tenant {name:?}"),
            TakeoverRefusal::TooLarge => f.write_str("it holds more than a message takes"),
        }
    }
}

impl core::error::Error for TakeoverRefusal {}
