//! Reliable messages in packets, without I/O: a transport for any carrier of packets, of which UDP
//! exists today (docs/explanation/packets.md).
//!
//! An [`Endpoint`] takes packets and messages as values, and yields [`Packet`]s and [`Event`]s. An
//! *association* joins two processes; the *channels* inside it are the connections of their
//! sessions. A message is delivered exactly once, in any order down to a *floor* that its sender
//! sets.
//!
//! [`Packets`] makes the port [`Transport`](contract::Transport) of an endpoint above a [`Lane`].
//!
//! This crate deliberately leaves out lanes, clocks and chance. Time and secrets come in as
//! arguments, and the caller carries the packets.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod association;
pub mod batch;
mod caller;
mod channel;
mod choose;
mod conns;
mod control;
mod credits;
mod deadlines;
mod directory;
mod endpoint;
mod entrance;
mod event;
mod flags;
mod greet;
mod head;
mod hear;
mod incoming;
mod key;
mod lane;
mod lanes;
mod loss;
mod message;
mod moved;
mod noise;
mod outgoing;
mod pack;
mod packet;
mod path;
mod peer_address;
mod piece;
mod pools;
mod proof;
mod receipt;
mod record;
mod routes;
mod rtt;
mod seal;
mod seals;
mod secret;
mod sent;
mod settings;
mod shaped;
mod slab;
mod speak;
mod transport;
#[cfg(test)]
mod trial;
mod waiting;
mod window;
mod words;

pub use association::PATHS_MAX;
pub use control::Policy;
pub use endpoint::{Endpoint, ReceivedPacket};
pub use event::{AssociationEnd, AssociationId, Delivery, Event, MessageBody};
pub use head::PACKET_BYTES_MAX;
pub use key::PacketKey;
pub use lane::Lane;
pub use packet::{LentBodies, PARTS_MAX, Packet};
pub use peer_address::PeerAddress;
pub use pools::Counters;
pub use routes::Route;
pub use settings::{LANES_MAX, SealSettings, Settings};
pub use shaped::{AHEAD, Shape, ShapedLane};
pub use transport::{Packets, TransportSettings};
