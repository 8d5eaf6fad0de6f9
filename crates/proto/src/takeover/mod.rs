//! The messages of two processes while the newer takes over from the older
//! (docs/adr/0009-upgrade.md): heads of fixed size, and connections as bytes.
//!
//! Deliberately left out: the Unix socket and its descriptors, the order of messages, and the
//! bodies of messages about the server as a whole, which the program encodes.

mod batch;
mod bytes;
mod head;
mod parcel;
mod unfit;

pub use batch::{
    Parcels, controller, parcels, put_controller, put_parcel, put_parcel_within, put_tickets,
    tickets,
};
pub(crate) use bytes::{Reader, Writer, age, earlier};
pub use head::{TakeoverHead, TakeoverKind};
pub use parcel::{decode, encode};
pub(crate) use parcel::{put_command, take_command};
pub use unfit::{BODY_BYTES_MAX, TakeoverRefusal, VERSION};
