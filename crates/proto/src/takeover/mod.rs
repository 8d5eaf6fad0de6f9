//! What two processes say to each other while the newer takes over from the older
//! (docs/adr/0009-upgrade.md): messages with a head of fixed size, and connections as bytes.
//!
//! What is deliberately not here: the Unix socket and the descriptors that go along, who may say what
//! when, and the bodies of messages about the server as a whole, which the program makes.

mod batch;
mod bytes;
mod head;
mod parcel;

use core::fmt;

pub use batch::{
    Parcels, controller, parcels, put_controller, put_parcel, put_parcel_within, put_tickets,
    tickets,
};
pub(crate) use bytes::{Reader, Writer};
pub use head::{Head, Kind};
pub use parcel::{decode, encode};
pub(crate) use parcel::{put_command, take_command};

/// The version of all that is here. A process that speaks another one is refused.
pub const VERSION: u16 = 3;

/// Bytes of a message's body at most.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// Why a message, or a connection, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It does not begin as ours do.
    Foreign,
    /// It is of this version.
    Version(u16),
    /// It ends before it should, or goes on behind its end.
    Length,
    /// It says something that cannot be; what.
    Value(&'static str),
    /// A tenant of this name, or (empty) one without a name, is not known.
    Tenant(alloc::string::String),
    /// It is larger than a message may be.
    TooLarge,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Foreign => f.write_str("it is not from a nearflash server"),
            Unfit::Version(version) => write!(
                f,
                "it is of version {version} of the take-over, and this server speaks {VERSION}"
            ),
            Unfit::Length => f.write_str("it is cut, or longer than it says"),
            Unfit::Value(what) => write!(f, "its {what} makes no sense"),
            Unfit::Tenant(name) => write!(f, "there is no tenant {name:?}"),
            Unfit::TooLarge => f.write_str("it holds more than a message takes"),
        }
    }
}

impl core::error::Error for Unfit {}
